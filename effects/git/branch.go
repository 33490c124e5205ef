package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
)

var pointBranch = fault.New("git.branch")

const heads = "refs/heads/"

// CheckBranch says whether git takes name for a branch: what `git
// check-ref-format --branch` takes, without its abbreviations, and short enough
// for a file system.
func CheckBranch(name string) error {
	bad := func(why string) error { return &effects.BranchInvalidError{Branch: name, Why: why} }
	switch {
	case name == "":
		return bad("it is empty")
	case name == "HEAD", name == "@":
		return bad("git means something else by it")
	case name[0] == '-':
		return bad("it begins with a dash")
	case strings.HasSuffix(name, "."):
		return bad("it ends with a dot")
	case strings.Contains(name, ".."), strings.Contains(name, "@{"):
		return bad("it holds .. or @{")
	case len(name) > 1000:
		return bad("it is too long")
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c == 0x7f || strings.IndexByte("~^:?*[\\", c) >= 0 {
			return bad(fmt.Sprintf("it holds %q", c))
		}
	}
	for _, part := range strings.Split(name, "/") {
		switch {
		case part == "":
			return bad("one of its parts is empty")
		case part[0] == '.':
			return bad("one of its parts begins with a dot")
		case strings.HasSuffix(part, ".lock"):
			return bad("one of its parts ends with .lock")
		case len(part) > 240: // and .lock must fit behind it
			return bad("one of its parts is too long")
		}
	}
	return nil
}

// resolve is the commit that rev names; empty when there is none.
func (g *Git) resolve(ctx context.Context, repo effects.Repository, rev string) (string, error) {
	out, err := g.read(ctx, "--git-dir="+repo.GitDir, "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}")
	if cmd, ok := errors.AsType[*effects.CommandError](err); ok && onlyMissing(cmd) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	id := strings.TrimSuffix(string(out), "\n")
	if !isObjectID(id) {
		return "", &effects.NotDoneError{What: fmt.Sprintf("named no commit for %q", rev)}
	}
	return id, nil
}

// onlyMissing tells the end of a rev-parse --quiet that found nothing from one
// that could not look.
func onlyMissing(e *effects.CommandError) bool {
	s := strings.TrimSpace(e.Stderr)
	return s == "" || strings.Contains(s, "Needed a single revision") || strings.Contains(s, "expected commit type") ||
		strings.Contains(s, "ambiguous")
}

// base is where a new branch begins.
func (g *Git) base(ctx context.Context, repo effects.Repository, want effects.WantWorktree) (string, error) {
	rev := want.Base
	if rev == "" {
		rev = "HEAD"
		out, err := g.read(ctx, "--git-dir="+repo.GitDir, "for-each-ref", "--format=%(refname)", "--end-of-options", "refs/remotes/*/"+want.Branch)
		if err != nil {
			return "", err
		}
		refs := strings.Fields(string(out))
		for _, ref := range refs {
			if len(refs) == 1 || ref == "refs/remotes/origin/"+want.Branch {
				rev = ref
			}
		}
	}
	id, err := g.resolve(ctx, repo, rev)
	if err == nil && id == "" {
		err = &effects.BaseNotFoundError{Base: want.Base}
	}
	return id, err
}

var refInTheWay = regexp.MustCompile(`'(refs/[^']+)' exists; cannot create`)

// makeBranch makes the branch, which was not there a moment ago, and says in
// its reflog whose it is: a crash right after that leaves a branch that the
// next call knows. No upstream is set, so the config is not written.
func (g *Git) makeBranch(ctx context.Context, hold *os.File, repo effects.Repository, want effects.WantWorktree) error {
	id, err := g.base(ctx, repo, want)
	if err != nil {
		return err
	}
	if err := pointBranch.At(fault.Before); err != nil {
		return err
	}
	ref := heads + want.Branch
	// The last argument: it must not exist.
	err = g.write(ctx, hold, "--git-dir="+repo.GitDir, "update-ref", "--create-reflog", "-m", branchMark(want.UID), "--end-of-options", ref, id, "")
	if cmd, ok := errors.AsType[*effects.CommandError](err); ok {
		if m := refInTheWay.FindStringSubmatch(cmd.Stderr); m != nil {
			return &effects.RefCollisionError{Branch: want.Branch, Ref: strings.TrimPrefix(m[1], heads)}
		}
	}
	if err != nil {
		return err
	}
	if err := pointBranch.At(fault.During); err != nil {
		return err
	}
	if got, err := g.resolve(ctx, repo, ref); err != nil {
		return err
	} else if got != id {
		return &effects.NotDoneError{What: fmt.Sprintf("branch %q is not there", want.Branch)}
	}
	return pointBranch.At(fault.After)
}

func branchMark(uid string) string { return "skc: made for session " + uid }

// branchMade reads from its reflog whether a branch was made for uid, and at
// which commit. unused: nothing happened to it since.
func branchMade(repo effects.Repository, branch, uid string) (at string, unused, made bool) {
	f, err := os.Open(filepath.Join(repo.GitDir, "logs", heads, branch))
	if err != nil {
		return "", false, false // no reflog: not known as ours
	}
	defer func() { _ = f.Close() }()
	head, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", false, false
	}
	line, rest, whole := strings.Cut(string(head), "\n")
	who, message, _ := strings.Cut(line, "\t")
	ids := strings.SplitN(who, " ", 3)
	if !whole || message != branchMark(uid) || len(ids) < 2 || strings.Trim(ids[0], "0") != "" || !isObjectID(ids[1]) {
		return "", false, false
	}
	return ids[1], rest == "", true
}

// dropUnusedBranch takes back a branch that was made for uid and that nobody
// has used: it is where it began, and in no worktree.
func (g *Git) dropUnusedBranch(ctx context.Context, hold *os.File, repo effects.Repository, want effects.WantWorktree) error {
	at, unused, made := branchMade(repo, want.Branch, want.UID)
	if !made || !unused {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // also after the time of the call is over
	defer cancel()
	all, err := g.entries(ctx, repo)
	if err != nil {
		return fmt.Errorf("take back branch %q: %w", want.Branch, err)
	}
	for _, e := range all {
		if e.Branch == heads+want.Branch {
			return nil
		}
	}
	// A branch that moved on in this moment is not at this commit any more, and stays.
	err = g.write(ctx, hold, "--git-dir="+repo.GitDir, "update-ref", "-d", "--end-of-options", heads+want.Branch, at)
	if err != nil {
		return fmt.Errorf("take back branch %q: %w", want.Branch, err)
	}
	return nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
