package process

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"skc.dev/skc/effects"
)

// pollEvery is how often processes are looked at where the kernel does not
// tell of deaths.
const pollEvery = 200 * time.Millisecond

// ErrClosed is matched by Watch after Close.
var ErrClosed = errors.New("watcher is closed")

// Watcher tells of the death of processes, each once, from one goroutine. All
// methods may be called at the same time, and from within died, but for Close.
type Watcher struct {
	kernel *notifier

	mu      sync.Mutex
	byToken map[uint64]*watch
	byID    map[effects.ProcessID]*watch
	dead    []*watch // found dead by Watch itself; the goroutine tells of them
	last    uint64
	polled  int // watches of which the kernel does not tell
	closed  bool
	done    chan struct{}
}

type watch struct {
	id     effects.ProcessID
	token  uint64
	handle int
	polled bool
	died   func()
}

// NewWatcher starts a watcher; Close ends it.
func NewWatcher() (*Watcher, error) {
	n, err := newNotifier()
	if err != nil {
		return nil, fmt.Errorf("watch processes: %w", err)
	}
	return start(n), nil
}

func start(n *notifier) *Watcher {
	w := &Watcher{
		kernel:  n,
		byToken: map[uint64]*watch{},
		byID:    map[effects.ProcessID]*watch{},
		done:    make(chan struct{}),
	}
	go w.run()
	return w
}

// Polling tells whether deaths are found by looking every 200 ms, because this
// kernel, or a filter of system calls, does not tell of them.
func (w *Watcher) Polling() bool { return w.kernel.missing }

// Watch has died called once, from the watcher's goroutine, when the process
// ends; at once when it is gone already or the pid is another's. It must not
// block. Watching a process again replaces its died. An error matches
// ErrClosed, or effects.ErrExhausted when there are no descriptors left; died
// is then not called.
func (w *Watcher) Watch(id effects.ProcessID, died func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("watch process %d: %w", id.PID, ErrClosed)
	}
	if old := w.byID[id]; old != nil {
		old.died = died
		return nil
	}
	w.last++
	wa := &watch{id: id, token: w.last, handle: -1, died: died}
	handle, err := w.kernel.add(id.PID, wa.token)
	switch {
	case errors.Is(err, errNoNotice):
		wa.polled = true
	case err != nil && !errors.Is(err, effects.ErrNotFound):
		return fmt.Errorf("watch process %d: %w", id.PID, err)
	default:
		wa.handle = handle
	}
	// Looked at after the kernel's notice was asked for: a death in between is
	// then told of, and a start time that fits proves whom the notice is for.
	gone := errors.Is(err, effects.ErrNotFound)
	alive, err := Alive(id)
	if err != nil {
		w.kernel.remove(wa.handle, id.PID, wa.token)
		return fmt.Errorf("watch: %w", err)
	}
	w.byToken[wa.token], w.byID[id] = wa, wa
	if gone || !alive {
		w.dead = append(w.dead, wa)
		w.kernel.wake()
	} else if wa.polled {
		w.polled++
		w.kernel.wake()
	}
	return nil
}

// Unwatch forgets a process; one that is not watched is fine. After it died is
// not called any more, unless the call has begun.
func (w *Watcher) Unwatch(id effects.ProcessID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wa := w.byID[id]; wa != nil {
		w.forget(wa)
	}
}

// Close forgets every process and ends the goroutine. No died runs after it.
func (w *Watcher) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		<-w.done
		return nil
	}
	w.closed = true
	w.kernel.wake()
	w.mu.Unlock()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wa := range w.byID {
		w.forget(wa)
	}
	return w.kernel.close()
}

// forget needs the lock.
func (w *Watcher) forget(wa *watch) {
	if w.byToken[wa.token] != wa {
		return
	}
	delete(w.byToken, wa.token)
	delete(w.byID, wa.id)
	if wa.polled {
		w.polled--
	}
	w.kernel.remove(wa.handle, wa.id.PID, wa.token)
}

func (w *Watcher) run() {
	defer close(w.done)
	var tokens []uint64
	for {
		w.mu.Lock()
		closed, dead, polled := w.closed, w.dead, w.polled > 0
		w.dead = nil
		w.mu.Unlock()
		if closed {
			return
		}
		for _, wa := range dead {
			w.tell(wa.token)
		}
		if len(dead) > 0 {
			continue
		}
		timeout := time.Duration(-1)
		if polled {
			timeout = pollEvery
		}
		tokens = w.kernel.wait(tokens[:0], timeout)
		for _, t := range tokens {
			w.tell(t)
		}
		if polled {
			w.look()
		}
	}
}

// tell calls died of the watch with this token, if it is still wanted.
func (w *Watcher) tell(token uint64) {
	w.mu.Lock()
	wa := w.byToken[token]
	if wa == nil || w.closed {
		w.mu.Unlock()
		return
	}
	w.forget(wa)
	w.mu.Unlock()
	wa.died()
}

// look finds deaths of which the kernel does not tell. A process that cannot be
// looked at is not dead.
func (w *Watcher) look() {
	w.mu.Lock()
	var polled []*watch
	for _, wa := range w.byID {
		if wa.polled {
			polled = append(polled, wa)
		}
	}
	w.mu.Unlock()
	for _, wa := range polled {
		if alive, err := Alive(wa.id); err == nil && !alive {
			w.tell(wa.token)
		}
	}
}
