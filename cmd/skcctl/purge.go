package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/printers"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/cmd/skcctl/manifest"
)

type purgeOptions struct {
	*cli
	args    []string
	yes     bool
	wait    bool
	timeout time.Duration
}

func newPurge(c *cli) *cobra.Command {
	o := &purgeOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "purge NAME...",
		Short: "Remove for good what was set aside, before its time",
		Example: `  skcctl purge web-1a2b3c4d
  skcctl purge web --yes`,
		Long: `NAME is that of a Quarantine, or of the session whose workspace it holds, when
there is one only. It shows what will go, and asks; where there is no terminal
to ask on it needs --yes. The request is written as spec.purge into the file
that defines the Quarantine. The branch of a worktree stays.`,
		ValidArgsFunction: c.completeQuarantines,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			return runPurge(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&o.wait, "wait", true, "wait until it is gone")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait")
	return cmd
}

func runPurge(ctx context.Context, o *purgeOptions) error {
	if len(o.args) == 0 {
		return usagef("name what to purge; skcctl get quarantines shows what there is")
	}
	h, err := o.home()
	if err != nil {
		return err
	}
	var keys []api.Key
	for _, arg := range o.args {
		key, err := o.kept(h, arg)
		if err != nil { // half of what was named is not what was asked about
			return err
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if !o.yes {
		items, err := o.find(h, keys)
		if err != nil {
			return err
		}
		if err := o.confirm(ctx, items); err != nil {
			return err
		}
	}
	var asked []api.Key
	var failed []error
	err = o.editing(ctx, func(d *desired) error {
		for _, key := range keys {
			err := askPurge(d, key)
			if err == nil {
				asked = append(asked, key)
			}
			failed = append(failed, err)
		}
		return nil
	})
	if err != nil {
		return errors.Join(append(failed, err)...)
	}
	if !o.wait || len(asked) == 0 {
		for _, key := range asked {
			failed = append(failed, o.printf("%s: purge requested\n", short(key)))
		}
		return errors.Join(failed...)
	}
	err = waitFor(ctx, o.cli, h, asked, isPurged{}, o.timeout)
	if err != nil {
		o.note("the request stays; skcctl get quarantines shows what becomes of it")
	}
	return errors.Join(append(failed, err)...)
}

// askPurge writes the request into the file that defines the Quarantine.
func askPurge(d *desired, key api.Key) error {
	old, i, err := d.locate(key)
	if err != nil {
		return err
	}
	q, ok := old.Docs[i].Object.(*v1alpha1.Quarantine)
	if !ok {
		return fmt.Errorf("%s is nothing that was set aside", short(key))
	}
	if q.Spec.Purge {
		return nil
	}
	next := old
	for _, edit := range []func(manifest.File) (manifest.File, error){
		func(f manifest.File) (manifest.File, error) { return f.Unset(i, "spec", "restoreTo") },
		func(f manifest.File) (manifest.File, error) { return f.Unset(i, "spec", "restore") },
		func(f manifest.File) (manifest.File, error) { return f.Set(i, true, "spec", "purge") },
	} {
		if next, err = edit(next); err != nil {
			return err
		}
	}
	return d.save(old, next)
}

// confirm shows what will go for good and asks.
func (o *purgeOptions) confirm(ctx context.Context, items []item) error {
	var b strings.Builder
	objects := make([]api.Object, 0, len(items))
	for _, it := range items {
		objects = append(objects, it.Object)
	}
	seen := o.lookSafe(ctx, objects, lookPatience)
	b.WriteString("For good, with no way back:\n")
	for _, it := range items {
		q, ok := it.Object.(*v1alpha1.Quarantine)
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "  %s\n", strings.Join(about(q, o.clock.Now()), ", "))
		x := seen[q.UID]
		bad := red(x.checks)
		if len(bad) > 0 && !x.live {
			b.WriteString("    as skcd saw it last, before it was set aside:\n")
		}
		for _, check := range bad {
			fmt.Fprintf(&b, "    %s: %s\n", check.Name, inertLine(check.Value))
		}
	}
	fmt.Fprint(o.err, inert(b.String())) //nolint:errcheck // as all that is said beside the result
	if !printers.IsTerminal(o.in) || !printers.IsTerminal(o.err) {
		return usagef("purge asks before it does it, and there is no terminal to ask on; say --yes")
	}
	fmt.Fprint(o.err, "Remove it? [y/N] ") //nolint:errcheck // see above
	answer, err := readLine(ctx, o.in)
	if err != nil {
		return err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was purged")
	}
	return nil
}

// readLine reads one line, or what there is of it at the end. The read itself
// cannot be ended; after ctx nobody waits for it.
func readLine(ctx context.Context, r io.Reader) (string, error) {
	type result struct {
		line string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(r).ReadString('\n')
		done <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case got := <-done:
		if got.err != nil && !errors.Is(got.err, io.EOF) {
			return "", got.err
		}
		return got.line, nil
	}
}

// isPurged waits until nothing is left.
type isPurged struct{}

func (isPurged) met(s sight) (bool, string) {
	if s.object == nil {
		return !s.defined, "purged"
	}
	switch ready := meta.FindStatusCondition(s.object.GetConditions(), v1alpha1.Ready); {
	case ready != nil && ready.Reason == v1alpha1.ReasonPurged:
		return true, "purged"
	case s.behind != "":
		return false, s.behind
	case ready == nil:
		return false, "has no condition Ready"
	default:
		return false, ready.Reason + ": " + ready.Message
	}
}
