// Package files is the one way in which skc writes files. A reader sees the old
// bytes or the new ones, whole; what is said to be durable is on the disk when
// the call returns; and nothing is written by a process that no longer owns
// the home.
package files

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"skc.dev/skc/effects/fault"
)

// Durability says what must be on the disk before a write is done.
type Durability int

const (
	// Derived bytes can be made again by looking at the world. They are renamed
	// into place and not synced.
	Derived Durability = iota
	// Durable bytes are synced, and so is the name under which they are found.
	Durable
)

// Layer writes files. Its zero value writes without a guard. All methods may
// be called at the same time; two writes of one path do not mix, the later
// rename wins. Only one process appends to a file.
type Layer struct {
	// Guard is asked before each write; an error of it stops the write. The
	// controller asks whether it still owns the home.
	Guard func() error
	// Trace, when it is set, is told of each operation on the disk after it was
	// done, in order for one path. Tests replay them to build what a power cut
	// may leave.
	Trace func(Op)

	appending sync.Mutex // looks at the end of a file before it writes there

	syncs, writes atomic.Int64
}

// Op is one operation on the disk.
type Op struct {
	Kind OpKind
	Path string
	To   string // of OpRename and OpLink
	Data []byte // of OpWrite and OpAppend
}

// OpKind says what an operation does.
type OpKind string

// The operations. A file that is written is a new one, an appended one is there.
const (
	OpWrite   OpKind = "write"
	OpAppend  OpKind = "append"
	OpSync    OpKind = "sync"    // a file's data
	OpSyncDir OpKind = "syncdir" // a folder's names
	OpRename  OpKind = "rename"
	OpLink    OpKind = "link"
	OpRemove  OpKind = "remove"
)

func (l *Layer) trace(op Op) {
	if l.Trace != nil {
		l.Trace(op)
	}
}

// Syncs is how many files were synced since the start (the folder's own sync
// belongs to the file's).
func (l *Layer) Syncs() int64 { return l.syncs.Load() }

// Writes is how many files were written or removed since the start.
func (l *Layer) Writes() int64 { return l.writes.Load() }

// ErrNotRegular is matched when the target of a write is no regular file.
var ErrNotRegular = errors.New("not a regular file")

// Write puts data at path, with mode 0600. The folder must be there. step
// names the write for the fault tests.
func (l *Layer) Write(step fault.Point, path string, data []byte, how Durability) error {
	return l.WriteMode(step, path, data, how, 0o600)
}

// WriteMode is Write with other permission bits, for files that are the user's.
func (l *Layer) WriteMode(step fault.Point, path string, data []byte, how Durability, mode fs.FileMode) error {
	return l.write(step, path, data, how, func() (*os.File, error) { return createTemp(filepath.Dir(path), filepath.Base(path), mode) })
}

// WriteAs is Write by way of a temporary with the name temp, for files of a
// protocol that says how those are called. One that is there is replaced; what a
// killed write leaves is not found by SweepTemps.
func (l *Layer) WriteAs(step fault.Point, path, temp string, data []byte, how Durability) error {
	return l.write(step, path, data, how, func() (*os.File, error) {
		name := filepath.Join(filepath.Dir(path), temp)
		if err := call(); err != nil {
			return nil, err
		}
		if err := syscall.Unlink(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	})
}

func (l *Layer) write(step fault.Point, path string, data []byte, how Durability, create func() (*os.File, error)) (err error) {
	if err := l.begin(step); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := call(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if fi, err := os.Lstat(path); err == nil && !fi.Mode().IsRegular() {
		return fmt.Errorf("write %s: %w", path, ErrNotRegular)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write: %w", err)
	}
	dir := filepath.Dir(path)
	tmp, err := create()
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	if err := call(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if _, err := tmp.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	l.trace(Op{Kind: OpWrite, Path: tmp.Name(), Data: data})
	if how == Durable { // else an empty file may follow a power cut
		if err := l.sync(tmp); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	if err := call(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := tmp.Close(); err != nil { // some file systems report the failed write only here
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := step.At(fault.During); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := call(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	l.trace(Op{Kind: OpRename, Path: tmp.Name(), To: path})
	if err := l.end(step, how, dir); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Remove takes the file at path away; one that is gone already is a success.
// Then, too, a durable removal is on the disk: the first try may have failed
// just before that.
func (l *Layer) Remove(step fault.Point, path string, how Durability) error {
	if err := l.remove(step, path, how); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

func (l *Layer) remove(step fault.Point, path string, how Durability) error {
	if err := l.begin(step); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	if err := syscall.Unlink(path); err == nil { // os.Remove would take an empty folder too
		l.trace(Op{Kind: OpRemove, Path: path})
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	} else if _, err := os.Lstat(filepath.Dir(path)); how == Derived || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := step.At(fault.During); err != nil {
		return err
	}
	return l.end(step, how, filepath.Dir(path))
}

// Rename moves a file within one file system and makes the move durable. What
// has the new name already is replaced.
func (l *Layer) Rename(step fault.Point, from, to string) error {
	if err := l.rename(step, from, to); err != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	return nil
}

func (l *Layer) rename(step fault.Point, from, to string) error {
	if err := l.begin(step); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	if err := syscall.Rename(from, to); err != nil {
		return err
	}
	l.trace(Op{Kind: OpRename, Path: from, To: to})
	if err := step.At(fault.During); err != nil {
		return err
	}
	dirs := []string{filepath.Dir(to)}
	if dir := filepath.Dir(from); dir != dirs[0] {
		dirs = append(dirs, dir) // or the old name may come back
	}
	return l.end(step, Durable, dirs...)
}

// Link gives the file at from a second name, instead of what had that name. It
// is on the disk no later than what is done in the same folder after it.
func (l *Layer) Link(step fault.Point, from, to string) error {
	if err := l.link(step, from, to); err != nil {
		return fmt.Errorf("link %s to %s: %w", from, to, err)
	}
	return nil
}

func (l *Layer) link(step fault.Point, from, to string) error {
	if err := l.begin(step); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	if err := syscall.Unlink(to); err == nil {
		l.trace(Op{Kind: OpRemove, Path: to})
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := step.At(fault.During); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	if err := syscall.Link(from, to); err != nil {
		return err
	}
	l.trace(Op{Kind: OpLink, Path: from, To: to})
	return l.end(step, Derived)
}

// Append adds data, which is whole lines, at the end of the file at path, which
// is made with 0600 when it is missing. A last line that a crash left without
// its end is ended first, so that it spoils no other; the reader passes over it.
// After an error the file is as long as it was, if the disk allows that.
func (l *Layer) Append(step fault.Point, path string, data []byte, how Durability) error {
	if err := l.append(step, path, data, how); err != nil {
		return fmt.Errorf("append to %s: %w", path, err)
	}
	return nil
}

func (l *Layer) append(step fault.Point, path string, data []byte, how Durability) (err error) {
	if err := l.begin(step); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	// Without O_NONBLOCK the open of a pipe waits for a reader.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return ErrNotRegular
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	isNew, err := l.appendTo(f, data)
	if err != nil {
		return err
	}
	if err := step.At(fault.During); err != nil {
		return err
	}
	if how == Durable {
		if err := l.sync(f); err != nil {
			return err
		}
	}
	if !isNew {
		how = Derived // the name is there already
	}
	return l.end(step, how, filepath.Dir(path))
}

func (l *Layer) appendTo(f *os.File, data []byte) (isNew bool, err error) {
	l.appending.Lock()
	defer l.appending.Unlock()
	fi, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !fi.Mode().IsRegular() {
		return false, ErrNotRegular
	}
	size := fi.Size()
	if size > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err != nil {
			return false, err
		}
		if last[0] != '\n' {
			data = append([]byte{'\n'}, data...)
		}
	}
	if err := call(); err != nil {
		return false, err
	}
	if _, err := f.Write(data); err != nil {
		_ = f.Truncate(size)
		return false, err
	}
	l.trace(Op{Kind: OpAppend, Path: f.Name(), Data: data})
	return size == 0, nil
}

// SyncFolder puts the names in dir on the disk. Who finds a file that an earlier
// Write may not have come to the end of calls it before relying on the file.
func (l *Layer) SyncFolder(dir string) error {
	if err := call(); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	l.trace(Op{Kind: OpSyncDir, Path: dir})
	return nil
}

func (l *Layer) begin(step fault.Point) error {
	if l.Guard != nil {
		if err := l.Guard(); err != nil {
			return err
		}
	}
	return step.At(fault.Before)
}

func (l *Layer) end(step fault.Point, how Durability, dirs ...string) error {
	if how == Durable { // a new name is the directory's data, not the file's
		for _, dir := range dirs {
			if err := call(); err != nil {
				return fmt.Errorf("sync %s: %w", dir, err)
			}
			if err := syncDir(dir); err != nil {
				return fmt.Errorf("sync %s: %w", dir, err)
			}
			l.trace(Op{Kind: OpSyncDir, Path: dir})
		}
	}
	l.writes.Add(1)
	return step.At(fault.After)
}

func (l *Layer) sync(f *os.File) error {
	if err := call(); err != nil {
		return err
	}
	l.syncs.Add(1)
	if err := f.Sync(); err != nil {
		return err
	}
	l.trace(Op{Kind: OpSync, Path: f.Name()})
	return nil
}

func call() error { return fault.Call() }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err = d.Sync(); errors.Is(err, syscall.EINVAL) {
		err = nil // a file system that has no such thing, and does not need it or cannot be helped
	}
	return errors.Join(err, d.Close())
}

// tempPattern matches the names of our own temporaries and of nobody else's.
var tempPattern = regexp.MustCompile(`^\..+\.skc-[0-9a-f]{16}\.tmp$`)

// IsTemp tells the name of a temporary of this package, which a killed write
// may have left.
func IsTemp(name string) bool { return tempPattern.MatchString(name) }

// createTemp opens a new file beside the target: a rename is atomic only
// within a file system. The leading dot and the ending make the spool reader
// pass it over, even as a leftover.
func createTemp(dir, base string, mode fs.FileMode) (*os.File, error) {
	if err := call(); err != nil {
		return nil, err
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	if len(base) > 200 {   // the whole name must stay under 255 bytes
		base = strings.ToValidUTF8(base[:200], "")
	}
	name := filepath.Join(dir, "."+base+".skc-"+hex.EncodeToString(b[:])+".tmp")
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm()&0o600)
	if err != nil {
		return nil, err
	}
	if mode.Perm() != 0o600 { // opened no wider than 0600, then widened to what the user's file has
		if err := f.Chmod(mode.Perm()); err != nil {
			_ = f.Close()
			_ = os.Remove(name)
			return nil, err
		}
	}
	return f, nil
}

// KeptPrefix begins the name of each folder that effects/quarantine set aside.
const KeptPrefix = ".skc-kept-"

// SweepTemps removes what a killed write left in dir and below. Call it before
// anything is written there, by the owner of the home only. It stays out of
// folders that were set aside: all in them is to be given back as it was.
func SweepTemps(dir string) (removed int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), KeptPrefix) {
			return fs.SkipDir
		}
		if d.Type().IsRegular() && IsTemp(d.Name()) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			removed++
		}
		return nil
	})
	if err != nil {
		return removed, fmt.Errorf("sweep %s: %w", dir, err)
	}
	return removed, nil
}

// ErrTooLarge is matched when a file is longer than the reader's limit.
var ErrTooLarge = errors.New("file is too large")

// Read returns the bytes of the regular file at path, at most limit of them;
// a longer one is ErrTooLarge, anything but a regular file is ErrNotRegular.
// Links are followed. It never waits on a pipe or a device.
func Read(path string, limit int64) (data []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: %w", path, ErrNotRegular)
	}
	if fi.Size() > limit {
		return nil, fmt.Errorf("read %s: %w: %d bytes, at most %d", path, ErrTooLarge, fi.Size(), limit)
	}
	// One byte more than it should have tells whether it has grown.
	data = make([]byte, fi.Size()+1)
	n, err := io.ReadFull(f, data)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return data[:n:n], nil
	case err != nil:
		return nil, err
	}
	rest, err := io.ReadAll(io.LimitReader(f, max(0, limit+1-int64(n))))
	if err != nil {
		return nil, err
	}
	data = append(data, rest...)
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: %w: more than %d bytes", path, ErrTooLarge, limit)
	}
	return data, nil
}

// ErrNotPrivate is matched when a folder that must be ours alone is not.
var ErrNotPrivate = errors.New("folder is not private")

// MkdirPrivate makes dir, and what is missing above it, with mode 0700. A
// folder that is there must be a real one, owned by this user and closed to
// all others; one that is open is closed.
func MkdirPrivate(dir string) error {
	if err := call(); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if err := mkdirs(dir); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if !fi.IsDir() {
		return fmt.Errorf("%w: %s is not a folder itself (a link?)", ErrNotPrivate, dir)
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to uid %d; remove it or give it to uid %d", ErrNotPrivate, dir, st.Uid, os.Geteuid())
	}
	if fi.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("close %s to others: %w", dir, err)
		}
	}
	return nil
}

// mkdirs is os.MkdirAll that makes what it made durable: a synced file in a
// folder whose own name is lost is lost too.
func mkdirs(dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil // as what, the caller looks at
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if parent := filepath.Dir(dir); parent != dir {
			if err := mkdirs(parent); err != nil {
				return err
			}
			err = os.Mkdir(dir, 0o700)
		}
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil // somebody was faster
	case err != nil:
		return err
	}
	if err := syncDir(filepath.Dir(dir)); !errors.Is(err, fs.ErrPermission) { // one that may be written and not read
		return err
	}
	return nil
}

// Identity is the device and inode of what path names, as 2049:131; links are
// followed when follow is set.
func Identity(path string, follow bool) (string, error) {
	var st syscall.Stat_t
	var err error
	if follow {
		err = syscall.Stat(path, &st)
	} else {
		err = syscall.Lstat(path, &st)
	}
	if err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino), nil
}

// Temps is the temporaries of this package in dir and below that were last
// written before a time: somebody began a write there and did not live to end it.
// Hidden folders are not looked into, and links not followed.
func Temps(ctx context.Context, dir string, before time.Time) (all []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != dir:
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case d.IsDir() && path != dir && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case !d.Type().IsRegular() || !IsTemp(d.Name()):
			return nil
		}
		fi, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && fi.ModTime().Before(before) {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for temporaries: %w", err)
	}
	return all, nil
}
