package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// Safety looks, beside the passes, whether workspaces can go without loss.
type Safety interface {
	// Begin has the workspace looked at, and the key enqueued at the end. While one
	// look of key is under way, or its end was not asked for, it does nothing.
	Begin(key api.Key, ask effects.SafetyAsk)
	// Ended hands over the end of it, once; running tells that it is under way.
	Ended(key api.Key) (ask effects.SafetyAsk, got *effects.SafetyAnswer, err error, running bool)
	// Stop ends the look at key's workspace.
	Stop(key api.Key)
}

// ensureSafety says whether the workspace could go without loss. It is looked
// again when the program begins or ends, when another state is asked for, and
// when a few looks at files say that something moved; else no git runs for it.
func (r *Reconciler) ensureSafety(_ context.Context, s *v1alpha1.Session) (controller.Result, error) {
	var none controller.Result
	key := api.KeyOf(s)
	r.collectSafety(s)
	w := s.Status.Workspace
	if w == nil || !w.CreatedByController {
		set(s, v1alpha1.SafeToDelete, metav1.ConditionTrue, v1alpha1.ReasonNotOurs, "skc made no folder for it, and removes none")
		return none, nil
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SafeToDelete); c == nil || c.Reason == v1alpha1.ReasonNotOurs {
		set(s, v1alpha1.SafeToDelete, metav1.ConditionUnknown, v1alpha1.ReasonNotChecked, "not looked at yet")
	}
	if w.Quarantine != "" || r.setupOf(s) != nil {
		return none, nil
	}
	stamp, err := r.safetyStamp(s)
	if err != nil {
		if !errors.Is(err, effects.ErrNotFound) {
			set(s, v1alpha1.SafeToDelete, metav1.ConditionUnknown, v1alpha1.ReasonNotChecked, clip(err.Error(), maxMessage))
		}
		return none, nil // what is wrong with the folder is said by WorkspaceReady
	}
	if stamp != w.SafetyStamp {
		r.Safety.Begin(key, effects.SafetyAsk{UID: string(s.UID), Path: w.Path, Worktree: w.Repo != "", Stamp: stamp})
	}
	return none, nil
}

// safetyStamp is a digest of what the answer depends on, as far as it can be seen
// for little.
func (r *Reconciler) safetyStamp(s *v1alpha1.Session) (string, error) {
	w := s.Status.Workspace
	var seen string
	if w.Repo == "" {
		stamp, err := r.Folders.Stamp(w.Path)
		if err != nil {
			return "", err
		}
		seen = stamp
	} else {
		l, err := r.Worktrees.Look(w.Path)
		if err != nil {
			return "", err
		}
		seen = l.Stamp
	}
	var started, ended int64
	if t := s.Status.Tmux; t != nil {
		started = t.Attempt
	}
	if t := s.Status.LastTermination; t != nil {
		ended = t.Attempt
	}
	if s.Status.Restarts.Consecutive > 0 { // a look at each start of a crash loop would cost more than the loop
		started, ended = -1, -1
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d %s %t", w.Identity, s.Spec.DesiredState, started, ended, seen, s.Status.Stopping == nil))
	return hex.EncodeToString(sum[:8]), nil
}

func (r *Reconciler) collectSafety(s *v1alpha1.Session) {
	ask, got, err, _ := r.Safety.Ended(api.KeyOf(s))
	w := s.Status.Workspace
	if got == nil && err == nil || w == nil || ask.UID != string(s.UID) || ask.Path != w.Path {
		return // nothing, or of another one
	}
	w.SafetyStamp = ask.Stamp
	if err != nil {
		w.Safety = nil
		set(s, v1alpha1.SafeToDelete, metav1.ConditionUnknown, v1alpha1.ReasonNotChecked, clip(err.Error(), maxMessage))
		return
	}
	w.Safety = nil
	if ask.Worktree {
		w.Head = got.Head
	}
	for _, c := range got.Report.Checks {
		w.Safety = append(w.Safety, v1alpha1.SafetyCheck{Name: c.Name, OK: c.OK, Value: clip(c.Value, maxValue), Fix: c.Fix})
	}
	if got.Report.Safe() {
		set(s, v1alpha1.SafeToDelete, metav1.ConditionTrue, v1alpha1.ReasonNothingToLose, "nothing is in it that is not elsewhere, and nothing uses it")
		return
	}
	set(s, v1alpha1.SafeToDelete, metav1.ConditionFalse, v1alpha1.ReasonWorkAtRisk, safetyMessage(w.Safety))
}

// maxValue is how much of the value of a check is kept.
const maxValue = 1000

// safetyMessage is a line for each check; what is not well says what would help.
func safetyMessage(checks []v1alpha1.SafetyCheck) string {
	var lines []string
	for _, c := range checks {
		line := c.Name + ": " + c.Value
		if !c.OK {
			line += " (" + c.Fix + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
