package git_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skc.dev/skc/effects"
)

// aside sets a worktree aside as effects/quarantine does, by one rename.
func (w *world) aside(want effects.WantWorktree) string {
	w.t.Helper()
	to := w.path("aside/" + filepath.Base(want.Path))
	must(w.t, os.MkdirAll(filepath.Dir(to), 0o700))
	must(w.t, w.git.BeforeMove(w.t.Context(), want.Path, want.UID, "deleted\nby a test"))
	must(w.t, os.Rename(want.Path, to))
	must(w.t, w.git.AfterMove(w.t.Context(), to, want.UID))
	return to
}

// gc does the worst that git does to a repository.
func (w *world) gc() {
	w.t.Helper()
	w.sh(w.repo, "reflog", "expire", "--expire=now", "--all")
	w.sh(w.repo, "worktree", "prune", "--expire=now")
	w.sh(w.repo, "gc", "--quiet", "--prune=now")
	w.sh(w.repo, "worktree", "prune", "--expire=now")
}

// B-055, B-056: all that was in the worktree is where it was moved to, git gc
// and prune cannot hurt it, and it comes back as it was.
func TestB055B056SetAside(t *testing.T) {
	for _, detached := range []bool{false, true} {
		w := newWorld(t)
		want := w.want("feat")
		want.Path = w.path("wt/na\nme\xff")
		w.put("app/.gitignore", ".env\n")
		w.commit(w.repo, "ignore")
		w.ensure(want)
		dir := "wt/na\nme\xff/"
		if detached {
			w.sh(want.Path, "checkout", "-q", "--detach")
		}
		w.put(dir+"new", "committed\n")
		head := w.commit(want.Path, "never pushed")
		w.put(dir+".env", "SECRET=1\n")
		w.put(dir+"scratch.db", "untracked")
		w.put(dir+"README", "staged\n")
		w.sh(want.Path, "add", "README")
		w.put(dir+"README", "and changed\n")
		before := w.tree(want.Path)
		status := w.sh(want.Path, "status", "--porcelain", "--ignored")

		// Between the rename and what follows it, too.
		must(t, w.git.BeforeMove(t.Context(), want.Path, want.UID, "x"))
		must(t, os.Rename(want.Path, w.path("on the way")))
		w.gc()
		must(t, os.Rename(w.path("on the way"), want.Path))
		to := w.aside(want)
		w.gc()
		if got := w.tree(to); got != before {
			t.Errorf("the tree changed:\n%s", got)
		}
		if got := w.sh(to, "status", "--porcelain", "--ignored"); got != status {
			t.Errorf("status = %q, want %q", got, status)
		}
		list := w.sh(w.repo, "worktree", "list", "--porcelain", "-z")
		if !strings.Contains(list, "worktree "+to+"\x00") || !strings.Contains(list, "locked skc: set aside: ") {
			t.Errorf("list = %q", list)
		}
		if refs := w.sh(w.repo, "for-each-ref", "--contains", head); !strings.Contains(refs, "refs/skc/quarantine/"+want.UID) {
			t.Errorf("the commit is in %q", refs)
		}
		// The branch can be used meanwhile: the same session again.
		again := want
		again.UID = "again"
		w.ensure(again)
		w.wantWhole(again)
		must(t, w.git.BeforeMove(t.Context(), again.Path, again.UID, "x"))
		must(t, os.RemoveAll(again.Path))
		repo, err := w.git.Open(t.Context(), w.repo)
		must(t, err)
		must(t, w.git.AfterPurge(t.Context(), repo, again.Path, again.UID))
		must(t, w.git.AfterPurge(t.Context(), repo, again.Path, again.UID))

		must(t, os.Rename(to, want.Path))
		branch, err := w.git.AfterRestore(t.Context(), want.Path, want.UID)
		must(t, err)
		if wantBranch := map[bool]string{false: "feat"}[detached]; branch != wantBranch {
			t.Errorf("restored on branch %q, want %q", branch, wantBranch)
		}
		w.gc()
		if got := w.tree(want.Path); got != before {
			t.Errorf("the tree changed:\n%s", got)
		}
		if got := w.sh(want.Path, "status", "--porcelain", "--ignored"); got != status {
			t.Errorf("status = %q, want %q", got, status)
		}
		if got := w.sh(want.Path, "rev-parse", "HEAD"); got != head {
			t.Errorf("HEAD = %s, want %s", got, head)
		}
		if refs := w.sh(w.repo, "for-each-ref", "refs/skc"); refs != "" {
			t.Errorf("refs are left: %s", refs)
		}

		// And purged: the commit stays reachable.
		to = w.aside(want)
		must(t, os.RemoveAll(to))
		must(t, w.git.AfterPurge(t.Context(), repo, to, want.UID))
		w.gc()
		if w.sh(w.repo, "for-each-ref", "--contains", head) == "" {
			t.Error("the commit is in no ref")
		}
		if list := w.sh(w.repo, "worktree", "list"); strings.Contains(list, "\n") {
			t.Errorf("list:\n%s", list)
		}
	}
}

// What is restored stays detached when its branch went on without it.
func TestRestoreWithBranchGone(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"moved on": func(w *world) {
			w.sh(w.repo, "checkout", "-q", "feat")
			w.commit(w.repo, "next")
			w.sh(w.repo, "checkout", "-q", "main")
		},
		"in use":  func(w *world) { w.sh(w.repo, "checkout", "-q", "feat") },
		"deleted": func(w *world) { w.sh(w.repo, "branch", "-q", "-D", "feat") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			want := w.want("feat")
			w.ensure(want)
			w.put("wt/feat/x", "x")
			head := w.commit(want.Path, "work")
			to := w.aside(want)
			change(w)
			w.gc()
			must(t, os.Rename(to, w.path("back")))
			branch, err := w.git.AfterRestore(t.Context(), w.path("back"), want.UID)
			if err != nil || branch != "" {
				t.Errorf("branch %q, %v", branch, err)
			}
			w.gc()
			if got := w.sh(w.path("back"), "rev-parse", "HEAD"); got != head {
				t.Errorf("HEAD = %s, want %s", got, head)
			}
			if got := w.sh(w.path("back"), "status", "--porcelain"); got != "" {
				t.Errorf("status = %q", got)
			}
			if uid, ok, err := w.git.Marked(t.Context(), w.path("back")); !ok || err != nil || uid != want.UID {
				t.Errorf("Marked = %q, %v, %v", uid, ok, err)
			}
		})
	}
}

func TestMoveOnlyOurs(t *testing.T) {
	w := newWorld(t)
	want := w.want("feat")
	w.ensure(want)
	if err := w.git.BeforeMove(t.Context(), want.Path, "other", "x"); !errors.Is(err, effects.ErrConflict) {
		t.Errorf("another session's: %v, want ErrConflict", err)
	}
	w.sh(w.repo, "worktree", "add", "-q", "-b", "hand", w.path("hand"))
	if err := w.git.BeforeMove(t.Context(), w.path("hand"), "other", "x"); !errors.Is(err, effects.ErrConflict) {
		t.Errorf("nobody's: %v, want ErrConflict", err)
	}
	for _, path := range []string{w.repo, w.path("nothing")} {
		if err := w.git.BeforeMove(t.Context(), path, "other", "x"); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("%q: %v, want ErrNotFound", path, err)
		}
	}
	// A copy of the folder is not the folder.
	must(t, os.CopyFS(w.path("copy"), os.DirFS(want.Path)))
	if err := w.git.AfterMove(t.Context(), w.path("copy"), want.UID); !errors.Is(err, effects.ErrConflict) {
		t.Errorf("a copy: %v, want ErrConflict", err)
	}
	if uid, ok, err := w.git.Marked(t.Context(), w.path("copy")); ok || err != nil {
		t.Errorf("a copy is marked: %q, %v", uid, err)
	}
	// A lock of a person stays.
	w.sh(w.repo, "worktree", "lock", "--reason", "mine", want.Path)
	to := w.aside(want)
	must(t, os.Rename(to, want.Path))
	_, err := w.git.AfterRestore(t.Context(), want.Path, want.UID)
	must(t, err)
	if !strings.Contains(w.sh(w.repo, "worktree", "list", "--porcelain"), "locked mine") {
		t.Error("the lock is gone")
	}
	repo, err := w.git.Open(t.Context(), w.repo)
	must(t, err)
	if err := w.git.AfterPurge(t.Context(), repo, want.Path, want.UID); !errors.Is(err, effects.ErrConflict) {
		t.Errorf("purged what is there: %v", err)
	}
}

// Submodules work again wherever the worktree comes back.
func TestRestoreWithSubmodules(t *testing.T) {
	w := newWorld(t)
	for _, r := range []string{"inner", "lib"} {
		w.sh(w.dir, "init", "-q", w.path(r))
		w.put(r+"/code", "code\n")
		w.commit(w.path(r), r)
	}
	w.sh(w.path("lib"), "submodule", "--quiet", "add", w.path("inner"), "in")
	w.commit(w.path("lib"), "with inner")
	w.sh(w.repo, "submodule", "--quiet", "add", w.path("lib"), "deep/sub")
	w.commit(w.repo, "with sub")
	want := w.want("feat")
	w.ensure(want)
	w.sh(want.Path, "submodule", "--quiet", "update", "--init", "--recursive")
	w.put("wt/feat/deep/sub/in/code", "changed\n")
	for _, back := range []string{"wt/feat", "some/where/deeper/feat"} {
		to := w.aside(want)
		must(t, os.MkdirAll(filepath.Dir(w.path(back)), 0o755))
		must(t, os.Rename(to, w.path(back)))
		branch, err := w.git.AfterRestore(t.Context(), w.path(back), want.UID)
		if err != nil || branch != "feat" {
			t.Fatalf("branch %q, %v", branch, err)
		}
		if got := w.sh(w.path(back), "status", "--porcelain"); got != "M deep/sub" {
			t.Errorf("status = %q", got)
		}
		if got := w.sh(w.path(back+"/deep/sub/in"), "status", "--porcelain"); got != "M code" {
			t.Errorf("status of the inner one = %q", got)
		}
		want.Path = w.path(back)
	}
}
