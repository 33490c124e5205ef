//go:build e2e

package faults

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// beyond are places that no kind comes by, and why that is right.
var beyond = map[string]string{
	"setup.run:during": "a setup is one program of the user's, and has no step of skc's in it; killed before and after is all that skc sees",
}

// matrix is what came of each pair of place and kind.
type matrix struct {
	mu    sync.Mutex
	cells map[[2]string][]time.Duration // how long each recovery took
	bad   map[[2]string]bool
	tried int
}

func (m *matrix) add(t *testing.T, place, kind string, healed time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := [2]string{place, kind}
	m.cells[at] = append(m.cells[at], healed)
	m.bad[at] = m.bad[at] || t.Failed()
}

func (m *matrix) print() {
	kills, slowest := 0, time.Duration(0)
	line := fmt.Sprintf("%-28s", "healed in ms, slowest")
	for _, k := range kinds {
		line += fmt.Sprintf(" %15s", k.name)
	}
	report.printf("%s", line)
	for _, p := range places {
		line := fmt.Sprintf("%-28s", p)
		for _, k := range kinds {
			cell := "-"
			if all := m.cells[[2]string{p, k.name}]; len(all) > 0 {
				kills += len(all)
				slowest = max(slowest, slices.Max(all))
				cell = fmt.Sprint(slices.Max(all).Milliseconds())
				if len(all) > 1 {
					cell += fmt.Sprintf(" (%d)", len(all))
				}
				if m.bad[[2]string{p, k.name}] {
					cell = "BAD " + cell
				}
			}
			line += fmt.Sprintf(" %15s", cell)
		}
		report.printf("%s", line)
	}
	report.printf("TestKill: %d trials, %d kills at %d pairs, slowest recovery %s (- is: not reached, or not tried)",
		m.tried, kills, len(m.cells), slowest.Round(time.Millisecond))
}

// B-067, R1: killed at any place of any kind of change, it is as if it had not
// been.
func TestKill(t *testing.T) {
	by := comeBy(t)
	if t.Failed() {
		return
	}
	tried := phases()
	m := &matrix{cells: map[[2]string][]time.Duration{}, bad: map[[2]string]bool{}}
	t.Run("at", func(t *testing.T) {
		for _, place := range tried {
			for _, k := range chosen(by, place) {
				for round := range *rounds {
					if round > 0 && by[k.name] != nil && by[k.name][place] == 0 {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%d", place, k.name, round), func(t *testing.T) {
						t.Parallel()
						killOnce(t, m, place, k, round)
					})
				}
			}
		}
	})
	m.print()
	if only := flag.Lookup("test.run").Value.String(); only != "" && only != "." {
		return // some were left out
	}
	for _, place := range tried {
		killed := slices.ContainsFunc(kinds, func(k *kind) bool { return len(m.cells[[2]string{place, k.name}]) > 0 })
		wanted := slices.ContainsFunc(kinds, func(k *kind) bool { return by[k.name][place] > 0 })
		why, excused := beyond[place]
		switch {
		case excused && wanted:
			t.Errorf("%s is reached, and the list says it cannot be: %s", place, why)
		case !excused && !killed:
			t.Errorf("nothing was killed at %s: a new step needs a kind that comes by, or a reason", place)
		}
	}
}

// strangers is how many of the kinds that do not come by a place are tried there
// all the same: one in so many. Some do when the change was made before skcd
// was started, or when it is slow.
const strangers = 40

// phases are the places at which something is killed: all with -full, else one
// of the three of each step.
func phases() []string {
	if *full {
		return places
	}
	of := map[string][]string{}
	for _, place := range places {
		step, _, _ := strings.Cut(place, ":")
		of[step] = append(of[step], place)
	}
	var all []string
	for _, step := range slices.Sorted(maps.Keys(of)) {
		all = append(all, of[step][random(step).IntN(len(of[step]))])
	}
	return all
}

// chosen are the kinds that are killed at a place: one that comes by, or, with
// -full, all that do, and some others.
func chosen(by map[string]map[string]int, place string) (all []*kind) {
	r := random(place)
	known := false
	for _, k := range kinds {
		if by[k.name] == nil { // -run left out the unbroken one
			all = append(all, k)
		} else if known = true; by[k.name][place] > 0 || *full && r.IntN(strangers) == 0 {
			all = append(all, k)
		}
	}
	if *full || !known || len(all) == 0 {
		return all
	}
	return []*kind{all[r.IntN(len(all))]}
}

func killOnce(t *testing.T, m *matrix, place string, k *kind, round int) {
	tr := newTrial(t, k)
	nth := 1
	if round > 0 {
		nth += tr.rand.IntN(3)
	}
	m.mu.Lock()
	m.tried++
	m.mu.Unlock()
	var healed time.Duration
	if tr.settle(tr.broken(fmt.Sprintf("%s=kill@%d", place, nth), true)) {
		defer func() { m.add(t, place, k.name, healed) }()
	}
	healed = healLimit // unless it does
	healed = tr.heal()
	for _, what := range tr.check() {
		t.Error(what)
	}
}

var (
	comeByOnce sync.Once
	comesBy    map[string]map[string]int
)

// comeBy says how often each kind comes by each place when nothing is broken.
func comeBy(t *testing.T) map[string]map[string]int {
	t.Helper()
	comeByOnce.Do(func() {
		comesBy = map[string]map[string]int{}
		var mu sync.Mutex
		t.Run("unbroken", func(t *testing.T) {
			for _, k := range kinds {
				t.Run(k.name, func(t *testing.T) {
					t.Parallel()
					hits := reached(t, k)
					mu.Lock()
					defer mu.Unlock()
					comesBy[k.name] = hits
				})
			}
		})
		var never []string
		for _, place := range places {
			if !slices.ContainsFunc(kinds, func(k *kind) bool { return comesBy[k.name][place] > 0 }) {
				never = append(never, place)
			}
		}
		report.printf("%d kinds of change come by %d of %d places unbroken; not by %v", len(kinds), len(places)-len(never), len(places), never)
	})
	return comesBy
}

// R3: killed at one place, killed again in the recovery, and in the recovery of
// that.
func TestKillInRecovery(t *testing.T) {
	by := comeBy(t)
	trials, deep := 6, 3
	if *full {
		trials = 300
	}
	var mu sync.Mutex
	depths := make([]int, deep+1)
	t.Run("trial", func(t *testing.T) {
		for i := range trials {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				r := random(t.Name())
				tr := newTrial(t, kinds[r.IntN(len(kinds))])
				depth := 0
				var said []string
				for level := range deep {
					faults := randomKill(r.IntN, by[tr.kind.name])
					c := tr.broken(faults, level == 0)
					if tr.settle(c) {
						depth++
					}
					said = append(said, fmt.Sprintf("%s came by %v", faults, fired(c)))
				}
				tr.heal()
				for _, what := range tr.check() {
					t.Error(what)
				}
				if t.Failed() {
					t.Logf("%s, cold: %v\n%s", tr.kind.name, tr.cold, strings.Join(said, "\n"))
				}
				mu.Lock()
				defer mu.Unlock()
				depths[depth]++
			})
		}
	})
	report.printf("TestKillInRecovery: %d trials, killed 0, 1, 2, 3 times: %v", trials, depths)
}

// randomKill kills at some call of the file layer, or at the first that is
// reached of some places, most of which the kind comes by.
func randomKill(intN func(int) int, by map[string]int) string {
	if intN(3) == 0 {
		return fmt.Sprintf("calls=kill@%d", 1+intN(50))
	}
	likely := slices.DeleteFunc(slices.Clone(places), func(p string) bool { return by[p] == 0 })
	var all []string
	for i := range 5 {
		from := places
		if i > 0 && len(likely) > 0 {
			from = likely
		}
		all = append(all, fmt.Sprintf("%s=kill@%d", from[intN(len(from))], 1+intN(2)))
	}
	return strings.Join(all, ",")
}
