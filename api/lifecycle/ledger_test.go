package lifecycle

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// success is an entry of a verb with all its results.
func success(v Verb) Entry {
	e := Entry{RequestHash: "h", State: StateSuccess, RequestID: "first", Verb: v, CreatedAt: 1000, UpdatedAt: 2000,
		TargetSummary: json.RawMessage(`{}`), SessionID: ptr("s"), TmuxSession: ptr("t"), EndpointURL: ptr("")}
	switch v {
	case SessionCreate:
		e.IntendedSessionID, e.SessionStateFile = ptr("s"), ptr("/f")
	case SessionClose:
		e.ProcessGone, e.EndpointURL = ptr(true), nil
	case SessionResume:
		e.ResumeMode = ColdRestarted
	}
	return e
}

func TestLedgerBytes(t *testing.T) {
	failed := success(SessionClose)
	failed.State, failed.ProcessGone, failed.Reason, failed.SessionID, failed.TmuxSession = StateFailure, nil, ReasonCloseRefused, nil, nil
	failed.CreatedAt = 999
	created := success(SessionCreate)
	created.StartupPromptRef = ptr("")
	created.TargetSummary = must(t, json.RawMessage(nil), nil)
	created.TargetSummary, _ = Summary(Worktree{Repo: "/<r>", Branch: "b"})
	l := Ledger{LedgerKey("42", 8): created, LedgerKey("42", 7): success(SessionResume), LedgerKey("43", -1): failed}
	want := `{"version":1,"entries":{` +
		`"43:-1":{"requestHash":"h","state":"failure","requestId":"first","verb":"session_close","createdAt":999,"updatedAt":2000,"targetSummary":{},"reason":"close_refused"},` +
		`"42:7":{"requestHash":"h","state":"success","requestId":"first","verb":"session_resume","createdAt":1000,"updatedAt":2000,"targetSummary":{},` +
		`"sessionId":"s","tmuxSession":"t","endpointUrl":"","resumeMode":"cold_restarted"},` +
		`"42:8":{"requestHash":"h","state":"success","requestId":"first","verb":"session_create","intendedSessionId":"s","startupPromptRef":"","createdAt":1000,"updatedAt":2000,` +
		`"targetSummary":{"kind":"worktree","repo":"/<r>","branch":"b"},"sessionId":"s","tmuxSession":"t","sessionStateFile":"/f","endpointUrl":""}}}`
	b, err := l.Encode()
	equal(t, string(must(t, b, err)), want)
	again, err := DecodeLedger(b)
	equal(t, must(t, again, err), l)

	b, err = Ledger{}.Encode()
	equal(t, string(must(t, b, err)), `{"version":1,"entries":{}}`)
}

func TestSummary(t *testing.T) {
	for want, target := range map[string]Target{
		`{"kind":"existing_path","path":"/p"}`:         ExistingPath{Path: "/p"},
		`{"kind":"plain_dir","path":"/p"}`:             PlainDir{Path: "/p"},
		`{"kind":"worktree","repo":"/r","branch":"b"}`: Worktree{Repo: "/r", Branch: "b"},
		`{"sessionId":"s"}`:                            CloseTarget{SessionID: "s", TmuxSession: ptr("t"), SessionStateFile: ptr("/f")},
		`{"sessionIdOrPrefix":"s"}`:                    ResumeTarget{SessionIDOrPrefix: "s", Path: ptr("/p")},
	} {
		got, err := Summary(target)
		equal(t, string(must(t, got, err)), want)
	}
}

const (
	goodCreate = `{"requestHash":"h","state":"success","requestId":"r","verb":"session_create","intendedSessionId":"i","createdAt":1,"updatedAt":2,"targetSummary":{"kind":"plain_dir","path":"/"},"sessionId":"s","tmuxSession":"t","endpointUrl":""}`
	goodClose  = `{"requestHash":"h","state":"success","requestId":"r","verb":"session_close","createdAt":1,"updatedAt":2,"targetSummary":{"sessionId":"s"},"sessionId":"s","processGone":true}`
	goodResume = `{"requestHash":"h","state":"success","requestId":"r","verb":"session_resume","createdAt":1,"updatedAt":2,"targetSummary":{"sessionIdOrPrefix":"s"},"sessionId":"s","tmuxSession":"t","endpointUrl":"","resumeMode":"reattached"}`
	goodOpen   = `{"requestHash":"h","state":"in_progress","requestId":"r","verb":"session_close","createdAt":1,"updatedAt":2,"targetSummary":{}}`
	goodFailed = `{"requestHash":"h","state":"failure","requestId":"r","verb":"session_resume","createdAt":1,"updatedAt":2,"targetSummary":{},"reason":"not_found"}`
)

func TestDecodeLedger(t *testing.T) {
	one := func(entry string) string { return `{"version":1,"entries":{"42:7":` + entry + `}}` }
	without := func(entry, part string) string {
		if !strings.Contains(entry, part) {
			t.Fatalf("%s is not in %s", part, entry)
		}
		return one(strings.Replace(entry, part, "", 1))
	}
	with := func(entry, old, new string) string {
		if !strings.Contains(entry, old) {
			t.Fatalf("%s is not in %s", old, entry)
		}
		return one(strings.Replace(entry, old, new, 1))
	}
	for _, c := range []struct {
		name, doc string
		ok        bool
	}{
		{"empty", `{"version":1,"entries":{}}`, true},
		{"create", one(goodCreate), true},
		{"close", one(goodClose), true},
		{"resume", one(goodResume), true},
		{"in progress", one(goodOpen), true},
		{"failure", one(goodFailed), true},
		{"uncertain", with(goodFailed, "failure", "terminal_uncertain"), true},
		{"unknown members", with(goodOpen, "{", `{"x":[null],`), true},
		{"numbers as ECMAScript reads them", with(goodOpen, `"createdAt":1`, `"createdAt":1e3`), true},
		{"any target summary", with(goodOpen, `"targetSummary":{}`, `"targetSummary":{ "x" : [ 1 ] }`), true},

		{"nothing", ``, false},
		{"null", `null`, false},
		{"array", `[]`, false},
		{"no version", `{"entries":{}}`, false},
		{"version 2", `{"version":2,"entries":{}}`, false},
		{"version as a string", `{"version":"1","entries":{}}`, false},
		{"no entries", `{"version":1}`, false},
		{"entries as an array", `{"version":1,"entries":[]}`, false},
		{"null entry", one(`null`), false},
		{"entry as an array", one(`[]`), false},
		{"key twice", `{"version":1,"entries":{"a":` + goodOpen + `,"a":` + goodOpen + `}}`, false},
		{"member twice", with(goodOpen, "{", `{"state":"success",`), false},
		{"lone surrogate", with(goodOpen, `"r"`, `"\ud800"`), false},
		{"bad UTF-8", with(goodOpen, `"r"`, "\"\xff\""), false},
		{"no hash", without(goodOpen, `"requestHash":"h",`), false},
		{"unknown state", with(goodOpen, "in_progress", "pending"), false},
		{"unknown verb", with(goodOpen, "session_close", "session_fork"), false},
		{"no request id", without(goodOpen, `"requestId":"r",`), false},
		{"time as a string", with(goodOpen, `"createdAt":1`, `"createdAt":"1"`), false},
		{"time that is no integer", with(goodOpen, `"createdAt":1`, `"createdAt":1.5`), false},
		{"no update time", without(goodOpen, `"updatedAt":2,`), false},
		{"no target summary", without(goodOpen, `,"targetSummary":{}`), false},
		{"null target summary", with(goodOpen, `"targetSummary":{}`, `"targetSummary":null`), false},
		{"target summary as an array", with(goodOpen, `"targetSummary":{}`, `"targetSummary":[]`), false},
		{"null optional", with(goodOpen, "{", `{"sessionId":null,`), false},
		{"failure without a reason", without(goodFailed, `,"reason":"not_found"`), false},
		{"failure with an unknown reason", with(goodFailed, "not_found", "lost"), false},
		{"uncertain without a reason", strings.Replace(without(goodFailed, `,"reason":"not_found"`), "failure", "terminal_uncertain", 1), false},
		{"create without intended id", without(goodCreate, `"intendedSessionId":"i",`), false},
		{"create without session", without(goodCreate, `,"sessionId":"s"`), false},
		{"create without tmux session", without(goodCreate, `,"tmuxSession":"t"`), false},
		{"create without endpoint", without(goodCreate, `,"endpointUrl":""`), false},
		{"close without session", without(goodClose, `,"sessionId":"s","processGone":true`), false},
		{"close without processGone", without(goodClose, `,"processGone":true`), false},
		{"close with processGone as a string", with(goodClose, `true`, `"true"`), false},
		{"close with null processGone", with(goodClose, `true`, `null`), false},
		{"resume without session", without(goodResume, `,"sessionId":"s"`), false},
		{"resume without tmux session", without(goodResume, `,"tmuxSession":"t"`), false},
		{"resume without endpoint", without(goodResume, `,"endpointUrl":""`), false},
		{"resume with another mode", with(goodResume, "reattached", "warm"), false},
		{"resume with an empty mode", with(goodResume, "reattached", ""), false},
		{"one bad among good", `{"version":1,"entries":{"a":` + goodOpen + `,"b":{}}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := DecodeLedger([]byte(c.doc))
			if c.ok != (err == nil) || err != nil && (!errors.Is(err, ErrInvalidLedger) || l != nil) {
				t.Fatalf("%v, %v", l, err)
			}
			if err != nil {
				return
			}
			b, err := l.Encode()
			again, err2 := DecodeLedger(must(t, b, err))
			equal(t, must(t, again, err2), l)
		})
	}
}

func TestMigration(t *testing.T) {
	l, err := DecodeLedger([]byte(`{"version":1,"entries":{` +
		`"a":` + strings.Replace(goodResume, `,"resumeMode":"reattached"`, "", 1) + `,` +
		`"b":` + strings.Replace(goodClose, "true", "false", 1) + `,` +
		`"c":` + goodClose + `,"d":` + goodOpen + `}}`))
	must(t, l, err)
	equal(t, l["a"].ResumeMode, Reattached)
	b := l["b"]
	if b.State != StateTerminalUncertain || b.Reason != ReasonTerminalUncertain || b.ProcessGone != nil || b.UpdatedAt != 2 {
		t.Errorf("close that saw no end: %+v", b)
	}
	if c := l["c"]; c.State != StateSuccess || !*c.ProcessGone {
		t.Errorf("close: %+v", c)
	}
	equal(t, l["d"].State, StateInProgress)
}

func TestEncodeRefuses(t *testing.T) {
	for name, change := range map[string]func(*Entry){
		"no reason":              func(e *Entry) { e.State = StateFailure },
		"unknown reason":         func(e *Entry) { e.Reason = "lost" },
		"unknown mode":           func(e *Entry) { e.ResumeMode = "warm" },
		"unknown state":          func(e *Entry) { e.State = "" },
		"no results":             func(e *Entry) { e.EndpointURL = nil },
		"no summary":             func(e *Entry) { e.TargetSummary = nil },
		"summary of two":         func(e *Entry) { e.TargetSummary = json.RawMessage(`{}{}`) },
		"summary not Unicode":    func(e *Entry) { e.TargetSummary = json.RawMessage(`{"a":"\ud800"}`) },
		"summary with one twice": func(e *Entry) { e.TargetSummary = json.RawMessage(`{"a":1,"a":1}`) },
		"not Unicode":            func(e *Entry) { e.RequestID = "\xff" },
		"unsafe time":            func(e *Entry) { e.CreatedAt = 1 << 53 },
	} {
		e := success(SessionCreate)
		change(&e)
		if b, err := (Ledger{"a": e}).Encode(); !errors.Is(err, ErrInvalidLedger) {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
}

func TestClassify(t *testing.T) {
	notGone := success(SessionClose)
	notGone.ProcessGone = ptr(false)
	with := func(s State, r Reason) Entry {
		e := success(SessionCreate)
		e.State, e.Reason = s, r
		return e
	}
	failed := func(r Reason, m string) Outcome { return Outcome{Status: Failed, Reason: r, Message: m} }
	unknown := Duplicate{RepeatedUncertain, failed(ReasonTerminalUncertain, "prior attempt outcome unknown; manual check"), EventRecoveredInProgress, ReasonTerminalUncertain}
	conflict := Duplicate{Conflict, failed(ReasonDuplicateConflict, "update id reused with different body"), EventRejected, ReasonDuplicateConflict}
	done, open := success(SessionResume), with(StateInProgress, "")
	for _, c := range []struct {
		name string
		e    *Entry
		hash string
		want Duplicate
	}{
		{"new", nil, "h", Duplicate{}},
		{"conflict", &done, "other", conflict},
		{"conflict while in progress", &open, "other", conflict},
		{"conflict with a broken entry", &Entry{RequestHash: "h"}, "other", conflict},
		{"success", &done, "h", Duplicate{RepeatedSuccess, Outcome{Status: OK, Entry: &done}, EventDuplicateReack, ""}},
		{"failure", ptr(with(StateFailure, ReasonNotFound)), "h",
			Duplicate{RepeatedFailure, failed(ReasonNotFound, "previously failed; send a new update to retry"), EventDuplicateReack, ReasonNotFound}},
		{"in progress", &open, "h", Duplicate{RepeatedPending, Outcome{Status: Pending, Entry: &open}, EventRecoveredInProgress, ""}},
		{"uncertain", ptr(with(StateTerminalUncertain, ReasonSpawnFailed)), "h", unknown},
		{"close that saw no end", &notGone, "h", unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Classify(c.e, c.hash)
			equal(t, must(t, got, err), c.want)
		})
	}
	if _, err := Classify(ptr(with(StateFailure, "")), "h"); !errors.Is(err, ErrInvalidLedger) {
		t.Errorf("failure without a reason: %v", err)
	}
	if notGone.State != StateSuccess {
		t.Error("Classify changed the entry")
	}
}
