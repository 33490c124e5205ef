package quarantine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"

	"skc.dev/skc/effects/files"
)

// childEnv makes the test binary do one call on the world in os.Args[1].
const childEnv = "QUARANTINE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a state folder and a folder with things, on one file system.
type world struct {
	t     testing.TB
	dir   string // real path
	layer *files.Layer
	*Store
}

var started = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func openStore(ctx context.Context, dir string, layer *files.Layer) (*Store, error) {
	return Open(ctx, Options{Dir: filepath.Join(dir, "state", "quarantine"), Files: layer, Clock: clocktesting.NewFakePassiveClock(started)})
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldIn(t, t.TempDir())
}

// memory is a folder that no disk slows down, where there is one: for what does
// not depend on it.
func memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "skc")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

func newWorldIn(t testing.TB, dir string) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	must(t, err)
	must(t, os.Mkdir(filepath.Join(dir, "work"), 0o755))
	w := &world{t: t, dir: dir, layer: &files.Layer{}}
	w.Store, err = openStore(t.Context(), dir, w.layer)
	must(t, err)
	return w
}

func (w *world) path(names ...string) string {
	return filepath.Join(append([]string{w.dir}, names...)...)
}

// request is for what is at origin now.
func (w *world) request(id, origin string) Request {
	w.t.Helper()
	expect, err := Identify(w.t.Context(), origin)
	must(w.t, err)
	return Request{ID: id, Origin: origin, Expect: expect, Details: details}
}

var details = Details{
	Session: SessionRef{UID: "7c6c2a34-8f0c-4a0d-9d7e-0f1e2d3c4b5a", Namespace: "default", Name: "fix-login"},
	Repo:    "/home/me/src/app", Branch: "fix/\xfflogin\n", Head: strings.Repeat("a", 40),
	Reason: "SessionDeleted", RequestedBy: "uid 1000", Retention: 168 * time.Hour,
}

// tree makes a folder with some of everything.
func (w *world) tree(name string) string {
	w.t.Helper()
	root := w.path("work", name)
	put(w.t, filepath.Join(root, "a"), "a text\n")
	put(w.t, filepath.Join(root, ".env"), "SECRET=1\n")
	put(w.t, filepath.Join(root, "line\nend"), "x")
	put(w.t, filepath.Join(root, "no utf8 \xff\xfe"), "y")
	put(w.t, filepath.Join(root, "sub", "deep", "empty"), "")
	must(w.t, os.Mkdir(filepath.Join(root, "empty folder"), 0o700))
	put(w.t, filepath.Join(root, "tight", "in"), "z")
	must(w.t, os.Chmod(filepath.Join(root, "tight"), 0o555))
	must(w.t, os.Link(filepath.Join(root, "a"), filepath.Join(root, "sub", "same as a")))
	must(w.t, os.Symlink("/etc/passwd", filepath.Join(root, "link out")))
	must(w.t, os.Symlink("nowhere\xff", filepath.Join(root, "dangling")))
	must(w.t, os.Symlink("..", filepath.Join(root, "up")))
	must(w.t, unix.Mkfifo(filepath.Join(root, "fifo"), 0o600))
	must(w.t, unix.Mknod(filepath.Join(root, "sub", "socket"), unix.S_IFSOCK|0o600, 0))
	return root
}

func put(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// sums is the content of a tree (or of a file), by relative path. It is made
// without the code under test.
func sums(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		st := fi.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%s %d:%d %d", fi.Mode(), st.Dev, st.Ino, st.Nlink)
		switch {
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(data)
			text += fmt.Sprintf(" %d %s %s", fi.Size(), fi.ModTime().UTC(), hex.EncodeToString(sum[:]))
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " " + target
		}
		out[rel] = text
		return nil
	}))
	return out
}

func wantSums(t testing.TB, root string, want map[string]string) {
	t.Helper()
	if got := sums(t, root); !maps.Equal(got, want) {
		for name := range maps.Keys(want) {
			if got[name] != want[name] {
				t.Errorf("%q in %s: %q, want %q", name, root, got[name], want[name])
			}
		}
		t.Fatalf("%s holds %d entries, want %d as before", root, len(got), len(want))
	}
}

func wantAbsent(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is there (%v), want it gone", path, err)
	}
}

func wantCode(t testing.TB, err error, codes ...error) {
	t.Helper()
	for _, code := range codes {
		if !errors.Is(err, code) {
			t.Fatalf("error = %v, want one that matches %q", err, code)
		}
	}
}

// names lists a folder; none when it is missing.
func names(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, d := range list {
		out = append(out, d.Name())
	}
	return out
}

// child does one call in a process of its own: args are the world's folder, the
// call, the id, a path.
func child() int {
	ctx := context.Background()
	dir, call, id, path := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	if call == "swapped" {
		_ = swapped(ctx, dir, id, path)
		return 1
	}
	s, err := openStore(ctx, dir, &files.Layer{})
	if err == nil {
		err = do(ctx, s, call, id, path)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// do is one call, as the reconciler does it.
func do(ctx context.Context, s *Store, call, id, path string) error {
	switch call {
	case "set-aside":
		req := Request{ID: id, Origin: path, Details: details}
		if r, err := s.Get(id); err == nil {
			req.Expect = r.Identity // it may have been moved already
		} else if req.Expect, err = Identify(ctx, path); err != nil {
			return err
		}
		_, err := s.SetAside(ctx, req)
		return err
	case "restore":
		_, err := s.Restore(ctx, id, path)
		return err
	case "inventory":
		_, err := s.Inventory(ctx, id)
		return err
	case "purge":
		_, err := s.Purge(ctx, id, nil)
		return err
	case "observe":
		return s.Observe()
	}
	return errors.New("no such call")
}

// inChild does a call in a child, and tells whether it was killed.
func inChild(t testing.TB, w *world, faults, call, id, path string) (killed bool, output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], w.dir, call, id, path)
	// The race detector would sleep for a second at the end of each child.
	cmd.Env = append(os.Environ(), childEnv+"=1", "SKC_FAULT="+faults, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true, string(out), nil
	}
	return false, string(out), err
}

// places are all that is or was set aside, wherever.
func (w *world) places(t testing.TB) []string {
	var out []string
	for _, dir := range []string{w.things, w.path("work", BesideName)} {
		for _, name := range names(t, dir) {
			out = append(out, filepath.Join(dir, name))
		}
	}
	slices.Sort(out)
	return out
}
