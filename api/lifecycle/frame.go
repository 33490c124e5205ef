package lifecycle

import "unicode/utf8"

// Verdict is what a frame turned out to be (1.1, 1.2).
type Verdict int

const (
	// Malformed is no JSON, or too deep: it gets no answer.
	Malformed Verdict = iota
	// UnknownType has no type that can be read, hence no token either.
	UnknownType
	// Refused does not pass admission.
	Refused
	// InvalidTarget would pass, but holds text that is not Unicode.
	InvalidTarget
	// Admitted is a request.
	Admitted
)

// Frame is what was read of one frame. A transport that checks tokens does so
// after Malformed and UnknownType and before it acts on any other verdict.
type Frame struct {
	Verdict Verdict
	// RequestID is what an answer carries: bounded, and empty when the frame
	// has none that can be repeated.
	RequestID string
	// Token is empty when the frame has none that can be read, which is never
	// the token of a connection.
	Token string
	// Request is set when Verdict is Admitted.
	Request Request
}

// ParseFrame reads a request frame (1.2). Lone surrogates and bad UTF-8 are
// seen in the text as it came, before anything could repair them; a member that
// is there twice counts as none, as readers differ in which of the two they take.
func ParseFrame(data []byte) Frame {
	doc, err := read(data)
	if err != nil {
		return Frame{Verdict: Malformed}
	}
	verb := Verb(doc.member("type").str)
	if doc.member("type").kind != text || !verb.known() {
		return Frame{Verdict: UnknownType}
	}
	f := Frame{Verdict: Refused}
	if id := doc.member("requestId"); id.kind == text {
		f.RequestID = BoundRequestID(id.str)
	}
	if token := doc.member("token"); token.kind == text {
		f.Token = token.str
	}
	r, ok := admit(verb, doc)
	switch {
	case !ok:
	case doc.notUnicode:
		f.Verdict = InvalidTarget
	default:
		f.Verdict, f.Request = Admitted, r
	}
	return f
}

// Answer is what a frame that is no request gets; false when it gets none or is
// Admitted. The answer tells nothing of what was wrong (1.9).
func (f Frame) Answer() (ErrorResponse, bool) {
	switch f.Verdict {
	case UnknownType:
		return Unauthorized(""), true
	case Refused:
		return NotProcessed(f.RequestID), true
	case InvalidTarget:
		return ErrorResponse{RequestID: f.RequestID, Reason: ReasonInvalidTarget, Message: MessageInvalidTarget}, true
	}
	return ErrorResponse{}, false
}

// BoundRequestID cuts a request id to 128 bytes, never within a code point; one
// that is not Unicode cannot be repeated and gives the empty string (1.9).
func BoundRequestID(id string) string {
	if !utf8.ValidString(id) {
		return ""
	}
	if len(id) <= MaxRequestIDBytes {
		return id
	}
	end := MaxRequestIDBytes
	for !utf8.RuneStart(id[end]) {
		end--
	}
	return id[:end]
}

// admission collects the members of a request; one that is not as it must be
// fails the whole.
type admission struct{ failed bool }

func (a *admission) require(ok bool) {
	if !ok {
		a.failed = true
	}
}

func (a *admission) str(v value) string {
	a.require(v.kind == text)
	return v.str
}

// id is a string that is repeated or compared later, so it must be Unicode.
func (a *admission) id(v value) string {
	a.require(utf8.ValidString(v.str))
	return a.str(v)
}

// opt is nil when the member is absent. null is not absent.
func (a *admission) opt(v value) *string {
	if v.kind == absent {
		return nil
	}
	s := a.str(v)
	return &s
}

// admit applies the admission rules of 1.2.
func admit(verb Verb, doc document) (Request, bool) {
	var a admission
	a.require(!doc.duplicate)
	r := Request{RequestID: a.id(doc.member("requestId")), ChatID: a.id(doc.member("chatId"))}
	a.require(len(r.RequestID) <= MaxRequestIDBytes)
	a.opt(doc.member("token"))
	var ok bool
	r.UpdateID, ok = doc.member("updateId").safeInteger()
	a.require(ok)

	target := doc.member("target")
	a.require(target.kind == object)
	switch verb {
	case SessionCreate:
		r.LifecycleRequestID = a.id(doc.member("lifecycleRequestId"))
		r.IntendedSessionID = a.id(doc.member("intendedSessionId"))
		a.require(r.LifecycleRequestID != "" && r.IntendedSessionID != "")
		r.StartupPromptRef = a.opt(doc.member("startupPromptRef"))
		r.ModelPreset = a.opt(doc.member("modelPreset"))
		switch TargetKind(a.str(target.member("kind"))) {
		case KindExistingPath:
			r.Target = ExistingPath{Path: a.str(target.member("path"))}
		case KindWorktree:
			r.Target = Worktree{Repo: a.str(target.member("repo")), Branch: a.str(target.member("branch"))}
		case KindPlainDir:
			r.Target = PlainDir{Path: a.str(target.member("path"))}
		default:
			a.require(false)
		}
	case SessionClose:
		r.Target = CloseTarget{
			SessionID:        a.str(target.member("sessionId")),
			TmuxSession:      a.opt(target.member("tmuxSession")),
			SessionStateFile: a.opt(target.member("sessionStateFile")),
		}
		if force := doc.member("force"); force.kind != absent {
			a.require(force.kind == boolean)
			r.Force = &force.yes
		}
	case SessionResume:
		r.Target = ResumeTarget{
			SessionIDOrPrefix: a.str(target.member("sessionIdOrPrefix")),
			Path:              a.opt(target.member("path")),
		}
		r.StartupPromptRef = a.opt(doc.member("startupPromptRef"))
	}
	if a.failed {
		return Request{}, false
	}
	return r, true
}
