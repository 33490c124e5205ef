package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skc.dev/skc/api"
	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
)

func newRequest(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "request",
		Short: "Show, bring and export requests",
		Example: `  skcctl request get
  skcctl request describe issue-12
  skcctl request export --format=ledger-v1`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	get := c.aboutRequests(newGet(c))
	get.Use, get.Short = "get [NAME|KEY...]", "Show requests and what became of them"
	get.Example = `  skcctl request get
  skcctl request get issue-12 -o jsonpath='{.status.state}'
  skcctl request get -o wide --watch`
	get.Long = "This is get sessionrequests, where a request may be named by its key too.\n\nOutput is one of: " + outputs + "."
	describe := c.aboutRequests(newDescribe(c))
	describe.Use, describe.Short = "describe [NAME|KEY...]", "Tell all that is known of requests, and what to do next"
	describe.Example = "  skcctl request describe issue-12"
	describe.Long = ""
	cmd.AddCommand(get, describe, newRequestCreate(c), newRequestExport(c))
	return cmd
}

// aboutRequests makes a verb for all kinds one for requests.
func (c *cli) aboutRequests(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := c.requestNames(args)
		if err != nil {
			return err
		}
		return run(cmd, append([]string{v1alpha1.KindSessionRequest}, names...))
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return c.names(append([]string{v1alpha1.KindSessionRequest}, args...), toComplete), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// requestNames are the names of requests that are given by name or by key.
func (c *cli) requestNames(words []string) ([]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	h, err := c.home()
	if err != nil {
		return nil, err
	}
	ns, err := c.ns()
	if err != nil {
		return nil, err
	}
	items, err := c.look(h, v1alpha1.KindSessionRequest, ns)
	if err != nil {
		c.note("%v", err)
	}
	var names []string
	for _, word := range words {
		word = strings.TrimPrefix(word, "sessionrequest/")
		var fit []string
		named := slices.ContainsFunc(items, func(it item) bool { return it.GetName() == word })
		for _, it := range items {
			if rq, ok := it.Object.(*v1alpha1.SessionRequest); ok && rq.Spec.Key == word && !named {
				fit = append(fit, rq.Name)
			}
		}
		switch {
		case len(fit) == 1:
			names = append(names, fit[0])
		case len(fit) > 1:
			return nil, conflictf("%d requests have the key %s; name one: %s", len(fit), shellWord(word), strings.Join(fit, ", "))
		case checkName("name", word) == nil:
			names = append(names, word)
		default:
			return nil, fmt.Errorf("no request has the key %s%s: %w", shellWord(word), inNamespace(ns), effects.ErrNotFound)
		}
	}
	return names, nil
}

type requestCreateOptions struct {
	submission
	inputs
}

func newRequestCreate(c *cli) *cobra.Command {
	o := &requestCreateOptions{submission: submission{cli: c}}
	cmd := &cobra.Command{
		Use:   "create -f FILE|-",
		Short: "Bring the request that a file holds, and wait for what becomes of it",
		Example: `  skcctl request create -f close.yaml
  make-request | skcctl request create -f - -o json`,
		Long: `The file holds one SessionRequest, of any verb: Create, Close, Resume, Fork or
Delete. Its source and key name it for good, as --key does for the verbs that
make a request themselves. The file is not needed any more afterwards. To keep it
in the spool, use skcctl apply.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runRequestCreate(cmd.Context(), o) },
	}
	cmd.Flags().StringArrayVarP(&o.paths, "filename", "f", nil, "`FILE`, or - for standard input")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	o.submission.bind(cmd)
	return cmd
}

func runRequestCreate(ctx context.Context, o *requestCreateOptions) error {
	given, err := o.inputs.read(o.cli)
	if err != nil {
		return err
	}
	if len(given) == 1 && len(given[0].Docs) == 1 {
		if want, ok := given[0].Docs[0].Object.(*v1alpha1.SessionRequest); ok {
			return o.submit(ctx, want)
		}
	}
	return refuse(given[0].Path, "want one SessionRequest")
}

type requestExportOptions struct {
	*cli
	format string
}

// ledgerV1 is the one format of request export.
const ledgerV1 = "ledger-v1"

func newRequestExport(c *cli) *cobra.Command {
	o := &requestExportOptions{cli: c}
	cmd := &cobra.Command{
		Use:     "export --format=" + ledgerV1,
		Short:   "Print the ledger of requests as one document that other programs read",
		Example: `  skcctl request export --format=ledger-v1 > ledger.json`,
		Long: `The document holds what became of each request that was accepted, oldest first, of
all namespaces unless one is named. A chat's request is called CHATID:UPDATEID, any
other SOURCE/KEY. Requests to fork or delete have no place in that format and are
left out, which is said. It holds ids, paths and branches; no prompt, no secret.`,
		Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return runRequestExport(o) },
	}
	cmd.Flags().StringVar(&o.format, "format", "", "`FORMAT` of the document: "+ledgerV1)
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{ledgerV1}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runRequestExport(o *requestExportOptions) error {
	if o.format != ledgerV1 {
		return usagef("--format %q is none of: %s", o.format, ledgerV1)
	}
	ns := ""
	if o.namespace != "" {
		var err error
		if ns, err = o.ns(); err != nil {
			return err
		}
	}
	h, err := o.home()
	if err != nil {
		return err
	}
	objects, err := store.Client{Dir: h.Objects()}.List(v1alpha1.KindSessionRequest, ns)
	if err != nil { // a ledger with holes would be taken for the whole
		return fmt.Errorf("nothing is exported, as not all of the ledger can be read: %w", err)
	}
	var all []*v1alpha1.SessionRequest
	for _, o := range objects {
		if rq, ok := o.(*v1alpha1.SessionRequest); ok {
			all = append(all, rq)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.SessionRequest) int {
		return strings.Compare(api.KeyOf(a).String(), api.KeyOf(b).String())
	})
	doc, left, err := ledger.Export(all)
	if err != nil {
		return fmt.Errorf("export the ledger: %w", err)
	}
	data, err := doc.Encode()
	if err != nil {
		return fmt.Errorf("export the ledger: %w", err)
	}
	if left > 0 {
		o.note("%d requests to fork or delete are left out: the format has no place for them", left)
	}
	return o.write(func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
}
