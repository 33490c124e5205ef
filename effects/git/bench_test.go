package git_test

import (
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// BenchmarkTwentyAtOnce makes twenty worktrees at once, and then twenty with
// plain git one after the other, which is what plain git can do without errors.
func BenchmarkTwentyAtOnce(b *testing.B) {
	var ours, plain time.Duration
	for n := range b.N {
		w := newWorld(b)
		for i := range 200 {
			w.put(fmt.Sprintf("app/many/%d/file", i), fmt.Sprint(i))
		}
		w.commit(w.repo, "many")
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := w.git.EnsureWorktree(b.Context(), w.want(fmt.Sprintf("ours%d", i))); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		ours += time.Since(start)
		start = time.Now()
		for i := range 20 {
			cmd := exec.Command("git", "-C", w.repo, "worktree", "add", "-q", "-b", fmt.Sprintf("plain%d-%d", n, i), w.path(fmt.Sprintf("plain/%d", i)))
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
		plain += time.Since(start)
	}
	b.ReportMetric(float64(ours.Milliseconds())/float64(b.N), "ms/20")
	b.ReportMetric(float64(plain.Milliseconds())/float64(b.N), "plain-ms/20")
	b.ReportMetric(ours.Seconds()/plain.Seconds(), "ratio")
}

// BenchmarkNothingToDo is a call for a worktree that is there.
func BenchmarkNothingToDo(b *testing.B) {
	w := newWorld(b)
	want := w.want("feat")
	w.ensure(want)
	b.ReportAllocs()
	for b.Loop() {
		w.ensure(want)
	}
}
