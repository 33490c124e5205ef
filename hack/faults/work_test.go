//go:build e2e

package faults

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/hack/e2e/world"
)

// workKinds are the kinds of change to a session that there is work in: nothing
// of it may be lost, and nothing be there twice.
var workKinds = []*kind{
	{name: "create-worktree", worktree: true, before: (*trial).clone, change: (*trial).apply, want: running, starts: []string{"v1"}, also: (*trial).unmade},
	{name: "create-setup", worktree: true, before: (*trial).clone, change: (*trial).applySetup, want: running, starts: []string{"v1"}, also: (*trial).unset, help: (*trial).setUpAgain},
	{name: "delete-worktree", worktree: true, before: (*trial).clone, have: running, change: (*trial).takeWork, want: gone, starts: []string{"v1"}, also: (*trial).unkept},
	{name: "delete-retain", worktree: true, before: (*trial).clone, have: running, more: "cleanup: {policy: Retain}", change: (*trial).takeWork, want: gone, starts: []string{"v1"}, also: (*trial).unretained},
	{name: "delete-folder", have: running, change: (*trial).takeWork, want: gone, starts: []string{"v1"}, also: (*trial).unkept},
	{name: "retarget", worktree: true, before: (*trial).clone, have: running, change: (*trial).retarget, want: running, starts: []string{"v1", "v1"}, death: v1alpha1.RequestedSpecChanged, also: (*trial).unretargeted},
	{name: "rethink", worktree: true, before: (*trial).clone, change: (*trial).rethink, want: running, starts: []string{"v1"}, also: (*trial).unthought, twice: true, hold: "git.checkout:before"},
	{name: "exchange", worktree: true, before: (*trial).clone, have: running, change: (*trial).exchange, want: ended, starts: []string{"v1"}, also: (*trial).unsorted, hold: "quarantine.rename:before", finish: (*trial).exchangeBack},
	{name: "restore", worktree: true, before: (*trial).clone, have: kept, change: (*trial).restore, want: running, anew: true, starts: []string{"v1", "v1"}, also: (*trial).unrestored},
	{name: "restore-to", worktree: true, before: (*trial).clone, have: kept, change: (*trial).restoreTo, want: running, anew: true, starts: []string{"v1", "v1"}, also: (*trial).unrestored},
	{name: "purge", worktree: true, loose: true, before: (*trial).clone, have: kept, change: (*trial).purge, want: gone, starts: []string{"v1"}, also: (*trial).unpurged},
	{name: "expire", worktree: true, loose: true, before: (*trial).clone, have: kept, change: (*trial).expire, want: gone, starts: []string{"v1"}, also: (*trial).unpurged},
	// What a hand can do to a worktree.
	{name: "tree-gone", worktree: true, loose: true, before: (*trial).clone, have: running, change: (*trial).removeTree, want: running, starts: []string{"v1", "v1"}, death: "SIGKILL", restarts: 1, also: (*trial).unmade},
	{name: "tree-moved", worktree: true, before: (*trial).clone, have: running, change: (*trial).moveTree, want: running, starts: []string{"v1", "v1"}, death: v1alpha1.RequestedSpecChanged, also: (*trial).unmoved},
	{name: "tree-unlinked", worktree: true, before: (*trial).clone, have: running, change: (*trial).unlinkTree, want: running, starts: []string{"v1", "v1"}, death: "SIGKILL", restarts: 1, also: (*trial).unmoved},
}

func (t *trial) app() string { return filepath.Join(t.Work, "app") }

// git is what git says, as a person calls it.
func (t *trial) git(dir string, args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=T", "-c", "user.email=t@example.invalid"}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (t *trial) mustGit(dir string, args ...string) string {
	t.Helper()
	out, err := t.git(dir, args...)
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return out
}

// clone makes the repository of worktrees.
func (t *trial) clone() {
	world.Must(t, os.Mkdir(t.app(), 0o755))
	t.mustGit(t.app(), "init", "-q", "-b", "main")
	t.mustGit(t.app(), "commit", "-q", "--allow-empty", "-m", "one")
}

// tree is where the subject runs, unless told otherwise.
func (t *trial) tree() string {
	if !t.kind.worktree {
		return filepath.Join(t.Work, subject)
	}
	return filepath.Join(t.Work, "app.worktrees", subject)
}

// work fills the folder of the subject, and notes what is in it.
func (t *trial) work() {
	t.Helper()
	t.place = t.tree()
	t.fill(t.place, "mine")
	if t.kind.worktree {
		t.mustGit(t.place, "add", "work")
		t.mustGit(t.place, "commit", "-q", "-m", "never pushed")
		if t.kind.loose {
			t.mustGit(t.place, "checkout", "-q", "--detach")
			t.mustGit(t.place, "commit", "-q", "--allow-empty", "-m", "on no branch")
		}
		t.commit = t.mustGit(t.place, "rev-parse", "HEAD")
		t.fill(t.place, "changed")
		t.mustGit(t.place, "add", "deep")
	}
	t.sum = t.digest(t.place)
}

func (t *trial) fill(dir, text string) {
	deep := filepath.Join(dir, "deep", "er")
	world.Must(t, os.MkdirAll(deep, 0o755))
	t.Write(filepath.Join(dir, "work"), text)
	t.Write(filepath.Join(deep, "new\nline \xff"), text)
	if _, err := os.Lstat(filepath.Join(dir, "link")); err != nil {
		world.Must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	}
}

// digest is of all that is below a folder, but for git's own link.
func (t *trial) digest(dir string) string {
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if rel == ".git" || rel == "." {
			return nil
		}
		_, _ = fmt.Fprintf(h, "%q %s\n", rel, fi.Mode())
		switch {
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(path)
			_, _ = h.Write(data)
			return err
		case fi.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			_, _ = fmt.Fprintln(h, to)
			return err
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// things are what lies in quarantine.
func (t *trial) things() []string {
	found, _ := filepath.Glob(filepath.Join(t.State, "quarantine", "things", ".skc-kept-*"))
	beside, _ := filepath.Glob(filepath.Join(filepath.Dir(t.tree()), ".skc-quarantine", ".skc-kept-*"))
	return append(found, beside...)
}

// quarantines are all that skc knows of things in quarantine: objects, their
// definitions, and plans; and what is kept beside each, with a dot before it.
func (t *trial) quarantines() (all []string) {
	for _, glob := range []string{"objects/quarantine/*/*", "managed/*/quarantine-*", "quarantine/plans/*.jsonl"} {
		found, _ := filepath.Glob(filepath.Join(t.State, glob))
		all = append(all, found...)
	}
	return all
}

// lostWork says what of the work is not at dir: as it was, in a worktree that git
// takes for one, with its commits in reach of a ref.
func (t *trial) lostWork(dir string) string {
	if got := t.digest(dir); got != t.sum {
		return fmt.Sprintf("what is at %s is %s, and was %s", dir, got, t.sum)
	}
	if !t.kind.worktree {
		return ""
	}
	if got, err := t.git(dir, "rev-parse", "HEAD"); err != nil || got != t.commit {
		return fmt.Sprintf("HEAD of %s is %q, %v, want %s", dir, got, err, t.commit)
	}
	const status = "A  \"deep/er/new\\nline \\377\"\n M work\n?? link"
	if got, err := t.git(dir, "status", "--porcelain"); err != nil || got != status {
		return fmt.Sprintf("git says of %s %q, %v", dir, got, err)
	}
	return t.lostCommit()
}

// lostCommit says that no ref holds the commit.
func (t *trial) lostCommit() string {
	if t.commit == "" {
		return ""
	}
	if got, err := t.git(t.app(), "for-each-ref", "--contains", t.commit); err != nil || got == "" {
		return fmt.Sprintf("no ref holds %s: %q, %v", t.commit, got, err)
	}
	return ""
}

// unregistered says what is wrong with what git knows of the worktree at dir: it
// is on that branch, and nobody locked it.
func (t *trial) unregistered(dir, branch string) string {
	list, err := t.git(t.app(), "worktree", "list", "--porcelain")
	if err != nil {
		return fmt.Sprintf("git does not know its worktrees: %v", err)
	}
	for entry := range strings.SplitSeq(list, "\n\n") {
		if rest, ok := strings.CutPrefix(entry, "worktree "+dir+"\n"); ok {
			if _, got, _ := strings.Cut(rest, "\n"); got != "branch refs/heads/"+branch {
				return fmt.Sprintf("git knows the worktree as %q", entry)
			}
			return ""
		}
	}
	return fmt.Sprintf("git knows no worktree %s: %s", dir, list)
}

// unmade says what is wrong with a worktree that was made.
func (t *trial) unmade() string {
	if what := t.unregistered(t.tree(), subject); what != "" {
		return what
	}
	if got, err := t.git(t.tree(), "status", "--porcelain"); err != nil || got != "" {
		return fmt.Sprintf("git says of the new worktree %q, %v", got, err)
	}
	return t.lostCommit()
}

// takeWork takes the subject away while there is work in its folder.
func (t *trial) takeWork() {
	t.work()
	t.take()
}

// unkept says what is wrong with what is in quarantine: the work is there once,
// and git knows it.
func (t *trial) unkept() string {
	if _, err := os.Lstat(t.place); err == nil {
		return "the work is where it was"
	}
	if things := t.things(); len(things) != 1 {
		return fmt.Sprintf("in quarantine there are %q, want one", things)
	}
	all := slices.DeleteFunc(t.quarantines(), func(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") })
	if len(all) != 3 {
		return fmt.Sprintf("of the one thing in quarantine there are %q, want an object, a definition, a plan", all)
	}
	return t.lostWork(t.things()[0])
}

// left says what is left in quarantine, or of it.
func (t *trial) left() string {
	if all := append(t.things(), t.quarantines()...); len(all) > 0 {
		return fmt.Sprintf("there are still %q", all)
	}
	return ""
}

// first is the first of what is wrong.
func first(whats ...string) string {
	for _, what := range whats {
		if what != "" {
			return what
		}
	}
	return ""
}

// unretained says what is wrong with a worktree that was let go.
func (t *trial) unretained() string {
	admin, err := t.git(t.place, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return "git does not know it: " + admin
	}
	if _, err := os.Lstat(filepath.Join(admin, "skc")); err == nil {
		return "it carries skc's mark"
	}
	return first(t.lostWork(t.place), t.unregistered(t.place, subject), t.left())
}

const otherBranch = "other"

// retarget has the subject run on another branch.
func (t *trial) retarget() {
	t.work()
	t.say(strings.Replace(t.spec(subject, "v1", running), "branch: "+subject+"}", "branch: "+otherBranch+"}", 1))
}

func (t *trial) unretargeted() string {
	return first(t.unkept(), t.unregistered(filepath.Join(filepath.Dir(t.place), otherBranch), otherBranch))
}

// rethink asks for a worktree, and for another one while the first is made.
func (t *trial) rethink() {
	t.Drop(t.file, t.spec(subject, "v1", running))
	t.untilHeld()
	t.Drop(t.file, strings.Replace(t.spec(subject, "v1", running), "branch: "+subject+"}", "branch: "+otherBranch+"}", 1))
}

// untilHeld waits until the controller waits, and tells whether it lives.
func (t *trial) untilHeld() bool {
	t.Helper()
	t.until(healLimit, func() string {
		if !t.broke.Alive() || fired(t.broke)[t.kind.hold] > 0 {
			return ""
		}
		return "it does not come by " + t.kind.hold
	})
	return t.broke.Alive()
}

// unthought says what is left of the first worktree where it was made, or what is
// wrong with the second.
func (t *trial) unthought() string {
	if _, err := os.Lstat(t.tree()); err == nil {
		return "the first worktree is there"
	}
	if things := t.things(); len(things) > 1 {
		return fmt.Sprintf("in quarantine there are %q", things)
	}
	return t.unregistered(filepath.Join(filepath.Dir(t.tree()), otherBranch), otherBranch)
}

// exchange takes the subject away, and puts another folder where its worktree is
// in the very moment in which that is moved.
func (t *trial) exchange() {
	t.takeWork()
	if !t.untilHeld() {
		return
	}
	world.Must(t, os.Mkdir(t.aside(), 0o755))
	t.Write(filepath.Join(t.aside(), "theirs"), "theirs")
	t.exchanged = t.swap() == nil
}

// aside is where the worktree is while another folder is in its place.
func (t *trial) aside() string { return t.place + "-aside" }

func (t *trial) swap() error {
	return unix.Renameat2(unix.AT_FDCWD, t.place, unix.AT_FDCWD, t.aside(), unix.RENAME_EXCHANGE)
}

// unsorted says what is wrong when another folder may have been there: that is
// where it was, and skc says so; else the worktree is set aside.
func (t *trial) unsorted() string {
	if !t.exchanged {
		return first(t.lacking(gone, t.kind.starts), t.unkept())
	}
	if got := t.digest(t.aside()); got != t.sum {
		return fmt.Sprintf("the worktree was touched: %s, was %s", got, t.sum)
	}
	// Killed before it looked at what it had moved, skcd leaves that to people.
	at, things, reasons := t.place, t.things(), []string{v1alpha1.ReasonIdentityMismatch, v1alpha1.ReasonLost}
	if len(things) == 1 {
		at, things, reasons = things[0], nil, []string{v1alpha1.ReasonUncertain}
	}
	if data, err := os.ReadFile(filepath.Join(at, "theirs")); err != nil || string(data) != "theirs" || len(things) > 0 {
		return fmt.Sprintf("the other folder is not at %s: %q, %v; in quarantine there are %q", at, data, err, things)
	}
	for _, path := range t.quarantines() {
		data, err := os.ReadFile(path)
		if err == nil && slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(string(data), "reason: "+r) }) {
			return t.lostCommit()
		}
	}
	return fmt.Sprintf("none of %q is said", reasons)
}

// exchangeBack puts the worktree where it was, and the other folder away. skcd looks there again by and by,
// and when it is started.
func (t *trial) exchangeBack() {
	if !t.exchanged {
		return
	}
	if things := t.things(); len(things) == 1 {
		world.Must(t, os.Rename(things[0], filepath.Join(t.Work, "theirs")))
		world.Must(t, os.Rename(t.aside(), t.place))
	} else {
		world.Must(t, t.swap())
	}
	t.exchanged = false
	t.Stop(syscall.SIGTERM)
	t.heal()
}

// quarantine is the name of the one Quarantine, and the file that defines it.
func (t *trial) quarantine() (name, file string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(t.State, "managed", v1alpha1.DefaultNamespace, "quarantine-*.yaml"))
	if err != nil || len(found) != 1 {
		t.Fatalf("quarantines: %q, %v", found, err)
	}
	name = strings.TrimPrefix(filepath.Base(found[0]), "quarantine-")
	return strings.TrimSuffix(name, ".yaml"), found[0]
}

// ask sets a field of the one Quarantine, as a person with an editor does.
func (t *trial) ask(field string) {
	t.Helper()
	_, file := t.quarantine()
	data, err := os.ReadFile(file)
	world.Must(t, err)
	name, _, _ := strings.Cut(field, ":")
	text := regexp.MustCompile(`(?m)^  `+name+`:.*\n`).ReplaceAllString(string(data), "")
	t.Write(file, strings.Replace(text, "\nspec:\n", "\nspec:\n  "+field+"\n", 1))
}

func (t *trial) restore() {
	if t.rand.IntN(2) == 0 {
		t.MustCtl("restore", subject, "--wait=false")
		return
	}
	t.ask("restore: true")
}

// restoreTo has it given back to a folder whose own is not there yet.
func (t *trial) restoreTo() {
	t.place = filepath.Join(t.Work, "not", "there", subject)
	t.ask("restore: true\n  restoreTo: " + t.place)
}

func (t *trial) unrestored() string {
	return first(t.lostWork(t.place), t.unregistered(t.place, subject), t.left())
}

func (t *trial) purge() {
	if t.rand.IntN(2) == 0 {
		t.MustCtl("purge", subject, "--yes", "--wait=false")
		return
	}
	t.ask("purge: true")
}

func (t *trial) expire() { t.ask("retention: 1s") }

// unpurged says what is left of what was purged, or is lost with it.
func (t *trial) unpurged() string {
	list, err := t.git(t.app(), "worktree", "list", "--porcelain")
	if err != nil || strings.Contains(list, "locked") || strings.Contains(list, "prunable") || strings.Contains(list, ".skc-") {
		return fmt.Sprintf("the worktrees are %s, %v", list, err)
	}
	if _, err := t.git(t.app(), "rev-parse", "--verify", "refs/heads/"+subject); err != nil {
		return "the branch is gone"
	}
	return first(t.left(), t.lostCommit())
}

// removeTree removes the worktree, all at once, and the program ends.
func (t *trial) removeTree() {
	t.work()
	trash := filepath.Join(t.Dir, "trash")
	world.Must(t, os.Rename(t.place, trash))
	world.Must(t, os.RemoveAll(trash))
	t.shoot()
}

// moveTree moves the worktree, and says where it is by now.
func (t *trial) moveTree() {
	t.work()
	t.place += "-moved"
	world.Must(t, os.Rename(t.tree(), t.place))
	t.say(strings.Replace(t.spec(subject, "v1", running), "branch: "+subject+"}", "branch: "+subject+", path: "+t.place+"}", 1))
}

// unlinkTree removes what leads from the worktree to its repository.
func (t *trial) unlinkTree() {
	t.work()
	world.Must(t, os.Remove(filepath.Join(t.place, ".git")))
	t.shoot()
}

// unmoved says what is wrong with a worktree that should be whole at its place.
func (t *trial) unmoved() string {
	return first(t.lostWork(t.place), t.unregistered(t.place, subject), t.left())
}

// applySetup asks for a worktree with a setup, which notes that it runs.
func (t *trial) applySetup() {
	run := fmt.Sprintf("setup: [sh, -c, \"echo ran >> %s\"]}", t.setups())
	t.say(strings.Replace(t.spec(subject, "v1", running), "branch: "+subject+"}", "branch: "+subject+", "+run, 1))
}

func (t *trial) setups() string { return filepath.Join(t.Work, "setups") }

// setUpAgain asks for another run of a setup of which nobody saw the end, once
// for each.
func (t *trial) setUpAgain() {
	s := t.Session(subject)
	if s == nil || s.Status.Workspace == nil || s.Status.Workspace.Setup == nil ||
		t.Condition(subject, v1alpha1.WorkspaceReady) != "False/"+v1alpha1.ReasonSetupInterrupted {
		return
	}
	if at := s.Status.Workspace.Setup.StartedAt.String(); at != t.interrupted {
		t.interrupted = at
		t.asked++
		t.MustCtl("restart", "session", subject)
	}
}

// unset says what is wrong with a worktree that has a setup: one run was skc's
// own, each other was asked for.
func (t *trial) unset() string {
	data, _ := os.ReadFile(t.setups())
	if n := strings.Count(string(data), "ran\n"); n < 1 || n > 1+t.asked {
		return fmt.Sprintf("the setup ran %d times, and was asked for again %d times", n, t.asked)
	}
	return t.unmade()
}
