package quarantine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// ensureSetAside moves the thing into quarantine, with git told before. k is nil
// when nothing was begun.
func (r *Reconciler) ensureSetAside(ctx context.Context, q *v1alpha1.Quarantine, k *effects.Kept) (controller.Result, error) {
	o, key := q.Spec.Origin, api.KeyOf(q)
	if k == nil && q.Spec.Reason == v1alpha1.QuarantineOrphaned {
		if wait, res, err := r.left(ctx, q); wait || err != nil {
			return res, err
		}
	}
	id, err := effects.ParseFileIdentity(string(o.Identity))
	if err != nil {
		r.set(q, v1alpha1.SetAside, metav1.ConditionFalse, v1alpha1.ReasonRefused, said("it is left where it is", err))
		return controller.Result{}, nil
	}
	if q.Status.Head == "" {
		q.Status.Head = o.Head
	}
	var note string
	var making bool
	if o.Type == v1alpha1.QuarantineWorktree {
		if note, making, err = r.prepare(ctx, q); err != nil {
			return r.notMoved(ctx, q, err)
		}
	}
	definition, err := json.Marshal(q.Spec)
	if err != nil {
		return controller.Result{}, fmt.Errorf("set aside for %s: %w", key, err)
	}
	kept, err := r.Vault.SetAside(ctx, effects.SetAside{
		ID: ID(key), Origin: o.Path, Folder: o.Type != v1alpha1.QuarantineFile, Identity: id, Definition: string(definition),
		Head: q.Status.Head, Reason: string(q.Spec.Reason), Retention: q.Spec.RetentionOrDefault(),
	})
	if err != nil {
		if kept.ID != "" {
			r.describe(q, kept)
		}
		return r.notMoved(ctx, q, err)
	}
	r.describe(q, kept)
	if making { // git's registration of half a worktree would only hold its branch
		if err := r.dropRegistration(ctx, q, o.Path, o.MarkedBy); err != nil {
			return controller.Result{}, err
		}
	}
	r.setKept(q, kept, note)
	return r.ensureKept(ctx, q, kept)
}

// prepare has git let the worktree go. What git does not know, or cannot be told,
// keeps no folder from being set aside: the note says what. making is true of
// one that was never whole.
func (r *Reconciler) prepare(ctx context.Context, q *v1alpha1.Quarantine) (note string, making bool, err error) {
	o := q.Spec.Origin
	look, err := r.Worktrees.Look(o.Path)
	switch {
	case errors.Is(err, effects.ErrNotFound):
		return unknownToGit, false, nil
	case err != nil:
		return "", false, err
	case look.Making && look.UID == o.MarkedBy:
		return "it was not made to the end", true, nil
	case look.UID == "":
		return "it carries no mark of skc any more; git was told nothing", false, nil
	case look.UID != o.MarkedBy && look.UID != o.Owner:
		return "", false, fmt.Errorf("%q: %w: it is the worktree of %s by now", o.Path, effects.ErrMismatch, look.UID)
	}
	if head, err := r.Worktrees.Head(ctx, o.Path); err == nil && head != "" {
		q.Status.Head = head
	}
	if look.UID != o.Owner {
		if err := r.Worktrees.Transfer(ctx, o.Path, o.MarkedBy, o.Owner); err != nil {
			return "", false, err
		}
	}
	if err := r.Worktrees.BeforeMove(ctx, o.Path, o.Owner, r.why(q)); err != nil {
		return r.without(q, err)
	}
	return "", false, nil
}

const unknownToGit = "git does not know it as a worktree"

// without tells whether an error of git, which is heard again and again, is one
// that a thing is moved without git for: what is wrong with a repository must
// not keep a deleted Session for ever.
func (r *Reconciler) without(q *v1alpha1.Quarantine, err error) (note string, making bool, _ error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, effects.ErrNotFound) || errors.Is(err, effects.ErrNotRepository) {
		return unknownToGit, false, nil
	}
	if _, said := errors.AsType[*effects.CommandError](err); said && !effects.DiskFull(err) && r.failedBefore(string(q.UID)) {
		return "git could not be told: " + oneLine(err.Error()), false, nil
	}
	return "", false, err
}

// why is the reason with which git locks the worktree.
func (r *Reconciler) why(q *v1alpha1.Quarantine) string {
	return fmt.Sprintf("%s, quarantine %s/%s", q.Spec.Reason, q.Namespace, q.Name)
}

// session is the Session that the thing was of, the very one; nil when it is no
// more.
func (r *Reconciler) session(ctx context.Context, q *v1alpha1.Quarantine) (*v1alpha1.Session, error) {
	if q.Spec.Session == nil {
		return nil, nil
	}
	s, err := r.Sessions.Get(ctx, sessionKey(q))
	if errors.Is(err, effects.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if string(s.UID) != q.Spec.Session.UID {
		return nil, nil
	}
	return s, nil
}

func sessionKey(q *v1alpha1.Quarantine) api.Key {
	return api.Key{Kind: v1alpha1.KindSession, Namespace: q.Spec.Session.Namespace, Name: q.Spec.Session.Name}
}

// notMoved says why the thing is where it was.
func (r *Reconciler) notMoved(ctx context.Context, q *v1alpha1.Quarantine, err error) (controller.Result, error) {
	status, reason, next := obstacle(err)
	if errors.Is(err, effects.ErrNotFound) {
		r.set(q, v1alpha1.SetAside, metav1.ConditionFalse, v1alpha1.ReasonGone, fmt.Sprintf("nothing is at %q any more; there was nothing to set aside", q.Spec.Origin.Path))
		return r.gone(ctx, q)
	}
	r.set(q, v1alpha1.SetAside, status, reason, said("it is not set aside", err))
	if reason == v1alpha1.ReasonMoving {
		return controller.Result{}, fmt.Errorf("set aside for %s: %w", api.KeyOf(q), err)
	}
	return controller.Result{RequeueAfter: next}, nil
}

// obstacle is what stands between a thing and a move, as a condition shows it,
// and when to look again.
func obstacle(err error) (metav1.ConditionStatus, string, time.Duration) {
	switch {
	case effects.DiskFull(err):
		return metav1.ConditionFalse, v1alpha1.ReasonDiskFull, recheck
	case errors.Is(err, effects.ErrUncertain):
		return metav1.ConditionUnknown, v1alpha1.ReasonUncertain, recheck
	case errors.Is(err, effects.ErrLost):
		return metav1.ConditionFalse, v1alpha1.ReasonLost, recheck
	case errors.Is(err, effects.ErrMismatch):
		return metav1.ConditionFalse, v1alpha1.ReasonIdentityMismatch, recheck
	case errors.Is(err, effects.ErrRefused), errors.Is(err, fs.ErrPermission):
		return metav1.ConditionFalse, v1alpha1.ReasonRefused, recheck
	case errors.Is(err, effects.ErrUnreachable):
		return metav1.ConditionUnknown, v1alpha1.ReasonPlaceUnreachable, recheck
	}
	return metav1.ConditionUnknown, v1alpha1.ReasonMoving, 0
}

// gone ends a Quarantine that had nothing to set aside, when who waits for it has
// seen that. git forgets the registration of a worktree whose folder somebody
// removed; what it was at stays reachable.
func (r *Reconciler) gone(ctx context.Context, q *v1alpha1.Quarantine) (controller.Result, error) {
	o := q.Spec.Origin
	if o.Type == v1alpha1.QuarantineWorktree {
		for _, uid := range []string{o.MarkedBy, o.Owner} {
			if err := r.dropRegistration(ctx, q, o.Path, uid); err != nil {
				return controller.Result{}, err
			}
		}
	}
	s, err := r.session(ctx, q)
	if err != nil {
		return controller.Result{}, err
	}
	c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.SetAside)
	if s != nil && s.DeletionTimestamp != nil || r.Clock.Since(c.LastTransitionTime.Time).Abs() < recheckSoon {
		return controller.Result{RequeueAfter: recheckSoon}, nil
	}
	return controller.Result{}, r.end(ctx, q)
}

// end takes the definition away. The plan goes when the object does: without it,
// and with a definition, the thing would be set aside once more.
func (r *Reconciler) end(ctx context.Context, q *v1alpha1.Quarantine) error {
	if err := r.Definitions.Remove(ctx, api.KeyOf(q)); err != nil {
		return fmt.Errorf("end %s: %w", api.KeyOf(q), err)
	}
	return nil
}

// dropRegistration has git forget uid's worktree, whose folder is not at path
// any more. One that somebody locked is left: he wants to keep it.
func (r *Reconciler) dropRegistration(ctx context.Context, q *v1alpha1.Quarantine, path, uid string) error {
	if q.Spec.Origin.Repo == "" || uid == "" {
		return nil
	}
	repo, err := r.Worktrees.Open(ctx, q.Spec.Origin.Repo)
	if errors.Is(err, effects.ErrNotFound) || errors.Is(err, effects.ErrNotRepository) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the repository of %q: %w", path, err)
	}
	all, err := r.Worktrees.List(ctx, repo)
	if err != nil {
		return fmt.Errorf("look for the worktree at %q: %w", path, err)
	}
	for _, w := range all {
		if w.Path == path && w.Locked && !ourLock(w.LockReason) {
			return nil
		}
	}
	return r.forgetWorktree(ctx, repo, path, uid)
}

func (r *Reconciler) forgetWorktree(ctx context.Context, repo effects.Repository, path, uid string) error {
	err := r.Worktrees.AfterPurge(ctx, repo, path, uid)
	if _, away := errors.AsType[*effects.DiskMissingError](err); away {
		return nil // who knows whether it is gone
	}
	return err
}

// ensureKept sees that what is in quarantine is there and registered, and does
// what is asked for it, or what is due.
func (r *Reconciler) ensureKept(ctx context.Context, q *v1alpha1.Quarantine, k effects.Kept) (controller.Result, error) {
	key := api.KeyOf(q)
	if err := r.Vault.Check(ctx, k.ID); err != nil {
		if errors.Is(err, effects.ErrLost) && q.Spec.Purge {
			return r.purged(ctx, q, k, "it was lost")
		}
		status, reason, next := obstacle(err)
		r.set(q, v1alpha1.SetAside, status, reason, said(fmt.Sprintf("it should be at %q", k.Place), err))
		if reason == v1alpha1.ReasonMoving {
			return controller.Result{}, fmt.Errorf("look at what %s keeps: %w", key, err)
		}
		return controller.Result{RequeueAfter: next}, nil
	}
	left := q.Spec.RetentionOrDefault() - k.Elapsed
	if q.Spec.Purge || left <= 0 && !q.Spec.Restore && accepted(q) {
		r.setDeadline(q, max(0, left))
		return r.ensurePurged(ctx, q, k)
	}
	note, err := r.ensureRegistered(ctx, q, k)
	r.setKept(q, k, note)
	if err != nil {
		return controller.Result{}, fmt.Errorf("tell git where %s keeps a worktree: %w", key, err)
	}
	if q.Spec.Restore {
		return r.restore(ctx, q, k)
	}
	r.setDeadline(q, max(0, left))
	if left <= 0 {
		return controller.Result{RequeueAfter: recheck}, nil
	}
	r.ensureSize(q, k)
	return controller.Result{RequeueAfter: left}, nil
}

// accepted tells whether the definition is as the object says. When it cannot be
// read, somebody may be about to say that the thing is to be kept for longer.
func accepted(q *v1alpha1.Quarantine) bool {
	c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.SourceAccepted)
	return c == nil || c.Status != metav1.ConditionFalse
}

// setKept says that the thing is in quarantine. A note that was made when it was
// set aside stays.
func (r *Reconciler) setKept(q *v1alpha1.Quarantine, k effects.Kept, note string) {
	message := fmt.Sprintf("it lies at %q", k.Place)
	if c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.SetAside); c != nil && c.Reason == v1alpha1.ReasonKept && strings.HasPrefix(c.Message, message+"; ") {
		message = c.Message
	} else if note != "" {
		message += "; " + note
	}
	r.set(q, v1alpha1.SetAside, metav1.ConditionTrue, v1alpha1.ReasonKept, message)
}

// ensureRegistered tells git where the worktree is now, so that it is a valid one.
func (r *Reconciler) ensureRegistered(ctx context.Context, q *v1alpha1.Quarantine, k effects.Kept) (note string, err error) {
	o := q.Spec.Origin
	if o.Type != v1alpha1.QuarantineWorktree {
		return "", nil
	}
	if look, err := r.Worktrees.Look(k.Place); err == nil && look.UID == o.Owner {
		return "", nil
	} else if err != nil && !errors.Is(err, effects.ErrNotFound) {
		return "", err
	}
	// What BeforeMove does is done already, unless git failed at that time.
	err = r.Worktrees.AfterMove(ctx, k.Place, o.Owner)
	if err == nil {
		err = r.Worktrees.BeforeMove(ctx, k.Place, o.Owner, r.why(q))
	}
	if errors.Is(err, effects.ErrConflict) {
		return "git has it as somebody else's, or nobody's", nil
	}
	if err != nil {
		note, _, err = r.without(q, err)
	}
	return note, err
}

// ensureSize counts what is kept, and has it looked at, once. What failed is tried
// again later.
func (r *Reconciler) ensureSize(q *v1alpha1.Quarantine, k effects.Kept) {
	key := api.KeyOf(q)
	if ended, _, err := r.Sizer.Ended(key); ended && err != nil {
		r.noteFailure(&r.unsized, q, k)
	}
	r.mu.Lock()
	checks, looked := r.looked[key]
	r.mu.Unlock()
	if len(q.Status.Safety) == 0 {
		q.Status.Safety = checks
	}
	done := k.Size != nil && (looked || len(q.Status.Safety) > 0 || q.Spec.Origin.Type != v1alpha1.QuarantineWorktree)
	if wait, _ := r.failedLately(&r.unsized, q, k); !done && wait <= 0 {
		r.Sizer.Begin(key)
	}
}

// noteFailure notes when work beside the passes failed, by observed time.
func (r *Reconciler) noteFailure(in *map[string]time.Duration, q *v1alpha1.Quarantine, k effects.Kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if *in == nil {
		*in = map[string]time.Duration{}
	}
	(*in)[string(q.UID)] = k.Elapsed
}

// failedLately tells whether it failed before, and how long it is not to be tried
// again.
func (r *Reconciler) failedLately(in *map[string]time.Duration, q *v1alpha1.Quarantine, k effects.Kept) (wait time.Duration, before bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, before := (*in)[string(q.UID)]
	if !before {
		return 0, false
	}
	return at + recheck - k.Elapsed, true
}
