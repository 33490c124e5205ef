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

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
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
		Short: "Tell all that is known of sessions, for people",
		Example: `  skcctl describe session web
  skcctl describe -l team=web`,
		Long:              "Of the environment only the names are shown, never a value.",
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

func runDescribe(_ context.Context, o *describeOptions) error {
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
	first := true
	for _, it := range items {
		if !match.Matches(labels.Set(it.GetLabels())) {
			continue
		}
		if !first {
			if err := o.printf("\n\n"); err != nil {
				return err
			}
		}
		first = false
		var own []events.Event
		for _, e := range all {
			if e.Key() == api.KeyOf(it) && (it.pending || e.UID == "" || e.UID == string(it.GetUID())) {
				own = append(own, e)
			}
		}
		if werr := o.write(func(w io.Writer) error { return describe(w, h, it, own, o.clock.Now()) }); werr != nil {
			return errors.Join(err, werr)
		}
	}
	return err
}

// maxDescribed is how many events describe shows, the last ones.
const maxDescribed = 20

// describe writes one object. All text that others wrote is made inert.
func describe(w io.Writer, h home.Home, it item, own []events.Event, now time.Time) error {
	t := &teller{w: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0), now: now}
	t.line(0, "Name", it.GetName())
	t.line(0, "Namespace", it.GetNamespace())
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
	if s, ok := it.Object.(*v1alpha1.Session); ok {
		t.session(s, it.pending)
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

func (t *teller) session(s *v1alpha1.Session, pending bool) {
	t.title(0, "Spec")
	switch {
	case s.Spec.Target.ExistingPath != nil:
		t.line(1, "Target", "existingPath "+string(s.Spec.Target.ExistingPath.Path))
	case s.Spec.Target.PlainDir != nil:
		t.line(1, "Target", "plainDir "+string(s.Spec.Target.PlainDir.Path))
	}
	words := make([]string, 0, len(s.Spec.Command))
	for _, word := range s.Spec.Command {
		if strings.ContainsAny(word, " \t\n\"'") || word == "" {
			word = fmt.Sprintf("%q", word)
		}
		words = append(words, word)
	}
	command := []rune(strings.Join(words, " "))
	if len(command) > maxCommand {
		command = append(command[:maxCommand], '…')
	}
	t.line(1, "Command", string(command))
	var names []string
	for _, e := range s.Spec.Env {
		name := e.Name
		if e.ValueFrom != nil {
			name += " (from " + string(e.ValueFrom.File) + ")"
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		t.line(1, "Environment", strings.Join(names, ", "))
	}
	t.line(1, "Desired State", string(s.Spec.DesiredState))
	t.line(1, "Restart Policy", string(s.Spec.RestartPolicy))
	if s.Spec.Suspend {
		t.line(1, "Suspend", "true: nothing is started or ended")
	}
	if pending {
		return
	}
	status := s.Status
	t.title(0, "Status")
	t.line(1, "Observed Generation", fmt.Sprint(status.ObservedGeneration))
	if w := status.Workspace; w != nil {
		made := ""
		if w.CreatedByController {
			made = " (made by skc)"
		}
		t.line(1, "Workspace", w.Path+made)
	}
	if x := status.Tmux; x != nil {
		t.line(1, "Tmux", fmt.Sprintf("session %s, pane %s, pid %d", x.SessionID, x.PaneID, x.PanePID))
		t.line(1, "Tmux Server", fmt.Sprintf("pid %d at %s", x.ServerPID, x.Socket))
		if x.StartedAt != nil {
			t.line(1, "Started", fmt.Sprintf("%s, start %d of this session", t.since(x.StartedAt.Time), x.Attempt))
		}
	}
	t.line(1, "Restarts", fmt.Sprintf("%d, %d in a row", status.Restarts.Total, status.Restarts.Consecutive))
	if at := status.Restarts.NextAttemptAt; at != nil {
		t.line(1, "Next Attempt", fmt.Sprintf("%s (in %s)", at.Format(time.RFC3339), duration.HumanDuration(max(0, at.Sub(t.now)))))
	}
	if x := status.Stopping; x != nil {
		t.line(1, "Stopping", fmt.Sprintf("%s; killed at %s", x.Reason, x.Deadline.Format(time.RFC3339)))
	}
	if x := status.LastTermination; x != nil {
		t.termination(x)
	}
}

// maxCommand is how many characters of a command are shown.
const maxCommand = 500

func (t *teller) termination(x *v1alpha1.Termination) {
	t.title(0, "Last Termination")
	t.line(1, "Reason", x.Reason)
	if x.Message != "" {
		t.line(1, "Message", x.Message)
	}
	if x.ExitCode != nil {
		t.line(1, "Exit Code", fmt.Sprint(*x.ExitCode))
	}
	if x.Signal != "" {
		t.line(1, "Signal", x.Signal)
	}
	if x.OOMKilled {
		t.line(1, "Out Of Memory", "true")
	}
	if x.RequestedBy != "" {
		t.line(1, "Requested By", x.RequestedBy)
	}
	if x.Forced {
		t.line(1, "Forced", "true: processes outlived the grace period and were killed")
	}
	if x.StartedAt != nil {
		t.line(1, "Started", t.since(x.StartedAt.Time))
	}
	if x.FinishedAt != nil {
		t.line(1, "Finished", t.since(x.FinishedAt.Time))
	}
	if len(x.LastLines) > 0 {
		t.title(1, "Last Lines")
		for _, line := range x.LastLines {
			fmt.Fprintf(t.w, "    %s\n", inertLine(line)) //nolint:errcheck // Flush tells
		}
	}
}

func (t *teller) conditions(conditions []metav1.Condition) {
	t.title(0, "Conditions")
	t.row(1, "TYPE", "STATUS", "SINCE", "REASON", "MESSAGE")
	for _, c := range conditions {
		t.row(1, c.Type, string(c.Status), t.ago(c.LastTransitionTime.Time), c.Reason, c.Message)
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
