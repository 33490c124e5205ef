package process

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// errNoNotice says that the kernel does not tell of this death.
var errNoNotice = errors.New("no notice of deaths")

// notifier is one kqueue. It holds one notice a pid, whoever wants it.
type notifier struct {
	queue   int
	missing bool // never: kqueue is always there
	events  []unix.Kevent_t

	mu     sync.Mutex
	wanted map[int][]uint64 // tokens by pid
}

func newNotifier() (*notifier, error) {
	q, err := unix.Kqueue()
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(q)
	n := &notifier{queue: q, events: make([]unix.Kevent_t, 128), wanted: map[int][]uint64{}}
	if err := n.change(0, unix.EVFILT_USER, unix.EV_ADD|unix.EV_CLEAR, 0); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *notifier) change(ident, filter, flags int, notes uint32) error {
	var ev unix.Kevent_t
	unix.SetKevent(&ev, ident, filter, flags)
	ev.Fflags = notes
	for {
		_, err := unix.Kevent(n.queue, []unix.Kevent_t{ev}, nil, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// add asks for one notice. It matches effects.ErrNotFound, or
// effects.ErrExhausted.
func (n *notifier) add(pid int, token uint64) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.wanted[pid]) == 0 {
		err := n.change(pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT, unix.NOTE_EXIT)
		switch {
		case errors.Is(err, unix.ESRCH):
			return -1, effects.ErrNotFound
		case errors.Is(err, unix.ENOMEM):
			return -1, fmt.Errorf("%w: %w", effects.ErrExhausted, err)
		case err != nil:
			return -1, err
		}
	}
	n.wanted[pid] = append(n.wanted[pid], token)
	return -1, nil
}

// remove takes back a notice.
func (n *notifier) remove(_, pid int, token uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := n.wanted[pid]
	for i, t := range left {
		if t == token {
			left = append(left[:i], left[i+1:]...)
			break
		}
	}
	if len(left) > 0 {
		n.wanted[pid] = left
		return
	}
	if _, ok := n.wanted[pid]; ok {
		delete(n.wanted, pid)
		_ = n.change(pid, unix.EVFILT_PROC, unix.EV_DELETE, 0) // gone when it fired
	}
}

// wait adds the tokens of the dead to tokens. It returns when there are some,
// after wake, or after timeout (none when negative).
func (n *notifier) wait(tokens []uint64, timeout time.Duration) []uint64 {
	var limit *unix.Timespec
	if timeout >= 0 {
		ts := unix.NsecToTimespec(timeout.Nanoseconds())
		limit = &ts
	}
	got, err := unix.Kevent(n.queue, nil, n.events, limit)
	if err != nil { // EINTR; anything else would be a bug of ours
		return tokens
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ev := range n.events[:got] {
		if ev.Filter == unix.EVFILT_PROC {
			tokens = append(tokens, n.wanted[int(ev.Ident)]...)
			delete(n.wanted, int(ev.Ident))
		}
	}
	return tokens
}

// wake ends a wait, the present one or the next.
func (n *notifier) wake() {
	_ = n.change(0, unix.EVFILT_USER, 0, unix.NOTE_TRIGGER)
}

func (n *notifier) close() error { return unix.Close(n.queue) }
