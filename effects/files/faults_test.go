//go:build skcfaults

package files_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// TestEveryCallFails fails each call of each operation once, and from then on:
// the error is told, what is there is old or new, no temporary stays, and the
// same again makes it so.
func TestEveryCallFails(t *testing.T) {
	t.Cleanup(func() { must(t, fault.Set("")) })
	for name, op := range operations {
		for _, errno := range []string{"EIO", "ENOSPC", "EMFILE", "EROFS", "EDQUOT"} {
			for _, ever := range []string{"", "+"} {
				for n := 1; ; n++ {
					dir := prepare(t)
					must(t, fault.Set(fmt.Sprintf("calls=%s@%d%s", errno, n, ever)))
					err := op.do(&files.Layer{}, dir)
					must(t, fault.Set(""))
					if err == nil { // n is past the last call
						if !isState(t, dir, op.want) {
							t.Errorf("%s: not done", name)
						}
						if n == 1 {
							t.Errorf("%s: no call of it can fail", name)
						}
						break
					}
					if !isState(t, dir, oldFiles) && !isState(t, dir, op.want) {
						t.Errorf("%s with %s at call %d%s: neither old nor new, or a temporary", name, errno, n, ever)
					}
					if isState(t, dir, oldFiles) {
						must(t, op.do(&files.Layer{}, dir))
					}
					if !isState(t, dir, op.want) {
						t.Errorf("%s with %s at call %d%s: a second try did not come to its end", name, errno, n, ever)
					}
				}
			}
		}
	}
}

func TestMkdirPrivateFails(t *testing.T) {
	t.Cleanup(func() { must(t, fault.Set("")) })
	dir := filepath.Join(t.TempDir(), "a", "b")
	must(t, fault.Set("calls=ENOSPC@1"))
	if err := files.MkdirPrivate(dir); err == nil {
		t.Error("MkdirPrivate succeeded, want ENOSPC")
	}
	must(t, files.MkdirPrivate(dir))
}
