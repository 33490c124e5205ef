package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// inUse finds the processes that have a file below dir open, and those that
// work in it, as far as the kernel lets us look. The git commands that we run
// ourselves are passed over.
func inUse(ctx context.Context, dir string) (open, working []string, err error) {
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
		if err != nil && !vanished(err) {
			return nil, nil, fmt.Errorf("look at process %d: %w", pid, err)
		}
		has, err := holds(ctx, proc+"/fd", dir)
		if err != nil {
			return nil, nil, fmt.Errorf("look at process %d: %w", pid, err)
		}
		in := below(cwd, dir)
		if !has && !in || ofUs(proc) {
			continue
		}
		comm, _ := os.ReadFile(proc + "/comm")
		who := fmt.Sprintf("%s (pid %d)", quote(strings.TrimSpace(string(comm))), pid)
		if has {
			open = append(open, who)
		}
		if in {
			working = append(working, who)
		}
	}
	return open, working, nil
}

func holds(ctx context.Context, fds, dir string) (bool, error) {
	list, err := os.ReadDir(fds)
	if err != nil && !vanished(err) {
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

func vanished(err error) bool { return gone(err) || errors.Is(err, syscall.ESRCH) }

// ofUs tells whether a process descends from this one in a process group that
// we made for a git: its group's leader is our child.
func ofUs(proc string) bool {
	stat, err := os.ReadFile(proc + "/stat")
	if err != nil {
		return true // it ended
	}
	// After the name in brackets: state, parent, group.
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 3 {
		return false
	}
	leader, err := os.ReadFile("/proc/" + string(f[2]) + "/stat")
	if err != nil {
		return false
	}
	g := bytes.Fields(leader[bytes.LastIndexByte(leader, ')')+1:])
	comm := leader[:bytes.LastIndexByte(leader, ')')]
	return len(g) > 1 && string(g[1]) == strconv.Itoa(os.Getpid()) && bytes.HasSuffix(comm, []byte("(git"))
}
