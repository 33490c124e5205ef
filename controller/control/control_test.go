package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/effects/files"
)

// After a refusal net/http holds the connection for half a second, so that the
// peer can read why; so the leaks are looked for until that is over.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		err := goleak.Find()
		for limit := time.Now().Add(2 * time.Second); err != nil && time.Now().Before(limit); {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "leaks:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// deadline is when a test gives up; nothing here takes a hundredth of it.
const deadline = 20 * time.Second

// submitter serves requests as a function says.
type submitter func(context.Context, lifecycle.Request) (lifecycle.Outcome, error)

func (s submitter) Submit(ctx context.Context, r lifecycle.Request) (lifecycle.Outcome, error) {
	return s(ctx, r)
}

// done is the outcome of a close that was seen to work.
func done(_ context.Context, r lifecycle.Request) (lifecycle.Outcome, error) {
	id, yes := "s1", true
	hash, err := lifecycle.RequestHash(r)
	return lifecycle.Outcome{Status: lifecycle.OK, Entry: &lifecycle.Entry{
		RequestHash: hash, RequestID: r.RequestID, Verb: lifecycle.SessionClose, State: lifecycle.StateSuccess, CreatedAt: 1, UpdatedAt: 1,
		TargetSummary: json.RawMessage(`{"sessionId":"s1"}`), SessionID: &id, ProcessGone: &yes,
	}}, err
}

// server runs a control until the test ends, or until stop is called.
func server(t *testing.T, submit submitter, change ...func(*Server)) (s *Server, stop func() error) {
	t.Helper()
	s, err := Listen(Options{
		Address: "127.0.0.1:0", Owner: "owner", Dir: filepath.Join(t.TempDir(), "notifications"), Files: &files.Layer{},
		Submitter: submit, Clock: clock.RealClock{}, Log: logr.Discard(),
	})
	must(t, err)
	for _, c := range change {
		c(s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(deadline):
			return errors.New("the server does not stop")
		}
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return s, stop
}

// client is a program that was given the token.
type client struct {
	*websocket.Conn
	t *testing.T
	s *Server
}

func connect(t *testing.T, s *Server) client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, s.URL()+"/?token="+s.Token(), nil) //nolint:bodyclose // an upgrade has no body
	must(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return client{ws, t, s}
}

func (c client) send(frame string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), deadline)
	defer cancel()
	must(c.t, c.Write(ctx, websocket.MessageText, []byte(frame)))
}

func (c client) read() (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), deadline)
	defer cancel()
	_, data, err := c.Read(ctx)
	return string(data), err
}

func (c client) want(frame string) {
	c.t.Helper()
	got, err := c.read()
	if err != nil || got != frame {
		c.t.Fatalf("got  %s, %v\nwant %s", got, err, frame)
	}
}

// closed wants the connection to end with this code and reason.
func (c client) closed(code websocket.StatusCode, reason string) {
	c.t.Helper()
	_, err := c.read()
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != code || closed.Reason != reason {
		c.t.Errorf("read: %v; want close %d %q", err, code, reason)
	}
}

func (c client) closeFrame(id string) string { return closeFrame(id, c.s.Token()) }

func closeFrame(id, token string) string {
	return fmt.Sprintf(`{"type":"session_close","requestId":%q,"updateId":1,"chatId":"42","token":%q,"target":{"sessionId":"s1"},"force":true}`, id, token)
}

func failed(id, reason, message string) string {
	return fmt.Sprintf(`{"type":"session_lifecycle_error","requestId":%q,"status":"error","reason":%q,"message":%q}`, id, reason, message)
}

func gone(id string) string {
	return fmt.Sprintf(`{"type":"session_close_response","requestId":%q,"status":"ok","sessionId":"s1","processGone":true,"historyPreserved":true,"endpointStale":true}`, id)
}

const notProcessed = "request could not be processed"

func TestFrames(t *testing.T) {
	var mu sync.Mutex
	submitted := map[string]int{}
	s, _ := server(t, func(ctx context.Context, r lifecycle.Request) (lifecycle.Outcome, error) {
		mu.Lock()
		submitted[r.RequestID]++
		mu.Unlock()
		switch r.RequestID {
		case "throws":
			return lifecycle.Outcome{}, errors.New("c4n4ry")
		case "panics":
			panic("c4n4ry")
		case "pending":
			return lifecycle.Outcome{Status: lifecycle.Pending, Entry: &lifecycle.Entry{}}, nil
		case "uncertain":
			return lifecycle.Outcome{Status: lifecycle.Failed, Reason: lifecycle.ReasonTerminalUncertain, Message: "c4n4ry"}, nil
		case "refused":
			return lifecycle.Outcome{Status: lifecycle.Failed, Reason: lifecycle.ReasonUnauthorized, Message: lifecycle.MessageNotPaired}, nil
		case "no results":
			return lifecycle.Outcome{Status: lifecycle.OK, Entry: &lifecycle.Entry{}}, nil
		case "unknown reason":
			return lifecycle.Outcome{Status: lifecycle.Failed, Reason: "because", Message: "c4n4ry"}, nil
		}
		return done(ctx, r)
	})
	c := connect(t, s)
	long := strings.Repeat("é", 64)
	with := func(id, from, to string) string { return strings.Replace(c.closeFrame(id), from, to, 1) }
	for _, tt := range []struct {
		name, frame, want string
		submitted         string // request id that must reach the submitter
	}{
		{"request", c.closeFrame("r1"), gone("r1"), "r1"},
		{"the same again", c.closeFrame("r1"), gone("r1"), "r1"},
		{"request id of 128 bytes", c.closeFrame(long), gone(long), long},
		{"request id of 130 bytes", c.closeFrame(long + "é"), failed(long, "terminal_uncertain", notProcessed), ""},
		{"empty request id", c.closeFrame(""), failed("", "invalid_target", "the request id is empty"), ""},
		{"wrong token", closeFrame("r2", "wrong"), failed("r2", "unauthorized", "unauthorized lifecycle frame"), ""},
		{"token of another length", closeFrame("r2", s.Token()+"x"), failed("r2", "unauthorized", "unauthorized lifecycle frame"), ""},
		{"no token", with("r2", `"token":"`+s.Token()+`",`, ""), failed("r2", "unauthorized", "unauthorized lifecycle frame"), ""},
		{"token that is no text", with("r2", `"token":"`+s.Token()+`"`, `"token":1`), failed("r2", "unauthorized", "unauthorized lifecycle frame"), ""},
		{"wrong token and empty id", closeFrame("", "wrong"), failed("", "unauthorized", "unauthorized lifecycle frame"), ""},
		{"unknown type", with("r2", "session_close", "session_open"), failed("", "unauthorized", "unauthorized lifecycle frame"), ""},
		{"no type", `{}`, failed("", "unauthorized", "unauthorized lifecycle frame"), ""},
		{"no object", `[]`, failed("", "unauthorized", "unauthorized lifecycle frame"), ""},
		{"no target", with("r2", `"target":{"sessionId":"s1"},`, ""), failed("r2", "terminal_uncertain", notProcessed), ""},
		{"target of another shape", with("r2", `{"sessionId":"s1"}`, `{"kind":"plain_dir","path":"/a"}`), failed("r2", "terminal_uncertain", notProcessed), ""},
		{"member twice", with("r2", `"updateId":1`, `"updateId":1,"updateId":2`), failed("r2", "terminal_uncertain", notProcessed), ""},
		{"update id beyond 2^53", with("r2", `"updateId":1`, `"updateId":9007199254740993`), failed("r2", "terminal_uncertain", notProcessed), ""},
		{"lone surrogate in the target", with("r2", `"s1"`, `"\ud800"`), failed("r2", "invalid_target", "invalid lifecycle target"), ""},
		{"lone surrogate in the request id", with("r2", `"r2"`, `"\udc00"`), failed("", "terminal_uncertain", notProcessed), ""},
		{"bytes that are not UTF-8", with("r2", `"s1"`, "\"\xff\""), failed("r2", "invalid_target", "invalid lifecycle target"), ""},
		{"error of the submitter", c.closeFrame("throws"), failed("throws", "terminal_uncertain", notProcessed), "throws"},
		{"panic of the submitter", c.closeFrame("panics"), failed("panics", "terminal_uncertain", notProcessed), "panics"},
		{"pending", c.closeFrame("pending"), failed("pending", "terminal_uncertain", "request already in progress"), "pending"},
		{"uncertain", c.closeFrame("uncertain"), failed("uncertain", "terminal_uncertain", notProcessed), "uncertain"},
		{"refused by a gate", c.closeFrame("refused"), failed("refused", "unauthorized", "chat not paired"), "refused"},
		{"success without its results", c.closeFrame("no results"), failed("no results", "terminal_uncertain", notProcessed), "no results"},
		{"reason outside the set", c.closeFrame("unknown reason"), failed("unknown reason", "terminal_uncertain", notProcessed), "unknown reason"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clear(submitted)
			c := client{c.Conn, t, s}
			// What is no JSON is ignored: the answer that comes is the next one's.
			for _, ignored := range []string{"", "{", `{"type":"session_close"`, "hello", strings.Repeat("[", 10_000)} {
				c.send(ignored)
			}
			c.send(tt.frame)
			c.want(tt.want)
			mu.Lock()
			defer mu.Unlock()
			if n := len(submitted); n != 1 && tt.submitted != "" || n != 0 && tt.submitted == "" || submitted[tt.submitted] != n {
				t.Errorf("submitted: %v, want %q", submitted, tt.submitted)
			}
		})
	}
}

// Vectors, through the socket.
func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.json")
	must(t, err)
	var doc struct {
		Vectors []struct {
			ID, Kind        string
			Input, Expected json.RawMessage
		}
	}
	must(t, json.Unmarshal(data, &doc))
	s, _ := server(t, done)
	rows := map[string]int{}
	for _, v := range doc.Vectors {
		rows[v.Kind]++
		t.Run(v.ID, func(t *testing.T) {
			c := connect(t, s)
			frame := func(id string) string {
				return `{"type":"session_close","requestId":` + id + `,"updateId":1,"chatId":"42","token":"` + s.Token() + `","target":{"sessionId":"s1"},"force":true}`
			}
			switch v.Kind {
			case "frame-valid":
				c.send(frame(string(v.Input)))
				got, err := c.read()
				must(t, err)
				if valid := strings.Contains(got, `"status":"ok"`); fmt.Sprint(valid) != string(v.Expected) {
					t.Errorf("answer %s, want valid: %s", got, v.Expected)
				}
			case "bounded-request-id":
				var want string
				must(t, json.Unmarshal(v.Expected, &want))
				c.send(strings.Replace(frame(string(v.Input)), `"updateId":1`, `"updateId":"no"`, 1))
				c.want(failed(want, "terminal_uncertain", notProcessed))
			case "lifecycle-outcome":
				var in struct{ FrameJSON string }
				must(t, json.Unmarshal(v.Input, &in))
				f := lifecycle.ParseFrame([]byte(in.FrameJSON))
				c.send(strings.Replace(in.FrameJSON, `"`+f.Token+`"`, `"`+s.Token()+`"`, 1))
				var want struct {
					Outcome struct{ Reason, Message string }
				}
				must(t, json.Unmarshal(v.Expected, &want))
				c.want(failed(f.RequestID, want.Outcome.Reason, want.Outcome.Message))
			default:
				t.Errorf("kind %s is not run", v.Kind)
			}
		})
	}
	for kind, n := range map[string]int{"frame-valid": 2, "bounded-request-id": 3, "lifecycle-outcome": 1} {
		if t.Logf("%-20s %d rows", kind, rows[kind]); rows[kind] < n {
			t.Errorf("%s: %d rows ran, of %d known", kind, rows[kind], n)
		}
	}
}

func TestFrameLimits(t *testing.T) {
	s, _ := server(t, done)
	pad := func(n int) string { // a request of exactly n bytes
		frame := strings.TrimSuffix(closeFrame("r", s.Token()), "}")
		return frame + strings.Repeat(" ", n-len(frame)-1) + "}"
	}
	t.Run("the longest", func(t *testing.T) {
		c := connect(t, s)
		c.SetReadLimit(-1)
		c.send(pad(lifecycle.MaxFrameBytes))
		c.want(gone("r"))
	})
	t.Run("one byte more", func(t *testing.T) {
		c := connect(t, s)
		c.send(pad(lifecycle.MaxFrameBytes + 1))
		c.closed(1009, "request frame exceeds 256 KiB")
	})
	t.Run("binary", func(t *testing.T) {
		c := connect(t, s)
		must(t, c.Write(t.Context(), websocket.MessageBinary, []byte(c.closeFrame("r"))))
		c.closed(1003, "binary frames are not supported")
	})
}

func TestRouting(t *testing.T) {
	began, finish := make(chan string), make(chan struct{})
	s, _ := server(t, func(ctx context.Context, r lifecycle.Request) (lifecycle.Outcome, error) {
		if strings.HasPrefix(r.RequestID, "slow") {
			began <- r.RequestID
			select {
			case <-finish:
			case <-ctx.Done():
				return lifecycle.Outcome{}, ctx.Err()
			}
		}
		return done(ctx, r)
	})
	a, b := connect(t, s), connect(t, s)
	a.send(a.closeFrame("slow"))
	<-began
	// A request in hand holds up no other, of this connection or another.
	a.send(a.closeFrame("a"))
	a.want(gone("a"))
	b.send(b.closeFrame("b"))
	b.want(gone("b"))
	// Its id is taken for others, and its own sender may ask again.
	b.send(b.closeFrame("slow"))
	b.want(failed("slow", "duplicate_conflict", "the request id is in use by another connection"))
	a.send(a.closeFrame("slow"))
	<-began
	finish <- struct{}{}
	a.want(gone("slow"))
	b.send(b.closeFrame("slow"))
	b.want(failed("slow", "duplicate_conflict", "the request id is in use by another connection"))
	finish <- struct{}{}
	a.want(gone("slow"))
	b.send(b.closeFrame("slow"))
	<-began
	finish <- struct{}{}
	b.want(gone("slow"))
	// An answer without a request id goes to every connection.
	a.send(strings.Replace(a.closeFrame(`x`), `"x"`, `"\ud800"`, 1))
	for _, c := range []client{a, b} {
		c.want(failed("", "terminal_uncertain", notProcessed))
	}
	// Who lost a connection comes again with the same id.
	a.send(a.closeFrame("slow"))
	<-began
	must(t, a.CloseNow())
	eventually(t, "the lost connection is forgotten", func() bool { return s.connections() == 1 })
	a = connect(t, s)
	a.send(a.closeFrame("slow"))
	<-began
	finish <- struct{}{}
	a.want(gone("slow"))
}

// connections is how many there are.
func (s *Server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// eventually waits for what no channel tells.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.After(deadline)
	for look := time.NewTicker(time.Millisecond); !is(); {
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("not so: %s", what)
		}
	}
}

func TestDiagnosticsAreFew(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	log := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{Verbosity: 10})
	s, _ := server(t, func(context.Context, lifecycle.Request) (lifecycle.Outcome, error) {
		return lifecycle.Outcome{}, errors.New("c4n4ry")
	}, func(s *Server) { s.opts.Log = log })
	c := connect(t, s)
	for i := range 30 {
		id := fmt.Sprintf("c4n4ry-%d", i)
		c.send(c.closeFrame(id))
		c.want(failed(id, "terminal_uncertain", notProcessed))
	}
	mu.Lock()
	defer mu.Unlock()
	if len(lines) != maxDiagnostics {
		t.Errorf("%d lines, want %d", len(lines), maxDiagnostics)
	}
	for _, l := range lines {
		if l != lines[0] || strings.Contains(l, "c4n4ry") || strings.Contains(l, s.Token()) {
			t.Errorf("line %q", l)
		}
	}
}
