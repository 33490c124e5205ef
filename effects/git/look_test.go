package git_test

import (
	"errors"
	"os"
	"testing"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/git"
)

func (w *world) look(path string) effects.WorktreeLook {
	w.t.Helper()
	l, err := w.git.Look(path)
	must(w.t, err)
	return l
}

func TestLook(t *testing.T) {
	w := newWorld(t)
	want := w.want("feat/x")
	if _, err := w.git.Look(want.Path); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("of nothing: %v, want ErrNotFound", err)
	}
	if _, err := w.git.Look(w.repo); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("of the clone: %v, want ErrNotFound", err)
	}
	w.ensure(want)
	if l := w.look(want.Path); l.UID != want.UID || l.Branch != "feat/x" || l.Making || l.Stamp == "" {
		t.Errorf("Look = %+v, want the worktree of %s on feat/x", l, want.UID)
	}
	head, err := w.git.Head(t.Context(), want.Path)
	if err != nil || head != w.sh(want.Path, "rev-parse", "HEAD") {
		t.Errorf("Head = %s, %v", head, err)
	}
	must(t, w.git.Unmark(t.Context(), want.Path, want.UID))
	if l := w.look(want.Path); l.UID != "" {
		t.Errorf("after Unmark it is %s's", l.UID)
	}
	w.sh(w.repo, "worktree", "lock", "--reason", "skc: being made for session u-1", want.Path)
	if l := w.look(want.Path); l.UID != "u-1" || !l.Making {
		t.Errorf("while it is made: %+v", l)
	}
	w.sh(w.repo, "worktree", "unlock", want.Path)
	must(t, os.Rename(want.Path, want.Path+"-moved"))
	if _, err := w.git.Look(want.Path + "-moved"); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("where git does not know it: %v, want ErrNotFound", err)
	}
}

func TestStamp(t *testing.T) {
	w := newWorld(t)
	w.sh(w.dir, "clone", "-q", "--bare", w.repo, w.path("remote.git"))
	w.sh(w.repo, "remote", "add", "origin", w.path("remote.git"))
	w.sh(w.repo, "fetch", "-q", "origin")
	want := w.want("feat/x")
	w.ensure(want)
	stamp := w.look(want.Path).Stamp
	if again := w.look(want.Path).Stamp; again != stamp {
		t.Errorf("two looks at the same: %s, %s", stamp, again)
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"a new file at the top", func() { w.put("wt/feat-x/new", "x") }},
		{"git add", func() { w.sh(want.Path, "add", "new") }},
		{"git commit", func() { w.sh(want.Path, "commit", "-q", "-m", "new") }},
		{"git push", func() { w.sh(want.Path, "push", "-q", "origin", "feat/x") }},
		{"git stash", func() { w.put("wt/feat-x/new", "y"); w.sh(want.Path, "stash", "-q") }},
		{"git switch", func() { w.sh(want.Path, "switch", "-q", "-c", "other") }},
		{"a lock", func() { w.sh(w.repo, "worktree", "lock", want.Path) }},
	} {
		step.do()
		next := w.look(want.Path).Stamp
		if next == stamp {
			t.Errorf("%s does not change the stamp", step.name)
		}
		stamp = next
	}
	if report, err := w.git.Safety(t.Context(), want.Path, git.Limits{}); err != nil {
		t.Fatalf("%+v, %v", report, err)
	}
	if again := w.look(want.Path).Stamp; again != stamp {
		t.Error("our own look at its safety changes the stamp")
	}
}
