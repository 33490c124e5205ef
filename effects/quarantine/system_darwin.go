package quarantine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// searchOnly opens a folder that may be entered; here it must be readable too.
const searchOnly = unix.O_RDONLY

// lstat looks at name in the folder dir, or at dir itself when name is empty.
// The birth of an inode is left out: setting an earlier mtime changes it here.
func lstat(dir int, name string) (stat, error) {
	s, err := again(func() (s unix.Stat_t, err error) {
		if name == "" {
			return s, unix.Fstat(dir, &s)
		}
		return s, unix.Fstatat(dir, name, &s, unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		return stat{}, err
	}
	return stat{
		Identity: Identity{
			Kind: kindOf(uint32(s.Mode)), Dev: uint64(s.Dev), Ino: s.Ino, Boot: bootID(), Size: s.Size, MtimeNs: s.Mtim.Nano(),
		},
		mode: uint32(s.Mode) & 0o7777, nlink: uint64(s.Nlink), ctimeNs: s.Ctim.Nano(),
	}, nil
}

// renameExclusive moves a name and replaces nothing. A file system that cannot
// promise that is effects.ErrUnavailable.
func renameExclusive(fromDir int, from string, toDir int, to string) error {
	_, err := again(func() (struct{}, error) {
		return struct{}{}, unix.RenameatxNp(fromDir, from, toDir, to, unix.RENAME_EXCL)
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("%w: this file system has no rename that replaces nothing: %w", effects.ErrUnavailable, err)
	}
	return err
}

// mounts lists the mount points at path and below it.
func mounts(path string) (found []string, err error) {
	n, err := unix.Getfsstat(nil, unix.MNT_NOWAIT)
	if err != nil {
		return nil, err
	}
	list := make([]unix.Statfs_t, n+8) // some may come meanwhile
	if n, err = unix.Getfsstat(list, unix.MNT_NOWAIT); err != nil {
		return nil, err
	}
	for _, m := range list[:n] {
		if at := unix.ByteSliceToString(m.Mntonname[:]); at == path || strings.HasPrefix(at, path+"/") {
			found = append(found, at)
		}
	}
	return found, nil
}

// unlock lets its owner into the folder name of dir, which is no link.
func unlock(dir int, name string) error {
	return unix.Fchmodat(dir, name, 0o700, unix.AT_SYMLINK_NOFOLLOW)
}

var bootID = sync.OnceValue(func() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
})

// uptime is the time since this boot, with the time asleep; no setting of the
// clock changes it.
func uptime() (boot string, since time.Duration, err error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return "", 0, err
	}
	return bootID(), time.Duration(ts.Nano()), nil
}
