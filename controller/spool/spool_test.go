package spool

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
)

func TestFilesBecomeObjects(t *testing.T) {
	w := newWorld(t)
	w.write("a.yaml", session("a", "1"))
	w.start()
	w.want(map[string]string{"a": "1"})
	w.wantReason("a", v1alpha1.ReasonAccepted, "")
	w.wantRoot(w.spool, RootReady, "")

	w.put("deep/er/b.yml", session("b", "1"))
	w.put("c.yaml", session("c", "1")+"---\n"+session("d", "1"))
	w.settle() // b came with its folder: only a look found it
	w.want(map[string]string{"a": "1", "b": "1", "c": "1", "d": "1"})
	w.put("deep/er/b.yml", session("b", "2"))
	w.flush() // no time passes: what arrives by rename is read at once
	w.want(map[string]string{"a": "1", "b": "2", "c": "1", "d": "1"})

	w.pass(time.Second)
	w.write("a.yaml", session("a", "2"))
	w.flush()
	w.want(map[string]string{"a": "1", "b": "2", "c": "1", "d": "1"})
	w.settle()
	w.want(map[string]string{"a": "2", "b": "2", "c": "1", "d": "1"})
}

func TestRenamedOverManyTimes(t *testing.T) { // B-046
	w := newWorld(t)
	w.put("a.yaml", session("a", "first"))
	w.start()
	for i := range 1000 {
		w.put("a.yaml", session("a", fmt.Sprint(i)))
	}
	w.flush()
	w.settle()
	w.want(map[string]string{"a": "999"})
	w.put("a.yaml", session("a", "last"))
	w.flush()
	w.want(map[string]string{"a": "last"})
	if uid := w.sink.get("a").uid; uid != 1 {
		t.Errorf("the object was made %d times, want once", uid)
	}
}

func TestNamesThatCount(t *testing.T) {
	for name, want := range map[string]bool{
		"web.yaml": true, "web.yml": true, "web.json": true, "web (copy).yaml": true, "wéb.yaml": true,
		".web.yaml": false, "#web.yaml#": false, "web.yaml~": false, "web.yaml.bak": false, "web.yaml.orig": false,
		"web.yaml.swp": false, "web.yaml.tmp": false, "web": false, "web.txt": false, "web.YAML": false,
		"..data": false, "..2026": false, "#web.yaml": false,
	} {
		if got := resourceName(name); got != want {
			t.Errorf("resourceName(%q) = %t, want %t", name, got, want)
		}
	}
}

func TestBackupCopies(t *testing.T) { // B-037
	w := newWorld(t)
	w.put("web.yaml", session("web", "A"))
	for _, name := range []string{"web.yaml.bak", "web.yaml~", "#web.yaml#", ".web.yaml", ".git/web.yaml", ".#web.yaml"} {
		w.put(name, session("web", "B"))
	}
	w.start()
	w.want(map[string]string{"web": "A"})
	w.wantReason("web", v1alpha1.ReasonAccepted, "")

	w.put("web (copy).yaml", session("web", "D"))
	w.flush()
	w.want(map[string]string{"web": "A"})
	w.wantReason("web", v1alpha1.ReasonDuplicateObject, w.path("web.yaml"))
	w.wantReason("web", v1alpha1.ReasonDuplicateObject, w.path("web (copy).yaml"))
	w.wantReport("web (copy).yaml", FileDuplicate, w.path("web.yaml"))
	w.wantReport("web.yaml", "", "")

	w.restart() // "web (copy).yaml" is the lesser path
	w.want(map[string]string{"web": "A"})
	w.wantReason("web", v1alpha1.ReasonDuplicateObject, w.path("web (copy).yaml"))

	w.remove("web (copy).yaml")
	w.flush()
	w.want(map[string]string{"web": "A"})
	w.wantReason("web", v1alpha1.ReasonAccepted, "")
	w.wantReport("web (copy).yaml", "", "")
	if o := w.sink.get("web"); o.uid != 1 || o.generation != 1 {
		t.Errorf("uid %d generation %d, want 1 and 1", o.uid, o.generation)
	}
}

func TestFreshStartPicksTheLesserPath(t *testing.T) {
	for range 5 {
		w := newWorld(t)
		for i := range 20 { // whatever the order of the listing and of the readers
			w.put(fmt.Sprintf("f%02d.yaml", 19-i), session("web", fmt.Sprint(19-i)))
		}
		w.start()
		w.want(map[string]string{"web": "0"})
		w.stop()
	}
}

func TestDuplicateTakesOver(t *testing.T) {
	w := newWorld(t)
	w.put("a.yaml", session("web", "A"))
	w.start()
	w.put("b.yaml", session("web", "B"))
	w.flush()
	w.remove("a.yaml")
	w.pass(1900 * time.Millisecond)
	w.want(map[string]string{"web": "A"})
	w.pass(200 * time.Millisecond)
	w.want(map[string]string{"web": "B"})
	w.wantReason("web", v1alpha1.ReasonAccepted, "")
	w.wantReport("b.yaml", "", "")
	w.wantNoRemovals()
	if o := w.sink.get("web"); o.uid != 1 {
		t.Errorf("the object was made anew")
	}
}

func TestRenamedFileKeepsItsObject(t *testing.T) {
	w := newWorld(t)
	w.put("a.yaml", session("web", "A"))
	w.start()
	w.move("a.yaml", "b.yaml")
	w.flush()
	if o := w.sink.get("web"); o.desired.Source.File != w.path("b.yaml") || o.uid != 1 {
		t.Fatalf("source is %v uid %d, want b.yaml of the same object", o.desired.Source, o.uid)
	}
	w.wantReason("web", v1alpha1.ReasonAccepted, "")
	w.pass(5 * time.Second)
	w.want(map[string]string{"web": "A"})
	w.wantNoRemovals()
}

func TestRemoveAndPutBack(t *testing.T) { // B-040
	for _, away := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond, 1900 * time.Millisecond} {
		w := newWorld(t)
		w.put("a.yaml", session("a", "1"))
		w.start()
		must(t, os.Rename(w.path("a.yaml"), filepath.Join(w.dir, "a.yaml")))
		w.pass(away)
		must(t, os.Rename(filepath.Join(w.dir, "a.yaml"), w.path("a.yaml")))
		w.pass(5 * time.Second)
		w.want(map[string]string{"a": "1"})
		w.wantNoRemovals()
		w.stop()
	}
}

func TestPutBackWhileBeingDeleted(t *testing.T) { // B-040
	w := newWorld(t)
	w.sink.finalize = true
	w.put("a.yaml", session("a", "1"))
	w.start()
	must(t, os.Rename(w.path("a.yaml"), filepath.Join(w.dir, "a.yaml")))
	w.pass(3 * time.Second)
	if o := w.sink.get("a"); !o.deleting {
		t.Fatal("the object is not being deleted")
	}
	must(t, os.Rename(filepath.Join(w.dir, "a.yaml"), w.path("a.yaml")))
	w.pass(10 * time.Second)
	if o := w.sink.get("a"); o.uid != 1 || !o.deleting {
		t.Fatal("the object was made anew before its deletion ended")
	}
	w.sink.finish(key("a"))
	w.flush() // at once, not when the back-off ends
	w.want(map[string]string{"a": "1"})
	if o := w.sink.get("a"); o.uid != 2 || o.deleting {
		t.Fatalf("uid %d deleting %t, want a new object", o.uid, o.deleting)
	}
	w.wantReason("a", v1alpha1.ReasonAccepted, "")
}

func TestSpecUntouchedByForm(t *testing.T) { // R12
	w := newWorld(t)
	text := session("a", "1")
	w.put("a.yaml", text)
	w.start()
	parses := w.s.Stats().Parses
	for range 20 {
		now := time.Now()
		must(t, os.Chtimes(w.path("a.yaml"), now, now))
		w.settle()
		w.put("a.yaml", text)
		w.flush()
	}
	if n := w.s.Stats().Parses - parses; n != 0 {
		t.Errorf("%d parses of equal bytes, want none", n)
	}
	w.put("a.yaml", "# a comment\n"+text)
	w.flush()
	w.put("a.yaml", strings.ReplaceAll(text, "\n", "\r\n"))
	w.flush()
	w.want(map[string]string{"a": "1"})
	if w.sink.applies != 1 {
		t.Errorf("the spec was changed %d times, want once", w.sink.applies)
	}
}

func TestDocumentsOfOneFile(t *testing.T) { // B-074
	w := newWorld(t)
	w.put("m.yaml", session("a", "1")+"--- # note\n"+session("b", "1")+"---\n"+session("c", "1")+"---\n---\n# nothing\n")
	w.start()
	w.want(map[string]string{"a": "1", "b": "1", "c": "1"})

	w.put("m.yaml", session("a", "2")+"---\nkind: Session\n  broken: [\n---\n"+session("c", "2"))
	w.flush()
	w.want(map[string]string{"a": "1", "b": "1", "c": "1"}) // one unit
	for _, name := range []string{"a", "b", "c"} {
		w.wantReason(name, v1alpha1.ReasonInvalidSpec, w.path("m.yaml"))
	}
	w.wantReport("m.yaml", FileInvalid, "")
	if r := w.report("m.yaml"); len(r.Lines) == 0 {
		t.Error("the report names no line")
	}

	w.put("m.yaml", session("c", "3")+"---\n"+session("a", "3"))
	w.flush()
	w.wantReport("m.yaml", "", "")
	w.wantReason("a", v1alpha1.ReasonAccepted, "")
	w.pass(3 * time.Second)
	w.want(map[string]string{"a": "3", "c": "3"})
	if d := w.sink.get("a").desired.Source.Document; d != 1 {
		t.Errorf("a is document %d, want 1", d)
	}
}

func TestEmptiedFileDeletesNothing(t *testing.T) { // B-038
	w := newWorld(t)
	w.put("a.yaml", session("a", "1"))
	w.start()
	w.write("a.yaml", "")
	w.pass(10 * time.Second)
	w.want(map[string]string{"a": "1"})
	w.wantReason("a", v1alpha1.ReasonInvalidSpec, "remove the file")
	w.put("a.yaml", "# nothing\n")
	w.pass(10 * time.Second)
	w.want(map[string]string{"a": "1"})
	w.put("a.yaml", session("a", "2"))
	w.flush()
	w.want(map[string]string{"a": "2"})
	w.wantReason("a", v1alpha1.ReasonAccepted, "")
}

func TestSlowWriter(t *testing.T) { // B-038, R9
	w := newWorld(t)
	good := session("a", "whole")
	w.put("a.yaml", good)
	w.start()
	w.pass(5 * time.Second)
	f, err := os.OpenFile(w.path("a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	defer f.Close()
	w.flush()
	slow := false
	for i := range len(good) { // every prefix
		_, err := f.Write([]byte{good[i]})
		must(t, err)
		w.flush()
		w.clock.Step(20 * time.Millisecond)
		w.flush()
		o := w.sink.get("a")
		if o.generation != 1 {
			t.Fatalf("after %d bytes: spec %s", i+1, o.desired.RawSpec)
		}
		if o.accepted.Reason == v1alpha1.ReasonSourceUnreadable {
			slow = true
			w.wantReason("a", v1alpha1.ReasonSourceUnreadable, "still being written")
			w.wantReport("a.yaml", FileWriting, "")
		}
	}
	if !slow {
		t.Error("nothing was said of a file that was written for seconds")
	}
	w.pass(5 * time.Second)
	w.wantReason("a", v1alpha1.ReasonAccepted, "")
	w.wantReport("a.yaml", "", "")
	w.want(map[string]string{"a": "whole"})
}

func TestSlowWriterWithPausesLongerThanTheSettleTime(t *testing.T) { // case 016: a line, 55 ms, a line
	w := newWorld(t)
	good := session("a", "whole") + "  restartPolicy: Never\n  desiredState: Running\n"
	w.put("a.yaml", good)
	w.start()
	w.pass(5 * time.Second)
	w.write("a.yaml", "")
	w.flush()
	for _, line := range strings.SplitAfter(good, "\n") {
		f, err := os.OpenFile(w.path("a.yaml"), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		_, err = f.WriteString(line)
		must(t, err)
		must(t, f.Close())
		w.flush()
		w.clock.Step(55 * time.Millisecond)
		w.flush()
		if o := w.sink.get("a"); o.generation != 1 || o.accepted.Reason == v1alpha1.ReasonInvalidSpec {
			t.Fatalf("acted on a half file: generation %d, %s", o.generation, o.accepted.Message)
		}
	}
	w.pass(5 * time.Second)
	w.wantReason("a", v1alpha1.ReasonAccepted, "")
}

func TestSlowWriterOfANewFile(t *testing.T) {
	// From the fifth line on every line more is a whole session of another command.
	w := newWorld(t)
	w.start()
	text := strings.TrimSuffix(strings.SplitAfter(session("a", ""), "  command")[0], "command") + "command:\n"
	for i := range 30 {
		text += fmt.Sprintf("  - %q\n", fmt.Sprint("arg", i))
	}
	lines := strings.SplitAfter(text, "\n")
	w.write("a.yaml", lines[0])
	w.flush()
	for _, line := range lines[1:] {
		w.clock.Step(55 * time.Millisecond)
		w.flush()
		f, err := os.OpenFile(w.path("a.yaml"), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		_, err = f.WriteString(line)
		must(t, err)
		must(t, f.Close())
		w.flush()
		if o := w.sink.get("a"); o != nil {
			t.Fatalf("acted on a half file: %s", o.desired.RawSpec)
		}
	}
	w.pass(3 * time.Second)
	w.want(map[string]string{"a": "arg29"})
}

func TestYoungFilesAreReadAgain(t *testing.T) {
	// The stamps of a file that was just written may hide another write.
	w := newWorld(t)
	w.put("a.yaml", session("a", "1"))
	w.start()
	reads := func(after time.Duration) int64 {
		t.Helper()
		w.pass(after)
		before := w.s.Stats().Reads
		w.do(func(s *Spool) { s.lookAll() })
		w.flush()
		return w.s.Stats().Reads - before
	}
	if n := reads(0); n != 1 {
		t.Errorf("%d reads of a young file, want 1", n)
	}
	if n := reads(3 * time.Second); n != 1 {
		t.Errorf("%d reads of a file that was young, want 1", n)
	}
	if n := reads(0); n != 0 {
		t.Errorf("%d reads of a file that is old, want none", n)
	}
	if n := w.s.Stats().Parses; n != 1 {
		t.Errorf("%d parses, want 1", n)
	}
}

func TestEveryPrefixByRename(t *testing.T) {
	// A prefix that arrives whole is what it is; it must not take the object away.
	w := newWorld(t)
	good := session("a", "whole")
	w.put("a.yaml", good)
	w.start()
	for i := range len(good) {
		w.put("a.yaml", good[:i])
		w.flush()
	}
	w.pass(time.Second)
	w.put("a.yaml", good)
	w.flush()
	w.want(map[string]string{"a": "whole"})
	w.wantNoRemovals()
}

func TestGitCheckout(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no git")
	}
	w := newWorld(t)
	run := func(args ...string) {
		t.Helper()
		c := exec.Command(git, append([]string{"-C", w.spool, "-c", "user.name=t", "-c", "user.email=t@t"}, args...)...)
		c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	run("init", "-q", "-b", "main")
	want1, want2 := map[string]string{}, map[string]string{}
	for i := range 20 {
		name := fmt.Sprintf("s%d", i)
		w.write(name+".yaml", session(name, "one"))
		want1[name] = "one"
	}
	run("add", ".")
	run("commit", "-qm", "one")
	run("checkout", "-qb", "two")
	for i := range 20 {
		name := fmt.Sprintf("s%d", i)
		run("mv", name+".yaml", "moved-"+name+".yaml")
		w.write("moved-"+name+".yaml", session(name, "two"))
		want2[name] = "two"
	}
	run("commit", "-qam", "two")
	run("checkout", "-q", "main")
	w.start()
	w.want(want1)
	for range 3 {
		run("checkout", "-q", "two")
		w.pass(3 * time.Second)
		w.want(want2)
		run("checkout", "-q", "main")
		w.pass(3 * time.Second)
		w.want(want1)
	}
	w.wantNoRemovals()
	for name := range want1 {
		if uid := w.sink.get(name).uid; uid > 20 {
			t.Errorf("%s was made anew", name)
		}
	}
}

func TestSinkFailures(t *testing.T) {
	w := newWorld(t)
	full := true
	w.sink.fail = func(_ string, k api.Key) error {
		if full && k.Name != "good" {
			return syscall.ENOSPC
		}
		return nil
	}
	w.put("a.yaml", session("a", "1"))
	w.put("good.yaml", session("good", "1"))
	w.start() // one that is not taken does not hold the start up
	w.want(map[string]string{"good": "1"})
	w.pass(10 * time.Second)
	w.put("a.yaml", session("a", "2"))
	w.put("good.yaml", session("good", "2"))
	w.flush()
	w.want(map[string]string{"good": "2"})
	w.sink.mu.Lock()
	full = false
	w.sink.mu.Unlock()
	w.pass(retryMax)
	w.want(map[string]string{"good": "2", "a": "2"})
	w.wantReason("a", v1alpha1.ReasonAccepted, "")

	w.sink.mu.Lock()
	full = true
	w.sink.mu.Unlock()
	w.remove("a.yaml")
	w.pass(5 * time.Second)
	w.want(map[string]string{"good": "2", "a": "2"})
	w.sink.mu.Lock()
	full = false
	w.sink.mu.Unlock()
	w.pass(retryMax)
	w.want(map[string]string{"good": "2"})
}

func TestFullReportDirDelaysReportsOnly(t *testing.T) {
	w := newWorld(t)
	full := true
	w.layer.Guard = func() error {
		if full {
			return syscall.ENOSPC
		}
		return nil
	}
	w.put("a.yaml", session("a", "1"))
	w.put("bad.yaml", "nonsense: [")
	w.start()
	w.want(map[string]string{"a": "1"})
	w.do(func(*Spool) { full = false })
	w.pass(5 * time.Second)
	w.wantReport("bad.yaml", FileInvalid, "")
	w.wantRoot(w.spool, RootReady, "")
}
