package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// emptyLooks is how often an empty environment is looked at before it is
// believed: in the middle of an exec it is empty for some microseconds.
const emptyLooks = 3

// scan calls found for each process whose environment is that of a session, as
// whose says (with its UID, or ""), and returns nil only after a complete look.
//
// A listing of /proc is no snapshot. A process that forks and ends before it is
// looked into would hide its child, so while something that was listed is gone
// when it is looked into, the list is read again and what is new is looked
// into. Pids grow, so that no chain of forks slips through, except where they
// begin anew at the lowest.
func scan(ctx context.Context, whose func(env []byte) string, found func(uid string, id effects.ProcessID)) error {
	seen := map[int]bool{}
	empty := map[int]int{}
	buf := make([]byte, 64<<10)
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		pids, err := listPIDs()
		if err != nil {
			return err
		}
		again, pause := false, false
		for _, pid := range pids {
			if seen[pid] {
				continue
			}
			var is verdict
			var id effects.ProcessID
			var uid string
			is, uid, id, buf, err = examine(pid, whose, buf)
			if err != nil {
				return err
			}
			switch is {
			case ours:
				found(uid, id)
			case vanished:
				again = true
			case blank:
				if empty[pid]++; empty[pid] < emptyLooks {
					again, pause = true, true
					continue
				}
			}
			seen[pid] = true
		}
		if !again {
			return nil
		}
		if pause {
			if err := sleep(ctx, time.Millisecond); err != nil {
				return err
			}
		}
	}
}

// listPIDs is every pid that /proc shows, which includes our own.
func listPIDs() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close() //nolint:errcheck // only read from
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	self := false
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
			self = self || pid == os.Getpid()
		}
	}
	if !self {
		return nil, errors.New("/proc does not show the processes of this system")
	}
	return pids, nil
}

type verdict int

const (
	strange  verdict = iota // not of this session
	ours                    // of this session
	vanished                // gone since it was listed
	blank                   // no environment now
)

// examine looks into one process. buf is scratch space, returned because it
// may have grown.
func examine(pid int, whose func(env []byte) string, buf []byte) (verdict, string, effects.ProcessID, []byte, error) {
	var id effects.ProcessID
	n, buf, err := readEnviron(pid, buf)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		return vanished, "", id, buf, nil
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return strange, "", id, buf, nil
	case err != nil:
		return strange, "", id, buf, fmt.Errorf("read the environment of process %d: %w", pid, err)
	}
	if n == 0 {
		st, err := readStat(pid)
		switch {
		case errors.Is(err, effects.ErrNotFound):
			return vanished, "", id, buf, nil
		case err != nil:
			return strange, "", id, buf, err
		case st.kernel:
			return strange, "", id, buf, nil
		}
		return blank, "", id, buf, nil
	}
	uid := whose(buf[:n])
	if uid == "" {
		return strange, "", id, buf, nil
	}
	// The pid may have passed to another since it was read. Reading between two
	// equal start times proves whose environment it is.
	before, err1 := StartTime(pid)
	n, buf, err2 := readEnviron(pid, buf)
	after, err3 := StartTime(pid)
	if err := errors.Join(err1, err2, err3); err != nil {
		if errors.Is(err, effects.ErrNotFound) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
			return vanished, "", id, buf, nil
		}
		return strange, "", id, buf, err
	}
	if before != after || whose(buf[:n]) != uid {
		return vanished, "", id, buf, nil
	}
	return ours, uid, effects.ProcessID{PID: pid, StartTime: before}, buf, nil
}

func readEnviron(pid int, buf []byte) (int, []byte, error) {
	fd, err := openRetry("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return 0, buf, err
	}
	defer unix.Close(fd) //nolint:errcheck // only read from
	n := 0
	for {
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
		got, err := unix.Read(fd, buf[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return n, buf, err
		}
		if got == 0 {
			return n, buf, nil
		}
		n += got
	}
}
