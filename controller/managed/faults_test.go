//go:build skcfaults

package managed_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// TestEveryCallFails fails each call of the file layer, and each place of each
// step, during the life of a definition: the call tells, what is on the disk is
// the old or the new, whole, and the same call again comes to the same end.
func TestEveryCallFails(t *testing.T) {
	t.Cleanup(func() { _ = fault.Set("") })
	var places []string
	for n := 1; n < 40; n++ {
		places = append(places, fmt.Sprintf("calls=EIO@%d", n), fmt.Sprintf("calls=ENOSPC@%d", n))
	}
	for _, point := range []string{"managed.write", "managed.remove", "spool.deletion"} {
		for _, phase := range []fault.Phase{fault.Before, fault.During, fault.After} {
			places = append(places, fmt.Sprintf("%s:%s=EIO", point, phase))
		}
	}
	told := 0
	for _, place := range places {
		must(t, fault.Set(""))
		r := open(t, t.TempDir(), &files.Layer{})
		must(t, fault.Set(place))
		for i, step := range []func() error{
			func() error { return r.Create(t.Context(), quarantine()) },
			func() error {
				return r.Edit(t.Context(), key, func(spec map[string]any) error { spec["restore"] = true; return nil })
			},
			func() error { return r.Remove(t.Context(), key) },
		} {
			if err := step(); err != nil {
				told++
				must(t, fault.Set(""))
				if err := step(); err != nil {
					t.Errorf("%s in step %d, again: %v", place, i, err)
				}
			}
			text, err := os.ReadFile(r.Path(key))
			if gone := errors.Is(err, os.ErrNotExist); gone != (i == 2) {
				t.Errorf("%s after step %d: %v", place, i, err)
			} else if !gone {
				all, err := v1alpha1.Decode("", text)
				must(t, err)
				if got := all[0].Object.(*v1alpha1.Quarantine).Spec.Restore; got != (i == 1) {
					t.Errorf("%s after step %d: restore is %v", place, i, got)
				}
			}
		}
	}
	if told < 20 {
		t.Errorf("only %d faults were told", told)
	}
}
