package lifecycle

import (
	"errors"
	"fmt"
)

// Response is a frame to a caller: CreateResponse, CloseResponse,
// ResumeResponse, ErrorResponse or the event SessionReady (1.3).
type Response interface {
	// Frame is the frame as sent, members in the order of 1.3. The error matches
	// ErrNotUnicode, or ErrUnknownReason.
	Frame() ([]byte, error)
}

// ErrUnknownReason is matched when a reason to write is outside the closed set (1.3).
var ErrUnknownReason = errors.New("reason is not in the closed set")

// Mode says how a session was resumed (1.3).
type Mode string

const (
	Reattached    Mode = "reattached"     // it was running; nothing was touched
	ColdRestarted Mode = "cold_restarted" // it was started anew with its conversation
)

func (m Mode) known() bool { return m == Reattached || m == ColdRestarted }

// MatchedBySpawnMarker says that a create is answered once the launch is
// proven, not when the program in it is ready (1.3).
const MatchedBySpawnMarker = "spawn_marker"

// CreateResponse answers a session_create. The token of its endpoint and the
// thread of its topic are empty in this release.
type CreateResponse struct {
	RequestID          string
	LifecycleRequestID string
	SessionID          string
	EndpointURL        string
	ChatID             string
	Target             Target
}

// CloseResponse answers a session_close. It says that the process is gone, and
// exists only when that was seen: anything less is no success.
type CloseResponse struct{ RequestID, SessionID string }

// ResumeResponse answers a session_resume.
type ResumeResponse struct {
	RequestID   string
	SessionID   string
	Mode        Mode
	EndpointURL string
	ChatID      string
}

// Candidate is one of several sessions that match.
type Candidate struct {
	SessionID string
	Path      *string
	MtimeMs   *int64 // since 1970
}

// ErrorResponse answers a request that was not served.
type ErrorResponse struct {
	RequestID  string
	Reason     Reason
	Message    string
	Candidates []Candidate
}

// SessionReady is the event that tells that a session is up.
type SessionReady struct {
	SessionID          string
	LifecycleRequestID *string
	StartupPromptRef   *string
	Repo               *string
	Branch             *string
	Title              *string
}

func (r CreateResponse) Frame() ([]byte, error) {
	if r.Target == nil {
		return nil, ErrInvalidTarget
	}
	var w writer
	w.answer("session_create_response", r.RequestID, "ok")
	w.str("lifecycleRequestId", r.LifecycleRequestID)
	w.str("sessionId", r.SessionID)
	w.str("matchedBy", MatchedBySpawnMarker)
	w.endpoint(r.EndpointURL, r.ChatID)
	w.name("target")
	w.open()
	r.Target.wire(&w)
	w.end()
	return w.done()
}

func (r CloseResponse) Frame() ([]byte, error) {
	var w writer
	w.answer("session_close_response", r.RequestID, "ok")
	w.str("sessionId", r.SessionID)
	w.flag("processGone", true)
	w.flag("historyPreserved", true)
	w.flag("endpointStale", true)
	return w.done()
}

func (r ResumeResponse) Frame() ([]byte, error) {
	if !r.Mode.known() {
		return nil, errors.New("resume mode is not known")
	}
	var w writer
	w.answer("session_resume_response", r.RequestID, "ok")
	w.str("sessionId", r.SessionID)
	w.str("mode", string(r.Mode))
	w.endpoint(r.EndpointURL, r.ChatID)
	return w.done()
}

func (r ErrorResponse) Frame() ([]byte, error) {
	if !r.Reason.Known() {
		return nil, ErrUnknownReason
	}
	var w writer
	w.answer("session_lifecycle_error", r.RequestID, "error")
	w.str("reason", string(r.Reason))
	w.str("message", r.Message)
	if len(r.Candidates) > 0 {
		w.name("candidates")
		w.buf = append(w.buf, '[')
		for _, c := range r.Candidates {
			w.comma()
			w.open()
			w.str("sessionId", c.SessionID)
			w.opt("path", c.Path)
			if c.MtimeMs != nil {
				w.num("mtimeMs", *c.MtimeMs)
			}
			w.end()
		}
		w.buf = append(w.buf, ']')
	}
	return w.done()
}

func (r SessionReady) Frame() ([]byte, error) {
	var w writer
	w.open()
	w.str("type", "session_ready")
	w.str("sessionId", r.SessionID)
	w.opt("lifecycleRequestId", r.LifecycleRequestID)
	w.opt("startupPromptRef", r.StartupPromptRef)
	w.opt("repo", r.Repo)
	w.opt("branch", r.Branch)
	w.opt("title", r.Title)
	return w.done()
}

func (w *writer) answer(typ, requestID, status string) {
	w.open()
	w.str("type", typ)
	w.str("requestId", requestID)
	w.str("status", status)
}

func (w *writer) endpoint(url, chatID string) {
	w.name("endpoint")
	w.open()
	w.str("url", url)
	w.str("token", "")
	w.end()
	w.name("topic")
	w.open()
	w.str("chatId", chatID)
	w.str("threadId", "")
	w.end()
}

// NotProcessed is the generic answer (1.9): to a frame that was refused, to an
// error, and to every outcome that is terminal_uncertain. The id is bounded here.
func NotProcessed(requestID string) ErrorResponse {
	return ErrorResponse{RequestID: BoundRequestID(requestID), Reason: ReasonTerminalUncertain, Message: MessageNotProcessed}
}

// Unauthorized answers a frame whose token is not the one of the connection (1.1).
func Unauthorized(requestID string) ErrorResponse {
	return ErrorResponse{RequestID: BoundRequestID(requestID), Reason: ReasonUnauthorized, Message: MessageTokenMismatch}
}

// Status is how far a request came.
type Status int

const (
	// Failed is final: Reason and Message say why, nothing is done for it any more.
	Failed Status = iota
	// Pending is not decided yet.
	Pending
	// OK is done; Entry has the results.
	OK
)

// Outcome is what became of a request, before it is put into words for the wire.
type Outcome struct {
	Status     Status
	Entry      *Entry // of OK and Pending
	Reason     Reason // of Failed, as are the next two
	Message    string
	Candidates []Candidate
}

// Respond is the answer to a request (1.3, 1.9). It is about this request, not
// about the one that made the entry: a repeated request gets its own request
// id back. An OK outcome whose entry lacks its results is an error; the answer
// to that is NotProcessed.
func Respond(r Request, o Outcome) (Response, error) {
	switch o.Status {
	case Pending:
		return ErrorResponse{RequestID: r.RequestID, Reason: ReasonTerminalUncertain, Message: MessageInProgress}, nil
	case Failed:
		if o.Reason == ReasonTerminalUncertain {
			return NotProcessed(r.RequestID), nil
		}
		if !o.Reason.Known() {
			return nil, ErrUnknownReason
		}
		return ErrorResponse{RequestID: r.RequestID, Reason: o.Reason, Message: o.Message, Candidates: o.Candidates}, nil
	}
	e := o.Entry
	if e == nil || e.State != StateSuccess || e.Verb != r.Verb() {
		return nil, errors.New("outcome has no entry of a success of its verb")
	}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("outcome: %w", err)
	}
	switch r.Verb() {
	case SessionCreate:
		return CreateResponse{RequestID: r.RequestID, LifecycleRequestID: r.LifecycleRequestID, SessionID: *e.SessionID,
			EndpointURL: *e.EndpointURL, ChatID: r.ChatID, Target: r.Target}, nil
	case SessionResume:
		return ResumeResponse{RequestID: r.RequestID, SessionID: *e.SessionID, Mode: e.ResumeMode, EndpointURL: *e.EndpointURL, ChatID: r.ChatID}, nil
	}
	if !*e.ProcessGone {
		return nil, errors.New("outcome has a close that was not seen to end the process")
	}
	return CloseResponse{RequestID: r.RequestID, SessionID: *e.SessionID}, nil
}
