package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/printers"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/lease"
)

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, c *cli, args []string) int {
	root := newRoot(c)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return exitInterrupted
	}
	text := err.Error()
	if _, refused := api.AsInvalidSpec(err); !refused { // a refusal is printed as the spool words it
		text = "error: " + text
	}
	fmt.Fprintln(c.err, inert(text))
	if errors.Is(err, errUsage) {
		fmt.Fprintf(c.err, "usage: %s\nSee '%s --help' for examples.\n", cmd.UseLine(), cmd.CommandPath())
	}
	return exitCode(err)
}

func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "skcctl",
		Short: "Keep terminal sessions as files say",
		Example: `  skcctl apply -f web.yaml --wait
  skcctl get
  skcctl describe session web
  skcctl attach web`,
		Long:          "skcctl edits the spool, which says what should run, and shows the state, which says what does.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			text := fmt.Sprintf("unknown verb %q", args[0])
			if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
				text += "; did you mean " + strings.Join(like, " or ") + "?"
			}
			return &usageError{errors.New(text)}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	root.CompletionOptions.HiddenDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVar(&c.homeDir, "home", "", "`DIR` that holds spool, state and run (default $SKC_HOME, else the XDG folders)")
	flags.StringVarP(&c.namespace, "namespace", "n", "", "`NAMESPACE` of the objects, or \"default\"")
	root.AddCommand(
		newApply(c), newGet(c), newDescribe(c), newWait(c), newDelete(c),
		newStop(c), newStart(c), newRestart(c),
		newLogs(c), newAttach(c), newSend(c), newEvents(c),
		newCreate(c), newClose(c), newResume(c), newFork(c), newRequest(c),
		newRestore(c), newPurge(c), newPrune(c), newAudit(c), newDoctor(c), newVersion(c), newCompletion(c), newExitCodes(c),
	)
	return root
}

// helpTemplate puts the examples first.
const helpTemplate = `{{with .Short}}{{.}}

{{end}}{{if .HasExample}}Examples:
{{.Example}}

{{end}}{{with .Long}}{{. | trimTrailingWhitespaces}}

{{end}}{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}`

// usageTemplate is cobra's without what the help has said already.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} VERB

Verbs:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of all verbs:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}
`

// home is where everything lies.
func (c *cli) home() (home.Home, error) {
	h, err := home.Find(c.homeDir, c.env, c.cwd)
	if err != nil {
		return h, err
	}
	return h, h.Check()
}

// running tells whether a skcd owns the home.
func (c *cli) running(h home.Home) (bool, error) {
	held, _, err := lease.Held(h.Lock())
	return held, err
}

// noteDown says that no controller is there to act on what is written, or to
// keep what is read fresh.
func (c *cli) noteDown(h home.Home, consequence string) {
	switch up, err := c.running(h); {
	case err != nil:
		c.note("cannot tell whether skcd is running: %v", err)
	case !up:
		c.note("skcd is not running for this home; %s", consequence)
	}
}

// ns is the namespace for names on the command line.
func (c *cli) ns() (string, error) {
	if c.namespace == "" {
		return v1alpha1.DefaultNamespace, nil
	}
	return c.namespace, checkName("namespace", c.namespace)
}

// checkName holds a name from the command line to the rule for names in files,
// before any path is made of it.
func checkName(what, name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return &usageError{fmt.Errorf("%s %q: a name is at most 63 of a-z, 0-9 and '-', and begins and ends with a letter or digit", what, name)}
	}
	return nil
}

// usage makes an argument check whose failure is a usage error.
func usage(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, a []string) error {
		if err := args(cmd, a); err != nil {
			return &usageError{err}
		}
		return nil
	}
}

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// write prints a result in one piece, so that a failure half-way leaves no half
// of it. What programs read is as it is; on a terminal it is made inert.
func (c *cli) write(render func(io.Writer) error) error {
	var b strings.Builder
	if err := render(&b); err != nil {
		return err
	}
	text := b.String()
	if printers.IsTerminal(c.out) {
		text = inert(text)
	}
	_, err := io.WriteString(c.out, text)
	return err
}
