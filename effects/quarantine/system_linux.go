package quarantine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// searchOnly opens a folder that may be entered, whether or not it may be read.
const searchOnly = unix.O_PATH

// lstat looks at name in the folder dir, or at dir itself when name is empty.
func lstat(dir int, name string) (stat, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	x, err := again(func() (x unix.Statx_t, err error) {
		return x, unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME|unix.STATX_MNT_ID, &x)
	})
	if err != nil {
		return stat{}, err
	}
	st := stat{
		Identity: Identity{
			Kind: kindOf(uint32(x.Mode)), Dev: unix.Mkdev(x.Dev_major, x.Dev_minor), Ino: x.Ino, Boot: bootID(),
			Size: int64(x.Size), MtimeNs: x.Mtime.Sec*1e9 + int64(x.Mtime.Nsec),
		},
		mode: uint32(x.Mode) & 0o7777, nlink: uint64(x.Nlink), ctimeNs: x.Ctime.Sec*1e9 + int64(x.Ctime.Nsec),
	}
	if x.Mask&unix.STATX_BTIME != 0 {
		st.Birth = x.Btime.Sec*1e9 + int64(x.Btime.Nsec)
	}
	if x.Mask&unix.STATX_MNT_ID != 0 {
		st.mount = x.Mnt_id
	}
	return st, nil
}

// renameExclusive moves a name and replaces nothing. A file system that cannot
// promise that is effects.ErrUnavailable.
func renameExclusive(fromDir int, from string, toDir int, to string) error {
	_, err := again(func() (struct{}, error) {
		return struct{}{}, unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: this file system has no rename that replaces nothing: %w", effects.ErrUnavailable, err)
	}
	return err
}

// mounts lists the mount points at path and below it.
func mounts(path string) (found []string, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadString('\n')
		if fields := strings.Fields(line); len(fields) > 4 {
			if at := unescape(fields[4]); at == path || strings.HasPrefix(at, path+"/") {
				found = append(found, at)
			}
		}
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// unescape undoes the octal escapes of mountinfo (\040 is a space).
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// unlock lets its owner into the folder name of dir, which is no link.
func unlock(dir int, name string) error {
	fd, err := open(dir, name, searchOnly)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	// A handle without rights cannot be changed itself, and chmod by name would
	// follow a link that was put there meanwhile.
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700)
}

var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// uptime is the time since this boot, with the time asleep; no setting of the
// clock changes it.
func uptime() (boot string, since time.Duration, err error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return "", 0, err
	}
	return bootID(), time.Duration(ts.Nano()), nil
}
