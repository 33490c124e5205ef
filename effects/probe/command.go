package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// command runs argv as it is, without a shell, in a process group of its own.
// Its output is not kept: it may hold a secret. When it ends, or ctx does, the
// whole group is killed, so that looks do not pile up.
func command(ctx context.Context, argv []string, target Target) string {
	path, problem := find(argv[0], target)
	if problem != "" {
		return problem
	}
	cmd := &exec.Cmd{
		Path:        path,
		Args:        argv,
		Dir:         target.Dir,
		Env:         append([]string{}, target.Env...), // not nil, which would be our own
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := cmd.Start(); err != nil {
		if fi, statErr := os.Stat(target.Dir); statErr != nil || !fi.IsDir() {
			return fmt.Sprintf("the folder %q is not there", target.Dir)
		}
		return fmt.Sprintf("the program %q cannot be started: %s", argv[0], startCause(err))
	}
	ended := make(chan struct{})
	go func() {
		awaitEnd(cmd.Process.Pid)
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	// Before the first process is reaped, while its pid, which is the group's
	// name, cannot be another's.
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	<-ended
	err := cmd.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return ""
	case !ok:
		return fmt.Sprintf("the program %q was lost", argv[0])
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return fmt.Sprintf("the command was ended by %s", unix.SignalName(ws.Signal()))
	}
	return fmt.Sprintf("the command ended with exit code %d", exit.ExitCode())
}

func startCause(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	return "it is not to be run"
}

// find is the program that argv names, in the PATH of the session and not in
// ours.
func find(name string, target Target) (path, problem string) {
	if strings.Contains(name, "/") {
		return name, ""
	}
	var dirs string
	for _, v := range target.Env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			dirs = p
		}
	}
	for _, dir := range strings.Split(dirs, ":") {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(target.Dir, dir)
		}
		path := filepath.Join(dir, name)
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil {
			return path, ""
		}
	}
	return "", fmt.Sprintf("there is no program %q in the PATH of the session", name)
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
