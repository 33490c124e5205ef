//go:build e2e

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/hack/e2e/world"
)

// subject is the session that a trial is about.
const subject = "s"

// kind is one kind of change to a session.
type kind struct {
	name string
	// have is the state before the change; empty: there is no session, and no
	// tmux server.
	have string
	// existing chooses an existingPath as target, worktree a worktree, else it is a
	// plainDir.
	existing, worktree bool
	// before is done when no controller runs.
	before func(*trial)
	change func(*trial)
	// want is the state after it, and starts are the versions of the program
	// that were started until then, no more and no fewer.
	want   string
	starts []string
	// death is the signal, or else who asked, in the certificate of the last
	// program that ended.
	death string
	// restarts are those that the status counts.
	restarts int64
	// agent is an agent instead of a command: its conversation is minted, and what
	// resumes it is the version resumed.
	agent bool
	// also says what else of the change is not yet done. Such a change is a request:
	// one with a failure in it may end as failed or uncertain, and is not done all
	// the same, so only kills are tried here.
	also func(*trial) string
	// alone has no second session beside it; bare is a program that leaves no
	// process behind, so that its end and the next start come in one pass.
	alone, bare bool
}

// States of a session.
const (
	running = "Running"
	stopped = "Stopped"
	gone    = "Gone"
	failed  = "Failed" // there is no such program
)

var kinds = []*kind{
	{name: "create-plain", change: (*trial).apply, want: running, starts: []string{"v1"}},
	{name: "create-existing", existing: true, change: (*trial).apply, want: running, starts: []string{"v1"}},
	{name: "change", have: running, change: (*trial).edit, want: running, starts: []string{"v1", "v2"}, death: v1alpha1.RequestedSpecChanged},
	{name: "stop", have: running, change: (*trial).halt, want: stopped, starts: []string{"v1"}, death: v1alpha1.RequestedStopped},
	{name: "start", have: stopped, change: (*trial).apply, want: running, starts: []string{"v1", "v1"}, death: v1alpha1.RequestedStopped},
	{name: "delete", have: running, change: (*trial).take, want: gone, starts: []string{"v1"}},
	{name: "delete-named", have: running, change: (*trial).takeNamed, want: gone, starts: []string{"v1"}},
	{name: "restart", have: running, change: (*trial).shoot, want: running, starts: []string{"v1", "v1"}, death: "SIGKILL", restarts: 1},
	{name: "restart-bare", have: running, change: (*trial).shoot, want: running, starts: []string{"v1", "v1"}, death: "SIGKILL", restarts: 1, bare: true},
	{name: "create-agent", change: (*trial).apply, want: running, starts: []string{"v1"}, agent: true, alone: true},
	{name: "resume-agent", have: running, change: (*trial).shoot, want: running, starts: []string{"v1", "resumed"}, death: "SIGKILL", restarts: 1, agent: true, alone: true},
	{name: "request", before: (*trial).serveRequests, change: (*trial).request, want: running, starts: []string{"v1"}, also: (*trial).unanswered, bare: true},
	{name: "create-worktree", worktree: true, before: (*trial).clone, change: (*trial).apply, want: running, starts: []string{"v1"}, also: (*trial).unmade},
	{name: "delete-worktree", worktree: true, before: (*trial).clone, have: running, change: (*trial).takeWork, want: gone, starts: []string{"v1"}, also: (*trial).unkept},
	// These come by the steps that none of the others has.
	{name: "mistake", change: (*trial).mistake, want: failed},
	{name: "confirm", have: running, change: (*trial).confirm, want: gone, starts: []string{"v1"}, alone: true},
	{name: "rotate", before: (*trial).fillEvents, change: (*trial).apply, want: running, starts: []string{"v1"}},
}

// program logs its start, and leaves a process that heeds neither HUP nor TERM.
// Nothing is forked before the log is written: it says pid and start time.
const (
	child   = `trap "" HUP; (trap "" HUP TERM; exec sleep 6002) & `
	program = `read -r stat < /proc/$$/stat; echo "$SKC_SESSION_UID $SKC_SESSION_NAME $0 $stat" >> %s; exec sleep 6001`
)

func (t *trial) spec(name, version, state string) string {
	target := fmt.Sprintf("plainDir: {path: %s}", filepath.Join(t.Work, name))
	if t.kind.existing {
		target = fmt.Sprintf("existingPath: {path: %s}", t.Work)
	}
	if t.kind.worktree {
		target = fmt.Sprintf("worktree: {repo: %s, branch: %s}", filepath.Join(t.Work, "app"), name)
	}
	script := fmt.Sprintf(program, t.log.path)
	if !t.kind.bare {
		script = child + script
	}
	text := fmt.Sprintf(`apiVersion: skc.dev/v1alpha1
kind: Session
metadata: {name: %s}
spec:
  target: {%s}
  command: [sh, -c, %q, %s]
  desiredState: %s
  stop: {gracePeriod: 200ms}
`, name, target, script, version, state)
	if t.kind.agent {
		command := fmt.Sprintf("[sh, -c, %q, %s]", script, version)
		text = strings.Replace(text, "command: "+command, "agent: {profile: bot}", 1) + fmt.Sprintf(`---
apiVersion: skc.dev/v1alpha1
kind: AgentProfile
metadata: {name: bot}
spec:
  command: %s, "{conversationID}"]
  conversation: {mint: {}}
  resume: [sh, -c, %q, resumed, "{conversationID}"]
`, strings.TrimSuffix(command, "]"), script)
	}
	return text
}

// serveRequests has skcd serve requests, whose agents are the program.
func (t *trial) serveRequests() {
	secret := filepath.Join(t.Dir, "secret")
	t.Write(secret, "1234567890:secret")
	world.Must(t, os.Chmod(secret, 0o600))
	t.Config(fmt.Sprintf("lifecycle: {secretFile: %q, profile: bot}\n", secret))
	t.Drop("bot.yaml", fmt.Sprintf(`apiVersion: skc.dev/v1alpha1
kind: AgentProfile
metadata: {name: bot}
spec:
  command: [sh, -c, %q, v1]
`, fmt.Sprintf(program, t.log.path)))
	t.file = filepath.Join("..", "state", "managed", v1alpha1.DefaultNamespace, "session-"+subject+".yaml")
}

// request asks once for the subject.
func (t *trial) request() {
	t.Drop("request.yaml", fmt.Sprintf(`apiVersion: skc.dev/v1alpha1
kind: SessionRequest
metadata: {name: once}
spec:
  source: trial
  key: "1"
  verb: Create
  target: {create: {kind: existing_path, path: %s}}
  ids: {lifecycleRequestId: l1, intendedSessionId: %s}
`, t.Work, subject))
}

// answer is the state of the request in the ledger.
func (t *trial) answer() string {
	text, _ := os.ReadFile(filepath.Join(t.State, "objects", "sessionrequest", v1alpha1.DefaultNamespace, "once.yaml"))
	for line := range strings.Lines(string(text)) {
		if state, ok := strings.CutPrefix(line, "  state: "); ok {
			return strings.TrimSpace(state)
		}
	}
	return ""
}

// uncertain tells that the request ended so, and that it had no effect: killed
// between the word that it begins and the definition, nobody can tell whether
// there was one.
func (t *trial) uncertain() bool {
	return t.kind.also != nil && t.answer() == string(v1alpha1.RequestUncertain) && len(t.uids()) == 0
}

// unanswered says what the ledger or the audit file lacks.
func (t *trial) unanswered() string {
	if got := t.answer(); got != string(v1alpha1.RequestSuccess) {
		return fmt.Sprintf("the request is %q", got)
	}
	rows, err := os.ReadFile(filepath.Join(t.State, "audit", "telegram-lifecycle-audit.jsonl"))
	for _, event := range []string{"accepted", "spawn_started", "success"} {
		if !strings.Contains(string(rows), `"event":"`+event+`"}`+"\n") {
			return fmt.Sprintf("no row %s: %v\n%s", event, err, rows)
		}
	}
	return ""
}

// say makes the spool say the text of the subject, as a file or by command.
func (t *trial) say(text string) {
	if t.rand.IntN(4) == 0 {
		t.World.Apply(text)
		return
	}
	t.Drop(t.file, text)
}

func (t *trial) apply() { t.say(t.spec(subject, "v1", running)) }

// mistake asks for a program that is not there, once.
func (t *trial) mistake() {
	t.say(strings.Replace(t.spec(subject, "v1", running), "command: [sh,", "restartPolicy: Never\n  command: [no-such-program,", 1))
}

func (t *trial) edit() { t.say(t.spec(subject, "v2", running)) }

func (t *trial) halt() {
	if t.rand.IntN(4) == 0 {
		t.MustCtl("stop", "session", subject)
		return
	}
	t.Drop(t.file, t.spec(subject, "v1", stopped))
}

func (t *trial) take()      { t.Remove(t.file) }
func (t *trial) takeNamed() { t.MustCtl("delete", "session", subject) }

// shoot ends the program as the kernel does when memory is short.
func (t *trial) shoot() { t.Kill(t.log.last(subject).pid, syscall.SIGKILL) }

// clone makes the repository of worktrees.
func (t *trial) clone() {
	app := filepath.Join(t.Work, "app")
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", app},
		{"-C", app, "-c", "user.name=T", "-c", "user.email=t@example.invalid", "commit", "-q", "--allow-empty", "-m", "one"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
}

func (t *trial) tree() string { return filepath.Join(t.Work, "app.worktrees", subject) }

// takeWork takes the subject away while there is work in its worktree.
func (t *trial) takeWork() {
	t.Write(filepath.Join(t.tree(), "work"), "mine")
	t.take()
}

// unmade says what is wrong with the worktree of the subject.
func (t *trial) unmade() string {
	out, err := exec.Command("git", "-C", t.tree(), "status", "--porcelain", "--branch").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "## "+subject {
		return fmt.Sprintf("the worktree is %q, %v", got, err)
	}
	out, err = exec.Command("git", "-C", t.tree(), "worktree", "list", "--porcelain").CombinedOutput()
	if err != nil || strings.Contains(string(out), "locked") || strings.Contains(string(out), "prunable") {
		return fmt.Sprintf("the worktrees are %s, %v", out, err)
	}
	return ""
}

// unkept says what is wrong with the worktree in quarantine: it is there once,
// with the work in it, and git knows it.
func (t *trial) unkept() string {
	if _, err := os.Lstat(t.tree()); err == nil {
		return "the worktree is where it was"
	}
	found, _ := filepath.Glob(filepath.Join(t.State, "quarantine", "things", ".skc-kept-*", "work"))
	beside, _ := filepath.Glob(filepath.Join(t.Work, "app.worktrees", ".skc-quarantine", ".skc-kept-*", "work"))
	if found = append(found, beside...); len(found) != 1 {
		return fmt.Sprintf("the work is in quarantine at %q, want once", found)
	}
	if data, err := os.ReadFile(found[0]); err != nil || string(data) != "mine" {
		return fmt.Sprintf("the work is %q, %v", data, err)
	}
	out, err := exec.Command("git", "-C", filepath.Dir(found[0]), "status", "--porcelain").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "?? work" {
		return fmt.Sprintf("git says of it %q, %v", out, err)
	}
	return ""
}

// confirm replaces the spool by an empty folder, as an unmount does, and says
// that this is meant.
func (t *trial) confirm() {
	world.Must(t, os.Rename(t.Spool, t.Spool+".old"))
	world.Must(t, os.Mkdir(t.Spool, 0o700))
	t.MustCtl("prune", "--confirm")
}

// fillEvents makes the event log longer than it may be, so that the next line rotates it.
func (t *trial) fillEvents() {
	dir := filepath.Join(t.State, "events")
	world.Must(t, os.MkdirAll(dir, 0o700))
	at := time.Now().UTC().Format(time.RFC3339)
	line := fmt.Sprintf(`{"time":%q,"type":"Normal","kind":"Session","namespace":"default","name":"old","uid":"old","reason":"Old","message":%q,"count":1,"firstTime":%q}`+"\n",
		at, strings.Repeat("x", 900), at)
	const rotateAt = 4 << 20
	world.Must(t, os.WriteFile(filepath.Join(dir, "events.jsonl"), []byte(strings.Repeat(line, rotateAt/len(line)+1)), 0o600))
}
