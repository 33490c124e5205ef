package quarantine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
)

// look makes a complete look and brings what it defined to rest.
func (w *world) look() {
	w.t.Helper()
	must(w.t, w.r.Look(w.t.Context()))
	w.pass()
}

// one is the only Quarantine there is.
func (w *world) one() api.Key {
	w.t.Helper()
	all := w.quarantines()
	if len(all) != 1 {
		w.t.Fatalf("quarantines: %v, want one", all)
	}
	return all[0]
}

func TestOrphanedWorktree(t *testing.T) {
	w := newWorld(t)
	tree := w.worktree("11111111-0000-4000-8000-000000000001", "lost/and-found")
	before := w.tree(tree)
	w.look()
	k := w.one()
	q := w.getOf(k)
	w.wantOf(k, v1alpha1.SetAside, no, v1alpha1.ReasonGracePeriod)
	w.wantOf(k, v1alpha1.Ready, no, v1alpha1.ReasonGracePeriod)
	if o := q.Spec.Origin; o.Path != tree || o.Type != v1alpha1.QuarantineWorktree || o.Branch != "lost/and-found" || o.Repo != w.path("app/.git") ||
		o.MarkedBy != "11111111-0000-4000-8000-000000000001" || q.Spec.NotBefore.Sub(w.clock.Now().Add(time.Hour)).Abs() > time.Second {
		t.Errorf("spec is %+v", q.Spec)
	}
	// A second look changes nothing and writes nothing.
	writes := w.layer.Writes()
	w.look()
	if got := w.layer.Writes() - writes; got != 0 || w.one() != k {
		t.Errorf("a second look made %d writes", got)
	}
	// No jump of the clock ends the grace, or stops it from ending.
	for _, jump := range []time.Duration{24 * time.Hour, 20 * 8766 * time.Hour, -40 * 8766 * time.Hour} {
		w.clock.Step(jump)
		w.look()
		w.wantOf(k, v1alpha1.SetAside, no, v1alpha1.ReasonGracePeriod)
	}
	w.restart() // with the clock set back: it does not last longer than the grace
	w.look()
	w.goOn(59 * time.Minute)
	w.look()
	w.wantOf(k, v1alpha1.SetAside, no, v1alpha1.ReasonGracePeriod)
	w.goOn(time.Minute)
	w.look()
	w.wantOf(k, v1alpha1.SetAside, yes, v1alpha1.ReasonKept)
	if got := w.tree(w.getOf(k).Status.Path); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
	w.look() // it is no orphan of an orphan
	w.one()
	must(t, w.root.Edit(t.Context(), k, func(spec map[string]any) error { spec["restore"] = true; return nil }))
	w.pass()
	w.gone(k)
	if got := w.tree(tree); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
	w.look()
	if all := w.quarantines(); len(all) != 0 {
		t.Errorf("what was given back to nobody is called an orphan: %v", all)
	}
}

func TestOrphanIsRecalled(t *testing.T) {
	const uid = "11111111-0000-4000-8000-000000000001"
	for _, c := range []struct {
		name  string
		do    func(w *world, k api.Key, tree string)
		late  bool // seen only when the grace is over
		stays bool
	}{
		{"its owner shows up", func(w *world, _ api.Key, tree string) {
			w.sessionWith(map[string]string{v1alpha1.RestoredFromAnnotation: uid}, "other")
		}, false, true},
		{"its owner shows up late", func(w *world, _ api.Key, tree string) {
			w.sessionWith(map[string]string{v1alpha1.RestoredFromAnnotation: uid}, "other")
		}, true, true},
		{"a session wants it", func(w *world, _ api.Key, tree string) { w.sessionWith(nil, "feat") }, false, true},
		{"it lost its mark", func(w *world, _ api.Key, tree string) {
			must(w.t, w.git.Unmark(w.t.Context(), tree, uid))
		}, false, true},
		{"it lost its mark late", func(w *world, _ api.Key, tree string) {
			must(w.t, w.git.Unmark(w.t.Context(), tree, uid))
		}, true, true},
		{"it is gone", func(w *world, _ api.Key, tree string) {
			w.sh(w.path("app"), "worktree", "remove", "--force", tree)
		}, false, false},
		{"a user wants to keep it", func(w *world, k api.Key, _ string) {
			must(w.t, w.root.Edit(w.t.Context(), k, func(spec map[string]any) error { spec["restore"] = true; return nil }))
			w.pass()
		}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			tree := w.worktree(uid, "feat")
			w.look()
			k := w.one()
			c.do(w, k, tree)
			if c.late {
				w.goOn(2 * time.Hour)
				w.pass()
			} else {
				w.look()
			}
			w.gone(k)
			w.look()
			if all := w.quarantines(); len(all) != 0 {
				t.Errorf("left: %v", all)
			}
			if _, err := os.Lstat(tree); c.stays != (err == nil) {
				t.Errorf("the worktree: %v", err)
			}
		})
	}
}

// sessionWith makes a Session that wants a worktree, and has none.
func (w *world) sessionWith(annotations map[string]string, branch string) {
	w.t.Helper()
	s := &v1alpha1.Session{}
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.KindSession))
	s.Namespace, s.Name, s.Annotations = web.Namespace, web.Name, annotations
	s.Spec.Target.Worktree = &v1alpha1.WorktreeTarget{Repo: v1alpha1.Path(w.path("app")), Branch: branch}
	must(w.t, w.store.Apply(w.t.Context(), store.Desired{Object: s, RawSpec: []byte("{}"), Source: store.Source{Root: "/spool", File: sessionFile}}))
}

// TestUnknownIsNotAbsent: while an owner may be hidden, or a look is not complete,
// nothing is called an orphan, none is recalled, and none is moved.
func TestUnknownIsNotAbsent(t *testing.T) {
	w := newWorld(t)
	tree := w.worktree("11111111-0000-4000-8000-000000000001", "feat")
	hidden := errors.New("a state file is damaged")
	w.hidden = hidden
	if err := w.r.Look(t.Context()); !errors.Is(err, hidden) {
		t.Errorf("a look = %v", err)
	}
	w.pass()
	if all := w.quarantines(); len(all) != 0 {
		t.Fatalf("found: %v", all)
	}
	w.hidden = nil
	if os.Getuid() != 0 {
		must(t, os.Chmod(w.path("app/.git/worktrees"), 0))
		if err := w.r.Look(t.Context()); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a look = %v", err)
		}
		must(t, os.Chmod(w.path("app/.git/worktrees"), 0o755))
	}
	w.look()
	k := w.one()
	w.hidden = hidden
	must(t, os.Rename(w.path("app"), w.path("away")))
	_ = w.r.Look(t.Context())
	must(t, os.Rename(w.path("away"), w.path("app")))
	w.goOn(2 * time.Hour)
	if next := w.pass(); next != recheck {
		t.Errorf("the next look is in %s", next)
	}
	if c := w.wantOf(k, v1alpha1.SetAside, no, v1alpha1.ReasonGracePeriod); !strings.Contains(c.Message, "hidden") {
		t.Errorf("the message is %q", c.Message)
	}
	if _, err := os.Lstat(tree); err != nil {
		t.Error(err)
	}
	w.hidden = nil
	w.pass()
	w.wantOf(k, v1alpha1.SetAside, yes, v1alpha1.ReasonKept)
}

// TestLeftovers: files that nobody uses go the same way, and two of one Session do
// not take each other for its owner.
func TestLeftovers(t *testing.T) {
	const uid = "11111111-0000-4000-8000-000000000001"
	w := newWorld(t)
	w.put("state/launch/"+uid+".1.1", "SECRET=1")
	w.put("spool/.web.yaml.skc-0011223344556677.tmp", "half")
	w.put("state/quarantine/things/.skc-kept-00000000-0000-4000-8000-000000000000/file", "whose?")
	w.worktree(uid, "feat")
	w.left = []effects.Leftover{
		{Path: w.path("state/launch/" + uid + ".1.1"), UID: uid, What: "launch file"},
		{Path: w.path("spool/.web.yaml.skc-0011223344556677.tmp"), What: "temporary of an edit"},
	}
	w.look()
	w.look()
	if all := w.quarantines(); len(all) != 4 {
		t.Fatalf("quarantines: %v", all)
	}
	w.goOn(time.Hour)
	w.look()
	w.left = nil
	w.look()
	got := map[string]string{}
	for _, k := range w.quarantines() {
		q := w.getOf(k)
		rel, err := filepath.Rel(w.dir, q.Spec.Origin.Path)
		must(t, err)
		for _, c := range q.Status.Conditions {
			if c.Type == v1alpha1.Ready {
				got[rel] = c.Reason
			}
		}
	}
	want := map[string]string{
		"state/launch/" + uid + ".1.1":                                           v1alpha1.ReasonKept,
		"spool/.web.yaml.skc-0011223344556677.tmp":                               v1alpha1.ReasonKept,
		"state/quarantine/things/.skc-kept-00000000-0000-4000-8000-000000000000": v1alpha1.ReasonRefused,
		"app.worktrees/feat":                                                     v1alpha1.ReasonKept,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// Whoever moves it away has settled it.
	must(t, os.Rename(w.path("state/quarantine/things/.skc-kept-00000000-0000-4000-8000-000000000000"), w.path("mine")))
	w.look()
	if all := w.quarantines(); len(all) != 3 {
		t.Errorf("quarantines: %v", all)
	}
}

// TestNamesThatAreNoText are told of, and left.
func TestNamesThatAreNoText(t *testing.T) {
	w := newWorld(t)
	path := w.path("app.worktrees/\xff")
	_, err := w.git.EnsureWorktree(t.Context(), effects.WantWorktree{Repo: w.path("app"), Branch: "x", Path: path, UID: "u"})
	must(t, err)
	must(t, w.known.Remember(w.path("app/.git")))
	w.look()
	w.look()
	if len(w.quarantines()) != 0 || len(w.events) != 1 || !strings.Contains(w.events[0], `\xff`) {
		t.Errorf("quarantines %v, events %q", w.quarantines(), w.events)
	}
}

// TestUnfinishedWorktree: one that a crash left half made is set aside as well,
// and git forgets it, so that its branch is free.
func TestUnfinishedWorktree(t *testing.T) {
	const uid = "11111111-0000-4000-8000-000000000001"
	w := newWorld(t)
	path := w.path("app.worktrees/half")
	must(t, w.known.Remember(w.path("app/.git")))
	w.sh(w.path("app"), "worktree", "add", "-q", "--no-checkout", "--lock", "--reason", "skc: being made for session "+uid, "-b", "half", path)
	w.look()
	k := w.one()
	w.goOn(time.Hour)
	w.look()
	w.wantOf(k, v1alpha1.SetAside, yes, v1alpha1.ReasonKept)
	w.sh(w.path("app"), "worktree", "add", "-q", w.path("again"), "half")
}

// TestLeftBehind: a worktree whose making failed, and whose Session has another
// target by now, is an orphan although the Session lives; but not before that is
// in another folder.
func TestLeftBehind(t *testing.T) {
	w := newWorld(t)
	s := w.session() // in feat
	uid := string(s.UID)
	path := w.path("app.worktrees/half")
	w.sh(w.path("app"), "worktree", "add", "-q", "--no-checkout", "--lock", "--reason", "skc: being made for session "+uid, "-b", "half", path)
	settle := func(status metav1.ConditionStatus, workspace *v1alpha1.WorkspaceStatus) {
		t.Helper()
		before := w.getSession()
		after := before.DeepCopy()
		after.Status.Workspace = workspace
		meta.SetStatusCondition(&after.Status.Conditions, metav1.Condition{
			Type: v1alpha1.WorkspaceReady, Status: status, Reason: "Test", ObservedGeneration: after.Generation,
		})
		must(t, w.store.Update(t.Context(), before, after))
	}
	feat := s.Status.Workspace
	for _, c := range []struct {
		name   string
		status metav1.ConditionStatus
		in     *v1alpha1.WorkspaceStatus
		orphan bool
	}{
		{"nothing is known of the new one", yes, nil, false},
		{"the new one is not ready", no, feat, false},
		{"in the new one", yes, feat, true},
		{"back to it", no, &v1alpha1.WorkspaceStatus{Path: path, Repo: w.path("app/.git"), CreatedByController: true}, false},
		{"given up again", yes, feat, true},
	} {
		settle(c.status, c.in)
		w.look()
		if got := len(w.quarantines()) == 1; got != c.orphan {
			t.Fatalf("%s: an orphan: %v", c.name, got)
		}
	}
	k := w.one()
	w.goOn(time.Hour)
	w.look()
	w.wantOf(k, v1alpha1.SetAside, yes, v1alpha1.ReasonKept)
	w.sh(w.path("app"), "worktree", "add", "-q", w.path("again"), "half")
	if _, err := os.Lstat(feat.Path); err != nil {
		t.Error(err)
	}
}

// TestFullDisk: nothing is moved, nothing is purged, and it is said.
func TestFullDisk(t *testing.T) {
	w, _, before := kept(t)
	full := &fullVault{Vault: w.r.Vault}
	w.r.Vault = full
	w.purger.do = w.r.Purge
	w.goOn(168 * time.Hour)
	full.on = true
	w.pass()
	w.want(v1alpha1.SetAside, no, v1alpha1.ReasonDiskFull)
	w.want(v1alpha1.Ready, no, v1alpha1.ReasonDiskFull)
	if got := w.tree(w.get().Status.Path); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
	if got := strings.Join(w.events, "\n"); !strings.Contains(got, "DiskFull") {
		t.Errorf("events:\n%s", got)
	}
	full.on = false
	w.goOn(recheck)
	w.pass()
	w.gone(key)

	s := w.session()
	w.delete(s)
	full.on = true
	w.pass()
	w.want(v1alpha1.SetAside, no, v1alpha1.ReasonDiskFull)
	if _, err := os.Lstat(s.Status.Workspace.Path); err != nil {
		t.Error(err)
	}
	full.on = false
	w.pass()
	w.want(v1alpha1.SetAside, yes, v1alpha1.ReasonKept)
}

var errFull = &fs.PathError{Op: "write", Path: "plan", Err: syscall.ENOSPC}
