//go:build skcfaults

package quarantine

import (
	"fmt"
	"strings"
	"testing"

	"skc.dev/skc/effects/fault"
)

// TestEveryCallFails fails each call on the disk once, and from then on, and
// each phase of each step: nothing is lost, and the same again comes to its end.
func TestEveryCallFails(t *testing.T) {
	t.Cleanup(func() { must(t, fault.Set("")) })
	for i, call := range calls {
		var places []string
		for n := range 30 {
			for _, errno := range []string{"EIO", "ENOSPC"} {
				places = append(places, fmt.Sprintf("calls=%s@%d", errno, n+1), fmt.Sprintf("calls=%s@%d+", errno, n+1))
			}
		}
		for _, place := range kills(call) {
			if !strings.HasPrefix(place, "calls") {
				places = append(places, strings.Replace(place, "kill", "EIO", 1))
			}
		}
		failed := 0
		for _, place := range places {
			w := newWorldIn(t, memory(t))
			origin := w.tree("web")
			before := sums(t, origin)
			id := "x"
			for _, c := range calls[:i] {
				must(t, do(t.Context(), w.Store, c, id, origin))
				if c == "restore" {
					id = "y"
				}
			}
			must(t, fault.Set(place))
			err := do(t.Context(), w.Store, call, id, origin)
			must(t, fault.Set(""))
			if err != nil {
				failed++
			}
			if call != "purge" {
				wantOnce(t, w, before, origin)
			}
			w.again(t, call, id, origin)
			w.wantAfter(t, call, origin, before)
			if t.Failed() {
				t.Fatalf("%s with %s", call, place)
			}
		}
		if failed < 10 {
			t.Errorf("%s: only %d of %d failed", call, failed, len(places))
		}
	}
}
