// Package quarantine is what a Quarantine means: one thing that is set aside,
// kept for a time that was seen to go by, and given back or purged. It keeps true
// that nothing is moved that is not what was named, that nothing goes for good
// before its time or while its definition cannot be read, and that whatever is
// kept has an object that shows it. Where a thing is, its plan says (see Vault);
// an object says what is wanted of it.
package quarantine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// Reconciler converges Quarantines. Its exported fields are set once, before the
// first pass.
type Reconciler struct {
	Store        Store
	Sessions     Sessions
	Definitions  Definitions
	Vault        Vault
	Worktrees    Worktrees
	Repositories Repositories
	Leftovers    Leftovers
	// Sizer does Size, Purger does Purge.
	Sizer, Purger Worker
	Recorder      Recorder
	Clock         clock.PassiveClock
	// Wake asks for a pass over a Session that waits for a Quarantine.
	Wake func(api.Key)
	// Hidden says why an owner of something may not be seen now; nil when all are.
	Hidden func() error
	// UserHome is what ~ stands for.
	UserHome string
	// Grace is how long what has no owner is left where it is.
	Grace time.Duration

	mu    sync.Mutex
	grace map[string]grace // by UID
	tries map[string]int   // by UID: how often git failed in a row
	// When work beside the passes failed, by UID, in observed time.
	unsized, unpurged map[string]time.Duration
	// What of a thing is nowhere else; there once it was looked at.
	looked map[api.Key][]v1alpha1.SafetyCheck
	told   map[string]bool // what was found and can be no object
}

// A recheck is made of what only a hand can change, since no change is heard.
const (
	recheck     = time.Minute
	recheckSoon = 10 * time.Second
)

// gitTries is how often git may fail before a thing is moved without it.
const gitTries = 3

// ID of the plan of a Quarantine.
func ID(key api.Key) string { return key.Namespace + "." + key.Name }

func keyOf(id string) (api.Key, bool) {
	ns, name, ok := strings.Cut(id, ".")
	return api.Key{Kind: v1alpha1.KindQuarantine, Namespace: ns, Name: name}, ok && ns != "" && name != "" && !strings.Contains(name, ".")
}

// Reconcile makes one pass over one Quarantine.
func (r *Reconciler) Reconcile(ctx context.Context, key api.Key) (res controller.Result, err error) {
	q, err := r.Store.Get(ctx, key)
	if errors.Is(err, effects.ErrNotFound) {
		return res, nil // gone since it was queued
	}
	if err != nil {
		return res, fmt.Errorf("get %s: %w", key, err)
	}
	if q.DeletionTimestamp == nil && !slices.Contains(q.Finalizers, v1alpha1.QuarantineFinalizer) {
		before := q.DeepCopy()
		q.Finalizers = append(q.Finalizers, v1alpha1.QuarantineFinalizer)
		if err := r.Store.Update(ctx, before, q); err != nil {
			return res, fmt.Errorf("add finalizer to %s: %w", key, err)
		}
	}
	before := q.DeepCopy()
	defer func() { // every path reports what it saw, the failing ones above all
		r.summarize(q)
		if err == nil {
			q.Status.ObservedGeneration = q.Generation
		}
		uerr := r.Store.Update(ctx, before, q)
		if uerr == nil {
			r.tell(before, q)
		}
		if errors.Is(uerr, effects.ErrConflict) { // what this pass did in the world the next one finds there
			res, uerr = controller.Result{RequeueAfter: time.Millisecond}, nil
		}
		err = errors.Join(err, uerr)
	}()
	if q.DeletionTimestamp != nil {
		return r.finalize(ctx, q)
	}
	return r.converge(ctx, q)
}

// converge acts on the state of the plan.
func (r *Reconciler) converge(ctx context.Context, q *v1alpha1.Quarantine) (controller.Result, error) {
	if !r.managed(q) {
		r.set(q, v1alpha1.SetAside, metav1.ConditionFalse, v1alpha1.ReasonNotManaged,
			"only a Quarantine that skc itself wrote is acted on; set a Session's cleanup, or delete the Session, to have its workspace set aside")
		return controller.Result{}, nil
	}
	_, _ = r.Vault.Observe() // what cannot be written still counts
	k, err := r.Vault.Get(ID(api.KeyOf(q)))
	switch {
	case errors.Is(err, effects.ErrNotFound):
		return r.ensureSetAside(ctx, q, nil)
	case errors.Is(err, effects.ErrUnreadable):
		r.set(q, v1alpha1.SetAside, metav1.ConditionUnknown, v1alpha1.ReasonPlanUnreadable, said("where it lies is not known, and nothing is touched", err))
		return controller.Result{RequeueAfter: recheck}, nil
	case err != nil:
		r.set(q, v1alpha1.SetAside, metav1.ConditionUnknown, v1alpha1.ReasonPlanUnreadable, said("where it lies is not known now", err))
		return controller.Result{}, fmt.Errorf("read the plan of %s: %w", api.KeyOf(q), err)
	}
	if other, err := r.followPlan(ctx, q, k); other || err != nil {
		return controller.Result{}, err
	}
	r.describe(q, k)
	switch k.State {
	case effects.KeptPlanned:
		return r.ensureSetAside(ctx, q, &k)
	case effects.KeptRestoring, effects.KeptRestored:
		return r.ensureRestored(ctx, q, k)
	case effects.KeptRemoving, effects.KeptPurged:
		return r.ensurePurged(ctx, q, k)
	default:
		return r.ensureKept(ctx, q, k)
	}
}

// followPlan takes from the plan what the definition may not say otherwise: what
// was set aside, and whose it was. other is true when the definition is of
// something else, as one is that was made when the plan could not be read; then
// it is written anew, but for what is for people to change.
func (r *Reconciler) followPlan(ctx context.Context, q *v1alpha1.Quarantine, k effects.Kept) (other bool, err error) {
	was, err := planned(k)
	if err != nil {
		return false, nil //nolint:nilerr // the plan does not say: the object has it still
	}
	if q.Spec.Origin.Path == was.Origin.Path {
		q.Spec.Origin, q.Spec.Session, q.Spec.Reason = was.Origin, was.Session, was.Reason
		return false, nil
	}
	return true, r.Definitions.Edit(ctx, api.KeyOf(q), func(spec map[string]any) error {
		mine := map[string]any{}
		if err := json.Unmarshal([]byte(k.Definition), &mine); err != nil {
			return err
		}
		for _, field := range []string{"retention", "restore", "restoreTo", "purge"} {
			if v, ok := spec[field]; ok {
				mine[field] = v
			}
		}
		clear(spec)
		maps.Copy(spec, mine)
		return nil
	})
}

// planned is the spec at the time at which the thing was set aside.
func planned(k effects.Kept) (v1alpha1.QuarantineSpec, error) {
	var spec v1alpha1.QuarantineSpec
	if k.Definition == "" {
		return spec, fmt.Errorf("plan of %s: %w: it does not say what for", k.ID, effects.ErrNotFound)
	}
	err := json.Unmarshal([]byte(k.Definition), &spec)
	return spec, err
}

// managed tells whether skc itself wrote the object.
func (r *Reconciler) managed(q *v1alpha1.Quarantine) bool {
	return r.Definitions.Holds(q.Annotations[v1alpha1.SourceFileAnnotation])
}

// finalize lets a deleted object go. What is still kept is kept on: it gets its
// definition again.
func (r *Reconciler) finalize(ctx context.Context, q *v1alpha1.Quarantine) (controller.Result, error) {
	key := api.KeyOf(q)
	if !slices.Contains(q.Finalizers, v1alpha1.QuarantineFinalizer) {
		return controller.Result{}, nil
	}
	if r.managed(q) {
		k, err := r.Vault.Get(ID(key))
		switch {
		case errors.Is(err, effects.ErrNotFound):
			k = effects.Kept{}
		case errors.Is(err, effects.ErrUnreadable):
		case err != nil:
			return controller.Result{}, fmt.Errorf("let %s go: %w", key, err)
		default:
			r.describe(q, k)
			r.Sizer.Stop(key)
			r.Purger.Stop(key)
			err = r.Vault.Forget(ctx, ID(key))
		}
		switch {
		case err == nil, errors.Is(err, effects.ErrNotFound):
		case errors.Is(err, effects.ErrConflict), errors.Is(err, effects.ErrUnreadable), errors.Is(err, effects.ErrUncertain), errors.Is(err, effects.ErrUnreachable):
			if err := r.Definitions.Create(ctx, again(q)); err != nil {
				return controller.Result{}, fmt.Errorf("define %s again: %w", key, err)
			}
			r.Recorder.Event(q, eventWarning, "StillKept", fmt.Sprintf("its definition was removed and is written again: %q stays in quarantine (to end it before its time: skcctl purge %s)", k.Place, key.Name))
		default:
			return controller.Result{}, fmt.Errorf("let %s go: %w", key, err)
		}
	}
	q.Finalizers = slices.DeleteFunc(q.Finalizers, func(f string) bool { return f == v1alpha1.QuarantineFinalizer })
	r.forget(key, string(q.UID))
	return controller.Result{}, nil
}

// again is the definition of q without what was asked for: that went with the
// file.
func again(q *v1alpha1.Quarantine) *v1alpha1.Quarantine {
	d := &v1alpha1.Quarantine{TypeMeta: q.TypeMeta, Spec: *q.Spec.DeepCopy()}
	d.Namespace, d.Name, d.Labels = q.Namespace, q.Name, q.Labels
	d.Spec.Restore, d.Spec.RestoreTo, d.Spec.Purge = false, "", false
	return d
}

// EnsureObjects gives every plan that has no object its definition again. It is
// for the start, when the sources are read, and for each resync.
func (r *Reconciler) EnsureObjects(ctx context.Context) error {
	all, unreadable, err := r.Vault.List(ctx)
	if err != nil {
		return fmt.Errorf("look for what is kept: %w", err)
	}
	var errs []error
	missing := func(id string) (api.Key, bool) {
		key, ok := keyOf(id)
		if !ok {
			return key, false
		}
		_, err := r.Store.Get(ctx, key)
		if err != nil && !errors.Is(err, effects.ErrNotFound) {
			errs = append(errs, err)
		}
		return key, errors.Is(err, effects.ErrNotFound)
	}
	for _, k := range all {
		key, gone := missing(k.ID)
		if !gone {
			continue
		}
		spec, err := planned(k)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		q := newObject(key)
		q.Spec = spec
		errs = append(errs, r.Definitions.Create(ctx, again(q)))
	}
	for _, p := range unreadable {
		key, gone := missing(p.ID)
		if !gone {
			continue
		}
		id, _, err := r.Vault.Identify(ctx, p.Path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		q := newObject(key)
		q.Spec = v1alpha1.QuarantineSpec{
			Origin:      v1alpha1.QuarantineOrigin{Type: v1alpha1.QuarantineFile, Path: p.Path, Identity: v1alpha1.FileIdentity(id.String()), Owner: key.Name},
			Reason:      v1alpha1.QuarantineOrphaned,
			RequestedBy: "a look found this plan, which cannot be read",
		}
		errs = append(errs, r.Definitions.Create(ctx, q))
	}
	return errors.Join(errs...)
}

func newObject(key api.Key) *v1alpha1.Quarantine {
	q := &v1alpha1.Quarantine{}
	q.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(key.Kind))
	q.Namespace, q.Name = key.Namespace, key.Name
	return q
}

// Size counts what is kept, and looks what of it is nowhere else. It ends when
// ctx does.
func (r *Reconciler) Size(ctx context.Context, key api.Key) error {
	k, err := r.Vault.Inventory(ctx, ID(key))
	if err != nil {
		return err
	}
	var checks []v1alpha1.SafetyCheck
	if spec, err := planned(k); err == nil && spec.Origin.Type == v1alpha1.QuarantineWorktree {
		report, err := r.Worktrees.Safety(ctx, k.Place)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil { // else git does not know it, and the tree says nothing of that
			for _, c := range report.Checks {
				if !slices.Contains(ofUse, c.Name) {
					checks = append(checks, v1alpha1.SafetyCheck(c))
				}
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looked == nil {
		r.looked = map[api.Key][]v1alpha1.SafetyCheck{}
	}
	r.looked[key] = checks
	return nil
}

// ofUse are the checks that say nothing of what is set aside: who uses it, our own
// lock, and submodules, whose links lead nowhere until it is given back.
var ofUse = []string{"open-files", "working-in", "lock", "submodules"}

// Purge removes what is kept for good. It ends when ctx does, and goes on the
// next time.
func (r *Reconciler) Purge(ctx context.Context, key api.Key) error {
	_, err := r.Vault.Purge(ctx, ID(key))
	return err
}

func (r *Reconciler) forget(key api.Key, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.grace, uid)
	delete(r.tries, uid)
	delete(r.unsized, uid)
	delete(r.unpurged, uid)
	delete(r.looked, key)
}

// failedBefore counts a failure of git, and tells whether it failed too often to
// wait for it.
func (r *Reconciler) failedBefore(uid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tries == nil {
		r.tries = map[string]int{}
	}
	r.tries[uid]++
	return r.tries[uid] >= gitTries
}

// set sets one condition for the generation that is looked at. Its time moves
// only with its status.
func (r *Reconciler) set(q *v1alpha1.Quarantine, condition string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&q.Status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: message, ObservedGeneration: q.Generation,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()).Rfc3339Copy(),
	})
}
