package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/spool"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
)

type deleteOptions struct {
	*cli
	inputs
	args     []string
	selector string
	all      bool
	dryRun   bool
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
  skcctl delete -l team=web --dry-run`,
		Long: `The document is taken out of its file, and all else in the file stays as it is;
a file that had no other is removed. The controller then ends the programs, and
sets the workspace aside if skc made it. What becomes of each workspace is said
first, with what is in it that is nowhere else.`,
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
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "say what would be done, and do nothing")
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
	h, err := o.home()
	if err != nil {
		return err
	}
	if err := keepQuarantined(newDesired(h), named); err != nil {
		return err
	}
	o.foretell(ctx, h, named)
	if o.dryRun {
		return o.rehearse(newDesired(h), named)
	}
	owners := uids(h, named)
	var gone []api.Key
	err = o.editing(ctx, func(d *desired) (err error) {
		gone, err = o.remove(d, named)
		return err
	})
	if err != nil || !o.wait {
		return err
	}
	err = waitFor(ctx, o.cli, h, gone, isDeleted{}, o.timeout)
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, o.tellKept(h, owners))
}

// keepQuarantined refuses to take the definition of a set-aside thing away: that
// would neither give it back nor remove it. One that skc did not write holds
// nothing.
func keepQuarantined(d *desired, keys []api.Key) error {
	for _, key := range keys {
		if key.Kind != v1alpha1.KindQuarantine {
			continue
		}
		if file := d.definedIn(key); file != "" && !strings.HasPrefix(file, d.home.Managed()+"/") {
			continue
		}
		if _, err := d.state.Get(key); errors.Is(err, effects.ErrNotFound) && d.definedIn(key) == "" {
			continue // there is none
		}
		return conflictf("%s holds something that was set aside, and is not deleted: skcctl restore %s gives it back, skcctl purge %s removes it for good; else it goes at its deadline", short(key), key.Name, key.Name)
	}
	return nil
}

// rehearse says what would be deleted.
func (o *deleteOptions) rehearse(d *desired, keys []api.Key) error {
	var failed []error
	for _, key := range keys {
		_, _, err := d.locate(key)
		if errors.Is(err, effects.ErrNotFound) {
			if _, e := d.state.Get(key); e == nil {
				err = nil
			} else if o.missing {
				continue
			}
		}
		if err == nil {
			err = o.printf("%s deleted (dry run)\n", short(key))
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// uids are those of the objects that are there.
func uids(h home.Home, keys []api.Key) map[string]bool {
	all := map[string]bool{}
	for _, key := range keys {
		if o, err := (store.Client{Dir: h.Objects()}).Get(key); err == nil {
			all[string(o.GetUID())] = true
		}
	}
	return all
}

// tellKept says where the workspaces of deleted sessions lie now, by the UIDs of
// the sessions.
func (o *deleteOptions) tellKept(h home.Home, owners map[string]bool) error {
	all, err := store.Client{Dir: h.Objects()}.List(v1alpha1.KindQuarantine, "")
	failed := []error{err}
	for _, x := range all {
		q, ok := x.(*v1alpha1.Quarantine)
		if !ok || q.Spec.Session == nil || !owners[q.Spec.Session.UID] || !meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.SetAside) {
			continue
		}
		until := ""
		if at := q.Status.Deadline; at != nil {
			until = " until " + at.Format(time.RFC3339)
		}
		failed = append(failed, o.printf("%s keeps %s%s: %s\n", short(api.KeyOf(q)), inertLine(q.Spec.Origin.Path), until, restoreLine(q.Namespace, q.Name)))
	}
	return errors.Join(failed...)
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
