package session

import (
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// tags are the options of the tmux session by which programs that speak the
// lifecycle protocol know it; none for a Session without an id of that kind.
func tags(s *v1alpha1.Session) (out []effects.TmuxTag) {
	id := s.Annotations[v1alpha1.SessionIDAnnotation]
	if id == "" || !effects.ControlFree(id) {
		return nil
	}
	out = []effects.TmuxTag{{Name: "@skc-profile", Value: "1"}, {Name: "@skc-session-id", Value: id}}
	if w := s.Status.Workspace; w != nil && effects.ControlFree(w.Path) {
		out = append(out, effects.TmuxTag{Name: "@skc-session-state-file", Value: lifecycle.StateFile(w.Path, id, s.TmuxName())})
	}
	return out
}
