package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/managed"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/audit"
	"skc.dev/skc/effects/files"
)

// sourceCLI is the source of requests that are brought by a verb.
const sourceCLI = "cli"

// submission is what the verbs that bring a SessionRequest have in common.
type submission struct {
	*cli
	key     string
	output  string
	wait    bool
	timeout time.Duration
}

// submitTimeout is longer than any outcome takes to be known.
const submitTimeout = 3 * time.Minute

func (s *submission) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&s.output, "output", "o", "", "`FORM` in which the request is printed, as get has them")
	f.BoolVar(&s.wait, "wait", true, "wait until it is known what became of it")
	f.DurationVar(&s.timeout, "timeout", submitTimeout, "how long to wait; the request stays")
}

func (s *submission) bindKey(cmd *cobra.Command) {
	s.bind(cmd)
	cmd.Flags().StringVar(&s.key, "key", "", "`KEY` that names the request for good: the same again is done once, and gives the same answer (default a random one)")
}

// object is the request that has the key, or a random one.
func (s *submission) object(spec v1alpha1.SessionRequestSpec) (*v1alpha1.SessionRequest, error) {
	ns, err := s.ns()
	if err != nil {
		return nil, err
	}
	if s.key == "" {
		s.key = uuid.NewString()
	}
	spec.Source, spec.Key = sourceCLI, s.key
	o := &v1alpha1.SessionRequest{Spec: spec}
	o.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindSessionRequest}
	o.Namespace, o.Name = ns, ledger.Name(sourceCLI, s.key)
	return o, nil
}

// userPath is a path as a request holds it: absolute, or below ~.
func (c *cli) userPath(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return path
	}
	return filepath.Clean(c.abs(path))
}

// submit brings the request and tells what became of it.
func (s *submission) submit(ctx context.Context, want *v1alpha1.SessionRequest) error {
	p, err := newPrinter(s.output)
	if err != nil {
		return err
	}
	hash, err := ledger.Hash(&want.Spec)
	if err != nil || !utf8.ValidString(want.Spec.Key+createdID(&want.Spec)) {
		return usagef("a request is text, and something of this one is not")
	}
	h, err := s.home()
	if err != nil {
		return err
	}
	root, err := managed.Open(managed.Options{
		Dir: h.Managed(), Lock: filepath.Join(h.Run, "managed.lock"), Reports: h.Sources(), Files: &files.Layer{},
	})
	if err != nil {
		return fmt.Errorf("bring the request: %w", err)
	}
	b := &bringing{home: h, root: root, state: store.Client{Dir: h.Objects()}, want: want, hash: hash}
	got, err := s.await(ctx, b)
	name := short(api.KeyOf(want))
	switch {
	case errors.Is(err, errTimeout), errors.Is(err, errNotRunning), errors.Is(err, context.Canceled):
		again := "the same command"
		if want.Spec.Source == sourceCLI && s.key != "" {
			again += " with --key " + shellWord(s.key)
		}
		s.note("the request stays, and is served when skcd can; %s waits for it again, and skcctl request get %s shows it", again, want.Name)
		return err
	case err != nil:
		return err
	case got == nil: // nobody waits
		if s.output == "" {
			return s.printf("%s requested\n", name)
		}
		return s.write(func(w io.Writer) error { return p.print(ctx, w, []item{{want, true}}, true) })
	}
	p.now = s.clock.Now
	if b.repeats {
		s.note("%s was brought before; nothing is done again", name)
	}
	failed := s.outcome(h, got)
	if s.output != "" {
		return errors.Join(failed, s.write(func(w io.Writer) error { return p.print(ctx, w, []item{{Object: got}}, true) }))
	}
	if failed == nil {
		return s.printf("%s\n", inertLine(done(got)))
	}
	return failed
}

// shellWord is a text as one word of a shell's command line.
func shellWord(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@%+=,") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// createdID is the id that a session should get; empty when none is given.
func createdID(s *v1alpha1.SessionRequestSpec) string {
	if s.IDs == nil {
		return ""
	}
	return s.IDs.IntendedSessionID
}

// relook is how often a request is looked at that nothing tells of: another
// skcctl may have taken back what neither of them saw.
const relook = time.Second

// await looks until it is known what became of the request. Without an error and
// without a request nobody waits for that.
func (s *submission) await(ctx context.Context, b *bringing) (*v1alpha1.SessionRequest, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	key := api.KeyOf(b.want)
	var changed <-chan struct{}
	var deadline <-chan time.Time
	if s.wait { // before the first look, so that nothing falls between
		var err error
		if changed, err = watchState(watching, b.home, []api.Key{key}); err != nil {
			return nil, err
		}
		if s.timeout >= 0 {
			t := s.clock.NewTimer(s.timeout)
			defer t.Stop()
			deadline = t.C()
		}
	}
	again := s.clock.NewTicker(relook)
	defer again.Stop()
	for begun := false; ; begun = true {
		got, why, err := b.look(ctx)
		if err != nil || got != nil {
			b.repeats = got != nil && !begun
			return got, err
		}
		if !begun {
			if !s.wait {
				s.noteDown(b.home, "the request is served when it is started")
				return nil, nil
			}
			if up, err := s.running(b.home); err == nil && !up {
				return nil, unmet(errNotRunning, []api.Key{key}, map[api.Key]string{key: why})
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case _, ok := <-changed:
			if !ok {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return nil, errors.New("the watch on the state ended")
			}
		case <-again.C():
		case <-deadline:
			s.noteDown(b.home, "nothing changes until it is started")
			return nil, unmet(errTimeout, []api.Key{key}, map[api.Key]string{key: why})
		}
	}
}

// bringing is one request on its way: a definition in the source root of the
// controller, and the answer in the status of the object.
type bringing struct {
	home  home.Home
	root  *managed.Root
	state store.Client
	want  *v1alpha1.SessionRequest
	hash  string

	refused *v1alpha1.SessionRequest // as it was, before it was taken back
	repeats bool                     // it was known what became of it before
}

// look reads how far the request is, and does what it takes to bring it on. It
// returns the object once that tells what became of it; until then, why not.
//
// What is refused leaves no entry in the ledger, so its definition is taken back
// for the next to be judged anew, and the refusal is told when the object is
// gone: by then nothing can be done for it any more.
func (b *bringing) look(ctx context.Context) (got *v1alpha1.SessionRequest, why string, err error) {
	key := api.KeyOf(b.want)
	o, err := b.state.Get(key)
	if errors.Is(err, effects.ErrNotFound) {
		if b.refused != nil {
			return b.refused, "", nil
		}
		return nil, "the controller has not read it yet", b.define(ctx)
	}
	if err != nil {
		return nil, err.Error(), nil // unknown is not absent
	}
	rq, ok := o.(*v1alpha1.SessionRequest)
	if !ok {
		return nil, "", fmt.Errorf("%s is no request", short(key))
	}
	st := &rq.Status
	accepted := st.Request
	if accepted == nil || st.DuplicateOf != "" {
		accepted = &rq.Spec
	}
	switch {
	case st.State == "" && isRefused(rq):
		if !b.root.Holds(rq.Annotations[v1alpha1.SourceFileAnnotation]) { // a file of the user's
			return rq, "", b.differs(accepted)
		}
		if b.differs(accepted) == nil {
			b.refused = rq
		}
		return nil, "it is refused, and being taken back", b.root.Remove(ctx, key)
	case st.State == "" && rq.DeletionTimestamp != nil:
		return nil, "it is being taken back", nil
	}
	if err := b.differs(accepted); err != nil {
		return nil, "", err
	}
	if st.State == "" || st.State == v1alpha1.RequestInProgress {
		b.refused = nil
		return nil, whyNotReady(rq), nil
	}
	return rq, "", nil
}

// define writes the definition, if there is none.
func (b *bringing) define(ctx context.Context) error {
	if err := b.root.Create(ctx, b.want); err != nil {
		return err
	}
	d, err := b.root.Get(ctx, api.KeyOf(b.want))
	if errors.Is(err, effects.ErrNotFound) { // taken back by another; the next look makes it again
		return nil
	}
	if err != nil {
		return err
	}
	if rq, ok := d.(*v1alpha1.SessionRequest); ok {
		return b.differs(&rq.Spec)
	}
	return conflictf("%s: its file holds something else", short(api.KeyOf(b.want)))
}

// differs is the conflict with another request of the same key. The id that a
// session should get is not in the request's hash, as chats mint one each time;
// here it is what was typed.
func (b *bringing) differs(s *v1alpha1.SessionRequestSpec) error {
	want := &b.want.Spec
	hash, err := ledger.Hash(s)
	if err == nil && hash == b.hash && s.Source == want.Source && s.Key == want.Key && createdID(s) == createdID(want) {
		return nil
	}
	return conflictf("%s: the key %s was used for another request, and nothing was done; skcctl request describe %s shows that one",
		lifecycle.ReasonDuplicateConflict, shellWord(want.Key), b.want.Name)
}

// isRefused tells whether the request, as it is now, was judged and refused.
func isRefused(rq *v1alpha1.SessionRequest) bool {
	c := meta.FindStatusCondition(rq.Status.Conditions, v1alpha1.Accepted)
	return c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == rq.Generation
}

func whyNotReady(rq *v1alpha1.SessionRequest) string {
	if c := meta.FindStatusCondition(rq.Status.Conditions, v1alpha1.Ready); c != nil {
		return c.Reason + ": " + c.Message
	}
	return "the controller has not looked at it yet"
}

// done says what a request that succeeded did.
func done(rq *v1alpha1.SessionRequest) string {
	what, st := rq.Status.SessionID, &rq.Status
	if st.Session != nil {
		what = st.Session.Name
	}
	word := map[v1alpha1.RequestVerb]string{
		v1alpha1.VerbCreate: "created", v1alpha1.VerbClose: "closed", v1alpha1.VerbFork: "forked", v1alpha1.VerbDelete: "deleted",
		v1alpha1.VerbResume: strings.ReplaceAll(st.ResumeMode, "_", " "),
	}[rq.Spec.Verb]
	return "session/" + what + " " + word
}

// unsuccessful is an outcome that is none of success.
type unsuccessful struct {
	text  string
	cause error
}

func (e unsuccessful) Error() string { return e.text }
func (e unsuccessful) Unwrap() error { return e.cause }

// outcome is why the request was not successful; nil when it was.
func (c *cli) outcome(h home.Home, rq *v1alpha1.SessionRequest) error {
	st := &rq.Status
	word, cause := "failed", errFailed
	about := v1alpha1.Complete
	switch {
	case st.State == v1alpha1.RequestSuccess:
		return nil
	case st.State == v1alpha1.RequestUncertain:
		word, cause = "uncertain", errUncertain
	case st.State == "":
		word, cause, about = "refused", errRefused, v1alpha1.Accepted
		if st.Reason == string(lifecycle.ReasonDuplicateConflict) {
			cause = effects.ErrConflict
		}
	case st.Reason == string(lifecycle.ReasonCloseRefused):
		word, cause = "refused", errRefused
	case st.Reason == string(lifecycle.ReasonNotFound):
		cause = effects.ErrNotFound
	case st.Reason == string(lifecycle.ReasonAmbiguousTarget):
		cause = effects.ErrConflict
	}
	reason, message := st.Reason, ""
	if cond := meta.FindStatusCondition(st.Conditions, about); cond != nil {
		reason, message = cmp.Or(reason, cond.Reason), cond.Message
		if cond.Reason == v1alpha1.ReasonLifecycleOff {
			message = c.lifecycleOff(h)
		}
	}
	if word == "uncertain" {
		message += "; it is never tried again: look, then ask with another key"
	}
	text := fmt.Sprintf("%s %s: %s: %s", short(api.KeyOf(rq)), word, reason, message)
	for _, x := range st.Candidates {
		text += "\n  " + inertLine(x.SessionID)
		if x.Path != "" {
			text += "  " + inertLine(x.Path)
		}
	}
	return unsuccessful{text, cause}
}

// lifecycleOff says what to configure for requests to be served.
func (c *cli) lifecycleOff(h home.Home) string {
	config := filepath.Join(filepath.Dir(h.Spool), "skcd.yaml")
	secret, err := configuredSecret(h, c.env("HOME"))
	if err != nil {
		return fmt.Sprintf("requests are not served: there is no secret for their audit. Put one (one line, as a bot token) into a file of mode 0600, "+
			"name it in %s as \"lifecycle: {secretFile: /PATH/OF/IT}\", and start skcd again", config)
	}
	if _, err := audit.Key(secret); err != nil {
		return fmt.Sprintf("requests are not served: the secret that %s names cannot be used: %v. Mend that, and start skcd again", config, err)
	}
	return fmt.Sprintf("requests are not served: skcd was started before %s named the secret; start it again", config)
}
