package session

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/workspace"
)

// sh runs git as a person would, in dir.
func (w *world) sh(dir string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GIT_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_OPTIONAL_LOCKS=0", "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@example.invalid", "GIT_COMMITTER_NAME=T", "GIT_COMMITTER_EMAIL=t@example.invalid")
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// repo is a clone with one commit on main.
func (w *world) repo() string { return filepath.Join(w.dir, "app") }

// wt is where the worktree of branch feat is unless told.
func (w *world) wt() string { return filepath.Join(w.dir, "app.worktrees", "feat") }

func newWorktreeWorld(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.sh(w.dir, "init", "-q", "-b", "main", w.repo())
	w.put("app/README", "read me\n")
	w.put("app/.gitignore", "*.log\n")
	w.sh(w.repo(), "add", "-A")
	w.sh(w.repo(), "commit", "-q", "-m", "one")
	return w
}

func (w *world) put(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	must(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(w.t, os.WriteFile(path, []byte(text), 0o644))
}

func (w *world) read(path string) string {
	w.t.Helper()
	data, err := os.ReadFile(path)
	must(w.t, err)
	return string(data)
}

func (w *world) exists(path string) bool {
	w.t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return err == nil
}

// worktree makes the target a worktree of branch feat.
func (w *world) worktree(edit ...func(*v1alpha1.WorktreeTarget)) func(*v1alpha1.SessionSpec) {
	t := &v1alpha1.WorktreeTarget{Repo: v1alpha1.Path(w.repo()), Branch: "feat"}
	for _, e := range edit {
		e(t)
	}
	return func(s *v1alpha1.SessionSpec) { s.Target = v1alpha1.SessionTarget{Worktree: t} }
}

func (w *world) applyWorktree(edit ...func(*v1alpha1.SessionSpec)) {
	w.t.Helper()
	w.apply(w.spec(append([]func(*v1alpha1.SessionSpec){w.worktree()}, edit...)...), nil)
}

func (w *world) message(condition string) string {
	w.t.Helper()
	if c := meta.FindStatusCondition(w.get().Status.Conditions, condition); c != nil {
		return c.Message
	}
	return ""
}

// wantOurs sees that the worktree is there, whole, marked and in status.
func (w *world) wantOurs(path string) {
	w.t.Helper()
	s := w.get()
	ws := s.Status.Workspace
	if ws == nil || ws.Path != path || !ws.CreatedByController || ws.Identity == "" || ws.Repo != filepath.Join(w.repo(), ".git") {
		w.t.Fatalf("workspace %+v, want ours at %s", ws, path)
	}
	l, err := w.worktrees.Look(path)
	if err != nil || l.UID != string(s.UID) || l.Making {
		w.t.Fatalf("Look = %+v, %v; want the mark of %s", l, err, s.UID)
	}
	if got := w.sh(path, "status", "--porcelain"); got != "" {
		w.t.Errorf("not clean:\n%s", got)
	}
}

func TestAWorktreeComesUpAndRestsWithoutGit(t *testing.T) {
	w := newWorktreeWorld(t)
	log := filepath.Join(w.dir, "gits")
	wrapper := filepath.Join(w.dir, "git")
	must(t, os.WriteFile(wrapper, fmt.Appendf(nil, "#!/bin/sh\necho x >> %s\nexec git \"$@\"\n", log), 0o755))
	w.gitOptions.Git = wrapper
	w.restartController()
	w.applyWorktree()
	if next := w.pass(); next != 0 {
		t.Errorf("next look in %s, want none: changes tell", next)
	}
	w.wantRunning(1)
	w.wantOurs(w.wt())
	w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceCreated)
	ws := w.get().Status.Workspace
	if ws.Branch != "feat" || ws.Head != w.sh(w.repo(), "rev-parse", "main") {
		t.Errorf("workspace %+v, want branch feat at main", ws)
	}
	gits, writes := w.read(log), w.store.Stats().Writes
	for range 2 {
		w.restartController()
		w.pass()
	}
	if got := w.read(log); got != gits {
		t.Errorf("%d gits for a Session at rest", strings.Count(got, "x")-strings.Count(gits, "x"))
	}
	if got := w.store.Stats().Writes; got != writes {
		t.Errorf("%d writes of passes that find nothing to do", got-writes)
	}
}

// DESIGN.md 4: a cold converge costs at most two synced state files. What git's
// mark costs is beside it.
func TestFsyncsOfAColdConverge(t *testing.T) {
	for name, tt := range map[string]struct {
		spec func(w *world) func(*v1alpha1.SessionSpec)
		want int64
	}{
		"a folder that is there": {func(w *world) func(*v1alpha1.SessionSpec) {
			must(w.t, os.Mkdir(w.work, 0o755))
			return func(*v1alpha1.SessionSpec) {}
		}, 1},
		"a folder of ours":      {func(*world) func(*v1alpha1.SessionSpec) { return func(*v1alpha1.SessionSpec) {} }, 2},
		"a worktree":            {func(w *world) func(*v1alpha1.SessionSpec) { return w.worktree() }, 1},
		"a worktree with setup": {func(w *world) func(*v1alpha1.SessionSpec) { return w.worktree(setupOf("/bin/true")) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorktreeWorld(t)
			spec := w.spec(tt.spec(w))
			st, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Files: &files.Layer{}, Clock: w.clock, Log: logr.Discard(),
				Finalizers: map[string]string{v1alpha1.KindSession: v1alpha1.SessionFinalizer}}) // as skcd opens it
			must(t, err)
			w.store = st
			w.restartController()
			before := w.store.Stats().Durable
			w.apply(spec, nil)
			w.pass()
			w.wantRunning(1)
			if got := w.store.Stats().Durable - before; got != tt.want {
				t.Errorf("%d synced state files, want %d", got, tt.want)
			}
		})
	}
}

// Each thing that keeps a worktree from being made has a reason and a message of
// its own, is tried again without a change of the status, and heals when it goes.
func TestWhatKeepsAWorktreeFromBeingMade(t *testing.T) {
	at := func(path string) func(*v1alpha1.WorktreeTarget) {
		return func(t *v1alpha1.WorktreeTarget) { t.Path = v1alpha1.Path(path) }
	}
	for name, tt := range map[string]struct {
		block, free   func(w *world)
		target        func(w *world) func(*v1alpha1.WorktreeTarget)
		reason, names string // names: what the message must name
	}{
		"checked out elsewhere (B-061)": {
			block:  func(w *world) { w.sh(w.repo(), "switch", "-q", "-c", "feat") },
			free:   func(w *world) { w.sh(w.repo(), "switch", "-q", "main") },
			reason: v1alpha1.ReasonBranchCheckedOutElsewhere, names: "/app",
		},
		"no such branch name": {
			target: func(*world) func(*v1alpha1.WorktreeTarget) {
				return func(t *v1alpha1.WorktreeTarget) { t.Branch = "a..b" }
			},
			reason: v1alpha1.ReasonBranchInvalid, names: "a..b",
		},
		"a ref in the way": {
			block:  func(w *world) { w.sh(w.repo(), "branch", "feat/x") },
			free:   func(w *world) { w.sh(w.repo(), "branch", "-D", "feat/x") },
			reason: v1alpha1.ReasonBranchCollision, names: "feat/x",
		},
		"no base": {
			target: func(*world) func(*v1alpha1.WorktreeTarget) {
				return func(t *v1alpha1.WorktreeTarget) { t.Base = "v1" }
			},
			free:   func(w *world) { w.sh(w.repo(), "tag", "v1") },
			reason: v1alpha1.ReasonBaseNotFound, names: "v1",
		},
		"no repository": {
			block:  func(w *world) { must(w.t, os.Rename(w.repo(), w.repo()+"-away")) },
			free:   func(w *world) { must(w.t, os.Rename(w.repo()+"-away", w.repo())) },
			reason: v1alpha1.ReasonRepositoryMissing, names: "app",
		},
		"not a repository": {
			block:  func(w *world) { must(w.t, os.Rename(w.repo()+"/.git", w.dir+"/git-away")) },
			free:   func(w *world) { must(w.t, os.Rename(w.dir+"/git-away", w.repo()+"/.git")) },
			reason: v1alpha1.ReasonNotARepository, names: "app",
		},
		"a lock left for ever (B-059)": {
			block:  func(w *world) { w.put("app/.git/refs/heads/feat.lock", "") },
			free:   func(w *world) { must(w.t, os.Remove(w.repo()+"/.git/refs/heads/feat.lock")) },
			reason: v1alpha1.ReasonRepositoryLocked, names: "feat.lock",
		},
		"something at the path": {
			target: func(w *world) func(*v1alpha1.WorktreeTarget) { return at(filepath.Join(w.dir, "there")) },
			block:  func(w *world) { w.put("there/work", "mine") },
			free:   func(w *world) { must(w.t, os.RemoveAll(filepath.Join(w.dir, "there"))) },
			reason: v1alpha1.ReasonPathNotEmpty, names: "there",
		},
		"locked, and its folder is away (B-053)": {
			block: func(w *world) {
				w.sh(w.repo(), "worktree", "add", "-q", "-b", "feat", w.wt())
				w.sh(w.repo(), "worktree", "lock", "--reason", "usb disk", w.wt())
				must(w.t, os.Rename(w.wt(), filepath.Join(w.dir, "usb")))
			},
			free: func(w *world) {
				must(w.t, os.Rename(filepath.Join(w.dir, "usb"), w.wt()))
				w.sh(w.repo(), "worktree", "unlock", w.wt())
			},
			reason: v1alpha1.ReasonWorktreeMissing, names: "usb disk",
		},
		"git fails": {
			block: func(w *world) {
				w.put("broken-git", "#!/bin/sh\necho 'fatal: out of luck' >&2\nexit 128\n")
				must(w.t, os.Chmod(filepath.Join(w.dir, "broken-git"), 0o755))
				w.gitOptions.Git = filepath.Join(w.dir, "broken-git")
				w.restartController()
			},
			free:   func(w *world) { w.gitOptions.Git = ""; w.restartController() },
			reason: v1alpha1.ReasonGitFailed, names: "out of luck",
		},
		"git does nothing (B-058)": {
			block: func(w *world) {
				w.put("idle-git", "#!/bin/sh\nexit 0\n")
				must(w.t, os.Chmod(filepath.Join(w.dir, "idle-git"), 0o755))
				w.gitOptions.Git = filepath.Join(w.dir, "idle-git")
				w.restartController()
			},
			free:   func(w *world) { w.gitOptions.Git = ""; w.restartController() },
			reason: v1alpha1.ReasonGitFailed, names: "see which git",
		},
		"no git": {
			block:  func(w *world) { w.gitOptions.Git = "no-such-git" },
			free:   func(w *world) { w.gitOptions.Git = "" },
			reason: v1alpha1.ReasonGitMissing, names: "no-such-git",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorktreeWorld(t)
			if tt.block != nil {
				tt.block(w)
			}
			spec := w.spec(w.worktree())
			if tt.target != nil {
				spec = w.spec(w.worktree(tt.target(w)))
			}
			w.apply(spec, nil)
			if next := w.pass(); next != lookAgain {
				t.Errorf("next look in %s, want %s", next, lookAgain)
			}
			w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionFalse, tt.reason)
			w.wantCondition(v1alpha1.Ready, metav1.ConditionFalse, tt.reason)
			if m := w.message(v1alpha1.WorkspaceReady); !strings.Contains(m, tt.names) {
				t.Errorf("message %q, want it to name %q", m, tt.names)
			}
			writes := w.store.Stats().Writes
			for range 3 { // B-068
				w.clock.Step(lookAgain)
				w.pass()
			}
			if got := w.store.Stats().Writes; got != writes {
				t.Errorf("%d writes of tries that found the same", got-writes)
			}
			if out, err := exec.Command("git", "-C", w.repo(), "rev-parse", "--verify", "-q", "refs/heads/feat").Output(); err == nil && tt.block == nil {
				t.Errorf("a branch is left behind: %s", out)
			}
			if tt.free == nil {
				return
			}
			tt.free(w)
			w.pass()
			w.wantRunning(1)
		})
	}
}

func TestStoppedAndSuspendedMakeNothing(t *testing.T) {
	for name, edit := range map[string]func(*v1alpha1.SessionSpec){
		"stopped": stopped, "suspended": func(s *v1alpha1.SessionSpec) { s.Suspend = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorktreeWorld(t)
			w.applyWorktree(edit)
			w.pass()
			if w.exists(filepath.Dir(w.wt())) || w.get().Status.Workspace != nil {
				t.Errorf("something was made; workspace %+v", w.get().Status.Workspace)
			}
			w.applyWorktree()
			w.pass()
			w.wantRunning(1)
			w.wantOurs(w.wt())
		})
	}
}

// B-052: what was removed by hand is made again, whether the controller saw it go
// or not; nothing of it is lost that git has.
func TestRemovedByHand(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprintf("controller down %v", down), func(t *testing.T) {
			w := newWorktreeWorld(t)
			w.applyWorktree()
			w.pass()
			was := w.get().Status.Workspace.Identity
			must(t, os.RemoveAll(w.wt()))
			if down {
				w.restartController()
			}
			w.pass()
			w.wantOurs(w.wt())
			w.wantRunning(1)
			if w.get().Status.Workspace.Identity == was {
				t.Error("the identity is that of the folder that is gone")
			}
		})
	}
}

// A worktree that was removed by hand and made anew, which no pass lived to
// record, is recorded by the next, or set aside as what it is now.
func TestMadeAnewAndNotRecorded(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprintf("deleted %v", deleted), func(t *testing.T) {
			w := newWorktreeWorld(t)
			w.applyWorktree()
			w.pass()
			was := w.get().Status.Workspace.Identity
			must(t, os.Rename(w.wt(), w.wt()+".trash"))
			must(t, os.Remove(filepath.Join(w.wt()+".trash", ".git")))
			if _, err := w.r.Reconcile(t.Context(), web); err != nil {
				t.Fatal(err)
			}
			w.awaitBackground()
			w.restartController()
			if deleted {
				w.remove()
				w.pass()
				if w.version() != "gone" || w.quarantines.only().Spec.Origin.Identity == was {
					t.Errorf("version %s", w.version())
				}
				return
			}
			w.pass()
			w.wantOurs(w.wt())
			if w.get().Status.Workspace.Identity == was {
				t.Error("the identity is that of the folder that is gone")
			}
		})
	}
}

func TestMovedByHand(t *testing.T) {
	w := newWorktreeWorld(t)
	w.applyWorktree()
	w.pass()
	moved := w.wt() + "-elsewhere"
	must(t, os.Rename(w.wt(), moved))
	if next := w.pass(); next != lookAgain {
		t.Errorf("next look in %s", next)
	}
	w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionFalse, v1alpha1.ReasonWorktreeMoved)
	if m := w.message(v1alpha1.WorkspaceReady); !strings.Contains(m, moved) {
		t.Errorf("message %q does not name %s", m, moved)
	}
	// As the message says: path is set to where it is. Nothing goes into quarantine.
	w.apply(w.spec(w.worktree(func(t *v1alpha1.WorktreeTarget) { t.Path = v1alpha1.Path(moved) })), nil)
	w.pass()
	w.wantOurs(moved)
	w.wantRunning(2)
	if len(w.quarantines.objects) != 0 {
		t.Errorf("in quarantine: %v", w.quarantines.objects)
	}
}

// A worktree of that branch that somebody else made is used, and never ours.
func TestAWorktreeOfSomebodyElse(t *testing.T) {
	w := newWorktreeWorld(t)
	w.sh(w.repo(), "worktree", "add", "-q", "-b", "feat", w.wt())
	w.applyWorktree()
	w.pass()
	w.wantRunning(1)
	w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceFound)
	w.wantCondition(v1alpha1.SafeToDelete, metav1.ConditionTrue, v1alpha1.ReasonNotOurs)
	if ws := w.get().Status.Workspace; ws.CreatedByController || ws.Identity != "" {
		t.Errorf("workspace %+v, want not ours", ws)
	}
	w.remove()
	w.pass()
	if w.version() != "gone" || !w.exists(filepath.Join(w.wt(), "README")) || len(w.quarantines.objects) != 0 {
		t.Errorf("version %s; in quarantine %v; the worktree must stay", w.version(), w.quarantines.objects)
	}
}

// A path that is written in another way is no other target; base and setup are
// not either.
func TestWhatIsNoOtherTarget(t *testing.T) {
	for name, edit := range map[string]func(w *world) func(*v1alpha1.WorktreeTarget){
		"the default path written": func(w *world) func(*v1alpha1.WorktreeTarget) {
			return func(t *v1alpha1.WorktreeTarget) { t.Path = v1alpha1.Path(w.wt()) }
		},
		"a path through a link": func(w *world) func(*v1alpha1.WorktreeTarget) {
			must(w.t, os.Symlink("app.worktrees", filepath.Join(w.dir, "link")))
			return func(t *v1alpha1.WorktreeTarget) { t.Path = v1alpha1.Path(filepath.Join(w.dir, "link", "feat")) }
		},
		"a repository with a slash more": func(w *world) func(*v1alpha1.WorktreeTarget) {
			return func(t *v1alpha1.WorktreeTarget) { t.Repo += "/" }
		},
		"base": func(*world) func(*v1alpha1.WorktreeTarget) {
			return func(t *v1alpha1.WorktreeTarget) { t.Base = "main" }
		},
		"setup": func(*world) func(*v1alpha1.WorktreeTarget) { return setupOf("false") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorktreeWorld(t)
			w.applyWorktree()
			w.pass()
			was := w.get().Status.Workspace.Identity
			w.apply(w.spec(w.worktree(edit(w))), nil)
			w.pass()
			w.wantOurs(w.wt())
			w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRunning)
			if got := w.get().Status.Workspace.Identity; got != was || len(w.quarantines.objects) != 0 {
				t.Errorf("it is another worktree; in quarantine: %v", w.quarantines.objects)
			}
		})
	}
}

// Somebody else made the folder in the moment before ours got its name: theirs is
// used and is not ours.
func TestAFolderThatSomebodyElseMade(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	if _, err := w.r.Reconcile(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	if ws := w.get().Status.Workspace; ws == nil || !ws.CreatedByController || w.exists(w.work) {
		t.Fatalf("workspace %+v, want an identity and no name yet", ws)
	}
	must(t, os.Mkdir(w.work, 0o755))
	w.pass()
	w.wantRunning(1)
	w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceFound)
	if ws := w.get().Status.Workspace; ws.CreatedByController || ws.Identity != "" {
		t.Errorf("workspace %+v, want not ours", ws)
	}
	w.wantNames("work")
	w.remove()
	w.pass()
	w.wantNames("work")
}

// wantNames sees that nothing else is in the folder around all.
func (w *world) wantNames(want ...string) {
	w.t.Helper()
	list, err := os.ReadDir(w.dir)
	must(w.t, err)
	var got []string
	for _, d := range list {
		got = append(got, d.Name())
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("in the folder: %q, want %q", got, want)
	}
}

func TestAFolderOfOursThatWasReplaced(t *testing.T) {
	for name, replace := range map[string]func(w *world){
		"by another folder": func(w *world) { must(w.t, errors.Join(os.Rename(w.work, w.work+"2"), os.Mkdir(w.work, 0o755))) },
		"by a link":         func(w *world) { must(w.t, errors.Join(os.Rename(w.work, w.work+"2"), os.Symlink("work2", w.work))) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.apply(w.spec(), nil)
			w.pass()
			replace(w)
			w.pass()
			w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceFound)
			if w.get().Status.Workspace.CreatedByController {
				t.Error("what somebody put there is called ours")
			}
			w.remove()
			w.pass()
			w.wantNames("work", "work2")
		})
	}
	t.Run("by nothing", func(t *testing.T) {
		w := newWorld(t)
		w.apply(w.spec(), nil)
		w.pass()
		must(t, os.Remove(w.work))
		w.pass()
		w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceCreated)
		w.wantRunning(1)
		w.wantNames("work")
	})
	t.Run("by a file", func(t *testing.T) {
		w := newWorld(t)
		w.apply(w.spec(), nil)
		w.pass()
		must(t, errors.Join(os.Remove(w.work), os.WriteFile(w.work, nil, 0o600)))
		w.pass()
		w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionFalse, v1alpha1.ReasonWorkingDirectoryMissing)
		writes := w.store.Stats().Writes
		w.pass()
		if got := w.store.Stats().Writes; got != writes {
			t.Errorf("%d writes of a pass that found the same", got-writes)
		}
		w.wantNames("work")
	})
}

// A restored Session takes over the worktree that its predecessor left: the one
// that the annotation names, and no other.
func TestRestored(t *testing.T) {
	for _, right := range []bool{true, false} {
		t.Run(fmt.Sprintf("the owner that it names %v", right), func(t *testing.T) {
			w := newWorktreeWorld(t)
			g, err := w.worktrees.Git()
			must(t, err)
			const owner = "11111111-2222-8333-8444-555555555555"
			_, err = g.EnsureWorktree(t.Context(), effects.WantWorktree{Repo: w.repo(), Branch: "feat", Path: w.wt(), UID: owner})
			must(t, err)
			w.put("app.worktrees/feat/work", "mine")
			named := owner
			if !right {
				named = "99999999-2222-8333-8444-555555555555"
			}
			w.apply(w.spec(w.worktree(setupOf("sh", "-c", "echo x >> ran"))), map[string]string{v1alpha1.RestoredFromAnnotation: named})
			w.pass()
			if !right {
				w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionFalse, v1alpha1.ReasonPathNotEmpty)
				if uid, ok, err := g.Marked(t.Context(), w.wt()); err != nil || !ok || uid != owner {
					t.Errorf("the mark is %s, %v, %v", uid, ok, err)
				}
				return
			}
			w.wantRunning(1)
			if l, err := w.worktrees.Look(w.wt()); err != nil || l.UID != string(w.get().UID) {
				t.Errorf("Look = %+v, %v; want the Session's", l, err)
			}
			if w.read(filepath.Join(w.wt(), "work")) != "mine" || w.exists(filepath.Join(w.wt(), "ran")) {
				t.Error("the work is not as it was, or the setup ran over it")
			}
			if !w.get().Status.Workspace.CreatedByController {
				t.Error("it is not ours")
			}
		})
	}
}

// The result of a making whose Session has another target by now is not lost: it
// is ours, and given up in order.
func TestTargetChangedWhileItIsMade(t *testing.T) {
	w := newWorktreeWorld(t)
	w.applyWorktree()
	if _, err := w.r.Reconcile(t.Context(), web); err != nil { // the making begins
		t.Fatal(err)
	}
	w.apply(w.spec(w.worktree(func(t *v1alpha1.WorktreeTarget) { t.Branch = "other" })), nil)
	w.pass()
	w.wantRunning(1)
	w.wantOurs(filepath.Join(w.dir, "app.worktrees", "other"))
	if q := w.quarantines.only(); q.Spec.Origin.Path != w.wt() || q.Spec.Reason != v1alpha1.QuarantineTargetChanged {
		t.Errorf("in quarantine %+v, want %s", q.Spec, w.wt())
	}
}

var _ Folders = workspace.Folders{}
var _ Worktrees = (*workspace.Worktrees)(nil)
var _ Safety = (*workspace.Safety)(nil)
