//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/hack/e2e/world"
)

// agents makes a world in which testdata/agents/agent.sh is every agent.
func agents(t *testing.T) *world.World {
	t.Helper()
	w := world.New(t)
	bin := filepath.Join(w.Dir, "bin")
	for _, dir := range []string{bin, filepath.Join(w.Dir, "home")} {
		world.Must(t, os.Mkdir(dir, 0o700))
	}
	script, err := os.ReadFile(filepath.Join("testdata", "agents", "agent.sh"))
	world.Must(t, err)
	for _, name := range []string{"claude", "codex", "gemini", "opencode", "skc"} {
		world.Must(t, os.WriteFile(filepath.Join(bin, name), script, 0o700))
	}
	w.Start()
	return w
}

// agent is a Session with that agent, in a folder of its own name.
func agent(w *world.World, name, agent string, more ...string) string {
	text := fmt.Sprintf("apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: %s}\nspec:\n  target: {plainDir: {path: \"@WORK@/%s\"}}\n  agent: %s\n", name, name, agent)
	text += fmt.Sprintf("  env:\n  - {name: PATH, value: \"%s/bin:%s\"}\n  - {name: HOME, value: \"%s/home\"}\n", w.Dir, os.Getenv("PATH"), w.Dir)
	for _, m := range more {
		text += "  " + m + "\n"
	}
	return text
}

// say types a line and waits until the agent has noted it.
func say(w *world.World, name, line string) {
	w.Helper()
	pane := w.Session(name).Status.Tmux.PaneID
	w.MustTmux("send-keys", "-t", pane, "-l", line)
	w.MustTmux("send-keys", "-t", pane, "Enter")
	w.Until(name+" has noted "+line, func() bool { return strings.Contains(screen(w, name), "noted: "+line) })
}

func screen(w *world.World, name string) string {
	out, err := w.Tmux("capture-pane", "-p", "-t", w.Session(name).Status.Tmux.PaneID)
	if err != nil {
		return ""
	}
	return out
}

// untilConversation waits until the conversation of a session is known.
func untilConversation(w *world.World, name string) v1alpha1.ConversationStatus {
	w.Helper()
	w.Until("the conversation of "+name+" is known", func() bool { return w.Session(name).Status.Conversation != nil })
	return *w.Session(name).Status.Conversation
}

// untilStarts waits until the agent was started so often, and is ready, and
// returns what it was started with last.
func untilStarts(w *world.World, name string, n int) string {
	w.Helper()
	w.Until(fmt.Sprintf("%s was started %d times", name, n), func() bool { return len(w.Lines(name+"/log")) >= n })
	w.UntilRunning(name)
	lines := w.Lines(name + "/log")
	if len(lines) != n {
		w.Fatalf("%s was started %d times, want %d: %q", name, len(lines), n, lines)
	}
	return lines[n-1]
}

// Each built-in profile begins a conversation, is Ready when the agent's screen
// says so, knows the id, and after a kill resumes it by that exact id.
func TestAgentIsResumed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, profile, env, begin, resume, source string }{
		{"claude", "claude", "", "claude --session-id ID --model big --verbose", "claude --resume ID --model big --verbose", "Minted"},
		{"claude-elsewhere", "claude", "CLAUDE_CONFIG_DIR", "claude --session-id ID --model big --verbose", "claude --resume ID --model big --verbose", "Minted"},
		{"codex", "codex", "", "codex --model big --verbose", "codex resume ID --model big --verbose", "Captured"},
		{"codex-elsewhere", "codex", "CODEX_HOME", "codex --model big --verbose", "codex resume ID --model big --verbose", "Captured"},
		{"gemini", "gemini", "", "gemini --session-id ID --model big --verbose", "gemini --resume ID --model big --verbose", "Minted"},
		{"opencode", "opencode", "", "opencode --model big --verbose", "opencode --session ID --model big --verbose", "Captured"},
		{"opencode-database", "opencode", "AGENT_DATABASE", "opencode --model big --verbose", "opencode --session ID --model big --verbose", "Captured"},
		{"skc", "skc", "", "skc --mpreset big --verbose", "skc --resume ID --mpreset big --verbose", "Minted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := agents(t)
			text := agent(w, "bot", "{profile: "+c.profile+", modelPreset: big, args: [--verbose]}", "restart: {initialBackoff: 100ms, maxBackoff: 100ms}")
			if c.env != "" {
				text = strings.Replace(text, "  env:\n", fmt.Sprintf("  env:\n  - {name: %s, value: \"%s/elsewhere\"}\n", c.env, w.Dir), 1)
			}
			w.Apply(text)
			words := func(line string, id v1alpha1.ConversationID) string {
				w.Helper()
				argv, own, _ := strings.Cut(line, " # ")
				if own != string(id) {
					t.Errorf("the agent talks in %s, and the status says %s", own, id)
				}
				return strings.ReplaceAll(argv, string(id), "ID")
			}
			first := untilStarts(w, "bot", 1)
			say(w, "bot", "remember seven")
			talk := untilConversation(w, "bot")
			if got := words(first, talk.ID); got != c.begin {
				t.Errorf("it began with %q, want %q", got, c.begin)
			}
			if string(talk.Source) != c.source || talk.Profile != c.profile {
				t.Errorf("the conversation is %+v", talk)
			}
			for n := 2; n < 4; n++ {
				world.Must(t, syscall.Kill(w.Main("bot"), syscall.SIGKILL))
				if n == 3 { // the next controller knows it too
					w.Stop(syscall.SIGKILL)
					w.Start()
				}
				if got := words(untilStarts(w, "bot", n), talk.ID); got != c.resume {
					t.Errorf("start %d was %q, want %q", n, got, c.resume)
				}
				w.Until("it remembers", func() bool { return strings.Contains(screen(w, "bot"), "you said: remember seven") })
			}
			if now := *w.Session("bot").Status.Conversation; now.ID != talk.ID || !now.Begun {
				t.Errorf("the conversation is %+v, and was %+v", now, talk)
			}
			w.MustCtl("stop", "bot")
			w.UntilCondition("bot", "Ready", "True/Stopped")
			w.MustCtl("start", "bot")
			if got := words(untilStarts(w, "bot", 4), talk.ID); got != c.resume {
				t.Errorf("after a stop it was started with %q, want %q", got, c.resume)
			}
			noDoubles(w)
		})
	}
}

// noDoubles sees that no agent had to refuse a second process.
func noDoubles(w *world.World) {
	w.Helper()
	if b, err := os.ReadFile(filepath.Join(w.Dir, "home", "doubles")); err == nil {
		w.Errorf("started twice at a time: %s", b)
	}
}

// An agent that is killed before anybody spoke to it has written nothing that
// could be resumed: it begins again, under the id that it was given.
func TestAgentWithNothingToResume(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"claude", "gemini", "codex", "opencode"} {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			w := agents(t)
			w.Apply(agent(w, "bot", "{profile: "+profile+"}", "restart: {initialBackoff: 100ms, maxBackoff: 100ms}"))
			first := untilStarts(w, "bot", 1)
			world.Must(t, syscall.Kill(w.Main("bot"), syscall.SIGKILL))
			second := untilStarts(w, "bot", 2)
			if minted := profile == "claude" || profile == "gemini"; minted && second != first {
				t.Errorf("it began with %q, and then with %q", first, second)
			} else if argv, _, _ := strings.Cut(second, " # "); !minted && argv != profile+" " {
				t.Errorf("it began again with %q", second)
			}
		})
	}
}

// Two in one folder cannot be told apart by their files; what each says in the
// end can.
func TestAgentsInOneFolder(t *testing.T) {
	t.Parallel()
	w := agents(t)
	for _, name := range []string{"one", "two"} {
		w.Apply(strings.ReplaceAll(agent(w, name, "{profile: codex}", "restart: {initialBackoff: 100ms, maxBackoff: 100ms}"), "@WORK@/"+name, "@WORK@/shared"))
		w.UntilRunning(name)
	}
	w.Until("both have begun", func() bool { return len(w.Lines("shared/log")) == 2 })
	say(w, "two", "remember two")
	w.Until("it is said that they cannot be told apart", func() bool {
		events := strings.Join(append(w.Events("one"), w.Events("two")...), "\n")
		return strings.Contains(events, "ConversationUnclear")
	})
	say(w, "one", "remember one")
	for _, name := range []string{"one", "two"} {
		if c := w.Session(name).Status.Conversation; c != nil {
			t.Fatalf("%s took the conversation %+v", name, c)
		}
		pane := w.Session(name).Status.Tmux.PaneID
		w.MustTmux("send-keys", "-t", pane, "-l", "bye")
		w.MustTmux("send-keys", "-t", pane, "Enter")
		untilConversation(w, name)
		w.Until(name+" remembers its own", func() bool { return strings.Contains(screen(w, name), "you said: remember "+name) })
	}
	noDoubles(w)
}

// Two Sessions with one conversation: one runs, the other says whose it is, also
// after a restart of skcd and while the first is stopped, and goes on when the
// first is gone.
func TestConversationHasOneSession(t *testing.T) {
	t.Parallel()
	w := agents(t)
	const id = "11111111-2222-4333-8444-555555555555"
	history := filepath.Join(w.Dir, "home", ".skc", "history")
	world.Must(t, os.MkdirAll(history, 0o700))
	for _, name := range []string{id, id + ".said"} {
		world.Must(t, os.WriteFile(filepath.Join(history, name), nil, 0o600))
	}
	var both []string
	for _, name := range []string{"one", "two"} {
		both = append(both, agent(w, name, "{profile: skc, conversationID: "+id+"}"))
	}
	w.Apply(strings.Join(both, "---\n"))
	const inUse = "False/ConversationInUse"
	var loser, winner string
	w.Until("one runs and the other says why not", func() bool {
		one, two := w.Condition("one", "Ready"), w.Condition("two", "Ready")
		winner, loser = "one", "two"
		if one == inUse {
			winner, loser = "two", "one"
		}
		return one == inUse && two == "True/Running" || two == inUse && one == "True/Running"
	})
	refused := func() {
		w.Helper()
		w.UntilCondition(loser, "SessionRunning", inUse)
		if m := w.Message(loser, "SessionRunning"); !strings.Contains(m, "session/default/"+winner) || !strings.Contains(m, id) {
			t.Errorf("it says %q", m)
		}
		if n := len(w.Mains(loser)); n != 0 {
			t.Errorf("%d processes of %s run", n, loser)
		}
	}
	refused()
	if c := *w.Session(winner).Status.Conversation; c.ID != id || c.Source != v1alpha1.ConversationGiven {
		t.Errorf("the conversation is %+v", c)
	}
	if line := untilStarts(w, winner, 1); line != "skc --resume "+id+" # "+id {
		t.Errorf("it was started with %q", line)
	}
	pid := w.Main(winner)
	w.Stop(syscall.SIGKILL)
	w.Start()
	refused()
	if w.Main(winner) != pid {
		t.Error("the first was started again")
	}
	w.MustCtl("stop", winner)
	w.UntilCondition(winner, "Ready", "True/Stopped")
	refused()
	w.MustCtl("delete", "session", winner)
	w.UntilRunning(loser)
	if line := untilStarts(w, loser, 1); line != "skc --resume "+id+" # "+id {
		t.Errorf("it was started with %q", line)
	}
	noDoubles(w)
}

// A profile comes, changes, goes and is wrong: what runs is left alone, what
// waits for it starts, and every refusal says what to do.
func TestAgentProfileLife(t *testing.T) {
	t.Parallel()
	w := agents(t)
	profile := func(command, more string) string {
		return "apiVersion: skc.dev/v1alpha1\nkind: AgentProfile\nmetadata: {name: bot}\nspec:\n  command: " + command + "\n" + more
	}
	w.Apply(agent(w, "bot", "{profile: bot}"))
	w.UntilCondition("bot", "Ready", "False/ProfileNotFound")
	w.Apply(profile(`[sh, -c, "echo first >> log; exec sleep 6000"]`, ""))
	pid := w.UntilRunning("bot")
	if c := w.Session("bot").Status.Conversation; c != nil {
		t.Errorf("it has the conversation %+v", c)
	}
	w.Apply(profile(`[sh, -c, "echo second >> log; echo up; exec sleep 6000"]`, "  screen: {ready: {pattern: '^up$'}}\n"))
	w.UntilCondition("bot", "Ready", "Unknown/ReadinessPending") // the profile's screen counts at once
	if now := w.Main("bot"); now != pid || !slices.Equal(w.Lines("bot/log"), []string{"first"}) {
		t.Error("a changed profile restarted what runs")
	}
	w.MustCtl("restart", "bot")
	w.Until("the next start is what the profile says now", func() bool { return slices.Equal(w.Lines("bot/log"), []string{"first", "second"}) })
	w.UntilRunning("bot")
	w.MustCtl("delete", "agentprofile", "bot")
	w.Until("the profile is gone", func() bool { return w.Ctl("get", "agentprofile", "bot").Code == 4 })
	if now := w.Main("bot"); len(w.Mains("bot")) != 1 || now == pid {
		t.Error("a profile that went took what runs with it")
	}

	w.Apply(agent(w, "preset", "{profile: bot, modelPreset: big}"))
	w.UntilCondition("preset", "Ready", "False/ProfileNotFound")
	w.Apply(profile("[sleep]", "  modelPreset: {args: [\"{modelPreset}\"], presets: [{name: small, value: \"1\"}]}\n"))
	w.UntilCondition("preset", "Ready", "False/PresetUnknown")
	if m := w.Message("preset", "Ready"); !strings.Contains(m, `"big"`) || !strings.Contains(m, "small") {
		t.Errorf("it says %q", m)
	}
	w.Apply(profile("[sleep]", "  modelPreset: {args: [\"{modelPreset}\"], presets: [{name: big, value: \"6000\"}]}\n"))
	w.UntilRunning("preset")

	w.Apply(agent(w, "shell", "{profile: shell}"))
	w.UntilRunning("shell")
	w.Apply(agent(w, "talk", "{profile: shell, conversationID: x}"))
	w.UntilCondition("talk", "Ready", "False/ConversationUnsupported")
	if out := w.MustCtl("get", "agentprofiles"); !regexp.MustCompile(`(?m)^bot +sleep +True `).MatchString(out) || !regexp.MustCompile(`(?m)^claude +claude +true `).MatchString(out) {
		t.Errorf("get agentprofiles prints\n%s", out)
	}
}

// A session that was deleted and is brought back goes on with its conversation.
func TestAgentComesBack(t *testing.T) {
	t.Parallel()
	w := agents(t)
	w.Apply(agent(w, "bot", "{profile: claude}"))
	untilStarts(w, "bot", 1)
	say(w, "bot", "remember seven")
	talk := untilConversation(w, "bot")
	w.MustCtl("delete", "session", "bot", "--wait", "--timeout=30s")
	w.UntilGone("bot")
	name := strings.TrimPrefix(strings.TrimSpace(w.MustCtl("get", "quarantines", "-o", "name")), "quarantine/")
	w.MustCtl("restore", name)
	w.Until("it is back", func() bool { return w.Session("bot") != nil })
	if line := untilStarts(w, "bot", 2); line != fmt.Sprintf("claude --resume %s # %s", talk.ID, talk.ID) {
		t.Errorf("it was started with %q", line)
	}
	w.Until("it remembers", func() bool { return strings.Contains(screen(w, "bot"), "you said: remember seven") })
}
