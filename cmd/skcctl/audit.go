package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api"
	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/audit"
)

func newAudit(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "audit",
		Short:   "Look things up in the audit file of lifecycle requests",
		Example: `  skcctl audit verify --chat 42`,
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAuditVerify(c))
	return cmd
}

type auditVerifyOptions struct {
	*cli
	chat       string
	given      bool // the chat may be the empty one
	request    string
	secretFile string
	output     string
}

func newAuditVerify(c *cli) *cobra.Command {
	o := &auditVerifyOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "verify --chat ID",
		Short: "Find the rows of a chat, or of one of its requests",
		Example: `  skcctl audit verify --chat 42
  skcctl audit verify --chat 42 --request request.yaml
  skcctl audit verify --chat 42 --request - -o json < frame.json`,
		Long: `The audit file names chats, requests and targets by references only. They are
made again here, of the chat, the request and the secret that skcd is
configured with, and compared. A request is what it asks for: rows of the same
one under other update ids are found too. FILE holds a SessionRequest, or a
request frame.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = cmd.Flags().Changed("chat")
			return runAuditVerify(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.chat, "chat", "", "`ID` of the chat; \"\" for requests that no chat made")
	f.StringVar(&o.request, "request", "", "`FILE` of a request, - for standard input")
	f.StringVar(&o.secretFile, "secret-file", "", "`PATH` of the secret (default lifecycle.secretFile of skcd.yaml)")
	f.StringVarP(&o.output, "output", "o", "", "`FORM` of the output: json")
	return cmd
}

// auditReport is what -o json prints.
type auditReport struct {
	File      string               `json:"file"`
	Rows      []lifecycle.AuditRow `json:"rows"`
	Total     int                  `json:"total"`
	Malformed int                  `json:"malformed"`
}

func runAuditVerify(_ context.Context, o *auditVerifyOptions) error {
	if !o.given {
		return usagef("name the chat with --chat")
	}
	if o.output != "" && o.output != "table" && o.output != "json" {
		return usagef("output %q is none of: table, json", o.output)
	}
	h, err := o.home()
	if err != nil {
		return err
	}
	var request []byte
	if o.request != "" {
		if request, err = o.canonical(); err != nil {
			return err
		}
	}
	secret := o.secretFile
	if secret == "" {
		if secret, err = configuredSecret(h, o.env("HOME")); err != nil {
			return err
		}
	} else {
		secret = o.abs(secret)
	}
	key, err := audit.Key(secret)
	if err != nil {
		return err
	}
	path := filepath.Join(h.Audit(), audit.FileName)
	found, err := audit.Verify(path, key, o.chat, request)
	if err != nil {
		return err
	}
	if o.output == "json" {
		report := auditReport{File: path, Rows: append([]lifecycle.AuditRow{}, found.Rows...), Total: found.Total, Malformed: found.Malformed}
		if err := writeJSON(o.out, report); err != nil {
			return err
		}
	} else if len(found.Rows) > 0 {
		if err := o.write(func(w io.Writer) error { return auditTable(w, found.Rows) }); err != nil {
			return err
		}
	}
	o.note("%d of %d rows match; %d lines are malformed", len(found.Rows), found.Total, found.Malformed)
	if len(found.Rows) == 0 {
		return noRows{path}
	}
	return nil
}

// noRows is that nothing in the file is about what was asked for.
type noRows struct{ path string }

func (e noRows) Error() string { return "no row in " + e.path + " is about that, with this secret" }
func (e noRows) Unwrap() error { return effects.ErrNotFound }

func auditTable(w io.Writer, rows []lifecycle.AuditRow) error {
	tabs := printers.GetNewTabWriter(w)
	fmt.Fprintln(tabs, "TIME\tUPDATE\tVERB\tTARGET\tEVENT\tREASON\tREQUEST") //nolint:errcheck // Flush tells
	for _, r := range rows {
		fmt.Fprintf(tabs, "%s\t%d\t%s\t%s\t%s\t%s\t%.12s\n", inertLine(r.TS), r.UpdateID, inertLine(string(r.Verb)), //nolint:errcheck // Flush tells
			inertLine(string(r.TargetKind)), r.Event, r.Reason, inertLine(r.RequestRef))
	}
	return tabs.Flush()
}

// canonical is what the request of the file is known by.
func (o *auditVerifyOptions) canonical() ([]byte, error) {
	name, read := o.request, func() ([]byte, error) { return o.readInput(o.request) }
	if o.request == "-" {
		name, read = "standard input", func() ([]byte, error) { return readLimited(o.in) }
	}
	data, err := read()
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	switch f := lifecycle.ParseFrame(data); f.Verdict {
	case lifecycle.Admitted:
		return lifecycle.CanonicalRequest(f.Request)
	case lifecycle.Refused, lifecycle.InvalidTarget:
		return nil, refuse(name, "a frame that is not admitted has no rows")
	}
	docs, err := v1alpha1.Decode(name, data)
	if err != nil {
		return nil, err
	}
	if len(docs) == 1 {
		if r, ok := docs[0].Object.(*v1alpha1.SessionRequest); ok {
			return ledger.Bytes(&r.Spec)
		}
	}
	return nil, refuse(name, "want one SessionRequest, or a request frame")
}

func refuse(file, message string) error {
	return &api.InvalidSpecError{File: file, Problems: []api.Problem{{Message: message}}}
}

// configuredSecret is the secret file that skcd uses.
func configuredSecret(h home.Home, userHome string) (string, error) {
	path := filepath.Join(filepath.Dir(h.Spool), "skcd.yaml")
	var config struct {
		Lifecycle struct {
			SecretFile string `json:"secretFile"`
		} `json:"lifecycle"`
	}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the config of skcd: %w", err)
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return "", fmt.Errorf("config %s: %w", path, err)
	}
	if config.Lifecycle.SecretFile == "" {
		return "", usagef("name the secret with --secret-file: %s has no lifecycle.secretFile", path)
	}
	return home.Expand(config.Lifecycle.SecretFile, userHome), nil
}
