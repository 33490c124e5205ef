package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
)

// Desired is one object as a user's file defines it.
type Desired struct {
	Object  api.Object // typed and defaulted; of metadata only what a user may set
	RawSpec []byte     // canonical JSON of the spec as it is written
	Source  Source
	// Accepted is what the source has to say of the object's file; nil leaves it.
	Accepted *metav1.Condition
	// Renew has Source written also when nothing but its Digest is new, which
	// else waits for the next write.
	Renew bool
}

// Apply makes the object what d says. A new one gets its UID, which is on disk
// before anybody sees it. A changed spec is a new generation, changed labels
// and annotations are not; what is equal is not written. The error matches
// ErrTerminating while an object of that name is being deleted.
func (s *Store) Apply(ctx context.Context, d Desired) error {
	key := api.KeyOf(d.Object)
	if err := checkKey(key); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	notify := false
	err := s.change(ctx, key, func(e *entry, cur *version) error {
		if cur != nil && cur.meta.DeletionTimestamp != nil {
			return fmt.Errorf("apply %s: %w", key, ErrTerminating)
		}
		next, how, changed := s.desired(cur, d)
		if next == nil {
			if cur.source != d.Source {
				s.mu.Lock()
				e.cur = cur.from(d.Source)
				s.mu.Unlock()
			}
			return nil
		}
		if err := s.write(ctx, e, next, how); err != nil {
			return fmt.Errorf("apply %s: %w", key, err)
		}
		notify = changed
		return nil
	})
	if err == nil && notify {
		s.changed(key)
	}
	return err
}

// desired is the version that follows cur for d; nil when there is nothing to
// write. changed tells a difference that reconcilers must see.
func (s *Store) desired(cur *version, d Desired) (next *version, how files.Durability, changed bool) {
	annotations := userAnnotations(d.Object.GetAnnotations())
	next = &version{key: api.KeyOf(d.Object), obj: copyOf(d.Object), rawSpec: bytes.Clone(d.RawSpec), source: d.Source}
	switch {
	case cur == nil:
		next.meta = metav1.ObjectMeta{
			Name: next.key.Name, Namespace: next.key.Namespace,
			UID: uuid.NewUUID(), Generation: 1, CreationTimestamp: metav1.NewTime(s.opts.Clock.Now()).Rfc3339Copy(),
		}
		if f := s.opts.Finalizers[next.key.Kind]; f != "" {
			next.meta.Finalizers = []string{f}
		}
		statusOf(next.obj).SetZero()
		how, changed = files.Durable, true
	case cur.obj == nil: // what its spec was is lost, so this one may be another
		cur.meta.DeepCopyInto(&next.meta)
		next.meta.Generation++
		statusOf(next.obj).SetZero()
		how, changed = files.Durable, true
	default:
		cur.meta.DeepCopyInto(&next.meta)
		statusOf(next.obj).Set(statusOf(copyOf(cur.obj)))
		newSpec := !bytes.Equal(cur.rawSpec, d.RawSpec)
		if newSpec {
			next.meta.Generation++
			how = files.Durable
		}
		changed = newSpec || !maps.Equal(cur.meta.Labels, d.Object.GetLabels()) || !maps.Equal(cur.meta.Annotations, annotations)
	}
	if d.Accepted != nil && s.accept(next, *d.Accepted) {
		changed = true
	}
	if !changed && cur.source.at() == d.Source.at() && (cur.source == d.Source || !d.Renew || !next.accepted()) {
		return nil, how, false
	}
	next.meta.Labels, next.meta.Annotations = maps.Clone(d.Object.GetLabels()), annotations
	return next, how, changed
}

// SetAccepted sets the condition SourceAccepted: what the spool has to say of
// the object's file. Nothing is written when nothing changes. The error matches
// effects.ErrNotFound when there is no such object.
func (s *Store) SetAccepted(ctx context.Context, key api.Key, c metav1.Condition) error {
	notify := false
	err := s.change(ctx, key, func(e *entry, cur *version) error {
		if cur == nil || cur.obj == nil {
			return fmt.Errorf("set %s on %s: %w", v1alpha1.SourceAccepted, key, effects.ErrNotFound)
		}
		next := cur.next()
		if !s.accept(next, c) {
			return nil
		}
		if err := s.write(ctx, e, next, files.Derived); err != nil {
			return fmt.Errorf("set %s on %s: %w", v1alpha1.SourceAccepted, key, err)
		}
		notify = true
		return nil
	})
	if err == nil && notify {
		s.changed(key)
	}
	return err
}

// accept sets SourceAccepted in next, and tells whether that changes anything.
func (s *Store) accept(next *version, c metav1.Condition) bool {
	c.Type, c.ObservedGeneration = v1alpha1.SourceAccepted, next.meta.Generation
	c.LastTransitionTime = metav1.NewTime(s.opts.Clock.Now()).Rfc3339Copy()
	conditions := next.obj.GetConditions()
	if !meta.SetStatusCondition(&conditions, c) {
		return false
	}
	next.obj.SetConditions(conditions)
	return true
}

// Remove begins the deletion of an object whose file is gone: it stays until
// its finalizers are. One that is gone or under deletion already is a success.
// An object that another file defines by now stays, and the error matches
// effects.ErrConflict.
func (s *Store) Remove(ctx context.Context, key api.Key, from Source) error {
	began, gone := false, false
	err := s.change(ctx, key, func(e *entry, cur *version) error {
		switch {
		case cur == nil:
			return nil
		case cur.source.Root != from.Root || cur.source.File != from.File:
			return fmt.Errorf("remove %s: it is defined in %s: %w", key, cur.source.File, effects.ErrConflict)
		case cur.obj == nil || len(cur.meta.Finalizers) == 0:
			gone = true
			return s.remove(ctx, e, cur)
		case cur.meta.DeletionTimestamp != nil:
			return nil
		}
		next := cur.next()
		now := metav1.NewTime(s.opts.Clock.Now()).Rfc3339Copy()
		next.meta.DeletionTimestamp = &now
		if err := s.write(ctx, e, next, files.Durable); err != nil {
			return fmt.Errorf("remove %s: %w", key, err)
		}
		began = true
		return nil
	})
	switch {
	case err != nil:
	case gone:
		s.left(key)
	case began:
		s.changed(key)
	}
	return err
}

// Sources tells for each object which file defines it.
func (s *Store) Sources(ctx context.Context) (map[api.Key]Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all := s.all()
	out := make(map[api.Key]Source, len(all))
	for _, v := range all {
		if v.source.File != "" { // else it was lost with most of the file, and the next Apply tells it
			out[v.key] = v.source
		}
	}
	return out, nil
}

// Definition is the object as its file defines it, in JSON: what a user wrote of
// it, before any default. The error matches effects.ErrNotFound when there is no
// such object, or what defined it is lost.
func (s *Store) Definition(key api.Key) ([]byte, error) {
	v := s.current(key)
	if v == nil {
		return nil, fmt.Errorf("%s: %w", key, effects.ErrNotFound)
	}
	if err := v.ready(); err != nil {
		return nil, err
	}
	if v.obj == nil {
		return nil, fmt.Errorf("definition of %s: %w", key, effects.ErrNotFound)
	}
	return json.Marshal(struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Metadata   definedMetadata `json:"metadata"`
		Spec       json.RawMessage `json:"spec"`
	}{v1alpha1.GroupVersion.String(), key.Kind,
		definedMetadata{v.meta.Name, v.meta.Namespace, v.meta.Labels, v.meta.Annotations}, v.rawSpec})
}

// definedMetadata is what a user may say of an object.
type definedMetadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}
