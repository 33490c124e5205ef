package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects/events"
)

type describeOptions struct {
	*cli
	args     []string
	selector string
}

func newDescribe(c *cli) *cobra.Command {
	o := &describeOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "describe [KIND] [NAME...]",
		Short: "Tell all that is known of objects, for people",
		Example: `  skcctl describe session web
  skcctl describe -l team=web
  skcctl describe quarantine web-1a2b3c4d`,
		Long: `Of the environment only the names are shown, never a value. What a worktree holds
that is nowhere else is looked at now, in quarantine too; of other folders it is
told what skcd saw last.`,
		ValidArgsFunction: c.completeKindsAndNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			return runDescribe(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "only what has these `LABELS`, as team=web,tier!=test")
	cmd.Flags().BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "of all namespaces")
	return cmd
}

func runDescribe(ctx context.Context, o *describeOptions) error {
	h, err := o.home()
	if err != nil {
		return err
	}
	sel, err := o.choose(o.args)
	if err != nil {
		return err
	}
	match, err := parseSelector(o.selector)
	if err != nil {
		return err
	}
	o.noteDown(h, "what is shown is what it saw last")
	var items []item
	if len(sel.keys) > 0 {
		items, err = o.find(h, sel.keys)
	} else {
		ns := ""
		if !o.allNamespaces {
			if ns, err = o.ns(); err != nil {
				return err
			}
		}
		items, err = o.look(h, sel.kind, ns)
	}
	all, eventsErr := events.Read(h.Events(), nil)
	if eventsErr != nil {
		o.note("events: %v", eventsErr)
	}
	items = slices.DeleteFunc(items, func(it item) bool { return !match.Matches(labels.Set(it.GetLabels())) })
	var seen []api.Object
	for _, it := range items {
		if !it.pending {
			seen = append(seen, it.Object)
		}
	}
	safe := o.lookSafe(ctx, seen, lookPatience)
	for i, it := range items {
		if i > 0 {
			if err := o.printf("\n\n"); err != nil {
				return err
			}
		}
		var own []events.Event
		for _, e := range all {
			if e.Key() == api.KeyOf(it) && (it.pending || e.UID == "" || e.UID == string(it.GetUID())) {
				own = append(own, e)
			}
		}
		if werr := o.write(func(w io.Writer) error { return describe(w, it, safe[it.GetUID()], own, o.clock.Now()) }); werr != nil {
			return errors.Join(err, werr)
		}
	}
	return err
}

// maxDescribed is how many events describe shows, the last ones.
const maxDescribed = 20

// describe writes one object. All text that others wrote is made inert.
func describe(w io.Writer, it item, safe safety, own []events.Event, now time.Time) error {
	t := &teller{w: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0), now: now}
	t.line(0, "Name", it.GetName())
	if ns := it.GetNamespace(); ns != "" {
		t.line(0, "Namespace", ns)
	}
	t.pairs("Labels", it.GetLabels())
	t.pairs("Annotations", withoutSource(it.GetAnnotations()))
	annotations := it.GetAnnotations()
	if file := annotations[v1alpha1.SourceFileAnnotation]; file != "" {
		t.line(0, "Source", fmt.Sprintf("%s, document %s", file, annotations[v1alpha1.SourceDocumentAnnotation]))
	}
	if it.pending {
		t.line(0, "Status", "Pending: no controller has seen it yet")
	} else {
		t.line(0, "UID", string(it.GetUID()))
		t.line(0, "Created", t.since(it.GetCreationTimestamp().Time))
		t.line(0, "Generation", fmt.Sprint(it.GetGeneration()))
	}
	if at := it.GetDeletionTimestamp(); at != nil {
		t.line(0, "Deleted", t.since(at.Time))
		t.line(0, "Finalizers", strings.Join(it.GetFinalizers(), ", "))
	}
	switch o := it.Object.(type) {
	case *v1alpha1.Session:
		t.session(o, it.pending)
		t.safety(o, safe)
	case *v1alpha1.Quarantine:
		t.quarantine(o, it.pending, safe)
	case *v1alpha1.SessionRequest:
		t.request(o)
	default:
		if err := t.spec(o); err != nil {
			return err
		}
	}
	if !it.pending {
		t.conditions(it.GetConditions())
	}
	t.events(own)
	return t.w.Flush()
}

// teller writes aligned lines of title and text.
type teller struct {
	w   *tabwriter.Writer
	now time.Time
}

func (t *teller) line(depth int, title, text string) {
	fmt.Fprintf(t.w, "%s%s:\t%s\n", strings.Repeat("  ", depth), title, inertLine(text)) //nolint:errcheck // Flush tells
}

func (t *teller) title(depth int, title string) {
	fmt.Fprintf(t.w, "%s%s:\n", strings.Repeat("  ", depth), title) //nolint:errcheck // Flush tells
}

func (t *teller) row(depth int, cells ...string) {
	for i := range cells {
		cells[i] = inertLine(cells[i])
	}
	fmt.Fprintf(t.w, "%s%s\n", strings.Repeat("  ", depth), strings.Join(cells, "\t")) //nolint:errcheck // Flush tells
}

func (t *teller) pairs(title string, m map[string]string) {
	if len(m) == 0 {
		t.line(0, title, "<none>")
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(t.w, "%s:\t%s\n", title, inertLine(k+"="+m[k])) //nolint:errcheck // Flush tells
		title = ""
		continue
	}
}

// since is a time and how long ago that was.
func (t *teller) since(at time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return at.Format(time.RFC3339) + " (" + t.ago(at) + " ago)"
}

func (t *teller) ago(at time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(t.now.Sub(at))
}

// lines is the end of an output.
func (t *teller) lines(depth int, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	t.title(depth, title)
	for _, line := range lines {
		fmt.Fprintf(t.w, "%s%s\n", strings.Repeat("  ", depth+1), inertLine(line)) //nolint:errcheck // Flush tells
	}
}

func (t *teller) checks(checks []v1alpha1.SafetyCheck) {
	t.row(1, "CHECK", "OK", "FOUND", "WHAT HELPS")
	for _, x := range checks {
		ok := "no"
		if x.OK {
			ok = "yes"
		}
		t.row(1, x.Name, ok, x.Value, x.Fix)
	}
}

// spec is the spec of a kind that has no words of its own, as YAML.
func (t *teller) spec(o api.Object) error {
	m, err := content(o)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(m["spec"])
	if err != nil {
		return err
	}
	t.lines(0, "Spec", strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"))
	return nil
}

func (t *teller) conditions(conditions []metav1.Condition) {
	t.title(0, "Conditions")
	t.row(1, "TYPE", "STATUS", "SINCE", "REASON", "MESSAGE")
	for _, c := range conditions {
		message, _, more := strings.Cut(c.Message, "\n")
		if more {
			message += " …"
		}
		t.row(1, c.Type, string(c.Status), t.ago(c.LastTransitionTime.Time), c.Reason, message)
	}
}

func (t *teller) events(own []events.Event) {
	if len(own) == 0 {
		t.line(0, "Events", "<none>")
		return
	}
	t.title(0, "Events")
	t.row(1, "TYPE", "REASON", "AGE", "MESSAGE")
	for _, e := range own[max(0, len(own)-maxDescribed):] {
		t.row(1, eventCells(e, t.now)...)
	}
}
