package session

import (
	"context"

	"skc.dev/skc/api/v1alpha1"

	"skc.dev/skc/api"
	"skc.dev/skc/effects"
)

// Store is what this package needs of the objects.
type Store interface {
	// Get returns a private copy, or an error matching effects.ErrNotFound.
	Get(ctx context.Context, key api.Key) (*v1alpha1.Session, error)
	// List is all Sessions, or an error.
	List(ctx context.Context) ([]*v1alpha1.Session, error)
	// Update writes finalizers and status of after, if they differ from before's,
	// and sets its resourceVersion; an object that changed since before was read
	// is effects.ErrConflict.
	Update(ctx context.Context, before, after *v1alpha1.Session) error
}

// Multiplexer is tmux: one private server, sessions that carry a LaunchID.
// Every error but ErrNotFound, ErrExists and ErrExhausted leaves open what is
// there; with ErrUnavailable tmux was not told anything.
type Multiplexer interface {
	// Get returns the pane that carries the UID, dead or alive. effects.ErrNotFound
	// only when a complete look at a proven server, or the proof that there is no
	// server, shows that there is none.
	Get(ctx context.Context, uid string) (effects.TmuxPane, error)
	// Look makes the next Get answer from a new complete look.
	Look(ctx context.Context) error
	// Server returns the proven server; effects.ErrNotFound when it is proven gone.
	Server(ctx context.Context) (effects.TmuxServer, error)
	// Create makes a session and starts its launch file; effects.ErrExists when the
	// name is taken, effects.ErrExhausted when there are no terminals left.
	Create(ctx context.Context, want effects.NewTmuxSession) (effects.TmuxPane, error)
	// Respawn starts another launch file in the pane; who is attached stays so.
	Respawn(ctx context.Context, pane effects.TmuxPane, launch effects.LaunchID) (effects.TmuxPane, error)
	// Tag sets what other programs know the tmux session by; none is no call.
	Tag(ctx context.Context, pane effects.TmuxPane, tags []effects.TmuxTag) error
	// Kill ends the tmux session of the pane; one that is gone is a success.
	Kill(ctx context.Context, pane effects.TmuxPane) error
	// Capture returns the last lines of the pane's text.
	Capture(ctx context.Context, pane effects.TmuxPane, lines int) ([]string, error)
}

// Launcher keeps the launch files.
type Launcher interface {
	// Environment is the complete environment of the session's program. An error
	// matches effects.ErrUnavailable when a file that a value is read from cannot
	// be read; it names variable and file and never a value.
	Environment(s *v1alpha1.Session) ([]string, error)
	// Write writes the launch file; one that is there is replaced.
	Write(id effects.LaunchID, l effects.Launch) error
	// Failure says why the start failed before the program ran; nil when it did not.
	Failure(id effects.LaunchID) (*effects.LaunchFailure, error)
	// Started waits until the launcher has become the program: true; false when it
	// failed, or died, or took longer than some seconds.
	Started(ctx context.Context, id effects.LaunchID, p effects.ProcessID) bool
	// Clear removes what is left of any start of the session; nothing there is a
	// success.
	Clear(uid string) error
}

// Processes finds and ends all processes of a session, whatever terminal,
// process group or parent they have.
type Processes interface {
	// Prepare makes the session's control group anew, where there are such.
	Prepare(uid string) error
	// Join has the program that runs brought into the session's control group,
	// without waiting. Asking again costs nothing.
	Join(uid string, main effects.ProcessID)
	// List is complete, or an error.
	List(ctx context.Context, uid string) ([]effects.ProcessID, error)
	// Signal sends the signal, as SIGTERM, to all of them, and to main.
	Signal(ctx context.Context, uid string, main effects.ProcessID, signal string) error
	// Kill ends all of them, and main, by SIGKILL; it returns how many it hit.
	Kill(ctx context.Context, uid string, main effects.ProcessID) (int, error)
	// Release removes the session's control group.
	Release(uid string) error
	// OOMKilled tells whether the kernel killed one of them for want of memory.
	OOMKilled(uid string) (bool, error)
	// Watch calls died once, when the process has ended.
	Watch(p effects.ProcessID, died func()) error
}

// Prober looks at the readiness of running programs, on its own time.
type Prober interface {
	// Ensure keeps one probe going and returns what it last saw.
	Ensure(key api.Key, id effects.LaunchID, spec *v1alpha1.Readiness, target ProbeTarget) ProbeResult
	// Stop ends the probe of key, if there is one.
	Stop(key api.Key)
}

// ProbeTarget is what a probe looks at.
type ProbeTarget struct {
	Dir    string
	Env    []string
	Screen func(ctx context.Context) ([]string, error)
}

// ProbeResult is what a probe last saw.
type ProbeResult struct {
	Known   bool // false before the first look has ended
	OK      bool
	Message string // stable between looks that see the same
}

// Recorder keeps events for people.
type Recorder interface {
	Event(obj api.Object, eventType, reason, message string)
}
