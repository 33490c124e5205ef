package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/cmd/skcctl/manifest"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var (
	pointWrite  = fault.New("skcctl.write")
	pointRemove = fault.New("skcctl.remove")
)

// desired is what the files say: which one defines an object, and how that is
// changed. The files are read when they are needed and then kept, so one
// desired serves one command.
type desired struct {
	home  home.Home
	roots []string // that are read; new files go to the first
	state store.Client
	files files.Layer

	scanned bool
	skip    map[string]bool          // files that a scan passes over
	known   map[string]manifest.File // by path
	broken  map[string]error         // what cannot be read or is refused
	where   map[api.Key][]string     // files that define it, in order
}

func newDesired(h home.Home) *desired {
	return &desired{
		home: h, roots: roots(h), state: store.Client{Dir: h.Objects()},
		skip: map[string]bool{}, known: map[string]manifest.File{}, broken: map[string]error{}, where: map[api.Key][]string{},
	}
}

// lock keeps other skcctl from the spool, and the controller from what it
// manages itself, until the returned function is called, so that of many who
// write at once each sees what the one before it wrote.
func (d *desired) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(d.roots[0], 0o700); err != nil {
		return nil, writeError(err)
	}
	own, err := files.LockFolder(ctx, d.roots[0], filepath.Join(d.home.Run, "spool.lock"))
	if err != nil {
		return nil, err
	}
	managed, err := files.LockFolder(ctx, d.home.Managed(), filepath.Join(d.home.Run, "managed.lock"))
	if errors.Is(err, fs.ErrNotExist) { // no controller made it yet
		return own, nil
	}
	if err != nil {
		own()
		return nil, err
	}
	return func() { managed(); own() }, nil
}

// read reads one file of the spool.
func (d *desired) read(path string) (manifest.File, error) {
	if f, ok := d.known[path]; ok {
		return f, nil
	}
	if err, ok := d.broken[path]; ok {
		return manifest.File{}, err
	}
	data, err := files.Read(path, v1alpha1.MaxFileBytes)
	var f manifest.File
	if err == nil {
		f, err = manifest.Parse(path, data)
	}
	if errors.Is(err, fs.ErrNotExist) { // gone since it was listed, or a link to nothing
		return f, err
	}
	if err != nil {
		d.broken[path] = err
		return f, err
	}
	d.known[path] = f
	return f, nil
}

// scan reads the whole spool. A spool that is not there yet is empty.
func (d *desired) scan() error {
	if d.scanned {
		return nil
	}
	var paths []string
	for _, root := range d.roots {
		below, err := sourceFiles(root, true)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read the spool: %w", err)
		}
		paths = append(paths, below...)
	}
	for _, path := range paths {
		if d.skip[path] {
			continue
		}
		f, err := d.read(path)
		if err != nil {
			continue // in broken
		}
		for _, doc := range f.Docs {
			key := api.KeyOf(doc.Object)
			if !slices.Contains(d.where[key], path) {
				d.where[key] = append(d.where[key], path)
			}
		}
	}
	d.scanned = true
	return nil
}

// locate finds the document that defines key: in the file that the controller
// took it from, else in the spool. The error matches effects.ErrNotFound when
// there is none, and effects.ErrConflict when it cannot be said which it is.
func (d *desired) locate(key api.Key) (manifest.File, int, error) {
	if path := d.sourceOf(key); path != "" {
		switch f, err := d.read(path); {
		case err == nil:
			if i := f.Find(key); i >= 0 {
				return f, i, nil
			}
		case !errors.Is(err, fs.ErrNotExist):
			return f, 0, conflictf("the file that defines %s is not good; mend or remove it first:\n%v", short(key), err)
		}
	}
	if err := d.scan(); err != nil {
		return manifest.File{}, 0, err
	}
	switch paths := d.where[key]; len(paths) {
	case 0:
		return manifest.File{}, 0, notFound(key)
	case 1:
		f, err := d.read(paths[0])
		return f, f.Find(key), err
	default:
		return manifest.File{}, 0, conflictf("%s is defined in several files, remove all but one: %s", short(key), strings.Join(paths, ", "))
	}
}

// definedIn is the file whose document is removed to delete key, or whose
// document defined it and is gone; "" when there is none.
func (d *desired) definedIn(key api.Key) string {
	f, _, err := d.locate(key)
	switch {
	case err == nil:
		return f.Path
	case errors.Is(err, effects.ErrNotFound):
		return d.sourceOf(key)
	}
	return ""
}

// sourceOf is the file that the controller took the object from, or "".
func (d *desired) sourceOf(key api.Key) string {
	o, err := d.state.Get(key)
	if err != nil {
		return ""
	}
	return o.GetAnnotations()[v1alpha1.SourceFileAnnotation]
}

// save writes an edited file where the old one is, behind links too. A file
// without documents is removed; of one that is a link, the link.
func (d *desired) save(old, next manifest.File) error {
	if now, err := files.Read(old.Path, v1alpha1.MaxFileBytes); err != nil || !bytes.Equal(now, old.Data) {
		return fmt.Errorf("%s: %w; run the command again", old.Path, effects.ErrConflict)
	}
	delete(d.known, old.Path)
	for key, paths := range d.where {
		d.where[key] = slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == old.Path })
	}
	if len(next.Docs) == 0 {
		return writeError(d.files.Remove(pointRemove, old.Path, files.Durable))
	}
	real, err := filepath.EvalSymlinks(old.Path)
	if err != nil {
		return writeError(err)
	}
	fi, err := os.Stat(real)
	if err != nil {
		return writeError(err)
	}
	return d.put(real, next, fi.Mode().Perm())
}

// create writes a new file below the spool.
func (d *desired) create(f manifest.File) error {
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return writeError(err)
	}
	return d.put(f.Path, f, 0o600)
}

func (d *desired) put(real string, f manifest.File, mode fs.FileMode) error {
	if err := d.files.WriteMode(pointWrite, real, f.Data, files.Durable, mode); err != nil {
		return writeError(err)
	}
	d.known[f.Path] = f
	delete(d.broken, f.Path)
	for _, doc := range f.Docs {
		if key := api.KeyOf(doc.Object); !slices.Contains(d.where[key], f.Path) {
			d.where[key] = append(d.where[key], f.Path)
		}
	}
	return nil
}

// writeError says what to do about a spool that cannot be written.
func writeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fmt.Errorf("the spool cannot be written (make it writable, or choose another with --home): %w", err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("the spool's disk is full, nothing was changed: %w", err)
	default:
		return fmt.Errorf("change the spool: %w", err)
	}
}
