package request

import (
	"fmt"
	"time"

	"skc.dev/skc/api"
	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
)

// refusal is why a request is not begun. It leaves no entry, so the same request
// may come again and is judged anew.
type refusal struct {
	reason  lifecycle.Reason
	message string
}

func (r *refusal) outcome() lifecycle.Outcome {
	return lifecycle.Outcome{Status: lifecycle.Failed, Reason: r.reason, Message: r.message}
}

// gates are those of 1.6 before the ledger is read, in their order, each with
// its audit row. An error means that the request could not be judged; it matches
// lifecycle.ErrInvalidAuditKey when no request can.
func (r *Reconciler) gates(s *v1alpha1.SessionRequestSpec, arrived time.Time) (*refusal, error) {
	if _, err := ledger.Bytes(s); err != nil { // 1
		return &refusal{lifecycle.ReasonInvalidTarget, lifecycle.MessageInvalidTarget}, nil
	}
	if len(r.AuditKey) != lifecycle.AuditKeyBytes { // 2
		return nil, lifecycle.ErrInvalidAuditKey
	}
	reject := func(reason lifecycle.Reason, message string) (*refusal, error) {
		return &refusal{reason, message}, r.append(s, arrived, lifecycle.EventRejected, reason)
	}
	// Who can write the files of the user is the user.
	if q := s.Requester; q != nil && (r.PairedChat == "" || q.ChatID != r.PairedChat) { // 3
		return reject(lifecycle.ReasonUnauthorized, lifecycle.MessageNotPaired)
	}
	if s.Verb == v1alpha1.VerbClose && (s.Force == nil || !*s.Force) { // 4
		return reject(lifecycle.ReasonInvalidTarget, lifecycle.MessageCloseNeedsForce)
	}
	takesPrompt := r.Prompts && s.Verb == v1alpha1.VerbCreate
	if s.StartupPromptRef != nil && s.Verb != v1alpha1.VerbClose && s.Verb != v1alpha1.VerbDelete && !takesPrompt { // 5
		return &refusal{lifecycle.ReasonInvalidTarget, lifecycle.MessagePromptUnavailable}, nil
	}
	if r.Psmux() { // 6
		return reject(lifecycle.ReasonUnsupportedPlatform, lifecycle.MessageUnsupportedPlatform)
	}
	return nil, nil
}

// limits are the gates behind the ledger: 8 and 9. counted is when the request
// was counted for the limit of its chat, zero when it was not.
func (r *Reconciler) limits(o *v1alpha1.SessionRequest, arrived time.Time) (counted time.Time, no *refusal, err error) {
	s := &o.Spec
	if s.Verb != v1alpha1.VerbCreate {
		return counted, nil, nil
	}
	key := api.KeyOf(o)
	if q := s.Requester; q != nil { // 8; there is no chat whose limit a file could use up
		at, ok := r.index.reserve(r.Limit, q.ChatID, key, r.now().Time)
		if !ok {
			return counted, &refusal{lifecycle.ReasonRateLimited, lifecycle.MessageRateLimited},
				r.append(s, arrived, lifecycle.EventRateLimited, lifecycle.ReasonRateLimited)
		}
		counted = at
	}
	if s.IDs == nil || s.IDs.LifecycleRequestID == "" || s.IDs.IntendedSessionID == "" { // 9
		if s.Requester != nil {
			r.index.spend(s.Requester.ChatID, key)
		}
		return counted, &refusal{lifecycle.ReasonInvalidTarget, lifecycle.MessageEmptyIDs}, nil
	}
	return counted, nil, nil
}

// append writes one audit row of a request.
func (r *Reconciler) append(s *v1alpha1.SessionRequestSpec, arrived time.Time, event lifecycle.Event, reason lifecycle.Reason) error {
	req := ledger.Request(s)
	row, err := lifecycle.NewAuditRow(r.AuditKey, req, arrived)
	if err != nil {
		return fmt.Errorf("audit %s: %w", event, err)
	}
	if verb := ledger.Verb(s.Verb); verb != row.Verb { // no frame has it, so its bytes are not those of the target's frame
		bytes, err := ledger.Bytes(s)
		if err != nil {
			return fmt.Errorf("audit %s: %w", event, err)
		}
		if row.RequestRef, err = lifecycle.AuditRef(r.AuditKey, lifecycle.DomainRequest, string(bytes)); err != nil {
			return fmt.Errorf("audit %s: %w", event, err)
		}
		row.Verb = verb
	}
	row.Event, row.Reason = event, reason
	if err := r.Audit.Append(row); err != nil {
		return fmt.Errorf("audit %s: %w", event, err)
	}
	return nil
}

// classify is lifecycle.Classify for the entries of all verbs.
func classify(o *v1alpha1.SessionRequest, hash string) (lifecycle.Duplicate, error) {
	e, err := ledger.Entry(o)
	if err != nil {
		return lifecycle.Duplicate{}, err
	}
	verb := e.Verb
	switch verb {
	case ledger.SessionDelete:
		e.Verb = lifecycle.SessionClose
	case ledger.SessionFork:
		e.Verb = lifecycle.SessionResume
	}
	d, err := lifecycle.Classify(&e, hash)
	if d.Outcome.Entry != nil {
		d.Outcome.Entry.Verb = verb
	}
	return d, err
}
