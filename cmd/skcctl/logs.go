package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"skc.dev/skc/effects/tmux"
)

type logsOptions struct {
	*cli
	name     string
	follow   bool
	previous bool
	tail     int
}

func newLogs(c *cli) *cobra.Command {
	o := &logsOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print what a session's terminal shows, scrollback included",
		Example: `  skcctl logs web --tail 50
  skcctl logs web -f
  skcctl logs web --previous`,
		Long: `The text is the terminal's, as lines: what a program drew over is gone. A
program that ended can still be read, as long as its terminal is kept;
--previous prints the last lines of the one before.`,
		Args:              usage(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			return runLogs(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on and print what comes")
	cmd.Flags().BoolVarP(&o.previous, "previous", "p", false, "the last lines of the program that ended before")
	cmd.Flags().IntVar(&o.tail, "tail", -1, "only so many of the last lines; -1 is all")
	return cmd
}

func runLogs(ctx context.Context, o *logsOptions) error {
	if o.follow && o.previous {
		return usagef("a program that ended says nothing more: -f does not go with --previous")
	}
	h, err := o.home()
	if err != nil {
		return err
	}
	key, err := o.chooseOne(o.name)
	if err != nil {
		return err
	}
	if o.previous {
		s, err := o.session(h, key)
		if err != nil {
			return err
		}
		if s.Status.LastTermination == nil {
			o.note("no program of %s has ended yet", short(key))
			return nil
		}
		return o.lines(s.Status.LastTermination.LastLines)
	}
	s, pane, err := o.terminal(ctx, h, key)
	if errors.Is(err, errNoTerminal) && s != nil && s.Status.LastTermination != nil {
		o.note("the terminal is gone; these are the last lines of the program that ended (%s)", s.Status.LastTermination.Reason)
		return o.lines(s.Status.LastTermination.LastLines)
	}
	if err != nil {
		return err
	}
	const all = 1 << 20 // more than a terminal may keep
	lines, err := tmux.CaptureOnce(ctx, tmuxProgram, h.TmuxSocket(), pane.PaneID, all)
	if err != nil {
		return lost(key, err)
	}
	if err := o.lines(lines); err != nil || !o.follow {
		return err
	}
	if err := tmux.Follow(ctx, tmuxProgram, h.TmuxSocket(), pane.SessionID, pane.PaneID, &plainText{w: o.out}); err != nil {
		return lost(key, err)
	}
	return ctx.Err()
}

// lines prints the last of the lines, harmless for a terminal.
func (o *logsOptions) lines(lines []string) error {
	if o.tail >= 0 && len(lines) > o.tail {
		lines = lines[len(lines)-o.tail:]
	}
	return o.write(func(w io.Writer) error {
		for _, line := range lines {
			if _, err := io.WriteString(w, inertLine(strings.TrimRight(line, " "))+"\n"); err != nil {
				return err
			}
		}
		return nil
	})
}
