package workspace

import "golang.org/x/sys/unix"

// rename moves a name and replaces nothing.
func rename(from, to string) error { return unix.RenamexNp(from, to, unix.RENAME_EXCL) }
