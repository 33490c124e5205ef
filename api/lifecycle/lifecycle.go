// Package lifecycle is the protocol in which chats, scripts and services ask
// for sessions: frames, canonical bytes, hashes, audit rows, the ledger
// document and the chat commands, exact to the byte. It means and decides
// nothing beyond that: who may ask, what is done and where it is kept is for
// others. No string is repaired on the way: text that is not Unicode stays as
// it came, and everything that writes refuses it.
package lifecycle

import "encoding/json"

// Verb is the type of a request frame (1.2).
type Verb string

const (
	SessionCreate Verb = "session_create"
	SessionClose  Verb = "session_close"
	SessionResume Verb = "session_resume"
)

func (v Verb) known() bool { return v == SessionCreate || v == SessionClose || v == SessionResume }

// TargetKind is the kind member of canonical target bytes and the targetKind
// of an audit row (1.4, 1.5).
type TargetKind string

const (
	KindExistingPath TargetKind = "existing_path"
	KindWorktree     TargetKind = "worktree"
	KindPlainDir     TargetKind = "plain_dir"
	KindClose        TargetKind = "session_close"
	KindResume       TargetKind = "session_resume"
)

// Target is what a request is about: ExistingPath, Worktree or PlainDir for
// session_create, CloseTarget for session_close, ResumeTarget for
// session_resume (1.2).
type Target interface {
	Kind() TargetKind
	verb() Verb
	// canonical writes the members that are hashed, wire those of a frame: they
	// differ in that an absent one is the word null in the first (1.4).
	canonical(w *writer)
	wire(w *writer)
	// summary writes what the ledger keeps of the target (1.7).
	summary(w *writer)
}

// ExistingPath creates a session in a directory that is there.
type ExistingPath struct{ Path string }

// Worktree creates a session in a worktree of Repo on Branch.
type Worktree struct{ Repo, Branch string }

// PlainDir creates a session in a directory that is made for it.
type PlainDir struct{ Path string }

// CloseTarget is a session to close. An absent optional is nil; an empty one is
// hashed as the empty string.
type CloseTarget struct {
	SessionID        string
	TmuxSession      *string
	SessionStateFile *string
}

// ResumeTarget is a session to resume, by its id or the beginning of it.
type ResumeTarget struct {
	SessionIDOrPrefix string
	Path              *string
}

func (ExistingPath) Kind() TargetKind { return KindExistingPath }
func (Worktree) Kind() TargetKind     { return KindWorktree }
func (PlainDir) Kind() TargetKind     { return KindPlainDir }
func (CloseTarget) Kind() TargetKind  { return KindClose }
func (ResumeTarget) Kind() TargetKind { return KindResume }

func (ExistingPath) verb() Verb { return SessionCreate }
func (Worktree) verb() Verb     { return SessionCreate }
func (PlainDir) verb() Verb     { return SessionCreate }
func (CloseTarget) verb() Verb  { return SessionClose }
func (ResumeTarget) verb() Verb { return SessionResume }

func (t ExistingPath) wire(w *writer) {
	w.str("kind", string(t.Kind()))
	w.str("path", t.Path)
}

func (t Worktree) wire(w *writer) {
	w.str("kind", string(t.Kind()))
	w.str("repo", t.Repo)
	w.str("branch", t.Branch)
}

func (t PlainDir) wire(w *writer) {
	w.str("kind", string(t.Kind()))
	w.str("path", t.Path)
}

func (t CloseTarget) wire(w *writer) {
	w.str("sessionId", t.SessionID)
	w.opt("tmuxSession", t.TmuxSession)
	w.opt("sessionStateFile", t.SessionStateFile)
}

func (t ResumeTarget) wire(w *writer) {
	w.str("sessionIdOrPrefix", t.SessionIDOrPrefix)
	w.opt("path", t.Path)
}

func (t ExistingPath) canonical(w *writer) { t.wire(w) }
func (t Worktree) canonical(w *writer)     { t.wire(w) }
func (t PlainDir) canonical(w *writer)     { t.wire(w) }

func (t CloseTarget) canonical(w *writer) {
	w.str("kind", string(t.Kind()))
	w.str("sessionId", t.SessionID)
	w.orNull("tmuxSession", t.TmuxSession)
	w.orNull("sessionStateFile", t.SessionStateFile)
}

func (t ResumeTarget) canonical(w *writer) {
	w.str("kind", string(t.Kind()))
	w.str("sessionIdOrPrefix", t.SessionIDOrPrefix)
	w.orNull("path", t.Path)
}

func (t ExistingPath) summary(w *writer) { t.wire(w) }
func (t Worktree) summary(w *writer)     { t.wire(w) }
func (t PlainDir) summary(w *writer)     { t.wire(w) }
func (t CloseTarget) summary(w *writer)  { w.str("sessionId", t.SessionID) }
func (t ResumeTarget) summary(w *writer) { w.str("sessionIdOrPrefix", t.SessionIDOrPrefix) }

// Summary is the targetSummary of a ledger entry (1.7). The error matches
// ErrNotUnicode.
func Summary(t Target) (json.RawMessage, error) {
	var w writer
	w.open()
	t.summary(&w)
	return w.done()
}

// Request is one request as its frame says it, without the token: that belongs
// to the connection and must not travel further (1.2). Which members count is
// up to the verb; an absent optional is nil, which is not the same as empty.
type Request struct {
	RequestID          string
	LifecycleRequestID string // create
	IntendedSessionID  string // create
	UpdateID           int64  // a safe integer: at most 2^53-1 away from 0
	ChatID             string
	Target             Target
	StartupPromptRef   *string // create, resume
	ModelPreset        *string // create
	Force              *bool   // close
}

// Verb is the frame type, which the target implies.
func (r Request) Verb() Verb {
	if r.Target == nil {
		return ""
	}
	return r.Target.verb()
}

// Frame is the request frame with the token of the connection that sends it,
// members in the order of 1.2. The error matches ErrNotUnicode, or
// ErrInvalidTarget when there is no target.
func (r Request) Frame(token string) ([]byte, error) {
	if r.Target == nil {
		return nil, ErrInvalidTarget
	}
	var w writer
	w.open()
	w.str("type", string(r.Verb()))
	w.str("requestId", r.RequestID)
	if r.Verb() == SessionCreate {
		w.str("lifecycleRequestId", r.LifecycleRequestID)
		w.str("intendedSessionId", r.IntendedSessionID)
	}
	w.num("updateId", r.UpdateID)
	w.str("chatId", r.ChatID)
	w.str("token", token)
	w.name("target")
	w.open()
	r.Target.wire(&w)
	w.end()
	switch r.Verb() {
	case SessionCreate:
		w.opt("startupPromptRef", r.StartupPromptRef)
		w.opt("modelPreset", r.ModelPreset)
	case SessionResume:
		w.opt("startupPromptRef", r.StartupPromptRef)
	case SessionClose:
		if r.Force != nil {
			w.flag("force", *r.Force)
		}
	}
	return w.done()
}
