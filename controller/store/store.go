// Package store holds the objects: what the user's files ask for and what the
// reconcilers saw, one state file an object. It keeps true that an object has
// one UID from first sight until its deletion is done, that the generation
// counts changes of the user's spec and nothing else, that memory never runs
// ahead of the files, and that what identifies an object survives a power cut.
// It gives objects no meaning: that is the reconcilers' part, which see only
// Objects, so that they run over an API server as well.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// The steps at which a crash matters.
var (
	pointObject = fault.New("store.object") // a durable write of a state file
	pointStatus = fault.New("store.status") // a derived one
	pointKeep   = fault.New("store.keep")   // the durable version is kept beside
	pointRemove = fault.New("store.remove")
)

// ErrTerminating is matched when an object is being deleted: it can be applied
// again when it is gone (see OnGone).
var ErrTerminating = errors.New("object is being deleted")

// Objects is what reconcilers may assume of a store. What they get is theirs to
// change; nothing they do to it shows before Update.
type Objects interface {
	// Get returns the object, or an error matching effects.ErrNotFound.
	Get(ctx context.Context, key api.Key) (api.Object, error)
	// List returns all objects of a kind, by namespace and name, or an error.
	List(ctx context.Context, kind string) ([]api.Object, error)
	// Update stores the finalizers and the status of after, and nothing else of
	// it, if the object is still the version that before is; else the error
	// matches effects.ErrConflict, or effects.ErrNotFound when it is gone. When
	// the two are equal nothing is written. after gets the new resource version.
	// An object under deletion goes with its last finalizer.
	Update(ctx context.Context, before, after api.Object) error
}

// Typed is Objects for one kind.
type Typed[T api.Object] struct {
	objects Objects
	kind    string
}

// For serves the objects of one kind with their Go type.
func For[T api.Object](objects Objects, kind string) Typed[T] { return Typed[T]{objects, kind} }

// Get is Objects.Get.
func (t Typed[T]) Get(ctx context.Context, key api.Key) (T, error) {
	o, err := t.objects.Get(ctx, key)
	if err != nil {
		var none T
		return none, err
	}
	return typed[T](o)
}

// List is Objects.List.
func (t Typed[T]) List(ctx context.Context) ([]T, error) {
	all, err := t.objects.List(ctx, t.kind)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(all))
	for i, o := range all {
		if out[i], err = typed[T](o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Update is Objects.Update.
func (t Typed[T]) Update(ctx context.Context, before, after T) error {
	return t.objects.Update(ctx, before, after)
}

func typed[T api.Object](o api.Object) (T, error) {
	v, ok := o.(T)
	if !ok {
		return v, fmt.Errorf("%s is a %T, not a %T", api.KeyOf(o), o, v)
	}
	return v, nil
}

// Options says where the objects are and what the store needs.
type Options struct {
	Dir string // objects folder; made when it is missing
	// Finalizers says for a kind with which finalizer its objects begin, so that
	// none of its reconciler's needs a durable write of its own.
	Finalizers map[string]string
	Files      *files.Layer
	Clock      clock.PassiveClock
	Log        logr.Logger
}

// Store keeps objects in files. All methods may be called at the same time;
// writes to one object follow each other, those to different objects do not
// wait for each other.
type Store struct {
	opts     Options
	syncing  chan struct{} // one token a durable write under way
	problems []Problem     // fixed by Open

	mu      sync.RWMutex // guards what follows, and entry.cur
	entries map[api.Key]*entry

	hooks    sync.RWMutex
	onChange []func(api.Key)
	onStatus []func(api.Key)
	onGone   []func(api.Key)

	writes, durable, conflicts atomic.Int64
}

// maxSyncing is how many durable writes run at once: with four the commits of
// the file system's journal are shared, with more each only waits longer.
const maxSyncing = 4

// entry is the place of one object. Its lock is held over a whole change, file
// and memory, so that changes of one object follow each other.
type entry struct {
	mu sync.Mutex
	// mustSync is set when it is not known what the disk holds: after a failed
	// write, or when a derived file stands without the durable one it came from.
	// The next write is durable.
	mustSync bool
	// kept is set while the file is a derived one, beside which the last durable
	// one is kept.
	kept bool
	// gone is set when the object left the store; a writer that waited for the
	// lock looks the key up again.
	gone bool

	cur *version // nil before the first write; guarded by Store.mu
}

// Stats are counts since the store was opened.
type Stats struct {
	Objects   int
	Writes    int64 // state files written or removed
	Durable   int64 // those that were synced
	Conflicts int64 // updates of an old version
}

// Stats returns the counts.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	n := len(s.entries)
	s.mu.RUnlock()
	return Stats{Objects: n, Writes: s.writes.Load(), Durable: s.durable.Load(), Conflicts: s.conflicts.Load()}
}

// OnChange has f called after an object is new, its spec, labels or annotations
// changed, its source condition changed, its deletion began, or it is gone. It
// is not called for what Update stores, nor for the objects that Open finds:
// list those. f may be called from several goroutines and may use the store.
func (s *Store) OnChange(f func(api.Key)) {
	s.hooks.Lock()
	defer s.hooks.Unlock()
	s.onChange = append(s.onChange, f)
}

// OnStatus has f called after Update stored something of an object. It is for
// what waits for another object's status; a reconciler is not woken by its own.
func (s *Store) OnStatus(f func(api.Key)) {
	s.hooks.Lock()
	defer s.hooks.Unlock()
	s.onStatus = append(s.onStatus, f)
}

// OnGone has f called after an object has left the store.
func (s *Store) OnGone(f func(api.Key)) {
	s.hooks.Lock()
	defer s.hooks.Unlock()
	s.onGone = append(s.onGone, f)
}

func (s *Store) changed(key api.Key) { s.call(&s.onChange, key) }

func (s *Store) call(list *[]func(api.Key), key api.Key) {
	s.hooks.RLock()
	hooks := slices.Clone(*list)
	s.hooks.RUnlock()
	for _, f := range hooks {
		f(key)
	}
}

// Get is Objects.Get.
func (s *Store) Get(ctx context.Context, key api.Key) (api.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	v := s.current(key)
	if v == nil {
		return nil, fmt.Errorf("%s: %w", key, effects.ErrNotFound)
	}
	if err := v.ready(); err != nil {
		return nil, err
	}
	if v.obj == nil {
		return nil, fmt.Errorf("%s: %w", key, effects.ErrNotFound)
	}
	return copyOf(v.obj), nil
}

// List is Objects.List.
func (s *Store) List(ctx context.Context, kind string) ([]api.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []api.Object
	for _, v := range s.all() {
		if v.key.Kind != kind {
			continue
		}
		if err := v.ready(); err != nil {
			return nil, err
		}
		if v.obj != nil {
			out = append(out, copyOf(v.obj))
		}
	}
	return out, nil
}

// Keys tells which objects of a kind there are, and nothing more of them: after a
// start most are not decoded yet.
func (s *Store) Keys(kind string) []api.Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]api.Key, 0, len(s.entries))
	for key, e := range s.entries {
		if key.Kind == kind && e.cur != nil {
			out = append(out, key)
		}
	}
	return out
}

// all is the current version of every object, sorted by key.
func (s *Store) all() []*version {
	s.mu.RLock()
	all := make([]*version, 0, len(s.entries))
	for _, e := range s.entries {
		if e.cur != nil {
			all = append(all, e.cur)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b *version) int { return compareKeys(a.key, b.key) })
	return all
}

func compareKeys(a, b api.Key) int {
	if c := strings.Compare(a.Kind, b.Kind); c != 0 {
		return c
	}
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

func (s *Store) current(key api.Key) *version {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.entries[key]; e != nil {
		return e.cur
	}
	return nil
}

// Update is Objects.Update. The write is durable when finalizers, restart counts
// or the conversation changed, else derived.
func (s *Store) Update(ctx context.Context, before, after api.Object) error {
	key := api.KeyOf(after)
	sameStatus := equality.Semantic.DeepEqual(statusOf(before).Interface(), statusOf(after).Interface())
	sameFinalizers := slices.Equal(before.GetFinalizers(), after.GetFinalizers())
	if sameStatus && sameFinalizers {
		return nil
	}
	gone := false
	err := s.change(ctx, key, func(e *entry, cur *version) error {
		if cur == nil || cur.obj == nil {
			return fmt.Errorf("update %s: %w", key, effects.ErrNotFound)
		}
		if cur.meta.UID != before.GetUID() || cur.meta.ResourceVersion != before.GetResourceVersion() {
			s.conflicts.Add(1)
			return fmt.Errorf("update %s: %w", key, effects.ErrConflict)
		}
		if cur.meta.DeletionTimestamp != nil && len(after.GetFinalizers()) == 0 {
			gone = true
			return s.remove(ctx, e, cur)
		}
		how := files.Derived
		if !sameFinalizers || !sameDurable(before, after) {
			how = files.Durable
		}
		next := cur.next()
		next.meta.Finalizers = slices.Clone(after.GetFinalizers())
		statusOf(next.obj).Set(statusOf(copyOf(after)))
		if err := s.write(ctx, e, next, how); err != nil {
			return fmt.Errorf("update %s: %w", key, err)
		}
		after.SetResourceVersion(next.meta.ResourceVersion)
		return nil
	})
	switch {
	case err != nil:
	case gone:
		s.left(key)
	default:
		s.call(&s.onStatus, key)
	}
	return err
}

// durable is a kind whose status holds more than a look at the world can tell.
// What DurableStatus returns must survive a power cut.
type durable interface{ DurableStatus() any }

func sameDurable(a, b api.Object) bool {
	da, ok := a.(durable)
	db, also := b.(durable)
	return !ok || !also || equality.Semantic.DeepEqual(da.DurableStatus(), db.DurableStatus())
}

// change runs f with the entry of key locked, and its current version decoded;
// cur is nil when there is no such object.
func (s *Store) change(ctx context.Context, key api.Key, f func(e *entry, cur *version) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		s.mu.Lock()
		e := s.entries[key]
		if e == nil {
			e = &entry{}
			s.entries[key] = e
		}
		s.mu.Unlock()
		if done, err := s.changeEntry(e, key, f); done {
			return err
		}
	}
}

func (s *Store) changeEntry(e *entry, key api.Key, f func(e *entry, cur *version) error) (done bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return false, nil
	}
	s.mu.RLock()
	cur := e.cur
	s.mu.RUnlock()
	if cur != nil {
		if err := cur.ready(); err != nil {
			return true, err
		}
	}
	err = f(e, cur)
	s.mu.Lock()
	if e.cur == nil { // gone, or never came to be
		e.gone = true
		delete(s.entries, key)
	}
	s.mu.Unlock()
	return true, err
}

// write makes next the version of e, on disk and then in memory. The caller
// holds e.mu. After an error the version is the old one.
func (s *Store) write(ctx context.Context, e *entry, next *version, how files.Durability) error {
	rv, _ := strconv.ParseInt(next.meta.ResourceVersion, 10, 64) // our own, or empty for the first
	next.meta.ResourceVersion = strconv.FormatInt(rv+1, 10)
	if next.obj != nil {
		next.dress()
	}
	if e.mustSync {
		how = files.Durable
	}
	path := s.path(next.key)
	if how == files.Derived && !e.kept {
		// After a power cut the file system may hold the name of a file that was
		// not synced with a part of its bytes. So the durable file that it
		// replaces is kept beside it under a second name.
		err := s.opts.Files.Link(pointKeep, path, keptPath(path))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			how = files.Durable // somebody removed the file
		case err != nil:
			return err
		default:
			e.kept = true
		}
	}
	data, err := encodeState(next, how)
	if err != nil {
		return err
	}
	if how == files.Durable {
		err = s.writeDurable(ctx, path, data)
		e.kept = false
	} else {
		err = s.opts.Files.Write(pointStatus, path, data, files.Derived)
	}
	e.mustSync = err != nil
	if err != nil {
		return err
	}
	s.writes.Add(1)
	s.mu.Lock()
	e.cur = next
	s.mu.Unlock()
	return nil
}

func (s *Store) writeDurable(ctx context.Context, path string, data []byte) error {
	release, err := s.syncToken(ctx)
	if err != nil {
		return err
	}
	defer release()
	err = s.opts.Files.Write(pointObject, path, data, files.Durable)
	if errors.Is(err, fs.ErrNotExist) { // the first of its folder, or somebody removed the folder
		if err = s.makeFolder(path); err == nil {
			err = s.opts.Files.Write(pointObject, path, data, files.Durable)
		}
	}
	if err != nil {
		return err
	}
	s.durable.Add(1)
	// What was kept is older now, and wrong should this file ever be damaged. It
	// is not looked at while this file is whole: when it stays it does no harm.
	_ = s.opts.Files.Remove(pointKeep, keptPath(path), files.Derived)
	return nil
}

// makeFolder makes the folder of a state file, but not the one of the store: if
// that is gone, so is more than a folder.
func (s *Store) makeFolder(path string) error {
	if _, err := os.Lstat(s.opts.Dir); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := files.MkdirPrivate(filepath.Dir(dir)); err != nil {
		return err
	}
	return files.MkdirPrivate(dir)
}

func (s *Store) syncToken(ctx context.Context) (release func(), err error) {
	select {
	case s.syncing <- struct{}{}:
		return func() { <-s.syncing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// remove takes the object away, on disk and then in memory. The caller holds
// e.mu and calls left when it no longer does.
func (s *Store) remove(ctx context.Context, e *entry, cur *version) error {
	release, err := s.syncToken(ctx)
	if err != nil {
		return err
	}
	defer release()
	path := s.path(cur.key)
	e.mustSync = true // until the file is known to be gone
	if err := s.opts.Files.Remove(pointRemove, path, files.Durable); err != nil {
		return fmt.Errorf("remove %s: %w", cur.key, err)
	}
	// Not before: until then it may be all that a power cut leaves of the object.
	if err := s.opts.Files.Remove(pointKeep, keptPath(path), files.Derived); err != nil {
		return fmt.Errorf("remove %s: %w", cur.key, err)
	}
	s.writes.Add(1)
	s.durable.Add(1)
	s.mu.Lock()
	e.cur = nil
	s.mu.Unlock()
	return nil
}

// left tells that an object is gone.
func (s *Store) left(key api.Key) {
	s.changed(key)
	s.call(&s.onGone, key)
}

// stateFile is the ending of a state file's name.
const stateFile = ".yaml"

func (s *Store) path(key api.Key) string { return statePath(s.opts.Dir, key) }

func statePath(dir string, key api.Key) string {
	return filepath.Join(dir, strings.ToLower(key.Kind), namespaceFolder(key.Namespace), key.Name+stateFile)
}

// clusterFolder is the folder of a kind that belongs to no namespace. No
// namespace has such a name.
const clusterFolder = "_cluster"

func namespaceFolder(namespace string) string {
	if namespace == "" {
		return clusterFolder
	}
	return namespace
}

func namespaceOf(folder string) string {
	if folder == clusterFolder {
		return ""
	}
	return folder
}

const keptEnding = ".durable"

// keptPath is where the last durable version of a derived state file is.
func keptPath(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+keptEnding)
}

// pathPart is what a kind, namespace or name may be, so that no key climbs out
// of the folder. Which names a kind allows is judged where files are decoded.
var pathPart = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?$`)

func checkKey(key api.Key) error {
	parts := []string{key.Kind, key.Name, key.Namespace}
	if v1alpha1.ClusterScoped(key.Kind) {
		parts = parts[:2]
		if key.Namespace != "" {
			return fmt.Errorf("%s has a namespace, and its kind none", key)
		}
	}
	for _, part := range parts {
		if !pathPart.MatchString(part) {
			return fmt.Errorf("%q cannot be a part of an object's key", part)
		}
	}
	return nil
}
