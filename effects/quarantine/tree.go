package quarantine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var pointInventory = fault.New("quarantine.inventory")

// Entry is one name in a tree, as it was when it was looked at.
type Entry struct {
	RelativePath Raw    `json:"relativePath"` // "." is the tree itself
	Kind         Kind   `json:"kind"`
	Dev          uint64 `json:"dev,string"`
	Ino          uint64 `json:"ino,string"`
	Size         int64  `json:"size"`
	MtimeNs      int64  `json:"mtimeNs,string"`
	CtimeNs      int64  `json:"ctimeNs,string"`
	Mode         uint32 `json:"mode"` // permission bits
	Nlink        uint64 `json:"nlink"`
	SHA256       string `json:"sha256,omitempty"` // of files that were to be read
	Target       Raw    `json:"target,omitempty"` // of links
	// Closed is true of a folder that could not be looked into: no right to, or
	// another file system.
	Closed bool `json:"closed,omitempty"`
}

// Snapshot tells of each entry of the tree (or the file) at path, a folder
// before what is in it, and sums it up. Files of at most hashUpTo bytes are
// read; links are not followed, special files not opened, other file systems
// not entered. Names that come or go meanwhile may or may not be told of. It
// holds one folder open and the names of the folders that lie ahead, and ends
// when ctx ends. path is absolute and free of links.
func Snapshot(ctx context.Context, path string, hashUpTo int64, each func(Entry) error) (Size, error) {
	var size Size
	dir, err := openFolder(filepath.Dir(path))
	if err != nil {
		return size, err
	}
	c := &climber{at: dir, path: "."}
	defer c.close()
	tell := func(name string, st stat, closed bool) error {
		e := Entry{
			RelativePath: Raw(c.below(name)), Kind: st.Kind, Dev: st.Dev, Ino: st.Ino, Size: st.Size,
			MtimeNs: st.MtimeNs, CtimeNs: st.ctimeNs, Mode: st.mode, Nlink: st.nlink, Closed: closed,
		}
		size.Entries++
		switch {
		case closed:
			size.Unreadable++
		case st.Kind == File:
			size.Files++
			size.Bytes += st.Size
			if st.Size <= hashUpTo {
				sum, err := c.at.hash(ctx, name, st)
				if err != nil && !errors.Is(err, fs.ErrPermission) {
					return err
				}
				e.SHA256 = sum
			}
		case st.Kind == Symlink:
			e.Target = readlink(c.at.fd, name)
		}
		return each(e)
	}
	st, err := c.at.look(ctx, filepath.Base(path), false)
	if err != nil {
		return size, err
	}
	if st.Kind != Dir {
		c.root = filepath.Base(path)
		return size, tell(c.root, st, false)
	}
	enter := func(name string, st stat) error {
		err := c.down(name, st)
		if closed := errors.Is(err, fs.ErrPermission) || errors.Is(err, Mounted); closed {
			return tell(name, st, true)
		}
		if err != nil {
			return err
		}
		top := c.top()
		if err := tell("", st, false); err != nil {
			return err
		}
		return c.names(ctx, func(name string) error {
			st, err := c.at.look(ctx, name, false)
			if err == nil && st.Kind == Dir {
				top.todo = append(top.todo, name)
				return nil
			}
			if err == nil {
				err = tell(name, st, false)
			}
			if changed(err) {
				return nil
			}
			return err
		})
	}
	if err := enter(filepath.Base(path), st); err != nil {
		return size, err
	}
	for c.top() != nil {
		top := c.top()
		if len(top.todo) == 0 {
			if err := c.up(); err != nil {
				return size, err
			}
			continue
		}
		name := top.todo[0]
		top.todo = top.todo[1:]
		st, err := c.at.look(ctx, name, false)
		if err == nil && st.Kind == Dir {
			err = enter(name, st)
		}
		if err != nil && !changed(err) {
			return size, err
		}
	}
	return size, nil
}

// changed tells the errors of a name that went, or became another thing,
// between two looks at it.
func changed(err error) bool {
	return errors.Is(err, NotFound) || errors.Is(err, IdentityMismatch) || errors.Is(err, ReparsePoint) || errors.Is(err, NotDirectory)
}

// climber walks a tree with one open folder, however deep it is. It goes up by
// "..", and only to where it came from.
type climber struct {
	at     *folder
	path   string // from the tree's root, for what is told
	root   string // the root's name, when it is a file
	device stat   // of the tree's root
	stack  []*frame
}

// frame is a folder that was entered.
type frame struct {
	name   string
	parent Identity
	above  string   // the parent's path
	todo   []string // folders in it that lie ahead
	tries  int
}

func (c *climber) close() { c.at.close() }

func (c *climber) top() *frame {
	if len(c.stack) == 0 {
		return nil
	}
	return c.stack[len(c.stack)-1]
}

// below is the path of name in the folder it is at; of the folder itself when
// name is empty.
func (c *climber) below(name string) string {
	switch {
	case name == "" || name == c.root:
		return c.path
	case c.path == ".":
		return name
	}
	return c.path + "/" + name // Join would clean what the system gave
}

// down enters the folder name, which st saw. The tree's root is entered first.
// It matches Mounted for another file system or mount.
func (c *climber) down(name string, st stat) error {
	path := filepath.Join(c.at.path, name)
	fd, err := open(c.at.fd, name, unix.O_RDONLY)
	if err != nil {
		return openFailed(c.at.fd, name, path, err)
	}
	next := &folder{fd, path}
	if err := c.enterable(next, st); err != nil {
		next.close()
		return err
	}
	parent, err := lstat(c.at.fd, "")
	if err != nil {
		next.close()
		return failed(c.at.path, "look", err)
	}
	f := &frame{name: name, parent: parent.Identity, above: c.path}
	if len(c.stack) > 0 {
		c.path = c.below(name)
	}
	c.stack = append(c.stack, f)
	c.at.close()
	c.at = next
	return nil
}

// enterable verifies a folder that was opened, and that there is a way up again.
func (c *climber) enterable(next *folder, st stat) error {
	now, err := lstat(next.fd, "")
	if err != nil {
		return failed(next.path, "look", err)
	}
	if !now.sameObject(st.Identity) {
		return &Error{Code: IdentityMismatch, Path: next.path, Text: "was replaced while it was looked at"}
	}
	if len(c.stack) == 0 {
		c.device = now
	}
	if now.Dev != c.device.Dev || now.mount != c.device.mount {
		return &Error{Code: Mounted, Path: next.path, Text: "is another file system"}
	}
	_, err = lstat(next.fd, "..")
	return failed(next.path, "look up from", err)
}

// up leaves the folder it is in.
func (c *climber) up() error {
	f := c.top()
	fd, err := open(c.at.fd, "..", searchOnlyAbove(len(c.stack)))
	if err != nil {
		return failed(c.at.path, "go up from", err)
	}
	above := &folder{fd, filepath.Dir(c.at.path)}
	st, err := lstat(fd, "")
	if err == nil && !st.sameObject(f.parent) {
		err = unix.ESTALE
	}
	if err != nil {
		above.close()
		return failed(c.at.path, "go up from", err)
	}
	c.at.close()
	c.at, c.path = above, f.above
	c.stack = c.stack[:len(c.stack)-1]
	return nil
}

// searchOnlyAbove: what is above the tree is entered and not read.
func searchOnlyAbove(depth int) int {
	if depth == 1 {
		return searchOnly
	}
	return unix.O_RDONLY
}

// names tells of each name in the folder it is at, in no order.
func (c *climber) names(ctx context.Context, each func(name string) error) error {
	r, err := c.at.reader()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		list, err := r.Readdirnames(batch)
		for _, name := range list {
			if err := each(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return failed(c.at.path, "read folder", err)
		}
	}
}

// batch is how many names are read or removed between two looks at ctx.
const batch = 256

func readlink(dir int, name string) Raw {
	buf := make([]byte, 4096)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return ""
	}
	return Raw(buf[:n])
}

const treeExt = ".tree"

// Inventory counts what is kept and lists it, one Entry a line, in
// <dir>/plans/<id>.tree, without reading any content. What it finds is told, and
// nothing depends on it: a thing is as safe without. It takes as long as ctx
// allows, and starts over after that.
func (s *Store) Inventory(ctx context.Context, id string) (Record, error) {
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	j, err := s.load(id)
	if err != nil || j.State != Kept || j.Size != nil {
		if err == nil && j.State != Kept {
			err = &Error{Code: NotFound, Path: id, Text: "it is " + string(j.State)}
		}
		if j == nil {
			j = &journal{}
		}
		return j.Record, err
	}
	part := j.tree + ".part"
	size, err := s.inventory(ctx, j, part)
	if err != nil {
		return j.Record, errors.Join(err, s.files.Remove(pointInventory, part, files.Derived))
	}
	return j.Record, s.write(j, pointRecord, line{Event: eventSize, Size: &size})
}

func (s *Store) inventory(ctx context.Context, j *journal, part string) (Size, error) {
	if err := s.files.Remove(pointInventory, part, files.Derived); err != nil {
		return Size{}, err
	}
	var lines []byte
	flush := func() error {
		err := s.files.Append(pointInventory, part, lines, files.Derived)
		lines = lines[:0]
		return err
	}
	size, err := Snapshot(ctx, string(j.Place), -1, func(e Entry) error {
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if lines = append(append(lines, data...), '\n'); len(lines) < 1<<18 {
			return nil
		}
		return flush()
	})
	if err == nil && len(lines) > 0 {
		err = flush()
	}
	if err != nil {
		return size, err
	}
	return size, s.files.Rename(pointInventory, part, j.tree)
}

// ReadInventory tells of the entries that Inventory wrote; fs.ErrNotExist when
// it was not made.
func (s *Store) ReadInventory(id string, each func(Entry) error) (err error) {
	if !validID.MatchString(id) {
		return fs.ErrNotExist
	}
	f, err := os.Open(filepath.Join(s.plans, id+treeExt))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for d := json.NewDecoder(f); ; {
		var e Entry
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(e); err != nil {
			return err
		}
	}
}
