package prompt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/process"
)

// paste is one that is under way. It lives only here: whoever comes after a
// crash cannot go on with it, since it cannot know what was on the screen.
type paste struct {
	pane    effects.TmuxPane
	reader  Reader
	text    string
	before  effects.TmuxScreen // before the paste, and then before Enter
	since   time.Time          // when it was pasted, and then when Enter was pressed
	seen    time.Time          // when the screen first showed the paste
	entered bool               // Enter was pressed, or may have been
	lost    string             // why nobody can tell, when that is not on the disk yet
}

// Paste does the next step of pasting the prompt into the pane's program, at
// most one a call, and returns how far it came: call it again after Again until
// the state is not Intended. What is not the first prompt of this UID is not
// pasted.
//
// An *effects.PromptHeldError means that the program cannot take it yet and that
// nothing was done, an *effects.PromptTextError that it never can. With any other
// error nothing is known to have changed; call it again.
func (p *Prompter) Paste(ctx context.Context, pane effects.TmuxPane, text string) (effects.PromptStatus, error) {
	s, err := p.paste(ctx, pane, text)
	if err != nil {
		return s, fmt.Errorf("paste the startup prompt of %s: %w", pane.Launch.UID, err)
	}
	return s, nil
}

func (p *Prompter) paste(ctx context.Context, pane effects.TmuxPane, text string) (effects.PromptStatus, error) {
	uid := pane.Launch.UID
	r, err := p.read(uid)
	if err != nil {
		return effects.PromptStatus{}, err
	}
	p.mu.Lock()
	under := p.pastes[uid]
	p.mu.Unlock()
	switch {
	case r.State == effects.PromptNone:
		return p.begin(ctx, pane, text)
	case r.State == effects.PromptIntended && r.Delivery == effects.PromptByPaste && under != nil:
		return p.follow(ctx, r, under)
	}
	return p.Status(ctx, uid)
}

// begin pastes, if the program can take it.
func (p *Prompter) begin(ctx context.Context, pane effects.TmuxPane, text string) (effects.PromptStatus, error) {
	none := effects.PromptStatus{}
	text, err := pasteText(text)
	if err != nil {
		return none, err
	}
	under, err := p.ready(ctx, pane, text)
	if err != nil {
		return none, err
	}
	uid := pane.Launch.UID
	r, err := p.intend(uid, effects.PromptByPaste, pane.Launch.Attempt)
	if err != nil { // it may lie there all the same
		return none, errors.Join(err, p.withdraw(uid))
	}
	err = p.o.Terminal.Paste(ctx, pane, []byte(text))
	switch {
	case errors.Is(err, effects.ErrUnreachable):
		return p.brokenOff(ctx, r, "tmux gave no answer when the prompt was pasted; look at the terminal, and paste it by hand if it is not there")
	case err != nil:
		if err := p.withdraw(uid); err != nil {
			return none, err
		}
		return none, &effects.PromptHeldError{Why: err.Error()}
	}
	under.since = p.o.Clock.Now()
	p.mu.Lock()
	p.pastes[uid] = under
	p.mu.Unlock()
	s := r.status()
	s.Message, s.Again = "pasted; not seen to be taken yet", lookAgain
	return s, nil
}

// cooked is the longest line that a terminal which collects lines holds.
const cooked = 4095

// ready looks whether the program can take a paste now. What keeps it from that
// is an *effects.PromptHeldError.
func (p *Prompter) ready(ctx context.Context, pane effects.TmuxPane, text string) (*paste, error) {
	if pane.Dead {
		return nil, &effects.PromptHeldError{Why: "the program has ended"}
	}
	screen, err := p.o.Terminal.Screen(ctx, pane)
	if errors.Is(err, effects.ErrNotFound) {
		return nil, &effects.PromptHeldError{Why: "the pane is gone"}
	}
	if err != nil {
		return nil, err
	}
	reader, err := p.o.Reader(ctx, pane, screen.TTY)
	if errors.Is(err, effects.ErrNotFound) {
		return nil, &effects.PromptHeldError{Why: "what is in the foreground of the terminal is no program of the session"}
	}
	if err != nil {
		return nil, err
	}
	if reader.Lines && (strings.Contains(text, "\n") || len(text) > cooked) {
		// It would be taken apart, and its first line acted upon.
		return nil, &effects.PromptHeldError{Why: fmt.Sprintf("the program reads its terminal line by line, and the prompt is more than one line of at most %d bytes", cooked)}
	}
	return &paste{pane: pane, reader: reader, text: text, before: screen}, nil
}

// follow looks what became of a paste, and presses Enter once it was seen.
func (p *Prompter) follow(ctx context.Context, r receipt, under *paste) (effects.PromptStatus, error) {
	if under.lost != "" {
		return p.settle(r, effects.PromptUnknown, under.lost)
	}
	screen, err := p.o.Terminal.Screen(ctx, under.pane)
	switch {
	case errors.Is(err, effects.ErrNotFound):
		return p.settle(r, effects.PromptUnknown, "the session's terminal went away while the prompt was pasted")
	case err != nil:
		return r.status(), err
	case under.entered:
		return p.proof(r, under, screen)
	}
	now := p.o.Clock.Now()
	if under.seen.IsZero() && shown(under.before.Lines, screen.Lines, under.text) {
		under.seen = now
	}
	s := r.status()
	switch {
	case under.seen.IsZero() && now.Sub(under.since) >= shownWithin:
		return p.settle(r, effects.PromptUnknown, "the prompt was pasted and the screen does not show it; Enter was not pressed: look at the terminal")
	case under.seen.IsZero():
		s.Message, s.Again = "pasted; not seen to be taken yet", lookAgain
		return s, nil
	case now.Sub(under.seen) < calm:
		s.Message, s.Again = "pasted; not seen to be taken yet", calm-now.Sub(under.seen)
		return s, nil
	}
	reader, err := p.o.Reader(ctx, under.pane, screen.TTY)
	if err != nil && !errors.Is(err, effects.ErrNotFound) {
		return s, err
	}
	if err != nil || reader.Process != under.reader.Process {
		return p.settle(r, effects.PromptUnknown, "the prompt was pasted, and another program came to the foreground before Enter was pressed: look at the terminal")
	}
	// From here on no second Enter may follow, whatever comes.
	under.entered, under.before, under.since = true, screen, now
	if err = p.o.Terminal.Enter(ctx, under.pane); err != nil {
		under.lost = "the prompt was pasted, and Enter could not be pressed: look at the terminal"
		if errors.Is(err, effects.ErrUnreachable) {
			under.lost = "the prompt was pasted, and tmux gave no answer when Enter was pressed: look at the terminal"
		}
		return p.settle(r, effects.PromptUnknown, under.lost)
	}
	s.Message, s.Again = "pasted and entered; not seen to be taken yet", lookAgain
	return s, nil
}

// proof looks whether the screen changed after Enter.
func (p *Prompter) proof(r receipt, under *paste, screen effects.TmuxScreen) (effects.PromptStatus, error) {
	was := under.before
	if !slices.Equal(screen.Lines, was.Lines) || screen.CursorX != was.CursorX || screen.CursorY != was.CursorY {
		return p.settle(r, effects.PromptDelivered, "the screen showed the prompt and then took Enter")
	}
	if p.o.Clock.Since(under.since) >= shownWithin {
		return p.settle(r, effects.PromptUnknown, "the prompt was pasted and entered, and the screen did not change: look at the terminal")
	}
	s := r.status()
	s.Message, s.Again = "pasted and entered; not seen to be taken yet", lookAgain
	return s, nil
}

// brokenOff settles a paste of which nobody knows how far it came.
func (p *Prompter) brokenOff(ctx context.Context, r receipt, message string) (effects.PromptStatus, error) {
	if err := p.o.Terminal.DropPaste(ctx, r.UID); err != nil {
		return r.status(), err // the text must not stay there; until then it is Intended, and nothing goes on
	}
	return p.settle(r, effects.PromptUnknown, message)
}

// Foreground is Options.Reader for real processes: the leader of the process
// group in the foreground of the pane's terminal, if it is the pane's program or
// another process of the session.
func Foreground(sessions *process.Sessions) func(ctx context.Context, pane effects.TmuxPane, tty string) (Reader, error) {
	return func(ctx context.Context, pane effects.TmuxPane, tty string) (Reader, error) {
		id, err := process.Foreground(pane.Process)
		if err != nil {
			return Reader{}, err
		}
		if id != pane.Process {
			all, err := sessions.List(ctx, pane.Launch.UID)
			if err != nil {
				return Reader{}, err
			}
			if !slices.Contains(all, id) {
				return Reader{}, fmt.Errorf("process %d is not of the session: %w", id.PID, effects.ErrNotFound)
			}
		}
		lines, err := collectsLines(tty)
		return Reader{Process: id, Lines: lines}, err
	}
}
