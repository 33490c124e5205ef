package git

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"

	"skc.dev/skc/effects"
)

// keyed is one lock for each key. Keys are never dropped: there are as many as
// there are repositories and worktrees.
type keyed struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

func (k *keyed) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	c, ok := k.held[key]
	if !ok {
		c = make(chan struct{}, 1)
		k.held[key] = c
	}
	k.mu.Unlock()
	select {
	case c <- struct{}{}:
		return func() { <-c }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// exclusive makes us the only writer of a folder of git: in this process, and
// before the kernel. The git commands that are given the file hold the kernel's
// lock with us: one that outlives a killed controller is waited for, and not
// worked against. While it does, the error is a RepoLockedError.
//
// The lock is on the folder itself. git takes no such locks.
func (g *Git) exclusive(ctx context.Context, dir string) (held *os.File, unlock func(), err error) {
	release, err := g.writers.lock(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		release()
		return nil, nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		_ = f.Close()
		release()
		return nil, nil, &effects.RepoLockedError{File: dir}
	}
	// Any other error: a file system without such locks; the process's own holds.
	return f, func() {
		_ = f.Close() // and no LOCK_UN, which would take it from a git that still runs
		release()
	}, nil
}
