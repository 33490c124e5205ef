package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// LockFolder keeps all others who call it for dir out, in this process and in
// others, until the returned function is called. It waits until ctx ends. What
// is locked is the folder itself, which costs no file on a full disk; where a
// folder cannot be locked (NFS), the file at instead, which is made.
func LockFolder(ctx context.Context, dir, instead string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock a folder: %w", err)
	}
	err = flock(ctx, f)
	if errors.Is(err, unix.EBADF) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOLCK) {
		if err := MkdirPrivate(filepath.Dir(instead)); err != nil {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		if f, err = os.OpenFile(instead, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600); err != nil {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		err = flock(ctx, f)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// flock waits for the lock on f until ctx ends. After an error f is closed, or
// will be once the kernel lets go of it.
func flock(ctx context.Context, f *os.File) error {
	fd := int(f.Fd())
	done := make(chan error, 1)
	go func() {
		err := unix.Flock(fd, unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(fd, unix.LOCK_EX)
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			_ = f.Close()
		}
		return err
	case <-ctx.Done():
		go func() { <-done; _ = f.Close() }()
		return ctx.Err()
	}
}
