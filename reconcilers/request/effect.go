package request

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"skc.dev/skc/api"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// proceed goes on with a request that was accepted, from wherever it is. Each
// verb has two parts: begin looks and touches nothing until the step is on the
// disk; watch sees what came of it, and may run again and again.
func (p *pass) proceed(ctx context.Context) (controller.Result, error) {
	st := &p.rq.Status
	var begin, watch func(context.Context) (controller.Result, error)
	switch st.Request.Verb {
	case v1alpha1.VerbCreate:
		begin, watch = p.beginCreate, p.watchNew
	case v1alpha1.VerbFork:
		begin, watch = p.beginFork, p.watchNew
	case v1alpha1.VerbClose:
		begin, watch = p.beginClose, p.watchClose
	case v1alpha1.VerbDelete:
		begin, watch = p.beginClose, p.watchDelete
	default:
		begin, watch = p.beginResume, p.watchResume
	}
	if st.Step != "" {
		res, err := watch(ctx)
		if err != nil && ctx.Err() == nil && st.State == v1alpha1.RequestInProgress {
			if late, _ := p.late(); late { // nothing stays in progress for ever
				return p.uncertain(ctx, err)
			}
		}
		return res, err
	}
	if err := p.audit(lifecycle.EventAccepted, ""); err != nil {
		return p.uncertain(ctx, err)
	}
	if late, _ := p.late(); late {
		return p.finish(ctx, failure(lifecycle.ReasonReadinessTimeout, "it could not be begun in time; nothing was done"))
	}
	return begin(ctx)
}

// step writes down what is about to be done.
func (p *pass) step(ctx context.Context, s v1alpha1.RequestStep) error {
	p.rq.Status.Step, p.rq.Status.UpdatedAt = s, p.now()
	return p.save(ctx)
}

// wait has the request looked at again when one of those objects changes, and
// when its time is over.
func (p *pass) wait(on ...api.Key) controller.Result {
	p.index.await(api.KeyOf(p.rq), on...)
	_, res := p.late()
	return res
}

// turn tells whether the request may begin with those Sessions: what another one
// is doing to them is done first, so that each request finds a session as it
// is, and never half made or half gone. When it is not its turn, it is looked at
// again when it may be.
func (p *pass) turn(sessions ...api.Key) (mine bool, res controller.Result) {
	if !p.index.held(api.KeyOf(p.rq), sessions...) {
		return true, res
	}
	return false, p.wait(sessions...)
}

// target is the Session that the effect is about.
func (p *pass) target() api.Key {
	return sessionKey(p.rq.Status.Session.Namespace, p.rq.Status.Session.Name)
}

// look gets the Session of the effect; nil when there is none. What waits for it
// is told of every change from now on.
func (p *pass) look(ctx context.Context) (*v1alpha1.Session, error) {
	key := p.target()
	if q := p.rq.Status.Session.Quarantine; q != "" {
		p.wait(key, api.Key{Kind: v1alpha1.KindQuarantine, Namespace: key.Namespace, Name: q})
	} else {
		p.wait(key)
	}
	s, err := p.Sessions.Get(ctx, key)
	if errors.Is(err, effects.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	return s, nil
}

// defined gets the definition of the Session; nil when there is none.
func (p *pass) defined(ctx context.Context) (*v1alpha1.Session, error) {
	o, err := p.Definitions.Get(ctx, p.target())
	if errors.Is(err, effects.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, ok := o.(*v1alpha1.Session)
	if !ok {
		return nil, fmt.Errorf("definition of %s is a %T", p.target(), o)
	}
	return s, nil
}

// ours tells whether this request made the Session.
func (p *pass) ours(s *v1alpha1.Session) bool {
	return s != nil && s.Annotations[v1alpha1.RequestAnnotation] == string(p.rq.UID)
}

// about fills in what the ledger keeps of the Session.
func (p *pass) about(s *v1alpha1.Session) {
	st := &p.rq.Status
	st.Session.UID = string(s.UID)
	st.SessionID, st.TmuxSession, st.SessionStateFile = sessionID(s), s.TmuxName(), p.stateFile(s)
}

func (p *pass) succeed(ctx context.Context, s *v1alpha1.Session, message string) (controller.Result, error) {
	if s != nil {
		p.about(s)
	}
	return p.finish(ctx, result{state: v1alpha1.RequestSuccess, message: message})
}

// nameFor is the name of a Session with that id.
func nameFor(id string) string {
	if len(validation.IsDNS1123Label(id)) == 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "s-" + hex.EncodeToString(sum[:])[:12]
}

// beginCreate defines the Session of a create.
func (p *pass) beginCreate(ctx context.Context) (controller.Result, error) {
	req := p.rq.Status.Request
	spec := v1alpha1.SessionSpec{Agent: &v1alpha1.AgentSpec{Profile: p.Profile}}
	if m := req.ModelPreset; m != nil {
		spec.Agent.ModelPreset = v1alpha1.ModelPresetName(*m)
	}
	if ref := req.StartupPromptRef; ref != nil && p.Prompts { // it is in the entry, which is on the disk
		spec.StartupPrompt = &v1alpha1.StartupPrompt{File: v1alpha1.Path(*ref), Delivery: v1alpha1.PromptFile}
	}
	path := func(s *string) *v1alpha1.PathTarget { return &v1alpha1.PathTarget{Path: v1alpha1.Path(*s)} }
	switch t := req.Target.Create; lifecycle.TargetKind(t.Kind) {
	case lifecycle.KindExistingPath:
		spec.Target.ExistingPath = path(t.Path)
	case lifecycle.KindPlainDir:
		spec.Target.PlainDir = path(t.Path)
	default:
		spec.Target.Worktree = &v1alpha1.WorktreeTarget{Repo: v1alpha1.Path(*t.Repo), Branch: *t.Branch}
	}
	return p.beginNew(ctx, req.IDs.IntendedSessionID, req.IDs.LifecycleRequestID, spec)
}

// beginNew defines a Session that was not there.
func (p *pass) beginNew(ctx context.Context, id, lifecycleID string, spec v1alpha1.SessionSpec) (controller.Result, error) {
	var none controller.Result
	st := &p.rq.Status
	st.Session = &v1alpha1.SessionReference{Namespace: p.rq.Namespace, Name: nameFor(id)}
	st.SessionID = id
	key := p.target()
	if mine, res := p.turn(key); !mine {
		return res, nil
	}
	taken, err := p.named(ctx, key.Namespace, func(other string) bool { return other == id })
	if err != nil {
		return none, err
	}
	s, err := p.look(ctx)
	if err != nil {
		return none, err
	}
	d, err := p.defined(ctx)
	if err != nil && !errors.Is(err, effects.ErrConflict) {
		return none, err
	}
	if len(taken) > 0 || s != nil || d != nil || err != nil {
		return p.finish(ctx, failure(lifecycle.ReasonSpawnFailed, "a session with the id %q, or one named %s, is there already; nothing was done", id, key.Name))
	}
	o := &v1alpha1.Session{Spec: spec}
	o.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindSession}
	o.Namespace, o.Name = key.Namespace, key.Name
	o.Annotations = map[string]string{v1alpha1.RequestAnnotation: string(p.rq.UID), v1alpha1.SessionIDAnnotation: id}
	if lifecycleID != "" {
		o.Annotations[v1alpha1.LifecycleRequestAnnotation] = lifecycleID
	}
	if err := p.audit(lifecycle.EventSpawnStarted, ""); err != nil {
		return p.uncertain(ctx, err)
	}
	if err := p.step(ctx, v1alpha1.StepBegun); err != nil {
		return none, err
	}
	if err := p.Definitions.Create(ctx, o); err != nil {
		if _, invalid := api.AsInvalidSpec(err); !invalid {
			// It may be there all the same.
			if d, derr := p.defined(ctx); derr != nil || d != nil {
				return none, errors.Join(err, derr)
			}
		}
		return p.finish(ctx, failure(lifecycle.ReasonSpawnFailed, "the session could not be defined: %v", err))
	}
	return p.watchNew(ctx)
}

// watchNew waits until the Session that the request made was seen to run.
func (p *pass) watchNew(ctx context.Context) (controller.Result, error) {
	var none controller.Result
	if p.rq.Status.Step == v1alpha1.StepWithdrawing {
		return p.withdrawNew(ctx)
	}
	late, res := p.late()
	s, err := p.look(ctx)
	if err != nil {
		return none, err
	}
	d, err := p.defined(ctx)
	if err != nil && !errors.Is(err, effects.ErrConflict) {
		return none, err
	}
	switch {
	case p.ours(s) && ran(s, 0):
		return p.succeed(ctx, s, "the session runs")
	case p.ours(s) && s.DeletionTimestamp != nil:
		return p.uncertain(ctx, errors.New("the session was deleted before it was seen to run"))
	case p.ours(s):
		if why, ok := hopeless(s, 0); ok {
			return p.withdraw(ctx, s, lifecycle.ReasonSpawnFailed, why)
		}
	case p.ours(d) && s != nil:
		return p.withdraw(ctx, nil, lifecycle.ReasonSpawnFailed, "another session of that name came first")
	case !p.ours(d):
		return p.uncertain(ctx, errors.New("there is no trace of the session, which may have been defined and removed"))
	}
	if late {
		return p.withdraw(ctx, s, lifecycle.ReasonReadinessTimeout, "the session was not seen to run in time")
	}
	return res, nil
}

// withdraw takes back what did not come about. Why is kept for the outcome.
func (p *pass) withdraw(ctx context.Context, s *v1alpha1.Session, reason lifecycle.Reason, why string) (controller.Result, error) {
	if s != nil {
		p.about(s)
	}
	p.rq.Status.Reason = string(reason)
	p.set(v1alpha1.Complete, metav1.ConditionFalse, v1alpha1.ReasonInProgress, why)
	if err := p.step(ctx, v1alpha1.StepWithdrawing); err != nil {
		return controller.Result{}, err
	}
	return p.proceed(ctx)
}

// withdrawn is the outcome of what was taken back.
func (p *pass) withdrawn(ctx context.Context) (controller.Result, error) {
	why := condition(p.rq.Status.Conditions, v1alpha1.Complete).Message
	return p.finish(ctx, failure(lifecycle.Reason(p.rq.Status.Reason), "%s", why))
}

// withdrawNew removes the Session that the request made, until it is gone.
func (p *pass) withdrawNew(ctx context.Context) (controller.Result, error) {
	var none controller.Result
	late, res := p.late()
	s, err := p.look(ctx)
	if err != nil {
		return none, err
	}
	d, err := p.defined(ctx)
	if err != nil && !errors.Is(err, effects.ErrConflict) {
		return none, err
	}
	if p.ours(d) {
		if err := p.Definitions.Remove(ctx, p.target()); err != nil {
			return none, err
		}
	}
	switch {
	case p.ours(s) && !settingAside(s):
		if late {
			return p.uncertain(ctx, errors.New("the session did not come about, and could not be taken back in time"))
		}
		return res, nil
	case s == nil && p.rq.Status.Session.UID == "" && p.Clock.Now().Sub(p.rq.Status.UpdatedAt.Time) < lookAgain:
		// Nobody saw it yet, and somebody may have read the definition before it went.
		return controller.Result{RequeueAfter: lookAgain}, nil
	}
	return p.withdrawn(ctx)
}
