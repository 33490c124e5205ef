package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/cmd/skcctl/manifest"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/effects"
)

type restoreOptions struct {
	*cli
	args    []string
	to      string
	wait    bool
	timeout time.Duration
}

func newRestore(c *cli) *cobra.Command {
	o := &restoreOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "restore NAME...",
		Short: "Give back what was set aside: folder, branch and session",
		Example: `  skcctl restore web
  skcctl restore web-1a2b3c4d --to ~/src/web-again
  skcctl get quarantines`,
		Long: `NAME is that of a Quarantine, or of the session whose workspace it holds, when
there is one only. The request is written as spec.restore into the file that
defines the Quarantine.

What cannot be given back stays where it is: the reason is printed, and the
request is taken back. One that is not answered in time stays.`,
		ValidArgsFunction: c.completeQuarantines,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			return runRestore(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.to, "to", "", "give it back at this `PATH`, not where it was")
	cmd.Flags().BoolVar(&o.wait, "wait", true, "wait until it is back")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait")
	_ = cmd.MarkFlagDirname("to")
	return cmd
}

func runRestore(ctx context.Context, o *restoreOptions) error {
	switch {
	case len(o.args) == 0:
		return usagef("name what to give back; skcctl get quarantines shows what there is")
	case o.to != "" && len(o.args) > 1:
		return usagef("--to is the place of one thing")
	case !utf8.ValidString(o.to):
		return usagef("--to %q: a path in a file has to be text", o.to)
	case o.to != "" && o.to != "~" && !strings.HasPrefix(o.to, "~/"):
		o.to = filepath.Clean(o.abs(o.to))
	}
	h, err := o.home()
	if err != nil {
		return err
	}
	var keys []api.Key
	var failed []error
	for _, arg := range o.args {
		key, err := o.kept(h, arg)
		if err != nil {
			failed = append(failed, err)
		} else if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	asked := map[api.Key]request{}
	err = o.editing(ctx, func(d *desired) error {
		for _, key := range keys {
			r, err := o.ask(d, key)
			if err != nil {
				failed = append(failed, err)
				continue
			}
			asked[key] = r
		}
		return nil
	})
	if err != nil {
		return errors.Join(append(failed, err)...)
	}
	keys = slices.DeleteFunc(keys, func(key api.Key) bool { _, ok := asked[key]; return !ok })
	if !o.wait || len(keys) == 0 {
		for _, key := range keys {
			failed = append(failed, o.printf("%s: restore requested\n", short(key)))
		}
		return errors.Join(failed...)
	}
	back := &isRestored{home: h, asked: asked}
	err = waitFor(ctx, o.cli, h, keys, back, o.timeout)
	if len(back.no) > 0 {
		if e := o.takeBack(h, back.no, asked); e != nil {
			err = errors.Join(err, e)
		} else if e := waitFor(ctx, o.cli, h, back.no, isTakenBack{}, takenBackTime); e != nil && !errors.Is(e, errTimeout) {
			err = errors.Join(err, e)
		}
	}
	if errors.Is(err, errTimeout) || errors.Is(err, errNotRunning) || errors.Is(err, context.Canceled) {
		o.note("the request stays; skcctl get quarantines shows what becomes of it")
	}
	return errors.Join(append(failed, err)...)
}

// request is one that was written, and the file as it was.
type request struct {
	old, next manifest.File
	to        string  // where the thing goes
	session   api.Key // that should come back with it; empty when none is known
	owner     string  // that a session which came back names
}

// ask writes the request into the file that defines the Quarantine.
func (o *restoreOptions) ask(d *desired, key api.Key) (request, error) {
	old, i, err := d.locate(key)
	if err != nil {
		return request{}, err
	}
	q, ok := old.Docs[i].Object.(*v1alpha1.Quarantine)
	if !ok {
		return request{}, fmt.Errorf("%s is nothing that was set aside", short(key))
	}
	r := request{old: old, to: q.Spec.Origin.Path, owner: q.Spec.Origin.Owner}
	if s := q.Spec.Session; s != nil && s.Definition != "" {
		r.session = of(v1alpha1.KindSession, s.Namespace, s.Name)
	}
	next := old
	edit := func(f func() (manifest.File, error)) {
		if err == nil {
			next, err = f()
		}
	}
	if q.Spec.Purge {
		edit(func() (manifest.File, error) { return next.Set(i, false, "spec", "purge") })
	}
	if !q.Spec.Restore {
		edit(func() (manifest.File, error) { return next.Set(i, true, "spec", "restore") })
	}
	switch {
	case o.to != "":
		r.to = home.Expand(o.to, o.env("HOME"))
		edit(func() (manifest.File, error) { return next.Set(i, o.to, "spec", "restoreTo") })
	case q.Spec.RestoreTo != "":
		edit(func() (manifest.File, error) { return next.Unset(i, "spec", "restoreTo") })
	}
	if err != nil {
		return request{}, err
	}
	if r.next = next; string(next.Data) == string(old.Data) {
		return r, nil
	}
	return r, d.save(old, next)
}

// takeBack makes the files of requests that were refused what they were. ctx
// may have ended: a request that stays behind would be a surprise later.
func (o *restoreOptions) takeBack(h home.Home, keys []api.Key, asked map[api.Key]request) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return o.editing(ctx, func(d *desired) error {
		var failed []error
		for _, key := range keys {
			r := asked[key]
			now, i, err := d.locate(key)
			if errors.Is(err, effects.ErrNotFound) {
				continue
			}
			if err == nil && string(now.Data) == string(r.next.Data) && string(r.old.Data) != string(r.next.Data) {
				err = d.save(now, r.old)
			} else if err == nil {
				err = withdraw(d, now, i)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: take the request back: %w; set spec.restore to false in %s", short(key), err, r.next.Path))
			}
		}
		return errors.Join(failed...)
	})
}

// takenBackTime is how long the controller has to see that a request is taken
// back. After that the command ends; the file is as it should be.
const takenBackTime = 5 * time.Second

// isTakenBack waits until the controller has seen that, so that its refusal is
// not taken for the answer to the next request.
type isTakenBack struct{}

func (isTakenBack) met(s sight) (bool, string) {
	return s.behind == "", "is kept; the request is taken back"
}

// withdraw takes a request to restore out of a file.
func withdraw(d *desired, f manifest.File, i int) error {
	next, err := f.Unset(i, "spec", "restoreTo")
	if err == nil && f.Docs[i].Object.(*v1alpha1.Quarantine).Spec.Restore {
		next, err = next.Set(i, false, "spec", "restore")
	}
	if err != nil || string(next.Data) == string(f.Data) {
		return err
	}
	return d.save(f, next)
}

// isRestored waits until what was asked for is back, or is refused.
type isRestored struct {
	home  home.Home
	asked map[api.Key]request
	no    []api.Key // that were refused
}

func (u *isRestored) met(s sight) (bool, string) {
	r := u.asked[s.key]
	if s.object == nil {
		if s.defined {
			return false, s.absent()
		}
		_, err := os.Lstat(r.to)
		return err == nil, u.back(r, "skcctl events "+short(s.key)+" tells why")
	}
	c := s.object.GetConditions()
	restored, ready := meta.FindStatusCondition(c, v1alpha1.Restored), meta.FindStatusCondition(c, v1alpha1.Ready)
	switch {
	case restored != nil && restored.Status == metav1.ConditionTrue:
		return true, u.back(r, restored.Message)
	case s.behind != "":
		return false, s.behind
	case ready == nil:
		return false, "has no condition Ready"
	default:
		return false, ready.Reason + ": " + ready.Message
	}
}

// back says where the thing is, and whether its session came back with it.
func (u *isRestored) back(r request, otherwise string) string {
	text := "restored to " + r.to
	if r.session.Name == "" {
		return inertLine(text)
	}
	f, i, err := newDesired(u.home).locate(r.session)
	if err == nil && f.Docs[i].Object.GetAnnotations()[v1alpha1.RestoredFromAnnotation] == r.owner {
		return inertLine(text + "; " + short(r.session) + " is back")
	}
	return inertLine(text + "; " + short(r.session) + " did not come back: " + otherwise)
}

func (u *isRestored) refused(s sight) error {
	if s.object == nil {
		if s.defined {
			return nil
		}
		return fmt.Errorf("%s: %w, and nothing is at %s", short(s.key), errDeleted, u.asked[s.key].to)
	}
	if s.behind != "" {
		return nil
	}
	for _, name := range []string{v1alpha1.Restored, v1alpha1.Ready} {
		c := meta.FindStatusCondition(s.object.GetConditions(), name)
		if c == nil || c.Status != metav1.ConditionFalse {
			continue
		}
		switch c.Reason {
		case v1alpha1.ReasonNotAsked, v1alpha1.ReasonRestored, v1alpha1.ReasonMoving: // on the way
		default:
			u.no = append(u.no, s.key)
			return notRestored{s.key, c.Reason, c.Message}
		}
	}
	return nil
}

// notRestored is a refusal of the controller.
type notRestored struct {
	key             api.Key
	reason, message string
}

func (e notRestored) Error() string {
	hint := ""
	if e.Unwrap() != nil {
		hint = " (--to PATH)"
	}
	return fmt.Sprintf("%s is not restored: %s: %s%s", short(e.key), e.reason, e.message, hint)
}

// Unwrap makes a refusal because of what is in the way a conflict.
func (e notRestored) Unwrap() error {
	if e.reason == v1alpha1.ReasonPlaceTaken || e.reason == v1alpha1.ReasonSessionExists {
		return effects.ErrConflict
	}
	return nil
}

// kept finds what a word on the command line means: a Quarantine of that name,
// or the one thing in quarantine that was the workspace of a session of that
// name.
func (c *cli) kept(h home.Home, word string) (api.Key, error) {
	ns, err := c.ns()
	if err != nil {
		return api.Key{}, err
	}
	kind, name, qualified := "", word, false
	if k, rest, ok := strings.Cut(word, "/"); ok {
		if kind, qualified = kindNamed(k); !qualified || kind != v1alpha1.KindQuarantine && kind != v1alpha1.KindSession {
			return api.Key{}, usagef("%q is neither quarantine/NAME nor session/NAME", word)
		}
		name = rest
	}
	if err := checkName("name", name); err != nil {
		return api.Key{}, err
	}
	key := of(v1alpha1.KindQuarantine, ns, name)
	items, err := c.look(h, v1alpha1.KindQuarantine, ns)
	if err != nil {
		return api.Key{}, err
	}
	var fit []*v1alpha1.Quarantine
	for _, it := range items {
		q, ok := it.Object.(*v1alpha1.Quarantine)
		switch {
		case !ok:
		case q.Name == name && kind != v1alpha1.KindSession:
			return key, nil
		case kind != v1alpha1.KindQuarantine && q.Spec.Session != nil && q.Spec.Session.Name == name && holds(q):
			fit = append(fit, q)
		}
	}
	switch len(fit) {
	case 0:
		if qualified && kind == v1alpha1.KindQuarantine {
			return key, notFound(key)
		}
		return key, fmt.Errorf("nothing named %s, and nothing of a session %s, is in quarantine%s: %w; skcctl get quarantines -A shows what there is", name, name, inNamespace(ns), effects.ErrNotFound)
	case 1:
		return api.KeyOf(fit[0]), nil
	}
	lines := make([]string, 0, len(fit))
	for _, q := range fit {
		lines = append(lines, "  "+strings.Join(about(q, c.clock.Now()), ", "))
	}
	return key, conflictf("%d things of session/%s are in quarantine; say which by its name:\n%s", len(fit), name, strings.Join(lines, "\n"))
}

// holds tells whether something lies in quarantine, or may.
func holds(q *v1alpha1.Quarantine) bool {
	c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.Ready)
	return c == nil || c.Reason != v1alpha1.ReasonRestored && c.Reason != v1alpha1.ReasonPurged
}

// about is what a person knows a set-aside thing by.
func about(q *v1alpha1.Quarantine, now time.Time) []string {
	all := []string{short(api.KeyOf(q))}
	if s := q.Spec.Session; s != nil {
		all = append(all, "of session/"+s.Name)
	}
	all = append(all, "from "+q.Spec.Origin.Path)
	if b := q.Spec.Origin.Branch; b != "" {
		all = append(all, "branch "+b)
	}
	if x := q.Status.Size; x != nil {
		all = append(all, size(x.Bytes))
	}
	if at := q.Status.SetAsideAt; at != nil {
		all = append(all, "set aside "+at.Format(time.RFC3339))
	}
	if at := q.Status.Deadline; at != nil {
		all = append(all, "kept until "+at.Format(time.RFC3339)+" ("+ahead(at.Time, now)+")")
	}
	for i := range all {
		all[i] = inertLine(all[i])
	}
	return all
}

// completeQuarantines offers what is in quarantine, by its own name and by that
// of its session.
func (c *cli) completeQuarantines(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, it := range c.lookQuietly(v1alpha1.KindQuarantine) {
		all := []string{it.GetName()}
		if q, ok := it.Object.(*v1alpha1.Quarantine); ok && q.Spec.Session != nil {
			all = append(all, q.Spec.Session.Name)
		}
		for _, name := range all {
			if strings.HasPrefix(name, toComplete) && !slices.Contains(args, name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
