package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"skc.dev/skc/api"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
)

// Client reads the state files and writes nothing. It needs no controller: what
// it tells is what the controller saw last. Its zero value but for Dir is ready
// for use, by several goroutines.
type Client struct {
	Dir string // objects folder; one that is missing holds no objects
}

// Get returns the object, or an error matching effects.ErrNotFound.
func (c Client) Get(key api.Key) (api.Object, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return readObject(statePath(c.Dir, key))
}

// List returns the objects of a kind in a namespace, or in all when namespace
// is empty, by namespace and name. Of those that cannot be read it tells in the
// error; the others are returned all the same.
func (c Client) List(kind, namespace string) ([]api.Object, error) {
	paths, err := c.paths(kind, namespace)
	errs := []error{err}
	var out []api.Object
	for _, path := range paths {
		o, err := readObject(path)
		switch {
		case err == nil:
			out = append(out, o)
		case !errors.Is(err, effects.ErrNotFound): // else it went just now
			errs = append(errs, err)
		}
	}
	slices.SortFunc(out, func(a, b api.Object) int { return compareKeys(api.KeyOf(a), api.KeyOf(b)) })
	return out, errors.Join(errs...)
}

// folders are those in which the state files of a kind and a namespace lie.
func (c Client) folders(kind, namespace string) ([]folder, error) {
	all, err := stateFolders(c.Dir)
	return slices.DeleteFunc(all, func(f folder) bool {
		return f.kind != strings.ToLower(kind) || namespace != "" && f.namespace != namespace
	}), err
}

func (c Client) paths(kind, namespace string) ([]string, error) {
	folders, err := c.folders(kind, namespace)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range folders {
		names, _, err := stateNames(f.path)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			out = append(out, filepath.Join(f.path, name+stateFile))
		}
	}
	return out, nil
}

// readObject reads one state file. A file of which only the identity is known
// is not found, as in the store.
func readObject(path string) (api.Object, error) {
	namespace, name := namespaceOf(filepath.Base(filepath.Dir(path))), strings.TrimSuffix(filepath.Base(path), stateFile)
	data, err := files.Read(path, maxStateBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s %s: %w", filepath.Base(filepath.Dir(filepath.Dir(path))), strings.TrimPrefix(namespace+"/"+name, "/"), effects.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	body, _, err := unseal(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	v, err := loaded(namespace, name, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := v.ready(); err != nil {
		return nil, err
	}
	if v.obj == nil {
		return nil, fmt.Errorf("%s: %w", v.key, effects.ErrNotFound)
	}
	return v.obj, nil
}

// Event is what a watch saw: an object that is new or changed, one that is
// gone (as it was last), or a file that cannot be read.
type Event struct {
	Object  api.Object // nil when Err is set
	Deleted bool
	Err     error
}

// How often a watch looks at everything: events only hasten that. Without
// events the looks are all there is.
const (
	relook     = 5 * time.Second
	relookBare = 300 * time.Millisecond
)

// Watch tells of the objects of a kind in a namespace, or in all when namespace
// is empty: first of each that is there, then of every change until ctx ends,
// which closes the channel. Versions that follow each other fast may be told as
// one. A file that cannot be read is an event of its own and ends nothing.
func (c Client) Watch(ctx context.Context, kind, namespace string) (<-chan Event, error) {
	w := &watch{client: c, kind: strings.ToLower(kind), namespace: namespace, out: make(chan Event), seen: map[string]sighting{}}
	if _, err := c.folders(kind, namespace); err != nil {
		return nil, err
	}
	var err error
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		w.notify = nil // no inotify to be had
	}
	go w.run(ctx)
	return w.out, nil
}

// watch is one Watch under way. All of it belongs to the goroutine of run.
type watch struct {
	client          Client
	kind, namespace string
	notify          *fsnotify.Watcher // nil when there are no events
	out             chan Event
	seen            map[string]sighting // by path
	bare            bool                // some folder is not watched
	failed          string              // the last error of a listing
}

// sighting is what was seen of one file.
type sighting struct {
	stamp stamp
	obj   api.Object // as it was told last; nil when it was never readable
}

// stamp differs whenever a state file was replaced.
type stamp struct {
	ino         uint64
	size, mtime int64
}

func stampOf(path string) (stamp, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return stamp{}, err
	}
	s := stamp{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.ino = st.Ino
	}
	return s, nil
}

func (w *watch) run(ctx context.Context) {
	defer close(w.out)
	var events chan fsnotify.Event
	var errs chan error
	if w.notify != nil {
		defer func() { _ = w.notify.Close() }()
		events, errs = w.notify.Events, w.notify.Errors
	}
	w.look(ctx)
	timer := time.NewTimer(w.pause())
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if w.isStateFile(e.Name) {
				w.file(ctx, e.Name)
				continue
			}
			if e.Op == fsnotify.Chmod || strings.HasPrefix(filepath.Base(e.Name), ".") {
				continue // a temporary of ours, or a kept version
			}
		case <-errs: // events were lost
		case <-timer.C:
		}
		w.look(ctx)
		timer.Reset(w.pause())
	}
}

func (w *watch) pause() time.Duration {
	if w.notify == nil || w.bare {
		return relookBare
	}
	return relook
}

func (w *watch) isStateFile(path string) bool {
	name, ok := strings.CutSuffix(filepath.Base(path), stateFile)
	dir := filepath.Dir(path)
	return ok && pathPart.MatchString(name) && filepath.Dir(dir) == filepath.Join(w.client.Dir, w.kind) &&
		(w.namespace == "" || filepath.Base(dir) == w.namespace)
}

// look compares all files with what was seen. Folders are watched before they
// are listed, so that nothing falls between the two.
func (w *watch) look(ctx context.Context) {
	w.bare = false
	w.watchFolder(w.client.Dir)
	w.watchFolder(filepath.Join(w.client.Dir, w.kind))
	folders, err := w.client.folders(w.kind, w.namespace)
	for _, f := range folders {
		w.watchFolder(f.path)
	}
	var paths []string
	if err == nil {
		paths, err = w.client.paths(w.kind, w.namespace)
	}
	if err != nil { // unknown is not absent
		if w.failed != err.Error() {
			w.failed = err.Error()
			w.send(ctx, Event{Err: err})
		}
		return
	}
	w.failed = ""
	there := make(map[string]bool, len(paths))
	for _, path := range paths {
		there[path] = true
		w.file(ctx, path)
	}
	for path := range w.seen {
		if !there[path] {
			w.file(ctx, path)
		}
	}
}

// watchFolder watches a folder, or what is above it while it is missing.
func (w *watch) watchFolder(dir string) {
	if w.notify == nil {
		return
	}
	for {
		err := w.notify.Add(dir)
		if err == nil {
			return
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			w.bare = true
			return
		}
		dir = parent
	}
}

// file compares one file with what was seen of it.
func (w *watch) file(ctx context.Context, path string) {
	last, known := w.seen[path]
	st, err := stampOf(path)
	if err == nil && known && st == last.stamp {
		return
	}
	var obj api.Object
	if err == nil {
		obj, err = readObject(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, effects.ErrNotFound):
		delete(w.seen, path)
		if last.obj != nil {
			w.send(ctx, Event{Object: last.obj, Deleted: true})
		}
	case err != nil:
		w.seen[path] = sighting{st, last.obj}
		w.send(ctx, Event{Err: err})
	default:
		w.seen[path] = sighting{st, obj}
		if last.obj != nil && last.obj.GetUID() != obj.GetUID() { // another one of that name
			w.send(ctx, Event{Object: last.obj, Deleted: true})
			last.obj = nil
		}
		if last.obj == nil || last.obj.GetResourceVersion() != obj.GetResourceVersion() {
			w.send(ctx, Event{Object: copyOf(obj)})
		}
	}
}

func (w *watch) send(ctx context.Context, e Event) {
	select {
	case w.out <- e:
	case <-ctx.Done():
	}
}
