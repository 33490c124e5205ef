//go:build e2e

// Package world drives the built binaries from outside, as a user or an
// init system does: a private home, the commands, the files, /proc and tmux. It
// keeps true that a test leaves nothing behind, and it fails the test when skc
// did: a process, a tmux session or a temporary that no object owns, a file that
// others may read, a secret where none belongs.
package world

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api/v1alpha1"
)

// Patience is how long Until waits. It is long, since the suite shares two cores
// with itself; what must be quick is measured by the test.
const Patience = 30 * time.Second

// look is how often something is looked at again.
const look = 20 * time.Millisecond

// World is one private home with its controller.
type World struct {
	testing.TB
	// Dir holds all of it and is removed at the end; short, for the sockets.
	Dir string
	// Home is what --home names.
	Home, Spool, State, Run string
	// Work is where the sessions' folders are.
	Work string
	// Bin is where the binaries are that Start and Ctl run.
	Bin string
	// Env is added to the environment of skcd and skcctl.
	Env []string
	// Homeless starts the binaries without --home: Env says where all is.
	Homeless bool
	// Prefix is put before skcd's command line, as an unshare.
	Prefix []string

	canary  string
	now     *Controller
	all     []*Controller
	removal []func()
	mu      sync.Mutex
	seen    map[string]bool // UIDs of all objects that the test looked at; under mu
}

// BeforeRemoval has fn called when nothing of the world runs any more, before
// its folder is removed.
func (w *World) BeforeRemoval(fn func()) { w.removal = append(w.removal, fn) }

// Root is the folder of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// New makes a world. With faults it runs the binaries that have fault points.
func New(t testing.TB, faults ...bool) *World {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed")
	}
	dir, err := os.MkdirTemp("", "skce")
	Must(t, err)
	dir, err = filepath.EvalSymlinks(dir)
	Must(t, err)
	w := &World{
		TB: t, Dir: dir, Home: filepath.Join(dir, "h"), Work: filepath.Join(dir, "w"),
		Bin: filepath.Join(Root(), "bin"), canary: "CANARY-" + Random(),
		seen: map[string]bool{},
	}
	if len(faults) > 0 && faults[0] {
		w.Bin = filepath.Join(w.Bin, "faults")
	}
	if _, err := os.Stat(filepath.Join(w.Bin, "skcd")); err != nil {
		t.Fatalf("%v; run `make build build-faults` first", err)
	}
	w.Spool, w.State, w.Run = filepath.Join(w.Home, "spool"), filepath.Join(w.Home, "state"), filepath.Join(w.Home, "run")
	for _, d := range []string{w.Home, w.Spool, w.Work} {
		Must(t, os.Mkdir(d, 0o700))
	}
	w.Config("")
	t.Cleanup(w.close)
	return w
}

// Config writes skcd's config file: what every test has, and more. The canary
// is in every session's environment, and may be nowhere else.
func (w *World) Config(more string) {
	w.Helper()
	w.Write(filepath.Join(w.Home, "skcd.yaml"), fmt.Sprintf(
		"resync: 1s\npruneSettle: 500ms\nsessionEnv: [%q, %q]\n%s", worldVar+"="+w.Dir, "SKCE_CANARY="+w.canary, more))
}

// Random is sixteen hex digits that occur nowhere else.
func Random() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// Must ends the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Write writes a file of the test, by rename, so that skcd reads it at once.
func (w *World) Write(path, text string) {
	w.Helper()
	tmp := filepath.Join(w.Dir, ".new-"+Random())
	Must(w, os.WriteFile(tmp, []byte(text), 0o600))
	Must(w, os.Rename(tmp, path))
}

// Drop puts a file into the spool, by rename; @WORK@ in it is the work folder.
func (w *World) Drop(name, text string) {
	w.Helper()
	w.Write(filepath.Join(w.Spool, name), strings.ReplaceAll(text, "@WORK@", w.Work))
}

// Remove removes a file of the spool.
func (w *World) Remove(name string) {
	w.Helper()
	Must(w, os.Remove(filepath.Join(w.Spool, name)))
}

// Controller is one run of skcd.
type Controller struct {
	w    *World
	Cmd  *exec.Cmd
	Log  string // file with what it printed
	Done chan struct{}
	// Ended is set by the test that expects skcd to end by itself.
	Ended bool
}

// PID is the process id of skcd.
func (c *Controller) PID() int { return c.Cmd.Process.Pid }

// Alive tells whether it runs.
func (c *Controller) Alive() bool {
	select {
	case <-c.Done:
		return false
	default:
		return true
	}
}

// Wait waits for its end and returns the exit code, -1 after a signal.
func (c *Controller) Wait() int {
	c.w.Helper()
	select {
	case <-c.Done:
		return c.Cmd.ProcessState.ExitCode()
	case <-time.After(Patience):
		_ = c.Cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-c.Done:
		case <-time.After(5 * time.Second):
			_ = c.Cmd.Process.Kill()
		}
		c.w.Fatalf("skcd did not end; its goroutines are in the log below")
		return 0
	}
}

// Text is what it printed.
func (c *Controller) Text() string {
	b, err := os.ReadFile(c.Log)
	Must(c.w, err)
	return string(b)
}

func (w *World) environ() []string {
	env := []string{"PATH=" + w.Bin + ":" + os.Getenv("PATH"), "HOME=" + w.Dir, "TMPDIR=" + w.Dir}
	if !w.Homeless {
		env = append(env, "SKC_HOME="+w.Home)
	}
	return append(env, w.Env...)
}

// Spawn starts skcd and does not wait until it is ready.
func (w *World) Spawn(args ...string) *Controller {
	w.Helper()
	c := &Controller{w: w, Done: make(chan struct{}), Log: filepath.Join(w.Dir, fmt.Sprintf("skcd-%d.log", len(w.all)))}
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	Must(w, err)
	argv := append(slices.Clone(w.Prefix), filepath.Join(w.Bin, "skcd"))
	if !w.Homeless {
		argv = append(argv, "--home", w.Home)
	}
	argv = append(argv, args...)
	c.Cmd = exec.Command(argv[0], argv[1:]...)
	c.Cmd.Dir, c.Cmd.Env, c.Cmd.Stdout, c.Cmd.Stderr = w.Dir, w.environ(), log, log
	Must(w, c.Cmd.Start())
	go func() {
		_ = c.Cmd.Wait()
		_ = log.Close()
		close(c.Done)
	}()
	w.all = append(w.all, c)
	return c
}

// Start starts skcd and waits until it is ready.
func (w *World) Start(args ...string) *Controller {
	w.Helper()
	c := w.Spawn(args...)
	w.now = c
	w.Until("skcd is ready", func() bool {
		if !c.Alive() {
			w.Fatalf("skcd ended with %d:\n%s", c.Cmd.ProcessState.ExitCode(), c.Text())
		}
		return w.Ready()
	})
	return c
}

// StartOrDie starts skcd and waits until it is ready or has ended; it tells
// which.
func (w *World) StartOrDie(args ...string) (c *Controller, ready bool) {
	w.Helper()
	c = w.Spawn(args...)
	w.now = c
	c.Ended = true
	w.Until("skcd is ready or has ended", func() bool { return !c.Alive() || w.Ready() })
	return c, c.Alive()
}

// Get asks the control socket; status 0 when nobody answers.
func (w *World) Get(path string) (status int, body string) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(w.Run, "skcd.sock"))
		}}}
	r, err := client.Get("http://skcd" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close() //nolint:errcheck // only read from
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(b)
}

// Ready tells whether skcd says that it is ready.
func (w *World) Ready() bool {
	status, _ := w.Get("/readyz")
	return status == http.StatusOK
}

// Metric is the sum over all series of one metric.
func (w *World) Metric(name string) float64 {
	w.Helper()
	_, body := w.Get("/metrics")
	sum, found := 0.0, false
	for line := range strings.Lines(body) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		Must(w, err)
		sum, found = sum+v, true
	}
	if !found {
		w.Fatalf("there is no metric %s", name)
	}
	return sum
}

// Stop ends skcd with the signal and waits until it is gone.
func (w *World) Stop(sig syscall.Signal) {
	w.Helper()
	c := w.now
	if c == nil {
		return
	}
	w.now = nil
	if !c.Alive() {
		if !c.Ended {
			w.Errorf("skcd ended by itself with %d", c.Cmd.ProcessState.ExitCode())
		}
		return
	}
	Must(w, c.Cmd.Process.Signal(sig))
	if code := c.Wait(); sig == syscall.SIGTERM && code != 0 {
		w.Errorf("skcd ended with %d on SIGTERM, want 0", code)
	}
}

// Now is the controller that Start started last, nil after Stop.
func (w *World) Now() *Controller { return w.now }

// Result is what a command did.
type Result struct {
	Out, Err string
	Code     int
}

// Ctl runs skcctl.
func (w *World) Ctl(args ...string) Result { return w.CtlIn("", args...) }

// CtlIn runs skcctl with the text on standard input.
func (w *World) CtlIn(in string, args ...string) Result {
	cmd := exec.Command(filepath.Join(w.Bin, "skcctl"), args...)
	var out, errOut bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = w.Work, w.environ(), strings.NewReader(in), &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Result{Err: err.Error(), Code: -1}
	}
	return Result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// MustCtl runs skcctl, which must succeed, and returns what it printed.
func (w *World) MustCtl(args ...string) string {
	w.Helper()
	r := w.Ctl(args...)
	if r.Code != 0 {
		w.Fatalf("skcctl %q ended with %d: %s%s", args, r.Code, r.Out, r.Err)
	}
	return r.Out
}

// Apply applies a text with skcctl; @WORK@ in it is the work folder.
func (w *World) Apply(text string) {
	w.Helper()
	if r := w.CtlIn(strings.ReplaceAll(text, "@WORK@", w.Work), "apply", "-f", "-"); r.Code != 0 {
		w.Fatalf("apply ended with %d: %s%s", r.Code, r.Out, r.Err)
	}
}

// Tmux runs one tmux command on the private server, as a user might.
func (w *World) Tmux(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience/3)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-S", w.Socket()}, args...)...)
	// A tmux client hands its output to whoever listens, who may keep it open.
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// MustTmux is Tmux that must succeed.
func (w *World) MustTmux(args ...string) string {
	w.Helper()
	out, err := w.Tmux(args...)
	if err != nil {
		w.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return out
}

// Socket is the socket of the private server.
func (w *World) Socket() string { return filepath.Join(w.Run, "tmux.sock") }

// Until waits until fn is true.
func (w *World) Until(what string, fn func() bool) {
	w.Helper()
	w.Within(Patience, what, fn)
}

// Within waits until fn is true, at most so long, and returns how long it took.
func (w *World) Within(limit time.Duration, what string, fn func() bool) time.Duration {
	w.Helper()
	begin := time.Now()
	for !fn() {
		if time.Since(begin) > limit {
			w.Fatalf("after %s it is still not so that %s", limit, what)
		}
		time.Sleep(look)
	}
	return time.Since(begin)
}

// Always sees that fn stays true for so long.
func (w *World) Always(during time.Duration, what string, fn func() bool) {
	w.Helper()
	for begin := time.Now(); time.Since(begin) < during; time.Sleep(look) {
		if !fn() {
			w.Fatalf("after %s it is no longer so that %s", time.Since(begin).Round(time.Millisecond), what)
		}
	}
}

// StateFile is where skcd keeps a session of the default namespace.
func (w *World) StateFile(name string) string {
	ns, n := split(name)
	return filepath.Join(w.State, "objects", "session", ns, n+".yaml")
}

func split(name string) (namespace, rest string) {
	if ns, n, ok := strings.Cut(name, "/"); ok {
		return ns, n
	}
	return v1alpha1.DefaultNamespace, name
}

// Session is what the state file says, nil when there is none. It costs less
// than a command, for what is looked at often.
func (w *World) Session(name string) *v1alpha1.Session {
	w.Helper()
	data, err := os.ReadFile(w.StateFile(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	Must(w, err)
	s := &v1alpha1.Session{}
	if err := yaml.Unmarshal(data, s); err != nil {
		w.Fatalf("state file of %s: %v\n%s", name, err, data)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[string(s.UID)] = true
	return s
}

// Status is what skcctl shows.
func (w *World) Status(name string) *v1alpha1.Session {
	w.Helper()
	ns, n := split(name)
	s := &v1alpha1.Session{}
	if err := json.Unmarshal([]byte(w.MustCtl("get", "session", n, "-n", ns, "-o", "json")), s); err != nil {
		w.Fatal(err)
	}
	return s
}

// Condition is one condition of a session, as TYPE=STATUS/Reason; "" when there
// is none yet. It counts only when it answers the present generation.
func (w *World) Condition(name, condition string) string {
	w.Helper()
	s := w.Session(name)
	if s == nil {
		return ""
	}
	c := meta.FindStatusCondition(s.Status.Conditions, condition)
	if c == nil || condition != v1alpha1.SourceAccepted && (c.ObservedGeneration < s.Generation || s.Status.ObservedGeneration < s.Generation) {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

// Message is the message of a condition.
func (w *World) Message(name, condition string) string {
	w.Helper()
	if s := w.Session(name); s != nil {
		if c := meta.FindStatusCondition(s.Status.Conditions, condition); c != nil {
			return c.Message
		}
	}
	return ""
}

// UntilCondition waits until a condition of a session is TYPE=STATUS/Reason, or
// STATUS alone.
func (w *World) UntilCondition(name, condition, want string) {
	w.Helper()
	var have string
	met := false
	defer func() {
		if !met {
			w.Logf("%s of %s was %s: %s", condition, name, have, w.Message(name, condition))
		}
	}()
	w.Until(fmt.Sprintf("%s of %s is %s", condition, name, want), func() bool {
		have = w.Condition(name, condition)
		met = have == want || strings.HasPrefix(have, want+"/")
		return met
	})
}

// UntilRunning waits until a session is Ready, its one main process is there and
// is the one that the status names, and returns its pid.
func (w *World) UntilRunning(name string) int {
	w.Helper()
	w.UntilCondition(name, v1alpha1.Ready, string(metav1.ConditionTrue)+"/"+v1alpha1.ReasonRunning)
	pid := 0
	w.Until("the main process of "+name+" is the one of its status, and it is Ready", func() bool {
		pids := w.Mains(name)
		s := w.Session(name)
		if len(pids) != 1 || s == nil || s.Status.Tmux == nil || int(s.Status.Tmux.PanePID) != pids[0] {
			return false
		}
		pid = pids[0]
		return w.Condition(name, v1alpha1.Ready) == string(metav1.ConditionTrue)+"/"+v1alpha1.ReasonRunning
	})
	return pid
}

// Main is the pid of the one main process of a session.
func (w *World) Main(name string) int {
	w.Helper()
	var pids []int
	w.Until(name+" has one main process", func() bool {
		pids = w.Mains(name)
		return len(pids) == 1
	})
	return pids[0]
}

// UntilGone waits until a session is nowhere: no object, no process.
func (w *World) UntilGone(name string) {
	w.Helper()
	w.Until(name+" is gone", func() bool { return w.Session(name) == nil && len(w.Mains(name)) == 0 })
}

// Lines reads the lines of a file below the work folder; none when it is not
// there.
func (w *World) Lines(path string) []string {
	w.Helper()
	data, err := os.ReadFile(filepath.Join(w.Work, path))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	Must(w, err)
	text := strings.TrimSuffix(string(data), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// Starts is how many lines the log of a session has, at least one: a program that
// runs may not have come to its first line yet.
func (w *World) Starts(path string) int {
	w.Helper()
	w.Until(path+" has a line", func() bool { return len(w.Lines(path)) > 0 })
	return len(w.Lines(path))
}

// Events are the events of a session, as REASON: message.
func (w *World) Events(name string) []string {
	w.Helper()
	ns, n := split(name)
	var all []string
	for line := range strings.Lines(w.MustCtl("events", n, "-n", ns, "-o", "json")) {
		var e struct{ Reason, Message string }
		Must(w, json.Unmarshal([]byte(line), &e))
		all = append(all, e.Reason+": "+e.Message)
	}
	return all
}
