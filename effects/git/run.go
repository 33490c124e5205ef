package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

const (
	maxOutput = 16 << 20 // of a command whose answer is taken whole
	maxStderr = 64 << 10
	// grace is what git gets to remove its lock files when its time is over.
	grace = 2 * time.Second
)

// settings go before everything that the repository or the user configured.
var settings = []string{
	"core.hooksPath=/dev/null", // no hook of the repository
	"core.fsmonitor=false",     // which names a program
	"core.askPass=", "credential.helper=",
	"gc.auto=0", "maintenance.auto=false", // nothing that stays behind
	"submodule.recurse=false",
	"advice.detachedHead=false",
	"core.quotePath=false", "color.ui=false",
}

// call is one run of git.
type call struct {
	args    []string
	env     []string
	timeout time.Duration
	hold    *os.File  // kept open by git, and so locked, for as long as it lives
	out     io.Writer // nil: nowhere
}

// read runs a git that writes nothing, and returns its output.
func (g *Git) read(ctx context.Context, args ...string) ([]byte, error) {
	out := &limited{max: maxOutput, whole: true}
	err := g.run(ctx, call{args: args, env: []string{"GIT_OPTIONAL_LOCKS=0"}, out: out})
	if out.over {
		err = fmt.Errorf("git %s: more than %d bytes of output", args[0], maxOutput)
	}
	return out.buf.Bytes(), err
}

// write runs a git that writes, while the writer's lock is held.
func (g *Git) write(ctx context.Context, hold *os.File, args ...string) error {
	return g.run(ctx, call{args: args, hold: hold})
}

// run runs git in a process group of its own. When it ends, or ctx does, the
// whole group is ended. Errors are RepoLockedError, CommandError, or of ctx.
func (g *Git) run(ctx context.Context, c call) error {
	timeout := c.timeout
	if timeout == 0 {
		timeout = g.o.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	argv := []string{"git"}
	for _, s := range settings {
		argv = append(argv, "-c", s)
	}
	argv = append(argv, c.args...)
	path := g.o.Git
	if c.hold != nil {
		// Our own umask keeps what is ours private. What git writes is the user's.
		path, argv = "/bin/sh", append([]string{"sh", "-c", `umask 022 && exec "$0" "$@"`, g.o.Git}, argv[1:]...)
	}
	stderr := &limited{max: maxStderr}
	cmd := &exec.Cmd{
		Path:        path,
		Args:        argv,
		Dir:         "/", // a folder that cannot be in use by us; git is told by -C
		Env:         append(environment(ceiling(c.args)), c.env...),
		Stdout:      c.out,
		Stderr:      stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		WaitDelay:   grace, // for pipes that somebody outside the group keeps
	}
	if c.hold != nil {
		cmd.ExtraFiles = []*os.File{c.hold}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start git: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		awaitEnd(cmd.Process.Pid)
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGTERM) // on which git removes its lock files
		late := time.NewTimer(grace)
		select {
		case <-ended:
		case <-late.C:
		}
		late.Stop()
	}
	// Before the first process is reaped, while its pid, which is the group's
	// name, cannot be another's.
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	<-ended
	err := cmd.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("git %s: %w", name(c.args), ctx.Err())
	}
	if err == nil {
		return nil
	}
	if file := lockFile(stderr.buf.Bytes()); file != "" {
		return &effects.RepoLockedError{File: file}
	}
	return &effects.CommandError{Args: c.args, Stderr: withoutPasswords(stderr.buf.String()), Cause: err}
}

// environment is all that git gets: nothing of GIT_* of whoever started us, and
// texts that we can read.
func environment(ceiling string) []string {
	env := []string{"LANG=C", "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_CEILING_DIRECTORIES=" + ceiling}
	for _, key := range []string{"PATH", "HOME", "XDG_CONFIG_HOME", "USER", "LOGNAME", "TMPDIR"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}

// ceiling keeps git from taking a repository around the folder for its own.
func ceiling(args []string) string {
	if len(args) > 1 && args[0] == "-C" {
		return filepath.Dir(args[1])
	}
	return "/"
}

// name is the subcommand, for messages.
func name(args []string) string {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-C":
			i++
		case a[0] != '-':
			return a
		}
	}
	return ""
}

var (
	lockTaken   = regexp.MustCompile(`Unable to create '((?s:.+?)\.lock)': File exists`)
	configTaken = regexp.MustCompile(`could not lock config file ((?s:.+?)): File exists`)
	password    = regexp.MustCompile(`://[^/\s@']*@`)
)

// lockFile is the lock file that git says is in its way.
func lockFile(stderr []byte) string {
	if m := lockTaken.FindSubmatch(stderr); m != nil {
		return string(m[1])
	}
	if m := configTaken.FindSubmatch(stderr); m != nil {
		return string(m[1]) + ".lock"
	}
	return ""
}

func withoutPasswords(text string) string { return password.ReplaceAllString(text, "://…@") }

// limited keeps the first max bytes. With whole it fails beyond them, which
// ends the command.
type limited struct {
	buf   bytes.Buffer // not embedded: its ReadFrom knows no limit
	max   int
	whole bool
	over  bool
}

var errTooMuch = errors.New("too much output")

func (l *limited) Write(p []byte) (int, error) {
	if room := l.max - l.buf.Len(); len(p) > room {
		l.over = true
		l.buf.Write(p[:room])
		if l.whole {
			return room, errTooMuch
		}
		return len(p), nil
	}
	return l.buf.Write(p)
}

// awaitEnd returns when the child has ended and leaves it to be reaped.
func awaitEnd(pid int) {
	const childOfThisPID = 1 // P_PID
	var info [16]uint64      // room for a siginfo, which is not read
	for {
		_, _, e := unix.Syscall6(unix.SYS_WAITID, childOfThisPID, uintptr(pid),
			uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, 0, 0)
		if e != unix.EINTR {
			return
		}
	}
}
