package request

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// sessionIndex knows the id of every Session, and of every Session that lies in
// quarantine. It is filled at the first use, and then looks only at what changed.
type sessionIndex struct {
	mu    sync.Mutex
	ids   map[api.Key]string
	dirty map[api.Key]bool
	known bool
}

func (x *index) changed(key api.Key) {
	s := &x.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known { // else it will be seen with all others
		s.dirty[key] = true
	}
}

// named returns the Sessions and Quarantines of a namespace whose id fits, by name.
func (r *Reconciler) named(ctx context.Context, namespace string, fits func(id string) bool) ([]api.Key, error) {
	s := &r.index.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		if err := r.fill(ctx, s); err != nil {
			return nil, err
		}
	}
	for key := range s.dirty {
		id, err := r.idOf(ctx, key)
		if err != nil {
			return nil, err
		}
		delete(s.dirty, key)
		delete(s.ids, key)
		if id != "" {
			s.ids[key] = id
		}
	}
	var out []api.Key
	for key, id := range s.ids {
		if key.Namespace == namespace && fits(id) {
			out = append(out, key)
		}
	}
	slices.SortFunc(out, func(a, b api.Key) int {
		return strings.Compare(a.Kind+"\x00"+a.Name, b.Kind+"\x00"+b.Name)
	})
	return out, nil
}

func (r *Reconciler) fill(ctx context.Context, s *sessionIndex) error {
	sessions, err := r.Sessions.List(ctx)
	quarantines, qerr := r.Quarantines.List(ctx)
	if err := errors.Join(err, qerr); err != nil {
		return fmt.Errorf("list sessions: %w", err)
	}
	s.ids, s.dirty, s.known = map[api.Key]string{}, map[api.Key]bool{}, true
	for _, o := range sessions {
		s.ids[api.KeyOf(o)] = sessionID(o)
	}
	for _, q := range quarantines {
		if id := quarantinedID(q); id != "" {
			s.ids[api.KeyOf(q)] = id
		}
	}
	return nil
}

func (r *Reconciler) idOf(ctx context.Context, key api.Key) (string, error) {
	var id string
	var err error
	if key.Kind == v1alpha1.KindQuarantine {
		var q *v1alpha1.Quarantine
		if q, err = r.Quarantines.Get(ctx, key); err == nil {
			id = quarantinedID(q)
		}
	} else {
		var s *v1alpha1.Session
		if s, err = r.Sessions.Get(ctx, key); err == nil {
			id = sessionID(s)
		}
	}
	if errors.Is(err, effects.ErrNotFound) {
		return "", nil
	}
	return id, err
}

// sessionID is how requests know a Session: by its annotation, else by its name.
func sessionID(s *v1alpha1.Session) string {
	if id := s.Annotations[v1alpha1.SessionIDAnnotation]; id != "" {
		return id
	}
	return s.Name
}

// quarantinedID is the id of the Session that a Quarantine would give back, empty
// when it would give none.
func quarantinedID(q *v1alpha1.Quarantine) string {
	s := quarantinedSession(q)
	if s == nil {
		return ""
	}
	return sessionID(s)
}

func quarantinedSession(q *v1alpha1.Quarantine) *v1alpha1.Session {
	if q.Spec.Session == nil || q.Spec.Session.Definition == "" {
		return nil
	}
	var s v1alpha1.Session
	if json.Unmarshal([]byte(q.Spec.Session.Definition), &s) != nil || s.Name == "" {
		return nil
	}
	s.Namespace = q.Spec.Session.Namespace
	return &s
}

func sessionKey(namespace, name string) api.Key {
	return api.Key{Kind: v1alpha1.KindSession, Namespace: namespace, Name: name}
}

func condition(conditions []metav1.Condition, t string) metav1.Condition {
	for _, c := range conditions {
		if c.Type == t {
			return c
		}
	}
	return metav1.Condition{Type: t, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonObserving}
}

func running(s *v1alpha1.Session) metav1.Condition {
	return condition(s.Status.Conditions, v1alpha1.SessionRunning)
}

// stopped tells whether a look after the last change of the Session found that
// it should not run, and none of its processes.
func stopped(s *v1alpha1.Session) bool {
	c := running(s)
	return s.Spec.DesiredState == v1alpha1.DesiredStopped && s.Status.ObservedGeneration == s.Generation &&
		c.ObservedGeneration == s.Generation && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonStopped
}

// settingAside tells whether a deleted Session has no process any more.
func settingAside(s *v1alpha1.Session) bool {
	return s.DeletionTimestamp != nil && condition(s.Status.Conditions, v1alpha1.WorkspaceReady).Reason == v1alpha1.ReasonSettingAside
}

// neverRan are the ends of starts that came to no program.
var neverRan = []string{v1alpha1.ReasonCommandNotFound, v1alpha1.ReasonExecFailed, v1alpha1.ReasonStartFailed, v1alpha1.ReasonPermissionDenied,
	v1alpha1.ReasonWorkingDirectoryMissing}

// ran tells whether a program of the Session was seen since that start of it.
func ran(s *v1alpha1.Session, since int64) bool {
	t := s.Status.Tmux
	if t == nil || t.Attempt <= since {
		return false
	}
	if running(s).Status == metav1.ConditionTrue {
		return true
	}
	last := s.Status.LastTermination
	return last != nil && last.Attempt > since && !slices.Contains(neverRan, last.Reason)
}

// noHope are reasons of WorkspaceReady and SessionRunning for which a start that
// was asked for will not come about unless somebody helps.
var noHope = map[string][]string{
	v1alpha1.WorkspaceReady: {
		v1alpha1.ReasonWorkingDirectoryMissing, v1alpha1.ReasonWorkspaceFailed, v1alpha1.ReasonPermissionDenied,
		v1alpha1.ReasonBranchCheckedOutElsewhere, v1alpha1.ReasonBranchInvalid, v1alpha1.ReasonBranchCollision, v1alpha1.ReasonBaseNotFound,
		v1alpha1.ReasonRepositoryMissing, v1alpha1.ReasonNotARepository, v1alpha1.ReasonPathNotEmpty, v1alpha1.ReasonWorktreeMissing,
		v1alpha1.ReasonWorktreeMoved, v1alpha1.ReasonGitFailed, v1alpha1.ReasonGitMissing, v1alpha1.ReasonSetupFailed, v1alpha1.ReasonSetupInterrupted,
	},
	v1alpha1.SessionRunning: {
		v1alpha1.ReasonCommandNotFound, v1alpha1.ReasonExecFailed, v1alpha1.ReasonStartFailed, v1alpha1.ReasonPermissionDenied,
		v1alpha1.ReasonEnvironmentUnreadable, v1alpha1.ReasonNameTaken, v1alpha1.ReasonTmuxMissing, v1alpha1.ReasonOutOfTerminals,
		v1alpha1.ReasonProfileNotFound, v1alpha1.ReasonPresetUnknown, v1alpha1.ReasonConversationUnsupported, v1alpha1.ReasonConversationInUse,
		v1alpha1.ReasonSuspended, v1alpha1.ReasonRestartLimitExceeded,
	},
}

// hopeless says why the Session that should run will not.
func hopeless(s *v1alpha1.Session, since int64) (why string, ok bool) {
	for _, t := range []string{v1alpha1.WorkspaceReady, v1alpha1.SessionRunning} {
		c := condition(s.Status.Conditions, t)
		if c.ObservedGeneration == s.Generation && c.Status != metav1.ConditionTrue && slices.Contains(noHope[t], c.Reason) {
			return c.Reason + ": " + c.Message, true
		}
	}
	if last := s.Status.LastTermination; last != nil && last.Attempt > since && slices.Contains(neverRan, last.Reason) {
		return last.Reason + ": " + last.Message, true
	}
	return "", false
}

func attempt(s *v1alpha1.Session) int64 {
	if s.Status.Tmux == nil {
		return 0
	}
	return s.Status.Tmux.Attempt
}

// folder is where the Session runs, or would.
func (r *Reconciler) folder(s *v1alpha1.Session) string {
	if w := s.Status.Workspace; w != nil {
		return w.Path
	}
	switch t := s.Spec.Target; {
	case t.ExistingPath != nil:
		return r.path(string(t.ExistingPath.Path))
	case t.PlainDir != nil:
		return r.path(string(t.PlainDir.Path))
	case t.Worktree != nil:
		return r.path(string(t.Worktree.Path))
	}
	return ""
}

// path is a path as people write it, absolute.
func (r *Reconciler) path(p string) string {
	switch {
	case p == "":
		return ""
	case p == "~" || strings.HasPrefix(p, "~/"):
		return filepath.Join(r.UserHome, p[1:])
	}
	return filepath.Clean(p)
}

// stateFile is where the program of the Session keeps its state for others.
func (r *Reconciler) stateFile(s *v1alpha1.Session) string {
	return lifecycle.StateFile(r.folder(s), sessionID(s), s.TmuxName())
}
