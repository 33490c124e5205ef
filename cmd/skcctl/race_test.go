package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/lease"
)

const webYAML = `apiVersion: skc.dev/v1alpha1
kind: Session
metadata: {name: web}
spec:
  target: {plainDir: {path: /tmp/w}}
  command: [sleep, "600"]
`

// testHome is a home below a temporary folder, and the run of a command in it.
type testHome struct {
	home.Home
	dir   string
	clock clock.WithTicker
}

func newTestHome(t *testing.T) testHome {
	t.Helper()
	dir, err := os.MkdirTemp("", "skc") // short: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h, err := home.Find(dir, os.Getenv, "/")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{h.Spool, h.State, h.Run} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return testHome{h, dir, clock.RealClock{}}
}

// own makes the home one that a controller owns.
func (h testHome) own(t *testing.T) {
	t.Helper()
	l, err := lease.Acquire(h.Lock(), "pid 4711")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release() })
}

func (h testHome) skcctl(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	return h.skcctlIn(ctx, strings.NewReader(""), args...)
}

func (h testHome) skcctlIn(ctx context.Context, in io.Reader, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	c := &cli{in: in, out: &out, err: &errs, clock: h.clock, env: func(string) string { return "" }, cwd: h.dir, homeDir: h.dir}
	code = execute(ctx, c, append([]string{"--home", h.dir}, args...))
	return code, out.String(), errs.String()
}

func TestParallelApplyMakesOneFile(t *testing.T) {
	h := newTestHome(t)
	var wg sync.WaitGroup
	var created, unchanged atomic.Int64
	for range 50 {
		wg.Go(func() {
			switch code, out, errs := h.skcctlIn(t.Context(), strings.NewReader(webYAML), "apply", "-f", "-"); {
			case code != 0:
				t.Errorf("apply: exit code %d: %s", code, errs)
			case out == "session/web created\n":
				created.Add(1)
			case out == "session/web unchanged\n":
				unchanged.Add(1)
			default:
				t.Errorf("apply said %q", out)
			}
		})
	}
	wg.Wait()
	if created.Load() != 1 || unchanged.Load() != 49 {
		t.Errorf("%d created, %d unchanged; want 1, 49", created.Load(), unchanged.Load())
	}
	paths, err := filepath.Glob(filepath.Join(h.Spool, "*", "*"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("files of the spool: %v, %v; want one", paths, err)
	}
	if data, err := os.ReadFile(paths[0]); err != nil || string(data) != webYAML {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

// Edits of different documents of one file, at the same time: none is lost.
func TestParallelEditsOfOneFile(t *testing.T) {
	h := newTestHome(t)
	const n = 20
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "---\n%s", strings.Replace(webYAML, "name: web", fmt.Sprintf("name: web-%d", i), 1))
	}
	file := filepath.Join(h.Spool, "all.yaml")
	if err := os.WriteFile(file, []byte(all.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if code, _, errs := h.skcctl(t.Context(), "stop", fmt.Sprintf("web-%d", i)); code != 0 {
				t.Errorf("stop: exit code %d: %s", code, errs)
			}
		})
	}
	wg.Wait()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll(all.String(), "spec:\n", "spec:\n  desiredState: Stopped\n"); string(data) != want {
		t.Errorf("the file holds:\n%s", data)
	}
}

func TestWaitEndsAtItsTimeout(t *testing.T) {
	h := newTestHome(t)
	h.own(t)
	fake := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	h.clock = fake
	code := make(chan int, 1)
	go func() {
		c, _, _ := h.skcctl(t.Context(), "wait", "never", "--for=condition=Ready", "--timeout=3s")
		code <- c
	}()
	eventually(t, fake.HasWaiters)
	fake.Step(3*time.Second - 1)
	select {
	case c := <-code:
		t.Fatalf("ended before its time with code %d", c)
	default:
	}
	fake.Step(1)
	if c := receive(t, code); c != exitTimeout {
		t.Errorf("exit code %d, want %d", c, exitTimeout)
	}
}

func TestWaitIsInterrupted(t *testing.T) {
	h := newTestHome(t)
	h.own(t)
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		c, _, _ := h.skcctl(ctx, "wait", "never", "--for=condition=Ready", "--timeout=-1s")
		code <- c
	}()
	cancel()
	if c := receive(t, code); c != exitInterrupted {
		t.Errorf("exit code %d, want %d", c, exitInterrupted)
	}
}

// A wait right after a change never takes the status from before it: each round
// changes something, begins to wait, and only then, after a random while, lets
// the stand-in for the controller act.
func TestWaitNeverTakesTheOldStatus(t *testing.T) {
	h := newTestHome(t)
	h.own(t)
	ctx := t.Context()
	c, err := openController(ctx, h.Home)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := h.skcctlIn(ctx, strings.NewReader(webYAML), "apply", "-f", "-"); code != 0 {
		t.Fatal(errs)
	}
	act := func(round int) error {
		if err := c.sync(ctx); err != nil {
			return err
		}
		o, err := c.Get(ctx, session("web"))
		if err != nil {
			return err
		}
		return c.status(ctx, "web", v1alpha1.SessionStatus{
			LaunchedRestartedAt: o.GetAnnotations()[v1alpha1.RestartedAtAnnotation],
			Restarts:            v1alpha1.RestartStatus{Total: int64(round)},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.SessionRunning, Status: metav1.ConditionTrue, Reason: "Running", LastTransitionTime: metav1.Now()},
				{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now(), ObservedGeneration: o.GetGeneration()},
			},
		})
	}
	if err := act(0); err != nil {
		t.Fatal(err)
	}
	verbs := [][]string{{"restart", "web"}, {"stop", "web"}, {"start", "web"}}
	for round := 1; round <= 60; round++ {
		if code, _, errs := h.skcctl(ctx, verbs[round%len(verbs)]...); code != 0 {
			t.Fatal(errs)
		}
		var acted atomic.Bool
		done := make(chan error, 1)
		go func() {
			// The two steps of a controller, with any wait before each.
			<-time.After(time.Duration(rand.IntN(4)) * time.Millisecond)
			err := c.sync(ctx)
			<-time.After(time.Duration(rand.IntN(4)) * time.Millisecond)
			acted.Store(true)
			done <- errors.Join(err, act(round))
		}()
		code, _, errs := h.skcctl(ctx, "wait", "web", "--for=condition=Ready", "--timeout=20s")
		early := !acted.Load()
		if err := receive(t, done); err != nil {
			t.Fatal(err)
		}
		if code != 0 || early {
			t.Fatalf("round %d (%v): exit code %d, early: %v\n%s", round, verbs[round%len(verbs)], code, early, errs)
		}
	}
}

func TestSpoolThatCannotBeWritten(t *testing.T) {
	h := newTestHome(t)
	readOnly(t, h.Spool)
	code, _, errs := h.skcctlIn(t.Context(), strings.NewReader(webYAML), "apply", "-f", "-")
	if code != exitFailure || !strings.Contains(errs, "the spool cannot be written (make it writable") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// A file that an editor saved between the read and the write is not written
// over.
func TestSaveSeesAnotherWriter(t *testing.T) {
	h := newTestHome(t)
	file := filepath.Join(h.Spool, "web.yaml")
	if err := os.WriteFile(file, []byte(webYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDesired(h.Home)
	old, i, err := d.locate(api.Key{Kind: v1alpha1.KindSession, Namespace: "default", Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	next, err := old.Set(i, "Stopped", "spec", "desiredState")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(webYAML+"# mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.save(old, next); exitCode(err) != exitConflict {
		t.Errorf("save = %v, want a conflict", err)
	}
	if data, _ := os.ReadFile(file); string(data) != webYAML+"# mine\n" {
		t.Errorf("the file holds %q", data)
	}
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for limit := time.After(20 * time.Second); !is(); {
		select {
		case <-limit:
			t.Fatal("it did not come to that")
		case <-time.After(time.Millisecond):
		}
	}
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// Whoever waits for the spool can be interrupted.
func TestLockIsInterrupted(t *testing.T) {
	h := newTestHome(t)
	unlock, err := newDesired(h.Home).lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		c, _, _ := h.skcctlIn(ctx, strings.NewReader(webYAML), "apply", "-f", "-")
		code <- c
	}()
	cancel()
	if c := receive(t, code); c != exitInterrupted {
		t.Errorf("exit code %d, want %d", c, exitInterrupted)
	}
	unlock()
	if code, _, errs := h.skcctlIn(t.Context(), strings.NewReader(webYAML), "apply", "-f", "-"); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestGetWatch(t *testing.T) {
	h := newTestHome(t)
	h.own(t)
	c, err := openController(t.Context(), h.Home)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	rows := make(chan string, 100)
	go func() {
		for s := bufio.NewScanner(read); s.Scan(); {
			rows <- strings.Join(strings.Fields(s.Text()), " ")
		}
		close(rows)
	}()
	code := make(chan int, 1)
	go func() {
		watcher := &cli{in: strings.NewReader(""), out: write, err: io.Discard, clock: h.clock, env: func(string) string { return "" }, cwd: h.dir}
		code <- execute(ctx, watcher, []string{"--home", h.dir, "get", "-w", "-o", "custom-columns=NAME:.metadata.name,READY:.status.conditions[?(@.type=='Ready')].reason"})
		_ = write.Close()
	}()
	want := func(row string) {
		t.Helper()
		for { // versions that follow each other fast may be one
			if got := receive(t, rows); got == row {
				return
			}
		}
	}
	want("NAME READY")
	if code, _, errs := h.skcctlIn(t.Context(), strings.NewReader(webYAML), "apply", "-f", "-"); code != 0 {
		t.Fatal(errs)
	}
	if err := c.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("web <none>")
	for _, reason := range []string{"Starting", "Running"} {
		err := c.status(t.Context(), "web", v1alpha1.SessionStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.Now()},
		}})
		if err != nil {
			t.Fatal(err)
		}
		want("web " + reason)
	}
	cancel()
	if c := receive(t, code); c != exitInterrupted {
		t.Errorf("exit code %d, want %d", c, exitInterrupted)
	}
}
