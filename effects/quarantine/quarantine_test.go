package quarantine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
)

func TestSetAsideAndRestore(t *testing.T) {
	w := newWorld(t)
	file := w.path("work", "file \xff\n")
	put(t, file, "content")
	for id, origin := range map[string]string{"tree": w.tree("web \xff\nx"), "file": file} {
		before := sums(t, origin)
		req := w.request(id, origin)
		r, err := w.SetAside(t.Context(), req)
		must(t, err)
		wantAbsent(t, origin)
		wantSums(t, string(r.Place), before)
		if filepath.Dir(string(r.Place)) != w.things || !strings.HasPrefix(filepath.Base(string(r.Place)), ".skc-kept-") {
			t.Errorf("%s is kept at %q, want in %s", id, r.Place, w.things)
		}
		if r.State != Kept || string(r.Origin) != origin || r.Details != details || !r.Time.Equal(started) ||
			!r.Deadline.Equal(started.Add(details.Retention)) || r.Attempts != 1 || r.Identity != req.Expect {
			t.Errorf("record = %+v", r)
		}
		// A second time, and by another process: the same.
		again, err := w.SetAside(t.Context(), req)
		must(t, err)
		other, err := openStore(t.Context(), w.dir, &files.Layer{})
		must(t, err)
		got, err := other.Get(id)
		must(t, err)
		if again.Place != r.Place || got != again {
			t.Errorf("a second SetAside = %+v, Get of another process = %+v, want %+v", again, got, r)
		}
		fi, err := os.Stat(filepath.Join(w.plans, id+".jsonl"))
		if err != nil || fi.Mode() != 0o600 {
			t.Errorf("plan: %v, %v; want 0600", fi.Mode(), err)
		}
		r, err = w.Restore(t.Context(), id, origin)
		must(t, err)
		wantSums(t, origin, before)
		wantAbsent(t, string(got.Place))
		if r.State != Restored || string(r.Place) != origin {
			t.Errorf("after Restore: %+v", r)
		}
		_, err = w.Restore(t.Context(), id, origin) // is there already
		must(t, err)
		_, err = w.Restore(t.Context(), id, origin+"2")
		wantCode(t, err, effects.ErrConflict)
		_, err = w.Purge(t.Context(), id, nil)
		wantCode(t, err, effects.ErrConflict)
		_, err = w.SetAside(t.Context(), req)
		wantCode(t, err, effects.ErrConflict)
		wantSums(t, origin, before)
	}
}

func TestIdentityIsThatOfFiles(t *testing.T) {
	w := newWorld(t)
	id, err := Identify(t.Context(), w.path("work"))
	must(t, err)
	want, err := files.Identity(w.path("work"), false)
	if err != nil || id.String() != want {
		t.Errorf("Identity = %s, want %s, %v", id, want, err)
	}
}

// TestRefused: what must not be set aside stays, and no plan is left.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	put(t, w.path("work", "file"), "text")
	put(t, w.path("work", "dir", "in"), "text")
	must(t, os.Symlink(w.path("work", "dir"), w.path("work", "link")))
	must(t, unix.Mkfifo(w.path("work", "fifo"), 0o600))
	dir, file := w.request("x", w.path("work", "dir")).Expect, w.request("x", w.path("work", "file")).Expect
	changed := file
	changed.SHA256 = strings.Repeat("0", 64)
	touched := file
	touched.MtimeNs++
	reborn := dir
	reborn.Birth++
	if dir.Birth == 0 {
		reborn.Ino++
	}
	before := sums(t, w.path("work"))
	for _, tc := range []struct {
		name, origin string
		expect       Identity
		code         Code
	}{
		{"another folder", w.path("work", "dir"), Identity{Kind: Dir, Dev: dir.Dev, Ino: dir.Ino + 1}, IdentityMismatch},
		{"its number on another device", w.path("work", "dir"), Identity{Kind: Dir, Dev: dir.Dev + 1, Ino: dir.Ino}, IdentityMismatch},
		{"its number, used again", w.path("work", "dir"), reborn, IdentityMismatch},
		{"other content", w.path("work", "file"), changed, IdentityMismatch},
		{"another time", w.path("work", "file"), touched, IdentityMismatch},
		{"no identity", w.path("work", "dir"), Identity{Kind: Dir}, OriginRefused},
		{"missing", w.path("work", "missing"), dir, NotFound},
		{"below something missing", w.path("work", "missing", "x"), dir, NotFound},
		{"below a file", w.path("work", "file", "x"), dir, NotDirectory},
		{"a file for a folder", w.path("work", "file"), dir, NotDirectory},
		{"a folder for a file", w.path("work", "dir"), file, NotRegularFile},
		{"a pipe", w.path("work", "fifo"), Identity{Kind: FIFO, Dev: 1, Ino: 1}, NotRegularFile},
		{"a pipe for a file", w.path("work", "fifo"), file, NotRegularFile},
		{"a link for a folder", w.path("work", "link"), dir, ReparsePoint},
		{"a link", w.path("work", "link"), Identity{Kind: Symlink, Dev: 1, Ino: 1}, ReparsePoint},
		{"through a link", w.path("work", "link", "in"), file, ReparsePoint},
		{"relative", "work/dir", dir, OriginRefused},
		{"climbing", w.dir + "/work/../work/dir", dir, OriginRefused},
		{"the root", "/", dir, OriginRefused},
		{"the quarantine", w.path("state", "quarantine"), dir, OriginRefused},
		{"what holds the quarantine", w.path("state"), dir, OriginRefused},
		{"in the quarantine", w.path("state", "quarantine", "plans"), dir, OriginRefused},
		{"NUL", w.path("work", "a\x00b"), dir, OriginRefused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := w.SetAside(t.Context(), Request{ID: "x", Origin: tc.origin, Expect: tc.expect})
			wantCode(t, err, tc.code)
			if list := append(names(t, w.plans), w.places(t)...); len(list) != 0 {
				t.Errorf("left: %q", list)
			}
			wantSums(t, w.path("work"), before)
		})
	}
	for _, id := range []string{"", "..", "a/b", "-x", "A", "a\n", strings.Repeat("x", 129)} {
		_, err := w.SetAside(t.Context(), Request{ID: id, Origin: w.path("work", "dir"), Expect: dir})
		wantCode(t, err, OriginRefused)
		_, err = w.Get(id)
		wantCode(t, err, NotFound, effects.ErrNotFound)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.SetAside(ctx, Request{ID: "x", Origin: w.path("work", "dir"), Expect: dir})
	wantCode(t, err, context.Canceled)
	wantSums(t, w.path("work"), before)
}

// between does f when the n-th change of the disk is about to be made: the
// layer is asked for its guard then. A SetAside makes 1 the plan, 2 the rename,
// 3 the record (or the way back).
func (w *world) between(n int, f func() error) {
	w.layer.Guard = func() error {
		if n--; n == 0 {
			return f()
		}
		return nil
	}
	w.t.Cleanup(func() { w.layer.Guard = nil })
}

// TestSwapped puts something else in the place of the origin between the last
// look and the rename: it is put back, and ours is where it was moved.
func TestSwapped(t *testing.T) {
	for name, swap := range map[string]func(t *testing.T, w *world, path string){
		"a folder": func(t *testing.T, w *world, path string) { put(t, filepath.Join(path, "foreign"), "f") },
		"a file":   func(t *testing.T, w *world, path string) { put(t, path, "f") },
		"a link":   func(t *testing.T, w *world, path string) { must(t, os.Symlink(w.path("work"), path)) },
		"a copy": func(t *testing.T, w *world, path string) {
			must(t, os.CopyFS(path, os.DirFS(w.path("work", "mine", "sub"))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			origin := w.path("work", "web")
			put(t, filepath.Join(origin, "sub", "x"), "mine")
			before := sums(t, origin)
			req := w.request("x", origin)
			w.between(2, func() error {
				must(t, os.Rename(origin, w.path("work", "mine")))
				swap(t, w, origin)
				return nil
			})
			_, err := w.SetAside(t.Context(), req)
			if !errors.Is(err, IdentityMismatch) && !errors.Is(err, ReparsePoint) && !errors.Is(err, NotDirectory) {
				t.Fatalf("SetAside = %v, want a mismatch", err)
			}
			wantSums(t, w.path("work", "mine"), before)
			if _, err := os.Lstat(origin); err != nil || len(w.places(t)) != 0 {
				t.Fatalf("what was there is not: %v; in quarantine: %q", err, w.places(t))
			}
			// Once ours is there again, the same request does it, under a new name.
			must(t, os.RemoveAll(origin))
			must(t, os.Rename(w.path("work", "mine"), origin))
			r, err := w.SetAside(t.Context(), req)
			must(t, err)
			wantSums(t, string(r.Place), before)
			if r.Attempts != 2 {
				t.Errorf("%d attempts, want 2", r.Attempts)
			}
		})
	}
}

// TestSwappedAndTaken: the other thing cannot be put back either, because a
// third took its place. All three are there, and the error names where.
func TestSwappedAndTaken(t *testing.T) {
	w := newWorld(t)
	origin := w.tree("web")
	before := sums(t, origin)
	req := w.request("x", origin)
	n := 0
	w.layer.Guard = func() error {
		switch n++; n {
		case 2:
			must(t, os.Rename(origin, w.path("work", "mine")))
			put(t, filepath.Join(origin, "second"), "2")
		case 3:
			put(t, filepath.Join(origin, "third"), "3")
		}
		return nil
	}
	_, err := w.SetAside(t.Context(), req)
	w.layer.Guard = nil
	wantCode(t, err, IdentityMismatch)
	places := w.places(t)
	if len(places) != 1 || !strings.Contains(err.Error(), places[0]) {
		t.Fatalf("in quarantine: %q; error: %v", places, err)
	}
	wantSums(t, w.path("work", "mine"), before)
	if names(t, places[0])[0] != "second" || names(t, origin)[0] != "third" {
		t.Error("something is not where it was said to be")
	}
	_, err = w.SetAside(t.Context(), req)
	wantCode(t, err, Uncertain)
	orphans, err := w.Orphans(t.Context())
	if err != nil || len(orphans) != 1 || orphans[0].ID != "x" {
		t.Errorf("Orphans = %+v, %v; want the attempt", orphans, err)
	}
	// By hand, and it goes on.
	must(t, os.Rename(places[0], w.path("work", "2")))
	must(t, os.Rename(origin, w.path("work", "3")))
	must(t, os.Rename(w.path("work", "mine"), origin))
	r, err := w.SetAside(t.Context(), req)
	must(t, err)
	wantSums(t, string(r.Place), before)
}

// TestCollision: a planned name that is taken is passed over; when all are,
// nothing is touched.
func TestCollision(t *testing.T) {
	w := newWorld(t)
	origin := w.tree("web")
	before := sums(t, origin)
	was := newName
	t.Cleanup(func() { newName = was })
	taken := filepath.Join(w.things, keptPrefix+"taken")
	newName = func() string { return "taken" }
	w.between(2, func() error { return os.Mkdir(taken, 0o700) }) // empty: a plain rename would replace it
	req := w.request("x", origin)
	_, err := w.SetAside(t.Context(), req)
	wantCode(t, err, QuarantineCollision)
	wantSums(t, origin, before)
	if len(names(t, taken)) != 0 {
		t.Error("the folder that has the name was changed")
	}
	n := 0
	newName = func() string { n++; return []string{"taken", "taken", "free"}[n-1] }
	r, err := w.SetAside(t.Context(), req)
	must(t, err)
	wantSums(t, string(r.Place), before)
	if filepath.Base(string(r.Place)) != keptPrefix+"free" || r.Attempts != 2 {
		t.Errorf("kept at %q after %d attempts, want …free after 2", r.Place, r.Attempts)
	}
}

// TestReplay leaves an attempt without an end, arranges the world, and goes on.
func TestReplay(t *testing.T) {
	stop := errors.New("stop")
	for _, tc := range []struct {
		name     string
		arrange  func(t *testing.T, origin, planned string)
		code     error // nil: it comes to its end
		attempts int
	}{
		{"at its origin", func(*testing.T, string, string) {}, nil, 1},
		{"at the planned place", func(t *testing.T, o, p string) { must(t, os.Rename(o, p)) }, nil, 1},
		{"moved, and the old name used again", func(t *testing.T, o, p string) {
			must(t, os.Rename(o, p))
			put(t, filepath.Join(o, "new"), "n")
		}, nil, 1},
		{"moved, and the folder it was in is gone", func(t *testing.T, o, p string) {
			must(t, os.Rename(o, p))
			must(t, os.Rename(filepath.Dir(o), filepath.Dir(o)+"2"))
		}, nil, 1},
		{"nowhere", func(t *testing.T, o, p string) { must(t, os.Rename(o, o+"2")) }, Lost, 0},
		{"another at its origin", func(t *testing.T, o, p string) {
			must(t, os.Rename(o, o+"2"))
			put(t, filepath.Join(o, "new"), "n")
		}, Lost, 0},
		{"another at the planned place", func(t *testing.T, o, p string) { put(t, filepath.Join(p, "x"), "") }, Uncertain, 0},
		{"a link at the planned place", func(t *testing.T, o, p string) { must(t, os.Symlink(o, p)) }, Uncertain, 0},
		{"a link at its origin to the planned place", func(t *testing.T, o, p string) {
			must(t, os.Rename(o, p))
			must(t, os.Symlink(p, o))
		}, nil, 1},
		{"others at both", func(t *testing.T, o, p string) {
			must(t, os.Rename(o, o+"2"))
			must(t, os.Mkdir(o, 0o700))
			must(t, os.Mkdir(p, 0o700))
		}, Uncertain, 0},
		{"a link above its origin", func(t *testing.T, o, p string) {
			must(t, os.Rename(filepath.Dir(o), filepath.Dir(o)+"2"))
			must(t, os.Symlink(filepath.Dir(o)+"2", filepath.Dir(o)))
		}, Uncertain, 0},
		{"the quarantine folder is another", func(t *testing.T, o, p string) {
			must(t, os.Rename(o, p))
			must(t, os.Rename(filepath.Dir(p), filepath.Dir(p)+"2"))
			must(t, os.Mkdir(filepath.Dir(p), 0o700))
		}, effects.ErrUnreachable, 0},
		{"the quarantine folder is away", func(t *testing.T, o, p string) {
			must(t, os.Rename(o, p))
			must(t, os.Rename(filepath.Dir(p), filepath.Dir(p)+"2"))
		}, effects.ErrUnreachable, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorldIn(t, memory(t))
			origin := w.tree("web")
			before := sums(t, origin)
			req := w.request("x", origin)
			w.between(2, func() error { return stop })
			r, err := w.SetAside(t.Context(), req)
			wantCode(t, err, stop)
			wantSums(t, origin, before)
			tc.arrange(t, origin, string(r.Place))
			everything := sums(t, w.dir)
			r, err = w.SetAside(t.Context(), req)
			if tc.code != nil {
				wantCode(t, err, tc.code)
				wantSums(t, w.dir, everything)
				err := w.Forget(t.Context(), "x")
				if tc.code == Lost {
					must(t, err)
				} else {
					if err == nil {
						t.Error("it was forgotten")
					}
					wantSums(t, w.dir, everything)
				}
				return
			}
			must(t, err)
			wantSums(t, string(r.Place), before)
			if r.State != Kept || r.Attempts != tc.attempts {
				t.Errorf("record = %+v, want kept after %d attempts", r, tc.attempts)
			}
		})
	}
	t.Run("a file with two names", func(t *testing.T) {
		w := newWorld(t)
		file := w.path("work", "file")
		put(t, file, "x")
		req := w.request("x", file)
		w.between(2, func() error { return stop })
		r, err := w.SetAside(t.Context(), req)
		wantCode(t, err, stop)
		must(t, os.Link(file, string(r.Place)))
		everything := sums(t, w.dir)
		_, err = w.SetAside(t.Context(), req)
		wantCode(t, err, Uncertain)
		wantSums(t, w.dir, everything)
	})
}

// TestNotMovedIsForgotten: a plan whose thing never moved may be dropped.
func TestNotMovedIsForgotten(t *testing.T) {
	w := newWorld(t)
	origin := w.tree("web")
	before := sums(t, origin)
	stop := errors.New("stop")
	w.between(2, func() error { return stop })
	_, err := w.SetAside(t.Context(), w.request("x", origin))
	wantCode(t, err, stop)
	must(t, w.Forget(t.Context(), "x"))
	must(t, w.Forget(t.Context(), "x"))
	wantSums(t, origin, before)
	if list := names(t, w.plans); len(list) != 0 {
		t.Errorf("left: %q", list)
	}
}

// TestFileThatIsWritten: a file that changes while it is moved is put back, and
// the next request, with what it is by then, moves it.
func TestFileThatIsWritten(t *testing.T) {
	w := newWorld(t)
	file := w.path("work", "file")
	put(t, file, "before")
	w.between(2, func() error { put(t, file, "after!"); return nil })
	_, err := w.SetAside(t.Context(), w.request("x", file))
	wantCode(t, err, IdentityMismatch)
	if data, err := os.ReadFile(file); err != nil || string(data) != "after!" {
		t.Fatalf("the file holds %q, %v", data, err)
	}
	r, err := w.SetAside(t.Context(), w.request("x", file))
	must(t, err)
	f, err := os.OpenFile(string(r.Place), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString("more")
	must(t, errors.Join(err, f.Close()))
	_, err = w.Purge(t.Context(), "x", nil) // nobody has seen that
	wantCode(t, err, IdentityMismatch)
	_, err = w.Restore(t.Context(), "x", file)
	must(t, err)
	if data, err := os.ReadFile(file); err != nil || string(data) != "after!more" {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

// TestVerifiedBefore: what changed since its plan is not moved at all.
func TestVerifiedBefore(t *testing.T) {
	w := newWorld(t)
	file := w.path("work", "file")
	put(t, file, "before")
	req := w.request("x", file)
	stop := errors.New("stop")
	w.between(2, func() error { return stop })
	_, err := w.SetAside(t.Context(), req)
	wantCode(t, err, stop)
	put(t, file, "after!")
	w.layer.Trace = func(op files.Op) {
		if op.Kind == files.OpRename {
			t.Errorf("%s was moved to %s", op.Path, op.To)
		}
	}
	_, err = w.SetAside(t.Context(), req)
	wantCode(t, err, IdentityMismatch)
}

// TestPurgeAfterRestoreBrokeOff: an attempt that never moved binds nobody, and
// one that did is not purged.
func TestPurgeAfterRestoreBrokeOff(t *testing.T) {
	stop := errors.New("stop")
	for n, purged := range map[int]bool{2: true, 3: false} { // before the rename, before the record
		w := newWorld(t)
		origin := w.tree("web")
		before := sums(t, origin)
		_, err := w.SetAside(t.Context(), w.request("x", origin))
		must(t, err)
		w.between(n, func() error { return stop })
		_, err = w.Restore(t.Context(), "x", origin)
		wantCode(t, err, stop)
		_, err = w.Purge(t.Context(), "x", nil)
		if purged {
			must(t, err)
			wantAbsent(t, origin)
		} else {
			wantCode(t, err, effects.ErrConflict)
			wantSums(t, origin, before)
		}
		if list := w.places(t); len(list) != 0 {
			t.Errorf("left: %q", list)
		}
	}
}

// TestRunningWriter: what a program writes while the tree under it is moved, to
// files it holds open and to new ones, is all there.
func TestRunningWriter(t *testing.T) {
	w := newWorld(t)
	origin := w.tree("web")
	log, err := os.OpenFile(filepath.Join(origin, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	must(t, err)
	root, err := os.OpenRoot(origin) // as a program with that folder as its own
	must(t, err)
	stop, done, wrote := make(chan struct{}), make(chan int), make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				done <- n
				return
			default:
			}
			_, err := fmt.Fprintf(log, "%d\n", n)
			if err == nil {
				err = root.WriteFile(fmt.Sprintf("new%d", n%50), fmt.Appendf(nil, "%d", n), 0o644)
			}
			if err != nil {
				t.Error(err)
			}
			if n == 10 {
				close(wrote)
			}
		}
	}()
	<-wrote
	var place string
	for i := range 20 {
		id := fmt.Sprintf("x%d", i)
		r, err := w.SetAside(t.Context(), w.request(id, origin))
		must(t, err)
		place = string(r.Place)
		_, err = w.Inventory(t.Context(), id)
		must(t, err)
		if i < 19 {
			_, err = w.Restore(t.Context(), id, origin)
			must(t, err)
		}
	}
	close(stop)
	n := <-done
	must(t, errors.Join(log.Close(), root.Close()))
	data, err := os.ReadFile(filepath.Join(place, "log"))
	must(t, err)
	var want strings.Builder
	for i := range n {
		fmt.Fprintf(&want, "%d\n", i)
	}
	if string(data) != want.String() {
		t.Errorf("of %d lines that were written, %d are in quarantine", n, strings.Count(string(data), "\n"))
	}
	for i := max(0, n-50); i < n; i++ {
		if data, err := os.ReadFile(filepath.Join(place, fmt.Sprintf("new%d", i%50))); err != nil || string(data) != fmt.Sprint(i) {
			t.Fatalf("new%d holds %q, %v; want %d", i%50, data, err, i)
		}
	}
	wantAbsent(t, origin)
}

// TestRestoreRefused: the thing stays in quarantine, unchanged.
func TestRestoreRefused(t *testing.T) {
	w := newWorld(t)
	origin := w.tree("web")
	before := sums(t, origin)
	r, err := w.SetAside(t.Context(), w.request("x", origin))
	must(t, err)
	put(t, w.path("work", "file"), "f")
	must(t, os.Mkdir(w.path("work", "empty"), 0o755))
	must(t, os.Symlink("nowhere", w.path("work", "dangling")))
	must(t, os.Symlink(w.path("work"), w.path("work", "link")))
	for _, tc := range []struct {
		name, to string
		codes    []error
	}{
		{"a file", w.path("work", "file"), []error{PlaceTaken, effects.ErrExists}},
		{"an empty folder", w.path("work", "empty"), []error{PlaceTaken, effects.ErrExists}},
		{"a dangling link", w.path("work", "dangling"), []error{PlaceTaken, effects.ErrExists}},
		{"through a link", w.path("work", "link", "x"), []error{ReparsePoint}},
		{"no folder", w.path("work", "missing", "x"), []error{NotFound}},
		{"relative", "x", []error{OriginRefused}},
		{"the quarantine", filepath.Join(w.things, "x"), []error{OriginRefused}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			work := sums(t, w.path("work"))
			_, err := w.Restore(t.Context(), "x", tc.to)
			wantCode(t, err, tc.codes...)
			wantSums(t, string(r.Place), before)
			wantSums(t, w.path("work"), work)
		})
	}
	// The place is taken between the look and the rename.
	w.between(2, func() error { return os.Mkdir(origin, 0o755) })
	_, err = w.Restore(t.Context(), "x", origin)
	wantCode(t, err, PlaceTaken)
	wantSums(t, string(r.Place), before)
	// An attempt that was broken off does not bind the next to its path.
	stop := errors.New("stop")
	w.between(2, func() error { return stop })
	_, err = w.Restore(t.Context(), "x", w.path("work", "one"))
	wantCode(t, err, stop)
	got, err := w.Restore(t.Context(), "x", w.path("work", "two"))
	must(t, err)
	wantSums(t, w.path("work", "two"), before)
	if string(got.Place) != w.path("work", "two") {
		t.Errorf("restored at %q", got.Place)
	}
	_, err = w.Restore(t.Context(), "none", origin)
	wantCode(t, err, NotFound)
}

func TestManyAtOnce(t *testing.T) {
	w := newWorldIn(t, memory(t))
	const n = 20
	before := map[string]map[string]string{}
	reqs := make([]Request, n)
	for i := range reqs {
		origin := w.tree(fmt.Sprint("web", i))
		reqs[i] = w.request(fmt.Sprint("x", i), origin)
		before[reqs[i].ID] = sums(t, origin)
	}
	var wg sync.WaitGroup
	for _, req := range reqs {
		for range 3 { // and each is asked for more than once
			wg.Go(func() {
				if _, err := w.SetAside(t.Context(), req); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	list, err := w.List(t.Context())
	if err != nil || len(list) != n {
		t.Fatalf("List = %d, %v; want %d", len(list), err, n)
	}
	for _, r := range list {
		wantSums(t, string(r.Place), before[r.ID])
		if r.Attempts != 1 {
			t.Errorf("%s: %d attempts, want 1", r.ID, r.Attempts)
		}
	}
	if len(w.places(t)) != n {
		t.Errorf("%d things in quarantine, want %d", len(w.places(t)), n)
	}
	if orphans, err := w.Orphans(t.Context(), w.path("work")); err != nil || len(orphans) != 0 {
		t.Errorf("Orphans = %+v, %v; want none", orphans, err)
	}
}

func TestOrphans(t *testing.T) {
	w := newWorldIn(t, memory(t))
	for _, id := range []string{"kept", "lost", "swapped", "purged"} {
		_, err := w.SetAside(t.Context(), w.request(id, w.tree(id)))
		must(t, err)
	}
	get := func(id string) string {
		r, err := w.Get(id)
		must(t, err)
		return string(r.Place)
	}
	must(t, os.Rename(get("lost"), w.path("work", "away")))
	must(t, os.Rename(get("swapped"), w.path("work", "away2")))
	must(t, os.Mkdir(get("swapped"), 0o700))
	_, err := w.Purge(t.Context(), "purged", nil)
	must(t, err)
	stray := filepath.Join(w.things, keptPrefix+"stray")
	beside := w.path("work", BesideName, keptPrefix+"stray")
	must(t, os.Mkdir(stray, 0o700))
	must(t, os.MkdirAll(beside, 0o700))
	put(t, filepath.Join(w.things, "not ours"), "")
	put(t, filepath.Join(w.plans, "torn.jsonl"), `{"v":1,"seq`)
	everything := sums(t, w.dir)
	want := map[string]error{"lost": Lost, "swapped": IdentityMismatch, "torn": NotFound, stray: NotFound, beside: NotFound}
	orphans, err := w.Orphans(t.Context(), w.path("work"), w.path("missing"))
	must(t, err)
	for _, o := range orphans {
		name := o.ID
		if name == "" {
			name = o.Path
		}
		if want[name] == nil || !errors.Is(o.Err, want[name]) {
			t.Errorf("orphan %+v, want %v", o, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	wantSums(t, w.dir, everything)
	// One plan that cannot be read, and nothing is called an orphan.
	put(t, filepath.Join(w.plans, "newer.jsonl"), `{"v":2}`+"\n")
	if orphans, err := w.Orphans(t.Context()); !errors.Is(err, NewerVersion) || len(orphans) != 0 {
		t.Errorf("Orphans = %+v, %v; want none and why", orphans, err)
	}
	list, err := w.List(t.Context())
	if wantCode(t, err, NewerVersion); len(list) != 4 {
		t.Errorf("List = %d, want the 4 that can be read", len(list))
	}
	// Forgetting.
	for id, want := range map[string]error{"kept": effects.ErrConflict, "swapped": effects.ErrConflict, "lost": nil, "purged": nil, "torn": nil} {
		if err := w.Forget(t.Context(), id); want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Errorf("Forget %s = %v, want %v", id, err, want)
		}
	}
}

// TestPurge: links are removed and not followed, names beyond the first stay.
func TestPurge(t *testing.T) {
	w := newWorld(t)
	origin := w.tree("web")
	put(t, w.path("work", "outside", "x"), "keep")
	must(t, os.Symlink(w.path("work", "outside"), filepath.Join(origin, "to outside")))
	must(t, os.Link(w.path("work", "outside", "x"), filepath.Join(origin, "second name")))
	_, err := w.SetAside(t.Context(), w.request("x", origin))
	must(t, err)
	r, err := w.Inventory(t.Context(), "x")
	must(t, err)
	put(t, filepath.Join(string(r.Place), "came later"), "in quarantine")
	var done, total int64
	r, err = w.Purge(t.Context(), "x", func(d, n int64) { done, total = d, n })
	must(t, err)
	if r.State != Purged || len(w.places(t)) != 0 || done != r.Size.Entries+1 || total != done {
		t.Errorf("record %+v, left %q, removed %d of %d", r, w.places(t), done, total)
	}
	if got := sums(t, w.path("work")); len(got) != 3 || !strings.HasSuffix(got["outside/x"], "6ca7ea2feefc88ecb5ed6356ed963f47dc9137f82526fdd25d618ea626d0803f") {
		t.Errorf("what is outside: %q", got)
	}
	_, err = w.Purge(t.Context(), "x", nil)
	must(t, err)
	must(t, w.Forget(t.Context(), "x"))
	if list := names(t, w.plans); len(list) != 0 {
		t.Errorf("left: %q", list)
	}
}

// TestPurgeOfAnother: a folder that is not ours is not purged, whatever its name.
func TestPurgeOfAnother(t *testing.T) {
	w := newWorld(t)
	r, err := w.SetAside(t.Context(), w.request("x", w.tree("web")))
	must(t, err)
	must(t, os.Rename(string(r.Place), w.path("work", "mine")))
	_, err = w.Purge(t.Context(), "x", nil)
	wantCode(t, err, Lost)
	put(t, filepath.Join(string(r.Place), "foreign"), "f")
	everything := sums(t, w.dir)
	_, err = w.Purge(t.Context(), "x", nil)
	wantCode(t, err, IdentityMismatch)
	must(t, os.Rename(string(r.Place), w.path("foreign")))
	must(t, os.Symlink(w.path("work", "mine"), string(r.Place)))
	_, err = w.Purge(t.Context(), "x", nil)
	wantCode(t, err, IdentityMismatch)
	must(t, os.Remove(string(r.Place)))
	must(t, os.Rename(w.path("foreign"), string(r.Place)))
	for name, sum := range sums(t, w.dir) {
		if everything[name] != sum {
			t.Errorf("%q changed", name)
		}
	}
}

// TestPurgeStopped is stopped after each batch, and goes on.
func TestPurgeStopped(t *testing.T) {
	w := newWorldIn(t, memory(t))
	origin := w.path("work", "web")
	for i := range 3 * batch {
		put(t, filepath.Join(origin, fmt.Sprint("d", i%7), fmt.Sprint("f", i)), "")
	}
	_, err := w.SetAside(t.Context(), w.request("x", origin))
	must(t, err)
	stops := 0
	for {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := w.Purge(ctx, "x", func(done, _ int64) {
			if done > 0 {
				cancel()
			}
		})
		cancel()
		if err == nil {
			break
		}
		wantCode(t, err, context.Canceled)
		_, err = w.Restore(t.Context(), "x", origin) // there is no way back
		wantCode(t, err, effects.ErrConflict)
		stops++
	}
	if stops < 5 || len(w.places(t)) != 0 {
		t.Errorf("stopped %d times, left %q", stops, w.places(t))
	}
}

// TestInventory compares with a walk of another kind.
func TestInventory(t *testing.T) {
	w := newWorld(t)
	_, err := w.SetAside(t.Context(), w.request("x", w.tree("web")))
	must(t, err)
	r, err := w.Inventory(t.Context(), "x")
	must(t, err)
	want := sums(t, string(r.Place))
	size := Size{}
	must(t, w.ReadInventory("x", func(e Entry) error {
		name := string(e.RelativePath)
		if want[name] == "" || !strings.Contains(want[name], fmt.Sprintf(" %d:%d %d", e.Dev, e.Ino, e.Nlink)) || e.Kind == Symlink && !strings.HasSuffix(want[name], string(e.Target)) {
			t.Errorf("%+v, want %q", e, want[name])
		}
		delete(want, name)
		size.Entries++
		if e.Kind == File {
			size.Files++
			size.Bytes += e.Size
		}
		return nil
	}))
	if len(want) > 0 || r.Size == nil || *r.Size != size {
		t.Errorf("size %+v, want %+v; not listed: %q", r.Size, size, want)
	}
	if again, err := w.Inventory(t.Context(), "x"); err != nil || *again.Size != size {
		t.Errorf("a second Inventory = %+v, %v", again, err)
	}
	hashed := 0
	_, err = Snapshot(t.Context(), string(r.Place), 2, func(e Entry) error {
		if (e.SHA256 != "") != (e.Kind == File && e.Size <= 2) {
			t.Errorf("hash of %+v", e)
		}
		if e.SHA256 != "" {
			hashed++
		}
		return nil
	})
	if err != nil || hashed != 4 {
		t.Errorf("%d hashed, %v; want 4", hashed, err)
	}
	if err := w.ReadInventory("../x", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadInventory of a path = %v", err)
	}
}

// TestDeep: 1,000 levels are far beyond the longest path.
func TestDeep(t *testing.T) {
	for _, levels := range []int{300, 1000} {
		w := newWorldIn(t, memory(t))
		origin := w.path("work", "web")
		must(t, os.Mkdir(origin, 0o755))
		fd, err := unix.Open(origin, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		for range levels {
			must(t, unix.Mkdirat(fd, "level", 0o755))
			next, err := unix.Openat(fd, "level", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			must(t, err)
			must(t, unix.Close(fd))
			fd = next
		}
		must(t, unix.Close(fd))
		_, err = w.SetAside(t.Context(), w.request("x", origin))
		must(t, err)
		r, err := w.Inventory(t.Context(), "x")
		must(t, err)
		if r.Size.Entries != int64(levels)+1 {
			t.Errorf("%d entries, want %d", r.Size.Entries, levels+1)
		}
		_, err = w.Purge(t.Context(), "x", nil)
		must(t, err)
		if len(w.places(t)) != 0 {
			t.Errorf("left: %q", w.places(t))
		}
	}
}

func TestNothingLeaksDescriptors(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("no /proc here")
	}
	w := newWorld(t)
	round := func(i int) {
		origin, id := w.tree("web"), fmt.Sprint("x", i)
		req := w.request(id, origin)
		must(t, errors.Join(func() error { _, err := w.SetAside(t.Context(), req); return err }()))
		_, _ = w.Restore(t.Context(), id, w.path("work", "missing", "x"))
		_, _ = w.SetAside(t.Context(), Request{ID: "no", Origin: origin, Expect: req.Expect})
		_, err := w.Inventory(t.Context(), id)
		must(t, err)
		_, err = w.Orphans(t.Context(), w.path("work"))
		must(t, err)
		_, err = w.Purge(t.Context(), id, nil)
		must(t, err)
	}
	round(0)
	before := len(names(t, "/proc/self/fd"))
	for i := range 5 {
		round(i + 1)
	}
	if after := len(names(t, "/proc/self/fd")); after > before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}

// TestTwentyThousand is a measure: -v shows it.
func TestTwentyThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 20,000 files")
	}
	w := newWorldIn(t, memory(t))
	origin := w.path("work", "web")
	for i := range 20_000 {
		if i%200 == 0 {
			must(t, os.MkdirAll(filepath.Join(origin, fmt.Sprint("d", i/200)), 0o755))
		}
		must(t, os.WriteFile(filepath.Join(origin, fmt.Sprint("d", i/200), fmt.Sprint("f", i)), []byte("x"), 0o644))
	}
	req := w.request("x", origin)
	measure := func(what string, f func() (Record, error)) {
		begin := now()
		r, err := f()
		must(t, err)
		t.Logf("%s: %v", what, now()-begin)
		if r.Size != nil && r.Size.Entries != 20_101 {
			t.Errorf("%d entries, want 20,101", r.Size.Entries)
		}
	}
	measure("set aside", func() (Record, error) { return w.SetAside(t.Context(), req) })
	measure("inventory", func() (Record, error) { return w.Inventory(t.Context(), "x") })
	measure("restore", func() (Record, error) { return w.Restore(t.Context(), "x", origin) })
	req.ID = "y"
	measure("set aside", func() (Record, error) { return w.SetAside(t.Context(), req) })
	measure("purge", func() (Record, error) { return w.Purge(t.Context(), "y", nil) })
	if len(w.places(t)) != 0 {
		t.Errorf("left: %q", w.places(t))
	}
}
