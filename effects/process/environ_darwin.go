package process

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// scan calls found for each process of this user whose environment is that of a
// session, as whose says, and returns nil only after a complete look. It looks again while
// something that was listed is gone when it is looked into: it may have forked.
func scan(ctx context.Context, whose func(env []byte) string, found func(uid string, id effects.ProcessID)) error {
	seen := map[effects.ProcessID]bool{}
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		all, err := unix.SysctlKinfoProcSlice("kern.proc.uid", os.Getuid())
		if err != nil {
			return fmt.Errorf("list the processes: %w", err)
		}
		again := false
		for i := range all {
			id := effects.ProcessID{PID: int(all[i].Proc.P_pid), StartTime: started(&all[i])}
			if seen[id] || id.PID < 2 || zombie(&all[i]) {
				continue
			}
			seen[id] = true
			raw, err := unix.SysctlRaw("kern.procargs2", id.PID)
			if errors.Is(err, unix.ESRCH) {
				again = true
				continue
			}
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
				// Gone, or not to be looked into.
				if alive, err := Alive(id); err == nil && !alive {
					again = true
				}
				continue
			}
			if err != nil {
				return fmt.Errorf("read the environment of process %d: %w", id.PID, err)
			}
			uid := whose(environOf(raw))
			if uid == "" {
				continue
			}
			alive, err := Alive(id)
			if err != nil {
				return err
			}
			if !alive {
				again = true
				continue
			}
			found(uid, id)
		}
		if !again {
			return nil
		}
	}
}

// environOf cuts the environment out of what KERN_PROCARGS2 gives: the count
// of arguments, the program's path, zeros, the arguments, the environment.
func environOf(raw []byte) []byte {
	if len(raw) < 4 {
		return nil
	}
	argc := int(binary.NativeEndian.Uint32(raw))
	rest := raw[4:]
	next := func() {
		if i := bytes.IndexByte(rest, 0); i >= 0 {
			rest = rest[i+1:]
		} else {
			rest = nil
		}
	}
	next()
	for len(rest) > 0 && rest[0] == 0 {
		rest = rest[1:]
	}
	for range argc {
		if len(rest) == 0 {
			return nil
		}
		next()
	}
	return rest
}
