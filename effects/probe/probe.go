// Package probe looks, again and again, whether the program of a session is
// ready. There is at most one loop a session; whoever asks gets the newest
// result at once and is told when it changes. What a result means for the
// session is decided elsewhere.
//
// A look can be a command (exec), a path (file), a port (tcp), an address
// (http) or the screen. Messages are the same from look to look while the
// reason is the same: they end in status, where a change is a write. They hold
// no output of a command and no value of the environment.
package probe

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// Result is what the looks at one program found.
type Result struct {
	// Known is true when a look has ended since the program started, or since
	// the probe was changed.
	Known bool
	// Ready is true when the last look succeeded.
	Ready bool
	// EverReady is true when a look succeeded.
	EverReady bool
	// Message says why the last look failed; empty when it succeeded.
	Message string
}

// Target is the program that is looked at.
type Target struct {
	Dir string   // absolute folder of the session
	Env []string // its whole environment; a command is found in its PATH
	// Screen is the visible screen, line by line. It must heed its context.
	Screen func(context.Context) ([]string, error)
}

// Prober runs the loops. All methods may be called at the same time; none
// waits for a look, but for Close.
type Prober struct {
	clock    clock.Clock
	onChange func(api.Key)

	mu     sync.Mutex
	loops  map[api.Key]*loop
	closed bool
	wg     sync.WaitGroup
}

type loop struct {
	id     effects.LaunchID
	spec   v1alpha1.Readiness
	cancel context.CancelFunc
	result Result
}

// New makes a prober without loops. onChange is called, from a loop and with no
// lock held, when the result of a session has changed.
func New(clk clock.Clock, onChange func(api.Key)) *Prober {
	return &Prober{clock: clk, onChange: onChange, loops: map[api.Key]*loop{}}
}

// Ensure has the session looked at and returns the newest result. The loop goes
// on as it is while id and spec are the same; else it begins anew, with nothing
// known. The deadline is no concern of the loop, and target is that of the call
// that began it.
func (p *Prober) Ensure(key api.Key, id effects.LaunchID, spec *v1alpha1.Readiness, target Target) Result {
	want := *spec.DeepCopy()
	want.Deadline = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.loops[key]
	if l != nil && l.id == id && reflect.DeepEqual(l.spec, want) {
		return l.result
	}
	if l != nil {
		l.cancel()
	}
	if p.closed {
		return Result{}
	}
	ctx, cancel := context.WithCancel(context.Background()) // lives until Stop or Close, longer than any call
	l = &loop{id: id, spec: want, cancel: cancel}
	p.loops[key] = l
	p.wg.Go(func() {
		defer cancel()
		p.run(ctx, key, l, target)
	})
	return l.result
}

// Stop ends the looks at a session and forgets their result.
func (p *Prober) Stop(key api.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.loops[key]; l != nil {
		l.cancel()
		delete(p.loops, key)
	}
}

// Close ends all looks and returns when the last has ended. Nothing starts
// after it.
func (p *Prober) Close() {
	p.mu.Lock()
	p.closed = true
	for key, l := range p.loops {
		l.cancel()
		delete(p.loops, key)
	}
	p.mu.Unlock()
	p.wg.Wait()
}

const defaultPeriod = time.Second

// errPeriod ends a look that took as long as the time between two.
var errPeriod = errors.New("the look took too long")

// run looks once a period until ctx ends, or, for the screen, until it matched:
// what the screen showed once stays shown.
func (p *Prober) run(ctx context.Context, key api.Key, l *loop, target Target) {
	period := defaultPeriod
	if l.spec.Period != nil && l.spec.Period.Duration > 0 {
		period = l.spec.Period.Duration
	}
	look := lookOf(l.spec, target)
	for ctx.Err() == nil {
		timer := p.clock.NewTimer(period)
		problem, late := p.once(ctx, timer.C(), look)
		if ctx.Err() != nil {
			timer.Stop()
			return
		}
		if late {
			problem = "no answer within " + period.String()
		}
		p.publish(key, l, problem)
		if problem == "" && l.spec.Screen != nil {
			timer.Stop()
			return
		}
		if late {
			continue // the period is over already
		}
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// once looks once. late says that the look failed because over fired first.
func (p *Prober) once(ctx context.Context, over <-chan time.Time, look func(context.Context) string) (problem string, late bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan string, 1)
	go func() { ended <- look(ctx) }()
	select {
	case problem = <-ended:
		cancel(nil)
		return problem, false
	case <-over:
		cancel(errPeriod)
		<-ended // it heeds ctx; no two looks at a time
		return "", true
	case <-ctx.Done():
		cancel(nil)
		return <-ended, false
	}
}

// publish keeps the result, unless the loop was replaced meanwhile.
func (p *Prober) publish(key api.Key, l *loop, problem string) {
	p.mu.Lock()
	if p.loops[key] != l {
		p.mu.Unlock()
		return
	}
	ready := problem == ""
	now := Result{Known: true, Ready: ready, EverReady: ready || l.result.EverReady, Message: problem}
	changed := now != l.result
	l.result = now
	p.mu.Unlock()
	if changed {
		p.onChange(key)
	}
}
