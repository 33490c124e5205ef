package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// observation is what a pass sees of the program.
type observation struct {
	pane  effects.TmuxPane
	found bool // the pane is there, dead or alive
	died  bool // this pass certified the death
}

func (o observation) alive() bool { return o.found && !o.pane.Dead }

// observe looks at tmux, and takes into status what is found there: a program
// that a controller started and did not live to record, and a death.
func (r *Reconciler) observe(ctx context.Context, s *v1alpha1.Session) (observation, error) {
	pane, err := r.Mux.Get(ctx, string(s.UID))
	if err != nil && !errors.Is(err, effects.ErrNotFound) {
		return observation{}, err
	}
	obs := observation{pane: pane, found: err == nil}
	if obs.found && (s.Status.Tmux == nil || s.Status.Tmux.Attempt < pane.Launch.Attempt) {
		last := s.Status.LastTermination
		r.launched(s, pane, s.Status.Tmux != nil && s.Status.LaunchedDigest == pane.Launch.Digest && (last == nil || last.RequestedBy == ""))
	}
	if !obs.alive() && s.Status.Tmux != nil && !certified(s) {
		if err := r.certify(ctx, s, obs); err != nil {
			return obs, err
		}
		obs.died = true
	}
	return obs, nil
}

// reportDeath ends the pass in which a death was certified: the certificate is
// read from a pane that the next start wipes, so it is on disk before that.
func (r *Reconciler) reportDeath(s *v1alpha1.Session) (controller.Result, error) {
	if t := s.Status.LastTermination; t.RequestedBy == "" {
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, t.Reason, t.Message)
	}
	// At once, but not when the write fails: that waits longer each time.
	return controller.Result{RequeueAfter: time.Microsecond}, nil
}

// unknown reports that nothing can be said of the program, and touches nothing.
func (r *Reconciler) unknown(s *v1alpha1.Session, err error) (controller.Result, error) {
	switch {
	case errors.Is(err, effects.ErrUnavailable):
		set(s, v1alpha1.SessionRunning, metav1.ConditionUnknown, v1alpha1.ReasonTmuxMissing, err.Error())
	case errors.Is(err, effects.ErrUnreachable):
		set(s, v1alpha1.SessionRunning, metav1.ConditionUnknown, v1alpha1.ReasonTmuxUnreachable,
			"the tmux server does not answer; what runs there is left as it is")
	default:
		return controller.Result{}, err
	}
	// tmux tells when it answers again; this look is for a tmux that gets installed.
	return controller.Result{RequeueAfter: 2 * lookAgain}, nil
}

// ensureProcess sees to it that exactly the program that the spec asks for runs,
// or none.
func (r *Reconciler) ensureProcess(ctx context.Context, s *v1alpha1.Session) (controller.Result, error) {
	obs, err := r.observe(ctx, s)
	want := s.Spec.DesiredState != v1alpha1.DesiredStopped
	if errors.Is(err, effects.ErrUnavailable) && !want && s.Status.Tmux == nil {
		err = nil // no tmux program is needed for what should not run and never ran
	}
	if err != nil {
		return r.unknown(s, err)
	}
	if obs.died {
		return r.reportDeath(s)
	}
	if s.Spec.Suspend {
		return r.reportSuspended(s, obs)
	}
	var digest, requested string
	if want {
		digest = launchDigest(s)
	}
	switch {
	case !want:
		requested = v1alpha1.RequestedStopped
	case obs.alive() && s.Status.Stopping != nil && s.Status.Stopping.Attempt == obs.pane.Launch.Attempt:
		requested = s.Status.Stopping.Reason // it was asked to end and may be half gone; let it end
	case obs.alive() && s.Status.LaunchedDigest != digest && s.Annotations[v1alpha1.RestartedAtAnnotation] != s.Status.LaunchedRestartedAt:
		requested = v1alpha1.RequestedRestart
	case obs.alive() && s.Status.LaunchedDigest != digest:
		requested = v1alpha1.RequestedSpecChanged
	case obs.alive():
		r.Processes.Join(string(s.UID), obs.pane.Process)
		r.running(s)
		return controller.Result{}, nil
	case r.setupOf(s) != nil && !replacing(s): // what runs is its setup
		awaitWorkspace(s)
		return controller.Result{}, nil
	default:
		requested = v1alpha1.RequestedLeftBehind // nothing more of the last program may live beside the next
	}
	stopped, res, err := r.ensureStopped(ctx, s, obs, requested)
	if err != nil || !stopped {
		return res, err
	}
	if !want {
		s.Status.LaunchedDigest = "" // the next start is one that was asked for, whatever the policy
		s.Status.Restarts.NextAttemptAt = nil
		s.Status.Restarts.Consecutive = 0
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStopped, stoppedMessage(s))
		return controller.Result{}, nil
	}
	if replacing(s) {
		return r.replaceWorkspace(ctx, s)
	}
	return r.ensureStarted(ctx, s, obs, digest)
}

// awaitWorkspace says that nothing is started before the folder is ready.
func awaitWorkspace(s *v1alpha1.Session) {
	if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.WorkspaceReady); c != nil && c.Status == metav1.ConditionFalse {
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStartFailed, "waits for the folder")
	} else {
		set(s, v1alpha1.SessionRunning, metav1.ConditionUnknown, v1alpha1.ReasonStarting, "waits for the folder")
	}
}

func stoppedMessage(s *v1alpha1.Session) string {
	if t := s.Status.LastTermination; t != nil && t.Forced {
		return "stopped; SIGKILL was needed after the grace period"
	}
	return "stopped"
}

func (r *Reconciler) running(s *v1alpha1.Session) {
	s.Status.Stopping = nil
	begun(s)
	set(s, v1alpha1.SessionRunning, metav1.ConditionTrue, v1alpha1.ReasonRunning, "the program runs")
}

func (r *Reconciler) reportSuspended(s *v1alpha1.Session, obs observation) (controller.Result, error) {
	if obs.alive() {
		set(s, v1alpha1.SessionRunning, metav1.ConditionTrue, v1alpha1.ReasonRunning, "the program runs; spec.suspend keeps hands off")
	} else {
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonSuspended, "spec.suspend keeps hands off: nothing is started")
	}
	return controller.Result{}, nil
}

// ensureStopped ends every process of the session: signal, grace, SIGKILL. It
// returns true when a complete look found none.
func (r *Reconciler) ensureStopped(ctx context.Context, s *v1alpha1.Session, obs observation, requested string) (bool, controller.Result, error) {
	var none controller.Result
	if !obs.alive() && s.Status.Stopping == nil && !r.mayHaveLeft(s) {
		return true, none, nil
	}
	uid := string(s.UID)
	left, err := r.Processes.List(ctx, uid)
	if err != nil {
		return false, none, fmt.Errorf("list processes of %s: %w", api.KeyOf(s), err)
	}
	if len(left) == 0 && !obs.alive() {
		if st := s.Status.Stopping; st != nil && st.Forced && s.Status.LastTermination != nil {
			s.Status.LastTermination.Forced = true
		}
		s.Status.Stopping = nil
		if s.Status.Tmux != nil { // its certificate is on disk, and with it what its launcher reported
			if err := r.Launcher.Clear(uid); err != nil {
				return false, none, fmt.Errorf("clear launch files of %s: %w", api.KeyOf(s), err)
			}
			s.Status.SweptAttempt = s.Status.Tmux.Attempt
		}
		return true, none, nil
	}
	var main effects.ProcessID
	var attempt int64
	if obs.alive() {
		main = obs.pane.Process
	}
	if s.Status.Tmux != nil {
		attempt = s.Status.Tmux.Attempt
	}
	grace := s.Spec.Stop.GracePeriodOrDefault()
	st := s.Status.Stopping
	key := api.KeyOf(s)
	r.Prober.Stop(key) // a probe's command carries the session's mark
	r.stopCapture(key, uid)
	if st == nil || st.Attempt != attempt {
		// Who asked cannot be seen in a process that ended, so it is on disk before
		// the signal: this pass writes it, the next one sends.
		s.Status.Stopping = &v1alpha1.StoppingStatus{Attempt: attempt, Reason: requested,
			Deadline: metav1.NewMicroTime(r.nowMicro().Add(grace))}
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStopping, stoppingMessage(s, requested))
		return false, controller.Result{RequeueAfter: time.Millisecond}, nil
	}
	if !st.Signaled {
		if err := r.Processes.Signal(ctx, uid, main, string(s.Spec.Stop.SignalOrDefault())); err != nil {
			return false, none, fmt.Errorf("signal %s: %w", key, err)
		}
		st.Signaled = true
	}
	set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStopping, stoppingMessage(s, requested))
	wait := r.left(s, "stop", st.Deadline.Time, grace)
	if wait == 0 {
		hit, err := r.Processes.Kill(ctx, uid, main)
		if err != nil {
			return false, none, fmt.Errorf("kill %s: %w", key, err)
		}
		st.Forced = st.Forced || hit > 0
		wait = time.Second // they are dying; look again even if no death is told
	}
	for _, p := range left {
		if err := r.Processes.Watch(p, func() { r.Enqueue(key) }); err != nil {
			return false, none, fmt.Errorf("watch processes of %s: %w", key, err)
		}
	}
	return false, controller.Result{RequeueAfter: wait}, nil
}

func stoppingMessage(s *v1alpha1.Session, requested string) string {
	signal := string(s.Spec.Stop.SignalOrDefault())
	if requested == v1alpha1.RequestedLeftBehind {
		return "the program ended and left processes behind; they got " + signal
	}
	return fmt.Sprintf("the program got %s (%s)", signal, requested)
}

// mayHaveLeft tells whether processes of this session may be there although no
// pane is: after a program that ran, after a setup whose end was not seen, or
// when an earlier controller may have started a program that it did not live to
// record.
func (r *Reconciler) mayHaveLeft(s *v1alpha1.Session) bool {
	if w := s.Status.Workspace; w != nil && w.Setup != nil && w.Setup.FinishedAt == nil {
		return true
	}
	if s.Status.Tmux == nil {
		return r.Earlier(api.KeyOf(s))
	}
	return s.Status.SweptAttempt != s.Status.Tmux.Attempt
}

// ensureStarted starts the program when the policy, the budget and the backoff
// allow it. Nothing of an earlier one is left.
func (r *Reconciler) ensureStarted(ctx context.Context, s *v1alpha1.Session, obs observation, digest string) (controller.Result, error) {
	last, rs := s.Status.LastTermination, &s.Status.Restarts
	asked := s.Status.Tmux == nil || s.Status.LaunchedDigest != digest || last == nil || last.RequestedBy != ""
	if asked {
		rs.Consecutive, rs.NextAttemptAt = 0, nil
		return r.start(ctx, s, obs, digest, false)
	}
	if !restarts(s.Spec.RestartPolicy, last) {
		rs.NextAttemptAt = nil
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, last.Reason, last.Message)
		return controller.Result{}, nil
	}
	if limit := int64(s.Spec.Restart.MaxRestarts); limit > 0 && rs.Consecutive >= limit {
		rs.NextAttemptAt = nil
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonRestartLimitExceeded,
			fmt.Sprintf("restart.maxRestarts (%d) is used up; last: %s: %s", limit, last.Reason, last.Message))
		return controller.Result{}, nil
	}
	if rs.NextAttemptAt != nil {
		if wait := r.left(s, "restart", rs.NextAttemptAt.Time, s.Spec.Restart.MaxBackoffOrDefault()*11/10); wait > 0 {
			set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonCrashLoopBackOff,
				fmt.Sprintf("waits before the next start; last: %s: %s", last.Reason, last.Message))
			return controller.Result{RequeueAfter: wait}, nil
		}
	}
	return r.start(ctx, s, obs, digest, true)
}

// restarts tells whether the policy starts again after such an end.
func restarts(policy v1alpha1.RestartPolicy, last *v1alpha1.Termination) bool {
	switch policy {
	case v1alpha1.RestartAlways:
		return true
	case v1alpha1.RestartNever:
		return false
	}
	return last.Reason != v1alpha1.ReasonCompleted
}

// start starts the program once. What it makes carries the attempt, so that a
// crash after it is healed by the next look.
func (r *Reconciler) start(ctx context.Context, s *v1alpha1.Session, obs observation, digest string, restart bool) (controller.Result, error) {
	refuse := func(reason, message string) (controller.Result, error) {
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, reason, message)
		return controller.Result{RequeueAfter: lookAgain}, nil
	}
	if !isTrue(s, v1alpha1.WorkspaceReady) {
		awaitWorkspace(s)
		return controller.Result{}, nil
	}
	key := api.KeyOf(s)
	env, err := r.Launcher.Environment(s)
	if errors.Is(err, effects.ErrUnavailable) {
		return refuse(v1alpha1.ReasonEnvironmentUnreadable, err.Error())
	}
	if err != nil {
		return controller.Result{}, fmt.Errorf("environment of %s: %w", key, err)
	}
	argv, env, res, err := r.command(ctx, s, env)
	if err != nil || argv == nil {
		return res, err
	}
	uid := string(s.UID)
	if err := r.Processes.Prepare(uid); err != nil {
		return controller.Result{}, fmt.Errorf("prepare control group of %s: %w", key, err)
	}
	if r.Earlier(key) { // an earlier controller may have died after it wrote one
		if err := r.Launcher.Clear(uid); err != nil {
			return controller.Result{}, fmt.Errorf("clear launch files of %s: %w", key, err)
		}
	}
	id := effects.LaunchID{UID: uid, Generation: s.Generation, Attempt: nextAttempt(s, obs), Digest: digest}
	args, ref, err := r.offerPrompt(ctx, s, id)
	if err != nil {
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStartFailed, err.Error())
		return controller.Result{}, fmt.Errorf("prepare start of %s: %w", key, err)
	}
	err = r.Launcher.Write(id, effects.Launch{Argv: slices.Concat(argv, args), Env: slices.Concat(env, ref), Dir: s.Status.Workspace.Path})
	if err != nil {
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStartFailed, err.Error())
		// Nobody was told of it, so that start never runs.
		return controller.Result{}, errors.Join(fmt.Errorf("write launch file of %s: %w", key, err), r.withdrawPrompt(ctx, s, args))
	}
	pane, err := r.startPane(ctx, s, obs, id)
	if err != nil && !errors.Is(err, effects.ErrUnreachable) {
		// No launcher will take it, and it holds the environment.
		if err := r.Launcher.Clear(uid); err != nil {
			return controller.Result{}, fmt.Errorf("clear launch files of %s: %w", key, err)
		}
	}
	if errors.Is(err, effects.ErrExists) || errors.Is(err, effects.ErrExhausted) || errors.Is(err, effects.ErrUnavailable) {
		if werr := r.withdrawPrompt(ctx, s, args); werr != nil { // it is known that nothing was started
			return controller.Result{}, werr
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, effects.ErrExists):
		return refuse(v1alpha1.ReasonNameTaken, fmt.Sprintf("a tmux session named %s is there that is not this Session's; end or rename it", sessionName(s)))
	case errors.Is(err, effects.ErrExhausted):
		return refuse(v1alpha1.ReasonOutOfTerminals, err.Error())
	case errors.Is(err, effects.ErrUnavailable), errors.Is(err, effects.ErrUnreachable):
		return r.unknown(s, err)
	default:
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStartFailed, err.Error())
		return controller.Result{}, fmt.Errorf("start %s: %w", key, err)
	}
	r.launched(s, pane, restart)
	r.Processes.Join(uid, pane.Process)
	if r.Launcher.Started(ctx, id, pane.Process) {
		r.running(s)
	} else { // its death is on the way, and brings the reason
		set(s, v1alpha1.SessionRunning, metav1.ConditionUnknown, v1alpha1.ReasonStarting, "the program is not seen yet")
		return controller.Result{RequeueAfter: time.Second}, nil
	}
	return controller.Result{}, nil
}

// startPane starts the launch file in the pane that is there, or in a new one.
func (r *Reconciler) startPane(ctx context.Context, s *v1alpha1.Session, obs observation, id effects.LaunchID) (effects.TmuxPane, error) {
	terminal := s.Spec.TerminalOrDefault()
	if obs.found {
		if had := s.Status.Tmux.Terminal; had == nil || *had == terminal {
			if err := r.Mux.Tag(ctx, obs.pane, tags(s)); err != nil { // before anything is started
				return effects.TmuxPane{}, err
			}
			return r.Mux.Respawn(ctx, obs.pane, id)
		}
		// History is sized when a pane is made: another terminal is another pane.
		if err := r.Mux.Kill(ctx, obs.pane); err != nil {
			return effects.TmuxPane{}, err
		}
	}
	pane, err := r.Mux.Create(ctx, effects.NewTmuxSession{
		Name: sessionName(s), Columns: int(terminal.Columns), Rows: int(terminal.Rows),
		HistoryLimit: int(terminal.HistoryLimit), Launch: id, Tags: tags(s),
	})
	if !errors.Is(err, effects.ErrExists) {
		return pane, err
	}
	// A command that was given up as unanswered may have made it after all.
	if err := r.Mux.Look(ctx); err != nil {
		return pane, err
	}
	if pane, gerr := r.Mux.Get(ctx, id.UID); gerr == nil {
		return pane, nil
	}
	return pane, err
}

// launched records a program that was started, by this pass or by one that did
// not live to record it.
func (r *Reconciler) launched(s *v1alpha1.Session, pane effects.TmuxPane, restart bool) {
	if restart {
		s.Status.Restarts.Total++
		if last := s.Status.LastTermination; last == nil || !blameless(last) {
			s.Status.Restarts.Consecutive++
		}
	}
	s.Status.Restarts.NextAttemptAt = nil
	s.Status.Stopping = nil
	terminal := s.Spec.TerminalOrDefault()
	s.Status.Tmux = &v1alpha1.TmuxStatus{
		Socket: pane.Server.Socket, ServerPID: int64(pane.Server.PID), ServerStartTime: pane.Server.StartTime,
		SessionID: pane.SessionID, PaneID: pane.PaneID,
		PanePID: int64(pane.Process.PID), PaneStartTime: pane.Process.StartTime,
		Attempt: pane.Launch.Attempt, Generation: pane.Launch.Generation, BootID: r.BootID,
		Terminal: &terminal, StartedAt: r.nowMicro(),
	}
	s.Status.LaunchedDigest = pane.Launch.Digest
	s.Status.LaunchedRestartedAt = ""
	if pane.Launch.Digest == launchDigest(s) {
		s.Status.LaunchedRestartedAt = s.Annotations[v1alpha1.RestartedAtAnnotation]
	}
	set(s, v1alpha1.ProbeSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonProbePending, "no look has ended yet")
}

func nextAttempt(s *v1alpha1.Session, obs observation) int64 {
	var n int64
	if s.Status.Tmux != nil {
		n = s.Status.Tmux.Attempt
	}
	if obs.found {
		n = max(n, obs.pane.Launch.Attempt)
	}
	return n + 1
}

// sessionName is how people see the session in tmux.
func sessionName(s *v1alpha1.Session) string { return s.TmuxName() }

// launchDigest is what a running program must carry: what the spec says of its
// start, and the last restart that was asked for.
func launchDigest(s *v1alpha1.Session) string {
	sum := sha256.Sum256([]byte(s.Spec.LaunchDigest() + "\x00" + s.Annotations[v1alpha1.RestartedAtAnnotation]))
	return hex.EncodeToString(sum[:8])
}
