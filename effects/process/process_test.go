package process

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"skc.dev/skc/effects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// child starts a program that the test ends by its own pid.
func child(t *testing.T, argv ...string) (effects.ProcessID, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return identify(t, cmd.Process.Pid), cmd
}

func identify(t *testing.T, pid int) effects.ProcessID {
	t.Helper()
	s, err := StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	return effects.ProcessID{PID: pid, StartTime: s}
}

// within waits for a condition of the outside world.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

func TestAlive(t *testing.T) {
	id, cmd := child(t, "sleep", "600")
	if ok, err := Alive(id); !ok || err != nil {
		t.Fatalf("Alive of a running process = %v, %v", ok, err)
	}
	other := id
	other.StartTime += "1"
	if ok, err := Alive(other); ok || err != nil {
		t.Errorf("Alive of another process with the same pid = %v, %v; want false", ok, err)
	}
	if _, err := Alive(effects.ProcessID{PID: id.PID}); err == nil {
		t.Error("Alive without a start time: want an error")
	}
	if _, err := Alive(effects.ProcessID{PID: 0, StartTime: "1"}); err == nil {
		t.Error("Alive of pid 0: want an error")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "a zombie counts as gone", func() bool {
		ok, err := Alive(id)
		return !ok && err == nil
	})
	if _, err := StartTime(id.PID); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("StartTime of a zombie = %v, want ErrNotFound", err)
	}
	_ = cmd.Wait()
	if _, err := StartTime(id.PID); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("StartTime of a process that is gone = %v, want ErrNotFound", err)
	}
}

func TestBootID(t *testing.T) {
	a, err := BootID()
	if err != nil || len(a) != 36 {
		t.Fatalf("BootID = %q, %v", a, err)
	}
}

func TestSend(t *testing.T) {
	id, cmd := child(t, "sleep", "600")
	other := id
	other.StartTime += "1"
	if err := send(other, syscall.SIGKILL); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("signal to another process with the same pid = %v, want ErrNotFound", err)
	}
	for _, pid := range []int{-1, 0, 1} {
		if err := send(effects.ProcessID{PID: pid, StartTime: "1"}, syscall.SIGKILL); err == nil {
			t.Errorf("signal to pid %d: want a refusal", pid)
		}
	}
	if ok, err := Alive(id); !ok || err != nil {
		t.Fatalf("the process was hit: %v, %v", ok, err)
	}
	if err := send(id, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGTERM {
		t.Errorf("ended by %v, want SIGTERM", ws.Signal())
	}
	if err := send(id, syscall.SIGTERM); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("signal to a process that is gone = %v, want ErrNotFound", err)
	}
}

// watchers runs a test with every way of noticing deaths.
func watchers(t *testing.T, test func(t *testing.T, w *Watcher)) {
	for _, polling := range []bool{false, true} {
		name := "told"
		if polling {
			name = "polling"
		}
		t.Run(name, func(t *testing.T) {
			n, err := newNotifier()
			if err != nil {
				t.Fatal(err)
			}
			if n.missing && !polling {
				_ = n.close()
				t.Skip("the kernel does not tell of deaths here")
			}
			n.missing = polling
			w := start(n)
			if w.Polling() != polling {
				t.Errorf("Polling = %v, want %v", w.Polling(), polling)
			}
			test(t, w)
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("not told of: %s", what)
	}
}

func TestWatcher(t *testing.T) {
	watchers(t, func(t *testing.T, w *Watcher) {
		running, _ := child(t, "sleep", "600")
		id, cmd := child(t, "sleep", "600")
		unwatched, ucmd := child(t, "sleep", "600")
		told := make(chan struct{}, 8)
		never := func() { t.Error("told of a death that was not, or was not to be told") }
		for _, err := range []error{
			w.Watch(running, never),
			w.Watch(unwatched, never),
			w.Watch(id, never),
			w.Watch(id, func() { told <- struct{}{} }), // replaces the one before
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		w.Unwatch(unwatched)
		w.Unwatch(unwatched)
		_ = ucmd.Process.Kill()
		_ = cmd.Process.Kill() // not reaped: a zombie has ended
		wait(t, told, "a death")

		other := running
		other.StartTime += "1"
		for name, id := range map[string]effects.ProcessID{"another with the same pid": other, "one that is gone": id} {
			if err := w.Watch(id, func() { told <- struct{}{} }); err != nil {
				t.Fatal(err)
			}
			wait(t, told, name)
		}
		if len(told) != 0 {
			t.Error("told twice")
		}
	})
}

func TestWatchFromDied(t *testing.T) {
	watchers(t, func(t *testing.T, w *Watcher) {
		a, acmd := child(t, "sleep", "600")
		b, bcmd := child(t, "sleep", "600")
		told := make(chan struct{}, 1)
		err := w.Watch(a, func() {
			if err := w.Watch(b, func() { told <- struct{}{} }); err != nil {
				t.Error(err)
			}
			_ = bcmd.Process.Kill()
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = acmd.Process.Kill()
		wait(t, told, "the second death")
	})
}

func TestWatcherClosed(t *testing.T) {
	before := descriptors(t)
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := child(t, "sleep", "600")
	if err := w.Watch(id, func() { t.Error("told after Close") }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Watch(id, func() {}); !errors.Is(err, ErrClosed) {
		t.Errorf("Watch after Close = %v, want ErrClosed", err)
	}
	w.Unwatch(id)
	if after := descriptors(t); after > before+1 { // the child's own process descriptor
		t.Errorf("%d descriptors after Close, %d before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(d)
}

// 1000 watches, all of whose processes die together: each is told of once.
func TestThousandWatches(t *testing.T) {
	const n = 1000
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // a test
	told := make(chan int, 2*n)
	cmds := make([]*exec.Cmd, n)
	for i := range cmds {
		// One program that waits at its input: all end when the pipe closes.
		cmds[i] = exec.Command("cat")
	}
	r, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cmds {
		c.Stdin = r
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if err := w.Watch(identify(t, c.Process.Pid), func() { told <- i }); err != nil {
			t.Fatal(err)
		}
	}
	_ = r.Close()
	began := time.Now()
	_ = pw.Close()
	seen := map[int]int{}
	for range n {
		select {
		case i := <-told:
			seen[i]++
		case <-time.After(30 * time.Second):
			t.Fatalf("told of %d of %d", len(seen), n)
		}
	}
	t.Logf("%d deaths told of in %v", n, time.Since(began))
	for _, c := range cmds {
		_ = c.Wait()
	}
	if len(seen) != n || len(told) != 0 {
		t.Errorf("%d told of, %d too many; want each once", len(seen), len(told))
	}
}
