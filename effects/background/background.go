// Package background does slow work beside the passes of a reconciler: what one
// object waits for holds no worker, and so keeps no other object waiting. At
// most one piece of work of a key is under way, its result is handed over once,
// and who waits for it is told. What the work is, and what follows from its
// result, is decided elsewhere.
package background

import (
	"context"
	"sync"
	"sync/atomic"

	"skc.dev/skc/api"
)

// Result is what came of one piece of work.
type Result[In, Out any] struct {
	In  In
	Out Out
	Err error
}

// Runner does the work of many keys. Its methods may be called at the same time;
// none but Close waits for any work.
type Runner[In, Out any] struct {
	do    func(context.Context, api.Key, In) (Out, error)
	ended func(api.Key)
	slots chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	work   map[api.Key]*piece[In, Out]
	closed bool

	running atomic.Int64
}

type piece[In, Out any] struct {
	cancel context.CancelFunc
	done   *Result[In, Out] // nil while it is under way
}

// New makes a Runner that has at most limit pieces of work under way. do heeds
// its context; ended is called after each piece, with no lock held.
func New[In, Out any](limit int, do func(context.Context, api.Key, In) (Out, error), ended func(api.Key)) *Runner[In, Out] {
	ctx, cancel := context.WithCancel(context.Background()) // lives until Close, longer than any call
	return &Runner[In, Out]{do: do, ended: ended, slots: make(chan struct{}, limit), ctx: ctx, cancel: cancel,
		work: map[api.Key]*piece[In, Out]{}}
}

// Begin has the work of key done. While other work of key is under way, or its
// result waits for Ended, it does nothing.
func (r *Runner[In, Out]) Begin(key api.Key, in In) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.work[key] != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	p := &piece[In, Out]{cancel: cancel}
	r.work[key] = p
	r.running.Add(1)
	r.wg.Go(func() {
		defer r.running.Add(-1)
		defer cancel()
		out, err := r.once(ctx, key, in)
		r.mu.Lock()
		p.done = &Result[In, Out]{In: in, Out: out, Err: err}
		r.mu.Unlock()
		r.ended(key)
	})
}

func (r *Runner[In, Out]) once(ctx context.Context, key api.Key, in In) (out Out, err error) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return out, ctx.Err()
	}
	defer func() { <-r.slots }()
	return r.do(ctx, key, in)
}

// Ended hands over the result of key's work, which is then forgotten; nil when
// there is none. running tells that there will be one.
func (r *Runner[In, Out]) Ended(key api.Key) (result *Result[In, Out], running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.work[key]
	if p == nil {
		return nil, false
	}
	if p.done == nil {
		return nil, true
	}
	delete(r.work, key)
	return p.done, false
}

// Stop tells the work of key to end. Its result comes as that of any other.
func (r *Runner[In, Out]) Stop(key api.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.work[key]; p != nil {
		p.cancel()
	}
}

// Running is how many pieces of work wait for their turn, are under way, or have
// ended and not told so yet.
func (r *Runner[In, Out]) Running() int { return int(r.running.Load()) }

// Close tells all work to end and returns when the last has. Nothing begins
// after it.
func (r *Runner[In, Out]) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.wg.Wait()
}
