// Package tmux keeps one private tmux server per home and speaks to it over one
// control-mode connection. It keeps true that there is never a second server
// beside a live one, that whatever it says of a session was seen on a server
// whose process is proved, and that no call waits on a server that does not
// answer. What sessions there should be is decided elsewhere.
//
// A pane is known by its mark: the last part of the path of the launch file
// with which it was started, which tmux keeps and shows. No text of a user is
// ever part of a command, but for the values of tags, which tmux does not read.
package tmux

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/process"
)

var (
	pointStart   = fault.New("tmux.start-server")
	pointCreate  = fault.New("tmux.create")
	pointRespawn = fault.New("tmux.respawn")
	pointKill    = fault.New("tmux.kill")
	pointRecord  = fault.New("tmux.record-server")
)

// Options says where the server is and what to start in it.
type Options struct {
	Socket    string           // of the private server; its folder is closed to others
	Tmux      string           // the tmux program; "tmux" when empty
	Launcher  string           // the program that every pane starts, an absolute path
	LaunchDir string           // where its launch files are, an absolute path
	Processes *process.Watcher // tells of deaths; stays the caller's
	Files     *files.Layer     // writes the record of the server; its Guard is asked before a server is started
	Clock     clock.Clock
	Log       logr.Logger

	Timeout   time.Duration // for one answer of tmux; 5 s when 0
	Heartbeat time.Duration // silence after which tmux is asked whether it lives; 4 s when 0
	Window    int           // commands in flight; 16 when 0

	// SystemdDir is there when systemd runs this machine; /run/systemd/system
	// when empty.
	SystemdDir string
}

// phase is what is known of the server.
type phase int

const (
	connecting phase = iota // being looked for; callers wait a little
	gone                    // proved: there is none
	up                      // proved and answering
	lost                    // unknown, or it does not answer
)

// Client is the connection to the private server. Its methods may be called at
// the same time; all but OnChange need Run to be running.
type Client struct {
	o       Options
	wanted  chan *startRequest
	noticed chan struct{} // something happened to the socket or its folder
	folder  *fsnotify.Watcher
	watched string // the inode of the folder that is watched; Run's goroutine only
	deaths  deathQueue
	events  eventQueue
	limits  func(server int) (limits, error)
	started atomic.Bool

	mu      sync.Mutex
	phase   phase
	changed chan struct{} // closed at the next change of phase
	cause   error         // why lost
	conn    *conn         // when up
	server  effects.TmuxServer
	index   *index
	stale   bool          // a notice says that the index may be wrong
	look    chan struct{} // closed when the look that makes it right again ends
	room    int           // panes that may be created before the server's descriptors are counted again

	onChange []func(string)
	stats    counters
}

type startRequest struct{ done chan error }

// Stats are counts since the start.
type Stats struct {
	Commands     int64         // lines sent
	Errors       int64         // of them answered with an error, or not
	RoundTrip    time.Duration // sum over all answered lines
	Connects     int64         // control connections that came up
	ServerStarts int64
	Deaths       int64 // panes whose program ended
	DeathsBlind  int64 // of them, those of which tmux could not say how
}

type counters struct {
	commands, errors, roundTrip, connects, serverStarts, deaths, deathsBlind atomic.Int64
}

// New returns a client that does nothing until Run.
func New(o Options) *Client {
	if o.Tmux == "" {
		o.Tmux = "tmux"
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 4 * time.Second
	}
	if o.Window == 0 {
		o.Window = 16
	}
	if o.SystemdDir == "" {
		o.SystemdDir = "/run/systemd/system"
	}
	return &Client{
		o:       o,
		wanted:  make(chan *startRequest),
		noticed: make(chan struct{}, 1),
		deaths:  deathQueue{kick: make(chan struct{}, 1)},
		events:  eventQueue{kick: make(chan struct{}, 1)},
		limits:  readLimits,
		changed: make(chan struct{}),
		index:   newIndex(),
	}
}

// OnChange registers f, to be called with the UID of a pane that died,
// vanished, appeared or was renamed, and with "" when everything may have
// changed: the server is gone, new, unreachable or answers again. f is called
// from one goroutine of Run and holds up only other calls of its kind.
// Register before Run.
func (c *Client) OnChange(f func(uid string)) { c.onChange = append(c.onChange, f) }

// Stats returns the counts so far.
func (c *Client) Stats() Stats {
	s := &c.stats
	return Stats{
		Commands: s.commands.Load(), Errors: s.errors.Load(), RoundTrip: time.Duration(s.roundTrip.Load()),
		Connects: s.connects.Load(), ServerStarts: s.serverStarts.Load(),
		Deaths: s.deaths.Load(), DeathsBlind: s.deathsBlind.Load(),
	}
}

// Run finds the server and keeps the connection to it until ctx ends; then it
// leaves server and sessions alive and returns nil. An error means that it
// could not begin: the socket's folder or the paths cannot be used.
func (c *Client) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return errors.New("tmux client runs already")
	}
	for _, p := range []string{c.o.Socket, c.o.Launcher, c.o.LaunchDir} {
		if !filepath.IsAbs(p) || strings.ContainsAny(p, "\n\r\x00") {
			return fmt.Errorf("path %q: must be absolute and hold no line end or NUL", p)
		}
	}
	if err := files.MkdirPrivate(filepath.Dir(c.o.Socket)); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.watchFolder(ctx, &wg)
	wg.Go(func() { c.deliver(ctx) })
	wg.Go(func() { c.reap(ctx) })
	wait := time.Duration(0)
	for ctx.Err() == nil {
		connects := c.stats.connects.Load()
		err := c.serve(ctx)
		if ctx.Err() != nil {
			break
		}
		if err == nil || c.stats.connects.Load() > connects {
			wait = 0 // it came up, or there is nothing to wait for
		}
		if err != nil {
			c.setLost(err, wait > 0)
			if wait = max(2*wait, firstBackoff); wait > maxBackoff {
				wait = maxBackoff
			}
			c.pause(ctx, wait)
		}
	}
	c.setPhase(func() { c.phase, c.cause, c.conn = lost, errors.New("the client has ended"), nil })
	return nil
}

const (
	firstBackoff = 20 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// pause waits d, or until something happens to the socket, or someone wants a
// server, which shortens the wait.
func (c *Client) pause(ctx context.Context, d time.Duration) {
	t := c.o.Clock.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C():
			return
		case <-c.noticed:
			return
		case r := <-c.wanted:
			r.done <- c.unreachable()
		}
	}
}

// serve lives through one connection: it finds the server, attaches, and
// returns when the connection ended. Without a server it waits until one is
// wanted or appears. nil asks for the next look at once.
func (c *Client) serve(ctx context.Context) error {
	found, err := c.find(ctx)
	if err != nil {
		return err
	}
	if found.PID != 0 {
		c.setPhase(func() {
			if c.phase == gone { // not any more
				c.phase = connecting
			}
		})
		return c.attach(ctx, found)
	}
	c.setGone()
	select {
	case <-ctx.Done():
		return nil
	case <-c.noticed:
		return nil
	case r := <-c.wanted:
		found, err := c.find(ctx) // the last look may be long ago
		if err != nil {
			r.done <- unreachable(c.o.Socket, err)
			return err
		}
		if found.PID == 0 {
			if found, err = c.startServer(ctx); err != nil {
				r.done <- err
				return nil // proved gone before, and looked for again at once
			}
		}
		c.setPhase(func() { c.phase, c.conn = connecting, nil })
		r.done <- nil
		return c.attach(ctx, found)
	}
}

func (c *Client) setPhase(set func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set()
	close(c.changed)
	c.changed = make(chan struct{})
}

// setGone forgets every pane: there is no server that could hold one.
func (c *Client) setGone() {
	c.mu.Lock()
	already, server := c.phase == gone, c.server
	c.mu.Unlock()
	if already {
		return
	}
	if server.PID != 0 {
		c.o.Log.Info("tmux server is gone", "socket", c.o.Socket, "pid", server.PID)
	}
	c.setPhase(func() {
		c.phase, c.conn, c.cause, c.server, c.index, c.stale = gone, nil, nil, effects.TmuxServer{}, newIndex(), false
	})
	c.events.put("")
}

// setLost reports that nobody can say what there is. The first broken
// connection is only reported once a second one did not come up.
func (c *Client) setLost(err error, again bool) {
	hung := errors.Is(err, errHung)
	c.mu.Lock()
	was := c.phase
	c.mu.Unlock()
	if was == gone && errors.Is(err, errEnded) {
		return // the death was seen first; find will prove it
	}
	if !again && !hung && was != lost && errors.Is(err, errEnded) {
		c.setPhase(func() { c.phase, c.conn = connecting, nil })
		return
	}
	c.setPhase(func() { c.phase, c.conn, c.cause = lost, nil, err })
	if was != lost {
		c.o.Log.Info("tmux is unreachable", "socket", c.o.Socket, "reason", err.Error())
		c.events.put("")
	}
}

func (c *Client) unreachable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unreachableLocked()
}

func (c *Client) unreachableLocked() error {
	if c.cause == nil {
		return fmt.Errorf("tmux server at %s %w", c.o.Socket, effects.ErrUnreachable)
	}
	return unreachable(c.o.Socket, c.cause)
}

// unreachable says that nobody knows, and why. It never matches
// effects.ErrNotFound, whatever could not be found on the way.
func unreachable(socket string, cause error) error {
	if errors.Is(cause, effects.ErrNotFound) {
		return fmt.Errorf("tmux server at %s %w: %v", socket, effects.ErrUnreachable, cause)
	}
	return fmt.Errorf("tmux server at %s %w: %w", socket, effects.ErrUnreachable, cause)
}

var errNoServer = fmt.Errorf("tmux server: %w", effects.ErrNotFound)

// ready returns the connection, or an error matching effects.ErrNotFound (there
// is no server, proved) or effects.ErrUnreachable. It waits, at most one
// Timeout, only while the server is first looked for.
func (c *Client) ready(ctx context.Context) (*conn, error) {
	var limit clock.Timer
	for {
		c.mu.Lock()
		ph, cn, changed := c.phase, c.conn, c.changed
		err := c.unreachableLocked()
		c.mu.Unlock()
		switch ph {
		case up:
			return cn, nil
		case gone:
			return nil, errNoServer
		case lost:
			return nil, err
		}
		if limit == nil {
			limit = c.o.Clock.NewTimer(c.o.Timeout)
			defer limit.Stop()
		}
		select {
		case <-changed:
		case <-limit.C():
			return nil, err
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the tmux server: %w: %w", effects.ErrUnreachable, ctx.Err())
		}
	}
}

// readyOrStart is ready, and starts a server when there is none.
func (c *Client) readyOrStart(ctx context.Context) (*conn, error) {
	for try := 0; ; try++ {
		cn, err := c.ready(ctx)
		if !errors.Is(err, errNoServer) || try == 3 {
			return cn, err
		}
		r := &startRequest{done: make(chan error, 1)}
		limit := c.o.Clock.NewTimer(3 * c.o.Timeout) // a scope of systemd and a plain start, each with its own limit
		defer limit.Stop()
		c.mu.Lock()
		ph, changed := c.phase, c.changed
		c.mu.Unlock()
		if ph != gone {
			continue
		}
		select {
		case c.wanted <- r:
		case <-changed: // someone else's wish came first
			continue
		case <-limit.C():
			return nil, c.unreachable()
		case <-ctx.Done():
			return nil, fmt.Errorf("start the tmux server: %w: %w", effects.ErrUnreachable, ctx.Err())
		}
		select {
		case err := <-r.done:
			if err != nil {
				return nil, err
			}
		case <-limit.C():
			return nil, c.unreachable()
		case <-ctx.Done():
			return nil, fmt.Errorf("start the tmux server: %w: %w", effects.ErrUnreachable, ctx.Err())
		}
	}
}

// Server returns the proved server, or an error matching effects.ErrNotFound
// when it is proved that there is none, or effects.ErrUnreachable.
func (c *Client) Server(ctx context.Context) (effects.TmuxServer, error) {
	if _, err := c.ready(ctx); err != nil {
		return effects.TmuxServer{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server, nil
}

// eventQueue holds what is to be told. It never blocks the one who puts.
type eventQueue struct {
	mu   sync.Mutex
	uids []string
	kick chan struct{}
}

func (q *eventQueue) put(uid string) {
	q.mu.Lock()
	q.uids = append(q.uids, uid)
	q.mu.Unlock()
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

func (c *Client) deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.events.kick:
		}
		c.events.mu.Lock()
		uids := c.events.uids
		c.events.uids = nil
		c.events.mu.Unlock()
		for i, uid := range uids {
			if i > 0 && uid == uids[i-1] {
				continue
			}
			for _, f := range c.onChange {
				f(uid)
			}
		}
	}
}

// watchFolder asks for notices of the socket's folder. Without them the
// heartbeat finds a lost socket, later.
func (c *Client) watchFolder(ctx context.Context, wg *sync.WaitGroup) {
	dir := filepath.Dir(c.o.Socket)
	w, err := fsnotify.NewWatcher()
	if err != nil {
		c.o.Log.Info("no notices of the tmux socket; it is looked at every heartbeat", "reason", err.Error())
		return
	}
	c.folder = w // keepFolder says what to watch
	wg.Go(func() {
		defer w.Close() //nolint:errcheck // nothing is written
		for {
			select {
			case <-ctx.Done():
				return
			case ev := <-w.Events:
				if ev.Name != dir && (ev.Name != c.o.Socket || ev.Has(fsnotify.Chmod)) {
					continue
				}
			case <-w.Errors: // an overflow, above all: look
			}
			select {
			case c.noticed <- struct{}{}:
			default:
			}
		}
	})
}

// keepFolder makes the socket's folder again when it was taken away.
func (c *Client) keepFolder() error {
	dir := filepath.Dir(c.o.Socket)
	if err := files.MkdirPrivate(dir); err != nil {
		return err
	}
	inode, err := files.Identity(dir, false)
	if err != nil || c.folder == nil || inode == c.watched {
		return err
	}
	if err := c.folder.Add(dir); err != nil { // no watches left: the heartbeat looks
		c.o.Log.Info("no notices of the tmux socket; it is looked at every heartbeat", "reason", err.Error())
	}
	c.watched = inode
	return nil
}
