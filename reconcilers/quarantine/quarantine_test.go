package quarantine

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
)

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unknown = metav1.ConditionUnknown
)

// kept is a world whose Session was deleted, with its worktree in quarantine.
func kept(t *testing.T, edit ...func(*v1alpha1.Quarantine)) (w *world, tree, before string) {
	t.Helper()
	w = newWorld(t)
	s := w.session()
	tree = s.Status.Workspace.Path
	before = w.tree(tree)
	w.delete(s, edit...)
	w.pass()
	w.want(v1alpha1.SetAside, yes, v1alpha1.ReasonKept)
	w.sessionGone()
	w.pass()
	return w, tree, before
}

func TestSetAside(t *testing.T) {
	w, tree, before := kept(t)
	q := w.get()
	w.want(v1alpha1.Ready, yes, v1alpha1.ReasonKept)
	w.want(v1alpha1.Restored, no, v1alpha1.ReasonNotAsked)
	if _, err := os.Lstat(tree); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the worktree is where it was: %v", err)
	}
	if got := w.tree(q.Status.Path); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
	head := w.sh(w.path("app"), "rev-parse", "feat")
	if q.Status.Head != head || q.Status.Attempts != 1 || q.Status.SetAsideAt == nil || q.Status.Size == nil || q.Status.Size.Files < 4 {
		t.Errorf("status is %+v, size %+v", q.Status, q.Status.Size)
	}
	checks := map[string]bool{}
	for _, c := range q.Status.Safety {
		checks[c.Name] = c.OK
	}
	if diff := cmp.Diff(map[string]bool{"dirty": false, "untracked": false, "ignored": true, "stash": true, "unpushed": false, "upstream": false}, checks); diff != "" {
		t.Errorf("what was nowhere else:\n%s", diff)
	}
	if want := w.clock.Now().Add(168 * time.Hour); q.Status.Deadline == nil || q.Status.Deadline.Sub(want).Abs() > time.Second {
		t.Errorf("deadline is %v, want %v", q.Status.Deadline, want)
	}
	list := w.sh(w.path("app"), "worktree", "list", "--porcelain")
	if !strings.Contains(list, "worktree "+q.Status.Path) || !strings.Contains(list, "locked skc: set aside: SessionDeleted, quarantine default/web-1a2b") {
		t.Errorf("git knows:\n%s", list)
	}
	if w.sh(q.Status.Path, "rev-parse", "HEAD") != head {
		t.Error("what is set aside is no valid worktree")
	}
	if w.woken[web] == 0 {
		t.Error("the session was not woken")
	}
	// A pass with nothing to do writes nothing and runs nothing.
	writes := w.layer.Writes()
	w.goOn(time.Hour - time.Minute)
	for range 3 {
		res, err := w.r.Reconcile(t.Context(), key)
		must(t, err)
		if want := 167*time.Hour + time.Minute; res.RequeueAfter != want {
			t.Errorf("it is due in %s, want %s", res.RequeueAfter, want)
		}
	}
	if got := w.layer.Writes(); got != writes {
		t.Errorf("%d writes in a pass with nothing to do", got-writes)
	}
}

// TestReasons: what stands in the way of a move has its reason, and is where it
// was.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		name   string
		do     func(w *world, q *v1alpha1.Quarantine)
		status metav1.ConditionStatus
		reason string
		text   string
		stays  bool
	}{
		{"another folder", func(w *world, q *v1alpha1.Quarantine) {
			must(w.t, os.Rename(q.Spec.Origin.Path, w.path("away")))
			must(w.t, os.Mkdir(q.Spec.Origin.Path, 0o755))
		}, no, v1alpha1.ReasonIdentityMismatch, "", true},
		{"a link", func(w *world, q *v1alpha1.Quarantine) {
			must(w.t, os.Rename(q.Spec.Origin.Path, w.path("away")))
			must(w.t, os.Symlink(w.path("away"), q.Spec.Origin.Path))
		}, no, v1alpha1.ReasonRefused, "symbolic link", true},
		{"another's by now", func(w *world, q *v1alpha1.Quarantine) {
			must(w.t, w.git.Transfer(w.t.Context(), q.Spec.Origin.Path, q.Spec.Origin.MarkedBy, "somebody"))
		}, no, v1alpha1.ReasonIdentityMismatch, "the worktree of somebody", true},
		{"unregistered by hand", func(w *world, q *v1alpha1.Quarantine) {
			must(w.t, os.RemoveAll(w.path("app/.git/worktrees/feat")))
		}, yes, v1alpha1.ReasonKept, "git does not know it", false},
		{"repository vanished", func(w *world, q *v1alpha1.Quarantine) {
			must(w.t, os.RemoveAll(w.path("app")))
		}, yes, v1alpha1.ReasonKept, "git does not know it", false},
		{"unmarked", func(w *world, q *v1alpha1.Quarantine) {
			must(w.t, w.git.Unmark(w.t.Context(), q.Spec.Origin.Path, q.Spec.Origin.MarkedBy))
		}, yes, v1alpha1.ReasonKept, "no mark", false},
		{"locked by somebody", func(w *world, q *v1alpha1.Quarantine) {
			w.sh(w.path("app"), "worktree", "lock", "--reason", "mine", q.Spec.Origin.Path)
		}, yes, v1alpha1.ReasonKept, "", false},
		{"git is broken", func(w *world, q *v1alpha1.Quarantine) {
			must(w.t, os.WriteFile(w.path("app/.git/worktrees/feat/HEAD"), []byte("nonsense\n"), 0o644))
		}, yes, v1alpha1.ReasonKept, "git could not be told", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			s := w.session()
			w.delete(s)
			w.sync()
			q := w.get()
			c.do(w, q)
			var before string
			if fi, err := os.Stat(q.Spec.Origin.Path); err == nil && fi.IsDir() {
				before = w.tree(q.Spec.Origin.Path)
			}
			w.pass()
			got := w.want(v1alpha1.SetAside, c.status, c.reason)
			if !strings.Contains(got.Message, c.text) {
				t.Errorf("the message is %q, want %q in it", got.Message, c.text)
			}
			w.want(v1alpha1.Ready, c.status, c.reason)
			at := q.Spec.Origin.Path
			if !c.stays {
				at = w.get().Status.Path
				if _, err := os.Lstat(q.Spec.Origin.Path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("it is where it was: %v", err)
				}
			}
			if before != "" {
				if after := w.tree(at); after != before {
					t.Errorf("the tree changed:\n%s", after)
				}
			}
			if c.name == "locked by somebody" {
				if list := w.sh(w.path("app"), "worktree", "list", "--porcelain"); !strings.Contains(list, "locked mine") {
					t.Errorf("his lock is gone:\n%s", list)
				}
			}
		})
	}
}

func TestGone(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	head := w.sh(s.Status.Workspace.Path, "rev-parse", "HEAD")
	w.sh(s.Status.Workspace.Path, "checkout", "-q", "--detach")
	w.sh(w.path("app"), "branch", "-q", "-D", "feat")
	must(t, os.RemoveAll(s.Status.Workspace.Path))
	w.delete(s)
	if next := w.pass(); next != recheckSoon {
		t.Errorf("while the session waits the next look is in %s", next)
	}
	w.want(v1alpha1.SetAside, no, v1alpha1.ReasonGone)
	if list := w.sh(w.path("app"), "worktree", "list"); strings.Contains(list, "\n") {
		t.Errorf("git knows:\n%s", list)
	}
	if refs := w.sh(w.path("app"), "for-each-ref", "--contains", head); refs == "" {
		t.Error("the commit is in no ref")
	}
	w.sessionGone()
	w.goOn(recheckSoon)
	w.pass()
	w.gone(key)
}

func TestNotManaged(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	w.delete(s)
	w.sync()
	q := w.get()
	must(t, w.root.Remove(t.Context(), key))
	w.pass() // lets go of it, with nothing begun
	w.gone(key)
	raw := []byte(`{"origin":{"type":"Worktree","path":"` + q.Spec.Origin.Path + `"}}`)
	q.Finalizers = nil
	must(t, w.store.Apply(t.Context(), store.Desired{Object: q, RawSpec: raw, Source: store.Source{Root: "/spool", File: "/spool/q.yaml"}}))
	w.pass()
	w.want(v1alpha1.SetAside, no, v1alpha1.ReasonNotManaged)
	if _, err := os.Lstat(q.Spec.Origin.Path); err != nil {
		t.Error(err)
	}
	must(t, w.store.Remove(t.Context(), key, store.Source{Root: "/spool", File: "/spool/q.yaml"}))
	w.pass()
	w.gone(key)
}

func TestRestore(t *testing.T) {
	w, tree, before := kept(t)
	status := w.sh(w.get().Status.Path, "status", "--porcelain")
	w.edit(func(spec map[string]any) { spec["restore"] = true })
	w.pass()
	w.gone(key)
	if got := w.tree(tree); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
	if got := w.sh(tree, "status", "--porcelain"); got != status {
		t.Errorf("status is %q, want %q", got, status)
	}
	if got := w.sh(tree, "branch", "--show-current"); got != "feat" {
		t.Errorf("the branch is %q", got)
	}
	if list := w.sh(w.path("app"), "worktree", "list", "--porcelain"); strings.Contains(list, "locked") {
		t.Errorf("it is locked still:\n%s", list)
	}
	s := w.getSession()
	if s.Annotations[v1alpha1.RestoredFromAnnotation] != owner || s.Labels["team"] != "a" || s.Spec.Target.Worktree.Path != "" || s.Spec.Command[0] != "true" {
		t.Errorf("the session is %+v %+v", s.ObjectMeta, s.Spec)
	}
	if uid, ok, err := w.git.Marked(t.Context(), tree); err != nil || !ok || uid != owner {
		t.Errorf("its mark is %q %v %v", uid, ok, err)
	}
	if refs := w.sh(w.path("app"), "for-each-ref", "refs/skc"); refs != "" {
		t.Errorf("refs are left: %s", refs)
	}
	if got := w.events[len(w.events)-1]; !strings.Contains(got, "Restored") {
		t.Errorf("the last event is %s", got)
	}
	// The new owner is known: nothing is an orphan.
	must(t, w.r.Look(t.Context()))
	w.sync()
	if all := w.quarantines(); len(all) != 0 {
		t.Errorf("the restored worktree is called an orphan: %v", all)
	}
}

func TestRestoreElsewhere(t *testing.T) {
	w, tree, before := kept(t)
	must(t, os.Mkdir(tree, 0o755))
	w.edit(func(spec map[string]any) { spec["restore"] = true })
	if next := w.pass(); next != recheckSoon {
		t.Errorf("the next look is in %s", next)
	}
	w.want(v1alpha1.Restored, no, v1alpha1.ReasonPlaceTaken)
	w.want(v1alpha1.SetAside, yes, v1alpha1.ReasonKept)
	w.want(v1alpha1.Ready, no, v1alpha1.ReasonPlaceTaken)

	w.edit(func(spec map[string]any) { spec["restoreTo"] = "~/new/place" })
	w.pass()
	w.gone(key)
	if got := w.tree(w.path("home/new/place")); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
	if s := w.getSession(); string(s.Spec.Target.Worktree.Path) != w.path("home/new/place") {
		t.Errorf("the session is at %q", s.Spec.Target.Worktree.Path)
	}
}

func TestRestoreBesideASession(t *testing.T) {
	w, tree, before := kept(t)
	other := w.session() // another of that name, with another worktree at that place
	if other.Status.Workspace.Path != tree {
		t.Fatal(other.Status.Workspace.Path)
	}
	w.edit(func(spec map[string]any) { spec["restore"] = true })
	w.pass()
	if c := w.want(v1alpha1.Restored, no, v1alpha1.ReasonSessionExists); !strings.Contains(c.Message, "restoreTo") {
		t.Errorf("the message is %q", c.Message)
	}
	w.want(v1alpha1.SetAside, yes, v1alpha1.ReasonKept)
	w.edit(func(spec map[string]any) { spec["restoreTo"] = w.path("beside") })
	w.pass()
	w.gone(key)
	if got := w.tree(w.path("beside")); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
	if _, ok, err := w.git.Marked(t.Context(), w.path("beside")); ok || err != nil {
		t.Errorf("it carries a mark: %v %v", ok, err)
	}
	if got := w.getSession(); got.UID != other.UID || got.Annotations[v1alpha1.RestoredFromAnnotation] != "" {
		t.Errorf("the other session changed: %+v", got.ObjectMeta)
	}
	if got := strings.Join(w.events, "\n"); !strings.Contains(got, "the folder alone was given back") {
		t.Errorf("events:\n%s", got)
	}
}

func TestRestoreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		to     string
		edit   func(*v1alpha1.Quarantine)
		reason string
	}{
		{"a definition that is none", "", func(q *v1alpha1.Quarantine) { q.Spec.Session.Definition = `{"kind":"Session"}` }, v1alpha1.ReasonRefused},
		{"another file system", "/var/tmp/skc-restore-test", func(*v1alpha1.Quarantine) {}, v1alpha1.ReasonRefused},
		{"into the quarantine", "state/quarantine/x", func(*v1alpha1.Quarantine) {}, v1alpha1.ReasonRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, before := kept(t, c.edit)
			if c.to == "/var/tmp/skc-restore-test" {
				a, errA := os.Stat("/var/tmp")
				if errA != nil || sameDevice(t, a, w.dir) {
					t.Skip("there is no other file system")
				}
			}
			place := w.get().Status.Path
			w.edit(func(spec map[string]any) {
				spec["restore"] = true
				if c.to != "" {
					to := c.to
					if !filepath.IsAbs(to) {
						to = w.path(to)
					}
					spec["restoreTo"] = to
				}
			})
			w.pass()
			w.want(v1alpha1.Restored, no, c.reason)
			w.want(v1alpha1.Ready, no, c.reason)
			if got := w.tree(place); got != before {
				t.Errorf("the tree changed:\n%s", got)
			}
			if keys := w.store.Keys(v1alpha1.KindSession); len(keys) != 0 {
				t.Errorf("sessions: %v", keys)
			}
		})
	}
}

func TestPurge(t *testing.T) {
	w, _, _ := kept(t)
	place, head := w.get().Status.Path, w.get().Status.Head
	w.sh(w.path("app"), "branch", "-q", "-D", "feat")
	w.edit(func(spec map[string]any) { spec["purge"] = true })
	w.pass()
	w.gone(key)
	if _, err := os.Lstat(place); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	if list := w.sh(w.path("app"), "worktree", "list"); strings.Contains(list, "\n") {
		t.Errorf("git knows:\n%s", list)
	}
	if refs := w.sh(w.path("app"), "for-each-ref", "--contains", head); refs == "" {
		t.Error("the commit is in no ref")
	}
	if keys := w.store.Keys(v1alpha1.KindSession); len(keys) != 0 {
		t.Errorf("sessions: %v", keys)
	}
}

// TestRetention: a thing is kept for the time that was seen to go by; what the
// clock on the wall does counts for nothing.
func TestRetention(t *testing.T) {
	w, _, before := kept(t)
	still := func(what string) {
		t.Helper()
		w.pass()
		if q := w.get(); w.tree(q.Status.Path) != before {
			t.Errorf("%s: the tree changed", what)
		}
		w.want(v1alpha1.Ready, yes, v1alpha1.ReasonKept)
	}
	for _, jump := range []time.Duration{24 * time.Hour, -24 * time.Hour, 20 * 8766 * time.Hour, -40 * 8766 * time.Hour, 20 * 8766 * time.Hour} {
		w.clock.Step(jump)
		still("a jump of " + jump.String())
		want := w.clock.Now().Add(168 * time.Hour)
		if got := w.get().Status.Deadline; got.Sub(want).Abs() > time.Second {
			t.Errorf("after a jump of %s the deadline is %v, want %v", jump, got, want)
		}
		w.restart()
		still("a start after a jump of " + jump.String())
	}
	w.goOn(167 * time.Hour)
	still("an hour before")
	w.edit(func(spec map[string]any) { spec["retention"] = "200h" })
	w.goOn(2 * time.Hour)
	still("longer")
	w.edit(func(spec map[string]any) { spec["retention"] = "170h" })
	if next := func() time.Duration { still("shorter"); return w.pass() }(); next != time.Hour {
		t.Errorf("it is due in %s, want 1h", next)
	}
	w.boot, w.uptime = "boot-2", 0 // time with the machine off does not count
	w.clock.Step(1000 * time.Hour)
	w.restart()
	still("another boot")
	// A definition that cannot be read may be about to say something else.
	path := w.root.Path(key)
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(text, []byte("nonsense: 1\n")...), 0o600))
	w.goOn(1000 * time.Hour)
	w.pass()
	w.want(v1alpha1.SetAside, yes, v1alpha1.ReasonKept)
	w.want(v1alpha1.Ready, no, v1alpha1.ReasonInvalidSpec)
	must(t, os.WriteFile(path, text, 0o600))
	w.pass()
	w.gone(key)
}

// TestDefinitionRemoved: whoever removes the file of a Quarantine removes
// nothing that is kept, and what he asked for in it is not done.
func TestDefinitionRemoved(t *testing.T) {
	w, _, before := kept(t)
	w.edit(func(spec map[string]any) { spec["retention"] = "1000h" })
	w.pass()
	uid := w.get().UID
	must(t, os.Remove(w.root.Path(key)))
	w.pass()
	q := w.get()
	if q.UID == uid || q.Spec.RetentionOrDefault() != 1000*time.Hour || w.tree(q.Status.Path) != before {
		t.Errorf("it is %+v", q)
	}
	w.want(v1alpha1.Ready, yes, v1alpha1.ReasonKept)
	if got := strings.Join(w.events, "\n"); !strings.Contains(got, "StillKept") {
		t.Errorf("events:\n%s", got)
	}
	// And with the whole state lost.
	must(t, os.RemoveAll(w.root.Path(key)))
	must(t, os.RemoveAll(w.path("state/objects")))
	w.restart()
	must(t, w.r.EnsureObjects(t.Context()))
	w.pass()
	if q := w.get(); w.tree(q.Status.Path) != before || q.Spec.Session.Name != web.Name {
		t.Errorf("it is %+v", q)
	}
	w.want(v1alpha1.Ready, yes, v1alpha1.ReasonKept)
	w.edit(func(spec map[string]any) { spec["restore"] = true })
	w.pass()
	w.gone(key)
}

// TestPlans: a plan that cannot be read has an object that says so, and nothing is
// done for it; with the plan mended all goes on.
func TestPlans(t *testing.T) {
	for name, spoil := range map[string]string{"damaged": "{\"v\":1,\"seq\":7,\"event\":\"done\"}\n", "newer": "{\"v\":99}\n"} {
		t.Run(name, func(t *testing.T) {
			w, tree, before := kept(t)
			place := w.get().Status.Path
			plan := w.path("state/quarantine/plans", ID(key)+".jsonl")
			text, err := os.ReadFile(plan)
			must(t, err)
			must(t, os.WriteFile(plan, append(append([]byte{}, text...), spoil...), 0o600))
			must(t, os.Remove(w.root.Path(key)))
			must(t, os.RemoveAll(w.path("state/objects")))
			w.restart()
			must(t, w.r.EnsureObjects(t.Context()))
			if err := w.r.Look(t.Context()); !errors.Is(err, effects.ErrUnreadable) {
				t.Errorf("a look = %v", err)
			}
			w.goOn(1000 * time.Hour)
			w.pass()
			w.want(v1alpha1.SetAside, unknown, v1alpha1.ReasonPlanUnreadable)
			w.want(v1alpha1.Ready, unknown, v1alpha1.ReasonPlanUnreadable)
			must(t, os.Remove(w.root.Path(key)))
			w.pass()
			w.want(v1alpha1.Ready, unknown, v1alpha1.ReasonPlanUnreadable)
			if w.tree(place) != before {
				t.Error("the tree changed")
			}
			must(t, os.WriteFile(plan, text, 0o600))
			w.edit(func(spec map[string]any) { spec["retention"] = "5000h" })
			w.pass()
			if q := w.get(); q.Spec.Origin.Path != tree {
				t.Errorf("origin is %q", q.Spec.Origin.Path)
			}
		})
	}
}

// TestLost: what is lost is said to be, until somebody takes note.
func TestLost(t *testing.T) {
	w, _, _ := kept(t)
	head := w.get().Status.Head
	must(t, os.RemoveAll(w.get().Status.Path))
	w.sh(w.path("app"), "branch", "-q", "-D", "feat")
	w.pass()
	w.want(v1alpha1.SetAside, no, v1alpha1.ReasonLost)
	w.goOn(1000 * time.Hour)
	w.pass()
	w.edit(func(spec map[string]any) { spec["purge"] = true })
	w.pass()
	w.gone(key)
	if refs := w.sh(w.path("app"), "for-each-ref", "--contains", head); refs == "" {
		t.Error("the commit is in no ref")
	}
}

func TestFolder(t *testing.T) {
	w := newWorld(t)
	w.put("scratch/x/file", "1")
	s := w.session()
	before := w.tree(w.path("scratch/x"))
	w.delete(s, func(q *v1alpha1.Quarantine) {
		q.Spec.Origin = v1alpha1.QuarantineOrigin{Type: v1alpha1.QuarantineFolder, Path: w.path("scratch/x"), Identity: w.identity(w.path("scratch/x")), Owner: owner}
		q.Spec.Session.Definition = `{"apiVersion":"skc.dev/v1alpha1","kind":"Session","metadata":{"name":"web"},"spec":{"command":["true"],"target":{"plainDir":{"path":"` + w.path("scratch/x") + `"}}}}`
	})
	w.pass()
	w.want(v1alpha1.Ready, yes, v1alpha1.ReasonKept)
	w.sessionGone()
	must(t, os.Remove(w.path("scratch"))) // it is made again
	w.edit(func(spec map[string]any) { spec["restore"] = true })
	w.pass()
	w.gone(key)
	if got := w.tree(w.path("scratch/x")); got != before {
		t.Errorf("the tree changed:\n%s", got)
	}
	if s := w.getSession(); string(s.Spec.Target.PlainDir.Path) != w.path("scratch/x") {
		t.Errorf("the session is %+v", s.Spec)
	}
}

// TestAnyFailureHeals fails each effect once, before it acts, and, with the end of
// the controller, after, on the way into quarantine and then back, or to the end.
func TestAnyFailureHeals(t *testing.T) {
	for _, end := range []string{"restore", "purge"} {
		for _, crash := range []bool{false, true} {
			reached := map[string]bool{}
			for n := 1; ; n++ {
				w := newWorld(t)
				w.calls.at, w.calls.after, w.crashes = n, crash, crash
				s := w.session()
				tree := s.Status.Workspace.Path
				before := w.tree(tree)
				head := w.sh(tree, "rev-parse", "HEAD")
				w.delete(s)
				w.pass()
				w.want(v1alpha1.SetAside, yes, v1alpha1.ReasonKept)
				if got := w.tree(w.get().Status.Path); got != before {
					t.Fatalf("%s %d %v: the tree changed:\n%s", end, n, crash, got)
				}
				w.sessionGone()
				w.edit(func(spec map[string]any) { spec[end] = true })
				w.pass()
				w.goOn(recheck)
				w.pass()
				w.gone(key)
				if all := w.quarantines(); len(all) != 0 {
					t.Fatalf("%s %d %v: left: %v", end, n, crash, all)
				}
				if end == "restore" {
					if got := w.tree(tree); got != before {
						t.Fatalf("%s %d %v: the tree changed:\n%s", end, n, crash, got)
					}
					w.getSession()
					if got := w.sh(tree, "branch", "--show-current"); got != "feat" {
						t.Errorf("%s %d %v: the branch is %q", end, n, crash, got)
					}
				}
				if refs := w.sh(w.path("app"), "for-each-ref", "--contains", head); refs == "" {
					t.Errorf("%s %d %v: the commit is in no ref", end, n, crash)
				}
				if w.calls.name == "" {
					t.Logf("%s, crash %v: %d effects fail, of %v", end, crash, n-1, slices.Sorted(maps.Keys(reached)))
					break
				}
				reached[w.calls.name] = true
			}
			for _, name := range map[string][]string{
				"restore": {"Transfer", "BeforeMove", "SetAside", "AfterMove", "Restore", "AfterRestore", "CreateFrom", "Remove", "Forget", "Update"},
				"purge":   {"Transfer", "BeforeMove", "SetAside", "AfterMove", "Purge", "AfterPurge", "Remove", "Forget", "Update"},
			}[end] {
				if !reached[name] {
					t.Errorf("%s: %s never failed", end, name)
				}
			}
		}
	}
}
