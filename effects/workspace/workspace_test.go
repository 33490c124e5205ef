package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"skc.dev/skc/effects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const uid = "0123-4567"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// stage makes path's folder ready to be named.
func stage(t *testing.T, path string) (string, effects.FileIdentity) {
	t.Helper()
	real, id, err := Folders{}.Stage(path, uid)
	must(t, err)
	return real, id
}

func TestAFolderIsKnownBeforeItHasItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	real, id := stage(t, path)
	if exists(t, path) {
		t.Fatal("it has its name already")
	}
	if _, again := stage(t, path); again != id {
		t.Errorf("a second Stage is another folder: %v, %v", again, id)
	}
	for range 2 { // the second call may come after a crash
		must(t, Folders{}.Place(real, uid, id))
		if got, err := (Folders{}).Identify(path); err != nil || !id.Same(got) {
			t.Fatalf("at its name: %v, %v; want %v", got, err, id)
		}
	}
	must(t, Folders{}.Check(path))
	if list, _ := os.ReadDir(filepath.Dir(path)); len(list) != 1 {
		t.Errorf("beside it: %v", list)
	}
}

func TestStageResolvesLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
	must(t, os.Symlink("real", filepath.Join(dir, "link")))
	if real, _ := stage(t, filepath.Join(dir, "link", "x")); real != filepath.Join(dir, "real", "x") {
		t.Errorf("real path %s", real)
	}
	if got := (Folders{}).Resolve(filepath.Join(dir, "link", "no", "x")); got != filepath.Join(dir, "real", "no", "x") {
		t.Errorf("Resolve = %s", got)
	}
}

// Whatever has the name by now is left, also an empty folder, which a plain
// rename would replace.
func TestPlaceReplacesNothing(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"an empty folder": func(p string) error { return os.Mkdir(p, 0o700) },
		"a file":          func(p string) error { return os.WriteFile(p, []byte("x"), 0o600) },
		"a dangling link": func(p string) error { return os.Symlink("nowhere", p) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x")
			real, id := stage(t, path)
			must(t, make(path))
			before, err := os.Lstat(path)
			must(t, err)
			if err := (Folders{}).Place(real, uid, id); !errors.Is(err, effects.ErrExists) {
				t.Fatalf("Place = %v, want ErrExists", err)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("it was replaced: %v", err)
			}
			must(t, Folders{}.Unstage(path, uid))
			if list, _ := os.ReadDir(filepath.Dir(path)); len(list) != 1 {
				t.Errorf("beside it: %v", list)
			}
		})
	}
}

func TestPlaceWantsTheStagedFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	real, id := stage(t, path)
	other := id
	other.Ino++
	if err := (Folders{}).Place(real, uid, other); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("another identity: %v, want ErrNotFound", err)
	}
	must(t, Folders{}.Unstage(path, uid))
	must(t, Folders{}.Unstage(path, uid))
	if err := (Folders{}).Place(real, uid, id); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("nothing staged: %v, want ErrNotFound", err)
	}
	must(t, Folders{}.Unstage(filepath.Join(path, "no", "such"), uid))
}

func TestUnstageLeavesWhatIsNotEmpty(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	real, _ := stage(t, path)
	must(t, os.WriteFile(filepath.Join(staged(real, uid), "work"), nil, 0o600))
	must(t, Folders{}.Unstage(path, uid))
	if !exists(t, filepath.Join(staged(real, uid), "work")) {
		t.Error("removed with what was in it")
	}
}

func TestRemove(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(path string) error
		gone   bool // for Remove
		stays  bool // something at the path
	}{
		"empty":        {func(string) error { return nil }, true, false},
		"only our own": {func(p string) error { return os.MkdirAll(filepath.Join(p, ".skc", "state", "sdk"), 0o700) }, true, false},
		"a file":       {func(p string) error { return os.WriteFile(filepath.Join(p, "x"), nil, 0o600) }, false, true},
		"a file in our own": {func(p string) error {
			return errors.Join(os.Mkdir(filepath.Join(p, ".skc"), 0o700), os.WriteFile(filepath.Join(p, ".skc", "x"), nil, 0o600))
		}, false, true},
		"a link to nothing": {func(p string) error { return os.Symlink("no", filepath.Join(p, "x")) }, false, true},
		"gone":              {func(p string) error { return os.Remove(p) }, true, false},
		"another folder":    {func(p string) error { return errors.Join(os.Rename(p, p+"2"), os.Mkdir(p, 0o700)) }, true, true},
		"a link to another": {func(p string) error { return errors.Join(os.Rename(p, p+"2"), os.Symlink(p+"2", p)) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x")
			real, id := stage(t, path)
			must(t, Folders{}.Place(real, uid, id))
			must(t, tt.change(path))
			gone, err := Folders{}.Remove(real, id)
			if err != nil || gone != tt.gone || exists(t, path) != tt.stays {
				t.Errorf("Remove = %v, %v, something stays: %v; want %v, %v", gone, err, exists(t, path), tt.gone, tt.stays)
			}
		})
	}
}

func TestCheckTellsMissingFromOther(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	loop := filepath.Join(dir, "loop")
	must(t, os.Symlink(loop, loop))
	for name, tt := range map[string]struct {
		path    string
		missing bool
	}{
		"missing":      {filepath.Join(dir, "none"), true},
		"file":         {file, true},
		"below a file": {filepath.Join(file, "x"), true},
		"loop":         {loop, false}, // something is there that cannot be looked at
	} {
		t.Run(name, func(t *testing.T) {
			err := Folders{}.Check(tt.path)
			if err == nil || errors.Is(err, effects.ErrNotFound) != tt.missing {
				t.Errorf("Check(%s) = %v; want ErrNotFound: %v", tt.path, err, tt.missing)
			}
		})
	}
}
