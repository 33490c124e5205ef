package git

import (
	"os"
	"path/filepath"
	"testing"

	"skc.dev/skc/effects/files"
)

// TestRelinkSweeps: what a relink that was killed left in the worktree goes with
// the next, and nothing else does.
func TestRelinkSweeps(t *testing.T) {
	dir, admin := t.TempDir(), filepath.Join(t.TempDir(), "worktrees", "x")
	const ours = "..git.skc-0123456789abcdef.tmp"
	others := []string{"..git.skc-0123.tmp", ".web.yaml.skc-0123456789abcdef.tmp", "work"}
	for _, name := range append([]string{ours}, others...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := entry{admin: admin}
	e.Path = dir
	if err := (&Git{o: Options{Files: &files.Layer{}}}).relink(e); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, ours)); !os.IsNotExist(err) {
		t.Errorf("our temporary: %v", err)
	}
	for _, name := range others {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if to, err := adminOf(dir); err != nil || to != admin {
		t.Errorf("it leads to %q, %v", to, err)
	}
}
