package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
)

// deletion is a deletion by name of the session that the file defines.
func (w *world) deletion(name, file string) Deletion {
	return Deletion{key(name), w.path(file)}
}

// mean records that the sessions s0, s1, … below n are deleted by name.
func (w *world) mean(n int) *DeletionRecord {
	w.t.Helper()
	var all []Deletion
	for i := range n {
		name := fmt.Sprint("s", i)
		all = append(all, w.deletion(name, name+".yaml"))
	}
	r, err := WriteDeletion(w.layer, w.reports, all)
	must(w.t, err)
	return r
}

// cut removes the files of s0, s1, … below n, as rm and skcctl delete do.
func (w *world) cut(n int) {
	w.t.Helper()
	for i := range n {
		w.remove(fmt.Sprintf("s%d.yaml", i))
	}
}

func (w *world) wantNoRecords() {
	w.t.Helper()
	entries, err := os.ReadDir(w.reports)
	must(w.t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), deletionSuffix) {
			w.t.Fatalf("the record %s is left", e.Name())
		}
	}
}

func TestDeletedByNameIsNoMass(t *testing.T) {
	w := newWorld(t)
	w.many(6)
	w.start()
	w.mean(5)
	w.cut(5)
	w.pass(200 * time.Millisecond)
	w.want(map[string]string{"s5": "1"})
	w.flush()
	w.wantNoRecords()
	w.wantRoot(w.spool, RootReady, "")
}

func TestDeletedByNameBesideASlip(t *testing.T) {
	w := newWorld(t)
	want := w.many(12)
	w.start()
	w.mean(2)
	w.cut(10) // more than half, but for two without a word
	w.pass(200 * time.Millisecond)
	delete(want, "s0")
	delete(want, "s1")
	w.want(want)
	w.pass(10 * time.Second)
	w.want(want)
	w.wantReason("s2", v1alpha1.ReasonPruneHeld, "more than half")
	w.wantNoRecords()

	w.mean(3) // what is held already
	w.pass(200 * time.Millisecond)
	delete(want, "s2")
	w.want(want)
}

func TestDeletedByNameWhileDown(t *testing.T) {
	w := newWorld(t)
	w.many(6)
	w.start()
	w.stop()
	w.mean(5)
	w.cut(5)
	w.clock.Step(24 * time.Hour)
	w.start()
	w.pass(200 * time.Millisecond)
	w.want(map[string]string{"s5": "1"})
	w.wantNoRecords()
}

func TestDeletedByNameFromAReplacedRoot(t *testing.T) {
	w := newWorld(t)
	want := w.many(6)
	w.start()
	w.swapRoot(func(dir string) {
		w.write(filepath.Join(dir, "s0.yaml"), session("s0", "1"))
		w.write(filepath.Join(dir, "s1.yaml"), session("s1", "1"))
	})
	w.pass(5 * time.Second)
	w.wantRoot(w.spool, RootReplaced, "")
	w.mean(1)
	w.cut(1)
	w.pass(200 * time.Millisecond)
	delete(want, "s0")
	w.want(want)
	w.pass(time.Minute)
	w.want(want)
	w.wantRoot(w.spool, RootReplaced, "")
}

func TestDeletedDocument(t *testing.T) {
	w := newWorld(t)
	w.put("s0.yaml", session("s0", "1")+"---\n"+session("x", "1"))
	w.start()
	w.mean(1)
	w.put("s0.yaml", session("x", "1"))
	w.pass(200 * time.Millisecond)
	w.want(map[string]string{"x": "1"})
	w.wantNoRecords()
}

func TestDeletedByNameAndStillDefined(t *testing.T) {
	w := newWorld(t)
	w.put("s0.yaml", session("s0", "1"))
	w.start()
	w.put("b.yaml", session("s0", "2"))
	w.settle()
	w.mean(1)
	w.cut(1)
	w.pass(200 * time.Millisecond)
	w.want(map[string]string{"s0": "2"}) // the other file has it now
	w.wantNoRemovals()
	w.wantNoRecords()
}

// TestDeletionThatIsNone: what is said of a document does not hold for one that
// stayed, came back, or is another's.
func TestDeletionThatIsNone(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *world)
	}{
		{"the edit never came", func(w *world) {
			w.mean(6)
			w.pass(59 * time.Second)
			if entries, err := filepath.Glob(filepath.Join(w.reports, "*"+deletionSuffix)); err != nil || len(entries) != 1 {
				w.t.Fatalf("records %v, %v; want one until the edit had time", entries, err)
			}
			w.pass(5 * time.Second)
		}},
		{"it never came, and the controller was down", func(w *world) {
			w.stop()
			w.mean(6)
			w.clock.Step(2 * time.Minute)
			w.start()
			w.flush()
		}},
		{"it was taken back", func(w *world) {
			must(w.t, w.mean(6).Keep(nil))
			w.flush()
		}},
		{"all of it came back", func(w *world) {
			w.mean(6)
			w.cut(6)
			w.flush()
			w.many(6)
			w.pass(200 * time.Millisecond)
		}},
		{"another file defines it", func(w *world) {
			_, err := WriteDeletion(w.layer, w.reports, []Deletion{
				w.deletion("s0", "x.yaml"), w.deletion("s1", "x.yaml"), w.deletion("s2", "x.yaml"),
			})
			must(w.t, err)
		}},
		{"the record is none of ours", func(w *world) {
			must(w.t, os.WriteFile(filepath.Join(w.reports, "x"+deletionSuffix), []byte("nonsense"), 0o600))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			want := w.many(6)
			w.start()
			c.do(w)
			w.cut(6)
			w.pass(30 * time.Second)
			w.want(want)
			w.wantNoRemovals()
			w.wantReason("s0", v1alpha1.ReasonPruneHeld, "more than half")
			w.pass(2 * time.Minute)
			w.wantNoRecords()
		})
	}
}

func TestDeletionPartlyTakenBack(t *testing.T) {
	w := newWorld(t)
	want := w.many(6)
	w.start()
	record := w.mean(6)
	w.cut(1)
	w.pass(200 * time.Millisecond)
	delete(want, "s0")
	w.want(want)
	must(t, record.Keep([]Deletion{w.deletion("s0", "s0.yaml")})) // the disk was full
	w.put("s0.yaml", session("s0", "1"))
	w.settle()
	want["s0"] = "1"
	w.cut(6)
	w.pass(30 * time.Second)
	w.want(want)
}

func TestDeletionOutlivesACrash(t *testing.T) {
	w := newWorld(t)
	w.many(6)
	w.start()
	w.sink.mu.Lock()
	w.sink.fail = func(call string, k api.Key) error {
		if call == "remove" && k == key("s3") {
			return errors.New("no space left")
		}
		return nil
	}
	w.sink.mu.Unlock()
	w.mean(5)
	w.cut(5)
	w.pass(200 * time.Millisecond)
	w.want(map[string]string{"s3": "1", "s5": "1"})
	w.stop()
	w.sink.fail = nil
	w.start()
	w.pass(200 * time.Millisecond)
	w.want(map[string]string{"s5": "1"})
	w.pass(2 * time.Minute) // what went before the crash is not known to have been there
	w.wantNoRecords()
}

func TestDeletionWaitsForACompleteLook(t *testing.T) {
	w := newWorld(t)
	broken := "" // root reads every folder, so the listing itself fails
	w.prepare = func(s *Spool) {
		s.list = func(dir string) (*listing, error) {
			if dir == broken {
				return nil, &os.PathError{Op: "open", Path: dir, Err: syscall.EACCES}
			}
			return list(dir)
		}
	}
	want := w.many(6)
	w.put("sub/x.yaml", session("x", "1"))
	want["x"] = "1"
	w.start()
	w.do(func(s *Spool) { broken = w.path("sub"); s.lookAll() })
	w.mean(5)
	w.cut(5)
	w.pass(10 * time.Second)
	w.want(want)
	w.do(func(*Spool) { broken = "" })
	w.pass(time.Minute + 5*time.Second)
	w.want(map[string]string{"s5": "1", "x": "1"})
}
