package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"skc.dev/skc/effects"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("SKC_LEASE_TEST"); path != "" {
		l, err := Acquire(path, "child")
		fmt.Println(err == nil)
		if err == nil {
			os.Stdin.Read(make([]byte, 1)) //nolint:errcheck // until the test ends it
			_ = l
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestOneOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skcd.lock")
	l, err := Acquire(path, "pid 1")
	if err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if _, err := Acquire(path, "pid 2"); !errors.As(err, &held) || held.Hint != "pid 1" || !errors.Is(err, effects.ErrNotOwner) {
		t.Fatalf("second Acquire = %v, want a HeldError that names pid 1", err)
	}
	if h, hint, err := Held(path); !h || hint != "pid 1" || err != nil {
		t.Errorf("Held = %v %q %v, want held by pid 1", h, hint, err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if h, _, err := Held(path); h || err != nil {
		t.Errorf("Held after Release = %v, %v", h, err)
	}
	if l, err = Acquire(path, "pid 3"); err != nil {
		t.Fatalf("Acquire after Release = %v", err)
	}
	_ = l.Release()
}

// B-034: what a file left behind says decides nothing.
func TestTextInTheFileIsOnlyAHint(t *testing.T) {
	for name, text := range map[string]string{
		"pid of a living process": fmt.Sprintf("pid %d\n", os.Getppid()),
		"our own pid":             fmt.Sprintf("pid %d\n", os.Getpid()),
		"dead pid":                "pid 999999\n",
		"empty":                   "",
		"half written":            "pid 4",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "skcd.lock")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := Acquire(path, "me")
			if err != nil {
				t.Fatalf("Acquire = %v", err)
			}
			_ = l.Release()
		})
	}
}

func TestALockFileThatIsTakenAwayEndsTheOwner(t *testing.T) {
	for name, take := range map[string]func(string) error{
		"removed":  os.Remove,
		"replaced": func(p string) error { return errors.Join(os.WriteFile(p+".new", nil, 0o600), os.Rename(p+".new", p)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "skcd.lock")
			l, err := Acquire(path, "first")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release() //nolint:errcheck // the file is another one
			lost := make(chan error, 1)
			go func() { lost <- l.Watch(context.WithoutCancel(t.Context())) }()
			if err := l.Check(); err != nil {
				t.Fatalf("Check while owning = %v", err)
			}
			if err := take(path); err != nil {
				t.Fatal(err)
			}
			if err := <-lost; !errors.Is(err, effects.ErrNotOwner) {
				t.Errorf("Watch = %v, want ErrNotOwner", err)
			}
			if err := l.Check(); !errors.Is(err, effects.ErrNotOwner) {
				t.Errorf("Check = %v, want ErrNotOwner", err)
			}
			next, err := Acquire(path, "second")
			if err != nil {
				t.Fatalf("Acquire by the next = %v", err)
			}
			_ = next.Release()
		})
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	l, err := Acquire(filepath.Join(t.TempDir(), "skcd.lock"), "me")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release() //nolint:errcheck // nothing depends on it
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Watch(ctx); err != nil {
		t.Errorf("Watch = %v, want nil", err)
	}
}

func TestTheKernelDropsTheLockOfADeadProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skcd.lock")
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "SKC_LEASE_TEST="+path)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	n, _ := out.Read(b)
	if got := strings.TrimSpace(string(b[:n])); got != "true" {
		t.Fatalf("child owns: %s", got)
	}
	if _, err := Acquire(path, "me"); err == nil {
		t.Fatal("Acquire beside a living owner succeeded")
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	_ = in.Close()
	l, err := Acquire(path, "me")
	if err != nil {
		t.Fatalf("Acquire after SIGKILL of the owner = %v", err)
	}
	_ = l.Release()
}

// Commands that ask whether a controller runs never keep one from starting, and
// of many that start at once exactly one owns.
func TestManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skcd.lock")
	for range 20 {
		var wg sync.WaitGroup
		var owners atomic.Int32
		var winner atomic.Pointer[Lease]
		for range 8 {
			wg.Go(func() {
				if l, err := Acquire(path, "x"); err == nil {
					owners.Add(1)
					winner.Store(l)
				}
			})
			wg.Go(func() { _, _, _ = Held(path) })
		}
		wg.Wait()
		if n := owners.Load(); n != 1 {
			t.Fatalf("%d owners, want 1", n)
		}
		_ = winner.Load().Release()
	}
}
