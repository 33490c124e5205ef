package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skc.dev/skc/effects/files"
)

// TestTransferWaits: whoever moves or restores the worktree writes the mark that
// he has read, so it changes hands before or after, and never between.
func TestTransferWaits(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	repo, path := filepath.Join(dir, "repo"), filepath.Join(dir, "tree")
	admin := filepath.Join(repo, "worktrees", "x")
	for _, d := range []string{admin, path} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		filepath.Join(path, ".git"): "gitdir: " + admin + "\n", filepath.Join(admin, "gitdir"): path + "/.git\n",
		filepath.Join(admin, "HEAD"): "ref: refs/heads/x\n", filepath.Join(admin, "commondir"): "../..\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g, err := New(Options{Files: &files.Layer{}, LockWait: time.Minute})
	if err != nil {
		t.Skip(err)
	}
	if err := g.writeMark(admin, path, "u-1", ""); err != nil {
		t.Fatal(err)
	}
	_, unlock, err := g.exclusive(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Transfer(ctx, path, "u-1", "u-2"); !errors.Is(err, context.Canceled) {
		t.Errorf("while another writes: %v", err)
	}
	unlock()
	if uid, ok, err := g.Marked(t.Context(), path); uid != "u-1" || !ok || err != nil {
		t.Errorf("it is %s's, %v, %v", uid, ok, err)
	}
	if err := g.Transfer(t.Context(), path, "u-1", "u-2"); err != nil {
		t.Fatal(err)
	}
	if uid, ok, err := g.Marked(t.Context(), path); uid != "u-2" || !ok || err != nil {
		t.Errorf("it is %s's, %v, %v", uid, ok, err)
	}
}
