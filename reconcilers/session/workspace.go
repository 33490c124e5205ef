package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// Folders makes, checks and removes plain folders.
type Folders interface {
	// Check looks at a folder; links are followed. effects.ErrNotFound when there is
	// none, and effects.ErrExists too when something else is there; fs.ErrPermission.
	Check(path string) error
	// Identify tells which folder is at path; effects.ErrNotFound when there is none.
	Identify(path string) (effects.FileIdentity, error)
	// Resolve is path with the links above its last name resolved, as far as they
	// are there.
	Resolve(path string) string
	// Stamp is another one after a name in the folder changed.
	Stamp(path string) (string, error)
	// Stage makes the folder under a name that only uid has, or finds it there. real
	// is path, resolved.
	Stage(path, uid string) (real string, id effects.FileIdentity, err error)
	// Place gives a staged folder its name; one that has it is a success.
	// effects.ErrExists when something else has it, effects.ErrNotFound when that
	// folder is not staged.
	Place(path, uid string, id effects.FileIdentity) error
	// Unstage removes a staged folder that is empty; none is a success.
	Unstage(path, uid string) error
	// Remove removes the folder if it is that one and empty but for what skc makes in
	// it. It returns whether that folder is gone.
	Remove(path string, id effects.FileIdentity) (gone bool, err error)
}

// Worktrees makes worktrees beside the passes, and looks at them. Where there is
// no git the errors match effects.ErrUnavailable.
type Worktrees interface {
	// Begin has the worktree made, or found, and the key enqueued at the end. While
	// one of key is under way, or its end was not asked for, it does nothing.
	Begin(key api.Key, want effects.WantWorkspace)
	// Ended hands over the end of it, once: got, or an error of package effects.
	// running tells that it is under way.
	Ended(key api.Key) (want effects.WantWorkspace, got *effects.Workspace, err error, running bool)
	// Look says what is at path, and runs no git; effects.ErrNotFound when there is
	// no worktree.
	Look(path string) (effects.WorktreeLook, error)
	// Unmark makes uid's worktree nobody's. One without a mark is a success.
	Unmark(ctx context.Context, path, uid string) error
	// Place is where a worktree is unless told; repo is the folder of git.
	Place(repo, branch string) string
}

// making is the end of a worktree's making that this pass was told of.
type making struct {
	want    effects.WantWorkspace
	ended   bool
	err     error
	running bool
}

// ensureWorkspace sees to the folder while the program should run.
func (r *Reconciler) ensureWorkspace(_ context.Context, s *v1alpha1.Session) (controller.Result, error) {
	made := r.collectWorktree(s)
	r.collectSetup(s)
	var none controller.Result
	if s.Spec.DesiredState == v1alpha1.DesiredStopped {
		set(s, v1alpha1.WorkspaceReady, metav1.ConditionUnknown, v1alpha1.ReasonNotNeeded, "nothing should run there")
		return none, nil
	}
	if w := s.Status.Workspace; w != nil {
		switch {
		case w.Quarantine != "" || w.CreatedByController && !r.isTarget(s, w):
			if !reasonIs(s, v1alpha1.WorkspaceReady, v1alpha1.ReasonReplacing) { // else it says by now what is waited for
				set(s, v1alpha1.WorkspaceReady, metav1.ConditionUnknown, v1alpha1.ReasonReplacing,
					w.Path+" is given up for another target; the program is ended first")
			}
			return none, nil
		case !r.isTarget(s, w):
			s.Status.Workspace = nil
		default:
			w.Target = r.target(s)
		}
	}
	switch t := s.Spec.Target; {
	case t.Worktree != nil:
		return r.ensureWorktree(s, made)
	case t.PlainDir != nil:
		return r.ensureFolder(s)
	}
	path := r.target(s).Path
	if err := r.Folders.Check(path); err != nil {
		return notReady(s, path, err)
	}
	s.Status.Workspace = &v1alpha1.WorkspaceStatus{Path: path, Target: r.target(s)}
	set(s, v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceFound, path+" is there")
	return none, nil
}

// target is the target of the spec, with ~ resolved.
func (r *Reconciler) target(s *v1alpha1.Session) *v1alpha1.WorkspaceTarget {
	switch t := s.Spec.Target; {
	case t.Worktree != nil:
		w := &v1alpha1.WorkspaceTarget{Repo: r.expand(t.Worktree.Repo), Branch: t.Worktree.Branch}
		if t.Worktree.Path != "" {
			w.Path = r.expand(t.Worktree.Path)
		}
		return w
	case t.PlainDir != nil:
		return &v1alpha1.WorkspaceTarget{Path: r.expand(t.PlainDir.Path)}
	case t.ExistingPath != nil:
		return &v1alpha1.WorkspaceTarget{Path: r.expand(t.ExistingPath.Path)}
	}
	return &v1alpha1.WorkspaceTarget{}
}

func (r *Reconciler) expand(p v1alpha1.Path) string {
	if p == "~" || strings.HasPrefix(string(p), "~/") {
		return filepath.Join(r.UserHome, string(p[1:]))
	}
	return filepath.Clean(string(p))
}

// isTarget tells whether w is what the spec asks for. A path that is written in
// another way, or written and the default one, is no other target.
func (r *Reconciler) isTarget(s *v1alpha1.Session, w *v1alpha1.WorkspaceStatus) bool {
	want := r.target(s)
	if isWorktree := s.Spec.Target.Worktree != nil; isWorktree != (w.Repo != "") || s.Spec.Target.ExistingPath != nil && w.CreatedByController {
		return false
	}
	had := w.Target
	if had == nil { // an earlier skc wrote no target, and knew no worktrees
		had = &v1alpha1.WorkspaceTarget{Path: w.Path}
	}
	if *had == *want {
		return true
	}
	if had.Repo != want.Repo || had.Branch != want.Branch {
		return false
	}
	path := want.Path
	if path == "" {
		path = r.Worktrees.Place(w.Repo, want.Branch)
	}
	return r.Folders.Resolve(path) == w.Path
}

// notReady says why a folder cannot be used. Nothing tells when that changes.
func notReady(s *v1alpha1.Session, path string, err error) (controller.Result, error) {
	reason, message := v1alpha1.ReasonWorkspaceFailed, err.Error()
	switch {
	case errors.Is(err, effects.ErrNotFound):
		reason, message = v1alpha1.ReasonWorkingDirectoryMissing, path+" is not there, or is no folder"
	case errors.Is(err, fs.ErrPermission):
		reason, message = v1alpha1.ReasonPermissionDenied, path+" may not be used: permission denied"
	}
	set(s, v1alpha1.WorkspaceReady, metav1.ConditionFalse, reason, message)
	return controller.Result{RequeueAfter: lookAgain}, nil
}

// ensureFolder finds the plain folder or makes it. One that is made is known, and
// its identity on disk, before it has its name: so a crash at any point leaves no
// doubt whether the folder is ours.
func (r *Reconciler) ensureFolder(s *v1alpha1.Session) (controller.Result, error) {
	var none controller.Result
	uid, target := string(s.UID), r.target(s)
	w := s.Status.Workspace
	if w == nil || !w.CreatedByController {
		err := r.Folders.Check(target.Path)
		if err == nil {
			s.Status.Workspace = &v1alpha1.WorkspaceStatus{Path: target.Path, Target: target}
			set(s, v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceFound, target.Path+" is there")
			return none, nil
		}
		if !errors.Is(err, effects.ErrNotFound) || errors.Is(err, effects.ErrExists) || s.Spec.Suspend {
			return notReady(s, target.Path, err)
		}
		return r.stage(s, target)
	}
	id, err := effects.ParseFileIdentity(string(w.Identity))
	if err != nil {
		return none, fmt.Errorf("workspace of %s: %w", api.KeyOf(s), err)
	}
	got, err := r.Folders.Identify(w.Path)
	switch {
	case err == nil && id.Same(got):
	case err == nil: // another folder took its place
		return r.disown(s, target)
	case !errors.Is(err, effects.ErrNotFound):
		return notReady(s, w.Path, err)
	case s.Spec.Suspend:
		return notReady(s, w.Path, err)
	default:
		switch err := r.Folders.Place(w.Path, uid, id); {
		case err == nil:
		case errors.Is(err, effects.ErrExists):
			return r.disown(s, target)
		case errors.Is(err, effects.ErrNotFound): // somebody removed it
			return r.stage(s, target)
		default:
			return notReady(s, w.Path, err)
		}
	}
	if err := r.Folders.Check(w.Path); err != nil {
		return notReady(s, w.Path, err)
	}
	set(s, v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceCreated, "skc made "+w.Path)
	return none, nil
}

// stage ends the pass with a folder that has no name yet, so that its identity is
// on disk before it gets one.
func (r *Reconciler) stage(s *v1alpha1.Session, target *v1alpha1.WorkspaceTarget) (controller.Result, error) {
	real, id, err := r.Folders.Stage(target.Path, string(s.UID))
	if err != nil {
		return notReady(s, target.Path, err)
	}
	s.Status.Workspace = &v1alpha1.WorkspaceStatus{Path: real, Target: target, CreatedByController: true, Identity: v1alpha1.FileIdentity(id.String())}
	set(s, v1alpha1.WorkspaceReady, metav1.ConditionUnknown, v1alpha1.ReasonWorkspaceCreating, real+" is being made")
	return controller.Result{RequeueAfter: time.Microsecond}, nil
}

// disown uses what somebody else put where our folder was, or should have been.
func (r *Reconciler) disown(s *v1alpha1.Session, target *v1alpha1.WorkspaceTarget) (controller.Result, error) {
	if err := r.Folders.Unstage(s.Status.Workspace.Path, string(s.UID)); err != nil {
		return controller.Result{}, fmt.Errorf("workspace of %s: %w", api.KeyOf(s), err)
	}
	s.Status.Workspace = nil
	if err := r.Folders.Check(target.Path); err != nil {
		return notReady(s, target.Path, err)
	}
	s.Status.Workspace = &v1alpha1.WorkspaceStatus{Path: target.Path, Target: target}
	set(s, v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceFound, target.Path+" is there")
	return controller.Result{}, nil
}

// wantWorktree is the worktree that the spec asks for.
func (r *Reconciler) wantWorktree(s *v1alpha1.Session) effects.WantWorkspace {
	t := r.target(s)
	return effects.WantWorkspace{
		WantWorktree: effects.WantWorktree{Repo: t.Repo, Branch: t.Branch, Base: s.Spec.Target.Worktree.Base, Path: t.Path, UID: string(s.UID)},
		From:         s.Annotations[v1alpha1.RestoredFromAnnotation],
	}
}

// collectWorktree takes into status what was made, also when it is not wanted any
// more: it is ours then, and has to be given up in order.
func (r *Reconciler) collectWorktree(s *v1alpha1.Session) making {
	want, got, err, running := r.Worktrees.Ended(api.KeyOf(s))
	if running || want.UID != string(s.UID) { // nothing, or of one of the same name before it
		return making{running: running}
	}
	m := making{want: want, ended: true, err: err}
	if got == nil {
		return m
	}
	target := &v1alpha1.WorkspaceTarget{Repo: want.Repo, Branch: want.Branch, Path: want.Path}
	w := &v1alpha1.WorkspaceStatus{Path: got.Path, Repo: got.Repo, Branch: got.Branch, Head: got.Head, Target: target, CreatedByController: got.Ours}
	if got.Ours {
		w.Identity = v1alpha1.FileIdentity(got.Identity.String())
	}
	if had := s.Status.Workspace; had != nil && sameWorkspace(had, w) {
		had.Branch, had.Head = w.Branch, w.Head
		return m
	}
	restored := want.From != "" && s.Status.Workspace == nil && !got.Created
	s.Status.Workspace = w
	if w.CreatedByController && !restored && !want.Find {
		r.intendSetup(s)
	}
	return m
}

// sameWorkspace tells whether both are one folder.
func sameWorkspace(a, b *v1alpha1.WorkspaceStatus) bool {
	if a.Path != b.Path || a.CreatedByController != b.CreatedByController || a.Repo != b.Repo {
		return false
	}
	if !a.CreatedByController {
		return true
	}
	ia, errA := effects.ParseFileIdentity(string(a.Identity))
	ib, errB := effects.ParseFileIdentity(string(b.Identity))
	return errA == nil && errB == nil && ia.Same(ib)
}

// ensureWorktree finds the worktree, has it made, or says why it cannot be. While
// it is as it should be no git runs.
func (r *Reconciler) ensureWorktree(s *v1alpha1.Session, made making) (controller.Result, error) {
	var none controller.Result
	want := r.wantWorktree(s)
	if w := s.Status.Workspace; w != nil {
		l, err := r.Worktrees.Look(w.Path)
		switch {
		case err == nil && !l.Making && (l.UID == want.UID) == w.CreatedByController && r.isRecorded(w):
			w.Branch = l.Branch
			return r.ensureSetup(s)
		case err != nil && !errors.Is(err, effects.ErrNotFound):
			reason, message := worktreeReason(err)
			set(s, v1alpha1.WorkspaceReady, metav1.ConditionFalse, reason, message)
			return controller.Result{RequeueAfter: lookAgain}, nil
		}
	}
	if begun := r.begunBefore(s, made, want); begun != "" {
		find := want
		find.Path, find.From, find.Find = begun, "", true
		r.Worktrees.Begin(api.KeyOf(s), find)
		set(s, v1alpha1.WorkspaceReady, metav1.ConditionUnknown, v1alpha1.ReasonReplacing, begun+" was begun for another target")
		return none, nil
	}
	if made.ended && made.err != nil && (made.want == want || made.want.Find) {
		reason, message := worktreeReason(made.err)
		set(s, v1alpha1.WorkspaceReady, metav1.ConditionFalse, reason, message)
		return controller.Result{RequeueAfter: lookAgain}, nil
	}
	if s.Spec.Suspend {
		set(s, v1alpha1.WorkspaceReady, metav1.ConditionFalse, v1alpha1.ReasonWorkingDirectoryMissing,
			"the worktree is not there, and spec.suspend keeps hands off")
		return none, nil
	}
	r.Worktrees.Begin(api.KeyOf(s), want)
	// What was wrong a moment ago is so until the contrary is seen: a status that
	// changes at each try would be a write for nothing.
	if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.WorkspaceReady); c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != s.Generation {
		set(s, v1alpha1.WorkspaceReady, metav1.ConditionUnknown, v1alpha1.ReasonWorkspaceCreating,
			fmt.Sprintf("the worktree of branch %q is being made", want.Branch))
	}
	return none, nil // its end wakes the Session
}

// isRecorded tells whether a worktree of ours, which its mark proves, is the one
// in status. It is not when it was made anew and no pass lived to record that.
func (r *Reconciler) isRecorded(w *v1alpha1.WorkspaceStatus) bool {
	if !w.CreatedByController {
		return true
	}
	had, errHad := effects.ParseFileIdentity(string(w.Identity))
	got, errGot := r.Folders.Identify(w.Path)
	return errHad == nil && errGot == nil && had.Same(got)
}

// begunBefore is where a worktree is in the way that was begun for s when it had
// another target, and that no pass lived to record. Once it is in status it is
// given up like any other. One on the branch that is wanted was moved by hand.
func (r *Reconciler) begunBefore(s *v1alpha1.Session, made making, want effects.WantWorkspace) string {
	moved, ok := errors.AsType[*effects.WorktreeMovedError](made.err)
	if !ok || s.Status.Workspace != nil || made.want != want {
		return ""
	}
	if l, err := r.Worktrees.Look(moved.Path); err != nil || l.UID != want.UID || l.Branch == want.Branch {
		return ""
	}
	return moved.Path
}

// worktreeReason is what the errors of worktrees mean; each says itself what can
// be done.
func worktreeReason(err error) (reason, message string) {
	is := func(targets ...any) bool {
		for _, t := range targets {
			if errors.As(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case is(new(*effects.BranchCheckedOutElsewhereError)):
		reason = v1alpha1.ReasonBranchCheckedOutElsewhere
	case is(new(*effects.BranchInvalidError)):
		reason = v1alpha1.ReasonBranchInvalid
	case is(new(*effects.BaseNotFoundError)):
		reason = v1alpha1.ReasonBaseNotFound
	case is(new(*effects.PathNotEmptyError)):
		reason = v1alpha1.ReasonPathNotEmpty
	case is(new(*effects.RepoLockedError)):
		reason = v1alpha1.ReasonRepositoryLocked
	case is(new(*effects.LockedMissingError), new(*effects.DiskMissingError)):
		reason = v1alpha1.ReasonWorktreeMissing
	case is(new(*effects.WorktreeMovedError)):
		reason = v1alpha1.ReasonWorktreeMoved
	case is(new(*effects.RefCollisionError)):
		reason = v1alpha1.ReasonBranchCollision
	case is(new(*effects.CommandError), new(*effects.NotDoneError)):
		reason = v1alpha1.ReasonGitFailed
	case errors.Is(err, effects.ErrUnavailable):
		reason = v1alpha1.ReasonGitMissing
	case errors.Is(err, effects.ErrNotRepository):
		reason = v1alpha1.ReasonNotARepository
	case errors.Is(err, effects.ErrNotFound):
		reason = v1alpha1.ReasonRepositoryMissing
	case errors.Is(err, fs.ErrPermission):
		reason = v1alpha1.ReasonPermissionDenied
	default:
		reason = v1alpha1.ReasonWorkspaceFailed
	}
	return reason, clip(err.Error(), maxMessage)
}

// maxMessage is how long the message of a condition may be, less room for a word
// of ours.
const maxMessage = 32000

// workspaceReady says that the folder may be used.
func workspaceReady(s *v1alpha1.Session) {
	if w := s.Status.Workspace; w.CreatedByController {
		set(s, v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceCreated, "skc made "+w.Path)
	} else {
		set(s, v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceFound, w.Path+" is there")
	}
}

func reasonIs(s *v1alpha1.Session, condition, reason string) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, condition)
	return c != nil && c.Reason == reason
}
