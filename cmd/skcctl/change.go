package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/cmd/skcctl/manifest"
	"skc.dev/skc/controller/spool"
	"skc.dev/skc/effects"
)

// changeOptions is a verb that edits one field of some sessions: stop, start,
// restart.
type changeOptions struct {
	*cli
	args     []string
	selector string
	all      bool
	edit     func(manifest.File, int) (manifest.File, error)
	done     string // how the result names it: stopped
}

func newChange(c *cli, verb, done, short, example, long string, edit func(manifest.File, int) (manifest.File, error)) *cobra.Command {
	o := &changeOptions{cli: c, edit: edit, done: done}
	cmd := &cobra.Command{
		Use:               verb + " NAME...",
		Short:             short,
		Example:           example,
		Long:              long,
		ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			return runChange(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "all that have these `LABELS`, as team=web,tier!=test")
	cmd.Flags().BoolVar(&o.all, "all", false, "all of the namespace")
	return cmd
}

func newStop(c *cli) *cobra.Command {
	return newChange(c, "stop", "stopped", "Stop sessions and keep them stopped", `  skcctl stop web
  skcctl stop -l team=web`,
		"Writes desiredState: Stopped into the files that define the sessions.", desire(v1alpha1.DesiredStopped))
}

func newStart(c *cli) *cobra.Command {
	return newChange(c, "start", "started", "Start sessions that were stopped", `  skcctl start web
  skcctl start web && skcctl wait web --for=condition=Ready`,
		"Writes desiredState: Running into the files that define the sessions.", desire(v1alpha1.DesiredRunning))
}

func newRestart(c *cli) *cobra.Command {
	return newChange(c, "restart", "restarted", "End the programs of sessions once and start them again", `  skcctl restart web
  skcctl restart web && skcctl wait web --for=condition=Ready`,
		`Sets the annotation `+v1alpha1.RestartedAtAnnotation+` in the files that define the sessions.
A session that waits in CrashLoopBackOff, or gave up, is started at once.`,
		func(f manifest.File, i int) (manifest.File, error) {
			at := c.clock.Now().UTC().Format(time.RFC3339Nano)
			return f.Set(i, at, "metadata", "annotations", v1alpha1.RestartedAtAnnotation)
		})
}

func desire(want v1alpha1.DesiredState) func(manifest.File, int) (manifest.File, error) {
	return func(f manifest.File, i int) (manifest.File, error) {
		s, ok := f.Docs[i].Object.(*v1alpha1.Session)
		if !ok {
			return f, fmt.Errorf("%s has no desiredState", short(api.KeyOf(f.Docs[i].Object)))
		}
		if s.Spec.DesiredState == want {
			return f, nil
		}
		return f.Set(i, string(want), "spec", "desiredState")
	}
}

func runChange(ctx context.Context, o *changeOptions) error {
	return o.each(ctx, o.args, o.selector, o.all, func(d *desired, key api.Key) error {
		old, i, err := d.locate(key)
		if err != nil {
			return err
		}
		next, err := o.edit(old, i)
		if err != nil {
			return err
		}
		if string(next.Data) == string(old.Data) {
			return o.printf("%s already %s\n", short(key), o.done)
		}
		if err := d.save(old, next); err != nil {
			return err
		}
		return o.printf("%s %s\n", short(key), o.done)
	})
}

type deleteOptions struct {
	*cli
	inputs
	args     []string
	selector string
	all      bool
	wait     bool
	missing  bool
	timeout  time.Duration
}

func newDelete(c *cli) *cobra.Command {
	o := &deleteOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Take sessions out of the files that define them",
		Example: `  skcctl delete web
  skcctl delete -f web.yaml --wait
  skcctl delete -l team=web`,
		Long: `The document is taken out of its file, and all else in the file stays as it is;
a file that had no other is removed. The controller then ends the programs.`,
		ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			return runDelete(cmd.Context(), o)
		},
	}
	o.inputs.bind(cmd)
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "all that have these `LABELS`, as team=web,tier!=test")
	cmd.Flags().BoolVar(&o.all, "all", false, "all of the namespace")
	cmd.Flags().BoolVar(&o.missing, "ignore-not-found", false, "what is not there is no failure")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until the objects are gone, with their processes")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "how long --wait waits")
	return cmd
}

func runDelete(ctx context.Context, o *deleteOptions) error {
	var named []api.Key
	if len(o.paths) > 0 {
		if len(o.args) > 0 || o.selector != "" || o.all {
			return usagef("name what to delete by -f, by name, or by -l: one of them")
		}
		given, err := o.inputs.read(o.cli)
		if err != nil {
			return err
		}
		for _, f := range given {
			for _, doc := range f.Docs {
				named = append(named, api.KeyOf(doc.Object))
			}
		}
	}
	if named == nil {
		var err error
		if named, err = o.chosen(o.args, o.selector, o.all); err != nil {
			return err
		}
	}
	if len(named) == 0 {
		return nil
	}
	var gone []api.Key
	err := o.editing(ctx, func(d *desired) (err error) {
		gone, err = o.remove(d, named)
		return err
	})
	if err != nil || !o.wait {
		return err
	}
	h, err := o.home()
	if err != nil {
		return err
	}
	return waitFor(ctx, o.cli, h, gone, isDeleted{}, o.timeout)
}

// remove takes the documents out of their files. Before it does, it leaves word
// for the controller that this is meant: it holds back removals that look like
// a slip. gone are the objects that will go, or are going already.
func (o *deleteOptions) remove(d *desired, keys []api.Key) (gone []api.Key, err error) {
	meant := map[api.Key]spool.Deletion{}
	var all, done []spool.Deletion
	for _, key := range keys {
		if file := d.definedIn(key); file != "" {
			meant[key] = spool.Deletion{Key: key, File: file}
			all = append(all, meant[key])
		}
	}
	var record *spool.DeletionRecord
	if len(all) > 0 {
		if record, err = spool.WriteDeletion(&d.files, d.home.Sources(), all); err != nil {
			o.note("the controller cannot be told that this is meant, and may hold it back: %v", err)
		}
	}
	var failed []error
	for _, key := range keys {
		ok, err := o.removeOne(d, key, record != nil && meant[key].File != "")
		if ok {
			gone = append(gone, key)
		}
		if m, is := meant[key]; is && ok {
			done = append(done, m)
		}
		failed = append(failed, err)
	}
	if record != nil {
		failed = append(failed, record.Keep(done))
	}
	return gone, errors.Join(failed...)
}

// removeOne takes the document of key out of its file. meant says that the
// controller was told of it, and lets go of the object when the document is
// gone already.
func (o *deleteOptions) removeOne(d *desired, key api.Key, meant bool) (gone bool, err error) {
	old, i, err := d.locate(key)
	if errors.Is(err, effects.ErrNotFound) {
		stored, e := d.state.Get(key)
		switch {
		case e == nil && stored.GetDeletionTimestamp() != nil:
			return true, o.printf("%s already deleted, and ending\n", short(key))
		case e == nil && meant:
			return true, o.printf("%s deleted\n", short(key))
		case o.missing:
			return false, nil
		}
	}
	if err != nil {
		return false, err
	}
	next, err := old.Remove(i)
	if err != nil {
		return false, err
	}
	if err := d.save(old, next); err != nil {
		return false, err
	}
	return true, o.printf("%s deleted\n", short(key))
}

// each runs do, under the lock of the spool, for the objects that are named, or
// that a selector picks out. One that fails does not keep the others from it.
func (c *cli) each(ctx context.Context, args []string, selector string, all bool, do func(*desired, api.Key) error) error {
	keys, err := c.chosen(args, selector, all)
	if err != nil || len(keys) == 0 {
		return err
	}
	return c.editing(ctx, func(d *desired) error {
		var failed []error
		for _, key := range keys {
			failed = append(failed, do(d, key))
		}
		return errors.Join(failed...)
	})
}

// chosen is the objects that are named, or that a selector picks out, which may
// be none.
func (c *cli) chosen(args []string, selector string, all bool) ([]api.Key, error) {
	sel, err := c.choose(args)
	if err != nil {
		return nil, err
	}
	keys := sel.keys
	switch {
	case len(keys) > 0 && (selector != "" || all), selector != "" && all:
		return nil, usagef("choose by name, by -l, or with --all: one of them")
	case len(keys) > 0:
		return keys, nil
	case selector == "" && !all:
		return nil, usagef("name at least one %s, or choose with -l or --all", strings.ToLower(sel.kind))
	}
	ns, err := c.ns()
	if err != nil {
		return nil, err
	}
	if keys, err = c.selected(sel.kind, ns, selector); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		c.note("nothing is selected")
	}
	return keys, nil
}

// editing runs do under the lock of the spool.
func (c *cli) editing(ctx context.Context, do func(*desired) error) error {
	h, err := c.home()
	if err != nil {
		return err
	}
	d := newDesired(h)
	unlock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c.noteDown(h, "this takes effect when it is started")
	return do(d)
}
