// Package launch hands a program to the launcher that runs in a new pane, so
// that tmux never sees the user's arguments, environment or secrets. It writes
// launch files, reads back why a program could not be started, and makes the
// environment of a session: a function of its spec and of the controller's
// config, and of nothing that happens to be set around either. The format of
// the files is in package plan, what the launcher does in package child.
package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/launch/plan"
)

var (
	pointWrite = fault.New("launch.write")
	pointClear = fault.New("launch.clear")
)

// Plan is one start of one program.
type Plan = plan.Plan

// Failure is why the launcher could not start a program. Its reason is one of
// CommandNotFound, PermissionDenied, WorkingDirectoryMissing and ExecFailed of
// api/v1alpha1.
type Failure = plan.Failure

var (
	// ErrTooLarge is matched when the kernel cannot take the arguments or the
	// environment. Only an edit helps.
	ErrTooLarge = errors.New("longer than the kernel takes")
	// ErrInvalid is matched when no kernel could take the plan: a NUL, no
	// program, a folder that is not absolute.
	ErrInvalid = errors.New("cannot be started")
)

// Write puts the launch file of this start into dir and returns its path. The
// launcher that tmux starts with that path removes it. Writing it again
// replaces it. An error matches ErrTooLarge or ErrInvalid, or is one of the
// file layer; none holds a value.
func Write(layer *files.Layer, dir string, id effects.LaunchID, p Plan) (string, error) {
	if err := check(p); err != nil {
		return "", err
	}
	path := filepath.Join(dir, id.FileName())
	// Derived: after a power cut neither the server nor the pane is there.
	if err := layer.Write(pointWrite, path, p.Encode(), files.Derived); err != nil {
		return "", err
	}
	return path, nil
}

// check refuses what would only fail in the pane.
func check(p Plan) error {
	switch {
	case len(p.Argv) == 0 || p.Argv[0] == "":
		return fmt.Errorf("%w: the program's name is empty", ErrInvalid)
	case !filepath.IsAbs(p.Dir):
		return fmt.Errorf("%w: the folder %q is not absolute", ErrInvalid, p.Dir)
	case strings.ContainsRune(p.Dir, 0):
		return fmt.Errorf("%w: the folder holds a NUL", ErrInvalid)
	}
	total := 0
	add := func(what, s string) error {
		if strings.IndexByte(s, 0) >= 0 {
			return fmt.Errorf("%w: %s holds a NUL", ErrInvalid, what)
		}
		if maxString > 0 && len(s) > maxString {
			return fmt.Errorf("%s has %d bytes: %w, at most %d bytes", what, len(s), ErrTooLarge, maxString)
		}
		total += len(s) + 1 + pointer
		return nil
	}
	for i, s := range p.Argv {
		if err := add(fmt.Sprintf("argument %d", i), s); err != nil {
			return err
		}
	}
	for _, s := range p.Env {
		name, _, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return fmt.Errorf("%w: a variable has no name", ErrInvalid)
		}
		if err := add("the variable "+name+" with its name", s); err != nil {
			return err
		}
	}
	if limit := maxTotal() - reserved; total > limit {
		return fmt.Errorf("arguments and environment have %d bytes with the kernel's bookkeeping: %w, at most %d bytes together", total, ErrTooLarge, limit)
	}
	return nil
}

const (
	pointer = 8 // the kernel counts one for each string
	// reserved is for the program's path and for what the launcher adds.
	reserved = 8 << 10
)

// ReadFailure is why this start failed, or nil when nothing is reported: the
// program was started, or not yet, or the launcher itself was killed.
func ReadFailure(dir string, id effects.LaunchID) (*Failure, error) {
	data, err := files.Read(filepath.Join(dir, id.FileName()+plan.FailedSuffix), 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // none is not an error
	}
	if err != nil {
		return nil, fmt.Errorf("read why %s was not started: %w", id.FileName(), err)
	}
	f, err := plan.DecodeFailure(data)
	if err != nil {
		return nil, nil //nolint:nilnil // the launcher was killed while it wrote
	}
	return &f, nil
}

// Sweep removes the launch files and reports in dir that keep does not want,
// and returns how many. It touches nothing else there. A folder that is not
// there is empty.
func Sweep(layer *files.Layer, dir string, keep func(effects.LaunchID) bool) (removed int, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("sweep launch files: %w", err)
	}
	var errs []error
	for _, e := range entries {
		id, ok := effects.ParseLaunchID(strings.TrimSuffix(e.Name(), plan.FailedSuffix))
		if !ok || !e.Type().IsRegular() || keep(id) {
			continue
		}
		if err := layer.Remove(pointClear, filepath.Join(dir, e.Name()), files.Derived); err != nil {
			errs = append(errs, err)
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}

// Leftovers is all launch files and reports in dir, with whose they are. Those of
// a Session that is no more have no user.
func Leftovers(dir string) ([]effects.Leftover, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for launch files: %w", err)
	}
	var all []effects.Leftover
	for _, e := range entries {
		name, report := strings.CutSuffix(e.Name(), plan.FailedSuffix)
		id, ok := effects.ParseLaunchID(name)
		if !ok || !e.Type().IsRegular() {
			continue
		}
		what := "launch file"
		if report {
			what = "report of a start that failed"
		}
		all = append(all, effects.Leftover{Path: filepath.Join(dir, e.Name()), UID: id.UID, What: what})
	}
	return all, nil
}
