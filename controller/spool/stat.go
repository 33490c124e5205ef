package spool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// devino names a directory or file of this boot.
type devino struct{ dev, ino uint64 }

// signature tells whether a file may have changed since it was read. Equal
// signatures mean equal bytes only when the change time is not too young: see
// settledBy.
type signature struct {
	devino
	size         int64
	mtime, ctime int64 // ns since 1970, by the file system's clock
}

// racy is how coarse the time stamps of a file system may be. A file read so
// soon after its last change could change again under the same stamps.
const racy = 2 * time.Second

// settledBy tells whether a later change could not hide behind this signature,
// taken at now. The change time serves: nobody can set it back.
func (g signature) settledBy(now time.Time) bool { return now.UnixNano()-g.ctime > int64(racy) }

// age is how long ago the bytes were written.
func (g signature) age(now time.Time) time.Duration { return time.Duration(now.UnixNano() - g.mtime) }

// statAt looks at name in the directory fd, whose path is dir; fd is -1 when it
// is not open. Links are followed.
func statAt(fd int, dir, name string) (signature, fs.FileMode, error) {
	if fd < 0 {
		fd, name = unix.AT_FDCWD, filepath.Join(dir, name)
	}
	var st unix.Stat_t
	for {
		err := unix.Fstatat(fd, name, &st, 0)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return signature{}, 0, err
		}
	}
	return signature{
		devino: devino{uint64(st.Dev), uint64(st.Ino)}, //nolint:unconvert // darwin has other widths
		size:   st.Size,
		mtime:  st.Mtim.Nano(),
		ctime:  st.Ctim.Nano(),
	}, fileMode(uint32(st.Mode)), nil //nolint:unconvert // darwin has other widths
}

func fileMode(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	default:
		return fs.ModeDevice
	}
}

// specialName is how a message calls a file that cannot be read as one.
func specialName(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	default:
		return "a device"
	}
}

// listing is one open directory.
type listing struct {
	fd    int
	id    devino
	read  func() ([]fs.DirEntry, error) // all entries or an error
	close func()
}

// list opens a directory; it never waits for a writer of a pipe that took the
// directory's place.
func list(dir string) (*listing, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	fd := int(f.Fd())
	if err := unix.Fstat(fd, &st); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &listing{
		fd:    fd,
		id:    devino{uint64(st.Dev), uint64(st.Ino)}, //nolint:unconvert // darwin has other widths
		read:  func() ([]fs.DirEntry, error) { return f.ReadDir(-1) },
		close: func() { _ = f.Close() },
	}, nil
}

// hop is one name in one directory that a path led through.
type hop struct{ dir, name string }

const maxLinks = 40 // as the kernel has it

// trace resolves name, which is relative to the real directory dir, and tells
// each link on the way and the end: a change of any of these names may lead
// elsewhere. The hops are right as far as it got when there is an error.
func trace(dir, name string) (end string, hops []hop, err error) {
	rest := strings.Split(name, "/")
	links := 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		here := filepath.Join(dir, part)
		fi, err := os.Lstat(here)
		if err != nil || fi.Mode()&fs.ModeSymlink != 0 || len(rest) == 0 {
			hops = append(hops, hop{dir, part})
		}
		if err != nil {
			return "", hops, err
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			dir = here
			continue
		}
		if links++; links > maxLinks {
			return "", hops, &fs.PathError{Op: "follow", Path: here, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(here)
		if err != nil {
			return "", hops, err
		}
		if filepath.IsAbs(target) {
			dir = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return dir, hops, nil
}

func lstat(path string) (fs.FileMode, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return fi.Mode().Type(), nil
}

// reason is what an error says, without the path that the message has already.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
