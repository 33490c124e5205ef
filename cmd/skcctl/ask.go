package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/store"
)

// askOptions is a verb that brings a request about one session: close, resume,
// fork.
type askOptions struct {
	submission
	word string
	path string
	id   string
	spec v1alpha1.SessionRequestSpec
}

func newAsk(c *cli, spec v1alpha1.SessionRequestSpec, cmd *cobra.Command) *askOptions {
	o := &askOptions{submission: submission{cli: c}, spec: spec}
	cmd.Args = usage(cobra.ExactArgs(1))
	cmd.ValidArgsFunction = c.completeOneName
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.word = args[0]
		return runAsk(cmd.Context(), o)
	}
	o.bindKey(cmd)
	return o
}

func newClose(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "close ID|NAME",
		Short: "Ask for a session to be stopped, and wait until its processes are gone",
		Example: `  skcctl close fix-login
  skcctl close fix-login --key issue-12-done`,
		Long: `Brings a SessionRequest. Only a session that a request made is closed; for one
that a file of yours defines, use skcctl stop. The program gets its stop signal
and its grace period, and is killed when those are over. There is no close that
asks the program whether it wants to, so a request must say force; this verb
says it.

The session stays, stopped: skcctl resume starts it again with its conversation.`,
	}
	force := true
	newAsk(c, v1alpha1.SessionRequestSpec{Verb: v1alpha1.VerbClose, Force: &force}, cmd)
	return cmd
}

func newResume(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume ID|NAME|PREFIX",
		Short: "Ask for a session to run: a live one is left as it is, another is started again",
		Example: `  skcctl resume fix-login
  skcctl resume fix --path ~/src/app.worktrees/fix-login`,
		Long: `Brings a SessionRequest. A session that runs is left untouched ("reattached"); one
that is stopped, ended, or lies in quarantine is started with its conversation
("cold restarted"). An id that fits exactly counts before those that begin so.
When several fit, they are listed and nothing is done.`,
	}
	o := newAsk(c, v1alpha1.SessionRequestSpec{Verb: v1alpha1.VerbResume}, cmd)
	o.bindPath(cmd)
	return cmd
}

func newFork(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fork ID|NAME|PREFIX",
		Short: "Ask for a new session that goes on from a copy of another's conversation",
		Example: `  skcctl fork fix-login --id fix-login-2
  skcctl fork fix-login --key try-2`,
		Long: `Brings a SessionRequest. The new session runs in the same folder; the one that it
was forked from is not touched. Its agent must be one that can fork.`,
	}
	o := newAsk(c, v1alpha1.SessionRequestSpec{Verb: v1alpha1.VerbFork}, cmd)
	o.bindPath(cmd)
	cmd.Flags().StringVar(&o.id, "id", "", "`ID` of the new session (default one that is made up)")
	return cmd
}

func (o *askOptions) bindPath(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.path, "path", "", "only one that runs in this `FOLDER`")
	_ = cmd.MarkFlagDirname("path")
}

func runAsk(ctx context.Context, o *askOptions) error {
	word := strings.TrimPrefix(o.word, "session/")
	if word == "" {
		return usagef("an id must not be empty")
	}
	h, err := o.home()
	if err != nil {
		return err
	}
	want, err := o.object(o.spec)
	if err != nil {
		return err
	}
	s := &v1alpha1.SessionSelector{ID: idOf(h, want, word)}
	if o.path != "" {
		path := o.userPath(o.path)
		s.Path = &path
	}
	want.Spec.Target.Session = s
	if o.id != "" {
		want.Spec.IDs = &v1alpha1.RequestIDs{LifecycleRequestID: ledger.Name(sourceCLI, o.key), IntendedSessionID: o.id}
	}
	return o.submit(ctx, want)
}

// idOf is the id by which requests know a session that people call word: what
// the session of that name says, else the word. One that was brought before with
// this key means what it meant then, also when the session is gone.
func idOf(h home.Home, rq *v1alpha1.SessionRequest, word string) string {
	state := store.Client{Dir: h.Objects()}
	if o, err := state.Get(of(v1alpha1.KindSessionRequest, rq.Namespace, rq.Name)); err == nil {
		was, ok := o.(*v1alpha1.SessionRequest)
		if ok && was.Status.Session != nil && was.Status.Session.Name == word && was.Status.Request != nil && was.Status.Request.Target.Session != nil &&
			was.Status.Request.Target.Session.ID == was.Status.SessionID {
			return was.Status.SessionID
		}
	}
	if checkName("name", word) != nil {
		return word
	}
	if o, err := state.Get(of(v1alpha1.KindSession, rq.Namespace, word)); err == nil {
		if id := o.GetAnnotations()[v1alpha1.SessionIDAnnotation]; id != "" {
			return id
		}
	}
	return word
}
