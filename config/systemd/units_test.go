// Package systemd holds the units; its test keeps true what they promise.
package systemd

import (
	"os"
	"strings"
	"testing"
)

// A stop, a restart or an upgrade of the unit must end skcd and nothing else:
// the tmux server may be in the unit's control group where systemd-run could not
// give it a scope of its own. No systemd runs where this is tested, so the test
// reads what systemd would.
func TestUnitsEndNoSession(t *testing.T) {
	for _, unit := range []string{"skcd.user.service", "skcd@.service"} {
		t.Run(unit, func(t *testing.T) {
			data, err := os.ReadFile(unit)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for line := range strings.Lines(string(data)) {
				if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(k, "#") {
					got[k] = v
				}
			}
			for k, want := range map[string]string{
				"KillMode":                 "process",  // the default, control-group, takes everything down
				"SendSIGHUP":               "no",       // shells would end by it
				"OOMPolicy":                "continue", // the default, stop, ends the unit for one session's death
				"Delegate":                 "yes",      // a group for each session is made below
				"RestartPreventExitStatus": "2 3",
			} {
				if got[k] != want {
					t.Errorf("%s=%s, want %s", k, got[k], want)
				}
			}
			if strings.HasPrefix(unit, "skcd@") && got["RuntimeDirectoryPreserve"] != "yes" {
				t.Error("the socket of a living tmux server would be removed with the runtime directory")
			}
			for _, k := range []string{"ExecStop", "ExecStopPost", "MemoryMax", "TasksMax", "RuntimeMaxSec"} {
				if v, ok := got[k]; ok {
					t.Errorf("%s=%s would act on sessions", k, v)
				}
			}
		})
	}
}
