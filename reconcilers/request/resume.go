package request

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// match is one session that a resume or a fork could mean.
type match struct {
	session    *v1alpha1.Session // what lies in quarantine has one as it was defined
	quarantine string
	path       string // its folder, when it is there
}

// matches are the sessions whose id is the given one or, when there is none,
// begins with it, in the folder if one is given. What is both there and in
// quarantine is there.
func (p *pass) matches(ctx context.Context, want *v1alpha1.SessionSelector) ([]match, error) {
	for _, fits := range []func(string) bool{
		func(id string) bool { return id == want.ID },
		func(id string) bool { return strings.HasPrefix(id, want.ID) },
	} {
		keys, err := p.named(ctx, p.rq.Namespace, fits)
		if err != nil {
			return nil, err
		}
		p.wait(keys...)
		found, err := p.those(ctx, keys, want.Path)
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

func (p *pass) those(ctx context.Context, keys []api.Key, path *string) (found []match, err error) {
	there := map[string]bool{}
	var set []match
	for _, key := range keys {
		m := match{}
		if key.Kind == v1alpha1.KindQuarantine {
			var q *v1alpha1.Quarantine
			if q, err = p.Quarantines.Get(ctx, key); err == nil && canRestore(q) {
				m = match{quarantinedSession(q), q.Name, q.Spec.Origin.Path}
			}
		} else {
			var s *v1alpha1.Session
			if s, err = p.Sessions.Get(ctx, key); err == nil {
				m.session, m.path = s, p.folder(s)
			}
		}
		switch {
		case errors.Is(err, effects.ErrNotFound), err == nil && m.session == nil:
		case err != nil:
			return nil, fmt.Errorf("get %s: %w", key, err)
		case path != nil && m.path != p.path(*path):
		case m.quarantine != "":
			set = append(set, m)
		default:
			there[m.session.Name] = true
			found = append(found, m)
		}
	}
	for _, m := range set {
		if !there[m.session.Name] {
			found = append(found, m)
		}
	}
	return found, nil
}

func sessionsOf(all []match) (keys []api.Key) {
	for _, m := range all {
		keys = append(keys, sessionKey(m.session.Namespace, m.session.Name))
	}
	return keys
}

// canRestore tells whether the thing lies in quarantine and may be asked back.
func canRestore(q *v1alpha1.Quarantine) bool {
	return q.DeletionTimestamp == nil && !q.Spec.Purge && condition(q.Status.Conditions, v1alpha1.SetAside).Status == metav1.ConditionTrue
}

func (p *pass) ambiguous(ctx context.Context, all []match) (controller.Result, error) {
	st := &p.rq.Status
	for _, m := range all {
		st.Candidates = append(st.Candidates, v1alpha1.RequestCandidate{SessionID: sessionID(m.session), Path: m.path})
	}
	return p.finish(ctx, failure(lifecycle.ReasonAmbiguousTarget, "%d sessions match %q", len(all), st.Request.Target.Session.ID))
}

// beginResume finds the session. A live one is left as it is; one that does not
// run is started.
func (p *pass) beginResume(ctx context.Context) (controller.Result, error) {
	var none controller.Result
	st := &p.rq.Status
	want := st.Request.Target.Session
	all, err := p.matches(ctx, want)
	if err != nil {
		return none, err
	}
	if mine, res := p.turn(sessionsOf(all)...); !mine {
		return res, nil
	}
	var live, cold []match
	for _, m := range all {
		switch {
		case m.quarantine != "":
			cold = append(cold, m)
			continue
		case m.session.DeletionTimestamp != nil: // it may be on its way into quarantine
			_, res := p.late()
			return res, nil
		}
		switch alive, proven, err := p.alive(ctx, m.session); {
		case errors.Is(err, effects.ErrUnreachable), errors.Is(err, effects.ErrUnavailable):
			return p.finish(ctx, failure(lifecycle.ReasonDiscoveryTimeout, "skc_lifecycle_owner_server_unverifiable: tmux does not answer, so what runs cannot be told; nothing was touched"))
		case err != nil:
			return none, err
		case !proven: // it is starting, or stopping, or was not looked at yet
			_, res := p.late()
			return res.Soonest(controller.Result{RequeueAfter: lookAgain}), nil
		case alive:
			live = append(live, m)
		default:
			cold = append(cold, m)
		}
	}
	switch {
	case len(live) > 1:
		return p.ambiguous(ctx, live)
	case len(live) == 1:
		s := live[0].session
		st.Session = &v1alpha1.SessionReference{Namespace: s.Namespace, Name: s.Name}
		st.ResumeMode = string(lifecycle.Reattached)
		return p.succeed(ctx, s, "the session runs, and nothing was touched")
	case len(cold) > 1:
		return p.ambiguous(ctx, cold)
	case len(cold) == 0:
		return p.finish(ctx, failure(lifecycle.ReasonNotFound, "no session matches %q", want.ID))
	}
	return p.beginCold(ctx, cold[0])
}

// alive tells whether the Session runs; proven is false while its status and
// tmux do not say the same.
func (p *pass) alive(ctx context.Context, s *v1alpha1.Session) (alive, proven bool, err error) {
	c := running(s)
	if s.Status.ObservedGeneration != s.Generation { // it changes, and was not looked at since
		return false, false, nil
	}
	if c.Status == metav1.ConditionUnknown && c.Reason != v1alpha1.ReasonTmuxUnreachable && c.Reason != v1alpha1.ReasonTmuxMissing ||
		c.Reason == v1alpha1.ReasonStopping {
		return false, false, nil
	}
	proven, err = p.proven(ctx, s)
	return c.Status == metav1.ConditionTrue, proven, err
}

// beginCold has a session started again that does not run.
func (p *pass) beginCold(ctx context.Context, m match) (controller.Result, error) {
	var none controller.Result
	st, s := &p.rq.Status, m.session
	refuse := func(format string, args ...any) (controller.Result, error) {
		return p.finish(ctx, failure(lifecycle.ReasonSpawnFailed, format+"; nothing was touched", args...))
	}
	st.Session = &v1alpha1.SessionReference{Namespace: s.Namespace, Name: s.Name, Quarantine: m.quarantine, DesiredState: v1alpha1.DesiredStopped}
	if m.quarantine == "" {
		file := s.Annotations[v1alpha1.SourceFileAnnotation]
		if !p.Definitions.Holds(file) {
			return refuse("the session is defined in %s; use skcctl start, or skcctl restart", file)
		}
		if s.Spec.Suspend {
			return refuse("the session is suspended")
		}
		dir := p.folder(s)
		if err := p.Folders.Check(dir); errors.Is(err, effects.ErrNotFound) {
			return refuse("skc_lifecycle_resume_cwd_unavailable: %s is not there", dir)
		} else if err != nil {
			return none, err
		}
		st.Session.Generation, st.Session.Attempt, st.Session.DesiredState = s.Generation, attempt(s), s.Spec.DesiredState
		p.about(s)
	}
	next := v1alpha1.StepBegun
	if st.Session.DesiredState != v1alpha1.DesiredStopped {
		next = v1alpha1.StepRestarting // it ended by itself: a start that is asked for follows a stop
	}
	if err := p.step(ctx, next); err != nil {
		return none, err
	}
	return p.proceed(ctx)
}

// watchResume waits until the session was seen to run.
func (p *pass) watchResume(ctx context.Context) (controller.Result, error) {
	var none controller.Result
	st := &p.rq.Status
	late, res := p.late()
	s, err := p.look(ctx)
	if err != nil {
		return none, err
	}
	if st.Session.Quarantine != "" && st.Session.UID == "" {
		if done, res, err := p.restore(ctx); done {
			return res, err
		}
	}
	switch {
	case st.Session.UID != "":
	case s != nil && s.Annotations[v1alpha1.RestoredFromAnnotation] != "": // it came back
		st.Session.Generation = s.Generation
		p.about(s)
	case late:
		return p.uncertain(ctx, errors.New("the session did not come back from quarantine in time"))
	default:
		return res, nil
	}
	switch {
	case s == nil || string(s.UID) != st.Session.UID || s.DeletionTimestamp != nil:
		return p.uncertain(ctx, errors.New("the session was deleted meanwhile"))
	case st.Step == v1alpha1.StepWithdrawing:
		return p.withdrawStart(ctx, s)
	case st.Step == v1alpha1.StepRestarting:
		return p.restart(ctx, s)
	case ran(s, st.Session.Attempt):
		st.ResumeMode = string(lifecycle.ColdRestarted)
		return p.succeed(ctx, s, "the session was started again")
	case s.Spec.DesiredState == v1alpha1.DesiredStopped:
		if done, res, err := p.ensure(ctx, s, v1alpha1.DesiredRunning, start, lifecycle.ReasonSpawnFailed); done {
			return res, err
		}
	default:
		if why, ok := hopeless(s, st.Session.Attempt); ok {
			return p.withdraw(ctx, s, lifecycle.ReasonSpawnFailed, why)
		}
	}
	if late {
		return p.withdraw(ctx, s, lifecycle.ReasonReadinessTimeout, "the session was not seen to run in time")
	}
	return res, nil
}

// restart stops for good what ended by itself, and has it started when that was
// seen. Which of the two is done is on the disk.
func (p *pass) restart(ctx context.Context, s *v1alpha1.Session) (controller.Result, error) {
	st := &p.rq.Status
	late, res := p.late()
	if !stopped(s) {
		if ran(s, st.Session.Attempt) {
			st.ResumeMode = string(lifecycle.ColdRestarted)
			return p.succeed(ctx, s, "the session was started again, by itself")
		}
		if s.Spec.DesiredState != v1alpha1.DesiredStopped {
			if done, res, err := p.ensure(ctx, s, v1alpha1.DesiredStopped, stop, lifecycle.ReasonSpawnFailed); done {
				return res, err
			}
		}
		if late {
			return p.uncertain(ctx, errors.New("what was left of the session was not seen to go in time"))
		}
		return res, nil
	}
	st.Session.Generation, st.Session.Attempt = s.Generation, attempt(s)
	if err := p.step(ctx, v1alpha1.StepBegun); err != nil {
		return controller.Result{}, err
	}
	return p.proceed(ctx)
}

// withdrawStart has a session that should not run before, and did not come to
// run, as it was.
func (p *pass) withdrawStart(ctx context.Context, s *v1alpha1.Session) (controller.Result, error) {
	st := &p.rq.Status
	if st.Session.DesiredState != v1alpha1.DesiredStopped || stopped(s) {
		return p.withdrawn(ctx)
	}
	d, err := p.defined(ctx)
	if err != nil {
		return controller.Result{}, err
	}
	if d != nil && d.Spec.DesiredState != v1alpha1.DesiredStopped {
		if err := p.Definitions.Edit(ctx, p.target(), stop); err != nil {
			return controller.Result{}, err
		}
	}
	late, res := p.late()
	if late {
		return p.uncertain(ctx, errors.New("the session did not come to run, and was not seen to be stopped again in time"))
	}
	return res, nil
}

// restore asks for what lies in quarantine, until the Session is there again.
func (p *pass) restore(ctx context.Context) (done bool, res controller.Result, err error) {
	st := &p.rq.Status
	key := api.Key{Kind: v1alpha1.KindQuarantine, Namespace: st.Session.Namespace, Name: st.Session.Quarantine}
	q, err := p.Quarantines.Get(ctx, key)
	if errors.Is(err, effects.ErrNotFound) {
		return false, res, nil // it was given back, or somebody purged it: the Session tells
	}
	if err != nil {
		return true, res, fmt.Errorf("get %s: %w", key, err)
	}
	back := condition(q.Status.Conditions, v1alpha1.Restored)
	switch {
	case back.Status == metav1.ConditionTrue:
		return false, res, nil
	case q.Spec.Restore && back.Status == metav1.ConditionFalse && back.ObservedGeneration == q.Generation && back.Reason != v1alpha1.ReasonMoving &&
		back.Reason != v1alpha1.ReasonNotAsked:
		// What is refused is not tried again behind the back of who was told so.
		err := p.Definitions.Edit(ctx, key, func(spec map[string]any) error { delete(spec, "restore"); return nil })
		if err != nil && !errors.Is(err, effects.ErrNotFound) {
			return true, res, err
		}
		res, err = p.finish(ctx, failure(lifecycle.ReasonSpawnFailed, "%s: %s", back.Reason, back.Message))
		return true, res, err
	case !q.Spec.Restore:
		err := p.Definitions.Edit(ctx, key, func(spec map[string]any) error { spec["restore"] = true; return nil })
		if err != nil && !errors.Is(err, effects.ErrNotFound) {
			return true, res, err
		}
	}
	_, res = p.late()
	return false, res, nil
}

// beginFork defines a Session that goes on from a copy of the conversation of
// another, in the same folder.
func (p *pass) beginFork(ctx context.Context) (controller.Result, error) {
	var none controller.Result
	st := &p.rq.Status
	want := st.Request.Target.Session
	all, err := p.matches(ctx, want)
	if err != nil {
		return none, err
	}
	all = there(all)
	if mine, res := p.turn(sessionsOf(all)...); !mine {
		return res, nil
	}
	switch len(all) {
	case 0:
		return p.finish(ctx, failure(lifecycle.ReasonNotFound, "no session matches %q", want.ID))
	case 1:
	default:
		return p.ambiguous(ctx, all)
	}
	from := all[0].session
	if from.Spec.Agent == nil || from.Status.Conversation == nil {
		return p.finish(ctx, failure(lifecycle.ReasonSpawnFailed, "the session has no conversation that is known; nothing was done"))
	}
	agent := from.Spec.Agent.DeepCopy()
	agent.ConversationID, agent.ForkFrom = "", from.Status.Conversation.ID
	spec := v1alpha1.SessionSpec{Agent: agent, Env: from.Spec.Env, Terminal: from.Spec.Terminal,
		Target: v1alpha1.SessionTarget{ExistingPath: &v1alpha1.PathTarget{Path: v1alpha1.Path(p.folder(from))}}}
	id, lifecycleID := "fork-"+string(p.rq.UID), ""
	if ids := st.Request.IDs; ids != nil {
		lifecycleID = ids.LifecycleRequestID
		if ids.IntendedSessionID != "" {
			id = ids.IntendedSessionID
		}
	}
	return p.beginNew(ctx, id, lifecycleID, spec)
}

// there are those that do not lie in quarantine, and are not on the way there.
func there(all []match) (out []match) {
	for _, m := range all {
		if m.quarantine == "" && m.session.DeletionTimestamp == nil {
			out = append(out, m)
		}
	}
	return out
}
