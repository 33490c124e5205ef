package lifecycle

import (
	"errors"
	"slices"
	"time"
)

// Event is what an audit row tells (1.5).
type Event string

const (
	EventAccepted            Event = "accepted"              // the intent is durable; an effect may follow
	EventRejected            Event = "rejected"              // by a gate
	EventDuplicateReack      Event = "duplicate_reack"       // answered from the ledger
	EventRateLimited         Event = "rate_limited"          // by the limit of the chat
	EventSpawnStarted        Event = "spawn_started"         // a create is about to launch
	EventRecoveredInProgress Event = "recovered_in_progress" // repeated while not decided, or never decided
	EventSuccess             Event = "success"
	EventFailure             Event = "failure"
	EventTerminalUncertain   Event = "terminal_uncertain"
)

// Events is the closed set, in the order of 1.5.
var Events = []Event{EventAccepted, EventRejected, EventDuplicateReack, EventRateLimited, EventSpawnStarted,
	EventRecoveredInProgress, EventSuccess, EventFailure, EventTerminalUncertain}

// auditSchema is the schemaVersion of rows.
const auditSchema = 2

// AuditRow is one line of the audit file (1.5). It names chat, request and
// target by references only, so that nothing of them can be read from it. The
// tags are for reading a line back; Line writes it.
type AuditRow struct {
	SchemaVersion int        `json:"schemaVersion"`
	TS            string     `json:"ts"` // when the request arrived, the same in all its rows
	ChatRef       string     `json:"chatRef"`
	UpdateID      int64      `json:"updateId"`
	RequestRef    string     `json:"requestRef"`
	Verb          Verb       `json:"verb"`
	TargetKind    TargetKind `json:"targetKind"`
	TargetRef     string     `json:"targetRef"`
	Event         Event      `json:"event"`
	Reason        Reason     `json:"reason,omitempty"`
}

// NewAuditRow is the row of a request, but for its event: set that, and the
// reason if there is one, for each line. The error matches ErrInvalidTarget,
// else ErrInvalidAuditKey: the order of gates 1 and 2 (1.6).
func NewAuditRow(key []byte, r Request, arrived time.Time) (AuditRow, error) {
	request, err := CanonicalRequest(r)
	if err != nil {
		return AuditRow{}, err
	}
	target, err := CanonicalTarget(r.Target)
	if err != nil {
		return AuditRow{}, err
	}
	row := AuditRow{
		SchemaVersion: auditSchema,
		TS:            arrived.UTC().Format("2006-01-02T15:04:05.000Z"),
		UpdateID:      r.UpdateID,
		Verb:          r.Verb(),
		TargetKind:    r.Target.Kind(),
	}
	for _, ref := range []struct {
		to            *string
		domain, value string
	}{
		{&row.ChatRef, DomainChat, r.ChatID},
		{&row.RequestRef, DomainRequest, string(request)},
		{&row.TargetRef, DomainTarget, string(target)},
	} {
		if *ref.to, err = AuditRef(key, ref.domain, ref.value); err != nil {
			return AuditRow{}, err
		}
	}
	return row, nil
}

// Line is the row as it is appended to the file, with its line feed. It refuses
// an event or a reason outside the closed sets.
func (r AuditRow) Line() ([]byte, error) {
	if !slices.Contains(Events, r.Event) {
		return nil, errors.New("audit event is not in the closed set")
	}
	if r.Reason != "" && !r.Reason.Known() {
		return nil, ErrUnknownReason
	}
	var w writer
	w.open()
	w.num("schemaVersion", int64(r.SchemaVersion))
	w.str("ts", r.TS)
	w.str("chatRef", r.ChatRef)
	w.num("updateId", r.UpdateID)
	w.str("requestRef", r.RequestRef)
	w.str("verb", string(r.Verb))
	w.str("targetKind", string(r.TargetKind))
	w.str("targetRef", r.TargetRef)
	w.str("event", string(r.Event))
	if r.Reason != "" {
		w.str("reason", string(r.Reason))
	}
	b, err := w.done()
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}
