package effects

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotRepository: there is something at the path, and it is no git repository.
var ErrNotRepository = errors.New("not a git repository")

// Repository is one git repository, found.
type Repository struct {
	Path string // as it was given, absolute
	// GitDir is the folder that all worktrees share: <clone>/.git, or the bare
	// repository itself.
	GitDir string
	// Identity of GitDir: device and inode.
	Identity string
}

// WantWorktree is a worktree that should be there.
type WantWorktree struct {
	Repo   string // path of the repository, or of a worktree of it; absolute
	Branch string // short name, as feat/x
	// Base is where a branch that is missing begins. Empty: at the branch of the
	// same name of a remote if there is one, else at the repository's HEAD.
	Base string
	Path string // absolute
	UID  string // whose it is
}

// Worktree is a worktree that is there, and whole.
type Worktree struct {
	Path   string // absolute, links resolved
	Branch string // what is checked out now: a short name, empty when HEAD is detached
	Head   string // commit of HEAD; empty before the first commit
	GitDir string // its own folder below the repository's: <common>/worktrees/<id>
	// Identity of Path: device and inode.
	Identity string
	// Ours is true when it carries our mark for this UID. One that somebody else
	// made of this branch at this path is used, and is not ours.
	Ours bool
	// Created: this call made it, or came to the end of making it.
	Created bool
	// BranchCreated: the branch was made for this UID, now or in an earlier call.
	BranchCreated bool
	// Submodules: it has submodules, whose folders are left empty.
	Submodules bool
}

// WorktreeLook is what the files of git say of one worktree.
type WorktreeLook struct {
	// UID whose it is, proved by its mark, or by the lock under which it is being
	// made; empty when it is nobody's.
	UID    string
	Making bool   // it is not whole yet
	Branch string // short name; empty when HEAD is detached
	// Stamp is another one after a commit, a fetch, a push, a stash, or when
	// something was staged.
	Stamp string
}

// WantWorkspace is a worktree as a Session wants it.
type WantWorkspace struct {
	WantWorktree // Path is empty for the default one
	// From is a UID that a worktree there may carry, which came back from
	// quarantine: it is taken over. Empty: none is.
	From string
	// Find asks for the one of UID that is there, whole or not, and makes none:
	// effects.ErrNotFound when there is none.
	Find bool
}

// Workspace is a worktree that a Session uses.
type Workspace struct {
	Worktree
	Repo     string       // folder of git that all worktrees share
	Identity FileIdentity // of Path
}

// ListedWorktree is one worktree as git lists it.
type ListedWorktree struct {
	Path     string // any bytes
	Head     string // empty for a bare repository; all zeros before the first commit
	Branch   string // full name of the ref; empty when detached or bare
	Bare     bool
	Detached bool
	Locked   bool
	// LockReason and PrunableReason are texts of people or of git.
	LockReason     string
	Prunable       bool
	PrunableReason string
}

// SafetyCheck is one thing that may be lost, or be in the way, when a worktree
// goes.
type SafetyCheck struct {
	Name  string // one of the constants of effects/git
	OK    bool
	Value string // what was found, for people
	Fix   string // what would turn it green; empty when it is
}

// SafetyReport is all checks of one worktree.
type SafetyReport struct{ Checks []SafetyCheck }

// Check is the one of that name; its zero value is not OK.
func (r SafetyReport) Check(name string) SafetyCheck {
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	return SafetyCheck{Name: name}
}

// The errors of worktrees. Each has a message that says what to do about it.
type (
	// BranchCheckedOutElsewhereError: git allows a branch in one worktree only.
	BranchCheckedOutElsewhereError struct{ Branch, Path string }
	// BranchInvalidError: git would not take this name for a branch.
	BranchInvalidError struct{ Branch, Why string }
	// BaseNotFoundError: there is no such commit to begin at.
	BaseNotFoundError struct {
		Base string // empty: the repository's HEAD
	}
	// PathNotEmptyError: something is where the worktree should be.
	PathNotEmptyError struct {
		Path, What string
		UID        string // whose worktree it is, when it is one of ours
	}
	// RepoLockedError: a lock file stays. It may be of a git that died; only a
	// person can know.
	RepoLockedError struct{ File string }
	// LockedMissingError: a locked worktree, so one that somebody wants to keep,
	// whose folder is away.
	LockedMissingError struct{ Path, Reason string }
	// DiskMissingError: the folder is away, and so is the file system it was on.
	DiskMissingError struct{ Path string }
	// WorktreeMovedError: our worktree is at Path and not where it should be.
	WorktreeMovedError struct{ Path, Want string }
	// RefCollisionError: a folder of refs and a ref cannot have one name.
	RefCollisionError struct{ Branch, Ref string }
	// CommandError: git ended with an error that has no type of its own.
	CommandError struct {
		Args   []string
		Stderr string // in full up to 64 KiB
		Cause  error  // what the system says about the end of git
	}
	// NotDoneError: git said that it was done, and it was not.
	NotDoneError struct{ What string }
)

func (e *BranchCheckedOutElsewhereError) Error() string {
	return fmt.Sprintf("branch %q is checked out at %q; switch that one to another branch, or choose another", e.Branch, e.Path)
}

func (e *BranchInvalidError) Error() string {
	return fmt.Sprintf("%q is no name for a branch: %s", e.Branch, e.Why)
}

func (e *BaseNotFoundError) Error() string {
	if e.Base == "" {
		return "the repository has no commit to begin a branch at; make a first commit, or set base"
	}
	return fmt.Sprintf("base %q names no commit of the repository; fetch it, or set another base", e.Base)
}

func (e *PathNotEmptyError) Error() string {
	return fmt.Sprintf("%q is taken by %s, which is left as it is; move it away, or choose another path", e.Path, e.What)
}

func (e *RepoLockedError) Error() string {
	return fmt.Sprintf("the repository is locked by %q; if no git runs there any more, remove that file", e.File)
}

func (e *LockedMissingError) Error() string {
	reason := ""
	if e.Reason != "" {
		reason = fmt.Sprintf(" (%s)", strings.TrimSpace(e.Reason))
	}
	return fmt.Sprintf("the worktree at %q is locked%s and its folder is missing; bring the folder back, or `git worktree unlock` it", e.Path, reason)
}

func (e *DiskMissingError) Error() string {
	return fmt.Sprintf("the worktree at %q is missing together with the file system it was on; mount it, or `git worktree remove` the entry", e.Path)
}

func (e *WorktreeMovedError) Error() string {
	return fmt.Sprintf("the worktree was moved to %q; move it back to %q, or set path to where it is", e.Path, e.Want)
}

func (e *RefCollisionError) Error() string {
	return fmt.Sprintf("branch %q cannot be made beside %q: one would be a folder of the other; choose another name", e.Branch, e.Ref)
}

func (e *CommandError) Error() string {
	text := strings.TrimSpace(e.Stderr)
	if text == "" {
		text = fmt.Sprint(e.Cause)
	}
	return fmt.Sprintf("git %s: %s", strings.Join(e.Args, " "), text)
}

func (e *CommandError) Unwrap() error { return e.Cause }

func (e *NotDoneError) Error() string {
	return fmt.Sprintf("git reported success, and %s; see which git is in the PATH", e.What)
}

// Safe tells whether nothing would be lost and nothing is in the way. Commits
// that no remote has do not count when equal patches are upstream.
func (r SafetyReport) Safe() bool {
	for _, c := range r.Checks {
		if !c.OK && (c.Name != "unpushed" || !r.Check("upstream").OK) {
			return false
		}
	}
	return len(r.Checks) > 0
}

// SafetyAsk is a workspace of which it is asked whether it can go without loss.
type SafetyAsk struct {
	UID      string // of the Session
	Path     string
	Worktree bool   // else a plain folder
	Stamp    string // of what the answer depends on; it comes back with it
}

// SafetyAnswer is what was found.
type SafetyAnswer struct {
	Report SafetyReport
	Head   string // commit that a worktree is at
}

// SetupResult is how the setup of a worktree ended.
type SetupResult struct {
	Ended     bool // it ran; else Message says why not
	ExitCode  int
	Signal    string // that ended it, as SIGKILL
	Message   string
	LastLines []string // of its output
}
