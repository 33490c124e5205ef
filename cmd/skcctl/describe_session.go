package main

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"skc.dev/skc/api/v1alpha1"
)

func (t *teller) session(s *v1alpha1.Session, pending bool) {
	t.title(0, "Spec")
	switch {
	case s.Spec.Target.ExistingPath != nil:
		t.line(1, "Target", "existingPath "+string(s.Spec.Target.ExistingPath.Path))
	case s.Spec.Target.PlainDir != nil:
		t.line(1, "Target", "plainDir "+string(s.Spec.Target.PlainDir.Path))
	case s.Spec.Target.Worktree != nil:
		x := s.Spec.Target.Worktree
		t.line(1, "Target", "worktree of "+string(x.Repo)+", branch "+x.Branch)
		if x.Base != "" {
			t.line(1, "Base", x.Base)
		}
		if len(x.Setup) > 0 {
			t.line(1, "Setup", commandText(x.Setup))
		}
	}
	if s.Spec.Target.ExistingPath == nil {
		if s.Spec.Cleanup.Policy == v1alpha1.CleanupRetain {
			t.line(1, "Clean-Up", "Retain: the folder stays where it is")
		} else {
			t.line(1, "Clean-Up", "Quarantine, kept for "+duration.HumanDuration(s.Spec.Cleanup.RetentionOrDefault()))
		}
	}
	if a := s.Spec.Agent; a != nil {
		t.line(1, "Agent", agentText(a))
	} else {
		t.line(1, "Command", commandText(s.Spec.Command))
	}
	var names []string
	for _, e := range s.Spec.Env {
		name := e.Name
		if e.ValueFrom != nil {
			name += " (from " + string(e.ValueFrom.File) + ")"
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		t.line(1, "Environment", strings.Join(names, ", "))
	}
	if p := s.Spec.StartupPrompt; p != nil {
		t.line(1, "Startup Prompt", promptText(p)+", by "+string(s.Spec.PromptDeliveryOrDefault()))
	}
	t.line(1, "Desired State", string(s.Spec.DesiredState))
	t.line(1, "Restart Policy", string(s.Spec.RestartPolicy))
	if s.Spec.Suspend {
		t.line(1, "Suspend", "true: nothing is started or ended")
	}
	if pending {
		return
	}
	status := s.Status
	t.title(0, "Status")
	t.line(1, "Observed Generation", fmt.Sprint(status.ObservedGeneration))
	if w := status.Workspace; w != nil {
		made := ""
		if w.CreatedByController {
			made = " (made by skc)"
		}
		t.line(1, "Workspace", w.Path+made)
		for _, x := range []struct{ title, text string }{
			{"Repository", w.Repo}, {"Branch", w.Branch}, {"Head", w.Head}, {"Identity", string(w.Identity)}, {"Goes Into Quarantine As", w.Quarantine},
		} {
			if x.text != "" {
				t.line(1, x.title, x.text)
			}
		}
		if w.Setup != nil {
			t.setup(w.Setup)
		}
	}
	if c := status.Conversation; c != nil {
		t.line(1, "Conversation", fmt.Sprintf("%s of %s (%s)", c.ID, c.Profile, c.Source))
	}
	if x := status.Tmux; x != nil {
		t.line(1, "Tmux", fmt.Sprintf("session %s, pane %s, pid %d", x.SessionID, x.PaneID, x.PanePID))
		t.line(1, "Tmux Server", fmt.Sprintf("pid %d at %s", x.ServerPID, x.Socket))
		if x.StartedAt != nil {
			t.line(1, "Started", fmt.Sprintf("%s, start %d of this session", t.since(x.StartedAt.Time), x.Attempt))
		}
	}
	t.line(1, "Restarts", fmt.Sprintf("%d, %d in a row", status.Restarts.Total, status.Restarts.Consecutive))
	if at := status.Restarts.NextAttemptAt; at != nil {
		t.line(1, "Next Attempt", fmt.Sprintf("%s (in %s)", at.Format(time.RFC3339), duration.HumanDuration(max(0, at.Sub(t.now)))))
	}
	if x := status.Stopping; x != nil {
		t.line(1, "Stopping", fmt.Sprintf("%s; killed at %s", x.Reason, x.Deadline.Format(time.RFC3339)))
	}
	if x := status.LastTermination; x != nil {
		t.termination(x)
	}
}

// promptText says where a prompt comes from, and nothing of it.
func promptText(p *v1alpha1.StartupPrompt) string {
	if p.File != "" {
		return "from " + string(p.File)
	}
	return fmt.Sprintf("a text of %d bytes", len(p.Text))
}

// agentText is what a Session says of its agent.
func agentText(a *v1alpha1.AgentSpec) string {
	text := a.Profile
	if a.ModelPreset != "" {
		text += fmt.Sprintf(", model preset %s", a.ModelPreset)
	}
	if a.ConversationID != "" {
		text += fmt.Sprintf(", conversation %s", a.ConversationID)
	}
	if len(a.Args) > 0 {
		text += ", arguments " + commandText(a.Args)
	}
	return text
}

// maxCommand is how many characters of a command are shown.
const maxCommand = 500

func commandText(argv []string) string {
	words := make([]string, 0, len(argv))
	for _, word := range argv {
		if strings.ContainsAny(word, " \t\n\"'") || word == "" {
			word = fmt.Sprintf("%q", word)
		}
		words = append(words, word)
	}
	text := []rune(strings.Join(words, " "))
	if len(text) > maxCommand {
		text = append(text[:maxCommand], '…')
	}
	return string(text)
}

func (t *teller) setup(x *v1alpha1.SetupStatus) {
	state := "runs, since " + t.since(x.StartedAt.Time)
	switch {
	case x.Message != "":
		state = x.Message
	case x.ExitCode != nil:
		state = fmt.Sprintf("ended with exit code %d", *x.ExitCode)
	case x.Signal != "":
		state = "ended by " + x.Signal
	case x.FinishedAt != nil:
		state = "ended, and nobody saw how"
	}
	if x.FinishedAt != nil {
		state += fmt.Sprintf(", after %s, %s ago", duration.HumanDuration(x.FinishedAt.Sub(x.StartedAt.Time)), t.ago(x.FinishedAt.Time))
	}
	t.line(1, "Setup", state)
	t.lines(1, "Setup Last Lines", x.LastLines)
}

// safety is one line for each check of a workspace that skc made.
func (t *teller) safety(s *v1alpha1.Session, seen safety) {
	if s.Status.Workspace == nil || !seen.ours {
		return
	}
	when := "looked at now"
	if !seen.live {
		when = "as skcd saw it last"
	}
	verdict := "yes"
	if len(red(seen.checks)) > 0 {
		verdict = "no"
	}
	if len(seen.checks) == 0 {
		t.line(0, "Safe To Delete", "not known: it was not looked at yet")
		return
	}
	t.line(0, "Safe To Delete", verdict+", "+when)
	t.checks(seen.checks)
}

func (t *teller) termination(x *v1alpha1.Termination) {
	t.title(0, "Last Termination")
	t.line(1, "Reason", x.Reason)
	if x.Message != "" {
		t.line(1, "Message", x.Message)
	}
	if x.ExitCode != nil {
		t.line(1, "Exit Code", fmt.Sprint(*x.ExitCode))
	}
	if x.Signal != "" {
		t.line(1, "Signal", x.Signal)
	}
	if x.OOMKilled {
		t.line(1, "Out Of Memory", "true")
	}
	if x.RequestedBy != "" {
		t.line(1, "Requested By", x.RequestedBy)
	}
	if x.Forced {
		t.line(1, "Forced", "true: processes outlived the grace period and were killed")
	}
	if x.StartedAt != nil {
		t.line(1, "Started", t.since(x.StartedAt.Time))
	}
	if x.FinishedAt != nil {
		t.line(1, "Finished", t.since(x.FinishedAt.Time))
	}
	t.lines(1, "Last Lines", x.LastLines)
}
