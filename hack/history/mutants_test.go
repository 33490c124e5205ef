//go:build e2e

package history

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/hack/e2e/world"
)

// mutants alter a history that is explained into one that tells of a fault. Each
// tells whether it found a place where it can.
var mutants = map[string]func(*history) bool{
	"a second start": func(h *history) bool {
		return h.started(func(s *start) {
			twin := *s
			twin.PID, twin.At = s.PID+1, s.At+5*tick
			h.Starts = append(h.Starts, twin)
		})
	},
	"a second session": func(h *history) bool {
		return h.started(func(s *start) {
			twin := *s
			twin.UID, twin.PID, twin.At = "another", s.PID+1, s.At+5*tick
			h.Starts = append(h.Starts, twin)
		})
	},
	"a start before the request": func(h *history) bool {
		return h.started(func(s *start) {
			for _, d := range h.Deliveries {
				s.At = min(s.At, d.Call)
			}
			s.At -= 10 * tick
		})
	},
	"an answer before the effect": func(h *history) bool {
		return h.started(func(s *start) { s.At = h.told("create", ok, s.ID) + 2*tick })
	},
	"a session that nobody asked for": func(h *history) bool {
		return h.started(func(s *start) { s.Lifecycle = "l0" })
	},
	"a lost effect": func(h *history) bool {
		return h.ended(func(e *ending) bool { return len(e.Live) == 1 }, func(e *ending) { e.Live = nil })
	},
	"a program that is not in the log": func(h *history) bool {
		return h.ended(func(e *ending) bool { return len(e.Live) == 1 }, func(e *ending) {
			h.Starts = slices.DeleteFunc(h.Starts, func(s start) bool { return s == e.Live[0] })
		})
	},
	"a session that is gone": func(h *history) bool {
		return h.ended(func(e *ending) bool { return e.Exists }, func(e *ending) { *e = ending{ID: e.ID} })
	},
	"a session that was deleted and is there": func(h *history) bool {
		return h.ended(func(e *ending) bool { return !e.Exists }, func(e *ending) { e.Exists, e.UID = true, "u" })
	},
	"a closed session that runs": func(h *history) bool {
		return h.ended(func(e *ending) bool { return e.Exists && len(e.Live) == 0 }, func(e *ending) {
			for _, s := range h.Starts {
				if s.ID == e.ID {
					e.Live = []start{s}
				}
			}
		})
	},
	"a close with a survivor": func(h *history) bool {
		return h.answered(func(d *delivery) bool { return h.verb(d) == "close" && d.Answer.Kind == ok }, func(d *delivery) {
			d.Answer.Survivors = []start{{ID: d.Answer.Session, At: h.Deliveries[0].Call - 100*tick}}
		})
	},
	"another mode": func(h *history) bool {
		return h.answered(func(d *delivery) bool { return d.Answer.Mode != "" && d.Quiet }, func(d *delivery) {
			d.Answer.Mode = map[string]string{"reattached": "cold_restarted", "cold_restarted": "reattached"}[d.Answer.Mode]
		})
	},
	"another session": func(h *history) bool {
		return h.answered(func(d *delivery) bool { return d.Answer.Kind == ok && d.Quiet }, func(d *delivery) { d.Answer.Session += "x" })
	},
	"another frame": func(h *history) bool {
		return h.answered(func(d *delivery) bool { return d.Answer.Text != "" && d.Quiet }, func(d *delivery) { d.Answer.Text += " " })
	},
	"another reason": func(h *history) bool {
		return h.answered(func(d *delivery) bool { return d.Answer.Kind == failure && d.Quiet }, func(d *delivery) {
			d.Answer.Reason = string(lifecycle.ReasonReadinessTimeout)
		})
	},
	"a success that failed": func(h *history) bool {
		return h.answered(func(d *delivery) bool { return d.Answer.Kind == ok && d.Quiet }, func(d *delivery) {
			d.Answer = answer{Kind: failure, Reason: string(lifecycle.ReasonSpawnFailed), Message: lifecycle.MessageFailedBefore}
		})
	},
	"a success that is uncertain": func(h *history) bool {
		return h.answered(func(d *delivery) bool { return d.Answer.Kind == ok && d.Quiet }, func(d *delivery) {
			d.Answer = answer{Kind: uncertain, Reason: string(lifecycle.ReasonTerminalUncertain)}
		})
	},
	"a key that is forgotten": func(h *history) bool {
		h.Limit = 1
		return h.answered(func(d *delivery) bool { return d.Answer.Kind == ok && d.Quiet }, func(d *delivery) {
			d.Answer = answer{Kind: refused, Reason: string(lifecycle.ReasonRateLimited)}
		})
	},
	"a conflict with itself": func(h *history) bool {
		return h.answered(func(d *delivery) bool { return d.Answer.Kind == ok && d.Quiet }, func(d *delivery) { d.Answer = answer{Kind: conflict} })
	},
	"a key that two have": func(h *history) bool {
		return h.answered(func(d *delivery) bool { return d.Answer.Kind == conflict && d.Quiet }, func(d *delivery) {
			d.Answer = h.outcomes()[d.Key].answer
			if d.Answer.Kind == lost {
				d.Answer = answer{Kind: failure, Reason: string(lifecycle.ReasonNotFound), Message: lifecycle.MessageFailedBefore}
			}
		})
	},
	"an effect that came twice": func(h *history) bool { // all answers say that it was restarted, and it was not
		return h.rewrite(func(d *delivery) bool { return d.Answer.Mode == string(lifecycle.Reattached) }, func(a *answer) { a.Mode = string(lifecycle.ColdRestarted) })
	},
	"a resume of what did not run": func(h *history) bool {
		return h.rewrite(func(d *delivery) bool { return d.Answer.Mode == string(lifecycle.ColdRestarted) }, func(a *answer) { a.Mode = string(lifecycle.Reattached) })
	},
	"a close that found nothing": func(h *history) bool {
		return h.rewrite(func(d *delivery) bool { return h.verb(d) == "close" && d.Answer.Kind == ok }, func(a *answer) {
			*a = answer{Kind: failure, Reason: string(lifecycle.ReasonNotFound), Message: lifecycle.MessageFailedBefore}
		})
	},
	"a create of what is there": func(h *history) bool { // the one that failed succeeded, on paper
		all := h.outcomes()
		return h.rewrite(func(d *delivery) bool {
			b := h.Keys[d.Key].Bodies[d.Body]
			return b.Verb == "create" && !b.Gone && d.Body == all[d.Key].body && d.Answer.Reason == string(lifecycle.ReasonSpawnFailed)
		}, func(a *answer) { *a = answer{Kind: ok, Session: "?"} })
	},
	"a request that began twice": func(h *history) bool {
		return h.rewrite(func(d *delivery) bool { return d.Answer.Kind == failure && !h.Keys[d.Key].File }, func(a *answer) { a.Message = "its own words" })
	},
	"two at a time": func(h *history) bool { h.Twins = append(h.Twins, "two"); return true },
	"an answer to another request": func(h *history) bool {
		return h.answered(func(d *delivery) bool { return d.Quiet }, func(d *delivery) { d.Answer = answer{Kind: unknown} })
	},
	"no answer, though all is quiet": func(h *history) bool {
		return h.answered(func(d *delivery) bool { return d.Quiet }, func(d *delivery) { d.Answer, d.Return = answer{}, 0 })
	},
}

func (h *history) verb(d *delivery) string { return h.Keys[d.Key].Bodies[d.Body].Verb }

// told is the first such answer.
func (h *history) told(verb, kind, session string) int64 {
	at := int64(math.MaxInt64)
	for i := range h.Deliveries {
		if d := &h.Deliveries[i]; h.verb(d) == verb && d.Answer.Kind == kind && d.Answer.Session == session {
			at = min(at, d.Return)
		}
	}
	return at
}

// started alters the first start of a session that a create was told to have made.
func (h *history) started(alter func(*start)) bool {
	for i := range h.Starts {
		if s := h.Starts[i]; h.told("create", ok, s.ID) != math.MaxInt64 && !slices.ContainsFunc(h.Starts[:i], func(o start) bool { return o.ID == s.ID }) {
			alter(&s) // it may append to the starts
			h.Starts[i] = s
			return true
		}
	}
	return false
}

func (h *history) ended(when func(*ending) bool, alter func(*ending)) bool {
	for i := range h.Ends {
		if when(&h.Ends[i]) {
			alter(&h.Ends[i])
			return true
		}
	}
	return false
}

// answered alters the last answer that fits.
func (h *history) answered(when func(*delivery) bool, alter func(*delivery)) bool {
	for i := len(h.Deliveries) - 1; i >= 0; i-- {
		if when(&h.Deliveries[i]) {
			alter(&h.Deliveries[i])
			return true
		}
	}
	return false
}

// rewrite alters all answers of the first key that has such a one.
func (h *history) rewrite(when func(*delivery) bool, alter func(*answer)) bool {
	for i := range h.Deliveries {
		if first := &h.Deliveries[i]; when(first) {
			k, b := first.Key, first.Body
			for j := range h.Deliveries {
				if d := &h.Deliveries[j]; d.Key == k && d.Body == b && d.Answer.final() {
					alter(&d.Answer)
					if d.Answer.Session == "?" {
						d.Answer.Session = h.Keys[k].Bodies[b].ID
					}
				}
			}
			return true
		}
	}
	return false
}

func (h *history) clone() *history {
	data, err := json.Marshal(h)
	c := &history{}
	if err == nil {
		err = json.Unmarshal(data, c)
	}
	if err != nil {
		panic(err)
	}
	return c
}

// The checker is checked: recorded histories are explained, and every mutant of
// them is seen.
func TestMutants(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	world.Must(t, err)
	tried := map[string]int{}
	for _, f := range files {
		h, err := read(f)
		world.Must(t, err)
		if wrong, _ := h.judge(); len(wrong) > 0 {
			t.Fatalf("%s is not explained: %q", f, wrong)
		}
		for name, alter := range mutants {
			m := h.clone()
			if !alter(m) {
				continue
			}
			tried[name]++
			if wrong, _ := m.judge(); len(wrong) == 0 {
				t.Errorf("%s: %s is not seen", f, name)
			}
		}
	}
	for name := range mutants {
		if tried[name] == 0 {
			t.Errorf("no recorded history has a place for: %s", name)
		}
	}
	report.printf("TestMutants: %d kinds of faults put into %d recorded histories", len(mutants), len(files))
}
