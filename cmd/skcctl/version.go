package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"skc.dev/skc/api/v1alpha1"
)

// version is set when a release is built.
var version = ""

// buildInfo is what version prints.
type buildInfo struct {
	Version    string `json:"version"`
	Revision   string `json:"revision,omitempty"`
	Modified   bool   `json:"modified,omitempty"`
	APIVersion string `json:"apiVersion"`
	GoVersion  string `json:"goVersion"`
	Platform   string `json:"platform"`
}

func readBuildInfo() buildInfo {
	info := buildInfo{
		Version: "unknown", APIVersion: v1alpha1.GroupVersion.String(),
		GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	if info.Version = version; version == "" {
		info.Version = b.Main.Version
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Revision = s.Value
		case "vcs.modified":
			info.Modified = s.Value == "true"
		}
	}
	return info
}

func newVersion(c *cli) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which skcctl this is",
		Example: `  skcctl version
  skcctl version -o json`,
		Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			info := readBuildInfo()
			switch output {
			case "":
				return c.printf("skcctl %s (%s, %s, %s)\n", info.Version, info.APIVersion, info.GoVersion, info.Platform)
			case "json":
				return writeJSON(c.out, info)
			}
			return usagef("output %q is not json", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FORM` of the output: json")
	return cmd
}

// writeJSON prints v for programs, and for people who look.
func writeJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}
