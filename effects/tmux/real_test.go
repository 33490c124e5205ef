package tmux_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/process"
	"skc.dev/skc/effects/tmux"
	"skc.dev/skc/effects/tmux/tmuxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// real is a private tmux of one test. Its launcher is the shell and a launch
// file is a script, which ends when a number is written to a pipe beside it.
type real struct {
	*tmuxtest.World
	client *tmux.Client
	o      tmux.Options
	stop   func() // ends Run and waits
}

type option func(*tmux.Options)

func newReal(t testing.TB, opts ...option) *real {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: apt-get install tmux")
	}
	dir, err := os.MkdirTemp("", "skc")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	watcher, err := process.NewWatcher()
	must(t, err)
	t.Cleanup(func() { must(t, watcher.Close()) })
	o := tmux.Options{
		Socket: filepath.Join(dir, "run", "tmux.sock"), Launcher: "/bin/sh", LaunchDir: filepath.Join(dir, "launch"),
		Processes: watcher, Files: &files.Layer{}, Clock: clock.RealClock{}, Log: logr.Discard(),
	}
	if tt, ok := t.(*testing.T); ok {
		o.Log = testr.New(tt)
	}
	for _, f := range opts {
		f(&o)
	}
	must(t, os.MkdirAll(o.LaunchDir, 0o700))
	r := &real{o: o}
	t.Cleanup(func() { r.endServer(t) })
	r.run(t)
	return r
}

// run starts a client on the server, as a controller that starts does.
func (r *real) run(t testing.TB) {
	t.Helper()
	r.client = tmux.New(r.o)
	changes := make(chan string, 100_000)
	r.client.OnChange(func(uid string) { changes <- uid })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.client.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run = %v", err)
			}
		case <-time.After(tmuxtest.Limit):
			t.Error("Run does not end")
		}
	}
	t.Cleanup(r.stop)
	r.World = &tmuxtest.World{
		Mux: r.client, Changes: changes,
		Prepare: func(l effects.LaunchID) { r.script(t, l, "read code <'"+fifo(l)+"' && exit $code") },
		PrepareReader: func(l effects.LaunchID) {
			r.script(t, l, "stty raw; printf '\\033[?2004hready\\r\\n'; exec cat >'"+l.FileName()+".read'")
		},
		Reading: func(p effects.TmuxPane) bool {
			s, err := r.client.Screen(context.Background(), p)
			return err == nil && slices.Contains(s.Lines, "ready")
		},
		Read: func(p effects.TmuxPane) string {
			b, err := os.ReadFile(filepath.Join(r.o.LaunchDir, p.Launch.FileName()+".read"))
			if err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
			return string(b)
		},
		Exit: func(p effects.TmuxPane, code int) {
			f, err := os.OpenFile(filepath.Join(r.o.LaunchDir, fifo(p.Launch)), os.O_WRONLY, 0)
			must(t, err)
			_, err = fmt.Fprintln(f, code)
			must(t, err)
			must(t, f.Close())
		},
		Die: func(p effects.TmuxPane, signal string) { kill(t, p.Process.PID, unix.SignalNum(signal)) },
		Close: func(p effects.TmuxPane) {
			r.tmux(t, "kill-session", "-t", p.SessionID)
		},
		Rename: func(p effects.TmuxPane, name string) {
			r.tmux(t, "rename-session", "-t", p.SessionID+":", name)
		},
		Tagged: func(p effects.TmuxPane, name string) string {
			out, err := r.try("show-options", "-v", "-t", p.SessionID+":", name)
			if err != nil {
				return ""
			}
			return strings.TrimSuffix(out, "\n")
		},
		KillServer: func() { kill(t, r.serverPID(t), unix.SIGKILL) },
		Hang:       func() { kill(t, r.serverPID(t), unix.SIGSTOP) },
		Resume:     func() { kill(t, r.recorded(t), unix.SIGCONT) },
	}
}

func fifo(l effects.LaunchID) string { return l.FileName() + ".end" }

// script makes the launch file: what its shell runs, in the launch folder.
func (r *real) script(t testing.TB, l effects.LaunchID, text string) {
	t.Helper()
	path := filepath.Join(r.o.LaunchDir, l.FileName())
	if err := syscall.Mkfifo(path+".end", 0o600); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	must(t, os.WriteFile(path, []byte("cd -- \"${0%/*}\" || exit 99\n"+text+"\n"), 0o600))
}

// tmux is what a user types; it must work.
func (r *real) tmux(t testing.TB, args ...string) string {
	t.Helper()
	out, err := r.try(args...)
	if err != nil {
		t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return out
}

func (r *real) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-u", "-N", "-S", r.o.Socket}, args...)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (r *real) serverPID(t testing.TB) int {
	t.Helper()
	s, err := r.client.Server(t.Context())
	must(t, err)
	return s.PID
}

// recorded is the pid that was written down for the server; 0 for none.
func (r *real) recorded(t testing.TB) int {
	t.Helper()
	data, err := os.ReadFile(r.o.Socket + ".server")
	if os.IsNotExist(err) {
		return 0
	}
	must(t, err)
	pid, err := strconv.Atoi(strings.Fields(string(data))[0])
	must(t, err)
	return pid
}

// endServer leaves no server and no program of a pane behind.
func (r *real) endServer(t testing.TB) {
	r.stop()
	for _, pid := range r.servers() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
		for _, child := range r.children(pid) {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// servers are the tmux servers of this test's socket that live, known by their
// command line, wherever the socket leads by now.
func (r *real) servers() (pids []int) {
	procs, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, p := range procs {
		comm, _ := os.ReadFile(p)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "cmdline"))
		if pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p))); strings.HasPrefix(string(comm), "tmux: server") && strings.Contains(string(line), r.o.Socket) && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (r *real) children(pid int) (pids []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, f := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(f); err == nil && n > 1 {
			pids = append(pids, n)
		}
	}
	return pids
}

func kill(t testing.TB, pid int, sig syscall.Signal) {
	t.Helper()
	if pid < 2 {
		t.Fatalf("signal process %d", pid)
	}
	must(t, syscall.Kill(pid, sig))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestContract(t *testing.T) {
	tmuxtest.Contract(t, func(t *testing.T) *tmuxtest.World {
		return newReal(t, func(o *tmux.Options) { o.Timeout, o.Heartbeat = time.Second, time.Second }).World
	})
}
