package session

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// lookAgain is how soon a missing folder, program or terminal is looked for
// again: nothing tells when it comes.
const lookAgain = 5 * time.Second

// ensureReadiness reports what the probe of the running program last saw.
func (r *Reconciler) ensureReadiness(ctx context.Context, s *v1alpha1.Session) (controller.Result, error) {
	var res controller.Result
	key := api.KeyOf(s)
	if !isTrue(s, v1alpha1.SessionRunning) {
		r.Prober.Stop(key)
		set(s, v1alpha1.ProbeSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonNotRunning, "the program does not run")
		return res, nil
	}
	probe, err := r.readiness(ctx, s)
	if err != nil {
		return res, err
	}
	if probe == nil {
		r.Prober.Stop(key)
		set(s, v1alpha1.ProbeSucceeded, metav1.ConditionTrue, v1alpha1.ReasonNoProbe, "no readiness is asked for")
		return res, nil
	}
	if s.Status.Workspace == nil { // a program that was found before its folder
		set(s, v1alpha1.ProbeSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonProbePending, "no look has ended yet")
		return res, nil
	}
	target := ProbeTarget{Dir: s.Status.Workspace.Path, Screen: r.screen(s)}
	if probe.Exec != nil {
		env, err := r.Launcher.Environment(s)
		if err != nil {
			set(s, v1alpha1.ProbeSucceeded, metav1.ConditionFalse, v1alpha1.ReasonEnvironmentUnreadable, err.Error())
			return controller.Result{RequeueAfter: lookAgain}, nil
		}
		target.Env = env
	}
	t := s.Status.Tmux
	id := effects.LaunchID{UID: string(s.UID), Generation: t.Generation, Attempt: t.Attempt, Digest: s.Status.LaunchedDigest}
	saw := r.Prober.Ensure(key, id, probe, target)
	switch {
	case saw.OK:
		set(s, v1alpha1.ProbeSucceeded, metav1.ConditionTrue, v1alpha1.ReasonProbeSucceeded, "the program is ready")
		return res, nil
	case saw.Known && probeWas(s, v1alpha1.ReasonProbeSucceeded, v1alpha1.ReasonProbeFailed):
		set(s, v1alpha1.ProbeSucceeded, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed, saw.Message)
		return res, nil
	}
	message := saw.Message
	if !saw.Known {
		message = "no look has ended yet"
	}
	limit := probe.DeadlineOrDefault()
	if left := r.left(s, "readiness", t.StartedAt.Add(limit), limit); left > 0 {
		set(s, v1alpha1.ProbeSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonProbePending, message)
		return controller.Result{RequeueAfter: left}, nil
	}
	set(s, v1alpha1.ProbeSucceeded, metav1.ConditionFalse, v1alpha1.ReasonReadinessDeadlineExceeded,
		fmt.Sprintf("not ready within %s: %s", limit, message))
	return res, nil
}

// left is the time until a deadline in status.
func (r *Reconciler) left(s *v1alpha1.Session, what string, wall time.Time, limit time.Duration) time.Duration {
	return r.timers.left(string(s.UID), what, r.Clock.Now(), wall, limit)
}

// nowMicro is the time as status holds it.
func (r *Reconciler) nowMicro() *metav1.MicroTime {
	t := metav1.NewMicroTime(r.Clock.Now().UTC().Truncate(time.Microsecond))
	return &t
}

func isTrue(s *v1alpha1.Session, condition string) bool {
	for _, c := range s.Status.Conditions {
		if c.Type == condition {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

func probeWas(s *v1alpha1.Session, reasons ...string) bool {
	for _, c := range s.Status.Conditions {
		if c.Type == v1alpha1.ProbeSucceeded {
			for _, r := range reasons {
				if c.Reason == r {
					return true
				}
			}
		}
	}
	return false
}
