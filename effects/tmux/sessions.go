package tmux

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/process"
)

// Create is what a session is made of.
type Create = effects.NewTmuxSession

const maxSide = 10000 // of a terminal, as tmux has it

const maxTag = 16 << 10 // bytes of a tag's value; a path of any file system fits

var (
	namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$`)
	tagPattern  = regexp.MustCompile(`^@[a-z][a-z0-9-]{0,62}$`)
	uidPattern  = regexp.MustCompile(`^[0-9A-Za-z-]{36}$`)
)

// ErrInvalid is matched when the arguments can never work.
var ErrInvalid = errors.New("invalid argument")

// Validate matches ErrInvalid when tmux could never make this session as it is
// written.
func Validate(cr Create) error {
	switch {
	case !namePattern.MatchString(cr.Name):
		return fmt.Errorf("%w: session name %q: must be RFC 1123 labels, as name or namespace/name", ErrInvalid, cr.Name)
	case cr.Columns < 1 || cr.Columns > maxSide || cr.Rows < 1 || cr.Rows > maxSide:
		return fmt.Errorf("%w: terminal of %dx%d: each side must be 1 to %d", ErrInvalid, cr.Columns, cr.Rows, maxSide)
	case cr.HistoryLimit < 1:
		return fmt.Errorf("%w: history of %d lines: must be at least 1", ErrInvalid, cr.HistoryLimit)
	}
	if err := ValidateTags(cr.Tags); err != nil {
		return err
	}
	return validateLaunch(cr.Launch)
}

// ValidateTags matches ErrInvalid when tmux is not given these tags.
func ValidateTags(tags []effects.TmuxTag) error {
	for _, t := range tags {
		if !tagPattern.MatchString(t.Name) || !effects.ControlFree(t.Value) || len(t.Value) > maxTag {
			return fmt.Errorf("%w: tag %q: a name is @ and a-z, 0-9 or '-', a value is one line of at most %d bytes", ErrInvalid, t.Name, maxTag)
		}
	}
	return nil
}

func validateLaunch(l effects.LaunchID) error {
	if back, ok := effects.ParseLaunchID(l.FileName()); !ok || back != l || !uidPattern.MatchString(l.UID) {
		return fmt.Errorf("%w: launch %q", ErrInvalid, l.FileName())
	}
	return nil
}

// quote makes one word of s for tmux's parser, whatever s holds but line ends
// and NUL: nothing is special within single quotes.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// start is the part of a command that says what runs: always the launcher and
// a launch file, as two words, so that tmux runs no shell.
func (c *Client) start(l effects.LaunchID) string {
	return " -- " + quote(c.o.Launcher) + " " + quote(filepath.Join(c.o.LaunchDir, l.FileName()))
}

// tag is the part of a command that sets the tags of a session. The values are
// the only text of a user's in any command: quoted, behind the end of options,
// and set without -F, they stay what they are.
func tag(target string, tags []effects.TmuxTag) string {
	var b strings.Builder
	for _, t := range tags {
		b.WriteString(" ; set-option -t " + quote(target) + " -- " + t.Name + " " + quote(t.Value))
	}
	return b.String()
}

// Create makes a session with one command; a server is started when there is
// none. It matches effects.ErrExists when the name is taken,
// effects.ErrExhausted when the machine has no room for one more,
// effects.ErrUnavailable when tmux cannot be run, and effects.ErrUnreachable
// when nobody knows whether the session was made: look before the next try.
func (c *Client) Create(ctx context.Context, cr Create) (effects.TmuxPane, error) {
	if err := Validate(cr); err != nil {
		return effects.TmuxPane{}, fmt.Errorf("create tmux session: %w", err)
	}
	pane, err := c.create(ctx, cr)
	if err != nil {
		return pane, fmt.Errorf("create tmux session %s: %w", cr.Name, err)
	}
	return pane, nil
}

func (c *Client) create(ctx context.Context, cr Create) (pane effects.TmuxPane, err error) {
	cn, err := c.readyOrStart(ctx)
	if err != nil {
		return pane, err
	}
	if err := c.checkRoom(); err != nil {
		return pane, err
	}
	if err := pointCreate.At(fault.Before); err != nil {
		return pane, err
	}
	_, label, ok := strings.Cut(cr.Name, "/")
	if !ok {
		label = cr.Name
	}
	cmd := &command{
		line: "new-session -d -P -F '" + paneFormat + "' -s " + cr.Name + " -n " + label +
			" -x " + strconv.Itoa(cr.Columns) + " -y " + strconv.Itoa(cr.Rows) + c.start(cr.Launch) + tag("="+cr.Name+":", cr.Tags),
		blocks:  1 + len(cr.Tags),
		history: cr.HistoryLimit,
	}
	cmd.apply = func(r *reply) {
		if r.err != "" {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, row := range parseRows(blockBefore(r, len(cr.Tags))) {
			pane = c.take(c.server, row).TmuxPane
		}
	}
	if err := c.runSeen(ctx, cn, cmd, pointCreate); err != nil {
		return effects.TmuxPane{}, err
	}
	switch {
	case strings.Contains(cmd.reply.err, "duplicate session"):
		return pane, effects.ErrExists
	case strings.Contains(cmd.reply.err, "fork failed"):
		c.mu.Lock()
		c.room = 0
		c.mu.Unlock()
		return pane, fmt.Errorf("tmux has no room: %w: %s", effects.ErrExhausted, cmd.reply.err)
	case cmd.reply.err != "":
		return pane, fmt.Errorf("tmux says %q", cmd.reply.err)
	case pane.Launch != cr.Launch:
		return pane, fmt.Errorf("tmux answered %q", blockBefore(&cmd.reply, len(cr.Tags)))
	}
	return pane, pointCreate.At(fault.After)
}

// runSeen is run with the fault point between command and answer.
func (c *Client) runSeen(ctx context.Context, cn *conn, cmd *command, point fault.Point) error {
	if err := cn.send(ctx, cmd); err != nil {
		return err
	}
	if err := point.At(fault.During); err != nil {
		return err
	}
	return cn.wait(ctx, cmd)
}

func lastBlock(r *reply) []string { return blockBefore(r, 0) }

// blockBefore is the answer that n others follow.
func blockBefore(r *reply, n int) []string {
	if len(r.blocks) <= n {
		return nil
	}
	return r.blocks[len(r.blocks)-1-n]
}

// margin is how many terminals and descriptors are left for others. A tmux
// without descriptors hangs for ever, so it must never come to that.
const margin = 64

// recount is after how many panes the server's descriptors are counted again;
// users may open panes of their own in between.
const recount = margin / 2

func (c *Client) checkRoom() error {
	c.mu.Lock()
	server := c.server.PID
	if c.room > 0 {
		server = 0 // counted not long ago
		c.room--
	}
	c.mu.Unlock()
	l, err := c.limits(server)
	if err != nil {
		return err
	}
	if l.maxPtys > 0 && l.ptys >= l.maxPtys-margin {
		return fmt.Errorf("%w: %d of %d pseudo terminals are in use (kernel.pty.max) and %d are kept free", effects.ErrExhausted, l.ptys, l.maxPtys, margin)
	}
	if server == 0 {
		return nil
	}
	if l.maxFDs > 0 && l.fds >= l.maxFDs-margin {
		return fmt.Errorf("%w: the tmux server has %d of %d descriptors in use and %d are kept free", effects.ErrExhausted, l.fds, l.maxFDs, margin)
	}
	c.mu.Lock()
	c.room = recount
	if l.maxFDs > 0 {
		c.room = min(recount, l.maxFDs-margin-l.fds-1)
	}
	c.mu.Unlock()
	return nil
}

// Respawn starts another program in a pane of ours and ends the one in it, if
// any (by HUP, which it may ignore: stop it first). Attached people stay
// attached; what was on the screen goes into the scrollback. It matches
// effects.ErrNotFound when the pane is gone.
func (c *Client) Respawn(ctx context.Context, pane effects.TmuxPane, l effects.LaunchID) (effects.TmuxPane, error) {
	if err := validateLaunch(l); err != nil {
		return effects.TmuxPane{}, fmt.Errorf("respawn tmux pane: %w", err)
	}
	now, err := c.respawn(ctx, pane, l)
	if err != nil {
		return now, fmt.Errorf("respawn tmux pane %s (%s): %w", pane.PaneID, pane.Name, err)
	}
	return now, nil
}

func (c *Client) respawn(ctx context.Context, pane effects.TmuxPane, l effects.LaunchID) (now effects.TmuxPane, err error) {
	cn, err := c.readyFor(ctx, pane)
	if err != nil {
		return now, err
	}
	if err := pointRespawn.At(fault.Before); err != nil {
		return now, err
	}
	// -R clears the screen into the history, which respawn-pane would not.
	cmd := &command{
		line: "send-keys -R -t " + quote(pane.PaneID) + " ; respawn-pane -k -t " + quote(pane.PaneID) + c.start(l) +
			" ; list-panes -t " + quote(pane.PaneID) + " -F '" + paneFormat + "'",
		blocks: 3,
	}
	cmd.apply = func(r *reply) {
		if r.err != "" {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, row := range parseRows(lastBlock(r)) {
			if row.pane == pane.PaneID {
				now = c.take(c.server, row).TmuxPane
			}
		}
	}
	if err := c.runSeen(ctx, cn, cmd, pointRespawn); err != nil {
		return effects.TmuxPane{}, err
	}
	switch {
	case isGone(cmd.reply.err):
		c.forget(pane.PaneID)
		return now, effects.ErrNotFound
	case cmd.reply.err != "":
		return now, fmt.Errorf("tmux says %q", cmd.reply.err)
	case now.Launch != l:
		return now, fmt.Errorf("tmux answered %q", lastBlock(&cmd.reply))
	}
	return now, pointRespawn.At(fault.After)
}

// Tag sets the tags of the session of a pane. It matches effects.ErrNotFound when
// the pane is gone.
func (c *Client) Tag(ctx context.Context, pane effects.TmuxPane, tags []effects.TmuxTag) error {
	if err := ValidateTags(tags); err != nil || len(tags) == 0 {
		return err
	}
	cn, err := c.readyFor(ctx, pane)
	if err != nil {
		return fmt.Errorf("tag tmux session %s (%s): %w", pane.SessionID, pane.Name, err)
	}
	cmd := &command{line: strings.TrimPrefix(tag(pane.SessionID+":", tags), " ; "), blocks: len(tags)}
	if err := cn.run(ctx, cmd); err != nil {
		return err
	}
	switch {
	case isGone(cmd.reply.err):
		return fmt.Errorf("tag tmux session %s (%s): %w", pane.SessionID, pane.Name, effects.ErrNotFound)
	case cmd.reply.err != "":
		return fmt.Errorf("tag tmux session %s (%s): tmux says %q", pane.SessionID, pane.Name, cmd.reply.err)
	}
	return nil
}

// readyFor is ready for a command to a pane seen earlier: ids mean something
// only to the server that gave them.
func (c *Client) readyFor(ctx context.Context, pane effects.TmuxPane) (*conn, error) {
	if !id(pane.PaneID, '%') || !id(pane.SessionID, '$') {
		return nil, fmt.Errorf("%w: pane %q of session %q", ErrInvalid, pane.PaneID, pane.SessionID)
	}
	cn, err := c.ready(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != pane.Server {
		return nil, fmt.Errorf("pane of an earlier tmux server: %w", effects.ErrNotFound)
	}
	return cn, nil
}

// isGone tells whether tmux's error says that the target is not there.
func isGone(tmuxSays string) bool {
	return strings.HasPrefix(tmuxSays, "can't find ") || strings.HasPrefix(tmuxSays, "no such ")
}

func (c *Client) forget(paneID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index.remove(c.index.panes[paneID])
}

// Kill ends the session of a pane, with all windows in it; one that is gone
// already is a success. The programs get HUP and may ignore it.
func (c *Client) Kill(ctx context.Context, pane effects.TmuxPane) error {
	if err := c.kill(ctx, pane); err != nil && !errors.Is(err, effects.ErrNotFound) {
		return fmt.Errorf("kill tmux session %s (%s): %w", pane.SessionID, pane.Name, err)
	}
	return nil
}

func (c *Client) kill(ctx context.Context, pane effects.TmuxPane) error {
	cn, err := c.readyFor(ctx, pane)
	if err != nil {
		return err
	}
	if err := pointKill.At(fault.Before); err != nil {
		return err
	}
	c.markKilling(pane.SessionID, true)
	cmd := &command{line: "kill-session -t " + quote(pane.SessionID), blocks: 1}
	cmd.apply = func(r *reply) {
		if r.err != "" && !isGone(r.err) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.index.session(pane.SessionID, c.index.remove)
	}
	if err := c.runSeen(ctx, cn, cmd, pointKill); err != nil {
		c.markKilling(pane.SessionID, false)
		return err
	}
	if cmd.reply.err != "" && !isGone(cmd.reply.err) {
		c.markKilling(pane.SessionID, false)
		return fmt.Errorf("tmux says %q", cmd.reply.err)
	}
	return pointKill.At(fault.After)
}

// markKilling says whether we are ending a session, so that what follows from
// that is no news. When it is not ended after all, deaths are news again.
func (c *Client) markKilling(session string, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index.session(session, func(e *entry) {
		e.killing = on
		if !on && !e.Dead {
			c.listen(e)
			c.stale = true
		}
	})
}

// Capture returns the last lines of a pane's text, scrollback included, without
// the empty ones at the end. It matches effects.ErrNotFound when the pane is
// gone. The text is valid UTF-8 and may hold whatever a terminal can show.
func (c *Client) Capture(ctx context.Context, pane effects.TmuxPane, lines int) ([]string, error) {
	cn, err := c.readyFor(ctx, pane)
	if err != nil {
		return nil, fmt.Errorf("capture tmux pane %s: %w", pane.PaneID, err)
	}
	cmd := guarded(&command{line: "capture-pane -p -t " + quote(pane.PaneID) + " -S -" + strconv.Itoa(max(lines, 0)), blocks: 1})
	if err := cn.run(ctx, cmd); err != nil {
		return nil, fmt.Errorf("capture tmux pane %s: %w", pane.PaneID, err)
	}
	if isGone(cmd.reply.err) {
		return nil, fmt.Errorf("capture tmux pane %s: %w", pane.PaneID, effects.ErrNotFound)
	}
	if cmd.reply.err != "" {
		return nil, fmt.Errorf("capture tmux pane %s: tmux says %q", pane.PaneID, cmd.reply.err)
	}
	return lastLines(lastBlock(&cmd.reply), lines), nil
}

func lastLines(text []string, n int) []string {
	for i, l := range text {
		text[i] = strings.ToValidUTF8(strings.TrimRight(l, " "), "\uFFFD")
	}
	for len(text) > 0 && text[len(text)-1] == "" {
		text = text[:len(text)-1]
	}
	return text[max(0, len(text)-max(n, 0)):]
}

func parseRows(lines []string) []row {
	rows := make([]row, 0, len(lines))
	for _, l := range lines {
		if r, ok := parseRow(l); ok {
			rows = append(rows, r)
		}
	}
	return rows
}

// lookCommand reads all panes of the server into the index.
func (c *Client) lookCommand(server effects.TmuxServer) *command {
	c.mu.Lock()
	c.server, c.stale = server, false // a notice that comes from now on makes it stale again
	c.mu.Unlock()
	cmd := &command{line: "list-panes -a -F '" + paneFormat + "'", blocks: 1}
	cmd.apply = func(r *reply) {
		if r.err != "" && !isGone(r.err) && !strings.HasPrefix(r.err, "no ") {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.server != server {
			return
		}
		tell := c.phase == up // else "" is told once we are
		seen := make(map[string]bool, len(c.index.panes))
		for _, row := range parseRows(lastBlock(r)) {
			if row.launch.UID == "" {
				continue
			}
			seen[row.pane] = true
			before := c.index.panes[row.pane]
			var was effects.TmuxPane
			if before != nil {
				was = before.TmuxPane
			}
			if e := c.take(server, row); e.TmuxPane != was && tell {
				c.events.put(e.Launch.UID)
			}
		}
		for pane, e := range c.index.panes {
			if !seen[pane] {
				c.index.remove(e)
				if tell {
					c.events.put(e.Launch.UID)
				}
			}
		}
	}
	return cmd
}

// take puts what tmux said of a marked pane into the index and sees to it that
// the end of its program is heard of. It needs the lock.
func (c *Client) take(server effects.TmuxServer, r row) *entry {
	old := c.index.panes[r.pane]
	if r.launch.UID == "" { // it does not carry a mark, or not any more
		c.index.remove(old)
		return &entry{}
	}
	e := &entry{TmuxPane: effects.TmuxPane{
		Server: server, Launch: r.launch, Name: r.name, SessionID: r.session, WindowID: r.window, PaneID: r.pane,
		Process: effects.ProcessID{PID: r.pid},
	}}
	same := old != nil && old.Server == server && old.Process.PID == r.pid && old.Launch == r.launch
	if same {
		e.Process, e.killing, e.waiting, e.blind = old.Process, old.killing, old.waiting, old.blind
	}
	if r.known {
		e.Dead, e.ExitKnown, e.ExitCode, e.Signal, e.waiting, e.blind = true, true, r.code, r.signal, false, false
		if !same || !old.Dead {
			c.stats.deaths.Add(1)
		}
	} else if same && old.Dead { // we gave up waiting for how it ended
		e.Dead = true
	}
	if !e.Dead && !e.waiting && !same {
		e.waiting = r.dead || !c.watch(e)
		if e.waiting {
			c.deaths.put(e.PaneID, e.Process)
		}
	}
	c.index.add(e)
	return e
}

// watch asks for notice of the death of e's program; false when it is dead.
func (c *Client) watch(e *entry) bool {
	started, err := process.StartTime(e.Process.PID)
	if errors.Is(err, effects.ErrNotFound) {
		return false
	}
	e.Process.StartTime = started
	if err != nil {
		e.blind = true
		c.o.Log.Error(err, "watch the program of a pane", "pane", e.PaneID)
		return true
	}
	c.listen(e)
	return true
}

// listen has the death of e's program put into the queue, at once when it is
// dead already. It needs the lock.
func (c *Client) listen(e *entry) {
	pane, id := e.PaneID, e.Process
	if err := c.o.Processes.Watch(id, func() { c.deaths.put(pane, id) }); err != nil {
		e.blind = true // the heartbeat looks instead
		c.o.Log.Error(err, "watch the program of a pane", "pane", pane)
	}
}

// Look reads all panes anew, as they are after the call began.
func (c *Client) Look(ctx context.Context) error {
	cn, err := c.ready(ctx)
	if errors.Is(err, errNoServer) {
		return nil // that is the whole look: there is none
	}
	if err != nil {
		return fmt.Errorf("list tmux panes: %w", err)
	}
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()
	cmd := c.lookCommand(server)
	if err := cn.run(ctx, cmd); err != nil {
		c.mu.Lock()
		c.stale = true
		c.mu.Unlock()
		return fmt.Errorf("list tmux panes: %w", err)
	}
	return nil
}

// fresh returns once the index is right. Callers that come while one look is
// under way share the next.
func (c *Client) fresh(ctx context.Context) error {
	for {
		if _, err := c.ready(ctx); err != nil {
			return err
		}
		c.mu.Lock()
		if !c.stale && c.look == nil {
			c.mu.Unlock()
			return nil
		}
		if running := c.look; running != nil {
			c.mu.Unlock()
			select {
			case <-running:
			case <-ctx.Done():
				return fmt.Errorf("list tmux panes: %w: %w", effects.ErrUnreachable, ctx.Err())
			}
			continue
		}
		running := make(chan struct{})
		c.look = running
		c.mu.Unlock()
		err := c.Look(ctx)
		c.mu.Lock()
		c.look = nil
		close(running)
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// Get returns the pane that carries uid; of several the one of the latest
// attempt. It matches effects.ErrNotFound only after a complete look at the
// proved server, or when it is proved that there is no server; else
// effects.ErrUnreachable. It costs no command unless a notice said that
// something changed.
func (c *Client) Get(ctx context.Context, uid string) (effects.TmuxPane, error) {
	if err := c.fresh(ctx); err != nil {
		return effects.TmuxPane{}, fmt.Errorf("get tmux pane of %s: %w", uid, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == lost {
		return effects.TmuxPane{}, c.unreachableLocked()
	}
	e := c.index.uids[uid]
	if e == nil {
		return effects.TmuxPane{}, fmt.Errorf("tmux pane of %s: %w", uid, effects.ErrNotFound)
	}
	return e.TmuxPane, nil
}

// List returns all panes that carry a mark, by UID and attempt; no server is an
// empty list. It matches effects.ErrUnreachable.
func (c *Client) List(ctx context.Context) ([]effects.TmuxPane, error) {
	if err := c.fresh(ctx); err != nil && !errors.Is(err, errNoServer) {
		return nil, fmt.Errorf("list tmux panes: %w", err)
	}
	c.mu.Lock()
	all := make([]effects.TmuxPane, 0, len(c.index.panes))
	for _, e := range c.index.panes {
		all = append(all, e.TmuxPane)
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b effects.TmuxPane) int {
		return strings.Compare(a.Launch.FileName()+a.PaneID, b.Launch.FileName()+b.PaneID)
	})
	return all, nil
}

// note takes one notification of tmux. Those that touch a pane of ours make
// the index stale: what is true is what a look finds.
func (c *Client) note(line string) {
	f := strings.SplitN(line, " ", 3)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f[0] {
	case "%unlinked-window-close", "%window-close", "%window-pane-changed":
		if len(f) < 2 {
			return
		}
		c.index.window(f[1], func(e *entry) {
			if e.killing {
				return
			}
			c.stale = true
			c.events.put(e.Launch.UID)
		})
	case "%session-renamed":
		if len(f) < 3 {
			return
		}
		c.index.session(f[1], func(e *entry) {
			if e.Name != f[2] {
				e.Name = f[2]
				c.events.put(e.Launch.UID)
			}
		})
	}
}
