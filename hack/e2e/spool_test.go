//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
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

// B-037, case 015: backup copies are passed over; a second file that defines
// the object changes nothing and is named, after a restart too, and whatever
// the order of the names.
func TestB037BackupCopies(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	const name = "015-backup-copies"
	w.Drop("web.yaml", caseFile(w, name, "web.yaml"))
	w.Drop("web.yaml.bak", caseFile(w, name, "web.yaml.bak"))
	w.Drop("web.yaml~", caseFile(w, name, "web.yaml~"))
	for _, n := range []string{"#web.yaml#", ".web.yaml", "web.yaml.swp", "web.yaml.orig", "web.tmp", "web.txt"} {
		w.Drop(n, strings.ReplaceAll(caseFile(w, name, "web-copy.yaml"), "echo D", "echo X"))
	}
	p := w.UntilRunning("web")
	w.Until("A runs", func() bool { return slices.Equal(w.Lines("web/who"), []string{"A"}) })
	if out := w.MustCtl("get", "sources", "-o", "wide"); strings.Contains(out, "Duplicate") || strings.Contains(out, ".bak") {
		t.Errorf("the copies count:\n%s", out)
	}
	for _, copy := range []string{"web-copy.yaml", "web (copy).yaml", "aaa.yaml"} {
		w.Drop(copy, caseFile(w, name, "web-copy.yaml"))
		w.Until("the conflict is told", func() bool { return w.Condition("web", "SourceAccepted") == "False/DuplicateObject" })
		if m := w.Message("web", "SourceAccepted"); !strings.Contains(m, "web.yaml") || !strings.Contains(m, copy) {
			t.Errorf("the message does not name both files: %s", m)
		}
		w.Remove(copy)
		w.UntilCondition("web", "SourceAccepted", "True/Accepted")
		w.UntilRunning("web")
	}
	w.Drop("aaa.yaml", caseFile(w, name, "web-copy.yaml"))
	w.Until("the conflict is told", func() bool { return w.Condition("web", "SourceAccepted") == "False/DuplicateObject" })
	w.Stop(syscall.SIGTERM)
	w.Start()
	w.Always(2*time.Second, "A runs on", func() bool {
		return slices.Equal(w.Mains("web"), []int{p}) && slices.Equal(w.Lines("web/who"), []string{"A"})
	})
	w.Until("the conflict is told", func() bool { return w.Condition("web", "SourceAccepted") == "False/DuplicateObject" })
	w.Remove("aaa.yaml")
	if again := w.UntilRunning("web"); again != p {
		t.Errorf("the pid went from %d to %d", p, again)
	}
}

// B-038: written byte by byte with pauses, where many a prefix is a spec of its
// own with half the arguments, then left empty: the last good version runs on,
// and what is wrong is gone after the last byte. The file stands still for the
// settle time before it counts; here it is long, so that a slow machine's pauses
// are none.
func TestB038ByteByByte(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start("--settle", "1s")
	text := func(last string) string {
		return strings.ReplaceAll("apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata:\n  name: slow\nspec:\n  target:\n    plainDir:\n      path: \"@WORK@/slow\"\n  command:\n  - sh\n  - -c\n  - 'echo \"$*\" >> log; exec sleep 6000'\n  - x\n  - first\n  - second-and-longer\n  - "+last+"\n", "@WORK@", w.Work)
	}
	write := func(all string) {
		f, err := os.OpenFile(filepath.Join(w.Spool, "slow.yaml"), os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o600)
		world.Must(t, err)
		for i := range all {
			_, err := f.WriteString(all[i : i+1])
			world.Must(t, err)
			time.Sleep(20 * time.Millisecond) // the writer's pace is the case
		}
		world.Must(t, f.Close())
	}
	write(text("third"))
	p := w.UntilRunning("slow")
	write(text("third"))
	w.UntilCondition("slow", "Ready", "True/Running")
	world.Must(t, os.Truncate(filepath.Join(w.Spool, "slow.yaml"), 0))
	w.Always(4*time.Second, "the last good version runs on", func() bool { return slices.Equal(w.Mains("slow"), []int{p}) })
	w.Until("an empty file is told of", func() bool { return strings.HasPrefix(w.Condition("slow", "SourceAccepted"), "False/") })
	world.Must(t, os.WriteFile(filepath.Join(w.Spool, "slow.yaml"), []byte(text("third")), 0o600))
	if again := w.UntilRunning("slow"); again != p {
		t.Errorf("the pid went from %d to %d", p, again)
	}
	write(text("changed"))
	w.Until("the change runs", func() bool { m := w.Mains("slow"); return len(m) == 1 && m[0] != p })
	w.UntilRunning("slow")
	w.Until("it was started twice", func() bool { return len(w.Lines("slow/log")) >= 2 })
	want := []string{"first second-and-longer third", "first second-and-longer changed"}
	if l := w.Lines("slow/log"); !slices.Equal(l, want) {
		t.Errorf("it was started as %q, want %q", l, want)
	}
}

// R9: every prefix of a good file, put in place of it by rename and in place:
// no restart, no run of a cut command.
func TestR9HalfFiles(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	// The folder comes last, so that no prefix is a spec of its own.
	text := strings.ReplaceAll("apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: half}\nspec:\n  command: [sh, -c, \"echo $0 >> log; exec sleep 6000\", whole]\n  target: {existingPath: {path: \"@WORK@\"}}", "@WORK@", w.Work)
	path := filepath.Join(w.Spool, "half.yaml")
	w.Drop("half.yaml", text)
	p := w.UntilRunning("half")
	for i := range len(text) {
		w.Drop("half.yaml", text[:i])
		if i%5 == 0 { // so that many of them are looked at
			time.Sleep(10 * time.Millisecond)
		}
	}
	w.Until("the last prefix is refused", func() bool { return w.Condition("half", "SourceAccepted") == "False/InvalidSpec" })
	for i := 0; i < len(text); i += 3 {
		world.Must(t, os.WriteFile(path, []byte(text[:i]), 0o600))
		time.Sleep(5 * time.Millisecond)
	}
	for _, i := range []int{0, 1, len(text) / 4, len(text) / 2, len(text) - 1} {
		world.Must(t, os.WriteFile(path, []byte(text[:i]), 0o600))
		w.Until("it is refused", func() bool { return strings.HasPrefix(w.Condition("half", "SourceAccepted"), "False/") })
		time.Sleep(120 * time.Millisecond) // long enough to count as standing still
	}
	w.Drop("half.yaml", text)
	if again := w.UntilRunning("half"); again != p {
		t.Errorf("the pid went from %d to %d", p, again)
	}
	w.Starts("log")
	if l := w.Lines("log"); !slices.Equal(l, []string{"whole"}) {
		t.Errorf("it was started as %q", l)
	}
}

// B-041: a file that is removed while the controller is down, or frozen, is a
// deletion after the next look. The overflow is in TestB047EventOverflow.
func TestB041MissedDelete(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Start()
	for _, n := range []string{"down", "frozen", "stays"} {
		w.Drop(n+".yaml", session(n, sleeper))
	}
	for _, n := range []string{"down", "frozen", "stays"} {
		w.UntilRunning(n)
	}
	p := w.Main("stays")
	w.Kill(c.PID(), syscall.SIGSTOP)
	w.Remove("frozen.yaml")
	w.Kill(c.PID(), syscall.SIGCONT)
	w.UntilGone("frozen")
	w.Stop(syscall.SIGTERM)
	w.Remove("down.yaml")
	w.Start()
	w.UntilGone("down")
	if again := w.UntilRunning("stays"); again != p {
		t.Errorf("a neighbour went from %d to %d", p, again)
	}
}

// B-043: of two roots one is missing, then no folder, then there: the good one
// works fully all the time, and the other says what is wrong.
func TestB043OneRootMissing(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	other := filepath.Join(w.Dir, "other")
	w.Start("--spool", w.Spool, "--spool", other)
	w.Drop("a.yaml", session("a", sleeper))
	w.Drop("b.yaml", session("b", sleeper))
	w.UntilRunning("a")
	pb := w.UntilRunning("b")
	rootState := func() string {
		for line := range strings.Lines(w.MustCtl("get", "sources")) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == other {
				return f[2]
			}
		}
		return ""
	}
	w.Until("the missing root is told", func() bool { return rootState() == "Missing" })
	w.Remove("a.yaml")
	w.UntilGone("a")
	w.Write(other, "no folder")
	w.Until("what is no folder is told", func() bool { s := rootState(); return s == "Unreadable" || s == "Missing" })
	world.Must(t, os.Remove(other))
	world.Must(t, os.Mkdir(other, 0o700))
	w.Write(filepath.Join(other, "c.yaml"), strings.ReplaceAll(session("c", sleeper), "@WORK@", w.Work))
	w.UntilRunning("c")
	w.Until("it is ready", func() bool { return rootState() == "Ready" })
	// An unmounted disk: the folder is empty, or gone. Nothing of it is stopped.
	world.Must(t, os.Rename(other, other+".away"))
	world.Must(t, os.Mkdir(other, 0o700))
	pc := w.Main("c")
	w.Always(3*time.Second, "c runs on", func() bool { return slices.Equal(w.Mains("c"), []int{pc}) })
	w.UntilCondition("c", "SourceAccepted", "False/PruneHeld")
	world.Must(t, os.Remove(other))
	world.Must(t, os.Rename(other+".away", other))
	if again := w.UntilRunning("c"); again != pc {
		t.Errorf("c went from %d to %d", pc, again)
	}
	if again := w.UntilRunning("b"); again != pb {
		t.Errorf("b went from %d to %d", pb, again)
	}
}

// DESIGN.md 4, R7: the spool is replaced by an empty folder, is missing, or
// most of it goes at once: nothing is stopped until somebody confirms, and what
// goes one by one is deleted, down to the last.
func TestPruneGuards(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start("--mass-hold", "6s")
	pids := several(w, 6)
	away := filepath.Join(w.Dir, "away")
	held := func() bool {
		for n := range pids {
			if w.Condition(n, "SourceAccepted") != "False/PruneHeld" {
				return false
			}
		}
		return true
	}
	world.Must(t, os.Rename(w.Spool, away))
	w.Until("a missing spool is told", func() bool { return strings.Contains(w.MustCtl("get", "sources"), "Missing") })
	w.Always(2*time.Second, "all run", func() bool { return len(w.Procs()) == len(pids) })
	world.Must(t, os.Mkdir(w.Spool, 0o700))
	w.Until("an empty spool holds all", held)
	w.Always(2*time.Second, "all run", func() bool { return len(w.Procs()) == len(pids) })
	world.Must(t, os.Remove(w.Spool))
	world.Must(t, os.Rename(away, w.Spool))
	accepted := func() {
		for n := range pids {
			w.UntilCondition(n, "SourceAccepted", "True/Accepted")
		}
		same(w, pids)
	}
	accepted()

	// Most of it at once waits; put back, nothing happened.
	world.Must(t, os.Mkdir(away, 0o700))
	move := func(from, to string, n int) {
		for i := range n {
			f := fmt.Sprintf("s-%d.yaml", i)
			world.Must(t, os.Rename(filepath.Join(from, f), filepath.Join(to, f)))
		}
	}
	move(w.Spool, away, 5)
	w.Until("the removal of most is held", func() bool { return w.Condition("s-0", "SourceAccepted") == "False/PruneHeld" })
	move(away, w.Spool, 5)
	accepted()
	move(w.Spool, away, 5)
	w.Until("the removal of most is held", func() bool { return w.Condition("s-0", "SourceAccepted") == "False/PruneHeld" })
	if m := w.Message("s-0", "SourceAccepted"); m == "" {
		t.Error("it is not said what is about to happen")
	}
	w.MustCtl("prune", "--confirm")
	for i := range 5 {
		w.UntilGone(fmt.Sprintf("s-%d", i))
	}
	w.UntilRunning("s-5")
	w.Remove("s-5.yaml")
	w.UntilGone("s-5")
}

// B-046, R11: three hundred saves by rename, a few milliseconds apart; after
// that one more change is seen.
func TestB046AtomicSaves(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start("--resync", "1h", "--rescan", "1h") // events alone
	text := func(i int) string {
		return session("saved", script("echo $1 >> log; exec sleep 6000", "x", fmt.Sprintf("v%d", i)))
	}
	w.Drop("saved.yaml", text(0))
	w.UntilRunning("saved")
	for i := 1; i <= 300; i++ {
		w.Drop("saved.yaml", text(i))
		time.Sleep(5 * time.Millisecond) // the pace is the case
	}
	w.Until("the last of them runs", func() bool { l := w.Lines("saved/log"); return len(l) > 0 && l[len(l)-1] == "v300" })
	w.Drop("saved.yaml", text(301))
	w.Within(10*time.Second, "one more change is seen", func() bool { l := w.Lines("saved/log"); return l[len(l)-1] == "v301" })
	w.UntilRunning("saved")
}

// B-047, B-041, case 019: the event queue overflows while skcd is frozen, 500
// files come and 250 go: the set is exact after the next look, and the overflow
// is counted. Not parallel: the limit is the machine's.
func TestB047EventOverflow(t *testing.T) {
	needRoot(t)
	const limit = "/proc/sys/fs/inotify/max_queued_events"
	old, err := os.ReadFile(limit)
	world.Must(t, err)
	w := world.New(t)
	// The limit is read when a watcher is opened, so it is low for that moment only.
	if err := os.WriteFile(limit, []byte("16"), 0); err != nil {
		t.Skipf("the limit cannot be set: %v", err)
	}
	restore := func() { world.Must(t, os.WriteFile(limit, old, 0)) }
	t.Cleanup(restore)
	c := w.Start("--resync", "1h")
	restore()
	w.Drop("gone-0.yaml", session("gone-0", sleeper))
	w.UntilRunning("gone-0")
	w.Kill(c.PID(), syscall.SIGSTOP)
	text := "apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: o-%d}\nspec: {target: {plainDir: {path: \"@WORK@/o\"}}, command: [sleep, \"600\"], restartPolicy: Never, desiredState: Running}\n"
	for i := 1; i <= 500; i++ {
		w.Drop(fmt.Sprintf("o-%d.yaml", i), fmt.Sprintf(text, i))
	}
	for i := 2; i <= 500; i += 2 {
		w.Remove(fmt.Sprintf("o-%d.yaml", i))
	}
	w.Remove("gone-0.yaml")
	w.Kill(c.PID(), syscall.SIGCONT)
	took := w.Within(60*time.Second, "exactly 250 run", func() bool {
		time.Sleep(200 * time.Millisecond) // a look at 250 processes is not free
		odd := 0
		for _, p := range w.Procs() {
			if strings.HasPrefix(p.Name, "default/o-") && slices.Equal(p.Args, []string{"sleep", "600"}) {
				odd++
			}
		}
		return odd == 250
	})
	t.Logf("250 of 500 ran after %s", took)
	w.UntilGone("gone-0")
	w.Until("all are Ready", func() bool {
		time.Sleep(200 * time.Millisecond)
		return strings.Count(w.MustCtl("get", "--no-headers"), "True") == 250
	})
	if n := w.Metric("skc_spool_overflows_total"); n < 1 {
		t.Errorf("%v overflows were counted", n)
	}
	if out := w.MustCtl("get", "sources", "-o", "json"); !strings.Contains(out, "o-499.yaml") || strings.Contains(out, "o-500.yaml") {
		t.Error("get sources has another set")
	}
}

// B-049, R10: a kernel that gives no watch: looks alone bring the same state,
// and the mode is shown.
func TestB049NoEvents(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "-U", "-r", "true").Run(); err != nil {
		t.Skip("user namespaces are not to be had")
	}
	w := world.New(t)
	// The limit of a user namespace of its own, so that no other test has it.
	w.Prefix = []string{"unshare", "-U", "-r", "sh", "-c", `echo 0 > /proc/sys/user/max_inotify_watches && exec "$0" "$@"`}
	w.Start("--rescan", "1s")
	w.Drop("polled.yaml", session("polled", sleeper))
	p := w.UntilRunning("polled")
	if out := w.MustCtl("get", "sources", "-o", "wide"); !strings.Contains(out, "cannot be watched") {
		t.Errorf("the mode is not shown:\n%s", out)
	}
	w.Drop("polled.yaml", session("polled", script("echo again >> log; exec sleep 6000")))
	w.Until("a change is seen", func() bool { m := w.Mains("polled"); return len(m) == 1 && m[0] != p })
	w.UntilRunning("polled")
	w.Remove("polled.yaml")
	w.UntilGone("polled")
}

// B-050: a link to a link that is switched, with other names and a folder that
// is itself a link: no moment counts as a deletion.
func TestB050SwapIsNoDeletion(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	version := func(name string, i int) {
		dir := filepath.Join(w.Spool, name)
		world.Must(t, os.Mkdir(dir, 0o700))
		w.Write(filepath.Join(dir, "web.yaml"), strings.ReplaceAll(session("web", script("echo $1 >> log; exec sleep 6000", "x", fmt.Sprintf("v%d", i%2))), "@WORK@", w.Work))
	}
	version("..v0", 0)
	world.Must(t, os.Symlink("..v0", filepath.Join(w.Spool, "..data")))
	world.Must(t, os.Symlink("..data/web.yaml", filepath.Join(w.Spool, "web.yaml")))
	w.UntilRunning("web")
	uid := w.Session("web").UID
	for i := 1; i <= 60; i++ {
		version(fmt.Sprintf("..v%d", i), i)
		world.Must(t, os.Symlink(fmt.Sprintf("..v%d", i), filepath.Join(w.Spool, "..data_tmp")))
		world.Must(t, os.Rename(filepath.Join(w.Spool, "..data_tmp"), filepath.Join(w.Spool, "..data")))
		world.Must(t, os.RemoveAll(filepath.Join(w.Spool, fmt.Sprintf("..v%d", i-1))))
		if s := w.Session("web"); s == nil || s.UID != uid || s.DeletionTimestamp != nil {
			t.Fatalf("round %d: a swap counted as a deletion: %+v", i, s)
		}
		time.Sleep(20 * time.Millisecond) // the pace is the case
	}
	w.Until("the last version runs", func() bool {
		l := w.Lines("web/log")
		return len(l) > 0 && l[len(l)-1] == "v0" && w.Condition("web", "Ready") == "True/Running"
	})
	if s := w.Session("web"); s.UID != uid {
		t.Error("it is another object")
	}
	if out := strings.Fields(w.MustCtl("get", "-A", "-o", "name")); len(out) != 1 {
		t.Errorf("sessions: %q", out)
	}
}

// R12: reformatting, touching, comments, key order and CRLF restart nothing and
// make no generation; a label is applied live.
func TestR12StableIdentity(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	w.Drop("calm.yaml", session("calm", sleeper))
	p := w.UntilRunning("calm")
	first := w.Session("calm")
	for i, text := range []string{
		session("calm", sleeper) + "# a comment\n",
		strings.ReplaceAll(session("calm", sleeper), "\n", "\r\n"),
		"{\"kind\": \"Session\", \"spec\": {\"command\": " + strings.ReplaceAll(strings.ReplaceAll(sleeper, "sh,", "\"sh\","), "-c,", "\"-c\",") + ", \"target\": {\"plainDir\": {\"path\": \"@WORK@/calm\"}}}, \"metadata\": {\"name\": \"calm\"}, \"apiVersion\": \"skc.dev/v1alpha1\"}",
		"---\n" + session("calm", sleeper) + "---\n",
	} {
		w.Drop("calm.yaml", text)
		now := time.Now().Add(time.Duration(i) * time.Second)
		world.Must(t, os.Chtimes(filepath.Join(w.Spool, "calm.yaml"), now, now))
	}
	w.Drop("calm.yaml", strings.Replace(session("calm", sleeper), "{name: calm}", "{name: calm, labels: {team: web}}", 1))
	w.Until("the label is applied", func() bool { return w.Session("calm").Labels["team"] == "web" })
	world.Must(t, os.Rename(filepath.Join(w.Spool, "calm.yaml"), filepath.Join(w.Spool, "moved.yaml")))
	w.Until("the move is seen", func() bool {
		return strings.HasSuffix(w.Session("calm").Annotations["skc.dev/source-file"], "moved.yaml") ||
			strings.Contains(w.MustCtl("get", "sources"), "moved.yaml")
	})
	w.Always(2*time.Second, "it is left alone", func() bool { return slices.Equal(w.Mains("calm"), []int{p}) })
	if s := w.Session("calm"); s.UID != first.UID || s.Generation != first.Generation {
		t.Errorf("uid %s to %s, generation %d to %d", first.UID, s.UID, first.Generation, s.Generation)
	}
	// What is not of the launch is a generation, and no restart.
	w.Drop("moved.yaml", session("calm", sleeper, "stop: {gracePeriod: 3s}", "restartPolicy: Always"))
	w.Until("it is a generation", func() bool { return w.Session("calm").Generation == first.Generation+1 })
	if again := w.UntilRunning("calm"); again != p {
		t.Errorf("the pid went from %d to %d", p, again)
	}
}

// B-077, R8: hundreds of mutated files and short strings: skcd lives, the good
// neighbour runs, and no session of a refused file is there. The fuzz targets of
// api/v1alpha1 and controller/spool try far more.
func TestB077MalformedFiles(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Start()
	w.Drop("good.yaml", session("good", sleeper))
	p := w.UntilRunning("good")
	var seeds []string
	paths, err := filepath.Glob("testdata/cases/*/*.yaml")
	world.Must(t, err)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		world.Must(t, err)
		// Stopped, and of one name, so that what stays valid starts nothing.
		seeds = append(seeds, strings.ReplaceAll(string(data), "desiredState: Running", "desiredState: Stopped"))
	}
	const alphabet = "#-?{}[]&*!|>'\"%@`:, \t\n\r\x00\xef\xbb\xbf\xff~"
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		text := []byte(seeds[r.IntN(len(seeds))])
		if i%3 == 0 {
			text = nil
		}
		for range 1 + r.IntN(8) {
			at, ch := r.IntN(len(text)+1), alphabet[r.IntN(len(alphabet))]
			switch {
			case len(text) == 0 || r.IntN(2) == 0:
				text = slices.Insert(text, at, ch)
			case at < len(text):
				text = append(text[:at], text[min(len(text), at+r.IntN(20)):]...)
			}
		}
		w.Write(filepath.Join(w.Spool, fmt.Sprintf("bad-%d.yaml", i%40)), string(text))
	}
	deep := strings.Repeat("[", 10000)
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c]\n"
	for i, text := range []string{deep, bomb, strings.Repeat("x", 2<<20), "\ufeff" + session("bom", "[cat]", "desiredState: Stopped"), "\x00", "%YAML 9.9\n", "- - - -"} {
		w.Drop(fmt.Sprintf("odd-%d.yaml", i), text)
	}
	world.Must(t, syscall.Mkfifo(filepath.Join(w.Spool, "pipe.yaml"), 0o600))
	world.Must(t, os.Symlink("loop.yaml", filepath.Join(w.Spool, "loop.yaml")))
	world.Must(t, os.Symlink("/dev/zero", filepath.Join(w.Spool, "zero.yaml")))
	w.Drop("after.yaml", session("after", sleeper))
	w.UntilRunning("after")
	if again := w.UntilRunning("good"); again != p || !c.Alive() {
		t.Errorf("the good one went from %d to %d", p, again)
	}
	w.MustCtl("get", "sources")
	rss, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID()))
	world.Must(t, err)
	for line := range strings.Lines(string(rss)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 && kb > 200<<10 {
			t.Errorf("skcd grew to %d MiB", kb>>10)
		}
	}
	// Only what a valid file defines is there, and of the rest nothing runs.
	for _, p := range w.Procs() {
		if p.Name != "default/good" && p.Name != "default/after" {
			t.Errorf("%s runs: %q", p.Name, p.Args)
		}
	}
}

// Restart by hand, change of a live setting, edit by skcctl: the file keeps its
// comments, and the spool stays the user's.
func TestSkcctlEditsInPlace(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	text := strings.ReplaceAll("# top comment\n"+session("first", sleeper)+"---\n# second\n"+session("second", sleeper)+"# end\n", "@WORK@", w.Work)
	w.Drop("two.yaml", text)
	p1, p2 := w.UntilRunning("first"), w.UntilRunning("second")
	w.MustCtl("stop", "second")
	w.UntilCondition("second", "Ready", "True/Stopped")
	data, err := os.ReadFile(filepath.Join(w.Spool, "two.yaml"))
	world.Must(t, err)
	for _, c := range []string{"# top comment", "# second", "# end"} {
		if !strings.Contains(string(data), c) {
			t.Errorf("the comment %q is lost:\n%s", c, data)
		}
	}
	w.MustCtl("start", "second")
	if again := w.UntilRunning("second"); again == p2 {
		t.Error("second was not started anew")
	}
	w.MustCtl("delete", "session", "second", "--wait")
	if again := w.UntilRunning("first"); again != p1 {
		t.Errorf("first went from %d to %d", p1, again)
	}
	if _, err := os.Stat(filepath.Join(w.Spool, "two.yaml")); errors.Is(err, os.ErrNotExist) {
		t.Error("the whole file is gone")
	}
}
