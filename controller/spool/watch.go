package spool

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"

	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// fenceName is a file of ours in the report folder, see raiseFence.
const fenceName = ".fence"

var pointFence = fault.New("spool.fence")

// ref is one entry to look at: name in dir, or a whole root when dir is nil.
type ref struct {
	root *root
	dir  *dir
	name string
}

// place is one real directory that is watched, and who wants to know of it.
// Only directories are watched: a watch on a file ends with the first save.
type place struct {
	path  string
	id    devino
	live  bool // the kernel watches it for us
	dirs  map[*dir]struct{}
	names map[string]map[ref]struct{} // entries that links lead through
}

// watch keeps the kernel's watches equal to the directories that are read. It
// tells the spool where to look, never what has happened.
type watch struct {
	s      *Spool
	fs     *fsnotify.Watcher // nil when there is none: all roots are polled
	events <-chan fsnotify.Event
	errors <-chan error

	places  map[string]*place
	byID    map[devino]*place
	follows map[ref][]hop

	reportDir string
	fenced    bool    // fences work
	fence     uint64  // fences raised
	raised    bool    // the last one has not been heard
	before    []*file // wait for the fence that is raised
	waiting   []*file // wait for the next one
}

// openWatch opens the watcher; without one every root is polled.
func openWatch(s *Spool) *watch {
	w := &watch{s: s, places: map[string]*place{}, byID: map[devino]*place{}, follows: map[ref][]hop{}}
	n, err := s.notifier()
	if err != nil {
		s.o.Log.Info("no file watching here; the source roots are polled", "reason", err.Error())
		return w
	}
	w.fs, w.events, w.errors = n, n.Events, n.Errors
	if dir, err := filepath.EvalSymlinks(s.o.ReportDir); err == nil {
		w.reportDir = dir
		fence := filepath.Join(dir, fenceName)
		if _, err = os.Lstat(fence); err != nil {
			err = s.o.Files.Write(pointFence, fence, nil, files.Derived)
		}
		w.fenced = n.Add(dir) == nil && err == nil
	}
	return w
}

func (w *watch) close() {
	if w.fs != nil {
		_ = w.fs.Close()
	}
}

// lost is called when the watcher ended by itself.
func (w *watch) lost() {
	w.fs, w.events, w.errors, w.fenced = nil, nil, nil, false
	for _, p := range w.places {
		p.live = false
	}
	for _, r := range w.s.roots {
		w.s.setPolling(r, true)
	}
}

// enter watches the directory d, which has its id.
func (w *watch) enter(d *dir, fresh bool) {
	p := w.place(d.real)
	p.dirs[d] = struct{}{}
	w.ensure(d.root, p, d.id, fresh)
}

// leave ends what enter began.
func (w *watch) leave(d *dir) {
	if p := w.places[d.real]; p != nil {
		delete(p.dirs, d)
		w.drop(p)
	}
}

// follow makes the entry be looked at when one of the hops changes; with no
// hops it ends that.
func (w *watch) follow(at ref, hops []hop) {
	if len(hops) > 0 && at.dir != nil {
		hops = hops[1:] // the entry itself, in a directory that is watched
	}
	old := w.follows[at]
	for _, h := range hops {
		p := w.place(h.dir)
		if p.names[h.name] == nil {
			p.names[h.name] = map[ref]struct{}{}
		}
		p.names[h.name][at] = struct{}{}
		if sig, _, err := statAt(-1, "/", h.dir); err == nil {
			w.ensure(at.root, p, sig.devino, false)
		}
	}
	if len(hops) == 0 {
		delete(w.follows, at)
	} else {
		w.follows[at] = hops
	}
	for _, h := range old {
		if slices.Contains(hops, h) {
			continue
		}
		p := w.places[h.dir]
		if p == nil {
			continue
		}
		delete(p.names[h.name], at)
		if len(p.names[h.name]) == 0 {
			delete(p.names, h.name)
		}
		w.drop(p)
	}
}

func (w *watch) place(path string) *place {
	p := w.places[path]
	if p == nil {
		p = &place{path: path, dirs: map[*dir]struct{}{}, names: map[string]map[ref]struct{}{}}
		w.places[path] = p
	}
	return p
}

// drop ends the watch of a place that nobody wants.
func (w *watch) drop(p *place) {
	if len(p.dirs) > 0 || len(p.names) > 0 {
		return
	}
	delete(w.places, p.path)
	w.unwatch(p)
}

func (w *watch) unwatch(p *place) {
	if w.byID[p.id] == p {
		delete(w.byID, p.id)
	}
	if p.live && w.fs != nil && p.path != w.reportDir {
		_ = w.fs.Remove(p.path) // it may have ended with its directory
	}
	p.live = false
}

// ensure watches p, which is the directory id. The kernel's watch belongs to
// the directory and not to its path, so a directory that took the path of
// another is watched anew.
func (w *watch) ensure(r *root, p *place, id devino, fresh bool) {
	if w.fs == nil {
		r.failing = true
		w.s.setPollingSoon(r)
		return
	}
	if p.live && p.id == id && !fresh {
		return
	}
	w.unwatch(p)
	if other := w.byID[id]; other != nil { // the directory moved; under its old path it would keep the old name
		w.unwatch(other)
	}
	p.id = id
	if err := w.s.addWatch(w.fs, p.path); err != nil {
		w.s.o.Log.V(1).Info("cannot watch a folder; its source root is polled", "path", p.path, "reason", err.Error())
		r.failing = true
		w.s.setPollingSoon(r)
		return
	}
	p.live = true
	w.byID[id] = p
}

// setPollingSoon polls r from now on, unless a full look runs, which decides.
func (s *Spool) setPollingSoon(r *root) {
	if !r.looking {
		s.setPolling(r, true)
	}
}

// verify finds the watches that the kernel ended by itself.
func (w *watch) verify() {
	if w.fs == nil {
		return
	}
	alive := map[string]struct{}{}
	for _, path := range w.fs.WatchList() {
		alive[path] = struct{}{}
	}
	for _, p := range w.places {
		if _, ok := alive[p.path]; !ok {
			p.live = false
		}
	}
}

// event sends the spool to where something happened.
func (w *watch) event(ev fsnotify.Event) {
	dir, name := filepath.Split(ev.Name)
	dir = filepath.Clean(dir)
	if dir == w.reportDir {
		switch {
		case name == fenceName:
			w.heard()
		case strings.HasSuffix(name, confirmSuffix):
			w.s.confirms()
		case strings.HasSuffix(name, deletionSuffix):
			w.s.deletionRecords()
		}
	}
	if p := w.places[dir]; p != nil {
		var at []ref
		for d := range p.dirs {
			at = append(at, ref{d.root, d, name})
		}
		for r := range p.names[name] {
			at = append(at, r)
		}
		for _, r := range at {
			w.s.lookAt(r, ev.Op)
		}
	}
	if p := w.places[ev.Name]; p != nil && (ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename)) {
		w.moved(p)
	}
}

// moved looks again at all that was seen through a directory that went away or
// has another name now; its watch went with it.
func (w *watch) moved(p *place) {
	p.live = false
	var at []ref
	for d := range p.dirs {
		if d.parent == nil {
			at = append(at, ref{root: d.root})
		} else {
			at = append(at, ref{d.root, d.parent, d.name})
		}
	}
	for _, refs := range p.names {
		for r := range refs {
			at = append(at, r)
		}
	}
	for _, r := range at {
		w.s.lookAt(r, 0)
	}
}

// await reads f's bytes as final at the next fence, unless a write was heard of
// before. It tells whether there are fences.
func (w *watch) await(f *file) bool {
	if !w.fenced || f.root.polling {
		return false
	}
	w.waiting = append(w.waiting, f)
	return true
}

// raiseFence makes an event of our own. The kernel keeps events in order, so
// when it is heard, all that happened before has been heard. That is how a file
// that arrived by rename is known from one whose first write is not heard yet:
// the bytes are read first, then the fence is raised.
func (w *watch) raiseFence() {
	if w.raised || len(w.waiting) == 0 || w.fs == nil {
		return
	}
	if err := os.Chmod(filepath.Join(w.reportDir, fenceName), 0o600); err != nil {
		w.waiting = nil // they wait until they stood still
		return
	}
	w.raised, w.fence = true, w.fence+1
	w.before, w.waiting = w.waiting, nil
}

func (w *watch) heard() {
	if !w.raised {
		return
	}
	passed := w.before
	w.raised, w.before = false, nil
	for _, f := range passed {
		w.s.passed(f)
	}
}
