package control

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
)

func TestOnlyLoopback(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:0": true, "127.0.0.2:0": true, "[::1]:0": true,
		"0.0.0.0:0": false, ":0": false, "[::]:0": false, "192.0.2.1:0": false, "localhost:0": false, "127.0.0.1": false, "": false,
		"example.com:0": false, "[::1%lo]:0": false, "127.0.0.1:99999": false, "127.1:0": false,
	} {
		if err := CheckAddress(address); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := Listen(Options{Address: "0.0.0.0:0", Clock: clock.RealClock{}}); err == nil {
		t.Error("it listens to everybody")
	}
}

func TestIPv6(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("there is no IPv6 loopback")
	} else {
		must(t, l.Close())
	}
	s, err := Listen(Options{Address: "[::1]:0", Dir: filepath.Join(t.TempDir(), "n"), Files: &files.Layer{}, Submitter: submitter(done), Clock: clock.RealClock{}})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	c := connect(t, s)
	c.send(c.closeFrame("r"))
	c.want(gone("r"))
	for _, host := range []string{"127.0.0.1" + strings.TrimPrefix(s.listener.Addr().String(), "[::1]"), "localhost", "[::1]"} {
		u := upgrade{"GET", "/?token=" + s.Token(), "HTTP/1.1", host, strings.Split(handshake, "|")}
		if answer := say(t, s, u.text()); !strings.HasPrefix(answer, "HTTP/1.1 421 ") {
			t.Errorf("host %s: %q", host, answer)
		}
	}
	must(t, c.CloseNow())
	cancel()
	must(t, <-ended)
}

func TestDiscovery(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "notifications")
	must(t, os.Mkdir(dir, 0o700))
	// What a killed controller left.
	for _, name := range []string{".control.99999.tmp", FileName} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o600))
	}
	must(t, os.WriteFile(filepath.Join(dir, ".control.x.tmp"), nil, 0o600)) // another's
	written := make(chan files.Op, 100)
	s, stop := server(t, done, func(s *Server) {
		s.opts.Dir = dir
		s.opts.Clock = clocktesting.NewFakeClock(time.UnixMilli(1))
		s.opts.Files = &files.Layer{Trace: func(op files.Op) { written <- op }}
	})
	c := connect(t, s) // it listens before it publishes, and answers after
	c.send(c.closeFrame("r"))
	c.want(gone("r"))
	must(t, c.CloseNow())
	text, err := os.ReadFile(filepath.Join(dir, FileName))
	must(t, err)
	var got Record
	must(t, json.Unmarshal(text, &got))
	addr, _ := s.listener.Addr().(*net.TCPAddr)
	want := Record{
		Version: 1, PID: os.Getpid(), Host: "127.0.0.1", Port: addr.Port, URL: "ws://" + addr.String(), OwnerID: "owner",
		StartedAt: s.record.StartedAt, UpdatedAt: s.record.StartedAt,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	last := -1
	for _, member := range []string{"version", "pid", "host", "port", "url", "ownerId", "startedAt", "updatedAt", "stale"} {
		at := strings.Index(string(text), "\n  \""+member+"\": ")
		if at < last {
			t.Errorf("%s is not where it should be in:\n%s", member, text)
		}
		last = at
	}
	if strings.Contains(string(text), s.Token()) || strings.Contains(string(text), "stoppedAt") {
		t.Errorf("the file is\n%s", text)
	}
	for path, mode := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, FileName): 0o600} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, fi.Mode(), err)
		}
	}
	temp := filepath.Join(dir, ".control."+itoa(os.Getpid())+".tmp")
	var kinds []files.OpKind
	for len(written) > 0 {
		if op := <-written; op.Path == temp || op.Kind == files.OpSyncDir {
			kinds = append(kinds, op.Kind)
		}
	}
	if d := cmp.Diff([]files.OpKind{files.OpWrite, files.OpSync, files.OpRename, files.OpSyncDir}, kinds); d != "" {
		t.Errorf("operations:\n%s", d)
	}
	must(t, stop())
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 1 || entries[0].Name() != ".control.x.tmp" {
		t.Errorf("left are %v", entries)
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// A file that cannot be taken away says that it is stale.
func TestStaleDiscovery(t *testing.T) {
	var dir string
	s, stop := server(t, done, func(s *Server) { dir = s.opts.Dir })
	must(t, connect(t, s).CloseNow())
	// The file is in the way of its own removal: a guard that fails once.
	failing := errors.New("not now")
	calls := 0
	s.opts.Files.Guard = func() error {
		if calls++; calls == 1 {
			return failing
		}
		return nil
	}
	must(t, stop())
	text, err := os.ReadFile(filepath.Join(dir, FileName))
	must(t, err)
	var got Record
	must(t, json.Unmarshal(text, &got))
	if !got.Stale || got.StoppedAt == nil || *got.StoppedAt < got.StartedAt || got.UpdatedAt != *got.StoppedAt {
		t.Errorf("the file is\n%s", text)
	}
	must(t, Withdraw(dir, &files.Layer{}))
	must(t, Withdraw(dir, &files.Layer{}))
	must(t, Withdraw(filepath.Join(dir, "none"), &files.Layer{}))
	if _, err := os.Stat(filepath.Join(dir, FileName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

// Who lost the home leaves the file to the next owner.
func TestLostHome(t *testing.T) {
	s, stop := server(t, done)
	must(t, connect(t, s).CloseNow())
	path := s.path()
	must(t, os.WriteFile(path, []byte("the next owner's"), 0o600))
	s.opts.Files.Guard = func() error { return effects.ErrNotOwner }
	must(t, stop())
	if text, err := os.ReadFile(path); err != nil || string(text) != "the next owner's" {
		t.Errorf("%s, %v", text, err)
	}
}

func TestGracefulStop(t *testing.T) {
	began := make(chan struct{})
	s, stop := server(t, func(ctx context.Context, _ lifecycle.Request) (lifecycle.Outcome, error) {
		began <- struct{}{}
		<-ctx.Done()
		return lifecycle.Outcome{}, ctx.Err()
	})
	idle, busy := connect(t, s), connect(t, s)
	for range 3 {
		busy.send(busy.closeFrame("r"))
		<-began
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for range 3 {
		busy.want(failed("r", "terminal_uncertain", notProcessed))
	}
	for _, c := range []client{idle, busy} {
		c.closed(1001, "the controller stops")
	}
	must(t, <-stopped)
	if _, err := net.Dial("tcp", s.listener.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

// A peer that answers nothing holds no stop up for long.
func TestStopWithADeadPeer(t *testing.T) {
	s, stop := server(t, done)
	u := upgrade{"GET", "/?token=" + s.Token(), "HTTP/1.1", s.listener.Addr().String(), strings.Split(handshake, "|")}
	c, err := net.Dial("tcp", s.listener.Addr().String())
	must(t, err)
	defer c.Close()                                                                //nolint:errcheck // a test
	_, err = c.Write(append([]byte(u.text()), 0x81, 0xff, 0, 0, 0, 1, 0, 0, 0, 0)) // and the head of a frame of 4 GiB
	must(t, err)
	eventually(t, "it is connected", func() bool { return s.connections() == 1 })
	began := time.Now()
	must(t, stop())
	if took := time.Since(began); took > 2*closeTime {
		t.Errorf("the stop took %v", took)
	}
}

// An endless frame is closed without waiting for its end.
func TestEndlessFrame(t *testing.T) {
	s, _ := server(t, done)
	u := upgrade{"GET", "/?token=" + s.Token(), "HTTP/1.1", s.listener.Addr().String(), strings.Split(handshake, "|")}
	c, err := net.Dial("tcp", s.listener.Addr().String())
	must(t, err)
	defer c.Close()                                                                  //nolint:errcheck // a test
	text := append([]byte(u.text()), 0x81, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0) // 1 TiB
	_, err = c.Write(append(text, make([]byte, lifecycle.MaxFrameBytes+1)...))
	must(t, err)
	eventually(t, "it is gone", func() bool { return s.connections() == 0 })
}

// A peer that answers no ping is dropped.
func TestPing(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	s, _ := server(t, done, func(s *Server) { s.opts.Clock, s.patience = clk, 100*time.Millisecond })
	alive := connect(t, s)
	connect(t, s) // and never read
	answers := make(chan string)
	go func() { // who reads answers pings
		defer close(answers)
		for {
			frame, err := alive.read()
			if err != nil {
				return
			}
			answers <- frame
		}
	}()
	eventually(t, "both have their tickers", func() bool { return clk.Waiters() == 2 })
	clk.Step(pingEvery)
	eventually(t, "the dead one is gone", func() bool { return s.connections() == 1 })
	clk.Step(pingEvery)
	alive.send(alive.closeFrame("r"))
	if got := <-answers; got != gone("r") {
		t.Errorf("got %q", got)
	}
	must(t, alive.CloseNow())
	<-answers
}

func TestTokenHandler(t *testing.T) {
	s, err := Listen(Options{Address: "127.0.0.1:0", Clock: clock.RealClock{}, Log: logr.Discard()})
	must(t, err)
	defer s.Close() //nolint:errcheck // a test
	other, err := Listen(Options{Address: "127.0.0.1:0", Clock: clock.RealClock{}})
	must(t, err)
	defer other.Close()                                     //nolint:errcheck // a test
	if len(s.Token()) != 43 || s.Token() == other.Token() { // 32 bytes in base64url
		t.Errorf("tokens %q and %q", s.Token(), other.Token())
	}
	w := httptest.NewRecorder()
	s.TokenHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/control-token", nil))
	var got map[string]string
	must(t, json.Unmarshal(w.Body.Bytes(), &got))
	if d := cmp.Diff(map[string]string{"url": s.URL(), "token": s.Token()}, got); d != "" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%v %s", w.Header(), d)
	}
}
