package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// B-055, B-056: whatever is in a worktree of ours goes into quarantine with it, and
// its branch and commits stay.
func TestDeleteSetsAWorktreeAside(t *testing.T) {
	w := newWorktreeWorld(t)
	w.apply(w.spec(w.worktree(), func(s *v1alpha1.SessionSpec) {
		s.Cleanup.Retention = &metav1.Duration{Duration: time.Hour}
	}), map[string]string{"note": "x"})
	w.pass()
	w.put("app.worktrees/feat/kept.log", "ignored")
	w.put("app.worktrees/feat/scratch", "untracked")
	w.put("app.worktrees/feat/new", "new")
	w.sh(w.wt(), "add", "new")
	w.sh(w.wt(), "commit", "-q", "-m", "unpushed")
	head := w.sh(w.wt(), "rev-parse", "HEAD")
	s := w.get()
	w.remove()
	w.pass()
	if w.version() != "gone" || w.exists(w.wt()) {
		t.Fatalf("version %s; the worktree is there: %v", w.version(), w.exists(w.wt()))
	}
	q := w.quarantines.only()
	if q.Namespace != s.Namespace || !regexp.MustCompile(`^web-[0-9a-f]{8}$`).MatchString(q.Name) {
		t.Errorf("object %s/%s", q.Namespace, q.Name)
	}
	o := q.Spec.Origin
	if o.Type != v1alpha1.QuarantineWorktree || o.Path != w.wt() || o.Identity != s.Status.Workspace.Identity || o.MarkedBy != string(s.UID) ||
		o.Repo != filepath.Join(w.repo(), ".git") || o.Branch != "feat" || !regexp.MustCompile(`^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$`).MatchString(o.Owner) {
		t.Errorf("origin %+v", o)
	}
	if q.Spec.Reason != v1alpha1.QuarantineSessionDeleted || q.Spec.RetentionOrDefault() != time.Hour || !strings.Contains(q.Spec.RequestedBy, "/spool/web.yaml") {
		t.Errorf("spec %+v", q.Spec)
	}
	back, err := v1alpha1.Decode("definition.json", []byte(q.Spec.Session.Definition))
	if err != nil || back[0].Object.GetName() != "web" || back[0].Object.GetAnnotations()["note"] != "x" ||
		back[0].Object.(*v1alpha1.Session).Spec.Target.Worktree.Branch != "feat" {
		t.Errorf("definition %s: %v", q.Spec.Session.Definition, err)
	}
	// The object can be written to a file and read back.
	js, err := json.Marshal(q)
	must(t, err)
	var doc map[string]any
	must(t, json.Unmarshal(js, &doc))
	delete(doc, "status")
	delete(doc["metadata"].(map[string]any), "creationTimestamp")
	js, err = json.Marshal(doc)
	must(t, err)
	if _, err := v1alpha1.Decode("quarantine.json", js); err != nil {
		t.Errorf("the object is refused: %v", err)
	}
	for name, want := range map[string]string{"kept.log": "ignored", "scratch": "untracked", "new": "new"} {
		if got := w.read(filepath.Join(q.Status.Path, name)); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	if got := w.sh(w.repo(), "rev-parse", "feat"); got != head {
		t.Errorf("branch feat is at %s, want %s", got, head)
	}
}

func TestDeleteOfAFolder(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(w *world) // before the Session is
		fill   func(w *world)
		spec   func(*v1alpha1.SessionSpec)
		names  []string // in the folder around all
		aside  bool
	}{
		"ours, empty":                  {names: nil},
		"ours, with what is skc's own": {fill: func(w *world) { must(w.t, os.MkdirAll(filepath.Join(w.work, ".skc", "state"), 0o700)) }},
		"ours, with work":              {fill: func(w *world) { w.put("work/x", "mine") }, aside: true},
		"ours, with an empty folder":   {fill: func(w *world) { must(w.t, os.Mkdir(filepath.Join(w.work, "x"), 0o700)) }, aside: true},
		"ours, retained": {
			fill: func(w *world) { w.put("work/x", "mine") },
			spec: func(s *v1alpha1.SessionSpec) { s.Cleanup.Policy = v1alpha1.CleanupRetain }, names: []string{"work"},
		},
		"ours, retained and empty": {
			spec: func(s *v1alpha1.SessionSpec) { s.Cleanup.Policy = v1alpha1.CleanupRetain }, names: []string{"work"},
		},
		"found": {before: func(w *world) { must(w.t, os.Mkdir(w.work, 0o700)) }, names: []string{"work"}},
		"existingPath": {
			before: func(w *world) { must(w.t, os.Mkdir(w.work, 0o700)) },
			spec:   func(s *v1alpha1.SessionSpec) { s.Target = v1alpha1.SessionTarget{ExistingPath: s.Target.PlainDir} }, names: []string{"work"},
		},
		"never made": {spec: stopped},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tt.before != nil {
				tt.before(w)
			}
			edit := tt.spec
			if edit == nil {
				edit = func(*v1alpha1.SessionSpec) {}
			}
			w.apply(w.spec(edit), nil)
			w.pass()
			if tt.fill != nil {
				tt.fill(w)
			}
			w.remove()
			w.pass()
			if w.version() != "gone" {
				t.Fatalf("version %s: %s", w.version(), w.message(v1alpha1.WorkspaceReady))
			}
			if !tt.aside {
				if len(w.quarantines.objects) != 0 {
					t.Errorf("in quarantine: %v", w.quarantines.objects)
				}
				w.wantNames(tt.names...)
				return
			}
			q := w.quarantines.only()
			if o := q.Spec.Origin; o.Type != v1alpha1.QuarantineFolder || o.Path != w.work || o.MarkedBy != "" || o.Repo != "" {
				t.Errorf("origin %+v", o)
			}
			w.wantNames(filepath.Base(q.Status.Path))
		})
	}
}

func TestRetain(t *testing.T) {
	w := newWorktreeWorld(t)
	retain := func(s *v1alpha1.SessionSpec) { s.Cleanup.Policy = v1alpha1.CleanupRetain }
	w.applyWorktree(retain)
	w.pass()
	w.put("app.worktrees/feat/scratch", "mine")
	w.remove()
	w.pass()
	l, err := w.worktrees.Look(w.wt())
	if w.version() != "gone" || err != nil || l.UID != "" || w.read(filepath.Join(w.wt(), "scratch")) != "mine" || len(w.quarantines.objects) != 0 {
		t.Errorf("version %s, look %+v %v; want it in place and nobody's", w.version(), l, err)
	}
	if last := w.events.lines[len(w.events.lines)-1]; last != "Normal WorkspaceRetained "+w.wt()+" stays where it is, and is yours" {
		t.Errorf("events %q, want where it is", w.events.lines)
	}
}

// The Session stays until its work is safe, and says what is in the way.
func TestDeleteWaitsForTheQuarantine(t *testing.T) {
	for _, reason := range []string{v1alpha1.ReasonKept, v1alpha1.ReasonGone} {
		t.Run(reason, func(t *testing.T) {
			w := newWorktreeWorld(t)
			w.applyWorktree()
			w.pass()
			w.quarantines.held = true
			w.remove()
			if next := w.pass(); next != lookAgain {
				t.Errorf("next look in %s, want %s: nobody may tell", next, lookAgain)
			}
			w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionUnknown, v1alpha1.ReasonSettingAside)
			w.wantCondition(v1alpha1.Ready, metav1.ConditionUnknown, v1alpha1.ReasonSettingAside)
			q := w.quarantines.only()
			if w.get().Status.Workspace.Quarantine != q.Name {
				t.Errorf("status says %q, want %q", w.get().Status.Workspace.Quarantine, q.Name)
			}
			w.quarantines.say(q, metav1.ConditionFalse, v1alpha1.ReasonDiskFull, "there is no room for the plan")
			w.restartController()
			w.pass()
			w.wantCondition(v1alpha1.Ready, metav1.ConditionFalse, v1alpha1.ReasonSettingAside)
			if m := w.message(v1alpha1.Ready); !strings.Contains(m, "there is no room for the plan") || !strings.Contains(m, q.Name) {
				t.Errorf("message %q", m)
			}
			writes := w.store.Stats().Writes
			w.pass()
			if got := w.store.Stats().Writes; got != writes {
				t.Errorf("%d writes while it waits", got-writes)
			}
			status := metav1.ConditionTrue
			if reason == v1alpha1.ReasonGone {
				status = metav1.ConditionFalse
			}
			w.quarantines.say(q, status, reason, "x")
			w.pass()
			if w.version() != "gone" || len(w.quarantines.objects) != 1 {
				t.Errorf("version %s, %d objects", w.version(), len(w.quarantines.objects))
			}
		})
	}
}

// What cannot be proved to be ours is left, and holds nothing up.
func TestDeleteLeavesWhatIsNotProvedOurs(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"unmarked by hand": func(w *world) {
			must(w.t, w.worktrees.Unmark(w.t.Context(), w.wt(), string(w.get().UID)))
		},
		"removed by hand": func(w *world) { must(w.t, os.RemoveAll(w.wt())) },
		"moved by hand":   func(w *world) { must(w.t, os.Rename(w.wt(), w.wt()+"2")) },
		"another folder": func(w *world) {
			must(w.t, errors.Join(os.RemoveAll(w.wt()), os.Mkdir(w.wt(), 0o755)))
			w.put("app.worktrees/feat/x", "mine")
		},
		"the repository is gone": func(w *world) { must(w.t, os.RemoveAll(w.repo())) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorktreeWorld(t)
			w.applyWorktree()
			w.pass()
			change(w)
			before := w.tree()
			w.remove()
			w.pass()
			if w.version() != "gone" || len(w.quarantines.objects) != 0 {
				t.Errorf("version %s, in quarantine %v", w.version(), w.quarantines.objects)
			}
			if after := w.tree(); after != before {
				t.Errorf("there is\n%s\nwant\n%s", after, before)
			}
		})
	}
}

// tree is all names around the worktrees.
func (w *world) tree() string {
	w.t.Helper()
	var names []string
	must(w.t, filepath.WalkDir(filepath.Join(w.dir, "app.worktrees"), func(path string, _ os.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	return strings.Join(names, "\n")
}

// Unknown is not absent: what cannot be looked at keeps the Session.
func TestDeleteWithoutGit(t *testing.T) {
	w := newWorktreeWorld(t)
	w.applyWorktree()
	w.pass()
	w.gitOptions.Git = "no-such-git"
	w.restartController()
	w.remove()
	var err error
	for range 5 {
		if _, err = w.r.Reconcile(t.Context(), web); err != nil {
			break
		}
	}
	if !errors.Is(err, effects.ErrUnavailable) || w.version() == "gone" {
		t.Fatalf("%v, version %s; want it to wait for git", err, w.version())
	}
	w.gitOptions.Git = ""
	w.restartController()
	w.pass()
	if w.version() != "gone" || w.quarantines.only().Spec.Origin.Path != w.wt() {
		t.Errorf("version %s", w.version())
	}
}

// A worktree that was being made when its Session was deleted is not forgotten,
// whether the controller lived to record it or not.
func TestDeleteWhileItIsMade(t *testing.T) {
	for name, tt := range map[string]struct {
		act   func(w *world)
		aside bool
	}{
		"still under way": {func(*world) {}, true},
		"made, and not recorded": {func(w *world) {
			w.awaitBackground()
			w.restartController()
		}, true},
		"made as far as its registration": {func(w *world) {
			w.awaitBackground()
			admin := filepath.Join(w.repo(), ".git", "worktrees", "feat")
			must(w.t, errors.Join(os.Remove(filepath.Join(admin, "index")), os.Remove(filepath.Join(admin, "skc")),
				os.WriteFile(filepath.Join(admin, "locked"), []byte("skc: being made for session "+string(w.get().UID)), 0o644)))
			w.restartController()
		}, true},
		"not begun": {func(w *world) {
			w.awaitBackground()
			w.sh(w.repo(), "worktree", "remove", "--force", w.wt())
			w.restartController()
		}, false},
		"somebody else's": {func(w *world) {
			w.awaitBackground()
			must(w.t, w.worktrees.Unmark(w.t.Context(), w.wt(), string(w.get().UID)))
			w.restartController()
		}, false},
		"no repository any more": {func(w *world) {
			w.awaitBackground()
			must(w.t, os.RemoveAll(w.repo()))
			w.restartController()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorktreeWorld(t)
			w.applyWorktree()
			if _, err := w.r.Reconcile(t.Context(), web); err != nil {
				t.Fatal(err)
			}
			tt.act(w)
			w.remove()
			w.pass()
			if w.version() != "gone" {
				t.Fatalf("version %s: %s", w.version(), w.message(v1alpha1.WorkspaceReady))
			}
			if (len(w.quarantines.objects) == 1) != tt.aside {
				t.Errorf("in quarantine: %v; want something: %v", w.quarantines.objects, tt.aside)
			}
		})
	}
}

// Another target: the program is ended, the old workspace set aside, the new one
// made; in this order, and nothing of the old one is lost.
func TestTargetChanged(t *testing.T) {
	plain := func(w *world) func(*v1alpha1.SessionSpec) {
		return func(s *v1alpha1.SessionSpec) {
			s.Target = v1alpha1.SessionTarget{PlainDir: &v1alpha1.PathTarget{Path: v1alpha1.Path(w.work)}}
		}
	}
	existing := func(path string) func(*v1alpha1.SessionSpec) {
		return func(s *v1alpha1.SessionSpec) {
			s.Target = v1alpha1.SessionTarget{ExistingPath: &v1alpha1.PathTarget{Path: v1alpha1.Path(path)}}
		}
	}
	for name, tt := range map[string]struct {
		from, to func(w *world) func(*v1alpha1.SessionSpec)
		aside    bool
		path     func(w *world) string
		ours     bool
	}{
		"branch": {
			from: func(w *world) func(*v1alpha1.SessionSpec) { return w.worktree() },
			to: func(w *world) func(*v1alpha1.SessionSpec) {
				return w.worktree(func(t *v1alpha1.WorktreeTarget) { t.Branch = "other" })
			},
			aside: true, path: func(w *world) string { return filepath.Join(w.dir, "app.worktrees", "other") }, ours: true,
		},
		"path": {
			from: func(w *world) func(*v1alpha1.SessionSpec) { return w.worktree() },
			to: func(w *world) func(*v1alpha1.SessionSpec) {
				return w.worktree(func(t *v1alpha1.WorktreeTarget) { t.Path = v1alpha1.Path(w.dir + "/else") })
			},
			aside: true, path: func(w *world) string { return w.dir + "/else" }, ours: true,
		},
		"worktree to plainDir": {
			from: func(w *world) func(*v1alpha1.SessionSpec) { return w.worktree() }, to: plain,
			aside: true, path: func(w *world) string { return w.work }, ours: true,
		},
		"plainDir to worktree": {
			from: plain, to: func(w *world) func(*v1alpha1.SessionSpec) { return w.worktree() },
			aside: true, path: (*world).wt, ours: true,
		},
		"the worktree as existingPath": {
			from: func(w *world) func(*v1alpha1.SessionSpec) { return w.worktree() },
			to:   func(w *world) func(*v1alpha1.SessionSpec) { return existing(w.wt()) },
			path: (*world).wt,
		},
		"the plainDir as existingPath": {
			from: plain, to: func(w *world) func(*v1alpha1.SessionSpec) { return existing(w.work) },
			path: func(w *world) string { return w.work },
		},
		"worktree to existingPath": {
			from:  func(w *world) func(*v1alpha1.SessionSpec) { return w.worktree() },
			to:    func(w *world) func(*v1alpha1.SessionSpec) { return existing(w.repo()) },
			aside: true, path: (*world).repo,
		},
		"existingPath to worktree": {
			from: func(w *world) func(*v1alpha1.SessionSpec) { return existing(w.repo()) },
			to:   func(w *world) func(*v1alpha1.SessionSpec) { return w.worktree() },
			path: (*world).wt, ours: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorktreeWorld(t)
			w.apply(w.spec(tt.from(w)), nil)
			w.pass()
			w.wantRunning(1)
			old := w.get().Status.Workspace
			must(t, os.WriteFile(filepath.Join(old.Path, "scratch"), []byte("mine"), 0o644))
			w.quarantines.held = true
			w.procs.stubborn = true
			w.apply(w.spec(tt.to(w)), nil)
			w.pass()
			if len(w.quarantines.objects) != 0 {
				t.Fatal("set aside under a running program")
			}
			w.clock.Step(10 * time.Second)
			w.procs.stubborn = false
			w.pass()
			if tt.aside {
				w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionUnknown, v1alpha1.ReasonReplacing)
				w.wantCondition(v1alpha1.Ready, metav1.ConditionUnknown, v1alpha1.ReasonReplacing)
				if d := w.get().Status.LastTermination; d.RequestedBy != v1alpha1.RequestedSpecChanged {
					t.Errorf("certificate %+v, want SpecChanged", d)
				}
				q := w.quarantines.only()
				if q.Spec.Reason != v1alpha1.QuarantineTargetChanged || q.Spec.Session.Definition != "" || q.Spec.Origin.Path != old.Path {
					t.Errorf("object %+v", q.Spec)
				}
				// The spec goes back, which is too late: what is on its way is not used.
				w.apply(w.spec(tt.from(w)), nil)
				w.pass()
				if w.livingPanes() != 0 {
					t.Error("a program was started in what is on its way into quarantine")
				}
				w.apply(w.spec(tt.to(w)), nil)
				w.restartController()
				w.quarantines.held = false
				w.pass()
				if got := w.read(filepath.Join(w.quarantines.only().Status.Path, "scratch")); got != "mine" {
					t.Errorf("in quarantine: %q", got)
				}
			} else if len(w.quarantines.objects) != 0 {
				t.Errorf("in quarantine: %v", w.quarantines.objects)
			} else if w.read(filepath.Join(old.Path, "scratch")) != "mine" {
				t.Error("the old workspace is not as it was")
			}
			w.wantRunning(2)
			ws := w.get().Status.Workspace
			if ws.Path != tt.path(w) || ws.CreatedByController != tt.ours || ws.Quarantine != "" {
				t.Errorf("workspace %+v, want %s, ours: %v", ws, tt.path(w), tt.ours)
			}
		})
	}
}

// A Session that is stopped keeps its workspace, whatever its target is by now.
// A worktree that was begun for the target before, and that no pass lived to
// record, is not in the way for ever: it is set aside like one that was recorded.
func TestTargetChangedBeforeItWasRecorded(t *testing.T) {
	for name, harm := range map[string]func(w *world){
		"made": func(*world) {},
		"made as far as its registration": func(w *world) {
			admin := filepath.Join(w.repo(), ".git", "worktrees", "feat")
			must(w.t, errors.Join(os.Remove(filepath.Join(admin, "index")), os.Remove(filepath.Join(admin, "skc")),
				os.WriteFile(filepath.Join(admin, "locked"), []byte("skc: being made for session "+string(w.get().UID)), 0o644)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorktreeWorld(t)
			w.applyWorktree()
			if _, err := w.r.Reconcile(t.Context(), web); err != nil {
				t.Fatal(err)
			}
			w.awaitBackground()
			harm(w)
			w.restartController()
			w.apply(w.spec(w.worktree(func(t *v1alpha1.WorktreeTarget) { t.Branch = "other" })), nil)
			w.pass()
			w.wantOurs(filepath.Join(filepath.Dir(w.wt()), "other"))
			w.wantRunning(1)
			if q := w.quarantines.only(); q.Spec.Origin.Path != w.wt() || q.Spec.Reason != v1alpha1.QuarantineTargetChanged {
				t.Errorf("in quarantine: %+v", q.Spec)
			}
		})
	}
}

func TestTargetChangedWhileStopped(t *testing.T) {
	w := newWorktreeWorld(t)
	w.applyWorktree()
	w.pass()
	w.apply(w.spec(stopped), nil)
	w.pass()
	w.wantOurs(w.wt())
	if len(w.quarantines.objects) != 0 || w.exists(w.work) {
		t.Errorf("in quarantine: %v; the new folder is there: %v", w.quarantines.objects, w.exists(w.work))
	}
	w.remove()
	w.pass()
	if q := w.quarantines.only(); w.version() != "gone" || q.Spec.Origin.Path != w.wt() || q.Spec.Reason != v1alpha1.QuarantineSessionDeleted {
		t.Errorf("version %s, object %+v", w.version(), q.Spec)
	}
}

func TestQuarantineNames(t *testing.T) {
	s := &v1alpha1.Session{}
	s.UID = "u"
	names := map[string]bool{}
	for _, name := range []string{"a", strings.Repeat("x", 63), strings.Repeat("y", 53) + "-" + strings.Repeat("z", 9)} {
		for i := range 2 {
			s.Name = name
			s.Status.Workspace = &v1alpha1.WorkspaceStatus{Path: "/p", Identity: v1alpha1.FileIdentity(fmt.Sprintf("1:%d", i))}
			got := quarantineName(s)
			if len(got) > 63 || !regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`).MatchString(got) || strings.Contains(got, "--") || names[got] || got != quarantineName(s) {
				t.Errorf("name %q of %q", got, name)
			}
			names[got] = true
		}
	}
}

// Definitions that are too long for the file of a Quarantine are left out: the
// work is set aside all the same.
func TestALongDefinition(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(func(s *v1alpha1.SessionSpec) {
		for range 8 {
			s.Command = append(s.Command, strings.Repeat(`"`, 100_000))
		}
	}), nil)
	w.pass()
	w.put("work/x", "mine")
	w.remove()
	w.pass()
	if q := w.quarantines.only(); w.version() != "gone" || q.Spec.Session.Definition != "" {
		t.Errorf("version %s, definition of %d bytes", w.version(), len(q.Spec.Session.Definition))
	}
}

// For every n the nth effect of making, giving up or replacing a workspace fails
// once, and the controller dies there; what comes of it is what an unbroken run
// leads to, with everything in its place or in quarantine, once.
func TestAnyFailureOfAWorkspaceHeals(t *testing.T) {
	made := func(path func(*world) string) func(*world) {
		return func(w *world) {
			w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRunning)
			if ws := w.get().Status.Workspace; ws.Path != path(w) || !ws.CreatedByController {
				w.t.Fatalf("workspace %+v, want ours at %s", ws, path(w))
			}
			if l, err := w.worktrees.Look(path(w)); err == nil && l.UID != string(w.get().UID) {
				w.t.Fatalf("look %+v, want ours", l)
			}
		}
	}
	aside := func(n int) func(*world) {
		return func(w *world) {
			if len(w.quarantines.objects) != n {
				w.t.Fatalf("%d things in quarantine, want %d", len(w.quarantines.objects), n)
			}
			for _, q := range w.quarantines.objects {
				if got := w.read(filepath.Join(q.Status.Path, "work")); got != "mine" {
					w.t.Fatalf("%s holds %q", q.Status.Path, got)
				}
			}
			if list, _ := filepath.Glob(filepath.Join(w.dir, ".skc-new-*")); len(list) != 0 {
				w.t.Fatalf("left behind: %q", list)
			}
		}
	}
	gone := func(n int) func(*world) {
		return func(w *world) {
			if aside(n)(w); w.version() != "gone" {
				w.t.Fatal("the Session is still there")
			}
		}
	}
	work := func(w *world) string { return w.work }
	onPlain := func(w *world) { w.apply(w.spec(), nil) }
	onTree := func(w *world) { w.applyWorktree() }
	for name, tt := range map[string]struct {
		from  int
		steps []step
	}{
		"a folder with work": {0, []step{
			{"create", onPlain, made(work)},
			{"delete", func(w *world) { w.put("work/work", "mine"); w.remove() }, gone(1)},
		}},
		"a folder without": {1, []step{
			{"create", onPlain, made(work)},
			{"delete", (*world).remove, func(w *world) { gone(0)(w); w.wantNames("app") }},
		}},
		"a worktree": {0, []step{
			{"create", onTree, made((*world).wt)},
			{"delete", func(w *world) { w.put("app.worktrees/feat/work", "mine"); w.remove() }, gone(1)},
		}},
		"a worktree, and then a folder": {1, []step{
			{"create", onTree, made((*world).wt)},
			{"change", func(w *world) { w.put("app.worktrees/feat/work", "mine"); onPlain(w) }, func(w *world) { made(work)(w); aside(1)(w) }},
		}},
		"retained": {1, []step{
			{"create", func(w *world) {
				w.applyWorktree(func(s *v1alpha1.SessionSpec) { s.Cleanup.Policy = v1alpha1.CleanupRetain })
			}, made((*world).wt)},
			{"delete", (*world).remove, func(w *world) {
				gone(0)(w)
				if l, err := w.worktrees.Look(w.wt()); err != nil || l.UID != "" {
					w.t.Fatalf("look %+v, %v; want nobody's", l, err)
				}
			}},
		}},
	} {
		t.Run(name, func(t *testing.T) { anyFailureHeals(t, newWorktreeWorld, tt.from, tt.steps) })
	}
}
