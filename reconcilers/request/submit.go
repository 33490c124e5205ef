package request

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"skc.dev/skc/api"
	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// Front is what one source of frames sees of the requests.
type Front struct {
	Requests *Reconciler
	Source   string
}

// Submit is Reconciler.Submit for that source.
func (f Front) Submit(ctx context.Context, req lifecycle.Request) (lifecycle.Outcome, error) {
	return f.Requests.Submit(ctx, f.Source, req)
}

// deliveries has those of one key follow each other.
type deliveries struct {
	mu   sync.Mutex
	busy map[group]chan struct{}
}

// lock waits its turn; false when ctx ended before it came.
func (d *deliveries) lock(ctx context.Context, g group) (unlock func(), ok bool) {
	for {
		d.mu.Lock()
		if d.busy == nil {
			d.busy = map[group]chan struct{}{}
		}
		busy := d.busy[g]
		if busy == nil {
			mine := make(chan struct{})
			d.busy[g] = mine
			d.mu.Unlock()
			return func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				delete(d.busy, g)
				close(mine)
			}, true
		}
		d.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// Submit serves one delivery of a frame, and returns when it is known what
// became of the request. The first delivery of a key makes its object; the
// others are answered from that one's entry. When ctx ends before, the outcome is
// Pending: what was accepted goes on. An error says that nobody can tell what
// became of it.
func (r *Reconciler) Submit(ctx context.Context, source string, req lifecycle.Request) (lifecycle.Outcome, error) {
	arrived := r.now().Time
	o, err := ledger.Object(source, req)
	if errors.Is(err, lifecycle.ErrInvalidTarget) {
		return (&refusal{lifecycle.ReasonInvalidTarget, lifecycle.MessageInvalidTarget}).outcome(), nil
	}
	if err != nil {
		return lifecycle.Outcome{}, err
	}
	no, err := r.gates(&o.Spec, arrived)
	if err != nil {
		return lifecycle.Outcome{}, err
	}
	if no != nil {
		return no.outcome(), nil
	}
	hash, err := ledger.Hash(&o.Spec)
	if err != nil {
		return lifecycle.Outcome{}, err
	}
	d := &delivery{Reconciler: r, o: o, key: api.KeyOf(o), hash: hash, arrived: arrived}
	pending := func() (lifecycle.Outcome, error) {
		return lifecycle.Outcome{Status: lifecycle.Pending}, r.append(&o.Spec, arrived, lifecycle.EventRecoveredInProgress, "")
	}
	unlock, ok := r.index.changing.lock(ctx, groupOf(o))
	if !ok {
		return pending()
	}
	defer unlock()
	for {
		if err := r.load(ctx); err != nil {
			return lifecycle.Outcome{}, err
		}
		changed := r.index.watch(groupOf(o)) // before the look, so that nothing is missed
		answer, err := d.look(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return lifecycle.Outcome{}, err
		case answer == nil:
		case answer.event == "":
			return answer.outcome, nil
		default:
			return answer.outcome, r.append(&o.Spec, arrived, answer.event, answer.reason)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if d.first {
				return lifecycle.Outcome{Status: lifecycle.Pending}, nil
			}
			return pending()
		}
	}
}

// delivery is one call of Submit that has its turn.
type delivery struct {
	*Reconciler
	o     *v1alpha1.SessionRequest
	key   api.Key
	hash  string
	first bool // it made the object

	arrived time.Time
}

type answer struct {
	outcome lifecycle.Outcome
	event   lifecycle.Event // of the row that is still to be written
	reason  lifecycle.Reason
}

// look sees what there is of the request, and makes its object when there is
// nothing. nil means that it is not decided.
func (d *delivery) look(ctx context.Context) (*answer, error) {
	if holder, _ := d.index.holder(groupOf(d.o), d.key); holder != nil {
		return d.entry(ctx, *holder)
	}
	own, err := d.Store.Get(ctx, d.key)
	switch {
	case errors.Is(err, effects.ErrNotFound) && d.first:
		return nil, nil // its definition is on the way
	case errors.Is(err, effects.ErrNotFound):
		return d.begin(ctx)
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", d.key, err)
	case groupOf(own) != groupOf(d.o):
		return nil, fmt.Errorf("%s is the request of another key", d.key)
	case own.Status.State != "", !refused(own) && own.DeletionTimestamp == nil:
		return nil, nil // it is about to be judged
	}
	// The refused leave no entry: the next delivery is judged anew.
	if !d.Definitions.Holds(own.Annotations[v1alpha1.SourceFileAnnotation]) {
		return nil, fmt.Errorf("%s is defined in a file of the user's, and was refused", d.key)
	}
	if err := d.Definitions.Remove(ctx, d.key); err != nil {
		return nil, err
	}
	if d.first {
		no := refusal{lifecycle.Reason(own.Status.Reason), condition(own.Status.Conditions, v1alpha1.Accepted).Message}
		return &answer{outcome: no.outcome()}, nil
	}
	return nil, nil
}

// begin judges what the ledger has nothing of, and defines its object.
func (d *delivery) begin(ctx context.Context) (*answer, error) {
	_, no, err := d.limits(d.o, d.arrived)
	if err != nil {
		return nil, err
	}
	if no != nil {
		return &answer{outcome: no.outcome()}, nil
	}
	d.index.arrive(d.key, d.arrived)
	d.first = true
	return nil, d.Definitions.Create(ctx, d.o)
}

// entry answers from the object that has the entry; nil while that is in progress.
func (d *delivery) entry(ctx context.Context, holder api.Key) (*answer, error) {
	o, err := d.Store.Get(ctx, holder)
	if errors.Is(err, effects.ErrNotFound) {
		return nil, nil // the index follows
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", holder, err)
	}
	dup, err := classify(o, d.hash)
	if err != nil {
		return nil, fmt.Errorf("entry of %s: %w", holder, err)
	}
	switch {
	case dup.Class == lifecycle.RepeatedPending:
		return nil, nil
	case d.first && holder == d.key && dup.Class != lifecycle.Conflict:
		return d.told(o, dup)
	}
	return &answer{outcome: dup.Outcome, event: dup.Event, reason: dup.AuditReason}, nil
}

// told is the outcome as the one who asked first gets it: with all that is known.
func (d *delivery) told(o *v1alpha1.SessionRequest, dup lifecycle.Duplicate) (*answer, error) {
	out := dup.Outcome
	if out.Status == lifecycle.Failed {
		out.Message = condition(o.Status.Conditions, v1alpha1.Complete).Message
		for _, c := range o.Status.Candidates {
			candidate := lifecycle.Candidate{SessionID: c.SessionID}
			if c.Path != "" {
				candidate.Path = &c.Path
			}
			out.Candidates = append(out.Candidates, candidate)
		}
	}
	return &answer{outcome: out}, nil
}
