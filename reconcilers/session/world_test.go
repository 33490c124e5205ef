package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
	"skc.dev/skc/effects/prompt"
	"skc.dev/skc/effects/prompt/prompttest"
	"skc.dev/skc/effects/setup"
	"skc.dev/skc/effects/tmux/tmuxtest"
	"skc.dev/skc/effects/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = api.Key{Kind: v1alpha1.KindSession, Namespace: v1alpha1.DefaultNamespace, Name: "web"}

// world is a Session's whole surroundings: the real store on real files, real
// folders, and a tmux and processes that a test acts on.
type world struct {
	t     testing.TB
	clock *clocktesting.FakeClock
	store *store.Store
	mux   *tmuxtest.Fake
	procs *fakeProcesses
	calls *injector
	r     *Reconciler

	launcher    *fakeLauncher
	prober      *fakeProber
	events      *fakeRecorder
	prompts     *prompttest.Fake
	worktrees   *workspace.Worktrees
	setups      *setup.Runner
	safety      *workspace.Safety
	quarantines *fakeQuarantines
	gitOptions  git.Options
	wake        chan struct{} // something beside the passes has ended
	heedless    bool          // nobody asks whether anything can go without loss
	work        string        // path of the plain folder
	dir         string        // around it
}

// injector fails the nth call of any effect: before it acts, or after.
type injector struct {
	mu    sync.Mutex
	n, at int
	after bool
	hit   bool
}

var errInjected = errors.New("injected")

func (i *injector) around(act func() error) error {
	i.mu.Lock()
	i.n++
	hit := i.n == i.at
	i.hit = i.hit || hit
	i.mu.Unlock()
	if hit && !i.after {
		return errInjected
	}
	err := act()
	if hit && err == nil {
		return errInjected
	}
	return err
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)),
		mux: tmuxtest.NewFake(), calls: &injector{}, prober: &fakeProber{}, events: &fakeRecorder{}, prompts: prompttest.NewFake(),
		wake: make(chan struct{}, 1), gitOptions: git.Options{Files: &files.Layer{}, LockWait: 50 * time.Millisecond},
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	w.dir, w.work = dir, filepath.Join(dir, "work")
	t.Cleanup(w.mux.Close)
	w.openStore(t.TempDir())
	w.procs = &fakeProcesses{w: w, extra: map[string][]fakeProcess{}}
	w.quarantines = &fakeQuarantines{w: w, objects: map[string]*v1alpha1.Quarantine{}}
	t.Cleanup(w.endBackground)
	w.launcher = &fakeLauncher{w: w, written: map[effects.LaunchID]effects.Launch{}, failures: map[effects.LaunchID]*effects.LaunchFailure{}}
	w.restartController()
	return w
}

func (w *world) openStore(dir string) {
	s, err := store.Open(w.t.Context(), store.Options{Dir: dir, Files: &files.Layer{}, Clock: w.clock, Log: logr.Discard()})
	must(w.t, err)
	w.store = s
}

// restartController begins with a new Reconciler, which remembers nothing. What was
// under way beside the passes is ended as by a kill.
func (w *world) restartController() {
	w.endBackground()
	ended := func(api.Key) {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	w.prompts.Restart()
	w.worktrees = workspace.NewWorktrees(func() (*git.Git, error) { return git.New(w.gitOptions) }, ended)
	w.safety = workspace.NewSafety(w.worktrees, func(context.Context, string) ([]effects.ProcessID, error) { return nil, nil }, ended)
	w.setups = setup.New(ended)
	w.r = &Reconciler{
		Store: failingStore{store.For[*v1alpha1.Session](w.store, v1alpha1.KindSession), w.calls},
		Mux:   failingMux{Fake: w.mux, calls: w.calls, took: w.launcher.take}, Launcher: w.launcher, Processes: w.procs, Folders: failingFolders{workspace.Folders{}, w.calls},
		Worktrees: failingWorktrees{w.worktrees, w.calls}, Setups: w.setups, Safety: w.safety, Quarantines: w.quarantines, Definitions: w.store,
		Prober: w.prober, Prompts: failingPrompts{w.prompts, w.calls}, Recorder: w.events, Clock: w.clock, Enqueue: func(api.Key) {}, Jitter: func() float64 { return 0 },
		UserHome: w.work, BootID: "boot-1",
	}
	if w.heedless {
		w.r.Safety = noSafety{}
	}
	earlier := w.store.Keys(v1alpha1.KindSession)
	w.r.Earlier = func(key api.Key) bool { return slices.Contains(earlier, key) }
}

// spec is a Session that runs for ever.
func (w *world) spec(edit ...func(*v1alpha1.SessionSpec)) v1alpha1.SessionSpec {
	s := v1alpha1.SessionSpec{
		Target:  v1alpha1.SessionTarget{PlainDir: &v1alpha1.PathTarget{Path: v1alpha1.Path(w.work)}},
		Command: []string{"sleep", "600"}, DesiredState: v1alpha1.DesiredRunning, RestartPolicy: v1alpha1.RestartOnFailure,
	}
	for _, e := range edit {
		e(&s)
	}
	return s
}

// apply makes the object what a file with that spec would.
func (w *world) apply(spec v1alpha1.SessionSpec, annotations map[string]string) {
	w.t.Helper()
	s := &v1alpha1.Session{Spec: spec}
	s.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindSession}
	s.Name, s.Namespace, s.Annotations = web.Name, web.Namespace, annotations
	raw, err := canonical(spec)
	must(w.t, err)
	must(w.t, w.store.Apply(w.t.Context(), store.Desired{Object: s, RawSpec: raw, Source: store.Source{Root: "/spool", File: "/spool/web.yaml"}}))
	must(w.t, w.store.SetAccepted(w.t.Context(), web, metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "accepted"}))
}

func (w *world) remove() {
	w.t.Helper()
	must(w.t, w.store.Remove(w.t.Context(), web, store.Source{Root: "/spool", File: "/spool/web.yaml"}))
}

// endBackground ends what runs beside the passes.
func (w *world) endBackground() {
	if w.worktrees != nil {
		w.setups.Close()
		w.safety.Close()
		w.worktrees.Close()
	}
}

// pass makes passes until one changes nothing and nothing is under way beside
// them, and returns when the next is due.
func (w *world) pass() time.Duration {
	w.t.Helper()
	for range 50 {
		res, again, err := w.one()
		must(w.t, err)
		if !again {
			return res.RequeueAfter
		}
	}
	w.t.Fatal("no end of changes after 50 passes")
	return 0
}

// one makes one pass, and tells whether another follows at once.
func (w *world) one() (controller.Result, bool, error) {
	w.t.Helper()
	before := w.version()
	res, err := w.r.Reconcile(w.t.Context(), web)
	if err != nil || w.version() != before || w.quarantines.act() {
		return res, true, err
	}
	return res, w.awaitBackground(), nil
}

// awaitBackground waits while something is under way beside the passes, and tells
// whether anything has ended.
func (w *world) awaitBackground() bool {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		busy := w.worktrees.Running()+w.setups.Running()+w.safety.Running() > 0
		wait := time.Duration(0) // whoever ended before that look has told so
		if busy {
			wait = 10 * time.Millisecond
		}
		select {
		case <-w.wake:
			return true
		default:
		}
		select {
		case <-w.wake:
			return true
		case <-time.After(wait):
			if !busy {
				return false
			}
		}
	}
	w.t.Fatal("no end of what is under way")
	return false
}

func (w *world) version() string {
	s, err := w.store.Get(w.t.Context(), web)
	if errors.Is(err, effects.ErrNotFound) {
		return "gone"
	}
	must(w.t, err)
	return s.GetResourceVersion()
}

func (w *world) get() *v1alpha1.Session {
	w.t.Helper()
	s, err := w.store.Get(w.t.Context(), web)
	must(w.t, err)
	return s.(*v1alpha1.Session)
}

// pane is the pane of the Session, which must be there.
func (w *world) pane() effects.TmuxPane {
	w.t.Helper()
	p, err := w.mux.Get(w.t.Context(), string(w.get().UID))
	must(w.t, err)
	return p
}

// wantCondition checks one condition of the Session.
func (w *world) wantCondition(condition string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	c := meta.FindStatusCondition(w.get().Status.Conditions, condition)
	if c == nil || c.Status != status || c.Reason != reason {
		w.t.Fatalf("%s is %+v, want %s %s", condition, c, status, reason)
	}
}

func (w *world) wantRunning(attempt int64) {
	w.t.Helper()
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionTrue, v1alpha1.ReasonRunning)
	if p := w.pane(); p.Dead || p.Launch.Attempt != attempt || w.get().Status.Tmux.Attempt != attempt {
		w.t.Fatalf("pane dead %v attempt %d, status attempt %d; want attempt %d alive", p.Dead, p.Launch.Attempt, w.get().Status.Tmux.Attempt, attempt)
	}
	if n := w.livingPanes(); n != 1 {
		w.t.Fatalf("%d programs live, want 1", n)
	}
}

func (w *world) livingPanes() (n int) {
	w.t.Helper()
	all, err := w.mux.List(w.t.Context())
	must(w.t, err)
	for _, p := range all {
		if !p.Dead {
			n++
		}
	}
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// failingStore and failingMux put the injector before and after each effect.
type failingStore struct {
	store.Typed[*v1alpha1.Session]
	calls *injector
}

func (f failingStore) Update(ctx context.Context, before, after *v1alpha1.Session) error {
	return f.calls.around(func() error { return f.Typed.Update(ctx, before, after) })
}

type failingMux struct {
	*tmuxtest.Fake
	calls *injector
	took  func(effects.TmuxPane) // a launcher runs in the pane
}

// failingWorktrees loses what was made, and fails to let go.
type failingWorktrees struct {
	*workspace.Worktrees
	calls *injector
}

func (f failingWorktrees) Ended(key api.Key) (effects.WantWorkspace, *effects.Workspace, error, bool) { //nolint:revive // as it is handed over
	want, got, err, running := f.Worktrees.Ended(key)
	if got == nil {
		return want, got, err, running
	}
	if err := f.calls.around(func() error { return nil }); err != nil {
		return want, nil, err, false
	}
	return want, got, nil, false
}

func (f failingWorktrees) Unmark(ctx context.Context, path, uid string) error {
	return f.calls.around(func() error { return f.Worktrees.Unmark(ctx, path, uid) })
}

// noSafety never has an answer.
type noSafety struct{}

func (noSafety) Begin(api.Key, effects.SafetyAsk) {}
func (noSafety) Stop(api.Key)                     {}
func (noSafety) Ended(api.Key) (ask effects.SafetyAsk, got *effects.SafetyAnswer, err error, running bool) { //nolint:revive // as it is handed over
	return ask, nil, nil, false
}

// failingPrompts puts the injector around what changes the world, and reads files.
type failingPrompts struct {
	*prompttest.Fake
	calls *injector
}

func (f failingPrompts) Read(path string) (string, error) { return prompt.ReadFile(path) }

func (f failingPrompts) Publish(ctx context.Context, uid, text string) (path string, err error) {
	err = f.calls.around(func() error { path, err = f.Fake.Publish(ctx, uid, text); return err })
	return path, err
}

func (f failingPrompts) Paste(ctx context.Context, pane effects.TmuxPane, text string) (st effects.PromptStatus, err error) {
	err = f.calls.around(func() error { st, err = f.Fake.Paste(ctx, pane, text); return err })
	return st, err
}

func (f failingPrompts) Intend(ctx context.Context, id effects.LaunchID, text string) (ok bool, err error) {
	err = f.calls.around(func() error { ok, err = f.Fake.Intend(ctx, id, text); return err })
	return ok && err == nil, err
}

func (f failingPrompts) Settle(ctx context.Context, uid string, state effects.PromptState, message string) (st effects.PromptStatus, err error) {
	err = f.calls.around(func() error { st, err = f.Fake.Settle(ctx, uid, state, message); return err })
	return st, err
}

func (f failingPrompts) Withdraw(ctx context.Context, uid string) error {
	return f.calls.around(func() error { return f.Fake.Withdraw(ctx, uid) })
}

func (f failingPrompts) Forget(ctx context.Context, uid string) error {
	return f.calls.around(func() error { return f.Fake.Forget(ctx, uid) })
}

// failingFolders puts the injector around what changes the world.
type failingFolders struct {
	workspace.Folders
	calls *injector
}

func (f failingFolders) Stage(path, uid string) (real string, id effects.FileIdentity, err error) {
	err = f.calls.around(func() error { real, id, err = f.Folders.Stage(path, uid); return err })
	return real, id, err
}

func (f failingFolders) Place(path, uid string, id effects.FileIdentity) error {
	return f.calls.around(func() error { return f.Folders.Place(path, uid, id) })
}

func (f failingFolders) Unstage(path, uid string) error {
	return f.calls.around(func() error { return f.Folders.Unstage(path, uid) })
}

func (f failingFolders) Remove(path string, id effects.FileIdentity) (gone bool, err error) {
	err = f.calls.around(func() error { gone, err = f.Folders.Remove(path, id); return err })
	return gone, err
}

// fakeQuarantines keeps the objects, and does what they ask for: it moves the
// thing aside and tells git.
type fakeQuarantines struct {
	w       *world
	objects map[string]*v1alpha1.Quarantine
	held    bool // nothing is done
}

func (f *fakeQuarantines) Ensure(_ context.Context, q *v1alpha1.Quarantine) error {
	return f.w.calls.around(func() error {
		if f.objects[q.Name] == nil {
			f.objects[q.Name] = q.DeepCopy()
		}
		return nil
	})
}

func (f *fakeQuarantines) Get(_ context.Context, key api.Key) (*v1alpha1.Quarantine, error) {
	if q := f.objects[key.Name]; q != nil {
		return q.DeepCopy(), nil
	}
	return nil, fmt.Errorf("%s: %w", key, effects.ErrNotFound)
}

func (f *fakeQuarantines) say(q *v1alpha1.Quarantine, status metav1.ConditionStatus, reason, message string) {
	for _, t := range []string{v1alpha1.SetAside, v1alpha1.Ready} {
		meta.SetStatusCondition(&q.Status.Conditions, metav1.Condition{Type: t, Status: status, Reason: reason, Message: message})
	}
}

// act sets aside what is asked for, and tells whether there was anything to do.
func (f *fakeQuarantines) act() (acted bool) {
	w := f.w
	w.t.Helper()
	for _, q := range f.objects {
		if f.held || len(q.Status.Conditions) > 0 {
			continue
		}
		acted = true
		o := q.Spec.Origin
		want, err := effects.ParseFileIdentity(string(o.Identity))
		must(w.t, err)
		got, err := workspace.Folders{}.Identify(o.Path)
		must(w.t, err)
		if !want.Same(got) {
			w.t.Fatalf("asked to set aside %s, which is %v and not %v", o.Path, got, want)
		}
		g, err := w.worktrees.Git()
		must(w.t, err)
		q.Status.Path = filepath.Join(w.dir, "aside-"+q.Name)
		look, _ := g.Look(o.Path)
		if o.Type == v1alpha1.QuarantineWorktree && !look.Making {
			must(w.t, g.Transfer(w.t.Context(), o.Path, o.MarkedBy, o.Owner))
			must(w.t, g.BeforeMove(w.t.Context(), o.Path, o.Owner, "test"))
		}
		must(w.t, os.Rename(o.Path, q.Status.Path))
		switch {
		case look.Making: // its registration would only hold its branch
			repo, err := g.Open(w.t.Context(), o.Repo)
			must(w.t, err)
			must(w.t, g.AfterPurge(w.t.Context(), repo, o.Path, o.MarkedBy))
		case o.Type == v1alpha1.QuarantineWorktree:
			must(w.t, g.AfterMove(w.t.Context(), q.Status.Path, o.Owner))
		}
		f.say(q, metav1.ConditionTrue, v1alpha1.ReasonKept, "kept")
	}
	return acted
}

// only is the one object that there is.
func (f *fakeQuarantines) only() *v1alpha1.Quarantine {
	f.w.t.Helper()
	if len(f.objects) != 1 {
		f.w.t.Fatalf("%d things in quarantine, want 1", len(f.objects))
	}
	for _, q := range f.objects {
		return q
	}
	return nil
}

func (f failingMux) Create(ctx context.Context, want effects.NewTmuxSession) (p effects.TmuxPane, err error) {
	err = f.calls.around(func() error {
		if p, err = f.Fake.Create(ctx, want); err == nil {
			f.took(p)
		}
		return err
	})
	return p, err
}

func (f failingMux) Respawn(ctx context.Context, pane effects.TmuxPane, l effects.LaunchID) (p effects.TmuxPane, err error) {
	err = f.calls.around(func() error {
		if p, err = f.Fake.Respawn(ctx, pane, l); err == nil {
			f.took(p)
		}
		return err
	})
	return p, err
}

func (f failingMux) Kill(ctx context.Context, pane effects.TmuxPane) error {
	return f.calls.around(func() error { return f.Fake.Kill(ctx, pane) })
}

func (f failingMux) Capture(ctx context.Context, pane effects.TmuxPane, n int) (lines []string, err error) {
	err = f.calls.around(func() error { lines, err = f.Fake.Capture(ctx, pane, n); return err })
	return lines, err
}

// fakeProcess is one process beside the one in the pane.
type fakeProcess struct {
	effects.ProcessID
	stubborn bool // heeds SIGKILL only
}

// fakeProcesses are the programs in living panes, and what they left elsewhere.
type fakeProcesses struct {
	w        *world
	stubborn bool // so are the programs in panes
	extra    map[string][]fakeProcess
	signals  []string // of which programs heard; state that a real one keeps too
	killed   int
	real     []int // processes that are truly there
}

func (f *fakeProcesses) main(uid string) (effects.TmuxPane, bool) {
	all, err := f.w.mux.List(f.w.t.Context())
	must(f.w.t, err)
	for _, p := range all {
		if p.Launch.UID == uid && !p.Dead {
			return p, true
		}
	}
	return effects.TmuxPane{}, false
}

func (f *fakeProcesses) Prepare(string) error { return f.w.calls.around(func() error { return nil }) }

func (f *fakeProcesses) Join(string, effects.ProcessID) {}

func (f *fakeProcesses) List(_ context.Context, uid string) (all []effects.ProcessID, err error) {
	err = f.w.calls.around(func() error {
		if p, ok := f.main(uid); ok {
			all = append(all, p.Process)
		}
		for _, p := range f.extra[uid] {
			all = append(all, p.ProcessID)
		}
		for _, pid := range f.real {
			all = append(all, effects.ProcessID{PID: pid, StartTime: "1"})
		}
		return nil
	})
	return all, err
}

func (f *fakeProcesses) Signal(_ context.Context, uid string, _ effects.ProcessID, signal string) error {
	return f.w.calls.around(func() error {
		f.signals = append(f.signals, signal)
		if p, ok := f.main(uid); ok && !f.stubborn {
			f.w.mux.Die(p, signal)
		}
		for _, pid := range f.real {
			must(f.w.t, syscall.Kill(pid, unix.SignalNum(signal)))
		}
		f.real = nil
		f.extra[uid] = slices.DeleteFunc(f.extra[uid], func(p fakeProcess) bool { return !p.stubborn })
		return nil
	})
}

func (f *fakeProcesses) Kill(_ context.Context, uid string, _ effects.ProcessID) (n int, err error) {
	err = f.w.calls.around(func() error {
		if p, ok := f.main(uid); ok {
			f.w.mux.Die(p, "SIGKILL")
			n++
		}
		n += len(f.extra[uid])
		delete(f.extra, uid)
		f.killed += n
		return nil
	})
	return n, err
}

func (f *fakeProcesses) Release(string) error { return f.w.calls.around(func() error { return nil }) }
func (f *fakeProcesses) OOMKilled(string) (bool, error) {
	return false, f.w.calls.around(func() error { return nil })
}

func (f *fakeProcesses) Watch(effects.ProcessID, func()) error {
	return f.w.calls.around(func() error { return nil })
}

// fakeLauncher keeps launch files in memory; a launcher in a pane takes its own.
type fakeLauncher struct {
	w        *world
	written  map[effects.LaunchID]effects.Launch
	failures map[effects.LaunchID]*effects.LaunchFailure
	fails    *effects.LaunchFailure // of the next start
	envErr   error
	ran      []ranProgram // what was started so far
}

// ranProgram is a program and where it ran.
type ranProgram struct {
	effects.Launch
	pane effects.TmuxPane
	took bool // its prompt, from the file
}

// take is what a launcher does in a new pane.
func (f *fakeLauncher) take(p effects.TmuxPane) {
	if l, ok := f.written[p.Launch]; ok && f.fails == nil {
		f.ran = append(f.ran, ranProgram{Launch: l, pane: p})
	}
}

func (f *fakeLauncher) Environment(*v1alpha1.Session) ([]string, error) {
	return []string{"A=1"}, f.envErr
}

func (f *fakeLauncher) Write(id effects.LaunchID, l effects.Launch) error {
	return f.w.calls.around(func() error { f.written[id] = l; return nil })
}

func (f *fakeLauncher) Failure(id effects.LaunchID) (failure *effects.LaunchFailure, err error) {
	err = f.w.calls.around(func() error { failure = f.failures[id]; return nil })
	return failure, err
}

func (f *fakeLauncher) Started(_ context.Context, id effects.LaunchID, _ effects.ProcessID) bool {
	delete(f.written, id)
	if f.fails != nil {
		f.failures[id], f.fails = f.fails, nil
		p, _ := f.w.procs.main(id.UID)
		f.w.mux.Exit(p, 127)
		return false
	}
	_, ok := f.w.procs.main(id.UID)
	return ok
}

func (f *fakeLauncher) Clear(uid string) error {
	return f.w.calls.around(func() error {
		maps.DeleteFunc(f.failures, func(id effects.LaunchID, _ *effects.LaunchFailure) bool { return id.UID == uid })
		maps.DeleteFunc(f.written, func(id effects.LaunchID, _ effects.Launch) bool { return id.UID == uid })
		return nil
	})
}

type fakeProber struct {
	result ProbeResult
	probes map[api.Key]effects.LaunchID
}

func (f *fakeProber) Ensure(key api.Key, id effects.LaunchID, _ *v1alpha1.Readiness, _ ProbeTarget) ProbeResult {
	if f.probes == nil {
		f.probes = map[api.Key]effects.LaunchID{}
	}
	if f.probes[key] != id { // another program: nothing is known of it
		f.probes[key] = id
		f.result = ProbeResult{}
	}
	return f.result
}

func (f *fakeProber) Stop(key api.Key) { delete(f.probes, key) }

type fakeRecorder struct{ lines []string }

func (f *fakeRecorder) Event(_ api.Object, eventType, reason, message string) {
	f.lines = append(f.lines, fmt.Sprintf("%s %s %s", eventType, reason, message))
}
