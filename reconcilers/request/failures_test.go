package request

import (
	"context"
	"fmt"
	"testing"

	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
)

// scenario is one request and what is true of the world before it.
type scenario struct {
	name    string
	prepare func(*world)
	spec    func(*world) v1alpha1.SessionRequestSpec
	starts  int // of a success
	alive   int
	broken  string // why its session does not start
}

var scenarios = []scenario{
	{"create", func(*world) {}, func(w *world) v1alpha1.SessionRequestSpec { return w.create("web") }, 1, 1, ""},
	{"create that fails", func(*world) {}, func(w *world) v1alpha1.SessionRequestSpec { return w.create("web") }, 0, 0, v1alpha1.ReasonCommandNotFound},
	{"close", func(w *world) { w.has("web") }, func(*world) v1alpha1.SessionRequestSpec { return about(v1alpha1.VerbClose, "web") }, 0, 0, ""},
	{"delete", func(w *world) { w.has("web") }, func(*world) v1alpha1.SessionRequestSpec { return about(v1alpha1.VerbDelete, "web") }, 0, 0, ""},
	{"reattach", func(w *world) { w.has("web") }, func(*world) v1alpha1.SessionRequestSpec { return about(v1alpha1.VerbResume, "web") }, 0, 1, ""},
	{"start again", func(w *world) { w.has("web", stoppedSession) }, func(*world) v1alpha1.SessionRequestSpec { return about(v1alpha1.VerbResume, "web") }, 1, 1, ""},
	{"start again what ended", func(w *world) {
		w.host.programs[string(w.has("web").UID)].ended = v1alpha1.ReasonCompleted
		w.settle()
	}, func(*world) v1alpha1.SessionRequestSpec { return about(v1alpha1.VerbResume, "web") }, 1, 1, ""},
	{"start again that fails", func(w *world) { w.has("web", stoppedSession) }, func(*world) v1alpha1.SessionRequestSpec { return about(v1alpha1.VerbResume, "web") }, 0, 0, v1alpha1.ReasonCommandNotFound},
	{"bring back", func(w *world) { w.setAside("web") }, func(*world) v1alpha1.SessionRequestSpec { return about(v1alpha1.VerbResume, "web") }, 1, 1, ""},
	{"fork", func(w *world) {
		s := w.has("web", func(s *v1alpha1.Session) { s.Spec.Command, s.Spec.Agent = nil, &v1alpha1.AgentSpec{Profile: "claude"} })
		after := s.DeepCopy()
		after.Status.Conversation = &v1alpha1.ConversationStatus{ID: "c-1", Source: v1alpha1.ConversationMinted, Profile: "claude"}
		must(w.t, w.store.Update(w.t.Context(), s, after))
	}, func(*world) v1alpha1.SessionRequestSpec { return about(v1alpha1.VerbFork, "web") }, 1, 2, ""},
}

// outlast lets pass whatever time a request may take.
func (w *world) outlast() {
	w.t.Helper()
	w.advance(effectTime + withdrawTime + recoveryTime)
}

// wantExplained checks that what the request says became of it is what became of
// it: nothing is done twice, and only the uncertain may be either.
func (w *world) wantExplained(c scenario, starts, alive int) {
	w.t.Helper()
	rq := w.get("one")
	n, lives := len(w.host.starts)-starts, w.host.alive()
	switch rq.Status.State {
	case v1alpha1.RequestSuccess:
		if n != c.starts || lives != c.alive {
			w.t.Errorf("a success with %d starts and %d live, want %d and %d", n, lives, c.starts, c.alive)
		}
	case v1alpha1.RequestFailure:
		if n != 0 || lives != alive {
			w.t.Errorf("a failure (%+v) with %d starts and %d live, %d did before", condition(rq.Status.Conditions, v1alpha1.Complete), n, lives, alive)
		}
	case v1alpha1.RequestUncertain:
		if n > c.starts || lives != alive && lives != c.alive {
			w.t.Errorf("uncertain, with %d starts and %d live", n, lives)
		}
	default:
		w.t.Errorf("it is %q for ever: %+v", rq.Status.State, rq.Status)
	}
}

// Each effect fails once, before it acts and after: the request comes to an end
// that tells what is so.
func TestAnyFailure(t *testing.T) {
	for _, c := range scenarios {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after %v", c.name, after), func(t *testing.T) {
				t.Parallel() // most of the time is the disk's
				uncertain, ends := 0, 0
				for n := 1; ; n++ {
					w := newWorld(t)
					c.prepare(w)
					w.host.broken["web"] = c.broken
					starts, alive, calls := len(w.host.starts), w.host.alive(), w.calls.n
					w.calls.at, w.calls.after = calls+n, after
					w.ask("one", c.spec(w))
					w.outlast()
					if w.calls.n < w.calls.at {
						break
					}
					ends++
					w.wantExplained(c, starts, alive)
					if w.get("one").Status.State == v1alpha1.RequestUncertain {
						uncertain++
					}
					if t.Failed() {
						t.Fatalf("call %d failed", n)
					}
				}
				t.Logf("%d calls failed, %d ends uncertain", ends, uncertain)
			})
		}
	}
}

// The process dies at each effect, before it acts and after, and another goes on
// with its files.
func TestDeathAnywhere(t *testing.T) {
	for _, c := range scenarios {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after %v", c.name, after), func(t *testing.T) {
				t.Parallel() // most of the time is the disk's
				uncertain, ends := 0, 0
				for n := 1; ; n++ {
					w := newWorld(t)
					c.prepare(w)
					w.host.broken["web"] = c.broken
					starts, alive, calls := len(w.host.starts), w.host.alive(), w.calls.n
					w.calls.at, w.calls.after, w.calls.dies = calls+n, after, true
					w.ask("one", c.spec(w))
					if !w.calls.isDead() {
						break
					}
					w.restart()
					w.outlast()
					ends++
					w.wantExplained(c, starts, alive)
					state := w.get("one").Status.State
					if state == v1alpha1.RequestUncertain {
						uncertain++
					}
					again := c.spec(w)
					again.Key = "one"
					w.ask("two", again)
					if rq := w.get("two"); rq.Status.State != state || rq.Status.DuplicateOf != "one" {
						t.Errorf("asked again it is %+v, and was %s", rq.Status, state)
					}
					w.wantExplained(c, starts, alive)
					if t.Failed() {
						t.Fatalf("died at call %d", n)
					}
				}
				t.Logf("%d deaths, %d ends uncertain", ends, uncertain)
			})
		}
	}
}

// The process dies at each effect of a delivery; the retry gets the one answer.
func TestDeathAndRetry(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			w := newWorld(t)
			req := w.frame(1, lifecycle.ExistingPath{Path: w.work})
			w.calls.at, w.calls.after, w.calls.dies = n, after, true
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = w.r.Submit(ctx, "control", req)
			}()
			for running := true; running && !w.calls.isDead(); {
				select {
				case <-ended:
					running = false
				default:
					w.goOn(50)
				}
			}
			cancel()
			<-ended
			if !w.calls.isDead() {
				break
			}
			w.restart()
			out := w.submit(3, req)
			for _, o := range out {
				must(t, o.err)
				if o.Status != out[0].Status || o.Reason != out[0].Reason {
					t.Errorf("died at %d: the answers are %+v and %+v", n, out[0], o)
				}
			}
			if n := w.host.started("s1"); n > 1 || out[0].Status == lifecycle.OK && n != 1 {
				t.Errorf("%d starts, and %+v", n, out[0])
			}
		}
	}
}

// Audit rows that cannot be written: nothing stays in progress, and what was not
// audited was not done.
func TestAuditFails(t *testing.T) {
	for _, c := range []struct {
		event  lifecycle.Event
		starts int
	}{{lifecycle.EventAccepted, 0}, {lifecycle.EventSpawnStarted, 0}, {lifecycle.EventSuccess, 1}} {
		w := newWorld(t)
		w.audit.fail = map[lifecycle.Event]error{c.event: errInjected}
		out := w.one(w.frame(1, lifecycle.ExistingPath{Path: w.work}))
		if out.Reason != lifecycle.ReasonTerminalUncertain || out.Message != "session_create effect failed: audit "+string(c.event)+": injected" {
			t.Errorf("%s: the outcome is %+v", c.event, out)
		}
		w.want(ledger.Name("control", "42:1"), v1alpha1.RequestUncertain, lifecycle.ReasonSpawnFailed)
		if len(w.host.starts) != c.starts {
			t.Errorf("%s: starts %v", c.event, w.host.starts)
		}
		out = w.one(w.frame(1, lifecycle.ExistingPath{Path: w.work}))
		if out.Reason != lifecycle.ReasonTerminalUncertain || len(w.host.starts) != c.starts {
			t.Errorf("%s: the answer to a retry is %+v, starts %v", c.event, out, w.host.starts)
		}
	}
}
