//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skc.dev/skc/hack/e2e/world"
)

// TestRecordedCleanup holds docs/cleanup-session.txt to what the programs do: it
// is recorded anew, which checks each exit code and that every byte came back,
// and has the commands of the one that is kept.
func TestRecordedCleanup(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	top, out := w.Dir+"-rec", filepath.Join(w.Dir, "record.txt")
	cmd := exec.Command(filepath.Join(world.Root(), "hack", "record-cleanup.sh"), out)
	cmd.Env = append(os.Environ(), "SKC_BIN="+w.Bin, "SKC_RECORD="+top)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, said)
	}
	got, want := commands(t, out), commands(t, filepath.Join(world.Root(), "docs", "cleanup-session.txt"))
	got = strings.ReplaceAll(got, top, "/tmp/skc-cleanup")
	if got != want {
		t.Errorf("record it anew with hack/record-cleanup.sh; its commands are\n%s\nand not\n%s", got, want)
	}
}

// commands are the lines of a record that were typed, without what differs each
// time.
func commands(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for line := range strings.Lines(string(data)) {
		switch {
		case !strings.HasPrefix(line, "$ ") && !strings.HasPrefix(line, "[exit code"):
		case strings.HasPrefix(line, "$ skcctl describe quarantine "):
			all.WriteString("$ skcctl describe quarantine\n")
		default:
			all.WriteString(line)
		}
	}
	return all.String()
}
