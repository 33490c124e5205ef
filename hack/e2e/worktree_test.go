//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/hack/e2e/world"
)

// forge is a world with a person's git config, and a clone that has two commits,
// of a bare repository that has them too.
type forge struct {
	*world.World
	repo string
}

func newForge(t *testing.T, faults ...bool) *forge {
	t.Helper()
	w := world.New(t, faults...)
	w.Write(filepath.Join(w.Dir, ".gitconfig"), "[user]\n\tname = T\n\temail = t@example.invalid\n[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n")
	return &forge{w, newRepo(w, filepath.Join(w.Work, "repo"))}
}

func newRepo(w *world.World, path string) string {
	w.Helper()
	up := path + "-up.git"
	gitIn(w, w.Work, "init", "-q", "--", path)
	w.Write(filepath.Join(path, ".gitignore"), ".env\n*.db\n")
	w.Write(filepath.Join(path, "README"), "read me\n")
	gitIn(w, path, "add", "-A")
	gitIn(w, path, "commit", "-q", "-m", "one")
	gitIn(w, path, "commit", "-q", "--allow-empty", "-m", "two")
	gitIn(w, w.Work, "clone", "-q", "--bare", "--", path, up)
	gitIn(w, path, "remote", "add", "origin", up)
	gitIn(w, path, "fetch", "-q")
	return path
}

// tryGit runs git as a person would.
func tryGit(w *world.World, dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.Dir, "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func gitIn(w *world.World, dir string, args ...string) string {
	w.Helper()
	out, err := tryGit(w, dir, args...)
	if err != nil {
		w.Fatalf("git %q in %s: %v: %s", args, dir, err, out)
	}
	return out
}

func (f *forge) git(args ...string) string {
	f.Helper()
	return gitIn(f.World, f.repo, args...)
}

// worktree is a Session with a worktree of the clone.
func (f *forge) worktree(name, branch string, more ...string) string {
	return worktreeOf(f.repo, name, branch, more...)
}

func worktreeOf(repo, name, branch string, more ...string) string {
	text := fmt.Sprintf("apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: %s}\nspec:\n  target: {worktree: {repo: %s, branch: %s}}\n  command: [sleep, \"6000\"]\n  restartPolicy: Always\n  stop: {gracePeriod: 500ms}\n",
		name, quote(repo), quote(branch))
	for _, m := range more {
		text += "  " + m + "\n"
	}
	return text
}

// folder is where a Session runs.
func (f *forge) folder(name string) string {
	f.Helper()
	f.UntilRunning(name)
	s := f.Session(name)
	if s.Status.Workspace == nil {
		f.Fatalf("%s has no workspace", name)
	}
	return s.Status.Workspace.Path
}

// take removes the file of a Session and waits until it is gone.
func (f *forge) take(name string) {
	f.Helper()
	f.Remove(name + ".yaml")
	f.UntilGone(name)
}

func (f *forge) put(dir, name, text string) {
	f.Helper()
	world.Must(f, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
	world.Must(f, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

// quarantines are all that the state files hold.
func quarantines(w *world.World) (all []*v1alpha1.Quarantine) {
	files, _ := filepath.Glob(filepath.Join(w.State, "objects", "quarantine", "*", "*.yaml"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		q := &v1alpha1.Quarantine{}
		if err == nil && yaml.Unmarshal(data, q) == nil {
			all = append(all, q)
		}
	}
	return all
}

// untilKept waits until something of a Session is in quarantine.
func untilKept(w *world.World, session string) (kept *v1alpha1.Quarantine) {
	w.Helper()
	w.Until("something of "+session+" is in quarantine", func() bool {
		for _, q := range quarantines(w) {
			if q.Spec.Session != nil && q.Spec.Session.Name == session && meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.SetAside) {
				kept = q
			}
		}
		return kept != nil
	})
	return kept
}

// entry is the part of `git worktree list --porcelain` about one path; empty when
// git knows none there.
func (f *forge) entry(path string) string {
	f.Helper()
	for _, e := range strings.Split(f.git("worktree", "list", "--porcelain"), "\n\n") {
		if strings.HasPrefix(e+"\n", "worktree "+path+"\n") {
			return e
		}
	}
	return ""
}

// wrapGit puts a git before the real one, which does what the script says first.
// It logs its arguments, one call a line, and returns the log.
func (f *forge) wrapGit(script string) (log string) {
	f.Helper()
	real, err := exec.LookPath("git")
	world.Must(f, err)
	dir := filepath.Join(f.Dir, "wrapped")
	world.Must(f, os.MkdirAll(dir, 0o755))
	log = filepath.Join(f.Dir, "git.log")
	f.Write(filepath.Join(dir, "git"), fmt.Sprintf("#!/bin/sh\nprintf '%%s\\037' \"$@\" >> %s; echo >> %s\n%s\nexec %s \"$@\"\n", log, log, script, real))
	world.Must(f, os.Chmod(filepath.Join(dir, "git"), 0o755))
	f.Env = append(f.Env, "PATH="+dir+":"+f.Bin+":"+os.Getenv("PATH"))
	return log
}

// calls is how many calls of the log hold all of the words.
func (f *forge) calls(log string, words ...string) (n int) {
	data, _ := os.ReadFile(log)
	for line := range bytes.Lines(data) {
		has := true
		for _, word := range words {
			has = has && slices.Contains(strings.Split(strings.TrimSpace(string(line)), "\x1f"), word)
		}
		if has {
			n++
		}
	}
	return n
}

// patient lets a script wait longer than usual: it looks once, and a worktree
// takes its time on a busy machine.
const patient = "E2E_SETTLE=8"

// Case 022, B-052: a worktree that was removed by hand while skcd was down comes
// back by itself.
func TestCase022WorktreeRemovedByHand(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	world.Must(t, os.RemoveAll(f.repo))
	gitIn(f.World, f.Work, "init", "-q", f.repo)
	f.git("commit", "-q", "--allow-empty", "-m", "one")
	f.git("branch", "feat")
	f.Start()
	steps(f.World, "022-worktree-removed-by-hand", patient)
	f.Start()
	dir := f.folder("wt")
	if on := gitIn(f.World, dir, "branch", "--show-current"); on != "feat" {
		t.Errorf("the new worktree is on %q", on)
	}
	if n := strings.Count(f.git("worktree", "list", "--porcelain"), "worktree "); n != 2 {
		t.Errorf("git knows %d worktrees, want the clone and one", n)
	}
}

// B-052: all that a hand can do to a worktree, with skcd up and down.
func TestB052WorktreeRemovedByHand(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do   func(f *forge, dir string)
		want string // of WorkspaceReady; empty: it runs again
	}{
		"removed":                 {func(f *forge, dir string) { world.Must(f, os.RemoveAll(dir)) }, ""},
		"removed by git":          {(*forge).removeTree, ""},
		"removed and pruned":      {func(f *forge, dir string) { world.Must(f, os.RemoveAll(dir)); f.git("worktree", "prune") }, ""},
		"removed with its parent": {func(f *forge, dir string) { world.Must(f, os.RemoveAll(filepath.Dir(dir))) }, ""},
		"an empty folder instead": { // as a disk leaves that is not mounted
			func(f *forge, dir string) { world.Must(f, os.RemoveAll(dir)); world.Must(f, os.Mkdir(dir, 0o755)) }, "False/PathNotEmpty"},
		"a file instead": {func(f *forge, dir string) {
			world.Must(f, os.RemoveAll(dir))
			f.Write(dir, "mine")
		}, "False/PathNotEmpty"},
		"somebody's folder instead": {func(f *forge, dir string) {
			world.Must(f, os.RemoveAll(dir))
			f.put(dir, "mine", "mine")
		}, "False/PathNotEmpty"},
		"its branch taken meanwhile": {func(f *forge, dir string) {
			f.removeTree(dir)
			f.git("checkout", "-q", "feat")
		}, "False/BranchCheckedOutElsewhere"},
		"moved by git": {func(f *forge, dir string) { f.git("worktree", "move", dir, filepath.Join(f.Work, "moved")) }, "False/WorktreeMoved"},
		"the repository gone": {func(f *forge, dir string) {
			world.Must(f, os.RemoveAll(dir))
			world.Must(f, os.Rename(f.repo, f.repo+".away"))
		}, "False/RepositoryMissing"},
	} {
		for _, down := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, skcd down %v", name, down), func(t *testing.T) {
				t.Parallel()
				f := newForge(t)
				f.Start()
				f.Drop("wt.yaml", f.worktree("wt", "feat"))
				dir := f.folder("wt")
				pid := f.Main("wt")
				if down {
					f.Stop(syscall.SIGTERM)
				}
				tt.do(f, dir)
				before := list(f.World, filepath.Dir(dir))
				f.Kill(pid, syscall.SIGKILL)
				if down {
					f.Start()
				}
				if tt.want == "" {
					f.Until("it runs in a worktree again", func() bool {
						p := f.Mains("wt")
						return len(p) == 1 && p[0] != pid && f.Condition("wt", v1alpha1.Ready) == "True/Running"
					})
					if on := gitIn(f.World, dir, "branch", "--show-current"); on != "feat" {
						t.Errorf("it is on %q", on)
					}
				} else {
					f.UntilCondition("wt", v1alpha1.WorkspaceReady, tt.want)
					if m := f.Message("wt", v1alpha1.WorkspaceReady); m == "" {
						t.Error("there is no message")
					}
					if after := list(f.World, filepath.Dir(dir)); before != after {
						t.Errorf("what was there went from\n%s\nto\n%s", before, after)
					}
				}
			})
		}
	}
}

// removeTree removes a worktree as git does, which fails when skcd looks for its
// worktree in the very moment.
func (f *forge) removeTree(dir string) {
	f.Until("git removed "+dir, func() bool {
		_, err := tryGit(f.World, f.repo, "worktree", "remove", "--force", dir)
		return err == nil || f.entry(dir) == ""
	})
}

// list is every name below dir, with what it holds, but not what git keeps.
func list(w *world.World, dir string) string {
	out, err := exec.Command("sh", "-c", `cd "$1" 2>/dev/null || exit 0; find . -name .git -type d -prune -o -name '*.git' -prune -o -printf '%p %M %s %l\n' | sort; find . -name .git -type d -prune -o -name '*.git' -prune -o -type f -exec sha256sum {} + | sort`, "sh", dir).CombinedOutput()
	if err != nil {
		w.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// B-052: a hundred leftovers in one repository are no hindrance, and those that
// somebody locked stay.
func TestB052ManyLeftovers(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	for i := range 100 {
		dir := filepath.Join(f.Work, "left", fmt.Sprint(i))
		f.git("worktree", "add", "-q", "--no-checkout", "-b", fmt.Sprintf("left%d", i), dir)
		if i%10 == 0 {
			f.git("worktree", "lock", dir)
		}
	}
	world.Must(t, os.RemoveAll(filepath.Join(f.Work, "left")))
	f.Start()
	f.Drop("a.yaml", f.worktree("a", "left5"))
	f.Drop("b.yaml", f.worktree("b", "left10"))
	f.Drop("c.yaml", f.worktree("c", "fresh"))
	f.folder("a")
	f.folder("c")
	f.UntilCondition("b", v1alpha1.WorkspaceReady, "False")
	if m := f.Message("b", v1alpha1.WorkspaceReady); !strings.Contains(m, "lock") {
		t.Errorf("a locked worktree that is away: %q", m)
	}
	if n := strings.Count(f.git("worktree", "list", "--porcelain"), "\nlocked"); n != 10 {
		t.Errorf("%d locked worktrees are left, want 10", n)
	}
}

// B-053: a locked worktree whose folder is away keeps its registration and its
// branch, through a deletion and another apply.
func TestB053LockedAndAway(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]string{"with a reason": "on a disk that is not always there", "without": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForge(t)
			f.Start()
			f.Drop("wt.yaml", f.worktree("wt", "feat"))
			dir := f.folder("wt")
			f.put(dir, "draft", "draft\n")
			args := []string{"worktree", "lock"}
			if reason != "" {
				args = append(args, "--reason", reason)
			}
			f.git(append(args, dir)...)
			f.Stop(syscall.SIGTERM)
			away := filepath.Join(f.Work, "away", "tree")
			world.Must(t, os.MkdirAll(filepath.Dir(away), 0o755))
			world.Must(t, os.Rename(dir, away))
			f.Kill(f.Main("wt"), syscall.SIGKILL)
			f.Start()
			wantAway := func(when string) {
				t.Helper()
				f.UntilCondition("wt", v1alpha1.WorkspaceReady, "False/WorktreeMissing")
				if m := f.Message("wt", v1alpha1.WorkspaceReady); !strings.Contains(m, "locked") || !strings.Contains(m, reason) || !strings.Contains(m, dir) {
					t.Errorf("%s the message is %q", when, m)
				}
			}
			wantKept := func(when string) {
				t.Helper()
				if e := f.entry(dir); !strings.Contains(e, "locked") || !strings.Contains(e, "branch refs/heads/feat") {
					t.Errorf("%s the registration is %q", when, e)
				}
				if _, err := os.Lstat(dir); !os.IsNotExist(err) {
					t.Errorf("%s something is at its place", when)
				}
			}
			wantAway("first")
			wantKept("first")
			f.take("wt")
			wantKept("after the deletion")
			f.Drop("wt.yaml", f.worktree("wt", "feat"))
			wantAway("applied again")
			wantKept("applied again")
			world.Must(t, os.Rename(away, dir))
			if b, err := os.ReadFile(filepath.Join(dir, "draft")); err != nil || string(b) != "draft\n" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}

// Case 023, B-055: what git ignores is in quarantine too, byte for byte, with a
// note of where it came from.
func TestCase023IgnoredFilesKept(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.git("branch", "keep")
	f.Start()
	steps(f.World, "023-ignored-files-kept", patient)
	f.UntilGone("keepfiles")
	q := untilKept(f.World, "keepfiles")
	if o := q.Spec.Origin; o.Branch != "keep" || filepath.Dir(o.Repo) != f.repo || q.Spec.Session.Namespace != "default" || q.Status.SetAsideAt == nil || q.Status.Deadline == nil {
		t.Errorf("the note is %+v, %+v", q.Spec, q.Status)
	}
	shown := f.MustCtl("describe", "quarantine", q.Name)
	for _, want := range []string{"keepfiles", f.repo, "keep", "skcctl restore"} {
		if !strings.Contains(shown, want) {
			t.Errorf("describe does not say %q:\n%s", want, shown)
		}
	}
}

// B-055: every kind of file that no commit holds comes back as it was.
func TestB055WorkComesBack(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	f.Drop("wt.yaml", f.worktree("wt", "feat"))
	dir := f.folder("wt")
	for name, text := range map[string]string{
		".env": "K=1\n", "s.db": "data", "untracked": "draft\n", "README": "changed\n", "new\nline": "n", "no UTF-8 \xff": "u", "staged": "s\n", "deep/er/file": "d",
	} {
		f.put(dir, name, text)
	}
	gitIn(f.World, dir, "add", "staged")
	world.Must(t, os.Chmod(filepath.Join(dir, "untracked"), 0o755))
	world.Must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	before, status := list(f.World, dir), gitIn(f.World, dir, "status", "--porcelain", "--ignored")
	f.Until("the look for what would be lost has seen it", func() bool {
		return strings.Contains(f.Message("wt", v1alpha1.SafeToDelete), "untracked")
	})
	if r := f.Ctl("delete", "session", "wt", "--dry-run"); !strings.Contains(r.Out+r.Err, "untracked") || !strings.Contains(r.Out+r.Err, "set aside") {
		t.Errorf("nothing is said of what will be set aside: %+v", r)
	}
	f.take("wt")
	q := untilKept(f.World, "wt")
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("it is still at %s: %v", dir, err)
	}
	if got := list(f.World, q.Status.Path); got != before {
		t.Errorf("in quarantine is\n%s\nwas\n%s", got, before)
	}
	f.git("-c", "gc.reflogExpire=now", "gc", "-q", "--prune=now")
	f.git("worktree", "prune", "--expire=now")
	f.MustCtl("restore", q.Name)
	if again := f.folder("wt"); again != dir {
		t.Errorf("it is at %s, was at %s", again, dir)
	}
	if got := list(f.World, dir); got != before {
		t.Errorf("given back was\n%s\nwas\n%s", got, before)
	}
	if got := gitIn(f.World, dir, "status", "--porcelain", "--ignored"); got != status {
		t.Errorf("git's status went from %q to %q", status, got)
	}
	if on := gitIn(f.World, dir, "branch", "--show-current"); on != "feat" {
		t.Errorf("it is on %q", on)
	}
}

// B-055: however a Session goes, or leaves its folder, the folder goes the same
// way.
func TestB055EveryWayToGo(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	world.Must(t, os.MkdirAll(filepath.Join(f.Spool, "team"), 0o700))
	in := func(ns, text string) string {
		return strings.Replace(text, "metadata: {", "metadata: {namespace: "+ns+", labels: {team: "+ns+"}, ", 1)
	}
	keep := session("keep", sleeper)
	f.Drop("file.yaml", f.worktree("file", "file"))
	f.Drop("two.yaml", keep+"---\n"+f.worktree("document", "document"))
	f.Drop("command.yaml", f.worktree("command", "command"))
	f.Drop("target.yaml", f.worktree("target", "target"))
	f.Drop("plain.yaml", f.worktree("plain", "plain"))
	f.Drop("label.yaml", in("web", f.worktree("label", "label")))
	f.Drop("all.yaml", in("batch", f.worktree("all", "all")))
	f.Drop("team/folder.yaml", f.worktree("folder", "folder"))
	where := map[string]string{}
	for _, name := range []string{"file", "document", "command", "target", "plain", "web/label", "batch/all", "folder"} {
		where[name] = f.folder(name)
		f.put(where[name], "draft", name)
	}
	f.Remove("file.yaml")
	f.Drop("two.yaml", keep)
	f.MustCtl("delete", "session", "command")
	f.Drop("target.yaml", f.worktree("target", "another"))
	f.Drop("plain.yaml", strings.Replace(session("plain", `[sleep, "6000"]`), "@WORK@/plain", "@WORK@/p/plain", 1))
	f.MustCtl("delete", "-l", "team=web", "-n", "web")
	f.MustCtl("delete", "--all", "-n", "batch")
	world.Must(t, os.RemoveAll(filepath.Join(f.Spool, "team")))
	for name, dir := range where {
		_, short, both := strings.Cut(name, "/")
		if !both {
			short = name
		}
		q := untilKept(f.World, short)
		if b, err := os.ReadFile(filepath.Join(q.Status.Path, "draft")); err != nil || string(b) != name {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if q.Spec.Origin.Path != dir || q.Spec.RequestedBy == "" {
			t.Errorf("%s: it says %+v", name, q.Spec)
		}
		if changed := name == "target" || name == "plain"; changed != (q.Spec.Reason == v1alpha1.QuarantineTargetChanged) {
			t.Errorf("%s: the reason is %s", name, q.Spec.Reason)
		}
	}
	if dir := f.folder("target"); dir == where["target"] || gitIn(f.World, dir, "branch", "--show-current") != "another" {
		t.Errorf("after the change of its target it is at %s", dir)
	}
	f.folder("plain")
	f.UntilRunning("keep")
}

// B-055: a plain folder that skc made goes when nothing was put into it, and into
// quarantine otherwise; one that was there before is never touched.
func TestB055PlainFolders(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	for _, name := range []string{"before", "existing"} {
		f.put(filepath.Join(f.Work, "p", name), "mine", "mine")
	}
	plain := func(name string) string {
		return strings.Replace(session(name, `[sleep, "6000"]`), "@WORK@/"+name, "@WORK@/p/"+name, 1)
	}
	f.Drop("empty.yaml", plain("empty"))
	f.Drop("full.yaml", plain("full"))
	f.Drop("before.yaml", plain("before"))
	f.Drop("existing.yaml", strings.Replace(plain("existing"), "plainDir", "existingPath", 1))
	where := map[string]string{}
	for _, name := range []string{"empty", "full", "before", "existing"} {
		where[name] = f.folder(name)
	}
	f.put(where["full"], ".env", "K=1\n")
	for name := range where {
		f.MustCtl("delete", "session", name)
	}
	for name := range where {
		f.UntilGone(name)
	}
	if b, err := os.ReadFile(filepath.Join(untilKept(f.World, "full").Status.Path, ".env")); err != nil || string(b) != "K=1\n" {
		t.Errorf("%q, %v", b, err)
	}
	for _, name := range []string{"empty", "full"} {
		if _, err := os.Lstat(where[name]); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	for _, name := range []string{"before", "existing"} {
		if b, err := os.ReadFile(filepath.Join(where[name], "mine")); err != nil || string(b) != "mine" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if n := len(quarantines(f.World)); n != 1 {
		t.Errorf("%d things are in quarantine, want 1", n)
	}
}

// B-055: Retain leaves the folder where it is, and skc never touches it again.
func TestB055Retain(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	f.Drop("wt.yaml", f.worktree("wt", "feat", "cleanup: {policy: Retain}"))
	dir := f.folder("wt")
	f.put(dir, ".env", "K=1\n")
	f.take("wt")
	if b, err := os.ReadFile(filepath.Join(dir, ".env")); err != nil || string(b) != "K=1\n" {
		t.Errorf("%q, %v", b, err)
	}
	if n := len(quarantines(f.World)); n != 0 {
		t.Errorf("%d things are in quarantine", n)
	}
	if e := f.entry(dir); !strings.Contains(e, "branch refs/heads/feat") || strings.Contains(e, "locked") {
		t.Errorf("git says of it %q", e)
	}
	if events := strings.Join(f.Events("wt"), "\n"); !strings.Contains(events, dir) {
		t.Errorf("no event says where it stays:\n%s", events)
	}
	f.Drop("wt.yaml", f.worktree("wt", "other"))
	f.folder("wt")
	f.take("wt")
	if _, err := os.Stat(filepath.Join(dir, ".env")); err != nil {
		t.Error(err)
	}
}

// B-056: a commit that is nowhere else is reachable from a named ref when the
// Session is gone, whatever git cleans up, and whatever HEAD it was made on.
func TestB056CommitsStay(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	commits := map[string]string{}
	for name, do := range map[string]func(dir string){
		"branch":   func(string) {},
		"detached": func(dir string) { gitIn(f.World, dir, "checkout", "-q", "--detach") },
		"another":  func(dir string) { gitIn(f.World, dir, "checkout", "-q", "-b", "made-by-hand") },
		"orphan":   func(dir string) { gitIn(f.World, dir, "checkout", "-q", "--orphan", "rootless") },
		"unborn-branch-gone": func(dir string) {
			gitIn(f.World, dir, "checkout", "-q", "--detach")
			gitIn(f.World, dir, "branch", "-q", "-D", "b-unborn-branch-gone")
		},
	} {
		f.Drop(name+".yaml", f.worktree(name, "b-"+name))
		dir := f.folder(name)
		do(dir)
		f.put(dir, "work", name)
		gitIn(f.World, dir, "add", "-A")
		gitIn(f.World, dir, "commit", "-q", "-m", name)
		commits[name] = gitIn(f.World, dir, "rev-parse", "HEAD")
	}
	for name := range commits {
		f.MustCtl("delete", "session", name) // five files gone at once would be held
	}
	for name := range commits {
		f.UntilGone(name)
		untilKept(f.World, name)
	}
	f.git("worktree", "prune", "--expire=now")
	f.git("-c", "gc.reflogExpire=now", "-c", "gc.reflogExpireUnreachable=now", "gc", "-q", "--prune=now")
	for name, c := range commits {
		if refs := f.git("for-each-ref", "--contains", c, "--format=%(refname)"); refs == "" {
			t.Errorf("%s: no ref holds its commit", name)
		}
	}
	if b := f.git("log", "-1", "--format=%s", "b-branch"); b != "branch" {
		t.Errorf("the branch is at %q", b)
	}
	// Neither does a purge take a commit.
	for name := range commits {
		f.MustCtl("purge", untilKept(f.World, name).Name, "--yes")
	}
	f.git("worktree", "prune", "--expire=now")
	f.git("-c", "gc.reflogExpire=now", "-c", "gc.reflogExpireUnreachable=now", "gc", "-q", "--prune=now")
	for name, c := range commits {
		if refs := f.git("for-each-ref", "--contains", c, "--format=%(refname)"); refs == "" {
			t.Errorf("after the purge of %s no ref holds its commit", name)
		}
	}
}

// B-058: a git that says it did what it did not is found out. Nothing is said to
// be gone while it is there.
func TestB058GitThatLies(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]string{
		"about all": "*", "about locks": "*' lock '*", "about refs": "*' update-ref '*", "and fails": "fail",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForge(t)
			lie := filepath.Join(f.Dir, "lie")
			script := fmt.Sprintf("[ -e %s ] && case \" $* \" in %s) exit 0;; esac", lie, which)
			if which == "fail" {
				script = fmt.Sprintf("[ -e %s ] && { echo 'fatal: no' >&2; exit 128; }", lie)
			}
			f.wrapGit(script)
			f.Start()
			f.Drop("wt.yaml", f.worktree("wt", "feat"))
			dir := f.folder("wt")
			f.put(dir, "draft", "draft\n")
			f.Write(lie, "")
			f.Remove("wt.yaml")
			pending := func() bool {
				_, err := os.Lstat(dir)
				return err != nil || f.Session("wt") != nil
			}
			f.Always(4*time.Second, "the Session stays while its folder is there", pending)
			world.Must(t, os.Remove(lie))
			f.Until("the Session is gone", func() bool {
				if !pending() {
					t.Fatal("the Session is gone and its folder is there")
				}
				return f.Session("wt") == nil
			})
			q := untilKept(f.World, "wt")
			if b, err := os.ReadFile(filepath.Join(q.Status.Path, "draft")); err != nil || string(b) != "draft\n" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}

// Case 024, B-059, R21: twenty worktrees of one repository at once, their
// branches from a remote, while somebody holds git's config for five seconds; then
// a lock that nobody owns.
func TestCase024TwentyWorktreesAtOnce(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	up := f.repo + "-up.git"
	for i := range 20 {
		gitIn(f.World, up, "branch", fmt.Sprintf("b%d", i), "main~1")
	}
	f.git("fetch", "-q")
	lock := filepath.Join(f.repo, ".git", "config.lock")
	f.Write(lock, "")
	f.Start()
	begin := time.Now()
	for i := range 20 {
		f.Drop(fmt.Sprintf("p-%d.yaml", i), f.worktree(fmt.Sprintf("p-%d", i), fmt.Sprintf("b%d", i)))
	}
	time.Sleep(5*time.Second - time.Since(begin)) // as long as a large fetch
	world.Must(t, os.Remove(lock))
	for i := range 20 {
		dir := f.folder(fmt.Sprintf("p-%d", i))
		if a, b := gitIn(f.World, dir, "rev-parse", "HEAD"), f.git("rev-parse", fmt.Sprintf("origin/b%d", i)); a != b {
			t.Errorf("b%d is at %s, the remote's at %s", i, a, b)
		}
		if got := gitIn(f.World, dir, "status", "--porcelain"); got != "" {
			t.Errorf("b%d is not clean: %s", i, got)
		}
	}
	if n := strings.Count(f.git("worktree", "list", "--porcelain"), "worktree "); n != 21 {
		t.Errorf("git knows %d worktrees, want 21", n)
	}

	f.Write(lock, "")
	gitIn(f.World, up, "branch", "new21", "main")
	gitIn(f.World, up, "branch", "new22", "main")
	f.git("fetch", "-q")
	f.Drop("p-21.yaml", f.worktree("p-21", "new21"))
	f.Until("it runs, or the lock is named", func() bool {
		return f.Condition("p-21", v1alpha1.Ready) == "True/Running" || f.Condition("p-21", v1alpha1.WorkspaceReady) == "False/RepositoryLocked"
	})
	if f.Condition("p-21", v1alpha1.Ready) != "True/Running" {
		if m := f.Message("p-21", v1alpha1.WorkspaceReady); !strings.Contains(m, lock) {
			t.Errorf("the message does not name the lock: %s", m)
		}
		if b := f.git("branch", "--list", "new21"); b != "" {
			t.Errorf("a half-made branch is left: %s", b)
		}
	}
	if _, err := os.Lstat(lock); err != nil {
		t.Errorf("somebody's lock is gone: %v", err)
	}
	world.Must(t, os.Remove(lock))
	f.MustCtl("restart", "p-21")
	f.folder("p-21")
}

// B-059: any lock of git that stays is named, is left, and leaves nothing half
// made; when it goes, all comes right by itself.
func TestB059LocksThatStay(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"refs/heads/feat.lock", "packed-refs.lock"} {
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			f := newForge(t)
			log := f.wrapGit("")
			path := filepath.Join(f.repo, ".git", lock)
			f.Write(path, "")
			f.Start()
			f.Drop("wt.yaml", f.worktree("wt", "feat"))
			f.Until("it runs, or the lock is named", func() bool {
				return f.Condition("wt", v1alpha1.Ready) == "True/Running" || f.Condition("wt", v1alpha1.WorkspaceReady) == "False/RepositoryLocked"
			})
			if f.Condition("wt", v1alpha1.Ready) != "True/Running" {
				if m := f.Message("wt", v1alpha1.WorkspaceReady); !strings.Contains(m, path) {
					t.Errorf("the message does not name the lock: %s", m)
				}
				before := f.calls(log)
				f.Always(3*time.Second, "it says so", func() bool {
					return !strings.HasPrefix(f.Condition("wt", v1alpha1.Ready), "True")
				})
				if n := f.calls(log) - before; n > 150 {
					t.Errorf("git was called %d times in 3 s", n)
				}
				if b := f.git("branch", "--list", "feat"); b != "" {
					t.Errorf("a half-made branch is left: %s", b)
				}
			}
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("somebody's lock is gone: %v", err)
			}
			_ = os.Remove(path)
			f.folder("wt")
		})
	}
}

// B-061: a branch that somebody has checked out is left to him, and the Session
// starts when it is free.
func TestB061BranchCheckedOutElsewhere(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	other := filepath.Join(f.Work, "other tree")
	f.git("checkout", "-q", "-b", "feat")
	f.git("worktree", "add", "-q", "-b", "two", other)
	f.put(f.repo, "README", "at work here\n")
	f.Start()
	f.Drop("a.yaml", f.worktree("a", "feat"))
	f.Drop("b.yaml", f.worktree("b", "two"))
	for name, at := range map[string]string{"a": f.repo, "b": other} {
		f.UntilCondition(name, v1alpha1.WorkspaceReady, "False/BranchCheckedOutElsewhere")
		if m := f.Message(name, v1alpha1.WorkspaceReady); !strings.Contains(m, at) {
			t.Errorf("%s: the message does not name %s: %s", name, at, m)
		}
	}
	if on := f.git("branch", "--show-current"); on != "feat" {
		t.Errorf("the clone is on %q", on)
	}
	if b, _ := os.ReadFile(filepath.Join(f.repo, "README")); string(b) != "at work here\n" {
		t.Errorf("README is %q", b)
	}
	f.git("checkout", "-q", "main")
	f.git("worktree", "remove", other)
	f.folder("a")
	f.folder("b")
	// Of two Sessions with one branch the second is told who has it.
	f.Drop("c.yaml", f.worktree("c", "feat"))
	f.UntilCondition("c", v1alpha1.WorkspaceReady, "False")
	f.take("a")
	f.folder("c")
}

// B-002: a repository whose folder has odd signs in its name, and a tmux that
// fails in the middle: all is finished at the next pass, or told; nothing is left
// that nobody owns.
func TestB002OddRepositoryNames(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"demo.site.example", "with space", "a:b", "#{pane_id}", "$(touch x)", "-x", "日本-é", "it's", "per%cent;", "tab\there"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForge(t)
			f.repo = newRepo(f.World, filepath.Join(f.Work, name))
			f.Start()
			f.Drop("wt.yaml", f.worktree("wt", []string{"feat", "feat/x", "v1.2", "a=b", "é", "#{x}", "$(x)", "it's", "50%", "x;y"}[i]))
			dir := f.folder("wt")
			p := f.Main("wt")
			if at, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p)); err != nil || at != dir {
				t.Errorf("it runs in %q: %v", at, err)
			}
			f.put(dir, "draft", "draft\n")
			f.take("wt")
			q := untilKept(f.World, "wt")
			f.MustCtl("restore", q.Name)
			if again := f.folder("wt"); again != dir {
				t.Errorf("it came back to %q, was at %q", again, dir)
			}
		})
	}
}

// B-002, B-088: a worktree Session whose start fails in tmux says so, keeps its
// worktree, and leaves a foreign tmux session of that name alone.
func TestB002StartFailsHalfWay(t *testing.T) {
	t.Parallel()
	f := newForge(t, true)
	f.Env = append(f.Env, "SKC_FAULT=tmux.create:before=EIO")
	f.Start()
	f.Drop("wt.yaml", f.worktree("wt", "feat"))
	dir := f.folder("wt") // at the next pass
	f.MustTmux("new-session", "-d", "-s", "taken", "sleep 5999")
	foreign := f.MustTmux("list-panes", "-s", "-t", "=taken:", "-F", "#{pane_id} #{pane_pid}")
	f.Drop("taken.yaml", f.worktree("taken", "other"))
	f.UntilCondition("taken", v1alpha1.Ready, "False/NameTaken")
	f.UntilCondition("taken", v1alpha1.WorkspaceReady, "True")
	f.take("taken")
	f.take("wt")
	if now := f.MustTmux("list-panes", "-s", "-t", "=taken:", "-F", "#{pane_id} #{pane_pid}"); now != foreign {
		t.Errorf("the foreign session went from %q to %q", foreign, now)
	}
	for _, name := range []string{"wt", "taken"} {
		untilKept(f.World, name)
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	f.MustTmux("kill-session", "-t", "=taken")
}

// B-086, case 039: no name of a branch or of its base is read as an option, or
// leads out of where branches are.
func TestB086BranchesThatClimb(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	log := f.wrapGit("")
	f.Start()
	before := f.git("for-each-ref")
	for i, branch := range []string{
		"--force", "-x", "-", "..", "../../up", "a..b", "@", "@{-1}", "HEAD~1", "HEAD^", ".hidden", "a/.b", "x.lock", "a.lock/b", "a//b", "/a", "a/", "a.", "a b", "a\nb", "a:b", "a?b", "a*b", "a[b", `a\b`, "", "\x7f", strings.Repeat("x", 300),
	} {
		name := fmt.Sprintf("bad-%d", i)
		if r := f.CtlIn(f.worktree(name, branch), "apply", "-f", "-"); r.Code != 3 {
			t.Errorf("branch %q: apply ended with %d: %s", branch, r.Code, r.Err)
		}
		f.Drop(name+".yaml", f.worktree(name, branch))
	}
	for i, base := range []string{"--force", "-x", "", "a\nb"} {
		name := fmt.Sprintf("base-%d", i)
		text := strings.Replace(f.worktree(name, "fine"), `branch: "fine"`, `branch: "fine", base: `+quote(base), 1)
		if r := f.CtlIn(text, "apply", "-f", "-"); r.Code != 3 {
			t.Errorf("base %q: apply ended with %d: %s", base, r.Code, r.Err)
		}
	}
	for i, branch := range []string{"a|b", "a]b", "a{b", "a@b", "a#b", "é"} {
		if r := f.CtlIn(f.worktree(fmt.Sprintf("good-%d", i), branch), "apply", "--dry-run", "-f", "-"); r.Code != 0 {
			t.Errorf("branch %q: apply ended with %d: %s", branch, r.Code, r.Err)
		}
	}
	// These are read by git, after what ends its options.
	for name, base := range map[string]string{"no-such": "no-such-commit", "climbs": "../../up"} {
		f.Drop(name+".yaml", strings.Replace(f.worktree(name, "fine-"+name), "}}", ", base: "+quote(base)+"}}", 1))
		f.UntilCondition(name, v1alpha1.WorkspaceReady, "False/BaseNotFound")
	}
	for _, option := range []string{"--force", "-x"} {
		if n := f.calls(log, option); n > 0 {
			t.Errorf("git was called with %s %d times", option, n)
		}
	}
	if after := f.git("for-each-ref"); before != after {
		t.Errorf("refs went from\n%s\nto\n%s", before, after)
	}
}

// B-086: a workspace that became a link, or lies behind one, is not followed when
// it is cleaned up.
func TestB086WorkspaceBecomesALink(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(f *forge, dir, precious string){
		"itself": func(f *forge, dir, precious string) {
			world.Must(f, os.Rename(dir, dir+".mine"))
			world.Must(f, os.Symlink(precious, dir))
		},
		"its parent": func(f *forge, dir, precious string) {
			world.Must(f, os.Rename(filepath.Dir(dir), filepath.Dir(dir)+".mine"))
			world.Must(f, os.Symlink(precious, filepath.Dir(dir)))
		},
		"another folder": func(f *forge, dir, precious string) {
			world.Must(f, os.Rename(dir, dir+".mine"))
			world.Must(f, os.Rename(precious, dir))
			world.Must(f, os.Symlink(dir, precious))
		},
	} {
		for _, kind := range []string{"worktree", "plain"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				f := newForge(t)
				f.Start()
				precious := filepath.Join(f.Work, "precious")
				f.put(precious, "file", "precious")
				f.put(precious, "s/file", "precious") // where a plain folder's parent is replaced
				if kind == "worktree" {
					f.Drop("s.yaml", f.worktree("s", "s"))
				} else {
					f.Drop("s.yaml", strings.Replace(session("s", `[sleep, "6000"]`), "@WORK@/s", "@WORK@/plain/s", 1))
				}
				dir := f.folder("s")
				f.put(dir, "mine", "mine")
				replace(f, dir, precious)
				before := list(f.World, f.Work)
				f.Remove("s.yaml")
				f.Always(3*time.Second, "nothing but what is ours is moved", func() bool {
					b, err := os.ReadFile(filepath.Join(precious, "file"))
					return err == nil && string(b) == "precious"
				})
				mine := ""
				for _, q := range quarantines(f.World) {
					mine += list(f.World, q.Status.Path)
				}
				if after := list(f.World, f.Work); after != before && !strings.Contains(mine, "mine") {
					t.Errorf("what lies there went from\n%s\nto\n%s", before, after)
				}
				_ = os.Remove(filepath.Join(f.Home, "state")) // not empty: only a look at it
			})
		}
	}
}

// B-065, R6: with no room for its plan nothing is set aside: the worktree stays,
// and so does its Session, until there is room. What was set aside before is
// kept.
func TestB065DiskFullKeepsTheWorktree(t *testing.T) {
	needRoot(t)
	t.Parallel()
	f := newForge(t)
	world.Must(t, os.Mkdir(f.State, 0o700))
	mountTmpfs(f.World, f.State, "size=768k,mode=0700")
	f.Start()
	f.Drop("keeper.yaml", session("keeper", sleeper))
	f.UntilRunning("keeper")
	f.Drop("first.yaml", f.worktree("first", "first"))
	f.put(f.folder("first"), "draft", "first\n")
	f.take("first")
	first := untilKept(f.World, "first")
	f.Drop("wt.yaml", f.worktree("wt", "feat"))
	dir := f.folder("wt")
	f.put(dir, "draft", "draft\n")
	fill := filepath.Join(f.State, "fill")
	_ = exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=512").Run() // ends with "no space left"
	world.Must(t, os.Chmod(fill, 0o600))
	f.Remove("wt.yaml")
	f.Always(4*time.Second, "nothing is moved, and the Session is there", func() bool {
		draft, err := os.ReadFile(filepath.Join(dir, "draft"))
		old, oldErr := os.ReadFile(filepath.Join(first.Status.Path, "draft"))
		return err == nil && string(draft) == "draft\n" && oldErr == nil && string(old) == "first\n" && f.Session("wt") != nil
	})
	if log := f.Now().Text(); !strings.Contains(log, "no space") {
		t.Errorf("nothing says why:\n%s", log)
	}
	world.Must(t, os.Remove(fill))
	f.UntilGone("wt")
	q := untilKept(f.World, "wt")
	if b, err := os.ReadFile(filepath.Join(q.Status.Path, "draft")); err != nil || string(b) != "draft\n" {
		t.Errorf("%q, %v", b, err)
	}
	// On another disk than the state it lies beside where it was.
	if want := filepath.Join(filepath.Dir(dir), ".skc-quarantine"); filepath.Dir(q.Status.Path) != want {
		t.Errorf("it lies in %s, want %s", q.Status.Path, want)
	}
}

// A worktree whose Session was forgotten is reported, left where it is, and no
// longer called an orphan when somebody wants it.
func TestOrphanedWorktree(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Config("cgroups: \"off\"\n") // nobody would remove the one of a session that is forgotten
	f.Start()
	f.Drop("wt.yaml", f.worktree("wt", "feat"))
	f.Drop("other.yaml", f.worktree("other", "other"))
	dir := f.folder("wt")
	f.folder("other")
	f.put(dir, "draft", "draft\n")
	uid := string(f.Session("wt").UID)
	f.Stop(syscall.SIGTERM)
	// As a backup does that was older, and a person who tidies up.
	world.Must(t, os.Remove(f.StateFile("wt")))
	f.Remove("wt.yaml")
	f.MustTmux("kill-session", "-t", "=wt")
	f.Until("its processes are gone", func() bool { return len(f.Of(uid)) == 0 })
	f.Start()
	var orphan *v1alpha1.Quarantine
	f.Until("the orphan is reported", func() bool {
		for _, q := range quarantines(f.World) {
			if c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.SetAside); q.Spec.Reason == v1alpha1.QuarantineOrphaned && c != nil && c.Reason == v1alpha1.ReasonGracePeriod {
				orphan = q
			}
		}
		return orphan != nil
	})
	if o := orphan.Spec.Origin; o.Path != dir || o.Branch != "feat" || orphan.Spec.NotBefore == nil {
		t.Errorf("it says %+v", orphan.Spec)
	}
	f.Always(3*time.Second, "it is left where it is, and is the only one", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "draft"))
		return err == nil && string(b) == "draft\n" && len(quarantines(f.World)) == 1
	})
	f.Drop("wt.yaml", f.worktree("wt", "feat"))
	f.Until("it is no longer called an orphan", func() bool { return len(quarantines(f.World)) == 0 })
	if b, err := os.ReadFile(filepath.Join(dir, "draft")); err != nil || string(b) != "draft\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// B-007: two clones whose folders have the same name, with the same branch, share
// nothing.
func TestB007WorktreeSameBasename(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	world.Must(t, os.MkdirAll(filepath.Join(f.Work, "a"), 0o755))
	world.Must(t, os.MkdirAll(filepath.Join(f.Work, "b"), 0o755))
	a, b := newRepo(f.World, filepath.Join(f.Work, "a", "api")), newRepo(f.World, filepath.Join(f.Work, "b", "api"))
	f.Start()
	f.Drop("one.yaml", worktreeOf(a, "one", "feat"))
	f.Drop("two.yaml", worktreeOf(b, "two", "feat"))
	first, second := f.folder("one"), f.folder("two")
	if first == second {
		t.Fatalf("both are at %s", first)
	}
	f.put(first, "x", "one")
	f.put(second, "x", "two")
	f.take("one")
	if b, err := os.ReadFile(filepath.Join(second, "x")); err != nil || string(b) != "two" {
		t.Errorf("%q, %v", b, err)
	}
	f.take("two")
	for name, text := range map[string]string{"one": "one", "two": "two"} {
		if b, err := os.ReadFile(filepath.Join(untilKept(f.World, name).Status.Path, "x")); err != nil || string(b) != text {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// B-026: worktrees that are made while skcd looks for orphans, at each start and
// each second, are nobody's orphans.
func TestB026LookTakesNothingFresh(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	for i := range 12 {
		f.Drop(fmt.Sprintf("f-%d.yaml", i), f.worktree(fmt.Sprintf("f-%d", i), fmt.Sprintf("b%d", i)))
		if i%4 == 3 {
			f.Stop(syscall.SIGKILL)
			f.Start()
		}
	}
	for i := range 12 {
		f.folder(fmt.Sprintf("f-%d", i))
	}
	f.Always(3*time.Second, "nothing is called an orphan", func() bool { return len(quarantines(f.World)) == 0 })
}

// B-043: while a source is not read, none of what its Sessions own is called an
// orphan, or set aside.
func TestB043NoOrphansWhileASourceIsMissing(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	f.Drop("wt.yaml", f.worktree("wt", "feat"))
	dir := f.folder("wt")
	f.put(dir, "draft", "draft\n")
	f.Stop(syscall.SIGTERM)
	world.Must(t, os.Rename(f.Spool, f.Spool+".away"))
	world.Must(t, os.Rename(f.State, f.State+".away")) // nor is it known who owned what
	f.Spawn()
	f.Always(4*time.Second, "the worktree stays", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "draft"))
		return err == nil && string(b) == "draft\n"
	})
	for _, q := range quarantines(f.World) {
		if c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.SetAside); c != nil && c.Status == metav1.ConditionTrue {
			t.Errorf("%s was set aside", q.Spec.Origin.Path)
		}
	}
}
