package workspace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"skc.dev/skc/api"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/background"
	"skc.dev/skc/effects/git"
)

// atOnce is how many worktrees are made at the same time. Those of one
// repository wait for each other for a moment only: their files are written at
// the same time.
const atOnce = 32

// Worktrees makes worktrees beside the passes, and looks at them. Its methods
// may be called at the same time; none but Close waits for a git.
type Worktrees struct {
	// Remember, when it is set, is told of each repository, by its folder of git,
	// before a worktree is made there. It is set before the first use.
	Remember func(gitDir string) error

	open   func() (*git.Git, error)
	runner *background.Runner[effects.WantWorkspace, effects.Workspace]

	mu  sync.Mutex
	git *git.Git
}

// NewWorktrees makes Worktrees that open a git when they first need one, and
// again until there is one. ended is called after each making.
func NewWorktrees(open func() (*git.Git, error), ended func(api.Key)) *Worktrees {
	w := &Worktrees{open: open}
	w.runner = background.New(atOnce, func(ctx context.Context, _ api.Key, want effects.WantWorkspace) (effects.Workspace, error) {
		return w.ensure(ctx, want)
	}, ended)
	return w
}

// Git is the git that is used; effects.ErrUnavailable when there is none.
func (w *Worktrees) Git() (*git.Git, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.git == nil {
		g, err := w.open()
		if err != nil {
			return nil, err
		}
		w.git = g
	}
	return w.git, nil
}

// Begin has the worktree made, or found. While one of key is under way, or its
// end was not asked for, it does nothing.
func (w *Worktrees) Begin(key api.Key, want effects.WantWorkspace) { w.runner.Begin(key, want) }

// Ended hands over, once, what became of what Begin began: nil when there is
// nothing. The errors are those of git.EnsureWorktree. running tells that it is
// under way.
func (w *Worktrees) Ended(key api.Key) (want effects.WantWorkspace, got *effects.Workspace, err error, running bool) {
	r, running := w.runner.Ended(key)
	if r == nil {
		return want, nil, nil, running
	}
	if r.Err != nil {
		return r.In, nil, r.Err, false
	}
	return r.In, &r.Out, nil, false
}

// Stop ends what is under way for key; the next Begin goes on where it was.
func (w *Worktrees) Stop(key api.Key) { w.runner.Stop(key) }

// Running is how many are being made.
func (w *Worktrees) Running() int { return w.runner.Running() }

// Close ends all work and returns when the last has.
func (w *Worktrees) Close() { w.runner.Close() }

func (w *Worktrees) ensure(ctx context.Context, want effects.WantWorkspace) (effects.Workspace, error) {
	var none effects.Workspace
	g, err := w.Git()
	if err != nil {
		return none, err
	}
	repo, err := g.Open(ctx, want.Repo)
	if err != nil {
		return none, err
	}
	if want.Path == "" {
		want.Path = git.DefaultPath(repo, want.Branch)
	}
	if !utf8.ValidString(want.Path) || !utf8.ValidString(repo.GitDir) { // a status could not hold it
		return none, fmt.Errorf("the path of the worktree or of its repository is no UTF-8")
	}
	if want.From != "" {
		if l, err := g.Look(want.Path); err == nil && l.UID == want.From {
			if err := g.Transfer(ctx, want.Path, want.From, want.UID); err != nil {
				return none, err
			}
		} else if err != nil && !errors.Is(err, effects.ErrNotFound) {
			return none, err
		}
	}
	if want.Find {
		if w, err := find(ctx, g, repo, want); err != nil || w.Path != "" {
			return w, err
		}
	}
	if w.Remember != nil {
		if err := w.Remember(repo.GitDir); err != nil {
			return none, err
		}
	}
	made, err := g.EnsureWorktree(ctx, want.WantWorktree)
	if err != nil {
		return none, err
	}
	id, err := Folders{}.Identify(made.Path)
	return effects.Workspace{Worktree: made, Repo: repo.GitDir, Identity: id}, err
}

// find is uid's worktree at the path, whole or not. The zero value: the path has
// one that is registered and not marked yet, which has to be made whole first.
func find(ctx context.Context, g *git.Git, repo effects.Repository, want effects.WantWorkspace) (effects.Workspace, error) {
	var none effects.Workspace
	l, err := g.Look(want.Path)
	if err != nil {
		return none, err
	}
	if l.UID != want.UID {
		return none, fmt.Errorf("%q: %w: there is no worktree of session %s", want.Path, effects.ErrNotFound, want.UID)
	}
	if _, ok, err := g.Marked(ctx, want.Path); err != nil || !ok {
		return none, err
	}
	path := Folders{}.Resolve(want.Path)
	head, err := g.Head(ctx, path)
	if err != nil {
		return none, err
	}
	id, err := Folders{}.Identify(path)
	return effects.Workspace{Worktree: effects.Worktree{Path: path, Branch: l.Branch, Head: head, Ours: true}, Repo: repo.GitDir, Identity: id}, err
}

// Look says what is at path, and runs no git.
func (w *Worktrees) Look(path string) (effects.WorktreeLook, error) {
	g, err := w.Git()
	if err != nil {
		return effects.WorktreeLook{}, err
	}
	return g.Look(path)
}

// Unmark makes the worktree at path, which is uid's, nobody's.
func (w *Worktrees) Unmark(ctx context.Context, path, uid string) error {
	g, err := w.Git()
	if err != nil {
		return err
	}
	return g.Unmark(ctx, path, uid)
}

// Place is where a worktree is unless told; repo is the folder of git.
func (w *Worktrees) Place(repo, branch string) string {
	return git.DefaultPath(effects.Repository{GitDir: repo}, branch)
}
