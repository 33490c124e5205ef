package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/store"
)

type getOptions struct {
	*cli
	args      []string
	output    string
	selector  string
	sortBy    string
	noHeaders bool
	labels    bool
	watch     bool
	watchOnly bool
}

func newGet(c *cli) *cobra.Command {
	o := &getOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "get [KIND] [NAME...] | get sources",
		Short: "Show sessions and other objects, or the files that define them",
		Example: `  skcctl get
  skcctl get session web -o yaml
  skcctl get quarantines
  skcctl get -l team=web -o wide --watch
  skcctl get web -o jsonpath='{.status.tmux.panePID}'
  skcctl get -A -o custom-columns=NAME:.metadata.name,PID:.status.tmux.panePID
  skcctl get sources`,
		Long: `KIND is the name of a kind, as quarantines, or its short one, as qt. A word that
is no kind is the name of a session. What only the spool has yet is shown as
Pending.

Output is one of: ` + outputs + `.`,
		ValidArgsFunction: c.completeKindsAndNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			return runGet(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "`FORM` of the output")
	f.StringVarP(&o.selector, "selector", "l", "", "only what has these `LABELS`, as team=web,tier!=test")
	f.StringVar(&o.sortBy, "sort-by", "", "order by this `PATH`, as .status.restarts.total")
	f.BoolVar(&o.noHeaders, "no-headers", false, "leave the header line out")
	f.BoolVar(&o.labels, "show-labels", false, "add a column with the labels")
	f.BoolVarP(&o.watch, "watch", "w", false, "go on and show each change")
	f.BoolVar(&o.watchOnly, "watch-only", false, "show changes only")
	f.BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "of all namespaces")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "yaml", "json", "name", "jsonpath=", "custom-columns="}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

func runGet(ctx context.Context, o *getOptions) error {
	h, err := o.home()
	if err != nil {
		return err
	}
	if len(o.args) == 1 && (o.args[0] == "sources" || o.args[0] == "source") {
		return getSources(o, h)
	}
	sel, err := o.choose(o.args)
	if err != nil {
		return err
	}
	p, err := newPrinter(o.output)
	if err != nil {
		return err
	}
	if len(sel.keys) > 0 && (o.selector != "" || o.allNamespaces) {
		return usagef("names do not go with -l or -A")
	}
	if o.watch = o.watch || o.watchOnly; o.watch && len(kindsOf(sel.keys)) > 1 {
		return usagef("one kind at a time can be watched")
	}
	p.noHeaders, p.labels, p.namespace, p.now = o.noHeaders, o.labels, o.allNamespaces, o.clock.Now
	match, err := parseSelector(o.selector)
	if err != nil {
		return err
	}
	o.noteDown(h, "what is shown is what it saw last")

	ns := ""
	if !o.allNamespaces && !v1alpha1.ClusterScoped(sel.kind) {
		if ns, err = o.ns(); err != nil {
			return err
		}
	}
	var events <-chan store.Event
	if o.watch { // begins before the first look, so that nothing falls between
		if events, err = (store.Client{Dir: h.Objects()}).Watch(ctx, sel.kind, ns); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
	items, err := o.first(h, sel, ns, match)
	if o.sortBy != "" {
		if err := sortBy(items, o.sortBy); err != nil {
			return err
		}
	}
	shown := map[api.Key]string{}
	for _, it := range items {
		shown[api.KeyOf(it)] = it.GetResourceVersion()
	}
	if !o.watchOnly && (len(items) > 0 || o.output != "") && !(err != nil && len(sel.keys) > 0 && len(items) == 0) {
		if e := o.write(func(w io.Writer) error { return p.print(ctx, w, items, len(sel.keys) == 1) }); e != nil {
			return e
		}
	}
	if err != nil {
		return err
	}
	if !o.watch {
		if len(items) == 0 {
			o.note("no %s found%s", plural(sel.kind), inNamespace(ns))
		}
		return nil
	}
	for e := range events {
		if e.Err != nil {
			o.note("%v", e.Err)
			continue
		}
		key := api.KeyOf(e.Object)
		if len(sel.keys) > 0 && !slices.Contains(sel.keys, key) || !match.Matches(labels.Set(e.Object.GetLabels())) {
			continue
		}
		if version := e.Object.GetResourceVersion(); !e.Deleted && shown[key] == version {
			continue
		} else {
			shown[key] = version
		}
		if e := o.write(func(w io.Writer) error { return p.print(ctx, w, []item{{Object: e.Object}}, true) }); e != nil {
			return e
		}
	}
	return ctx.Err()
}

// first is what get shows before it watches.
func (o *getOptions) first(h home.Home, sel selection, ns string, match labels.Selector) ([]item, error) {
	if len(sel.keys) > 0 {
		items, err := o.find(h, sel.keys)
		if err != nil && o.watch && len(items) == 0 { // it may come
			o.note("%v", err)
			err = nil
		}
		return items, err
	}
	all, err := o.look(h, sel.kind, ns)
	var items []item
	for _, it := range all {
		if match.Matches(labels.Set(it.GetLabels())) {
			items = append(items, it)
		}
	}
	if err != nil {
		err = errors.Join(errors.New("some of the state cannot be read; what can be is shown"), err)
	}
	return items, err
}

func inNamespace(ns string) string {
	if ns == "" {
		return ""
	}
	return " in namespace " + ns
}
