package prompttest

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"skc.dev/skc/effects"
)

// Fake delivers prompts in memory. It keeps the contract. Its methods may be
// called at the same time.
type Fake struct {
	mu      sync.Mutex
	prompts map[string]*fakePrompt       // by UID
	typed   map[effects.ProcessID]string // what was typed into each program
	away    map[effects.ProcessID]bool
	mute    map[effects.ProcessID]bool
}

type fakePrompt struct {
	effects.PromptStatus
	path, text string
	pasting    bool // by this controller
	looks      int  // since the paste
}

// NewFake returns a Fake that knows no UID.
func NewFake() *Fake {
	return &Fake{
		prompts: map[string]*fakePrompt{}, typed: map[effects.ProcessID]string{},
		away: map[effects.ProcessID]bool{}, mute: map[effects.ProcessID]bool{},
	}
}

var uidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Status is prompt.Prompter.Status.
func (f *Fake) Status(_ context.Context, uid string) (effects.PromptStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !uidPattern.MatchString(uid) {
		return effects.PromptStatus{}, errors.New("not a UID")
	}
	p := f.prompts[uid]
	if p == nil {
		return effects.PromptStatus{}, nil
	}
	if p.Delivery == effects.PromptByPaste && !p.pasting {
		p.end(effects.PromptUnknown)
	}
	return p.PromptStatus, nil
}

func (p *fakePrompt) end(state effects.PromptState) {
	if p.State == effects.PromptIntended {
		p.State, p.Again, p.pasting, p.path = state, 0, false, ""
	}
}

func check(text string, paste bool) error {
	control := func(c rune) bool { return unicode.IsControl(c) && c != '\t' && c != '\n' }
	if text == "" || len(text) > 1<<20 || strings.Contains(text, "\x00") ||
		paste && (!utf8.ValidString(text) || strings.TrimSpace(text) == "" || strings.ContainsFunc(text, control)) {
		return &effects.PromptTextError{Why: "cannot be delivered"}
	}
	return nil
}

// Publish is prompt.Prompter.Publish.
func (f *Fake) Publish(_ context.Context, uid, text string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.prompts[uid]
	if p == nil {
		if err := check(text, false); err != nil {
			return "", err
		}
		p = &fakePrompt{path: "/fake/prompts/" + uid, text: text}
		p.State, p.Delivery, p.Again = effects.PromptIntended, effects.PromptByFile, time.Second
		f.prompts[uid] = p
	}
	return p.path, nil
}

// Take has a program take what was published at path.
func (f *Fake) Take(path string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.prompts {
		if p.path == path && path != "" {
			p.end(effects.PromptDelivered)
			return p.text, true
		}
	}
	return "", false
}

// Intend is prompt.Prompter.Intend.
func (f *Fake) Intend(_ context.Context, id effects.LaunchID, text string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.prompts[id.UID] != nil {
		return false, nil
	}
	if err := check(text, false); err != nil {
		return false, err
	}
	p := &fakePrompt{text: text}
	p.State, p.Delivery, p.Attempt = effects.PromptIntended, effects.PromptByArgument, id.Attempt
	f.prompts[id.UID] = p
	return true, nil
}

// Settle is prompt.Prompter.Settle.
func (f *Fake) Settle(_ context.Context, uid string, state effects.PromptState, message string) (effects.PromptStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.prompts[uid]
	if p == nil {
		return effects.PromptStatus{}, nil
	}
	if p.State == effects.PromptIntended {
		p.Message = message
	}
	p.end(state)
	return p.PromptStatus, nil
}

// Withdraw is prompt.Prompter.Withdraw.
func (f *Fake) Withdraw(_ context.Context, uid string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.prompts[uid]; p != nil && p.State == effects.PromptIntended && p.Delivery == effects.PromptByArgument {
		delete(f.prompts, uid)
	}
	return nil
}

// Forget is prompt.Prompter.Forget.
func (f *Fake) Forget(_ context.Context, uid string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.prompts, uid)
	return nil
}

// Paste is prompt.Prompter.Paste. The screen shows the paste at the second call,
// Enter is pressed then, and the third sees that it was taken.
func (f *Fake) Paste(_ context.Context, pane effects.TmuxPane, text string) (effects.PromptStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.prompts[pane.Launch.UID]
	if p == nil {
		if err := check(text, true); err != nil {
			return effects.PromptStatus{}, err
		}
		if pane.Dead || f.away[pane.Process] {
			return effects.PromptStatus{}, &effects.PromptHeldError{Why: "what is in the foreground of the terminal is no program of the session"}
		}
		p = &fakePrompt{text: text, pasting: true}
		p.State, p.Delivery, p.Attempt, p.Again = effects.PromptIntended, effects.PromptByPaste, pane.Launch.Attempt, 100*time.Millisecond
		f.prompts[pane.Launch.UID] = p
		f.typed[pane.Process] += "\x1b[200~" + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\r") + "\x1b[201~"
		return p.PromptStatus, nil
	}
	if p.Delivery != effects.PromptByPaste || p.State != effects.PromptIntended {
		return p.PromptStatus, nil
	}
	p.looks++
	switch {
	case !p.pasting, p.looks == 1 && (f.away[pane.Process] || f.mute[pane.Process]):
		p.end(effects.PromptUnknown)
	case p.looks == 1:
		f.typed[pane.Process] += "\r"
	default:
		p.end(effects.PromptDelivered)
	}
	return p.PromptStatus, nil
}

// Read is what was typed into the program of a pane.
func (f *Fake) Read(pane effects.TmuxPane) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.typed[pane.Process]
}

// Away brings a program of somebody else into the foreground of the pane's
// terminal, or takes it away again.
func (f *Fake) Away(pane effects.TmuxPane, away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away[pane.Process] = away
}

// Mute has the pane's program show nothing of what it reads.
func (f *Fake) Mute(pane effects.TmuxPane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mute[pane.Process] = true
}

// Restart is the end of a controller and the start of the next.
func (f *Fake) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.prompts {
		p.pasting = false
	}
}

// Reboot is Restart with the whole machine.
func (f *Fake) Reboot() {
	f.Restart()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.prompts {
		if p.Delivery == effects.PromptByFile {
			p.end(effects.PromptUnknown)
		}
	}
}
