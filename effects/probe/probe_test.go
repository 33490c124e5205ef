package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	web = api.Key{Kind: v1alpha1.KindSession, Namespace: "default", Name: "web"}
	one = effects.LaunchID{UID: "01234567-89ab-cdef-0123-456789abcdef", Generation: 1, Attempt: 1}
)

func period(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// world is a prober with a clock that the test moves.
type world struct {
	*Prober
	clock   *clocktesting.FakeClock
	changed chan api.Key
}

func newWorld(t *testing.T) world {
	w := world{clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), changed: make(chan api.Key, 100)}
	w.Prober = New(w.clock, func(k api.Key) { w.changed <- k })
	t.Cleanup(w.Close)
	return w
}

// next waits for the next change of the result and returns it.
func (w world) next(t *testing.T, spec *v1alpha1.Readiness, target Target) Result {
	t.Helper()
	select {
	case k := <-w.changed:
		if k != web {
			t.Errorf("change of %v, want %v", k, web)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no change of the result")
	}
	return w.Ensure(web, one, spec, target)
}

// first is the result of the first look.
func first(t *testing.T, spec v1alpha1.Readiness, target Target) Result {
	t.Helper()
	w := newWorld(t)
	if r := w.Ensure(web, one, &spec, target); r != (Result{}) {
		t.Errorf("before the first look: %+v, want nothing known", r)
	}
	r := w.next(t, &spec, target)
	if !r.Known || r.EverReady != r.Ready || (r.Message == "") != r.Ready {
		t.Errorf("result does not fit itself: %+v", r)
	}
	return r
}

// freePort is a port that nobody listens on.
func freePort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a test
	return portOf(l)
}

func portOf(l net.Listener) int32 { return int32(l.Addr().(*net.TCPAddr).Port) }

const path = "PATH=/usr/local/bin:/usr/bin:/bin"

func TestExec(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("FOO", "ours")
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "tool"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		argv []string
		env  []string
		dir  string
		want string // message
	}{
		{name: "success", argv: []string{"true"}},
		{name: "failure", argv: []string{"false"}, want: "the command ended with exit code 1"},
		{name: "exit code", argv: []string{"sh", "-c", "echo s3cr3t; echo s3cr3t >&2; exit 42"}, want: "the command ended with exit code 42"},
		{name: "signal", argv: []string{"sh", "-c", "kill -SEGV $$"}, want: "the command was ended by SIGSEGV"},
		{name: "no shell", argv: []string{"test", "$HOME;#`", "=", "$HOME;#`"}},
		{name: "in the folder", argv: []string{"test", "-x", "bin/tool"}},
		{name: "exactly the environment", argv: []string{"sh", "-c", `test "$A" = b && test -z "$FOO$HOME"`}, env: []string{path, "A=b"}},
		{name: "nothing to read", argv: []string{"sh", "-c", `test -z "$(cat)"`}},
		{name: "in the PATH of the session", argv: []string{"tool"}, env: []string{"PATH=/nowhere:bin"}},
		{name: "relative to the folder", argv: []string{"bin/tool"}},
		{name: "missing", argv: []string{"no-such"}, want: `there is no program "no-such" in the PATH of the session`},
		{name: "missing path", argv: []string{"/no/such"}, want: `the program "/no/such" cannot be started: no such file or directory`},
		{name: "folder for a program", argv: []string{"/tmp"}, want: `the program "/tmp" cannot be started: permission denied`},
		{name: "folder gone", argv: []string{"/bin/true"}, dir: "/no/such", want: `the folder "/no/such" is not there`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.env == nil {
				c.env = []string{path}
			}
			if c.dir == "" {
				c.dir = dir
			}
			r := first(t, v1alpha1.Readiness{Exec: &v1alpha1.ExecProbe{Command: c.argv}}, Target{Dir: c.dir, Env: c.env})
			if r.Message != c.want {
				t.Errorf("message %q, want %q", r.Message, c.want)
			}
		})
	}
}

// A command that takes longer than the period is killed with all it started.
func TestExecKilledWhole(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	r, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // a test
	// Every process of the command holds the pipe open; when the read ends, none is left.
	fd := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), held.Fd())
	if _, err := os.Stat(fd); err != nil {
		t.Skip("no /proc")
	}
	spec := &v1alpha1.Readiness{Period: period(time.Second), Exec: &v1alpha1.ExecProbe{Command: []string{
		"sh", "-c", `exec 9>"$1"; trap "" TERM HUP; sleep 600 & sh -c 'sleep 600; :' & echo >started; wait`, "x", fd,
	}}}
	target := Target{Dir: dir, Env: []string{path}}
	w.Ensure(web, one, spec, target)
	within(t, func() bool { _, err := os.Stat(filepath.Join(dir, "started")); return err == nil })
	_ = held.Close()
	w.clock.Step(time.Second)
	got := w.next(t, spec, target)
	if want := (Result{Known: true, Message: "no answer within 1s"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	w.Stop(web) // the next look would hold it again
	w.Close()
	if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a process of the command is left: %v", err)
	}
}

// What a command leaves in the background ends with it.
func TestExecLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	first(t, v1alpha1.Readiness{Exec: &v1alpha1.ExecProbe{Command: []string{"sh", "-c", "sleep 600 & echo $! >pid"}}}, Target{Dir: dir, Env: []string{path}})
	b, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(b))
	within(t, func() bool {
		cmdline, err := os.ReadFile("/proc/" + pid + "/cmdline")
		return err != nil || len(cmdline) == 0 // gone, or a zombie that init reaps
	})
}

func within(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("did not come true within 10s")
		}
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "here"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"here":                         "",
		".":                            "",
		filepath.Join(dir, "here"):     "",
		"gone":                         fmt.Sprintf("the file %q is not there", filepath.Join(dir, "gone")),
		"here/below":                   fmt.Sprintf("the file %q is not there", filepath.Join(dir, "here/below")),
		"/" + strings.Repeat("n", 300): fmt.Sprintf("the file %q cannot be looked at: file name too long", "/"+strings.Repeat("n", 300)),
	} {
		r := first(t, v1alpha1.Readiness{File: &v1alpha1.FileProbe{Path: path}}, Target{Dir: dir})
		if r.Message != want {
			t.Errorf("%s: message %q, want %q", path, r.Message, want)
		}
	}
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a test
	if r := first(t, v1alpha1.Readiness{TCP: &v1alpha1.TCPProbe{Port: portOf(l)}}, Target{}); !r.Ready {
		t.Errorf("got %+v, want ready", r)
	}
	free := freePort(t)
	want := fmt.Sprintf("127.0.0.1:%d accepts no connection: connection refused", free)
	if r := first(t, v1alpha1.Readiness{TCP: &v1alpha1.TCPProbe{Port: free}}, Target{}); r.Message != want {
		t.Errorf("message %q, want %q", r.Message, want)
	}
}

func TestHTTP(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // not heeded
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	var followed atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		if code/100 == 3 {
			w.Header().Set("Location", "/followed")
		}
		w.WriteHeader(code)
	})
	mux.HandleFunc("/followed", func(http.ResponseWriter, *http.Request) { followed.Store(true) })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		_, _ = conn.Write([]byte("SSH-2.0-x\r\n"))
		_ = conn.Close()
	})
	mux.HandleFunc("/query", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "a=b%20c&d" || r.Method != http.MethodGet {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	p := portOf(srv.Listener)
	base := fmt.Sprintf("http://127.0.0.1:%d", p)
	for path, want := range map[string]string{
		"/status/200":      "",
		"/status/204":      "",
		"/status/302":      "",
		"/status/399":      "",
		"/status/400":      "GET " + base + "/status/400 answers 400",
		"/status/503":      "GET " + base + "/status/503 answers 503",
		"":                 "GET " + base + "/ answers 404",
		"/query?a=b%20c&d": "",
		"/cut":             "GET " + base + "/cut has no answer: it does not speak HTTP as it should, or broke off",
		"/%zz":             "the path is no part of an address",
	} {
		r := first(t, v1alpha1.Readiness{HTTP: &v1alpha1.HTTPProbe{Port: p, Path: path}}, Target{})
		if r.Message != want {
			t.Errorf("%s: message %q, want %q", path, r.Message, want)
		}
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
	free := freePort(t)
	want := fmt.Sprintf("GET http://127.0.0.1:%d/ has no answer: connection refused", free)
	if r := first(t, v1alpha1.Readiness{HTTP: &v1alpha1.HTTPProbe{Port: free, Path: "/"}}, Target{}); r.Message != want {
		t.Errorf("message %q, want %q", r.Message, want)
	}
}

// A server that takes the connection and says nothing is late, not ready.
func TestHTTPSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a test
	w := newWorld(t)
	spec := &v1alpha1.Readiness{Period: period(3 * time.Second), HTTP: &v1alpha1.HTTPProbe{Port: portOf(l), Path: "/"}}
	w.Ensure(web, one, spec, Target{})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // a test
	w.clock.Step(3 * time.Second)
	if r := w.next(t, spec, Target{}); r.Message != "no answer within 3s" || r.Ready {
		t.Errorf("got %+v", r)
	}
}

// The loop's life, on a clock that moves only when all wait.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks, changes atomic.Int64
		type view struct {
			lines []string
			err   error
		}
		var screen atomic.Pointer[view]
		screen.Store(&view{lines: []string{"starting"}})
		p := New(clock.RealClock{}, func(api.Key) { changes.Add(1) })
		defer p.Close()
		target := Target{Screen: func(context.Context) ([]string, error) {
			looks.Add(1)
			v := screen.Load()
			return v.lines, v.err
		}}
		spec := &v1alpha1.Readiness{Period: period(time.Second), Screen: &v1alpha1.ScreenProbe{Pattern: `^ready on port \d+$`}}
		want := func(looksWant, changesWant int64, r Result) {
			t.Helper()
			synctest.Wait()
			if got := p.Ensure(web, one, spec, target); got != r || looks.Load() != looksWant || changes.Load() != changesWant {
				t.Errorf("got %+v after %d looks and %d changes; want %+v, %d, %d", got, looks.Load(), changes.Load(), r, looksWant, changesWant)
			}
		}
		pass := func(d time.Duration) { time.Sleep(d) } // the bubble's clock
		notYet := Result{Known: true, Message: "the screen has not shown the pattern yet"}

		p.Ensure(web, one, spec, target)
		want(1, 1, notYet)
		spec.Deadline = period(time.Hour) // no concern of the loop
		pass(5 * time.Second)
		want(6, 1, notYet) // no change, nothing told
		screen.Store(&view{err: errors.New("pane %7 is gone at 12:01")})
		pass(time.Second)
		want(7, 2, Result{Known: true, Message: "the screen cannot be read"})
		screen.Store(&view{lines: []string{"x", "ready on port 3000"}})
		pass(time.Second)
		want(8, 3, Result{Known: true, Ready: true, EverReady: true})
		screen.Store(&view{})
		pass(time.Minute)
		want(8, 3, Result{Known: true, Ready: true, EverReady: true}) // latched, no more looks

		two := one
		two.Attempt++
		if r := p.Ensure(web, two, spec, target); r != (Result{}) {
			t.Errorf("another start begins with %+v", r)
		}
		synctest.Wait()
		if r := p.Ensure(web, two, spec, target); r != notYet || looks.Load() != 9 {
			t.Errorf("another start: %+v after %d looks", r, looks.Load())
		}
		changed := spec.DeepCopy()
		changed.Screen.Pattern = "("
		p.Ensure(web, two, changed, target)
		synctest.Wait()
		if r := p.Ensure(web, two, changed, target); !r.Known || r.Ready || !strings.Contains(r.Message, "RE2") {
			t.Errorf("a pattern that is none: %+v", r)
		}
		p.Stop(web)
		p.Stop(web)
		n := looks.Load()
		pass(time.Minute)
		if looks.Load() != n {
			t.Error("looked after Stop")
		}
		p.Close()
		if r := p.Ensure(web, one, spec, target); r != (Result{}) {
			t.Errorf("after Close: %+v", r)
		}
		pass(time.Minute)
		if looks.Load() != n {
			t.Error("looked after Close")
		}
	})
}

// Readiness that is lost is told, and that there was one.
func TestLost(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	file := filepath.Join(dir, "ready")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := &v1alpha1.Readiness{File: &v1alpha1.FileProbe{Path: "ready"}} // the default period
	target := Target{Dir: dir}
	w.Ensure(web, one, spec, target)
	if r := w.next(t, spec, target); !r.Ready {
		t.Fatalf("got %+v, want ready", r)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	within(t, w.clock.HasWaiters)
	w.clock.Step(time.Second)
	if r := w.next(t, spec, target); r.Ready || !r.EverReady || r.Message == "" {
		t.Errorf("got %+v, want lost", r)
	}
}

// A slow look delays the next one; there are never two at a time, and one that
// was stopped tells nothing.
func TestSlowLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, told atomic.Int64
		p := New(clock.RealClock{}, func(api.Key) { told.Add(1) })
		target := Target{Screen: func(ctx context.Context) ([]string, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-ctx.Done()
			time.Sleep(300 * time.Millisecond) // slow to heed it, too
			return []string{"match"}, nil
		}}
		spec := &v1alpha1.Readiness{Period: period(time.Second), Screen: &v1alpha1.ScreenProbe{Pattern: "match"}}
		p.Ensure(web, one, spec, target)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if r := p.Ensure(web, one, spec, target); r.Ready || r.Message != "no answer within 1s" || most.Load() != 1 || told.Load() != 1 {
			t.Errorf("got %+v, %d at a time, told %d times", r, most.Load(), told.Load())
		}
		p.Stop(web)
		p.Close()
		if told.Load() != 1 || running.Load() != 0 {
			t.Errorf("after Close: told %d times, %d running", told.Load(), running.Load())
		}
	})
}
