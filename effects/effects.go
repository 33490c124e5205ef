// Package effects holds the plain values and the sentinel errors that
// reconcilers and effects share. Each effect has a folder of its own below.
package effects

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	// ErrNotFound: a complete look found that the thing is not there.
	ErrNotFound = errors.New("not found")
	// ErrExists: the name is taken by something that is not ours.
	ErrExists = errors.New("exists already")
	// ErrConflict: what was read has changed since; read again and retry.
	ErrConflict = errors.New("changed since it was read")
	// ErrUnreachable: the other side does not answer. It may be there: unknown
	// is not absent.
	ErrUnreachable = errors.New("does not answer")
	// ErrUnavailable: what is needed is not installed or not allowed here.
	ErrUnavailable = errors.New("not available here")
	// ErrExhausted: the machine has too little of something left (terminals,
	// descriptors, processes, memory, disk).
	ErrExhausted = errors.New("exhausted")
	// ErrNotOwner: this process no longer owns the home; it must end.
	ErrNotOwner = errors.New("another controller owns this home")
)

// ProcessID names one process for good: a pid alone may be used again.
type ProcessID struct {
	PID int
	// StartTime is the kernel's own text for when the process started (on Linux
	// the clock ticks since boot from /proc/PID/stat).
	StartTime string
}

// LaunchID is what a started program carries, in the name of its launch file
// and so in tmux's record of the pane: whose it is, for which generation, and
// which start it is.
type LaunchID struct {
	UID        string // of the Session
	Generation int64
	Attempt    int64 // 1 for the first start of the Session
	// Digest of what it was started with, 16 hex digits; empty when not known.
	Digest string
}

// TmuxServer is one tmux server, proved.
type TmuxServer struct {
	Socket string
	ProcessID
}

// TmuxPane is what tmux holds of one session that we started.
type TmuxPane struct {
	Server    TmuxServer
	Launch    LaunchID
	Name      string // of the tmux session, for people
	SessionID string // $7
	WindowID  string // @7
	PaneID    string // %9
	Process   ProcessID
	// Dead is true when the program ended and the pane is kept. Process is then
	// the program that was.
	Dead bool
	// ExitKnown is false when the program is dead and tmux could not say how it
	// ended.
	ExitKnown bool
	ExitCode  int
	// Signal that ended it, as SIGKILL; empty when it exited.
	Signal string
}

// FileName is the name of the launch file of this start, and the mark by which
// a pane is recognised: <uid>.<generation>.<attempt>, and .<digest> if there is
// one.
func (l LaunchID) FileName() string {
	name := fmt.Sprintf("%s.%d.%d", l.UID, l.Generation, l.Attempt)
	if l.Digest != "" {
		name += "." + l.Digest
	}
	return name
}

var launchName = regexp.MustCompile(`^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([0-9]{1,18})\.([0-9]{1,18})(?:\.([0-9a-f]{16}))?$`)

// ParseLaunchID reads back what FileName wrote.
func ParseLaunchID(name string) (LaunchID, bool) {
	m := launchName.FindStringSubmatch(name)
	if m == nil {
		return LaunchID{}, false
	}
	g, _ := strconv.ParseInt(m[2], 10, 64) // 18 digits always fit
	a, _ := strconv.ParseInt(m[3], 10, 64)
	l := LaunchID{UID: m[1], Generation: g, Attempt: a, Digest: m[4]}
	return l, a > 0 && l.FileName() == name
}

// NewTmuxSession is what a tmux session is made of. Only its tags hold text of
// the user: the name is a checked one, and the program is named by its launch file.
type NewTmuxSession struct {
	// Name for people: a label of RFC 1123, or two joined by a slash (namespace/name).
	Name         string
	Columns      int
	Rows         int
	HistoryLimit int // lines
	Launch       LaunchID
	Tags         []TmuxTag
}

// TmuxTag is an option of a tmux session by which other programs know it. Name
// begins with "@"; Value may be any text of one line, and tmux reads nothing in it.
type TmuxTag struct{ Name, Value string }

// ControlFree tells whether text holds no control character, and so can be a
// TmuxTag's value.
func ControlFree(text string) bool {
	return !strings.ContainsFunc(text, unicode.IsControl) && utf8.ValidString(text)
}

// Launch is one start of a program, exactly as the kernel gets it.
type Launch struct {
	Argv []string
	Env  []string // NAME=VALUE, complete
	Dir  string
}

// LaunchFailure says why a program never ran.
type LaunchFailure struct {
	Reason  string // a reason of SessionRunning
	Message string
}
