package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// StartTime is the kernel's time at which the process with this pid started, as
// seconds.microseconds. It matches effects.ErrNotFound when there is no such
// process, or only its zombie.
func StartTime(pid int) (string, error) {
	if pid < 1 {
		return "", fmt.Errorf("pid %d: not a process", pid)
	}
	all, err := unix.SysctlKinfoProcSlice("kern.proc.pid", pid)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return "", fmt.Errorf("look at process %d: %w", pid, err)
	}
	if len(all) == 0 || zombie(&all[0]) {
		return "", fmt.Errorf("process %d: %w", pid, effects.ErrNotFound)
	}
	return started(&all[0]), nil
}

// foreground is the number of the process group that reads the terminal of
// exactly this process.
func foreground(id effects.ProcessID) (int, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.pid", id.PID)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return 0, fmt.Errorf("look at process %d: %w", id.PID, err)
	}
	if len(all) == 0 || zombie(&all[0]) || started(&all[0]) != id.StartTime {
		return 0, fmt.Errorf("process %d: %w", id.PID, effects.ErrNotFound)
	}
	return int(all[0].Eproc.Tpgid), nil
}

// BootID names the time between two starts of the machine. Start times of
// different boots must not be compared.
func BootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return id, nil
}

func started(p *unix.KinfoProc) string {
	return fmt.Sprintf("%d.%06d", p.Proc.P_starttime.Sec, p.Proc.P_starttime.Usec)
}

func zombie(p *unix.KinfoProc) bool { return p.Proc.P_stat == 5 } // SZOMB

// send signals exactly this process. It matches effects.ErrNotFound when the
// process is gone. There are no process descriptors here, so that the look and
// the signal are two calls.
func send(id effects.ProcessID, sig unix.Signal) error {
	if id.PID < 2 {
		return fmt.Errorf("signal process %d: refused", id.PID)
	}
	alive, err := Alive(id)
	if err != nil {
		return err
	}
	if !alive {
		return fmt.Errorf("process %d: %w", id.PID, effects.ErrNotFound)
	}
	err = unix.Kill(id.PID, sig)
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", id.PID, effects.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), id.PID, err)
	}
	return nil
}
