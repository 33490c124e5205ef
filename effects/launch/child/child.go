// Package child is the launcher: what runs in a new pane until it becomes the
// user's program. It reads its launch file, removes it, enters the folder, sets
// exactly the environment that was planned and execs. No shell reads any of it. What else a program inherits is the same
// whoever started the tmux server: no ignored or blocked signal, no descriptor
// but the terminal's, and the file mode mask 022, as under systemd.
//
// When it cannot, it says why in one line on the terminal and in a report
// beside the launch file, and ends with 127 (no such program), 126 (the program
// cannot be run) or 125 (no folder to run in, or no launch file). A launch file
// is used once: when it is missing, someone started the pane anew by hand, and
// there is no report, for the report of that start may say something else.
//
// It uses system calls and nothing above them, because its own start is part
// of every start.
package child

import (
	"errors"
	"strconv"
	"strings"
	"syscall"

	"skc.dev/skc/effects/launch/plan"
)

// Run becomes the program that the launch file at path asks for. It returns
// only when it could not, with the exit code. environ is what tmux gave.
func Run(path string, environ []string) int {
	p, err := take(path)
	if errors.Is(err, syscall.ENOENT) {
		say("this start was used up already. Start the session again with: skcctl restart NAME")
		return plan.ExitLauncher
	}
	if err != nil {
		return fail(path, plan.ExitLauncher, plan.ExecFailed, "the launch file cannot be used: "+err.Error())
	}
	if err := syscall.Chdir(p.Dir); err != nil {
		switch {
		case is(err, syscall.ENOENT, syscall.ENOTDIR):
			return fail(path, plan.ExitLauncher, plan.WorkingDirectoryMissing, "the folder "+quote(p.Dir)+" is not there, or is no folder")
		case is(err, syscall.EACCES, syscall.EPERM):
			return fail(path, plan.ExitLauncher, plan.PermissionDenied, "the folder "+quote(p.Dir)+" may not be entered")
		}
		return fail(path, plan.ExitLauncher, plan.ExecFailed, "the folder "+quote(p.Dir)+" cannot be entered: "+err.Error())
	}
	env := environment(p.Env, environ)
	reset()
	syscall.Umask(0o022)
	code, reason, message := exec(p.Argv, env)
	return fail(path, code, reason, message)
}

var errUnsafe = errors.New("it is not a regular file of this user with mode 0600")

// take reads the launch file and removes it.
func take(path string) (plan.Plan, error) {
	// Not blocking, so that a pipe in its place holds nothing up.
	fd, err := retry(func() (int, error) {
		return syscall.Open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	})
	if is(err, syscall.ELOOP) {
		return plan.Plan{}, errUnsafe
	}
	if err != nil {
		return plan.Plan{}, err
	}
	defer syscall.Close(fd) //nolint:errcheck // only read from
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return plan.Plan{}, err
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Mode&0o7777 != 0o600 || int(st.Uid) != syscall.Geteuid() {
		return plan.Plan{}, errUnsafe
	}
	if st.Size > plan.MaxBytes {
		return plan.Plan{}, plan.ErrFormat
	}
	data := make([]byte, st.Size)
	for n := 0; n < len(data); {
		got, err := retry(func() (int, error) { return syscall.Read(fd, data[n:]) })
		if err != nil {
			return plan.Plan{}, err
		}
		if got == 0 {
			return plan.Plan{}, plan.ErrFormat
		}
		n += got
	}
	// Removed before it is used: of two that were started with it, at most one
	// goes on, and secrets lie on the disk no longer than they must.
	if err := syscall.Unlink(path); err != nil {
		return plan.Plan{}, err
	}
	return plan.Decode(data)
}

// environment is the planned one and what tmux alone knows.
func environment(planned, given []string) []string {
	env := append(make([]string, 0, len(planned)+3), planned...)
	for _, name := range []string{"TERM=", "TMUX=", "TMUX_PANE="} {
		if find(planned, name) != "" {
			continue
		}
		if v := find(given, name); v != "" {
			env = append(env, v)
		}
	}
	return env
}

// find is the last variable that begins with name and =, as NAME=VALUE.
func find(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if strings.HasPrefix(env[i], name) {
			return env[i]
		}
	}
	return ""
}

// exec becomes the program, found as execvp finds it, in the PATH that the
// program itself will see. It returns only on failure.
func exec(argv, env []string) (code int, reason, message string) {
	name := argv[0]
	if name == "" {
		return plan.ExitNotFound, plan.CommandNotFound, "the program's name is empty"
	}
	if strings.Contains(name, "/") {
		err := syscall.Exec(name, argv, env)
		return explain(name, name, err)
	}
	path := "/bin:/usr/bin"
	if v := find(env, "PATH="); v != "" {
		path = v[len("PATH="):]
	}
	denied := ""
	for _, dir := range strings.Split(path, ":") {
		file := name // an empty entry is the folder itself
		if dir != "" {
			file = dir + "/" + name
		}
		err := syscall.Exec(file, argv, env)
		switch {
		case is(err, syscall.ENOENT):
			if !there(file) {
				continue
			}
		case is(err, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG):
			continue
		case is(err, syscall.EACCES):
			if denied == "" && !isDir(file) {
				denied = file
			}
			continue
		}
		return explain(name, file, err)
	}
	if denied != "" {
		return explain(name, denied, syscall.EACCES)
	}
	return plan.ExitNotFound, plan.CommandNotFound, "there is no program " + quote(name) + " in the PATH of the session"
}

// explain turns what execve said of file into what people and status read.
func explain(name, file string, err error) (code int, reason, message string) {
	switch {
	case is(err, syscall.ENOENT, syscall.ENOTDIR):
		if there(file) {
			return plan.ExitNotRunable, plan.ExecFailed, "the program " + quote(file) + " names an interpreter that is not there"
		}
		return plan.ExitNotFound, plan.CommandNotFound, "there is no program " + quote(name)
	case is(err, syscall.EACCES):
		if isDir(file) {
			return plan.ExitNotRunable, plan.PermissionDenied, quote(file) + " is a folder, not a program"
		}
		return plan.ExitNotRunable, plan.PermissionDenied, "the program " + quote(file) + " may not be run: permission denied"
	case is(err, syscall.ENOEXEC):
		return plan.ExitNotRunable, plan.ExecFailed, "the program " + quote(file) + " cannot be run: exec format error (a script needs a first line such as #!/bin/sh)"
	case is(err, syscall.E2BIG):
		return plan.ExitNotRunable, plan.ExecFailed, "arguments and environment are longer than the kernel takes"
	}
	return plan.ExitNotRunable, plan.ExecFailed, "the program " + quote(file) + " cannot be run: " + err.Error()
}

func there(file string) bool {
	var st syscall.Stat_t
	return syscall.Stat(file, &st) == nil
}

func isDir(file string) bool {
	var st syscall.Stat_t
	return syscall.Stat(file, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR
}

// fail reports on the terminal and beside the launch file. The terminal is
// told even when the report cannot be written.
func fail(path string, code int, reason, message string) int {
	say(message)
	report := plan.Failure{Reason: reason, Message: message}.Encode()
	_ = syscall.Unlink(path + plan.FailedSuffix) // of a start before, if anything
	err := write(path+plan.FailedSuffix, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW, report)
	if err != nil {
		say("the report of this cannot be written: " + err.Error())
	}
	return code
}

// say writes one line to the terminal. The terminal ends lines with \r\n in
// whatever mode it is.
func say(message string) { _, _ = syscall.Write(2, []byte("skc: "+message+"\r\n")) }

func write(path string, flags int, data []byte) error {
	fd, err := retry(func() (int, error) { return syscall.Open(path, flags|syscall.O_CLOEXEC, 0o600) })
	if err != nil {
		return err
	}
	_, err = retry(func() (int, error) { return syscall.Write(fd, data) })
	if e := syscall.Close(fd); err == nil {
		err = e
	}
	return err
}

// retry calls again what a signal broke off.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// is compares errors of system calls, which are bare numbers here.
func is(err error, any ...syscall.Errno) bool {
	for _, e := range any {
		if err == e { //nolint:errorlint // never wrapped
			return true
		}
	}
	return false
}

// quote makes text of the user harmless on a terminal, and short.
func quote(s string) string {
	const most = 200
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
