package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects/files"
)

// many puts n sessions s0, s1, … into the root and says what is wanted then.
func (w *world) many(n int) map[string]string {
	w.t.Helper()
	want := map[string]string{}
	for i := range n {
		name := fmt.Sprint("s", i)
		w.put(name+".yaml", session(name, "1"))
		want[name] = "1"
	}
	return want
}

func TestRemovedAfterTheSettleTime(t *testing.T) {
	w := newWorld(t)
	want := w.many(3)
	w.start()
	w.remove("s1.yaml")
	w.pass(1900 * time.Millisecond)
	w.want(want)
	w.pass(200 * time.Millisecond)
	delete(want, "s1")
	w.want(want)
	if r := w.rootReport(w.spool); r.State != RootReady || r.Held != 0 || r.Deadline != nil {
		t.Errorf("root report %+v, want Ready with nothing held", r)
	}
}

func TestRemovedWhileDown(t *testing.T) { // B-041
	w := newWorld(t)
	want := w.many(4)
	w.start()
	w.stop()
	w.remove("s1.yaml")
	w.start()
	w.want(want) // not before the settle time
	w.pass(3 * time.Second)
	delete(want, "s1")
	w.want(want)
}

func TestMassRemovalWaits(t *testing.T) {
	w := newWorld(t)
	want := w.many(10)
	w.start()
	for i := range 6 {
		w.remove(fmt.Sprintf("s%d.yaml", i))
	}
	w.pass(3 * time.Second)
	w.want(want)
	for i := range 10 {
		reason := v1alpha1.ReasonAccepted
		if i < 6 {
			reason = v1alpha1.ReasonPruneHeld
		}
		w.wantReason(fmt.Sprint("s", i), reason, "")
	}
	r := w.rootReport(w.spool)
	if r.State != RootPruneHeld || r.Held != 6 || r.Deadline == nil {
		t.Fatalf("root report %+v, want PruneHeld with 6 and a deadline", r)
	}
	w.wantRoot(w.spool, RootPruneHeld, "session/default/s0")

	w.put("s0.yaml", session("s0", "1")) // one comes back
	w.pass(time.Second)
	w.wantReason("s0", v1alpha1.ReasonAccepted, "")
	w.pass(50 * time.Second)
	w.want(want)
	w.pass(10 * time.Second)
	for i := 1; i < 6; i++ {
		delete(want, fmt.Sprint("s", i))
	}
	w.want(want)
	w.wantRoot(w.spool, RootReady, "")
}

func TestMassRemovalTakenBack(t *testing.T) {
	w := newWorld(t)
	want := w.many(10)
	w.start()
	out := filepath.Join(w.dir, "out")
	must(t, os.Mkdir(out, 0o700))
	for i := range 10 {
		w.move(fmt.Sprintf("s%d.yaml", i), filepath.Join(out, fmt.Sprintf("s%d.yaml", i)))
	}
	w.pass(30 * time.Second)
	w.wantReason("s3", v1alpha1.ReasonPruneHeld, "")
	w.restart() // the hold begins anew, it does not end
	w.pass(10 * time.Second)
	w.wantReason("s3", v1alpha1.ReasonPruneHeld, "")
	for i := range 10 {
		w.move(filepath.Join(out, fmt.Sprintf("s%d.yaml", i)), fmt.Sprintf("s%d.yaml", i))
	}
	w.pass(2 * time.Minute)
	w.want(want)
	w.wantNoRemovals()
	w.wantReason("s3", v1alpha1.ReasonAccepted, "")
	w.wantRoot(w.spool, RootReady, "")
}

func TestHalfIsNoMass(t *testing.T) {
	for _, c := range []struct {
		name         string
		have, remove int
		held         bool
	}{
		{"all of four", 4, 4, false},
		{"two of five", 5, 2, false},
		{"three of five", 5, 3, true},
		{"half of ten", 10, 5, false},
		{"all of five", 5, 5, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.many(c.have)
			w.start()
			for i := range c.remove {
				w.remove(fmt.Sprintf("s%d.yaml", i))
			}
			w.pass(5 * time.Second)
			if held := len(w.sink.all()) == c.have; held != c.held {
				t.Errorf("held = %t, want %t", held, c.held)
			}
		})
	}
}

func TestOneByOneToTheLast(t *testing.T) {
	w := newWorld(t)
	want := w.many(12)
	w.start()
	for i := range 12 {
		w.remove(fmt.Sprintf("s%d.yaml", i))
		w.pass(2500 * time.Millisecond)
		delete(want, fmt.Sprint("s", i))
		w.want(want)
	}
}

func TestMissingRoot(t *testing.T) { // R7
	w := newWorld(t)
	want := w.many(3)
	w.start()
	away := filepath.Join(w.dir, "away")
	w.move(w.spool, away)
	w.pass(5 * time.Minute)
	w.want(want)
	w.wantReason("s0", v1alpha1.ReasonPruneHeld, "missing")
	w.wantRoot(w.spool, RootMissing, "missing")
	if r := w.rootReport(w.spool); r.Held != 3 {
		t.Errorf("%d held, want 3", r.Held)
	}
	w.restart()
	w.pass(time.Minute)
	w.want(want)
	w.wantReason("s0", v1alpha1.ReasonPruneHeld, "missing")

	w.move(away, w.spool)
	w.flush()
	w.wantReason("s0", v1alpha1.ReasonAccepted, "")
	w.put("s0.yaml", session("s0", "2")) // watched again
	w.settle()
	want["s0"] = "2"
	w.want(want)
	w.remove("s1.yaml") // and deletions are deletions again
	w.pass(3 * time.Second)
	delete(want, "s1")
	w.want(want)
}

func TestRootThatIsThereLater(t *testing.T) {
	w := newWorld(t)
	must(t, os.RemoveAll(filepath.Dir(w.path("x"))))
	w.start() // Synced although there is no root
	w.wantRoot(w.spool, RootMissing, "")
	w.put("a.yaml", session("a", "1"))
	w.pass(time.Second)
	w.want(map[string]string{"a": "1"})
	w.wantRoot(w.spool, RootReady, "")
	w.remove("a.yaml")
	w.pass(3 * time.Second)
	w.want(nil)
}

// swapRoot puts another directory in the place of the root.
func (w *world) swapRoot(fill func(dir string)) {
	w.t.Helper()
	other := filepath.Join(w.dir, "new")
	must(w.t, os.Mkdir(other, 0o700))
	fill(other)
	must(w.t, os.Rename(w.spool, filepath.Join(w.dir, fmt.Sprint("old", time.Now().UnixNano()))))
	must(w.t, os.Rename(other, w.spool))
}

func TestReplacedRoot(t *testing.T) {
	w := newWorld(t)
	want := w.many(3)
	w.start()
	w.swapRoot(func(dir string) { // an unmounted disk would look so
		w.write(filepath.Join(dir, "s0.yaml"), session("s0", "2"))
	})
	w.pass(5 * time.Minute)
	want["s0"] = "2" // what is there is in force
	w.want(want)
	w.wantReason("s0", v1alpha1.ReasonAccepted, "")
	w.wantReason("s1", v1alpha1.ReasonPruneHeld, "another directory")
	w.wantRoot(w.spool, RootReplaced, "session/default/s1, session/default/s2")
	w.restart()
	w.pass(5 * time.Minute)
	w.want(want)
	w.wantRoot(w.spool, RootReplaced, "")

	must(t, WriteConfirm(w.layer, w.reports, w.spool))
	w.flush()
	w.want(map[string]string{"s0": "2"})
	w.wantRoot(w.spool, RootReady, "")
	w.remove("s0.yaml")
	w.pass(3 * time.Second)
	w.want(nil)
}

func TestReplacedRootWithTheSameContent(t *testing.T) { // R11
	w := newWorld(t)
	want := w.many(8)
	w.start()
	for i := range 100 {
		w.swapRoot(func(dir string) {
			for name := range want {
				w.write(filepath.Join(dir, name+".yaml"), session(name, fmt.Sprint(i)))
			}
		})
		if i%20 == 0 {
			w.pass(100 * time.Millisecond)
		}
	}
	w.pass(5 * time.Second)
	for name := range want {
		want[name] = "99"
	}
	w.want(want)
	w.wantNoRemovals()
	w.wantReason("s0", v1alpha1.ReasonAccepted, "")
	w.wantRoot(w.spool, RootReady, "")
	w.remove("s0.yaml") // the new directory is the root now
	w.pass(3 * time.Second)
	delete(want, "s0")
	w.want(want)
}

func TestRootIsALinkThatSwitches(t *testing.T) { // R11
	w := newWorld(t)
	root := filepath.Join(w.dir, "link")
	version := func(i int) string {
		dir := filepath.Join(w.dir, fmt.Sprint("v", i))
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			w.write(filepath.Join(dir, name+".yaml"), session("s"+name, fmt.Sprint(i)))
		}
		return dir
	}
	w.link(version(0), root)
	w.options.Roots = []string{root}
	w.start()
	for i := 1; i <= 100; i++ {
		w.link(version(i), root+"2")
		w.move(root+"2", root)
		if i%25 == 0 {
			w.pass(time.Second)
		}
	}
	w.pass(5 * time.Second)
	w.want(map[string]string{"sa": "100", "sb": "100", "sc": "100", "sd": "100", "se": "100", "sf": "100"})
	w.wantNoRemovals()
}

func TestEmptiedRootWaits(t *testing.T) {
	w := newWorld(t)
	want := w.many(6)
	w.start()
	for name := range want {
		w.remove(name + ".yaml")
	}
	w.pass(50 * time.Second)
	w.want(want)
	w.wantReason("s1", v1alpha1.ReasonPruneHeld, "more than half")
	must(t, WriteConfirm(w.layer, w.reports, w.spool))
	w.flush()
	w.want(nil)
}

func TestTwoRoots(t *testing.T) { // B-043
	w := newWorld(t)
	bad := filepath.Join(w.dir, "bad")
	w.options.Roots = []string{bad, w.spool}
	want := w.many(3)
	w.start()
	w.wantRoot(bad, RootMissing, "")
	w.wantRoot(w.spool, RootReady, "")
	w.remove("s0.yaml")
	w.pass(3 * time.Second)
	delete(want, "s0")
	w.want(want)

	must(t, os.Mkdir(bad, 0o700))
	w.put(filepath.Join(bad, "b.yaml"), session("b", "1"))
	w.pass(time.Second)
	want["b"] = "1"
	w.want(want)
	must(t, os.RemoveAll(bad))
	w.remove("s1.yaml")
	w.pass(3 * time.Second)
	delete(want, "s1")
	w.want(want)
	w.wantReason("b", v1alpha1.ReasonPruneHeld, bad)
	must(t, WriteConfirm(w.layer, w.reports, bad))
	w.flush()
	delete(want, "b")
	w.want(want)
}

func TestRootNoLongerConfigured(t *testing.T) {
	w := newWorld(t)
	want := w.many(2)
	w.start()
	w.stop()
	second := filepath.Join(w.dir, "second")
	must(t, os.Mkdir(second, 0o700))
	w.options.Roots = []string{second}
	w.start()
	w.pass(5 * time.Minute)
	w.want(want)
	w.wantReason("s0", v1alpha1.ReasonPruneHeld, "no source root any more")
	w.wantRoot(w.spool, RootNotConfigured, "")
	w.put(filepath.Join(second, "s0.yaml"), session("s0", "2"))
	w.flush() // what another root defines is handed over
	w.wantReason("s0", v1alpha1.ReasonAccepted, "")
	w.wantReason("s1", v1alpha1.ReasonPruneHeld, "")
	must(t, WriteConfirm(w.layer, w.reports, w.spool))
	w.flush()
	w.want(map[string]string{"s0": "2"})
	if uid := w.sink.get("s0").uid; uid > 2 {
		t.Error("s0 was made anew")
	}
}

func TestConfirmHoldsForOneDirectory(t *testing.T) {
	w := newWorld(t)
	want := w.many(3)
	w.start()
	w.stop()
	must(t, WriteConfirm(w.layer, w.reports, w.spool)) // nothing was held: it must not last
	w.start()
	w.flush()
	w.swapRoot(func(string) {})
	w.pass(10 * time.Second)
	w.want(want)

	must(t, os.Rename(w.spool, w.spool+".x")) // confirmed while missing, back as another one
	w.stop()
	must(t, WriteConfirm(w.layer, w.reports, w.spool))
	must(t, os.Rename(w.spool+".x", w.spool))
	w.start()
	w.pass(time.Minute)
	w.want(want)
	w.wantNoRemovals()
}

func TestConfirmWhileDown(t *testing.T) {
	w := newWorld(t)
	w.many(3)
	w.start()
	w.swapRoot(func(string) {})
	w.pass(10 * time.Second)
	w.wantReason("s0", v1alpha1.ReasonPruneHeld, "")
	w.stop()
	must(t, WriteConfirm(w.layer, w.reports, w.spool))
	w.start()
	w.pass(3 * time.Second)
	w.want(nil)
}

func TestMovedWhileLookedAt(t *testing.T) {
	// The document is in a file that is still being written when its old one is
	// gone for long enough.
	w := newWorld(t)
	w.put("a.yaml", session("a", "1"))
	w.start()
	w.remove("a.yaml")
	w.pass(1900 * time.Millisecond)
	text := session("a", "1")
	w.write("b.yaml", text[:len(text)/2])
	w.pass(time.Minute)
	w.want(map[string]string{"a": "1"})
	w.wantReason("a", v1alpha1.ReasonPruneHeld, "b.yaml")
	w.write("b.yaml", text)
	w.pass(5 * time.Second)
	w.want(map[string]string{"a": "1"})
	w.wantReason("a", v1alpha1.ReasonAccepted, "")
	w.wantNoRemovals()

	w.remove("b.yaml")
	w.flush()
	w.put("c.yaml", "nonsense: [")
	w.pass(time.Minute)
	w.want(map[string]string{"a": "1"})
	w.remove("c.yaml")
	w.pass(5 * time.Second)
	w.want(nil)
}

func TestMovedIntoAFileThatIsBeingWritten(t *testing.T) {
	w := newWorld(t)
	w.put("a.yaml", session("a", "1"))
	w.put("c.yaml", session("c", "1"))
	w.start()
	w.remove("a.yaml")
	w.pass(1900 * time.Millisecond)
	w.clock.Step(90 * time.Millisecond)
	w.flush()
	w.write("c.yaml", session("c", "1")+"---\n"+session("a", "2")) // due in 10 ms, quiet in 50
	w.flush()
	w.clock.Step(20 * time.Millisecond)
	w.flush()
	w.want(map[string]string{"a": "1", "c": "1"})
	w.pass(5 * time.Second)
	w.want(map[string]string{"a": "2", "c": "1"})
	w.wantNoRemovals()
}

func TestBadFileInTheGonesPlace(t *testing.T) {
	// An editor that renames the old file away and saves a bad one.
	for _, text := range []string{"nonsense: [", "", "# nothing\n"} {
		w := newWorld(t)
		w.put("a.yaml", session("a", "1"))
		w.start()
		w.move("a.yaml", "a.yaml~")
		w.flush()
		w.put("a.yaml", text)
		w.pass(10 * time.Second)
		w.want(map[string]string{"a": "1"})
		w.wantReason("a", v1alpha1.ReasonInvalidSpec, "")
		w.restart()
		w.pass(10 * time.Second)
		w.want(map[string]string{"a": "1"})
		w.wantReason("a", v1alpha1.ReasonInvalidSpec, "")
		w.remove("a.yaml")
		w.pass(3 * time.Second)
		w.want(nil)
		w.stop()
	}
}

// confirmation tells whether a confirmation for the root waits.
func (w *world) confirmation() bool {
	_, err := os.Lstat(recordPath(w.reports, w.spool, confirmSuffix))
	return err == nil
}

// TestConfirmOutlivesACrash fails, from the nth on, the writes and the calls of
// the sink with which a confirmation is acted on, ends the controller, and
// starts a clean one: nothing of what was confirmed is forgotten, and the
// confirmation does not stay.
func TestConfirmOutlivesACrash(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(w *world) // what is held for, by then
	}{
		{"replaced", func(w *world) { w.swapRoot(func(string) {}) }},
		{"missing", func(w *world) { w.remove("") }},
		{"emptied", func(w *world) { w.cut(6) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for n := 0; ; n++ {
				w := newWorld(t)
				w.many(6)
				w.start()
				c.lose(w)
				w.pass(10 * time.Second)
				w.wantReason("s0", v1alpha1.ReasonPruneHeld, "")
				var left atomic.Int64
				left.Store(int64(n))
				fail := func() error {
					if left.Add(-1) < 0 {
						return syscall.EIO
					}
					return nil
				}
				user := &files.Layer{}
				w.do(func(*Spool) {
					w.layer.Guard = fail
					w.sink.mu.Lock()
					w.sink.fail = func(string, api.Key) error { return fail() }
					w.sink.mu.Unlock()
				})
				must(t, WriteConfirm(user, w.reports, w.spool))
				w.flush()
				w.stop()
				done := left.Load() >= 0
				w.layer.Guard, w.sink.fail = nil, nil
				w.start()
				w.pass(time.Second)
				w.want(nil)
				w.pass(time.Minute)
				if w.confirmation() {
					t.Fatalf("failed from call %d: the confirmation is left", n)
				}
				must(t, os.MkdirAll(w.spool, 0o700)) // what comes after is guarded again
				w.many(6)
				w.pass(time.Second)
				w.cut(6)
				w.pass(10 * time.Second)
				w.wantReason("s0", v1alpha1.ReasonPruneHeld, "")
				w.stop()
				if done {
					return
				}
			}
		})
	}
}

// TestIdentityIsWrittenInTheEnd: a record that could not be written once makes
// nothing look replaced, and is on disk before long.
func TestIdentityIsWrittenInTheEnd(t *testing.T) {
	for n := range int64(6) {
		w := newWorld(t)
		w.many(2)
		var calls atomic.Int64
		w.layer.Guard = func() error {
			if calls.Add(1) == n+1 {
				return syscall.ENOSPC
			}
			return nil
		}
		w.start()
		w.remove("s0.yaml")
		w.pass(10 * time.Second)
		if r := w.rootReport(w.spool); r.State != RootReady {
			t.Fatalf("call %d failed: root is %s: %s", n, r.State, r.Message)
		}
		if _, err := os.Stat(recordPath(w.reports, w.spool, identitySuffix)); err != nil {
			t.Errorf("call %d failed: %v", n, err)
		}
		w.want(map[string]string{"s1": "1"})
		w.stop()
	}
}

// TestConfirmTriesAgain: the controller lives on, and what failed is done later.
func TestConfirmTriesAgain(t *testing.T) {
	w := newWorld(t)
	w.many(6)
	w.start()
	w.swapRoot(func(string) {})
	w.pass(10 * time.Second)
	w.do(func(*Spool) { w.layer.Guard = func() error { return syscall.ENOSPC } })
	must(t, WriteConfirm(&files.Layer{}, w.reports, w.spool))
	w.pass(time.Second)
	w.want(nil)
	if !w.confirmation() {
		t.Error("the confirmation is gone, and which directory it was for is not recorded")
	}
	w.do(func(*Spool) { w.layer.Guard = nil })
	w.pass(3 * time.Minute)
	if w.confirmation() {
		t.Error("the confirmation is left")
	}
	w.wantRoot(w.spool, RootReady, "")
}
