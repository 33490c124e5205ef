package v1alpha1

// TmuxName is what people see as the name of the Session's tmux session.
func (s *Session) TmuxName() string {
	if s.Namespace == DefaultNamespace {
		return s.Name
	}
	return s.Namespace + "/" + s.Name
}
