package files_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"skc.dev/skc/effects/files"
)

func TestLockFolder(t *testing.T) {
	dir := t.TempDir()
	unlock, err := files.LockFolder(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := files.LockFolder(ctx, dir, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a second lock = %v", err)
	}
	got := make(chan error, 1)
	go func() {
		again, err := files.LockFolder(t.Context(), dir, "")
		if err == nil {
			again()
		}
		got <- err
	}()
	unlock()
	if err := <-got; err != nil {
		t.Errorf("after the unlock: %v", err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("the lock left %v %v", names, err)
	}
	if _, err := files.LockFolder(t.Context(), filepath.Join(dir, "none"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of no folder: %v", err)
	}
}

func TestTemps(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	put := func(name string, age time.Duration) string {
		t.Helper()
		path := filepath.Join(dir, name)
		for _, err := range []error{
			os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Chtimes(path, now.Add(-age), now.Add(-age)),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	want := []string{put(".a.yaml.skc-0123456789abcdef.tmp", time.Hour), put("team/.b.yaml.skc-0123456789abcdef.tmp", time.Hour)}
	put(".c.yaml.skc-0123456789abcdef.tmp", time.Second)
	put("d.yaml", time.Hour)
	put(".e.tmp", time.Hour)
	put(".git/.f.yaml.skc-0123456789abcdef.tmp", time.Hour)
	got, err := files.Temps(t.Context(), dir, now.Add(-time.Minute))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Temps = %v %v, want %v", got, err, want)
	}
	if _, err := files.Temps(t.Context(), filepath.Join(dir, "none"), now); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of no folder: %v", err)
	}
}
