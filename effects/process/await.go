package process

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// AwaitEnd returns when our child has ended, and leaves it to be reaped: until
// that its pid, and so the name of its group, cannot be another's.
func AwaitEnd(pid int) {
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
