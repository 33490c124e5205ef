// Package git does what skc needs of git, and decides nothing: it makes, finds
// and marks worktrees, keeps their registration true when their folder moves,
// and says what would be lost with one. It never forces, never deletes a folder
// of files, a lock file, or a branch that holds anything new.
//
// git runs without its hooks, without the environment of whoever started us,
// and with a time limit. What git itself needs to make a file's bytes, a
// content filter such as LFS or the fetch of a partial clone, does run.
//
// One writer at a time works on a repository. Two things of git are done here
// directly, because its commands do more than is wanted: `git worktree repair`
// rewrites the .git files of all worktrees, also of a foreign tree that stands
// where one was; `git worktree remove` deletes a folder that came back in the
// meantime; `git worktree prune` takes all entries and not one.
package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
)

// Options of New. The zero value of each but Files has a default.
type Options struct {
	Git   string       // the program; default git, from PATH
	Files *files.Layer // writes marks
	Clock clock.Clock
	// LockWait is how long a lock file of somebody else is waited for (5 s).
	LockWait time.Duration
	// Timeout ends one command (1 min), CheckoutTimeout one that writes the files
	// of a tree (30 min).
	Timeout, CheckoutTimeout time.Duration
}

// Git runs git. Its methods may be called at the same time.
type Git struct {
	o       Options
	writers keyed
}

// New makes a Git. effects.ErrUnavailable when there is no git.
func New(o Options) (*Git, error) {
	if o.Git == "" {
		o.Git = "git"
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.LockWait == 0 {
		o.LockWait = 5 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.CheckoutTimeout == 0 {
		o.CheckoutTimeout = 30 * time.Minute
	}
	path, err := exec.LookPath(o.Git)
	if err != nil {
		return nil, fmt.Errorf("find git: %w: %w", effects.ErrUnavailable, err)
	}
	o.Git = path
	return &Git{o: o, writers: keyed{held: map[string]chan struct{}{}}}, nil
}

// Open finds the repository at path: a clone, a bare one, or a worktree of one.
// A folder below the top of a clone is none. effects.ErrNotFound when nothing
// is there, effects.ErrNotRepository when something else is.
func (g *Git) Open(ctx context.Context, path string) (effects.Repository, error) {
	var none effects.Repository
	if !filepath.IsAbs(path) {
		return none, fmt.Errorf("open repository %q: the path is not absolute", path)
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return none, fmt.Errorf("repository %q: %w", path, effects.ErrNotFound)
	} else if err != nil {
		return none, fmt.Errorf("open repository: %w", err)
	}
	if fi, err := os.Stat(real); err != nil {
		return none, fmt.Errorf("open repository: %w", err)
	} else if !fi.IsDir() {
		return none, fmt.Errorf("%q: %w", path, effects.ErrNotRepository)
	}
	out, err := g.read(ctx, "-C", real, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if cmd, ok := errors.AsType[*effects.CommandError](err); ok && strings.Contains(cmd.Stderr, "not a git repository") {
		return none, fmt.Errorf("%q: %w", path, effects.ErrNotRepository)
	} else if err != nil {
		return none, fmt.Errorf("open repository %q: %w", path, err)
	}
	gitDir, ok := strings.CutSuffix(string(out), "\n")
	if !ok || !filepath.IsAbs(gitDir) {
		return none, fmt.Errorf("open repository %q: %w", path, &effects.NotDoneError{What: "named no folder of the repository"})
	}
	id, err := files.Identity(gitDir, true)
	if err != nil {
		return none, fmt.Errorf("open repository %q: %w", path, err)
	}
	return effects.Repository{Path: filepath.Clean(path), GitDir: gitDir, Identity: id}, nil
}

// DefaultPath is where a worktree of branch goes unless told: beside the
// clone, in <its name>.worktrees.
func DefaultPath(repo effects.Repository, branch string) string {
	top := repo.GitDir
	if filepath.Base(top) == ".git" {
		top = filepath.Dir(top)
	}
	name := strings.TrimSuffix(filepath.Base(top), ".git")
	return filepath.Join(filepath.Dir(top), name+".worktrees", folderName(branch))
}

// folderName is the branch as the name of one folder. What has to change more
// than its slashes gets a digest, so that no two branches that differ in other
// signs meet.
func folderName(branch string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_.+=,@", r):
			return r
		case r == '/':
			return '-'
		}
		return '_'
	}, branch)
	if name == strings.ReplaceAll(branch, "/", "-") && len(name) <= 100 {
		return name
	}
	sum := sha256.Sum256([]byte(branch))
	return name[:min(len(name), 80)] + "-" + hex.EncodeToString(sum[:4])
}
