package spool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline is how long a test waits for what must come.
const deadline = 30 * time.Second

// world is a spool over real files, with a clock that stands still.
type world struct {
	t       testing.TB
	dir     string // scratch
	spool   string // the first root
	reports string
	sink    *fakeSink
	layer   *files.Layer
	clock   *clocktesting.FakeClock
	options Options
	prepare func(*Spool)

	s    *Spool
	stop func()
}

func newWorld(t testing.TB) *world {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	w := &world{
		t: t, dir: dir, spool: filepath.Join(dir, "spool"), reports: filepath.Join(dir, "reports"),
		sink: newFakeSink(), layer: &files.Layer{}, clock: clocktesting.NewFakeClock(time.Now()),
	}
	must(t, os.MkdirAll(w.spool, 0o700))
	must(t, os.MkdirAll(w.reports, 0o700))
	log := logr.Discard()
	if os.Getenv("SKC_TEST_LOG") != "" {
		log = testr.NewWithInterface(t, testr.Options{Verbosity: 1})
	}
	w.options = Options{
		Roots: []string{w.spool}, ReportDir: w.reports, Files: w.layer, Decode: v1alpha1.Decode,
		Version: "test", Sink: w.sink, Clock: w.clock, Log: log,
	}
	t.Cleanup(func() {
		if w.stop != nil {
			w.stop()
		}
	})
	return w
}

// start runs the spool and waits for its first look.
func (w *world) start() {
	w.t.Helper()
	w.run()
	for {
		select {
		case <-w.s.Synced():
			w.flush()
			return
		case <-time.After(20 * time.Millisecond):
			w.clock.Step(w.options.settle()) // young files wait for it
		}
	}
}

func (o Options) settle() time.Duration { o.setDefaults(); return o.Settle }

func (w *world) run() {
	w.t.Helper()
	w.s = New(w.options)
	if w.prepare != nil {
		w.prepare(w.s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	s := w.s
	go func() { ended <- s.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run = %v", err)
		}
		w.stop = nil
	}
}

func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

// do runs f between two steps of the spool.
func (w *world) do(f func(s *Spool)) {
	w.t.Helper()
	done := make(chan struct{})
	select {
	case w.s.calls <- func() { f(w.s); close(done) }:
		<-done
	case <-time.After(deadline):
		w.t.Fatal("the spool does not answer")
	}
}

// flush waits until all that happened to the files was heard and acted on. What
// waits for the clock is left.
func (w *world) flush() {
	w.t.Helper()
	var fence uint64
	w.do(func(s *Spool) {
		if s.watch.fs != nil && s.watch.fenced {
			s.watch.waiting = append(s.watch.waiting, &file{root: &root{}})
			fence = s.watch.fence + 1
		} else {
			s.lookAll()
		}
	})
	w.until("the spool is idle", func() bool {
		idle := true
		w.do(func(s *Spool) {
			wt := s.watch
			idle = wt.fence >= fence && !wt.raised && len(wt.waiting) == 0 &&
				len(s.readQueue)+len(s.applyQueue)+s.inApply == 0
			for _, f := range s.files {
				idle = idle && f.job == nil
			}
		})
		return idle
	})
}

// until waits for a condition, with a deadline.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for range 100 {
		if ok() {
			return
		}
	}
	late := time.After(deadline)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("%s: not within %s", what, deadline)
		}
	}
}

// pass lets time go by, in steps small enough for every timer on the way.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	w.flush()
	for step := 500 * time.Millisecond; d > 0; d -= step {
		if d > time.Minute {
			step = 5 * time.Second
		}
		w.clock.Step(min(d, step))
		w.flush()
	}
}

// settle lets files that stand still be read.
func (w *world) settle() {
	w.t.Helper()
	w.flush()
	w.clock.Step(w.options.settle())
	w.flush()
}

func (w *world) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(w.spool, name)
}

// write writes in place, as a shell redirect does.
func (w *world) write(name, text string) {
	w.t.Helper()
	must(w.t, os.MkdirAll(filepath.Dir(w.path(name)), 0o700))
	must(w.t, os.WriteFile(w.path(name), []byte(text), 0o600))
}

// put lets a file arrive by rename.
func (w *world) put(name, text string) {
	w.t.Helper()
	tmp := filepath.Join(w.dir, "outside.tmp")
	must(w.t, os.WriteFile(tmp, []byte(text), 0o600))
	must(w.t, os.MkdirAll(filepath.Dir(w.path(name)), 0o700))
	must(w.t, os.Rename(tmp, w.path(name)))
}

func (w *world) remove(names ...string) {
	w.t.Helper()
	for _, name := range names {
		must(w.t, os.RemoveAll(w.path(name)))
	}
}

func (w *world) move(from, to string) {
	w.t.Helper()
	must(w.t, os.Rename(w.path(from), w.path(to)))
}

func (w *world) link(target, name string) {
	w.t.Helper()
	must(w.t, os.Symlink(target, w.path(name)))
}

// session is a file with one session.
func session(name, arg string) string {
	return fmt.Sprintf(`apiVersion: skc.dev/v1alpha1
kind: Session
metadata:
  name: %s
spec:
  target:
    plainDir: {path: "/tmp/x"}
  command: [sleep, %q]
`, name, arg)
}

// want checks that exactly these sessions are there, each with its argument.
func (w *world) want(sessions map[string]string) {
	w.t.Helper()
	got := w.sink.all()
	for name, arg := range sessions {
		o, ok := got[key(name)]
		switch {
		case !ok:
			w.t.Errorf("%s is not there", name)
		case !strings.Contains(string(o.desired.RawSpec), `"`+arg+`"`):
			w.t.Errorf("%s has spec %s, want argument %q", name, o.desired.RawSpec, arg)
		}
		delete(got, key(name))
	}
	for k := range got {
		w.t.Errorf("%s is there and should not be", k)
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// wantReason checks the reason of SourceAccepted and a part of its message.
func (w *world) wantReason(name, reason, part string) {
	w.t.Helper()
	o := w.sink.get(name)
	if o == nil {
		w.t.Fatalf("%s is not there", name)
	}
	c := o.accepted
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonAccepted {
		status = metav1.ConditionTrue
	}
	if c.Type != v1alpha1.SourceAccepted || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, part) {
		w.t.Fatalf("%s has %s=%s %s %q, want %s with %q", name, c.Type, c.Status, c.Reason, c.Message, reason, part)
	}
}

func (w *world) wantNoRemovals() {
	w.t.Helper()
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if w.sink.removed != 0 {
		w.t.Fatalf("%d objects were removed, want none", w.sink.removed)
	}
}

// report is the file's report, nil when there is none.
func (w *world) report(name string) *FileReport {
	w.t.Helper()
	all, err := ReadReports(w.reports)
	must(w.t, err)
	for _, f := range all.Files {
		if f.Path == w.path(name) {
			return &f
		}
	}
	return nil
}

func (w *world) wantReport(name string, state FileState, part string) {
	w.t.Helper()
	w.flush()
	f := w.report(name)
	switch {
	case f == nil && state == "":
	case f == nil:
		w.t.Fatalf("no report of %s, want %s", name, state)
	case f.State != state || !strings.Contains(f.Message, part):
		w.t.Fatalf("report of %s is %s %q, want %s with %q", name, f.State, f.Message, state, part)
	}
}

func (w *world) rootReport(path string) RootReport {
	w.t.Helper()
	w.flush()
	all, err := ReadReports(w.reports)
	must(w.t, err)
	for _, r := range all.Roots {
		if r.Path == path {
			return r
		}
	}
	w.t.Fatalf("no report of root %s", path)
	return RootReport{}
}

func (w *world) wantRoot(path string, state RootState, part string) {
	w.t.Helper()
	if r := w.rootReport(path); r.State != state || !strings.Contains(r.Message, part) {
		w.t.Fatalf("root %s is %s %q, want %s with %q", path, r.State, r.Message, state, part)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
