package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"skc.dev/skc/api/v1alpha1"
)

// lookOf is one look of the probe that spec asks for. It returns "" when it
// succeeded, else why not, and ends when its context does.
func lookOf(spec v1alpha1.Readiness, target Target) func(context.Context) string {
	switch {
	case spec.Exec != nil:
		return func(ctx context.Context) string { return command(ctx, spec.Exec.Command, target) }
	case spec.File != nil:
		return func(context.Context) string { return file(spec.File.Path, target.Dir) }
	case spec.TCP != nil:
		return func(ctx context.Context) string { return port(ctx, spec.TCP.Port) }
	case spec.HTTP != nil:
		return func(ctx context.Context) string { return get(ctx, spec.HTTP.Port, spec.HTTP.Path) }
	case spec.Screen != nil:
		pattern, err := regexp.Compile(spec.Screen.Pattern)
		if err != nil {
			return func(context.Context) string { return "the pattern is no regular expression (RE2 syntax)" }
		}
		return func(ctx context.Context) string { return screen(ctx, pattern, target) }
	}
	return func(context.Context) string { return "the probe asks for nothing" }
}

func file(path, dir string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	_, err := os.Stat(path)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Sprintf("the file %q is not there", path)
	}
	return fmt.Sprintf("the file %q cannot be looked at: %s", path, cause(err))
}

func address(p int32) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p))) }

func port(ctx context.Context, p int32) string {
	conn, err := dial(ctx, "tcp", address(p))
	if err != nil {
		return address(p) + " accepts no connection: " + cause(err)
	}
	_ = conn.Close()
	return ""
}

// dial connects to a port of this machine and to nothing else.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	// With nobody listening, the kernel may choose the port that is looked for as
	// our own and connect us to ourselves.
	if conn.LocalAddr().String() == conn.RemoteAddr().String() {
		_ = conn.Close()
		return nil, syscall.ECONNREFUSED
	}
	return conn, nil
}

// client asks no proxy, keeps no connection, and takes a redirect for an answer.
var client = &http.Client{
	Transport: &http.Transport{
		DialContext:            dial,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func get(ctx context.Context, p int32, path string) string {
	if path == "" {
		path = "/"
	}
	url := "http://" + address(p) + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "the path is no part of an address"
	}
	req.Header.Set("User-Agent", "skc-probe")
	resp, err := client.Do(req)
	if err != nil {
		return "GET " + url + " has no answer: " + cause(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Sprintf("GET %s answers %d", url, resp.StatusCode)
	}
	return ""
}

func screen(ctx context.Context, pattern *regexp.Regexp, target Target) string {
	lines, err := target.Screen(ctx)
	if err != nil {
		return "the screen cannot be read"
	}
	for _, line := range lines {
		if pattern.MatchString(line) {
			return ""
		}
	}
	return "the screen has not shown the pattern yet"
}

// cause is the part of an error that is the same from look to look: no
// addresses, which may hold a port that changes.
func cause(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	return "it does not speak HTTP as it should, or broke off"
}
