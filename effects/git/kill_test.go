package git_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
)

// childEnv makes the test binary do one operation in the world whose folder is
// its first argument.
const childEnv = "GIT_TEST_CHILD"

// operations are done by a child that is killed in the middle.
var operations = map[string]struct {
	points []string
	do     func(ctx context.Context, g *git.Git, dir string) error
}{
	"make": {
		[]string{"git.branch", "git.worktree-add", "git.mark", "git.checkout", "git.index", "git.unlock"},
		func(ctx context.Context, g *git.Git, dir string) error {
			_, err := g.EnsureWorktree(ctx, killWant(dir))
			return err
		},
	},
	"make again": { // it was removed by hand
		[]string{"git.drop", "git.worktree-add", "git.mark"},
		func(ctx context.Context, g *git.Git, dir string) error {
			_, err := g.EnsureWorktree(ctx, killWant(dir))
			return err
		},
	},
	"set aside": {
		[]string{"git.lock", "git.detach", "git.mark", "git.gitdir"},
		func(ctx context.Context, g *git.Git, dir string) error {
			want := killWant(dir)
			if _, err := os.Lstat(want.Path); err == nil {
				if err := g.BeforeMove(ctx, want.Path, want.UID, "test"); err != nil {
					return err
				}
				if err := os.Rename(want.Path, filepath.Join(dir, "aside")); err != nil {
					return err
				}
			}
			return g.AfterMove(ctx, filepath.Join(dir, "aside"), want.UID)
		},
	},
	"restore": {
		[]string{"git.attach", "git.unlock", "git.mark", "git.gitdir"},
		func(ctx context.Context, g *git.Git, dir string) error {
			want := killWant(dir)
			if _, err := os.Lstat(want.Path); err != nil {
				if err := os.Rename(filepath.Join(dir, "aside"), want.Path); err != nil {
					return err
				}
			}
			_, err := g.AfterRestore(ctx, want.Path, want.UID)
			return err
		},
	},
	"purge": {
		[]string{"git.unlock", "git.drop"},
		func(ctx context.Context, g *git.Git, dir string) error {
			repo, err := g.Open(ctx, filepath.Join(dir, "app"))
			if err != nil {
				return err
			}
			if err := os.RemoveAll(filepath.Join(dir, "aside")); err != nil {
				return err
			}
			return g.AfterPurge(ctx, repo, filepath.Join(dir, "aside"), killWant(dir).UID)
		},
	},
	"unmark": {
		[]string{"git.unmark"},
		func(ctx context.Context, g *git.Git, dir string) error {
			return g.Unmark(ctx, killWant(dir).Path, killWant(dir).UID)
		},
	},
}

func killWant(dir string) effects.WantWorktree {
	return effects.WantWorktree{Repo: filepath.Join(dir, "app"), Branch: "feat/x", UID: "killed-1", Path: filepath.Join(dir, "wt/feat-x")}
}

func child() int {
	op, ok := operations[os.Getenv(childEnv)]
	if !ok {
		return 2
	}
	g, err := git.New(git.Options{Files: &files.Layer{}, LockWait: time.Minute})
	if err == nil {
		err = op.do(context.Background(), g, os.Args[1])
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// TestKilled kills the process in each phase of each step. The next one comes
// to the same end, with nothing lost and nothing left.
func TestKilled(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs a build with the tag skcfaults")
	}
	for name, op := range operations {
		for _, point := range op.points {
			for _, phase := range []string{"before", "during", "after"} {
				for _, action := range []string{"kill", "ENOSPC"} {
					t.Run(strings.Join([]string{name, point, phase, action}, " "), func(t *testing.T) {
						w := newWorld(t)
						want := killWant(w.dir)
						prepare(w, name, want)
						kill(t, w, name, point+":"+phase+"="+action)
						finish(w, name, want)
					})
				}
			}
		}
	}
}

// prepare brings the world to where an operation begins.
func prepare(w *world, op string, want effects.WantWorktree) {
	w.t.Helper()
	if op == "make" {
		return
	}
	w.ensure(want)
	w.put("wt/feat-x/work", "work\n")
	w.commit(want.Path, "work")
	if op == "make again" {
		must(w.t, os.RemoveAll(want.Path))
		return
	}
	w.put("wt/feat-x/untracked", "untracked\n")
	w.put("wt/feat-x/work", "changed\n")
	w.sh(want.Path, "add", "work")
	if op == "restore" || op == "purge" {
		must(w.t, operations["set aside"].do(w.t.Context(), w.git, w.dir))
	}
}

// kill runs an operation that ends at that place.
func kill(t *testing.T, w *world, op, place string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], w.dir)
	cmd.Env = append(os.Environ(), childEnv+"="+op, "SKC_FAULT="+place)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if !killed && (strings.Contains(place, "kill") || err == nil) {
		t.Fatalf("the child did not end there: %v\n%s", err, out)
	}
}

// finish does the operation again, and sees that all is as without the kill.
func finish(w *world, op string, want effects.WantWorktree) {
	w.t.Helper()
	if err := operations[op].do(w.t.Context(), w.git, w.dir); err != nil {
		w.t.Fatalf("the second try: %v", err)
	}
	list := w.sh(w.repo, "worktree", "list", "--porcelain")
	refs := w.sh(w.repo, "for-each-ref", "--format=%(refname)", "refs/skc")
	dirty := "A  untracked\nM  work"
	switch op {
	case "make", "make again":
		w.wantWhole(want)
		if got := w.ensure(want); !got.BranchCreated || !got.Ours {
			w.t.Errorf("got %+v", got)
		}
		if n := strings.Count(list, "worktree "); n != 2 || refs != "" {
			w.t.Errorf("left over: %s %s", list, refs)
		}
	case "set aside":
		if !strings.Contains(list, "worktree "+w.path("aside")) || !strings.Contains(list, "locked skc: set aside: test") || refs != "refs/skc/quarantine/killed-1" {
			w.t.Errorf("list:\n%s\nrefs: %s", list, refs)
		}
		w.sh(w.path("aside"), "add", "untracked")
		if got := w.sh(w.path("aside"), "status", "--porcelain"); got != dirty {
			w.t.Errorf("status: %q", got)
		}
	case "restore":
		w.sh(want.Path, "add", "untracked")
		if got := w.sh(want.Path, "status", "--porcelain"); got != dirty {
			w.t.Errorf("status: %q", got)
		}
		if got := w.sh(want.Path, "branch", "--show-current"); got != want.Branch || refs != "" || strings.Contains(list, "locked") {
			w.t.Errorf("branch %q, refs %q, list:\n%s", got, refs, list)
		}
	case "purge":
		if n := strings.Count(list, "worktree "); n != 1 || refs != "" {
			w.t.Errorf("left over: %s %s", list, refs)
		}
	case "unmark":
		if _, ok, err := w.git.Marked(w.t.Context(), want.Path); ok || err != nil {
			w.t.Errorf("still marked, %v", err)
		}
	}
	if op != "make" {
		if got := w.sh(w.repo, "log", "-1", "--format=%s", want.Branch); got != "work" {
			w.t.Errorf("the branch is at %q", got)
		}
	}
	w.sh(w.repo, "fsck", "--no-dangling")
}

// A controller that is killed while git checks out leaves a git that goes on.
// It is waited for, and not worked against.
func TestKilledWhileGitRuns(t *testing.T) {
	w := newWorld(t)
	real, err := exec.LookPath("git")
	must(t, err)
	w.put("bin/git", fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' worktree add '*) echo $PPID > %[2]s; touch %[3]s; while [ -e %[3]s ]; do sleep 0.02; done;; esac\nexec %[1]s \"$@\"\n",
		real, w.path("parent"), w.path("hold")))
	must(t, os.Chmod(w.path("bin/git"), 0o755))
	want := killWant(w.dir)
	cmd := exec.Command(os.Args[0], w.dir)
	cmd.Env = append(os.Environ(), childEnv+"=make", "PATH="+w.path("bin")+":"+os.Getenv("PATH"))
	must(t, cmd.Start())
	for {
		if _, err := os.Stat(w.path("hold")); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond) // for another process, which tells nothing else
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	wantError[*effects.RepoLockedError](w, want)
	w.with(git.Options{LockWait: time.Minute})
	must(t, os.Remove(w.path("hold")))
	w.ensure(want)
	w.wantWhole(want)
}

// A checkout that broke off in the middle of a file is finished; what somebody
// else wrote there meanwhile stays.
func TestHalfCheckedOut(t *testing.T) {
	w := newWorld(t)
	w.put("app/big", strings.Repeat("0123456789\n", 20000))
	w.put("app/third", "third\n")
	w.put("app/run", "#!/bin/sh\n")
	must(t, os.Chmod(w.path("app/run"), 0o755))
	must(t, os.Symlink("big", w.path("app/ln")))
	w.commit(w.repo, "big")
	real, err := exec.LookPath("git")
	must(t, err)
	// A git that dies in the middle of its checkout.
	w.put("bin/git", fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' read-tree -m -u '*) kill -9 $$;; esac\nexec %s \"$@\"\n", real))
	must(t, os.Chmod(w.path("bin/git"), 0o755))
	w.with(git.Options{Git: w.path("bin/git")})
	want := w.want("feat")
	wantError[*effects.CommandError](w, want)
	admin := w.path("app/.git/worktrees/feat")
	w.put("wt/feat/big", "0123456789\n01234")
	w.put("wt/feat/README", "somebody's own\n")
	w.put("wt/feat/d/untracked", "somebody's own\n")
	w.put("wt/feat/run", "")
	must(t, os.WriteFile(filepath.Join(admin, "skc-index.lock"), []byte("half"), 0o644))
	if _, ok, err := w.git.Marked(t.Context(), want.Path); !ok || err != nil {
		t.Errorf("not marked: %v", err)
	}
	w.with(git.Options{})
	if got := w.ensure(want); !got.Created {
		t.Error("it is not said that this call made it")
	}
	if got := w.sh(want.Path, "status", "--porcelain"); got != "M README\n?? d/untracked" {
		t.Errorf("status = %q", got)
	}
	if data, err := os.ReadFile(w.path("wt/feat/README")); err != nil || string(data) != "somebody's own\n" {
		t.Errorf("README = %q, %v", data, err)
	}
}
