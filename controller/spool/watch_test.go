package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"skc.dev/skc/api/v1alpha1"
)

func TestDataSwap(t *testing.T) { // B-050, R11
	w := newWorld(t)
	version := func(i int) {
		w.write(fmt.Sprintf("..v%d/cm.yaml", i), session("cm", fmt.Sprint(i)))
	}
	version(0)
	w.link("..v0", "..data")
	w.link("..data/cm.yaml", "cm.yaml")
	w.start()
	w.want(map[string]string{"cm": "0"})
	for i := 1; i <= 100; i++ {
		version(i)
		w.link(fmt.Sprintf("..v%d", i), "..tmp")
		w.move("..tmp", "..data")
		w.remove(fmt.Sprintf("..v%d", i-1))
		if i%10 == 0 {
			w.pass(600 * time.Millisecond)
			w.want(map[string]string{"cm": fmt.Sprint(i)})
			w.wantReason("cm", v1alpha1.ReasonAccepted, "")
		}
	}
	w.pass(5 * time.Second)
	w.want(map[string]string{"cm": "100"})
	w.wantReason("cm", v1alpha1.ReasonAccepted, "")
	w.wantNoRemovals()
	w.write("..v100/cm.yaml", session("cm", "in place"))
	w.pass(time.Second)
	w.want(map[string]string{"cm": "in place"})
}

func TestLinks(t *testing.T) {
	w := newWorld(t)
	out := filepath.Join(w.dir, "elsewhere")
	w.write(filepath.Join(out, "f", "real.txt"), session("f", "1"))
	w.write(filepath.Join(out, "d", "sub", "x.yaml"), session("x", "1"))
	w.link(filepath.Join(out, "f", "real.txt"), "f.yaml") // the link's name counts
	w.link(filepath.Join(out, "d"), "d")                  // out of the root, followed
	w.link("nowhere", "gone.yaml")
	w.link("self.yaml", "self.yaml")
	w.link(".", "loop")
	w.link(w.dir, "up") // leads to the root from above
	w.start()
	w.wantReport("gone.yaml", FileUnreadable, "")
	w.wantReport("self.yaml", FileUnreadable, "")
	w.wantReport("loop", FileUnreadable, "leads back to")
	w.wantReport("up/spool", FileUnreadable, "leads back to")
	if got := w.sink.get("f"); got == nil {
		t.Fatal("a linked file is not read")
	}
	w.remove("up") // it sees the files of elsewhere a second time
	w.pass(5 * time.Second)
	w.want(map[string]string{"f": "1", "x": "1"})
	w.wantReason("x", v1alpha1.ReasonAccepted, "")

	w.put(filepath.Join(out, "f", "real.txt"), session("f", "2"))
	w.put(filepath.Join(out, "d", "sub", "x.yaml"), session("x", "2"))
	w.put("nowhere", session("late", "1"))
	w.pass(time.Second)
	w.want(map[string]string{"f": "2", "x": "2", "late": "1"})

	other := filepath.Join(w.dir, "other")
	w.write(filepath.Join(other, "sub", "x.yaml"), session("x", "3"))
	w.link(other, "tmp")
	w.move("tmp", "d")
	w.pass(5 * time.Second)
	w.want(map[string]string{"f": "2", "x": "3", "late": "1"})
	w.move(other, other+"2") // what a link leads to, moved away and back
	w.flush()
	w.wantReason("x", v1alpha1.ReasonSourceUnreadable, "")
	w.move(other+"2", other)
	w.flush()
	w.wantReason("x", v1alpha1.ReasonAccepted, "")
	w.put(filepath.Join(other, "sub", "x.yaml"), session("x", "4"))
	w.settle()
	w.want(map[string]string{"f": "2", "x": "4", "late": "1"})

	w.remove("nowhere") // a link to nothing is unknown, not absent
	w.pass(5 * time.Second)
	w.want(map[string]string{"f": "2", "x": "4", "late": "1"})
	w.wantReason("late", v1alpha1.ReasonSourceUnreadable, "")
	w.wantNoRemovals()
}

func TestDirectoriesComeMoveAndGo(t *testing.T) {
	w := newWorld(t)
	w.start()
	deep := ""
	for i := range 20 {
		deep = filepath.Join(deep, fmt.Sprint(i))
	}
	w.put(filepath.Join(deep, "a.yaml"), session("a", "1")) // all at once
	w.pass(100 * time.Millisecond)
	w.want(map[string]string{"a": "1"})

	for i := range 10 { // the watches move along
		w.move(fmt.Sprint(i), fmt.Sprint(i+1))
		w.put(fmt.Sprint(i+1)+deep[1:]+"/a.yaml", session("a", fmt.Sprint("moved", i)))
		w.pass(3 * time.Second) // another path and another inode: it waits until the old one is surely gone
		w.want(map[string]string{"a": fmt.Sprint("moved", i)})
		w.pass(time.Second)
		w.wantReason("a", v1alpha1.ReasonAccepted, "")
		w.move(fmt.Sprint(i+1), fmt.Sprint(i))
		w.flush()
		w.move(fmt.Sprint(i), fmt.Sprint(i+1))
	}
	w.pass(3 * time.Second)
	w.wantNoRemovals()
	w.remove("10")
	w.put("10/a.yaml", session("a", "here"))
	w.pass(3 * time.Second)
	w.want(map[string]string{"a": "here"})
	// A new directory in the place of one that was there, most likely with its inode.
	for i := range 20 {
		w.remove("10")
		w.put("10/a.yaml", session("a", fmt.Sprint("new", i)))
		w.pass(100 * time.Millisecond)
		w.put("10/a.yaml", session("a", fmt.Sprint("again", i)))
		w.flush()
		w.want(map[string]string{"a": fmt.Sprint("again", i)})
	}
	w.wantNoRemovals()
	w.remove("10")
	w.pass(3 * time.Second)
	w.want(nil)
}

func TestDirectoriesExchanged(t *testing.T) {
	w := newWorld(t)
	w.put("a/x.yaml", session("x", "1"))
	w.put("b/q.yaml", session("q", "1"))
	w.start()
	w.move("a", "c")
	w.move("b", "a")
	w.move("c", "b")
	w.flush()
	w.put("b/x.yaml", session("x", "2"))
	w.put("a/q.yaml", session("q", "2"))
	w.pass(3 * time.Second)
	w.want(map[string]string{"x": "2", "q": "2"})
	w.wantNoRemovals()
}

func TestSpecialFiles(t *testing.T) { // nothing may hang
	w := newWorld(t)
	must(t, syscall.Mkfifo(w.path("fifo.yaml"), 0o600))
	must(t, os.Mkdir(w.path("dir.yaml"), 0o700))
	w.write("dir.yaml/in.yaml", session("in", "1"))
	w.put("a.yaml", session("a", "1"))
	w.link("/dev/zero", "zero.yaml")
	w.link("fifo.yaml", "link.yaml")
	w.start()
	w.want(map[string]string{"a": "1", "in": "1"})
	w.wantReport("fifo.yaml", FileUnreadable, "named pipe")
	w.wantReport("link.yaml", FileUnreadable, "named pipe")
	w.wantReport("zero.yaml", FileUnreadable, "device")
	w.wantReport("dir.yaml", "", "")

	w.remove("fifo.yaml", "link.yaml", "zero.yaml")
	w.put("fifo.yaml", session("f", "1"))
	w.flush()
	w.want(map[string]string{"a": "1", "in": "1", "f": "1"})
	w.wantReport("fifo.yaml", "", "")

	w.remove("a.yaml") // a file that turned into a pipe keeps its object
	must(t, syscall.Mkfifo(w.path("a.yaml"), 0o600))
	w.pass(5 * time.Second)
	w.want(map[string]string{"a": "1", "in": "1", "f": "1"})
	w.wantReason("a", v1alpha1.ReasonSourceUnreadable, "named pipe")
	w.remove("a.yaml") // into a folder: the file is gone
	must(t, os.Mkdir(w.path("a.yaml"), 0o700))
	w.pass(5 * time.Second)
	w.want(map[string]string{"in": "1", "f": "1"})
}

func TestTooLargeFile(t *testing.T) {
	w := newWorld(t)
	w.put("a.yaml", session("a", "1"))
	w.start()
	w.put("a.yaml", session("a", "2")+"# "+string(make([]byte, v1alpha1.MaxFileBytes)))
	w.pass(time.Second)
	w.want(map[string]string{"a": "1"})
	w.wantReason("a", v1alpha1.ReasonInvalidSpec, "larger than")
	w.wantReport("a.yaml", FileInvalid, "larger than")
	w.put("a.yaml", session("a", "3"))
	w.flush()
	w.want(map[string]string{"a": "3"})
}

func TestOverflow(t *testing.T) { // B-047, B-041, R10
	w := newWorld(t)
	for i := range 50 {
		w.put(fmt.Sprintf("old%d.yaml", i), session(fmt.Sprint("old", i), "1"))
	}
	w.start()
	want := map[string]string{}
	for i := range 50 {
		want[fmt.Sprint("old", i)] = "1"
	}
	w.do(func(s *Spool) { _ = s.watch.fs.Remove(w.spool) }) // nothing is heard from here on
	for i := range 500 {
		name := fmt.Sprint("new", i)
		w.put(name+".yaml", session(name, "1"))
		want[name] = "1"
	}
	for i := range 250 {
		w.remove(fmt.Sprintf("new%d.yaml", 2*i))
		delete(want, fmt.Sprint("new", 2*i))
	}
	w.remove("old7.yaml")
	delete(want, "old7")
	w.flush()
	if got := len(w.sink.all()); got != 50 {
		t.Fatalf("%d objects, although nothing can have been heard", got)
	}
	w.do(func(s *Spool) { go func(c chan error) { c <- fsnotify.ErrEventOverflow }(s.watch.fs.Errors) })
	w.until("the overflow is counted", func() bool { return w.s.Stats().Overflows == 1 })
	w.pass(3 * time.Second)
	w.want(want)
	if r := w.rootReport(w.spool); r.Overflows != 1 {
		t.Errorf("the report says %d overflows, want 1", r.Overflows)
	}
	w.put("heard.yaml", session("heard", "1")) // watched again
	w.flush()
	want["heard"] = "1"
	w.want(want)
}

func TestResyncFindsWhatWasNotHeard(t *testing.T) {
	w := newWorld(t)
	w.put("a.yaml", session("a", "1"))
	w.start()
	w.do(func(s *Spool) { _ = s.watch.fs.Remove(w.spool) })
	w.put("a.yaml", session("a", "2"))
	w.s.Resync()
	w.until("the change is found", func() bool { w.flush(); w.clock.Step(w.options.settle()); return w.sink.get("a").generation == 2 })

	w.do(func(s *Spool) { _ = s.watch.fs.Remove(w.spool) })
	w.put("b.yaml", session("b", "1"))
	w.flush()
	w.want(map[string]string{"a": "2"})
	w.pass(time.Minute) // the periodic look
	w.want(map[string]string{"a": "2", "b": "1"})
}

func TestPolling(t *testing.T) { // B-049
	for name, prepare := range map[string]func(*Spool){
		"no inotify": func(s *Spool) {
			s.notifier = func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
		},
		"no watches left": func(s *Spool) {
			s.addWatch = func(w *fsnotify.Watcher, path string) error { return syscall.ENOSPC }
		},
		"changed by another machine": func(s *Spool) {
			s.remote = func(string) bool { return true }
			s.addWatch = func(w *fsnotify.Watcher, path string) error { return nil } // and nothing is heard
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.prepare = prepare
			w.put("a.yaml", session("a", "1"))
			w.put("b.yaml", session("b", "1"))
			w.start()
			if mode := w.rootReport(w.spool).Mode; mode != ModePolling {
				t.Errorf("mode %s, want polling", mode)
			}
			w.put("a.yaml", session("a", "2"))
			w.put("sub/c.yaml", session("c", "1"))
			w.remove("b.yaml")
			w.until("polled", func() bool {
				w.clock.Step(50 * time.Millisecond)
				return w.sink.get("b") == nil && w.sink.get("c") != nil && w.sink.get("a").generation == 2
			})
			w.want(map[string]string{"a": "2", "c": "1"})
		})
	}
}

func TestWatchesComeBack(t *testing.T) {
	w := newWorld(t)
	full := true
	w.prepare = func(s *Spool) {
		s.addWatch = func(n *fsnotify.Watcher, path string) error {
			if full && path == w.path("sub") {
				return syscall.ENOSPC
			}
			return n.Add(path)
		}
	}
	w.start()
	w.put("sub/a.yaml", session("a", "1"))
	w.pass(3 * time.Second)
	w.want(map[string]string{"a": "1"})
	if mode := w.rootReport(w.spool).Mode; mode != ModePolling {
		t.Errorf("mode %s, want polling", mode)
	}
	w.do(func(*Spool) { full = false })
	w.pass(3 * time.Second)
	if mode := w.rootReport(w.spool).Mode; mode != ModeInotify {
		t.Errorf("mode %s, want inotify", mode)
	}
	w.put("sub/a.yaml", session("a", "2"))
	w.flush()
	w.want(map[string]string{"a": "2"})
}

func TestUnreadableDirectory(t *testing.T) {
	w := newWorld(t)
	var broken, half string
	w.prepare = func(s *Spool) {
		s.list = func(dir string) (*listing, error) {
			if dir == broken {
				return nil, &os.PathError{Op: "open", Path: dir, Err: syscall.EACCES}
			}
			l, err := list(dir)
			if err == nil && dir == half {
				whole := l.read
				l.read = func() ([]os.DirEntry, error) {
					entries, _ := whole()
					return entries[:0], syscall.EIO
				}
			}
			return l, err
		}
	}
	w.put("sub/a.yaml", session("a", "1"))
	w.put("sub/deep/b.yaml", session("b", "1"))
	w.put("c.yaml", session("c", "1"))
	w.start()
	for _, set := range []*string{&broken, &half} {
		w.do(func(s *Spool) { *set = w.path("sub"); s.lookAll() })
		w.flush()
		w.wantReason("a", v1alpha1.ReasonSourceUnreadable, w.path("sub"))
		w.wantReason("b", v1alpha1.ReasonSourceUnreadable, w.path("sub"))
		w.wantReason("c", v1alpha1.ReasonAccepted, "")
		w.wantReport("sub", FileUnreadable, "")
		w.wantRoot(w.spool, RootIncomplete, w.path("sub"))
		w.pass(5 * time.Second)
		w.want(map[string]string{"a": "1", "b": "1", "c": "1"})
		w.restart() // what only the objects know is kept too
		w.wantReason("a", v1alpha1.ReasonSourceUnreadable, w.path("sub"))
		w.pass(5 * time.Second)
		w.want(map[string]string{"a": "1", "b": "1", "c": "1"})
		w.do(func(s *Spool) { *set = ""; s.lookAll() })
		w.pass(time.Second)
		w.wantReason("a", v1alpha1.ReasonAccepted, "")
		w.wantReason("b", v1alpha1.ReasonAccepted, "")
		w.wantReport("sub", "", "")
		w.wantRoot(w.spool, RootReady, "")
	}
	// A document that may have moved into what cannot be read is not gone.
	w.do(func(s *Spool) { broken = w.path("sub"); s.lookAll() })
	w.remove("c.yaml")
	w.pass(2 * time.Minute)
	w.want(map[string]string{"a": "1", "b": "1", "c": "1"})
	w.do(func(s *Spool) { broken = ""; s.lookAll() })
	w.pass(5 * time.Second)
	w.want(map[string]string{"a": "1", "b": "1"})
}

func TestTooDeep(t *testing.T) {
	w := newWorld(t)
	deep := ""
	for i := range maxDepth + 3 {
		deep = filepath.Join(deep, fmt.Sprint(i))
	}
	w.put(filepath.Join(deep, "a.yaml"), session("a", "1"))
	w.put("b.yaml", session("b", "1"))
	w.start()
	w.want(map[string]string{"b": "1"})
	w.wantRoot(w.spool, RootIncomplete, "")
}

func TestRunNeedsTheSink(t *testing.T) {
	w := newWorld(t)
	w.options.Sink = noSources{w.sink}
	if err := New(w.options).Run(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("Run = %v, want EIO", err)
	}
}
