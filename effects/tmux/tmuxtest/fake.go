package tmuxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/tmux"
)

// Fake is a tmux that exists only in memory. It keeps the contract; programs
// run until a test ends them. Its methods may be called at the same time.
// Changes are told from one goroutine, which Close ends.
type Fake struct {
	mu      sync.Mutex
	server  effects.TmuxServer // zero when there is none
	hung    bool
	full    error
	last    int // of all numbers that are counted up
	panes   map[string]*fakePane
	changes []func(string)

	events chan string
	done   chan struct{}
}

type fakePane struct {
	effects.TmuxPane
	text []string
	read string // by its program
	mute bool   // its program shows nothing of what it reads
	tags map[string]string
}

// NewFake returns a tmux without a server.
func NewFake() *Fake {
	f := &Fake{last: 1000, panes: map[string]*fakePane{}, events: make(chan string, 1<<16), done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for uid := range f.events {
			f.mu.Lock()
			calls := slices.Clone(f.changes)
			f.mu.Unlock()
			for _, call := range calls {
				call(uid)
			}
		}
	}()
	return f
}

// Close ends the telling of changes; nothing may be called after it.
func (f *Fake) Close() {
	close(f.events)
	<-f.done
}

// OnChange is tmux.Client.OnChange.
func (f *Fake) OnChange(call func(uid string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes = append(f.changes, call)
}

func (f *Fake) next() int {
	f.last++
	return f.last
}

func (f *Fake) process() effects.ProcessID {
	n := f.next()
	return effects.ProcessID{PID: 1_000_000 + n, StartTime: strconv.Itoa(n)}
}

// reach is nil when a server answers.
func (f *Fake) reach() error {
	switch {
	case f.hung:
		return fmt.Errorf("tmux %w", effects.ErrUnreachable)
	case f.server.PID == 0:
		return fmt.Errorf("tmux server: %w", effects.ErrNotFound)
	}
	return nil
}

// Look is tmux.Client.Look.
func (f *Fake) Look(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hung {
		return f.reach()
	}
	return nil
}

// Server is tmux.Client.Server.
func (f *Fake) Server(context.Context) (effects.TmuxServer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.reach(); err != nil {
		return effects.TmuxServer{}, err
	}
	return f.server, nil
}

// Get is tmux.Client.Get.
func (f *Fake) Get(_ context.Context, uid string) (effects.TmuxPane, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.reach(); err != nil {
		return effects.TmuxPane{}, err
	}
	var best *fakePane
	for _, p := range f.panes {
		if p.Launch.UID == uid && (best == nil || p.Launch.Attempt > best.Launch.Attempt) {
			best = p
		}
	}
	if best == nil {
		return effects.TmuxPane{}, fmt.Errorf("tmux pane of %s: %w", uid, effects.ErrNotFound)
	}
	return best.TmuxPane, nil
}

// List is tmux.Client.List.
func (f *Fake) List(context.Context) ([]effects.TmuxPane, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.reach(); err != nil && !errors.Is(err, effects.ErrNotFound) {
		return nil, err
	}
	var all []effects.TmuxPane
	for _, p := range f.panes {
		all = append(all, p.TmuxPane)
	}
	slices.SortFunc(all, func(a, b effects.TmuxPane) int {
		return strings.Compare(a.Launch.FileName()+a.PaneID, b.Launch.FileName()+b.PaneID)
	})
	return all, nil
}

// Create is tmux.Client.Create.
func (f *Fake) Create(_ context.Context, cr tmux.Create) (effects.TmuxPane, error) {
	if err := tmux.Validate(cr); err != nil {
		return effects.TmuxPane{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hung {
		return effects.TmuxPane{}, f.reach()
	}
	if f.full != nil {
		return effects.TmuxPane{}, f.full
	}
	if f.server.PID == 0 {
		f.server = effects.TmuxServer{Socket: "/fake/tmux.sock", ProcessID: f.process()}
		f.events <- ""
	}
	for _, p := range f.panes {
		if p.Name == cr.Name {
			return effects.TmuxPane{}, fmt.Errorf("create tmux session %s: %w", cr.Name, effects.ErrExists)
		}
	}
	n := strconv.Itoa(f.next())
	p := &fakePane{TmuxPane: effects.TmuxPane{
		Server: f.server, Launch: cr.Launch, Name: cr.Name,
		SessionID: "$" + n, WindowID: "@" + n, PaneID: "%" + n, Process: f.process(),
	}}
	f.panes[p.PaneID] = p
	f.tag(p, cr.Tags)
	return p.TmuxPane, nil
}

// Tag is tmux.Client.Tag.
func (f *Fake) Tag(_ context.Context, pane effects.TmuxPane, tags []effects.TmuxTag) error {
	if err := tmux.ValidateTags(tags); err != nil || len(tags) == 0 {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.find(pane)
	if err != nil {
		return err
	}
	f.tag(p, tags)
	return nil
}

func (f *Fake) tag(p *fakePane, tags []effects.TmuxTag) {
	if p.tags == nil {
		p.tags = map[string]string{}
	}
	for _, t := range tags {
		p.tags[t.Name] = t.Value
	}
}

// TagOf is the value of a tag of the pane's session, empty when it has none.
func (f *Fake) TagOf(pane effects.TmuxPane, name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.panes[pane.PaneID]; p != nil {
		return p.tags[name]
	}
	return ""
}

// find returns the pane if it is there, on this server.
func (f *Fake) find(pane effects.TmuxPane) (*fakePane, error) {
	if err := f.reach(); err != nil {
		return nil, err
	}
	p := f.panes[pane.PaneID]
	if p == nil || p.Server != pane.Server {
		return nil, fmt.Errorf("tmux pane %s: %w", pane.PaneID, effects.ErrNotFound)
	}
	return p, nil
}

// Respawn is tmux.Client.Respawn.
func (f *Fake) Respawn(_ context.Context, pane effects.TmuxPane, l effects.LaunchID) (effects.TmuxPane, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.find(pane)
	if err != nil {
		return effects.TmuxPane{}, err
	}
	p.Launch, p.Process, p.read, p.mute = l, f.process(), "", false
	p.Dead, p.ExitKnown, p.ExitCode, p.Signal = false, false, 0, ""
	return p.TmuxPane, nil
}

// Kill is tmux.Client.Kill.
func (f *Fake) Kill(_ context.Context, pane effects.TmuxPane) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.find(pane); err != nil {
		if errors.Is(err, effects.ErrNotFound) {
			return nil
		}
		return err
	}
	delete(f.panes, pane.PaneID)
	return nil
}

// Capture is tmux.Client.Capture.
func (f *Fake) Capture(_ context.Context, pane effects.TmuxPane, lines int) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.find(pane)
	if err != nil {
		return nil, err
	}
	return slices.Clone(p.text[max(0, len(p.text)-lines):]), nil
}

// Screen is tmux.Client.Screen. The cursor stands after what was read.
func (f *Fake) Screen(_ context.Context, pane effects.TmuxPane) (effects.TmuxScreen, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.find(pane)
	if err != nil {
		return effects.TmuxScreen{}, err
	}
	return effects.TmuxScreen{Lines: slices.Clone(p.text[max(0, len(p.text)-24):]), CursorX: len(p.text), TTY: "/fake/tty" + p.PaneID}, nil
}

// Paste is tmux.Client.Paste. Every program asked for brackets and shows what it
// reads, but for those that are mute.
func (f *Fake) Paste(_ context.Context, pane effects.TmuxPane, text []byte) error {
	if len(text) == 0 {
		return tmux.ErrInvalid
	}
	return f.typed(pane, "\x1b[200~"+strings.ReplaceAll(string(text), "\n", "\r")+"\x1b[201~", strings.Split(string(text), "\n"))
}

// Enter is tmux.Client.Enter.
func (f *Fake) Enter(_ context.Context, pane effects.TmuxPane) error {
	return f.typed(pane, "\r", []string{"thinking"})
}

// DropPaste is tmux.Client.DropPaste; nothing ever stays behind here.
func (f *Fake) DropPaste(context.Context, string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hung {
		return f.reach()
	}
	return nil
}

func (f *Fake) typed(pane effects.TmuxPane, bytes string, shown []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if pane.Process.StartTime == "" {
		return tmux.ErrInvalid
	}
	if f.hung {
		return errors.New("nothing was sent")
	}
	p, err := f.find(pane)
	if err != nil {
		return err
	}
	if p.Dead || p.Process != pane.Process {
		return tmux.ErrDead
	}
	p.read += bytes
	if !p.mute {
		p.text = append(p.text, shown...)
	}
	return nil
}

// Read is what the program of a pane has read.
func (f *Fake) Read(pane effects.TmuxPane) (text string) {
	f.change(pane, func(p *fakePane) { text = p.read })
	return text
}

// Mute has the program of a pane show nothing of what it reads.
func (f *Fake) Mute(pane effects.TmuxPane) {
	f.change(pane, func(p *fakePane) { p.mute = true })
}

// Write has the program of a pane write lines of text.
func (f *Fake) Write(pane effects.TmuxPane, lines ...string) {
	f.change(pane, func(p *fakePane) { p.text = append(p.text, lines...) })
}

// Exit has the program of a pane exit.
func (f *Fake) Exit(pane effects.TmuxPane, code int) {
	f.change(pane, func(p *fakePane) { p.Dead, p.ExitKnown, p.ExitCode = true, true, code })
	f.events <- pane.Launch.UID
}

// Die has a signal, as SIGKILL, end the program of a pane; with an empty one
// nobody knows how it ended.
func (f *Fake) Die(pane effects.TmuxPane, signal string) {
	f.change(pane, func(p *fakePane) { p.Dead, p.ExitKnown, p.Signal = true, signal != "", signal })
	f.events <- pane.Launch.UID
}

// CloseSession ends a session as a user does.
func (f *Fake) CloseSession(pane effects.TmuxPane) {
	f.change(pane, func(p *fakePane) { delete(f.panes, p.PaneID) })
	f.events <- pane.Launch.UID
}

// Rename renames a session as a user does.
func (f *Fake) Rename(pane effects.TmuxPane, name string) {
	f.change(pane, func(p *fakePane) { p.Name = name })
	f.events <- pane.Launch.UID
}

// change calls do for the pane's program, if it is still that one.
func (f *Fake) change(pane effects.TmuxPane, do func(*fakePane)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.panes[pane.PaneID]; p != nil && p.Process == pane.Process {
		do(p)
	}
}

// KillServer ends the server and all in it.
func (f *Fake) KillServer() {
	f.mu.Lock()
	f.server, f.panes, f.hung = effects.TmuxServer{}, map[string]*fakePane{}, false
	f.mu.Unlock()
	f.events <- ""
}

// Hang stops the server's answers until Resume.
func (f *Fake) Hang() { f.setHung(true) }

// Resume ends Hang.
func (f *Fake) Resume() { f.setHung(false) }

func (f *Fake) setHung(hung bool) {
	f.mu.Lock()
	f.hung = hung
	f.mu.Unlock()
	f.events <- ""
}

// Fill has every Create fail with err, as effects.ErrExhausted, until it is nil.
func (f *Fake) Fill(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = err
}
