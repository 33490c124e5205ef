// Package spool keeps the store equal to the files of the source roots. It
// watches directories, waits until bytes stand still, decodes them, settles
// which file owns an object, and removes an object only when its file is
// surely gone. Everything is decided from what a look at the files finds; an
// event only hastens the look. What an object means is left to the others.
package spool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects/files"
)

// Sink is what the spool tells of the files. Calls for one key come one after
// the other; calls for several keys come at the same time. A call that fails is
// made again, later.
type Sink interface {
	// Apply creates or changes the object; what is equal already costs nothing.
	// It fails while the object is being deleted.
	Apply(ctx context.Context, d store.Desired) error
	// SetAccepted sets the condition SourceAccepted. An object that is not there
	// is an error matching effects.ErrNotFound.
	SetAccepted(ctx context.Context, key api.Key, c metav1.Condition) error
	// Remove begins the deletion of an object that source defined. One that is
	// gone already is a success or effects.ErrNotFound.
	Remove(ctx context.Context, key api.Key, source store.Source) error
	// Sources is every object that a file defines, and which. One with a digest
	// is what Apply was given last with that digest, and SourceAccepted is true.
	Sources(ctx context.Context) (map[api.Key]store.Source, error)
	// OnGone registers a call for each object whose deletion has come to its end.
	OnGone(func(api.Key))
}

// Options of a Spool. Those without a default are needed.
type Options struct {
	// Roots are the source roots, absolute. Where two files define one object
	// that nobody knows yet, the earlier root wins, then the lesser path.
	Roots []string
	// ReportDir is a private folder of ours that exists: what ReadReports reads,
	// what WriteConfirm writes, and which directory each root is.
	ReportDir string
	Files     *files.Layer
	// Decode gives all documents of a file or an *api.InvalidSpecError. It is
	// called concurrently.
	Decode func(file string, data []byte) ([]v1alpha1.Decoded, error)
	// Version names all that Decode's verdict depends on beside the bytes. A file
	// that the same version has accepted before is not decoded at a start. When
	// it is empty every file is.
	Version string
	Sink    Sink
	Clock   clock.Clock
	Log     logr.Logger

	// Settle is how long the bytes of a file written in place must stand still:
	// 50 ms when zero.
	Settle time.Duration
	// PruneSettle is how long a document must be gone before its object is
	// removed: 2 s when zero.
	PruneSettle time.Duration
	// MassHold is how long a mass removal waits: 60 s when zero.
	MassHold time.Duration
	// Rescan is the time between two full looks at a root that is watched: 60 s
	// when zero.
	Rescan time.Duration
	// Poll is the time between two full looks at a root that cannot be watched:
	// 2 s when zero.
	Poll time.Duration
}

func (o *Options) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Settle, 50 * time.Millisecond}, {&o.PruneSettle, 2 * time.Second}, {&o.MassHold, time.Minute},
		{&o.Rescan, time.Minute}, {&o.Poll, 2 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}

const (
	// appliers is how many objects the sink is given at the same time: an fsync
	// shared by some is cheaper than one each.
	appliers = 8
	// inRead is how many files wait for a reader, or for being looked at after it,
	// so that neither waits for the other at each file.
	inRead = 64
	// slowAfter is how long a file may be written before its objects say so.
	slowAfter = time.Second
	// retryMin and retryMax bound the wait before a failed call is made again.
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second
)

// Spool reads source roots. All of its state belongs to the goroutine in Run;
// the methods may be called from anywhere.
type Spool struct {
	o      Options
	synced chan struct{}
	resync chan struct{}
	done   chan struct{} // closed when Run ends
	calls  chan func()   // run by the owner, between two steps
	counts counts

	// Seams for tests: what the kernel refuses only with the right disk fault.
	list     func(dir string) (*listing, error)
	notifier func() (*fsnotify.Watcher, error)
	addWatch func(w *fsnotify.Watcher, dir string) error
	remote   func(dir string) bool

	// The owner's state.
	roots   []*root
	files   map[string]*file // by logical path
	objects map[api.Key]*object
	left    map[string][]doc // what the files defined that went away, by their path
	// What users deleted by name, by the record's path.
	deletions map[string]*deletions
	watch     *watch
	agenda    agenda
	looks     uint64 // number of the last listing
	initial   *initialLook
	seen      int64 // files seen so far

	readQueue  []*job
	applyQueue []*object
	reads      chan *job
	readDone   chan *job
	applies    chan *op
	applied    chan *op
	gone       chan api.Key
	inApply    int
	reports    reports
}

// New makes a Spool that does nothing until Run.
func New(o Options) *Spool {
	o.setDefaults()
	s := &Spool{
		o:         o,
		synced:    make(chan struct{}),
		resync:    make(chan struct{}, 1),
		done:      make(chan struct{}),
		calls:     make(chan func()),
		list:      list,
		notifier:  fsnotify.NewWatcher,
		addWatch:  func(w *fsnotify.Watcher, dir string) error { return w.Add(dir) },
		remote:    remote,
		files:     map[string]*file{},
		objects:   map[api.Key]*object{},
		left:      map[string][]doc{},
		deletions: map[string]*deletions{},
		reads:     make(chan *job, inRead),
		readDone:  make(chan *job, inRead),
		applies:   make(chan *op),
		applied:   make(chan *op),
		gone:      make(chan api.Key),
	}
	return s
}

// Synced is closed when every root was looked at and everything good in it was
// given to the sink. A root that cannot be read counts as looked at.
func (s *Spool) Synced() <-chan struct{} { return s.synced }

// Resync asks for a full look at every root. It does not wait for it.
func (s *Spool) Resync() {
	select {
	case s.resync <- struct{}{}:
	default: // one is asked for already
	}
}

// Run reads the roots until ctx ends. Call it once. It returns an error only
// when it cannot begin.
func (s *Spool) Run(ctx context.Context) error {
	defer close(s.done)
	known, err := s.o.Sink.Sources(ctx)
	if err != nil {
		return fmt.Errorf("read which files define the objects: %w", err)
	}
	if err := s.openReports(); err != nil {
		return err
	}
	s.openRoots(known)
	s.deletionRecords()
	s.watch = openWatch(s)
	defer s.watch.close()

	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	for range max(2, runtime.GOMAXPROCS(0)) {
		workers.Go(func() { s.readWorker(ctx) })
	}
	for range appliers {
		workers.Go(func() { s.applyWorker(ctx) })
	}
	s.o.Sink.OnGone(func(key api.Key) {
		select {
		case s.gone <- key:
		case <-s.done:
		}
	})

	s.initial = &initialLook{}
	for _, r := range s.roots {
		s.look(r)
	}
	s.initial.sort()
	s.advanceInitial()
	s.asked()

	timer := s.o.Clock.NewTimer(time.Hour)
	defer func() { timer.Stop() }()
	var timerAt time.Time
	for {
		s.agenda.run(s.o.Clock.Now())
		s.watch.raiseFence()
		s.reports.flush(s)
		s.checkSynced()
		if at, ok := s.agenda.next(); ok && !at.Equal(timerAt) {
			timer.Stop()
			timer, timerAt = s.o.Clock.NewTimer(at.Sub(s.o.Clock.Now())), at
		}
		// A send on a nil channel never happens: nothing is waiting.
		var reads chan *job
		var nextRead *job
		if len(s.readQueue) > 0 {
			reads, nextRead = s.reads, s.readQueue[0]
		}
		var applies chan *op
		var nextApply *op
		if nextApply = s.nextApply(); nextApply != nil {
			applies = s.applies
		}
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-s.watch.events:
			s.onEvent(ev, ok)
		case err, ok := <-s.watch.errors:
			s.onWatchError(err, ok)
		case reads <- nextRead:
			s.readQueue[0] = nil
			s.readQueue = s.readQueue[1:]
		case j := <-s.readDone:
			s.onRead(j)
		case applies <- nextApply:
			s.started(nextApply)
		case p := <-s.applied:
			s.onApplied(p)
		case key := <-s.gone:
			s.onGone(key)
		case <-s.resync:
			s.lookAll()
		case <-timer.C():
			timerAt = time.Time{}
		case f := <-s.calls:
			f()
		}
	}
}

// lookAll is a full look at every root.
func (s *Spool) lookAll() {
	for _, r := range s.roots {
		s.look(r)
	}
	s.asked()
}

// asked acts on what users asked for by a record in the report folder.
func (s *Spool) asked() {
	s.deletionRecords()
	s.confirms()
}

func (s *Spool) onEvent(ev fsnotify.Event, ok bool) {
	if !ok {
		s.watch.lost()
		return
	}
	s.counts.events.Add(1)
	s.watch.event(ev)
}

func (s *Spool) onWatchError(err error, ok bool) {
	if !ok {
		s.watch.lost()
		return
	}
	if errors.Is(err, fsnotify.ErrEventOverflow) {
		s.counts.overflows.Add(1)
	} else {
		s.o.Log.Error(err, "file watching")
	}
	s.lookAll() // whatever went wrong, events may be missing from here on
}

// checkSynced closes Synced once all of the first look went through.
func (s *Spool) checkSynced() {
	if s.initial == nil || s.beginning() || len(s.applyQueue) > 0 || s.inApply > 0 {
		return
	}
	s.initial = nil
	close(s.synced)
}

// beginning is true until the files of the first look were read. What is told
// of one file may depend on all others, and must not flicker at each start.
func (s *Spool) beginning() bool { return s.initial != nil && s.initial.left() }

// under tells whether path is dir or lies below it.
func under(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
