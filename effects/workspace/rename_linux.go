package workspace

import "golang.org/x/sys/unix"

// rename moves a name and replaces nothing.
func rename(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}
