//go:build linux

package files_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"skc.dev/skc/effects/files"
)

// small mounts a small file system for one test.
func small(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,"+options); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	return dir
}

// fill leaves about left bytes.
func fill(t *testing.T, dir string, left int64) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "fill"))
	must(t, err)
	for {
		if _, err = f.Write(make([]byte, 512)); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	fi, err := f.Stat()
	must(t, err)
	must(t, f.Truncate(fi.Size()-left))
	must(t, f.Close())
}

func TestFullDisk(t *testing.T) {
	for _, left := range []int64{0, 1, 512, 4096} {
		t.Run(fmt.Sprintf("%d bytes left", left), func(t *testing.T) {
			dir := small(t, "size=256k")
			a, log := filepath.Join(dir, "a"), filepath.Join(dir, "log")
			put(t, a, "old")
			put(t, log, "one\n")
			fill(t, dir, left)
			var l files.Layer
			line := append(bytes.Repeat([]byte("x"), 8191), '\n')
			if err := l.Write(point, a, newBytes, files.Durable); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("Write = %v, want no space", err)
			}
			if err := l.Append(point, log, line, files.Durable); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("Append = %v, want no space", err)
			}
			wantFile(t, a, "old")
			wantFile(t, log, "one\n")
			wantNames(t, dir, "a", "fill", "log")
			must(t, os.Remove(filepath.Join(dir, "fill")))
			must(t, l.Write(point, a, newBytes, files.Durable))
			must(t, l.Append(point, log, line, files.Durable))
			wantFile(t, a, string(newBytes))
			wantFile(t, log, "one\n"+string(line))
		})
	}
}

func TestNoInodesLeft(t *testing.T) {
	dir := small(t, "size=1m,nr_inodes=3") // the root, and two
	a := filepath.Join(dir, "a")
	put(t, a, "old")
	put(t, filepath.Join(dir, "b"), "")
	var l files.Layer
	if err := l.Write(point, a, []byte("new"), files.Durable); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Write = %v, want no space", err)
	}
	wantFile(t, a, "old")
	must(t, os.Remove(filepath.Join(dir, "b")))
	must(t, l.Write(point, a, []byte("new"), files.Durable))
	wantFile(t, a, "new")
}

func TestReadOnly(t *testing.T) {
	dir := small(t, "size=1m")
	a := filepath.Join(dir, "a")
	put(t, a, "old")
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	var l files.Layer
	for name, err := range map[string]error{
		"Write":  l.Write(point, a, []byte("new"), files.Durable),
		"Append": l.Append(point, a, []byte("new\n"), files.Durable),
		"Remove": l.Remove(point, a, files.Durable),
		"Rename": l.Rename(point, a, a+"2"),
		"Link":   l.Link(point, a, a+"2"),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s = %v, want read-only", name, err)
		}
	}
	must(t, files.MkdirPrivate(dir)) // is there already
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, ""))
	must(t, l.Write(point, a, []byte("new"), files.Durable))
	wantFile(t, a, "new")
}
