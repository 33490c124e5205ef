// Package workspace makes and checks the folders that sessions run in. It
// removes nothing.
package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var pointMake = fault.New("workspace.make")

// Folders is the real file system. Its methods may be called at the same time.
type Folders struct{}

// Check returns the identity of the folder at path. Links are followed.
// effects.ErrNotFound when there is none, or something that is no folder;
// fs.ErrPermission when it may not be entered.
func (Folders) Check(path string) (string, error) {
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "", fmt.Errorf("folder %s: %w", path, effects.ErrNotFound)
	case err != nil:
		return "", fmt.Errorf("look at folder: %w", err)
	case !fi.IsDir():
		return "", fmt.Errorf("folder %s: %w: it is no folder", path, effects.ErrNotFound)
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return "", &fs.PathError{Op: "enter", Path: path, Err: err}
	}
	return files.Identity(path, true)
}

// Make makes the folder at path, and what is missing above it; made is false
// when it was there already.
func (f Folders) Make(path string) (identity string, made bool, err error) {
	if err := pointMake.At(fault.Before); err != nil {
		return "", false, fmt.Errorf("make folder %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", false, fmt.Errorf("make folder: %w", err)
	}
	if err := pointMake.At(fault.During); err != nil {
		return "", false, fmt.Errorf("make folder %s: %w", path, err)
	}
	err = os.Mkdir(path, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", false, fmt.Errorf("make folder: %w", err)
	}
	made = err == nil
	if err := pointMake.At(fault.After); err != nil {
		return "", made, fmt.Errorf("make folder %s: %w", path, err)
	}
	identity, err = f.Check(path)
	return identity, made, err
}
