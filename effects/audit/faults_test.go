//go:build skcfaults

package audit

import (
	"fmt"
	"testing"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// TestEveryCallFails fails each call of the file layer, and each place of the
// step, while rows are added: the call tells, and the same row again is there,
// on a line of its own.
func TestEveryCallFails(t *testing.T) {
	t.Cleanup(func() { _ = fault.Set("") })
	var places []string
	for n := 1; n < 30; n++ {
		places = append(places, fmt.Sprintf("calls=EIO@%d", n), fmt.Sprintf("calls=ENOSPC@%d", n))
	}
	for _, phase := range []fault.Phase{fault.Before, fault.During, fault.After} {
		for n := 1; n <= 2; n++ {
			places = append(places, fmt.Sprintf("audit.append:%s=EIO@%d", phase, n))
		}
	}
	told := 0
	for _, place := range places {
		must(t, fault.Set(place))
		dir := t.TempDir()
		l, err := Open(dir, &files.Layer{})
		if err != nil {
			must(t, fault.Set(""))
			l = open(t, dir, &files.Layer{})
			told++
		}
		for _, e := range []lifecycle.Event{lifecycle.EventAccepted, lifecycle.EventSpawnStarted, lifecycle.EventSuccess} {
			if err := l.Append(row(t, create("/a"), e)); err != nil {
				told++
				must(t, fault.Set(""))
				must(t, l.Append(row(t, create("/a"), e)))
			}
		}
		r := verify(t, dir, "42", nil)
		seen := map[lifecycle.Event]bool{}
		for _, row := range r.Rows {
			seen[row.Event] = true
		}
		if len(seen) != 3 || r.Malformed != 0 || r.Total > 4 {
			t.Errorf("%s: %d kinds of rows of %d, %d malformed", place, len(seen), r.Total, r.Malformed)
		}
	}
	if told < 10 {
		t.Errorf("%d failures were told: the faults do not reach the log", told)
	}
	t.Logf("%d places, %d failures told", len(places), told)
}
