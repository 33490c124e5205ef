package request

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
)

// Each gate comes before the ones below it: a request that fails several is
// refused by the first.
func TestGates(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(w *world, r *lifecycle.Request)
		reason  lifecycle.Reason
		message string
		rows    []string
	}{
		{"1 text that is not Unicode", func(w *world, r *lifecycle.Request) {
			r.Target, r.ChatID, w.psmux = lifecycle.PlainDir{Path: "/\xed\xa0\x80"}, "99", true
		}, lifecycle.ReasonInvalidTarget, lifecycle.MessageInvalidTarget, nil},
		{"1 no target", func(_ *world, r *lifecycle.Request) { r.Target = nil }, lifecycle.ReasonInvalidTarget, lifecycle.MessageInvalidTarget, nil},
		{"3 another chat", func(w *world, r *lifecycle.Request) {
			r.Target, r.Force, r.ChatID, w.psmux = lifecycle.CloseTarget{SessionID: "web"}, nil, "99", true
		}, lifecycle.ReasonUnauthorized, lifecycle.MessageNotPaired, []string{"rejected/unauthorized"}},
		{"3 no chat is paired", func(w *world, r *lifecycle.Request) { w.r.PairedChat, r.ChatID = "", "" },
			lifecycle.ReasonUnauthorized, lifecycle.MessageNotPaired, []string{"rejected/unauthorized"}},
		{"4 a close without force", func(w *world, r *lifecycle.Request) {
			r.Target, r.Force, w.psmux = lifecycle.CloseTarget{SessionID: "web"}, nil, true
		}, lifecycle.ReasonInvalidTarget, lifecycle.MessageCloseNeedsForce, []string{"rejected/invalid_target"}},
		{"4 a close with force false", func(_ *world, r *lifecycle.Request) {
			r.Target, r.Force = lifecycle.CloseTarget{SessionID: "web"}, ptr(false)
		}, lifecycle.ReasonInvalidTarget, lifecycle.MessageCloseNeedsForce, []string{"rejected/invalid_target"}},
		{"5 an empty prompt of a create", func(w *world, r *lifecycle.Request) { r.StartupPromptRef, w.psmux = ptr(""), true },
			lifecycle.ReasonInvalidTarget, lifecycle.MessagePromptUnavailable, nil},
		{"5 a prompt of a resume", func(_ *world, r *lifecycle.Request) {
			r.Target, r.StartupPromptRef = lifecycle.ResumeTarget{SessionIDOrPrefix: "web"}, ptr("/p")
		}, lifecycle.ReasonInvalidTarget, lifecycle.MessagePromptUnavailable, nil},
		{"6 psmux", func(w *world, _ *lifecycle.Request) { w.psmux = true },
			lifecycle.ReasonUnsupportedPlatform, lifecycle.MessageUnsupportedPlatform, []string{"rejected/unsupported_platform"}},
		{"8 too many", func(w *world, r *lifecycle.Request) { w.r.Limit.Max, r.IntendedSessionID = 0, "" },
			lifecycle.ReasonRateLimited, lifecycle.MessageRateLimited, []string{"rate_limited/rate_limited"}},
		{"9 an empty id", func(_ *world, r *lifecycle.Request) { r.LifecycleRequestID = "" }, lifecycle.ReasonInvalidTarget, lifecycle.MessageEmptyIDs, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			req := w.frame(1, lifecycle.PlainDir{Path: w.work})
			c.change(w, &req)
			out := w.one(req)
			if out.Status != lifecycle.Failed || out.Reason != c.reason || out.Message != c.message {
				t.Errorf("the outcome is %+v, want %s, %q", out, c.reason, c.message)
			}
			w.wantRows(c.rows...)
			if keys := w.store.Keys(v1alpha1.KindSessionRequest); len(keys) != 0 {
				t.Errorf("there are %v", keys)
			}
		})
	}
	t.Run("2 no key", func(t *testing.T) {
		w := newWorld(t)
		w.r.AuditKey = make([]byte, 31)
		if out := w.submit(1, w.frame(1, lifecycle.PlainDir{Path: w.work}))[0]; !errors.Is(out.err, lifecycle.ErrInvalidAuditKey) {
			t.Errorf("the outcome is %+v", out)
		}
		w.wantRows()
	})
	t.Run("a refusal that cannot be audited", func(t *testing.T) {
		w := newWorld(t)
		w.psmux, w.audit.fail = true, map[lifecycle.Event]error{lifecycle.EventRejected: errInjected}
		if out := w.submit(1, w.frame(1, lifecycle.PlainDir{Path: w.work}))[0]; !errors.Is(out.err, errInjected) {
			t.Errorf("the outcome is %+v", out)
		}
	})
}

// The same gates judge what a file says; who wrote it need be no chat.
func TestGatesOfFiles(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*world, *v1alpha1.SessionRequestSpec)
		reason lifecycle.Reason
		rows   []string
	}{
		{"3 another chat", func(_ *world, s *v1alpha1.SessionRequestSpec) {
			s.Requester = &v1alpha1.Requester{ChatID: "99", UpdateID: 1}
		},
			lifecycle.ReasonUnauthorized, []string{"rejected/unauthorized"}},
		{"5 a prompt", func(_ *world, s *v1alpha1.SessionRequestSpec) { s.StartupPromptRef = ptr("") }, lifecycle.ReasonInvalidTarget, nil},
		{"6 psmux", func(w *world, _ *v1alpha1.SessionRequestSpec) { w.psmux = true }, lifecycle.ReasonUnsupportedPlatform, []string{"rejected/unsupported_platform"}},
		{"9 an empty id", func(_ *world, s *v1alpha1.SessionRequestSpec) { s.IDs.IntendedSessionID = "" }, lifecycle.ReasonInvalidTarget, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			spec := w.create("web")
			c.change(w, &spec)
			rq := w.ask("one", spec)
			w.want("one", "", c.reason)
			w.wantCondition(rq, v1alpha1.Accepted, metav1.ConditionFalse, camel(c.reason))
			w.wantCondition(rq, v1alpha1.Complete, metav1.ConditionFalse, v1alpha1.ReasonNotAccepted)
			w.wantRows(c.rows...)
			if len(w.host.starts) != 0 {
				t.Error("something was started")
			}
			w.enqueue(requestKey("one"))
			w.settle()
			w.wantRows(c.rows...)
			w.unfile(requestKey("one"))
			w.settle()
			if w.get("one") != nil {
				t.Error("what was refused outlives its file")
			}
		})
	}
}

func TestRateLimit(t *testing.T) {
	w := newWorld(t)
	create := func(n int64) lifecycle.Outcome { return w.one(w.frame(n, lifecycle.ExistingPath{Path: w.work})) }
	for n := range int64(3) {
		if out := create(n); out.Status != lifecycle.OK {
			t.Fatalf("create %d: %+v", n, out)
		}
	}
	if out := create(3); out.Reason != lifecycle.ReasonRateLimited {
		t.Fatalf("the fourth: %+v", out)
	}
	if out := create(0); out.Status != lifecycle.OK {
		t.Fatalf("a retry of the first: %+v", out)
	}
	if out := w.one(w.frame(10, lifecycle.ResumeTarget{SessionIDOrPrefix: "s0"})); out.Status != lifecycle.OK {
		t.Fatalf("a resume: %+v", out)
	}
	w.restart() // the count is on the disk
	w.settle()
	if out := create(3); out.Reason != lifecycle.ReasonRateLimited {
		t.Fatalf("the fourth, after a restart: %+v", out)
	}
	w.ask("one", w.create("web")) // who writes files has no limit
	w.want("one", v1alpha1.RequestSuccess, "")
	w.clock.Step(10 * time.Minute)
	w.settle()
	if out := create(3); out.Status != lifecycle.OK {
		t.Fatalf("the fourth, when it was time: %+v", out)
	}
	if n := len(w.host.starts); n != 5 {
		t.Errorf("%d starts, want 5", n)
	}
}

// An empty id spends one of the chat's creates, each time it comes.
func TestEmptyIDsSpend(t *testing.T) {
	w := newWorld(t)
	req := w.frame(1, lifecycle.ExistingPath{Path: w.work})
	req.IntendedSessionID = ""
	for range 3 {
		if out := w.one(req); out.Message != lifecycle.MessageEmptyIDs {
			t.Fatalf("the outcome is %+v", out)
		}
	}
	if out := w.one(req); out.Reason != lifecycle.ReasonRateLimited {
		t.Fatalf("the fourth: %+v", out)
	}
}

func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.json")
	must(t, err)
	var doc struct {
		Vectors []struct {
			ID, Kind string
			Input    json.RawMessage
			Expected json.RawMessage
		}
	}
	must(t, json.Unmarshal(data, &doc))
	for _, v := range doc.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			w := newWorld(t)
			var in struct {
				Frame                                 json.RawMessage
				FrameJSON                             *string `json:"frameJson"`
				PairedChatID                          string  `json:"pairedChatId"`
				NowMs                                 int64   `json:"nowMs"`
				LifecycleRequestID, IntendedSessionID *string
				Max                                   int
				WindowMs                              int64 `json:"windowMs"`
				Chat                                  string
				Calls                                 []int64
				CWD, SessionID, TmuxSession           string
			}
			must(t, json.Unmarshal(v.Input, &in))
			frame := lifecycle.Request{Target: lifecycle.ExistingPath{Path: w.work}, ChatID: chat, UpdateID: 1}
			if in.FrameJSON != nil {
				in.Frame = json.RawMessage(*in.FrameJSON)
			}
			if in.Frame != nil {
				f := lifecycle.ParseFrame(in.Frame)
				if f.Verdict != lifecycle.Admitted && f.Verdict != lifecycle.InvalidTarget {
					t.Fatalf("the frame was not read: %+v", f)
				}
				frame = f.Request // without a target when that is not Unicode
			}
			if in.PairedChatID != "" {
				w.r.PairedChat = in.PairedChatID
			}
			switch v.Kind {
			case "audit-line":
				w.clock.SetTime(time.UnixMilli(in.NowMs))
				_, err := w.r.Submit(t.Context(), "control", frame)
				must(t, err)
				line, err := w.audit.rows[0].Line()
				must(t, err)
				var want string
				must(t, json.Unmarshal(v.Expected, &want))
				if got := strings.TrimSuffix(string(line), "\n"); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			case "lifecycle-audit-events":
				var want []string
				must(t, json.Unmarshal(v.Expected, &want))
				w.one(frame)
				w.wantRows(want...)
			case "lifecycle-outcome":
				var want struct {
					Reason, Message string
					Outcome         *struct{ Reason, Message string }
				}
				must(t, json.Unmarshal(v.Expected, &want))
				if want.Outcome != nil {
					want.Reason, want.Message = want.Outcome.Reason, want.Outcome.Message
				}
				if in.LifecycleRequestID != nil {
					frame.LifecycleRequestID, frame.IntendedSessionID = *in.LifecycleRequestID, *in.IntendedSessionID
				}
				out := w.one(frame)
				if out.Status != lifecycle.Failed || string(out.Reason) != want.Reason || want.Message != "" && out.Message != want.Message {
					t.Errorf("the outcome is %+v, want %+v", out, want)
				}
				if n := len(w.store.Keys(v1alpha1.KindSessionRequest)); n != 0 || len(w.host.starts) != 0 {
					t.Errorf("%d objects, starts %v", n, w.host.starts)
				}
				w.wantRows()
			case "rate-limiter":
				var want, got []bool
				must(t, json.Unmarshal(v.Expected, &want))
				limit := lifecycle.RateLimit{Max: in.Max, Window: time.Duration(in.WindowMs) * time.Millisecond}
				x := index{hits: map[string][]hit{}}
				for i, ms := range in.Calls {
					_, ok := x.reserve(limit, in.Chat, api.Key{Name: fmt.Sprint(i)}, time.UnixMilli(ms))
					got = append(got, ok)
				}
				if !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
			case "path":
				var want string
				must(t, json.Unmarshal(v.Expected, &want))
				if got := lifecycle.StateFile(in.CWD, in.SessionID, in.TmuxSession); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			default:
				t.Errorf("a row of kind %s", v.Kind)
			}
		})
	}
	t.Logf("%d vectors", len(doc.Vectors))
}
