package launch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/launch/plan"
	"skc.dev/skc/effects/process"
)

// startLimit is how long Started waits: far longer than a launcher takes, even
// on a machine that swaps.
const startLimit = 5 * time.Second

// Started waits until the launcher, which runs as process p, has become the
// program of its launch file, and returns true; false when it reported a
// failure, or ended, or when that takes longer than 5 s. The kernel tells nobody
// of an exec, so it looks, some times within the two milliseconds that it takes.
func Started(ctx context.Context, clk clock.Clock, dir string, id effects.LaunchID, p effects.ProcessID, launcher string) bool {
	if real, err := filepath.EvalSymlinks(launcher); err == nil {
		launcher = real
	}
	path := filepath.Join(dir, id.FileName())
	end := clk.Now().Add(startLimit)
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if alive, err := process.Alive(p); err != nil || !alive {
			return false
		}
		if !exists(path+plan.FailedSuffix) && !exists(path) && !runs(p.PID, launcher) {
			return true
		}
		if !clk.Now().Before(end) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-clk.After(wait):
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
