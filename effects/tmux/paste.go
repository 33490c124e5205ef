package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
)

var (
	pointPaste = fault.New("tmux.paste")
	pointEnter = fault.New("tmux.enter")
)

// ErrInputOff is matched when somebody turned a pane's input off, so that
// nothing would come to its program.
var ErrInputOff = errors.New("the pane's input is turned off")

// guard runs three commands for a pane, the last of which prints "done", only
// while exactly this program lives in it and hears what is typed: decided and
// done in one step of the server. (Pasting into a dead pane ends tmux 3.3a with
// all its sessions.) Instead it runs otherwise and prints what the pane is.
func guard(pane effects.TmuxPane, commands, otherwise string) *command {
	is := "#{pane_id} #{pane_pid} #{pane_dead} #{pane_input_off}"
	want := fmt.Sprintf("%s %d 0 0", pane.PaneID, pane.Process.PID)
	return &command{
		// Without the pane tmux asks another one, which is not it.
		line: "if-shell -F -t " + quote(pane.PaneID) + " " + quote("#{==:"+is+","+want+"}") + " " +
			quote(commands+` ; display-message -p done`) + " " +
			quote(otherwise+` ; display-message -p -t "`+pane.PaneID+`" "`+is+`"`),
		blocks: 4,
	}
}

// guarding sends a command of guard. An error matches effects.ErrUnreachable
// only when nobody knows whether it was done, and else ErrDead, ErrInputOff or
// effects.ErrNotFound.
func (c *Client) guarding(ctx context.Context, cn *conn, pane effects.TmuxPane, cmd *command, point fault.Point) error {
	if err := c.runSeen(ctx, cn, cmd, point); err != nil {
		return err
	}
	if cmd.reply.err != "" {
		return fmt.Errorf("tmux says %q", cmd.reply.err)
	}
	out := strings.Join(lastBlock(&cmd.reply), " ")
	if out == "done" {
		return point.At(fault.After)
	}
	f := strings.Fields(out)
	switch {
	case len(f) != 4 || f[0] != pane.PaneID:
		return effects.ErrNotFound
	case f[1] != strconv.Itoa(pane.Process.PID) || f[2] != "0":
		return ErrDead
	}
	return ErrInputOff
}

// Paste puts text into the program that was seen in the pane, and into no
// other, as if it were pasted: in brackets if the program asked for them, line
// ends as a terminal sends them. It presses no Enter. The text comes to tmux by
// a pipe and stays in no buffer of it.
//
// An error that matches effects.ErrUnreachable means that nobody knows whether
// it was pasted; call DropPaste then. With any other error nothing was: it may
// match ErrInvalid, ErrDead, ErrInputOff or effects.ErrNotFound.
func (c *Client) Paste(ctx context.Context, pane effects.TmuxPane, text []byte) error {
	if err := c.paste(ctx, pane, text); err != nil {
		return fmt.Errorf("paste into tmux pane %s (%s): %w", pane.PaneID, pane.Name, err)
	}
	return nil
}

func (c *Client) paste(ctx context.Context, pane effects.TmuxPane, text []byte) error {
	if len(text) == 0 || !utf8.Valid(text) || !uidPattern.MatchString(pane.Launch.UID) {
		return fmt.Errorf("%w: no text, or a pane of nobody", ErrInvalid)
	}
	cn, err := c.readyToType(ctx, pane)
	if err != nil {
		return err
	}
	if err := pointPaste.At(fault.Before); err != nil {
		return err
	}
	buffer := pasteBuffer(pane.Launch.UID)
	// Brought first, whole, and pasted then: were it one step, then half a text
	// could be pasted when this process dies.
	limited, cancel := context.WithTimeout(ctx, c.o.Timeout)
	_, err = one(limited, c.o.Tmux, c.o.Socket, text, "load-buffer", "-b", buffer, "-")
	cancel()
	if err != nil {
		return errors.Join(fmt.Errorf("bring the text to tmux: %v", err), c.dropPaste(ctx, cn, buffer, true)) //nolint:errorlint // nothing was pasted, so it must not match ErrUnreachable
	}
	// Somebody who scrolls back must not have it go to the scrolling.
	cmd := guard(pane, `copy-mode -q -t "`+pane.PaneID+`" ; paste-buffer -d -p -b `+buffer+` -t "`+pane.PaneID+`"`,
		"delete-buffer -b "+buffer+" ; display-message -p not")
	err = c.guarding(ctx, cn, pane, cmd, pointPaste)
	if err != nil && cmd.reply.err != "" {
		err = errors.Join(err, c.dropPaste(ctx, cn, buffer, true))
	}
	return err
}

// pasteBuffer is where tmux holds the text for the moment between its coming
// and its pasting.
func pasteBuffer(uid string) string { return "skc-prompt-" + uid }

// readyToType is readyFor of a program that is known to live: nobody may type
// into what is not proved.
func (c *Client) readyToType(ctx context.Context, pane effects.TmuxPane) (*conn, error) {
	if pane.Process.PID < 2 || pane.Process.StartTime == "" {
		return nil, fmt.Errorf("%w: no program is known in pane %q", ErrInvalid, pane.PaneID)
	}
	cn, err := c.readyFor(ctx, pane)
	if errors.Is(err, effects.ErrUnreachable) {
		return nil, fmt.Errorf("nothing was sent: %v", err) //nolint:errorlint // known to be not done
	}
	return cn, err
}

// DropPaste takes away what a Paste for this UID that broke off may have left
// in the server; nothing there is a success, and so is no server.
func (c *Client) DropPaste(ctx context.Context, uid string) error {
	if !uidPattern.MatchString(uid) {
		return fmt.Errorf("drop the paste of %q: %w", uid, ErrInvalid)
	}
	cn, err := c.ready(ctx)
	if errors.Is(err, errNoServer) {
		return nil
	}
	if err == nil {
		err = c.dropPaste(ctx, cn, pasteBuffer(uid), false)
	}
	if err != nil {
		return fmt.Errorf("drop the paste of %s: %w", uid, err)
	}
	return nil
}

// dropPaste deletes a buffer. Its own failure tells nothing of a paste, so its
// error matches nothing when veiled.
func (c *Client) dropPaste(ctx context.Context, cn *conn, buffer string, veiled bool) error {
	cmd := &command{line: "delete-buffer -b " + buffer, blocks: 1}
	err := cn.run(ctx, cmd)
	if err == nil && cmd.reply.err != "" && !strings.HasPrefix(cmd.reply.err, "unknown buffer") && !strings.HasPrefix(cmd.reply.err, "no buffer") {
		err = fmt.Errorf("tmux says %q", cmd.reply.err)
	}
	if err != nil && veiled {
		return fmt.Errorf("%v", err) //nolint:errorlint // see above
	}
	return err
}

// Enter presses Enter once in the program that was seen in the pane, and in no
// other. An error means the same as one of Paste.
func (c *Client) Enter(ctx context.Context, pane effects.TmuxPane) error {
	if err := c.enter(ctx, pane); err != nil {
		return fmt.Errorf("press Enter in tmux pane %s (%s): %w", pane.PaneID, pane.Name, err)
	}
	return nil
}

func (c *Client) enter(ctx context.Context, pane effects.TmuxPane) error {
	cn, err := c.readyToType(ctx, pane)
	if err != nil {
		return err
	}
	if err := pointEnter.At(fault.Before); err != nil {
		return err
	}
	cmd := guard(pane, `copy-mode -q -t "`+pane.PaneID+`" ; send-keys -t "`+pane.PaneID+`" Enter`,
		"display-message -p not ; display-message -p not")
	return c.guarding(ctx, cn, pane, cmd, pointEnter)
}

// Screen returns what a pane shows now, without scrollback. It matches
// effects.ErrNotFound when the pane is gone.
func (c *Client) Screen(ctx context.Context, pane effects.TmuxPane) (effects.TmuxScreen, error) {
	s, err := c.screen(ctx, pane)
	if err != nil {
		return effects.TmuxScreen{}, fmt.Errorf("look at the screen of tmux pane %s (%s): %w", pane.PaneID, pane.Name, err)
	}
	return s, nil
}

func (c *Client) screen(ctx context.Context, pane effects.TmuxPane) (s effects.TmuxScreen, err error) {
	cn, err := c.readyFor(ctx, pane)
	if err != nil {
		return s, err
	}
	at := &command{line: "display-message -p -t " + quote(pane.PaneID) + " '#{pane_id} #{cursor_x} #{cursor_y} #{pane_tty}'", blocks: 1}
	text := guarded(&command{line: "capture-pane -p -t " + quote(pane.PaneID), blocks: 1})
	for _, cmd := range []*command{at, text} {
		if err := cn.run(ctx, cmd); err != nil {
			return s, err
		}
		if isGone(cmd.reply.err) {
			return s, effects.ErrNotFound
		}
		if cmd.reply.err != "" {
			return s, fmt.Errorf("tmux says %q", cmd.reply.err)
		}
	}
	f := strings.SplitN(strings.Join(lastBlock(&at.reply), " "), " ", 4)
	if len(f) != 4 || f[0] != pane.PaneID {
		return s, effects.ErrNotFound
	}
	x, err1 := strconv.Atoi(f[1])
	y, err2 := strconv.Atoi(f[2])
	if err := errors.Join(err1, err2); err != nil {
		return s, err
	}
	lines := lastBlock(&text.reply)
	return effects.TmuxScreen{Lines: lastLines(lines, len(lines)), CursorX: x, CursorY: y, TTY: f[3]}, nil
}
