package health

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a server with something private on l.
func serve(t *testing.T, l net.Listener) {
	t.Helper()
	s := &Server{Gatherer: prometheus.NewRegistry(), Private: map[string]http.Handler{
		"GET /v1/secret": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "c4n4ry") }),
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func socket(t *testing.T) (string, net.Listener) {
	t.Helper()
	dir, err := os.MkdirTemp("", "skc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, l
}

func get(t *testing.T, network, address string, change func(*http.Request)) (int, string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://skcd/v1/secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	change(r)
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || res.Body.Close() != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestPrivateIsForTheSameUserOnTheSocket(t *testing.T) {
	path, l := socket(t)
	serve(t, l)
	if status, body := get(t, "unix", path, func(*http.Request) {}); status != http.StatusOK || body != "c4n4ry" {
		t.Errorf("the same user got %d %q", status, body)
	}
	for name, change := range map[string]func(*http.Request){
		"origin":       func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") },
		"host":         func(r *http.Request) { r.Host = "evil.example" },
		"other method": func(r *http.Request) { r.Method = http.MethodPost },
	} {
		if status, body := get(t, "unix", path, change); status < 400 || strings.Contains(body, "c4n4ry") {
			t.Errorf("%s: %d %q", name, status, body)
		}
	}
	tcp, err := ListenLoopback("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, tcp)
	if status, body := get(t, "tcp", tcp.Addr().String(), func(r *http.Request) { r.Host = tcp.Addr().String() }); status != http.StatusNotFound {
		t.Errorf("a loopback port: %d %q, want 404", status, body)
	}
}

// Another user is refused though the socket was opened to all.
func TestPrivateRefusesAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	path, l := socket(t)
	serve(t, l)
	for name, mode := range map[string]os.FileMode{filepath.Dir(path): 0o777, path: 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), curl, "-s", "-w", "%{http_code}", "--unix-socket", path, "http://skcd/v1/secret")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	out, err := cmd.Output()
	if err != nil || !strings.HasSuffix(string(out), "403") || strings.Contains(string(out), "c4n4ry") {
		t.Errorf("another user got %q, %v; want 403", out, err)
	}
}
