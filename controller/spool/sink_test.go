package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
)

// fakeSink keeps objects in memory, as the store does on disk.
type fakeSink struct {
	mu      sync.Mutex
	objects map[api.Key]*held
	onGone  []func(api.Key)
	minted  int
	applies int // calls that changed a spec
	removed int
	// finalize keeps removed objects until finish.
	finalize bool
	// fail, when set, is asked before each call.
	fail func(call string, key api.Key) error
}

type held struct {
	uid        int
	generation int
	desired    store.Desired
	accepted   metav1.Condition
	deleting   bool
}

var errTerminating = errors.New("is being deleted")

func newFakeSink() *fakeSink { return &fakeSink{objects: map[api.Key]*held{}} }

func (k *fakeSink) check(call string, key api.Key) error {
	if k.fail == nil {
		return nil
	}
	return k.fail(call, key)
}

func (k *fakeSink) Apply(_ context.Context, d store.Desired) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := api.KeyOf(d.Object)
	if err := k.check("apply", key); err != nil {
		return err
	}
	o := k.objects[key]
	if o == nil {
		k.minted++
		o = &held{uid: k.minted}
		k.objects[key] = o
	}
	if o.deleting {
		return fmt.Errorf("apply %s: %w", key, errTerminating)
	}
	if !bytes.Equal(o.desired.RawSpec, d.RawSpec) {
		o.generation++
		k.applies++
	}
	o.desired = d
	if d.Accepted != nil {
		o.accepted = *d.Accepted
	}
	return nil
}

func (k *fakeSink) SetAccepted(_ context.Context, key api.Key, c metav1.Condition) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.check("accepted", key); err != nil {
		return err
	}
	o := k.objects[key]
	if o == nil {
		return fmt.Errorf("%s: %w", key, effects.ErrNotFound)
	}
	o.accepted = c
	return nil
}

func (k *fakeSink) Remove(_ context.Context, key api.Key, source store.Source) error {
	k.mu.Lock()
	if err := k.check("remove", key); err != nil {
		k.mu.Unlock()
		return err
	}
	o := k.objects[key]
	if o == nil || o.desired.Source.Root != source.Root || o.desired.Source.File != source.File {
		k.mu.Unlock()
		return fmt.Errorf("%s of %v: %w", key, source, effects.ErrNotFound)
	}
	o.deleting = true
	k.removed++
	finalize := k.finalize
	k.mu.Unlock()
	if !finalize {
		k.finish(key)
	}
	return nil
}

// finish ends a deletion, as the last finalizer does.
func (k *fakeSink) finish(key api.Key) {
	k.mu.Lock()
	delete(k.objects, key)
	tell := k.onGone
	k.mu.Unlock()
	for _, f := range tell {
		f(key)
	}
}

func (k *fakeSink) Sources(context.Context) (map[api.Key]store.Source, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[api.Key]store.Source{}
	for key, o := range k.objects {
		if !o.deleting {
			all[key] = o.desired.Source
			if o.accepted.Status != metav1.ConditionTrue {
				s := o.desired.Source
				s.Documents, s.Digest = 0, ""
				all[key] = s
			}
		}
	}
	return all, nil
}

func (k *fakeSink) OnGone(f func(api.Key)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onGone = append(k.onGone, f)
}

// get is a copy of one object, nil when there is none.
func (k *fakeSink) get(name string) *held {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := k.objects[key(name)]
	if o == nil {
		return nil
	}
	c := *o
	return &c
}

func (k *fakeSink) all() map[api.Key]held {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[api.Key]held{}
	for key := range maps.Keys(k.objects) {
		all[key] = *k.objects[key]
	}
	return all
}

func key(name string) api.Key { return api.Key{Kind: "Session", Namespace: "default", Name: name} }

// noSources is a sink that cannot say what it has.
type noSources struct{ *fakeSink }

func (noSources) Sources(context.Context) (map[api.Key]store.Source, error) {
	return nil, syscall.EIO
}
