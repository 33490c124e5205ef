//go:build e2e

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skc.dev/skc/hack/e2e/world"
)

// First check the checker: what a broken controller would leave is made by
// hand, and must be found.
func TestTheChecksSee(t *testing.T) {
	if !*full {
		t.Skip("only with -full")
	}
	stop := kindNamed(t, "stop")
	for name, tt := range map[string]struct {
		kind *kind
		harm func(*trial)
		want string
	}{
		"a controller that forgot all it knew": {kindNamed(t, "create-plain"), func(tr *trial) {
			tr.Stop(syscall.SIGKILL)
			world.Must(tr, os.Rename(filepath.Join(tr.State, "objects"), filepath.Join(tr.Dir, "objects")))
			tr.clean()
			_ = wait(world.Patience, func() string {
				if len(tr.uids()) > 1 {
					return ""
				}
				return "one UID"
			})
		}, "one name had the UIDs"},
		"a second program": {kindNamed(t, "create-plain"), func(tr *trial) {
			again(tr)
		}, "at one time there were"},
		"a program that should not run": {stop, func(tr *trial) { again(tr) }, "lost"},
		"a session that was stopped beside": {stop, func(tr *trial) {
			tr.Kill(tr.log.last(neighbour).pid, syscall.SIGKILL)
			_ = wait(world.Patience, func() string {
				if len(tr.log.versions(neighbour)) == 2 {
					return ""
				}
				return "not yet"
			})
		}, "touched"},
		"a temporary": {stop, func(tr *trial) {
			world.Must(tr, os.WriteFile(filepath.Join(tr.State, "objects", ".x.tmp"), nil, 0o600))
		}, "temporary"},
		"a launch file": {stop, func(tr *trial) {
			world.Must(tr, os.WriteFile(filepath.Join(tr.State, "launch", "x"), nil, 0o600))
		}, "launch file"},
		"a tmux session": {stop, func(tr *trial) {
			tr.MustTmux("new-session", "-d", "-s", "left", "true", tr.uids()[0])
		}, "tmux session"},
		"other work than was set aside": {kindNamed(t, "delete-worktree"), func(tr *trial) {
			tr.Write(filepath.Join(tr.things()[0], "work"), "theirs")
		}, "lost: what is at"},
		"a commit that nothing holds": {kindNamed(t, "purge"), func(tr *trial) {
			for _, ref := range strings.Fields(tr.mustGit(tr.app(), "for-each-ref", "--format=%(refname)", "refs/skc")) {
				tr.mustGit(tr.app(), "update-ref", "-d", ref)
			}
		}, "no ref holds"},
		"work that is there twice": {kindNamed(t, "delete-folder"), func(tr *trial) {
			world.Must(tr, os.Mkdir(tr.place, 0o700))
		}, "where it was"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTrial(t, tt.kind)
			tr.kind.change(tr)
			tr.heal()
			tt.harm(tr)
			if found := strings.Join(tr.check(), "\n"); !strings.Contains(found, tt.want) {
				t.Errorf("found %q, want %q in it", found, tt.want)
			}
			tr.Stop(syscall.SIGKILL) // what is left would be found at the end too
			world.Must(t, os.RemoveAll(filepath.Join(tr.State, "objects")))
		})
	}
}

func kindNamed(t *testing.T, name string) *kind {
	t.Helper()
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	t.Fatalf("there is no kind %s", name)
	return nil
}

// again starts the subject's program once more, beside skc.
func again(tr *trial) {
	before := len(tr.log.all())
	cmd := exec.Command("sh", "-c", fmt.Sprintf(child+program, tr.log.path), "v1")
	cmd.Env = append(os.Environ(), "SKCE_WORLD="+tr.Dir, "SKC_SESSION_UID="+tr.uids()[0], "SKC_SESSION_NAME="+subject, "SKC_SESSION_NAMESPACE=default")
	world.Must(tr, cmd.Start())
	go func() { _ = cmd.Wait() }()
	_ = wait(world.Patience, func() string {
		if len(tr.log.all()) > before {
			return ""
		}
		return "not yet"
	})
}
