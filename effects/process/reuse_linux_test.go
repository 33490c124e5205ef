package process

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// A pid that was given to another process hits nobody. The test runs itself in
// a pid namespace, where it can choose the next pid.
func TestReusedPID(t *testing.T) {
	const inside = "SKC_TEST_PID_NAMESPACE"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
			os.Args[0], "-test.run=^TestReusedPID$", "-test.v")
		if err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").Run(); err != nil {
			t.Skipf("no pid namespace to be had: %v", err)
		}
		cmd.Env = append(os.Environ(), inside+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // a test
	for range 20 {
		var old, now effects.ProcessID
		tries := 0
		within(t, 10*time.Second, "another process has the pid, a tick or more later", func() bool {
			if tries++; tries%50 == 1 { // a thread of this test may have taken the pid for good
				var cmd *exec.Cmd
				old, cmd = child(t, "sleep", "600")
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(old.PID-1)), 0); err != nil {
				t.Skip(err)
			}
			again := exec.Command("sleep", "600")
			if err := again.Start(); err != nil {
				t.Fatal(err)
			}
			now = identify(t, again.Process.Pid)
			if now.PID == old.PID && now.StartTime != old.StartTime {
				t.Cleanup(func() {
					_ = again.Process.Kill()
					_ = again.Wait()
				})
				return true
			}
			_ = again.Process.Kill()
			_ = again.Wait()
			return false
		})
		if ok, err := Alive(old); ok || err != nil {
			t.Errorf("Alive = %v, %v; want false", ok, err)
		}
		if err := send(old, unix.SIGKILL); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("send = %v, want ErrNotFound", err)
		}
		if err := Signal(old, unix.SIGKILL); err != nil {
			t.Errorf("Signal = %v, want nil: it ended", err)
		}
		told := make(chan struct{}, 1)
		if err := w.Watch(old, func() { told <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		wait(t, told, "the death of the one before")
		if ok, err := Alive(now); !ok || err != nil {
			t.Fatalf("the stranger was hit: %v, %v", ok, err)
		}
	}
}
