//go:build e2e

package history

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// sockets are the connections of a burst; skcd takes 32.
const sockets = 24

// burst sends all of it at the same time, and waits for the answers.
func (hm *home) burst(h *history, moves []move) {
	all := make([]*client, min(sockets, len(moves)))
	var sending sync.WaitGroup
	var mu sync.Mutex
	ready := make(chan struct{}) // all are connected
	for i := range all {
		all[i] = &client{home: hm, n: i}
		var mine []move
		for j := i; j < len(moves); j += len(all) {
			mine = append(mine, moves[j])
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := all[i].connect(ctx); err != nil {
			cancel()
			hm.Fatal(err)
		}
		sending.Go(func() {
			defer cancel()
			<-ready
			out := all[i].together(ctx, h, mine)
			mu.Lock()
			defer mu.Unlock()
			h.Deliveries = append(h.Deliveries, out...)
		})
	}
	close(ready)
	sending.Wait()
	for _, c := range all {
		c.close()
	}
}

// together sends all on its one connection before it reads an answer.
func (c *client) together(ctx context.Context, h *history, moves []move) []delivery {
	out := make([]delivery, len(moves))
	at := map[string]int{}
	for i, m := range moves {
		r := c.home.request(h.Keys[m.key], m)
		r.RequestID = fmt.Sprintf("b-%d-%d-%d", len(h.Keys), c.n, i)
		frame, err := r.Frame(*c.home.token.Load())
		out[i] = delivery{Client: c.n, Key: m.key, Body: m.body, Lifecycle: m.lifecycle, Quiet: true, Call: now()}
		at[r.RequestID] = i
		if err == nil {
			err = c.ws.Write(ctx, websocket.MessageText, frame)
		}
		if err != nil {
			c.home.Error(err)
			return nil
		}
	}
	for range moves {
		_, data, err := c.ws.Read(ctx)
		var f struct{ RequestID string }
		if err == nil {
			err = json.Unmarshal(data, &f)
		}
		i, known := at[f.RequestID]
		if err != nil || !known {
			c.home.Errorf("no answer, or one to another: %v: %s", err, data)
			return out
		}
		delete(at, f.RequestID)
		d := &out[i]
		d.Return = now()
		if d.Answer, err = parse(data, f.RequestID, d.Lifecycle); err != nil {
			c.home.Error(err)
		}
	}
	return out
}

// R22: each request 2 to 100 times at once, over real sockets: one effect, and
// one answer. The key with another body, at the same time and afterwards: a
// conflict, and nothing done.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	hm := newHome(t, 0)
	r := random(t.Name())
	begin := time.Now()
	rounds, requests, deliveries := []int{2, 10, 100}, 0, 0
	most := 0
	if *full {
		most = 10_000
	}
	for i := 0; i < len(rounds) || deliveries < most; i++ {
		n := 2 + r.IntN(99)
		if i < len(rounds) {
			n = rounds[i]
		}
		h := hm.atOnce(t, r, i, n)
		requests += len(h.Keys)
		deliveries += len(h.Deliveries)
		if wrong, riddles := h.judge(); len(wrong) > 0 {
			path, err := h.keepAs(fmt.Sprintf("at-once-%d-%d", *seed, i), riddles)
			t.Fatalf("%d at once, kept as %s (%v):\n%s", n, path, err, strings.Join(wrong, "\n"))
		}
	}
	hm.close()
	report.printf("TestAtOnce: %d requests, %d deliveries, each 2 to 100 times at once over up to %d sockets; %s", requests, deliveries, sockets, time.Since(begin).Round(time.Second))
}

func (hm *home) atOnce(t *testing.T, r *rand.Rand, round, n int) *history {
	t.Helper()
	id := fmt.Sprintf("o%da", round)
	h := &history{Seed: *seed, N: round}
	add := func(bodies ...body) int {
		h.Keys = append(h.Keys, key{Update: int64(1_000_000 + round*100 + len(h.Keys)), Bodies: bodies})
		return len(h.Keys) - 1
	}
	times := func(n, k, b int) (out []move) {
		for range n {
			out = append(out, move{key: k, body: b, drop: -1, lifecycle: fmt.Sprintf("l%d-%d", h.Keys[k].Update, b)})
		}
		return out
	}
	create, closing, resume := body{Verb: "create", ID: id, Dir: "one"}, body{Verb: "close", ID: id}, body{Verb: "resume", ID: id}
	for _, bodies := range [][]body{
		{create, closing}, // it is made
		{resume, closing}, // it runs, and is left alone
		{closing, resume}, // it is stopped
		{resume, closing}, // it is started again
		{create, closing}, // it is there
		{closing, {Verb: "create", ID: id + "b", Dir: "two"}},
	} {
		k := add(bodies...)
		hm.burst(h, times(n, k, 0))
		starts := len(hm.log.all())
		hm.burst(h, append(times(max(2, n/4), k, 1), times(2, k, 0)...))
		if now := len(hm.log.all()); now != starts && k != 0 && k != 3 { // the line of a first start may come late
			t.Errorf("what conflicts started something: %d programs, had %d", now, starts)
		}
	}
	// Two bodies race for one key: one has it.
	k := add(body{Verb: "create", ID: id + "b", Dir: "one"}, body{Verb: "create", ID: id + "b", Dir: "two"})
	both := append(times(n/2+1, k, 0), times(n/2+1, k, 1)...)
	r.Shuffle(len(both), func(i, j int) { both[i], both[j] = both[j], both[i] })
	hm.burst(h, both)
	hm.observe(h)
	for _, s := range hm.log.all() {
		if strings.HasPrefix(s.ID, id) {
			h.Starts = append(h.Starts, s)
		}
	}
	if want := h.runs(); len(h.Starts) != want {
		t.Errorf("%d programs started, want %d", len(h.Starts), want)
	}
	return h
}
