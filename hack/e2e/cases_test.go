//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/hack/e2e/world"
)

// caseDir copies a case into the world, @WORK@ replaced, and returns its folder.
func caseDir(w *world.World, name string) string {
	w.Helper()
	from := filepath.Join("testdata", "cases", name)
	to := filepath.Join(w.Dir, "case")
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(path, ".sh") {
			data = bytes.ReplaceAll(data, []byte("@WORK@"), []byte(w.Work))
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, rel)), 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o600)
	})
	world.Must(w, err)
	return to
}

// caseFile is one file of a case, @WORK@ replaced.
func caseFile(w *world.World, name, file string) string {
	w.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "cases", name, file))
	world.Must(w, err)
	return strings.ReplaceAll(string(data), "@WORK@", w.Work)
}

// steps runs a case's steps.sh unchanged and returns what it printed.
func steps(w *world.World, name string, env ...string) string {
	w.Helper()
	dir := caseDir(w, name)
	lib, err := filepath.Abs("lib.sh")
	world.Must(w, err)
	self, err := os.Executable()
	world.Must(w, err)
	logs := filepath.Join(w.Dir, "logs")
	world.Must(w, os.MkdirAll(logs, 0o700))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `. "$0"; cd "$1"; . ./steps.sh`, lib, dir)
	cmd.Env = append([]string{
		"PATH=" + w.Bin + ":" + os.Getenv("PATH"), "HOME=" + w.Dir, "SKC_HOME=" + w.Home,
		"WORK=" + w.Work, "SPOOL=" + w.Spool, "STATE=" + w.State, "LOGS=" + logs,
		"TMX=tmux -S " + w.Socket(), "E2E_READY=" + self, "E2E_SETTLE=3",
	}, env...)
	if c := w.Now(); c != nil {
		cmd.Env = append(cmd.Env, "E2E_PID="+strconv.Itoa(c.PID()))
		c.Ended = true // the script may stop it
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if cmd.ProcessState == nil {
		w.Fatal(err)
	}
	if cmd.ProcessState.ExitCode() == 77 {
		w.Skip("the case cannot be run here: " + out.String())
	}
	// A last command that finds nothing, as a grep, is no failure; fail says FAIL.
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 || strings.Contains(out.String(), "FAIL") {
		log, _ := os.ReadFile(filepath.Join(logs, "skcd.log"))
		w.Errorf("steps.sh of %s: %v\n%s\nskcd:\n%s", name, err, out.String(), log)
	}
	stopStrays(w)
	return strings.TrimSpace(out.String())
}

// stopStrays ends the controllers that a script left.
func stopStrays(w *world.World) {
	w.Helper()
	for _, pid := range w.Controllers() {
		if w.Now() == nil || pid != w.Now().PID() {
			w.Kill(pid, syscall.SIGTERM)
			w.Until("the script's skcd ends", func() bool { return !world.Lives(pid) })
		}
	}
}

// Case 002, B-004: agent-10 keeps its pid while agent-1 comes and goes.
func TestCase002PrefixSibling(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	steps(w, "002-prefix-sibling")
}

// Case 006, B-013: arguments longer than tmux takes.
func TestCase006ArgvLong(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	if out := steps(w, "006-argv-long"); out != "" {
		t.Errorf("printed %q", out)
	}
}

// Case 007, B-014: the environment comes from spec and config, not from who
// started first.
func TestCase007EnvFromFirstStarter(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	out := steps(w, "007-env-from-first-starter")
	for _, s := range []string{"show1", "show2"} {
		file := filepath.Join(w.Work, s, "out")
		if !strings.Contains(out, file+":BAR=2") {
			t.Errorf("BAR=2 is not in %s", file)
		}
		if !strings.Contains(out, file+":TMUX="+w.Socket()+",") {
			t.Errorf("TMUX in %s is not the private server", file)
		}
	}
	if strings.Contains(out, "FOO=") {
		t.Errorf("the starter's FOO is in a session:\n%s", out)
	}
}

// Case 010, B-028: fifty who apply at once, a hundred touches, one start.
func TestCase010ParallelApplyOneProcess(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	out := steps(w, "010-parallel-apply-one-process")
	if last := out[strings.LastIndexByte(out, '\n')+1:]; last != "1" {
		t.Errorf("%s starts, want 1\n%s", last, out)
	}
	if n := strings.Count(out, "session/once created"); n != 1 {
		t.Errorf("created %d times, want once", n)
	}
	if n := strings.Count(out, "session/once unchanged"); n != 49 {
		t.Errorf("%d were told unchanged, want 49:\n%s", n, out)
	}
	w.Main("once")
}

// Case 011, B-029: two that start at once; one stays, one start of keep.
func TestCase011TwoControllers(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Write(filepath.Join(w.Spool, "keep.yaml"), caseFile(w, "011-two-controllers", "keep.yaml"))
	steps(w, "011-two-controllers")
	if n := w.Starts("keep/log"); n != 1 {
		t.Errorf("keep was started %d times, want once", n)
	}
	log, err := os.ReadFile(filepath.Join(w.Dir, "logs", "skcd.log"))
	world.Must(w, err)
	if n := strings.Count(string(log), "owns this home"); n != 20 {
		t.Errorf("the loser named the owner %d times, want 20:\n%s", n, log)
	}
}

// Case 014, B-035: the same small pid again and again in a fresh pid namespace.
func TestCase014SamePidAfterRestart(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "-p", "-f", "--mount-proc", "true").Run(); err != nil {
		t.Skip("pid namespaces are not to be had (77)")
	}
	w := world.New(t)
	steps(w, "014-same-pid-after-restart")
}

// Case 016, B-038: a slow writer restarts nothing.
func TestCase016SlowWriter(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	if out := steps(w, "016-slow-writer"); out != "full-argument" {
		t.Errorf("the log has %q, want full-argument alone", out)
	}
	w.UntilCondition("slow", "SourceAccepted", "True/Accepted")
}

// Case 021, B-050: a hundred swaps of ..data.
func TestCase021DotdotDataSwap(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	out := steps(w, "021-dotdot-data-swap")
	if !strings.HasPrefix(out, "v100\n") {
		t.Errorf("the last to run is not v100:\n%s", out)
	}
	table := strings.Split(w.MustCtl("get", "-A", "-o", "name"), "\n")
	if len(table) != 2 || !strings.HasSuffix(table[0], "/cm") {
		t.Errorf("sessions: %q, want cm alone", table)
	}
}

// Case 027, B-065: a full disk under the state.
func TestCase027DiskFull(t *testing.T) {
	needRoot(t)
	t.Parallel()
	w := world.New(t)
	world.Must(w, os.Mkdir(w.State, 0o700))
	mountTmpfs(w, w.State, "size=256k,mode=0700")
	w.Start()
	out := steps(w, "027-disk-full")
	for _, line := range strings.Split(out, "\n") {
		// The lock and the fence of the watch are there to be locked and seen.
		if b := filepath.Base(line); strings.HasPrefix(line, w.State) && b != ".spool.lock" && b != ".fence" {
			t.Errorf("an empty state file: %s", line)
		}
	}
	if n := w.Starts("d/log"); n != 1 {
		t.Errorf("d was started %d times, want once\n%s", n, out)
	}
	w.Start()
	w.UntilRunning("d")
}

// mountTmpfs mounts a tmpfs on dir until the end of the test.
func mountTmpfs(w *world.World, dir, options string) {
	w.Helper()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput(); err != nil {
		w.Skipf("a tmpfs cannot be mounted: %s", out)
	}
	w.BeforeRemoval(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			w.Errorf("umount %s: %s", dir, out)
		}
	})
}

// long runs the slow cases' own scripts too.
var long = flag.Bool("long", false, "run the steps.sh of the slow cases unchanged as well")

// The scripts of the slow cases, unchanged. What they hold is held by the
// shorter tests that coverage names; these show that the words are enough. Not
// 029: at a point that only a delete passes its script leaves no controller to
// end the session.
func TestSlowScripts(t *testing.T) {
	if !*long {
		t.Skip("takes minutes: go test -tags e2e ./hack/e2e -run TestSlowScripts -args -long")
	}
	for _, name := range []string{"009-stubborn-children", "017-remove-and-put-back"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			w.Start()
			steps(w, name)
		})
	}
	t.Run("019-event-overflow", func(t *testing.T) {
		needRoot(t)
		w := world.New(t)
		if out := steps(w, "019-event-overflow"); !strings.HasSuffix(out, "250") {
			t.Errorf("printed %q, want 250", out)
		}
	})
}
