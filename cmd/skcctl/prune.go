package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"skc.dev/skc/controller/spool"
	"skc.dev/skc/effects/files"
)

type pruneOptions struct {
	*cli
	root    string
	confirm bool
}

func newPrune(c *cli) *cobra.Command {
	o := &pruneOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "prune --confirm [ROOT]",
		Short: "Let go of what a missing or replaced source root defined",
		Example: `  skcctl get sources
  skcctl prune --confirm`,
		Long: `When a source root is missing, or is not the folder that it was (an unmounted
disk), its objects are kept: their condition SourceAccepted has the reason
PruneHeld. This says that it is meant. Without ROOT it is the spool.`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.root = args[0]
			}
			return runPrune(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.confirm, "confirm", false, "yes, end the sessions that these files defined")
	return cmd
}

func runPrune(_ context.Context, o *pruneOptions) error {
	if !o.confirm {
		return usagef("sessions end by this; say --confirm when that is meant")
	}
	h, err := o.home()
	if err != nil {
		return err
	}
	root := h.Spool
	if o.root != "" {
		root = filepath.Clean(o.abs(o.root))
	}
	o.noteDown(h, "this takes effect when it is started")
	if err := files.MkdirPrivate(h.Sources()); err != nil {
		return err
	}
	if err := spool.WriteConfirm(&files.Layer{}, h.Sources(), root); err != nil {
		return fmt.Errorf("confirm: %w", err)
	}
	return o.printf("prune of %s confirmed\n", inertLine(root))
}
