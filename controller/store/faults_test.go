package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects/fault"
)

// childEnv makes the test binary live one object's life in the folder it names.
const childEnv = "STORE_TEST_CHILD"

func child(dir string) int {
	s, err := store.Open(context.Background(), options(dir))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for i, step := range life {
		if err := step(s); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("done", i)
	}
	return 0
}

var uid = regexp.MustCompile(`^[0-9a-f-]{36} `)

// states are the states of an unbroken life, without UIDs.
func states(t *testing.T) []string {
	s := open(t, scratch(t)+"/objects")
	all := []string{"none"}
	for _, step := range life {
		if err := step(s); err != nil {
			t.Fatal(err)
		}
		all = append(all, uid.ReplaceAllString(stateOf(t, s), ""))
	}
	return all
}

// TestKilled kills a process at each place of each step of the store, each time
// it comes there: what is found is what was acknowledged last, or what was
// under way, and nothing else lies there.
func TestKilled(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs a build with the tag skcfaults")
	}
	want := states(t)
	for _, place := range fault.List() {
		if !strings.HasPrefix(place, "store.") {
			continue
		}
		for n := 1; ; n++ {
			dir := scratch(t) + "/objects"
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+dir, fmt.Sprintf("SKC_FAULT=%s=kill@%d", place, n))
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err == nil {
				if n == 1 {
					t.Errorf("%s was never reached", place)
				}
				break // it comes there less often
			} else if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%s: %v\n%s", place, err, out)
			}
			done := strings.Count(string(out), "done")
			s := open(t, dir)
			got := uid.ReplaceAllString(stateOf(t, s), "")
			if got != want[done] && got != want[done+1] {
				t.Errorf("%s, time %d: %s\nafter step %d, want %s", place, n, got, done, want[done])
			}
			if p := s.Problems(); len(p) != 0 {
				t.Errorf("%s, time %d: problems %+v", place, n, p)
			}
			for _, step := range life[done:] {
				if err := step(s); err != nil {
					t.Errorf("%s, time %d: going on: %v", place, n, err)
				}
			}
			if left := filesIn(t, dir); len(left) != 0 {
				t.Errorf("%s, time %d: left behind: %v", place, n, left)
			}
		}
	}
}

// TestEveryCallFails fails each call of the file layer during an object's life,
// once and from then on until it is mended. The step tells, memory and disk
// hold the state before it or after it, and the same step again, or again
// after a start, comes to the same end as in an unbroken life.
func TestEveryCallFails(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs a build with the tag skcfaults")
	}
	t.Cleanup(func() { setFault(t, "") })
	want := states(t)
	for _, reopen := range []bool{false, true} {
		for _, how := range []string{"EIO@%d", "ENOSPC@%d+"} {
			// What was kept and is old is removed if that works, so a few calls may
			// fail without anybody's notice.
			for n, unnoticed := 1, 0; unnoticed < 10; n++ {
				setFault(t, "")
				dir := scratch(t) + "/objects"
				s := open(t, dir)
				setFault(t, fmt.Sprintf("calls="+how, n))
				failed := false
				for i, step := range life {
					err := step(s)
					if err != nil {
						failed = true
						setFault(t, "")
						what := fmt.Sprintf("call %d of %s in step %d (%v)", n, how, i, err)
						mem := uid.ReplaceAllString(stateOf(t, s), "")
						disk := uid.ReplaceAllString(stateOf(t, open(t, dir)), "")
						if mem != want[i] || disk != want[i] && disk != want[i+1] {
							t.Fatalf("%s: memory %s\ndisk %s\nwant %s", what, mem, disk, want[i])
						}
						if reopen {
							s = open(t, dir)
						}
						if err := step(s); err != nil {
							t.Fatalf("%s: again: %v", what, err)
						}
					}
					if diff := cmp.Diff(want[i+1], uid.ReplaceAllString(stateOf(t, s), "")); diff != "" {
						t.Fatalf("call %d of %s, after step %d (-want +got):\n%s", n, how, i, diff)
					}
				}
				if left := filesIn(t, dir); len(left) != 0 {
					t.Errorf("call %d of %s: left behind: %v", n, how, left)
				}
				if unnoticed++; failed {
					unnoticed = 0
				}
			}
		}
	}
}
