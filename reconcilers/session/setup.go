package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// Setups runs the setup of new worktrees beside the passes.
type Setups interface {
	// Ensure runs l once for each id and enqueues key at its end. It returns what
	// came of it, also when it is asked again; nil while it runs.
	Ensure(key api.Key, id string, l effects.Launch) *effects.SetupResult
	// Forget drops what is known of the last run of key, if it has ended.
	Forget(key api.Key)
}

// setupRun is a setup that this controller has decided to run.
type setupRun struct {
	at    metav1.MicroTime
	fresh bool // decided in this pass, and so not on disk yet
	begun bool
	ended bool // seen in this pass, and so not on disk yet
}

// intendSetup writes down that the setup is run. It is run when that is on disk:
// whoever finds it there and no end does not know how far it came.
func (r *Reconciler) intendSetup(s *v1alpha1.Session) {
	if t := s.Spec.Target.Worktree; t == nil || len(t.Setup) == 0 {
		return
	}
	at := *r.nowMicro()
	if had := s.Status.Workspace.Setup; had != nil && !at.After(had.StartedAt.Time) { // its time names it
		at = metav1.NewMicroTime(had.StartedAt.Add(time.Microsecond))
	}
	s.Status.Workspace.Setup = &v1alpha1.SetupStatus{
		Digest: setupDigest(s), StartedAt: at, RestartedAt: s.Annotations[v1alpha1.RestartedAtAnnotation],
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.setups == nil {
		r.setups = map[string]*setupRun{}
	}
	r.setups[string(s.UID)] = &setupRun{at: at, fresh: true}
}

func setupDigest(s *v1alpha1.Session) string {
	var argv []string
	if t := s.Spec.Target.Worktree; t != nil {
		argv = t.Setup
	}
	js, err := json.Marshal(argv)
	if err != nil {
		panic(err) // strings cannot fail
	}
	sum := sha256.Sum256(js)
	return hex.EncodeToString(sum[:8])
}

// setupOf is the run that this controller knows of; nil when it is over, was
// never asked for, or an earlier controller began it.
func (r *Reconciler) setupOf(s *v1alpha1.Session) *setupRun {
	w := s.Status.Workspace
	if w == nil || w.Setup == nil || w.Setup.FinishedAt != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if run := r.setups[string(s.UID)]; run != nil && run.at.Equal(&w.Setup.StartedAt) {
		return run
	}
	return nil
}

// endedNow tells, once, that the end of the setup was seen in this pass.
func (r *Reconciler) endedNow(s *v1alpha1.Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.setups[string(s.UID)]
	if run == nil || !run.ended {
		return false
	}
	run.ended = false
	return true
}

func setupID(s *v1alpha1.Session) string {
	return string(s.UID) + " " + s.Status.Workspace.Setup.StartedAt.UTC().Format(time.RFC3339Nano)
}

// collectSetup takes the end of a setup into status, whatever the spec asks for
// by now.
func (r *Reconciler) collectSetup(s *v1alpha1.Session) {
	if run := r.setupOf(s); run != nil && run.begun {
		if result := r.Setups.Ensure(api.KeyOf(s), setupID(s), effects.Launch{}); result != nil {
			r.setupEnded(s, result)
			run.ended = true
		}
	}
}

func (r *Reconciler) setupEnded(s *v1alpha1.Session, result *effects.SetupResult) {
	st := s.Status.Workspace.Setup
	st.FinishedAt = r.nowMicro()
	st.Signal, st.Message, st.LastLines = result.Signal, result.Message, result.LastLines
	if result.Ended && result.Signal == "" {
		code := int32(result.ExitCode)
		st.ExitCode = &code
	}
}

// ensureSetup runs the setup of a new worktree, once, and says when the folder is
// ready for the program.
func (r *Reconciler) ensureSetup(s *v1alpha1.Session) (controller.Result, error) {
	var none controller.Result
	st := s.Status.Workspace.Setup
	if st == nil || st.ExitCode != nil && *st.ExitCode == 0 {
		if r.endedNow(s) { // who finds the program finds the end of its setup too
			set(s, v1alpha1.WorkspaceReady, metav1.ConditionUnknown, v1alpha1.ReasonSettingUp, "the setup has ended")
			return controller.Result{RequeueAfter: time.Microsecond}, nil
		}
		workspaceReady(s)
		return none, nil
	}
	run := r.setupOf(s)
	if run == nil {
		if !s.Spec.Suspend && (st.RestartedAt != s.Annotations[v1alpha1.RestartedAtAnnotation] || st.Digest != setupDigest(s)) {
			if r.intendSetup(s); s.Status.Workspace.Setup == st { // there is none any more
				s.Status.Workspace.Setup = nil
				workspaceReady(s)
				return none, nil
			}
			return r.ensureSetup(s)
		}
		if st.FinishedAt == nil {
			set(s, v1alpha1.WorkspaceReady, metav1.ConditionFalse, v1alpha1.ReasonSetupInterrupted,
				"nobody saw how the setup ended; look at the worktree, and run it again with skcctl restart")
		} else {
			set(s, v1alpha1.WorkspaceReady, metav1.ConditionFalse, v1alpha1.ReasonSetupFailed, setupMessage(st))
		}
		return none, nil
	}
	settingUp := func(again time.Duration) (controller.Result, error) {
		set(s, v1alpha1.WorkspaceReady, metav1.ConditionUnknown, v1alpha1.ReasonSettingUp, "the setup runs")
		return controller.Result{RequeueAfter: again}, nil
	}
	if run.fresh {
		run.fresh = false
		return settingUp(time.Microsecond)
	}
	if run.begun {
		return settingUp(0) // its end wakes the Session
	}
	if st.Digest = setupDigest(s); len(s.Spec.Target.Worktree.Setup) == 0 { // edited meanwhile
		s.Status.Workspace.Setup = nil
		workspaceReady(s)
		return none, nil
	}
	env, err := r.Launcher.Environment(s)
	if errors.Is(err, effects.ErrUnavailable) {
		set(s, v1alpha1.WorkspaceReady, metav1.ConditionFalse, v1alpha1.ReasonEnvironmentUnreadable, err.Error())
		return controller.Result{RequeueAfter: lookAgain}, nil
	}
	if err != nil {
		return none, fmt.Errorf("environment of %s: %w", api.KeyOf(s), err)
	}
	// A new group: what runs outside of it is looked for, and found by its
	// environment.
	if err := r.Processes.Prepare(string(s.UID)); err != nil {
		return none, fmt.Errorf("prepare control group of %s: %w", api.KeyOf(s), err)
	}
	run.begun = true
	r.Setups.Ensure(api.KeyOf(s), setupID(s), effects.Launch{Argv: s.Spec.Target.Worktree.Setup, Env: env, Dir: s.Status.Workspace.Path})
	return settingUp(0)
}

func setupMessage(st *v1alpha1.SetupStatus) string {
	var b strings.Builder
	switch {
	case st.Message != "":
		b.WriteString("the setup could not be run: " + st.Message)
	case st.Signal != "":
		b.WriteString("the setup was ended by " + st.Signal)
	case st.ExitCode != nil:
		fmt.Fprintf(&b, "the setup exited with code %d", *st.ExitCode)
	}
	b.WriteString("; run it again with skcctl restart")
	lines := st.LastLines
	if len(lines) > 5 {
		lines = lines[len(lines)-5:]
	}
	for _, l := range lines {
		b.WriteString("\n" + l)
	}
	return b.String()
}
