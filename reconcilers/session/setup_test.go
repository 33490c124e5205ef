package session

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

func setupOf(argv ...string) func(*v1alpha1.WorktreeTarget) {
	return func(t *v1alpha1.WorktreeTarget) { t.Setup = argv }
}

// pathEnv is a launcher whose environment can find programs.
type pathEnv struct{ *fakeLauncher }

func (p pathEnv) Environment(*v1alpha1.Session) ([]string, error) {
	return []string{"PATH=/usr/bin:/bin", "A=1"}, p.envErr
}

func newSetupWorld(t *testing.T) *world {
	w := newWorktreeWorld(t)
	w.r.Launcher = pathEnv{w.launcher}
	return w
}

func (w *world) restartWithPath() {
	w.restartController()
	w.r.Launcher = pathEnv{w.launcher}
}

func (w *world) ran() string {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, "ran"))
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	return string(data)
}

func TestSetupRunsOnceBeforeTheFirstStart(t *testing.T) {
	w := newSetupWorld(t)
	spec := w.spec(w.worktree(setupOf("sh", "-c", "pwd >> "+w.dir+"/ran; echo made; echo $A > made")))
	w.apply(spec, nil)
	for !strings.Contains(w.ran(), "feat") { // it runs and the program does not
		if _, err := w.r.Reconcile(t.Context(), web); err != nil {
			t.Fatal(err)
		}
		if w.livingPanes() != 0 && w.get().Status.Workspace.Setup.FinishedAt == nil {
			t.Fatal("the program was started before the setup had ended")
		}
		w.awaitBackground()
	}
	w.pass()
	w.wantRunning(1)
	st := w.get().Status.Workspace.Setup
	if st == nil || st.ExitCode == nil || *st.ExitCode != 0 || st.FinishedAt == nil || !slices.Equal(st.LastLines, []string{"made"}) {
		t.Errorf("setup %+v, want exit 0 and its output", st)
	}
	if w.ran() != w.wt()+"\n" || w.read(filepath.Join(w.wt(), "made")) != "1\n" {
		t.Errorf("ran in %q, want once in the worktree, with the session's environment", w.ran())
	}
	w.restartWithPath()
	w.pass()
	w.mux.Exit(w.pane(), 1)
	w.pass()
	w.apply(w.spec(w.worktree(setupOf("sh", "-c", "echo again >> "+w.dir+"/ran"))), map[string]string{v1alpha1.RestartedAtAnnotation: "now"})
	w.pass()
	w.wantRunning(3)
	if w.ran() != w.wt()+"\n" {
		t.Errorf("ran %q, want once in the life of the worktree", w.ran())
	}
	must(t, os.RemoveAll(w.wt())) // another worktree is another setup
	w.pass()
	if w.ran() != w.wt()+"\nagain\n" {
		t.Errorf("ran %q, want once in each worktree", w.ran())
	}
}

func TestSetupFails(t *testing.T) {
	for name, tt := range map[string]struct {
		argv []string
		want string // in the message
	}{
		"a code":     {[]string{"sh", "-c", "echo no network; exit 7"}, "exited with code 7; run it again with skcctl restart\nno network"},
		"a signal":   {[]string{"sh", "-c", "kill -9 $$"}, "ended by SIGKILL"},
		"no program": {[]string{"no-such-program"}, `could not be run: there is no program "no-such-program"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSetupWorld(t)
			w.apply(w.spec(w.worktree(setupOf(tt.argv...))), nil)
			w.pass()
			w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionFalse, v1alpha1.ReasonSetupFailed)
			w.wantCondition(v1alpha1.Ready, metav1.ConditionFalse, v1alpha1.ReasonSetupFailed)
			if m := w.message(v1alpha1.WorkspaceReady); !strings.Contains(m, tt.want) {
				t.Errorf("message %q, want %q in it", m, tt.want)
			}
			started := w.get().Status.Workspace.Setup.StartedAt
			w.restartWithPath()
			w.clock.Step(time.Hour)
			w.pass()
			if got := w.get().Status.Workspace.Setup.StartedAt; !got.Equal(&started) || w.livingPanes() != 0 {
				t.Error("it was repeated by itself, or the program was started")
			}
			w.apply(w.spec(w.worktree(setupOf(tt.argv...))), map[string]string{v1alpha1.RestartedAtAnnotation: "now"})
			w.pass()
			again := w.get().Status.Workspace.Setup.StartedAt
			if again.Equal(&started) {
				t.Error("skcctl restart does not run it again")
			}
			w.apply(w.spec(w.worktree(setupOf("true"))), map[string]string{v1alpha1.RestartedAtAnnotation: "now"})
			w.pass()
			w.wantRunning(1) // another command is a reason to try it
		})
	}
}

// A controller that died while a setup ran does not know how far it came, and does
// not repeat it by itself.
func TestSetupInterrupted(t *testing.T) {
	w := newSetupWorld(t)
	spec := w.spec(w.worktree(setupOf("sh", "-c", "echo x >> "+w.dir+"/ran; [ -e "+w.dir+"/go ] || exec sleep 600")))
	w.apply(spec, nil)
	for w.ran() == "" {
		_, err := w.r.Reconcile(t.Context(), web)
		must(t, err)
	}
	w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionUnknown, v1alpha1.ReasonSettingUp)
	w.wantCondition(v1alpha1.Ready, metav1.ConditionUnknown, v1alpha1.ReasonSettingUp)
	if st := w.get().Status.Workspace.Setup; st == nil || st.FinishedAt != nil {
		t.Fatalf("setup %+v, want begun", st)
	}
	w.restartWithPath()
	w.pass()
	w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionFalse, v1alpha1.ReasonSetupInterrupted)
	if w.ran() != "x\n" || w.livingPanes() != 0 {
		t.Errorf("ran %q, want once, and no program", w.ran())
	}
	w.put("go", "")
	w.apply(spec, map[string]string{v1alpha1.RestartedAtAnnotation: "now"})
	w.pass()
	w.wantRunning(1)
	if w.ran() != "x\nx\n" {
		t.Errorf("ran %q, want once more after skcctl restart", w.ran())
	}
}

// The start of a setup is on disk before it runs.
func TestSetupIsWrittenDownFirst(t *testing.T) {
	for n := 1; ; n++ {
		w := newSetupWorld(t)
		w.apply(w.spec(w.worktree(setupOf("sh", "-c", "echo x >> "+w.dir+"/ran"))), nil)
		w.calls.at = n
		var hit bool
		for range 60 {
			_, again, err := w.one()
			if w.ran() != "" && (w.get().Status.Workspace == nil || w.get().Status.Workspace.Setup == nil) {
				t.Fatalf("call %d fails: it ran, and nothing is written down", n)
			}
			if err == nil && !again {
				break
			}
			hit = hit || err != nil
		}
		if strings.Count(w.ran(), "x") > 1 {
			t.Fatalf("call %d fails: it ran %q", n, w.ran())
		}
		if !w.calls.hit {
			break
		}
	}
}

// stop and delete end a setup as they end a program.
// The end of a setup is on disk before the program is started: a crash just after
// the start must not make it one of which nobody knows the end.
func TestSetupEndIsWrittenBeforeTheStart(t *testing.T) {
	w := newSetupWorld(t)
	w.apply(w.spec(w.worktree(setupOf("true"))), nil)
	ended := func() bool {
		ws := w.get().Status.Workspace
		return ws != nil && ws.Setup != nil && ws.Setup.FinishedAt != nil
	}
	for range 50 {
		was := ended()
		if _, _, err := w.one(); err != nil {
			t.Fatal(err)
		}
		if w.livingPanes() > 0 {
			if !was {
				t.Error("the program was started in the pass that saw the end of the setup")
			}
			w.restartWithPath()
			w.pass()
			w.wantRunning(1)
			return
		}
	}
	t.Error("the program was never started")
}

func TestSetupIsEndedByAStop(t *testing.T) {
	for _, by := range []string{"stop", "delete", "target"} {
		t.Run(by, func(t *testing.T) {
			w := newSetupWorld(t)
			spec := w.spec(w.worktree(setupOf("sh", "-c", "echo $$ > "+w.dir+"/ran; exec sleep 600")))
			w.apply(spec, nil)
			for !strings.HasSuffix(w.ran(), "\n") {
				_, err := w.r.Reconcile(t.Context(), web)
				must(t, err)
			}
			var pid int
			_, err := fmt.Sscan(w.ran(), &pid)
			must(t, err)
			w.procs.real = []int{pid}
			switch by {
			case "stop":
				spec.DesiredState = v1alpha1.DesiredStopped
				w.apply(spec, nil)
			case "delete":
				w.remove()
			case "target":
				w.apply(w.spec(func(s *v1alpha1.SessionSpec) {
					s.Target = v1alpha1.SessionTarget{PlainDir: &v1alpha1.PathTarget{Path: v1alpha1.Path(w.work)}}
				}), nil)
			}
			w.pass()
			if len(w.procs.real) != 0 {
				t.Fatal("the setup was not signalled")
			}
			switch by {
			case "stop":
				w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonStopped)
				if st := w.get().Status.Workspace.Setup; st.Signal != "SIGTERM" {
					t.Errorf("setup %+v, want ended by SIGTERM", st)
				}
			case "delete":
				if w.version() != "gone" || w.quarantines.only().Spec.Origin.Path != w.wt() {
					t.Errorf("version %s, in quarantine %v", w.version(), w.quarantines.objects)
				}
			case "target":
				w.wantRunning(1)
			}
		})
	}
}

func TestSetupWaitsForTheEnvironment(t *testing.T) {
	w := newSetupWorld(t)
	w.launcher.envErr = fmt.Errorf("TOKEN: %w", effects.ErrUnavailable)
	w.apply(w.spec(w.worktree(setupOf("true"))), nil)
	if next := w.pass(); next != lookAgain {
		t.Errorf("next look in %s", next)
	}
	w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionFalse, v1alpha1.ReasonEnvironmentUnreadable)
	w.launcher.envErr = nil
	w.pass()
	w.wantRunning(1)
}
