// Package setup runs the one command that makes a new worktree fit for use. It
// keeps true that a run is begun once, that who asks again gets its result, and
// that nothing the command started in its own group outlives it. When it is
// run, and what follows from its result, is decided elsewhere.
package setup

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"skc.dev/skc/api"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/process"
)

var pointRun = fault.New("setup.run")

const (
	// atOnce is how many commands run at the same time.
	atOnce = 16
	// grace is what a command gets to end when the controller does.
	grace = 2 * time.Second
	// How much of the output is kept.
	keptLines     = 50
	keptLineBytes = 500
)

// Runner runs setups. Its methods may be called at the same time; none but Close
// waits for a command.
type Runner struct {
	ended func(api.Key)
	slots chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	runs   map[api.Key]*run
	closed bool

	running atomic.Int64
}

type run struct {
	id     string
	result *effects.SetupResult // nil while it runs
}

// New makes a Runner. ended is called after each run, with no lock held.
func New(ended func(api.Key)) *Runner {
	ctx, cancel := context.WithCancel(context.Background()) // lives until Close, longer than any call
	return &Runner{ended: ended, slots: make(chan struct{}, atOnce), ctx: ctx, cancel: cancel, runs: map[api.Key]*run{}}
}

// Ensure runs l for key, once for each id, and returns what came of it; nil
// while it runs. Another id begins a new run when the one before has ended.
func (r *Runner) Ensure(key api.Key, id string, l effects.Launch) *effects.SetupResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.runs[key]; now != nil && (now.id == id || now.result == nil) {
		if now.id != id {
			return nil
		}
		return now.result
	}
	if r.closed {
		return nil
	}
	p := &run{id: id}
	r.runs[key] = p
	r.running.Add(1)
	r.wg.Go(func() {
		defer r.running.Add(-1)
		result := r.once(l)
		r.mu.Lock()
		p.result = &result
		r.mu.Unlock()
		r.ended(key)
	})
	return nil
}

// Forget drops what is known of key's last run, if it has ended.
func (r *Runner) Forget(key api.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.runs[key]; p != nil && p.result != nil {
		delete(r.runs, key)
	}
}

// Running is how many commands wait for their turn, run, or have ended and not
// told so yet.
func (r *Runner) Running() int { return int(r.running.Load()) }

// Close ends all runs and returns when the last has ended. Nothing begins after it.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.wg.Wait()
}

func (r *Runner) once(l effects.Launch) effects.SetupResult {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-r.ctx.Done():
		return effects.SetupResult{Message: "it was not begun: the controller ended"}
	}
	if err := pointRun.At(fault.Before); err != nil {
		return effects.SetupResult{Message: err.Error()}
	}
	result := r.command(l)
	if err := pointRun.At(fault.After); err != nil {
		return effects.SetupResult{Message: err.Error()}
	}
	return result
}

// command runs argv as it is, without a shell or a terminal, in a session of its
// own.
func (r *Runner) command(l effects.Launch) effects.SetupResult {
	path, err := find(l)
	if err != nil {
		return effects.SetupResult{Message: err.Error()}
	}
	out := &tail{}
	cmd := &exec.Cmd{
		Path: path, Args: l.Argv, Dir: l.Dir,
		Env:    append([]string{}, l.Env...), // not nil, which would be our own
		Stdout: out, Stderr: out,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay:   grace, // for an output that somebody outside the group keeps open
	}
	if err := cmd.Start(); err != nil {
		return effects.SetupResult{Message: fmt.Sprintf("the program %q cannot be started: %s", l.Argv[0], cause(err))}
	}
	ended := make(chan struct{})
	go func() {
		process.AwaitEnd(cmd.Process.Pid)
		close(ended)
	}()
	select {
	case <-ended:
	case <-r.ctx.Done():
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGTERM)
		late := time.NewTimer(grace)
		select {
		case <-ended:
		case <-late.C:
		}
		late.Stop()
	}
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // before it is reaped, and its pid another's
	<-ended
	err = cmd.Wait()
	result := effects.SetupResult{LastLines: out.lines(), Ended: true}
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return result
	case !ok:
		result.Ended, result.Message = false, fmt.Sprintf("the program %q was lost", l.Argv[0])
		return result
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		result.Signal = unix.SignalName(ws.Signal())
	} else {
		result.ExitCode = exit.ExitCode()
	}
	return result
}

func cause(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	return "it is not to be run"
}

// find is the program that argv names, in the PATH of the session and not in
// ours.
func find(l effects.Launch) (string, error) {
	name := l.Argv[0]
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(l.Dir, name)
		}
		return name, nil
	}
	var dirs string
	for _, v := range l.Env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			dirs = p
		}
	}
	for _, dir := range strings.Split(dirs, ":") {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(l.Dir, dir)
		}
		path := filepath.Join(dir, name)
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no program %q in the PATH of the session", name)
}

// tail keeps the last lines that are written to it.
type tail struct {
	done []string
	line []byte
}

func (t *tail) Write(p []byte) (int, error) {
	for _, c := range p {
		switch {
		case c == '\n':
			t.end()
		case len(t.line) < 8*keptLineBytes: // more than is kept is not needed
			t.line = append(t.line, c)
		}
	}
	return len(p), nil
}

func (t *tail) end() {
	line := t.line
	if i := strings.LastIndexByte(strings.TrimRight(string(line), "\r"), '\r'); i >= 0 {
		line = line[i+1:] // what a progress bar left on the screen
	}
	t.done = append(t.done, plain(string(line)))
	if len(t.done) > keptLines {
		t.done = t.done[1:]
	}
	t.line = t.line[:0]
}

func (t *tail) lines() []string {
	if len(t.line) > 0 {
		t.end()
	}
	return t.done
}

// plain is the text without what a terminal would act on, of bounded length.
func plain(line string) string {
	var b strings.Builder
	for i := 0; i < len(line); {
		if n := escape(line[i:]); n > 0 {
			i += n
			continue
		}
		c, n := utf8.DecodeRuneInString(line[i:])
		i += n
		if c == '\t' {
			c = ' '
		}
		if unicode.IsGraphic(c) && b.Len()+utf8.RuneLen(c) <= keptLineBytes {
			b.WriteRune(c)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// escape is the length of the terminal's control sequence that s begins with.
func escape(s string) int {
	if len(s) < 2 || s[0] != 0x1b {
		return 0
	}
	if s[1] != '[' {
		return 2
	}
	for i := 2; i < len(s); i++ {
		if s[i] >= '@' && s[i] <= '~' {
			return i + 1
		}
	}
	return len(s)
}
