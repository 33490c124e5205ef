package quarantine

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// ensurePurged removes the thing for good. That takes as long as the thing is
// large, so it is done beside the passes.
func (r *Reconciler) ensurePurged(ctx context.Context, q *v1alpha1.Quarantine, k effects.Kept) (controller.Result, error) {
	if k.State == effects.KeptPurged {
		return r.purged(ctx, q, k, "it was removed for good")
	}
	key := api.KeyOf(q)
	r.Sizer.Stop(key)
	ended, running, failed := r.Purger.Ended(key)
	if ended && failed != nil && !errors.Is(failed, context.Canceled) {
		r.noteFailure(&r.unpurged, q, k)
		status, reason, _ := obstacle(failed)
		if reason == v1alpha1.ReasonMoving {
			status, reason = metav1.ConditionFalse, v1alpha1.ReasonPurging
		}
		message := "it could not be removed for good"
		if k.State == effects.KeptRemoving {
			message = "it could not be removed to the end"
		}
		r.set(q, v1alpha1.SetAside, status, reason, said(message, failed))
		return controller.Result{RequeueAfter: recheck}, nil
	}
	wait, before := r.failedLately(&r.unpurged, q, k)
	if wait > 0 && !running {
		return controller.Result{RequeueAfter: wait}, nil
	}
	if !before { // else the condition says what was in the way, until that is over
		r.set(q, v1alpha1.SetAside, metav1.ConditionFalse, v1alpha1.ReasonPurging, "it is being removed for good")
	}
	r.Purger.Begin(key)
	return controller.Result{}, nil // there is a pass when it has ended
}

// purged ends a Quarantine whose thing is no more. git forgets the worktree and
// keeps its commits.
func (r *Reconciler) purged(ctx context.Context, q *v1alpha1.Quarantine, k effects.Kept, how string) (controller.Result, error) {
	o := q.Spec.Origin
	if o.Type == v1alpha1.QuarantineWorktree && o.Repo != "" {
		repo, err := r.Worktrees.Open(ctx, o.Repo)
		switch {
		case errors.Is(err, effects.ErrNotFound), errors.Is(err, effects.ErrNotRepository):
		case err != nil:
			return controller.Result{}, fmt.Errorf("open the repository of %s: %w", api.KeyOf(q), err)
		default:
			// Place while it is lost, From once the move to be removed was done.
			for _, path := range []string{k.From, k.Place} {
				if path == "" {
					continue
				}
				if err := r.forgetWorktree(ctx, repo, path, o.Owner); err != nil {
					return controller.Result{}, fmt.Errorf("have git forget the worktree of %s: %w", api.KeyOf(q), err)
				}
			}
		}
	}
	r.set(q, v1alpha1.SetAside, metav1.ConditionFalse, v1alpha1.ReasonPurged, how)
	return controller.Result{}, r.end(ctx, q)
}
