// Package lease lets one controller own a home. A kernel lock decides, and the
// kernel drops it when the process dies; the text in the file is a hint for
// people, never read to decide.
package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// HeldError says that another controller owns the home.
type HeldError struct {
	Path string
	Hint string // what the owner wrote of itself; may be empty or stale
}

func (e *HeldError) Error() string {
	owner := "another skcd"
	if e.Hint != "" {
		owner += " (" + e.Hint + ")"
	}
	return fmt.Sprintf("%s owns this home: it holds %s", owner, e.Path)
}

// Unwrap makes a HeldError match effects.ErrNotOwner.
func (e *HeldError) Unwrap() error { return effects.ErrNotOwner }

// Lease is ownership of one home, from Acquire until Release or the end of the
// process.
type Lease struct {
	f    *os.File
	path string
	id   fileID
}

type fileID struct{ dev, ino uint64 }

// Acquire takes the lock at path without waiting, or returns a *HeldError. hint
// is one line for people, as "pid 4711 since 12:00". The folder must be there.
func Acquire(path, hint string) (*Lease, error) {
	for range 10 { // another owner may remove or replace the file between open and lock
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open lock: %w", err)
		}
		if err := lock(f); err != nil {
			defer f.Close() //nolint:errcheck // only read from
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, &HeldError{path, readHint(f)}
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		id, err := idOf(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		l := &Lease{f, path, id}
		if l.Check() != nil {
			_ = f.Close()
			continue
		}
		// The lock is held whatever becomes of the hint, on a full disk too.
		if err := f.Truncate(0); err == nil {
			_, _ = f.WriteAt([]byte(hint+"\n"), 0)
		}
		return l, nil
	}
	return nil, fmt.Errorf("lock %s: the file is replaced again and again", path)
}

// lock takes the exclusive lock. Two that hold it for a moment must not look
// like an owner: Held, in a command that asks whether skcd runs, and a child that
// a killed skcd had forked and that has not come to its exec yet.
func lock(f *os.File) error {
	var err error
	for range 50 {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// Watch waits until the ownership is lost, and returns the error of Check, or
// until ctx ends, and returns nil. Where the kernel tells of no changes it looks
// every two seconds.
func (l *Lease) Watch(ctx context.Context) error {
	var events <-chan fsnotify.Event
	var failures <-chan error
	var tick <-chan time.Time
	if w, err := fsnotify.NewWatcher(); err == nil {
		defer w.Close() //nolint:errcheck // nothing was written
		if err = w.Add(filepath.Dir(l.path)); err == nil {
			events, failures = w.Events, w.Errors
		}
	}
	if events == nil {
		t := time.NewTicker(2 * time.Second)
		defer t.Stop()
		tick = t.C
	}
	for {
		if err := l.Check(); errors.Is(err, effects.ErrNotOwner) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-events:
		case <-failures:
		case <-tick:
		}
	}
}

// Check returns an error that matches effects.ErrNotOwner when the file at the
// path is no longer the one that is locked: whoever made the new one owns the
// home, and this process must end. It is asked before each write, and costs one
// stat.
func (l *Lease) Check() error {
	var st syscall.Stat_t
	if err := syscall.Lstat(l.path, &st); err != nil {
		if errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("%w: the lock file %s was removed", effects.ErrNotOwner, l.path)
		}
		return fmt.Errorf("look at lock %s: %w", l.path, err)
	}
	if (fileID{uint64(st.Dev), st.Ino}) != l.id { //nolint:unconvert // Dev has another width on darwin
		return fmt.Errorf("%w: the lock file %s is another one", effects.ErrNotOwner, l.path)
	}
	return nil
}

// Release ends the ownership. The file stays: removing it would let a third
// process lock a file that a second one has just opened.
func (l *Lease) Release() error {
	_ = l.f.Truncate(0)
	return l.f.Close()
}

// Held tells whether a controller owns the home, without taking part: the file
// is only read and never made. hint is what the owner wrote of itself.
func Held(path string) (held bool, hint string, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, "", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("look at lock: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read from
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, readHint(f), nil
	}
	if err != nil {
		return false, "", fmt.Errorf("look at lock %s: %w", path, err)
	}
	return false, "", nil
}

func readHint(f *os.File) string {
	b := make([]byte, 200)
	n, _ := f.ReadAt(b, 0)
	line, _, _ := strings.Cut(string(b[:n]), "\n")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, line)
}

func idOf(f *os.File) (fileID, error) {
	fi, err := f.Stat()
	if err != nil {
		return fileID{}, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, errors.New("no device and inode")
	}
	return fileID{uint64(st.Dev), st.Ino}, nil //nolint:unconvert // Dev has another width on darwin
}
