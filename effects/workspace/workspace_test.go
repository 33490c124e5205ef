package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"skc.dev/skc/effects"
)

func TestMakeTellsWhetherItMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	id, made, err := Folders{}.Make(path)
	if err != nil || !made {
		t.Fatalf("first Make = made %v, %v; want made", made, err)
	}
	again, made, err := Folders{}.Make(path)
	if err != nil || made || again != id {
		t.Fatalf("second Make = %s made %v, %v; want %s, not made", again, made, err, id)
	}
	if got, err := (Folders{}).Check(path); err != nil || got != id {
		t.Fatalf("Check = %s, %v; want %s", got, err, id)
	}
}

func TestCheckTellsMissingFromOther(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
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
			_, err := Folders{}.Check(tt.path)
			if err == nil || errors.Is(err, effects.ErrNotFound) != tt.missing {
				t.Errorf("Check(%s) = %v; want ErrNotFound: %v", tt.path, err, tt.missing)
			}
		})
	}
	if _, _, err := (Folders{}).Make(file); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("Make over a file = %v, want ErrNotFound", err)
	}
}
