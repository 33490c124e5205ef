package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// errNoNotice says that the kernel does not tell of this death.
var errNoNotice = errors.New("no notice of deaths")

// notifier is one epoll over a process descriptor each.
type notifier struct {
	epoll, event int
	missing      bool // no process descriptors here
	events       []unix.EpollEvent
}

func newNotifier() (*notifier, error) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		err = unix.Close(fd)
	}
	if err != nil && !pidfdMissing(err) {
		return nil, err
	}
	n := &notifier{missing: err != nil, events: make([]unix.EpollEvent, 128)}
	if n.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if n.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, errors.Join(err, unix.Close(n.epoll))
	}
	if err := n.arm(n.event, 0); err != nil { // token 0 is our own wake
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *notifier) arm(fd int, token uint64) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(token), Pad: int32(token >> 32)}
	return unix.EpollCtl(n.epoll, unix.EPOLL_CTL_ADD, fd, &ev)
}

// add asks for one notice and returns its handle. It matches errNoNotice,
// effects.ErrNotFound, or effects.ErrExhausted.
func (n *notifier) add(pid int, token uint64) (int, error) {
	if n.missing {
		return -1, errNoNotice
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return -1, effects.ErrNotFound
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return -1, fmt.Errorf("%w: %w", effects.ErrExhausted, err)
	case err != nil:
		return -1, err
	}
	if err := n.arm(fd, token); err != nil {
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM) {
			err = fmt.Errorf("%w: %w", effects.ErrExhausted, err)
		}
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// remove takes back a notice; a closed descriptor leaves the epoll by itself.
func (n *notifier) remove(handle, _ int, _ uint64) {
	if handle >= 0 {
		_ = unix.Close(handle)
	}
}

// wait adds the tokens of the dead to tokens. It returns when there are some,
// after wake, or after timeout (none when negative).
func (n *notifier) wait(tokens []uint64, timeout time.Duration) []uint64 {
	ms := -1
	if timeout >= 0 {
		ms = int(timeout.Milliseconds())
	}
	got, err := unix.EpollWait(n.epoll, n.events, ms)
	if err != nil { // EINTR; anything else would be a bug of ours
		return tokens
	}
	for _, ev := range n.events[:got] {
		token := uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
		if token == 0 {
			var b [8]byte
			_, _ = unix.Read(n.event, b[:])
			continue
		}
		tokens = append(tokens, token)
	}
	return tokens
}

// wake ends a wait, the present one or the next.
func (n *notifier) wake() {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], 1)
	_, _ = unix.Write(n.event, b[:]) // full means that it is awake already
}

func (n *notifier) close() error {
	return errors.Join(unix.Close(n.event), unix.Close(n.epoll))
}
