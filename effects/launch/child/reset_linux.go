package child

import (
	"runtime"
	"syscall"
	"unsafe"
)

// reset takes back what the program must not inherit, whoever started the tmux
// server: ignored and blocked signals, and descriptors other than the
// terminal's. Handlers need no care, for exec resets them.
func reset() {
	runtime.LockOSThread() // the mask is the thread's, and this thread execs
	type sigaction struct {
		handler, flags, restorer, mask uintptr
	}
	const ignore, signals = 1, 64
	for sig := uintptr(1); sig <= signals; sig++ {
		var sa sigaction
		_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&sa)), 8, 0, 0)
		if e == 0 && sa.handler == ignore {
			sa = sigaction{}
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&sa)), 0, 8, 0, 0)
		}
	}
	const setMask = 2
	var none uint64
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&none)), 0, 8, 0, 0)

	const closeRange, closeOnExec = 436, 4
	if _, _, e := syscall.RawSyscall(closeRange, 3, 1<<32-1, closeOnExec); e != 0 {
		for fd := 3; fd < 1024; fd++ { // a kernel before 5.11
			syscall.CloseOnExec(fd)
		}
	}
}
