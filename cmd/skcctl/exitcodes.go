package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newExitCodes(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "exit-codes",
		Short:   "What the exit codes mean",
		Example: "  skcctl help exit-codes",
		Args:    usage(cobra.NoArgs),
		RunE:    func(*cobra.Command, []string) error { return c.write(writeExitCodes) },
	}
	cmd.SetHelpFunc(func(*cobra.Command, []string) { _ = c.write(writeExitCodes) })
	return cmd
}

func writeExitCodes(w io.Writer) error {
	for _, e := range exitCodes {
		if _, err := fmt.Fprintf(w, "%4d  %-21s %s\n", e.code, e.name, e.meaning); err != nil {
			return err
		}
	}
	return nil
}
