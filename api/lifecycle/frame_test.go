package lifecycle

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	create = `{"type":"session_create","requestId":"r","lifecycleRequestId":"l","intendedSessionId":"s","updateId":7,"chatId":"42","token":"t","target":{"kind":"worktree","repo":"/r","branch":"b"},"startupPromptRef":"","modelPreset":"m"}`
	closes = `{"type":"session_close","requestId":"r","updateId":7,"chatId":"42","token":"t","target":{"sessionId":"s","tmuxSession":"","sessionStateFile":"/f"},"force":true}`
	resume = `{"type":"session_resume","requestId":"r","updateId":7,"chatId":"42","token":"t","target":{"sessionIdOrPrefix":"s","path":"/p"},"startupPromptRef":"/p"}`
)

func TestParseFrameAdmits(t *testing.T) {
	for _, c := range []struct {
		name, frame string
		want        Request
	}{
		{"create", create, Request{RequestID: "r", LifecycleRequestID: "l", IntendedSessionID: "s", UpdateID: 7, ChatID: "42",
			Target: Worktree{Repo: "/r", Branch: "b"}, StartupPromptRef: ptr(""), ModelPreset: ptr("m")}},
		{"close", closes, Request{RequestID: "r", UpdateID: 7, ChatID: "42",
			Target: CloseTarget{SessionID: "s", TmuxSession: ptr(""), SessionStateFile: ptr("/f")}, Force: ptr(true)}},
		{"resume", resume, Request{RequestID: "r", UpdateID: 7, ChatID: "42",
			Target: ResumeTarget{SessionIDOrPrefix: "s", Path: ptr("/p")}, StartupPromptRef: ptr("/p")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := ParseFrame([]byte(c.frame))
			want := Frame{Verdict: Admitted, RequestID: "r", Token: "t", Request: c.want}
			if d := cmp.Diff(want, f); d != "" {
				t.Fatalf("-want +got\n%s", d)
			}
			if a, ok := f.Answer(); ok {
				t.Errorf("answered at once: %v", a)
			}
			b, err := f.Request.Frame("t")
			equal(t, string(must(t, b, err)), c.frame)
		})
	}
}

func TestParseFrame(t *testing.T) {
	deep := strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1)
	for _, c := range []struct {
		name, frame string
		verdict     Verdict
		requestID   string
	}{
		{"nothing", ``, Malformed, ""},
		{"byte order mark", "\ufeff" + closes, Malformed, ""},
		{"rest", closes + "x", Malformed, ""},
		{"two", closes + closes, Malformed, ""},
		{"cut", closes[:len(closes)-1], Malformed, ""},
		{"NUL after", closes + "\x00", Malformed, ""},
		{"trailing comma", `{"type":"session_close",}`, Malformed, ""},
		{"bare line feed", strings.Replace(closes, `"r"`, "\"\n\"", 1), Malformed, ""},
		{"unknown escape", strings.Replace(closes, `"r"`, `"\x41"`, 1), Malformed, ""},
		{"short escape", strings.Replace(closes, `"r"`, `"\u12"`, 1), Malformed, ""},
		{"half a pair and a bad escape", strings.Replace(closes, `"r"`, `"\ud800\u12x4"`, 1), Malformed, ""},
		{"bad UTF-8 outside of strings", closes + "\xff", Malformed, ""},
		{"leading zero", strings.Replace(closes, "7", "07", 1), Malformed, ""},
		{"NaN", strings.Replace(closes, "7", "NaN", 1), Malformed, ""},
		{"deep", strings.Replace(closes, "7", "["+deep+"]", 1), Malformed, ""},
		{"very deep", strings.Repeat(`{"a":`, 1e5), Malformed, ""},

		{"null", `null`, UnknownType, ""},
		{"array", `[` + closes + `]`, UnknownType, ""},
		{"string", `"session_close"`, UnknownType, ""},
		{"no type", `{"requestId":"r","token":"t"}`, UnknownType, ""},
		{"other type", strings.Replace(closes, "session_close", "session_fork", 1), UnknownType, ""},
		{"a response", `{"type":"session_close_response","requestId":"r"}`, UnknownType, ""},
		{"other case", strings.Replace(closes, "session_close", "Session_close", 1), UnknownType, ""},
		{"type of another type", `{"type":["session_close"]}`, UnknownType, ""},
		{"type twice", strings.Replace(closes, `{`, `{"type":"session_close",`, 1), UnknownType, ""},

		{"unknown members", strings.Replace(closes, `{`, `{"x":{"y":[1,"",null,true,{}]},`, 1), Admitted, "r"},
		{"deep unknown member", strings.Replace(closes, `{`, `{"x":`+deep+`,`, 1), Admitted, "r"},
		{"white space", " \t\r\n" + strings.ReplaceAll(closes, ":", " :\n") + "\n", Admitted, "r"},
		{"escaped name", strings.Replace(closes, `"type"`, `"\u0074ype"`, 1), Admitted, "r"},
		{"empty request id", strings.Replace(closes, `"r"`, `""`, 1), Admitted, ""},
		{"NUL in a string", strings.Replace(closes, `"r"`, `"\u0000"`, 1), Admitted, "\x00"},
		{"astral characters", strings.Replace(closes, `"r"`, `"\uD83D\uDE00😀"`, 1), Admitted, "😀😀"},
		{"other name case is another member", strings.Replace(closes, `{`, `{"Force":1,`, 1), Admitted, "r"},
		{"no token", strings.Replace(closes, `"token":"t",`, ``, 1), Admitted, "r"},
		{"no force", strings.Replace(closes, `,"force":true`, ``, 1), Admitted, "r"},
		{"force of create", strings.Replace(create, `{`, `{"force":1,`, 1), Admitted, "r"},

		{"only a type", `{"type":"session_close"}`, Refused, ""},
		{"no request id", strings.Replace(closes, `"requestId":"r",`, ``, 1), Refused, ""},
		{"request id of another type", strings.Replace(closes, `"r"`, `1`, 1), Refused, ""},
		{"null request id", strings.Replace(closes, `"r"`, `null`, 1), Refused, ""},
		{"request id twice", strings.Replace(closes, `{`, `{"requestId":"q",`, 1), Refused, ""},
		{"request id twice, escaped", strings.Replace(closes, `{`, `{"\u0072equestId":"q",`, 1), Refused, ""},
		{"lone surrogate in request id", strings.Replace(closes, `"r"`, `"a\ud800"`, 1), Refused, ""},
		{"bad UTF-8 in request id", strings.Replace(closes, `"r"`, "\"a\xff\"", 1), Refused, ""},
		{"request id of 128 bytes", strings.Replace(closes, `"r"`, `"`+strings.Repeat("é", 64)+`"`, 1), Admitted, strings.Repeat("é", 64)},
		{"request id of 130 bytes", strings.Replace(closes, `"r"`, `"`+strings.Repeat("é", 65)+`"`, 1), Refused, strings.Repeat("é", 64)},
		{"request id cut within a code point", strings.Replace(closes, `"r"`, `"a`+strings.Repeat("é", 64)+`"`, 1), Refused, "a" + strings.Repeat("é", 63)},
		{"null token", strings.Replace(closes, `"t"`, `null`, 1), Refused, "r"},
		{"token of another type", strings.Replace(closes, `"t"`, `1`, 1), Refused, "r"},
		{"lone surrogate in chat id", strings.Replace(closes, `"42"`, `"\udc00"`, 1), Refused, "r"},
		{"chat id of another type", strings.Replace(closes, `"42"`, `42`, 1), Refused, "r"},
		{"lone surrogate in a create id", strings.Replace(create, `"l"`, `"\ud800\ud800"`, 1), Refused, "r"},
		{"empty create id", strings.Replace(create, `"l"`, `""`, 1), Refused, "r"},
		{"no create id", strings.Replace(create, `"intendedSessionId":"s",`, ``, 1), Refused, "r"},
		{"null preset", strings.Replace(create, `"m"`, `null`, 1), Refused, "r"},
		{"null prompt", strings.Replace(resume, `"startupPromptRef":"/p"`, `"startupPromptRef":null`, 1), Refused, "r"},
		{"null optional of the target", strings.Replace(closes, `"tmuxSession":""`, `"tmuxSession":null`, 1), Refused, "r"},
		{"force as a string", strings.Replace(closes, `true`, `"true"`, 1), Refused, "r"},
		{"force as a number", strings.Replace(closes, `true`, `1`, 1), Refused, "r"},
		{"null force", strings.Replace(closes, `true`, `null`, 1), Refused, "r"},
		{"null target", strings.Replace(closes, `{"sessionId":"s","tmuxSession":"","sessionStateFile":"/f"}`, `null`, 1), Refused, "r"},
		{"target as an array", strings.Replace(closes, `{"sessionId":"s","tmuxSession":"","sessionStateFile":"/f"}`, `[]`, 1), Refused, "r"},
		{"target twice", strings.Replace(closes, `{`, `{"target":{"sessionId":"x"},`, 1), Refused, "r"},
		{"twice in the target", strings.Replace(closes, `"sessionId":"s"`, `"sessionId":"x","sessionId":"s"`, 1), Refused, "r"},
		{"twice in an unknown member", strings.Replace(closes, `{`, `{"x":[{"y":1,"y":1}],`, 1), Refused, "r"},
		{"kind of another verb", strings.Replace(create, `"worktree"`, `"session_close"`, 1), Refused, "r"},
		{"no kind", strings.Replace(create, `"kind":"worktree",`, ``, 1), Refused, "r"},
		{"no branch", strings.Replace(create, `,"branch":"b"`, ``, 1), Refused, "r"},
		{"path for a worktree", strings.Replace(create, `"repo"`, `"path"`, 1), Refused, "r"},
		{"refused before it is an invalid target", strings.Replace(closes, `"t"`, `1,"\ud800":1`, 1), Refused, "r"},

		{"lone surrogate in a path", strings.Replace(resume, `"path":"/p"`, `"path":"\ud800"`, 1), InvalidTarget, "r"},
		{"lone surrogate in an id of the target", strings.Replace(closes, `"s"`, `"\udfff"`, 1), InvalidTarget, "r"},
		{"lone surrogate in a preset", strings.Replace(create, `"m"`, `"\ud83dx\ude00"`, 1), InvalidTarget, "r"},
		{"reversed pair", strings.Replace(create, `"m"`, `"\ude00\ud83d"`, 1), InvalidTarget, "r"},
		{"high before a pair", strings.Replace(create, `"m"`, `"\ud83d\ud83d\ude00"`, 1), InvalidTarget, "r"},
		{"high before another escape", strings.Replace(create, `"m"`, `"\ud83d\n"`, 1), InvalidTarget, "r"},
		{"high before an escaped letter", strings.Replace(create, `"m"`, `"\ud83d\u0041"`, 1), InvalidTarget, "r"},
		{"escaped backslash is no surrogate", strings.Replace(create, `"m"`, `"\\ud800"`, 1), Admitted, "r"},
		{"lone surrogate in a name", strings.Replace(closes, `{`, `{"\ud800":1,`, 1), InvalidTarget, "r"},
		{"lone surrogate in an unknown member", strings.Replace(closes, `{`, `{"x":["\ud800"],`, 1), InvalidTarget, "r"},
		{"bad UTF-8 in a path", strings.Replace(resume, `"path":"/p"`, "\"path\":\"/\xc0\xaf\"", 1), InvalidTarget, "r"},
		{"surrogate as UTF-8", strings.Replace(resume, `"path":"/p"`, "\"path\":\"\xed\xa0\x80\"", 1), InvalidTarget, "r"},
		{"pair half as escape, half as UTF-8", strings.Replace(resume, `"path":"/p"`, "\"path\":\"\\ud83d\xed\xb8\x80\"", 1), InvalidTarget, "r"},
		{"U+FFFD itself", strings.Replace(resume, `"path":"/p"`, `"path":"\ufffd"`, 1), Admitted, "r"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := ParseFrame([]byte(c.frame))
			if f.Verdict != c.verdict || f.RequestID != c.requestID {
				t.Errorf("verdict %d, request id %q; want %d, %q", f.Verdict, f.RequestID, c.verdict, c.requestID)
			}
			if f.Verdict != Admitted && !cmp.Equal(f.Request, Request{}) {
				t.Errorf("request without admission: %+v", f.Request)
			}
			want, answered := map[Verdict]string{
				UnknownType:   `{"type":"session_lifecycle_error","requestId":"","status":"error","reason":"unauthorized","message":"unauthorized lifecycle frame"}`,
				Refused:       `{"type":"session_lifecycle_error","requestId":"` + c.requestID + `","status":"error","reason":"terminal_uncertain","message":"request could not be processed"}`,
				InvalidTarget: `{"type":"session_lifecycle_error","requestId":"` + c.requestID + `","status":"error","reason":"invalid_target","message":"invalid lifecycle target"}`,
			}[c.verdict]
			a, ok := f.Answer()
			if ok != answered {
				t.Fatalf("answered: %v, want %v", ok, answered)
			}
			if ok {
				b, err := a.Frame()
				equal(t, string(must(t, b, err)), want)
			}
		})
	}
}

func TestUpdateID(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"-0", 0, true}, {"-0.0", 0, true}, {"1.0", 1, true}, {"1e3", 1000, true}, {"1E+3", 1000, true}, {"10e-1", 1, true},
		{"-7", -7, true}, {"9007199254740991", 1<<53 - 1, true}, {"-9007199254740991", -(1<<53 - 1), true}, {"9.007199254740991e15", 1<<53 - 1, true},
		{"9007199254740992", 0, false}, {"9007199254740993", 0, false}, {"-9007199254740992", 0, false}, {"1e400", 0, false}, {"1e22", 0, false},
		{"1.5", 0, false}, {"5e-1", 0, false}, {`"1"`, 0, false}, {"true", 0, false}, {"null", 0, false}, {"[1]", 0, false},
		{"1.", 0, false}, {".5", 0, false}, {"+1", 0, false}, {"1e", 0, false}, {"0x10", 0, false}, {"1_000", 0, false}, {"-", 0, false},
	} {
		f := ParseFrame([]byte(strings.Replace(closes, "7", c.text, 1)))
		if (f.Verdict == Admitted) != c.ok || f.Request.UpdateID != c.want {
			t.Errorf("%s: verdict %d, update id %d", c.text, f.Verdict, f.Request.UpdateID)
		}
	}
}

// A token is not part of a request: it must not get where requests are kept.
func TestTokenStaysWithFrame(t *testing.T) {
	f := ParseFrame([]byte(strings.Replace(closes, `"t"`, `"\u0063anary"`, 1)))
	if f.Token != "canary" {
		t.Fatalf("token %q", f.Token)
	}
	if b, err := f.Request.Frame(""); strings.Contains(string(must(t, b, err)), "canary") {
		t.Error("the request holds the token")
	}
	for _, token := range []string{`1`, `null`, `["t"]`, `"t","token":"t"`} {
		if f := ParseFrame([]byte(strings.Replace(closes, `"t"`, token, 1))); f.Token != "" {
			t.Errorf("%s read as token %q", token, f.Token)
		}
	}
}

func TestRequestFrameRefuses(t *testing.T) {
	if _, err := (Request{}).Frame("t"); !errors.Is(err, ErrInvalidTarget) {
		t.Errorf("no target: %v", err)
	}
	if _, err := (Request{Target: PlainDir{Path: "\xed\xa0\x80"}}).Frame("t"); !errors.Is(err, ErrNotUnicode) {
		t.Errorf("lone surrogate: %v", err)
	}
}

func TestBoundRequestID(t *testing.T) {
	a := strings.Repeat("a", 126)
	for in, want := range map[string]string{
		"": "", a + "é": a + "é", a + "aé": a + "a", a + "€": a, a + "😀": a, a + "a😀z": a + "a",
		a + "aa\u0301": a + "aa", "\xff": "", a + "aaaa\xff": "", "\xed\xa0\x80": "",
	} {
		if got := BoundRequestID(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
