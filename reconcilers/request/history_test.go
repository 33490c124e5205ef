package request

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"skc.dev/skc/api/lifecycle"
)

// Random histories: eight clients, few keys, bodies that differ, answers that are
// lost, and a process that dies at any effect. For each key there is one answer,
// and what was started is what the answers explain.
func TestRandomHistories(t *testing.T) {
	histories := 60
	if testing.Short() {
		histories = 20
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var total struct {
		sync.Mutex
		deliveries, deaths, uncertain int
	}
	t.Run("each", func(t *testing.T) {
		for i := range histories {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				h := newHistory(t, rand.New(rand.NewPCG(seed, uint64(i))))
				for range 8 {
					h.round()
				}
				h.check()
				total.Lock()
				defer total.Unlock()
				total.deliveries += h.deliveries
				total.deaths += h.deaths
				total.uncertain += h.uncertain
			})
		}
	})
	t.Logf("%d histories, %d deliveries, %d deaths, %d requests uncertain", histories, total.deliveries, total.deaths, total.uncertain)
}

type history struct {
	*world
	rand       *rand.Rand
	bodies     map[int64]map[string]lifecycle.Outcome
	deliveries int
	deaths     int
	uncertain  int
}

func newHistory(t *testing.T, r *rand.Rand) *history {
	w := newWorld(t)
	w.limit.Max = 1000
	w.restart()
	return &history{world: w, rand: r, bodies: map[int64]map[string]lifecycle.Outcome{}}
}

// draw is one delivery: a new request, or one that was there before, by chance
// with another body.
func (h *history) draw() lifecycle.Request {
	update := int64(h.rand.IntN(6))
	id := fmt.Sprintf("s%d", h.rand.IntN(2))
	switch (update + int64(h.rand.IntN(8))/7) % 3 { // one in eight has another verb
	case 0:
		r := h.frame(update, lifecycle.ExistingPath{Path: h.work})
		r.IntendedSessionID = fmt.Sprintf("s%d", update/3) // the same in all deliveries of a key
		return r
	case 1:
		return h.frame(update, lifecycle.CloseTarget{SessionID: fmt.Sprintf("s%d", update%2)})
	}
	if h.rand.IntN(8) > 0 {
		id = fmt.Sprintf("s%d", update%2)
	}
	return h.frame(update, lifecycle.ResumeTarget{SessionIDOrPrefix: id})
}

// round delivers for eight clients at once. The process may die on the way.
func (h *history) round() {
	h.t.Helper()
	if h.rand.IntN(2) == 0 {
		h.calls.mu.Lock()
		h.calls.at, h.calls.after, h.calls.dies = h.calls.n+1+h.rand.IntN(40), h.rand.IntN(2) == 0, true
		h.calls.mu.Unlock()
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	r := h.r
	for range 8 {
		req := h.draw()
		wg.Go(func() {
			out, err := r.Submit(ctx, "control", req)
			mu.Lock()
			defer mu.Unlock()
			h.deliveries++
			if err == nil && out.Status != lifecycle.Pending {
				h.take(req, out)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			if h.calls.isDead() {
				cancel() // all connections break
				<-done
				running = false
				break
			}
			h.goOn(50)
			h.clock.Step(50 * time.Millisecond)
		}
	}
	if h.calls.isDead() {
		h.deaths++
		h.calls.mu.Lock()
		h.calls.dies, h.calls.at = false, 0
		h.calls.mu.Unlock()
		h.restart()
	}
}

// take compares an answer with those that there were.
func (h *history) take(req lifecycle.Request, out lifecycle.Outcome) {
	hash, err := lifecycle.RequestHash(req)
	must(h.t, err)
	had := h.bodies[req.UpdateID]
	if had == nil {
		had = map[string]lifecycle.Outcome{}
		h.bodies[req.UpdateID] = had
	}
	was, ok := had[hash]
	had[hash] = out
	if ok && show(was) != show(out) {
		h.t.Errorf("update %d is answered by %s, and by %s", req.UpdateID, show(was), show(out))
	}
	accepted := 0
	for _, o := range had {
		if o.Reason != lifecycle.ReasonDuplicateConflict {
			accepted++
		}
	}
	if accepted > 1 {
		h.t.Errorf("update %d was done for %d bodies", req.UpdateID, accepted)
	}
}

// show is what of an answer must be the same each time.
func show(o lifecycle.Outcome) string {
	text := fmt.Sprint(o.Status, " ", o.Reason)
	if o.Entry != nil && o.Status == lifecycle.OK {
		text += " " + *o.Entry.SessionID + " " + string(o.Entry.ResumeMode)
	}
	return text
}

// check waits for the end of all that is in progress and compares the programs
// that were started with what the entries say.
func (h *history) check() {
	h.t.Helper()
	h.outlast()
	all, err := h.r.Store.List(h.t.Context())
	must(h.t, err)
	least, most := map[string]int{}, map[string]int{}
	for _, rq := range all {
		st := rq.Status
		if st.State == "" {
			continue // refused by a death in between, or on its way
		}
		starts := st.Request.Verb == "Create" || st.Request.Verb == "Resume" && st.ResumeMode != string(lifecycle.Reattached)
		switch st.State {
		case "success":
			if starts {
				least[st.SessionID]++
				most[st.SessionID]++
			}
		case "terminal_uncertain":
			h.uncertain++
			if starts {
				most[st.SessionID]++
			}
		case "failure":
		default:
			h.t.Errorf("%s is %s for ever", rq.Name, st.State)
		}
	}
	for _, id := range []string{"s0", "s1"} {
		if n := h.host.started(id); n < least[id] || n > most[id] {
			h.t.Errorf("%s was started %d times, the entries say %d to %d", id, n, least[id], most[id])
		}
	}
}
