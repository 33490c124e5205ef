package git_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
)

func TestOpen(t *testing.T) {
	w := newWorld(t)
	w.sh(w.dir, "clone", "-q", "--bare", "app", "bare.git")
	w.sh(w.repo, "worktree", "add", "-q", "-b", "side", w.path("side"))
	must(t, os.Symlink(w.repo, w.path("link")))
	must(t, os.Mkdir(w.path("plain"), 0o755))
	w.put("file", "x")
	app := w.path("app/.git")
	for _, tc := range []struct {
		name, path, gitDir string
		err                error
	}{
		{"a clone", "app", app, nil},
		{"a bare repository", "bare.git", w.path("bare.git"), nil},
		{"a worktree", "side", app, nil},
		{"a link", "link", app, nil},
		{"nothing", "nothing", "", effects.ErrNotFound},
		{"below a file", "file/x", "", effects.ErrNotFound},
		{"a file", "file", "", effects.ErrNotRepository},
		{"a folder", "plain", "", effects.ErrNotRepository},
		{"a folder of a clone", "app/d", "", effects.ErrNotRepository},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := w.git.Open(t.Context(), w.path(tc.path))
			if !errors.Is(err, tc.err) || got.GitDir != tc.gitDir {
				t.Errorf("Open = %q, %v; want %q, %v", got.GitDir, err, tc.gitDir, tc.err)
			}
		})
	}
}

func TestDefaultPath(t *testing.T) {
	clone, bare := effects.Repository{GitDir: "/src/app/.git"}, effects.Repository{GitDir: "/src/app.git"}
	for branch, want := range map[string]string{
		"main":     "/src/app.worktrees/main",
		"feat/x-1": "/src/app.worktrees/feat-x-1",
	} {
		for _, repo := range []effects.Repository{clone, bare} {
			if got := git.DefaultPath(repo, branch); got != want {
				t.Errorf("DefaultPath(%q) = %q, want %q", branch, got, want)
			}
		}
	}
	seen := map[string]string{}
	for _, branch := range []string{"a&b", "a;b", "a\xffb", "ä", "ö", strings.Repeat("x", 300), strings.Repeat("x", 301)} {
		got := filepath.Base(git.DefaultPath(clone, branch))
		if other, ok := seen[got]; ok || len(got) > 120 || strings.Trim(got, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("the folder of %q is %q (as of %q)", branch, got, other)
		}
		seen[got] = branch
	}
}

func TestBranches(t *testing.T) {
	w := newWorld(t)
	two := w.sh(w.repo, "rev-parse", "HEAD")
	one := w.sh(w.repo, "rev-parse", "HEAD~1")
	w.sh(w.repo, "branch", "exists", one)
	w.sh(w.repo, "branch", "base", one)
	w.sh(w.repo, "tag", "v1", one)
	w.sh(w.repo, "tag", "exists", two) // a tag of the same name
	w.sh(w.repo, "update-ref", "refs/remotes/origin/there", one)
	w.sh(w.repo, "update-ref", "refs/remotes/fork/both", two)
	w.sh(w.repo, "update-ref", "refs/remotes/origin/both", one)
	w.sh(w.repo, "update-ref", "refs/remotes/fork/feat/only", one)
	for _, tc := range []struct {
		branch, base, head string
		created            bool
	}{
		{branch: "exists", head: one},
		{branch: "new", head: two, created: true},
		{branch: "from/branch", base: "base", head: one, created: true},
		{branch: "from/tag", base: "v1", head: one, created: true},
		{branch: "from/commit", base: one[:12], head: one, created: true},
		{branch: "from/remote", base: "origin/there", head: one, created: true},
		{branch: "there", head: one, created: true}, // of the remote
		{branch: "both", head: one, created: true},
		{branch: "feat/only", head: one, created: true},
		{branch: "refs/heads/odd", head: two, created: true},
		{branch: "FETCH_HEAD", head: two, created: true},
		{branch: "ümlaut-日本", head: two, created: true},
	} {
		t.Run(tc.branch, func(t *testing.T) {
			w.t = t
			want := w.want(tc.branch)
			want.Base, want.UID = tc.base, "u1"
			config, err := os.ReadFile(w.path("app/.git/config"))
			must(t, err)
			got := w.ensure(want)
			if got.Head != tc.head || got.Branch != tc.branch || got.BranchCreated != tc.created || !got.Created || !got.Ours {
				t.Errorf("got %+v, want %+v", got, tc)
			}
			w.wantWhole(want)
			before := w.o.Files.Writes()
			again := w.ensure(want)
			got.Created = false
			if again != got || w.o.Files.Writes() != before {
				t.Errorf("the second call = %+v, want %+v", again, got)
			}
			if now, err := os.ReadFile(w.path("app/.git/config")); err != nil || string(now) != string(config) {
				t.Errorf("the config was written: %s", now)
			}
			must(t, w.git.Unmark(t.Context(), want.Path, want.UID)) // u1 gets the next
		})
	}
}

func TestRefused(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, "branch", "feat")
	w.sh(w.repo, "branch", "deep/er/x")
	w.put("full/file", "theirs")
	w.put("file", "theirs")
	must(t, os.Symlink(w.path("elsewhere"), w.path("link")))
	must(t, os.Mkdir(w.path("empty"), 0o755))
	outside := w.tree(w.dir)
	at := func(branch, path string) effects.WantWorktree {
		want := w.want(branch)
		want.Path = w.path(path)
		return want
	}
	for _, branch := range []string{"-x", "--force", "../../up", "..", "a..b", "", "HEAD", "@", "a b", "x.lock", "a/.b", "/a", "a/", "a//b", "a~1", "a\nb", "a\x00b", "refs/heads/*"} {
		want := w.want("x")
		want.Branch = branch
		wantError[*effects.BranchInvalidError](w, want)
	}
	if e := wantError[*effects.RefCollisionError](w, w.want("feat/x")); e.Ref != "feat" {
		t.Errorf("collides with %q, want feat", e.Ref)
	}
	if e := wantError[*effects.RefCollisionError](w, w.want("deep/er")); e.Ref != "deep/er/x" {
		t.Errorf("collides with %q, want deep/er/x", e.Ref)
	}
	for _, base := range []string{"none", "-x", "--all", "main:README", "\x00", "main\n", "@{-1}"} {
		want := w.want("new")
		want.Base = base
		if e := wantError[*effects.BaseNotFoundError](w, want); e.Base != base {
			t.Errorf("base %q, want %q", e.Base, base)
		}
	}
	for _, path := range []string{"full", "file", "link", "app", "app/.git/x"} {
		if e := wantError[*effects.PathNotEmptyError](w, at("new", path)); e.Path != w.path(path) {
			t.Errorf("path %q, want %q", e.Path, w.path(path))
		}
	}
	if got := w.branches(); got != "deep/er/x\nfeat\nmain" {
		t.Errorf("there are branches left:\n%s", got)
	}
	if got := w.tree(w.dir); got != outside {
		t.Errorf("something was changed:\n%s\nwas\n%s", got, outside)
	}
	w.ensure(at("new", "empty"))
	w.wantWhole(at("new", "empty"))
}

func TestEmptyRepository(t *testing.T) {
	w := newWorld(t)
	w.sh(w.dir, "init", "-q", w.path("young"))
	want := w.want("x")
	want.Repo = w.path("young")
	wantError[*effects.BaseNotFoundError](w, want)
	want.Repo = w.path("nothing")
	if _, err := w.git.EnsureWorktree(t.Context(), want); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("a repository that vanished: %v, want ErrNotFound", err)
	}
}

func TestNames(t *testing.T) {
	w := newWorld(t)
	for i, name := range []string{"new\nline", "not\xffutf8", "-x", "sp ace", "'quote", "colon:x", "\x1b[31m"} {
		want := w.want(fmt.Sprintf("b%d", i))
		want.Path = w.path("wt/" + name)
		w.ensure(want)
		w.wantWhole(want)
	}
	repo, err := w.git.Open(t.Context(), w.repo)
	must(t, err)
	list, err := w.git.List(t.Context(), repo)
	must(t, err)
	if len(list) != 8 || list[0].Path != w.repo || list[0].Branch != "refs/heads/main" {
		t.Errorf("list = %+v", list)
	}
	// A clone with such a name.
	w.sh(w.dir, "clone", "-q", w.repo, w.path("cl\no\xffne"))
	want := w.want("odd")
	want.Repo = w.path("cl\no\xffne")
	want.Path = git.DefaultPath(effects.Repository{GitDir: want.Repo + "/.git"}, "odd")
	w.ensure(want)
	w.wantWhole(want)
}

func TestBare(t *testing.T) {
	w := newWorld(t)
	w.sh(w.dir, "clone", "-q", "--bare", "app", "bare.git")
	want := w.want("new")
	want.Repo = w.path("bare.git")
	got := w.ensure(want)
	if !got.BranchCreated {
		t.Error("the branch is not known as made, without reflogs")
	}
	w.repo = want.Repo
	w.wantWhole(want)
	// By way of that worktree, and the branch that the bare HEAD names is free.
	next := w.want("main")
	next.Repo = want.Path
	w.ensure(next)
	w.wantWhole(next)
}

func TestSubmodule(t *testing.T) {
	w := newWorld(t)
	w.sh(w.dir, "init", "-q", w.path("lib"))
	w.put("lib/code", "code\n")
	w.commit(w.path("lib"), "lib")
	w.sh(w.repo, "submodule", "--quiet", "add", w.path("lib"), "sub")
	w.commit(w.repo, "with sub")
	want := w.want("new")
	if got := w.ensure(want); !got.Submodules {
		t.Error("it is not said that there are submodules")
	}
	w.wantWhole(want)
	if names, err := os.ReadDir(filepath.Join(want.Path, "sub")); err != nil || len(names) > 0 {
		t.Errorf("the folder of the submodule holds %v, %v", names, err)
	}
}

func TestSparse(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.put(fmt.Sprintf("app/dir%d/file", i), "x\n")
	}
	w.commit(w.repo, "dirs")
	w.sh(w.repo, "sparse-checkout", "set", "--cone", "dir1")
	want := w.want("new")
	w.ensure(want)
	w.wantWhole(want)
	if _, err := os.Stat(filepath.Join(want.Path, "dir1/file")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(want.Path, "dir2")); err == nil {
		t.Error("the sparse checkout was not kept")
	}
}

// B-052: what was removed by hand is made again, and nothing else is touched.
func TestB052RemovedByHand(t *testing.T) {
	w := newWorld(t)
	locked := w.want("locked")
	w.ensure(locked)
	w.sh(w.repo, "worktree", "lock", locked.Path)
	must(t, os.Rename(locked.Path, w.path("away")))
	w.sh(w.repo, "worktree", "add", "-q", "-b", "other", w.path("other"))
	must(t, os.RemoveAll(w.path("other")))
	want := w.want("feat")
	w.ensure(want)
	w.put("wt/feat/new", "x")
	head := w.commit(want.Path, "work")
	must(t, os.RemoveAll(want.Path))
	if got := w.ensure(want); !got.Created || got.Head != head {
		t.Errorf("got %+v, want a new one at %s", got, head)
	}
	w.wantWhole(want)
	list := w.sh(w.repo, "worktree", "list")
	if !strings.Contains(list, "[locked]") || !strings.Contains(list, "[other]") {
		t.Errorf("the entries of others are gone:\n%s", list)
	}
	// One of somebody else that holds the branch; also with a detached HEAD, at the path.
	mine := w.want("other")
	w.ensure(mine)
	w.wantWhole(mine)
	w.sh(w.repo, "worktree", "add", "-q", "--detach", w.path("wt/detached"))
	lost := w.commit(w.path("wt/detached"), "on no branch")
	must(t, os.RemoveAll(w.path("wt/detached")))
	w.ensure(w.want("detached"))
	if refs := w.sh(w.repo, "for-each-ref", "--contains", lost); !strings.Contains(refs, "refs/skc/dropped/") {
		t.Errorf("the commit of a detached HEAD has no ref: %q", refs)
	}
}

func TestB052HundredRemovedByHand(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a hundred worktrees")
	}
	w := newWorld(t)
	for i := range 100 {
		w.sh(w.repo, "worktree", "add", "-q", "-b", fmt.Sprintf("b%d", i), w.path(fmt.Sprintf("wt/b%d", i)))
	}
	must(t, os.RemoveAll(w.path("wt")))
	start := time.Now()
	for i := range 100 {
		w.ensure(w.want(fmt.Sprintf("b%d", i)))
	}
	t.Logf("100 made again in %v", time.Since(start))
	if n := strings.Count(w.sh(w.repo, "worktree", "list"), "\n"); n != 100 {
		t.Errorf("%d worktrees, want 100", n)
	}
}

// B-053: a locked worktree whose folder is absent keeps registration and branch.
func TestB053LockedAndAbsent(t *testing.T) {
	w := newWorld(t)
	want := w.want("feat")
	w.ensure(want)
	w.sh(w.repo, "worktree", "lock", "--reason", "on a stick", want.Path)
	must(t, os.Rename(want.Path, w.path("away")))
	list := w.sh(w.repo, "worktree", "list", "--porcelain")
	for name, change := range map[string]func(*effects.WantWorktree){
		"the same":               func(*effects.WantWorktree) {},
		"another session":        func(x *effects.WantWorktree) { x.UID = "other" },
		"the branch elsewhere":   func(x *effects.WantWorktree) { x.UID, x.Path = "other", w.path("wt/else") },
		"another branch at path": func(x *effects.WantWorktree) { x.UID, x.Branch = "other", "new" },
	} {
		x := want
		change(&x)
		if e := wantError[*effects.LockedMissingError](w, x); e.Path != want.Path || e.Reason != "on a stick" {
			t.Errorf("%s: got %+v", name, e)
		}
	}
	if now := w.sh(w.repo, "worktree", "list", "--porcelain"); now != list {
		t.Errorf("the list changed:\n%s", now)
	}
	must(t, os.Rename(w.path("away"), want.Path))
	w.ensure(want)
	w.wantWhole(want)
}

// B-058: a git that does nothing and says that all went well is found out.
func TestB058GitThatDoesNothing(t *testing.T) {
	w := newWorld(t)
	real, err := exec.LookPath("git")
	must(t, err)
	for _, idle := range []string{"rev-parse", "update-ref", "worktree", "worktree add", "read-tree", "worktree unlock", "worktree lock"} {
		t.Run(idle, func(t *testing.T) {
			w := newWorld(t)
			w.put("bin/git", fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' %s '*) exit 0;; esac\nexec %s \"$@\"\n", idle, real))
			must(t, os.Chmod(w.path("bin/git"), 0o755))
			w.with(git.Options{Git: w.path("bin/git")})
			want := w.want("feat")
			_, err := w.git.EnsureWorktree(t.Context(), want)
			if err == nil {
				err = w.git.BeforeMove(t.Context(), want.Path, want.UID, "delete")
			}
			if _, ok := errors.AsType[*effects.NotDoneError](err); !ok {
				t.Errorf("got %v, want a NotDoneError", err)
			}
		})
	}
	_ = w
}

// B-059: twenty at once on one repository, from remote-tracking branches.
func TestB059TwentyAtOnce(t *testing.T) {
	for _, held := range []string{"", "config.lock", "packed-refs.lock"} {
		t.Run("held "+held, func(t *testing.T) {
			w := newWorld(t)
			for i := range 20 {
				w.sh(w.repo, "branch", fmt.Sprintf("b%d", i))
			}
			w.sh(w.dir, "clone", "-q", w.repo, w.path("clone"))
			w.repo = w.path("clone")
			if held != "" {
				w.put("clone/.git/"+held, "")
			}
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					if _, err := w.git.EnsureWorktree(t.Context(), w.want(fmt.Sprintf("b%d", i))); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if held != "" {
				must(t, os.Remove(w.path("clone/.git/"+held))) // it is still there
			}
			for i := range 20 {
				w.wantWhole(w.want(fmt.Sprintf("b%d", i)))
			}
		})
	}
}

// B-059: a lock that is in the way is waited for, and one that stays is named.
func TestB059LockFiles(t *testing.T) {
	for _, file := range []string{"refs/heads/new.lock"} {
		t.Run(file, func(t *testing.T) {
			w := newWorld(t)
			w.put("app/.git/"+file, "")
			want := w.want("new")
			if e := wantError[*effects.RepoLockedError](w, want); e.File != w.path("app/.git/"+file) {
				t.Errorf("named %q, want %q", e.File, file)
			}
			if _, err := os.Stat(w.path("app/.git/" + file)); err != nil {
				t.Errorf("the lock file is gone: %v", err)
			}
			if got := w.branches(); got != "main" {
				t.Errorf("branches left:\n%s", got)
			}
			w.with(git.Options{LockWait: time.Minute})
			done := make(chan error)
			go func() {
				_, err := w.git.EnsureWorktree(t.Context(), want)
				done <- err
			}()
			select {
			case err := <-done:
				t.Fatalf("did not wait: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			must(t, os.Remove(w.path("app/.git/"+file)))
			must(t, <-done)
			w.wantWhole(want)
		})
	}
}

// A branch that this call made goes again when the worktree cannot be made.
func TestNoHalfMadeBranch(t *testing.T) {
	w := newWorld(t)
	real, err := exec.LookPath("git")
	must(t, err)
	w.put("bin/git", fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' worktree add '*) echo 'fatal: no luck' >&2; exit 128;; esac\nexec %s \"$@\"\n", real))
	must(t, os.Chmod(w.path("bin/git"), 0o755))
	w.with(git.Options{Git: w.path("bin/git")})
	w.sh(w.repo, "branch", "theirs")
	if e := wantError[*effects.CommandError](w, w.want("new")); !strings.Contains(e.Error(), "no luck") {
		t.Errorf("the words of git are missing: %v", e)
	}
	wantError[*effects.CommandError](w, w.want("theirs"))
	if got := w.branches(); got != "main\ntheirs" {
		t.Errorf("branches:\n%s", got)
	}
}

// B-061: a branch in another worktree is told with its path, and left there.
func TestB061CheckedOutElsewhere(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, "checkout", "-q", "-b", "feat")
	want := w.want("feat")
	if e := wantError[*effects.BranchCheckedOutElsewhereError](w, want); e.Path != w.repo {
		t.Errorf("held at %q, want %q", e.Path, w.repo)
	}
	w.sh(w.repo, "checkout", "-q", "main")
	w.ensure(want)
	w.wantWhole(want)
	other := want
	other.UID, other.Path = "other", w.path("wt/other")
	if e := wantError[*effects.BranchCheckedOutElsewhereError](w, other); e.Path != want.Path {
		t.Errorf("held at %q, want %q", e.Path, want.Path)
	}
	// In a bisect the list shows no branch.
	w.sh(w.repo, "checkout", "-q", "-b", "bisected")
	w.sh(w.repo, "bisect", "start")
	w.sh(w.repo, "checkout", "-q", "--detach")
	if e := wantError[*effects.BranchCheckedOutElsewhereError](w, w.want("bisected")); e.Path != w.repo {
		t.Errorf("held at %q, want %q", e.Path, w.repo)
	}
}

func TestPathOfAnother(t *testing.T) {
	w := newWorld(t)
	first := w.want("feat")
	w.ensure(first)
	second := first
	second.UID = "second"
	if e := wantError[*effects.PathNotEmptyError](w, second); e.UID != first.UID {
		t.Errorf("it belongs to %q, want %q", e.UID, first.UID)
	}
	must(t, w.git.Transfer(t.Context(), first.Path, first.UID, second.UID))
	w.ensure(second)
	w.wantWhole(second)
	must(t, w.git.Unmark(t.Context(), first.Path, second.UID))
	must(t, w.git.Unmark(t.Context(), first.Path, second.UID))
	// Nobody's now: used, and not ours.
	if got := w.ensure(first); got.Ours || got.Created {
		t.Errorf("got %+v, want one that is not ours", got)
	}
	if uid, ok, err := w.git.Marked(t.Context(), first.Path); ok || err != nil {
		t.Errorf("Marked = %q, %v, %v", uid, ok, err)
	}
	other := first
	other.Branch = "new"
	wantError[*effects.PathNotEmptyError](w, other)
}

func TestMovedByHand(t *testing.T) {
	w := newWorld(t)
	want := w.want("feat")
	w.ensure(want)
	w.put("wt/feat/new", "x")
	w.sh(want.Path, "add", "new")
	must(t, os.Rename(want.Path, w.path("wt/moved")))
	if e := wantError[*effects.WorktreeMovedError](w, want); e.Path != w.path("wt/moved") {
		t.Errorf("it is at %q", e.Path)
	}
	if got := w.sh(w.path("wt/moved"), "status", "--porcelain"); got != "A  new" {
		t.Errorf("status = %q", got)
	}
	if !strings.Contains(w.sh(w.repo, "worktree", "list"), w.path("wt/moved")) {
		t.Error("git does not know where it is")
	}
	want.Path = w.path("wt/moved")
	w.ensure(want)
	must(t, os.Mkdir(w.path("far"), 0o755))
	must(t, os.Rename(want.Path, w.path("far/away")))
	want.Path = w.path("far/away") // told by the user
	w.ensure(want)
	w.sh(w.repo, "worktree", "move", want.Path, w.path("wt/by-git"))
	if e := wantError[*effects.WorktreeMovedError](w, want); e.Path != w.path("wt/by-git") {
		t.Errorf("it is at %q", e.Path)
	}
	// Another tree where ours was.
	must(t, os.Rename(w.path("wt/by-git"), w.path("gone")))
	w.put("wt/by-git/theirs", "x")
	want.Path = w.path("wt/by-git")
	wantError[*effects.PathNotEmptyError](w, want)
}

func TestLinkLost(t *testing.T) {
	w := newWorld(t)
	want := w.want("feat")
	w.ensure(want)
	must(t, os.Remove(filepath.Join(want.Path, ".git")))
	w.put("wt/feat/new", "x")
	w.ensure(want)
	if got := w.sh(want.Path, "status", "--porcelain"); got != "?? new" {
		t.Errorf("status = %q", got)
	}
	// The repository moves.
	must(t, os.Rename(w.repo, w.path("app2")))
	want.Repo = w.path("app2")
	w.ensure(want)
	if got := w.sh(want.Path, "status", "--porcelain"); got != "?? new" {
		t.Errorf("status = %q", got)
	}
}

// A foreign tree that stands where a worktree was is not touched by what we
// repair; `git worktree repair` would rewrite its .git file.
func TestForeignTreeIsLeft(t *testing.T) {
	w := newWorld(t)
	want := w.want("feat")
	w.ensure(want)
	w.sh(w.dir, "clone", "-q", "app", "other")
	w.sh(w.repo, "worktree", "add", "-q", "-b", "b", w.path("wt/b"))
	must(t, os.RemoveAll(w.path("wt/b")))
	w.sh(w.path("other"), "worktree", "add", "-q", "-b", "b", w.path("wt/b"))
	before := w.tree(w.path("wt/b"))
	must(t, w.git.BeforeMove(t.Context(), want.Path, want.UID, "x"))
	must(t, os.Rename(want.Path, w.path("wt/feat2")))
	must(t, w.git.AfterMove(t.Context(), w.path("wt/feat2"), want.UID))
	if got := w.tree(w.path("wt/b")); got != before {
		t.Errorf("the other tree changed:\n%s", got)
	}
}

func TestLockedByHand(t *testing.T) {
	w := newWorld(t)
	want := w.want("feat")
	w.ensure(want)
	w.sh(w.repo, "worktree", "lock", "--reason", "mine", want.Path)
	w.ensure(want)
	w.wantWhole(want)
	if !strings.Contains(w.sh(w.repo, "worktree", "list", "--porcelain"), "locked mine") {
		t.Error("the lock is gone")
	}
}

func TestNothingOfOthersRuns(t *testing.T) {
	w := newWorld(t)
	trap := func(name string) string {
		w.put("trap/"+name, "#!/bin/sh\ntouch "+w.path("sprung-"+name)+"\n")
		must(t, os.Chmod(w.path("trap/"+name), 0o755))
		return w.path("trap/" + name)
	}
	w.sh(w.repo, "config", "core.hooksPath", filepath.Dir(trap("post-checkout")))
	trap("reference-transaction")
	trap("post-index-change")
	w.sh(w.repo, "config", "core.fsmonitor", trap("fsmonitor"))
	w.sh(w.repo, "config", "core.pager", trap("pager"))
	w.sh(w.repo, "config", "diff.external", trap("diff"))
	for _, f := range []string{"post-checkout", "reference-transaction", "post-index-change", "fsmonitor"} {
		_ = os.Remove(w.path("sprung-" + f)) // by the config commands
	}
	t.Setenv("GIT_DIR", w.path("nowhere"))
	t.Setenv("GIT_WORK_TREE", w.path("nowhere"))
	t.Setenv("GIT_EXTERNAL_DIFF", trap("env"))
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
	t.Setenv("GIT_CONFIG_VALUE_0", w.path("trap"))
	want := w.want("feat")
	w.ensure(want)
	_, err := w.git.Safety(t.Context(), want.Path, git.Limits{})
	must(t, err)
	must(t, w.git.BeforeMove(t.Context(), want.Path, want.UID, "x"))
	if sprung, _ := filepath.Glob(w.path("sprung-*")); len(sprung) > 0 {
		t.Errorf("these ran: %v", sprung)
	}
}

func TestTimeout(t *testing.T) {
	w := newWorld(t)
	w.put("bin/git", "#!/bin/sh\ntrap '' TERM\nsleep 600 &\nwait\nsleep 600\n")
	must(t, os.Chmod(w.path("bin/git"), 0o755))
	w.with(git.Options{Git: w.path("bin/git"), Timeout: 50 * time.Millisecond})
	start := time.Now()
	_, err := w.git.Open(t.Context(), w.repo)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 20*time.Second {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
}

func TestNoGit(t *testing.T) {
	if _, err := git.New(git.Options{Git: "/nowhere/git"}); !errors.Is(err, effects.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// A first commit without files, as the cases have it.
func TestEmptyTree(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, "checkout", "-q", "--orphan", "bare")
	w.sh(w.repo, "rm", "-rfq", ".")
	w.commit(w.repo, "nothing")
	want := w.want("feat")
	if got := w.ensure(want); !got.Created {
		t.Error("not created")
	}
	w.wantWhole(want)
	if got := w.ensure(want); got.Created {
		t.Error("created twice")
	}
}

// What was on another disk than the repository is missing with it, not gone.
func TestDiskMissing(t *testing.T) {
	w := newWorld(t)
	want := w.want("feat")
	got := w.ensure(want)
	mark, err := os.ReadFile(filepath.Join(got.GitDir, "skc"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(got.GitDir, "skc"), []byte(strings.Replace(string(mark), "other-disk false", "other-disk true", 1)), 0o600))
	must(t, os.Rename(w.path("wt"), w.path("unmounted")))
	if e := wantError[*effects.DiskMissingError](w, want); e.Path != want.Path {
		t.Errorf("got %+v", e)
	}
	must(t, os.Rename(w.path("unmounted"), w.path("wt")))
	w.ensure(want)
	w.wantWhole(want)
}

// What was dropped is kept for two weeks, and for good when it may hold commits.
func TestDroppedIsKept(t *testing.T) {
	w := newWorld(t)
	now := clocktesting.NewFakeClock(time.Now())
	w.with(git.Options{Clock: now})
	drop := func(branch string) {
		w.ensure(w.want(branch))
		must(t, os.RemoveAll(w.want(branch).Path))
		w.ensure(w.want(branch))
	}
	drop("a")
	w.ensure(w.want("b"))
	must(t, os.MkdirAll(w.path("app/.git/worktrees/b/modules/sub"), 0o755))
	must(t, os.RemoveAll(w.want("b").Path))
	w.ensure(w.want("b"))
	now.Step(13 * 24 * time.Hour)
	drop("c")
	now.Step(2 * 24 * time.Hour)
	drop("d")
	names, err := os.ReadDir(w.path("app/.git/skc-dropped"))
	must(t, err)
	var left string
	for _, n := range names {
		left += n.Name()[strings.LastIndex(n.Name(), ".")+1:]
	}
	if left != "bcd" {
		t.Errorf("left are %q, want b, c and d", left)
	}
}

// A copy in the place of the folder is another folder.
func TestMarkedIsTheFolderItself(t *testing.T) {
	w := newWorld(t)
	want := w.want("feat")
	w.ensure(want)
	must(t, os.CopyFS(w.path("copy"), os.DirFS(want.Path)))
	must(t, os.Rename(want.Path, w.path("first")))
	must(t, os.Rename(w.path("copy"), want.Path))
	if uid, ok, err := w.git.Marked(t.Context(), want.Path); ok || err != nil {
		t.Errorf("Marked = %q, %v, %v; want that it is not", uid, ok, err)
	}
}

// A folder that comes back, or is locked, in the moment in which its
// registration is dropped keeps it.
func TestComesBackWhileDropped(t *testing.T) {
	for name, now := range map[string]func(w *world, aside string) error{
		"comes back": func(w *world, _ string) error { return os.Rename(w.path("away"), w.path("wt/feat")) },
		"is locked":  func(w *world, aside string) error { return os.WriteFile(filepath.Join(aside, "locked"), nil, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			want := w.want("feat")
			w.ensure(want)
			must(t, os.Rename(want.Path, w.path("away")))
			w.with(git.Options{Files: &files.Layer{Trace: func(op files.Op) {
				if op.Kind == files.OpRename && filepath.Base(filepath.Dir(op.To)) == "skc-dropped" {
					must(t, now(w, op.To))
				}
			}}})
			if _, err := w.git.EnsureWorktree(t.Context(), want); !errors.Is(err, effects.ErrConflict) {
				t.Errorf("got %v, want ErrConflict", err)
			}
			if _, err := os.Stat(w.path("away")); err == nil {
				must(t, os.Rename(w.path("away"), want.Path))
			}
			w.ensure(want)
			w.wantWhole(want)
		})
	}
}

// What git writes for us has the modes that it has when the user's own git writes
// it, though skcd keeps to itself what it writes.
func TestModesAreTheUsers(t *testing.T) {
	w := newWorld(t)
	w.put("app/run", "#!/bin/sh\n")
	must(t, os.Chmod(w.path("app/run"), 0o755))
	w.commit(w.repo, "run")
	old := syscall.Umask(0o077)
	got := w.ensure(w.want("feat"))
	syscall.Umask(old)
	for name, want := range map[string]os.FileMode{"": 0o755, "README": 0o644, "d": 0o755, "run": 0o755} {
		fi, err := os.Stat(filepath.Join(got.Path, name))
		must(t, err)
		if fi.Mode().Perm() != want {
			t.Errorf("%q has the mode %s, want %s", name, fi.Mode().Perm(), want)
		}
	}
}
