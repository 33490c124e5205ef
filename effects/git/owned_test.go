package git_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
)

// Owned is what carries our mark, also while it is made; not what a user made, let
// go of, moved or removed.
func TestOwned(t *testing.T) {
	w := newWorld(t)
	gitDir := w.path("app/.git")
	owned := func() (all []string) {
		t.Helper()
		list, err := w.git.Owned(t.Context(), gitDir)
		must(t, err)
		for _, o := range list {
			all = append(all, o.UID+" "+o.Branch)
			if o.Identity == "" {
				t.Errorf("%+v", o)
			}
		}
		slices.Sort(all)
		return all
	}
	if got := owned(); len(got) != 0 {
		t.Errorf("before there is any: %v", got)
	}
	for _, b := range []string{"plain", "let-go", "moved", "removed", "taken"} {
		w.ensure(w.want(b))
	}
	must(t, w.git.Unmark(t.Context(), w.want("let-go").Path, w.want("let-go").UID))
	w.sh(w.repo, "worktree", "move", w.want("moved").Path, w.path("elsewhere"))
	must(t, os.RemoveAll(w.want("removed").Path))
	must(t, os.Rename(w.want("taken").Path, w.path("away")))
	must(t, os.Mkdir(w.want("taken").Path, 0o755))
	w.sh(w.repo, "worktree", "add", "-q", "-b", "user", w.path("wt/user"))
	w.sh(w.repo, "worktree", "add", "-q", "--lock", "--reason", "skc: being made for session half", "-b", "half", w.path("wt/half"))
	w.sh(w.repo, "worktree", "add", "-q", "--lock", "--reason", "skc: being made for session ../x", "-b", "bad", w.path("wt/bad"))
	if got, want := owned(), []string{"half half", "uid-plain plain"}; !slices.Equal(got, want) {
		t.Errorf("owned: %v, want %v", got, want)
	}
	w.aside(w.want("plain"))
	if got, want := owned(), []string{"half half", "uid-plain "}; !slices.Equal(got, want) {
		t.Errorf("set aside: %v, want %v", got, want)
	}
	if _, err := w.git.Owned(t.Context(), w.path("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no repository: %v", err)
	}
}

func TestKnown(t *testing.T) {
	w := newWorld(t)
	dir := w.path("repositories")
	must(t, os.Mkdir(dir, 0o700))
	layer := &files.Layer{}
	paths := []string{"/a/app/.git", "/a/\xff\n\"/.git"}
	for range 2 {
		k := &git.Known{Dir: dir, Files: layer} // as after a start
		for range 2 {
			for _, p := range paths {
				must(t, k.Remember(p))
			}
		}
	}
	if got := layer.Writes(); got != 2 {
		t.Errorf("%d writes for two repositories", got)
	}
	w.put("repositories/README", "not ours\n")
	got, err := (&git.Known{Dir: dir, Files: layer}).List()
	must(t, err)
	slices.Sort(paths)
	if !slices.Equal(got, paths) {
		t.Errorf("known: %q, want %q", got, paths)
	}
	if err := (&git.Known{Dir: w.path("none"), Files: layer}).Remember("/x"); err == nil {
		t.Error("remembered in a folder that is not there")
	}
	if _, err := (&git.Known{Dir: w.path("none")}).List(); err == nil || errors.Is(err, effects.ErrNotFound) {
		t.Errorf("a list that cannot be read: %v", err)
	}
}
