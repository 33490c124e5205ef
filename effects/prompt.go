package effects

import (
	"fmt"
	"time"
)

// PromptRefVariable names, in the environment of a program, the file that holds
// its startup prompt. The program takes it once: it renames the file, reads it
// and removes it.
const PromptRefVariable = "SKC_STARTUP_PROMPT_REF"

// The ways in which a startup prompt comes to a program.
const (
	PromptByFile     = "File"
	PromptByPaste    = "Paste"
	PromptByArgument = "Argument"
)

// PromptState is how far the startup prompt of a Session came.
type PromptState string

// The states. From Delivered and Unknown nothing leads on: what may have been
// delivered is never delivered again.
const (
	PromptNone      PromptState = ""
	PromptIntended  PromptState = "Intended" // begun, and not proved yet
	PromptDelivered PromptState = "Delivered"
	PromptUnknown   PromptState = "Unknown" // nobody can tell whether the program got it
)

// PromptStatus is what is known of the startup prompt of one Session.
type PromptStatus struct {
	State    PromptState
	Delivery string // how it was begun; empty while nothing was
	Attempt  int64  // the start that takes it as an argument, or into which it was pasted
	Message  string // for people; stable while nothing changes, and holds nothing of the text
	// Again is when to ask again while it is Intended; 0 when only an effect of
	// the caller brings it on.
	Again time.Duration
}

// PromptTextError: this text can never be delivered in this way. Only an edit
// helps.
type PromptTextError struct{ Why string }

func (e *PromptTextError) Error() string { return "the startup prompt " + e.Why }

// PromptHeldError: the program cannot take its prompt now. Nothing was done;
// try again.
type PromptHeldError struct{ Why string }

func (e *PromptHeldError) Error() string {
	return fmt.Sprintf("the startup prompt is held back: %s", e.Why)
}

// TmuxScreen is what a pane shows.
type TmuxScreen struct {
	Lines            []string // without spaces at their ends, and without empty ones at the close
	CursorX, CursorY int
	TTY              string // the path of the pane's terminal
}
