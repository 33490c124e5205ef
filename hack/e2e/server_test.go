//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/hack/e2e/world"
)

// several starts n sessions and returns their pids by name.
func several(w *world.World, n int, more ...string) map[string]int {
	w.Helper()
	for i := range n {
		name := fmt.Sprintf("s-%d", i)
		w.Drop(name+".yaml", session(name, sleeper, more...))
	}
	pids := map[string]int{}
	for i := range n {
		name := fmt.Sprintf("s-%d", i)
		pids[name] = w.UntilRunning(name)
	}
	return pids
}

// same fails when a session has another pid than before, or was started twice.
func same(w *world.World, pids map[string]int) {
	w.Helper()
	for name, pid := range pids {
		if now := w.UntilRunning(name); now != pid {
			w.Errorf("%s went from %d to %d", name, pid, now)
		}
		if n := w.Starts(name + "/log"); n != 1 {
			w.Errorf("%s was started %d times", name, n)
		}
	}
}

// B-019: the socket of the living server is removed, replaced by a foreign one,
// or by a file: the programs keep their pids, there is no second server, and
// every verb works again.
func TestB019SocketRemoved(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"removed", "foreign", "file", "removed while down"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			w.Start()
			pids := several(w, 3)
			server := w.Servers()
			if how == "removed while down" {
				w.Stop(syscall.SIGTERM)
			}
			switch how {
			case "foreign":
				at := filepath.Join(w.Dir, "foreign.sock")
				l, err := net.Listen("unix", at)
				world.Must(t, err)
				defer l.Close() //nolint:errcheck // nothing was written
				world.Must(t, os.Rename(at, w.Socket()))
			case "file":
				w.Write(w.Socket(), "")
			case "removed":
				world.Must(t, os.Remove(w.Socket()))
			case "removed while down":
				world.Must(t, os.Remove(w.Socket()))
				w.Start()
			}
			w.Within(2*world.Patience, "the server can be reached again", func() bool {
				out, err := w.Tmux("display-message", "-p", "#{pid}")
				return err == nil && out == fmt.Sprint(server[0])
			})
			w.Apply(session("later", "[cat]"))
			w.UntilRunning("later")
			w.MustCtl("send", "later", "hello", "--enter")
			same(w, pids)
			if now := w.Servers(); !slices.Equal(now, server) {
				t.Errorf("the servers went from %v to %v", server, now)
			}
		})
	}
}

// B-020: the only session stops at the moment that another one starts, again
// and again: the server never goes, and every start comes up in time.
func TestB020LastSessionRacesStart(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	w.Drop("r-0.yaml", session("r-0", sleeper))
	w.UntilRunning("r-0")
	server := w.Servers()
	const rounds = 40
	for i := 1; i <= rounds; i++ {
		old, now := fmt.Sprintf("r-%d", (i-1)%2), fmt.Sprintf("r-%d", i%2)
		w.Drop(old+".yaml", session(old, sleeper, "desiredState: Stopped"))
		w.Drop(now+".yaml", session(now, sleeper))
		w.Within(10*time.Second, now+" runs", func() bool { return w.Condition(now, "Ready") == "True/Running" && len(w.Mains(now)) == 1 })
		w.Within(10*time.Second, old+" is stopped", func() bool { return w.Condition(old, "Ready") == "True/Stopped" })
	}
	if s := w.Servers(); !slices.Equal(s, server) {
		t.Errorf("the servers went from %v to %v", server, s)
	}
	for _, n := range []string{"r-0", "r-1"} {
		for _, e := range w.Events(n) {
			if strings.Contains(e, "server") {
				t.Errorf("%s: %s", n, e)
			}
		}
	}
	// The same with files that go away.
	for i := range 6 {
		old, now := fmt.Sprintf("r-%d", i%2), fmt.Sprintf("r-%d", (i+1)%2)
		if i == 0 {
			old, now = "r-0", "r-1"
		}
		_ = os.Remove(filepath.Join(w.Spool, old+".yaml"))
		w.Drop(now+".yaml", session(now, sleeper))
		w.UntilRunning(now)
		w.UntilGone(old)
	}
	if s := w.Servers(); !slices.Equal(s, server) {
		t.Errorf("the servers went from %v to %v", server, s)
	}
}

// R17: SIGKILL of skcd, and another binary in its place, changes no pid of
// twenty sessions; the next start adopts them all within five seconds.
func TestSurviveKillAndUpgrade(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	installed := filepath.Join(w.Dir, "bin")
	world.Must(t, os.Mkdir(installed, 0o700))
	install := func(from string) {
		for _, b := range []string{"skcd", "skcctl", "skc-launch"} {
			data, err := os.ReadFile(filepath.Join(from, b))
			world.Must(t, err)
			tmp := filepath.Join(installed, ".new")
			world.Must(t, os.WriteFile(tmp, data, 0o700)) //nolint:gosec // a program
			world.Must(t, os.Rename(tmp, filepath.Join(installed, b)))
		}
	}
	release := w.Bin
	install(release)
	w.Bin = installed
	w.Start()
	pids := several(w, 20)
	server := w.Servers()
	for i := range 6 {
		if i%2 == 0 {
			w.Stop(syscall.SIGKILL)
		} else {
			w.Stop(syscall.SIGTERM)
		}
		if i == 2 {
			install(filepath.Join(release, "faults"))
		}
		if i == 4 {
			install(release)
		}
		begin := time.Now()
		w.Start()
		w.Within(5*time.Second, "all are adopted", func() bool {
			for name := range pids {
				if w.Condition(name, "Ready") != "True/Running" {
					return false
				}
			}
			return true
		})
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("adoption took %s", d)
		}
		same(w, pids)
	}
	// One that dies while nobody looks has its certificate, with its code or
	// signal, and is restarted by policy.
	w.Stop(syscall.SIGKILL)
	w.Kill(pids["s-7"], syscall.SIGKILL)
	w.Start()
	w.Until("s-7 runs again", func() bool { m := w.Mains("s-7"); return len(m) == 1 && m[0] != pids["s-7"] })
	w.UntilRunning("s-7")
	if d := w.Session("s-7").Status.LastTermination; d == nil || d.Signal != "SIGKILL" {
		t.Errorf("the certificate is %+v", d)
	}
	if s := w.Servers(); !slices.Equal(s, server) {
		t.Errorf("the servers went from %v to %v", server, s)
	}
}

// R16: the tmux server is killed: one event, not N deaths; Always and OnFailure
// are restored within fifteen seconds at no cost to their budget, Never stays
// down and says why.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			w.Start()
			for i, policy := range []string{"Always", "OnFailure", "Never"} {
				for j := range 4 {
					name := fmt.Sprintf("k-%d-%d", i, j)
					w.Drop(name+".yaml", session(name, sleeper, "restartPolicy: "+policy))
				}
			}
			pids := map[string]int{}
			for i := range 3 {
				for j := range 4 {
					name := fmt.Sprintf("k-%d-%d", i, j)
					pids[name] = w.UntilRunning(name)
				}
			}
			server := w.Servers()
			begin := time.Now()
			w.Kill(server[0], sig)
			for name, pid := range pids {
				if strings.HasPrefix(name, "k-2") {
					w.UntilCondition(name, "Ready", "False/ServerLost")
					continue
				}
				w.Until(name+" is back", func() bool { m := w.Mains(name); return len(m) == 1 && m[0] != pid })
				w.UntilRunning(name)
				s := w.Session(name)
				if s.Status.Restarts.Consecutive > 1 || s.Status.Restarts.Total != 1 || s.Status.LastTermination.Reason != "ServerLost" {
					t.Errorf("%s: %+v %+v", name, s.Status.Restarts, s.Status.LastTermination)
				}
			}
			if d := time.Since(begin); d > 15*time.Second {
				t.Errorf("all were back after %s", d)
			}
			if now := w.Servers(); len(now) != 1 || now[0] == server[0] {
				t.Errorf("the servers went from %v to %v", server, now)
			}
			if n := w.Metric("skc_tmux_server_starts_total"); n != 2 {
				t.Errorf("%v servers were started, want 2", n)
			}
			for name := range pids {
				lost := 0
				w.Until("the loss is an event of "+name, func() bool {
					lost = 0
					for _, e := range w.Events(name) {
						if strings.Contains(e, "Ended: ServerLost") {
							lost++
						}
					}
					return lost > 0
				})
				if lost != 1 {
					t.Errorf("%s has %d events of the loss: %q", name, lost, w.Events(name))
				}
			}
		})
	}
}

// R16, B-025: a program that ignores SIGHUP outlives the killed server; it is
// ended before its successor starts.
func TestServerKilledSurvivorIsNotDoubled(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	w.Apply(session("deaf", script(`mkdir alone || echo DOUBLE >> log; echo start >> log; trap "" HUP; trap "rmdir alone; exit" TERM; while :; do sleep 0.1; done`), "stop: {gracePeriod: 2s}"))
	p := w.UntilRunning("deaf")
	w.Until("it runs", func() bool { return len(w.Lines("deaf/log")) == 1 })
	w.Kill(w.Servers()[0], syscall.SIGKILL)
	w.Until("its successor runs", func() bool { m := w.Mains("deaf"); return len(m) == 1 && m[0] != p })
	w.UntilRunning("deaf")
	if world.Lives(p) {
		t.Error("the survivor lives on")
	}
	if l := w.Lines("deaf/log"); slices.Contains(l, "DOUBLE") {
		t.Errorf("two ran at once: %q", l)
	}
}

// R16: a tmux that hangs is reported within ten seconds and holds up nothing
// else; when it goes on, all is as before.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	pids := several(w, 4)
	server := w.Servers()
	w.Kill(server[0], syscall.SIGSTOP)
	w.Within(10*time.Second, "the hang is reported", func() bool {
		for name := range pids {
			if w.Condition(name, "Ready") != "Unknown/TmuxUnreachable" {
				return false
			}
		}
		return true
	})
	for _, args := range [][]string{{"get"}, {"describe"}, {"get", "sources"}, {"events"}, {"get", "s-0", "-o", "yaml"}} {
		begin := time.Now()
		if r := w.Ctl(args...); r.Code != 0 || time.Since(begin) > 3*time.Second {
			t.Errorf("skcctl %q took %s and ended with %d: %s", args, time.Since(begin), r.Code, r.Err)
		}
	}
	begin := time.Now()
	if r := w.Ctl("logs", "s-0"); r.Code == 0 || time.Since(begin) > 20*time.Second {
		t.Errorf("logs took %s and ended with %d: %s", time.Since(begin), r.Code, r.Err)
	}
	w.Apply(session("new", sleeper))
	w.UntilCondition("new", "Ready", "Unknown/TmuxUnreachable")
	w.Apply(session("parked", sleeper, "desiredState: Stopped"))
	w.Until("a new file is read", func() bool { return w.Session("parked") != nil })
	if status, _ := w.Get("/healthz"); status != 200 {
		t.Errorf("healthz answers %d", status)
	}
	w.Kill(server[0], syscall.SIGCONT)
	w.UntilRunning("new")
	same(w, pids)
	if now := w.Servers(); !slices.Equal(now, server) {
		t.Errorf("the servers went from %v to %v", server, now)
	}
}

// DESIGN.md 5: nothing about the controller ends tmux: the server has its own
// session and is not in skcd's process group.
func TestServerIsNoChildOfTheController(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Start()
	p := several(w, 1)
	server := w.Servers()[0]
	out, err := exec.Command("ps", "-o", "ppid=,pgid=,sid=", "-p", fmt.Sprint(server)).Output()
	world.Must(t, err)
	for _, id := range strings.Fields(string(out)) {
		if id == fmt.Sprint(c.PID()) {
			t.Errorf("parent, group, session of the server: %s; skcd is %d", out, c.PID())
		}
	}
	pgid, err := syscall.Getpgid(c.PID())
	world.Must(t, err)
	if got := strings.Fields(string(out))[1]; got == fmt.Sprint(pgid) {
		t.Errorf("the server is in skcd's process group %s", got)
	}
	same(w, p)
}
