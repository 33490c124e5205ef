// Package prompt gives a Session's program its startup prompt, once in the life
// of the Session's UID. It keeps true that a receipt is on the disk before
// anything of the prompt can reach a program, that what may have been delivered
// is never delivered again, and that "delivered" is said only of what was seen.
// When to deliver, and to which start of the program, is decided elsewhere.
//
// File: the prompt lies in a 0600 file whose path the program finds in
// SKC_STARTUP_PROMPT_REF. The program takes it by renaming it within its folder,
// which only one can do, and then reads and removes it:
//
//	mv "$SKC_STARTUP_PROMPT_REF" "$SKC_STARTUP_PROMPT_REF.$$" && cat "$SKC_STARTUP_PROMPT_REF.$$" && rm "$SKC_STARTUP_PROMPT_REF.$$"
//
// It counts as delivered when the name is gone. A program that never looks
// leaves it where it is.
//
// Paste: the prompt is pasted into the terminal, in brackets, and Enter is
// pressed once, if the program in the foreground is one of the session. Enter
// waits until the screen shows the paste (see shown), and half a second more, for
// programs take an Enter that follows at once for a part of the paste. It is
// delivered when the screen changes after Enter.
//
// Argument: the prompt is the last argument of one start. Nothing is done here
// but the receipt: Intend before the launch file is written, Settle when that
// start was seen, or Withdraw when it is proved that it never ran.
package prompt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var (
	pointIntend  = fault.New("prompt.intend")
	pointSettle  = fault.New("prompt.settle")
	pointStage   = fault.New("prompt.stage")
	pointPublish = fault.New("prompt.publish")
	pointClear   = fault.New("prompt.clear")
)

// Terminal is what this package needs of tmux; tmux.Client has it.
type Terminal interface {
	// Screen is what the pane shows; effects.ErrNotFound when the pane is gone.
	Screen(ctx context.Context, pane effects.TmuxPane) (effects.TmuxScreen, error)
	// Paste and Enter type into exactly the program that was seen in the pane. An
	// error that does not match effects.ErrUnreachable means that nothing was
	// typed.
	Paste(ctx context.Context, pane effects.TmuxPane, text []byte) error
	Enter(ctx context.Context, pane effects.TmuxPane) error
	// DropPaste removes what a Paste that broke off may have left in tmux.
	DropPaste(ctx context.Context, uid string) error
}

// Reader is the program that reads a terminal.
type Reader struct {
	Process effects.ProcessID
	// Lines is true when the terminal collects whole lines for it, so that it
	// cannot see where a paste ends.
	Lines bool
}

// Options says where receipts are and what is pasted into.
type Options struct {
	Dir      string // of receipts and prompts; made, closed to others
	Files    *files.Layer
	Terminal Terminal
	// Reader finds the program of the pane's session that reads its terminal; see
	// Foreground. It matches effects.ErrNotFound when that is a program of
	// somebody else, or none.
	Reader func(ctx context.Context, pane effects.TmuxPane, tty string) (Reader, error)
	BootID string // of this start of the machine
	Clock  clock.PassiveClock
}

const (
	// shownWithin is how long a paste may take to be seen on the screen, and an
	// Enter to change it.
	shownWithin = 15 * time.Second
	// calm is between the sight of the paste and Enter.
	calm = 500 * time.Millisecond
	// lookAgain is how soon the screen is worth another look.
	lookAgain = 100 * time.Millisecond
)

// Prompter delivers prompts. Its methods may be called at the same time for
// different UIDs.
type Prompter struct {
	o Options

	mu     sync.Mutex
	pastes map[string]*paste // under way, by UID; what is not here was broken off
}

// New returns a Prompter.
func New(o Options) *Prompter { return &Prompter{o: o, pastes: map[string]*paste{}} }

// Status is what is known of the prompt of this UID, by its receipt and by a
// look at the world. What it can settle it settles: a file that was taken is
// delivered, a paste that broke off is unknown. A receipt that cannot be read is
// unknown too.
func (p *Prompter) Status(ctx context.Context, uid string) (effects.PromptStatus, error) {
	r, err := p.read(uid)
	if err != nil {
		return effects.PromptStatus{}, err
	}
	if r.State != effects.PromptIntended {
		return r.status(), nil
	}
	switch r.Delivery {
	case effects.PromptByFile:
		return p.fileStatus(r)
	case effects.PromptByPaste:
		p.mu.Lock()
		underWay := p.pastes[uid] != nil
		p.mu.Unlock()
		if !underWay {
			return p.brokenOff(ctx, r, "the controller ended while it pasted the prompt; look at the terminal, and paste it by hand if it is not there")
		}
		s := r.status()
		s.Message, s.Again = "pasted; not seen to be taken yet", lookAgain
		return s, nil
	}
	s := r.status()
	s.Message = fmt.Sprintf("an argument of start %d, which is not seen yet", r.Attempt)
	return s, nil
}

// Publish lays the prompt where the program takes it and returns the path for
// effects.PromptRefVariable. Call it before each start. It returns "" when there
// is nothing to take any more: the prompt was taken, or nobody can tell. An error
// is an *effects.PromptTextError, or one of the file layer.
func (p *Prompter) Publish(_ context.Context, uid, text string) (string, error) {
	path, err := p.publish(uid, text)
	if err != nil {
		return "", fmt.Errorf("publish the startup prompt of %s: %w", uid, err)
	}
	return path, nil
}

func (p *Prompter) publish(uid, text string) (string, error) {
	r, err := p.read(uid)
	if err != nil {
		return "", err
	}
	ref, staged := p.refPath(uid), p.stagedPath(uid)
	switch {
	case r.State == effects.PromptNone:
		if err := checkText(text); err != nil {
			return "", err
		}
		if there, err := exists(ref); err != nil || there {
			return "", errors.Join(err, fmt.Errorf("%s, of which no receipt tells, is in the way: %w", ref, effects.ErrExists))
		}
		if err := files.MkdirPrivate(p.o.Dir); err != nil {
			return "", err
		}
		// Whole and on the disk before the receipt: while it lies here, nobody can
		// have taken it, and once it does not, somebody has.
		if err := p.o.Files.Write(pointStage, staged, []byte(text), files.Durable); err != nil {
			return "", err
		}
		if r, err = p.intend(uid, effects.PromptByFile, 0); err != nil {
			return "", err
		}
	case r.State != effects.PromptIntended || r.Delivery != effects.PromptByFile:
		return "", nil
	}
	published, err := exists(ref)
	if err != nil {
		return "", err
	}
	waiting, err := exists(staged)
	if err != nil {
		return "", err
	}
	switch {
	case published && r.BootID == p.o.BootID:
		// The rename may not be on the disk yet. It must be before a program runs, or
		// a power cut brings back what that one took; this syncs the folder.
		return ref, p.o.Files.Remove(pointClear, staged, files.Durable)
	case waiting && !published:
		if r.BootID != p.o.BootID { // from now on it is this one that counts
			if r, err = p.intend(uid, effects.PromptByFile, 0); err != nil {
				return "", err
			}
		}
		return ref, p.o.Files.Rename(pointPublish, staged, ref)
	}
	_, err = p.fileStatus(r)
	return "", err
}

// fileStatus tells by where the file is how far it came.
func (p *Prompter) fileStatus(r receipt) (effects.PromptStatus, error) {
	published, err1 := exists(p.refPath(r.UID))
	waiting, err2 := exists(p.stagedPath(r.UID))
	if err := errors.Join(err1, err2); err != nil {
		return effects.PromptStatus{}, err
	}
	switch {
	case published && r.BootID != p.o.BootID:
		// What a program did with it just before the machine stopped may be lost.
		if err := p.o.Files.Remove(pointClear, p.refPath(r.UID), files.Durable); err != nil {
			return effects.PromptStatus{}, err
		}
		return p.settle(r, effects.PromptUnknown, "the machine was started anew before the prompt was seen to be taken")
	case published:
		s := r.status()
		s.Message = "waits for the program to take the file that " + effects.PromptRefVariable + " names"
		// A program that takes it does so soon; one that never does is not asked for
		// the rest of its life at the same pace.
		s.Again = min(max(p.o.Clock.Since(r.IntendedAt)/4, 250*time.Millisecond), time.Minute)
		return s, nil
	case waiting:
		s := r.status()
		s.Message = "waits for the next start of the program"
		return s, nil
	}
	return p.settle(r, effects.PromptDelivered, "the program took the file")
}

// Intend writes the receipt of a prompt that start id takes as its last
// argument, and returns true. Only then may the launch file hold the prompt:
// false means that an earlier start had it, or may have. An error is an
// *effects.PromptTextError, or one of the file layer.
func (p *Prompter) Intend(_ context.Context, id effects.LaunchID, text string) (bool, error) {
	r, err := p.read(id.UID)
	if err == nil && r.State == effects.PromptNone {
		if err = checkText(text); err == nil {
			_, err = p.intend(id.UID, effects.PromptByArgument, id.Attempt)
		}
		if err == nil {
			return true, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("intend the startup prompt of %s: %w", id.UID, err)
	}
	return false, nil
}

// Settle says how a prompt that is Intended came out: Delivered or Unknown. One
// that was settled before, or never begun, stays as it is.
func (p *Prompter) Settle(_ context.Context, uid string, state effects.PromptState, message string) (effects.PromptStatus, error) {
	r, err := p.read(uid)
	if err != nil || r.State != effects.PromptIntended {
		return r.status(), err
	}
	return p.settle(r, state, message)
}

// Withdraw forgets a prompt that is Intended as an argument, for it is proved
// that the start that should take it never ran. Anything else stays as it is.
func (p *Prompter) Withdraw(_ context.Context, uid string) error {
	r, err := p.read(uid)
	if err != nil || r.State != effects.PromptIntended || r.Delivery != effects.PromptByArgument {
		return err
	}
	return p.withdraw(uid)
}

// Forget removes all that is kept of this UID, which will not come again:
// receipt, prompt, and what programs renamed and left. Nothing there is a
// success.
func (p *Prompter) Forget(ctx context.Context, uid string) error {
	r, err := p.read(uid)
	if err != nil {
		return err
	}
	if r.Delivery == effects.PromptByPaste && r.State != effects.PromptDelivered {
		if err := p.o.Terminal.DropPaste(ctx, uid); err != nil {
			return err
		}
	}
	p.done(uid)
	entries, err := os.ReadDir(p.o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("forget the startup prompt of %s: %w", uid, err)
	}
	var left []string
	for _, e := range entries {
		if path := filepath.Join(p.o.Dir, e.Name()); strings.HasPrefix(path, p.refPath(uid)) {
			left = append(left, path)
		}
	}
	for _, path := range append(left, p.receiptPath(uid)) { // the receipt last: it keeps the rest from being used again
		if err := p.o.Files.Remove(pointClear, path, files.Derived); err != nil {
			return fmt.Errorf("forget the startup prompt of %s: %w", uid, err)
		}
	}
	return nil
}

// Leftovers is all that is in dir, with whose it is. Those of a Session that is
// no more have no user. A prompt without a receipt is nobody's, and counts when
// it was made before old: the receipt of one that is laid out follows at once.
func Leftovers(dir string, old time.Time) ([]effects.Leftover, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for startup prompts: %w", err)
	}
	var all []effects.Leftover
	owners := map[string]string{}
	for _, e := range entries {
		if uid, ok := strings.CutSuffix(e.Name(), receiptSuffix); ok && uidPattern.MatchString(uid) {
			owners[refName(uid)] = uid
			all = append(all, effects.Leftover{Path: filepath.Join(dir, e.Name()), UID: uid, What: "receipt of a startup prompt"})
		}
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !refPattern.MatchString(e.Name()) {
			continue
		}
		uid := owners[e.Name()[:refLength]]
		if uid == "" {
			fi, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.ModTime().Before(old) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("look for startup prompts: %w", err)
			}
		}
		all = append(all, effects.Leftover{Path: filepath.Join(dir, e.Name()), UID: uid, What: "startup prompt"})
	}
	return all, nil
}

// exists tells whether a file has this name; what cannot be looked at is an
// error, never absence.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
