//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/hack/e2e/world"
)

// B-029, R18: two that start at the same moment, and one that starts beside a
// running one, also by another path of the same home: exactly one owner, the
// other ends at once with its own code and names the owner.
func TestB029OneOwner(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Drop("keep.yaml", caseFile(w, "011-two-controllers", "keep.yaml"))
	for round := range 15 {
		a, b := w.Spawn(), w.Spawn()
		a.Ended, b.Ended = true, true
		w.Until("one has ended", func() bool { return !a.Alive() || !b.Alive() })
		winner, loser := a, b
		if !a.Alive() {
			winner, loser = b, a
		}
		w.Until("the other is ready", func() bool { return !winner.Alive() || w.Ready() })
		if !winner.Alive() {
			t.Fatalf("round %d: both ended:\n%s\n%s", round, a.Text(), b.Text())
		}
		if code := loser.Wait(); code != 3 {
			t.Errorf("round %d: the loser ended with %d, want 3: %s", round, code, loser.Text())
		}
		if !strings.Contains(loser.Text(), fmt.Sprintf("pid %d", winner.PID())) {
			t.Errorf("round %d: the owner %d is not named: %s", round, winner.PID(), loser.Text())
		}
		sig := syscall.SIGTERM
		if round%2 == 0 {
			sig = syscall.SIGKILL
		}
		w.Kill(winner.PID(), sig)
		winner.Wait()
	}
	w.Start()
	p := w.UntilRunning("keep")
	link := filepath.Join(w.Dir, "l")
	world.Must(t, os.Symlink(w.Home, link))
	begin := time.Now()
	late := w.Spawn("--home", link)
	late.Ended = true
	if code := late.Wait(); code != 3 || time.Since(begin) > 5*time.Second {
		t.Errorf("the late one ended with %d after %s: %s", code, time.Since(begin), late.Text())
	}
	if again := w.UntilRunning("keep"); again != p {
		t.Errorf("keep went from %d to %d", p, again)
	}
	if n := w.Starts("keep/log"); n != 1 {
		t.Errorf("keep was started %d times", n)
	}
}

// R18: an owner that was frozen while its lock file was taken away, and another
// took the home: the woken one writes nothing more and ends with its own code.
func TestR18FrozenOwner(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	old := w.Start()
	pids := several(w, 3)
	w.Kill(old.PID(), syscall.SIGSTOP)
	world.Must(t, os.Remove(filepath.Join(w.Run, "skcd.lock")))
	old.Ended = true
	w.Start()
	w.Apply(session("new", sleeper))
	w.UntilRunning("new")
	w.Kill(old.PID(), syscall.SIGCONT)
	if code := old.Wait(); code != 4 {
		t.Errorf("the woken one ended with %d, want 4: %s", code, old.Text())
	}
	if !w.Ready() {
		t.Error("the new owner lost its control socket")
	}
	same(w, pids)
	if n := w.Starts("new/log"); n != 1 {
		t.Errorf("new was started %d times", n)
	}
}

// B-034: a lock file that holds the pid of somebody else, of a dead process, our
// own, nothing, or half a line: skcd starts each time.
func TestB034StaleLock(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dead := exec.Command("true")
	world.Must(t, dead.Run())
	w.Start()
	pids := several(w, 1)
	for what, text := range map[string]string{
		"alive": fmt.Sprintf("pid %d since 2020-01-01T00:00:00Z\n", os.Getpid()), "dead": fmt.Sprintf("pid %d since x\n", dead.Process.Pid),
		"own": "pid 1 since now\n", "empty": "", "half": "pid 4", "binary": "\x00\xff\x1b[31m",
	} {
		w.Stop(syscall.SIGKILL)
		world.Must(t, os.WriteFile(filepath.Join(w.Run, "skcd.lock"), []byte(text), 0o600))
		// A child of the killed one holds the lock until it has done its exec.
		w.Within(2*time.Second, what+": get says that none runs", func() bool {
			return strings.Contains(w.Ctl("get").Err, "not running")
		})
		begin := time.Now()
		w.Start()
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("%s: the start took %s", what, d)
		}
	}
	same(w, pids)
}

// R27: every file and folder that skc makes is 0600 or 0700 at any moment under
// a wide umask. Each world's end checks what is there; this watches what comes
// and goes, and the launch files above all.
func TestR27Modes(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	stop, wide := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(wide)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, dir := range []string{w.State, w.Run, filepath.Join(w.Spool, "default")} {
				_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
					if err != nil {
						return nil
					}
					if strings.HasPrefix(d.Name(), ".skc-kept-") {
						return filepath.SkipDir // the user's own, as it was, in a folder that keeps others out
					}
					fi, err := d.Info()
					// A socket is made and then closed; its folder keeps others out.
					if err == nil && fi.Mode().Perm()&0o077 != 0 && fi.Mode()&os.ModeSocket == 0 {
						select {
						case wide <- fmt.Sprintf("%s %s", path, fi.Mode()):
						default:
						}
					}
					return nil
				})
			}
			time.Sleep(time.Millisecond)
		}
	}()
	w.Start()
	for i := range 10 {
		w.Apply(session(fmt.Sprintf("m-%d", i), script("umask > mask; exec sleep 6000")))
	}
	for i := range 10 {
		w.UntilRunning(fmt.Sprintf("m-%d", i))
	}
	w.MustCtl("stop", "m-0")
	w.MustCtl("delete", "session", "m-1", "--wait")
	w.Stop(syscall.SIGTERM)
	w.Start()
	close(stop)
	for found := range wide {
		t.Errorf("open to others: %s", found)
	}
}

// A home whose socket paths are longer than the kernel takes is refused with
// the limit; wrong flags are wrong usage.
func TestStartRefusals(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--home", filepath.Join(w.Dir, strings.Repeat("x", 120))}, 2, "103"},
		{[]string{"--nonsense"}, 2, "nonsense"},
		{[]string{"--resync", "0s"}, 2, "resync"},
		{[]string{"--config", "/no/such/file"}, 2, "/no/such/file"},
		{[]string{"--launcher", "/no/such/launcher"}, 1, "skc-launch"},
		{[]string{"--metrics-address", "0.0.0.0:0"}, 1, "loopback"},
	} {
		s := w.Spawn(c.args...)
		s.Ended = true
		if code := s.Wait(); code != c.code || !strings.Contains(s.Text(), c.text) {
			t.Errorf("%q: ended with %d, want %d and %q: %s", c.args, code, c.code, c.text, s.Text())
		}
	}
}
