package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// How much of the screen a death certificate keeps.
const (
	keptLines     = 50
	keptLineBytes = 500
)

// certified tells whether the death of the last start is written down.
func certified(s *v1alpha1.Session) bool {
	return s.Status.LastTermination != nil && s.Status.LastTermination.Attempt >= s.Status.Tmux.Attempt
}

// certify writes the death certificate of the last start, and what it does to
// the restart budget. It returns an error when it cannot be known yet how the
// program ended.
func (r *Reconciler) certify(ctx context.Context, s *v1alpha1.Session, obs observation) error {
	tm := s.Status.Tmux
	t := &v1alpha1.Termination{
		Attempt: tm.Attempt, Generation: tm.Generation, TmuxServerPID: tm.ServerPID, BootID: tm.BootID,
		StartedAt: tm.StartedAt, FinishedAt: r.nowMicro(),
	}
	var err error
	if obs.found && obs.pane.Launch.Attempt >= tm.Attempt {
		err = r.autopsy(ctx, s, obs.pane, t)
	} else {
		err = r.missing(ctx, s, t)
	}
	if err != nil {
		return fmt.Errorf("learn how %s ended: %w", api.KeyOf(s), err)
	}
	if st := s.Status.Stopping; st != nil && st.Attempt == tm.Attempt && st.Reason != v1alpha1.RequestedLeftBehind {
		t.RequestedBy, t.Forced = st.Reason, st.Forced
	}
	s.Status.LastTermination = t
	if !slices.Contains(neverRan, t.Reason) {
		begun(s)
	}
	r.spend(s, t)
	return nil
}

// autopsy reads the end of a program from the pane that is kept.
func (r *Reconciler) autopsy(ctx context.Context, s *v1alpha1.Session, pane effects.TmuxPane, t *v1alpha1.Termination) error {
	lines, err := r.Mux.Capture(ctx, pane, keptLines)
	if err != nil && !errors.Is(err, effects.ErrNotFound) {
		return err
	}
	for _, l := range r.withoutPrompt(s, lines) {
		t.LastLines = append(t.LastLines, clip(l, keptLineBytes))
	}
	failure, err := r.Launcher.Failure(pane.Launch)
	if err != nil {
		return err
	}
	switch {
	case failure != nil:
		t.Reason, t.Message = failure.Reason, failure.Message
	case !pane.ExitKnown:
		t.Reason, t.Message = v1alpha1.ReasonExitUnknown, "the program ended, and tmux could not say how"
	case pane.Signal != "":
		t.Signal = pane.Signal
		t.Reason, t.Message = v1alpha1.ReasonSignaled, "killed by "+pane.Signal
		if pane.Signal == "SIGKILL" {
			oom, err := r.Processes.OOMKilled(string(s.UID))
			if err != nil {
				return err
			}
			if oom {
				t.OOMKilled = true
				t.Reason, t.Message = v1alpha1.ReasonOOMKilled, "killed by the kernel for want of memory"
			}
		}
	default:
		code := int32(pane.ExitCode)
		t.ExitCode = &code
		t.Reason, t.Message = v1alpha1.ReasonCompleted, "exited with code 0"
		if code != 0 {
			t.Reason, t.Message = v1alpha1.ReasonError, fmt.Sprintf("exited with code %d", code)
		}
	}
	return nil
}

// missing says why the pane itself is gone.
func (r *Reconciler) missing(ctx context.Context, s *v1alpha1.Session, t *v1alpha1.Termination) error {
	tm := s.Status.Tmux
	server, err := r.Mux.Server(ctx)
	if err != nil && !errors.Is(err, effects.ErrNotFound) {
		return err
	}
	switch {
	case tm.BootID != r.BootID:
		t.Reason, t.Message = v1alpha1.ReasonRebooted, "the machine was started again"
	case err != nil || int64(server.PID) != tm.ServerPID || server.StartTime != tm.ServerStartTime:
		t.Reason, t.Message = v1alpha1.ReasonServerLost, "the tmux server ended, and the program with it"
	default:
		t.Reason, t.Message = v1alpha1.ReasonSessionKilled, "its tmux session was closed from outside skc"
	}
	return nil
}

// spend takes one end from the restart budget and sets when the next start may be.
func (r *Reconciler) spend(s *v1alpha1.Session, t *v1alpha1.Termination) {
	rs := &s.Status.Restarts
	rs.NextAttemptAt = nil
	switch {
	case t.RequestedBy != "":
		rs.Consecutive = 0
		return
	case blameless(t):
		return // it is started again at once
	case t.StartedAt != nil && t.FinishedAt.Sub(t.StartedAt.Time) >= s.Spec.Restart.ResetAfterOrDefault():
		rs.Consecutive = 0
	}
	if !restarts(s.Spec.RestartPolicy, t) {
		return
	}
	if wait := backoff(s.Spec.Restart, rs.Consecutive+1, r.Jitter()); wait > 0 {
		at := metav1.NewMicroTime(t.FinishedAt.Add(wait).Truncate(time.Microsecond))
		rs.NextAttemptAt = &at
	}
}

// blameless ends are not the program's fault, and cost it nothing.
func blameless(t *v1alpha1.Termination) bool {
	return t.Reason == v1alpha1.ReasonServerLost || t.Reason == v1alpha1.ReasonRebooted
}

// backoff is how long the n-th restart in a row waits: the first not at all,
// then initialBackoff*2^(n-1) up to maxBackoff, plus up to a tenth so that many
// sessions that fell together do not rise together.
func backoff(spec v1alpha1.RestartSpec, n int64, jitter float64) time.Duration {
	if n <= 1 {
		return 0
	}
	wait, limit := spec.InitialBackoffOrDefault(), spec.MaxBackoffOrDefault()
	for range n - 1 {
		if wait *= 2; wait >= limit {
			wait = limit
			break
		}
	}
	return wait + time.Duration(float64(wait)/10*jitter)
}

// clip bounds a text to n bytes, at a rune.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
