package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skc.dev/skc/effects/files"
)

// On a terminal purge shows what will go, and does it for a yes and nothing else.
func TestPurgeAsks(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		purged       bool
	}{
		{"yes", "yes\n", true},
		{"y, with spaces", " Y \n", true},
		{"no", "n\n", false},
		{"only return", "\n", false},
		{"something else", "yesterday\n", false},
		{"the end of the input", "\x04", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newTestHome(t)
			file := filepath.Join(h.Managed(), "default", "quarantine-web-1.yaml")
			if err := files.MkdirPrivate(h.Managed()); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(keptYAML, "@DIR@", h.dir)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			master, terminal := openTerminal(t)
			defer master.Close() //nolint:errcheck // a terminal
			var shown syncBuffer
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = shown.readFrom(master)
			}()
			if _, err := io.WriteString(master, tt.answer); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			c := &cli{in: terminal, out: &out, err: terminal, clock: h.clock, env: func(string) string { return "" }, cwd: h.dir, homeDir: h.dir}
			code := execute(t.Context(), c, []string{"--home", h.dir, "purge", "web", "--wait=false"})
			_ = terminal.Close()
			<-read
			if said := shown.String(); !strings.Contains(said, "quarantine/web-1, of session/web, from "+h.dir+"/was") || !strings.Contains(said, "Remove it? [y/N]") {
				t.Errorf("it showed %q", said)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if purged := strings.Contains(string(data), "purge: true"); purged != tt.purged || (code == exitOK) != tt.purged {
				t.Errorf("purged: %v, exit code %d; want %v; the file holds %q", purged, code, tt.purged, data)
			}
			if !tt.purged && string(data) != text {
				t.Errorf("the file holds %q", data)
			}
		})
	}
}
