package tmux

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/process"
)

// deathQueue holds programs that the kernel said are dead. It never blocks the
// one who puts.
type deathQueue struct {
	mu   sync.Mutex
	list []death
	kick chan struct{}
}

// death is of one program in one pane: the one before it may end later.
type death struct {
	pane string
	id   effects.ProcessID
}

// patience counts how long how a program ended was asked for in vain.
type patience struct {
	since time.Time
	asks  int
}

func (q *deathQueue) put(pane string, id effects.ProcessID) {
	q.mu.Lock()
	q.list = append(q.list, death{pane: pane, id: id})
	q.mu.Unlock()
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

func (q *deathQueue) drain() []death {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.list
	q.list = nil
	return l
}

const (
	firstAsk = time.Millisecond
	maxAsk   = 250 * time.Millisecond
	// giveUp is when a program is said to be dead although tmux still does not
	// know how it ended: after so long in which nothing was learned of any, and
	// no fewer asks.
	giveUp     = 5 * time.Second
	giveUpAsks = 20
)

// reap learns how programs ended. tmux may miss a death until its next child
// ends, so the server is sent SIGCHLD before it is asked, for all that are
// waiting at once, until it knows.
func (c *Client) reap(ctx context.Context) {
	waiting := map[death]*patience{}
	wait := firstAsk
	again := c.o.Clock.NewTimer(time.Hour) // runs only while deaths are waiting
	again.Stop()
	defer again.Stop()
	for {
		if len(waiting) > 0 {
			again.Reset(wait)
			wait = min(2*wait, maxAsk)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C():
		case <-c.deaths.kick:
			wait = firstAsk
		}
		for _, d := range c.deaths.drain() {
			waiting[d] = &patience{since: c.o.Clock.Now()}
		}
		c.settle(waiting)
		if len(waiting) == 0 {
			continue
		}
		c.ask(ctx, waiting)
		c.settle(waiting)
	}
}

// settle drops the deaths that are no longer waited for, and those waited for
// too long.
func (c *Client) settle(waiting map[death]*patience) {
	c.mu.Lock()
	defer c.mu.Unlock()
	learned := false
	for d := range waiting {
		e := c.index.panes[d.pane]
		if e == nil || e.Process != d.id || e.Dead || e.killing {
			delete(waiting, d) // gone, started anew, or known
			learned = true
		}
	}
	now := c.o.Clock.Now()
	for d, p := range waiting {
		e := c.index.panes[d.pane]
		e.waiting = true
		if learned { // tmux is at it
			p.since, p.asks = now, 0
		}
		if now.Sub(p.since) < giveUp || p.asks < giveUpAsks {
			continue
		}
		delete(waiting, d)
		e.Dead, e.waiting = true, false
		c.stats.deaths.Add(1)
		c.stats.deathsBlind.Add(1)
		c.events.put(e.Launch.UID)
	}
}

// ask reads the exit statuses of all that are waiting with one command. Its
// answer goes into the index, which tells of each change.
func (c *Client) ask(ctx context.Context, waiting map[death]*patience) {
	c.mu.Lock()
	ph, cn, server := c.phase, c.conn, c.server
	c.mu.Unlock()
	if ph != up {
		return // the look after the next connect tells
	}
	for _, p := range waiting {
		p.asks++
	}
	if err := process.Signal(server.ProcessID, unix.SIGCHLD); err != nil {
		c.o.Log.Error(err, "tell the tmux server of a death")
		return
	}
	if len(waiting) > 1 {
		_ = c.Look(ctx) // its failure is the connection's, which is seen by all
		return
	}
	for d := range waiting { // the only one: its window is enough
		pane := d.pane
		cmd := &command{line: "list-panes -t " + quote(pane) + " -F '" + paneFormat + "'", blocks: 1}
		cmd.apply = func(r *reply) {
			c.mu.Lock()
			defer c.mu.Unlock()
			e := c.index.panes[pane]
			if e == nil || c.server != server {
				return
			}
			if isGone(r.err) {
				c.index.remove(e)
				c.events.put(e.Launch.UID)
				return
			}
			for _, row := range parseRows(lastBlock(r)) {
				if row.pane != pane {
					continue
				}
				if was := e.TmuxPane; c.take(server, row).TmuxPane != was {
					c.events.put(was.Launch.UID)
				}
			}
		}
		_ = cn.run(ctx, cmd)
	}
}
