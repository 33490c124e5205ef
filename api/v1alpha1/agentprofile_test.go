package v1alpha1

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"skc.dev/skc/api"
)

const profileHead = `apiVersion: skc.dev/v1alpha1
kind: AgentProfile
metadata: {name: bot}
spec:
`

const goodProfile = profileHead + `  command: [bot, --id, "{conversationID}"]
  conversation: {mint: {}}
  resume: [bot, "--resume={conversationID}"]
`

// An object of a kind without namespaces has none, whatever the file looks like.
func TestDecodeClusterScope(t *testing.T) {
	d := mustDecode(t, goodProfile+"---\n"+good)
	if key := api.KeyOf(d[0].Object); key != (api.Key{Kind: KindAgentProfile, Name: "bot"}) || key.String() != "agentprofile/bot" {
		t.Errorf("the key is %#v, %s", key, key)
	}
	if key := api.KeyOf(d[1].Object); key.Namespace != DefaultNamespace {
		t.Errorf("the key is %#v", key)
	}
	if !ClusterScoped(KindAgentProfile) || ClusterScoped(KindSession) || ClusterScoped("Nope") {
		t.Error("the scopes are wrong")
	}
	_, err := Decode("f", []byte(strings.Replace(goodProfile, "{name: bot}", "{name: bot, namespace: default}", 1)))
	if want := "f:3: metadata.namespace: an AgentProfile belongs to no namespace: leave it out"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err = Decode("f", []byte(goodProfile+"---\n"+goodProfile)); err == nil || !strings.Contains(err.Error(), "agentprofile/bot is there twice") {
		t.Errorf("twice: %v", err)
	}
}

func TestDecodeRefusesProfile(t *testing.T) {
	const oneWay = "command has {conversationID} when conversation.mint gives no env, and only then"
	const placed = "{modelPreset} belongs in modelPreset.args, and {newConversationID} in fork"
	for _, c := range []struct{ name, spec, want string }{
		{"no command", "  screen: {}\n", "f:4: spec.command: is required"},
		{"a shell line", "  command: bot --id x\n", "f:5: spec.command: must be a list"},
		{"nothing to begin with", "  command: [\"\"]\n", "f:5: spec.command: the program's name may not be empty"},
		{"a hole in the middle", "  command: [bot, \"--id={conversationID}x\"]\n  conversation: {mint: {}}\n  resume: [bot, \"{conversationID}\"]\n", "f:4: spec: " + oneWay + "\nf:5: spec.command[1]: a placeholder is a whole argument, or all of it behind --flag="},
		{"a hole in a shell", "  command: [sh, -c, \"bot {conversationID}\"]\n", "f:4: spec: " + oneWay + "\nf:5: spec.command[2]: a placeholder is a whole argument, or all of it behind --flag="},
		{"a hole that there is not", "  command: [bot, \"{conversationId}\"]\n", "f:5: spec.command[1]: unknown placeholder: there are {conversationID}, {newConversationID} and {modelPreset}"},
		{"nothing to resume with", "  command: [bot]\n  conversation: {capture: [{terminal: Screen, pattern: \"(?P<id>x)\"}]}\n", "f:4: spec: conversation and resume go together: one without the other is of no use"},
		{"nothing to resume", "  command: [bot]\n  resume: [bot, \"{conversationID}\"]\n", "f:4: spec: conversation and resume go together: one without the other is of no use"},
		{"resume the last", "  command: [bot, \"{conversationID}\"]\n  conversation: {mint: {}}\n  resume: [bot, --last]\n", "f:4: spec: resume must have {conversationID}"},
		{"minted and not told", "  command: [bot]\n  conversation: {mint: {}}\n  resume: [bot, \"{conversationID}\"]\n", "f:4: spec: " + oneWay},
		{"told twice", "  command: [bot, \"{conversationID}\"]\n  conversation: {mint: {env: ID}}\n  resume: [bot, \"{conversationID}\"]\n", "f:4: spec: " + oneWay},
		{"captured and told", "  command: [bot, \"{conversationID}\"]\n  conversation: {capture: [{terminal: Screen, pattern: \"(?P<id>x)\"}]}\n  resume: [bot, \"{conversationID}\"]\n", "f:4: spec: " + oneWay},
		{"told in skc's own mark", "  command: [bot]\n  conversation: {mint: {env: SKC_SESSION_UID}}\n  resume: [bot, \"{conversationID}\"]\n", "f:6: spec.conversation.mint.env: is a variable by which skc, tmux or the program finds its way"},
		{"a copy without an id", "  command: [bot, \"{conversationID}\"]\n  conversation: {mint: {}}\n  resume: [bot, \"{conversationID}\"]\n  fork: [bot, \"{conversationID}\"]\n", "f:4: spec: fork has {newConversationID} when conversation.mint gives no env, and only then"},
		{"both ways", "  command: [bot]\n  conversation: {mint: {env: ID}, capture: [{terminal: Screen, pattern: \"(?P<id>x)\"}]}\n  resume: [bot, \"{conversationID}\"]\n", "f:6: spec.conversation: exactly one of mint, capture is needed"},
		{"a preset in command", "  command: [bot, \"{modelPreset}\"]\n", "f:4: spec: " + placed},
		{"presets without a place", "  command: [bot]\n  modelPreset: {args: [--fast]}\n", "f:6: spec.modelPreset: args must have {modelPreset} and no other placeholder"},
		{"two sources in one", "  command: [bot]\n  resume: [bot, \"{conversationID}\"]\n  conversation: {capture: [{terminal: Screen, command: [x], pattern: \"(?P<id>x)\"}]}\n", "f:7: spec.conversation.capture[0]: exactly one of files, command, terminal is needed"},
		{"a pattern without id", "  command: [bot]\n  resume: [bot, \"{conversationID}\"]\n  conversation: {capture: [{terminal: Screen, pattern: \"x\"}]}\n", "f:7: spec.conversation.capture[0].pattern: must have a group (?P<id>...)"},
		{"a pattern that is none", "  command: [bot]\n  screen: {ready: {pattern: \"(\"}}\n", "f:6: spec.screen.ready.pattern: must be a regular expression (RE2 syntax)"},
		{"files that climb", "  command: [bot]\n  resume: [bot, \"{conversationID}\"]\n  conversation: {capture: [{files: {root: ~/x, glob: \"a/../../b\"}, pattern: \"(?P<id>x)\"}]}\n", `f:7: spec.conversation.capture[0].files.glob: must lie below the folder: no / at the front and no ".."`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Decode("f", []byte(profileHead+c.spec)); err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestDecodeAgent(t *testing.T) {
	const target = head + "  target: {plainDir: {path: /a}}\n"
	for _, c := range []struct{ name, spec, want string }{
		{"an agent", "  agent: {profile: claude}\n", ""},
		{"all of it", "  agent: {profile: claude, modelPreset: gpt-5.1_x, args: [\"--x={conversationID}\", \"\"], conversationID: ses_0.a-B}\n", ""},
		{"neither", "", "f:4: spec: exactly one of command, agent is needed"},
		{"both", "  command: [sh]\n  agent: {profile: claude}\n", "f:4: spec: exactly one of command, agent is needed"},
		{"no profile", "  agent: {}\n", "f:6: spec.agent.profile: is required"},
		{"an id that is an option", "  agent: {profile: claude, conversationID: --last}\n", "f:6: spec.agent.conversationID: may not begin with '-': a program would take it for an option"},
		{"an id with a space", "  agent: {profile: claude, conversationID: \"a b\"}\n", "f:6: spec.agent.conversationID: must be 1 to 128 of letters, digits, '.', '_' and '-'"},
		{"a preset that is an option", "  agent: {profile: claude, modelPreset: -x}\n", "f:6: spec.agent.modelPreset: may not begin with '-': a program would take it for an option"},
		{"a preset with a slash", "  agent: {profile: claude, modelPreset: a/b}\n", "f:6: spec.agent.modelPreset: must be 1 to 128 of letters, digits, '.', '_' and '-'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode("f", []byte(target+c.spec))
			if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// The agent counts for a restart as it is written, and a command's digest is
// what it was before there were agents.
func TestLaunchDigestOfAgent(t *testing.T) {
	digest := func(spec string) string {
		return mustDecode(t, head+"  target: {plainDir: {path: /a}}\n"+spec)[0].Object.(*Session).Spec.LaunchDigest()
	}
	seen := map[string]string{}
	for _, spec := range []string{
		"  command: [claude]\n", "  agent: {profile: claude}\n", "  agent: {profile: codex}\n", "  agent: {profile: claude, modelPreset: a}\n",
		"  agent: {profile: claude, args: [a]}\n", "  agent: {profile: claude, conversationID: a}\n",
	} {
		d := digest(spec)
		if other, is := seen[d]; is {
			t.Errorf("%q and %q have one digest", spec, other)
		}
		seen[d] = spec
	}
	if digest("  agent: {profile: claude, args: []}\n") != digest("  agent: {args: [], profile: claude}\n") {
		t.Error("the order of keys counts")
	}
}

func TestArgv(t *testing.T) {
	p := mustDecode(t, profileHead+`  command: [bot, "--id={conversationID}", "{}", '{"a":1}']
  conversation: {mint: {}}
  modelPreset: {args: [-m, "{modelPreset}"], presets: [{name: fast, value: "vendor/fast-1"}, {name: big}]}
  resume: [bot, resume, "{conversationID}"]
  fork: [bot, fork, "{conversationID}", "--id={newConversationID}"]
`)[0].Object.(*AgentProfile).Spec
	free := AgentProfileSpec{Command: []ArgTemplate{"bot"}, ModelPreset: &ModelPresetArgs{Args: []ArgTemplate{"--model={modelPreset}"}}}
	none := AgentProfileSpec{Command: []ArgTemplate{"bot"}}
	agent := &AgentSpec{Profile: "bot"}
	fast := &AgentSpec{Profile: "bot", ModelPreset: "fast", Args: []string{"{conversationID}", "--", "a b"}}
	argv := func(a []string, err error) string {
		if err != nil {
			return err.Error()
		}
		return strings.Join(a, "|")
	}
	for _, c := range []struct{ name, got, want string }{
		{"begin", argv(p.Begin(agent, "7")), `bot|--id=7|{}|{"a":1}`},
		{"resume", argv(p.ResumeArgv(agent, "7")), "bot|resume|7"},
		{"fork", argv(p.ForkArgv(agent, "7", "8")), "bot|fork|7|--id=8"},
		{"no fork", argv(none.ForkArgv(agent, "7", "8")), ""},
		{"preset, then arguments as they are", argv(p.ResumeArgv(fast, "7")), "bot|resume|7|-m|vendor/fast-1|{conversationID}|--|a b"},
		{"preset without a value", argv(p.Begin(&AgentSpec{ModelPreset: "big"}, "7")), `bot|--id=7|{}|{"a":1}|-m|big`},
		{"preset that the agent judges", argv(free.Begin(&AgentSpec{ModelPreset: "any"}, "")), "bot|--model=any"},
		{"an id that looks like a hole", argv(p.ForkArgv(agent, "{newConversationID}", "8")), "bot|fork|{newConversationID}|--id=8"},
		{"unknown preset", argv(p.Begin(&AgentSpec{ModelPreset: "x"}, "7")), `the profile has no model preset "x"; there are: big, fast`},
		{"no presets", argv(none.Begin(&AgentSpec{ModelPreset: "x"}, "7")), `the profile takes no model preset, and "x" is asked for`},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, c.got, c.want)
		}
	}
	_, err := p.Begin(&AgentSpec{ModelPreset: "x"}, "7")
	if e := (&PresetError{}); !errors.As(err, &e) || !slices.Equal(e.Known, []string{"big", "fast"}) {
		t.Errorf("the error is %#v", err)
	}
	if !slices.Equal(fast.Args, []string{"{conversationID}", "--", "a b"}) || p.Command[1] != "--id={conversationID}" {
		t.Error("what went in was changed")
	}
}
