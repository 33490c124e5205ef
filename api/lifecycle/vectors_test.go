package lifecycle

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type vector struct {
	ID, Kind        string
	Input, Expected json.RawMessage
}

// into reads a part of a vector.
func into[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func admitted(t *testing.T, frame []byte) Request {
	t.Helper()
	f := ParseFrame(frame)
	if f.Verdict != Admitted {
		t.Fatalf("verdict %d of %s", f.Verdict, frame)
	}
	return f.Request
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// kinds says how a vector of each kind is run, and how many there are at least:
// a row that gets lost must not go unseen.
var kinds = map[string]struct {
	rows int
	run  func(t *testing.T, v vector)
}{
	"canonical-target": {7, func(t *testing.T, v vector) {
		b, err := CanonicalTarget(admitted(t, v.Input).Target)
		equal(t, string(must(t, b, err)), into[string](t, v.Expected))
	}},
	"canonical-request": {7, func(t *testing.T, v vector) {
		b, err := CanonicalRequest(admitted(t, v.Input))
		equal(t, string(must(t, b, err)), into[string](t, v.Expected))
	}},
	"request-hash": {8, func(t *testing.T, v vector) {
		h, err := RequestHash(admitted(t, v.Input))
		equal(t, must(t, h, err), into[string](t, v.Expected))
	}},
	"audit-ref": {29, func(t *testing.T, v vector) {
		in := into[struct{ KeyHex, Domain, Value string }](t, v.Input)
		ref, err := AuditRef(fromHex(t, in.KeyHex), in.Domain, in.Value)
		equal(t, must(t, ref, err), into[string](t, v.Expected))
	}},
	"audit-ref-error": {1, func(t *testing.T, v vector) {
		in := into[struct{ KeyHex, Domain, Value string }](t, v.Input)
		_, err := AuditRef(fromHex(t, in.KeyHex), in.Domain, in.Value)
		if !errors.Is(err, ErrInvalidAuditKey) || err.Error() != into[string](t, v.Expected) {
			t.Errorf("err = %v", err)
		}
	}},
	"hmac-sha256": {3, func(t *testing.T, v vector) {
		in := into[struct{ KeyHex, KeyUtf8, Data string }](t, v.Input)
		key := []byte(in.KeyUtf8)
		if in.KeyHex != "" {
			key = fromHex(t, in.KeyHex)
		}
		equal(t, hex.EncodeToString(mac(key, in.Data)), into[string](t, v.Expected))
		if strings.HasSuffix(in.Data, ".lifecycle.audit.v2.key") {
			key, err := DeriveAuditKey(in.KeyUtf8)
			equal(t, hex.EncodeToString(must(t, key, err)), into[string](t, v.Expected))
		}
	}},
	"audit-line": {14, func(t *testing.T, v vector) {
		in := into[struct {
			Frame                              json.RawMessage
			PairedChatID, KeyHex, DomainPrefix string
			NowMs                              int64
		}](t, v.Input)
		r, key := admitted(t, in.Frame), fromHex(t, in.KeyHex)
		if r.ChatID == in.PairedChatID {
			t.Fatal("the vector is not about a chat that is not paired")
		}
		row, err := NewAuditRow(key, r, time.UnixMilli(in.NowMs))
		must(t, row, err)
		// Rows of another brand check the algorithm only.
		for domain, ref := range map[string]*string{DomainChat: &row.ChatRef, DomainRequest: &row.RequestRef, DomainTarget: &row.TargetRef} {
			request, _ := CanonicalRequest(r)
			target, _ := CanonicalTarget(r.Target)
			value := map[string]string{DomainChat: r.ChatID, DomainRequest: string(request), DomainTarget: string(target)}[domain]
			branded, err := AuditRef(key, in.DomainPrefix+strings.TrimPrefix(domain, "skc"), value)
			if must(t, branded, err) != *ref && in.DomainPrefix == "skc" {
				t.Errorf("reference of %q", domain)
			}
			*ref = branded
		}
		row.Event, row.Reason = EventRejected, ReasonUnauthorized
		line, err := row.Line()
		equal(t, string(must(t, line, err)), into[string](t, v.Expected)+"\n")
		equal(t, into[AuditRow](t, line), row)
	}},
	"bounded-request-id": {3, func(t *testing.T, v vector) {
		equal(t, BoundRequestID(into[string](t, v.Input)), into[string](t, v.Expected))
	}},
	"frame-valid": {2, func(t *testing.T, v vector) {
		f := ParseFrame([]byte(`{"type":"session_resume","requestId":` + string(v.Input) + `,"updateId":1,"chatId":"42","token":"t","target":{"sessionIdOrPrefix":"a"}}`))
		equal(t, f.Verdict == Admitted, into[bool](t, v.Expected))
	}},
	"lifecycle-outcome": {1, func(t *testing.T, v vector) {
		in := into[struct{ FrameJSON string }](t, v.Input)
		want := into[struct {
			Outcome struct{ Status, Reason, Message string }
		}](t, v.Expected).Outcome
		a, ok := ParseFrame([]byte(in.FrameJSON)).Answer()
		if !ok || want.Status != "error" {
			t.Fatal("no answer")
		}
		equal(t, []string{string(a.Reason), a.Message}, []string{want.Reason, want.Message})
	}},
	"lifecycle-response": {1, func(t *testing.T, v vector) {
		in := into[struct{ EnvelopeRequestID, PayloadJSON string }](t, v.Input)
		if f := ParseFrame([]byte(in.PayloadJSON)); f.Verdict == Admitted || f.RequestID != "" {
			t.Fatalf("payload read as %+v", f)
		}
		b, err := NotProcessed(in.EnvelopeRequestID).Frame()
		equal(t, string(must(t, b, err)), string(must(t, compact(v.Expected), nil)))
	}},
	"lifecycle-command": {24, func(t *testing.T, v vector) {
		in := into[struct {
			Text, Home string
			Ctx        *struct{ ChatType, BotUsername string }
		}](t, v.Input)
		chat := Chat{Home: in.Home}
		if in.Ctx != nil {
			chat.Kind, chat.BotName = in.Ctx.ChatType, in.Ctx.BotUsername
		}
		c := ParseCommand(in.Text, chat)
		got := map[string]any{"kind": string(c.Kind)}
		if c.Target != nil {
			var w writer
			w.open()
			c.Target.wire(&w)
			b, err := w.done()
			got["target"] = into[any](t, must(t, b, err))
		}
		if c.ModelPreset != nil {
			got["modelPreset"] = *c.ModelPreset
		}
		if c.Which != "" {
			got["which"] = c.Which
		}
		if c.Reason != "" {
			got["reason"] = c.Reason
		}
		equal(t, got, into[map[string]any](t, v.Expected))
	}},
	"rate-limiter": {2, func(t *testing.T, v vector) {
		in := into[struct {
			Max, WindowMs int
			Calls         []int64
		}](t, v.Input)
		limit := RateLimit{Max: in.Max, Window: time.Duration(in.WindowMs) * time.Millisecond}
		var hits []time.Time
		var got []bool
		for _, ms := range in.Calls {
			var ok bool
			hits, ok = limit.Allow(hits, time.UnixMilli(ms))
			got = append(got, ok)
		}
		equal(t, got, into[[]bool](t, v.Expected))
	}},
	"literal": {1, func(t *testing.T, v vector) {
		in := into[struct{ Reason Reason }](t, v.Input)
		equal(t, in.Reason, ReasonUnsupportedPlatform)
		equal(t, MessageUnsupportedPlatform, into[string](t, v.Expected))
	}},
	"session-segment": {2, func(t *testing.T, v vector) {
		equal(t, SessionSegment(into[string](t, v.Input)), into[string](t, v.Expected))
	}},
	"path": {2, func(t *testing.T, v vector) {
		in := into[struct{ Cwd, ID, SessionID, TmuxSession string }](t, v.Input)
		got := SessionRoot(in.Cwd, in.ID)
		if in.TmuxSession != "" {
			got = StateFile(in.Cwd, in.SessionID, in.TmuxSession)
		}
		equal(t, got, into[string](t, v.Expected))
	}},
	"tmux-slug": {1, func(t *testing.T, v vector) {
		equal(t, Slug(into[string](t, v.Input)), into[string](t, v.Expected))
	}},
	"worktree-slug": {3, func(t *testing.T, v vector) {
		equal(t, WorktreeSlug(into[string](t, v.Input)), into[string](t, v.Expected))
	}},
}

func fromHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	return must(t, b, err)
}

func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.json")
	must(t, data, err)
	ran := map[string]int{}
	for _, v := range into[struct{ Vectors []vector }](t, data).Vectors {
		k, ok := kinds[v.Kind]
		if !ok {
			t.Errorf("%s: kind %s is not run", v.ID, v.Kind)
			continue
		}
		ran[v.Kind]++
		t.Run(v.Kind+"/"+v.ID, func(t *testing.T) { k.run(t, v) })
	}
	for kind, k := range kinds {
		t.Logf("%-20s %d rows", kind, ran[kind])
		if ran[kind] < k.rows {
			t.Errorf("%s: %d rows ran, of %d known", kind, ran[kind], k.rows)
		}
	}
}
