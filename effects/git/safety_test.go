package git_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/git"
)

var allChecks = []string{git.CheckDirty, git.CheckUntracked, git.CheckIgnored, git.CheckStash, git.CheckUnpushed,
	git.CheckUpstream, git.CheckSubmodules, git.CheckOpenFiles, git.CheckWorkingIn, git.CheckLock}

// withRemote makes the clone follow a bare repository that has all of it.
func (w *world) withRemote() {
	w.sh(w.dir, "clone", "-q", "--bare", "app", "up.git")
	w.sh(w.repo, "remote", "add", "origin", w.path("up.git"))
	w.sh(w.repo, "fetch", "-q", "origin")
}

func TestSafety(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are looked at on Linux only")
	}
	type red map[string]string // check to a part of its value; all others are green
	for _, tc := range []struct {
		name string
		do   func(w *world, path string)
		red  red
		safe bool
	}{
		{name: "clean", safe: true},
		{name: "staged, unstaged, in conflict", do: func(w *world, path string) {
			w.put("wt/feat/README", "staged\n")
			w.sh(path, "add", "README")
			w.put("wt/feat/d/file", "changed\n")
		}, red: red{git.CheckDirty: "changes: 1 staged, 1 not staged"}},
		{name: "untracked", do: func(w *world, path string) {
			for _, f := range []string{"a,\nb", "c\xff", "dir/1", "dir/2", "e"} {
				w.put("wt/feat/"+f, "x")
			}
		}, red: red{git.CheckUntracked: `4: "a,\nb", "c\xff", dir/, …`}},
		{name: "ignored", do: func(w *world, path string) {
			w.put("app/.git/info/exclude", ".env\n/modules\n")
			w.put("wt/feat/.env", "x")
			w.put("wt/feat/modules/many/x", "x")
		}, red: red{git.CheckIgnored: "2: .env, modules/"}},
		{name: "stash of the branch", do: func(w *world, path string) {
			w.put("wt/feat/README", "x")
			w.sh(path, "stash", "-q")
			w.put("app/README", "x")
			w.sh(w.repo, "stash", "-q")
		}, red: red{git.CheckStash: "1 stash of this branch"}},
		{name: "commits", do: func(w *world, path string) {
			w.commit(path, "a")
			w.put("wt/feat/new", "x")
			w.commit(path, "b")
		}, red: red{git.CheckUnpushed: "2 commits on no remote", git.CheckUpstream: "0 of 2 are in origin/main as equal patches"}},
		{name: "detached", do: func(w *world, path string) {
			w.sh(path, "checkout", "-q", "--detach")
			w.commit(path, "a")
		}, red: red{git.CheckUnpushed: "1 commit on no remote", git.CheckUpstream: "0 of 1"}},
		{name: "equal patches upstream", do: func(w *world, path string) {
			w.put("wt/feat/new", "x")
			w.commit(path, "a")
			w.commit(w.repo, "other")
			w.sh(w.repo, "cherry-pick", "feat")
			w.sh(w.repo, "push", "-q", "origin", "main")
		}, red: red{git.CheckUnpushed: "1 commit on no remote"}, safe: true},
		{name: "pushed", do: func(w *world, path string) {
			w.commit(path, "a")
			w.sh(path, "push", "-q", "origin", "feat")
		}, safe: true},
		{name: "no remote", do: func(w *world, path string) {
			w.sh(w.repo, "remote", "remove", "origin")
		}, safe: true},
		{name: "no remote, and a commit", do: func(w *world, path string) {
			w.sh(w.repo, "remote", "remove", "origin")
			w.commit(path, "a")
		}, red: red{git.CheckUnpushed: "1 commit on no other branch (there is no remote)", git.CheckUpstream: "no upstream"}},
		{name: "no commits", do: func(w *world, path string) {
			w.sh(path, "checkout", "-q", "--orphan", "young")
			w.sh(path, "rm", "-rfq", ".")
		}, safe: true},
		{name: "a submodule", do: func(w *world, path string) {
			w.sh(path, "submodule", "--quiet", "add", w.path("up.git"), "sub")
			w.commit(path, "with sub")
			w.sh(path, "push", "-q", "origin", "feat")
			w.sh(path, "config", "submodule.sub.ignore", "all") // what the user hides is there all the same
			w.sh(path, "config", "status.showUntrackedFiles", "no")
			w.put("wt/feat/sub/untracked", "x")
			w.put("wt/feat/sub/README", "x")
		}, red: red{git.CheckDirty: "in submodules", git.CheckSubmodules: "sub: changes: 1 not staged, 1 untracked"}},
		{name: "a commit in a submodule", do: func(w *world, path string) {
			w.sh(path, "submodule", "--quiet", "add", w.path("up.git"), "sub")
			w.commit(filepath.Join(path, "sub"), "in sub")
			w.commit(path, "with sub")
			w.sh(path, "push", "-q", "origin", "feat")
		}, red: red{git.CheckSubmodules: "sub: 1 commit on no remote"}},
		{name: "locked", do: func(w *world, path string) {
			w.sh(path, "worktree", "lock", "--reason", "mine", path)
		}, red: red{git.CheckLock: "locked: mine"}},
		{name: "git at work", do: func(w *world, path string) {
			w.put("app/.git/worktrees/feat/index.lock", "")
		}, red: red{git.CheckLock: "index.lock"}},
		{name: "in use", do: func(w *world, path string) {
			cmd := exec.Command("sleep", "600")
			cmd.Dir = filepath.Join(path, "d")
			f, err := os.Open(filepath.Join(path, "README"))
			must(w.t, err)
			defer func() { _ = f.Close() }()
			cmd.Stdin = f
			must(w.t, cmd.Start())
			w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		}, red: red{git.CheckOpenFiles: "sleep (pid ", git.CheckWorkingIn: "sleep (pid "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.withRemote()
			want := w.want("feat")
			w.ensure(want)
			if tc.do != nil {
				tc.do(w, want.Path)
			}
			before := w.tree(w.dir)
			got, err := w.git.Safety(t.Context(), want.Path, git.Limits{PerCheck: time.Minute})
			must(t, err)
			for i, c := range got.Checks {
				if c.Name != allChecks[i] {
					t.Errorf("check %d is %q, want %q", i, c.Name, allChecks[i])
				}
				value, bad := tc.red[c.Name]
				if c.OK == bad || !strings.Contains(c.Value, value) || c.OK != (c.Fix == "") || c.Value == "" {
					t.Errorf("got %+v, want OK %v, value %q", c, !bad, value)
				}
			}
			if got.Safe() != tc.safe {
				t.Errorf("Safe() = %v, want %v", got.Safe(), tc.safe)
			}
			if w.tree(w.dir) != before {
				t.Error("looking changed something")
			}
		})
	}
}

// Time that runs out is not "clean".
func TestSafetyOutOfTime(t *testing.T) {
	w := newWorld(t)
	want := w.want("feat")
	w.ensure(want)
	real, err := exec.LookPath("git")
	must(t, err)
	w.put("bin/git", fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' ls-files '*) exec sleep 600;; esac\nexec %s \"$@\"\n", real))
	must(t, os.Chmod(w.path("bin/git"), 0o755))
	w.with(git.Options{Git: w.path("bin/git")})
	got, err := w.git.Safety(t.Context(), want.Path, git.Limits{PerCheck: 200 * time.Millisecond})
	must(t, err)
	for _, name := range []string{git.CheckUntracked, git.CheckIgnored} {
		if c := got.Check(name); c.OK || c.Value != "not known in time" || c.Fix == "" {
			t.Errorf("got %+v", c)
		}
	}
	if len(got.Checks) != len(allChecks) || got.Safe() {
		t.Errorf("got %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.git.Safety(ctx, want.Path, git.Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := w.git.Safety(t.Context(), w.path("nothing"), git.Limits{}); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
