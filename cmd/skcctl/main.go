// Command skcctl is how people and scripts speak to skc. It works on files
// alone: what should be is edited in the spool, what is comes from the state
// folder, and terminals are reached through the private tmux server. So every
// verb but those that wait works with the controller up or down, and says
// which where it matters. It decides nothing about sessions.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/utils/clock"
)

func main() { os.Exit(run()) }

// run is main with its exit code, so that tests can be the binary.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	cwd, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return exitFailure
	}
	return execute(ctx, &cli{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		clock: clock.RealClock{}, env: os.Getenv, cwd: cwd,
	}, os.Args[1:])
}

// cli is what every verb works with: the streams, the clock, the environment,
// and the flags that all verbs share.
type cli struct {
	in       io.Reader
	out, err io.Writer
	clock    clock.WithTicker
	env      func(string) string
	cwd      string

	homeDir       string
	namespace     string
	allNamespaces bool
	noted         map[string]bool
}

// note tells something beside the result, once a run.
func (c *cli) note(format string, args ...any) {
	text := inert(fmt.Sprintf(format, args...))
	if c.noted[text] {
		return
	}
	if c.noted == nil {
		c.noted = map[string]bool{}
	}
	c.noted[text] = true
	fmt.Fprintln(c.err, "note:", text)
}

// printf writes a line of the result.
func (c *cli) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(c.out, format, args...)
	return err
}
