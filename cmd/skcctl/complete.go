package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
)

func newCompletion(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the shell's completion script",
		Example: `  source <(skcctl completion bash)
  skcctl completion zsh > "${fpath[1]}/_skcctl"
  skcctl completion fish > ~/.config/fish/completions/skcctl.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      usage(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(c.out, true)
			case "zsh":
				return root.GenZshCompletion(c.out)
			default:
				return root.GenFishCompletion(c.out, true)
			}
		},
	}
}

// completeNames offers the names of sessions that are not on the line yet.
func (c *cli) completeNames(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return c.names(args, toComplete), cobra.ShellCompDirectiveNoFileComp
}

// completeOneName is completeNames for verbs that take one name.
func (c *cli) completeOneName(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return c.completeNames(cmd, args, toComplete)
}

// completeKindsAndNames also offers the kinds as the first word, and the names
// of a kind behind it or behind KIND/.
func (c *cli) completeKindsAndNames(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	names := c.names(args, toComplete)
	if len(args) == 0 {
		for _, kind := range v1alpha1.Kinds() {
			names = append(names, definition(kind).Spec.Names.Singular)
		}
		names = append(names, "sources")
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// names says nothing when it cannot: a completion must not write errors into
// the line that is typed.
func (c *cli) names(args []string, toComplete string) []string {
	sel, err := c.choose(args)
	if err != nil {
		return nil
	}
	kind, prefix := sel.kind, ""
	if word, _, ok := strings.Cut(toComplete, "/"); ok {
		if kind, ok = kindNamed(word); !ok {
			return nil
		}
		prefix = word + "/"
	}
	var names []string
	for _, it := range c.lookQuietly(kind) {
		if name := prefix + it.GetName(); !slices.Contains(sel.keys, api.KeyOf(it)) && strings.HasPrefix(name, toComplete) {
			names = append(names, name)
		}
	}
	return names
}

// lookQuietly is look for completions: what can be read, without a word.
func (c *cli) lookQuietly(kind string) []item {
	h, err := c.home()
	if err != nil {
		return nil
	}
	ns, err := c.ns()
	if err != nil {
		return nil
	}
	quiet := *c
	quiet.noted = nil
	quiet.err = io.Discard
	items, _ := quiet.look(h, kind, ns)
	return items
}
