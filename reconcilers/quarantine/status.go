package quarantine

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// Event types, as in Kubernetes.
const (
	eventNormal  = "Normal"
	eventWarning = "Warning"
)

// maxMessage is what a condition's message may hold (32768 in the API), less
// what is said around an error.
const maxMessage = 4096

// deadlineSlack is how far the clock on the wall may go from the time that is
// observed before the deadline is told anew: clocks are adjusted all the time.
const deadlineSlack = 2 * time.Second

// summarize sees that every condition is there, and sets Ready.
func (r *Reconciler) summarize(q *v1alpha1.Quarantine) {
	for _, t := range []string{v1alpha1.SourceAccepted, v1alpha1.SetAside} {
		if meta.FindStatusCondition(q.Status.Conditions, t) == nil {
			r.set(q, t, metav1.ConditionUnknown, v1alpha1.ReasonObserving, "not looked at yet")
		}
	}
	aside := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.SetAside)
	restored := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.Restored)
	if restored == nil || !q.Spec.Restore && restored.Status != metav1.ConditionTrue {
		r.set(q, v1alpha1.Restored, metav1.ConditionFalse, v1alpha1.ReasonNotAsked, "nobody asked for it to be given back")
		restored = meta.FindStatusCondition(q.Status.Conditions, v1alpha1.Restored)
	}
	source := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.SourceAccepted)
	switch {
	case restored.Status == metav1.ConditionTrue:
		r.set(q, v1alpha1.Ready, metav1.ConditionTrue, restored.Reason, restored.Message)
	case aside.Reason == v1alpha1.ReasonPurged:
		r.set(q, v1alpha1.Ready, metav1.ConditionTrue, aside.Reason, aside.Message)
	case aside.Status != metav1.ConditionTrue:
		r.set(q, v1alpha1.Ready, aside.Status, aside.Reason, aside.Message)
	case source.Status == metav1.ConditionFalse && q.DeletionTimestamp == nil:
		r.set(q, v1alpha1.Ready, metav1.ConditionFalse, source.Reason, "it is kept as the last accepted version says, and not removed for good: "+source.Message)
	case restored.Reason != v1alpha1.ReasonNotAsked:
		r.set(q, v1alpha1.Ready, restored.Status, restored.Reason, restored.Message)
	default:
		r.set(q, v1alpha1.Ready, metav1.ConditionTrue, aside.Reason, aside.Message)
	}
}

// describe tells what the plan says.
func (r *Reconciler) describe(q *v1alpha1.Quarantine, k effects.Kept) {
	q.Status.Path, q.Status.Attempts = k.Place, int64(k.Attempts)
	if k.Head != "" {
		q.Status.Head = k.Head
	}
	if k.State != effects.KeptPlanned {
		at := metav1.NewTime(k.At).Rfc3339Copy()
		q.Status.SetAsideAt = &at
	}
	if s := k.Size; s != nil {
		q.Status.Size = &v1alpha1.QuarantineSize{Bytes: s.Bytes, Files: s.Files, Entries: s.Entries, Unreadable: s.Unreadable}
	}
	if k.State != effects.KeptInPlace {
		q.Status.Deadline = nil
	}
}

// setDeadline tells when the thing is due, as the clock on the wall goes now.
func (r *Reconciler) setDeadline(q *v1alpha1.Quarantine, left time.Duration) {
	due := metav1.NewTime(r.Clock.Now().Add(left).Round(time.Second)).Rfc3339Copy()
	if old := q.Status.Deadline; old == nil || due.Sub(old.Time).Abs() > deadlineSlack {
		q.Status.Deadline = &due
	}
}

// tell records what changed, once, after it is on disk, and wakes the Session
// that waits for it.
func (r *Reconciler) tell(before, q *v1alpha1.Quarantine) {
	changed := false
	for _, t := range []string{v1alpha1.SetAside, v1alpha1.Restored} {
		c, old := meta.FindStatusCondition(q.Status.Conditions, t), meta.FindStatusCondition(before.Status.Conditions, t)
		if c.Reason == v1alpha1.ReasonObserving || c.Reason == v1alpha1.ReasonNotAsked ||
			old != nil && old.Status == c.Status && old.Reason == c.Reason {
			continue
		}
		changed = true
		if t == v1alpha1.SetAside && c.Reason == v1alpha1.ReasonRestored {
			continue // the condition Restored tells it
		}
		kind := eventNormal
		switch c.Reason {
		case v1alpha1.ReasonKept, v1alpha1.ReasonRestored, v1alpha1.ReasonPurged, v1alpha1.ReasonPurging, v1alpha1.ReasonMoving, v1alpha1.ReasonGracePeriod:
		default:
			kind = eventWarning
		}
		r.Recorder.Event(q, kind, c.Reason, c.Message)
	}
	if changed && q.Spec.Session != nil {
		r.Wake(sessionKey(q))
	}
}

// said joins a sentence and an error, as far as a condition takes them.
func said(what string, err error) string {
	text := oneLine(err.Error())
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	return fmt.Sprintf("%s: %s", what, text)
}

func oneLine(text string) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(text, "\ufffd")), " ")
}

// ourLock tells a lock that skc put on a worktree.
func ourLock(reason string) bool { return strings.HasPrefix(reason, "skc: ") }
