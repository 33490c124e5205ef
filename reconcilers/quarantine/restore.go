package quarantine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// restore gives the thing back, after it has seen that all of it can be done.
func (r *Reconciler) restore(ctx context.Context, q *v1alpha1.Quarantine, k effects.Kept) (controller.Result, error) {
	key := api.KeyOf(q)
	to := r.place(q)
	back, refused, err := r.comeBack(ctx, q, to)
	if err != nil {
		return controller.Result{}, err
	}
	if refused != nil {
		r.set(q, v1alpha1.Restored, metav1.ConditionFalse, refused.reason, refused.message)
		return controller.Result{RequeueAfter: recheckSoon}, nil
	}
	r.Sizer.Stop(key)
	k, err = r.Vault.Restore(ctx, k.ID, to)
	if k.ID != "" {
		r.describe(q, k)
	}
	if err != nil {
		return r.notRestored(q, to, err)
	}
	return r.finishRestore(ctx, q, k, back)
}

// ensureRestored goes on with what was begun, to where the plan says.
func (r *Reconciler) ensureRestored(ctx context.Context, q *v1alpha1.Quarantine, k effects.Kept) (controller.Result, error) {
	r.set(q, v1alpha1.SetAside, metav1.ConditionUnknown, v1alpha1.ReasonMoving, fmt.Sprintf("it is on the way to %q", k.Place))
	if k.State == effects.KeptRestoring {
		to := k.Place
		if q.Spec.Restore {
			to = r.place(q)
		}
		var err error
		if k, err = r.Vault.Restore(ctx, k.ID, to); err != nil {
			if k.ID != "" {
				r.describe(q, k)
			}
			return r.notRestored(q, to, err)
		}
		r.describe(q, k)
	}
	back, refused, err := r.comeBack(ctx, q, k.Place)
	if err != nil {
		return controller.Result{}, err
	}
	if refused != nil { // what would have been refused before is too late now: the folder is back
		back = comeback{note: refused.message + "; the folder alone was given back"}
	}
	return r.finishRestore(ctx, q, k, back)
}

// place is where the thing goes.
func (r *Reconciler) place(q *v1alpha1.Quarantine) string {
	switch to := string(q.Spec.RestoreTo); {
	case to == "":
		return q.Spec.Origin.Path
	case to == "~":
		return r.UserHome
	case len(to) > 1 && to[:2] == "~/":
		return filepath.Join(r.UserHome, to[2:])
	default:
		return filepath.Clean(to)
	}
}

// comeback is what comes back beside the thing.
type comeback struct {
	session []byte // definition of the Session; nil when none comes back
	note    string
}

type refusal struct{ reason, message string }

// comeBack tells which Session comes back with the thing, or why it must not.
func (r *Reconciler) comeBack(ctx context.Context, q *v1alpha1.Quarantine, to string) (back comeback, refused *refusal, err error) {
	if q.Spec.Session == nil {
		return comeback{}, nil, nil
	}
	elsewhere := q.Spec.RestoreTo != ""
	key := sessionKey(q)
	s, err := r.Sessions.Get(ctx, key)
	switch {
	case errors.Is(err, effects.ErrNotFound):
	case err != nil:
		return comeback{}, nil, fmt.Errorf("look for the session of %s: %w", api.KeyOf(q), err)
	case s.Annotations[v1alpha1.RestoredFromAnnotation] == q.Spec.Origin.Owner && q.Spec.Origin.Owner != "":
		// It came back in an earlier pass.
	case elsewhere:
		return comeback{note: fmt.Sprintf("there is a session %s, so the folder alone was given back, and is yours from now on", key.Name)}, nil, nil
	default:
		return comeback{}, &refusal{v1alpha1.ReasonSessionExists,
			fmt.Sprintf("there is a session %s in namespace %s; delete it, or set restoreTo to have the folder alone given back somewhere else", key.Name, key.Namespace)}, nil
	}
	if q.Spec.Session.Definition == "" {
		return comeback{note: "how its session was defined is not known, so the folder alone was given back, and is yours from now on"}, nil, nil
	}
	back.session, err = r.definition(q, to)
	if err != nil && elsewhere {
		return comeback{note: said("its session cannot be defined again, so the folder alone was given back, and is yours from now on", err)}, nil, nil
	}
	if err != nil {
		return comeback{}, &refusal{v1alpha1.ReasonRefused, said("its session cannot be defined again (set restoreTo to have the folder alone given back)", err)}, nil
	}
	return back, nil, nil
}

// definition is the Session as its file defined it, with the place if that is
// another one, and with whose worktree it takes over.
func (r *Reconciler) definition(q *v1alpha1.Quarantine, to string) ([]byte, error) {
	var doc map[string]any
	if err := json.Unmarshal([]byte(q.Spec.Session.Definition), &doc); err != nil {
		return nil, err
	}
	at := func(parent map[string]any, name string) map[string]any {
		m, _ := parent[name].(map[string]any)
		if m == nil {
			m = map[string]any{}
			parent[name] = m
		}
		return m
	}
	meta := at(doc, "metadata")
	meta["name"], meta["namespace"] = q.Spec.Session.Name, q.Spec.Session.Namespace
	at(meta, "annotations")[v1alpha1.RestoredFromAnnotation] = q.Spec.Origin.Owner
	if to != q.Spec.Origin.Path {
		target := at(at(doc, "spec"), "target")
		for _, kind := range []string{"worktree", "plainDir"} {
			if _, ok := target[kind].(map[string]any); ok {
				at(target, kind)["path"] = to
			}
		}
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	all, err := v1alpha1.Decode("", data)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 || api.KeyOf(all[0].Object) != sessionKey(q) {
		return nil, fmt.Errorf("it is no definition of session %s", q.Spec.Session.Name)
	}
	return data, nil
}

// notRestored says why the thing is not where it should go.
func (r *Reconciler) notRestored(q *v1alpha1.Quarantine, to string, err error) (controller.Result, error) {
	status, reason, next := obstacle(err)
	switch {
	case errors.Is(err, effects.ErrExists):
		status, reason, next = metav1.ConditionFalse, v1alpha1.ReasonPlaceTaken, recheckSoon
		r.set(q, v1alpha1.Restored, status, reason, fmt.Sprintf("something is at %q; move it away, or set restoreTo to another place", to))
		return controller.Result{RequeueAfter: next}, nil
	case errors.Is(err, effects.ErrNotFound):
		status, reason, next = metav1.ConditionFalse, v1alpha1.ReasonRefused, recheck
	}
	r.set(q, v1alpha1.Restored, status, reason, said("it could not be given back", err))
	if next == 0 {
		return controller.Result{}, fmt.Errorf("restore %s: %w", api.KeyOf(q), err)
	}
	return controller.Result{RequeueAfter: next}, nil
}

// finishRestore does what follows when the thing is at its place: git, then the
// Session, then the end of the Quarantine.
func (r *Reconciler) finishRestore(ctx context.Context, q *v1alpha1.Quarantine, k effects.Kept, back comeback) (controller.Result, error) {
	o := q.Spec.Origin
	note := back.note
	also := func(text string) {
		if note != "" {
			note += "; "
		}
		note += text
	}
	r.set(q, v1alpha1.SetAside, metav1.ConditionFalse, v1alpha1.ReasonRestored, fmt.Sprintf("it was given back to %q", k.Place))
	r.set(q, v1alpha1.Restored, metav1.ConditionUnknown, v1alpha1.ReasonMoving, fmt.Sprintf("the folder is at %q; git and its session follow", k.Place))
	if o.Type == v1alpha1.QuarantineWorktree {
		branch, err := r.Worktrees.AfterRestore(ctx, k.Place, o.Owner)
		switch {
		case errors.Is(err, effects.ErrConflict): // its Session, or somebody, has it by now
		case err != nil:
			text, _, err := r.without(q, err)
			if err != nil {
				return controller.Result{}, fmt.Errorf("tell git of the restored worktree of %s: %w", api.KeyOf(q), err)
			}
			also(text)
		case o.Branch != "" && branch == "":
			also(fmt.Sprintf("HEAD stays detached, since branch %s is elsewhere or was moved on", o.Branch))
		}
		if back.session == nil {
			err := r.Worktrees.Unmark(ctx, k.Place, o.Owner)
			if err != nil && !errors.Is(err, effects.ErrConflict) && !errors.Is(err, effects.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
				return controller.Result{}, fmt.Errorf("make the restored worktree of %s nobody's: %w", api.KeyOf(q), err)
			}
		}
	}
	message := fmt.Sprintf("it was given back to %q", k.Place)
	if back.session != nil {
		if err := r.Definitions.CreateFrom(ctx, back.session); err != nil {
			return controller.Result{}, fmt.Errorf("define the session of %s again: %w", api.KeyOf(q), err)
		}
		message += fmt.Sprintf(", with session %s", q.Spec.Session.Name)
	}
	if note != "" {
		message += "; " + note
	}
	r.set(q, v1alpha1.Restored, metav1.ConditionTrue, v1alpha1.ReasonRestored, message)
	return controller.Result{}, r.end(ctx, q)
}
