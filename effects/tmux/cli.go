package tmux

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/process"
)

// What follows is for commands that work without a controller. Each forks one
// tmux, and none of them starts a server.

// ErrDead is matched when nobody can read what is sent: the pane's program has
// ended.
var ErrDead = errors.New("the program in the pane has ended")

// AttachArgv is the command that attaches a terminal to a session. The caller
// must take TMUX out of its environment when it is set.
func AttachArgv(tmuxBinary, socket, sessionID string) []string {
	// $7: is that session and no other, whatever its name is.
	return []string{tmuxBinary, "-u", "-N", "-S", socket, "-f", "/dev/null", "attach-session", "-t", sessionID + ":"}
}

// one runs one tmux and returns what it printed. It matches
// effects.ErrNotFound, effects.ErrUnreachable or effects.ErrUnavailable.
func one(ctx context.Context, tmuxBinary, socket string, stdin []byte, args ...string) (string, error) {
	cmd := tmuxCommand(ctx, tmuxBinary, socket, append([]string{"-N"}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var exit *exec.ExitError
	text := strings.TrimSpace(said.String())
	switch {
	case err == nil:
		return out.String(), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("tmux %w: %w", effects.ErrUnreachable, ctx.Err())
	case isGone(text):
		return "", fmt.Errorf("%s: %w", text, effects.ErrNotFound)
	case strings.HasPrefix(text, "no server running") || strings.HasPrefix(text, "error connecting"):
		// Not proved to be gone: the socket may be lost.
		return "", fmt.Errorf("tmux %w: %s", effects.ErrUnreachable, text)
	case errors.As(err, &exit):
		return "", fmt.Errorf("tmux says %q (%w)", text, err)
	}
	return "", startError("run tmux", err)
}

// unlessDead runs commands for a pane only while its program lives, decided and
// done in one step of the server. (Pasting into a dead pane ends tmux 3.3a with
// all its sessions.)
func unlessDead(paneID, commands, otherwise string) []string {
	// Without the pane tmux asks another one; the commands then fail by themselves.
	dead := "#{&&:#{==:#{pane_id}," + paneID + "},#{pane_dead}}"
	return []string{"if-shell", "-F", "-t", paneID, dead, otherwise + "display-message -p dead", commands}
}

// Paste puts data into the program of a pane as if it were pasted, in brackets
// if the program asked for them, and then presses Enter when enter is set. The
// text is in no argument of any process. It matches ErrDead and
// effects.ErrNotFound.
func Paste(ctx context.Context, tmuxBinary, socket, paneID string, data []byte, enter bool) error {
	if !id(paneID, '%') {
		return fmt.Errorf("paste: %w: pane %q", ErrInvalid, paneID)
	}
	if len(data) == 0 {
		if !enter {
			return nil
		}
		return SendKeys(ctx, tmuxBinary, socket, paneID, []string{"Enter"})
	}
	buffer := "skc-" + rand.Text()
	// A person who scrolls back must not have the keys go to the scrolling.
	commands := "copy-mode -q -t " + paneID + " ; paste-buffer -d -p -b " + buffer + " -t " + paneID
	if enter {
		commands += " ; send-keys -t " + paneID + " Enter"
	}
	out, err := one(ctx, tmuxBinary, socket, data, append([]string{"load-buffer", "-b", buffer, "-", ";"},
		unlessDead(paneID, commands, "delete-buffer -b "+buffer+" ; ")...)...)
	if err != nil {
		// The text must not stay behind in the server.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = one(cleanup, tmuxBinary, socket, nil, "delete-buffer", "-b", buffer)
		return fmt.Errorf("paste into pane %s: %w", paneID, err)
	}
	if strings.TrimSpace(out) == "dead" {
		return fmt.Errorf("paste into pane %s: %w", paneID, ErrDead)
	}
	return nil
}

// keyPattern takes one key by tmux's name for it, with its modifiers.
var keyPattern = regexp.MustCompile(`^(C-|M-|S-){0,3}([0-9A-Za-z]|F([1-9]|1[0-2])|Up|Down|Left|Right|Home|End|PageUp|PageDown|PPage|NPage|PgUp|PgDn|Insert|IC|Delete|DC|Enter|Escape|Tab|BTab|BSpace|Space)$`)

// SendKeys presses keys in a pane. Only names of keys are taken, so that no
// text can pass for one; text is for Paste. It matches ErrInvalid, ErrDead and
// effects.ErrNotFound.
func SendKeys(ctx context.Context, tmuxBinary, socket, paneID string, keys []string) error {
	if !id(paneID, '%') {
		return fmt.Errorf("send keys: %w: pane %q", ErrInvalid, paneID)
	}
	if len(keys) == 0 {
		return nil
	}
	for _, k := range keys {
		if !keyPattern.MatchString(k) {
			return fmt.Errorf("send keys: %w: %q is no name of a key, as Enter, C-c or F5", ErrInvalid, k)
		}
	}
	commands := "copy-mode -q -t " + paneID + " ; send-keys -t " + paneID + " " + strings.Join(keys, " ")
	out, err := one(ctx, tmuxBinary, socket, nil, unlessDead(paneID, commands, "")...)
	if err != nil {
		return fmt.Errorf("send keys to pane %s: %w", paneID, err)
	}
	if strings.TrimSpace(out) == "dead" {
		return fmt.Errorf("send keys to pane %s: %w", paneID, ErrDead)
	}
	return nil
}

// CaptureOnce is Client.Capture without a Client.
func CaptureOnce(ctx context.Context, tmuxBinary, socket, paneID string, lines int) ([]string, error) {
	if !id(paneID, '%') {
		return nil, fmt.Errorf("capture: %w: pane %q", ErrInvalid, paneID)
	}
	out, err := one(ctx, tmuxBinary, socket, nil, "capture-pane", "-p", "-t", paneID, "-S", "-"+strconv.Itoa(max(lines, 0)))
	if err != nil {
		return nil, fmt.Errorf("capture pane %s: %w", paneID, err)
	}
	return lastLines(strings.Split(strings.TrimSuffix(out, "\n"), "\n"), lines), nil
}

// Follow copies to w what the program of a pane writes from now on, byte for
// byte, until the program ends, the pane is gone or ctx ends; each of them is a
// success. A w that takes nothing holds up only this call. tmux drops what it
// has not sent when the program ends, so the very last lines may be missing;
// CaptureOnce has them.
func Follow(ctx context.Context, tmuxBinary, socket, sessionID, paneID string, w io.Writer) error {
	if !id(paneID, '%') || !id(sessionID, '$') {
		return fmt.Errorf("follow: %w: pane %q of session %q", ErrInvalid, paneID, sessionID)
	}
	if err := follow(ctx, tmuxBinary, socket, sessionID, paneID, w); err != nil && ctx.Err() == nil {
		return fmt.Errorf("follow pane %s: %w", paneID, err)
	}
	return nil
}

func follow(ctx context.Context, tmuxBinary, socket, sessionID, paneID string, w io.Writer) (err error) {
	c := New(Options{Socket: socket, Tmux: tmuxBinary, Clock: clock.RealClock{}, Log: logr.Discard()})
	written := make(chan error, 1)
	failed := false
	prefix := "%output " + paneID + " "
	cn, err := c.client(func(line string) {
		text, ok := strings.CutPrefix(line, prefix)
		if !ok || failed {
			return
		}
		if _, err := w.Write(unescape(text)); err != nil {
			failed = true
			written <- err
		}
	}, "attach-session", "-t", sessionID+":", "-f", "read-only,ignore-size")
	if err != nil {
		return err
	}
	defer cn.close()
	ask := func() (row, error) {
		cmd := &command{line: "list-panes -t '" + paneID + "' -F '" + paneFormat + "'", blocks: 1}
		if err := cn.run(ctx, cmd); err != nil {
			return row{}, err
		}
		for _, r := range parseRows(lastBlock(&cmd.reply)) {
			if r.pane == paneID {
				return r, nil
			}
		}
		return row{dead: true}, nil // gone
	}
	r, err := ask()
	if err != nil {
		return err
	}
	watcher, err := process.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, watcher.Close()) }()
	died := make(chan struct{})
	if started, err := process.StartTime(r.pid); r.dead || errors.Is(err, effects.ErrNotFound) {
		close(died)
	} else if err != nil {
		return err
	} else if err := watcher.Watch(effects.ProcessID{PID: r.pid, StartTime: started}, func() { close(died) }); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-written:
		return err
	case <-cn.dead:
		if errors.Is(cn.failure(), errHung) {
			return cn.unreachable()
		}
		return nil // the session is gone, or the server
	case <-died:
	}
	// What it wrote last may still be on its way: tmux calls the pane dead only
	// after it read all of it, and answers after what it sent.
	for pid, n := r.pid, 0; n < 100 && !r.dead && r.pid == pid; n++ {
		t := time.NewTimer(10 * time.Millisecond)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		if r, err = ask(); err != nil {
			return nil
		}
	}
	select {
	case err := <-written:
		return err
	default:
		return nil
	}
}

// unescape undoes what control mode does to output: \ooo is one byte.
func unescape(s string) []byte {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return out
}
