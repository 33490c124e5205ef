package main

import (
	"context"

	"github.com/spf13/cobra"

	"skc.dev/skc/effects/tmux"
)

type sendOptions struct {
	*cli
	name  string
	args  []string
	keys  bool
	file  string
	enter bool
}

func newSend(c *cli) *cobra.Command {
	o := &sendOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "send NAME TEXT | --keys KEY... | -f FILE|-",
		Short: "Type into a session",
		Example: `  skcctl send web "npm test" --enter
  skcctl send web -f prompt.txt --enter
  skcctl send web --keys C-c Up Enter`,
		Long: `Text is pasted as it is, whatever it holds, in one piece; a program that knows
pasting sees that it is one. Keys have tmux's names: Enter, Escape, C-c, Up, F5.`,
		Args:              usage(cobra.MinimumNArgs(1)),
		ValidArgsFunction: c.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name, o.args = args[0], args[1:]
			return runSend(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVarP(&o.keys, "keys", "k", false, "what follows the name are keys")
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "the text is in this `FILE`, or, with -, on standard input")
	cmd.Flags().BoolVar(&o.enter, "enter", false, "press Enter after the text")
	return cmd
}

func runSend(ctx context.Context, o *sendOptions) error {
	h, err := o.home()
	if err != nil {
		return err
	}
	key, err := o.chooseOne(o.name)
	if err != nil {
		return err
	}
	var text []byte
	var keys []string
	switch {
	case o.keys && (o.file != "" || len(o.args) == 0), o.file != "" && len(o.args) > 0, o.file == "" && len(o.args) == 0 && !o.enter:
		return usagef("say what to send: TEXT, --keys KEY..., or -f FILE, one of them")
	case o.keys:
		keys = o.args
	case len(o.args) > 1:
		return usagef("TEXT is one argument; put it in quotes")
	case len(o.args) == 1:
		text = []byte(o.args[0])
	case o.file == "-":
		text, err = readLimited(o.in)
	case o.file != "":
		text, err = o.readInput(o.file)
	}
	if err != nil {
		return err
	}
	if len(text) > maxPaste {
		return usagef("the text has more than %d bytes", maxPaste)
	}
	pane, err := o.runningTerminal(ctx, h, key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tmuxPatience)
	defer cancel()
	if o.keys {
		if o.enter {
			keys = append(keys, "Enter")
		}
		err = tmux.SendKeys(ctx, tmuxProgram, h.TmuxSocket(), pane.PaneID, keys)
	} else {
		err = tmux.Paste(ctx, tmuxProgram, h.TmuxSocket(), pane.PaneID, text, o.enter)
	}
	return lost(key, err)
}

// maxPaste is the most that is pasted in one piece.
const maxPaste = 1 << 20
