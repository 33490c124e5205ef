package lifecycle

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

func FuzzParseFrame(f *testing.F) {
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(data, &file); err != nil {
		f.Fatal(err)
	}
	for _, v := range file.Vectors {
		if v.Kind == "canonical-request" {
			f.Add([]byte(v.Input))
		}
	}
	for _, s := range []string{create, closes, resume, strings.Replace(closes, "7", "-0.5e-2", 1), strings.Replace(closes, `"r"`, `"\ud83d\ude00\ud800\u0000\b"`, 1),
		`[[],[{"a":[1,true,false,null]}]]`, `{"type":"session_close","type":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		frame := ParseFrame(data)
		// encoding/json knows the same grammar, but no limit of ours.
		valid := json.Valid(data)
		if valid == (frame.Verdict == Malformed) && !(valid && nesting(data) > maxDepth) {
			t.Fatalf("verdict %d, valid %v", frame.Verdict, valid)
		}
		if !utf8.ValidString(frame.RequestID) || len(frame.RequestID) > MaxRequestIDBytes {
			t.Fatalf("request id %q", frame.RequestID)
		}
		if a, ok := frame.Answer(); ok {
			if b, err := a.Frame(); err != nil || !json.Valid(b) {
				t.Fatalf("answer %s, %v", b, err)
			}
		} else if frame.Verdict != Admitted && frame.Verdict != Malformed {
			t.Fatalf("verdict %d has no answer", frame.Verdict)
		}
		if frame.Verdict != Admitted {
			return
		}
		r := frame.Request
		if !utf8.Valid(data) {
			t.Fatal("admitted with bad UTF-8")
		}
		var seen struct {
			Type, RequestID, ChatID, LifecycleRequestID string
			UpdateID                                    float64
			Target                                      struct{ Path, Repo, Branch, SessionID, SessionIDOrPrefix string }
		}
		// Names in another case are members to encoding/json: only without them does it read the same.
		if exact(data) {
			if err := json.Unmarshal(data, &seen); err != nil {
				t.Fatal(err)
			}
			if seen.Type != string(r.Verb()) || seen.RequestID != r.RequestID || seen.ChatID != r.ChatID || int64(seen.UpdateID) != r.UpdateID {
				t.Fatalf("read %+v, encoding/json %+v", r, seen)
			}
			switch target := r.Target.(type) {
			case ExistingPath:
				equal(t, target.Path, seen.Target.Path)
			case PlainDir:
				equal(t, target.Path, seen.Target.Path)
			case Worktree:
				equal(t, target, Worktree{Repo: seen.Target.Repo, Branch: seen.Target.Branch})
			case CloseTarget:
				equal(t, target.SessionID, seen.Target.SessionID)
			case ResumeTarget:
				equal(t, target.SessionIDOrPrefix, seen.Target.SessionIDOrPrefix)
			}
		}
		b, err := r.Frame(frame.Token)
		again := ParseFrame(must(t, b, err))
		equal(t, again, frame)
		first, err := RequestHash(r)
		must(t, first, err)
		second, err := RequestHash(again.Request)
		equal(t, must(t, second, err), first)
	})
}

// nesting is how deep a JSON text nests.
func nesting(data []byte) int {
	deepest, depth := 0, 0
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // a number that fits no float64 is valid
	for {
		token, err := d.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

var memberNames = []string{"type", "requestId", "chatId", "lifecycleRequestId", "updateId", "target", "path", "repo", "branch", "sessionId", "sessionIdOrPrefix"}

// exact says that no name is one of ours in another case, or of another type
// where we do not look.
func exact(data []byte) bool {
	d, err := read(data)
	if err != nil {
		return false
	}
	check := func(members map[string]value) bool {
		for name, v := range members {
			for _, ours := range memberNames {
				if strings.EqualFold(name, ours) && (name != ours || v.kind != text && v.kind != number && v.kind != object) {
					return false
				}
				if name == ours && name != "updateId" && name != "target" && v.kind != text {
					return false
				}
			}
		}
		return true
	}
	return check(d.members) && check(d.member("target").members)
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"", "a", "\x00\x1f\x7f\b\t\n\v\f\r", `"\/<>&`, "\u2028\u2029\ufeff\ufffd", "😀", "\xff", "\xed\xa0\x80", `\u2028`, "\\\u2028"} {
		f.Add(s, s, true, byte(len(s)))
	}
	f.Fuzz(func(t *testing.T, a, b string, given bool, pick byte) {
		quoted, err := appendString(nil, a)
		if utf8.ValidString(a) != (err == nil) {
			t.Fatalf("%q: %v", a, err)
		}
		if err == nil {
			equal(t, string(quoted), asECMAScript(t, a))
			equal(t, into[string](t, quoted), a)
		}

		opt := &b
		if !given {
			opt = nil
		}
		targets := []Target{ExistingPath{a}, PlainDir{a}, Worktree{a, b}, CloseTarget{a, opt, nil}, CloseTarget{a, nil, opt}, ResumeTarget{a, opt}}
		r := Request{Target: targets[int(pick)%len(targets)], ModelPreset: opt, StartupPromptRef: opt, Force: &given}
		canonical, err := CanonicalRequest(r)
		if err != nil {
			if !errors.Is(err, ErrInvalidTarget) || utf8.ValidString(a) && utf8.ValidString(b) {
				t.Fatal(err)
			}
			return
		}
		var compacted bytes.Buffer
		if err := json.Compact(&compacted, canonical); err != nil || !bytes.Equal(compacted.Bytes(), canonical) {
			t.Fatalf("%s: %v", canonical, err)
		}
		type members = map[string]any
		text := func(s *string) any {
			if s == nil {
				return nil
			}
			return *s
		}
		want := members{"type": string(r.Verb()), "startupPromptRef": nil, "modelPreset": nil, "force": nil}
		if r.Verb() == SessionCreate {
			want["startupPromptRef"], want["modelPreset"] = text(opt), text(opt)
		}
		if r.Verb() == SessionClose {
			want["force"] = given
		}
		target := members{"kind": string(r.Target.Kind())}
		switch x := r.Target.(type) {
		case ExistingPath:
			target["path"] = a
		case PlainDir:
			target["path"] = a
		case Worktree:
			target["repo"], target["branch"] = a, b
		case CloseTarget:
			target["sessionId"], target["tmuxSession"], target["sessionStateFile"] = a, text(x.TmuxSession), text(x.SessionStateFile)
		case ResumeTarget:
			target["sessionIdOrPrefix"], target["path"] = a, text(x.Path)
		}
		want["target"] = target
		equal(t, into[any](t, canonical), any(want))
	})
}

// asECMAScript is encoding/json with the two escapes taken back that it makes
// and ECMAScript does not.
func asECMAScript(t *testing.T, s string) string {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	return escapeOrByte.ReplaceAllStringFunc(strings.TrimSuffix(b.String(), "\n"), func(part string) string {
		switch part {
		case `\u2028`:
			return "\u2028"
		case `\u2029`:
			return "\u2029"
		}
		return part
	})
}

var escapeOrByte = regexp.MustCompile(`(?s)\\u....|\\.|.`)

var (
	ours    = regexp.MustCompile(`^/session_(create|close|resume|recent)$`)
	created = regexp.MustCompile(`^/session_create(@\S+)?(\s+\S+)+$`)
	bare    = regexp.MustCompile(`(^|\s)--(\s|$)`)
	clean   = regexp.MustCompile("^[^\r\n\x00;&|`$(){}<>*?!\\\\\"']+$")
)

func FuzzCommand(f *testing.F) {
	for _, s := range []string{"", "hello", "/session_create path /r", "/session_create worktree ~/r b --mpreset p", "/session_create dir ~ --mpreset=p",
		"/session_close@B a", "/session_resume a", "/session_recent create", "/session_create path /r -- x", "/session_close a;b", "/session_close\u2028a\ufeff", "/session_create path \xff"} {
		f.Add(s, "B", "private", "/h")
		f.Add(s, "", "group", "")
	}
	f.Fuzz(func(t *testing.T, message, bot, kind, home string) {
		chat := Chat{BotName: bot, Kind: kind, Home: home}
		c := ParseCommand(message, chat)
		equal(t, ParseCommand(" \u3000"+message+"\n", chat), c)
		if reply := c.Reply(); reply != (Command{Kind: c.Kind, Reason: c.Reason}).Reply() || (reply != "") != (c.Kind == CommandUsage || c.Kind == CommandReject) {
			t.Fatalf("reply %q", reply)
		}
		words := strings.FieldsFunc(message, isSpace)
		if c.Kind == CommandNone {
			if len(words) > 0 && (kind == "" || kind == "private") && ours.MatchString(words[0]) {
				t.Fatal("a command was not seen")
			}
			return
		}
		plain := strings.Join(words, " ")
		if (c.Reason == RejectPromptUnsupported) != bare.MatchString(strings.TrimPrefix(plain, words[0])) {
			t.Fatalf("%+v of %q", c, message)
		}
		if kind != "" && kind != "private" && !strings.EqualFold(words[0][strings.IndexByte(words[0], '@')+1:], bot) {
			t.Fatalf("%+v in a %s", c, kind)
		}
		if c.ModelPreset != nil && !validID.MatchString(*c.ModelPreset) {
			t.Fatalf("preset %q", *c.ModelPreset)
		}
		path := func(p string) {
			given := strings.TrimPrefix(p, home)
			if !(clean.MatchString(p) || clean.MatchString("x"+given)) || len(utf16.Encode([]rune(given))) > maxPathUnits {
				t.Fatalf("path %q", p)
			}
		}
		switch target := c.Target.(type) {
		case nil:
		case CloseTarget:
			if len(words) != 2 || words[1] != target.SessionID || !validID.MatchString(words[1]) {
				t.Fatalf("%+v of %q", target, message)
			}
		case ResumeTarget:
			if len(words) != 2 || words[1] != target.SessionIDOrPrefix || target.Path != nil || !validID.MatchString(words[1]) {
				t.Fatalf("%+v of %q", target, message)
			}
		case ExistingPath:
			path(target.Path)
		case PlainDir:
			path(target.Path)
		case Worktree:
			path(target.Repo)
			if !validBranch.MatchString(target.Branch) || strings.HasPrefix(target.Branch, "-") || strings.Contains(target.Branch, "..") {
				t.Fatalf("branch %q", target.Branch)
			}
		}
		if c.Kind == CommandCreate && !created.MatchString(plain) {
			t.Fatalf("%+v of %q", c, message)
		}
		if c.Target != nil {
			if _, err := CanonicalTarget(c.Target); err != nil && utf8.ValidString(home) {
				t.Fatal(err)
			}
		}
	})
}

func FuzzLedger(f *testing.F) {
	for _, e := range []string{goodCreate, goodClose, goodResume, goodOpen, goodFailed, strings.Replace(goodClose, "true", "false", 1)} {
		f.Add([]byte(`{"version":1,"entries":{"42:7":` + e + `}}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := DecodeLedger(data)
		if err != nil {
			if !errors.Is(err, ErrInvalidLedger) || l != nil {
				t.Fatalf("%v, %v", l, err)
			}
			return
		}
		b, err := l.Encode()
		again, err2 := DecodeLedger(must(t, b, err))
		equal(t, must(t, again, err2), l)
		for _, e := range l {
			if _, err := Classify(&e, e.RequestHash); err != nil {
				t.Fatal(err)
			}
		}
	})
}
