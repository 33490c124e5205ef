package lifecycle

import (
	"encoding/json"
	"errors"
	"testing"
)

func TestResponseFrames(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Response
		want string
	}{
		{"create", CreateResponse{RequestID: "r", LifecycleRequestID: "l", SessionID: "s", ChatID: "42", Target: Worktree{Repo: "/r", Branch: "<b>"}},
			`{"type":"session_create_response","requestId":"r","status":"ok","lifecycleRequestId":"l","sessionId":"s","matchedBy":"spawn_marker",` +
				`"endpoint":{"url":"","token":""},"topic":{"chatId":"42","threadId":""},"target":{"kind":"worktree","repo":"/r","branch":"<b>"}}`},
		{"close", CloseResponse{RequestID: "r", SessionID: "s"},
			`{"type":"session_close_response","requestId":"r","status":"ok","sessionId":"s","processGone":true,"historyPreserved":true,"endpointStale":true}`},
		{"resume", ResumeResponse{RequestID: "r", SessionID: "s", Mode: ColdRestarted, EndpointURL: "ws://x", ChatID: "42"},
			`{"type":"session_resume_response","requestId":"r","status":"ok","sessionId":"s","mode":"cold_restarted",` +
				`"endpoint":{"url":"ws://x","token":""},"topic":{"chatId":"42","threadId":""}}`},
		{"error with candidates", ErrorResponse{RequestID: "r", Reason: ReasonAmbiguousTarget, Message: "several match",
			Candidates: []Candidate{{SessionID: "a", Path: ptr("/p"), MtimeMs: ptr(int64(5))}, {SessionID: "b"}}},
			`{"type":"session_lifecycle_error","requestId":"r","status":"error","reason":"ambiguous_target","message":"several match",` +
				`"candidates":[{"sessionId":"a","path":"/p","mtimeMs":5},{"sessionId":"b"}]}`},
		{"ready", SessionReady{SessionID: "s"}, `{"type":"session_ready","sessionId":"s"}`},
		{"ready with all", SessionReady{SessionID: "s", LifecycleRequestID: ptr("l"), StartupPromptRef: ptr(""), Repo: ptr("/r"), Branch: ptr("b"), Title: ptr("t")},
			`{"type":"session_ready","sessionId":"s","lifecycleRequestId":"l","startupPromptRef":"","repo":"/r","branch":"b","title":"t"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := c.r.Frame()
			equal(t, string(must(t, b, err)), c.want)
		})
	}
}

func TestReasons(t *testing.T) {
	if len(Reasons) != 12 {
		t.Errorf("%d reasons", len(Reasons))
	}
	for _, r := range Reasons {
		if b, err := (ErrorResponse{Reason: r}).Frame(); err != nil || !json.Valid(b) {
			t.Errorf("%s: %s, %v", r, b, err)
		}
	}
	for _, r := range []Reason{"", "Unauthorized", "prompt_unsupported", "unauthorized "} {
		if b, err := (ErrorResponse{Reason: r}).Frame(); !errors.Is(err, ErrUnknownReason) {
			t.Errorf("%q: %s, %v", r, b, err)
		}
	}
	for v, want := range map[Verb]Reason{SessionCreate: ReasonSpawnFailed, SessionClose: ReasonCloseRefused, SessionResume: ReasonTerminalUncertain} {
		equal(t, v.UncertainReason(), want)
	}
}

func TestResponsesRefuse(t *testing.T) {
	for _, r := range []Response{
		CreateResponse{}, ResumeResponse{}, ResumeResponse{Mode: "warm"}, CloseResponse{SessionID: "\xff"}, SessionReady{Title: ptr("\xed\xa0\x80")},
		ErrorResponse{Reason: ReasonNotFound, Candidates: []Candidate{{SessionID: "\xff"}}},
	} {
		if b, err := r.Frame(); err == nil {
			t.Errorf("%+v was written: %s", r, b)
		}
	}
}

func TestRespond(t *testing.T) {
	create := Request{RequestID: "second", LifecycleRequestID: "l2", ChatID: "42", Target: PlainDir{Path: "/d"}}
	closing := Request{RequestID: "second", ChatID: "42", Target: CloseTarget{SessionID: "s"}}
	resume := Request{RequestID: "second", ChatID: "42", Target: ResumeTarget{SessionIDOrPrefix: "s"}}
	entry := func(r Request, change func(*Entry)) *Entry {
		e := success(r.Verb())
		if change != nil {
			change(&e)
		}
		return &e
	}
	for _, c := range []struct {
		name string
		r    Request
		o    Outcome
		want Response // nil: an error
	}{
		{"pending", create, Outcome{Status: Pending}, ErrorResponse{RequestID: "second", Reason: ReasonTerminalUncertain, Message: MessageInProgress}},
		{"failed", resume, Outcome{Reason: ReasonNotFound, Message: "none"}, ErrorResponse{RequestID: "second", Reason: ReasonNotFound, Message: "none"}},
		{"uncertain hides its message", create, Outcome{Reason: ReasonTerminalUncertain, Message: "tmux said"}, NotProcessed("second")},
		{"failed without a reason", create, Outcome{}, nil},
		{"created", create, Outcome{Status: OK, Entry: entry(create, nil)},
			CreateResponse{RequestID: "second", LifecycleRequestID: "l2", SessionID: "s", EndpointURL: "", ChatID: "42", Target: PlainDir{Path: "/d"}}},
		{"closed", closing, Outcome{Status: OK, Entry: entry(closing, nil)}, CloseResponse{RequestID: "second", SessionID: "s"}},
		{"resumed", resume, Outcome{Status: OK, Entry: entry(resume, nil)}, ResumeResponse{RequestID: "second", SessionID: "s", Mode: ColdRestarted, ChatID: "42"}},
		{"no entry", create, Outcome{Status: OK}, nil},
		{"entry of another verb", create, Outcome{Status: OK, Entry: entry(closing, nil)}, nil},
		{"entry not done", create, Outcome{Status: OK, Entry: entry(create, func(e *Entry) { e.State = StateInProgress })}, nil},
		{"entry without results", create, Outcome{Status: OK, Entry: entry(create, func(e *Entry) { e.SessionID = nil })}, nil},
		{"process not gone", closing, Outcome{Status: OK, Entry: entry(closing, func(e *Entry) { *e.ProcessGone = false })}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Respond(c.r, c.o)
			if c.want == nil {
				if err == nil {
					t.Errorf("answered %+v", got)
				}
				return
			}
			equal(t, must(t, got, err), c.want)
		})
	}
}

// Other programs match these texts: changing one is changing the protocol.
func TestMessages(t *testing.T) {
	for got, want := range map[string]string{
		MessageNotPaired:         "chat not paired",
		MessageCloseNeedsForce:   "session_close requires force=true; graceful close is not supported",
		MessagePromptUnavailable: "startup prompt capability transport is unavailable; retry without a startup prompt",
		MessageRateLimited:       "create rate limit exceeded",
		MessageEmptyIDs:          "create lifecycle ids must be non-empty",
		MessageInProgress:        "request already in progress",
		MessageFrameTooLong:      "request frame exceeds 256 KiB",
	} {
		equal(t, got, want)
	}
}
