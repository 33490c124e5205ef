//go:build e2e

package e2e

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
	"skc.dev/skc/hack/e2e/world"
)

// everything is each name below a folder, with what it holds.
func everything(w *world.World, dir string) string {
	w.Helper()
	var b strings.Builder
	world.Must(w, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%q %s", strings.TrimPrefix(path, dir), d.Type())
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sha256.Sum256(data))
		}
		b.WriteString("\n")
		return nil
	}))
	return b.String()
}

// work makes a Session with a worktree, and work of every sort in it.
func (f *forge) work(name string, more ...string) (folder, before string) {
	f.Helper()
	f.Drop(name+".yaml", f.worktree(name, "feat-"+name, more...))
	folder = f.folder(name)
	f.put(folder, "committed", name)
	gitIn(f.World, folder, "add", "-A")
	gitIn(f.World, folder, "commit", "-q", "-m", "never pushed")
	f.put(folder, "staged", name)
	gitIn(f.World, folder, "add", "staged")
	f.put(folder, "untracked", name)
	f.put(folder, ".env", name)
	return folder, everything(f.World, folder)
}

// managedFile defines a Quarantine.
func (f *forge) managedFile(q *v1alpha1.Quarantine) string {
	return filepath.Join(f.State, "managed", q.Namespace, "quarantine-"+q.Name+".yaml")
}

// say sets a field in the spec of a Quarantine, as a person with an editor would.
func (f *forge) say(q *v1alpha1.Quarantine, text string) {
	f.Helper()
	path := f.managedFile(q)
	data, err := os.ReadFile(path)
	world.Must(f, err)
	f.Write(path, strings.Replace(string(data), "\nspec:\n", "\nspec:\n  "+text+"\n", 1))
}

func (f *forge) untilSettled(q *v1alpha1.Quarantine) {
	f.Helper()
	f.Until(q.Name+" is gone", func() bool {
		return !slices.ContainsFunc(quarantines(f.World), func(o *v1alpha1.Quarantine) bool { return o.Name == q.Name })
	})
	if _, err := os.Lstat(f.managedFile(q)); !os.IsNotExist(err) {
		f.Errorf("its definition: %v", err)
	}
	plans, err := filepath.Glob(filepath.Join(f.State, "quarantine", "plans", "*"+q.Name+"*"))
	if err != nil || len(plans) != 0 {
		f.Errorf("its plan: %v %v", plans, err)
	}
}

// TestDeletedEveryWay: whichever way a Session is deleted, its worktree goes into
// quarantine, whole, and comes back with it.
func TestDeletedEveryWay(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	ways := []struct {
		name string
		do   func()
	}{
		{"by-file", func() { f.Remove("by-file.yaml") }},
		{"by-name", func() { f.MustCtl("delete", "by-name") }},
		{"by-label", func() { f.MustCtl("delete", "-l", "tier=x") }},
		{"by-all", func() { f.MustCtl("delete", "--all", "-n", "team") }},
	}
	type was struct{ folder, before string }
	had := map[string]was{}
	for _, way := range ways {
		text := f.worktree(way.name, "feat-"+way.name)
		switch way.name {
		case "by-label":
			text = strings.Replace(text, "metadata: {", "metadata: {labels: {tier: x}, ", 1)
		case "by-all":
			text = strings.Replace(text, "metadata: {", "metadata: {namespace: team, ", 1)
		}
		f.Drop(way.name+".yaml", text)
		name := way.name
		if name == "by-all" {
			name = "team/" + name
		}
		folder := f.folder(name)
		f.put(folder, "untracked", way.name)
		had[way.name] = was{folder, everything(f.World, folder)}
	}
	for _, way := range ways {
		way.do()
		q := untilKept(f.World, way.name)
		if got := everything(f.World, q.Status.Path); got != had[way.name].before {
			t.Errorf("%s: the tree changed:\n%s", way.name, got)
		}
		if q.Spec.Reason != v1alpha1.QuarantineSessionDeleted || q.Status.Deadline == nil || q.Spec.RequestedBy == "" || q.Spec.Origin.Path != had[way.name].folder {
			t.Errorf("%s: %+v", way.name, q)
		}
		name := way.name
		if name == "by-all" {
			name = "team/" + name
		}
		f.UntilGone(name)
		f.say(q, "restore: true")
		f.UntilRunning(name)
		f.untilSettled(q)
		if got := everything(f.World, had[way.name].folder); got != had[way.name].before {
			t.Errorf("%s: the tree changed:\n%s", way.name, got)
		}
		if got := gitIn(f.World, had[way.name].folder, "branch", "--show-current"); got != "feat-"+way.name {
			t.Errorf("%s: the branch is %q", way.name, got)
		}
	}
	if out := f.MustCtl("get", "sources"); !strings.Contains(out, filepath.Join(f.State, "managed")) {
		t.Errorf("get sources does not show what skc defines:\n%s", out)
	}
}

// TestRestoredSessionIsAnyOther: it is deleted and set aside once more.
func TestRestoredSessionIsAnyOther(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	folder, before := f.work("web")
	f.take("web")
	q := untilKept(f.World, "web")
	f.say(q, "restore: true")
	f.UntilRunning("web")
	f.untilSettled(q)
	if s := f.Session("web"); s.Status.Workspace.Path != folder || !s.Status.Workspace.CreatedByController {
		t.Errorf("its workspace is %+v", s.Status.Workspace)
	}
	f.MustCtl("delete", "web", "--wait")
	again := untilKept(f.World, "web")
	if again.Name == q.Name {
		t.Error("it is the same Quarantine")
	}
	if got := everything(f.World, again.Status.Path); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
}

// TestRefusedRestore: a place that is taken, or a Session of that name, refuse it
// before anything is done; elsewhere the folder comes back alone.
func TestRefusedRestore(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	folder, before := f.work("web")
	f.take("web")
	q := untilKept(f.World, "web")
	f.put(folder, "mine", "x")
	f.say(q, "restore: true")
	ready := func(reason string) {
		t.Helper()
		f.Until("Ready is "+reason, func() bool {
			for _, o := range quarantines(f.World) {
				if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.Ready); o.Name == q.Name && c != nil && c.Reason == reason {
					return true
				}
			}
			return false
		})
	}
	ready(v1alpha1.ReasonPlaceTaken)
	f.Drop("other.yaml", "apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: web}\nspec: {target: {existingPath: {path: /}}, command: [sleep, \"6000\"], stop: {gracePeriod: 500ms}}\n")
	f.UntilRunning("web")
	ready(v1alpha1.ReasonSessionExists)
	world.Must(t, os.RemoveAll(folder))
	if got := everything(f.World, q.Status.Path); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
	to := filepath.Join(f.Work, "elsewhere")
	f.say(q, "restoreTo: "+quote(to))
	f.untilSettled(q)
	if got := everything(f.World, to); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
	if s := f.Session("web"); s.Spec.Target.ExistingPath == nil {
		t.Errorf("the other session is %+v", s.Spec)
	}
}

// TestPurgeAndRetention: what is purged, or has been kept for its time, is gone;
// its commits are not.
func TestPurgeAndRetention(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	for name, more := range map[string][]string{"purged": nil, "expired": {"cleanup: {retention: 2s}"}} {
		folder, _ := f.work(name, more...)
		head := gitIn(f.World, folder, "rev-parse", "HEAD")
		f.take(name)
		q := untilKept(f.World, name)
		if name == "purged" {
			f.say(q, "purge: true")
		}
		f.untilSettled(q)
		if _, err := os.Lstat(q.Status.Path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", name, err)
		}
		f.git("reflog", "expire", "--expire=now", "--all")
		f.git("gc", "--quiet", "--prune=now")
		if f.git("for-each-ref", "--contains", head) == "" {
			t.Errorf("%s: its commit is in no ref", name)
		}
		if list := f.git("worktree", "list", "--porcelain"); strings.Contains(list, q.Status.Path) {
			t.Errorf("%s: git knows it:\n%s", name, list)
		}
	}
}

// TestDefinitionRemovedByHand: what is kept stays so, with the whole state of the
// objects gone as well.
func TestDefinitionRemovedByHand(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Start()
	folder, before := f.work("web")
	f.take("web")
	q := untilKept(f.World, "web")
	world.Must(t, os.Remove(f.managedFile(q)))
	f.Until("it is another object", func() bool {
		now := quarantines(f.World)
		return len(now) == 1 && now[0].UID != q.UID && meta.IsStatusConditionTrue(now[0].Status.Conditions, v1alpha1.SetAside)
	})
	f.Stop(syscall.SIGTERM)
	world.Must(t, os.Remove(f.managedFile(q)))
	world.Must(t, os.RemoveAll(filepath.Join(f.State, "objects")))
	f.Start()
	q = untilKept(f.World, "web")
	f.say(q, "restore: true")
	f.UntilRunning("web")
	if got := everything(f.World, folder); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
}

// TestOrphans: what carries our mark and has no owner is found by a complete look,
// left for the grace time, and set aside. One whose Session is there is not.
func TestOrphans(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	f.Config("orphanGrace: 2s\n")
	f.Start()
	f.work("found")
	f.Stop(syscall.SIGTERM)
	// As a Session leaves them whose state is lost.
	const uid = "11111111-2222-4333-8444-555555555555"
	g, err := git.New(git.Options{Files: &files.Layer{}})
	world.Must(t, err)
	folder := filepath.Join(f.Work, "repo.worktrees", "lost")
	_, err = g.EnsureWorktree(t.Context(), effects.WantWorktree{Repo: f.repo, Branch: "lost", Path: folder, UID: uid})
	world.Must(t, err)
	f.put(folder, "untracked", "1")
	before := everything(f.World, folder)
	f.Write(filepath.Join(f.State, "launch", uid+".1.1"), "{}")
	f.Write(filepath.Join(f.Spool, ".web.yaml.skc-0123456789abcdef.tmp"), "half")
	old := time.Now().Add(-time.Hour)
	world.Must(t, os.Chtimes(filepath.Join(f.Spool, ".web.yaml.skc-0123456789abcdef.tmp"), old, old))
	f.Start()
	reasons := map[string]bool{}
	f.Until("three orphans are set aside", func() bool {
		n := 0
		for _, q := range quarantines(f.World) {
			c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.Ready)
			if c != nil {
				reasons[c.Reason] = true
			}
			if q.Spec.Reason == v1alpha1.QuarantineOrphaned && c != nil && c.Reason == v1alpha1.ReasonKept {
				n++
			}
		}
		return n == 3
	})
	if !reasons[v1alpha1.ReasonGracePeriod] {
		t.Error("there was no grace")
	}
	for _, q := range quarantines(f.World) {
		if q.Spec.Origin.Path == folder {
			if got := everything(f.World, q.Status.Path); got != before {
				t.Errorf("the tree changed:\n%s", got)
			}
			f.MustCtl("restore", q.Name)
			if got := everything(f.World, folder); got != before {
				t.Errorf("the tree changed:\n%s", got)
			}
		}
	}
	f.UntilRunning("found")
}

// TestKilledOnTheWay kills skcd at each step of a quarantine, and starts it again:
// it comes to the same end.
func TestKilledOnTheWay(t *testing.T) {
	t.Parallel()
	for _, place := range []string{
		"managed.write:before", "managed.write:after", "git.lock:after", "git.detach:after", "quarantine.plan:after", "quarantine.rename:before",
		"quarantine.rename:during", "quarantine.record:after", "git.gitdir:after", "managed.remove:before", "managed.remove:after", "git.attach:after",
	} {
		t.Run(place, func(t *testing.T) {
			f := newForge(t, true)
			f.Start()
			folder, before := f.work("web")
			f.Stop(syscall.SIGTERM)
			f.Env = append(f.Env, "SKC_FAULT="+place+"=kill")
			c, _ := f.StartOrDie()
			f.Remove("web.yaml")
			restored := false
			f.Until("it is killed", func() bool {
				if !c.Alive() {
					return true
				}
				for _, q := range quarantines(f.World) {
					if !restored && meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.SetAside) {
						restored = true
						f.say(q, "restore: true")
					}
				}
				return false
			})
			c.Wait()
			f.Env = f.Env[:len(f.Env)-1]
			f.Start()
			if !restored {
				f.say(untilKept(f.World, "web"), "restore: true")
			}
			f.UntilRunning("web")
			f.Until("nothing is left in quarantine", func() bool { return len(quarantines(f.World)) == 0 })
			if got := everything(f.World, folder); got != before {
				t.Errorf("the tree changed:\n%s", got)
			}
		})
	}
}
