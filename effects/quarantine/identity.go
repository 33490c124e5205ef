package quarantine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Kind is what a name in a folder stands for.
type Kind string

// The kinds. Only files and folders are set aside; below a folder all are.
const (
	File    Kind = "file"
	Dir     Kind = "dir"
	Symlink Kind = "symlink"
	FIFO    Kind = "fifo"
	Socket  Kind = "socket"
	Device  Kind = "device"
)

// Identity names one file or folder for good.
//
// For a folder it is the folder's own device and inode (and birth): a rename
// changes none of them, and takes along whatever is below, also what a running
// program writes at that moment. So nothing below is compared: it could only
// make a move fail that loses nothing. For a file the content is named as well.
type Identity struct {
	Kind Kind   `json:"kind"`
	Dev  uint64 `json:"dev,string"`
	Ino  uint64 `json:"ino,string"`
	// Birth is when the inode was made, in nanoseconds, 0 where that is not known:
	// it tells an inode number that was used again.
	Birth int64 `json:"birth,string,omitempty"`
	// Boot names the boot at which this was seen. Device numbers may be dealt out
	// anew at the next one; then Ino and Birth decide.
	Boot string `json:"boot,omitempty"`
	// Of files only.
	Size    int64  `json:"size,omitempty"`
	MtimeNs int64  `json:"mtimeNs,string,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
}

// String is device and inode, as files.Identity writes them.
func (i Identity) String() string { return fmt.Sprintf("%d:%d", i.Dev, i.Ino) }

// sameObject tells whether both are one inode, whatever it holds.
func (i Identity) sameObject(o Identity) bool {
	if i.Kind != o.Kind || i.Ino != o.Ino || i.Birth != 0 && o.Birth != 0 && i.Birth != o.Birth {
		return false
	}
	rebooted := i.Boot != "" && o.Boot != "" && i.Boot != o.Boot
	return i.Dev == o.Dev || rebooted && i.Birth != 0 && i.Birth == o.Birth
}

// Matches tells whether o, which was seen, is what i names. Of a file whose
// SHA256 is not given, the object is enough.
func (i Identity) Matches(o Identity) bool {
	return i.sameObject(o) && (i.SHA256 == "" || i.SHA256 == o.SHA256 && i.Size == o.Size && i.MtimeNs == o.MtimeNs)
}

// Raw is bytes as the system gave them: a path, a branch. In JSON it is a
// string, or, when it is no UTF-8, {"base64": "…"}.
type Raw string

type rawBytes struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (r Raw) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(r)) {
		return json.Marshal(string(r))
	}
	return json.Marshal(rawBytes{[]byte(r)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Raw) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var b rawBytes
		err := json.Unmarshal(data, &b)
		*r = Raw(b.Base64)
		return err
	}
	return json.Unmarshal(data, (*string)(r))
}

// stat is what one look at a name tells.
type stat struct {
	Identity        // without SHA256; Size and MtimeNs for every kind
	mode     uint32 // permission bits
	nlink    uint64
	ctimeNs  int64
	mount    uint64 // 0 where the system does not say
}

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFIFO:
		return FIFO
	case unix.S_IFSOCK:
		return Socket
	}
	return Device
}

// folder is an open folder: names in it are looked at and moved without walking
// its path again.
type folder struct {
	fd   int
	path string
}

func (f *folder) close() {
	if f != nil {
		_ = unix.Close(f.fd)
	}
}

// openFolder opens the folder at path, name by name from the root, and refuses
// links: whoever may swap a part of the path for a link leads nowhere.
func openFolder(path string) (*folder, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return nil, &Error{Code: OriginRefused, Path: path, Text: "is not an absolute, clean path"}
	}
	fd, err := open(unix.AT_FDCWD, "/", searchOnly)
	if err != nil {
		return nil, failed("/", "open", err)
	}
	at := "/"
	for _, name := range parts(path) {
		next, err := open(fd, name, searchOnly)
		at = filepath.Join(at, name)
		if err != nil {
			err = openFailed(fd, name, at, err)
		}
		_ = unix.Close(fd)
		if err != nil {
			return nil, err
		}
		fd = next
	}
	return &folder{fd, path}, nil
}

// openFailed tells a link from a file, which the errno does not on all systems.
func openFailed(fd int, name, path string, err error) error {
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		if st, err := lstat(fd, name); err == nil && st.Kind == Symlink {
			return &Error{Code: ReparsePoint, Path: path, Text: "is a symbolic link"}
		}
	}
	return failed(path, "open", err)
}

// parts are the names of a clean absolute path.
func parts(path string) []string {
	var out []string
	for start, i := 1, 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			if i > start {
				out = append(out, path[start:i])
			}
			start = i + 1
		}
	}
	return out
}

// open opens the folder name in fd, without following a link.
func open(fd int, name string, flags int) (int, error) {
	return again(func() (int, error) {
		return unix.Openat(fd, name, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

// again calls f until no signal interrupts it.
func again[T any](f func() (T, error)) (T, error) {
	for {
		if v, err := f(); !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}

// reader opens the names of the folder for reading.
func (f *folder) reader() (*os.File, error) {
	fd, err := open(f.fd, ".", unix.O_RDONLY)
	if err != nil {
		return nil, failed(f.path, "read folder", err)
	}
	return os.NewFile(uintptr(fd), f.path), nil
}

// sync makes the names in the folder durable.
func (f *folder) sync() error {
	r, err := f.reader()
	if err != nil {
		return err
	}
	err = r.Sync()
	if errors.Is(err, unix.EINVAL) {
		err = nil // a file system that has no such thing
	}
	return failed(f.path, "sync", errors.Join(err, r.Close()))
}

// look is what name stands for now; the content of a file is read when it is
// asked for. Nothing but a regular file is opened.
func (f *folder) look(ctx context.Context, name string, content bool) (stat, error) {
	path := filepath.Join(f.path, name)
	st, err := lstat(f.fd, name)
	if err != nil {
		return stat{}, failed(path, "look", err)
	}
	if st.Kind == File && content {
		st.SHA256, err = f.hash(ctx, name, st)
	}
	return st, err
}

// hash reads the file that st saw.
func (f *folder) hash(ctx context.Context, name string, st stat) (string, error) {
	path := filepath.Join(f.path, name)
	fd, err := again(func() (int, error) {
		return unix.Openat(f.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return "", failed(path, "read", err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer func() { _ = file.Close() }()
	now, err := lstat(fd, "")
	if err != nil {
		return "", failed(path, "look", err)
	}
	if !now.sameObject(st.Identity) {
		return "", &Error{Code: IdentityMismatch, Path: path, Text: "was replaced while it was looked at"}
	}
	sum := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		switch _, err := io.CopyN(sum, file, 1<<20); {
		case errors.Is(err, io.EOF):
			return hex.EncodeToString(sum.Sum(nil)), nil
		case err != nil:
			return "", failed(path, "read", err)
		}
	}
}

// thing is a stat as the identity of what is moved.
func (s stat) thing() Identity {
	id := s.Identity
	if id.Kind != File {
		id.Size, id.MtimeNs = 0, 0
	}
	return id
}

// Identify tells what is at path, which is absolute and free of links (see
// Canonical). Of a file the content is read, until ctx ends. The errors match
// NotFound, ReparsePoint, NotDirectory (in the path), NotRegularFile.
func Identify(ctx context.Context, path string) (Identity, error) {
	if path == "/" {
		return Identity{}, &Error{Code: OriginRefused, Path: path, Text: "is the root"}
	}
	dir, err := openFolder(filepath.Dir(path))
	if err != nil {
		return Identity{}, err
	}
	defer dir.close()
	st, err := dir.look(ctx, filepath.Base(path), true)
	if err != nil {
		return Identity{}, err
	}
	return st.thing(), movable(path, st.Kind)
}

// movable refuses what is never set aside.
func movable(path string, k Kind) error {
	switch k {
	case File, Dir:
		return nil
	case Symlink:
		return &Error{Code: ReparsePoint, Path: path, Text: "is a symbolic link"}
	}
	return &Error{Code: NotRegularFile, Path: path, Text: "is a " + string(k)}
}

// Canonical is path with the links above its last name resolved. Resolve once,
// when a path becomes ours, and keep the result: a link that is turned later
// then leads nowhere else.
func Canonical(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil || path == "/" {
		return path, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}
