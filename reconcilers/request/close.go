package request

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// beginClose ends a Session that is provably ours, for Close and Delete.
func (p *pass) beginClose(ctx context.Context) (controller.Result, error) {
	var none controller.Result
	st := &p.rq.Status
	want := st.Request.Target.Session
	all, err := p.named(ctx, p.rq.Namespace, func(id string) bool { return id == want.ID })
	if err != nil {
		return none, err
	}
	var found []*v1alpha1.Session
	for _, key := range all {
		if key.Kind != v1alpha1.KindSession {
			continue
		}
		p.wait(key)
		s, err := p.Sessions.Get(ctx, key)
		if errors.Is(err, effects.ErrNotFound) {
			continue
		}
		if err != nil {
			return none, fmt.Errorf("get %s: %w", key, err)
		}
		found = append(found, s)
	}
	switch len(found) {
	case 0:
		return p.finish(ctx, failure(lifecycle.ReasonNotFound, "no session has the id %q", want.ID))
	case 1:
	default:
		return p.finish(ctx, failure(lifecycle.ReasonCloseRefused, "%d sessions have the id %q; nothing was touched", len(found), want.ID))
	}
	s := found[0]
	if mine, res := p.turn(api.KeyOf(s)); !mine {
		return res, nil
	}
	verb := "stop"
	if st.Request.Verb == v1alpha1.VerbDelete {
		verb = "delete"
	}
	if why := p.notOurs(s, want, verb); why != "" {
		return p.finish(ctx, failure(lifecycle.ReasonCloseRefused, "%s; nothing was touched", why))
	}
	switch proven, err := p.proven(ctx, s); {
	case errors.Is(err, effects.ErrUnreachable), errors.Is(err, effects.ErrUnavailable):
		return p.finish(ctx, failure(lifecycle.ReasonCloseRefused, "skc_lifecycle_owner_server_unverifiable: tmux does not answer, so what runs cannot be proven to be the session; nothing was touched"))
	case err != nil:
		return none, err
	case !proven:
		res := p.wait(api.KeyOf(s)) // who looks after the Session will see it too
		return res.Soonest(controller.Result{RequeueAfter: lookAgain}), nil
	}
	st.Session = &v1alpha1.SessionReference{Namespace: s.Namespace, Name: s.Name, Generation: s.Generation, Attempt: attempt(s), DesiredState: s.Spec.DesiredState}
	p.about(s)
	if st.Request.Verb == v1alpha1.VerbClose && stopped(s) {
		return p.closed(ctx, s)
	}
	if err := p.step(ctx, v1alpha1.StepBegun); err != nil {
		return none, err
	}
	return p.proceed(ctx)
}

// notOurs says why a request may not end the Session; empty when it may.
func (p *pass) notOurs(s *v1alpha1.Session, want *v1alpha1.SessionSelector, verb string) string {
	file := s.Annotations[v1alpha1.SourceFileAnnotation]
	switch {
	case s.Annotations[v1alpha1.SessionIDAnnotation] == "" || !p.Definitions.Holds(file):
		return fmt.Sprintf("skc_lifecycle_session_not_managed: no request made the session; it is defined in %s; use skcctl %s", file, verb)
	case want.TmuxSession != nil && *want.TmuxSession != s.TmuxName():
		return "skc_lifecycle_session_id_mismatch: the tmux session is another one"
	case want.SessionStateFile != nil && *want.SessionStateFile != p.stateFile(s):
		return "skc_lifecycle_session_state_file_mismatch: the state file is another one"
	case s.Spec.Suspend:
		return "the session is suspended, and so it is not stopped"
	}
	return ""
}

// proven tells whether what runs for the Session, if anything does, is what its
// status says: the pane that carries its UID holds that process. false when the
// status is not up to date. An error matching effects.ErrUnreachable or
// effects.ErrUnavailable says that nobody can tell.
func (p *pass) proven(ctx context.Context, s *v1alpha1.Session) (bool, error) {
	pane, err := p.Panes.Get(ctx, string(s.UID))
	alive := err == nil && !pane.Dead
	if err != nil && !errors.Is(err, effects.ErrNotFound) {
		return false, err
	}
	if running(s).Status != metav1.ConditionTrue {
		return !alive || running(s).Reason == v1alpha1.ReasonStopping, nil
	}
	t := s.Status.Tmux
	return alive && t != nil && t.Attempt == pane.Launch.Attempt && t.PanePID == int64(pane.Process.PID) && t.PaneStartTime == pane.Process.StartTime, nil
}

// closed records that the processes are gone.
func (p *pass) closed(ctx context.Context, s *v1alpha1.Session) (controller.Result, error) {
	gone := true
	p.rq.Status.ProcessGone = &gone
	return p.succeed(ctx, s, "its processes are gone")
}

func stop(spec map[string]any) error {
	spec["desiredState"] = string(v1alpha1.DesiredStopped)
	return nil
}

func start(spec map[string]any) error {
	spec["desiredState"] = string(v1alpha1.DesiredRunning)
	return nil
}

// watchClose has the Session stopped, until a look found none of its processes.
func (p *pass) watchClose(ctx context.Context) (controller.Result, error) {
	var none controller.Result
	late, res := p.late()
	s, err := p.look(ctx)
	if err != nil {
		return none, err
	}
	ref := p.rq.Status.Session
	switch {
	case s == nil || string(s.UID) != ref.UID: // it goes only when its processes have
		return p.closed(ctx, nil)
	case stopped(s), settingAside(s):
		return p.closed(ctx, s)
	}
	if s.DeletionTimestamp == nil && s.Spec.DesiredState != v1alpha1.DesiredStopped {
		if done, res, err := p.ensure(ctx, s, v1alpha1.DesiredStopped, stop, lifecycle.ReasonCloseRefused); done {
			return res, err
		}
	}
	if late {
		return p.uncertain(ctx, errors.New("its processes were not seen to end in time"))
	}
	return res, nil
}

// ensure has the definition say what the Session should be, which it does not
// yet. done is false when it does now, or did already and the Session follows.
// It is written once: a Session that was changed in between is somebody's wish.
func (p *pass) ensure(ctx context.Context, s *v1alpha1.Session, want v1alpha1.DesiredState, edit func(map[string]any) error, reason lifecycle.Reason) (done bool, res controller.Result, err error) {
	d, err := p.defined(ctx)
	if err != nil {
		return true, res, err
	}
	switch {
	case d != nil && d.Spec.DesiredState == want:
		return false, res, nil
	case d == nil || s.Generation != p.rq.Status.Session.Generation:
		res, err = p.uncertain(ctx, errors.New("the session was changed by somebody else meanwhile"))
		return true, res, err
	}
	err = p.Definitions.Edit(ctx, p.target(), edit)
	if err == nil {
		return false, res, nil
	}
	d, derr := p.defined(ctx)
	if derr != nil || d == nil {
		return true, res, errors.Join(err, derr)
	}
	if d.Spec.DesiredState == want {
		return false, res, nil
	}
	if p.rq.Status.Step != v1alpha1.StepBegun {
		return true, res, err
	}
	res, err = p.finish(ctx, failure(reason, "the session could not be changed: %v", err))
	return true, res, err
}

// watchDelete has the Session removed, until it is gone.
func (p *pass) watchDelete(ctx context.Context) (controller.Result, error) {
	var none controller.Result
	late, res := p.late()
	s, err := p.look(ctx)
	if err != nil {
		return none, err
	}
	if s == nil || string(s.UID) != p.rq.Status.Session.UID {
		return p.closed(ctx, nil)
	}
	if s.DeletionTimestamp == nil {
		if err := p.Definitions.Remove(ctx, p.target()); err != nil {
			if d, derr := p.defined(ctx); derr != nil || d == nil {
				return none, errors.Join(err, derr)
			}
			return p.finish(ctx, failure(lifecycle.ReasonCloseRefused, "the session could not be removed: %v", err))
		}
	}
	if late {
		return p.uncertain(ctx, errors.New("the session was not seen to go in time"))
	}
	return res, nil
}
