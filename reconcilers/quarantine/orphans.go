package quarantine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// candidate is something of ours that may have no owner.
type candidate struct {
	path, uid, what string
	worktree        *effects.OwnedWorktree
	repo            string
}

// name of the Quarantine of a candidate: the same at each look.
func (c candidate) name() string {
	identity := ""
	if c.worktree != nil {
		identity = c.worktree.Identity
	}
	sum := sha256.Sum256([]byte(c.path + "\x00" + c.uid + "\x00" + identity))
	return "orphan-" + hex.EncodeToString(sum[:8])
}

// Look looks at everything of ours in the world, and defines a Quarantine for
// each thing that has no owner. It is left where it is for the grace time; the
// Quarantine goes when its owner shows up, or it is gone itself. Nothing is called
// an orphan while an owner may be hidden, or when the look is not complete. Call
// it when the sources were read, and at each resync.
func (r *Reconciler) Look(ctx context.Context) error {
	if err := r.EnsureObjects(ctx); err != nil {
		return err
	}
	if err := r.Hidden(); err != nil {
		return fmt.Errorf("nothing is called an orphan: %w", err)
	}
	quarantines, err := r.Store.List(ctx)
	if err != nil {
		return fmt.Errorf("look for orphans: %w", err)
	}
	sessions, err := r.Sessions.List(ctx)
	if err != nil {
		return fmt.Errorf("look for orphans: %w", err)
	}
	found, err := r.candidates(ctx, sessions, quarantines)
	if err != nil {
		return fmt.Errorf("look for orphans: %w", err)
	}
	// The owners come after what they own: what was made meanwhile has its owner by
	// then.
	owners, err := r.owners(ctx)
	if err != nil {
		return fmt.Errorf("look for orphans: %w", err)
	}
	orphans := map[string]candidate{}
	for _, c := range found {
		if name := c.name(); !owners.have(c, name) {
			orphans[name] = c
		}
	}
	return errors.Join(r.report(ctx, orphans, owners), r.withdraw(ctx, orphans, owners))
}

// candidates is all of ours that is found.
func (r *Reconciler) candidates(ctx context.Context, sessions []*v1alpha1.Session, quarantines []*v1alpha1.Quarantine) (all []candidate, err error) {
	known, err := r.Repositories.List()
	if err != nil {
		return nil, err
	}
	repos, folders := map[string]bool{}, map[string]bool{}
	for _, repo := range known {
		repos[repo] = true
	}
	for _, s := range sessions {
		if w := s.Status.Workspace; w != nil {
			repos[w.Repo] = true
			folders[filepath.Dir(w.Path)] = true
		}
	}
	for _, q := range quarantines {
		repos[q.Spec.Origin.Repo] = true
		folders[filepath.Dir(q.Spec.Origin.Path)] = true
	}
	delete(repos, "")
	for _, repo := range slices.Sorted(maps.Keys(repos)) {
		owned, err := r.Worktrees.Owned(ctx, repo)
		if errors.Is(err, fs.ErrNotExist) {
			continue // without its repository, no worktree is known as ours
		}
		if err != nil {
			return nil, err
		}
		folders[worktreesFolder(repo)] = true
		for _, w := range owned {
			folders[filepath.Dir(w.Path)] = true
			all = append(all, candidate{path: w.Path, uid: w.UID, what: "worktree", worktree: &w, repo: repo})
		}
	}
	left, err := r.Leftovers.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		all = append(all, candidate{path: l.Path, uid: l.UID, what: l.What})
	}
	strays, err := r.Vault.Orphans(ctx, slices.Sorted(maps.Keys(folders)))
	if err != nil {
		return nil, err
	}
	for _, s := range strays {
		switch {
		case s.ID == "":
			all = append(all, candidate{path: s.Path, what: "thing in quarantine that no plan names"})
		case errors.Is(s.Err, effects.ErrNotFound): // a crash came before a plan's first line
			if err := r.Vault.Forget(ctx, s.ID); err != nil {
				return nil, err
			}
		} // of any other, its object tells what is wrong
	}
	return all, nil
}

// worktreesFolder is where worktrees of a repository go unless told.
func worktreesFolder(gitDir string) string {
	if filepath.Base(gitDir) == ".git" {
		gitDir = filepath.Dir(gitDir)
	}
	return strings.TrimSuffix(gitDir, ".git") + ".worktrees"
}

// owners is who may own something.
type owners struct {
	sessions    []*v1alpha1.Session
	quarantines []*v1alpha1.Quarantine
	plans       map[string]bool            // by ID
	claims      map[string]map[string]bool // by UID: names of the Quarantines that claim all that carries it
	moving      map[[2]string]bool         // UID and path of worktrees that are on the way into quarantine
}

func (r *Reconciler) owners(ctx context.Context) (o owners, err error) {
	if o.sessions, err = r.Sessions.List(ctx); err != nil {
		return o, err
	}
	if o.quarantines, err = r.Store.List(ctx); err != nil {
		return o, err
	}
	all, unreadable, err := r.Vault.List(ctx)
	if err != nil {
		return o, err
	}
	o.plans, o.claims, o.moving = map[string]bool{}, map[string]map[string]bool{}, map[[2]string]bool{}
	claim := func(uid, name string) {
		if uid == "" {
			return
		}
		if o.claims[uid] == nil {
			o.claims[uid] = map[string]bool{}
		}
		o.claims[uid][name] = true
	}
	for _, q := range o.quarantines {
		claim(q.Spec.Origin.Owner, q.Name)
		o.moves(q.Spec)
	}
	for _, k := range all {
		o.plans[k.ID] = true
		if spec, err := planned(k); err == nil {
			claim(spec.Origin.Owner, "plan/"+k.ID)
			o.moves(spec)
		}
	}
	for _, p := range unreadable {
		o.plans[p.ID] = true
	}
	return o, nil
}

// moves notes the worktree of a Session that is set aside: until it carries the
// mark of its Quarantine it has that of the Session.
func (o owners) moves(spec v1alpha1.QuarantineSpec) {
	if spec.Reason != v1alpha1.QuarantineOrphaned {
		o.moving[[2]string{spec.Origin.MarkedBy, spec.Origin.Path}] = true
	}
}

// have tells whether somebody other than the Quarantine of that name, which a
// look made for it, owns c. A Session that wants that very branch, or a worktree
// at that very place, may be its owner whose UID was lost: it says what is wrong.
func (o owners) have(c candidate, name string) bool {
	for claimant := range o.claims[c.uid] {
		if claimant != name && claimant != "plan/"+v1alpha1.DefaultNamespace+"."+name {
			return true
		}
	}
	for _, s := range o.sessions {
		if owns(s, c) || wants(s, c) {
			return true
		}
	}
	return c.worktree != nil && o.moving[[2]string{c.uid, c.path}]
}

// owns tells whether c carries the UID of s, and s has not left it behind.
func owns(s *v1alpha1.Session, c candidate) bool {
	return c.uid != "" && (string(s.UID) == c.uid || s.Annotations[v1alpha1.RestoredFromAnnotation] == c.uid) && !leftBehind(s, c)
}

// wants tells whether s asks for that worktree, or is in it.
func wants(s *v1alpha1.Session, c candidate) bool {
	t := s.Spec.Target.Worktree
	if c.worktree == nil {
		return false
	}
	if w := s.Status.Workspace; w != nil && w.Path == c.path {
		return true
	}
	if t == nil {
		return false
	}
	repo := filepath.Clean(string(t.Repo))
	return string(t.Path) == c.path || c.worktree.Branch == t.Branch && (filepath.Join(repo, ".git") == c.repo || repo == c.repo)
}

// leftBehind tells whether c is a worktree that was registered for s and that no
// status named, since its making failed: s got another target, and is in another
// folder by now.
func leftBehind(s *v1alpha1.Session, c candidate) bool {
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.WorkspaceReady)
	return c.worktree != nil && s.DeletionTimestamp == nil && s.Status.Workspace != nil && !wants(s, c) &&
		ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == s.Generation
}

// report defines the Quarantines of orphans that have none.
func (r *Reconciler) report(ctx context.Context, orphans map[string]candidate, o owners) error {
	there := map[string]bool{}
	for _, q := range o.quarantines {
		there[q.Namespace+"/"+q.Name] = true
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(orphans)) {
		c := orphans[name]
		if there[v1alpha1.DefaultNamespace+"/"+name] || o.plans[v1alpha1.DefaultNamespace+"."+name] {
			continue
		}
		q := newObject(api.Key{Kind: v1alpha1.KindQuarantine, Namespace: v1alpha1.DefaultNamespace, Name: name})
		if !utf8.ValidString(c.path) {
			r.once(name, func() {
				r.Recorder.Event(q, eventWarning, "Orphaned", fmt.Sprintf("a %s at %q has no owner, and its name is not text, so it is left to you", c.what, c.path))
			})
			continue
		}
		if err := r.orphan(ctx, q, c); errors.Is(err, effects.ErrNotFound) {
			continue // gone since
		} else if err != nil {
			errs = append(errs, fmt.Errorf("define a quarantine for %q: %w", c.path, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) orphan(ctx context.Context, q *v1alpha1.Quarantine, c candidate) error {
	id, folder, err := r.Vault.Identify(ctx, c.path)
	if err != nil {
		return err
	}
	q.Spec = v1alpha1.QuarantineSpec{
		Origin: v1alpha1.QuarantineOrigin{
			Type: v1alpha1.QuarantineFile, Path: c.path, Identity: v1alpha1.FileIdentity(id.String()), MarkedBy: c.uid, Owner: q.Name, Repo: c.repo,
		},
		Reason:      v1alpha1.QuarantineOrphaned,
		RequestedBy: "a look found it: a " + c.what,
		NotBefore:   &metav1.Time{Time: r.Clock.Now().Add(r.Grace).Truncate(time.Second)},
	}
	if folder {
		q.Spec.Origin.Type = v1alpha1.QuarantineFolder
	}
	if c.uid != "" {
		q.Spec.RequestedBy += " of session " + c.uid + ", which is no more, or has another workspace"
	}
	if w := c.worktree; w != nil {
		q.Spec.Origin.Type, q.Spec.Origin.Branch = v1alpha1.QuarantineWorktree, w.Branch
		if head, err := r.Worktrees.Head(ctx, c.path); err == nil {
			q.Spec.Origin.Head = head
		}
	}
	return r.Definitions.Create(ctx, q)
}

// withdraw takes away the Quarantines of things that turned out to have an owner,
// or that are gone, if nothing was done for them yet.
func (r *Reconciler) withdraw(ctx context.Context, orphans map[string]candidate, o owners) error {
	var errs []error
	for _, q := range o.quarantines {
		_, still := orphans[q.Name]
		still = still && q.Namespace == v1alpha1.DefaultNamespace
		if q.Spec.Reason != v1alpha1.QuarantineOrphaned || still || o.plans[ID(api.KeyOf(q))] || q.DeletionTimestamp != nil || !r.managed(q) {
			continue
		}
		errs = append(errs, r.recall(ctx, q, "its owner is there again, or it is gone itself"))
	}
	return errors.Join(errs...)
}

func (r *Reconciler) recall(ctx context.Context, q *v1alpha1.Quarantine, why string) error {
	if err := r.end(ctx, q); err != nil {
		return err
	}
	r.Recorder.Event(q, eventNormal, "Withdrawn", fmt.Sprintf("%q is left where it is: %s", q.Spec.Origin.Path, why))
	return nil
}

// once does f the first time that it is called with that name.
func (r *Reconciler) once(name string, f func()) {
	r.mu.Lock()
	done := r.told[name]
	if r.told == nil {
		r.told = map[string]bool{}
	}
	r.told[name] = true
	r.mu.Unlock()
	if !done {
		f()
	}
}

// left decides, before anything is begun, whether an orphan is to be left where
// it is: its grace is not over, or it turns out to be none.
func (r *Reconciler) left(ctx context.Context, q *v1alpha1.Quarantine) (wait bool, res controller.Result, err error) {
	o := q.Spec.Origin
	stays := func(reason, message string) { r.set(q, v1alpha1.SetAside, metav1.ConditionFalse, reason, message) }
	c := candidate{path: o.Path, uid: o.MarkedBy, repo: o.Repo}
	if o.Type == v1alpha1.QuarantineWorktree {
		look, err := r.Worktrees.Look(o.Path)
		c.worktree = &effects.OwnedWorktree{Path: o.Path, UID: look.UID, Branch: look.Branch}
		switch {
		case errors.Is(err, effects.ErrNotFound), err == nil && look.UID != o.MarkedBy && look.UID != o.Owner:
			// Only its mark said that it is ours.
			stays(v1alpha1.ReasonGone, fmt.Sprintf("no worktree at %q carries that mark any more", o.Path))
			return true, res, r.recall(ctx, q, "it carries that mark no more")
		case err != nil:
			return true, res, err
		}
		if q.Spec.Restore && q.Spec.RestoreTo == "" { // it never was away
			if err := r.Worktrees.Unmark(ctx, o.Path, look.UID); err != nil {
				return true, res, err
			}
			message := fmt.Sprintf("it is left at %q, and is yours from now on", o.Path)
			stays(v1alpha1.ReasonRestored, message)
			r.set(q, v1alpha1.Restored, metav1.ConditionTrue, v1alpha1.ReasonRestored, message)
			return true, res, r.end(ctx, q)
		}
	}
	if d := r.graceLeft(q); d > 0 && !q.Spec.Purge && !q.Spec.Restore {
		stays(v1alpha1.ReasonGracePeriod, fmt.Sprintf("it has no owner, and is left at %q in case that one comes back", o.Path))
		return true, controller.Result{RequeueAfter: d}, nil
	}
	if err := r.Hidden(); err != nil {
		stays(v1alpha1.ReasonGracePeriod, said("an owner may be hidden", err))
		return true, controller.Result{RequeueAfter: recheck}, nil
	}
	sessions, err := r.Sessions.List(ctx)
	if err != nil {
		return true, res, err
	}
	for _, s := range sessions {
		if owns(s, c) {
			stays(v1alpha1.ReasonGracePeriod, fmt.Sprintf("session %s owns it", s.Name))
			return true, res, r.recall(ctx, q, "session "+s.Name+" owns it")
		}
	}
	return false, res, nil
}

// grace is the observed time at which the grace of a generation is over.
type grace struct {
	generation int64
	over       time.Duration
}

// graceLeft is what is left of the grace, by time that was seen to go by since
// this process first saw the Quarantine: a clock that jumps ends none,
// nor does it prolong one by more than the grace.
func (r *Reconciler) graceLeft(q *v1alpha1.Quarantine) time.Duration {
	if q.Spec.NotBefore == nil {
		return 0
	}
	now, _ := r.Vault.Observe()
	r.mu.Lock()
	defer r.mu.Unlock()
	g, seen := r.grace[string(q.UID)]
	if !seen || g.generation != q.Generation {
		left := max(0, q.Spec.NotBefore.Sub(r.Clock.Now()))
		if q.Generation == 1 { // as it was written by us
			left = min(left, r.Grace)
		}
		if r.grace == nil {
			r.grace = map[string]grace{}
		}
		g = grace{q.Generation, now + left}
		r.grace[string(q.UID)] = g
	}
	return g.over - now
}
