package tmux

import (
	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// peerOf asks the kernel who made the other end of a connected socket listen.
func peerOf(fd int) (peer, error) {
	pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	if err != nil {
		return peer{}, err
	}
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return peer{}, err
	}
	return peer{pid: pid, uid: int(cred.Uid)}, nil
}

// hiddenServers finds none: this system does not list the sockets of others.
func hiddenServers(string) ([]effects.ProcessID, error) { return nil, nil }

// limits are what the machine has left for one more pane; 0 for a maximum
// limits nothing.
type limits struct {
	ptys, maxPtys int
	fds, maxFDs   int
}

// readLimits knows no limits: this system does not tell another process's.
func readLimits(int) (limits, error) { return limits{}, nil }
