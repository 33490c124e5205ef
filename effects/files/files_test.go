package files_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var point = fault.New("files.test")

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

func put(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func wantFile(t testing.TB, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
	}
}

// wantNames says all that a folder holds; nothing else, as a temporary.
func wantNames(t testing.TB, dir string, want ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	var got []string
	for _, d := range list {
		got = append(got, d.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

// umask sets the umask until the test ends. No test here runs in parallel.
func umask(t testing.TB, mask int) {
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

func wantMode(t testing.TB, path string, want fs.FileMode) {
	t.Helper()
	fi, err := os.Lstat(path)
	must(t, err)
	if got := fi.Mode().Perm(); got != want {
		t.Errorf("mode of %s = %o, want %o", path, got, want)
	}
}

// things are what may lie where a file should.
func things(t testing.TB, dir string) map[string]string {
	t.Helper()
	aim := filepath.Join(t.TempDir(), "aim")
	put(t, aim, "aim")
	made := map[string]string{}
	for name, mk := range map[string]func(path string) error{
		"link":     func(p string) error { return os.Symlink(aim, p) },
		"dangling": func(p string) error { return os.Symlink(aim+"-missing", p) },
		"folder":   func(p string) error { return os.Mkdir(p, 0o700) },
		"pipe":     func(p string) error { return syscall.Mkfifo(p, 0o600) },
	} {
		path := filepath.Join(dir, name)
		must(t, mk(path))
		made[name] = path
	}
	t.Cleanup(func() {
		wantFile(t, aim, "aim")
		if _, err := os.Lstat(aim + "-missing"); !errors.Is(err, fs.ErrNotExist) {
			t.Error("a write went through a link")
		}
	})
	return made
}

func TestWrite(t *testing.T) {
	for _, how := range []files.Durability{files.Derived, files.Durable} {
		for _, mask := range []int{0o000, 0o022, 0o077} {
			t.Run(fmt.Sprintf("durability %d, umask %o", how, mask), func(t *testing.T) {
				umask(t, mask)
				dir := t.TempDir()
				path := filepath.Join(dir, "web.yaml")
				var l files.Layer
				must(t, l.Write(point, path, []byte("one"), how))
				wantFile(t, path, "one")
				wantMode(t, path, 0o600)
				must(t, l.Write(point, path, nil, how))
				wantFile(t, path, "")
				must(t, l.WriteMode(point, path, []byte("two"), how, 0o664))
				wantFile(t, path, "two")
				wantMode(t, path, 0o664)
				wantNames(t, dir, "web.yaml")
				if got, want := l.Syncs(), int64(3*how); got != want {
					t.Errorf("%d files were synced, want %d", got, want)
				}
			})
		}
	}
}

func TestWriteRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	for name, path := range things(t, dir) {
		var l files.Layer
		if err := l.Write(point, path, []byte("x"), files.Durable); !errors.Is(err, files.ErrNotRegular) {
			t.Errorf("Write to a %s = %v, want ErrNotRegular", name, err)
		}
		if err := l.Append(point, path, []byte("x\n"), files.Durable); err == nil {
			t.Errorf("Append to a %s succeeded", name)
		}
	}
	wantNames(t, dir, "dangling", "folder", "link", "pipe")
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	var l files.Layer
	names := []string{strings.Repeat("n", 255), strings.Repeat("é", 127), " ", "-rf", "a\nb", "x.tmp"}
	for _, name := range names {
		must(t, l.Write(point, filepath.Join(dir, name), []byte(name), files.Durable))
		wantFile(t, filepath.Join(dir, name), name)
	}
	list, err := os.ReadDir(dir)
	must(t, err)
	if len(list) != len(names) {
		t.Errorf("%d files, want %d", len(list), len(names))
	}
	if err := l.Write(point, filepath.Join(dir, strings.Repeat("n", 256)), nil, files.Durable); !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("Write to a name of 256 bytes = %v", err)
	}
	if err := l.Write(point, filepath.Join(dir, "missing", "x"), nil, files.Durable); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Write into a missing folder = %v, want not exist", err)
	}
	t.Chdir(dir)
	must(t, l.Write(point, "relative", []byte("r"), files.Durable))
	wantFile(t, filepath.Join(dir, "relative"), "r")
}

// A reader sees one whole version, whatever many writers do.
func TestReadersSeeWholeFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	var l files.Layer
	version := func(i int) []byte { return []byte(strings.Repeat(fmt.Sprintf("%04d\n", i), 1+i%3000)) }
	must(t, l.Write(point, path, version(0), files.Derived))
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				data, err := files.Read(path, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				if i, err := strconv.Atoi(string(data[:4])); err != nil || string(data) != string(version(i)) {
					t.Errorf("a reader saw %d bytes that begin with %q", len(data), data[:4])
					return
				}
			}
		})
	}
	for w := range 4 {
		writers.Go(func() {
			for i := range 200 {
				if err := l.Write(point, path, version(w*200+i), files.Derived); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	wantNames(t, dir, "web.yaml")
}

func TestGuard(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	put(t, path, "old")
	lost := errors.New("not the owner")
	l := files.Layer{Guard: func() error { return lost }}
	for name, err := range map[string]error{
		"Write":  l.Write(point, path, []byte("new"), files.Durable),
		"Append": l.Append(point, path, []byte("new\n"), files.Durable),
		"Remove": l.Remove(point, path, files.Durable),
		"Rename": l.Rename(point, path, path+"2"),
		"Link":   l.Link(point, path, path+"2"),
	} {
		if !errors.Is(err, lost) {
			t.Errorf("%s = %v, want the guard's error", name, err)
		}
	}
	wantNames(t, dir, "a")
	wantFile(t, path, "old")
	if l.Writes() != 0 || l.Syncs() != 0 {
		t.Errorf("%d writes, %d syncs, want none", l.Writes(), l.Syncs())
	}
}

func TestAppend(t *testing.T) {
	umask(t, 0)
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	var l files.Layer
	must(t, l.Append(point, path, []byte("one\n"), files.Durable))
	must(t, l.Append(point, path, []byte("two\nthree\n"), files.Derived))
	wantFile(t, path, "one\ntwo\nthree\n")
	wantMode(t, path, 0o600)
	put(t, path, "one\nto")
	must(t, l.Append(point, path, []byte("three\n"), files.Durable))
	wantFile(t, path, "one\nto\nthree\n")
}

func TestAppendByMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var l files.Layer
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				if err := l.Append(point, path, []byte(fmt.Sprintf("%d %d %s\n", w, i, strings.Repeat("x", 100))), files.Derived); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	data, err := os.ReadFile(path)
	must(t, err)
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) != 400 {
		t.Errorf("%d lines, want 400", len(lines))
	}
	for _, line := range lines {
		if len(line) < 104 || len(line) > 105 {
			t.Errorf("a mixed line: %q", line)
		}
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	put(t, path, "x")
	var l files.Layer
	must(t, l.Remove(point, path, files.Durable))
	must(t, l.Remove(point, path, files.Durable)) // gone already
	must(t, l.Remove(point, path, files.Derived))
	must(t, l.Remove(point, filepath.Join(dir, "missing", "a"), files.Durable))
	wantNames(t, dir)
	for name, path := range things(t, dir) {
		err := l.Remove(point, path, files.Durable)
		if name == "folder" && err == nil {
			t.Error("a folder was removed")
		} else if name != "folder" && err != nil {
			t.Errorf("Remove of a %s = %v", name, err) // the name itself, not what it leads to
		}
	}
	wantNames(t, dir, "folder")
}

func TestRename(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "sub", "b")
	put(t, from, "new")
	put(t, to, "old")
	var l files.Layer
	must(t, l.Rename(point, from, to))
	wantFile(t, to, "new")
	wantNames(t, dir, "sub")
	if err := l.Rename(point, from, to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Rename of what is not there = %v, want not exist", err)
	}
}

func TestLink(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	put(t, from, "one")
	var l files.Layer
	must(t, l.Link(point, from, to))
	must(t, l.Link(point, from, to)) // a second name of the same file already
	must(t, l.Write(point, from, []byte("two"), files.Derived))
	wantFile(t, to, "one")
	must(t, l.Link(point, from, to))
	wantFile(t, to, "two")
	if err := l.Link(point, from+"-missing", to+"2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Link of what is not there = %v, want not exist", err)
	}
	wantNames(t, dir, "a", "b")
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, text := range []string{"", "x", strings.Repeat("x", 100)} {
		put(t, path, text)
		if got, err := files.Read(path, 100); err != nil || string(got) != text {
			t.Errorf("Read = %q, %v; want %q", got, err, text)
		}
	}
	put(t, path, strings.Repeat("x", 101))
	if _, err := files.Read(path, 100); !errors.Is(err, files.ErrTooLarge) {
		t.Errorf("Read of 101 bytes = %v, want ErrTooLarge", err)
	}
	must(t, os.Symlink(path, path+"-link"))
	if got, err := files.Read(path+"-link", 200); err != nil || len(got) != 101 {
		t.Errorf("Read of a link = %d bytes, %v", len(got), err)
	}
	if _, err := files.Read(path+"-missing", 200); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read of nothing = %v, want not exist", err)
	}
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for _, p := range []string{dir, filepath.Join(dir, "pipe"), "/dev/zero"} { // none of them hangs
		if _, err := files.Read(p, 200); !errors.Is(err, files.ErrNotRegular) {
			t.Errorf("Read of %s = %v, want ErrNotRegular", p, err)
		}
	}
	// Files below /proc say that they have no bytes, as one that grows just now may.
	if got, err := files.Read("/proc/self/status", 1<<20); os.IsNotExist(err) {
		t.Log("no /proc here")
	} else if err != nil || !strings.Contains(string(got), "Pid:") {
		t.Errorf("Read of a file that has more than it says = %q, %v", got, err)
	}
	if _, err := files.Read("/proc/self/status", 10); err != nil && !os.IsNotExist(err) && !errors.Is(err, files.ErrTooLarge) {
		t.Errorf("Read of a file that outgrew the limit = %v, want ErrTooLarge", err)
	}
}

func TestMkdirPrivate(t *testing.T) {
	umask(t, 0)
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b", "c")
	must(t, files.MkdirPrivate(deep))
	for _, p := range []string{deep, filepath.Dir(deep), filepath.Dir(filepath.Dir(deep))} {
		wantMode(t, p, 0o700)
	}
	open := filepath.Join(dir, "open")
	must(t, os.Mkdir(open, 0o777))
	must(t, files.MkdirPrivate(open))
	wantMode(t, open, 0o700)

	must(t, os.Symlink(open, filepath.Join(dir, "link")))
	must(t, os.Symlink(open+"-missing", filepath.Join(dir, "dangling")))
	put(t, filepath.Join(dir, "file"), "")
	for _, name := range []string{"link", "dangling", "file"} {
		if err := files.MkdirPrivate(filepath.Join(dir, name)); !errors.Is(err, files.ErrNotPrivate) {
			t.Errorf("MkdirPrivate of a %s = %v, want ErrNotPrivate", name, err)
		}
	}
	if err := files.MkdirPrivate(filepath.Join(dir, "file", "x")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("MkdirPrivate below a file = %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	must(t, os.Chown(open, 12345, -1))
	if err := files.MkdirPrivate(open); !errors.Is(err, files.ErrNotPrivate) {
		t.Errorf("MkdirPrivate of somebody else's folder = %v, want ErrNotPrivate", err)
	}
}

func TestSweepTemps(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	ours := ".web.yaml.skc-0123456789abcdef.tmp"
	for _, p := range []string{
		filepath.Join(dir, ours), filepath.Join(dir, "a", "b", ours), filepath.Join(elsewhere, ours),
	} {
		put(t, p, "cut")
	}
	others := []string{".web.yaml.skc-0123.tmp", "web.yaml.skc-0123456789abcdef.tmp", ".skc-0123456789abcdef.tmp", ".web.yaml.durable", "web.yaml", ".x.tmp"}
	for _, name := range others {
		put(t, filepath.Join(dir, "a", name), "keep")
	}
	must(t, os.Mkdir(filepath.Join(dir, "a", ".d.skc-0123456789abcdef.tmp"), 0o700))
	must(t, os.Symlink(elsewhere, filepath.Join(dir, "a", "link")))
	kept := filepath.Join(dir, "a", files.KeptPrefix+"1", "sub", ours) // set aside: not ours to change
	must(t, os.MkdirAll(filepath.Dir(kept), 0o700))
	put(t, kept, "keep")
	n, err := files.SweepTemps(dir)
	if err != nil || n != 2 {
		t.Errorf("SweepTemps = %d, %v; want 2", n, err)
	}
	for _, name := range others {
		wantFile(t, filepath.Join(dir, "a", name), "keep")
	}
	wantFile(t, filepath.Join(elsewhere, ours), "cut")
	wantFile(t, kept, "keep")
	wantNames(t, filepath.Join(dir, "a", "b"))
	if n, err := files.SweepTemps(filepath.Join(dir, "missing")); n != 0 || err != nil {
		t.Errorf("SweepTemps of a missing folder = %d, %v", n, err)
	}
}
