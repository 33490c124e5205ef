package lifecycle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// State is how far a ledger entry came (1.7).
type State string

const (
	StateInProgress        State = "in_progress"        // the intent is durable; the effect may have taken place
	StateSuccess           State = "success"            // its results were seen
	StateFailure           State = "failure"            // final, and without effect
	StateTerminalUncertain State = "terminal_uncertain" // final; whether there was an effect is not known
)

// ErrInvalidLedger is matched when a ledger document, or an entry of it, is not
// as 1.7 demands. The text names members, never their values.
var ErrInvalidLedger = errors.New("invalid ledger")

// Entry is what is known of one request (1.7). An absent optional is nil or
// empty; times are milliseconds since 1970.
type Entry struct {
	RequestHash       string
	State             State
	RequestID         string
	Verb              Verb
	IntendedSessionID *string
	StartupPromptRef  *string
	CreatedAt         int64
	UpdatedAt         int64
	TargetSummary     json.RawMessage // from Summary; any object is read

	// Results.
	SessionID        *string
	TmuxSession      *string
	SessionStateFile *string
	EndpointURL      *string
	ProcessGone      *bool
	Reason           Reason
	ResumeMode       Mode
}

// Ledger is the ledger document, version 1: its entries by LedgerKey.
type Ledger map[string]Entry

// LedgerKey is the key of a request (1.7).
func LedgerKey(chatID string, updateID int64) string {
	return chatID + ":" + strconv.FormatInt(updateID, 10)
}

// DecodeLedger reads a ledger document, all of it or nothing, and brings two
// things of older ones up to date: a resume without a mode was reattached, and
// a close that did not see the process gone was no success but is uncertain.
// The error matches ErrInvalidLedger.
func DecodeLedger(data []byte) (Ledger, error) {
	doc, err := read(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidLedger, err)
	}
	version, ok := doc.member("version").safeInteger()
	switch {
	case doc.duplicate:
		return nil, invalidLedger("a member is there twice")
	case doc.notUnicode:
		return nil, fmt.Errorf("%w: %w", ErrInvalidLedger, ErrNotUnicode)
	case !ok || version != 1:
		return nil, invalidLedger("version")
	case doc.member("entries").kind != object:
		return nil, invalidLedger("entries")
	}
	l := Ledger{}
	for key, v := range doc.member("entries").members {
		e, err := decodeEntry(v)
		if err != nil {
			return nil, err
		}
		l[key] = e.migrated()
	}
	return l, nil
}

func decodeEntry(v value) (Entry, error) {
	if v.kind != object {
		return Entry{}, invalidLedger("an entry is no object")
	}
	var a admission
	e := Entry{
		RequestHash:       a.str(v.member("requestHash")),
		State:             State(a.str(v.member("state"))),
		RequestID:         a.str(v.member("requestId")),
		Verb:              Verb(a.str(v.member("verb"))),
		IntendedSessionID: a.opt(v.member("intendedSessionId")),
		StartupPromptRef:  a.opt(v.member("startupPromptRef")),
		SessionID:         a.opt(v.member("sessionId")),
		TmuxSession:       a.opt(v.member("tmuxSession")),
		SessionStateFile:  a.opt(v.member("sessionStateFile")),
		EndpointURL:       a.opt(v.member("endpointUrl")),
		TargetSummary:     compact(v.member("targetSummary").raw),
	}
	for _, t := range []struct {
		to   *int64
		from value
	}{{&e.CreatedAt, v.member("createdAt")}, {&e.UpdatedAt, v.member("updatedAt")}} {
		var ok bool
		*t.to, ok = t.from.safeInteger()
		a.require(ok)
	}
	if gone := v.member("processGone"); gone.kind != absent {
		a.require(gone.kind == boolean)
		e.ProcessGone = &gone.yes
	}
	if reason := a.opt(v.member("reason")); reason != nil {
		a.require(Reason(*reason).Known())
		e.Reason = Reason(*reason)
	}
	if mode := a.opt(v.member("resumeMode")); mode != nil {
		a.require(Mode(*mode).known())
		e.ResumeMode = Mode(*mode)
	}
	if a.failed {
		return Entry{}, invalidLedger("a member of an entry is missing or of another type")
	}
	return e, e.check()
}

func compact(raw []byte) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return nil
	}
	return b.Bytes()
}

// check is what 1.7 demands of an entry. A resume without a mode passes: that
// is for migrated to mend.
func (e Entry) check() error {
	if !e.Verb.known() {
		return invalidLedger("verb")
	}
	if len(e.TargetSummary) == 0 || e.TargetSummary[0] != '{' {
		return invalidLedger("targetSummary")
	}
	if e.Reason != "" && !e.Reason.Known() {
		return invalidLedger("reason")
	}
	if e.ResumeMode != "" && !e.ResumeMode.known() {
		return invalidLedger("resumeMode")
	}
	if max(e.CreatedAt, e.UpdatedAt) > maxSafe || min(e.CreatedAt, e.UpdatedAt) < -maxSafe {
		return invalidLedger("time")
	}
	var need []*string
	switch e.State {
	default:
		return invalidLedger("state")
	case StateInProgress:
	case StateFailure, StateTerminalUncertain:
		if e.Reason == "" {
			return invalidLedger(string(e.State) + " without a reason")
		}
	case StateSuccess:
		switch e.Verb {
		case SessionCreate:
			need = []*string{e.IntendedSessionID, e.SessionID, e.TmuxSession, e.EndpointURL}
		case SessionClose:
			need = []*string{e.SessionID}
			if e.ProcessGone == nil {
				return invalidLedger("success of session_close without processGone")
			}
		case SessionResume:
			need = []*string{e.SessionID, e.TmuxSession, e.EndpointURL}
		}
	}
	if slices.Contains(need, nil) {
		return invalidLedger("success of " + string(e.Verb) + " without its results")
	}
	return nil
}

func (e Entry) migrated() Entry {
	switch {
	case e.State != StateSuccess:
	case e.Verb == SessionResume && e.ResumeMode == "":
		e.ResumeMode = Reattached
	case e.Verb == SessionClose && !*e.ProcessGone:
		e.State, e.Reason, e.ProcessGone = StateTerminalUncertain, ReasonTerminalUncertain, nil
	}
	return e
}

// Encode is the ledger document, oldest entry first. It refuses what
// DecodeLedger would refuse, with the same error.
func (l Ledger) Encode() ([]byte, error) {
	keys := slices.SortedFunc(maps.Keys(l), func(a, b string) int {
		return cmp.Or(cmp.Compare(l[a].CreatedAt, l[b].CreatedAt), cmp.Compare(a, b))
	})
	var w writer
	w.open()
	w.num("version", 1)
	w.name("entries")
	w.open()
	for _, key := range keys {
		w.name(key)
		if err := l[key].write(&w); err != nil {
			return nil, err
		}
	}
	w.end()
	b, err := w.done()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidLedger, err)
	}
	return b, nil
}

func (e Entry) write(w *writer) error {
	if err := e.check(); err != nil {
		return err
	}
	summary, err := read(e.TargetSummary)
	if err != nil || summary.duplicate || summary.notUnicode {
		return invalidLedger("targetSummary")
	}
	w.open()
	w.str("requestHash", e.RequestHash)
	w.str("state", string(e.State))
	w.str("requestId", e.RequestID)
	w.str("verb", string(e.Verb))
	w.opt("intendedSessionId", e.IntendedSessionID)
	w.opt("startupPromptRef", e.StartupPromptRef)
	w.num("createdAt", e.CreatedAt)
	w.num("updatedAt", e.UpdatedAt)
	w.raw("targetSummary", string(compact(e.TargetSummary)))
	w.opt("sessionId", e.SessionID)
	w.opt("tmuxSession", e.TmuxSession)
	w.opt("sessionStateFile", e.SessionStateFile)
	w.opt("endpointUrl", e.EndpointURL)
	if e.ProcessGone != nil {
		w.flag("processGone", *e.ProcessGone)
	}
	if e.Reason != "" {
		w.str("reason", string(e.Reason))
	}
	if e.ResumeMode != "" {
		w.str("resumeMode", string(e.ResumeMode))
	}
	w.end()
	return nil
}

func invalidLedger(what string) error { return fmt.Errorf("%w: %s", ErrInvalidLedger, what) }

// Class is what a request is to the entry of its key (1.7).
type Class int

const (
	New               Class = iota // there is no entry
	Conflict                       // another request used the key
	RepeatedSuccess                // the same, and it is done
	RepeatedFailure                // the same, and it failed
	RepeatedPending                // the same, and it is not decided
	RepeatedUncertain              // the same, and its outcome is not known
)

// Duplicate is what a request that is not the first of its key gets (1.7).
type Duplicate struct {
	Class       Class
	Outcome     Outcome // empty when New
	Event       Event   // of the audit row; empty when New
	AuditReason Reason  // of the audit row; may be empty
}

// Classify compares a request by its hash with the entry of its key, nil if
// there is none. Any other hash is a conflict, whatever the state. The error
// matches ErrInvalidLedger: an entry from which no answer can be made.
func Classify(existing *Entry, hash string) (Duplicate, error) {
	if existing == nil {
		return Duplicate{Class: New}, nil
	}
	if existing.RequestHash != hash {
		return Duplicate{
			Class:       Conflict,
			Outcome:     Outcome{Status: Failed, Reason: ReasonDuplicateConflict, Message: MessageConflict},
			Event:       EventRejected,
			AuditReason: ReasonDuplicateConflict,
		}, nil
	}
	if err := existing.check(); err != nil {
		return Duplicate{}, err
	}
	e := existing.migrated()
	switch e.State {
	case StateSuccess:
		return Duplicate{Class: RepeatedSuccess, Outcome: Outcome{Status: OK, Entry: &e}, Event: EventDuplicateReack}, nil
	case StateFailure:
		return Duplicate{
			Class:       RepeatedFailure,
			Outcome:     Outcome{Status: Failed, Reason: e.Reason, Message: MessageFailedBefore},
			Event:       EventDuplicateReack,
			AuditReason: e.Reason,
		}, nil
	case StateInProgress:
		return Duplicate{Class: RepeatedPending, Outcome: Outcome{Status: Pending, Entry: &e}, Event: EventRecoveredInProgress}, nil
	}
	return Duplicate{
		Class:       RepeatedUncertain,
		Outcome:     Outcome{Status: Failed, Reason: ReasonTerminalUncertain, Message: MessageOutcomeUnknown},
		Event:       EventRecoveredInProgress,
		AuditReason: ReasonTerminalUncertain,
	}, nil
}
