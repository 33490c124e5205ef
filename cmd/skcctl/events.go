package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"skc.dev/skc/effects/events"
)

type eventsOptions struct {
	*cli
	args   []string
	output string
	watch  bool
}

func newEvents(c *cli) *cobra.Command {
	o := &eventsOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "events [KIND] [NAME...]",
		Short: "Show what happened to sessions and other objects, oldest first",
		Example: `  skcctl events web
  skcctl events quarantines
  skcctl events -A -o json
  skcctl events web --watch`,
		ValidArgsFunction: c.completeKindsAndNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			return runEvents(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "`FORM` of the output: json, one event a line")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on and show what happens")
	cmd.Flags().BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "of all namespaces")
	return cmd
}

func runEvents(ctx context.Context, o *eventsOptions) error {
	if o.output != "" && o.output != "json" {
		return usagef("output %q is not json", o.output)
	}
	h, err := o.home()
	if err != nil {
		return err
	}
	sel, err := o.choose(o.args)
	if err != nil {
		return err
	}
	ns, err := o.ns()
	if err != nil {
		return err
	}
	wanted := func(e events.Event) bool {
		if len(sel.keys) > 0 {
			return slices.Contains(sel.keys, e.Key())
		}
		return (o.allNamespaces || e.Namespace == ns || e.Namespace == "") && (!sel.given || e.Key().Kind == sel.kind)
	}
	o.noteDown(h, "nothing new happens until it is started")
	if o.watch {
		follow, err := events.Follow(ctx, h.Events(), wanted)
		if err != nil {
			return err
		}
		header := true
		for e := range follow {
			if err := o.write(func(w io.Writer) error { return writeEvents(w, []events.Event{e}, o.output, header, o.clock.Now()) }); err != nil {
				return err
			}
			header = false
		}
		return ctx.Err()
	}
	all, err := events.Read(h.Events(), wanted)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		o.note("no events")
		return nil
	}
	return o.write(func(w io.Writer) error { return writeEvents(w, all, o.output, true, o.clock.Now()) })
}

// eventCells is one event for a table: type, reason, age, message.
func eventCells(e events.Event, now time.Time) []string {
	age := duration.HumanDuration(now.Sub(e.Time))
	if e.Count > 1 {
		age += fmt.Sprintf(" (x%d)", e.Count)
	}
	return []string{e.Type, e.Reason, age, e.Message}
}

func writeEvents(w io.Writer, all []events.Event, output string, header bool, now time.Time) error {
	if output == "json" {
		e := json.NewEncoder(w)
		for i := range all {
			if err := e.Encode(all[i]); err != nil {
				return err
			}
		}
		return nil
	}
	tabs := printers.GetNewTabWriter(w)
	if header {
		fmt.Fprintln(tabs, "OBJECT\tTYPE\tREASON\tAGE\tMESSAGE") //nolint:errcheck // Flush tells
	}
	for _, e := range all {
		cells := append([]string{short(e.Key())}, eventCells(e, now)...)
		for i := range cells {
			cells[i] = inertLine(cells[i])
		}
		fmt.Fprintln(tabs, strings.Join(cells, "\t")) //nolint:errcheck // Flush tells
	}
	return tabs.Flush()
}
