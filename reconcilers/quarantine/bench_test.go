package quarantine

import (
	"fmt"
	"testing"

	"skc.dev/skc/effects"
)

// BenchmarkNothingToDo is one pass over a worktree that is kept.
func BenchmarkNothingToDo(b *testing.B) {
	w := newWorld(b)
	w.delete(w.session())
	w.pass()
	w.sessionGone()
	w.pass()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.r.Reconcile(b.Context(), key); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLook is one complete look at a repository with 100 worktrees that have
// no owner, and 100 Quarantines that say so already.
func BenchmarkLook(b *testing.B) {
	w := newWorld(b)
	must(b, w.known.Remember(w.path("app/.git")))
	s := w.session()
	for i := range 100 {
		_, err := w.git.EnsureWorktree(b.Context(), effects.WantWorktree{
			Repo: w.path("app"), Branch: fmt.Sprintf("b%d", i), Path: w.path("app.worktrees", fmt.Sprintf("b%d", i)), UID: string(s.UID) + fmt.Sprint(i),
		})
		must(b, err)
	}
	must(b, w.r.Look(b.Context())) // the first look defines a Quarantine for each
	w.pass()
	if n := len(w.quarantines()); n != 100 {
		b.Fatalf("%d orphans", n)
	}
	writes := w.layer.Writes()
	b.ReportAllocs()
	for b.Loop() {
		must(b, w.r.Look(b.Context()))
	}
	if n := w.layer.Writes() - writes; n != 0 {
		b.Fatalf("%d writes", n)
	}
}
