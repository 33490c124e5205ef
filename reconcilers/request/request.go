// Package request is what a SessionRequest means: one imperative request, done
// once. It keeps true that the intent is on the disk before the effect and the
// result only after it was seen, that a key which was used is answered and never
// done again, and that what cannot be proven is called uncertain. All effects
// are changes of what Sessions should be; nothing is started or stopped here.
//
// One worker serves all requests, so that reading the ledger, judging and
// writing are one step.
package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/go-logr/logr"

	"skc.dev/skc/api"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// Reconciler serves SessionRequests. Its exported fields are set once, before
// the first pass. Reconcile is for one worker; the other methods may be called
// at any time.
type Reconciler struct {
	Store       Store
	Sessions    Sessions
	Quarantines Quarantines
	Definitions Definitions
	Panes       Panes
	Folders     Folders
	Audit       Audit
	Clock       clock.PassiveClock
	// Enqueue asks for a pass.
	Enqueue func(api.Key)
	// AuditKey makes the references in audit rows. Without one no request is served.
	AuditKey []byte
	// PairedChat is the one chat that may ask.
	PairedChat string
	// Profile is the AgentProfile of sessions that are created.
	Profile string
	// Limit is how many creates a chat has.
	Limit lifecycle.RateLimit
	// Retention is how long a key is not forgotten.
	Retention time.Duration
	// Psmux tells whether the multiplexer is one that cannot prove identity.
	Psmux func() bool
	// UserHome is what ~ stands for.
	UserHome string
	// Prompts lets a create bring a startup prompt, as the path of a file with its
	// text. It is off until the transport of such references is agreed on (1.6
	// note 5): gate 5 refuses them.
	Prompts bool

	index index
}

const (
	// effectTime is how long an effect may take to be seen. Chats wait 120 s.
	effectTime = 110 * time.Second
	// withdrawTime is how long it may take to be seen that one is taken back.
	withdrawTime = time.Minute
	// recoveryTime is how long a restarted controller looks for an effect whose
	// time is over by then.
	recoveryTime = 30 * time.Second
	// lookAgain is how soon something is looked at again that nothing tells of.
	lookAgain = time.Second
)

// pass is one look at one request.
type pass struct {
	*Reconciler
	rq     *v1alpha1.SessionRequest
	stored *v1alpha1.SessionRequest // as it is on the disk
}

// Reconcile makes one pass over one SessionRequest.
func (r *Reconciler) Reconcile(ctx context.Context, key api.Key) (res controller.Result, err error) {
	if err := r.load(ctx); err != nil {
		return res, err
	}
	rq, err := r.Store.Get(ctx, key)
	if errors.Is(err, effects.ErrNotFound) {
		r.enqueue(r.index.forget(key))
		return res, nil
	}
	if err != nil {
		return res, fmt.Errorf("get %s: %w", key, err)
	}
	r.index.remember(rq)
	p := &pass{Reconciler: r, rq: rq, stored: rq.DeepCopy()}
	busy := rq.Status.State == "" || rq.Status.State == v1alpha1.RequestInProgress
	if rq.DeletionTimestamp == nil && !slices.Contains(rq.Finalizers, v1alpha1.SessionRequestFinalizer) {
		rq.Finalizers = append(rq.Finalizers, v1alpha1.SessionRequestFinalizer)
	}
	defer func() { // every path reports what it saw, the failing ones above all
		if err == nil {
			rq.Status.ObservedGeneration = rq.Generation
		}
		err = errors.Join(err, p.save(ctx))
		if errors.Is(err, effects.ErrNotFound) && p.gone(ctx) {
			err = nil
		}
		if err != nil {
			res = controller.Result{}
		}
		if p.stored.DeletionTimestamp != nil && len(p.stored.Finalizers) == 0 {
			r.enqueue(r.index.forget(key))
			return
		}
		r.enqueue(r.index.remember(p.stored)) // what repeats this one shows the same
		if ref := p.stored.Status.Session; busy && p.stored.Status.State != v1alpha1.RequestInProgress && ref != nil {
			r.StatusChanged(sessionKey(ref.Namespace, ref.Name)) // the next one has its turn
		}
	}()
	return p.run(ctx)
}

func (r *Reconciler) enqueue(keys []api.Key) {
	for _, k := range keys {
		r.Enqueue(k)
	}
}

// gone tells whether the object left the store under this pass.
func (p *pass) gone(ctx context.Context) bool {
	_, err := p.Store.Get(ctx, api.KeyOf(p.rq))
	return errors.Is(err, effects.ErrNotFound)
}

func (p *pass) run(ctx context.Context) (controller.Result, error) {
	st := &p.rq.Status
	switch {
	case st.DuplicateOf != "":
		return p.mirror(ctx)
	case st.State == v1alpha1.RequestInProgress:
		return p.proceed(ctx)
	case st.State != "":
		return p.settled(ctx)
	case p.rq.DeletionTimestamp != nil:
		return p.release(st.CountedAt, p.Limit.Window)
	case refused(p.rq):
		return p.expire(ctx, &metav1.MicroTime{Time: p.rq.CreationTimestamp.Time})
	}
	return p.judge(ctx)
}

// save writes what the pass has come to. The source of the object may have
// changed it meanwhile; its status is this package's alone, but for one condition.
func (p *pass) save(ctx context.Context) error {
	p.summarize()
	err := p.Store.Update(ctx, p.stored, p.rq)
	for try := 0; errors.Is(err, effects.ErrConflict) && try < 3; try++ {
		latest, gerr := p.Store.Get(ctx, api.KeyOf(p.rq))
		if gerr != nil || latest.UID != p.rq.UID {
			return errors.Join(err, gerr)
		}
		merged := latest.DeepCopy()
		p.rq.Status.DeepCopyInto(&merged.Status)
		if c := meta.FindStatusCondition(latest.Status.Conditions, v1alpha1.SourceAccepted); c != nil {
			meta.SetStatusCondition(&merged.Status.Conditions, *c)
		}
		merged.Finalizers = p.rq.Finalizers
		if err = p.Store.Update(ctx, latest, merged); err == nil {
			p.Enqueue(api.KeyOf(merged)) // the new version was not looked at
			merged.DeepCopyInto(p.rq)
		}
	}
	if err != nil {
		return fmt.Errorf("record %s: %w", api.KeyOf(p.rq), err)
	}
	p.stored = p.rq.DeepCopy()
	return nil
}

// settled looks after a request whose outcome is known: until its retention is
// over nothing forgets it.
func (p *pass) settled(ctx context.Context) (controller.Result, error) {
	p.compareSpec()
	if p.rq.DeletionTimestamp != nil {
		return p.release(p.rq.Status.CreatedAt, p.Retention)
	}
	return p.expire(ctx, p.rq.Status.CreatedAt)
}

// compareSpec says so when the spec is not the one that was accepted any more.
func (p *pass) compareSpec() {
	if c := meta.FindStatusCondition(p.rq.Status.Conditions, v1alpha1.Accepted); c != nil && c.ObservedGeneration != p.rq.Generation {
		// Of the generation that was accepted, so that it is told for good.
		c.Reason, c.Message = v1alpha1.ReasonSpecChanged, "the spec was changed since; what was accepted stays in force"
	}
}

// expire takes away what skc itself wrote when its retention is over. Files of
// the user stay.
func (p *pass) expire(ctx context.Context, since *metav1.MicroTime) (controller.Result, error) {
	if !p.Definitions.Holds(p.rq.Annotations[v1alpha1.SourceFileAnnotation]) {
		return controller.Result{}, nil
	}
	if left := p.left(since, p.Retention); left > 0 {
		return controller.Result{RequeueAfter: left}, nil
	}
	return controller.Result{}, p.Definitions.Remove(ctx, api.KeyOf(p.rq))
}

// release lets a deleted request go when the time since is over.
func (p *pass) release(since *metav1.MicroTime, keep time.Duration) (controller.Result, error) {
	if left := p.left(since, keep); left > 0 {
		return controller.Result{RequeueAfter: left}, nil
	}
	p.rq.Finalizers = slices.DeleteFunc(slices.Clone(p.rq.Finalizers), func(f string) bool { return f == v1alpha1.SessionRequestFinalizer })
	return controller.Result{}, nil
}

func (p *pass) left(since *metav1.MicroTime, keep time.Duration) time.Duration {
	if since == nil {
		return 0
	}
	return since.Add(keep).Sub(p.Clock.Now())
}

// late tells whether the time for the effect is over, and when it will be.
func (p *pass) late() (bool, controller.Result) {
	st := &p.rq.Status
	end := st.CreatedAt.Add(effectTime)
	if st.Step == v1alpha1.StepWithdrawing {
		end = st.UpdatedAt.Add(withdrawTime)
	} else if e := st.Request.ExpiresAt; e != nil {
		end = e.Time
	}
	now := p.Clock.Now()
	if again := p.index.firstSeen(api.KeyOf(p.rq), now).Add(recoveryTime); st.Step != "" && again.After(end) {
		end = again
	}
	if !now.Before(end) {
		return true, controller.Result{}
	}
	return false, controller.Result{RequeueAfter: end.Sub(now)}
}

func (r *Reconciler) now() *metav1.MicroTime {
	t := metav1.NewMicroTime(r.Clock.Now().UTC().Truncate(time.Microsecond))
	return &t
}

// ObjectChanged is called after a Session or a Quarantine is new, was changed by
// its definition, or is gone.
func (r *Reconciler) ObjectChanged(key api.Key) {
	r.index.changed(key)
	r.StatusChanged(key)
}

// StatusChanged is called after the status of a Session or a Quarantine changed.
func (r *Reconciler) StatusChanged(key api.Key) {
	r.enqueue(r.index.waitingFor(key))
}

// load fills the index, once.
func (r *Reconciler) load(ctx context.Context) error {
	return r.index.load(func() ([]*v1alpha1.SessionRequest, error) {
		all, err := r.Store.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("list requests: %w", err)
		}
		return all, nil
	})
}

func log(ctx context.Context) logr.Logger { return logr.FromContextOrDiscard(ctx) }
