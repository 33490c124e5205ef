//go:build e2e

package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	clients  = 8
	families = 3
	// perFamily are the keys of a family.
	perFamily = 5
	// sent is how often a client is to send a request: 200 operations of all.
	sent = 25
)

// move is one thing that a client is to do.
type move struct {
	key, body int
	lifecycle string
	think     time.Duration // before it
	drop      time.Duration // after which the client goes away; negative: it waits
	again     bool          // it asks once more when no answer came
}

// plan is what is to be done in one history.
type plan struct {
	keys   []key
	moves  []move
	calm   bool          // nothing is killed
	after  time.Duration // until the first kill
	polite bool          // which is a SIGTERM
}

// newPlan makes up the plan of history n.
func newPlan(r *rand.Rand, n int) plan {
	p := plan{calm: r.IntN(10) == 0, after: time.Duration(r.IntN(500)) * time.Millisecond, polite: r.IntN(8) == 0}
	for f := range families {
		base := fmt.Sprintf("h%df%d", n, f)
		ids := []string{base + "a", base + "ab", base + "c"} // the first is how the second begins, and a resume may mean all
		for i := range perFamily {
			k := key{Update: int64(n*1000 + len(p.keys) + 1), Family: f, File: r.IntN(6) == 0}
			id := ids[min(r.IntN(3), r.IntN(3))]
			verb := []string{"create", "close", "close", "resume", "resume", "resume"}[r.IntN(6)]
			if i == 0 {
				verb = "create"
			}
			if k.File && verb == "close" && r.IntN(2) == 0 {
				verb = "delete"
			}
			k.Bodies = append(k.Bodies, newBody(r, verb, base, id))
			if r.IntN(3) == 0 { // the key is used for something else, too
				b := k.Bodies[0]
				for same(b, k.Bodies[0]) {
					b = newBody(r, []string{"create", "close", "resume"}[r.IntN(3)], base, ids[r.IntN(2)])
				}
				k.Bodies = append(k.Bodies, b)
			}
			p.keys = append(p.keys, k)
		}
	}
	// Every key at least twice; each has its time, more or less.
	at := map[int]float64{}
	for i := range clients * sent {
		k := i / 2
		if k >= len(p.keys) {
			k = r.IntN(len(p.keys))
		}
		if p.keys[k].File && i >= 2*len(p.keys) && r.IntN(8) > 0 {
			k = slices.IndexFunc(p.keys, func(k key) bool { return !k.File })
		}
		m := move{key: max(k, 0), drop: -1, again: r.IntN(10) < 7, think: time.Duration(r.IntN(4)) * time.Millisecond}
		if n := len(p.keys[m.key].Bodies); n > 1 && r.IntN(3) == 0 {
			m.body = 1
		}
		if r.IntN(5) == 0 {
			m.drop = time.Duration(r.IntN(30)) * time.Millisecond
		}
		m.lifecycle = fmt.Sprintf("l%d-%d", p.keys[m.key].Update, m.body)
		at[len(p.moves)] = float64(m.key%perFamily) + 1.5*r.Float64()
		p.moves = append(p.moves, m)
	}
	order := make([]int, len(p.moves))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if at[a] < at[b] {
			return -1
		}
		return 1
	})
	sorted := make([]move, len(order))
	for i, o := range order {
		sorted[i] = p.moves[o]
	}
	p.moves = sorted
	return p
}

// same tells whether two bodies are one request: the id of a session that is
// created does not count.
func same(a, b body) bool {
	return a == b || a.Verb == "create" && b.Verb == "create" && a.Dir == b.Dir
}

func newBody(r *rand.Rand, verb, base, id string) body {
	b := body{Verb: verb, ID: id}
	switch {
	case verb == "create":
		b.Dir = []string{"one", "two"}[r.IntN(2)]
		if r.IntN(8) == 0 { // it cannot start, and has an id that is nobody's
			b = body{Verb: verb, ID: base + fmt.Sprintf("gone%d", r.IntN(1000)), Dir: "nowhere", Gone: true}
		}
	case verb == "resume" && r.IntN(3) == 0:
		b.ID = base
	}
	return b
}
