package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
)

var (
	pointLock   = fault.New("git.lock")
	pointUnlock = fault.New("git.unlock")
	pointDetach = fault.New("git.detach")
	pointAttach = fault.New("git.attach")
)

// setAside begins the reason with which a worktree in quarantine is locked.
const setAside = "skc: set aside: "

func quarantineRef(uid string) string { return "refs/skc/quarantine/" + uid }

// BeforeMove makes the worktree at path, which is uid's, safe to be moved and
// kept elsewhere. It is locked with the reason, so that neither gc nor prune
// takes its registration while its folder is on the way, and after. Its commit
// gets a ref. Its HEAD is detached: so its branch can be used by another
// worktree while this one is set aside; the mark remembers the branch. Nothing
// below path is changed. Called again it does what is left to do.
func (g *Git) BeforeMove(ctx context.Context, path, uid, reason string) error {
	return g.moving(ctx, path, uid, "prepare to move", func(hold *os.File, m mark, admin string) error {
		at, err := lockReason(admin)
		if err != nil {
			return err
		}
		if at == "" {
			if err := g.lock(ctx, hold, admin, path, setAside+oneLine(reason)); err != nil {
				return err
			}
		}
		head, err := g.headOf(ctx, admin)
		if err != nil || head == "" { // no commit: nothing to keep, and nothing to detach at
			return err
		}
		// With --git-dir of the worktree, refs/ are those of the repository.
		if err := g.write(ctx, hold, "--git-dir="+admin, "update-ref", "-m", "skc: set aside", "--end-of-options", quarantineRef(uid), head); err != nil {
			return err
		}
		branch, err := branchOf(admin)
		if err != nil || branch == "" {
			return err
		}
		if err := g.writeMark(admin, path, uid, branch); err != nil {
			return err
		}
		if err := pointDetach.At(fault.Before); err != nil {
			return err
		}
		if err := g.write(ctx, hold, "--git-dir="+admin, "update-ref", "--no-deref", "-m", "skc: set aside", "--end-of-options", "HEAD", head); err != nil {
			return err
		}
		if err := pointDetach.At(fault.During); err != nil {
			return err
		}
		if b, err := branchOf(admin); err != nil || b != "" {
			return errors.Join(&effects.NotDoneError{What: fmt.Sprintf("HEAD of %q is still on branch %q", path, branch)}, err)
		}
		return pointDetach.At(fault.After)
	})
}

// AfterMove tells git that the worktree is at path now, to which it was moved.
// Nothing below path is changed; git's links between submodules and their
// repositories lead nowhere until AfterRestore.
func (g *Git) AfterMove(ctx context.Context, path, uid string) error {
	return g.moving(ctx, path, uid, "register", func(*os.File, mark, string) error { return nil })
}

// AfterRestore ends what BeforeMove began, at the path where the worktree is
// now. HEAD goes back to its branch if that is where HEAD is, and free; branch
// is what is checked out afterwards, empty when HEAD stays detached. A lock of
// somebody else stays.
func (g *Git) AfterRestore(ctx context.Context, path, uid string) (branch string, err error) {
	err = g.moving(ctx, path, uid, "restore", func(hold *os.File, m mark, admin string) error {
		path, err := registeredPath(admin)
		if err != nil {
			return err
		}
		if err := g.relinkSubmodules(ctx, hold, admin, path); err != nil {
			return fmt.Errorf("link submodules: %w", err)
		}
		if m.Branch != "" {
			if err := g.attach(ctx, hold, admin, m.Branch); err != nil {
				return err
			}
		}
		if branch, err = branchOf(admin); err != nil {
			return err
		}
		head, err := g.headOf(ctx, admin)
		if err != nil {
			return err
		}
		if err := g.release(ctx, hold, admin, uid, head); err != nil {
			return err
		}
		if err := g.writeMark(admin, path, uid, ""); err != nil {
			return err
		}
		if reason, err := lockReason(admin); err != nil || !strings.HasPrefix(reason, setAside) {
			return err
		}
		return g.unlock(ctx, hold, admin, path)
	})
	return branch, err
}

// AfterPurge makes git forget uid's worktree, whose folder was purged from
// path. The commit that it was at keeps its ref when no other ref holds it. One
// that git does not know is a success.
func (g *Git) AfterPurge(ctx context.Context, repo effects.Repository, path, uid string) error {
	path, err := canonical(path)
	if err != nil {
		return err
	}
	err = g.patiently(ctx, func() error {
		hold, unlock, err := g.exclusive(ctx, repo.GitDir)
		if err != nil {
			return err
		}
		defer unlock()
		all, err := g.entries(ctx, repo)
		if err != nil {
			return err
		}
		for _, e := range all {
			if !e.of(uid) || e.Path != path {
				continue
			}
			if at, err := e.look(); err != nil {
				return err
			} else if at == there || at == unlinked {
				return fmt.Errorf("%q: %w: it is still there", path, effects.ErrConflict)
			}
			if e.Locked { // by whom ever: what it was to keep is gone
				if err := g.unlock(ctx, hold, repo.GitDir, path); err != nil {
					return err
				}
				e.Locked = false
			}
			if err := g.drop(ctx, hold, repo, e); err != nil {
				return err
			}
		}
		return g.release(ctx, hold, repo.GitDir, uid, "")
	})
	if err != nil {
		return fmt.Errorf("forget worktree: %w", err)
	}
	return nil
}

// moving does one step for uid's worktree at path, as its repository's only
// writer, after it told git that this is where it is.
func (g *Git) moving(ctx context.Context, path, uid, what string, do func(hold *os.File, m mark, admin string) error) error {
	path, err := canonical(path)
	if err != nil {
		return err
	}
	err = g.patiently(ctx, func() error {
		admin, err := adminOf(path)
		if err != nil {
			return err
		}
		if admin == "" {
			return fmt.Errorf("%w: there is no worktree", effects.ErrNotFound)
		}
		hold, unlock, err := g.exclusive(ctx, filepath.Dir(filepath.Dir(admin)))
		if err != nil {
			return err
		}
		defer unlock()
		m, err := readMark(admin)
		if err != nil {
			return err
		}
		id, err := identityOf(path)
		if err != nil {
			return err
		}
		if m.UID != uid || inode(m.Identity) != inode(id) {
			return fmt.Errorf("%w: it is not the worktree of session %s", effects.ErrConflict, uid)
		}
		if err := g.point(admin, path); err != nil {
			return err
		}
		if err := g.writeMark(admin, path, uid, m.Branch); err != nil {
			return err
		}
		return do(hold, m, admin)
	})
	if err != nil {
		return fmt.Errorf("%s %q: %w", what, path, err)
	}
	return nil
}

// attach puts HEAD back on the branch, when that changes no commit and the
// branch is in no other worktree.
func (g *Git) attach(ctx context.Context, hold *os.File, admin, branch string) error {
	repo := effects.Repository{GitDir: filepath.Dir(filepath.Dir(admin))}
	now, err := branchOf(admin)
	if err != nil || now != "" {
		return err
	}
	head, err := g.headOf(ctx, admin)
	if err != nil {
		return err
	}
	tip, err := g.resolve(ctx, repo, heads+branch)
	if err != nil || tip != head {
		return err
	}
	all, err := g.entries(ctx, repo)
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.Branch == heads+branch {
			return nil
		}
	}
	if err := pointAttach.At(fault.Before); err != nil {
		return err
	}
	if err := g.write(ctx, hold, "--git-dir="+admin, "symbolic-ref", "-m", "skc: restored", "HEAD", heads+branch); err != nil {
		return err
	}
	if err := pointAttach.At(fault.During); err != nil {
		return err
	}
	if now, err := branchOf(admin); err != nil || now != branch {
		return errors.Join(&effects.NotDoneError{What: fmt.Sprintf("HEAD is not on branch %q", branch)}, err)
	}
	return pointAttach.At(fault.After)
}

// release removes the ref of a worktree that was set aside, when head or another
// ref holds its commit.
func (g *Git) release(ctx context.Context, hold *os.File, gitDir, uid, head string) error {
	ref := quarantineRef(uid)
	commit, err := g.resolve(ctx, effects.Repository{GitDir: gitDir}, ref)
	if err != nil || commit == "" {
		return err
	}
	if commit != head {
		held, err := g.read(ctx, "--git-dir="+gitDir, "for-each-ref", "--count=2", "--contains="+commit, "--format=%(refname)")
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(held)) == ref {
			return nil // the only one
		}
	}
	return g.write(ctx, hold, "--git-dir="+gitDir, "update-ref", "-d", "--end-of-options", ref, commit)
}

func (g *Git) lock(ctx context.Context, hold *os.File, admin, path, reason string) error {
	if err := pointLock.At(fault.Before); err != nil {
		return err
	}
	if err := g.write(ctx, hold, "--git-dir="+admin, "worktree", "lock", "--reason", reason, "--end-of-options", path); err != nil {
		return err
	}
	if err := pointLock.At(fault.During); err != nil {
		return err
	}
	if now, err := lockReason(admin); err != nil || now == "" {
		return errors.Join(&effects.NotDoneError{What: fmt.Sprintf("the worktree at %q is not locked", path)}, err)
	}
	return pointLock.At(fault.After)
}

// unlock takes the lock from the worktree at path. gitDir is any folder of git
// of the repository.
func (g *Git) unlock(ctx context.Context, hold *os.File, gitDir, path string) error {
	if err := pointUnlock.At(fault.Before); err != nil {
		return err
	}
	if err := g.write(ctx, hold, "--git-dir="+gitDir, "worktree", "unlock", "--end-of-options", path); err != nil {
		return err
	}
	if err := pointUnlock.At(fault.During); err != nil {
		return err
	}
	return pointUnlock.At(fault.After)
}

// headOf is the commit of a worktree's HEAD; empty before the first one.
func (g *Git) headOf(ctx context.Context, admin string) (string, error) {
	return g.resolve(ctx, effects.Repository{GitDir: admin}, "HEAD")
}

// oneLine makes a text fit for the list of worktrees.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
