//go:build e2e

package lost

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan is all that is done in one home. It can be done again, and with less.
type plan struct {
	seed     uint64
	subjects []subjectPlan
	phases   []phase
}

// subjectPlan is one round: a Session with a worktree, and what is left in it.
type subjectPlan struct {
	name     string
	repo     string
	features []string
	// elsewhere puts the worktree on another file system than the state, named
	// gives it a path of its own.
	elsewhere, named bool
	retain           bool // cleanup.policy
	writes           bool // the session's program writes into the folder
}

// phase is some steps at once, and what happens to skcd meanwhile.
type phase struct {
	steps []step
	// kills are faults of skcd, one a start: of the phase itself, then of the
	// recovery, of the recovery of that.
	kills []string
	// after is when skcd is killed by hand, if there are no kills and it is not 0.
	after time.Duration
	// cold has the steps done while no skcd runs.
	cold bool
}

// step is one thing that somebody does. When it makes no sense, since others were
// left out, it is passed over.
type step struct {
	subject string
	what    string
	n       uint64 // for whatever is chosen in it
}

// The steps.
const (
	deleteFile    = "remove the file"
	deleteCommand = "skcctl delete"
	retarget      = "another target"
	restoreFile   = "spec.restore"
	restore       = "skcctl restore"
	restoreTo     = "skcctl restore --to"
	apply         = "apply again"
	work          = "work on"
	clean         = "git gc and prune"
	forget        = "remove the file of the Quarantine"
)

// guess is what a Session is likely to be like, so that most steps make sense.
type guess struct {
	live bool
	kept int
}

// weights say how often a step is tried, with and without a Session.
var weights = []struct {
	what       string
	live, gone int
	kept       bool // only when something is in quarantine
}{
	{deleteFile, 5, 0, false}, {deleteCommand, 3, 0, false}, {retarget, 3, 0, false}, {apply, 0, 3, false},
	{restoreFile, 1, 3, true}, {restore, 1, 3, true}, {restoreTo, 1, 4, true}, {forget, 1, 1, true},
	{work, 2, 0, false}, {clean, 2, 2, false},
}

// next draws a step.
func (g *guess) next(r *rand.Rand) string {
	var bag []string
	for _, w := range weights {
		n := w.gone
		if g.live {
			n = w.live
		}
		for range n {
			if !w.kept || g.kept > 0 {
				bag = append(bag, w.what)
			}
		}
	}
	what := bag[r.IntN(len(bag))]
	switch what {
	case deleteFile, deleteCommand:
		g.live, g.kept = false, g.kept+1
	case retarget:
		g.kept++
	case apply:
		g.live = true
	case restore, restoreFile:
		if !g.live {
			g.live, g.kept = true, g.kept-1
		}
	case restoreTo:
		g.live, g.kept = true, g.kept-1
	}
	return what
}

func newPlan(seed uint64, batch, subjects int) plan {
	r := random(seed, fmt.Sprint("batch ", batch))
	p := plan{seed: r.Uint64()}
	for i := range subjects {
		s := subjectPlan{
			name: fmt.Sprintf("s%d", i), repo: []string{"app", "bare", "modules"}[r.IntN(3)], features: someFeatures(r, 2+r.IntN(7)),
			elsewhere: r.IntN(6) == 0, named: r.IntN(3) == 0, retain: r.IntN(12) == 0, writes: r.IntN(3) == 0,
		}
		if s.repo == "modules" && r.IntN(2) == 0 && !slices.Contains(s.features, "submodule") {
			s.features = append(s.features, "submodule")
		}
		p.subjects = append(p.subjects, s)
	}
	guesses := map[string]*guess{}
	for _, s := range p.subjects {
		guesses[s.name] = &guess{live: true}
	}
	for range 5 + r.IntN(3) {
		var ph phase
		for _, s := range p.subjects {
			if r.IntN(5) > 0 {
				ph.steps = append(ph.steps, step{s.name, guesses[s.name].next(r), r.Uint64()})
			}
		}
		r.Shuffle(len(ph.steps), func(a, b int) { ph.steps[a], ph.steps[b] = ph.steps[b], ph.steps[a] })
		switch r.IntN(4) {
		case 0, 1:
			for range 1 + r.IntN(3) {
				ph.kills = append(ph.kills, randomFault(r))
			}
			ph.cold = r.IntN(3) == 0
		case 2:
			ph.after = time.Duration(1+r.IntN(600)) * time.Millisecond
		}
		p.phases = append(p.phases, ph)
	}
	return p
}

// randomFault kills at some call of the file layer, or at the first that is
// reached of some places; those of what is tested here come more often.
func randomFault(r *rand.Rand) string {
	if r.IntN(6) == 0 {
		return fmt.Sprintf("calls=kill@%d", 1+r.IntN(60))
	}
	var near []string
	for _, p := range places {
		for _, prefix := range []string{"git.", "quarantine.", "managed."} {
			if strings.HasPrefix(p, prefix) && !strings.Contains(p, "purge") { // nothing is purged here
				near = append(near, p)
			}
		}
	}
	var all []string
	for range 2 + r.IntN(4) { // whichever comes first
		from := places
		if r.IntN(4) > 0 && len(near) > 0 {
			from = near
		}
		action := fmt.Sprintf("kill@%d", 1+r.IntN(2))
		if r.IntN(8) == 0 {
			action = []string{"EIO", "ENOSPC"}[r.IntN(2)] + []string{"", "@1+"}[r.IntN(2)]
		}
		all = append(all, from[r.IntN(len(from))]+"="+action)
	}
	return strings.Join(all, ",")
}

// someFeatures are n features, drawn at random.
func someFeatures(r *rand.Rand, n int) []string {
	var all []string
	for _, i := range r.Perm(len(features))[:min(n, len(features))] {
		all = append(all, features[i].name)
	}
	return all
}

// String is the plan as a list of steps.
func (p plan) String() string {
	var b strings.Builder
	for _, s := range p.subjects {
		fmt.Fprintf(&b, "%s: worktree of %s, elsewhere %v, path given %v, retain %v, program writes %v; in it: %s\n",
			s.name, s.repo, s.elsewhere, s.named, s.retain, s.writes, strings.Join(s.features, ", "))
	}
	for i, ph := range p.phases {
		fmt.Fprintf(&b, "%d.", i+1)
		for _, st := range ph.steps {
			fmt.Fprintf(&b, " %s: %s (%x);", st.subject, st.what, st.n)
		}
		switch {
		case len(ph.kills) > 0:
			fmt.Fprintf(&b, " skcd with SKC_FAULT %q in turn, steps before its start: %v", ph.kills, ph.cold)
		case ph.after > 0:
			fmt.Fprintf(&b, " skcd killed after %s", ph.after)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// smaller are plans with less, the much smaller ones first.
func (p plan) smaller() (all []plan) {
	add := func(change func(q *plan)) {
		q := plan{p.seed, slices.Clone(p.subjects), slices.Clone(p.phases)}
		for i := range q.phases {
			q.phases[i].steps = slices.Clone(q.phases[i].steps)
		}
		change(&q)
		all = append(all, q)
	}
	without := func(q *plan, name string) {
		q.subjects = slices.DeleteFunc(q.subjects, func(s subjectPlan) bool { return s.name == name })
		for i := range q.phases {
			q.phases[i].steps = slices.DeleteFunc(q.phases[i].steps, func(s step) bool { return s.subject == name })
		}
	}
	if slices.ContainsFunc(p.phases, func(ph phase) bool { return len(ph.kills) > 0 || ph.after > 0 }) {
		add(func(q *plan) {
			for i := range q.phases {
				q.phases[i].kills, q.phases[i].after = nil, 0
			}
		})
	}
	if n := len(p.phases); n > 1 {
		add(func(q *plan) { q.phases = q.phases[:n/2] })
		add(func(q *plan) { q.phases = q.phases[:n-1] })
	}
	if len(p.subjects) > 3 {
		for half := range 2 {
			add(func(q *plan) {
				for i, s := range p.subjects {
					if i%2 == half {
						without(q, s.name)
					}
				}
			})
		}
	}
	if len(p.subjects) > 1 {
		for _, s := range p.subjects {
			add(func(q *plan) { without(q, s.name) })
		}
	}
	for i, ph := range p.phases {
		if len(p.phases) > 1 {
			add(func(q *plan) { q.phases = slices.Delete(q.phases, i, i+1) })
		}
		if len(ph.kills) > 0 || ph.after > 0 {
			add(func(q *plan) { q.phases[i].kills, q.phases[i].after = nil, 0 })
		}
		for k := range ph.kills {
			if len(ph.kills) > 1 {
				add(func(q *plan) { q.phases[i].kills = slices.Delete(slices.Clone(ph.kills), k, k+1) })
			}
		}
		for k := range ph.steps {
			add(func(q *plan) { q.phases[i].steps = slices.Delete(q.phases[i].steps, k, k+1) })
		}
	}
	for i, s := range p.subjects {
		if len(s.features) > 3 {
			add(func(q *plan) { q.subjects[i].features = s.features[:len(s.features)/2] })
			add(func(q *plan) { q.subjects[i].features = s.features[len(s.features)/2:] })
		}
		for k := range s.features {
			add(func(q *plan) { q.subjects[i].features = slices.Delete(slices.Clone(s.features), k, k+1) })
		}
		if s.writes || s.elsewhere || s.named {
			add(func(q *plan) {
				q.subjects[i].writes, q.subjects[i].elsewhere, q.subjects[i].named = false, false, false
			})
		}
	}
	return all
}

// shrink returns the smallest plan that it found to fail, and how it does.
func shrink(p plan, wrong []string, fails func(plan) []string, budget time.Duration) (plan, []string) {
	begin := time.Now()
	for again := true; again; {
		again = false
		for _, q := range p.smaller() {
			if time.Since(begin) > budget {
				return p, wrong
			}
			if w := fails(q); len(w) > 0 {
				p, wrong, again = q, w, true
				break
			}
		}
	}
	return p, wrong
}
