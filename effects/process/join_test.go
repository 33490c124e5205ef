package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"skc.dev/skc/effects"
)

// joiner is a Sessions with cgroups whose Run runs.
func joiner(t *testing.T) world {
	t.Helper()
	s := NewSessions(true)
	if _, why := s.Base(); why != nil {
		t.Skipf("no cgroups: %v", why)
	}
	w := world{Sessions: s, uid: newUID(), dir: t.TempDir()}
	if _, err := s.Prepare(w.uid); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := s.Release(w.uid); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w world) whole(t *testing.T) {
	t.Helper()
	within(t, 10*time.Second, "the group is the whole", func() bool {
		g, err := w.groups.look(w.uid)
		if err != nil {
			t.Fatal(err)
		}
		return g.whole
	})
}

// A program that runs already is brought into its group with all that it forked:
// what left its terminal, and the child that wiped its environment.
func TestJoin(t *testing.T) {
	w := joiner(t)
	cmd := w.start(t, `env -i sleep 601 & setsid sleep 602 & (setsid sleep 603 &) ; echo >>ready; wait`)
	w.ready(t, 1)
	main := identify(t, cmd.Process.Pid)
	if got := w.list(t); !slices.Contains(got, main) {
		t.Errorf("before: %v without the program %v", got, main)
	}
	w.Join(w.uid, main)
	w.whole(t)
	if got := w.list(t); len(got) != 4 {
		t.Errorf("%v, want the shell and three", got)
	}
	if n := w.killAll(t); n < 4 {
		t.Errorf("Kill counted %d", n)
	}
}

// Born inside, nothing leaves the group, whatever it does to its environment.
func TestJoinedIsTheTruth(t *testing.T) {
	w := joiner(t)
	cmd := w.start(t, `echo >>ready; while [ ! -e go ]; do sleep 0.05; done; env -i setsid sleep 604 & (env -i setsid sleep 605 &); echo >>ready; wait`)
	w.ready(t, 1)
	w.Join(w.uid, identify(t, cmd.Process.Pid))
	w.whole(t)
	if err := os.WriteFile(filepath.Join(w.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.ready(t, 2)
	within(t, 5*time.Second, "all three are listed", func() bool { return len(w.list(t)) == 3 })
	if n := w.killAll(t); n < 3 {
		t.Errorf("Kill counted %d", n)
	}
}

// Many at once, some gone before their turn, and one that was never there.
func TestJoinMany(t *testing.T) {
	w := joiner(t)
	uids := make([]string, 40)
	mains := make([]effects.ProcessID, len(uids))
	for i := range uids {
		uids[i] = newUID()
		one := w
		one.uid = uids[i]
		if _, err := w.Prepare(one.uid); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // after the program's own, which kills it
			if err := w.Release(one.uid); err != nil {
				t.Error(err)
			}
		})
		script := `sleep 600 & sleep 600`
		if i%10 == 0 {
			script = `exit 0`
		}
		cmd := one.start(t, script)
		started, err := StartTime(cmd.Process.Pid)
		if err != nil {
			started = "1"
		}
		mains[i] = effects.ProcessID{PID: cmd.Process.Pid, StartTime: started}
	}
	for i, uid := range uids {
		w.Join(uid, mains[i])
		w.Join(uid, mains[i])
	}
	w.Join("no-such-group", mains[1])
	for i, uid := range uids {
		if i%10 == 0 {
			continue
		}
		one := w
		one.uid = uid
		one.whole(t)
		if g, err := w.groups.look(uid); err != nil || !slices.Contains(g.processes, mains[i]) {
			t.Errorf("session %d: %v, %v; want %v inside", i, g.processes, err, mains[i])
		}
	}
	if err := w.Release("no-such-group"); err != nil {
		t.Error(err)
	}
}

// A program of another start of the same session is another one.
func TestJoinAgain(t *testing.T) {
	w := joiner(t)
	for range 3 {
		if _, err := w.Prepare(w.uid); err != nil {
			t.Fatal(err)
		}
		cmd := w.start(t, `exec sleep 600`)
		id := identify(t, cmd.Process.Pid)
		w.Join(w.uid, id)
		w.whole(t)
		if got := w.list(t); !slices.Contains(got, id) {
			t.Fatalf("%v, want %v", got, id)
		}
		w.killAll(t)
	}
}
