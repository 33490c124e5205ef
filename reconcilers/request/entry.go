package request

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// judge looks at a request for the first time: the gates, then the entry.
func (p *pass) judge(ctx context.Context) (controller.Result, error) {
	var none controller.Result
	key, spec, now := api.KeyOf(p.rq), &p.rq.Spec, p.now()
	arrived := p.index.arrival(key, now.Time)
	no, err := p.gates(spec, arrived)
	if errors.Is(err, lifecycle.ErrInvalidAuditKey) {
		p.set(v1alpha1.Accepted, metav1.ConditionFalse, v1alpha1.ReasonLifecycleOff, "there is no secret for the audit, so no request is served")
		return none, nil
	}
	if err != nil || no != nil {
		return p.refuse(ctx, no, err)
	}
	hash, err := ledger.Hash(spec)
	if err != nil {
		return none, err
	}
	holder, elder := p.index.holder(groupOf(p.rq), key)
	switch { // 7
	case holder != nil:
		return p.repeat(ctx, *holder, hash, arrived)
	case elder != nil:
		p.Enqueue(*elder) // its outcome is told to this one
		return none, nil
	case spec.ExpiresAt != nil && !now.Before(&metav1.MicroTime{Time: spec.ExpiresAt.Time}):
		return p.refuse(ctx, &refusal{lifecycle.ReasonReadinessTimeout, "spec.expiresAt has passed, and nothing was begun"},
			p.append(spec, arrived, lifecycle.EventRejected, lifecycle.ReasonReadinessTimeout))
	}
	counted, no, err := p.limits(p.rq, arrived)
	st := &p.rq.Status
	if !counted.IsZero() {
		t := metav1.NewMicroTime(counted)
		st.CountedAt = &t
	}
	if err != nil || no != nil {
		return p.refuse(ctx, no, err)
	}
	at := metav1.NewMicroTime(arrived.UTC().Truncate(1000)) // what the state file keeps
	st.State, st.Step, st.Reason = v1alpha1.RequestInProgress, "", ""
	st.Request, st.RequestHash = spec.DeepCopy(), hash
	st.ArrivedAt, st.CreatedAt, st.UpdatedAt = &at, now, now
	if spec.Verb == v1alpha1.VerbCreate {
		st.SessionID = spec.IDs.IntendedSessionID
	}
	p.set(v1alpha1.Accepted, metav1.ConditionTrue, v1alpha1.ReasonRequestAccepted, "the intent is on the disk")
	if err := p.save(ctx); err != nil { // before anything is done for it
		return none, err
	}
	p.enqueue(p.index.remember(p.stored))
	return p.proceed(ctx)
}

// refuse leaves the request without an entry. err is why the refusal could not
// be audited; then it is judged again.
func (p *pass) refuse(ctx context.Context, no *refusal, err error) (controller.Result, error) {
	if err != nil {
		return controller.Result{}, err
	}
	p.rq.Status.Reason = string(no.reason)
	p.set(v1alpha1.Accepted, metav1.ConditionFalse, camel(no.reason), no.message)
	return p.expire(ctx, &metav1.MicroTime{Time: p.rq.CreationTimestamp.Time})
}

// refused tells whether this version of the request was judged and refused. One
// that found the lifecycle control off is judged when that is on.
func refused(rq *v1alpha1.SessionRequest) bool {
	c := meta.FindStatusCondition(rq.Status.Conditions, v1alpha1.Accepted)
	return c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == rq.Generation && c.Reason != v1alpha1.ReasonLifecycleOff
}

// repeat answers a request whose key another object has.
func (p *pass) repeat(ctx context.Context, holder api.Key, hash string, arrived time.Time) (controller.Result, error) {
	var none controller.Result
	first, err := p.Store.Get(ctx, holder)
	if err != nil {
		return none, fmt.Errorf("get %s: %w", holder, err)
	}
	d, err := classify(first, hash)
	if err != nil {
		return none, fmt.Errorf("entry of %s: %w", holder, err)
	}
	if err := p.append(&p.rq.Spec, arrived, d.Event, d.AuditReason); err != nil {
		return none, err
	}
	if d.Class == lifecycle.Conflict {
		return p.refuse(ctx, &refusal{d.Outcome.Reason, d.Outcome.Message}, nil)
	}
	p.rq.Status.DuplicateOf = first.Name
	return p.mirror(ctx)
}

// mirror shows the outcome of the object that has the entry. The entry stays
// that object's.
func (p *pass) mirror(ctx context.Context) (controller.Result, error) {
	if p.rq.DeletionTimestamp != nil {
		return p.release(nil, 0)
	}
	st := &p.rq.Status
	first, err := p.Store.Get(ctx, api.Key{Kind: v1alpha1.KindSessionRequest, Namespace: p.rq.Namespace, Name: st.DuplicateOf})
	if errors.Is(err, effects.ErrNotFound) {
		return controller.Result{}, nil // its retention is over; what was shown was its outcome
	}
	if err != nil {
		return controller.Result{}, fmt.Errorf("get the first of %s: %w", api.KeyOf(p.rq), err)
	}
	own := *st
	first.Status.DeepCopyInto(st)
	st.DuplicateOf, st.Conditions, st.ObservedGeneration, st.CountedAt = own.DuplicateOf, own.Conditions, own.ObservedGeneration, nil
	if c := condition(st.Conditions, v1alpha1.Accepted); c.Status != metav1.ConditionTrue {
		p.set(v1alpha1.Accepted, metav1.ConditionTrue, v1alpha1.ReasonRequestAccepted, "it repeats the request "+st.DuplicateOf)
	}
	p.compareSpec()
	if c := meta.FindStatusCondition(first.Status.Conditions, v1alpha1.Complete); c != nil {
		p.set(v1alpha1.Complete, c.Status, c.Reason, c.Message)
	}
	return controller.Result{}, nil
}

// result is what became of a request that was accepted.
type result struct {
	state   v1alpha1.RequestState
	reason  lifecycle.Reason
	message string
}

func failure(reason lifecycle.Reason, format string, args ...any) result {
	return result{v1alpha1.RequestFailure, reason, fmt.Sprintf(format, args...)}
}

// finish records the outcome. The audit row comes first: one that a crash takes
// back is written again, one that is missing could never be told from none.
func (p *pass) finish(ctx context.Context, res result) (controller.Result, error) {
	if ctx.Err() != nil {
		return controller.Result{}, ctx.Err() // the stop of the controller is no outcome
	}
	st := &p.rq.Status
	event := map[v1alpha1.RequestState]lifecycle.Event{
		v1alpha1.RequestSuccess: lifecycle.EventSuccess, v1alpha1.RequestFailure: lifecycle.EventFailure,
		v1alpha1.RequestUncertain: lifecycle.EventTerminalUncertain,
	}[res.state]
	if err := p.audit(event, res.reason); err != nil {
		if res.state != v1alpha1.RequestUncertain {
			return p.uncertain(ctx, err)
		}
		log(ctx).Error(err, "an outcome is missing in the audit", "request", api.KeyOf(p.rq).String(), "state", res.state)
	}
	st.State, st.Step, st.Reason, st.UpdatedAt = res.state, "", string(res.reason), p.now()
	reason := v1alpha1.ReasonSucceeded
	if res.state == v1alpha1.RequestSuccess {
		st.EndpointURL = new(string)
	} else {
		st.ProcessGone = nil
		reason = camel(res.reason)
	}
	if res.state == v1alpha1.RequestUncertain {
		reason = camel(lifecycle.ReasonTerminalUncertain)
	}
	p.set(v1alpha1.Complete, metav1.ConditionTrue, reason, res.message)
	if err := p.save(ctx); err != nil {
		return controller.Result{}, err
	}
	return p.settled(ctx)
}

// uncertain ends a request whose outcome cannot be proven. It is never tried again.
func (p *pass) uncertain(ctx context.Context, cause error) (controller.Result, error) {
	verb := ledger.Verb(p.rq.Status.Request.Verb)
	return p.finish(ctx, result{v1alpha1.RequestUncertain, uncertainReason(verb), fmt.Sprintf("%s effect failed: %v", verb, cause)})
}

func uncertainReason(v lifecycle.Verb) lifecycle.Reason {
	switch v {
	case ledger.SessionDelete:
		return lifecycle.ReasonCloseRefused
	case ledger.SessionFork:
		return lifecycle.ReasonSpawnFailed
	}
	return v.UncertainReason()
}

// audit writes a row of the request that was accepted; only once as long as this
// controller lives.
func (p *pass) audit(event lifecycle.Event, reason lifecycle.Reason) error {
	if p.index.written(p.rq.UID, event) {
		return nil
	}
	if err := p.append(p.rq.Status.Request, p.rq.Status.ArrivedAt.Time, event, reason); err != nil {
		return err
	}
	p.index.wrote(p.rq.UID, event)
	return nil
}

// set sets one condition. Accepted is of the generation that was judged, for good.
func (p *pass) set(t string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.rq.Status.Conditions, metav1.Condition{
		Type: t, Status: status, Reason: reason, Message: message, ObservedGeneration: p.rq.Generation,
		LastTransitionTime: metav1.NewTime(p.Clock.Now()).Rfc3339Copy(),
	})
}

// summarize sets the conditions that follow from the others.
func (p *pass) summarize() {
	st := &p.rq.Status
	if meta.FindStatusCondition(st.Conditions, v1alpha1.SourceAccepted) == nil {
		p.set(v1alpha1.SourceAccepted, metav1.ConditionUnknown, v1alpha1.ReasonObserving, "not looked at yet")
	}
	if meta.FindStatusCondition(st.Conditions, v1alpha1.Accepted) == nil {
		p.set(v1alpha1.Accepted, metav1.ConditionUnknown, v1alpha1.ReasonObserving, "not looked at yet")
	}
	accepted := *meta.FindStatusCondition(st.Conditions, v1alpha1.Accepted)
	switch st.State {
	case "":
		reason := v1alpha1.ReasonNotAccepted
		if accepted.Status == metav1.ConditionUnknown {
			reason = v1alpha1.ReasonObserving
		}
		p.set(v1alpha1.Complete, metav1.ConditionFalse, reason, accepted.Message)
		p.set(v1alpha1.Ready, accepted.Status, accepted.Reason, accepted.Message)
	case v1alpha1.RequestInProgress:
		if c := meta.FindStatusCondition(st.Conditions, v1alpha1.Complete); c == nil || c.Reason != v1alpha1.ReasonInProgress {
			p.set(v1alpha1.Complete, metav1.ConditionFalse, v1alpha1.ReasonInProgress, "the effect is under way")
		}
		complete := meta.FindStatusCondition(st.Conditions, v1alpha1.Complete)
		p.set(v1alpha1.Ready, metav1.ConditionUnknown, complete.Reason, complete.Message)
	default:
		complete := meta.FindStatusCondition(st.Conditions, v1alpha1.Complete)
		if complete == nil {
			return // it repeats one that is from before conditions
		}
		status := metav1.ConditionFalse
		if st.State == v1alpha1.RequestSuccess {
			status = metav1.ConditionTrue
		}
		p.set(v1alpha1.Ready, status, complete.Reason, complete.Message)
	}
}

// camel is a reason of the closed set as conditions have it: RateLimited.
func camel(r lifecycle.Reason) string {
	var b strings.Builder
	for _, word := range strings.Split(string(r), "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}
