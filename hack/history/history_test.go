//go:build e2e

package history

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/hack/e2e/world"
)

// perHome is how many histories a home has, one after the other.
const perHome = 10

// counts is what was done, so that a run that did nothing is seen.
type counts struct {
	mu                                                                     sync.Mutex
	histories, bad, requests, deliveries, kills, faults, runs, blind, came int
	answers                                                                map[string]int
	outcomes                                                               map[string]int
	slowest                                                                time.Duration
}

func (c *counts) add(h *history, bad bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.histories++
	if bad {
		c.bad++
	}
	c.kills += h.Kills
	c.faults += h.Faults
	c.runs += h.runs()
	c.blind += max(0, h.runs()-len(h.Starts))
	c.deliveries += len(h.Deliveries)
	for _, d := range h.Deliveries {
		kind := d.Answer.Kind
		if kind == lost {
			kind = "none"
		} else {
			c.slowest = max(c.slowest, time.Duration(d.Return-d.Call))
		}
		c.answers[kind]++
	}
	for k, o := range h.outcomes() {
		if o.body < 0 {
			continue
		}
		c.requests++
		if o.answer.Kind == uncertain && slices.ContainsFunc(h.Starts, func(s start) bool { return strings.HasPrefix(s.Lifecycle, fmt.Sprintf("l%d-", h.Keys[k].Update)) }) {
			c.came++
		}
		c.outcomes[strings.TrimSpace(fmt.Sprintf("%s %s %s%s", h.Keys[k].Bodies[o.body].Verb, o.answer.Kind, o.answer.Reason, o.answer.Mode))]++
	}
}

func list(m map[string]int) string {
	var all []string
	for k, n := range m {
		all = append(all, fmt.Sprintf("%d %s", n, k))
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(a[strings.Index(a, " "):], b[strings.Index(b, " "):]) })
	return strings.Join(all, ", ")
}

// R22, R23: whatever is asked, however often, and wherever skcd is killed: the
// model explains every answer and every program.
func TestHistories(t *testing.T) {
	n := 30
	if *full {
		n = 1000
	}
	if *histories > 0 {
		n = *histories
	}
	c := &counts{answers: map[string]int{}, outcomes: map[string]int{}}
	begin := time.Now()
	t.Run("home", func(t *testing.T) {
		for first := 0; first < n; first += perHome {
			if *only >= 0 && *only/perHome != first/perHome {
				continue
			}
			t.Run(fmt.Sprint(first/perHome), func(t *testing.T) {
				t.Parallel()
				limit := 0
				if (first/perHome)%5 == 4 {
					limit = 2 * perHome
				}
				hm := newHome(t, limit)
				creates, refusals := 0, 0
				for i := first; i < min(n, first+perHome) && !t.Failed(); i++ {
					if *only >= 0 && *only != i {
						continue
					}
					h := hm.history(t, c, i)
					creates += h.creates()
					refusals += h.refusals()
				}
				if limit > 0 && creates > limit {
					t.Errorf("the chat made %d creates, may make %d", creates, limit)
				}
				if refusals > 0 && creates < limit-clients { // those that a kill took the count of were counted then
					t.Errorf("creates are refused, and the chat made only %d of %d", creates, limit)
				}
				hm.close()
			})
		}
	})
	report.printf("TestHistories: %d histories, %d not explained; %d requests, %d deliveries, skcd ended %d times, %d of them at a fault point; %d programs, %d of them ended before their first line; slowest answer %s; %s in all",
		c.histories, c.bad, c.requests, c.deliveries, c.kills, c.faults, c.runs, c.blind, c.slowest.Round(time.Millisecond), time.Since(begin).Round(time.Second))
	report.printf("  answers: %s", list(c.answers))
	report.printf("  outcomes: %s; of the uncertain creates %d came to run, once", list(c.outcomes), c.came)
	if c.blind*50 > c.runs {
		t.Errorf("%d of %d programs are not in the log: it proves too little", c.blind, c.runs)
	}
	if *full && *only < 0 && (c.requests < 10_000 || c.histories < 1000) {
		t.Errorf("%d histories with %d requests are not the 1,000 with 10,000", c.histories, c.requests)
	}
}

// history runs and judges one history.
func (hm *home) history(t *testing.T, c *counts, n int) *history {
	r := random(fmt.Sprint("history ", n))
	p := newPlan(r, n)
	h := &history{Seed: *seed, N: n, Limit: hm.limit, Keys: p.keys}
	killed, faults := hm.killed()
	end := make(chan struct{})
	var following, working sync.WaitGroup
	following.Go(func() { h.Twins = hm.log.follow(end) })
	var killer *time.Timer
	if !p.calm {
		hm.fail(r)
		sig := syscall.SIGKILL
		if p.polite {
			sig = syscall.SIGTERM
		}
		killer = time.AfterFunc(p.after, func() { hm.kill(sig, false) })
	}

	var mu sync.Mutex
	all := make([]*client, clients)
	work := func(moves []move, quiet bool) {
		queue := make(chan move, len(moves))
		for _, m := range moves {
			queue <- m
		}
		close(queue)
		for i := range all {
			if all[i] == nil {
				all[i] = &client{home: hm, n: i}
			}
			working.Go(func() {
				for m := range queue {
					if !quiet {
						time.Sleep(m.think)
					}
					for {
						d := all[i].send(h, m, quiet)
						again := d.Answer.Kind == lost && m.again || quiet && d.Answer.Kind == pending
						d.Quiet = quiet && !again // skcd may be killed once more before it is quiet
						mu.Lock()
						h.Deliveries = append(h.Deliveries, d)
						mu.Unlock()
						if !again {
							break
						}
						m.again = quiet
						m.drop = -1
					}
				}
			})
		}
		working.Wait()
	}
	work(p.moves, false)
	if killer != nil {
		killer.Stop()
	}
	// All is quiet: what was asked is asked again, twice.
	hm.fail(nil)
	hm.kill(syscall.SIGKILL, true)
	asked := map[[2]int]bool{}
	var moves []move
	for _, m := range p.moves {
		if at := [2]int{m.key, m.body}; !asked[at] {
			asked[at] = true
			m.again = true
			moves = append(moves, m)
		}
	}
	work(moves, true)
	work(moves, true)
	for _, a := range all {
		a.close()
	}
	hm.observe(h)
	close(end)
	following.Wait()
	for _, s := range hm.log.all() {
		if strings.HasPrefix(s.ID, fmt.Sprintf("h%df", n)) {
			h.Starts = append(h.Starts, s)
		}
	}
	h.Kills, h.Faults = hm.killed()
	h.Kills, h.Faults = h.Kills-killed, h.Faults-faults
	wrong, riddles := h.judge()
	if *keep != "" {
		world.Must(t, h.write(filepath.Join(*keep, fmt.Sprintf("history-%d-%d.json", *seed, n))))
	}
	if len(wrong) > 0 {
		path, err := h.keepAs(fmt.Sprintf("history-%d-%d", *seed, n), riddles)
		t.Errorf("seed %d, history %d, kept as %s (%v):\n%s", *seed, n, path, err, strings.Join(wrong, "\n"))
	}
	c.add(h, len(wrong) > 0)
	return h
}

// creates are those of the chat that the ledger has.
func (h *history) creates() (n int) {
	for k, o := range h.outcomes() {
		if o.body >= 0 && !h.Keys[k].File && h.Keys[k].Bodies[o.body].Verb == "create" {
			n++
		}
	}
	return n
}

func (h *history) refusals() (n int) {
	for _, d := range h.Deliveries {
		if d.Answer.Kind == refused {
			n++
		}
	}
	return n
}

// observe waits until nothing is under way, and records what there is.
func (hm *home) observe(h *history) {
	var ids []string
	for f := range h.families() {
		ids = append(ids, h.ids(f)...)
	}
	for begin := time.Now(); ; time.Sleep(2 * look) {
		h.Ends = nil
		settled := true
		for _, id := range ids {
			e := ending{ID: id, Live: hm.log.alive(id)}
			want := 0
			if s := hm.Session(id); s != nil {
				e.Exists, e.UID = true, string(s.UID)
				c := hm.Condition(id, v1alpha1.SessionRunning)
				if strings.HasPrefix(c, string(metav1.ConditionTrue)+"/") {
					want = 1
				} else if c != string(metav1.ConditionFalse)+"/"+v1alpha1.ReasonStopped {
					settled = false
				}
			}
			settled = settled && len(e.Live) == want
			h.Ends = append(h.Ends, e)
		}
		if settled || time.Since(begin) > 15*time.Second {
			return
		}
	}
}

// What was kept is judged as it was.
func TestKept(t *testing.T) {
	if *kept == "" {
		t.Skip("no -kept FILE")
	}
	h, err := read(*kept)
	world.Must(t, err)
	wrong, _ := h.judge()
	for _, w := range wrong {
		t.Error(w)
	}
}
