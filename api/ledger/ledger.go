// Package ledger is the one translation between a SessionRequest and the
// protocol of api/lifecycle: which object a frame becomes, which bytes its hash
// is over, and which ledger entry its status is. It keeps nothing.
package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
)

// Verbs that no frame has, as audit rows name them.
const (
	SessionDelete lifecycle.Verb = "session_delete"
	SessionFork   lifecycle.Verb = "session_fork"
)

// Name is the name of the object of a request: one for each source and key.
func Name(source, key string) string {
	sum := sha256.Sum256([]byte(source + "\x00" + key))
	return "rq-" + hex.EncodeToString(sum[:])[:40]
}

// Object is the request as an object. Its key is that of the ledger. The error
// matches lifecycle.ErrInvalidTarget when there is no target.
func Object(source string, r lifecycle.Request) (*v1alpha1.SessionRequest, error) {
	o := &v1alpha1.SessionRequest{Spec: v1alpha1.SessionRequestSpec{
		Source: source, Key: lifecycle.LedgerKey(r.ChatID, r.UpdateID),
		Requester:        &v1alpha1.Requester{ChatID: r.ChatID, UpdateID: r.UpdateID, RequestID: r.RequestID},
		StartupPromptRef: r.StartupPromptRef,
	}}
	o.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindSessionRequest}
	o.Namespace, o.Name = v1alpha1.DefaultNamespace, Name(source, o.Spec.Key)
	create := func(t v1alpha1.CreateTarget) {
		o.Spec.Verb, o.Spec.Target.Create, o.Spec.ModelPreset = v1alpha1.VerbCreate, &t, r.ModelPreset
		o.Spec.IDs = &v1alpha1.RequestIDs{LifecycleRequestID: r.LifecycleRequestID, IntendedSessionID: r.IntendedSessionID}
	}
	switch t := r.Target.(type) {
	case lifecycle.ExistingPath:
		create(v1alpha1.CreateTarget{Kind: string(t.Kind()), Path: &t.Path})
	case lifecycle.PlainDir:
		create(v1alpha1.CreateTarget{Kind: string(t.Kind()), Path: &t.Path})
	case lifecycle.Worktree:
		create(v1alpha1.CreateTarget{Kind: string(t.Kind()), Repo: &t.Repo, Branch: &t.Branch})
	case lifecycle.CloseTarget:
		o.Spec.Verb, o.Spec.Force = v1alpha1.VerbClose, r.Force
		o.Spec.Target.Session = &v1alpha1.SessionSelector{ID: t.SessionID, TmuxSession: t.TmuxSession, SessionStateFile: t.SessionStateFile}
	case lifecycle.ResumeTarget:
		o.Spec.Verb = v1alpha1.VerbResume
		o.Spec.Target.Session = &v1alpha1.SessionSelector{ID: t.SessionIDOrPrefix, Path: t.Path}
	default:
		return nil, lifecycle.ErrInvalidTarget
	}
	return o, nil
}

// Request is what the spec asks for, as a frame would say it. Delete has the
// target of a close, Fork that of a resume.
func Request(s *v1alpha1.SessionRequestSpec) lifecycle.Request {
	r := lifecycle.Request{StartupPromptRef: s.StartupPromptRef, ModelPreset: s.ModelPreset, Force: s.Force}
	if q := s.Requester; q != nil {
		r.ChatID, r.UpdateID, r.RequestID = q.ChatID, q.UpdateID, q.RequestID
	}
	if s.IDs != nil {
		r.LifecycleRequestID, r.IntendedSessionID = s.IDs.LifecycleRequestID, s.IDs.IntendedSessionID
	}
	switch create, session := s.Target.Create, s.Target.Session; {
	case s.Verb == v1alpha1.VerbCreate && create != nil:
		switch lifecycle.TargetKind(create.Kind) {
		case lifecycle.KindExistingPath:
			r.Target = lifecycle.ExistingPath{Path: text(create.Path)}
		case lifecycle.KindPlainDir:
			r.Target = lifecycle.PlainDir{Path: text(create.Path)}
		case lifecycle.KindWorktree:
			r.Target = lifecycle.Worktree{Repo: text(create.Repo), Branch: text(create.Branch)}
		}
	case session == nil:
	case s.Verb == v1alpha1.VerbClose || s.Verb == v1alpha1.VerbDelete:
		r.Target = lifecycle.CloseTarget{SessionID: session.ID, TmuxSession: session.TmuxSession, SessionStateFile: session.SessionStateFile}
	case s.Verb == v1alpha1.VerbResume || s.Verb == v1alpha1.VerbFork:
		r.Target = lifecycle.ResumeTarget{SessionIDOrPrefix: session.ID, Path: session.Path}
	}
	return r
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Verb is the verb as frames and audit rows name it.
func Verb(v v1alpha1.RequestVerb) lifecycle.Verb {
	switch v {
	case v1alpha1.VerbCreate:
		return lifecycle.SessionCreate
	case v1alpha1.VerbClose:
		return lifecycle.SessionClose
	case v1alpha1.VerbResume:
		return lifecycle.SessionResume
	case v1alpha1.VerbFork:
		return SessionFork
	}
	return SessionDelete
}

// Bytes are what makes two requests the same one: those of 1.4, and for Delete
// and Fork the same with their own verb. The error matches
// lifecycle.ErrInvalidTarget.
func Bytes(s *v1alpha1.SessionRequestSpec) ([]byte, error) {
	r := Request(s)
	b, err := lifecycle.CanonicalRequest(r)
	if err != nil {
		return nil, err
	}
	begin := func(v lifecycle.Verb) []byte { return []byte(`{"type":"` + string(v) + `",`) }
	rest, ok := bytes.CutPrefix(b, begin(r.Verb()))
	if !ok {
		return nil, lifecycle.ErrInvalidTarget
	}
	return append(begin(Verb(s.Verb)), rest...), nil
}

// Hash is the lower-case hex SHA-256 of Bytes, with the same error.
func Hash(s *v1alpha1.SessionRequestSpec) (string, error) {
	b, err := Bytes(s)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// ErrNoEntry is matched when an object has no entry of its own: it was not
// accepted, it repeats another one, or its verb is none of the ledger's.
var ErrNoEntry = errors.New("no entry in the ledger")

// Entry is the object's entry. Of a verb that the ledger document does not know
// it has what that document would ask for, but for the verb. The error matches
// ErrNoEntry or lifecycle.ErrNotUnicode.
func Entry(o *v1alpha1.SessionRequest) (lifecycle.Entry, error) {
	st := &o.Status
	if st.State == "" || st.Request == nil || st.DuplicateOf != "" {
		return lifecycle.Entry{}, ErrNoEntry
	}
	r := Request(st.Request)
	summary, err := lifecycle.Summary(r.Target)
	if err != nil {
		return lifecycle.Entry{}, err
	}
	e := lifecycle.Entry{
		RequestHash: st.RequestHash, State: lifecycle.State(st.State), RequestID: r.RequestID, Verb: Verb(st.Request.Verb),
		StartupPromptRef: r.StartupPromptRef, CreatedAt: milli(st.CreatedAt), UpdatedAt: milli(st.UpdatedAt), TargetSummary: summary,
		EndpointURL: st.EndpointURL, ProcessGone: st.ProcessGone,
	}
	if st.Request.IDs != nil {
		e.IntendedSessionID = &st.Request.IDs.IntendedSessionID
	}
	switch st.State {
	case v1alpha1.RequestSuccess:
		e.ResumeMode = lifecycle.Mode(st.ResumeMode)
	case v1alpha1.RequestFailure, v1alpha1.RequestUncertain:
		e.Reason = lifecycle.Reason(st.Reason)
	}
	for _, f := range []struct {
		to   **string
		from string
	}{{&e.SessionID, st.SessionID}, {&e.TmuxSession, st.TmuxSession}, {&e.SessionStateFile, st.SessionStateFile}} {
		if f.from != "" {
			*f.to = &f.from
		}
	}
	return e, nil
}

func milli(t *metav1.MicroTime) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMilli()
}

// Export is the ledger document of all entries that it can hold, and how many
// it cannot: those of Delete and Fork. A request of a chat has the key of that
// chat; another's is its source and its key, as is one that is taken.
func Export(all []*v1alpha1.SessionRequest) (l lifecycle.Ledger, left int, err error) {
	l = lifecycle.Ledger{}
	for _, o := range all {
		e, err := Entry(o)
		if errors.Is(err, ErrNoEntry) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if e.Verb == SessionDelete || e.Verb == SessionFork {
			left++
			continue
		}
		s := o.Status.Request
		key := s.Source + "/" + s.Key
		if q := s.Requester; q != nil {
			if chat := lifecycle.LedgerKey(q.ChatID, q.UpdateID); !has(l, chat) {
				key = chat
			}
		}
		if has(l, key) {
			key = o.Namespace + "/" + key
		}
		l[key] = e
	}
	return l, left, nil
}

func has(l lifecycle.Ledger, key string) bool { _, ok := l[key]; return ok }
