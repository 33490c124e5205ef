package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/effects"
)

// item is one object as get shows it.
type item struct {
	api.Object
	// pending is true when only the spool has it: no controller has seen it yet.
	pending bool
}

// look finds the objects of a kind, in namespace ns or, with "", in all: those
// of the state, and those of the spool that are not in the state yet. What
// cannot be read of the state is an error beside the others.
func (c *cli) look(h home.Home, kind, ns string) ([]item, error) {
	if v1alpha1.ClusterScoped(kind) {
		ns = ""
	}
	d := newDesired(h)
	stored, err := d.state.List(kind, ns)
	byKey := map[api.Key]item{}
	for _, o := range stored {
		byKey[api.KeyOf(o)] = item{Object: o}
	}
	// With a controller up, a file that it took something from holds nothing it
	// does not know, give or take the moment; ten thousand need not be read.
	if up, _ := c.running(h); up {
		for _, o := range stored {
			d.skip[o.GetAnnotations()[v1alpha1.SourceFileAnnotation]] = true
		}
	}
	if scanErr := d.scan(); scanErr != nil {
		c.note("%v", scanErr)
	}
	for key, paths := range d.where {
		if _, ok := byKey[key]; ok || key.Kind != kind || ns != "" && key.Namespace != ns {
			continue
		}
		if f, err := d.read(paths[0]); err == nil {
			byKey[key] = item{f.Docs[f.Find(key)].Object, true}
		}
	}
	if n := len(d.broken); n > 0 {
		c.note("%d of the spool's files cannot be used; see skcctl get sources", n)
	}
	for _, it := range builtIn(kind) {
		if _, ok := byKey[api.KeyOf(it)]; !ok {
			byKey[api.KeyOf(it)] = it
		}
	}
	items := slices.SortedFunc(maps.Values(byKey), func(a, b item) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return items, err
}

// find is look for the named objects; those that are not there are errors that
// match effects.ErrNotFound.
func (c *cli) find(h home.Home, keys []api.Key) ([]item, error) {
	d := newDesired(h)
	var items []item
	var failed []error
	for _, key := range keys {
		o, err := d.state.Get(key)
		if err == nil {
			items = append(items, item{Object: o})
			continue
		}
		if errors.Is(err, effects.ErrNotFound) {
			f, i, e := d.locate(key)
			if e == nil {
				items = append(items, item{f.Docs[i].Object, true})
				continue
			}
			err = e
			if own := builtIn(key.Kind); errors.Is(e, effects.ErrNotFound) && own != nil {
				if i := slices.IndexFunc(own, func(it item) bool { return it.GetName() == key.Name }); i >= 0 {
					items = append(items, own[i])
					continue
				}
			}
		}
		failed = append(failed, err)
	}
	return items, errors.Join(failed...)
}

// selected names the objects that have the labels.
func (c *cli) selected(kind, ns, selector string) ([]api.Key, error) {
	h, err := c.home()
	if err != nil {
		return nil, err
	}
	match, err := parseSelector(selector)
	if err != nil {
		return nil, err
	}
	items, err := c.look(h, kind, ns)
	if err != nil {
		return nil, err
	}
	var keys []api.Key
	for _, it := range items {
		if match.Matches(labels.Set(it.GetLabels())) {
			keys = append(keys, api.KeyOf(it))
		}
	}
	return keys, nil
}

func parseSelector(text string) (labels.Selector, error) {
	match, err := labels.Parse(text)
	if err != nil {
		return nil, &usageError{fmt.Errorf("selector: %w", err)}
	}
	return match, nil
}
