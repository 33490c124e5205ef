package effects

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

func TestDiskFull(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("No space left on device"), false},
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, true},
		{fmt.Errorf("x: %w", syscall.EDQUOT), true},
		{fmt.Errorf("x: %w", &CommandError{Stderr: "fatal: could not write: No space left on device\n"}), true},
		{&CommandError{Stderr: "fatal: bad object HEAD"}, false},
	} {
		if got := DiskFull(c.err); got != c.want {
			t.Errorf("DiskFull(%v) = %v", c.err, got)
		}
	}
}
