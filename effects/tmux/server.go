package tmux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/process"
)

// serverOptions is the whole configuration of the server. It replaces the
// user's, which is never read.
var serverOptions = [][]string{
	{"set-option", "-s", "exit-empty", "off"}, // a server without sessions stays: the next create must not race its end
	{"set-option", "-s", "exit-unattached", "off"},
	{"set-option", "-g", "destroy-unattached", "off"},
	{"set-option", "-g", "detach-on-destroy", "on"},
	{"set-option", "-g", "default-terminal", "screen-256color"},
	{"set-option", "-g", "update-environment", ""}, // who attaches brings nothing into later panes
	{"set-option", "-g", "history-limit", "10000"},
	{"set-option", "-g", "set-titles", "off"},
	{"set-option", "-gw", "remain-on-exit", "on"},       // else the exit status goes with the pane
	{"set-option", "-gwq", "remain-on-exit-format", ""}, // the last lines stay the program's own
	{"set-option", "-gw", "automatic-rename", "off"},
	{"set-option", "-gw", "allow-rename", "off"},
	{"set-option", "-gw", "scroll-on-clear", "on"}, // respawn puts the last screen into the history
	{"set-option", "-gw", "window-size", "latest"},
	// Pasting into a dead pane ends tmux 3.3a with all its sessions, so the key
	// for it asks first.
	{"bind-key", "]", "if-shell", "-F", "#{pane_dead}", "", "paste-buffer -p"},
}

// recordPath is where the server's process is written down, so that a server
// whose socket is lost is not taken for gone.
func (c *Client) recordPath() string { return c.o.Socket + ".server" }

// readRecord returns the server written down, or the zero value when there is
// none, or none of this boot.
func (c *Client) readRecord() (effects.ProcessID, error) {
	data, err := files.Read(c.recordPath(), 4096)
	if errors.Is(err, fs.ErrNotExist) {
		return effects.ProcessID{}, nil
	}
	if err != nil {
		return effects.ProcessID{}, fmt.Errorf("read the record of the tmux server: %w", err)
	}
	boot, err := process.BootID()
	if err != nil {
		return effects.ProcessID{}, err
	}
	f := strings.Fields(string(data))
	if len(f) != 3 || f[2] != boot {
		return effects.ProcessID{}, nil // cut short by a power failure, or of an earlier boot: that server is gone
	}
	pid, err := strconv.Atoi(f[0])
	if err != nil || pid < 2 {
		return effects.ProcessID{}, nil
	}
	return effects.ProcessID{PID: pid, StartTime: f[1]}, nil
}

func (c *Client) writeRecord(id effects.ProcessID) error {
	boot, err := process.BootID()
	if err != nil {
		return err
	}
	return c.o.Files.Write(pointRecord, c.recordPath(), fmt.Appendf(nil, "%d %s %s\n", id.PID, id.StartTime, boot), files.Derived)
}

// found is a server that was found; a zero PID means that it is proved that
// there is none.
type found struct {
	effects.ProcessID
	adopt bool // it is not written down: prove that it is a tmux, and set its options
}

// find proves which server is ours. The process that was written down is ours
// while it lives; a socket that leads elsewhere, or nowhere, is healed.
func (c *Client) find(ctx context.Context) (found, error) {
	again := c.o.Clock.NewTimer(healEvery)
	defer again.Stop()
	for try := 0; ; try++ {
		f, err := c.findOnce(ctx)
		if !errors.Is(err, effects.ErrNotFound) || try == 100 {
			return f, err
		}
		// It ended between two looks at it. The kernel closes the sockets of a dead
		// process a little later; the next look sees that.
		select {
		case <-again.C():
			again.Reset(healEvery)
		case <-ctx.Done():
			return found{}, ctx.Err()
		}
	}
}

func (c *Client) findOnce(ctx context.Context) (found, error) {
	if err := c.keepFolder(); err != nil {
		return found{}, err
	}
	rec, err := c.readRecord()
	if err != nil {
		return found{}, err
	}
	alive := false
	if rec.PID != 0 {
		if alive, err = process.Alive(rec); err != nil {
			return found{}, err
		}
	}
	peer, err := c.dial(ctx)
	switch {
	case err == nil && alive && peer.pid == rec.PID:
		return found{ProcessID: rec}, nil
	case err == nil && alive, noListener(err) && alive:
		if err := c.heal(ctx, rec); err != nil {
			return found{}, err
		}
		return found{ProcessID: rec}, nil
	case err == nil:
		if peer.uid != os.Geteuid() {
			return found{}, fmt.Errorf("the socket %s is served by uid %d", c.o.Socket, peer.uid)
		}
		started, err := process.StartTime(peer.pid)
		if err != nil {
			return found{}, err
		}
		return found{ProcessID: effects.ProcessID{PID: peer.pid, StartTime: started}, adopt: true}, nil
	case noListener(err):
		// A server may listen on a socket whose name was removed, with no record of
		// it: its start was cut off, or the record was removed as well.
		ids, err := hiddenServers(c.o.Socket)
		if err != nil {
			return found{}, err
		}
		if len(ids) == 0 {
			return found{}, nil
		}
		if err := c.heal(ctx, ids[0]); err != nil {
			return found{}, err
		}
		return found{ProcessID: ids[0], adopt: true}, nil
	}
	return found{}, err
}

type peer struct{ pid, uid int }

// dial connects to the socket and asks the kernel who listens. It needs no
// answer of the listener, so it works with a server that hangs.
func (c *Client) dial(ctx context.Context) (peer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	if fi, err := os.Lstat(c.o.Socket); err == nil && fi.Mode()&fs.ModeSocket == 0 {
		// Also a link: it would lead out of our folder.
		return peer{}, fmt.Errorf("%s is in the way: %w", c.o.Socket, errNotSocket)
	}
	var d net.Dialer
	cn, err := d.DialContext(ctx, "unix", c.o.Socket)
	if err != nil {
		return peer{}, fmt.Errorf("connect: %w", err)
	}
	defer cn.Close() //nolint:errcheck // nothing was written
	raw, err := cn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var p peer
	if err := errors.Join(raw.Control(func(fd uintptr) { p, err = peerOf(int(fd)) }), err); err != nil {
		return peer{}, fmt.Errorf("ask who serves %s: %w", c.o.Socket, err)
	}
	return p, nil
}

var errNotSocket = errors.New("not a socket")

// noListener tells whether err proves that nobody listens on the path. Any
// other failure proves nothing: a full queue is a busy server.
func noListener(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errNotSocket)
}

// heal has a living server make its socket again, and waits until it did.
func (c *Client) heal(ctx context.Context, id effects.ProcessID) error {
	if err := c.keepFolder(); err != nil {
		return err
	}
	if fi, err := os.Lstat(c.o.Socket); err == nil && fi.IsDir() {
		return fmt.Errorf("the folder %s is where the tmux socket belongs; move it away", c.o.Socket)
	}
	c.o.Log.Info("the tmux socket is lost; asking the server to make it again", "socket", c.o.Socket, "pid", id.PID)
	limit := c.o.Clock.NewTimer(c.o.Timeout)
	defer limit.Stop()
	again := c.o.Clock.NewTimer(healEvery)
	defer again.Stop()
	for {
		if alive, err := process.Alive(id); err != nil || !alive {
			return errors.Join(err, errEnded)
		}
		if err := process.Signal(id, unix.SIGUSR1); err != nil {
			return err
		}
		for range 10 { // one signal, then some looks
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-limit.C():
				return fmt.Errorf("the tmux server (pid %d) lives and does not make its socket %s again", id.PID, c.o.Socket)
			case <-again.C():
				again.Reset(healEvery)
			}
			if p, err := c.dial(ctx); err == nil && p.pid == id.PID {
				return nil
			}
		}
	}
}

const healEvery = 10 * time.Millisecond

// startServer starts the server and writes it down. It is called only when it
// is proved that there is none.
func (c *Client) startServer(ctx context.Context) (found, error) {
	if c.o.Files.Guard != nil {
		if err := c.o.Files.Guard(); err != nil {
			return found{}, err
		}
	}
	if err := pointStart.At(fault.Before); err != nil {
		return found{}, fmt.Errorf("start tmux server: %w", err)
	}
	var failed error
	for _, cmd := range c.startCommands(ctx) {
		out, err := c.startOnce(ctx, cmd)
		p, dialErr := c.dial(ctx)
		if dialErr != nil {
			if failed = unreachable(c.o.Socket, dialErr); err != nil {
				failed = startError("start tmux server", err)
			}
			if out != "" {
				failed = fmt.Errorf("%w: it said %q", failed, out)
			}
			if !noListener(dialErr) && err == nil {
				break // there is something now: no second one beside it
			}
			continue
		}
		if err := pointStart.At(fault.During); err != nil {
			return found{}, fmt.Errorf("start tmux server: %w", err)
		}
		started, err := process.StartTime(p.pid)
		if err != nil {
			return found{}, unreachable(c.o.Socket, err)
		}
		id := effects.ProcessID{PID: p.pid, StartTime: started}
		if err := c.writeRecord(id); err != nil {
			return found{}, err
		}
		c.stats.serverStarts.Add(1)
		c.o.Log.Info("tmux server started", "socket", c.o.Socket, "pid", id.PID, "by", filepath.Base(cmd.Path))
		return found{ProcessID: id}, pointStart.At(fault.After)
	}
	return found{}, failed
}

func (c *Client) startOnce(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var said tail
	cmd.Stdout, cmd.Stderr = nil, &said
	cmd.WaitDelay = time.Second // a server that kept our pipe must not hold us
	if err := cmd.Start(); err != nil {
		return "", err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t := c.o.Clock.NewTimer(c.o.Timeout)
	defer t.Stop()
	select {
	case err := <-done:
		return said.String(), err
	case <-t.C():
	case <-ctx.Done():
	}
	_ = cmd.Process.Kill()
	<-done
	return said.String(), errHung
}

// startCommands are the ways to start a server, the best first: in a scope of
// its own, so that stopping the controller's unit does not end the sessions.
func (c *Client) startCommands(ctx context.Context) []*exec.Cmd {
	args := []string{"start-server"}
	for _, o := range serverOptions {
		args = append(append(args, ";"), o...)
	}
	// The anchor's program ends at once; its dead pane stays.
	args = append(args, ";", "new-session", "-d", "-s", anchorName, "-x", "80", "-y", "24", "--", "/bin/true", anchorName)
	plain := tmuxCommand(ctx, c.o.Tmux, c.o.Socket, args...)
	if _, err := os.Stat(c.o.SystemdDir); err != nil || plain.Err != nil {
		return []*exec.Cmd{plain}
	}
	scope, manager := []string{"--system"}, []string(nil)
	if os.Geteuid() != 0 {
		scope = []string{"--user"}
		for _, k := range []string{"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"} {
			if v, ok := os.LookupEnv(k); ok {
				manager = append(manager, k+"="+v)
			}
		}
	}
	run := slices.Concat(scope, []string{"--scope", "--quiet", "--collect", "--description=skc tmux server", "--", "env", "-i"}, environment(), []string{plain.Path}, plain.Args[1:])
	sd := exec.CommandContext(ctx, "systemd-run", run...)
	if sd.Err != nil {
		return []*exec.Cmd{plain}
	}
	sd.Env = append(environment(), manager...)
	sd.Dir = "/"
	sd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return []*exec.Cmd{sd, plain}
}

// attach opens the control connection to the server that was found, reads what
// there is, and serves until the connection ends.
func (c *Client) attach(ctx context.Context, f found) error {
	server := effects.TmuxServer{Socket: c.o.Socket, ProcessID: f.ProcessID}
	died := make(chan struct{})
	err := c.o.Processes.Watch(f.ProcessID, func() {
		c.serverDied(server)
		close(died)
	})
	if err != nil {
		return err
	}
	defer c.o.Processes.Unwatch(f.ProcessID)
	inode, _ := files.Identity(c.o.Socket, false) // empty never equals: looked at again at the first heartbeat
	cn, err := c.connect(f.adopt)
	if err != nil {
		return err
	}
	defer cn.close()
	hello := &command{line: "display-message -p '#{pid}' ; show-options -gv history-limit", blocks: 2}
	look := c.lookCommand(server)
	if err := errors.Join(cn.send(ctx, hello), cn.send(ctx, look)); err != nil {
		return err
	}
	// A server that hangs may answer later. One client waits for that, since each
	// new one would take a place in its queue.
	patience := c.o.Clock.NewTimer(c.o.Timeout)
	defer patience.Stop()
	for late, done := false, hello.done; done != nil; {
		select {
		case <-done:
			if done == look.done {
				done = nil
				break
			}
			if err := c.prove(ctx, cn, f, hello); err != nil {
				return err
			}
			done = look.done
		case <-patience.C():
			if late {
				return errHung
			}
			late = true
			c.setLost(errHung, true)
			patience.Reset(10 * c.o.Timeout)
		case r := <-c.wanted:
			r.done <- c.unreachable()
		case <-died:
			return nil
		case <-cn.dead:
			return cn.failure()
		case <-ctx.Done():
			return nil
		}
	}
	if look.reply.err != "" {
		return fmt.Errorf("list panes: %s", look.reply.err)
	}
	if !c.setUp(cn, server) {
		return nil
	}
	c.stats.connects.Add(1)
	beat := c.o.Clock.NewTimer(c.o.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-died:
			return nil
		case <-cn.dead:
			return cn.failure()
		case r := <-c.wanted:
			r.done <- nil
		case <-c.noticed:
			inode = c.checkSocket(ctx, server, inode)
		case <-beat.C():
			inode = c.checkSocket(ctx, server, inode)
			c.beat(ctx, cn)
			beat.Reset(c.o.Heartbeat)
		}
	}
}

// prove compares who answers with who was found, and makes an adopted server
// ours.
func (c *Client) prove(ctx context.Context, cn *conn, f found, hello *command) error {
	if hello.reply.err != "" || len(hello.reply.blocks[0]) != 1 || len(hello.reply.blocks[1]) != 1 {
		return fmt.Errorf("what serves %s does not answer as tmux: %s", c.o.Socket, hello.reply.err)
	}
	if pid := hello.reply.blocks[0][0]; pid != strconv.Itoa(f.PID) {
		return fmt.Errorf("the tmux server says it is process %s and the kernel says %d", pid, f.PID)
	}
	limit, err := strconv.Atoi(hello.reply.blocks[1][0])
	if err != nil {
		return fmt.Errorf("history-limit of the tmux server: %w", err)
	}
	cn.history = limit // nothing was created on this connection yet
	if !f.adopt {
		return nil
	}
	for _, o := range serverOptions {
		words := make([]string, len(o))
		for i, w := range o {
			words[i] = quote(w)
		}
		if err := cn.run(ctx, &command{line: strings.Join(words, " "), blocks: 1}); err != nil {
			return err
		}
		if o[2] == "history-limit" {
			cn.history, _ = strconv.Atoi(o[3])
		}
	}
	c.o.Log.Info("tmux server adopted", "socket", c.o.Socket, "pid", f.PID)
	return c.writeRecord(f.ProcessID)
}

// setUp makes cn the connection that callers use; false when the server died
// meanwhile.
func (c *Client) setUp(cn *conn, server effects.TmuxServer) bool {
	ok := false
	c.setPhase(func() {
		if c.server != server {
			return
		}
		ok = true
		c.phase, c.conn, c.cause, c.room = up, cn, nil, 0
	})
	if ok {
		c.events.put("")
	}
	return ok
}

// serverDied is the one event of a server's death. Its panes are gone with it.
func (c *Client) serverDied(server effects.TmuxServer) {
	c.mu.Lock()
	ours := c.server == server
	c.mu.Unlock()
	if !ours {
		return
	}
	c.setGone()
}

// beat asks a silent server whether it lives, and looks for deaths of which
// the kernel does not tell.
func (c *Client) beat(ctx context.Context, cn *conn) {
	c.mu.Lock()
	blind := false
	for _, e := range c.index.panes {
		blind = blind || e.blind
	}
	c.mu.Unlock()
	if blind {
		_ = c.Look(ctx) // its failure is the connection's, which is seen by all
		return
	}
	if c.o.Clock.Now().UnixNano()-cn.lastReply.Load() < int64(c.o.Heartbeat)/2 {
		return
	}
	_ = cn.run(ctx, &command{line: "display-message -p ok", blocks: 1})
}

// checkSocket compares the socket's inode with the one that was proved, and
// heals it when it is another. It returns the inode that is proved now.
func (c *Client) checkSocket(ctx context.Context, server effects.TmuxServer, proved string) string {
	if err := c.keepFolder(); err != nil {
		c.o.Log.Error(err, "keep the folder of the tmux socket")
		return proved
	}
	now, _ := files.Identity(c.o.Socket, false)
	if now == proved && now != "" {
		return proved
	}
	if p, err := c.dial(ctx); err != nil || p.pid != server.PID {
		if err := c.heal(ctx, server.ProcessID); err != nil {
			if !errors.Is(err, errEnded) && ctx.Err() == nil {
				c.o.Log.Error(err, "heal the tmux socket")
			}
			return ""
		}
	}
	now, _ = files.Identity(c.o.Socket, false)
	if rec, err := c.readRecord(); err == nil && rec != server.ProcessID {
		if err := c.writeRecord(server.ProcessID); err != nil {
			c.o.Log.Error(err, "record the tmux server")
		}
	}
	return now
}
