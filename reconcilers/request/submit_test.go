package request

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
)

// However many deliveries of one request there are, it is done once, and all get
// the same answer.
func TestParallel(t *testing.T) {
	for _, n := range []int{2, 10, 100} {
		for _, c := range []struct {
			name    string
			prepare func(*world)
			target  func(*world) lifecycle.Target
			starts  int
			alive   int
		}{
			{"create", func(*world) {}, func(w *world) lifecycle.Target { return lifecycle.ExistingPath{Path: w.work} }, 1, 1},
			{"close", func(w *world) { w.has("web") }, func(*world) lifecycle.Target { return lifecycle.CloseTarget{SessionID: "web"} }, 1, 0},
			{"resume", func(w *world) { w.has("web", stoppedSession) }, func(*world) lifecycle.Target { return lifecycle.ResumeTarget{SessionIDOrPrefix: "web"} }, 1, 1},
		} {
			t.Run(fmt.Sprint(c.name, " ", n), func(t *testing.T) {
				w := newWorld(t)
				c.prepare(w)
				req := w.frame(7, c.target(w))
				first := w.submit(n, req)
				for _, out := range append(first, w.submit(2, req)...) {
					if out.err != nil || out.Status != lifecycle.OK || *out.Entry.SessionID != *first[0].Entry.SessionID || out.Entry.ResumeMode != first[0].Entry.ResumeMode {
						t.Fatalf("an answer is %+v", out)
					}
					if _, err := lifecycle.Respond(req, out.Outcome); err != nil {
						t.Fatal(err)
					}
				}
				if len(w.host.starts) != c.starts || w.host.alive() != c.alive {
					t.Errorf("starts %v, %d live", w.host.starts, w.host.alive())
				}
				rows := map[string]int{}
				for _, e := range w.audit.events() {
					rows[e]++
				}
				if rows["accepted"] != 1 || rows["success"] != 1 || rows["duplicate_reack"] != n+1 {
					t.Errorf("audit rows: %v", rows)
				}
			})
		}
	}
}

// Bodies that race for one key: one is done, the others are told so.
func TestConflict(t *testing.T) {
	w := newWorld(t)
	var reqs []lifecycle.Request
	for i := range 10 {
		r := w.frame(7, lifecycle.PlainDir{Path: fmt.Sprintf("%s/%d", w.work, i)})
		r.IntendedSessionID = fmt.Sprintf("s%d", i)
		reqs = append(reqs, r)
	}
	done := 0
	for _, out := range w.submit(3, reqs...) {
		must(t, out.err)
		switch {
		case out.Status == lifecycle.OK:
			done++
		case out.Reason != lifecycle.ReasonDuplicateConflict || out.Message != lifecycle.MessageConflict:
			t.Errorf("an answer is %+v", out)
		}
	}
	if done != 3 || len(w.host.starts) != 1 {
		t.Errorf("%d of 3 were done, starts %v", done, w.host.starts)
	}
	if out := w.one(w.frame(7, lifecycle.CloseTarget{SessionID: w.host.starts[0]})); out.Reason != lifecycle.ReasonDuplicateConflict || w.host.alive() != 1 {
		t.Errorf("another verb: %+v, %d live", out, w.host.alive())
	}
}

func TestRepeats(t *testing.T) {
	w := newWorld(t)
	req := w.frame(1, lifecycle.CloseTarget{SessionID: "nobody"})
	if out := w.one(req); out.Reason != lifecycle.ReasonNotFound || out.Message != `no session has the id "nobody"` {
		t.Errorf("the first answer is %+v", out)
	}
	if out := w.one(req); out.Reason != lifecycle.ReasonNotFound || out.Message != lifecycle.MessageFailedBefore {
		t.Errorf("the second answer is %+v", out)
	}
	w.wantRows("accepted", "failure/not_found", "duplicate_reack/not_found")

	w = newWorld(t)
	w.has("web")
	w.host.slow["web"] = true
	req = w.frame(1, lifecycle.CloseTarget{SessionID: "web"})
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan submitted, 2)
	for range 2 {
		go func() {
			out, err := w.r.Submit(ctx, "control", req)
			answers <- submitted{out, err}
		}()
	}
	for name := ledger.Name("control", "42:1"); w.get(name) == nil || w.get(name).Status.Step == ""; {
		w.goOn(10)
	}
	cancel() // both connections break
	for range 2 {
		if out := <-answers; out.err != nil || out.Status != lifecycle.Pending {
			t.Errorf("an answer is %+v", out)
		}
	}
	w.wantRows("accepted", "recovered_in_progress")
	w.advance(effectTime + lookAgain)
	if out := w.one(req); out.Reason != lifecycle.ReasonTerminalUncertain || out.Message != lifecycle.MessageOutcomeUnknown {
		t.Errorf("the answer to what is uncertain is %+v", out)
	}
	w.wantRows("accepted", "recovered_in_progress", "terminal_uncertain/close_refused", "recovered_in_progress/terminal_uncertain")
}

func TestCandidates(t *testing.T) {
	w := newWorld(t)
	w.has("web-1")
	w.has("web-2")
	out := w.one(w.frame(1, lifecycle.ResumeTarget{SessionIDOrPrefix: "web"}))
	if out.Reason != lifecycle.ReasonAmbiguousTarget || len(out.Candidates) != 2 || out.Candidates[0].SessionID != "web-1" || *out.Candidates[1].Path != w.work {
		t.Errorf("the outcome is %+v", out)
	}
}

// Requests for one session follow each other: what the second finds is what the
// first has made of it.
func TestOneEffectAtATime(t *testing.T) {
	w := newWorld(t)
	w.has("web", stoppedSession)
	reqs := []lifecycle.Request{w.frame(1, lifecycle.ResumeTarget{SessionIDOrPrefix: "web"}), w.frame(2, lifecycle.ResumeTarget{SessionIDOrPrefix: "web"})}
	modes := map[lifecycle.Mode]int{}
	for _, out := range w.submit(1, reqs...) {
		must(t, out.err)
		modes[out.Entry.ResumeMode]++
	}
	if modes[lifecycle.ColdRestarted] != 1 || modes[lifecycle.Reattached] != 1 || len(w.host.starts) != 1 {
		t.Errorf("modes %v, starts %v", modes, w.host.starts)
	}

	w.host.slow["web"] = true
	w.ask("close", about(v1alpha1.VerbClose, "web"))
	w.ask("resume", about(v1alpha1.VerbResume, "web"))
	w.want("resume", v1alpha1.RequestInProgress, "")
	w.host.slow["web"] = false
	w.settle()
	w.want("close", v1alpha1.RequestSuccess, "")
	if rq := w.want("resume", v1alpha1.RequestSuccess, ""); rq.Status.ResumeMode != string(lifecycle.ColdRestarted) || len(w.host.starts) != 2 {
		t.Errorf("mode %s, starts %v", rq.Status.ResumeMode, w.host.starts)
	}
}

// Two files of one request: the first has the entry, the other shows it.
func TestDuplicateFiles(t *testing.T) {
	w := newWorld(t)
	spec := w.create("web")
	spec.Key = "k"
	w.file(request("b", spec))
	w.file(request("a", spec))
	other := w.create("other")
	other.Key, other.Target.Create.Path = "k", ptr("/other")
	w.file(request("c", other))
	w.host.slow["web"] = true
	w.settle()
	w.want("a", v1alpha1.RequestInProgress, "")
	if rq := w.want("b", v1alpha1.RequestInProgress, ""); rq.Status.DuplicateOf != "a" {
		t.Errorf("b is %+v", rq.Status)
	}
	w.host.slow["web"] = false
	w.settle()
	w.want("a", v1alpha1.RequestSuccess, "")
	rq := w.want("b", v1alpha1.RequestSuccess, "")
	w.wantCondition(rq, v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
	rq = w.want("c", "", lifecycle.ReasonDuplicateConflict)
	w.wantCondition(rq, v1alpha1.Accepted, metav1.ConditionFalse, "DuplicateConflict")
	if len(w.host.starts) != 1 {
		t.Errorf("starts %v", w.host.starts)
	}
	w.ask("b", other) // it repeats a request, and says another by now
	w.wantCondition(w.want("b", v1alpha1.RequestSuccess, ""), v1alpha1.Accepted, metav1.ConditionTrue, v1alpha1.ReasonSpecChanged)
	if len(w.host.starts) != 1 {
		t.Errorf("starts %v", w.host.starts)
	}
	all, err := w.r.Store.List(t.Context())
	must(t, err)
	l, left, err := ledger.Export(all)
	must(t, err)
	if len(l) != 1 || left != 0 || l["files/k"].State != lifecycle.StateSuccess {
		t.Errorf("the ledger is %v, %d left", l, left)
	}
	if _, err := l.Encode(); err != nil {
		t.Error(err)
	}
}

// A delivery whose object could not be written is not known to be done, and a
// retry finds out.
func TestSubmitFailsToWrite(t *testing.T) {
	for _, after := range []bool{false, true} {
		w := newWorld(t)
		req := w.frame(1, lifecycle.ExistingPath{Path: w.work})
		w.calls.at, w.calls.after = 1, after
		if out := w.submit(1, req)[0]; !errors.Is(out.err, errInjected) {
			t.Fatalf("the answer is %+v", out)
		}
		if out := w.one(req); out.Status != lifecycle.OK {
			t.Errorf("the answer to the retry is %+v", out)
		}
		if len(w.host.starts) != 1 {
			t.Errorf("starts %v", w.host.starts)
		}
	}
}
