package background

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"skc.dev/skc/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var a, b = api.Key{Name: "a"}, api.Key{Name: "b"}

func TestAResultIsHandedOverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan api.Key, 2)
		r := New(1, func(_ context.Context, _ api.Key, in int) (int, error) { return 2 * in, nil }, func(k api.Key) { told <- k })
		defer r.Close()
		if got, running := r.Ended(a); got != nil || running {
			t.Fatalf("before any work: %v, running %v", got, running)
		}
		r.Begin(a, 21)
		if k := <-told; k != a {
			t.Fatalf("told of %v", k)
		}
		r.Begin(a, 1) // not before its result is taken
		got, running := r.Ended(a)
		if running || got == nil || got.In != 21 || got.Out != 42 || got.Err != nil {
			t.Fatalf("Ended = %+v, running %v; want 42 of 21", got, running)
		}
		if got, running := r.Ended(a); got != nil || running {
			t.Fatalf("a second time: %+v, running %v", got, running)
		}
	})
}

func TestOnePieceAKeyAndSoManyInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		gate := make(chan struct{})
		r := New(2, func(context.Context, api.Key, int) (int, error) {
			most.Store(max(most.Load(), now.Add(1)))
			<-gate
			now.Add(-1)
			return 0, nil
		}, func(api.Key) {})
		defer r.Close()
		for i := range 5 {
			key := api.Key{Name: string(rune('a' + i))}
			r.Begin(key, 1)
			r.Begin(key, 2)
		}
		synctest.Wait()
		if n := r.Running(); n != 5 || now.Load() != 2 {
			t.Errorf("%d wait or work, %d work; want 5 and 2", n, now.Load())
		}
		close(gate)
		synctest.Wait()
		if most.Load() != 2 || r.Running() != 0 {
			t.Errorf("%d at a time, %d left; want 2 and none", most.Load(), r.Running())
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(1, func(ctx context.Context, _ api.Key, _ int) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, func(api.Key) {})
		r.Begin(a, 1)
		r.Begin(b, 1) // waits for its turn
		synctest.Wait()
		if _, running := r.Ended(b); !running {
			t.Error("what waits for its turn is not running")
		}
		r.Stop(b)
		synctest.Wait()
		if got, _ := r.Ended(b); got == nil || !errors.Is(got.Err, context.Canceled) {
			t.Errorf("stopped while it waited: %+v", got)
		}
		r.Stop(a)
		synctest.Wait()
		if got, _ := r.Ended(a); got == nil || !errors.Is(got.Err, context.Canceled) {
			t.Errorf("stopped at work: %+v", got)
		}
		r.Begin(a, 1)
		r.Close()
		r.Begin(b, 1)
		if got, running := r.Ended(b); got != nil || running {
			t.Errorf("begun after Close: %+v, %v", got, running)
		}
	})
}
