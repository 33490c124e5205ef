//go:build e2e

package history

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"skc.dev/skc/api/lifecycle"
)

// rules are what must be true of the answers and the programs of a history,
// whatever the order. They say exactly in what the answers for one key may
// differ:
//
//   - a connection that ended, and "request already in progress", say nothing;
//     any answer may follow;
//   - a refusal (rate_limited) leaves the ledger as it is; any answer may follow,
//     but no refusal follows an answer that tells of an entry;
//   - a failure is told with its own text and its candidates once at most, to the
//     delivery that began the request; all others get the reason and "previously
//     failed";
//   - else two answers differ in the ids that a delivery brings with it, and in
//     nothing: a success stays that success, to the byte, and an uncertain
//     outcome stays uncertain.
func (h *history) rules() (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, t := range h.Twins {
		say("two ran at one time: %s", t)
	}
	all := h.outcomes()
	first := make([]int64, len(h.Keys)) // delivery of what got the key
	known := make([]int64, len(h.Keys)) // first answer that told of the entry
	own := make([]int, len(h.Keys))     // failures that were told in their own words
	for k := range h.Keys {
		first[k], known[k] = math.MaxInt64, math.MaxInt64
	}
	for _, d := range h.Deliveries {
		if d.Body == all[d.Key].body {
			first[d.Key] = min(first[d.Key], d.Call)
		}
		if d.Answer.final() || d.Answer.Kind == conflict {
			known[d.Key] = min(known[d.Key], d.Return)
		}
	}
	for _, d := range h.Deliveries {
		k, o, a := h.Keys[d.Key], all[d.Key], d.Answer
		what := fmt.Sprintf("key %d (%s %s), delivery of %.3f ms: %s", d.Key, k.Bodies[d.Body].Verb, k.Bodies[d.Body].ID, float64(d.Call)/1e6, a)
		switch {
		case a.Kind == late || a.Kind == unknown:
			say("%s: that is no answer", what)
		case a.final() && d.Body != o.body:
			say("%s: the key belongs to another request", what)
		case a.final() && !a.same(o.answer):
			say("%s: another delivery got: %s", what, o.answer)
		case a.Kind == conflict && d.Body == o.body:
			say("%s: the key is this request's own", what)
		case a.Kind == conflict && o.body < 0:
			say("%s: nobody has the key", what)
		case a.Kind == refused && d.Call > known[d.Key]:
			say("%s: the key is forgotten", what)
		case a.Kind == refused && (a.Reason != string(lifecycle.ReasonRateLimited) || h.Limit == 0):
			say("%s: there is no reason to refuse it", what)
		case d.Quiet && (a.Kind == lost || a.Kind == pending):
			say("%s: it is not answered, though all is quiet", what)
		}
		if a.Kind == failure && !k.File && a.Message != lifecycle.MessageFailedBefore {
			if own[d.Key]++; own[d.Key] > 1 {
				say("%s: two deliveries began the request", what)
			}
		}
		if a.Message != "" && a.Message != lifecycle.MessageFailedBefore && !strings.Contains(a.Message, "server_unverifiable") &&
			(a.Reason == string(lifecycle.ReasonCloseRefused) || a.Reason == string(lifecycle.ReasonDiscoveryTimeout)) {
			say("%s: there is no reason for it", what)
		}
		if len(a.Candidates) > 0 && a.Message == lifecycle.MessageFailedBefore {
			say("%s: candidates are told twice", what)
		}
		for _, s := range a.Survivors {
			if s.At+tick < first[d.Key] {
				say("%s: %s was there before and is there still, pid %d", what, s.ID, s.PID)
			}
		}
	}
	for _, s := range h.Starts {
		if !slices.ContainsFunc(h.Deliveries, func(d delivery) bool {
			b := h.Keys[d.Key].Bodies[d.Body]
			return d.Lifecycle == s.Lifecycle && b.Verb == "create" && b.ID == s.ID && d.Call <= s.At+tick && d.Body == all[d.Key].body
		}) {
			say("%s, pid %d: nobody asked for it before it started", s.ID, s.PID)
		}
	}
	for _, e := range h.Ends {
		for _, s := range e.Live {
			if !slices.Contains(h.Starts, s) || s.UID != e.UID {
				say("%s, pid %d: it runs, and is not one of the session's programs", s.ID, s.PID)
			}
		}
	}
	return wrong
}

// judge returns all that is wrong with a history.
func (h *history) judge() (wrong []string, riddles []riddle) {
	wrong = h.rules()
	for n := range h.families() {
		why, s := h.explain(n)
		if why != "" {
			wrong, riddles = append(wrong, why), append(riddles, s)
		}
	}
	return wrong, riddles
}

// runs are the programs that must have started, by the answers.
func (h *history) runs() (n int) {
	for k, o := range h.outcomes() {
		if o.answer.Kind == ok && (h.Keys[k].Bodies[o.body].Verb == "create" || o.answer.Mode == string(lifecycle.ColdRestarted)) {
			n++
		}
	}
	return n
}

// keepAs writes the history, and a picture of each family that is not explained.
func (h *history) keepAs(name string, riddles []riddle) (string, error) {
	path := filepath.Join(out, name+".json")
	if err := h.write(path); err != nil {
		return "", err
	}
	for i, s := range riddles {
		if err := porcupine.VisualizePath(s.family.model(), s.seen, filepath.Join(out, fmt.Sprintf("%s-%d.html", name, i))); err != nil {
			return path, err
		}
	}
	return path, nil
}
