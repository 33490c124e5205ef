// Package process knows processes by what cannot be mistaken: a pid with the
// time at which it started. It tells whether one lives, tells at once when one
// dies, and finds, signals and kills every process of a session, whatever
// those processes did to leave their terminal. What to end and when is decided
// elsewhere.
//
// A zombie has ended: it runs nothing and only waits to be counted by its
// parent. Everything here treats it as gone.
package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// Alive tells whether exactly this process still runs. A pid that is now
// another process's is not it. An error means that nobody knows.
func Alive(id effects.ProcessID) (bool, error) {
	if id.PID < 1 || id.StartTime == "" {
		return false, fmt.Errorf("process %d started at %q: not a process identity", id.PID, id.StartTime)
	}
	started, err := StartTime(id.PID)
	if errors.Is(err, effects.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return started == id.StartTime, nil
}

// Signal sends sig to exactly this process; one that ended meanwhile is a
// success. A pid below 2 is refused: those are init and whole groups.
func Signal(id effects.ProcessID, sig unix.Signal) error {
	err := send(id, sig)
	if errors.Is(err, effects.ErrNotFound) {
		return nil
	}
	return err
}

// Foreground is the program that reads what is typed into the terminal of this
// process: the leader of the process group in its foreground. It matches
// effects.ErrNotFound when this process or that leader is gone, or there is no
// terminal.
func Foreground(id effects.ProcessID) (effects.ProcessID, error) {
	pid, err := foreground(id)
	if err != nil {
		return effects.ProcessID{}, err
	}
	if pid < 2 {
		return effects.ProcessID{}, fmt.Errorf("the terminal of process %d has no reader: %w", id.PID, effects.ErrNotFound)
	}
	started, err := StartTime(pid)
	if err != nil {
		return effects.ProcessID{}, err
	}
	return effects.ProcessID{PID: pid, StartTime: started}, nil
}
