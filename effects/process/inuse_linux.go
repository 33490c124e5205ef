package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// InUse finds the processes that have a file below dir open, and those that work
// in it, as far as the kernel lets us look. Our own and the commands that we run
// are passed over, and those that spare, unless it is nil, is true of.
func InUse(ctx context.Context, dir string, spare func(pid int) bool) (open, working []User, err error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, nil, fmt.Errorf("look at processes: %w", err)
	}
	for _, d := range names {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		proc := "/proc/" + d.Name()
		cwd, err := os.Readlink(proc + "/cwd")
		if err != nil && !unseen(err) {
			return nil, nil, fmt.Errorf("look at process %d: %w", pid, err)
		}
		has, err := holds(ctx, proc+"/fd", dir)
		if err != nil {
			return nil, nil, fmt.Errorf("look at process %d: %w", pid, err)
		}
		in := below(cwd, dir)
		if !has && !in || spare != nil && spare(pid) || ofUs(proc) {
			continue
		}
		comm, _ := os.ReadFile(proc + "/comm")
		who := User{PID: pid, Name: strings.TrimSpace(string(comm))}
		if has {
			open = append(open, who)
		}
		if in {
			working = append(working, who)
		}
	}
	return open, working, nil
}

// below tells whether path is dir or inside it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

func holds(ctx context.Context, fds, dir string) (bool, error) {
	list, err := os.ReadDir(fds)
	if err != nil && !unseen(err) {
		return false, err
	}
	for _, fd := range list {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		to, err := os.Readlink(fds + "/" + fd.Name())
		if err == nil && below(to, dir) {
			return true, nil
		}
	}
	return false, nil
}

// unseen tells an error of something that ended while it was looked at, or
// that is not ours to see.
func unseen(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ESRCH)
}

// ofUs tells whether a process is of a process group whose leader is our child:
// a command that we run, whatever it is called between its fork and its exec, and
// what that runs in turn.
func ofUs(proc string) bool {
	group, _, err := groupAndParent(proc)
	if err != nil {
		return true // it ended
	}
	_, parent, err := groupAndParent("/proc/" + group)
	if err != nil { // its leader ended; so will it
		_, _, err = groupAndParent(proc)
		return err != nil
	}
	return parent == strconv.Itoa(os.Getpid())
}

func groupAndParent(proc string) (group, parent string, err error) {
	stat, err := os.ReadFile(proc + "/stat")
	if err != nil {
		return "", "", err
	}
	// After the name in brackets: state, parent, group.
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 3 {
		return "", "", fmt.Errorf("%s/stat is cut", proc)
	}
	return string(f[2]), string(f[1]), nil
}
