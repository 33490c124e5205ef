package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"skc.dev/skc/effects"
)

// Look says what is at path, from git's files alone: it starts no process.
// effects.ErrNotFound when there is no worktree that its repository knows there.
func (g *Git) Look(path string) (effects.WorktreeLook, error) {
	var l effects.WorktreeLook
	path, err := canonical(path)
	if err != nil {
		return l, err
	}
	admin, err := adminOf(path)
	if err != nil {
		return l, err
	}
	back := ""
	if admin != "" {
		if back, err = registeredPath(admin); err != nil {
			return l, err
		}
	}
	if back != path {
		return l, fmt.Errorf("%q: %w: there is no worktree", path, effects.ErrNotFound)
	}
	m, _, ok, err := marked(path)
	if err != nil {
		return l, err
	}
	if ok {
		l.UID = m.UID
	}
	reason, err := lockReason(admin)
	if err != nil {
		return l, err
	}
	if uid, is := strings.CutPrefix(reason, making("")); is {
		l.UID, l.Making = uid, true
	}
	if l.Branch, err = branchOf(admin); err != nil {
		return l, err
	}
	l.Stamp, err = stampOf(path, admin, l.Branch)
	return l, err
}

// stampOf is a digest of when the files were changed that the answers of Safety
// come from, as far as a few looks can tell. What is below the worktree's top
// folder is not looked at.
func stampOf(path, admin, branch string) (string, error) {
	common := filepath.Dir(filepath.Dir(admin))
	refs := filepath.Join(common, "refs")
	looked := []string{
		path, filepath.Join(admin, "HEAD"), filepath.Join(admin, "index"), filepath.Join(admin, "logs", "HEAD"),
		filepath.Join(admin, "locked"), filepath.Join(admin, "index.lock"),
		filepath.Join(common, "packed-refs"), filepath.Join(common, "FETCH_HEAD"), filepath.Join(refs, "stash"), filepath.Join(common, heads, branch),
	}
	remotes, err := os.ReadDir(filepath.Join(refs, "remotes"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look at worktree: %w", err)
	}
	for _, r := range remotes {
		dir := filepath.Join(refs, "remotes", r.Name())
		looked = append(looked, dir, filepath.Join(dir, branch))
	}
	h := sha256.New()
	for _, file := range looked {
		fi, err := os.Lstat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			_, _ = fmt.Fprintln(h, "none")
		case err != nil:
			return "", fmt.Errorf("look at worktree: %w", err)
		case fi.IsDir():
			_, _ = fmt.Fprintln(h, fi.ModTime().UnixNano())
		default:
			_, _ = fmt.Fprintln(h, fi.ModTime().UnixNano(), fi.Size())
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// Head is the commit that the worktree at path is at; empty before the first.
func (g *Git) Head(ctx context.Context, path string) (string, error) {
	path, err := canonical(path)
	if err != nil {
		return "", err
	}
	admin, err := adminOf(path)
	if err != nil {
		return "", err
	}
	if admin == "" {
		return "", fmt.Errorf("%q: %w: there is no worktree", path, effects.ErrNotFound)
	}
	return g.headOf(ctx, admin)
}
