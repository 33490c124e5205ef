package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// The terminal of a session whose spec says nothing else. They are no defaults
// of the schema: what decides about a restart is read as it is written, so that
// a release with other defaults restarts nothing.
const (
	DefaultColumns      = 200
	DefaultRows         = 50
	DefaultHistoryLimit = 10000
)

// TerminalOrDefault is the terminal with every field set.
func (s *SessionSpec) TerminalOrDefault() TerminalSpec {
	t := TerminalSpec{}
	if s.Terminal != nil {
		t = *s.Terminal
	}
	if t.Columns == 0 {
		t.Columns = DefaultColumns
	}
	if t.Rows == 0 {
		t.Rows = DefaultRows
	}
	if t.HistoryLimit == 0 {
		t.HistoryLimit = DefaultHistoryLimit
	}
	return t
}

// LaunchDigest is the digest of what a program is started with: target,
// command or agent, env and terminal, as they are written. A change of it, and of nothing
// else in the spec, restarts a running program. A valueFrom counts by its path,
// not by the content of the file; base and setup of a worktree only say how it
// is made, and do not count.
func (s *SessionSpec) LaunchDigest() string {
	target := s.Target
	if w := target.Worktree; w != nil {
		target.Worktree = &WorktreeTarget{Repo: w.Repo, Branch: w.Branch, Path: w.Path}
	}
	launch := struct {
		Target   SessionTarget `json:"target"`
		Command  []string      `json:"command"`
		Agent    *AgentSpec    `json:"agent,omitempty"`
		Env      []EnvVar      `json:"env,omitempty"`
		Terminal *TerminalSpec `json:"terminal,omitempty"`
	}{target, s.Command, s.Agent, s.Env, s.Terminal}
	js, err := json.Marshal(launch)
	var keys any
	if err == nil {
		err = json.Unmarshal(js, &keys)
	}
	if err == nil {
		js, err = json.Marshal(keys) // sorted: moving a field in the types restarts nothing
	}
	if err != nil {
		panic(err) // these types cannot fail
	}
	sum := sha256.Sum256(js)
	return hex.EncodeToString(sum[:16])
}

// PromptDeliveryOrDefault is the way in which the startup prompt is delivered:
// unless told, an agent is spoken to as a person would, and a command finds a
// file.
func (s *SessionSpec) PromptDeliveryOrDefault() PromptDelivery {
	switch {
	case s.StartupPrompt != nil && s.StartupPrompt.Delivery != "":
		return s.StartupPrompt.Delivery
	case s.Agent != nil:
		return PromptPaste
	}
	return PromptFile
}

// or is d, or what stands for it when it is not set, as in an object that was
// made in code and never defaulted.
func or(d *Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// InitialBackoffOrDefault is the shortest wait before a restart that is not the
// first in a row.
func (r *RestartSpec) InitialBackoffOrDefault() time.Duration {
	return or(r.InitialBackoff, time.Second)
}

// MaxBackoffOrDefault is the longest wait before a restart.
func (r *RestartSpec) MaxBackoffOrDefault() time.Duration { return or(r.MaxBackoff, 5*time.Minute) }

// ResetAfterOrDefault is how long a program must run to count as healthy.
func (r *RestartSpec) ResetAfterOrDefault() time.Duration { return or(r.ResetAfter, 10*time.Minute) }

// GracePeriodOrDefault is the time from the signal to SIGKILL.
func (s *StopSpec) GracePeriodOrDefault() time.Duration { return or(s.GracePeriod, 10*time.Second) }

// DefaultRetention is how long a set-aside thing is kept unless told.
const DefaultRetention = 168 * time.Hour

// RetentionOrDefault is how long a set-aside workspace is kept.
func (c *CleanupSpec) RetentionOrDefault() time.Duration { return or(c.Retention, DefaultRetention) }

// SignalOrDefault is the signal that asks the program to end.
func (s *StopSpec) SignalOrDefault() StopSignal {
	if s.Signal == "" {
		return "SIGTERM"
	}
	return s.Signal
}

// PeriodOrDefault is the time between two looks, and the limit for one.
func (r *Readiness) PeriodOrDefault() time.Duration { return or(r.Period, time.Second) }

// DeadlineOrDefault is the time from the start after which a program that was
// never ready is late.
func (r *Readiness) DeadlineOrDefault() time.Duration { return or(r.Deadline, 2*time.Minute) }
