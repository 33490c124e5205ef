package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// StartTime is the kernel's text for when the process with this pid started:
// clock ticks since boot. It matches effects.ErrNotFound when there is no such
// process, or only its zombie.
func StartTime(pid int) (string, error) {
	s, err := readStat(pid)
	if err != nil {
		return "", err
	}
	return s.started, nil
}

// foreground is the number of the process group that reads the terminal of
// exactly this process.
func foreground(id effects.ProcessID) (int, error) {
	s, err := readStat(id.PID)
	if err != nil {
		return 0, err
	}
	if s.started != id.StartTime {
		return 0, fmt.Errorf("process %d: %w", id.PID, effects.ErrNotFound)
	}
	return s.tpgid, nil
}

// BootID names the time between two starts of the machine. Start times of
// different boots must not be compared.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
}

// stat is what we need of /proc/PID/stat.
type stat struct {
	started string
	tpgid   int  // the group that reads its terminal; below 1 when there is none
	kernel  bool // a thread of the kernel, which has no environment
}

func readStat(pid int) (stat, error) {
	if pid < 1 {
		return stat{}, fmt.Errorf("pid %d: not a process", pid)
	}
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	for try := 0; ; try++ {
		data, err := readProc(path)
		if err == nil {
			return parseStat(pid, data)
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESRCH) {
			return stat{}, fmt.Errorf("read %s: %w", path, err)
		}
		// A missing file is no proof: /proc itself may be missing, or hide others.
		if err := unix.Kill(pid, 0); errors.Is(err, unix.ESRCH) {
			return stat{}, fmt.Errorf("process %d: %w", pid, effects.ErrNotFound)
		}
		if try > 0 { // the pid was not just taken again between the two looks
			return stat{}, fmt.Errorf("read %s: the process is there and /proc does not show it", path)
		}
	}
}

// parseStat reads the fields that follow the name. The name may hold spaces
// and parentheses, so they are counted from the last one.
func parseStat(pid int, data []byte) (stat, error) {
	bad := fmt.Errorf("/proc/%d/stat is not as it should be", pid)
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return stat{}, bad
	}
	f := bytes.Fields(data[i+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, bad
	}
	flags, err1 := strconv.ParseUint(string(f[6]), 10, 64)
	threads, err2 := strconv.Atoi(string(f[17]))
	_, err3 := strconv.ParseUint(string(f[19]), 10, 64)
	tpgid, err4 := strconv.Atoi(string(f[5]))
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return stat{}, bad
	}
	switch f[0][0] {
	case 'X', 'x':
		return stat{}, fmt.Errorf("process %d: %w", pid, effects.ErrNotFound)
	case 'Z':
		// With more than one thread only the first thread has ended.
		if threads <= 1 {
			return stat{}, fmt.Errorf("process %d ended: %w", pid, effects.ErrNotFound)
		}
	}
	const kernelThread = 0x00200000 // PF_KTHREAD
	return stat{started: string(f[19]), tpgid: tpgid, kernel: flags&kernelThread != 0}, nil
}

// readProc reads a small file of /proc in one call, so that it is of one
// instant, without the cost of os.File.
func readProc(path string) ([]byte, error) {
	fd, err := openRetry(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // only read from
	buf := make([]byte, 1024)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return buf[:n], nil
	}
}

func openRetry(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// send signals exactly this process. It matches effects.ErrNotFound when the
// process is gone.
func send(id effects.ProcessID, sig unix.Signal) error {
	if id.PID < 2 {
		return fmt.Errorf("signal process %d: refused", id.PID)
	}
	// The descriptor is opened first and the start time read afterwards: it then
	// holds the process that was meant, whatever becomes of the pid.
	fd, err := unix.PidfdOpen(id.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return fmt.Errorf("process %d: %w", id.PID, effects.ErrNotFound)
	case pidfdMissing(err):
		fd = -1
	case err != nil:
		return fmt.Errorf("open process %d: %w", id.PID, err)
	default:
		defer unix.Close(fd) //nolint:errcheck // a handle, no data
	}
	alive, err := Alive(id)
	if err != nil {
		return err
	}
	if !alive {
		return fmt.Errorf("process %d: %w", id.PID, effects.ErrNotFound)
	}
	if fd >= 0 {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	} else {
		err = unix.Kill(id.PID, sig)
	}
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", id.PID, effects.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), id.PID, err)
	}
	return nil
}

// pidfdMissing tells whether err says that this kernel, or a filter of system
// calls, gives no process descriptors.
func pidfdMissing(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}
