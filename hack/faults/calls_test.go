//go:build e2e

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/hack/e2e/world"
)

var errnos = map[string]syscall.Errno{
	"EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC, "EMFILE": syscall.EMFILE, "EROFS": syscall.EROFS, "EDQUOT": syscall.EDQUOT,
}

// failures counts what came of the failing calls.
type failures struct {
	mu                    sync.Mutex
	trials, failed, ended int
	untold                map[string]int // by the place that was come by last before
}

// quiet are the places after which a failure need not be told, and why.
var quiet = map[string]string{
	"spool.fence:before": "a file that is written in place is then read by time alone, and not sooner",
	"spool.fence:during": "as above",
	"store.keep:before":  "an older version that is kept beside a whole file does no harm",
}

// R5: each call of the file layer fails once. The change is done all the same,
// by the same controller unless it ended before it had the home ready; nothing
// else is touched, and the failure is told.
func TestCallFailsOnce(t *testing.T) {
	by := comeBy(t)
	f := failures{untold: map[string]int{}}
	t.Run("with", func(t *testing.T) {
		for i, errno := range []string{"EIO", "ENOSPC", "EMFILE"} {
			for _, k := range kinds {
				if k.also != nil {
					continue
				}
				// Some more than were counted: the number is not quite the same each time. Each
				// call fails with one of the three, or every thirtieth does.
				last, step := by[k.name]["calls"]+5, 3
				first := 1 + (i+random(k.name).IntN(step))%step
				if !*full {
					step = 90
					first = 1 + random(k.name+errno).IntN(step)
				}
				for n := first; n <= last; n += step {
					t.Run(fmt.Sprintf("%s/%s/%d", errno, k.name, n), func(t *testing.T) {
						t.Parallel()
						failOnce(t, &f, k, errno, n)
					})
				}
			}
		}
	})
	report.printf("TestCallFailsOnce: %d trials, %d with a failure; %d controllers ended by it and were started again; told nowhere, after the place: %v",
		f.trials, f.failed, f.ended, f.untold)
}

func failOnce(t *testing.T, f *failures, k *kind, errno string, n int) {
	tr := newTrial(t, k)
	c := tr.broken(fmt.Sprintf("calls=%s@%d,%s", errno, n, everyPlace()), true)
	what := wait(healLimit, func() string {
		if !c.Alive() {
			return ""
		}
		return tr.undone()
	})
	ended := !c.Alive()
	if ended && c.Cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("skcd ended with %s", c.Cmd.ProcessState)
	}
	failed := fired(c)["calls"] > 0
	if ended && !failed {
		t.Error("skcd ended without a failure")
	}
	told := tr.tells(c, errnos[errno])
	if what != "" {
		t.Errorf("lost: after %s: %s", healLimit, what)
	}
	if ended || what != "" {
		tr.Stop(syscall.SIGKILL)
		tr.heal()
	}
	for _, what := range tr.check() {
		t.Error(what)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trials++
	if !failed {
		return
	}
	f.failed++
	if ended {
		f.ended++
	}
	if !told {
		before, _, _ := strings.Cut(c.Text(), "SKC_FAULT: calls")
		last := before[strings.LastIndex(before, "SKC_FAULT: ")+1:]
		last = strings.TrimSpace(strings.TrimPrefix(last, "KC_FAULT: "))
		f.untold[last]++
		if why, ok := quiet[last]; !ok {
			t.Errorf("the failure of call %d, after %s, is told nowhere", n, last)
		} else {
			t.Logf("the failure of call %d, after %s, is told nowhere: %s", n, last, why)
		}
	}
}

// tells looks for the error where people look: the log, the status, what is
// reported of the sources, the events.
func (t *trial) tells(c *world.Controller, errno syscall.Errno) bool {
	if strings.Contains(c.Text(), errno.Error()) {
		return true
	}
	found := false
	_ = filepath.WalkDir(t.State, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			data, _ := os.ReadFile(path)
			found = found || strings.Contains(string(data), errno.Error())
		}
		return nil
	})
	return found
}

// R5, R6: from some call on every one fails, as on a full or a broken disk. No
// session notices; a controller that is started when the disk is good again
// brings all right.
func TestCallsFailForEver(t *testing.T) {
	by := comeBy(t)
	each, some := 12, 1
	if !*full {
		each, some = 1, 3
	}
	var mu sync.Mutex
	failed, ended := 0, 0
	t.Run("with", func(t *testing.T) {
		for _, k := range kinds {
			if k.also != nil || random(k.name).IntN(some) != 0 {
				continue
			}
			for i := range each {
				t.Run(fmt.Sprintf("%s/%d", k.name, i), func(t *testing.T) {
					t.Parallel()
					tr := newTrial(t, k)
					names := []string{"EIO", "ENOSPC", "EMFILE", "EROFS", "EDQUOT"}
					errno := names[tr.rand.IntN(len(names))]
					n := 1 + tr.rand.IntN(max(1, by[k.name]["calls"]))
					c := tr.broken(fmt.Sprintf("calls=%s@%d+", errno, n), true)
					_ = wait(2*time.Second, func() string { // it cannot come to its end
						if !c.Alive() {
							return ""
						}
						return "alive"
					})
					hits := fired(c)["calls"]
					if hits > 0 && !tr.tells(c, errnos[errno]) {
						t.Errorf("%s from call %d on is told nowhere", errno, n)
					}
					if hits > 1000 {
						t.Errorf("%d calls failed within two seconds: nothing is waited for between tries", hits)
					}
					mu.Lock()
					if hits > 0 {
						failed++
					}
					if !c.Alive() {
						ended++
					}
					mu.Unlock()
					tr.settleFailing(c)
					tr.heal()
					for _, what := range tr.check() {
						t.Errorf("%s from call %d on: %s", errno, n, what)
					}
				})
			}
		}
	})
	report.printf("TestCallsFailForEver: %d trials with failures, %d controllers ended by them", failed, ended)
}

// settleFailing asks a controller whose disk fails to end.
func (t *trial) settleFailing(c *world.Controller) {
	if c.Alive() {
		_ = c.Cmd.Process.Signal(syscall.SIGTERM)
		c.Wait()
	}
	if code := c.Cmd.ProcessState.ExitCode(); code != 0 && code != 1 {
		t.Errorf("skcd ended with %s", c.Cmd.ProcessState)
	}
}
