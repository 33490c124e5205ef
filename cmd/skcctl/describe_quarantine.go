package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"skc.dev/skc/api/v1alpha1"
)

func (t *teller) quarantine(q *v1alpha1.Quarantine, pending bool, seen safety) {
	o := q.Spec.Origin
	t.title(0, "What")
	t.line(1, "Type", string(o.Type))
	t.line(1, "Was At", o.Path)
	t.line(1, "Identity", string(o.Identity))
	if x := q.Spec.Session; x != nil {
		back := ""
		if x.Definition != "" {
			back = "; restore brings it back"
		}
		t.line(1, "Session", fmt.Sprintf("%s in namespace %s (uid %s)%s", x.Name, x.Namespace, x.UID, back))
		if x.File != "" {
			t.line(1, "Defined In", x.File)
		}
	}
	head := cmp.Or(q.Status.Head, o.Head)
	for _, x := range []struct{ title, text string }{{"Repository", o.Repo}, {"Branch", o.Branch}, {"Head", head}} {
		if x.text != "" {
			t.line(1, x.title, x.text)
		}
	}
	t.title(0, "Why")
	t.line(1, "Reason", string(q.Spec.Reason))
	if q.Spec.RequestedBy != "" {
		t.line(1, "Requested By", q.Spec.RequestedBy)
	}
	if at := q.Spec.NotBefore; at != nil {
		t.line(1, "Not Before", fmt.Sprintf("%s (%s): its owner may come back", at.Format(time.RFC3339), ahead(at.Time, t.now)))
	}
	t.title(0, "Asked For")
	switch {
	case q.Spec.Restore && q.Spec.RestoreTo != "":
		t.line(1, "Restore", "to "+string(q.Spec.RestoreTo))
	case q.Spec.Restore:
		t.line(1, "Restore", "to where it was")
	case q.Spec.Purge:
		t.line(1, "Purge", "now")
	default:
		t.line(1, "Keep For", duration.HumanDuration(q.Spec.RetentionOrDefault()))
	}
	if pending {
		return
	}
	x := q.Status
	t.title(0, "Status")
	t.line(1, "Observed Generation", fmt.Sprint(x.ObservedGeneration))
	if x.Path != "" {
		t.line(1, "Is At", x.Path)
	}
	if x.SetAsideAt != nil {
		t.line(1, "Set Aside", t.since(x.SetAsideAt.Time))
	}
	if x.Deadline != nil {
		t.line(1, "Deadline", fmt.Sprintf("%s (%s)", x.Deadline.Format(time.RFC3339), ahead(x.Deadline.Time, t.now)))
	}
	if n := x.Size; n != nil {
		text := fmt.Sprintf("%s (%d bytes) in %d files, %d names in all", size(n.Bytes), n.Bytes, n.Files, n.Entries)
		if n.Unreadable > 0 {
			text += fmt.Sprintf("; %d folders could not be looked into", n.Unreadable)
		}
		t.line(1, "Size", text)
	}
	if x.Attempts > 1 {
		t.line(1, "Moves Begun", fmt.Sprint(x.Attempts))
	}
	if len(seen.checks) > 0 {
		when := "looked at now"
		if !seen.live {
			when = "as skcd saw it last, before it was set aside"
		}
		verdict := "nothing that is nowhere else"
		if bad := red(seen.checks); len(bad) > 0 {
			verdict = fmt.Sprintf("%d of %d checks are not OK", len(bad), len(seen.checks))
		}
		t.line(0, "Unsaved Work", verdict+", "+when)
		t.checks(seen.checks)
	}
	if holds(q) {
		t.title(0, "What To Do")
		t.line(1, "Give Back", restoreLine(q.Namespace, q.Name))
		t.line(1, "Remove For Good", strings.Replace(restoreLine(q.Namespace, q.Name), "restore", "purge", 1))
	}
}
