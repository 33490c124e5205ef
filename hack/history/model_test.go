//go:build e2e

package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model says what may happen to the sessions of one family and to the ledger
// of their keys, one event after the other. Porcupine looks for an order of the
// events that explains a history: each event lies somewhere between two times
// that were seen from outside.
//
// A key of the ledger is written once: none, in_progress, then its outcome. An
// answer is thus an event of its own only for what it says of the time at which
// that was written. So the events of a key are its entry, the definition of a
// session that is created, and its effect; and each answer bounds them:
//
//   - the entry comes after the first delivery of the request that got the key,
//     after every refusal that nothing was known was asked for, and before the
//     first answer that tells of it (its outcome, or a conflict);
//   - the effect comes before the first answer that tells the outcome.
//
// That all answers tell the same is checked beside it (rules).
//
// A program that starts is an event, too, which the kernel tells the time of. A
// create, and a resume that is called a cold restart, need one each that nobody
// else had: it is in the log. One that was ended before it came to its first line
// is not (blind); it may not run at the end, and no more than a few are blind.
//
// An uncertain outcome means that the effect may come at any time after the
// entry, or never, and no more than once.

// Limits of a family.
const (
	maxSessions = 8
	maxKeys     = 16
)

// stage is how far a key of the ledger came.
type stage uint8

const (
	none stage = iota
	inProgress
	decided // as the outcome of its key says
)

// session is one session id.
type session struct {
	exists, running bool
	starting        bool // defined, and its first program was not seen
	blind           bool // its program is not in the log
	by              int8 // key that created it, and one
	uid             int8 // 0: not known, else the number of a UID
	begun           int8 // UID of a program that started and was not yet seen by a request
}

type state struct {
	sessions [maxSessions]session
	ledger   [maxKeys]stage
	lateDone [maxKeys]bool // the effect of an uncertain one came
	used     uint64        // UIDs that a session has, or had
}

// event is what porcupine gets as input; all of it is known.
type event struct {
	kind    string // entry, define, effect, late, start, end
	key     int    // within the family
	body    body
	answer  answer
	session int // of start and end
	uid     int8
	ending  *ending
}

func (e event) String() string {
	switch e.kind {
	case "start":
		return fmt.Sprintf("start of %d, uid %d", e.session, e.uid)
	case "end":
		return fmt.Sprintf("end of %s: exists %v, uid %d, %d live", e.ending.ID, e.ending.Exists, e.uid, len(e.ending.Live))
	}
	return fmt.Sprintf("%s of key %d: %s %s: %s", e.kind, e.key, e.body.Verb, e.body.ID, e.answer)
}

// family is what the model knows of the names.
type family struct {
	ids  []string
	uids map[string]int8
}

func (f *family) index(id string) int { return slices.Index(f.ids, id) }

// matches are the sessions that a resume means.
func (f *family) matches(s *state, want string) (found []int) {
	if i := f.index(want); i >= 0 && s.sessions[i].exists {
		return []int{i}
	}
	for i, id := range f.ids {
		if s.sessions[i].exists && strings.HasPrefix(id, want) {
			found = append(found, i)
		}
	}
	return found
}

// run has the program that started last become the one of session i; false when
// that cannot be. fresh is a session that had none.
func (s *state) run(i int, fresh bool) bool {
	x := &s.sessions[i]
	if x.begun == 0 {
		x.running, x.starting, x.blind = true, false, true
		return true
	}
	known := s.used&(1<<x.begun) != 0
	if fresh && known || !fresh && x.uid != 0 && x.uid != x.begun || !fresh && x.uid == 0 && known {
		return false
	}
	s.used |= 1 << x.begun
	x.uid, x.begun = x.begun, 0
	x.running, x.starting, x.blind = true, false, false
	return true
}

// effect has the outcome come about; false when it cannot, as all is.
func (f *family) effect(s *state, e event) bool {
	i := f.index(e.body.ID)
	switch a := e.answer; e.body.Verb + " " + a.Kind + " " + a.Reason {
	case "create ok ":
		return a.Session == e.body.ID && s.sessions[i].starting && int(s.sessions[i].by) == e.key+1 && s.run(i, true)
	case "create failure spawn_failed":
		return e.body.Gone || s.sessions[i].exists
	case "close ok ", "delete ok ":
		x := &s.sessions[max(i, 0)]
		if i < 0 || !x.exists || x.starting || a.Session != e.body.ID {
			return false
		}
		x.running, x.blind = false, false
		if e.body.Verb == "delete" {
			*x = session{begun: x.begun}
		}
		return true
	case "close failure not_found", "delete failure not_found":
		return i < 0 || !s.sessions[i].exists
	case "close failure close_refused", "delete failure close_refused", "resume failure discovery_timeout":
		return true // tmux did not answer, so nothing was touched; rules see that this was why
	}
	if e.body.Verb != "resume" {
		return false
	}
	var live, cold []int
	for _, i := range f.matches(s, e.body.ID) {
		switch x := s.sessions[i]; {
		case x.starting: // a resume waits until it is known what it is
			return false
		case x.running:
			live = append(live, i)
		default:
			cold = append(cold, i)
		}
	}
	switch a := e.answer; a.Kind + " " + a.Reason + a.Mode {
	case "ok reattached":
		return len(live) == 1 && f.ids[live[0]] == a.Session
	case "ok cold_restarted":
		return len(live) == 0 && len(cold) == 1 && f.ids[cold[0]] == a.Session && s.run(cold[0], false)
	case "failure ambiguous_target":
		if len(live) <= 1 && (len(live) > 0 || len(cold) <= 1) {
			return false
		}
		var names []string
		for _, i := range live {
			names = append(names, f.ids[i])
		}
		for _, i := range cold {
			if len(live) == 0 {
				names = append(names, f.ids[i])
			}
		}
		return len(a.Candidates) == 0 || slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(a.Candidates)))
	case "failure not_found":
		return len(live)+len(cold) == 0
	}
	return false
}

// late are the ways in which the effect of an uncertain request may come after
// all. Those of a create are two: the session is defined, and it runs.
func (f *family) late(s state, e event) (out []any) {
	out = append(out, s) // it never comes
	if s.ledger[e.key] == none || s.lateDone[e.key] {
		return out
	}
	switch e.body.Verb {
	case "create":
		if i := f.index(e.body.ID); s.sessions[i].starting && int(s.sessions[i].by) == e.key+1 {
			ran, stopped := s, s
			if ran.run(i, true) {
				ran.lateDone[e.key] = true
				out = append(out, ran)
			}
			stopped.sessions[i].starting, stopped.lateDone[e.key] = false, true
			out = append(out, stopped)
		} else if !s.sessions[i].exists {
			s.sessions[i] = session{exists: true, starting: true, by: int8(e.key + 1), begun: s.sessions[i].begun}
			out = append(out, s)
		}
	case "close", "delete":
		if i := f.index(e.body.ID); i >= 0 && s.sessions[i].exists {
			x := &s.sessions[i]
			x.running, x.blind, x.starting = false, false, false
			if e.body.Verb == "delete" {
				*x = session{begun: x.begun}
			}
			s.lateDone[e.key] = true
			out = append(out, s)
		}
	case "resume":
		for _, i := range f.matches(&s, e.body.ID) {
			if x := s.sessions[i]; !x.running && !x.starting {
				ran := s
				if ran.run(i, false) {
					ran.lateDone[e.key] = true
					out = append(out, ran)
				}
			}
		}
	}
	return out
}

// step is what the state may be after an event; nothing when it cannot be.
func (f *family) step(s state, e event) []any {
	switch e.kind {
	case "entry":
		if s.ledger[e.key] != none {
			return nil
		}
		s.ledger[e.key] = inProgress
	case "define":
		i := f.index(e.body.ID)
		if s.ledger[e.key] != inProgress || s.sessions[i].exists {
			return nil
		}
		s.sessions[i] = session{exists: true, starting: true, by: int8(e.key + 1), begun: s.sessions[i].begun}
	case "effect":
		if s.ledger[e.key] != inProgress {
			return nil
		}
		s.ledger[e.key] = decided
		if e.answer.Kind != uncertain && !f.effect(&s, e) {
			return nil
		}
	case "late":
		return f.late(s, e)
	case "start":
		x := &s.sessions[e.session]
		if x.begun != 0 || x.running {
			return nil // there is one already
		}
		x.begun = e.uid
	case "end":
		x := s.sessions[e.session]
		live := 0
		if x.running {
			live = 1
		}
		if x.begun != 0 || x.blind || x.starting || x.exists != e.ending.Exists || live != len(e.ending.Live) ||
			x.exists && x.uid != 0 && x.uid != e.uid {
			return nil
		}
	}
	return []any{s}
}

// outcome is what the ledger has of a key: which body got it, and the answer.
// body is -1 when it has nothing.
type outcome struct {
	body   int
	answer answer
}

// outcomes are those of all keys, by what was answered to each.
func (h *history) outcomes() []outcome {
	out := make([]outcome, len(h.Keys))
	for i := range out {
		out[i].body = -1
	}
	for _, d := range h.Deliveries {
		if o := &out[d.Key]; d.Answer.final() {
			if o.body < 0 || o.body == d.Body && len(d.Answer.Candidates) > 0 {
				*o = outcome{d.Body, d.Answer}
			}
		}
	}
	return out
}

// events are those of one family.
func (h *history) events(n int) (*family, []porcupine.Operation) {
	f := &family{ids: h.ids(n), uids: map[string]int8{}}
	var ops []porcupine.Operation
	end := int64(0)
	add := func(client int, e event, from, to int64) {
		ops = append(ops, porcupine.Operation{ClientId: client, Input: e, Call: from, Return: to})
		if to != math.MaxInt64 {
			end = max(end, to)
		}
	}
	index := -1
	for k, o := range h.outcomes() {
		if h.Keys[k].Family != n {
			continue
		}
		index++
		if o.body < 0 {
			continue
		}
		first, entered, told, refusals := int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(0)
		for _, d := range h.Deliveries {
			if d.Key != k {
				continue
			}
			if d.Body == o.body {
				first = min(first, d.Call)
			}
			switch {
			case d.Answer.final():
				told, entered = min(told, d.Return), min(entered, d.Return)
			case d.Answer.Kind == conflict:
				entered = min(entered, d.Return)
			case d.Answer.Kind == refused:
				refusals = max(refusals, d.Call)
			}
		}
		e := event{kind: "entry", key: index, body: h.Keys[k].Bodies[o.body], answer: o.answer}
		add(k, e, max(first, refusals), entered)
		if e.body.Verb == "create" && o.answer.Kind == ok {
			e.kind = "define"
			add(k, e, first, told)
		}
		e.kind = "effect"
		add(k, e, first, told)
		if o.answer.Kind != uncertain {
			continue
		}
		e.kind = "late"
		add(len(h.Keys)+k, e, first, math.MaxInt64)
		if e.body.Verb == "create" {
			add(2*len(h.Keys)+k, e, first, math.MaxInt64)
		}
	}
	uid := func(s string) int8 {
		if s != "" && f.uids[s] == 0 {
			f.uids[s] = int8(len(f.uids) + 1)
		}
		return f.uids[s]
	}
	for _, s := range h.Starts {
		if i := f.index(s.ID); i >= 0 {
			add(3*len(h.Keys)+i, event{kind: "start", session: i, uid: uid(s.UID)}, s.At, s.At+tick)
		}
	}
	for i := range h.Ends {
		if s := f.index(h.Ends[i].ID); s >= 0 {
			add(4*len(h.Keys)+s, event{kind: "end", session: s, uid: uid(h.Ends[i].UID), ending: &h.Ends[i]}, math.MaxInt64-1, math.MaxInt64)
		}
	}
	for i := range ops { // what has no end is over when all is
		if ops[i].Return == math.MaxInt64 && ops[i].Call != math.MaxInt64-1 {
			ops[i].Return = max(end, ops[i].Call) + 1
		}
	}
	return f, ops
}

// model is the model of one family.
func (f *family) model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, in, _ any) []any {
			return f.step(s.(state), in.(event)) //nolint:forcetypeassert // what Init and events give
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(in, _ any) string { return fmt.Sprint(in) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
	return m.ToModel()
}

// riddle is a family that is not explained, and how far the search came.
type riddle struct {
	family *family
	seen   porcupine.LinearizationInfo
}

// explain looks for an order of the events of a family; why is empty when there
// is one.
func (h *history) explain(n int) (why string, what riddle) {
	f, ops := h.events(n)
	if len(f.ids) > maxSessions || len(f.uids) > 62 {
		return "the model is too small", riddle{family: f}
	}
	res, seen := porcupine.CheckOperationsVerbose(f.model(), ops, 20*time.Second)
	if res == porcupine.Ok {
		return "", what
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(min(1, max(-1, a.Call-b.Call))) })
	var b strings.Builder
	fmt.Fprintf(&b, "family %d cannot be explained (%s); sessions %q", n, res, f.ids)
	for _, o := range ops {
		fmt.Fprintf(&b, "\n%12.3f to %12.3f ms: %v", float64(o.Call)/1e6, float64(o.Return)/1e6, o.Input)
	}
	return b.String(), riddle{f, seen}
}
