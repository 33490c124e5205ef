package effects

import (
	"errors"
	"strings"
	"syscall"
	"time"
)

// The errors of what is set aside, beside ErrNotFound, ErrExists, ErrConflict and
// ErrUnreachable. Unless one says otherwise, everything is where it was.
var (
	// ErrMismatch: what is there is not what was named.
	ErrMismatch = errors.New("is something else")
	// ErrRefused: it cannot be moved, or not to there; nothing but a change by
	// hand helps.
	ErrRefused = errors.New("cannot be moved")
	// ErrUncertain: what is found does not say in one way how far a move came.
	ErrUncertain = errors.New("uncertain")
	// ErrLost: all places could be looked at, and it is at none.
	ErrLost = errors.New("lost")
	// ErrUnreadable: what is written about it cannot be read, or a newer skc wrote
	// it.
	ErrUnreadable = errors.New("cannot be read")
)

// DiskFull tells whether err says that there is no room left. git runs in the C
// locale, and says so in the system's words.
func DiskFull(err error) bool {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return true
	}
	cmd, ok := errors.AsType[*CommandError](err)
	return ok && (strings.Contains(cmd.Stderr, "No space left on device") || strings.Contains(cmd.Stderr, "Disk quota exceeded"))
}

// SetAside asks for one thing to be set aside.
type SetAside struct {
	// ID names it for good: lower-case letters, digits, dots and hyphens, at most 128.
	ID string
	// Origin is absolute, its links resolved.
	Origin string
	// Folder is true of a folder with all below it, false of a file.
	Folder   bool
	Identity FileIdentity
	// Definition is what the caller wants to know of it later. It is kept as given.
	Definition string
	Head       string
	Reason     string
	Retention  time.Duration
}

// KeptState is how far a thing that is set aside has come.
type KeptState string

// The states. Only KeptInPlace can go to two others.
const (
	KeptPlanned   KeptState = "Planned"   // to be set aside; it may be at its origin or at the planned place
	KeptInPlace   KeptState = "Kept"      // in quarantine
	KeptRestoring KeptState = "Restoring" // to be given back; it may be at either place
	KeptRestored  KeptState = "Restored"
	KeptRemoving  KeptState = "Removing" // the purge has begun; there is no way back
	KeptPurged    KeptState = "Purged"
)

// Kept is what is known of one thing that is set aside.
type Kept struct {
	ID         string
	Origin     string
	Place      string // where it is or, in the midst of a move, where it is meant to go
	From       string // where it was before the last move
	State      KeptState
	Definition string
	Head       string
	At         time.Time // when it was planned, by the clock on the wall
	// Elapsed is how long that is ago, by time that was seen to go by.
	Elapsed  time.Duration
	Attempts int
	Size     *KeptSize // nil while it was not counted
}

// KeptSize is how much a thing holds. A file with several names counts once a
// name.
type KeptSize struct{ Bytes, Files, Entries, Unreadable int64 }

// Stray is something in quarantine that does not fit together.
type Stray struct {
	ID   string // of the plan; empty for a thing without one
	Path string // of the thing, or of the plan
	Err  error
}

// OwnedWorktree is a worktree that carries our mark.
type OwnedWorktree struct {
	Path     string // any bytes
	UID      string // whose it is
	Branch   string // short name; empty when HEAD is detached
	Identity string // of the folder: device and inode
}

// Leftover is a file of ours that somebody has left.
type Leftover struct {
	Path string
	UID  string // of the Session it is for; empty for a file that is nobody's
	What string // in words
}
