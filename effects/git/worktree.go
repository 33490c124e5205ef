package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
)

var pointAdd = fault.New("git.worktree-add")

// EnsureWorktree makes the wanted worktree, or finds it, and returns when all
// its files are there. Called again, also after a crash at any point, it goes
// on where it was: the registration carries whose it is from its first moment.
//
// A branch that is missing is made, and taken back when the rest cannot be
// done. What is at the path already is never overwritten. A registration whose
// folder was removed by hand is dropped when it is in the way; one whose folder
// was moved is told where that is. Lock files of others are waited for, for
// LockWait, and stay.
//
// Errors are those of package effects: ErrNotFound and ErrNotRepository of the
// repository, and the types of worktrees.
func (g *Git) EnsureWorktree(ctx context.Context, want effects.WantWorktree) (effects.Worktree, error) {
	var none effects.Worktree
	if err := CheckBranch(want.Branch); err != nil {
		return none, err
	}
	if !uidPattern.MatchString(want.UID) {
		return none, fmt.Errorf("%q is no UID", want.UID)
	}
	if strings.ContainsRune(want.Base, 0) {
		return none, &effects.BaseNotFoundError{Base: want.Base}
	}
	repo, err := g.Open(ctx, want.Repo)
	if err != nil {
		return none, err
	}
	if want.Path, err = canonical(want.Path); err != nil {
		return none, err
	}
	var w effects.Worktree
	err = g.patiently(ctx, func() (err error) {
		w, err = g.ensure(ctx, repo, want)
		return err
	})
	if err != nil {
		return none, fmt.Errorf("worktree %q: %w", want.Path, err)
	}
	return w, nil
}

// patiently does it again while a lock file is in the way, for LockWait from
// the first time on. Nothing is held meanwhile.
func (g *Git) patiently(ctx context.Context, do func() error) error {
	var until time.Time
	for {
		err := do()
		if _, locked := errors.AsType[*effects.RepoLockedError](err); !locked {
			return err
		}
		now := g.o.Clock.Now()
		if until.IsZero() {
			until = now.Add(g.o.LockWait)
		}
		if !now.Before(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-g.o.Clock.After(100 * time.Millisecond):
		}
	}
}

func (g *Git) ensure(ctx context.Context, repo effects.Repository, want effects.WantWorktree) (effects.Worktree, error) {
	e, err := g.register(ctx, repo, want)
	if err != nil {
		return effects.Worktree{}, err
	}
	created := false
	if e.of(want.UID) { // files are written while others register
		if created, err = g.complete(ctx, e, want.UID); err != nil {
			return effects.Worktree{}, err
		}
	}
	w, err := g.describe(ctx, repo, e, want)
	w.Created = created
	return w, err
}

// register is all that writes into the repository: branch, entry and mark.
func (g *Git) register(ctx context.Context, repo effects.Repository, want effects.WantWorktree) (entry, error) {
	if m, admin, ok, err := marked(want.Path); err == nil && ok && m.UID == want.UID && sameFolder(filepath.Dir(filepath.Dir(admin)), repo.GitDir) {
		return entry{ListedWorktree: effects.ListedWorktree{Path: want.Path}, admin: admin, mark: m}, nil
	}
	hold, unlock, err := g.exclusive(ctx, repo.GitDir)
	if err != nil {
		return entry{}, err
	}
	defer unlock()
	all, err := g.entries(ctx, repo)
	if err != nil {
		return entry{}, err
	}
	for i, e := range all {
		if !e.of(want.UID) {
			continue
		}
		e, found, err := g.recover(ctx, hold, repo, e, want)
		if err != nil || found {
			return e, err
		}
		all = append(all[:i:i], all[i+1:]...)
		break
	}
	for _, e := range all {
		if e.Path == want.Path {
			if use, err := g.inTheWay(ctx, hold, repo, e, want); err != nil || use {
				return e, err
			}
		} else if e.Branch == heads+want.Branch {
			if err := g.freeBranch(ctx, hold, repo, e, want); err != nil {
				return entry{}, err
			}
		}
	}
	if err := free(repo, want.Path); err != nil {
		return entry{}, err
	}
	e, err := g.add(ctx, hold, repo, want)
	if err != nil {
		return entry{}, errors.Join(err, g.dropUnusedBranch(ctx, hold, repo, want))
	}
	return e, g.writeMark(e.admin, e.Path, want.UID, e.mark.Branch)
}

// recover brings a worktree of ours that git knows back into order. found is
// false when its folder is gone and it was forgotten.
func (g *Git) recover(ctx context.Context, hold *os.File, repo effects.Repository, e entry, want effects.WantWorktree) (_ entry, found bool, err error) {
	at, err := e.look()
	if err != nil {
		return e, false, err
	}
	switch at {
	case missing, occupied:
		to, err := e.movedTo(want.Path)
		switch {
		case err != nil:
			return e, false, err
		case to != "":
			if err := g.point(e.admin, to); err != nil {
				return e, false, err
			}
			e.Path = to
		case at == occupied && e.Path == want.Path:
			return e, false, &effects.PathNotEmptyError{Path: e.Path, What: "something that is not the worktree that was there"}
		default:
			return e, false, g.drop(ctx, hold, repo, e)
		}
	case unlinked:
		if err := g.relink(e); err != nil {
			return e, false, err
		}
	}
	if err := g.writeMark(e.admin, e.Path, want.UID, e.mark.Branch); err != nil {
		return e, false, err
	}
	if e.Path != want.Path {
		return e, false, &effects.WorktreeMovedError{Path: e.Path, Want: want.Path}
	}
	return e, true, nil
}

// inTheWay looks at a worktree of somebody else at the path. use: it is what is
// wanted.
func (g *Git) inTheWay(ctx context.Context, hold *os.File, repo effects.Repository, e entry, want effects.WantWorktree) (use bool, err error) {
	at, err := e.look()
	switch {
	case err != nil:
		return false, err
	case at == missing:
		return false, g.drop(ctx, hold, repo, e)
	case e.mark.UID != "":
		return false, &effects.PathNotEmptyError{Path: e.Path, What: "the worktree of session " + e.mark.UID, UID: e.mark.UID}
	case at == there && e.admin != "" && e.Branch == heads+want.Branch:
		return true, nil
	case at == there && e.Branch != "":
		return false, &effects.PathNotEmptyError{Path: e.Path, What: fmt.Sprintf("a worktree of branch %q", strings.TrimPrefix(e.Branch, heads))}
	case at == there:
		return false, &effects.PathNotEmptyError{Path: e.Path, What: "another worktree"}
	}
	return false, nil // something else is there, of which free says what
}

// freeBranch looks at a worktree elsewhere that has the branch. It is not in
// the way only when its folder is gone.
func (g *Git) freeBranch(ctx context.Context, hold *os.File, repo effects.Repository, e entry, want effects.WantWorktree) error {
	at, err := e.look()
	if err != nil {
		return err
	}
	if at == missing || at == occupied {
		to, err := e.movedTo(want.Path)
		if err != nil {
			return err
		}
		if to == "" {
			return g.drop(ctx, hold, repo, e)
		}
		e.Path = to
	}
	return &effects.BranchCheckedOutElsewhereError{Branch: want.Branch, Path: e.Path}
}

// free says what is at the path. Only nothing, or an empty folder, is free.
func free(repo effects.Repository, path string) error {
	taken := func(what string) error { return &effects.PathNotEmptyError{Path: path, What: what} }
	if path == repo.GitDir || strings.HasPrefix(path, repo.GitDir+"/") {
		return taken("the folder of git itself")
	}
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at path: %w", err)
	case fi.Mode()&fs.ModeSymlink != 0:
		return taken("a link")
	case !fi.IsDir():
		return taken("a file")
	}
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("look at path: %w", err)
	}
	defer func() { _ = d.Close() }()
	if names, _ := d.Readdirnames(1); len(names) > 0 {
		return taken("a folder that is not empty")
	}
	return nil
}

var checkedOutAt = regexp.MustCompile(`is already (?:checked out|used by worktree) at '((?s:.*))'`)

// add registers the worktree, without its files.
func (g *Git) add(ctx context.Context, hold *os.File, repo effects.Repository, want effects.WantWorktree) (entry, error) {
	head, err := g.resolve(ctx, repo, heads+want.Branch)
	if err != nil {
		return entry{}, err
	}
	if head == "" {
		if err := g.makeBranch(ctx, hold, repo, want); err != nil {
			return entry{}, err
		}
	}
	if err := pointAdd.At(fault.Before); err != nil {
		return entry{}, err
	}
	err = g.write(ctx, hold, "--git-dir="+repo.GitDir, "worktree", "add", "--no-checkout",
		"--lock", "--reason", making(want.UID), "--end-of-options", want.Path, want.Branch)
	if cmd, ok := errors.AsType[*effects.CommandError](err); ok {
		if m := checkedOutAt.FindStringSubmatch(cmd.Stderr); m != nil { // in a rebase or a bisect, which the list does not show
			return entry{}, &effects.BranchCheckedOutElsewhereError{Branch: want.Branch, Path: m[1]}
		}
	}
	if err != nil {
		return entry{}, err
	}
	if err := pointAdd.At(fault.During); err != nil {
		return entry{}, err
	}
	admin, err := adminOf(want.Path)
	if err != nil {
		return entry{}, err
	}
	e := entry{admin: admin, ListedWorktree: effects.ListedWorktree{Path: want.Path, Locked: true, LockReason: making(want.UID)}}
	if branch, err := branchOf(admin); err != nil || admin == "" || branch != want.Branch || !sameFolder(filepath.Dir(filepath.Dir(admin)), repo.GitDir) {
		return entry{}, errors.Join(&effects.NotDoneError{What: fmt.Sprintf("there is no worktree of branch %q at %q", want.Branch, want.Path)}, err)
	}
	return e, pointAdd.At(fault.After)
}

// describe is what is there now.
func (g *Git) describe(ctx context.Context, repo effects.Repository, e entry, want effects.WantWorktree) (effects.Worktree, error) {
	w := effects.Worktree{Path: e.Path, GitDir: e.admin, Ours: e.of(want.UID)}
	var err error
	if w.Branch, err = branchOf(e.admin); err != nil {
		return w, err
	}
	if w.Head, err = g.headOf(ctx, e.admin); err != nil {
		return w, err
	}
	if w.Identity, err = identityOf(e.Path); err != nil {
		return w, err
	}
	_, _, w.BranchCreated = branchMade(repo, want.Branch, want.UID)
	w.Submodules, err = exists(filepath.Join(e.Path, ".gitmodules"))
	return w, err
}
