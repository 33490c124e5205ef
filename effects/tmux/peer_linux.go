package tmux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/process"
)

// peerOf asks the kernel who made the other end of a connected socket listen.
func peerOf(fd int) (peer, error) {
	u, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return peer{}, err
	}
	return peer{pid: int(u.Pid), uid: int(u.Uid)}, nil
}

// hiddenServers finds tmux servers of ours that listen on a socket bound to
// this path although the path does not lead to them any more.
func hiddenServers(socket string) ([]effects.ProcessID, error) {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("look for a tmux server without socket: %w", err)
	}
	inodes := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		// Num RefCount Protocol Flags Type St Inode Path
		const acceptsConnections = "00010000"
		f := strings.Fields(line)
		if len(f) < 8 || f[3] != acceptsConnections || !strings.HasSuffix(strings.TrimSuffix(line, "\n"), " "+socket) {
			continue
		}
		inodes["socket:["+f[6]+"]"] = true
	}
	if len(inodes) == 0 {
		return nil, nil
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for a tmux server without socket: %w", err)
	}
	var ids []effects.ProcessID
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join("/proc", p.Name(), "comm"))
		if err != nil || !strings.HasPrefix(string(comm), "tmux") {
			continue // SIGUSR1 would end another program
		}
		fds := filepath.Join("/proc", p.Name(), "fd")
		entries, err := os.ReadDir(fds)
		if err != nil {
			continue // another user's, or gone
		}
		for _, e := range entries {
			if to, err := os.Readlink(filepath.Join(fds, e.Name())); err != nil || !inodes[to] {
				continue
			}
			started, err := process.StartTime(pid)
			if errors.Is(err, effects.ErrNotFound) {
				break
			}
			if err != nil {
				return nil, err
			}
			ids = append(ids, effects.ProcessID{PID: pid, StartTime: started})
			break
		}
	}
	return ids, nil
}

// limits are what the machine has left for one more pane.
type limits struct {
	ptys, maxPtys int
	fds, maxFDs   int
}

// readLimits reads them for the server with this pid; 0 for a maximum that
// cannot be read, which limits nothing.
func readLimits(server int) (limits, error) {
	var l limits
	var err error
	if l.ptys, err = readNumber("/proc/sys/kernel/pty/nr"); err == nil {
		l.maxPtys, err = readNumber("/proc/sys/kernel/pty/max")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return limits{}, err
	}
	if server == 0 {
		return l, nil
	}
	dir := filepath.Join("/proc", strconv.Itoa(server))
	text, err := os.ReadFile(filepath.Join(dir, "limits"))
	if err != nil {
		return limits{}, fmt.Errorf("limits of the tmux server: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				l.maxFDs, _ = strconv.Atoi(f[0]) // "unlimited" limits nothing
			}
		}
	}
	fds, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return limits{}, fmt.Errorf("descriptors of the tmux server: %w", err)
	}
	defer fds.Close() //nolint:errcheck // only read
	names, err := fds.Readdirnames(-1)
	if err != nil {
		return limits{}, fmt.Errorf("descriptors of the tmux server: %w", err)
	}
	l.fds = len(names)
	return l, nil
}

func readNumber(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
