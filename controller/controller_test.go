package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type reconcileFunc func(context.Context, api.Key) (Result, error)

func (f reconcileFunc) Reconcile(ctx context.Context, k api.Key) (Result, error) { return f(ctx, k) }

var web = api.Key{Kind: "Session", Namespace: "default", Name: "web"}

// start runs a controller inside a synctest bubble, on its clock, until the
// returned func is called.
func start(t *testing.T, o Options) (*Controller, func()) {
	t.Helper()
	o.Kind, o.Clock = "Session", clock.RealClock{}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	c := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	return c, func() { cancel(); <-done }
}

func TestWhenAKeyIsLookedAtAgain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(pass int) (Result, error)
		within time.Duration
		want   int // passes within that time after one Enqueue
	}{
		{"the zero result waits for a change", func(int) (Result, error) { return Result{}, nil }, time.Hour, 1},
		{"RequeueAfter is a known time", func(int) (Result, error) { return Result{RequeueAfter: time.Minute}, nil }, 3*time.Minute + time.Second, 4},
		{"an error backs off, doubling", func(int) (Result, error) { return Result{}, errors.New("no") }, 4 * time.Second, 5}, // 0, .25, .75, 1.75, 3.75
		{"a terminal error waits for a change", func(int) (Result, error) { return Result{}, Terminal(errors.New("no")) }, time.Hour, 1},
		{"success forgets the backoff", func(n int) (Result, error) {
			if n%2 == 1 {
				return Result{}, errors.New("no")
			}
			return Result{RequeueAfter: time.Second}, nil
		}, 2600 * time.Millisecond, 5}, // 0, .25, 1.25, 1.5, 2.5; not forgotten, the fourth were at 1.75
		{"a panic is an error of the key", func(int) (Result, error) { panic("boom") }, 400 * time.Millisecond, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				c, stop := start(t, Options{Workers: 1, Reconciler: reconcileFunc(func(context.Context, api.Key) (Result, error) {
					n++
					return tt.answer(n)
				})})
				c.Enqueue(web)
				time.Sleep(tt.within)
				stop()
				if n != tt.want {
					t.Errorf("%d passes within %s, want %d", n, tt.within, tt.want)
				}
			})
		})
	}
}

func TestKeysOfOtherKindsArePassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c, stop := start(t, Options{Reconciler: reconcileFunc(func(context.Context, api.Key) (Result, error) { n++; return Result{}, nil })})
		c.Enqueue(api.Key{Kind: "Quarantine", Name: "x"})
		time.Sleep(time.Second)
		stop()
		if n != 0 {
			t.Errorf("%d passes, want 0", n)
		}
	})
}

func TestStopLetsThePassInHandEnd(t *testing.T) {
	for _, tt := range []struct {
		name    string
		takes   time.Duration
		wantErr bool // of the pass's own context
	}{
		{"shorter than the grace", 5 * time.Second, false},
		{"longer than the grace", time.Hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got error
				passes := 0
				c, stop := start(t, Options{Workers: 1, Reconciler: reconcileFunc(func(ctx context.Context, _ api.Key) (Result, error) {
					passes++
					select {
					case <-time.After(tt.takes):
					case <-ctx.Done():
						got = ctx.Err()
					}
					return Result{}, nil
				})})
				c.Enqueue(web)
				other := web
				other.Name = "waits"
				c.Enqueue(other)
				synctest.Wait()
				stop()
				if (got != nil) != tt.wantErr {
					t.Errorf("context of the pass: %v, want an error: %v", got, tt.wantErr)
				}
				if passes != 1 {
					t.Errorf("%d passes, want 1: what waits in the queue is left", passes)
				}
			})
		})
	}
}

func TestOneFailingKeyDoesNotSlowOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := 0
		c, stop := start(t, Options{Workers: 1, Reconciler: reconcileFunc(func(_ context.Context, k api.Key) (Result, error) {
			if k.Name == "web" {
				good++
				return Result{}, nil
			}
			return Result{}, errors.New("no")
		})})
		for _, n := range []string{"a", "b", "c"} {
			c.Enqueue(api.Key{Kind: "Session", Namespace: "default", Name: n})
		}
		time.Sleep(10 * time.Minute)
		c.Enqueue(web)
		synctest.Wait()
		stop()
		if good != 1 {
			t.Errorf("the good key had %d passes, want 1 at once", good)
		}
	})
}

func TestPanicsAreLoggedWithTheirStackAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		reg := prometheus.NewRegistry()
		c, stop := start(t, Options{
			Metrics: NewMetrics(reg), Log: funcr.New(func(_, args string) { logged.WriteString(args) }, funcr.Options{}),
			Reconciler: reconcileFunc(func(context.Context, api.Key) (Result, error) { panic("boom") }),
		})
		c.Enqueue(web)
		synctest.Wait()
		stop()
		if !strings.Contains(logged.String(), "controller_test.go") {
			t.Errorf("log %q does not name the line that panicked", logged.String())
		}
		const want = `
# HELP skc_reconcile_total Passes by kind and outcome.
# TYPE skc_reconcile_total counter
skc_reconcile_total{kind="Session",outcome="error"} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "skc_reconcile_total"); err != nil {
			t.Error(err)
		}
	})
}

func TestResyncIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			Resync(ctx, clock.RealClock{}, 5*time.Minute, func(context.Context) { at = append(at, time.Since(begin)) })
			close(done)
		}()
		time.Sleep(time.Hour)
		cancel()
		<-done
		if len(at) < 10 || len(at) > 12 {
			t.Errorf("%d looks in an hour, want 10 to 12", len(at))
		}
		for i, prev := 0, time.Duration(0); i < len(at); prev, i = at[i], i+1 {
			if d := at[i] - prev; d < 5*time.Minute || d > 330*time.Second {
				t.Errorf("look %d came after %s, want 5m to 5m30s", i, d)
			}
		}
	})
}

func TestSoonest(t *testing.T) {
	for _, tt := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {1, 2, 1}, {2, 1, 1}} {
		if got := (Result{tt.a}).Soonest(Result{tt.b}); got.RequeueAfter != tt.want {
			t.Errorf("Soonest(%d, %d) = %d, want %d", tt.a, tt.b, got.RequeueAfter, tt.want)
		}
	}
}
