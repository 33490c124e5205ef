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
