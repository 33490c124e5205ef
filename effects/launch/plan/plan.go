// Package plan is what the controller tells the launcher, and what the launcher
// tells back when it could not start the program: two small files. It keeps
// every byte of arguments and environment, and it imports next to nothing, for
// it is linked into the launcher, whose start is part of every start.
//
// The launch file:
//
//	skc-launch 1\n
//	<arguments> <variables> <bytes that follow>\n
//	<folder>\0<argument>\0...<NAME=VALUE>\0...
//
// The kernel's strings hold no NUL, so NUL ends each. The counts tell a file
// that was cut from a whole one. The report of a failure:
//
//	skc-launch-failed 1\n
//	<reason>\n
//	<message>\n
package plan

import (
	"errors"
	"strconv"
	"strings"
)

// Plan is one start of one program.
type Plan struct {
	// Argv is the program and its arguments, at least the program.
	Argv []string
	// Env is the whole environment, as NAME=VALUE. The launcher adds only what
	// tmux alone knows: TERM (when it is not set here), TMUX and TMUX_PANE.
	Env []string
	// Dir is the absolute folder in which the program runs.
	Dir string
}

// FailedSuffix is what the name of a report has more than the launch file's.
const FailedSuffix = ".failed"

// Reasons of a failure. They are those of api/v1alpha1, which is too large to
// be linked into the launcher; a test holds them equal.
const (
	CommandNotFound         = "CommandNotFound"
	PermissionDenied        = "PermissionDenied"
	WorkingDirectoryMissing = "WorkingDirectoryMissing"
	ExecFailed              = "ExecFailed"
)

// Exit codes of the launcher when it could not start the program: those that
// shells and env(1) use.
const (
	ExitLauncher   = 125 // no launch file, or no folder to run in
	ExitNotRunable = 126 // the program is there and cannot be run
	ExitNotFound   = 127 // there is no such program
)

const (
	magic       = "skc-launch 1\n"
	magicFailed = "skc-launch-failed 1\n"
)

// MaxBytes is more than any plan that the kernel takes can have.
const MaxBytes = 32 << 20

// ErrFormat is matched when a file is not what this version writes, or was cut.
var ErrFormat = errors.New("not a launch file of this version, or cut short")

// Encode writes p. No string of p may hold a NUL.
func (p Plan) Encode() []byte {
	n := len(p.Dir) + 1
	for _, s := range p.Argv {
		n += len(s) + 1
	}
	for _, s := range p.Env {
		n += len(s) + 1
	}
	b := make([]byte, 0, len(magic)+64+n)
	b = append(b, magic...)
	b = strconv.AppendInt(b, int64(len(p.Argv)), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(p.Env)), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, '\n')
	b = append(append(b, p.Dir...), 0)
	for _, s := range p.Argv {
		b = append(append(b, s...), 0)
	}
	for _, s := range p.Env {
		b = append(append(b, s...), 0)
	}
	return b
}

// Decode reads back what Encode wrote. An error matches ErrFormat.
func Decode(data []byte) (Plan, error) {
	rest, ok := strings.CutPrefix(string(data), magic)
	counts, body, ok2 := strings.Cut(rest, "\n")
	f := strings.SplitN(counts, " ", 4)
	if !ok || !ok2 || len(f) != 3 {
		return Plan{}, ErrFormat
	}
	args, ok1 := number(f[0])
	vars, ok2 := number(f[1])
	size, ok3 := number(f[2])
	if !ok1 || !ok2 || !ok3 || args < 1 || size != len(body) || args+vars+1 > size {
		return Plan{}, ErrFormat
	}
	all := make([]string, 0, args+vars+1)
	for range args + vars + 1 {
		s, after, found := strings.Cut(body, "\x00")
		if !found {
			return Plan{}, ErrFormat
		}
		all, body = append(all, s), after
	}
	if body != "" {
		return Plan{}, ErrFormat
	}
	return Plan{Dir: all[0], Argv: all[1 : 1+args], Env: all[1+args:]}, nil
}

// number reads a count in the one form in which Encode writes it.
func number(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 0 && n <= MaxBytes && strconv.Itoa(n) == s
}

// Failure is why a program was not started.
type Failure struct {
	Reason  string // one of the constants above
	Message string // one sentence for people; holds no value of the environment
}

// Encode writes f. Line ends in the message become spaces.
func (f Failure) Encode() []byte {
	oneLine := strings.NewReplacer("\n", " ", "\r", " ")
	return []byte(magicFailed + oneLine.Replace(f.Reason) + "\n" + oneLine.Replace(f.Message) + "\n")
}

// DecodeFailure reads back what Encode wrote. An error matches ErrFormat.
func DecodeFailure(data []byte) (Failure, error) {
	rest, ok := strings.CutPrefix(string(data), magicFailed)
	reason, rest, ok2 := strings.Cut(rest, "\n")
	message, rest, ok3 := strings.Cut(rest, "\n")
	if !ok || !ok2 || !ok3 || rest != "" {
		return Failure{}, ErrFormat
	}
	return Failure{Reason: reason, Message: message}, nil
}
