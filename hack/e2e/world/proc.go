//go:build e2e

package world

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// worldVar is in the environment of every session of a world, by skcd's config:
// the suite finds what is left behind without asking skc.
const worldVar = "SKCE_WORLD"

// Proc is one process of a session.
type Proc struct {
	PID  int
	UID  string // of the Session
	Name string // namespace/name of the Session
	Args []string
}

// Procs are all processes that carry the mark of this world.
func (w *World) Procs() []Proc {
	mark := []byte("\x00" + worldVar + "=" + w.Dir + "\x00")
	var all []Proc
	for _, pid := range pids() {
		env, err := os.ReadFile(procPath(pid, "environ"))
		if err != nil || !bytes.Contains(append([]byte{0}, env...), mark) {
			continue
		}
		p := Proc{PID: pid, Args: Args(pid)}
		ns, name := "", ""
		for _, v := range strings.Split(string(env), "\x00") {
			k, v, _ := strings.Cut(v, "=")
			switch k {
			case "SKC_SESSION_UID":
				p.UID = v
			case "SKC_SESSION_NAME":
				name = v
			case "SKC_SESSION_NAMESPACE":
				ns = v
			}
		}
		p.Name = ns + "/" + name
		all = append(all, p)
	}
	return all
}

// Mains are the pids of the main processes of a session: those that the private
// tmux server started.
func (w *World) Mains(name string) []int {
	ns, n := split(name)
	var out []int
	for _, p := range w.Procs() {
		if p.Name == ns+"/"+n && w.isServer(parent(p.PID)) {
			out = append(out, p.PID)
		}
	}
	return out
}

// Of are all processes of a session, by its UID.
func (w *World) Of(uid string) []int {
	var out []int
	for _, p := range w.Procs() {
		if p.UID == uid {
			out = append(out, p.PID)
		}
	}
	return out
}

// Servers are the pids of the tmux servers of this world's socket.
func (w *World) Servers() []int {
	var out []int
	for _, pid := range pids() {
		if w.isServer(pid) {
			out = append(out, pid)
		}
	}
	return out
}

func (w *World) isServer(pid int) bool {
	comm, err := os.ReadFile(procPath(pid, "comm"))
	return err == nil && strings.HasPrefix(string(comm), "tmux: server") && slices.Contains(Args(pid), w.Socket())
}

// Controllers are the pids of all skcd that run for this home, whoever started
// them.
func (w *World) Controllers() []int {
	var out []int
	for _, pid := range pids() {
		if a := Args(pid); filepath.Base(a[0]) == "skcd" && slices.Contains(a, w.Home) && Lives(pid) {
			out = append(out, pid)
		}
	}
	return out
}

func pids() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

func procPath(pid int, file string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), file)
}

// Args is the command line of a process.
func Args(pid int) []string {
	b, _ := os.ReadFile(procPath(pid, "cmdline"))
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// CmdLines are the command lines of all processes of the machine.
func CmdLines() [][]byte {
	var out [][]byte
	for _, pid := range pids() {
		if b, err := os.ReadFile(procPath(pid, "cmdline")); err == nil && len(b) > 0 {
			out = append(out, b)
		}
	}
	return out
}

// stat are the fields of /proc/PID/stat after the name, from the state on.
func stat(pid int) []string {
	b, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return nil
	}
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return nil
	}
	return strings.Fields(string(b[i+1:]))
}

func parent(pid int) int {
	if f := stat(pid); len(f) > 1 {
		n, _ := strconv.Atoi(f[1])
		return n
	}
	return 0
}

// Lives tells whether a process is there and no zombie.
func Lives(pid int) bool {
	f := stat(pid)
	return len(f) > 0 && f[0] != "Z" && f[0] != "X"
}

// CPU is the time that a process has used.
func CPU(pid int) time.Duration {
	f := stat(pid)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	sys, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+sys) * 10 * time.Millisecond // the kernel tells hundredths
}

// Kill sends a signal to one process.
func (w *World) Kill(pid int, sig syscall.Signal) {
	w.Helper()
	if pid < 2 {
		w.Fatalf("pid %d is nobody's", pid)
	}
	Must(w, syscall.Kill(pid, sig))
}
