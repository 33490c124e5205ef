//go:build e2e

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	// prompt is how the subject gets a startup prompt. A controller that is killed
	// on the way may leave it unknown, and never doubled.
	prompt v1alpha1.PromptDelivery
	// also says what else of the change is not yet done. Of these only kills are
	// tried: a request with a failure in it may end as failed or uncertain, and what
	// an error holds up in git or in quarantine is tried again later than a trial
	// waits.
	also func(*trial) string
	// alone has no second session beside it; bare is a program that leaves no
	// process behind, so that its end and the next start come in one pass.
	alone, bare bool
	// more is another line of the spec.
	more string
	// loose has a commit in the worktree that is on no branch.
	loose bool
	// twice allows for one start more: the change may come too late to spare it.
	twice bool
	// anew brings the subject back as another object.
	anew bool
	// help is what a person has to do for the change to come to its end.
	help func(*trial)
	// hold is a place at which skcd waits for a while, when the change is to meet
	// it there; finish undoes what stays wrong by that.
	hold   string
	finish func(*trial)
}

// States of a session.
const (
	running = "Running"
	stopped = "Stopped"
	gone    = "Gone"
	failed  = "Failed" // there is no such program
	ended   = "Ended"  // the program, whatever becomes of the object
	kept    = "Kept"   // the object is gone, and its folder in quarantine
)

var kinds = slices.Concat(workKinds, promptKinds, []*kind{
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
	// These come by the steps that none of the others has.
	{name: "leftover", have: running, change: (*trial).takeWithLaunch, want: gone, starts: []string{"v1"}},
	{name: "mistake", change: (*trial).mistake, want: failed},
	{name: "confirm", have: running, change: (*trial).confirm, want: gone, starts: []string{"v1"}, alone: true},
	{name: "rotate", before: (*trial).fillEvents, change: (*trial).apply, want: running, starts: []string{"v1"}},
})

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
		target = fmt.Sprintf("worktree: {repo: %s, branch: %s}", t.app(), name)
	}
	script := fmt.Sprintf(program, t.log.path)
	if !t.kind.bare {
		script = child + script
	}
	script, more := t.prompted(script)
	text := fmt.Sprintf(`apiVersion: skc.dev/v1alpha1
kind: Session
metadata: {name: %s}
spec:
  target: {%s}
  command: [sh, -c, %q, %s]
  desiredState: %s
  stop: {gracePeriod: 200ms}
`, name, target, script, version, state) + more
	if t.kind.more != "" {
		text += "  " + t.kind.more + "\n"
	}
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

func (t *trial) take() { t.Remove(t.file) }

// takeWithLaunch takes the subject away when a launch file of it was left.
func (t *trial) takeWithLaunch() {
	t.Write(filepath.Join(t.State, "launch", t.uids()[0]+".1.9"), "{}")
	t.take()
}

func (t *trial) takeNamed() { t.MustCtl("delete", "session", subject) }

// shoot ends the program as the kernel does when memory is short.
func (t *trial) shoot() { t.Kill(t.log.last(subject).pid, syscall.SIGKILL) }

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
