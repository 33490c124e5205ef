package session

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// Quarantines are the objects that ask for a thing to be set aside.
type Quarantines interface {
	// Ensure has the object defined, durably; one that is there stays as it is.
	Ensure(ctx context.Context, q *v1alpha1.Quarantine) error
	// Get returns a private copy, or an error matching effects.ErrNotFound.
	Get(ctx context.Context, key api.Key) (*v1alpha1.Quarantine, error)
}

// Definitions gives objects as their files define them.
type Definitions interface {
	// Definition is the object in JSON; effects.ErrNotFound when that is lost.
	Definition(key api.Key) ([]byte, error)
}

// maxDefinition is how long the definition of a Session may be to be kept with its
// workspace: the Quarantine has to fit into a file.
const maxDefinition = 900 << 10

// finalizeWorkspace gives up the workspace of a deleted Session, whose processes
// are gone. It returns true when that is done.
func (r *Reconciler) finalizeWorkspace(ctx context.Context, s *v1alpha1.Session) (bool, controller.Result, error) {
	var none controller.Result
	made := r.collectWorktree(s)
	if made.running {
		settingAside(s, v1alpha1.ReasonSettingAside, metav1.ConditionUnknown, "the worktree is still being made")
		return false, none, nil // its end wakes the Session
	}
	if s.Status.Workspace == nil && s.Spec.Target.Worktree != nil {
		switch {
		case !made.want.Find || !made.ended: // one may have been begun that no pass lived to record
			find := r.wantWorktree(s)
			find.From, find.Find = "", true
			r.Worktrees.Begin(api.KeyOf(s), find)
			settingAside(s, v1alpha1.ReasonSettingAside, metav1.ConditionUnknown, "looking for a worktree that was begun for it")
			return false, none, nil
		case made.err != nil && !errors.Is(made.err, effects.ErrNotFound) && !errors.Is(made.err, effects.ErrNotRepository) && !errors.Is(made.err, effects.ErrUnavailable):
			_, message := worktreeReason(made.err)
			settingAside(s, v1alpha1.ReasonSettingAside, metav1.ConditionFalse, message)
			return false, none, fmt.Errorf("look for a worktree of %s: %w", api.KeyOf(s), made.err)
		}
	}
	return r.releaseWorkspace(ctx, s, v1alpha1.QuarantineSessionDeleted, v1alpha1.ReasonSettingAside)
}

// replaceWorkspace gives up the workspace of another target. All processes of the
// session are gone.
func (r *Reconciler) replaceWorkspace(ctx context.Context, s *v1alpha1.Session) (controller.Result, error) {
	awaitWorkspace(s)
	done, res, err := r.releaseWorkspace(ctx, s, v1alpha1.QuarantineTargetChanged, v1alpha1.ReasonReplacing)
	if err != nil || !done {
		return res, err
	}
	s.Status.Workspace = nil
	set(s, v1alpha1.WorkspaceReady, metav1.ConditionUnknown, v1alpha1.ReasonReplacing, "the workspace of the target before is given up")
	return controller.Result{RequeueAfter: time.Microsecond}, nil
}

// replacing tells whether the workspace in status has to go before the program
// may start.
func replacing(s *v1alpha1.Session) bool {
	return s.Status.Workspace != nil && reasonIs(s, v1alpha1.WorkspaceReady, v1alpha1.ReasonReplacing)
}

// releaseWorkspace gives up the workspace if it is ours: what is empty is removed,
// what is to be retained is let go, all else goes into quarantine. It returns true
// when nothing of ours is left there. What we cannot prove to be ours is not
// touched.
func (r *Reconciler) releaseWorkspace(ctx context.Context, s *v1alpha1.Session, why v1alpha1.QuarantineReason, reason string) (bool, controller.Result, error) {
	var none controller.Result
	w, key := s.Status.Workspace, api.KeyOf(s)
	if w == nil || !w.CreatedByController {
		if t := s.Spec.Target.PlainDir; t != nil { // a folder may have been staged that no pass lived to record
			if err := r.Folders.Unstage(r.expand(t.Path), string(s.UID)); err != nil {
				return false, none, fmt.Errorf("workspace of %s: %w", key, err)
			}
		}
		return true, none, nil
	}
	owner := quarantineOwner(s)
	there, err := r.isThere(w, string(s.UID), owner)
	if err != nil {
		_, message := worktreeReason(err)
		settingAside(s, reason, metav1.ConditionFalse, message)
		return false, none, fmt.Errorf("workspace of %s: %w", key, err)
	}
	if w.Repo == "" {
		if err := r.Folders.Unstage(w.Path, string(s.UID)); err != nil {
			return false, none, fmt.Errorf("workspace of %s: %w", key, err)
		}
	}
	if w.Quarantine == "" {
		if !there {
			return true, none, nil
		}
		if s.Spec.Cleanup.Policy == v1alpha1.CleanupRetain || takenOver(s, r.target(s), w) {
			return r.retain(ctx, s)
		}
		if w.Repo != "" { // its mark proves it; no pass may have lived to record that it was made anew
			id, err := r.Folders.Identify(w.Path)
			if err != nil {
				return false, none, fmt.Errorf("workspace of %s: %w", key, err)
			}
			w.Identity = v1alpha1.FileIdentity(id.String())
		} else {
			id, err := effects.ParseFileIdentity(string(w.Identity))
			if err != nil {
				return false, none, fmt.Errorf("workspace of %s: %w", key, err)
			}
			if gone, err := r.Folders.Remove(w.Path, id); err != nil || gone {
				return gone, none, err
			}
		}
		// On disk first: whoever sees the object sees that the folder is on its way,
		// even if the spec asks for it again by then.
		w.Quarantine = quarantineName(s)
		settingAside(s, reason, metav1.ConditionUnknown, fmt.Sprintf("%s goes into quarantine as %s", w.Path, w.Quarantine))
		return false, controller.Result{RequeueAfter: time.Microsecond}, nil
	}
	q, err := r.Quarantines.Get(ctx, api.Key{Kind: v1alpha1.KindQuarantine, Namespace: s.Namespace, Name: w.Quarantine})
	switch {
	case errors.Is(err, effects.ErrNotFound) && !there:
		return true, none, nil // it was set aside, and purged or given back
	case errors.Is(err, effects.ErrNotFound):
		q, err := r.quarantine(s, why, owner)
		if err == nil {
			err = r.keepConversation(ctx, s, q)
		}
		if err == nil {
			err = r.keepPrompt(ctx, s, q)
		}
		if err != nil {
			return false, none, err
		}
		if err := r.Quarantines.Ensure(ctx, q); err != nil {
			settingAside(s, reason, metav1.ConditionFalse, clip(err.Error(), maxMessage))
			return false, none, fmt.Errorf("ask for quarantine of %s: %w", key, err)
		}
		settingAside(s, reason, metav1.ConditionUnknown, fmt.Sprintf("%s goes into quarantine as %s", w.Path, w.Quarantine))
	case err != nil:
		return false, none, fmt.Errorf("look at quarantine of %s: %w", key, err)
	default:
		if c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.SetAside); c != nil &&
			(c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonGone) {
			return true, none, nil
		}
		status, message := metav1.ConditionUnknown, "it is on its way"
		if c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.Ready); c != nil && c.Message != "" {
			message = c.Message
			if c.Status == metav1.ConditionFalse {
				status = metav1.ConditionFalse
			}
		}
		settingAside(s, reason, status, clip(fmt.Sprintf("%s goes into quarantine as %s: %s", w.Path, w.Quarantine, message), maxMessage))
	}
	return false, controller.Result{RequeueAfter: lookAgain}, nil // whoever sets it aside wakes the Session
}

func settingAside(s *v1alpha1.Session, reason string, status metav1.ConditionStatus, message string) {
	set(s, v1alpha1.WorkspaceReady, status, reason, message)
}

// isThere proves that what is at the path is the workspace that we made. An error
// means that it is not known.
func (r *Reconciler) isThere(w *v1alpha1.WorkspaceStatus, uid, owner string) (bool, error) {
	if w.Repo == "" {
		id, err := effects.ParseFileIdentity(string(w.Identity))
		if err != nil {
			return false, err
		}
		got, err := r.Folders.Identify(w.Path)
		if errors.Is(err, effects.ErrNotFound) {
			return false, nil
		}
		return err == nil && id.Same(got), err
	}
	l, err := r.Worktrees.Look(w.Path)
	if errors.Is(err, effects.ErrNotFound) {
		return false, nil
	}
	return err == nil && (l.UID == uid || l.UID == owner), err
}

// takenOver tells whether the spec names our folder as one that was there: it is
// the user's from now on.
func takenOver(s *v1alpha1.Session, want *v1alpha1.WorkspaceTarget, w *v1alpha1.WorkspaceStatus) bool {
	return s.DeletionTimestamp == nil && s.Spec.Target.ExistingPath != nil && want.Path == w.Path
}

// retain leaves the workspace where it is, as the user's.
func (r *Reconciler) retain(ctx context.Context, s *v1alpha1.Session) (bool, controller.Result, error) {
	w := s.Status.Workspace
	if w.Repo != "" {
		if err := r.Worktrees.Unmark(ctx, w.Path, string(s.UID)); err != nil {
			return false, controller.Result{}, fmt.Errorf("let go of the worktree of %s: %w", api.KeyOf(s), err)
		}
	}
	r.Recorder.Event(s, eventNormal, "WorkspaceRetained", w.Path+" stays where it is, and is yours")
	return true, controller.Result{}, nil
}

// quarantineSum names one workspace of one Session for good.
func quarantineSum(s *v1alpha1.Session) [sha256.Size]byte {
	w := s.Status.Workspace
	return sha256.Sum256([]byte(string(s.UID) + "\x00" + w.Path + "\x00" + string(w.Identity)))
}

// quarantineName is the same however often it is asked for, so that a crash makes
// no second object.
func quarantineName(s *v1alpha1.Session) string {
	const room = 63 - 9
	sum := quarantineSum(s)
	return fmt.Sprintf("%s-%x", strings.TrimRight(s.Name[:min(len(s.Name), room)], "-"), sum[:4])
}

// quarantineOwner is the UID that a worktree carries while it is set aside.
func quarantineOwner(s *v1alpha1.Session) string {
	sum := quarantineSum(s)
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // as RFC 9562 has UUIDs of one's own making
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// quarantine is the object that asks for the workspace to be set aside.
func (r *Reconciler) quarantine(s *v1alpha1.Session, why v1alpha1.QuarantineReason, owner string) (*v1alpha1.Quarantine, error) {
	w, file := s.Status.Workspace, s.Annotations[v1alpha1.SourceFileAnnotation]
	q := &v1alpha1.Quarantine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindQuarantine},
		ObjectMeta: metav1.ObjectMeta{Name: w.Quarantine, Namespace: s.Namespace},
		Spec: v1alpha1.QuarantineSpec{
			Origin:    v1alpha1.QuarantineOrigin{Type: v1alpha1.QuarantineFolder, Path: w.Path, Identity: w.Identity, Owner: owner},
			Session:   &v1alpha1.QuarantinedSession{Namespace: s.Namespace, Name: s.Name, UID: string(s.UID), File: file},
			Reason:    why,
			Retention: &metav1.Duration{Duration: s.Spec.Cleanup.RetentionOrDefault()},
		},
	}
	if w.Repo != "" {
		o := &q.Spec.Origin
		o.Type, o.MarkedBy, o.Repo, o.Branch, o.Head = v1alpha1.QuarantineWorktree, string(s.UID), w.Repo, w.Branch, w.Head
	}
	if why == v1alpha1.QuarantineTargetChanged {
		q.Spec.RequestedBy = "a change of spec.target in " + file
		return q, nil
	}
	q.Spec.RequestedBy = "the deletion of Session " + s.Namespace + "/" + s.Name + ", which was defined in " + file
	definition, err := r.Definitions.Definition(api.KeyOf(s))
	if errors.Is(err, effects.ErrNotFound) {
		return q, nil // what defined it is lost; its work is not
	} else if err != nil {
		return nil, fmt.Errorf("definition of %s: %w", api.KeyOf(s), err)
	}
	quoted, err := json.Marshal(string(definition))
	if err != nil {
		return nil, err
	}
	if len(quoted) <= maxDefinition {
		q.Spec.Session.Definition = string(definition)
	}
	return q, nil
}
