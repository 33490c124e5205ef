//go:build e2e

package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skc.dev/skc/hack/e2e/world"
)

// B-026: nothing that looks for left-overs takes a session for one that was
// made and not yet recorded.
func TestB026SlowRecord(t *testing.T) {
	t.Parallel()
	const sessions = 30
	tr := newTrial(t, &kind{})
	tr.cold = false
	tr.kind.change = func(tr *trial) {
		for i := range sessions {
			name := fmt.Sprintf("s%d", i)
			tr.Drop(name+".yaml", tr.spec(name, "v1", running))
		}
	}
	c := tr.broken("tmux.create:after=200ms@1+", true, "--resync=100ms")
	tr.until(world.Patience, func() string {
		for i := range sessions {
			if name := fmt.Sprintf("s%d", i); tr.Condition(name, "Ready") != "True/Running" {
				return name + " is not Ready"
			}
		}
		return ""
	})
	if n := fired(c)["tmux.create:after"]; n != sessions {
		t.Errorf("%d creates, want %d", n, sessions)
	}
	for i := range sessions {
		name := fmt.Sprintf("s%d", i)
		if had := tr.log.versions(name); !slices.Equal(had, []string{"v1"}) || len(tr.log.alive(name)) != 1 {
			t.Errorf("%s was started %d times and %d run, want one", name, len(had), len(tr.log.alive(name)))
		}
	}
	if all := tr.log.twins(); len(all) > 0 {
		t.Errorf("at one time there were %s", strings.Join(all, "; "))
	}
}
