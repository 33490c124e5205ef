package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"

	"skc.dev/skc/effects/tmux"
)

type attachOptions struct {
	*cli
	name     string
	readOnly bool
}

func newAttach(c *cli) *cobra.Command {
	o := &attachOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "attach NAME",
		Short: "Put this terminal on a session",
		Example: `  skcctl attach web
  skcctl attach web --read-only`,
		Long:              "Leave it with Ctrl-B D: the session goes on. What is pressed goes to the program.",
		Args:              usage(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			return runAttach(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVarP(&o.readOnly, "read-only", "r", false, "look only")
	return cmd
}

// runAttach becomes tmux; it returns only when that is not possible.
func runAttach(ctx context.Context, o *attachOptions) error {
	h, err := o.home()
	if err != nil {
		return err
	}
	key, err := o.chooseOne(o.name)
	if err != nil {
		return err
	}
	pane, err := o.runningTerminal(ctx, h, key)
	if err != nil {
		return err
	}
	if !printers.IsTerminal(o.in) || !printers.IsTerminal(o.out) {
		return fmt.Errorf("attach: %w: this is not run in one; skcctl logs and skcctl send need none", errNoTerminal)
	}
	argv := tmux.AttachArgv(tmuxProgram, h.TmuxSocket(), pane.SessionID)
	if o.readOnly {
		argv = append(argv, "-r")
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("attach: %w; install tmux", err)
	}
	var env []string
	for _, v := range os.Environ() { // in a tmux of the user's own, it would refuse to nest
		if !strings.HasPrefix(v, "TMUX=") && !strings.HasPrefix(v, "TMUX_PANE=") {
			env = append(env, v)
		}
	}
	return fmt.Errorf("attach: run tmux: %w", syscall.Exec(program, argv, env))
}
