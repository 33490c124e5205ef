package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
)

func (w *world) check(name string) *v1alpha1.SafetyCheck {
	for i, c := range w.get().Status.Workspace.Safety {
		if c.Name == name {
			return &w.get().Status.Workspace.Safety[i]
		}
	}
	return &v1alpha1.SafetyCheck{}
}

func TestSafetyOfAWorktree(t *testing.T) {
	w := newWorktreeWorld(t)
	w.applyWorktree()
	w.pass()
	w.wantCondition(v1alpha1.SafeToDelete, metav1.ConditionTrue, v1alpha1.ReasonNothingToLose)
	w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRunning)
	if n := len(w.get().Status.Workspace.Safety); n != 10 {
		t.Errorf("%d checks, want 10", n)
	}
	for _, step := range []struct {
		name, check, value string
		do                 func()
		safe               bool
	}{
		{"a file at the top", "untracked", "1: scratch", func() { w.put("app.worktrees/feat/scratch", "x") }, false},
		{"it is staged", "dirty", "changes: 1 staged", func() { w.sh(w.wt(), "add", "scratch") }, false},
		{"it is committed", "unpushed", "1 commit on no other branch (there is no remote)", func() { w.sh(w.wt(), "commit", "-q", "-m", "x") }, false},
		{"it is merged", "unpushed", "every commit is kept elsewhere", func() {
			w.sh(w.repo(), "merge", "-q", "feat")
			w.sh(w.wt(), "commit", "-q", "--amend", "--no-edit", "--date=2001-01-01") // something of its own has to move
			w.sh(w.wt(), "reset", "-q", "--hard", "main")
		}, true},
	} {
		step.do()
		w.pass()
		if c := w.check(step.check); c.Value != step.value {
			t.Errorf("%s: %+v, want %q", step.name, c, step.value)
		}
		status, reason := metav1.ConditionFalse, v1alpha1.ReasonWorkAtRisk
		if step.safe {
			status, reason = metav1.ConditionTrue, v1alpha1.ReasonNothingToLose
		}
		w.wantCondition(v1alpha1.SafeToDelete, status, reason)
		m := w.message(v1alpha1.SafeToDelete)
		if !step.safe && (strings.Count(m, "\n") != 9 || !strings.Contains(m, step.check+": "+step.value+" (")) {
			t.Errorf("%s: message %q, want a line for each check", step.name, m)
		}
		w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRunning) // it does not count
		if got, want := w.get().Status.Workspace.Head, w.sh(w.wt(), "rev-parse", "HEAD"); got != want {
			t.Errorf("%s: head %s, want %s", step.name, got, want)
		}
	}
	for _, l := range w.events.lines {
		if strings.Contains(l, "WorkAtRisk") {
			t.Errorf("an event for what is seen in the status: %s", l)
		}
	}
}

// It is looked again when the program begins and ends, and when another state is
// asked for, though nothing in git moved.
func TestWhenSafetyIsLookedAtAgain(t *testing.T) {
	w := newWorktreeWorld(t)
	w.put("app.worktrees/keep", "") // so that the folder of all worktrees is there
	w.applyWorktree()
	w.pass()
	stamp := w.get().Status.Workspace.SafetyStamp
	for _, step := range []struct {
		name string
		do   func()
		same bool
	}{
		{"a pass", func() {}, true},
		{"a restart of the controller", w.restartController, true},
		{"a label", func() { w.apply(w.spec(w.worktree()), map[string]string{"note": "x"}) }, true},
		{"the program ended and began", func() { w.mux.Exit(w.pane(), 1) }, false},
		{"stopped", func() { w.applyWorktree(stopped) }, false},
		{"started", func() { w.applyWorktree() }, false},
	} {
		step.do()
		w.pass()
		got := w.get().Status.Workspace.SafetyStamp
		if (got == stamp) != step.same {
			t.Errorf("%s: looked again: %v", step.name, got != stamp)
		}
		stamp = got
	}
}

func TestSafetyOfFolders(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	w.pass()
	w.wantCondition(v1alpha1.SafeToDelete, metav1.ConditionTrue, v1alpha1.ReasonNothingToLose)
	w.put("work/x", "mine")
	w.pass()
	w.wantCondition(v1alpha1.SafeToDelete, metav1.ConditionFalse, v1alpha1.ReasonWorkAtRisk)
	if c := w.check("content"); c.OK || c.Value != "1 name" {
		t.Errorf("content %+v", c)
	}
	f, err := os.Open(filepath.Join(w.work, "x"))
	must(t, err)
	defer func() { _ = f.Close() }() // our own does not count
	if c := w.check("open-files"); !c.OK {
		t.Errorf("open files %+v", c)
	}
	w.apply(w.spec(func(s *v1alpha1.SessionSpec) {
		s.Target = v1alpha1.SessionTarget{ExistingPath: s.Target.PlainDir}
	}), nil)
	w.pass()
	w.wantCondition(v1alpha1.SafeToDelete, metav1.ConditionTrue, v1alpha1.ReasonNotOurs)
}

// Every condition is there from the first pass.
func TestSafetyIsThereFromTheFirstPass(t *testing.T) {
	w := newWorktreeWorld(t)
	w.applyWorktree()
	if _, err := w.r.Reconcile(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(w.get().Status.Conditions, v1alpha1.SafeToDelete); c == nil {
		t.Error("no SafeToDelete after the first pass")
	}
}
