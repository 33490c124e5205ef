package lifecycle

import (
	"errors"
	"testing"
	"time"
)

func TestStrings(t *testing.T) {
	for in, want := range map[string]string{
		"":                         `""`,
		"a\"\\/<>&'":               `"a\"\\/<>&'"`,
		"\x00\x01\x1f\x7f":         `"\u0000\u0001\u001f` + "\x7f\"",
		"\b\t\n\v\f\r\x1b":         `"\b\t\n\u000b\f\r\u001b"`,
		"\u0080\u2028\u2029\ufeff": "\"\u0080\u2028\u2029\ufeff\"",
		"😀é新\ufffd\uffff":          "\"😀é新\ufffd\uffff\"",
	} {
		b, err := appendString(nil, in)
		equal(t, string(must(t, b, err)), want)
	}
	for _, in := range []string{"\xff", "a\xed\xa0\x80", "\xed\xa0\xbd\xed\xb8\x80", "\xc0\x80", "\xf4\x90\x80\x80", "é"[:1]} {
		if b, err := appendString(nil, in); !errors.Is(err, ErrNotUnicode) {
			t.Errorf("%q gave %s, %v", in, b, err)
		}
	}
}

func TestCanonicalRequest(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Request
		want string
	}{
		{"empty strings are not null", Request{Target: PlainDir{}, StartupPromptRef: ptr(""), ModelPreset: ptr("")},
			`{"type":"session_create","target":{"kind":"plain_dir","path":""},"startupPromptRef":"","modelPreset":"","force":null}`},
		{"what belongs to other verbs is not hashed", Request{Target: CloseTarget{TmuxSession: ptr("")}, StartupPromptRef: ptr("x"), ModelPreset: ptr("x")},
			`{"type":"session_close","target":{"kind":"session_close","sessionId":"","tmuxSession":"","sessionStateFile":null},"startupPromptRef":null,"modelPreset":null,"force":false}`},
		{"force is false unless true", Request{Target: CloseTarget{}, Force: ptr(false)},
			`{"type":"session_close","target":{"kind":"session_close","sessionId":"","tmuxSession":null,"sessionStateFile":null},"startupPromptRef":null,"modelPreset":null,"force":false}`},
		{"the prompt of a resume is not hashed", Request{Target: ResumeTarget{SessionIDOrPrefix: "a", Path: ptr("")}, StartupPromptRef: ptr("x"), Force: ptr(true)},
			`{"type":"session_resume","target":{"kind":"session_resume","sessionIdOrPrefix":"a","path":""},"startupPromptRef":null,"modelPreset":null,"force":null}`},
		{"nor are ids", Request{RequestID: "r", ChatID: "c", UpdateID: 9, LifecycleRequestID: "l", IntendedSessionID: "i", Target: ExistingPath{Path: "<&\u2028>"}},
			"{\"type\":\"session_create\",\"target\":{\"kind\":\"existing_path\",\"path\":\"<&\u2028>\"},\"startupPromptRef\":null,\"modelPreset\":null,\"force\":null}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := CanonicalRequest(c.r)
			equal(t, string(must(t, b, err)), c.want)
		})
	}
}

func TestNoCanonicalBytes(t *testing.T) {
	bad := "\xed\xa0\x80"
	for _, r := range []Request{
		{},
		{Target: ExistingPath{Path: bad}},
		{Target: Worktree{Branch: bad}},
		{Target: CloseTarget{TmuxSession: &bad}},
		{Target: ResumeTarget{Path: &bad}},
		{Target: PlainDir{}, ModelPreset: &bad},
		{Target: PlainDir{}, StartupPromptRef: &bad},
	} {
		if _, err := CanonicalRequest(r); !errors.Is(err, ErrInvalidTarget) {
			t.Errorf("%+v: %v", r, err)
		}
		if h, err := RequestHash(r); !errors.Is(err, ErrInvalidTarget) || h != "" {
			t.Errorf("%+v: hash %q, %v", r, h, err)
		}
		// Gate 1 comes before gate 2.
		if _, err := NewAuditRow(nil, r, time.Time{}); !errors.Is(err, ErrInvalidTarget) {
			t.Errorf("%+v: row %v", r, err)
		}
	}
}

func TestAuditKey(t *testing.T) {
	for _, n := range []int{0, 31, 33, 64} {
		if _, err := NewAuditRow(make([]byte, n), Request{Target: PlainDir{}}, time.Time{}); !errors.Is(err, ErrInvalidAuditKey) {
			t.Errorf("key of %d bytes: %v", n, err)
		}
	}
	if key, err := DeriveAuditKey(""); !errors.Is(err, ErrInvalidAuditKey) || key != nil {
		t.Errorf("no token: %x, %v", key, err)
	}
	if key, err := DeriveAuditKey("x"); err != nil || len(key) != AuditKeyBytes {
		t.Errorf("key %x, %v", key, err)
	}
}

func TestAuditLine(t *testing.T) {
	zone := time.FixedZone("", 3600)
	row, err := NewAuditRow(make([]byte, AuditKeyBytes), Request{UpdateID: -1, Target: ResumeTarget{}}, time.Date(2026, 2, 2, 3, 4, 5, 6_999_999, zone))
	must(t, row, err)
	equal(t, row.TS, "2026-02-02T02:04:05.006Z")
	for _, event := range Events {
		row.Event = event
		line, err := row.Line()
		want := `{"schemaVersion":2,"ts":"2026-02-02T02:04:05.006Z","chatRef":"` + row.ChatRef + `","updateId":-1,"requestRef":"` + row.RequestRef +
			`","verb":"session_resume","targetKind":"session_resume","targetRef":"` + row.TargetRef + `","event":"` + string(event) + `"}` + "\n"
		equal(t, string(must(t, line, err)), want)
	}
	row.Reason = "because"
	if _, err := row.Line(); !errors.Is(err, ErrUnknownReason) {
		t.Errorf("unknown reason: %v", err)
	}
	row.Reason, row.Event = "", "started"
	if _, err := row.Line(); err == nil {
		t.Error("unknown event was written")
	}
}

func TestRateLimit(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	l := RateLimit{Max: 1, Window: time.Second}
	hits, ok := l.Allow(nil, at(5000))
	if !ok || len(hits) != 1 {
		t.Fatal("the first was refused")
	}
	given := []time.Time{at(1), at(5000)}
	for _, c := range []struct {
		now  int64
		ok   bool
		kept []time.Time
	}{
		{5999, false, []time.Time{at(5000)}},
		{6000, true, []time.Time{at(6000)}},
		{4000, false, []time.Time{at(5000)}}, // a clock set back frees nobody
	} {
		kept, ok := l.Allow(given, at(c.now))
		equal(t, ok, c.ok)
		equal(t, kept, c.kept)
	}
	equal(t, given, []time.Time{at(1), at(5000)})
	if _, ok := (RateLimit{}).Allow(nil, at(0)); ok {
		t.Error("a limit of none allowed one")
	}
}

func TestNames(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "az-AZ_09!~*'()": "az-AZ_09!~*'()", "..": "%2E%2E", "é/%\x00 +": "%C3%A9%2F%25%00%20%2B", "😀": "%F0%9F%98%80",
	} {
		equal(t, SessionSegment(in), want)
	}
	for in, want := range map[string]string{
		"": "default", "--": "default", "A__b--C": "a-b-c", "-x-": "x", "é1": "1", "İx": "i-x", "\u212a": "k",
	} {
		equal(t, Slug(in), want)
	}
	equal(t, StateFile("/r", "../x", ""), "/r/.skc/_session-%2E%2E%2Fx/runtime/tmux-sessions/default.json")
}
