package session

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
)

// Event types, as in Kubernetes.
const (
	eventNormal  = "Normal"
	eventWarning = "Warning"
)

var conditionTypes = []string{v1alpha1.SourceAccepted, v1alpha1.WorkspaceReady, v1alpha1.SessionRunning, v1alpha1.ProbeSucceeded,
	v1alpha1.PromptDelivered}

// summarize sets Ready from the other conditions: the first of them that is not
// what desiredState asks for gives its reason and message.
func (r *Reconciler) summarize(s *v1alpha1.Session) {
	for _, t := range conditionTypes {
		if meta.FindStatusCondition(s.Status.Conditions, t) == nil {
			set(s, t, metav1.ConditionUnknown, v1alpha1.ReasonObserving, "not looked at yet")
		}
	}
	if meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SafeToDelete) == nil {
		set(s, v1alpha1.SafeToDelete, metav1.ConditionUnknown, v1alpha1.ReasonNotChecked, "not looked at yet")
	}
	get := func(t string) metav1.Condition { return *meta.FindStatusCondition(s.Status.Conditions, t) }
	source, running := get(v1alpha1.SourceAccepted), get(v1alpha1.SessionRunning)
	if source.Status == metav1.ConditionFalse {
		message := source.Message
		if running.Status == metav1.ConditionTrue {
			message = fmt.Sprintf("the last accepted version (generation %d) runs on: %s", s.Generation, message)
		}
		set(s, v1alpha1.Ready, metav1.ConditionFalse, source.Reason, message)
		return
	}
	if w := get(v1alpha1.WorkspaceReady); s.DeletionTimestamp != nil && w.Reason == v1alpha1.ReasonSettingAside {
		set(s, v1alpha1.Ready, w.Status, w.Reason, w.Message)
		return
	}
	if s.DeletionTimestamp != nil || (s.Spec.DesiredState == v1alpha1.DesiredStopped && running.Reason != v1alpha1.ReasonStopped) {
		set(s, v1alpha1.Ready, notTrue(running.Status), running.Reason, running.Message)
		return
	}
	if s.Spec.DesiredState != v1alpha1.DesiredStopped {
		for _, t := range conditionTypes[1:] {
			if c := get(t); c.Status != metav1.ConditionTrue {
				set(s, v1alpha1.Ready, c.Status, c.Reason, c.Message)
				return
			}
		}
	}
	set(s, v1alpha1.Ready, metav1.ConditionTrue, running.Reason, running.Message)
}

// notTrue: a program that runs and should not is no more ready than one whose
// state is not known.
func notTrue(s metav1.ConditionStatus) metav1.ConditionStatus {
	if s == metav1.ConditionTrue {
		return metav1.ConditionFalse
	}
	return s
}

// untold are the reasons that are no event: nothing happened yet, or nothing will.
var untold = []string{v1alpha1.ReasonObserving, v1alpha1.ReasonNotNeeded, v1alpha1.ReasonNoProbe, v1alpha1.ReasonNotRunning,
	v1alpha1.ReasonStarting, v1alpha1.ReasonWorkspaceCreating, v1alpha1.ReasonNotAsked, v1alpha1.ReasonPromptPending}

// recordTransitions tells people what changed, once, after it is on disk. A
// death has its own event, written where the certificate is.
func (r *Reconciler) recordTransitions(before, s *v1alpha1.Session) {
	for _, c := range s.Status.Conditions {
		if c.Type == v1alpha1.Ready || c.Type == v1alpha1.SafeToDelete || slices.Contains(untold, c.Reason) {
			continue
		}
		if t := s.Status.LastTermination; t != nil && c.Type == v1alpha1.SessionRunning && c.Reason == t.Reason {
			continue // the death has an event of its own
		}
		old := meta.FindStatusCondition(before.Status.Conditions, c.Type)
		if old != nil && old.Status == c.Status && old.Reason == c.Reason {
			continue
		}
		if old == nil && c.Type == v1alpha1.SourceAccepted && c.Status == metav1.ConditionTrue {
			continue
		}
		kind := eventNormal
		if c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonStopped && c.Reason != v1alpha1.ReasonStopping &&
			c.Reason != v1alpha1.ReasonCompleted && c.Reason != v1alpha1.ReasonProbePending && c.Reason != v1alpha1.ReasonPromptHeld ||
			c.Reason == v1alpha1.ReasonPromptUnknown {
			kind = eventWarning
		}
		r.Recorder.Event(s, kind, c.Reason, c.Message)
	}
	if t := s.Status.LastTermination; t != nil && (before.Status.LastTermination == nil || before.Status.LastTermination.Attempt != t.Attempt) {
		kind := eventWarning
		if t.RequestedBy != "" || t.Reason == v1alpha1.ReasonCompleted {
			kind = eventNormal
		}
		r.Recorder.Event(s, kind, "Ended", fmt.Sprintf("%s: %s", t.Reason, t.Message))
	}
}
