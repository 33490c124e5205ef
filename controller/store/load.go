package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/google/uuid"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects/files"
)

// maxStateBytes is far more than a spec of the largest source file and a status
// take.
const maxStateBytes = 8 << 20

// Problem is one thing that was wrong with the files when the store was opened,
// and what became of it.
type Problem struct {
	Key      api.Key // Kind as the folder is named when the file does not tell
	UID      string  // empty when it is lost
	File     string  // the state file
	SetAside string  // where the damaged file is now
	Message  string
}

// Open reads the objects that are there. It removes what a killed write left,
// closes folders that are open to others, and repairs what it can (see
// Problems). A file that cannot be read, or that a newer skc wrote, is an
// error: it is not known what it says, and that is not the same as nothing. The
// caller owns the home.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{opts: o, syncing: make(chan struct{}, maxSyncing), entries: map[api.Key]*entry{}}
	if err := files.MkdirPrivate(o.Dir); err != nil {
		return nil, fmt.Errorf("open objects: %w", err)
	}
	folders, err := stateFolders(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open objects: %w", err)
	}
	for _, f := range folders {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.loadFolder(f); err != nil {
			return nil, fmt.Errorf("open objects: %w", err)
		}
	}
	return s, nil
}

// Problems is what was wrong with the files when the store was opened.
func (s *Store) Problems() []Problem { return s.problems }

// folder is the folder of one namespace of one kind, or of a kind that has none.
type folder struct{ path, kind, namespace string }

// stateFolders lists the folders that may hold state files; what else lies
// there is somebody's own. One that is missing is an empty list.
func stateFolders(dir string) ([]folder, error) {
	var out []folder
	kinds, err := subfolders(dir)
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		namespaces, err := subfolders(filepath.Join(dir, kind))
		if err != nil {
			return nil, err
		}
		for _, ns := range namespaces {
			out = append(out, folder{filepath.Join(dir, kind, ns), kind, namespaceOf(ns)})
		}
	}
	return out, nil
}

func subfolders(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range list {
		if d.IsDir() && (pathPart.MatchString(d.Name()) || d.Name() == clusterFolder) {
			out = append(out, d.Name())
		}
	}
	return out, nil
}

// stateNames lists the objects whose state files lie in a folder, and the names
// under which durable versions are kept or which a killed write left.
func stateNames(dir string) (names []string, others map[string]bool, err error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	others = map[string]bool{}
	for _, d := range list {
		if !d.Type().IsRegular() {
			continue
		}
		if isKept(d.Name()) || files.IsTemp(d.Name()) {
			others[d.Name()] = true
		} else if name, ok := strings.CutSuffix(d.Name(), stateFile); ok && pathPart.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, others, nil
}

func isKept(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, stateFile+keptEnding)
}

// loadFolder reads one folder. Files are read in parallel: most of the time is
// the kernel's.
func (s *Store) loadFolder(f folder) error {
	for _, dir := range []string{filepath.Dir(f.path), f.path} {
		if err := files.MkdirPrivate(dir); err != nil { // closes it
			return err
		}
	}
	names, others, err := stateNames(f.path)
	if err != nil {
		return err
	}
	found := make([]struct {
		e       *entry
		v       *version
		problem *Problem
		err     error
	}, len(names))
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(names); i += workers {
				r := &found[i]
				r.e, r.v, r.problem, r.err = s.load(f, names[i], others)
			}
		})
	}
	wg.Wait()
	for i, r := range found {
		if r.err != nil {
			return r.err
		}
		if r.problem != nil {
			s.problems = append(s.problems, *r.problem)
			s.opts.Log.Info("state file was damaged", "object", r.problem.Key.String(), "uid", r.problem.UID,
				"file", r.problem.File, "setAside", r.problem.SetAside, "outcome", r.problem.Message)
		}
		if r.v != nil {
			r.e.cur = r.v
			s.entries[r.v.key] = r.e
		}
		delete(others, filepath.Base(keptPath(filepath.Join(f.path, names[i]+stateFile))))
	}
	for name := range others { // temporaries, and what was kept of objects that are gone
		if err := s.opts.Files.Remove(pointKeep, filepath.Join(f.path, name), files.Derived); err != nil {
			return err
		}
	}
	return nil
}

// load reads one state file. v is nil when the object is lost.
func (s *Store) load(f folder, name string, kept map[string]bool) (e *entry, v *version, p *Problem, err error) {
	path := filepath.Join(f.path, name+stateFile)
	data, err := files.Read(path, maxStateBytes)
	if err != nil {
		return nil, nil, nil, err
	}
	body, how, err := unseal(data)
	if err == nil {
		v, err = loaded(f.namespace, name, body)
	}
	if err == nil && strings.ToLower(v.key.Kind) != f.kind {
		err = errDamaged
	}
	if errors.Is(err, ErrNewerState) {
		return nil, nil, nil, fmt.Errorf("%s: %w; run the newer one, or move the file away to give up what it says", path, err)
	}
	isKept := kept[filepath.Base(keptPath(path))]
	if err == nil {
		e := &entry{kept: how == files.Derived && isKept}
		e.mustSync = how == files.Derived && !isKept
		return e, v, nil, nil
	}
	e, v, p, err = s.recover(f, name, data)
	return e, v, p, err
}

// recover makes the best of a damaged file, which is set aside whatever comes
// of it. The last durable version is taken if it was kept. Else, if the file
// still tells who the object is, the identity alone is: the object is seen
// again when the spool applies it, with its UID, so that what runs for it is
// still its own. What is recovered is on disk before anybody acts on it.
func (s *Store) recover(f folder, name string, data []byte) (*entry, *version, *Problem, error) {
	path := filepath.Join(f.path, name+stateFile)
	aside := path + ".corrupt-" + s.opts.Clock.Now().UTC().Format("20060102T150405Z") + "-" + strings.ToLower(rand.Text()[:6])
	p := &Problem{Key: api.Key{Kind: f.kind, Namespace: f.namespace, Name: name}, File: path, SetAside: aside}
	v, whole := s.recovered(f, name, data)
	if v == nil {
		p.Message = "the file was damaged and nothing of it could be saved; the object gets a new UID"
		return nil, nil, p, s.opts.Files.Rename(pointKeep, path, aside)
	}
	p.Key, p.UID = v.key, string(v.meta.UID)
	p.Message = "the file was damaged; UID and finalizers were saved, the status was not"
	if whole {
		p.Message = "the file was damaged; the last durable version was taken, and what was observed since is looked at anew"
	}
	if err := s.opts.Files.Link(pointKeep, path, aside); err != nil {
		return nil, nil, nil, err
	}
	state, err := encodeState(v, files.Durable)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := s.opts.Files.Write(pointObject, path, state, files.Durable); err != nil {
		return nil, nil, nil, err
	}
	return &entry{}, v, p, nil
}

// recovered finds what can be known of a damaged file's object.
func (s *Store) recovered(f folder, name string, data []byte) (v *version, whole bool) {
	fits := func(v *version, err error) bool {
		return err == nil && strings.ToLower(v.key.Kind) == f.kind && v.meta.Name == name && v.meta.Namespace == f.namespace
	}
	if kept, err := files.Read(keptPath(filepath.Join(f.path, name+stateFile)), maxStateBytes); err == nil {
		if body, how, err := unseal(kept); err == nil && how == files.Durable {
			if v, err := loaded(f.namespace, name, body); err == nil && fits(v, v.ready()) {
				return v, true
			}
		}
	}
	doc, _ := section(data, "metadata")
	meta, err := decodeMeta(doc)
	v = &version{key: api.Key{Kind: kindOf(data), Namespace: f.namespace, Name: name}, meta: meta}
	if !fits(v, err) || uuid.Validate(string(v.meta.UID)) != nil || v.meta.Generation < 1 {
		return nil, false
	}
	if doc, ok := section(data, "source"); ok {
		v.source, _ = decodeSource(doc) // else the next Apply tells
		v.source = v.source.at()        // what it defines is lost
	}
	if v.meta.DeletionTimestamp != nil { // nobody applies it any more, and its deletion must come to its end
		v.rawSpec = []byte("{}")
		if v.obj, err = v1alpha1.FromRecord(v.key.Kind, map[string]any{"spec": map[string]any{}}); err != nil {
			return nil, false
		}
		v.dress()
	}
	return v, false
}
