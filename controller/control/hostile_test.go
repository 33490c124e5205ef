package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"skc.dev/skc/api/lifecycle"
)

// ask speaks raw bytes and returns all that comes until the other end closes
// the connection.
func ask(address, text string) (string, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // a test
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	if errors.Is(err, syscall.ECONNRESET) { // it did not want the rest
		err = nil
	}
	return string(answer), err
}

func say(t *testing.T, s *Server, text string) string {
	t.Helper()
	answer, err := ask(s.listener.Addr().String(), text)
	if err != nil {
		t.Fatalf("%v after %q", err, answer)
	}
	return answer
}

// upgrade is a handshake as a browser or a program sends it, changed.
type upgrade struct {
	method, target, proto, host string
	headers                     []string
}

func (u upgrade) text() string {
	return fmt.Sprintf("%s %s %s\r\nHost: %s\r\n%s\r\n\r\n", u.method, u.target, u.proto, u.host, strings.Join(u.headers, "\r\n"))
}

const handshake = "Connection: Upgrade|Upgrade: websocket|Sec-WebSocket-Version: 13|Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="

// TestHostile is a web page, or a program without the token: nobody gets an
// upgrade, or learns anything, or has anything done.
func TestHostile(t *testing.T) {
	var submitted atomic.Int32
	s, _ := server(t, func(ctx context.Context, r lifecycle.Request) (lifecycle.Outcome, error) {
		submitted.Add(1)
		return done(ctx, r)
	})
	host := s.listener.Addr().String()
	port := host[strings.LastIndex(host, ":")+1:]
	n, err := strconv.Atoi(port)
	must(t, err)

	type variant struct {
		name   string
		change func(*upgrade)
	}
	var variants []variant
	add := func(name string, change func(*upgrade)) { variants = append(variants, variant{name, change}) }
	for _, origin := range []string{
		"", "null", "http://evil.example", "https://evil.example:443", "http://localhost.evil.example", "http://127.0.0.1.evil.example",
		"http://" + host + ".evil.example", "http://evil.example/?" + host, "http://" + host + "@evil.example", "http://127.0.0.1:1",
		"http://" + host, "https://" + host, "ws://" + host, "http://localhost", "http://LOCALHOST:" + port, "http://localhost.:" + port, "http://[::1]:" + port,
		"file://", "chrome-extension://abcdefghijklmnop", "vscode-webview://x", "http://127.1:" + port, "http://0.0.0.0:" + port,
	} {
		add("origin "+origin, func(u *upgrade) { u.headers = append(u.headers, "Origin: "+origin) })
	}
	add("origin twice", func(u *upgrade) {
		u.headers = append(u.headers, "Origin: http://"+host, "Origin: http://evil.example")
	})
	add("origin in lower case", func(u *upgrade) { u.headers = append(u.headers, "origin: http://evil.example") })
	add("origin after a fold", func(u *upgrade) { u.headers = append(u.headers, "X: y\r\n Origin: x", "Origin: http://evil.example") })
	for _, h := range []string{
		"", "evil.example", "evil.example:" + port, "localhost", "localhost:" + port, "LOCALHOST:" + port, "localhost.:" + port, "127.0.0.1", "127.0.0.1.:" + port,
		"127.0.0.1:80", fmt.Sprintf("127.0.0.1:0%d", n), fmt.Sprintf("127.0.0.1:%d", n+1), "127.1:" + port, "2130706433:" + port, "0x7f000001:" + port, "0177.0.0.1:" + port,
		"127.0.0.2:" + port, "0.0.0.0:" + port, "[::1]:" + port, "[::1]", "::1", "[::ffff:127.0.0.1]:" + port, "[0:0:0:0:0:0:0:1]:" + port, "[::1%25lo]:" + port, "[::]:" + port,
		"127.0.0.1.nip.io:" + port, "rebind.127.0.0.1.evil.example:" + port, "user@" + host, host + ", evil.example", "evil.example#" + host, host + "/", "xn--lcalhost-54a:" + port,
	} {
		add("host "+h, func(u *upgrade) { u.host = h })
	}
	add("host twice", func(u *upgrade) { u.headers = append(u.headers, "Host: "+host) })
	add("forwarded host", func(u *upgrade) {
		u.host = "evil.example"
		u.headers = append(u.headers, "X-Forwarded-Host: "+host, "Forwarded: host="+host, "X-Host: "+host)
	})
	for _, m := range []string{"POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND", "get", "PRI"} {
		add("method "+m, func(u *upgrade) { u.method = m })
	}
	add("preflight", func(u *upgrade) {
		u.method = "OPTIONS"
		u.headers = []string{"Origin: http://evil.example", "Access-Control-Request-Method: GET", "Access-Control-Request-Headers: x", "Access-Control-Request-Private-Network: true"}
	})
	add("preflight without origin", func(u *upgrade) {
		u.method = "OPTIONS"
		u.headers = []string{"Access-Control-Request-Method: GET", "Access-Control-Request-Private-Network: true"}
	})
	add("options of all", func(u *upgrade) { u.method, u.target = "OPTIONS", "*" })
	for _, p := range []string{"//", "/x", "/.", "/../", "/%2e", "/%2f", "/index.html", "/control.json", "/v1/control-token", "/metrics", "/healthz", "*", "http://" + host + "/", "http://evil.example/", "//evil.example/"} {
		add("path "+p, func(u *upgrade) { _, query, _ := strings.Cut(u.target, "?"); u.target = p + "?" + query })
	}
	add("HTTP/1.0", func(u *upgrade) { u.proto = "HTTP/1.0" })
	add("HTTP/2", func(u *upgrade) { u.proto = "HTTP/2.0" })
	add("HTTP/0.9", func(u *upgrade) { u.proto = "" })
	without := func(name string) func(*upgrade) {
		return func(u *upgrade) {
			var kept []string
			for _, h := range u.headers {
				if !strings.HasPrefix(h, name) {
					kept = append(kept, h)
				}
			}
			u.headers = kept
		}
	}
	for _, name := range []string{"Connection:", "Upgrade:", "Sec-WebSocket-Version:", "Sec-WebSocket-Key:"} {
		add("without "+name, without(name))
	}
	add("simple request", func(u *upgrade) { u.headers = []string{"Accept: */*"} })
	add("form", func(u *upgrade) {
		u.method = "POST"
		body := closeFrame("r", s.Token())
		u.headers = []string{"Content-Type: text/plain", fmt.Sprintf("Content-Length: %d", len(body)), "", body}
	})
	add("body", func(u *upgrade) { u.headers = append(u.headers, "Content-Length: 2", "", "{}") })
	add("chunked body", func(u *upgrade) { u.headers = append(u.headers, "Transfer-Encoding: chunked", "", "0", "", "") })
	add("other upgrade", func(u *upgrade) { without("Upgrade:")(u); u.headers = append(u.headers, "Upgrade: h2c") })
	add("other version", func(u *upgrade) {
		without("Sec-WebSocket-Version:")(u)
		u.headers = append(u.headers, "Sec-WebSocket-Version: 8")
	})
	add("short key", func(u *upgrade) {
		without("Sec-WebSocket-Key:")(u)
		u.headers = append(u.headers, "Sec-WebSocket-Key: AAAA")
	})
	add("long header", func(u *upgrade) { u.headers = append(u.headers, "X: "+strings.Repeat("x", 32<<10)) })

	// What is wrong with the token alone.
	tokens := map[string]string{
		"no token": "/", "empty token": "/?token=", "wrong token": "/?token=" + strings.Repeat("A", len(s.Token())), "token and more": "/?token=" + s.Token() + "x",
		"half a token": "/?token=" + s.Token()[:20], "token twice": "/?token=" + s.Token() + "&token=" + s.Token(), "wrong and right": "/?token=x&token=" + s.Token(),
		"other name": "/?Token=" + s.Token(), "behind a semicolon": "/?a=b;token=" + s.Token(), "in the path": "/" + s.Token(), "padded": "/?token=" + s.Token() + "=",
		"other case": "/?token=" + strings.ToUpper(s.Token()),
	}
	right := upgrade{method: "GET", target: "/?token=" + s.Token(), proto: "HTTP/1.1", host: host, headers: strings.Split(handshake, "|")}
	count := 0
	refused := func(t *testing.T, u upgrade) {
		t.Helper()
		count++
		answer := say(t, s, u.text())
		head, body, _ := strings.Cut(answer, "\r\n\r\n")
		status := strings.Fields(head + " 400 400")[1]
		if !strings.HasPrefix(status, "4") && status != "505" {
			t.Errorf("answered %q", answer)
		}
		for _, secret := range []string{s.Token(), "ws://", "session", "owner"} {
			if strings.Contains(body, secret) {
				t.Errorf("the answer tells of %q: %q", secret, answer)
			}
		}
		if strings.Contains(strings.ToLower(head), "access-control-") || strings.Contains(head, "Sec-Websocket-Accept") {
			t.Errorf("the answer helps a page: %q", head)
		}
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			for _, token := range []string{"?token=" + s.Token(), "", "?token=wrong"} {
				u := right
				u.headers = append([]string(nil), right.headers...)
				u.target = "/" + token
				v.change(&u)
				refused(t, u)
			}
		})
	}
	for name, target := range tokens {
		t.Run(name, func(t *testing.T) {
			u := right
			u.target = target
			refused(t, u)
			u.headers = append([]string{"Authorization: Bearer " + s.Token(), "Cookie: token=" + s.Token()}, right.headers...)
			refused(t, u)
		})
	}
	if n := submitted.Load(); n != 0 {
		t.Errorf("%d requests were submitted", n)
	}
	if t.Logf("%d variants, %d handshakes refused", len(variants)+len(tokens), count); len(variants) < 40 {
		t.Errorf("%d variants, want at least 40", len(variants))
	}
	// The unchanged handshake is right, or all of this shows nothing.
	c, err := net.Dial("tcp", host)
	must(t, err)
	defer c.Close() //nolint:errcheck // a test
	_, err = io.WriteString(c, right.text())
	must(t, err)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	if _ = res.Body.Close(); res.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("the right handshake: %s", res.Status)
	}
}

// The status codes that others check.
func TestRefusals(t *testing.T) {
	s, _ := server(t, done)
	host := s.listener.Addr().String()
	for _, tt := range []struct {
		name, target, host, header string
		want                       int
	}{
		{"no token", "/", host, "X: y", 401},
		{"wrong token", "/?token=wrong", host, "X: y", 401},
		{"bearer token", "/", host, "Authorization: Bearer " + s.Token(), 401},
		{"page", "/?token=" + s.Token(), host, "Origin: http://evil.example", 403},
		{"page without a token", "/", host, "Origin: null", 403},
		{"other name", "/?token=" + s.Token(), "evil.example", "X: y", 421},
		{"other path", "/x?token=" + s.Token(), host, "X: y", 404},
	} {
		u := upgrade{"GET", tt.target, "HTTP/1.1", tt.host, append(strings.Split(handshake, "|"), tt.header)}
		if answer := say(t, s, u.text()); !strings.HasPrefix(answer, fmt.Sprintf("HTTP/1.1 %d ", tt.want)) {
			t.Errorf("%s: %q, want %d", tt.name, answer, tt.want)
		}
	}
	u := upgrade{"GET", "/?token=" + s.Token(), "HTTP/1.1", host, []string{"X: y"}}
	if answer := say(t, s, u.text()); !strings.HasPrefix(answer, "HTTP/1.1 426 ") {
		t.Errorf("no upgrade: %q, want 426", answer)
	}
}

func TestManyWrongTokens(t *testing.T) {
	tries := 10_000
	if testing.Short() {
		tries = 500
	}
	s, _ := server(t, done)
	host := s.listener.Addr().String()
	began := time.Now()
	var all sync.WaitGroup
	for part := range 4 {
		all.Go(func() {
			for i := part; i < tries && !t.Failed(); i += 4 {
				u := upgrade{"GET", fmt.Sprintf("/?token=%043d", i), "HTTP/1.1", host, strings.Split(handshake, "|")}
				if answer, err := ask(host, u.text()); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 401 ") {
					t.Errorf("try %d: %q, %v", i, answer, err)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	began = time.Now()
	c := connect(t, s)
	for i := range tries {
		c.send(closeFrame("r", fmt.Sprintf("%043d", i)))
		c.want(failed("r", "unauthorized", "unauthorized lifecycle frame"))
	}
	c.send(c.closeFrame("r"))
	c.want(gone("r"))
	t.Logf("%d tries of the upgrade in %v, of a frame in %v", tries, took, time.Since(began))
}

// Connections that say nothing cost each other, not who has the token.
func TestSilentStrangers(t *testing.T) {
	s, _ := server(t, done)
	var silent []net.Conn
	for range 2 * maxStrangers {
		c, err := net.Dial("tcp", s.listener.Addr().String())
		must(t, err)
		defer c.Close() //nolint:errcheck // a test
		silent = append(silent, c)
	}
	began := time.Now()
	c := connect(t, s)
	c.send(c.closeFrame("r"))
	c.want(gone("r"))
	if took := time.Since(began); took > time.Second {
		t.Errorf("the right client waited %v", took)
	}
	for i, c := range silent[:maxStrangers] { // the oldest are closed before their time is over
		must(t, c.SetReadDeadline(began.Add(headerTime/2)))
		if _, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Fatalf("stranger %d: %v", i, err)
		}
	}
}

func TestConnectionLimit(t *testing.T) {
	s, _ := server(t, done)
	var all []client
	for range maxConnections {
		all = append(all, connect(t, s))
	}
	dial := func() error {
		ws, res, err := websocket.Dial(t.Context(), s.URL()+"/?token="+s.Token(), nil) //nolint:bodyclose // it has none
		if err == nil {
			return ws.CloseNow()
		}
		if res == nil || res.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("dial: %v", err)
		}
		return err
	}
	if dial() == nil {
		t.Error("one more than the limit was taken")
	}
	must(t, all[0].CloseNow())
	eventually(t, "there is room again", func() bool { return len(s.places) < maxConnections })
	must(t, dial())
	all[1].send(all[1].closeFrame("r"))
	all[1].want(gone("r"))
}

func TestRequestsInFlightAreLimited(t *testing.T) {
	began, finish := make(chan struct{}), make(chan struct{})
	s, _ := server(t, func(ctx context.Context, r lifecycle.Request) (lifecycle.Outcome, error) {
		began <- struct{}{}
		<-finish
		return done(ctx, r)
	})
	c := connect(t, s)
	for i := range maxInFlight {
		c.send(c.closeFrame(fmt.Sprint(i)))
		<-began
	}
	c.send(c.closeFrame("more"))
	c.want(failed("more", "rate_limited", messageBusy))
	close(finish)
	for range maxInFlight {
		if got, err := c.read(); err != nil || !strings.Contains(got, `"status":"ok"`) {
			t.Fatalf("%s, %v", got, err)
		}
	}
	c.send(c.closeFrame("more"))
	<-began
	c.want(gone("more"))
}

// Who does not read its answers is dropped, and holds up nobody until then.
func TestSlowReader(t *testing.T) {
	s, _ := server(t, done, func(s *Server) { s.patience = 200 * time.Millisecond })
	slow, quick := connect(t, s), connect(t, s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		frame := []byte(closeFrame(strings.Repeat("x", 128), "wrong"))
		for slow.Write(context.WithoutCancel(t.Context()), websocket.MessageText, frame) == nil {
		}
	}()
	for i := range 100 {
		quick.send(quick.closeFrame(fmt.Sprint(i)))
		quick.want(gone(fmt.Sprint(i)))
	}
	select {
	case <-ended:
	case <-time.After(deadline):
		t.Error("the slow one is still there")
	}
	eventually(t, "one connection is left", func() bool { return s.connections() == 1 })
	quick.send(quick.closeFrame("r"))
	quick.want(gone("r"))
}
