// Package health serves /healthz, /readyz and /metrics of the controller on its
// control socket, and on a loopback port when that is asked for.
package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sort"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check is one thing that must be so before the controller is ready; its error
// says what is not.
type Check func() error

// Server answers for one controller.
type Server struct {
	Ready    map[string]Check
	Gatherer prometheus.Gatherer
	// Private answers, by the patterns of http.ServeMux, on the control socket
	// only, and only to processes of this user: the kernel tells whose they are.
	Private map[string]http.Handler
}

// Listen opens the control socket: a unix socket, open to its owner only. What
// an earlier controller left at the path is removed; call it as the owner of
// the home.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old control socket: %w", err)
	}
	l, err := net.Listen("unix", path) // nobody else reaches it before the chmod: the folder is 0700
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	// An owner that lost the home must not take the next one's socket with it.
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("close control socket to others: %w", err), l.Close())
	}
	return l, nil
}

// ListenLoopback opens a TCP port for metrics. Any address that is not
// loopback is refused.
func ListenLoopback(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("metrics address: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("metrics address %s: only a loopback address such as 127.0.0.1 is allowed", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open metrics port: %w", err)
	}
	return l, nil
}

// Serve answers on the listener until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Gatherer, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: local(mux), ReadHeaderTimeout: 5 * time.Second}
	if _, unix := l.(*net.UnixListener); unix {
		for pattern, h := range s.Private {
			mux.Handle(pattern, private(h))
		}
		srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peer{}, c)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// local refuses what a browser sends on behalf of a web page: on a loopback
// port a page of any site can reach us.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		ip := net.ParseIP(host)
		if r.Header.Get("Origin") != "" || (host != "skcd" && host != "localhost" && (ip == nil || !ip.IsLoopback())) {
			http.Error(w, "only local programs are served", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// peer is the key under which the context of a request on the control socket has
// its connection.
type peer struct{}

// private refuses processes of another user, the superuser's too. The mode of
// the socket keeps most of them out before; this holds when it was changed.
func private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(peer{}).(*net.UnixConn)
		if c == nil || !sameUser(c) {
			http.Error(w, "only programs of the same user are served", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameUser says whether the process at the other end belongs to this user; one
// of whom the kernel does not tell does not.
func sameUser(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var uid uint32
	var credErr error
	if err := raw.Control(func(fd uintptr) { uid, credErr = peerUID(int(fd)) }); err != nil || credErr != nil { //nolint:gosec // a descriptor is an int
		return false
	}
	return int(uid) == os.Geteuid()
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	names := make([]string, 0, len(s.Ready))
	for n := range s.Ready {
		names = append(names, n)
	}
	sort.Strings(names)
	var body string
	status := http.StatusOK
	for _, n := range names {
		if err := s.Ready[n](); err != nil {
			body += fmt.Sprintf("[-] %s: %v\n", n, err)
			status = http.StatusServiceUnavailable
			continue
		}
		body += fmt.Sprintf("[+] %s\n", n)
	}
	w.WriteHeader(status)
	fmt.Fprint(w, body)
}
