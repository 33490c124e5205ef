package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var (
	pointCheckout = fault.New("git.checkout")
	pointIndex    = fault.New("git.index")
)

// complete writes the files of a worktree that is being made, and ends the
// making; made is false when there was nothing to do. They are written with an
// index of our own, which becomes the worktree's when all is done: so the index
// tells whether it is, and a git that was killed leaves no lock in the way.
func (g *Git) complete(ctx context.Context, e entry, uid string) (made bool, err error) {
	index := filepath.Join(e.admin, "index")
	left := func() (files, unlock bool, err error) {
		done, err := exists(index)
		if err != nil {
			return false, false, err
		}
		reason, err := lockReason(e.admin)
		return !done, reason == making(uid), err
	}
	if files, unlock, err := left(); err != nil || !files && !unlock {
		return false, err
	}
	hold, release, err := g.exclusive(ctx, e.admin)
	if err != nil {
		return false, err
	}
	defer release()
	files, unlock, err := left()
	if err != nil {
		return false, err
	}
	if files {
		if err := g.checkout(ctx, hold, e, index); err != nil {
			return false, fmt.Errorf("check out: %w", err)
		}
	}
	if unlock {
		if err := g.unlock(ctx, hold, e.admin, e.Path); err != nil {
			return false, err
		}
		if _, still, err := left(); err != nil || still {
			return false, errors.Join(&effects.NotDoneError{What: fmt.Sprintf("the worktree at %q is still locked", e.Path)}, err)
		}
	}
	return files || unlock, nil
}

func (g *Git) checkout(ctx context.Context, hold *os.File, e entry, index string) error {
	ours := filepath.Join(e.admin, "skc-index")
	for _, left := range []string{ours, ours + ".lock"} {
		if err := os.Remove(left); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := pointCheckout.At(fault.Before); err != nil {
		return err
	}
	run := func(out io.Writer, args ...string) error {
		return g.run(ctx, call{args: append([]string{"-C", e.Path}, args...), env: []string{"GIT_INDEX_FILE=" + ours},
			timeout: g.o.CheckoutTimeout, hold: hold, out: out})
	}
	begun, err := begun(e.Path)
	if err != nil {
		return err
	}
	if begun {
		err = resume(run, e.Path)
	} else {
		err = run(nil, "read-tree", "-m", "-u", "HEAD")
	}
	if err != nil {
		return err
	}
	if err := pointCheckout.At(fault.During); err != nil {
		return err
	}
	if err := syncFile(ours); errors.Is(err, fs.ErrNotExist) {
		return &effects.NotDoneError{What: fmt.Sprintf("nothing was checked out at %q", e.Path)}
	} else if err != nil {
		return err
	}
	if err := pointCheckout.At(fault.After); err != nil {
		return err
	}
	return g.o.Files.Rename(pointIndex, ours, index)
}

// begun tells whether there is anything beside the .git file.
func begun(path string) (bool, error) {
	d, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(2)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return len(names) > 1, err
}

// resume comes to the end of a checkout that broke off. Files that are there
// stay, whoever wrote them, but for those that git had begun to write: they are
// the beginning of what they should be.
func resume(run func(out io.Writer, args ...string) error, path string) error {
	if err := run(nil, "read-tree", "-m", "HEAD"); err != nil {
		return err
	}
	if err := run(nil, "checkout-index", "--all", "--quiet", "--index"); err != nil {
		// It says so, too, when files were there already; the look that follows finds
		// what is missing.
		if _, ok := errors.AsType[*effects.CommandError](err); !ok {
			return err
		}
	}
	if err := run(nil, "update-index", "-q", "--refresh"); err != nil {
		if _, ok := errors.AsType[*effects.CommandError](err); !ok {
			return err
		}
	}
	out := &limited{max: maxOutput, whole: true}
	if err := run(out, "diff-files", "-z", "--name-only", "--ignore-submodules=all"); err != nil {
		return err
	}
	for name := range strings.SplitSeq(out.buf.String(), "\x00") {
		if name == "" {
			continue
		}
		part, err := isBeginning(run, path, name)
		if err != nil {
			return err
		}
		if part {
			if err := run(nil, "checkout-index", "--force", "--index", "--", name); err != nil {
				return err
			}
		}
	}
	return nil
}

// isBeginning tells whether the file holds a first part of what HEAD has, or
// is missing.
func isBeginning(run func(io.Writer, ...string) error, path, name string) (bool, error) {
	full := filepath.Join(path, name)
	fi, err := os.Lstat(full)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil || !fi.Mode().IsRegular() {
		return false, nil // somebody else's
	}
	f, err := os.Open(full)
	if err != nil {
		return false, nil
	}
	defer func() { _ = f.Close() }()
	c := &comparer{r: f}
	if err := run(c, "cat-file", "--filters", "--end-of-options", "HEAD:"+name); err != nil {
		return false, err
	}
	rest, _ := f.Read(make([]byte, 1)) // a longer one holds more
	return !c.differs && rest == 0, nil
}

// comparer is told what a file should hold, and sees whether the file is a
// beginning of that.
type comparer struct {
	r       io.Reader
	buf     []byte
	ended   bool
	differs bool
}

func (c *comparer) Write(p []byte) (int, error) {
	if !c.ended && !c.differs {
		c.buf = append(c.buf[:0], p...)
		n, err := io.ReadFull(c.r, c.buf)
		c.ended = err != nil
		c.differs = !bytes.Equal(c.buf[:n], p[:n])
	}
	return len(p), nil
}

// lockReason is why a worktree is locked; empty when it is not.
func lockReason(admin string) (string, error) {
	data, err := files.Read(filepath.Join(admin, "locked"), 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("look at lock of worktree: %w", err)
	}
	if reason := strings.TrimRight(string(data), "\r\n"); reason != "" {
		return reason, nil
	}
	return "no reason given", nil
}

// branchOf is the branch of a worktree's own folder of git; empty when HEAD is
// detached.
func branchOf(admin string) (string, error) {
	data, err := files.Read(filepath.Join(admin, "HEAD"), 64<<10)
	if err != nil {
		return "", fmt.Errorf("read HEAD: %w", err)
	}
	name, _ := strings.CutPrefix(strings.TrimSpace(string(data)), "ref: "+heads)
	if name == strings.TrimSpace(string(data)) {
		return "", nil
	}
	return name, nil
}

func sameFolder(a, b string) bool {
	x, errX := files.Identity(a, true)
	y, errY := files.Identity(b, true)
	return errX == nil && errY == nil && x == y
}

func identityOf(path string) (string, error) { return files.Identity(path, false) }
