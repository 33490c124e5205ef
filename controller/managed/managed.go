// Package managed keeps the definitions that the controller itself asks for, in
// a source root of its own: one file an object, read by the spool as those of
// users are, and as much theirs to read and edit. It keeps true that a
// definition is on the disk, whole, when a call returns, and that a call may be
// made again at any time. What a definition means is left to others.
package managed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/spool"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var (
	pointWrite  = fault.New("managed.write")
	pointRemove = fault.New("managed.remove")
)

// lockWait is how long a call waits for a skcctl that edits at the same time.
const lockWait = 10 * time.Second

// Options of a Root. All must be given.
type Options struct {
	// Dir is the source root, as the spool is told it; absolute, and made by Open.
	Dir string
	// Lock is the file that is locked where Dir cannot be.
	Lock string
	// Reports is the spool's report folder.
	Reports string
	Files   *files.Layer
}

// Root is the source root of what the controller defines. Its methods may be
// called at the same time, also while a skcctl edits.
type Root struct{ o Options }

// Open makes the folder.
func Open(o Options) (*Root, error) {
	if err := files.MkdirPrivate(o.Dir); err != nil {
		return nil, fmt.Errorf("open managed objects: %w", err)
	}
	return &Root{o}, nil
}

// Dir is the source root, for the spool.
func (r *Root) Dir() string { return r.o.Dir }

// Path is the file that defines key.
func (r *Root) Path(key api.Key) string {
	return filepath.Join(r.o.Dir, key.Namespace, strings.ToLower(key.Kind)+"-"+key.Name+".yaml")
}

// Holds tells whether file lies in the root: whether the controller wrote it.
func (r *Root) Holds(file string) bool {
	rel, err := filepath.Rel(r.o.Dir, file)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// Create defines o. Of its metadata name, namespace, labels and annotations
// count; status does not. A definition that is there already is left as it is,
// whatever it says, and is a success. One that a user's file could not hold is
// an *api.InvalidSpecError.
func (r *Root) Create(ctx context.Context, o api.Object) error {
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("define %s: %w", api.KeyOf(o), err)
	}
	return r.CreateFrom(ctx, data)
}

// CreateFrom is Create of an object given as JSON.
func (r *Root) CreateFrom(ctx context.Context, definition []byte) error {
	doc, err := document(definition)
	if err != nil {
		return fmt.Errorf("define an object: %w", err)
	}
	key, data, err := render(doc)
	if err != nil {
		return err
	}
	return r.locked(ctx, "define", key, func(path string) error {
		if _, err := os.Lstat(path); err == nil {
			return r.o.Files.SyncFolder(filepath.Dir(path))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := files.MkdirPrivate(filepath.Dir(path)); err != nil {
			return err
		}
		return r.o.Files.Write(pointWrite, path, data, files.Durable)
	})
}

// Edit changes the spec in the definition of key, which change gets as JSON
// decodes it. When the spec is as it was nothing is written; else the whole file
// is, and comments in it are gone. The error matches effects.ErrNotFound when
// there is no such definition, effects.ErrConflict when its file holds more.
func (r *Root) Edit(ctx context.Context, key api.Key, change func(spec map[string]any) error) error {
	return r.locked(ctx, "edit", key, func(path string) error {
		d, err := read(path, key)
		if err != nil {
			return err
		}
		before := map[string]any{}
		if err := decodeJSON(d.RawSpec, &before); err != nil {
			return err
		}
		after := map[string]any{}
		if err := decodeJSON(d.RawSpec, &after); err != nil {
			return err
		}
		if err := change(after); err != nil {
			return err
		}
		a, errA := json.Marshal(before)
		b, errB := json.Marshal(after)
		if err := errors.Join(errA, errB); err != nil || bytes.Equal(a, b) {
			return err
		}
		as, data, err := render(map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": key.Kind, "metadata": metadata(d.Object), "spec": after,
		})
		if err != nil {
			return err
		}
		if as != key {
			return fmt.Errorf("it became %s", as)
		}
		return r.o.Files.Write(pointWrite, path, data, files.Durable)
	})
}

// Remove takes the definition of key away, and leaves word for the spool that
// this is meant, so that none of its guards holds the removal back. One that is
// gone already is a success. The error matches effects.ErrConflict when the file
// holds more than that.
func (r *Root) Remove(ctx context.Context, key api.Key) error {
	return r.locked(ctx, "remove", key, func(path string) error {
		switch _, err := read(path, key); {
		case errors.Is(err, effects.ErrNotFound):
			if _, err := os.Lstat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return r.o.Files.SyncFolder(filepath.Dir(path))
		case err != nil:
			return err
		}
		word, err := spool.WriteDeletion(r.o.Files, r.o.Reports, []spool.Deletion{{Key: key, File: path}})
		if err != nil {
			return err
		}
		if err := r.o.Files.Remove(pointRemove, path, files.Durable); err != nil {
			if _, gone := os.Lstat(path); errors.Is(gone, fs.ErrNotExist) {
				return err // the word is true
			}
			return errors.Join(err, word.Keep(nil))
		}
		return nil
	})
}

// locked does one step on the file of key with all others kept out.
func (r *Root) locked(ctx context.Context, what string, key api.Key, do func(path string) error) error {
	wait, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err := files.LockFolder(wait, r.o.Dir, r.o.Lock)
	if errors.Is(err, fs.ErrNotExist) { // somebody removed the folder
		if err = files.MkdirPrivate(r.o.Dir); err == nil {
			unlock, err = files.LockFolder(wait, r.o.Dir, r.o.Lock)
		}
	}
	if err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: somebody else holds %s for more than %s", effects.ErrUnreachable, r.o.Dir, lockWait)
		}
		return fmt.Errorf("%s %s: %w", what, key, err)
	}
	defer unlock()
	if err := do(r.Path(key)); err != nil {
		return fmt.Errorf("%s %s: %w", what, key, err)
	}
	return nil
}

// read is the one document in the file at path, which defines key.
func read(path string, key api.Key) (v1alpha1.Decoded, error) {
	data, err := files.Read(path, v1alpha1.MaxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return v1alpha1.Decoded{}, fmt.Errorf("%s: %w", path, effects.ErrNotFound)
	}
	if err != nil {
		return v1alpha1.Decoded{}, err
	}
	all, err := v1alpha1.Decode(path, data)
	if err != nil {
		return v1alpha1.Decoded{}, err
	}
	if len(all) != 1 || api.KeyOf(all[0].Object) != key {
		return v1alpha1.Decoded{}, fmt.Errorf("%w: %s holds more, or something else", effects.ErrConflict, path)
	}
	return all[0], nil
}

// document is what a definition says: no status, and of metadata what a file
// may set.
func document(definition []byte) (map[string]any, error) {
	var doc map[string]any
	if err := decodeJSON(definition, &doc); err != nil {
		return nil, err
	}
	meta, _ := doc["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, field := range []string{"name", "namespace", "labels", "annotations"} {
		if v, ok := meta[field]; ok {
			kept[field] = v
		}
	}
	return map[string]any{"apiVersion": doc["apiVersion"], "kind": doc["kind"], "metadata": kept, "spec": doc["spec"]}, nil
}

func metadata(o api.Object) map[string]any {
	m := map[string]any{"name": o.GetName()}
	if ns := o.GetNamespace(); ns != "" {
		m["namespace"] = ns
	}
	if l := o.GetLabels(); len(l) > 0 {
		m["labels"] = l
	}
	if a := o.GetAnnotations(); len(a) > 0 {
		m["annotations"] = a
	}
	return m
}

// render is the file of a document, which the spool will take.
func render(doc map[string]any) (api.Key, []byte, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return api.Key{}, nil, fmt.Errorf("define an object: %w", err)
	}
	data, err := yaml.JSONToYAML(text)
	if err != nil {
		return api.Key{}, nil, fmt.Errorf("define an object: %w", err)
	}
	all, err := v1alpha1.Decode("", data)
	if err != nil {
		return api.Key{}, nil, fmt.Errorf("define an object: %w", err)
	}
	if len(all) != 1 {
		return api.Key{}, nil, fmt.Errorf("define an object: %d documents", len(all))
	}
	return api.KeyOf(all[0].Object), data, nil
}

// decodeJSON keeps numbers as they are written.
func decodeJSON(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(into)
}
