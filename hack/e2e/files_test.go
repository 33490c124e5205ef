//go:build e2e

package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/hack/e2e/world"
)

// B-062: spool, state, run and TMPDIR each on a file system of its own: every
// write works, for temporaries are made beside their targets.
func TestB062FourFileSystems(t *testing.T) {
	needRoot(t)
	t.Parallel()
	w := world.New(t)
	tmp := filepath.Join(w.Dir, "tmp")
	for _, d := range []string{w.State, w.Run, tmp} {
		world.Must(t, os.Mkdir(d, 0o700))
	}
	for _, d := range []string{w.Spool, w.State, w.Run, tmp} {
		mountTmpfs(w, d, "size=8m,mode=0700")
	}
	w.Env = []string{"TMPDIR=" + tmp}
	w.Start()
	w.Apply(session("apart", sleeper))
	p := w.UntilRunning("apart")
	w.MustCtl("stop", "apart")
	w.UntilCondition("apart", "Ready", "True/Stopped")
	w.MustCtl("start", "apart")
	if again := w.UntilRunning("apart"); again == p {
		t.Error("it was not started again")
	}
	w.Stop(syscall.SIGKILL)
	w.Start()
	w.UntilRunning("apart")
	w.MustCtl("delete", "session", "apart", "--wait")
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("TMPDIR holds %v (%v)", left, err)
	}
}

// B-065, R6: 0, 1 and 4096 bytes left where the state is: sessions keep their
// pids, no state file is cut, the reason is told, stop and delete are taken up
// when there is space again.
func TestB065DiskFull(t *testing.T) {
	needRoot(t)
	t.Parallel()
	w := world.New(t)
	world.Must(t, os.Mkdir(w.State, 0o700))
	mountTmpfs(w, w.State, "size=512k,mode=0700")
	w.Start()
	pids := several(w, 3)
	fill := filepath.Join(w.State, "fill")
	for round, left := range []int64{0, 1, 4096} {
		_ = exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=512").Run() // ends with "no space left"
		world.Must(t, os.Chmod(fill, 0o600))
		fi, err := os.Stat(fill)
		world.Must(t, err)
		world.Must(t, os.Truncate(fill, fi.Size()-left))
		extra := fmt.Sprintf("extra-%d", round)
		w.Drop(extra+".yaml", session(extra, sleeper)) // the spool is on another disk
		if round == 1 {
			w.Stop(syscall.SIGKILL)
			if _, ready := w.StartOrDie(); !ready {
				if text := w.Now().Text(); !strings.Contains(text, "no space") {
					t.Errorf("%d left: skcd ended without the reason: %s", left, text)
				}
			}
		}
		w.Always(3*time.Second, "all keep their pids", func() bool {
			for name, pid := range pids {
				if !slices.Equal(w.Mains(name), []int{pid}) {
					return false
				}
			}
			return true
		})
		world.Must(t, filepath.WalkDir(filepath.Join(w.State, "objects"), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			if fi, err := d.Info(); err == nil && fi.Size() == 0 {
				t.Errorf("%d left: %s is empty", left, path)
			}
			return nil
		}))
		world.Must(t, os.Remove(fill))
		if !w.Now().Alive() {
			w.Stop(syscall.SIGTERM)
			w.Start()
		}
		w.UntilRunning(extra)
		w.Remove(extra + ".yaml")
		w.UntilGone(extra)
		same(w, pids)
	}
}

// B-067, R1, case 029: skcd killed at every place of every durable step of a
// create and the delete after it: one start, one process, and none after the
// delete. hack/faults has every kind of change.
func TestB067CrashAtEveryPoint(t *testing.T) {
	out, err := exec.Command(filepath.Join(world.Root(), "bin/faults/skcd"), "--list-fault-points").Output()
	world.Must(t, err)
	points := strings.Fields(string(out))
	if len(points) < 14 {
		t.Fatalf("%d fault points, want at least 14: %q", len(points), points)
	}
	const shards = 6
	for shard := range shards {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			w := world.New(t, true)
			text := caseFile(w, "029-crash-after-create", "k.yaml")
			for i := shard; i < len(points); i += shards {
				crashAt(w, points[i], text)
			}
		})
	}
}

func crashAt(w *world.World, point, text string) {
	w.Helper()
	// The folder is there, so that a delete leaves it and what was started in it.
	world.Must(w, os.MkdirAll(filepath.Join(w.Work, "k"), 0o700))
	_ = os.Remove(filepath.Join(w.Work, "k", "log"))
	w.Env = []string{"SKC_FAULT=" + point + "=kill"}
	c, ready := w.StartOrDie()
	w.Drop("k.yaml", text)
	if ready {
		w.Until(point+": killed, or past it", func() bool {
			return !c.Alive() || w.Condition("k", "Ready") == "True/Running" && len(w.Lines("k/log")) > 0
		})
	}
	if c.Alive() { // a point that a create does not pass; a delete may
		w.Remove("k.yaml")
		w.Until(point+": killed, or deleted", func() bool { return !c.Alive() || w.Session("k") == nil })
		if c.Alive() {
			w.Kill(c.PID(), syscall.SIGTERM) // the point may be one of its end
			c.Wait()
			w.Stop(syscall.SIGTERM)
		}
		w.Env = nil
		w.Start()
		w.UntilGone("k")
		if n := len(w.Lines("k/log")); n != 1 {
			w.Errorf("%s in a delete: %d starts", point, n)
		}
	} else {
		w.Env = nil
		w.Start()
		w.Within(10*time.Second, point+": it runs", func() bool {
			return w.Condition("k", "Ready") == "True/Running" && len(w.Mains("k")) == 1 && len(w.Lines("k/log")) > 0
		})
		if l := w.Lines("k/log"); len(l) != 1 {
			w.Errorf("%s: %d starts", point, len(l))
		}
		w.Remove("k.yaml")
		w.UntilGone("k")
	}
	if left := w.Procs(); len(left) != 0 {
		w.Errorf("%s: orphans %+v", point, left)
	}
	if out, err := w.Tmux("list-sessions", "-F", "#{session_name}"); err == nil && slices.Contains(strings.Split(out, "\n"), "k") {
		w.Errorf("%s: the tmux session is left", point)
	}
	w.Stop(syscall.SIGTERM)
}

// B-068: an impossible target: the status stays byte for byte as it is, and the
// tries are few.
func TestB068StatusIsQuiet(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start("--resync", "2s")
	text := strings.Replace(session("lost", "[cat]"), "{plainDir: {path: \"@WORK@/lost\"}}", "{existingPath: {path: \"@WORK@/not/there\"}}", 1)
	w.Drop("lost.yaml", text)
	w.Drop("noenv.yaml", session("noenv", "[cat]", "env: [{name: A, valueFrom: {file: \"@WORK@/no-such-file\"}}]"))
	w.UntilCondition("lost", "Ready", "False/WorkingDirectoryMissing")
	w.UntilCondition("noenv", "Ready", "False/EnvironmentUnreadable")
	begin := calm(w, w.State)
	passes, writes := w.Metric("skc_reconcile_total"), w.Metric("skc_store_writes_total")
	w.Always(10*time.Second, "the state stays as it is", func() bool { return snapshot(w, w.State) == begin })
	if n := w.Metric("skc_reconcile_total") - passes; n > 24 { // 2 objects, every 5 s and every 2 s, with jitter
		t.Errorf("%v passes in ten seconds", n)
	}
	if n := w.Metric("skc_store_writes_total") - writes; n != 0 {
		t.Errorf("%v writes", n)
	}
	world.Must(t, os.MkdirAll(filepath.Join(w.Work, "not", "there"), 0o700))
	w.Write(filepath.Join(w.Work, "no-such-file"), "x")
	w.UntilRunning("lost")
	w.UntilRunning("noenv")
}

// R25: at rest nothing is written and next to no time is used.
func TestR25QuietWhenSteady(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Start("--resync", "10s")
	several(w, 10)
	w.Apply(session("probed", script("touch up; exec sleep 6000"), "readiness: {file: {path: up}, period: 1s}"))
	w.UntilRunning("probed")
	begin := calm(w, w.State) + calm(w, w.Run)
	cpu, files := world.CPU(c.PID()), openFiles(c.PID())
	server := w.Servers()[0]
	tmux := world.CPU(server)
	const rest = 30 * time.Second
	for end := time.Now().Add(rest); time.Now().Before(end); time.Sleep(time.Second) {
		if now := snapshot(w, w.State) + snapshot(w, w.Run); now != begin {
			t.Fatalf("the state changed:\n%s\nto\n%s", begin, now)
		}
	}
	if used := world.CPU(c.PID()) - cpu; used > rest/100 {
		t.Errorf("skcd used %s in %s, more than 1 %%", used, rest)
	}
	if used := world.CPU(server) - tmux; used > rest/100 {
		t.Errorf("tmux used %s in %s, more than 1 %%", used, rest)
	}
	if now := openFiles(c.PID()); now > files {
		t.Errorf("open files went from %d to %d", files, now)
	}
}

func openFiles(pid int) int {
	all, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(all)
}

// calm waits until what belongs to a change is written, for a second, and
// returns the snapshot from which on nothing may change.
func calm(w *world.World, dir string) string {
	w.Helper()
	last, since := snapshot(w, dir), time.Now()
	w.Until(dir+" is calm for a second", func() bool {
		if now := snapshot(w, dir); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	})
	return last
}

// snapshot is every file below dir: inode, size, time of its last change. A file
// that is written as it was has another inode or time.
func snapshot(w *world.World, dir string) string {
	w.Helper()
	var b strings.Builder
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			fmt.Fprintf(&b, "%s %v\n", path, err)
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return nil
		}
		st := fi.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%s %d %d %d\n", path, st.Ino, fi.Size(), fi.ModTime().UnixNano())
		return nil
	})
	return b.String()
}
