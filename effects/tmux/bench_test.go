package tmux_test

import (
	"strconv"
	"testing"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/tmux/tmuxtest"
)

// BenchmarkCreate makes sessions one after the other; each is ended again, not
// timed, so that the server stays of one size.
func BenchmarkCreate(b *testing.B) {
	r := newReal(b)
	p := benchStart(b, r)
	must(b, r.Kill(b.Context(), p))
	b.ReportAllocs()
	n := 1
	for b.Loop() {
		n++
		l := tmuxtest.Launch(n, 1)
		b.StopTimer()
		r.Prepare(l)
		b.StartTimer()
		p, err := r.Create(b.Context(), tmuxtest.Want("s"+strconv.Itoa(n), l))
		b.StopTimer()
		must(b, err)
		must(b, r.Kill(b.Context(), p))
		b.StartTimer()
	}
}

func BenchmarkRespawn(b *testing.B) {
	r := newReal(b)
	p := benchStart(b, r)
	b.ReportAllocs()
	n := int64(1)
	for b.Loop() {
		n++
		l := tmuxtest.Launch(1, n)
		b.StopTimer()
		r.Prepare(l)
		b.StartTimer()
		if _, err := r.Respawn(b.Context(), p, l); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGet must cost no command of tmux.
func BenchmarkGet(b *testing.B) {
	r := newReal(b)
	benchStart(b, r)
	before := r.client.Stats().Commands
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Get(b.Context(), tmuxtest.UID(1)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(r.client.Stats().Commands-before)/float64(b.N), "commands/op")
}

// BenchmarkLook reads 100 sessions.
func BenchmarkLook(b *testing.B) {
	r := newReal(b)
	for i := range 100 {
		l := tmuxtest.Launch(i+1, 1)
		r.Prepare(l)
		if _, err := r.Create(b.Context(), tmuxtest.Want("s"+strconv.Itoa(i), l)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		must(b, r.Look(b.Context()))
	}
}

// BenchmarkDeath is the time from the death of a program until Get says how it
// died.
func BenchmarkDeath(b *testing.B) {
	r := newReal(b)
	p := benchStart(b, r)
	n := int64(1)
	for b.Loop() {
		r.Die(p, "SIGKILL")
		for got, err := p, error(nil); !got.Dead; got, err = r.Get(b.Context(), p.Launch.UID) {
			must(b, err)
			<-r.Changes
		}
		b.StopTimer()
		n++
		r.Prepare(tmuxtest.Launch(1, n))
		var err error
		if p, err = r.Respawn(b.Context(), p, tmuxtest.Launch(1, n)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(r.client.Stats().DeathsBlind), "unknown")
}

func benchStart(b *testing.B, r *real) effects.TmuxPane {
	b.Helper()
	r.Prepare(tmuxtest.Launch(1, 1))
	p, err := r.Create(b.Context(), tmuxtest.Want("first", tmuxtest.Launch(1, 1)))
	must(b, err)
	return p
}
