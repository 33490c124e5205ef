package quarantine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mount mounts for one test, or skips it.
func mount(t *testing.T, source, dir, kind string, flags uintptr, options string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	if err := unix.Mount(source, dir, kind, flags, options); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			t.Error(err) // the test may have done it
		}
	})
}

// TestBeside: what lies on another file system, or behind another mount of the
// same, is kept beside its origin; the folder goes when it is empty.
func TestBeside(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, w *world, disk string){
		"tmpfs": func(t *testing.T, w *world, disk string) { mount(t, "tmpfs", disk, "tmpfs", 0, "mode=755") },
		"bind":  func(t *testing.T, w *world, disk string) { mount(t, w.path("work"), disk, "", unix.MS_BIND, "") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			disk := w.path("disk")
			prepare(t, w, disk)
			tree := w.tree("web")
			origin := filepath.Join(disk, "web")
			if name == "tmpfs" {
				out, err := exec.CommandContext(t.Context(), "cp", "-a", tree, origin).CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			before := sums(t, origin)
			beside := filepath.Join(disk, BesideName)
			place, err := w.Place(origin)
			if err != nil || place != beside {
				t.Fatalf("Place = %q, %v; want %q", place, err, beside)
			}
			r, err := w.SetAside(t.Context(), w.request("x", origin))
			must(t, err)
			wantSums(t, string(r.Place), before)
			fi, err := os.Lstat(beside)
			if err != nil || fi.Mode().Perm() != 0o700 || filepath.Dir(string(r.Place)) != beside {
				t.Errorf("kept at %q, in a folder with %v, %v; want in %s with 0700", r.Place, fi.Mode(), err, beside)
			}
			_, err = w.Restore(t.Context(), "x", w.path("web2"))
			wantCode(t, err, CrossDevice)
			wantSums(t, string(r.Place), before)
			_, err = w.Restore(t.Context(), "x", origin)
			must(t, err)
			wantSums(t, origin, before)
			wantAbsent(t, beside)
			_, err = w.SetAside(t.Context(), w.request("y", origin))
			must(t, err)
			_, err = w.Purge(t.Context(), "y", nil)
			must(t, err)
			wantAbsent(t, beside)
		})
	}
}

// TestBesideRefused: a folder beside the origin that is not ours alone, or
// cannot be made, is not used; nothing is copied instead.
func TestBesideRefused(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, disk, beside string){
		"a link": func(t *testing.T, disk, beside string) { must(t, os.Symlink(t.TempDir(), beside)) },
		"a file": func(t *testing.T, disk, beside string) { put(t, beside, "") },
		"of another user": func(t *testing.T, disk, beside string) {
			must(t, os.Mkdir(beside, 0o700))
			must(t, os.Chown(beside, 12345, 12345))
		},
		"a mount point": func(t *testing.T, disk, beside string) { mount(t, "tmpfs", beside, "tmpfs", 0, "mode=700") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			disk := w.path("disk")
			mount(t, "tmpfs", disk, "tmpfs", 0, "mode=755")
			origin := filepath.Join(disk, "web")
			put(t, filepath.Join(origin, "in"), "text")
			before := sums(t, origin)
			spoil(t, disk, filepath.Join(disk, BesideName))
			_, err := w.SetAside(t.Context(), w.request("x", origin))
			wantCode(t, err, QuarantineDestinationRequired, CrossDevice)
			wantSums(t, origin, before)
			if list := names(t, w.plans); len(list) != 0 {
				t.Errorf("left: %q", list)
			}
		})
	}
}

// TestRefusedBySystem: a rename that the system refuses leaves the thing in
// place, and the same call does it when it can be done.
func TestRefusedBySystem(t *testing.T) {
	t.Run("read-only", func(t *testing.T) {
		w := newWorld(t)
		disk := w.path("disk")
		mount(t, "tmpfs", disk, "tmpfs", 0, "mode=755")
		origin := filepath.Join(disk, "web")
		put(t, filepath.Join(origin, "in"), "text")
		put(t, filepath.Join(disk, BesideName, "x"), "")
		before := sums(t, origin)
		must(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		req := w.request("x", origin)
		_, err := w.SetAside(t.Context(), req)
		wantCode(t, err, IOError, unix.EROFS)
		wantSums(t, origin, before)
		must(t, unix.Mount("", disk, "", unix.MS_REMOUNT, ""))
		r, err := w.SetAside(t.Context(), req)
		must(t, err)
		wantSums(t, string(r.Place), before)
	})
	t.Run("no right", func(t *testing.T) {
		w := newWorld(t)
		origin := w.tree("web")
		req := w.request("x", origin)
		before := sums(t, origin)
		as(t, w, func() {
			must(t, os.Chmod(w.path("work"), 0o555))
			for range 3 {
				_, err := w.SetAside(t.Context(), req)
				wantCode(t, err, IOError, unix.EACCES)
				wantSums(t, origin, before)
			}
			must(t, os.Chmod(w.path("work"), 0o755))
			r, err := w.SetAside(t.Context(), req)
			must(t, err)
			if r.Attempts != 1 {
				t.Errorf("%d attempts for one plan, want 1", r.Attempts)
			}
			// The closed folder in it, and one that not even its owner may read.
			must(t, os.Mkdir(filepath.Join(string(r.Place), "shut"), 0o700))
			put(t, filepath.Join(string(r.Place), "shut", "in", "x"), "")
			must(t, os.Chmod(filepath.Join(string(r.Place), "shut"), 0o000))
			r, err = w.Inventory(t.Context(), "x")
			must(t, err)
			if r.Size.Unreadable != 1 {
				t.Errorf("size = %+v, want one that cannot be read", r.Size)
			}
			_, err = w.Purge(t.Context(), "x", nil)
			must(t, err)
			if len(w.places(t)) != 0 {
				t.Errorf("left: %q", w.places(t))
			}
		})
	})
}

// as does f without root's rights on files; all in the world is that user's.
func as(t *testing.T, w *world, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const uid = 65534
	must(t, filepath.WalkDir(w.dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, uid))
	}))
	for dir := w.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Skip(err)
		}
	}
	runtime.LockOSThread() // of this thread only
	defer runtime.UnlockOSThread()
	must(t, unix.Setfsuid(uid))
	defer func() { must(t, unix.Setfsuid(0)) }()
	f()
}

// TestMounted: neither a mount point nor what has one below is moved, nor purged.
func TestMounted(t *testing.T) {
	w := newWorld(t)
	t.Cleanup(func() { // wherever a failure left them
		left, err := mounts(w.dir)
		must(t, err)
		for _, at := range left {
			must(t, unix.Unmount(at, unix.MNT_DETACH))
		}
	})
	put(t, w.path("outside", "x"), "keep")
	origin := w.tree("web")
	before := sums(t, origin)
	below := filepath.Join(origin, "sub", "with space\n")
	must(t, os.Mkdir(below, 0o755))
	mount(t, w.path("outside"), below, "", unix.MS_BIND, "") // the same device
	_, err := w.SetAside(t.Context(), w.request("x", origin))
	wantCode(t, err, Mounted)
	_, err = w.SetAside(t.Context(), w.request("x", below))
	wantCode(t, err, Mounted)
	must(t, unix.Unmount(below, 0))
	must(t, os.Remove(below))
	before["sub"] = sums(t, origin)["sub"]
	r, err := w.SetAside(t.Context(), w.request("x", origin))
	must(t, err)
	wantSums(t, string(r.Place), before)
	inside := filepath.Join(string(r.Place), "empty folder")
	must(t, unix.Mount(w.path("outside"), inside, "", unix.MS_BIND, ""))
	_, err = w.Purge(t.Context(), "x", nil)
	wantCode(t, err, Mounted)
	_, err = w.Restore(t.Context(), "x", origin)
	wantCode(t, err, Mounted)
	r, err = w.Inventory(t.Context(), "x")
	if err != nil || r.Size.Unreadable != 1 {
		t.Errorf("Inventory = %+v, %v; want the mount left out", r.Size, err)
	}
	must(t, unix.Unmount(inside, 0))
	// One that comes after the last look for mounts stops it in the middle.
	w.between(5, func() error { // plan, rename, record, sweep of the root, …
		return unix.Mount(w.path("outside"), filepath.Join(string(r.Place)+removingSuffix, "empty folder"), "", unix.MS_BIND, "")
	})
	_, err = w.Purge(t.Context(), "x", nil)
	w.layer.Guard = nil
	if err == nil {
		t.Fatal("Purge went over a mount")
	}
	if list := names(t, w.path("outside")); !slices.Equal(list, []string{"x"}) {
		t.Fatalf("what was mounted holds %q", list)
	}
	must(t, unix.Unmount(filepath.Join(string(r.Place)+removingSuffix, "empty folder"), 0))
	_, err = w.Purge(t.Context(), "x", nil)
	must(t, err)
	if list := names(t, w.path("outside")); !slices.Equal(list, []string{"x"}) || len(w.places(t)) != 0 {
		t.Fatalf("what was mounted holds %q, left: %q", list, w.places(t))
	}
}

// TestFullDisk: without room for the plan nothing is touched; things are purged
// and given back on a full disk.
func TestFullDisk(t *testing.T) {
	for _, left := range []int64{0, 1, 4096} {
		t.Run(fmt.Sprintf("%d bytes left", left), func(t *testing.T) {
			w := newWorld(t)
			disk := w.path("disk")
			mount(t, "tmpfs", disk, "tmpfs", 0, "size=256k,mode=700")
			w.dir = disk
			var err error
			w.Store, err = openStore(t.Context(), disk, w.layer)
			must(t, err)
			must(t, os.Mkdir(w.path("work"), 0o755))
			origin := w.tree("web")
			before := sums(t, origin)
			req := w.request("x", origin)
			fill(t, w.path("fill"), left)
			r, err := w.SetAside(t.Context(), req)
			if left < 4096 {
				wantCode(t, err, syscall.ENOSPC, IOError)
				wantSums(t, origin, before)
				if len(w.places(t)) != 0 {
					t.Errorf("in quarantine: %q", w.places(t))
				}
				must(t, os.Remove(w.path("fill")))
				r, err = w.SetAside(t.Context(), req)
			}
			must(t, err)
			wantSums(t, string(r.Place), before)
			_, err = w.Restore(t.Context(), "x", origin)
			must(t, err)
			wantSums(t, origin, before)
		})
	}
}

// fill leaves about left bytes.
func fill(t *testing.T, path string, left int64) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	wantCode(t, err, syscall.ENOSPC)
	fi, err := f.Stat()
	must(t, err)
	must(t, errors.Join(f.Truncate(fi.Size()-left), f.Close()))
}

// TestDevices are neither opened nor followed.
func TestDevices(t *testing.T) {
	w := newWorld(t)
	origin := w.tree("web")
	if err := unix.Mknod(filepath.Join(origin, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Skipf("devices cannot be made here: %v", err)
	}
	before := sums(t, origin)
	r, err := w.SetAside(t.Context(), w.request("x", origin))
	must(t, err)
	wantSums(t, string(r.Place), before)
	_, err = Snapshot(t.Context(), string(r.Place), 1<<20, func(e Entry) error {
		if e.RelativePath == "null" && e.Kind != Device {
			t.Errorf("%+v", e)
		}
		return nil
	})
	must(t, err)
	_, err = w.Purge(t.Context(), "x", nil)
	must(t, err)
}
