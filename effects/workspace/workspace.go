// Package workspace makes, checks and gives up the folders that sessions run in:
// plain ones, and worktrees of git. It keeps true that a folder it made can be
// told from one of the same name that somebody else made, also after a crash,
// and that it removes only what is empty.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/quarantine"
)

var (
	pointStage  = fault.New("workspace.stage")
	pointPlace  = fault.New("workspace.place")
	pointRemove = fault.New("workspace.remove")
)

// StagePrefix begins the name of a folder that has not got its own yet; the UID
// of its Session follows.
const StagePrefix = ".skc-new-"

// ownName is what skc itself makes in the folder of a session.
const ownName = ".skc"

// Folders is the real file system. Its methods may be called at the same time.
type Folders struct{}

// Check looks at the folder at path. Links are followed. effects.ErrNotFound when
// there is none; when something else is there effects.ErrExists is matched too.
// fs.ErrPermission when it may not be entered.
func (Folders) Check(path string) error {
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		if _, lerr := os.Lstat(path); lerr == nil {
			return fmt.Errorf("folder %s: %w: %w as a link to nothing", path, effects.ErrNotFound, effects.ErrExists)
		}
		return fmt.Errorf("folder %s: %w", path, effects.ErrNotFound)
	case err != nil:
		return fmt.Errorf("look at folder: %w", err)
	case !fi.IsDir():
		return fmt.Errorf("folder %s: %w: %w and is no folder", path, effects.ErrNotFound, effects.ErrExists)
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return &fs.PathError{Op: "enter", Path: path, Err: err}
	}
	return nil
}

// Identify tells which folder is at path; a link there is none.
// effects.ErrNotFound when there is no folder.
func (Folders) Identify(path string) (effects.FileIdentity, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !fi.IsDir() {
		return effects.FileIdentity{}, fmt.Errorf("folder %s: %w", path, effects.ErrNotFound)
	} else if err != nil {
		return effects.FileIdentity{}, fmt.Errorf("look at folder: %w", err)
	}
	path, err = quarantine.Canonical(path)
	if err != nil {
		return effects.FileIdentity{}, fmt.Errorf("look at folder: %w", err)
	}
	id, err := quarantine.Identify(context.Background(), path) // of a folder, which takes one look
	if err != nil {
		return effects.FileIdentity{}, fmt.Errorf("look at folder: %w", err)
	}
	return effects.FileIdentity{Dev: id.Dev, Ino: id.Ino, Birth: id.Birth, Boot: id.Boot}, nil
}

// Resolve is path with the links above its last name resolved, as far as its
// folders are there.
func (Folders) Resolve(path string) string {
	dir, rest := filepath.Dir(path), filepath.Base(path)
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(real, rest)
		}
		if dir == "/" {
			return path
		}
		dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest)
	}
}

// Stamp is another one after a name in the folder at path came, went or changed.
// effects.ErrNotFound when there is no folder.
func (Folders) Stamp(path string) (string, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !fi.IsDir() {
		return "", fmt.Errorf("folder %s: %w", path, effects.ErrNotFound)
	} else if err != nil {
		return "", fmt.Errorf("look at folder: %w", err)
	}
	return strconv.FormatInt(fi.ModTime().UnixNano(), 10), nil
}

// Stage makes the folder that Place will name, empty and beside where it will
// be, and what is missing above it; one that an earlier call made is taken. real
// is path with the links above its last name resolved.
func (f Folders) Stage(path, uid string) (real string, id effects.FileIdentity, err error) {
	if err := pointStage.At(fault.Before); err != nil {
		return "", id, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", id, fmt.Errorf("make folder: %w", err)
	}
	if real, err = quarantine.Canonical(path); err != nil {
		return "", id, fmt.Errorf("make folder: %w", err)
	}
	if !utf8.ValidString(real) { // a status could not hold it
		return "", id, fmt.Errorf("make folder %q: its path is no UTF-8", real)
	}
	if err := pointStage.At(fault.During); err != nil {
		return "", id, err
	}
	if err := os.Mkdir(staged(real, uid), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", id, fmt.Errorf("make folder: %w", err)
	}
	if id, err = f.Identify(staged(real, uid)); err != nil {
		return "", id, err
	}
	return real, id, pointStage.At(fault.After)
}

func staged(path, uid string) string { return filepath.Join(filepath.Dir(path), StagePrefix+uid) }

// Place gives the folder that Stage made its name. effects.ErrExists when
// something else has the name by now, effects.ErrNotFound when the staged folder
// is not there. One that has its name already is a success.
func (f Folders) Place(path, uid string, id effects.FileIdentity) error {
	if got, err := f.Identify(path); err == nil && id.Same(got) {
		return syncFolder(filepath.Dir(path))
	}
	from := staged(path, uid)
	if got, err := f.Identify(from); err != nil {
		return err
	} else if !id.Same(got) {
		return fmt.Errorf("folder %s: %w: it is another one", from, effects.ErrNotFound)
	}
	if err := pointPlace.At(fault.Before); err != nil {
		return err
	}
	if err := rename(from, path); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("folder %s: %w", path, effects.ErrExists)
	} else if err != nil {
		return fmt.Errorf("name folder %s: %w", path, err)
	}
	if err := pointPlace.At(fault.During); err != nil {
		return err
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return err
	}
	return pointPlace.At(fault.After)
}

// Unstage removes what Stage made for path, if it is there and empty.
func (Folders) Unstage(path, uid string) error {
	real, err := quarantine.Canonical(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
		return err
	}
	return removeEmpty(staged(real, uid))
}

// Remove removes the folder at path if it is the one with that identity and
// holds nothing but what skc itself makes in it. removed tells whether it is
// gone; one that somebody put something in stays.
func (f Folders) Remove(path string, id effects.FileIdentity) (removed bool, err error) {
	got, err := f.Identify(path)
	if errors.Is(err, effects.ErrNotFound) || err == nil && !id.Same(got) {
		return true, nil // what we made is not there any more
	} else if err != nil {
		return false, err
	}
	if err := pointRemove.At(fault.Before); err != nil {
		return false, err
	}
	// Only rmdir is used, which takes nothing that holds anything.
	for _, dir := range []string{
		filepath.Join(path, ownName, "state", "sdk"), filepath.Join(path, ownName, "state"), filepath.Join(path, ownName),
	} {
		if err := removeEmpty(dir); err != nil {
			return false, err
		}
	}
	if err := pointRemove.At(fault.During); err != nil {
		return false, err
	}
	if err := removeEmpty(path); err != nil {
		return false, err
	}
	if _, err := f.Identify(path); !errors.Is(err, effects.ErrNotFound) {
		return false, err
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return false, err
	}
	return true, pointRemove.At(fault.After)
}

// removeEmpty removes a folder that is empty, and leaves what is not.
func removeEmpty(path string) error {
	err := unix.Rmdir(path)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, fs.ErrExist),
		errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EBUSY):
		return nil
	}
	return &fs.PathError{Op: "remove", Path: path, Err: err}
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) {
		err = nil // a file system that has no such thing
	}
	return errors.Join(err, d.Close())
}
