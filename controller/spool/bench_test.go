package spool

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rawScan is the cheapest look that could see a change: one listing, one
// fstatat a file.
func rawScan(tb testing.TB, dir string) int {
	f, err := os.Open(dir)
	must(tb, err)
	defer f.Close()
	entries, err := f.ReadDir(-1)
	must(tb, err)
	var st unix.Stat_t
	for _, e := range entries {
		must(tb, unix.Fstatat(int(f.Fd()), e.Name(), &st, 0))
	}
	return len(entries)
}

// resting is a world with n files that nothing happens to.
func resting(tb testing.TB, n int) *world {
	w := newWorld(tb)
	for i := range n {
		must(tb, os.WriteFile(w.path(fmt.Sprintf("s%d.yaml", i)), []byte(session(fmt.Sprint("s", i), "1")), 0o600))
	}
	w.clock.Step(time.Hour) // none of them is young
	w.start()
	if got := len(w.sink.all()); got != n {
		tb.Fatalf("%d objects, want %d", got, n)
	}
	return w
}

func TestRestCostsNothing(t *testing.T) { // P8
	w := resting(t, 300)
	w.flush()
	before, writes := w.s.Stats(), w.layer.Writes()
	w.pass(10 * time.Minute)
	after := w.s.Stats()
	if after.Rescans-before.Rescans < 10 {
		t.Errorf("%d looks in ten minutes, want ten", after.Rescans-before.Rescans)
	}
	if after.Reads != before.Reads || after.Parses != before.Parses {
		t.Errorf("%d reads and %d parses of files that did not change", after.Reads-before.Reads, after.Parses-before.Parses)
	}
	if n := w.layer.Writes() - writes; n != 0 {
		t.Errorf("%d writes, want none", n)
	}
}

func TestOneChangeCostsOneRead(t *testing.T) {
	w := resting(t, 300)
	before := w.s.Stats()
	w.put("s7.yaml", session("s7", "2"))
	w.flush()
	after := w.s.Stats()
	if after.Reads-before.Reads != 1 || after.Parses-before.Parses != 1 || after.Rescans != before.Rescans {
		t.Errorf("%d reads, %d parses, %d full looks; want 1, 1 and 0",
			after.Reads-before.Reads, after.Parses-before.Parses, after.Rescans-before.Rescans)
	}
}

// BenchmarkRescan compares a full look at 10,000 unchanged files with the raw
// scan in the same run: the goal is 2 times (P8).
func BenchmarkRescan(b *testing.B) {
	w := resting(b, 10_000)
	before, writes := w.s.Stats(), w.layer.Writes()
	var look, raw time.Duration
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		w.do(func(s *Spool) { s.look(s.roots[0]) })
		look += time.Since(began)
		began = time.Now()
		rawScan(b, w.spool)
		raw += time.Since(began)
	}
	after := w.s.Stats()
	b.ReportMetric(look.Seconds()/raw.Seconds(), "x-raw")
	b.ReportMetric(look.Seconds()*1000/float64(b.N), "ms/look")
	b.ReportMetric(float64(after.Parses-before.Parses), "parses")
	b.ReportMetric(float64(w.layer.Writes()-writes), "writes")
}

// BenchmarkFirstLook is the start with n new files and a sink that costs
// nothing.
func BenchmarkFirstLook(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b)
		for i := range 1000 {
			must(b, os.WriteFile(w.path(fmt.Sprintf("s%d.yaml", i)), []byte(session(fmt.Sprint("s", i), "1")), 0o600))
		}
		w.clock.Step(time.Hour)
		b.StartTimer()
		w.run()
		<-w.s.Synced()
		b.StopTimer()
		w.stop()
		b.StartTimer()
	}
}

// BenchmarkDrop is from the rename of a file to the sink's Apply, with 1,000
// files present.
func BenchmarkDrop(b *testing.B) {
	w := resting(b, 1000)
	i := 0
	for b.Loop() {
		i++
		arg := fmt.Sprint("n", i)
		w.put("s1.yaml", session("s1", arg))
		for w.sink.get("s1").generation != i+1 {
			time.Sleep(10 * time.Microsecond)
		}
	}
}
