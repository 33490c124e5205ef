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
	"slices"
	"strconv"
	"strings"
	"sync"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var pointRemember = fault.New("git.remember")

// Owned is all worktrees of the repository that are ours (see Marked), and those
// that we were making, whose folders are where git believes them. It runs no
// git. An error means that the list is not complete; a repository that is gone
// is an error matching fs.ErrNotExist.
func (g *Git) Owned(ctx context.Context, gitDir string) ([]effects.OwnedWorktree, error) {
	if _, err := os.Stat(gitDir); err != nil {
		return nil, fmt.Errorf("look for our worktrees: %w", err)
	}
	dir := filepath.Join(gitDir, "worktrees")
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for our worktrees: %w", err)
	}
	var all []effects.OwnedWorktree
	for _, d := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		w, ok, err := owned(filepath.Join(dir, d.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went while it was looked at
		}
		if err != nil {
			return nil, fmt.Errorf("look for our worktrees: %w", err)
		}
		if ok {
			all = append(all, w)
		}
	}
	return all, nil
}

// owned looks at one worktree by its own folder of git.
func owned(admin string) (w effects.OwnedWorktree, ok bool, err error) {
	if w.Path, err = registeredPath(admin); err != nil || w.Path == "" {
		return w, false, err
	}
	m, back, ok, err := marked(w.Path)
	if err != nil {
		return w, false, err
	}
	switch {
	case ok && sameFolder(back, admin):
		w.UID = m.UID
	case ok:
		return w, false, nil // what is there is of another registration
	default: // without its mark, a crash came before that
		reason, err := lockReason(admin)
		uid, making := strings.CutPrefix(reason, making(""))
		if err != nil || !making || !uidPattern.MatchString(uid) {
			return w, false, err
		}
		if there, err := leadsTo(w.Path, admin); err != nil || !there {
			return w, false, err
		}
		w.UID = uid
	}
	if w.Branch, err = branchOf(admin); err != nil {
		return w, false, err
	}
	w.Identity, err = identityOf(w.Path)
	return w, err == nil, err
}

// Known is a durable list of repositories: one small file each in Dir, which is
// there. Its methods may be called at the same time.
type Known struct {
	Dir   string
	Files *files.Layer

	mu   sync.Mutex
	seen map[string]bool
}

// Remember puts a repository's folder of git on the list, if it is not there.
func (k *Known) Remember(gitDir string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen[gitDir] {
		return nil
	}
	sum := sha256.Sum256([]byte(gitDir))
	path := filepath.Join(k.Dir, hex.EncodeToString(sum[:12]))
	there, err := exists(path)
	if err == nil && there {
		err = k.Files.SyncFolder(k.Dir)
	} else if err == nil {
		err = k.Files.Write(pointRemember, path, []byte(strconv.QuoteToASCII(gitDir)+"\n"), files.Durable)
	}
	if err != nil {
		return fmt.Errorf("remember repository %q: %w", gitDir, err)
	}
	if k.seen == nil {
		k.seen = map[string]bool{}
	}
	k.seen[gitDir] = true
	return nil
}

// List is all repositories that were remembered, sorted. Files that are none of
// ours are passed over.
func (k *Known) List() ([]string, error) {
	names, err := os.ReadDir(k.Dir)
	if err != nil {
		return nil, fmt.Errorf("list repositories: %w", err)
	}
	var all []string
	for _, d := range names {
		data, err := files.Read(filepath.Join(k.Dir, d.Name()), 64<<10)
		if errors.Is(err, files.ErrNotRegular) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list repositories: %w", err)
		}
		if path, err := strconv.Unquote(strings.TrimSpace(string(data))); err == nil && filepath.IsAbs(path) {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
