package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/jsonpath"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
)

type waitOptions struct {
	*cli
	args     []string
	selector string
	all      bool
	until    string
	timeout  time.Duration
}

func newWait(c *cli) *cobra.Command {
	o := &waitOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "wait [KIND/]NAME... --for=CONDITION",
		Short: "Wait until sessions and other objects are as asked",
		Example: `  skcctl wait web --for=condition=Ready
  skcctl wait web --for=condition=SessionRunning=False --timeout=1m
  skcctl wait web api --for=delete
  skcctl wait quarantine/web-1a2b3c4d --for=condition=SetAside
  skcctl wait web --for=jsonpath='{.status.restarts.total}'=3`,
		Long: `CONDITION is condition=TYPE[=STATUS], delete, or jsonpath={PATH}[=VALUE].

A name that is not there yet is waited for. A status counts only when it answers
what the files say now, so a wait right after apply, stop or restart does not
take the old status for the new one.

--timeout=0 looks once; a negative one waits for ever.`,
		ValidArgsFunction: c.completeKindsAndNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			return runWait(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.until, "for", "", "the `CONDITION` to wait for")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "all that have these `LABELS` now, as team=web,tier!=test")
	cmd.Flags().BoolVar(&o.all, "all", false, "all that are there now in the namespace")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"condition=Ready", "condition=SessionRunning", "delete", "jsonpath="}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

func runWait(ctx context.Context, o *waitOptions) error {
	until, err := parseUntil(o.until)
	if err != nil {
		return err
	}
	sel, err := o.choose(o.args)
	if err != nil {
		return err
	}
	h, err := o.home()
	if err != nil {
		return err
	}
	keys := sel.keys
	switch {
	case len(keys) > 0 && (o.selector != "" || o.all):
		return usagef("choose by name, by -l, or with --all: one of them")
	case len(keys) == 0 && o.selector == "" && !o.all:
		return usagef("name at least one %s, or choose with -l or --all", strings.ToLower(sel.kind))
	case len(keys) == 0:
		ns, err := o.ns()
		if err != nil {
			return err
		}
		if keys, err = o.selected(sel.kind, ns, o.selector); err != nil {
			return err
		}
		if len(keys) == 0 {
			return fmt.Errorf("nothing is selected: %w", effects.ErrNotFound)
		}
	}
	return waitFor(ctx, o.cli, h, keys, until, o.timeout)
}

// until is what a wait waits for.
type until interface {
	// met tells whether s is what is waited for, and how the result words that;
	// if not, why, for people.
	met(s sight) (bool, string)
}

// refusable is an until that can come to an end without being met.
type refusable interface {
	// refused is nil while it may still be met.
	refused(s sight) error
}

// sight is one object as one look at the files found it.
type sight struct {
	key    api.Key
	object api.Object // in the state; nil when it is not there
	// defined is true when the spool defines the object.
	defined bool
	// behind says why the state does not answer what the spool says now; "" when
	// it does.
	behind string
	first  types.UID // of the object when the wait began; "" when it was not there
}

// absent says what is known of an object that the state does not have.
func (s sight) absent() string {
	if s.defined {
		return "the controller has not read the file that defines it"
	}
	return "no file defines it yet"
}

// parseUntil reads the value of --for.
func parseUntil(text string) (until, error) {
	kind, rest, _ := strings.Cut(text, "=")
	switch strings.ToLower(kind) {
	case "delete":
		if rest == "" {
			return isDeleted{}, nil
		}
	case "condition":
		name, status, given := strings.Cut(rest, "=")
		if !given {
			status = "True"
		}
		if name != "" && status != "" {
			return conditionMet{name, status}, nil
		}
	case "jsonpath":
		path, value, given := rest, "", false
		if i := strings.LastIndex(rest, "}"); i >= 0 {
			path, value = rest[:i+1], rest[i+1:]
			value, given = strings.CutPrefix(value, "=")
			if !given && value != "" {
				return nil, usagef("--for=%s: what follows the path must begin with '='", text)
			}
		} else {
			path, value, given = strings.Cut(rest, "=")
		}
		if path != "" && (!given || value != "") {
			j, err := parsePath(path, true)
			return pathIs{j, path, value, given}, err
		}
	case "":
		return nil, usagef("say what to wait for: --for=condition=Ready, --for=delete, --for=jsonpath='{PATH}'=VALUE")
	}
	return nil, usagef("--for=%s is none of: condition=TYPE[=STATUS], delete, jsonpath={PATH}[=VALUE]", text)
}

type conditionMet struct{ name, status string }

func (u conditionMet) met(s sight) (bool, string) {
	if s.object == nil {
		return false, s.absent()
	}
	var found *metav1.Condition
	for _, c := range s.object.GetConditions() {
		if strings.EqualFold(c.Type, u.name) {
			found = &c
		}
	}
	source := strings.EqualFold(u.name, v1alpha1.SourceAccepted)
	switch {
	// The condition of the source is the one that a refused file changes.
	case s.behind != "" && !source:
		return false, s.behind
	case found == nil:
		return false, "has no condition " + u.name
	case !source && found.ObservedGeneration > 0 && found.ObservedGeneration < s.object.GetGeneration():
		return false, u.name + " is of an older generation"
	case strings.EqualFold(string(found.Status), u.status):
		return true, "condition met"
	}
	return false, fmt.Sprintf("%s is %s (%s): %s", found.Type, found.Status, found.Reason, found.Message)
}

type isDeleted struct{}

func (isDeleted) met(s sight) (bool, string) {
	switch {
	case s.object == nil && !s.defined:
		return true, "gone"
	case s.object != nil && s.first != "" && s.object.GetUID() != s.first:
		return true, "gone"
	case s.defined:
		return false, "a file defines it"
	case s.object.GetDeletionTimestamp() == nil:
		return false, "not deleted yet"
	}
	if c := meta.FindStatusCondition(s.object.GetConditions(), v1alpha1.WorkspaceReady); c != nil && c.Reason == v1alpha1.ReasonSettingAside {
		return false, "ending: " + c.Message
	}
	return false, "ending"
}

type pathIs struct {
	path        *jsonpath.JSONPath
	text, value string
	given       bool
}

func (u pathIs) met(s sight) (bool, string) {
	if s.object == nil {
		return false, s.absent()
	}
	if s.behind != "" {
		return false, s.behind
	}
	m, err := content(s.object)
	if err != nil {
		return false, err.Error()
	}
	text, err := evaluate(u.path, m)
	switch {
	case err != nil:
		return false, err.Error()
	case text == "" || u.given && text != u.value:
		return false, fmt.Sprintf("%s is %q", u.text, text)
	}
	return true, "condition met"
}

// waitFor waits until every object is as u asks. It looks when the state
// changes, and at nothing but the clock in between.
func waitFor(ctx context.Context, c *cli, h home.Home, keys []api.Key, u until, timeout time.Duration) error {
	var deadline <-chan time.Time
	if timeout >= 0 {
		t := c.clock.NewTimer(timeout)
		defer t.Stop()
		deadline = t.C()
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	w := &waiting{home: h, until: u, first: map[api.Key]types.UID{}, seen: map[api.Key]bool{}}
	var changed <-chan struct{}
	if timeout != 0 { // before the first look, so that nothing falls between
		var err error
		if changed, err = watchState(watching, h, keys); err != nil {
			return err
		}
	}
	left := keys
	why := map[api.Key]string{}
	var failed []error
	for begun := false; ; begun = true {
		var still []api.Key
		for _, key := range left {
			met, reason, err := w.look(key)
			switch {
			case err != nil:
				failed = append(failed, err)
			case met:
				if err := c.printf("%s %s\n", short(key), reason); err != nil {
					return err
				}
			default:
				why[key] = reason
				still = append(still, key)
			}
		}
		left = still
		if len(left) == 0 {
			return errors.Join(failed...)
		}
		if !begun {
			up, err := c.running(h)
			if err == nil && !up && timeout != 0 {
				return errors.Join(append(failed, unmet(errNotRunning, left, why))...)
			}
		}
		if timeout == 0 {
			return errors.Join(append(failed, unmet(errTimeout, left, why))...)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, ok := <-changed:
			if !ok {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return errors.New("the watch on the state ended")
			}
		case <-deadline:
			c.noteDown(h, "nothing changes until it is started")
			return errors.Join(append(failed, unmet(errTimeout, left, why))...)
		}
	}
}

// unmet says of each object what it lacks.
func unmet(cause error, left []api.Key, why map[api.Key]string) error {
	lines := make([]string, 0, len(left))
	for _, key := range left {
		lines = append(lines, short(key)+": "+why[key])
	}
	return fmt.Errorf("%w: %s", cause, strings.Join(lines, "; "))
}

// watchState tells that something of the namespaces of keys may have changed.
func watchState(ctx context.Context, h home.Home, keys []api.Key) (<-chan struct{}, error) {
	ns := keys[0].Namespace
	for _, key := range keys {
		if key.Namespace != ns {
			ns = ""
		}
	}
	changed := make(chan struct{}, 1)
	var watches sync.WaitGroup
	for _, kind := range kindsOf(keys) {
		events, err := store.Client{Dir: h.Objects()}.Watch(ctx, kind, ns)
		if err != nil {
			return nil, fmt.Errorf("watch: %w", err) // those that were begun end with ctx
		}
		watches.Go(func() {
			for range events {
				select {
				case changed <- struct{}{}:
				default: // one is under way already
				}
			}
		})
	}
	go func() { watches.Wait(); close(changed) }()
	return changed, nil
}

type waiting struct {
	home  home.Home
	until until
	first map[api.Key]types.UID
	seen  map[api.Key]bool
}

// look reads the object and the file that defines it, and asks whether that is
// what is waited for. An object that was there and is gone is errDeleted,
// unless that is what is waited for.
func (w *waiting) look(key api.Key) (met bool, why string, err error) {
	d := newDesired(w.home) // each look reads the files anew
	s := sight{key: key, first: w.first[key]}
	o, err := d.state.Get(key)
	switch {
	case err == nil:
		s.object = o
		if s.first == "" {
			w.first[key] = o.GetUID()
			s.first = o.GetUID()
		}
	case !errors.Is(err, effects.ErrNotFound):
		return false, err.Error(), nil // unknown is not absent
	}
	f, i, err := d.locate(key)
	s.defined = !errors.Is(err, effects.ErrNotFound)
	if s.object != nil {
		switch {
		case errors.Is(err, effects.ErrNotFound):
			s.behind = "no file defines it any more"
		case err != nil:
			s.behind = err.Error()
		default:
			s.behind = behind(s.object, f.Docs[i].Object)
		}
	}
	if met, why = w.until.met(s); met {
		return true, why, nil
	}
	if u, ok := w.until.(refusable); ok {
		return false, why, u.refused(s)
	}
	_, deletion := w.until.(isDeleted)
	if !deletion && s.object == nil && s.first != "" && !s.defined {
		return false, "", fmt.Errorf("%s: %w", short(key), errDeleted)
	}
	return false, why, nil
}

// behind says why a stored object does not answer what the file says now; ""
// when it does.
func behind(stored, file api.Object) string {
	const unread = "the controller has not read the file's last change yet"
	switch {
	case stored.GetDeletionTimestamp() != nil:
		return "it is being deleted"
	case !equality.Semantic.DeepEqual(withoutSource(stored.GetAnnotations()), withoutSource(file.GetAnnotations())),
		!equality.Semantic.DeepEqual(stored.GetLabels(), file.GetLabels()):
		return unread
	}
	is, err := content(stored)
	if err != nil {
		return err.Error()
	}
	want, err := content(file)
	if err != nil {
		return err.Error()
	}
	observed, _, _ := unstructured.NestedInt64(is, "status", "observedGeneration")
	switch {
	case !equality.Semantic.DeepEqual(is["spec"], want["spec"]):
		return unread
	case observed < stored.GetGeneration() && observes(api.KeyOf(stored).Kind):
		return "the controller has not acted on the file's last change yet"
	}
	if s, ok := stored.(*v1alpha1.Session); ok {
		running := meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.SessionRunning)
		if running && s.Status.LaunchedRestartedAt != s.Annotations[v1alpha1.RestartedAtAnnotation] && !s.Spec.Suspend {
			return "the restart that was asked for is to come"
		}
	}
	return ""
}

// observes tells whether the status of a kind says which generation it answers.
func observes(kind string) bool {
	status := definition(kind).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	_, ok := status.Properties["observedGeneration"]
	return ok
}

// withoutSource is the annotations less those that skc itself writes.
func withoutSource(annotations map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range annotations {
		if k != v1alpha1.SourceFileAnnotation && k != v1alpha1.SourceDocumentAnnotation {
			out[k] = v
		}
	}
	return out
}
