//go:build e2e

package faults

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"skc.dev/skc/hack/e2e/world"
)

// No release can be told to break itself.
func TestReleaseHasNoFaultPoints(t *testing.T) {
	t.Parallel()
	names := map[string]bool{"SKC_FAULT": true}
	for _, p := range places {
		name, _, _ := strings.Cut(p, ":")
		names[name] = true
	}
	// Before a symbol of a package or of a type stands one of these.
	holds := func(data []byte, name string) bool {
		return regexp.MustCompile(`[^*/]` + regexp.QuoteMeta(name)).Match(data)
	}
	release := filepath.Join(world.Root(), "bin")
	for _, program := range []string{"skcd", "skcctl", "skc-launch"} {
		data, err := os.ReadFile(filepath.Join(release, program))
		world.Must(t, err)
		for name := range names {
			if holds(data, name) {
				t.Errorf("%s holds %s", program, name)
			}
		}
	}
	// The search sees them where they are.
	data, err := os.ReadFile(filepath.Join(bin, "skcd"))
	world.Must(t, err)
	for name := range names {
		if !holds(data, name) {
			t.Errorf("the test build does not hold %s: the search is blind", name)
		}
	}
	out, err := exec.Command(filepath.Join(release, "skcd"), "--list-fault-points").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "no fault points") {
		t.Errorf("--list-fault-points of a release: %v, %s; want exit code 1 and why", err, out)
	}
}
