package main

import (
	"context"
	"errors"
	"fmt"

	"skc.dev/skc/api"
	"skc.dev/skc/effects"
)

// Exit codes. Scripts match them: a number keeps its meaning.
// docs/exit-codes.md and "skcctl help exit-codes" are made of exitCodes.
const (
	exitOK            = 0
	exitFailure       = 1
	exitUsage         = 2
	exitInvalid       = 3
	exitNotFound      = 4
	exitTimeout       = 5
	exitNotRunning    = 6
	exitConflict      = 7
	exitDeleted       = 8
	exitNotInTerminal = 9
	exitRefused       = 10
	exitFailed        = 11
	exitUncertain     = 12
	exitInterrupted   = 130
)

var exitCodes = []struct {
	code    int
	name    string
	meaning string
}{
	{exitOK, "OK", "What was asked for is done, or was so already."},
	{exitFailure, "Failure", "Something failed: a file that cannot be written, a tmux that does not answer. The message says what to do."},
	{exitUsage, "Usage", "The command line is wrong: an unknown verb or flag, a missing argument, a name that no object can have, a question and no terminal to ask it on. Nothing was done."},
	{exitInvalid, "InvalidInput", "A file is refused. The messages are those of the spool: file, line, field. Nothing was changed."},
	{exitNotFound, "NotFound", "There is no such object, neither in the spool nor in the state."},
	{exitTimeout, "Timeout", "The time given by --timeout is over and the condition is not met."},
	{exitNotRunning, "ControllerNotRunning", "No skcd owns this home, so what is waited for cannot happen."},
	{exitConflict, "Conflict", "What is there stands in the way: two files define the object, a file holds something else, a name means several things, a key was used for another request, something was set aside under the name that is to be deleted, or the place where a thing should be given back is taken."},
	{exitDeleted, "Deleted", "The object was deleted while a condition of it was waited for."},
	{exitNotInTerminal, "NoTerminal", "The session has no terminal that can be used now: it does not run, or attach was called without a terminal."},
	{exitRefused, "RequestRefused", "The request is refused, and nothing was done: requests are switched off, the chat may not ask, there were too many, or the session is none that a request may close."},
	{exitFailed, "RequestFailed", "The request was accepted and failed: it was seen that it has no effect, or none any more. A session that is not there is 4, one of several 7."},
	{exitUncertain, "RequestUncertain", "What became of the request cannot be proven. It is never tried again: look first, then ask with another key."},
	{exitInterrupted, "Interrupted", "Ctrl-C, or another signal to end."},
}

var (
	errUsage      = errors.New("wrong usage")
	errTimeout    = errors.New("timed out")
	errNotRunning = errors.New("skcd is not running for this home")
	errDeleted    = errors.New("deleted while waiting")
	errNoTerminal = errors.New("no terminal")
	errRefused    = errors.New("the request is refused")
	errFailed     = errors.New("the request failed")
	errUncertain  = errors.New("the outcome of the request is not known")
)

// inTheWay is a conflict with what is there, in words for people.
type inTheWay struct{ text string }

func (e inTheWay) Error() string { return e.text }
func (e inTheWay) Unwrap() error { return effects.ErrConflict }

func conflictf(format string, args ...any) error { return inTheWay{fmt.Sprintf(format, args...)} }

// usageError is a wrong command line. The message is complete; the help of the
// command is pointed to when it is printed.
type usageError struct{ err error }

func (e *usageError) Error() string   { return e.err.Error() }
func (e *usageError) Unwrap() []error { return []error{errUsage, e.err} }

// exitCode is the code for err. Of several joined errors the most telling one
// counts: that the input is wrong before that something was not there.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if _, ok := api.AsInvalidSpec(err); ok {
		return exitInvalid
	}
	for _, m := range []struct {
		err  error
		code int
	}{
		{errUsage, exitUsage},
		{effects.ErrConflict, exitConflict},
		{errDeleted, exitDeleted},
		{errTimeout, exitTimeout},
		{errNotRunning, exitNotRunning},
		{errNoTerminal, exitNotInTerminal},
		{errUncertain, exitUncertain},
		{errRefused, exitRefused},
		{errFailed, exitFailed},
		{effects.ErrNotFound, exitNotFound},
		{context.Canceled, exitInterrupted},
	} {
		if errors.Is(err, m.err) {
			return m.code
		}
	}
	return exitFailure
}
