package launch

import "golang.org/x/sys/unix"

// maxString is the longest single string that execve takes, without its NUL
// (MAX_ARG_STRLEN of a machine with 4 KiB pages, so that a spec that fits
// somewhere fits everywhere).
const maxString = 131071

// maxTotal is how much of arguments and environment execve takes: a quarter of
// the stack, between 128 KiB and 6 MiB.
func maxTotal() int {
	const least, most = 128 << 10, 6 << 20
	var stack unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_STACK, &stack); err != nil {
		return least
	}
	return int(max(least, min(most, stack.Cur/4)))
}
