// Package controller is the machine without a meaning: a rate-limited queue of
// keys for each kind, workers that hand them to the kind's Reconciler, and the
// periodic full look. It knows no kind and touches nothing outside.
package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
)

// Reconciler converges one kind. It gets a key and no event, may run late,
// twice, or again after dying halfway, and never for one key at the same time.
type Reconciler interface {
	Reconcile(ctx context.Context, key api.Key) (Result, error)
}

// Result says when to look again, besides on the next change.
type Result struct {
	// RequeueAfter is a time that is known, as the end of a backoff; 0 is none.
	RequeueAfter time.Duration
}

// Soonest is the earlier of two results.
func (r Result) Soonest(o Result) Result {
	if r.RequeueAfter == 0 || (o.RequeueAfter > 0 && o.RequeueAfter < r.RequeueAfter) {
		return o
	}
	return r
}

type terminalError struct{ error }

func (e terminalError) Unwrap() error { return e.error }

// Terminal marks an error that only a change of the spec can help: it is
// logged, and the key is left alone until its object changes.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return terminalError{err}
}

// IsTerminal tells whether err was marked by Terminal.
func IsTerminal(err error) bool {
	return errors.As(err, new(terminalError))
}

// Options of one Controller.
type Options struct {
	Kind       string
	Reconciler Reconciler
	Clock      clock.WithTicker
	Log        logr.Logger
	Metrics    *Metrics
	// Workers is how many keys are reconciled at the same time (default 8).
	Workers int
	// InitialBackoff and MaxBackoff space the retries of one key that fails
	// (default 250 ms and 1 minute).
	InitialBackoff, MaxBackoff time.Duration
	// Grace is how long a pass in hand may go on after the stop (default 10 s).
	Grace time.Duration
}

// Controller serves one kind. Its methods may be called at the same time.
type Controller struct {
	o     Options
	queue workqueue.TypedRateLimitingInterface[api.Key]
}

// New makes a Controller; Run starts it.
func New(o Options) *Controller {
	o.Workers = orDefault(o.Workers, 8)
	o.InitialBackoff = orDefault(o.InitialBackoff, 250*time.Millisecond)
	o.MaxBackoff = orDefault(o.MaxBackoff, time.Minute)
	o.Grace = orDefault(o.Grace, 10*time.Second)
	// The bucket bounds what a mass failure costs; a key's own backoff spaces
	// the retries of that key.
	limiter := workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[api.Key](o.InitialBackoff, o.MaxBackoff),
		&workqueue.TypedBucketRateLimiter[api.Key]{Limiter: rate.NewLimiter(100, 1000)},
	)
	return &Controller{o: o, queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[api.Key]{
			Name: o.Kind, Clock: o.Clock, MetricsProvider: o.Metrics.queueProvider(),
		})}
}

func orDefault[T comparable](v, d T) T {
	if v == *new(T) {
		return d
	}
	return v
}

// Enqueue asks for a look at key. Keys of other kinds are passed over, so that
// one source of changes can feed all controllers.
func (c *Controller) Enqueue(key api.Key) {
	if key.Kind == c.o.Kind {
		c.queue.Add(key)
	}
}

// Run works until ctx ends; then each pass in hand is finished, for at most
// the grace time, and what waits in the queue is left for the next start.
func (c *Controller) Run(ctx context.Context) {
	// A pass outlives ctx: one that is cut between an effect and its record would
	// only make work for the next start.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	for range c.o.Workers {
		wg.Go(func() {
			for {
				key, down := c.queue.Get()
				if down {
					return
				}
				if ctx.Err() == nil {
					c.serve(work, key)
				}
				c.queue.Done(key)
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	t := c.o.Clock.NewTimer(c.o.Grace)
	defer t.Stop()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-t.C():
		cancel()
		<-done
	}
}

func (c *Controller) serve(ctx context.Context, key api.Key) {
	log := c.o.Log.WithValues("kind", key.Kind, "namespace", key.Namespace, "name", key.Name)
	start := c.o.Clock.Now()
	res, err := c.reconcile(logr.NewContext(ctx, log), key)
	outcome := "success"
	switch {
	case err != nil && IsTerminal(err):
		outcome = "terminal"
		log.Error(err, "reconcile failed; waiting for a change of the spec")
		c.queue.Forget(key)
	case err != nil:
		outcome = "error"
		log.Error(err, "reconcile failed", "retries", c.queue.NumRequeues(key))
		c.queue.AddRateLimited(key)
	case res.RequeueAfter > 0:
		outcome = "requeue_after"
		c.queue.Forget(key)
		c.queue.AddAfter(key, res.RequeueAfter)
	default:
		c.queue.Forget(key)
	}
	c.o.Metrics.reconciled(key.Kind, outcome, c.o.Clock.Since(start))
}

// reconcile turns a panic into an error of that one key.
func (c *Controller) reconcile(ctx context.Context, key api.Key) (res Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reconcile %s panicked: %v\n%s", key, p, debug.Stack())
		}
	}()
	return c.o.Reconciler.Reconcile(ctx, key)
}

// Resync calls look every period, spread by up to a tenth so that several
// instances on one machine do not fall in step, until ctx ends.
func Resync(ctx context.Context, clk clock.WithTicker, period time.Duration, look func(context.Context)) {
	for {
		t := clk.NewTimer(period + time.Duration(rand.Int64N(int64(period/10)+1)))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C():
			look(ctx)
		}
	}
}
