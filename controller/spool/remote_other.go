//go:build !linux

package spool

import (
	"slices"

	"golang.org/x/sys/unix"
)

// remote tells whether dir is on a file system that others change without this
// kernel's knowledge, so that watching it tells too little.
func remote(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return false
	}
	name := unix.ByteSliceToString(st.Fstypename[:])
	return slices.Contains([]string{"nfs", "smbfs", "afpfs", "webdav", "macfuse", "osxfuse", "fusefs"}, name)
}
