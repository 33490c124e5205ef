package tmux

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"skc.dev/skc/effects"
)

var (
	errHung  = errors.New("it gave no answer in time")
	errEnded = errors.New("the connection ended")
)

// command is one line for tmux, which may hold several commands.
type command struct {
	line    string
	blocks  int // answers that it gives, one a command, when none fails
	history int // wanted history-limit of what the line creates; 0 for any
	nonce   string
	reply   reply
	apply   func(*reply) // run in the order of the answers, before the caller wakes
	sent    time.Time
	done    chan struct{}
}

// reply is what a line was answered: the output of each command, and the error
// of the one that failed, after which tmux runs no other of the line.
type reply struct {
	blocks [][]string
	err    string
}

// conn is one control-mode client. Commands are pipelined; tmux answers them
// in order.
type conn struct {
	c    *Client
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	note func(string) // called for each notification, in the order of the stream

	slots chan struct{}

	write   sync.Mutex // held over queueing and writing, so that both have one order
	history int        // the server's history-limit as left by the last line written

	mu    sync.Mutex
	queue []*command
	err   error
	dead  chan struct{}

	lastReply atomic.Int64 // clock time in ns
	stderr    tail
	exited    chan struct{}
}

// tail keeps the first bytes of what a program said.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := 512 - len(t.buf); room > 0 {
		t.buf = append(t.buf, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}

// environment is all that tmux gets of ours: nothing of the controller's own
// environment reaches a session.
func environment() []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	return []string{"PATH=" + path, "HOME=" + os.Getenv("HOME"), "TERM=screen-256color", "LANG=C.UTF-8"}
}

// tmuxCommand is the beginning of every call of tmux: our socket, no file of
// the user's, UTF-8 whatever the locale says.
func tmuxCommand(ctx context.Context, tmux, socket string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, tmux, append([]string{"-u", "-S", socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = environment()
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals of a terminal are not for it
	return cmd
}

// anchorName cannot be the name of a session of ours. It is what the
// connection sits on, so that it gets no output of any pane.
const anchorName = "_anchor"

// connect starts the control client. It makes the anchor again when a user
// took it away; -N keeps it from starting a server.
func (c *Client) connect(adopt bool) (*conn, error) {
	args := []string{"new-session", "-A", "-s", anchorName, "-f", "no-output,ignore-size",
		"-x", "80", "-y", "24", "--", "/bin/true", anchorName}
	if adopt { // else the anchor would go with its program
		args = append([]string{"set-option", "-gw", "remain-on-exit", "on", ";"}, args...)
	}
	return c.client(c.note, args...)
}

// client starts a control client that attaches by args. It ends by close, not
// by a context, so that it is always waited for.
func (c *Client) client(note func(string), args ...string) (*conn, error) {
	cmd := tmuxCommand(context.Background(), c.o.Tmux, c.o.Socket, append([]string{"-N", "-C"}, args...)...)
	cn := &conn{
		c: c, cmd: cmd, note: note,
		slots:  make(chan struct{}, c.o.Window),
		dead:   make(chan struct{}),
		exited: make(chan struct{}),
	}
	var err error
	if cn.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start tmux client: %w", err)
	}
	if cn.out, err = cmd.StdoutPipe(); err != nil {
		return nil, fmt.Errorf("start tmux client: %w", err)
	}
	cmd.Stderr = &cn.stderr
	if err := cmd.Start(); err != nil {
		_ = cn.in.Close()
		_ = cn.out.Close()
		return nil, startError("start tmux client", err)
	}
	cn.lastReply.Store(c.o.Clock.Now().UnixNano())
	go cn.read()
	return cn, nil
}

// startError tells a missing program from other failures.
func startError(what string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%s: %w: %w", what, effects.ErrUnavailable, err)
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) {
		return fmt.Errorf("%s: %w: %w", what, effects.ErrExhausted, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// close ends the client and waits for it and for the reader.
func (cn *conn) close() {
	cn.fail(errEnded)
	<-cn.exited
}

// fail gives every waiting caller err and ends the client. Only the first call
// does anything.
func (cn *conn) fail(err error) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.err != nil {
		return
	}
	cn.err = err
	close(cn.dead)
	// Killed, not asked: one that is stopped would not hear. The server sees the
	// connection end in any case.
	_ = cn.cmd.Process.Kill()
	_ = cn.in.Close()
	_ = cn.out.Close() // the server holds the other end, and may be stopped
}

func (cn *conn) failure() error {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if s := cn.stderr.String(); s != "" && errors.Is(cn.err, errEnded) {
		return fmt.Errorf("%w: tmux said %q", cn.err, s)
	}
	return cn.err
}

func (cn *conn) unreachable() error {
	return fmt.Errorf("tmux %w: %w", effects.ErrUnreachable, cn.failure())
}

// send writes cmd and returns at once; it waits only for room in the window.
func (cn *conn) send(ctx context.Context, cmd *command) error {
	select {
	case cn.slots <- struct{}{}:
	case <-cn.dead:
		return cn.unreachable()
	case <-ctx.Done():
		return fmt.Errorf("wait for tmux: %w: %w", effects.ErrUnreachable, ctx.Err())
	}
	cmd.done = make(chan struct{})
	cn.write.Lock()
	defer cn.write.Unlock()
	line := cmd.line
	if cmd.history > 0 && cmd.history != cn.history {
		// Read by tmux when it makes a session. Decided here, where lines get their
		// order, so that no other line comes between.
		line = "set-option -g history-limit " + strconv.Itoa(cmd.history) + " ; " + line
		cmd.blocks++
		cn.history = cmd.history
	}
	cmd.sent = cn.c.o.Clock.Now()
	cn.mu.Lock()
	if cn.err != nil {
		cn.mu.Unlock()
		return cn.unreachable()
	}
	cn.queue = append(cn.queue, cmd)
	cn.mu.Unlock()
	cn.c.stats.commands.Add(1)
	if _, err := io.WriteString(cn.in, line+"\n"); err != nil {
		cn.fail(fmt.Errorf("%w: %w", errEnded, err))
		return cn.unreachable()
	}
	return nil
}

// wait returns when cmd is answered. Without an answer in time the whole
// connection is given up: tmux answers in order, so nothing behind would be.
func (cn *conn) wait(ctx context.Context, cmd *command) error {
	limit := cn.c.o.Clock.NewTimer(cn.c.o.Timeout)
	defer limit.Stop()
	select {
	case <-cmd.done:
		return nil
	case <-cn.dead:
	case <-limit.C():
		cn.fail(errHung)
	case <-ctx.Done():
		return fmt.Errorf("wait for tmux: %w: %w", effects.ErrUnreachable, ctx.Err())
	}
	select { // the answer may have come first
	case <-cmd.done:
		return nil
	default:
	}
	cn.c.stats.errors.Add(1)
	return cn.unreachable()
}

// run sends cmd and waits for its answer. An error matches
// effects.ErrUnreachable: nobody knows whether the command was run. tmux's own
// error is in cmd.reply.
func (cn *conn) run(ctx context.Context, cmd *command) error {
	if err := cn.send(ctx, cmd); err != nil {
		return err
	}
	return cn.wait(ctx, cmd)
}

// read takes the stream apart until it ends. Blocks with flags 1 are answers
// to our lines; all others belong to the attach itself and to hooks.
func (cn *conn) read() {
	defer close(cn.exited)
	r := bufio.NewReaderSize(cn.out, 64<<10)
	err := cn.parse(r)
	cn.fail(fmt.Errorf("%w: %w", errEnded, err))
	_ = cn.cmd.Wait() // it was killed; how it ended says nothing
}

func (cn *conn) parse(r *bufio.Reader) error {
	var (
		block []string
		mark  []byte // "<time> <number> <flags>" of the open block; nil outside
		ours  bool
	)
	for {
		line, err := readLine(r)
		if err != nil {
			return err
		}
		if mark == nil {
			rest, ok := bytes.CutPrefix(line, []byte("%begin "))
			if !ok {
				cn.note(string(line))
				continue
			}
			mark = bytes.Clone(rest)
			ours = bytes.HasSuffix(mark, []byte(" 1"))
			block = nil
			if ours {
				if cmd := cn.head(); cmd != nil && cmd.nonce != "" {
					notes, err := cn.parseGuarded(r, cmd, mark)
					if err != nil {
						return err
					}
					cn.finish(cmd)
					for _, n := range notes {
						cn.note(n)
					}
					mark = nil
				}
			}
			continue
		}
		end, failed := closes(line, mark)
		if !end {
			if ours {
				block = append(block, string(line))
			}
			continue
		}
		mark = nil
		if !ours {
			continue
		}
		cmd := cn.head()
		if cmd == nil {
			return errors.New("tmux answered what was not asked")
		}
		if failed {
			cmd.reply.err = strings.Join(block, "; ")
			if cmd.reply.err == "" {
				cmd.reply.err = "unnamed error"
			}
		} else {
			cmd.reply.blocks = append(cmd.reply.blocks, block)
		}
		if failed || len(cmd.reply.blocks) == cmd.blocks {
			cn.finish(cmd)
		}
	}
}

// closes tells whether line ends the block with this mark, and whether that is
// an error.
func closes(line, mark []byte) (end, failed bool) {
	if rest, ok := bytes.CutPrefix(line, []byte("%end ")); ok {
		return bytes.Equal(rest, mark), false
	}
	if rest, ok := bytes.CutPrefix(line, []byte("%error ")); ok {
		return bytes.Equal(rest, mark), true
	}
	return false, false
}

// parseGuarded reads the answer of a command whose output is a screen, on which
// a program may have drawn the end of a block. The command is followed by one
// that prints a number nobody else knows; the last end before that is the real
// one, and what stands after it are notifications.
func (cn *conn) parseGuarded(r *bufio.Reader, cmd *command, mark []byte) (notes []string, err error) {
	var lines [][]byte
	for {
		line, err := readLine(r)
		if err != nil {
			return nil, err
		}
		if string(line) == cmd.nonce {
			break
		}
		lines = append(lines, bytes.Clone(line))
	}
	if _, err := readLine(r); err != nil { // the end of the number's own block
		return nil, err
	}
	for i := len(lines) - 1; i >= 0; i-- {
		end, failed := closes(lines[i], mark)
		if !end {
			continue
		}
		out := make([]string, i)
		for j := range out {
			out[j] = string(lines[j])
		}
		if failed {
			cmd.reply.err = strings.Join(out, "; ")
		} else {
			cmd.reply.blocks = append(cmd.reply.blocks, out)
		}
		for _, l := range lines[i+1:] {
			if !bytes.HasPrefix(l, []byte("%begin ")) {
				notes = append(notes, string(l))
			}
		}
		return notes, nil
	}
	return nil, errors.New("tmux did not end an answer")
}

// guarded makes cmd one whose end cannot be forged by its own output.
func guarded(cmd *command) *command {
	cmd.nonce = "end-" + rand.Text()
	cmd.line += "\ndisplay-message -p " + cmd.nonce
	return cmd
}

// readLine returns the next line without its end; it is valid until the next
// call.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = r.ReadSlice('\n')
			long = append(long, line...)
		}
		line = long
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

func (cn *conn) head() *command {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if len(cn.queue) == 0 {
		return nil
	}
	return cn.queue[0]
}

// finish answers the oldest command.
func (cn *conn) finish(cmd *command) {
	cn.mu.Lock()
	given := cn.err != nil // up already: its caller was told that nobody knows
	cn.queue[0] = nil
	cn.queue = cn.queue[1:]
	cn.mu.Unlock()
	now := cn.c.o.Clock.Now()
	cn.lastReply.Store(now.UnixNano())
	cn.c.stats.roundTrip.Add(int64(now.Sub(cmd.sent)))
	if cmd.reply.err != "" {
		cn.c.stats.errors.Add(1)
	}
	if !given {
		if cmd.apply != nil {
			cmd.apply(&cmd.reply)
		}
		close(cmd.done)
	}
	<-cn.slots
}
