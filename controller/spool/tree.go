package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// maxDepth is how many directories deep a root is read.
const maxDepth = 32

// root is one source root and what is known of it.
type root struct {
	path       string
	index      int
	configured bool // false for a root that only objects know

	state   RootState
	message string // why the state is not Ready
	since   time.Time
	// absent is true once the root was missing for the prune settle time.
	absent bool

	top    *dir
	unseen map[*file]struct{} // files that only objects know
	bad    map[*dir]struct{}  // directories that could not be listed
	unread int                // files whose bytes are being read or waited for

	recorded string // the directory that the objects belong to, durable
	current  string // the directory that is there
	// unrecorded is true when writing recorded has failed.
	unrecorded bool

	polling  bool // some directory cannot be watched, or watching it is not enough
	failing  bool // as polling, while a look runs
	looking  bool
	took     time.Duration // how long the last look took
	nextLook time.Time

	pruning
}

// dir is one directory below a root, under the path by which a user knows it.
type dir struct {
	root   *root
	parent *dir
	name   string
	path   string // logical
	real   string // without links
	id     devino
	depth  int
	files  map[string]*file
	dirs   map[string]*dir
	links  map[string]uint64 // entries that are links, and the listing that had them
	look   uint64            // number of the last listing
	seen   uint64            // number of the parent's listing that had it
	err    error             // why what lies below is not known
	gone   bool
}

func (s *Spool) now() time.Time { return s.o.Clock.Now() }

// newRoot adds a root. One that is not configured is never looked at.
func (s *Spool) newRoot(path string, configured bool) *root {
	r := &root{
		path: path, index: len(s.roots), configured: configured, state: RootPending,
		unseen: map[*file]struct{}{}, bad: map[*dir]struct{}{},
		pruning: pruning{gone: map[*object]struct{}{}, members: map[*object]struct{}{}},
	}
	r.recorded = s.readIdentity(path)
	s.roots = append(s.roots, r)
	return r
}

// look is a full look at a root: every directory is listed, every file's
// signature compared. Only what changed is read.
func (s *Spool) look(r *root) {
	s.counts.rescans.Add(1)
	if r.looking {
		return
	}
	began := s.now()
	r.looking, r.failing = true, false
	s.watch.verify()
	s.lookInside(r)
	r.looking, r.took = false, s.now().Sub(began)
	s.setPolling(r, r.failing)
	period := s.o.Rescan
	if r.polling {
		period = s.o.Poll
	}
	s.lookBy(r, s.now().Add(period))
	s.reports.roots[r] = struct{}{}
	s.afterLook(r)
}

// lookBy makes the next full look at r come no later than at.
func (s *Spool) lookBy(r *root, at time.Time) {
	r.nextLook = at
	s.agenda.add(at, func() {
		if !s.now().Before(r.nextLook) {
			s.look(r)
			s.asked()
		}
	})
}

func (s *Spool) setPolling(r *root, polling bool) {
	if r.polling == polling {
		return
	}
	r.polling = polling
	s.reports.roots[r] = struct{}{}
	if polling {
		s.lookBy(r, s.now().Add(s.o.Poll))
	}
}

func (s *Spool) lookInside(r *root) {
	if !r.configured {
		s.setState(r, RootNotConfigured, "no longer a source root")
		return
	}
	real, hops, err := trace("/", r.path)
	s.watch.follow(ref{root: r}, hops)
	var mode fs.FileMode
	if err == nil {
		_, mode, err = statAt(-1, "/", r.path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), err == nil && !mode.IsDir():
		r.current = ""
		s.setState(r, RootMissing, "there is no such folder")
		return
	case err != nil:
		s.setState(r, RootUnreadable, reason(err))
		if r.top != nil {
			s.failDir(r.top, err)
		}
		return
	}
	if r.top == nil {
		r.top = s.newDir(r, nil, filepath.Base(r.path))
	}
	s.setReal(r.top, real)
	r.failing = s.remote(real)
	s.scan(r.top, false)
	if r.top.err != nil {
		s.setState(r, RootUnreadable, reason(r.top.err))
	} else {
		r.current = fmt.Sprintf("%d:%d", r.top.id.dev, r.top.id.ino)
		s.setState(r, RootReady, "")
	}
	for f := range r.unseen {
		if f.below = r.badAbove(f.path); f.below == nil {
			s.goneFile(f)
		} else {
			s.dirty(f)
		}
	}
}

// badAbove is the directory above path that cannot be listed, if there is one.
func (r *root) badAbove(path string) *dir {
	for d := range r.bad {
		if under(path, d.path) {
			return d
		}
	}
	return nil
}

func (s *Spool) setState(r *root, state RootState, message string) {
	if r.state != state {
		r.since, r.absent = s.now(), false
		s.dirtyRoot(r)
		if state == RootMissing || state == RootNotConfigured {
			s.agenda.add(r.since.Add(s.o.PruneSettle), func() { s.setAbsent(r) })
		}
	}
	r.state, r.message = state, message
	s.reports.roots[r] = struct{}{}
}

// setAbsent tells the objects of a missing root once it was missing for the
// prune settle time: a swap by two renames is no news.
func (s *Spool) setAbsent(r *root) {
	if (r.state == RootMissing || r.state == RootNotConfigured) && !s.now().Before(r.since.Add(s.o.PruneSettle)) {
		r.absent = true
		s.dirtyRoot(r)
	}
}

func (s *Spool) newDir(r *root, parent *dir, name string) *dir {
	d := &dir{
		root: r, parent: parent, name: name, path: r.path,
		files: map[string]*file{}, dirs: map[string]*dir{}, links: map[string]uint64{},
	}
	if parent != nil {
		d.path, d.depth = filepath.Join(parent.path, name), parent.depth+1
		parent.dirs[name] = d
	}
	return d
}

func (s *Spool) setReal(d *dir, real string) {
	if d.real != real {
		s.watch.leave(d)
		d.real = real
	}
}

// scan lists d and looks at every entry. fresh says that d is a new directory,
// maybe with the old one's inode, so that its watch is made again.
func (s *Spool) scan(d *dir, fresh bool) {
	if d.depth > maxDepth {
		s.failDir(d, fmt.Errorf("deeper than %d folders", maxDepth))
		return
	}
	l, err := s.list(d.real)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && d.parent != nil {
			s.goneDir(d)
		} else {
			s.failDir(d, err)
		}
		return
	}
	defer l.close()
	for p := d.parent; p != nil; p = p.parent {
		if p.id == l.id { // all that is below is read there already
			s.failDir(d, &loopError{p.path})
			return
		}
	}
	d.id = l.id
	s.watch.enter(d, fresh) // before the listing: what comes later is heard
	entries, err := l.read()
	if err != nil { // a part of a listing says nothing about what is not in it
		s.failDir(d, err)
		return
	}
	s.looks++
	d.look = s.looks
	for _, e := range entries {
		if !hidden(e.Name()) {
			s.visit(d, e.Name(), e.Type(), l.fd, 0)
		}
	}
	for _, f := range d.files {
		if f.seen != d.look {
			s.goneFile(f)
		}
	}
	for _, sub := range d.dirs {
		if sub.seen != d.look {
			s.goneDir(sub)
		}
	}
	for name, look := range d.links {
		if look != d.look {
			s.unlink(d, name)
		}
	}
	if d.err != nil {
		d.err = nil
		delete(d.root.bad, d)
		s.reports.dirs[d] = struct{}{}
		s.eachFile(d, s.dirty)
	}
}

// loopError: a link leads back to a directory above it.
type loopError struct{ to string }

func (e *loopError) Error() string { return "a link leads back to " + e.to }

// failDir remembers that what lies below d is not known. Nothing of it is gone.
func (s *Spool) failDir(d *dir, err error) {
	var loop *loopError
	if errors.As(err, &loop) { // known, and nothing new
		for _, f := range d.files {
			s.goneFile(f)
		}
		for _, sub := range d.dirs {
			s.goneDir(sub)
		}
		delete(d.root.bad, d)
	} else {
		d.root.bad[d] = struct{}{}
	}
	if d.err != nil && d.err.Error() == err.Error() {
		return
	}
	d.err = err
	s.reports.dirs[d] = struct{}{}
	s.eachFile(d, s.dirty)
}

func (s *Spool) eachFile(d *dir, do func(*file)) {
	for _, f := range d.files {
		do(f)
	}
	for _, sub := range d.dirs {
		s.eachFile(sub, do)
	}
}

func (s *Spool) goneDir(d *dir) {
	for _, f := range d.files {
		s.goneFile(f)
	}
	for _, sub := range d.dirs {
		s.goneDir(sub)
	}
	for name := range d.links {
		s.unlink(d, name)
	}
	s.watch.leave(d)
	d.gone = true
	delete(d.root.bad, d)
	if d.parent != nil {
		delete(d.parent.dirs, d.name)
	}
	s.reports.dirs[d] = struct{}{}
}

// lookAt looks at one name, because something happened to it.
func (s *Spool) lookAt(at ref, op fsnotify.Op) {
	d := at.dir
	if d == nil {
		s.look(at.root)
		return
	}
	if d.gone || hidden(at.name) {
		return
	}
	mode, err := lstat(filepath.Join(d.real, at.name))
	switch {
	case err == nil:
		s.visit(d, at.name, mode, -1, op)
	case errors.Is(err, fs.ErrNotExist):
		s.entryGone(d, at.name)
	default:
		s.entryUnknown(d, at.name, err)
	}
}

func (s *Spool) entryGone(d *dir, name string) {
	if f := d.files[name]; f != nil {
		s.goneFile(f)
	}
	if sub := d.dirs[name]; sub != nil {
		s.goneDir(sub)
	}
	if _, ok := d.links[name]; ok {
		s.unlink(d, name)
	}
}

// entryUnknown keeps what is known of an entry that cannot be looked at.
func (s *Spool) entryUnknown(d *dir, name string, err error) {
	if sub := d.dirs[name]; sub != nil {
		sub.seen = d.look
		s.failDir(sub, err)
		return
	}
	if resourceName(name) {
		f := s.fileAt(d, name)
		s.setFault(f, reason(err))
	}
}

// visit looks at one entry of a directory. typ is its own type, a link's not
// its target's; op is what an event said of it, 0 in a listing.
func (s *Spool) visit(d *dir, name string, typ fs.FileMode, fd int, op fsnotify.Op) {
	if typ&fs.ModeSymlink != 0 {
		end, hops, _ := trace(d.real, name)
		d.links[name] = d.look
		s.watch.follow(ref{d.root, d, name}, hops)
		sig, mode, err := statAt(fd, d.real, name)
		switch {
		case err != nil: // also a link to nothing: what it led to may come back
			s.entryUnknown(d, name, err)
		case mode.IsDir():
			s.visitDir(d, name, end, op)
		default:
			s.visitFile(d, name, sig, mode, op)
		}
		return
	}
	if _, ok := d.links[name]; ok {
		s.unlink(d, name)
	}
	switch {
	case typ.IsDir():
		s.visitDir(d, name, filepath.Join(d.real, name), op)
	case !resourceName(name):
		s.entryGone(d, name)
	default:
		sig, mode, err := statAt(fd, d.real, name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // since the listing
			s.entryGone(d, name)
		case err != nil:
			s.entryUnknown(d, name, err)
		default:
			s.visitFile(d, name, sig, mode, op)
		}
	}
}

func (s *Spool) unlink(d *dir, name string) {
	delete(d.links, name)
	s.watch.follow(ref{d.root, d, name}, nil)
}

func (s *Spool) visitDir(d *dir, name, real string, op fsnotify.Op) {
	if f := d.files[name]; f != nil {
		s.goneFile(f)
	}
	if path := filepath.Join(d.path, name); slices.Contains(s.o.Roots, path) {
		return // a root within a root is read once, as a root
	}
	sub := d.dirs[name]
	if sub == nil {
		sub = s.newDir(d.root, d, name)
	}
	sub.seen = d.look
	s.setReal(sub, real)
	s.scan(sub, op.Has(fsnotify.Create))
}

func (s *Spool) visitFile(d *dir, name string, sig signature, mode fs.FileMode, op fsnotify.Op) {
	if sub := d.dirs[name]; sub != nil {
		s.goneDir(sub)
	}
	if !resourceName(name) {
		s.entryGone(d, name)
		return
	}
	f := s.fileAt(d, name)
	if !mode.IsRegular() {
		s.setFault(f, "is "+specialName(mode)+", not a file")
		return
	}
	s.lookFile(f, sig, op)
}

// fileAt is the file of an entry, which is there now.
func (s *Spool) fileAt(d *dir, name string) *file {
	f := d.files[name]
	if f == nil {
		path := filepath.Join(d.path, name)
		if f = s.files[path]; f == nil { // else an object knew it before we saw it
			s.seen++
			f = &file{root: d.root, path: path, order: s.seen, born: s.now()}
			s.files[path] = f
		}
		delete(f.root.unseen, f)
		f.root, f.dir, f.below = d.root, d, nil
		d.files[name] = f
		s.adopt(f)
		if s.initial != nil {
			s.initial.add(f)
		}
	}
	f.seen = d.look
	return f
}

// initialLook puts the files of the first look in order, so that which of two
// files gets a new object depends on neither luck nor the order of listings.
type initialLook struct {
	files  []*file
	sorted bool
	next   int
}

func (l *initialLook) add(f *file) {
	if !l.sorted {
		f.initial = true
		l.files = append(l.files, f)
	}
}

func (l *initialLook) sort() {
	l.sorted = true
	slices.SortFunc(l.files, func(a, b *file) int {
		return cmp.Or(cmp.Compare(a.root.index, b.root.index), cmp.Compare(a.path, b.path))
	})
	for i, f := range l.files {
		f.order = int64(i) - int64(len(l.files)) // before all that come later
	}
}

func (l *initialLook) left() bool { return l.next < len(l.files) }
