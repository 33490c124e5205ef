package quarantine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// Code says why something was not done. It is matched with errors.Is. Unless
// the error says otherwise, everything is where it was.
type Code string

// The codes of the exact-removal contract.
const (
	// IdentityMismatch: what is there is not what was named.
	IdentityMismatch Code = "identity_mismatch"
	// ReparsePoint: a symbolic link is where a folder or the thing itself should be.
	ReparsePoint Code = "reparse_point"
	// NotRegularFile: something other than a folder or a regular file.
	NotRegularFile Code = "not_regular_file"
	// NotDirectory: no folder where one should be.
	NotDirectory Code = "not_directory"
	// QuarantineCollision: each planned name that was tried is taken.
	QuarantineCollision Code = "quarantine_collision"
	// QuarantineDestinationRequired: there is no place on the thing's own file
	// system. Nothing is copied; CrossDevice is matched too.
	QuarantineDestinationRequired Code = "quarantine_destination_required"
	// IOError: the system refused; its errno is matched too.
	IOError Code = "io_error"
	// NotFound: a complete look did not find it. effects.ErrNotFound is matched too.
	NotFound Code = "not_found"
)

// The codes beyond the contract.
const (
	// Uncertain: what is found does not say in one way how far the last attempt
	// came. Nothing is touched until somebody has looked.
	Uncertain Code = "uncertain"
	// Lost: all places could be looked at, and what was set aside is at none.
	Lost Code = "lost"
	// PlaceTaken: something is where a thing should be given back to.
	// effects.ErrExists is matched too.
	PlaceTaken Code = "place_taken"
	// CrossDevice: the other place is on another file system (or another mount),
	// and nothing is moved by copying.
	CrossDevice Code = "cross_device"
	// Mounted: the thing is a mount point, or something is mounted below it.
	Mounted Code = "mounted"
	// Damaged: a plan cannot be read as one.
	Damaged Code = "damaged"
	// NewerVersion: a plan was written by a newer skc.
	NewerVersion Code = "newer_version"
	// OriginRefused: this path is never set aside or given back to.
	OriginRefused Code = "origin_refused"
)

func (c Code) Error() string { return string(c) }

// Is matches the sentinels that reconcilers know.
func (c Code) Is(target error) bool {
	switch target {
	case effects.ErrNotFound:
		return c == NotFound
	case effects.ErrExists:
		return c == PlaceTaken
	case effects.ErrMismatch:
		return c == IdentityMismatch
	case effects.ErrLost:
		return c == Lost
	case effects.ErrUncertain:
		return c == Uncertain
	case effects.ErrUnreadable:
		return c == Damaged || c == NewerVersion
	case effects.ErrRefused:
		switch c {
		case ReparsePoint, NotRegularFile, NotDirectory, QuarantineCollision, QuarantineDestinationRequired, CrossDevice, Mounted, OriginRefused:
			return true
		}
		return false
	case CrossDevice:
		return c == CrossDevice || c == QuarantineDestinationRequired
	}
	return target == error(c)
}

// Error is a Code with what it is about.
type Error struct {
	Code Code
	Path string // printed quoted: names are the user's
	Text string // what was found, for people
	Err  error  // of the system, or nil
}

func (e *Error) Error() string {
	s := string(e.Code)
	if e.Path != "" {
		s += fmt.Sprintf(" %q", e.Path)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the code and the system's error.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Err}
}

// failed maps an errno to its code.
func failed(path, doing string, err error) error {
	if err == nil {
		return nil
	}
	code := IOError
	switch {
	case errors.Is(err, unix.ENOENT):
		code = NotFound
	case errors.Is(err, unix.ENOTDIR):
		code = NotDirectory
	case errors.Is(err, unix.ELOOP):
		code = ReparsePoint
	case errors.Is(err, unix.EXDEV):
		code = CrossDevice
	case errors.Is(err, unix.EBUSY):
		code = Mounted
	case errors.Is(err, unix.EEXIST):
		code = QuarantineCollision
	}
	return &Error{Code: code, Path: path, Text: doing, Err: err}
}
