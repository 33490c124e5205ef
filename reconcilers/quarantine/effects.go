package quarantine

import (
	"context"
	"time"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// Store is what this package needs of the objects.
type Store interface {
	// Get returns a private copy, or an error matching effects.ErrNotFound.
	Get(ctx context.Context, key api.Key) (*v1alpha1.Quarantine, error)
	// List is all of them.
	List(ctx context.Context) ([]*v1alpha1.Quarantine, error)
	// Update writes finalizers and status of after, if they differ from before's; an
	// object that changed since before was read is effects.ErrConflict.
	Update(ctx context.Context, before, after *v1alpha1.Quarantine) error
}

// Sessions are looked at only.
type Sessions interface {
	Get(ctx context.Context, key api.Key) (*v1alpha1.Session, error)
	List(ctx context.Context) ([]*v1alpha1.Session, error)
}

// Definitions are the files that define what skc itself asks for. Each call is
// durable, and may be made again.
type Definitions interface {
	// Holds tells whether the file is one of them.
	Holds(file string) bool
	// Create defines the object; one that is defined already is a success.
	Create(ctx context.Context, o api.Object) error
	// CreateFrom is Create of an object as JSON.
	CreateFrom(ctx context.Context, definition []byte) error
	// Edit changes the spec of a definition that is there.
	Edit(ctx context.Context, key api.Key, change func(spec map[string]any) error) error
	// Remove takes a definition away; one that is gone is a success.
	Remove(ctx context.Context, key api.Key) error
}

// Vault moves things aside and back, each by one rename, and keeps a plan of
// each: the truth about where it is. Calls for one ID wait for each other. The
// errors are those of package effects.
type Vault interface {
	// Get reads a plan; effects.ErrNotFound when there is none.
	Get(id string) (effects.Kept, error)
	// List is all plans, and those that cannot be read.
	List(ctx context.Context) (all []effects.Kept, unreadable []effects.Stray, err error)
	// Check looks whether a thing is where its plan says.
	Check(ctx context.Context, id string) error
	// Identify tells what is at a path.
	Identify(ctx context.Context, path string) (id effects.FileIdentity, folder bool, err error)
	// SetAside, Restore and Purge go on where an earlier call ended, and succeed
	// when it is done already.
	SetAside(ctx context.Context, a effects.SetAside) (effects.Kept, error)
	Restore(ctx context.Context, id, to string) (effects.Kept, error)
	Purge(ctx context.Context, id string) (effects.Kept, error)
	// Inventory counts what is kept.
	Inventory(ctx context.Context, id string) (effects.Kept, error)
	// Forget removes the plan of a thing that is not kept any more, or is lost;
	// effects.ErrConflict for any other, success without one.
	Forget(ctx context.Context, id string) error
	// Observe counts time and returns all that was seen to go by.
	Observe() (time.Duration, error)
	// Orphans is what does not fit together, after a complete look.
	Orphans(ctx context.Context, folders []string) ([]effects.Stray, error)
}

// Worktrees tells git what becomes of a worktree. The errors are those of
// package effects; effects.ErrConflict when the worktree is another's.
type Worktrees interface {
	// Look says what git's files say of a worktree; effects.ErrNotFound when its
	// repository knows none there.
	Look(path string) (effects.WorktreeLook, error)
	// Head is the commit that it is at.
	Head(ctx context.Context, path string) (string, error)
	// Safety says what of it is nowhere else.
	Safety(ctx context.Context, path string) (effects.SafetyReport, error)
	Transfer(ctx context.Context, path, from, to string) error
	Unmark(ctx context.Context, path, uid string) error
	BeforeMove(ctx context.Context, path, uid, reason string) error
	AfterMove(ctx context.Context, path, uid string) error
	AfterRestore(ctx context.Context, path, uid string) (branch string, err error)
	// AfterPurge forgets uid's worktree, whose folder is gone from path, and keeps
	// its commits.
	AfterPurge(ctx context.Context, repo effects.Repository, path, uid string) error
	Open(ctx context.Context, path string) (effects.Repository, error)
	List(ctx context.Context, repo effects.Repository) ([]effects.ListedWorktree, error)
	// Owned is all worktrees of a repository that carry our mark; fs.ErrNotExist
	// when it is gone.
	Owned(ctx context.Context, gitDir string) ([]effects.OwnedWorktree, error)
}

// Repositories are those in which a worktree was ever made, by their folders of
// git.
type Repositories interface{ List() ([]string, error) }

// Leftovers are the files of ours that have no user any more, if no Session has
// their UID.
type Leftovers interface {
	List(ctx context.Context) ([]effects.Leftover, error)
}

// Worker does one kind of work beside the passes, since it takes as long as a
// thing is large: one piece a key, with a pass asked for after each.
type Worker interface {
	// Begin does nothing while other work of the key is under way, or its result
	// was not taken.
	Begin(key api.Key)
	// Ended hands over the result of the work that ended, once. running tells that
	// there will be one.
	Ended(key api.Key) (ended, running bool, failed error)
	// Stop tells the work of key to end.
	Stop(key api.Key)
}

// Recorder keeps events for people.
type Recorder interface {
	Event(obj api.Object, eventType, reason, message string)
}
