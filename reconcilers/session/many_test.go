package session

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/git"
	"skc.dev/skc/effects/setup"
	"skc.dev/skc/effects/workspace"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// run has a controller with so many workers serve the world until the test ends.
func (w *world) run(workers int) {
	w.t.Helper()
	w.endBackground()
	w.r.Clock = clock.RealClock{}
	c := controller.New(controller.Options{Kind: v1alpha1.KindSession, Reconciler: w.r, Clock: clock.RealClock{}, Log: logr.Discard(),
		Metrics: controller.NewMetrics(prometheus.NewRegistry()), Workers: workers})
	w.worktrees = workspace.NewWorktrees(func() (*git.Git, error) { return git.New(w.gitOptions) }, c.Enqueue)
	w.safety = workspace.NewSafety(w.worktrees, func(context.Context, string) ([]effects.ProcessID, error) { return nil, nil }, c.Enqueue)
	w.setups = setup.New(c.Enqueue)
	w.r.Worktrees, w.r.Safety, w.r.Setups, w.r.Enqueue = w.worktrees, w.safety, w.setups, c.Enqueue
	w.r.Prober, w.r.Launcher = noProber{}, startedLauncher{}
	w.r.Recorder = noRecorder{}
	w.r.Processes = noProcesses{w.procs}
	w.store.OnChange(c.Enqueue)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	w.t.Cleanup(func() { cancel(); <-done; w.endBackground() })
}

// Fakes that many passes may use at the same time.
type (
	noProber        struct{}
	noRecorder      struct{}
	startedLauncher struct{}
	noProcesses     struct{ *fakeProcesses }
)

func (noProber) Ensure(api.Key, effects.LaunchID, *v1alpha1.Readiness, ProbeTarget) ProbeResult {
	return ProbeResult{}
}
func (noProber) Stop(api.Key)                                        {}
func (noRecorder) Event(api.Object, string, string, string)          {}
func (startedLauncher) Write(effects.LaunchID, effects.Launch) error { return nil }
func (startedLauncher) Clear(string) error                           { return nil }
func (startedLauncher) Environment(*v1alpha1.Session) ([]string, error) {
	return []string{"PATH=/usr/bin:/bin"}, nil
}
func (startedLauncher) Failure(effects.LaunchID) (*effects.LaunchFailure, error) { return nil, nil }
func (startedLauncher) Started(context.Context, effects.LaunchID, effects.ProcessID) bool {
	return true
}
func (noProcesses) Prepare(string) error                                      { return nil }
func (noProcesses) List(context.Context, string) ([]effects.ProcessID, error) { return nil, nil }
func (noProcesses) Release(string) error                                      { return nil }

// applyAs applies a Session of that name.
func (w *world) applyNamed(name string, spec v1alpha1.SessionSpec) {
	w.t.Helper()
	s := &v1alpha1.Session{Spec: spec}
	s.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindSession}
	s.Name, s.Namespace = name, v1alpha1.DefaultNamespace
	raw, err := canonical(spec)
	must(w.t, err)
	must(w.t, w.store.Apply(w.t.Context(), store.Desired{Object: s, RawSpec: raw, Source: store.Source{Root: "/spool", File: "/spool/" + name + ".yaml"}}))
	must(w.t, w.store.SetAccepted(w.t.Context(), api.Key{Kind: v1alpha1.KindSession, Namespace: v1alpha1.DefaultNamespace, Name: name},
		metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "accepted"}))
}

// awaitReady waits until all of those Sessions are ready.
func (w *world) awaitReady(names ...string) {
	w.t.Helper()
	var last string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		last = ""
		for _, name := range names {
			o, err := w.store.Get(w.t.Context(), api.Key{Kind: v1alpha1.KindSession, Namespace: v1alpha1.DefaultNamespace, Name: name})
			must(w.t, err)
			if s := o.(*v1alpha1.Session); !isTrue(s, v1alpha1.Ready) {
				last = fmt.Sprintf("%s: %+v", name, s.Status.Conditions)
				break
			}
		}
		if last == "" {
			return
		}
	}
	w.t.Fatalf("not ready: %s", last)
}

func (w *world) branch(name string) v1alpha1.SessionSpec {
	return w.spec(w.worktree(func(t *v1alpha1.WorktreeTarget) { t.Branch, t.Base = name, "origin/main" }))
}

// twenty are the names of as many Sessions, each with a branch of its own.
func twenty(prefix string) (names []string) {
	for i := range 20 {
		names = append(names, fmt.Sprintf("%s%d", prefix, i))
	}
	return names
}

// withRemote gives the clone a remote.
func (w *world) withRemote() {
	w.sh(w.dir, "clone", "-q", "--bare", w.repo(), filepath.Join(w.dir, "remote.git"))
	w.sh(w.repo(), "remote", "add", "origin", filepath.Join(w.dir, "remote.git"))
	w.sh(w.repo(), "fetch", "-q", "origin")
}

// B-059: twenty worktrees of one repository at once, from a remote-tracking
// branch, while somebody holds its config lock for a moment.
func TestTwentyAtOnce(t *testing.T) {
	w := newWorktreeWorld(t)
	w.withRemote()
	w.put("app/.git/config.lock", "")
	time.AfterFunc(20*time.Millisecond, func() { _ = os.Remove(filepath.Join(w.repo(), ".git", "config.lock")) })
	w.run(4)
	names := twenty("b")
	for _, name := range names {
		w.applyNamed(name, w.branch(name))
	}
	w.awaitReady(names...)
	list := w.sh(w.repo(), "worktree", "list", "--porcelain")
	if n := strings.Count(list, "\nbranch refs/heads/b"); n != 20 || strings.Contains(list, "locked") {
		t.Errorf("%d worktrees, want 20 whole ones:\n%s", n, list)
	}
	w.sh(w.repo(), "fsck", "--no-dangling")
	for _, name := range names {
		if got := w.sh(filepath.Join(w.dir, "app.worktrees", name), "status", "--porcelain"); got != "" {
			t.Errorf("%s is not clean:\n%s", name, got)
		}
	}
}

// One checkout that takes long keeps no other Session waiting, with a single
// worker.
func TestALongCheckoutKeepsNobodyWaiting(t *testing.T) {
	w := newWorktreeWorld(t)
	gate := filepath.Join(w.dir, "go")
	w.put("slow-git", "#!/bin/sh\ncase \"$*\" in *read-tree*) while [ ! -e "+gate+" ]; do sleep 0.02; done;; esac\nexec git \"$@\"\n")
	must(t, os.Chmod(filepath.Join(w.dir, "slow-git"), 0o755))
	w.gitOptions.Git = filepath.Join(w.dir, "slow-git")
	w.run(1)
	w.applyNamed("slow", w.spec(w.worktree()))
	w.applyNamed("quick", w.spec())
	w.awaitReady("quick")
	o, err := w.store.Get(t.Context(), api.Key{Kind: v1alpha1.KindSession, Namespace: v1alpha1.DefaultNamespace, Name: "slow"})
	must(t, err)
	if s := o.(*v1alpha1.Session); !reasonIs(s, v1alpha1.Ready, v1alpha1.ReasonWorkspaceCreating) {
		t.Errorf("meanwhile the slow one says %+v", s.Status.Conditions)
	}
	w.put("go", "")
	w.awaitReady("slow")
}

// BenchmarkTwentyWorktreeSessions brings twenty Sessions up on one repository, and
// then makes twenty worktrees with plain git, one after the other.
func BenchmarkTwentyWorktreeSessions(b *testing.B) {
	var ours, plain time.Duration
	for n := range b.N {
		b.StopTimer()
		w := newWorktreeWorld(b)
		for i := range 200 {
			w.put(fmt.Sprintf("app/many/%d/file", i), fmt.Sprint(i))
		}
		w.sh(w.repo(), "add", "-A")
		w.sh(w.repo(), "commit", "-q", "-m", "many")
		w.withRemote()
		w.run(16)
		b.StartTimer()
		names := twenty("b")
		start := time.Now()
		for _, name := range names {
			w.applyNamed(name, w.branch(name))
		}
		w.awaitReady(names...)
		ours += time.Since(start)
		start = time.Now()
		for i := range 20 {
			cmd := exec.Command("git", "-C", w.repo(), "worktree", "add", "-q", "-b", fmt.Sprintf("plain%d-%d", n, i), filepath.Join(w.dir, "plain", fmt.Sprint(i)), "origin/main")
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
		plain += time.Since(start)
	}
	b.ReportMetric(float64(ours.Milliseconds())/float64(b.N), "ms/20")
	b.ReportMetric(float64(plain.Milliseconds())/float64(b.N), "plain-ms/20")
	b.ReportMetric(ours.Seconds()/plain.Seconds(), "ratio")
}
