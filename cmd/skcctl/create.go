package main

import (
	"context"

	"github.com/spf13/cobra"

	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
)

func newCreate(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create",
		Short:   "Ask for a session to be made, once",
		Example: `  skcctl create session fix-login --repo ~/src/app --branch fix/login --key issue-12`,
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCreateSession(c))
	return cmd
}

type createOptions struct {
	submission
	id     string
	path   string
	dir    string
	repo   string
	branch string
	preset *string
}

func newCreateSession(c *cli) *cobra.Command {
	o := &createOptions{submission: submission{cli: c}}
	var preset string
	cmd := &cobra.Command{
		Use:   "session ID",
		Short: "Ask for a session of an agent to be made, and wait until it runs",
		Example: `  skcctl create session notes --path ~/notes
  skcctl create session scratch --dir ~/scratch/x --preset opus
  skcctl create session fix-login --repo ~/src/app --branch fix/login --key issue-12`,
		Long: `Brings a SessionRequest. The session runs the agent that lifecycle.profile of
skcd.yaml names, in a folder that is there (--path), in one that is made (--dir),
or in a worktree of a repository (--repo, --branch). An ID that can be a name is
the session's name; else the answer says what it is called.

With --key the command may be run again until its answer arrives: the session is
made once, and each run gets the same answer. A session that did not come to run
is taken away again. For sessions that files describe, see skcctl apply.`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			if cmd.Flags().Changed("preset") {
				o.preset = &preset
			}
			return runCreateSession(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.path, "path", "", "run in this `FOLDER`, which is there")
	f.StringVar(&o.dir, "dir", "", "run in this `FOLDER`, which is made")
	f.StringVar(&o.repo, "repo", "", "run in a worktree of this `REPOSITORY`")
	f.StringVar(&o.branch, "branch", "", "`BRANCH` of the worktree, made when it is not there")
	f.StringVar(&preset, "preset", "", "model `PRESET` of the agent")
	o.bindKey(cmd)
	for _, name := range []string{"path", "dir", "repo"} {
		_ = cmd.MarkFlagDirname(name)
	}
	return cmd
}

func runCreateSession(ctx context.Context, o *createOptions) error {
	target, err := o.target()
	if err != nil {
		return err
	}
	want, err := o.object(v1alpha1.SessionRequestSpec{
		Verb: v1alpha1.VerbCreate, Target: v1alpha1.RequestTarget{Create: &target}, ModelPreset: o.preset,
	})
	if err != nil {
		return err
	}
	want.Spec.IDs = &v1alpha1.RequestIDs{LifecycleRequestID: ledger.Name(sourceCLI, o.key), IntendedSessionID: o.id}
	return o.submit(ctx, want)
}

func (o *createOptions) target() (t v1alpha1.CreateTarget, err error) {
	given := 0
	for _, text := range []string{o.path, o.dir, o.repo} {
		if text != "" {
			given++
		}
	}
	switch {
	case o.id == "":
		return t, usagef("an id must not be empty")
	case given != 1:
		return t, usagef("say where: --path FOLDER, --dir FOLDER, or --repo REPOSITORY --branch BRANCH: one of them")
	case (o.repo != "") != (o.branch != ""):
		return t, usagef("--repo and --branch go together")
	case o.path != "":
		path := o.userPath(o.path)
		return v1alpha1.CreateTarget{Kind: string(lifecycle.KindExistingPath), Path: &path}, nil
	case o.dir != "":
		path := o.userPath(o.dir)
		return v1alpha1.CreateTarget{Kind: string(lifecycle.KindPlainDir), Path: &path}, nil
	}
	repo := o.userPath(o.repo)
	return v1alpha1.CreateTarget{Kind: string(lifecycle.KindWorktree), Repo: &repo, Branch: &o.branch}, nil
}
