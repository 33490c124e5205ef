package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

func newUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// world is one session with one way of finding its processes.
type world struct {
	*Sessions
	uid, dir string
	group    string // "" without cgroups
}

// ways runs a test with cgroups, where they can be had, and without.
func ways(t *testing.T, test func(t *testing.T, w world)) {
	for _, cgroups := range []bool{true, false} {
		name := "environment"
		if cgroups {
			name = "cgroup"
		}
		t.Run(name, func(t *testing.T) {
			s := NewSessions(cgroups)
			if _, why := s.Base(); cgroups && why != nil {
				t.Skipf("no cgroups: %v", why)
			}
			w := world{Sessions: s, uid: newUID(), dir: t.TempDir()}
			var err error
			if w.group, err = s.Prepare(w.uid); err != nil || (w.group != "") != cgroups {
				t.Fatalf("Prepare = %q, %v", w.group, err)
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				if _, err := s.Kill(ctx, w.uid); err != nil {
					t.Error(err)
				}
				if err := s.Release(w.uid); err != nil {
					t.Error(err)
				}
			})
			test(t, w)
		})
	}
}

// start runs a shell script as the session's program, as the launcher would.
func (w world) start(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = w.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), UIDVariable + "=" + w.uid, "A=b"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	inGroup(t, cmd, w.group)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if w.group != "" { // it was born there
		if err := w.groups.seal(w.uid); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }() // as tmux would: no zombies
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := w.Kill(ctx, w.uid); err != nil {
			t.Error(err)
		}
		<-done
	})
	return cmd
}

// ready waits until the script has written n lines to the file "ready".
func (w world) ready(t *testing.T, n int) {
	t.Helper()
	within(t, 10*time.Second, "the script is ready", func() bool {
		b, _ := os.ReadFile(filepath.Join(w.dir, "ready"))
		return strings.Count(string(b), "\n") >= n
	})
}

func (w world) list(t *testing.T) []effects.ProcessID {
	t.Helper()
	ids, err := w.List(t.Context(), w.uid)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func (w world) killAll(t *testing.T) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	n, err := w.Kill(ctx, w.uid)
	if err != nil {
		t.Fatal(err)
	}
	if left := w.list(t); len(left) > 0 {
		t.Fatalf("left after Kill: %v", left)
	}
	return n
}

// strangers are processes that look like the session's and are not.
func strangers(t *testing.T, uid string) []effects.ProcessID {
	t.Helper()
	var ids []effects.ProcessID
	for _, env := range []string{
		UIDVariable + "=" + uid + "x",
		UIDVariable + "=" + uid[:len(uid)-1],
		"X" + UIDVariable + "=" + uid,
		"A=" + UIDVariable + "=" + uid,
		UIDVariable + "=" + newUID(),
	} {
		cmd := exec.Command("sleep", "7777")
		cmd.Env = []string{env}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		ids = append(ids, identify(t, cmd.Process.Pid))
	}
	said, _ := child(t, "sh", "-c", "kill -STOP $$", UIDVariable+"="+uid) // in its arguments
	return append(ids, said)
}

// The traps come last: children inherit what is ignored.
const stubborn = `
	setsid sleep 7777 & echo >>ready
	nohup sleep 7777 >/dev/null 2>&1 & echo >>ready
	(sleep 7777 & (sleep 7777 &) ) ; echo >>ready
	sleep 7777 & kill -STOP $! ; echo >>ready
	setsid sh -c 'trap "" HUP TERM; while :; do sleep 1; done' & echo >>ready
	trap '' HUP TERM
	while :; do sleep 1; done`

func TestKillStubborn(t *testing.T) {
	ways(t, func(t *testing.T, w world) {
		others := strangers(t, w.uid)
		w.start(t, stubborn)
		w.ready(t, 5)
		within(t, 10*time.Second, "8 or more processes are listed", func() bool { return len(w.list(t)) >= 8 })
		if err := w.Signal(t.Context(), w.uid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		within(t, 10*time.Second, "SIGTERM ends all but those that ignore it", func() bool { return len(w.list(t)) <= 4 })
		if left := w.list(t); len(left) < 2 {
			t.Errorf("%d left after SIGTERM, want the two that ignore it", len(left))
		}
		if n := w.killAll(t); n < 2 {
			t.Errorf("Kill counted %d, want 2 or more", n)
		}
		if n := w.killAll(t); n != 0 {
			t.Errorf("Kill of nothing counted %d", n)
		}
		for _, id := range others {
			if ok, err := Alive(id); !ok || err != nil {
				t.Errorf("a stranger was hit: %v, %v", ok, err)
			}
		}
	})
}

func TestKillForks(t *testing.T) {
	for name, script := range map[string]string{
		// Each ends after it started the next: a moving target.
		"chain": `echo 'sleep 0.01; sh ./next & exit' >next; sh ./next & sh ./next & echo >>ready`,
		"burst": `echo >>ready; trap '' TERM HUP; while :; do sleep 60 & sleep 0.01; done`,
	} {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, w world) {
				for range 10 {
					if _, err := w.Prepare(w.uid); err != nil {
						t.Fatal(err)
					}
					_ = os.Remove(filepath.Join(w.dir, "ready"))
					w.start(t, script)
					w.ready(t, 1)
					w.killAll(t)
					// One that slipped through would have grown again by now.
					for end := time.Now().Add(40 * time.Millisecond); time.Now().Before(end); {
						if left := w.list(t); len(left) > 0 {
							t.Fatalf("left after Kill: %v", left)
						}
					}
				}
			})
		})
	}
}

func TestKillStopped(t *testing.T) {
	ways(t, func(t *testing.T, w world) {
		w.start(t, `echo >>ready; kill -STOP $$`)
		w.ready(t, 1)
		if n := w.killAll(t); n != 1 {
			t.Errorf("Kill counted %d, want 1", n)
		}
	})
}

func TestSignalContinuesTheStopped(t *testing.T) {
	ways(t, func(t *testing.T, w world) {
		w.start(t, `trap 'echo >>ready; exit' TERM; echo >>ready; kill -STOP $$; sleep 600 & wait`)
		w.ready(t, 1)
		if err := w.Signal(t.Context(), w.uid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		w.ready(t, 2)
	})
}

func TestSpare(t *testing.T) {
	ways(t, func(t *testing.T, w world) {
		cmd := w.start(t, `exec sleep 600`)
		id := identify(t, cmd.Process.Pid)
		within(t, 5*time.Second, "it is listed", func() bool { return slices.Contains(w.list(t), id) })
		w.Spare(id)
		defer w.Spare()
		if slices.Contains(w.list(t), id) {
			t.Error("a spared process is listed")
		}
		w.killAll(t)
		if ok, err := Alive(id); !ok || err != nil {
			t.Errorf("a spared process was killed: %v, %v", ok, err)
		}
	})
}

// A session that was started without a group, or was not brought into it yet, is
// found although there are cgroups.
func TestGroupIsNotTheWhole(t *testing.T) {
	s := NewSessions(true)
	if _, why := s.Base(); why != nil {
		t.Skipf("no cgroups: %v", why)
	}
	w := world{Sessions: s, uid: newUID(), dir: t.TempDir()}
	cmd := w.start(t, `echo >>ready; sleep 600; :`)
	w.ready(t, 1)
	id := identify(t, cmd.Process.Pid)
	if !slices.Contains(w.list(t), id) {
		t.Error("not listed without a group")
	}
	if _, err := s.Prepare(w.uid); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(w.list(t), id) {
		t.Error("not listed beside a group that it was not brought into yet")
	}
	if n := w.killAll(t); n < 1 {
		t.Errorf("Kill counted %d", n)
	}
	if err := s.Release(w.uid); err != nil {
		t.Error(err)
	}
}

func TestReleaseAndPrepare(t *testing.T) {
	s := NewSessions(true)
	if _, why := s.Base(); why != nil {
		t.Skipf("no cgroups: %v", why)
	}
	w := world{Sessions: s, uid: newUID(), dir: t.TempDir()}
	if err := s.Release(w.uid); err != nil {
		t.Errorf("Release of nothing = %v", err)
	}
	var err error
	if w.group, err = s.Prepare(w.uid); err != nil {
		t.Fatal(err)
	}
	w.start(t, `sleep 600`)
	within(t, 5*time.Second, "listed", func() bool { return len(w.list(t)) > 0 })
	if err := s.Release(w.uid); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Release with a process = %v, want EBUSY", err)
	}
	if dir, err := s.Prepare(w.uid); err != nil || dir != w.group {
		t.Errorf("Prepare again = %q, %v", dir, err)
	}
	if oom, err := s.OOMKilled(w.uid); oom || err != nil {
		t.Errorf("OOMKilled = %v, %v", oom, err)
	}
	w.killAll(t)
	for range 2 {
		if err := s.Release(w.uid); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUIDIsNoPath(t *testing.T) {
	s := NewSessions(true)
	for _, uid := range []string{"", "..", "a/b", "../" + newUID(), "a\x00b", strings.Repeat("a", 65)} {
		_, err1 := s.Prepare(uid)
		_, err2 := s.List(t.Context(), uid)
		_, err3 := s.Kill(t.Context(), uid)
		_, err4 := s.OOMKilled(uid)
		for i, err := range []error{err1, err2, err3, err4, s.Release(uid), s.Signal(t.Context(), uid, unix.SIGTERM)} {
			if err == nil {
				t.Errorf("call %d with UID %q: want an error", i, uid)
			}
		}
	}
}

func TestKillEndsWithContext(t *testing.T) {
	s := NewSessions(false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Kill(ctx, newUID()); !errors.Is(err, context.Canceled) {
		t.Errorf("Kill = %v, want Canceled", err)
	}
}

func TestMarked(t *testing.T) {
	const uid = "0b1f"
	mark := UIDVariable + "=" + uid
	for env, want := range map[string]bool{
		"":                               false,
		mark:                             true,
		mark + "\x00":                    true,
		"A=b\x00" + mark + "\x00C=d\x00": true,
		"A=b\x00" + mark:                 true,
		"\x00\x00" + mark + "\x00":       true,
		mark + "0\x00":                   false,
		mark[:len(mark)-1]:               false,
		"X" + mark + "\x00":              false,
		"A=\n" + mark + "\x00":           false,
		"A=b\x00C=d\x00":                 false,
	} {
		if got := marked(map[string]bool{uid: true, "other": true})([]byte(env)); (got == uid) != want {
			t.Errorf("marked(%q) = %q, want %s: %v", env, got, uid, want)
		}
	}
}

func BenchmarkList(b *testing.B) {
	for _, cgroups := range []bool{true, false} {
		s := NewSessions(cgroups)
		b.Run(fmt.Sprintf("cgroups=%v", cgroups), func(b *testing.B) {
			uid := newUID()
			if _, err := s.Prepare(uid); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.List(b.Context(), uid); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Release(uid); err != nil {
				b.Fatal(err)
			}
		})
	}
}
