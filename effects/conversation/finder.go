package conversation

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// How often is looked. An agent may tell of a conversation only when somebody
// speaks to it, which may be hours after its start, its files may be thousands,
// and a command may take a second of the machine's time: so the pause grows. What
// is missed is found by the look after the program's end.
const (
	firstPause   = time.Second
	longPause    = 30 * time.Second
	commandPause = time.Minute
	commandLimit = 20 * time.Second
)

// Finder looks, again and again, for the conversations of running programs. There
// is at most one loop a session; whoever asks gets what it saw last at once and is
// told when that changes. All methods may be called at the same time; none waits
// for a look, but for Close.
type Finder struct {
	clock    clock.Clock
	onChange func(api.Key)

	mu     sync.Mutex
	loops  map[api.Key]*loop
	closed bool
	wg     sync.WaitGroup
}

type loop struct {
	id      effects.LaunchID
	sources []v1alpha1.CaptureSource
	cancel  context.CancelFunc
	found   [][]v1alpha1.ConversationID
}

// NewFinder makes a finder without loops. onChange is called, from a loop and
// with no lock held, when what was found of a session has changed.
func NewFinder(clk clock.Clock, onChange func(api.Key)) *Finder {
	return &Finder{clock: clk, onChange: onChange, loops: map[api.Key]*loop{}}
}

// Ensure has the sources of the running program looked at and returns the ids
// that each told last, in the order of the sources. The loop goes on as it is
// while id and sources are the same; target is that of the call that began it.
func (f *Finder) Ensure(key api.Key, id effects.LaunchID, sources []v1alpha1.CaptureSource, target Target) [][]v1alpha1.ConversationID {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.loops[key]
	if l != nil && l.id == id && reflect.DeepEqual(l.sources, sources) {
		return slices.Clone(l.found)
	}
	if l != nil {
		l.cancel()
	}
	none := make([][]v1alpha1.ConversationID, len(sources))
	if f.closed {
		return none
	}
	ctx, cancel := context.WithCancel(context.Background()) // lives until Stop or Close, longer than any call
	l = &loop{id: id, sources: slices.Clone(sources), cancel: cancel, found: none}
	f.loops[key] = l
	f.wg.Go(func() {
		defer cancel()
		f.run(ctx, key, l, target)
	})
	return slices.Clone(none)
}

// Stop ends the looks at a session and forgets what they found.
func (f *Finder) Stop(key api.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.loops[key]; l != nil {
		l.cancel()
		delete(f.loops, key)
	}
}

// Close ends all looks and returns when the last has ended. Nothing starts
// after it.
func (f *Finder) Close() {
	f.mu.Lock()
	f.closed = true
	for key, l := range f.loops {
		l.cancel()
		delete(f.loops, key)
	}
	f.mu.Unlock()
	f.wg.Wait()
}

func (f *Finder) run(ctx context.Context, key api.Key, l *loop, target Target) {
	pause, sinceCommand, commandEvery := firstPause, commandPause, firstPause
	found := make([][]v1alpha1.ConversationID, len(l.sources))
	for {
		timer := f.clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
		commands := sinceCommand+pause >= commandEvery
		if sinceCommand += pause; commands {
			sinceCommand, commandEvery = 0, min(2*commandEvery, commandPause)
		}
		pause = min(2*pause, longPause)
		for i, s := range l.sources {
			if len(s.Command) > 0 && !commands {
				continue
			}
			within, cancel := context.WithTimeout(ctx, commandLimit)
			found[i] = Look(within, s, target)
			cancel()
		}
		if ctx.Err() != nil {
			return
		}
		f.publish(key, l, slices.Clone(found))
	}
}

// publish keeps what was found, unless the loop was replaced meanwhile.
func (f *Finder) publish(key api.Key, l *loop, found [][]v1alpha1.ConversationID) {
	f.mu.Lock()
	changed := f.loops[key] == l && !reflect.DeepEqual(l.found, found)
	if changed {
		l.found = found
	}
	f.mu.Unlock()
	if changed {
		f.onChange(key)
	}
}
