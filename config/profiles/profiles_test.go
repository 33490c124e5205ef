package profiles

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"skc.dev/skc/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each profile begins and resumes with the exact words of its agent.
func TestBuiltIn(t *testing.T) {
	const id, other = "11111111-2222-4333-8444-555555555555", "66666666-2222-4333-8444-555555555555"
	for _, want := range []struct{ name, begin, resume, fork, source string }{
		{"claude", "claude --session-id ID --model big -v", "claude --resume ID --model big -v", "claude --resume ID --fork-session --session-id NEW --model big -v", "mint"},
		{"codex", "codex --model big -v", "codex resume ID --model big -v", "codex fork ID --model big -v", "capture"},
		{"gemini", "gemini --session-id ID --model big -v", "gemini --resume ID --model big -v", "", "mint"},
		{"opencode", "opencode --model big -v", "opencode --session ID --model big -v", "opencode --session ID --fork --model big -v", "capture"},
		{"shell", "sh -c exec \"${SHELL:-/bin/sh}\" -l \"$@\" sh -v", "-v", "", ""},
		{"skc", "skc --mpreset big -v", "skc --resume ID --mpreset big -v", "", "mint"},
	} {
		p := Get(want.name)
		if p == nil {
			t.Fatalf("there is no profile %s", want.name)
		}
		agent := &v1alpha1.AgentSpec{Profile: p.Name, ModelPreset: "big", Args: []string{"-v"}}
		if want.name == "shell" {
			agent.ModelPreset = ""
		}
		text := func(argv []string, err error) string {
			if err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
			return strings.NewReplacer(id, "ID", other, "NEW").Replace(strings.Join(argv, " "))
		}
		if got := text(p.Spec.Begin(agent, id)); got != want.begin {
			t.Errorf("%s begins with %q, want %q", p.Name, got, want.begin)
		}
		if got := text(p.Spec.ResumeArgv(agent, id)); got != want.resume {
			t.Errorf("%s resumes with %q, want %q", p.Name, got, want.resume)
		}
		if got := text(p.Spec.ForkArgv(agent, id, other)); got != want.fork {
			t.Errorf("%s forks with %q, want %q", p.Name, got, want.fork)
		}
		source := ""
		if c := p.Spec.Conversation; c != nil && c.Mint != nil {
			source = "mint"
		} else if c != nil {
			source = "capture"
		}
		if source != want.source {
			t.Errorf("%s has its conversation by %q, want %q", p.Name, source, want.source)
		}
		p.Spec.Command[0] = "changed"
		if Get(want.name).Spec.Command[0] == "changed" {
			t.Error("Get gives out what it keeps")
		}
	}
	var names []string
	for _, p := range BuiltIn() {
		names = append(names, p.Name)
		if p.Annotations[v1alpha1.BuiltInAnnotation] != "true" || p.Namespace != "" {
			t.Errorf("%s has the metadata %+v", p.Name, p.ObjectMeta)
		}
	}
	if !slices.Equal(names, []string{"claude", "codex", "gemini", "opencode", "shell", "skc"}) {
		t.Errorf("there are %v", names)
	}
	if Get("nope") != nil {
		t.Error("there is a profile nope")
	}
}

// What the agents write is what the patterns find.
func TestCapturePatterns(t *testing.T) {
	for _, c := range []struct{ name, profile, text, id, dir, created string }{
		{"a rollout", "codex", `{"timestamp":"2026-01-02T03:04:05.678Z","type":"session_meta","payload":{"id":"0199a213-81c0-7800-8aa1-bbab2a035a53","timestamp":"2026-01-02T03:04:05.600Z","cwd":"/work/app","originator":"codex_cli_rs","cli_version":"0.60.0","instructions":null,"source":"cli"}}` + "\n", "0199a213-81c0-7800-8aa1-bbab2a035a53", "/work/app", ""},
		{"a later rollout", "codex", `{"type":"session_meta","payload":{"session_id":"0199a213-0000-7800-8aa1-bbab2a035a53","id":"0199a213-81c0-7800-8aa1-bbab2a035a53","cwd":"/work/app","source":"cli"}}` + "\n", "0199a213-81c0-7800-8aa1-bbab2a035a53", "/work/app", ""},
		{"a subagent's rollout", "codex", `{"type":"session_meta","payload":{"id":"0199a213-81c0-7800-8aa1-bbab2a035a53","cwd":"/work/app","source":{"subagent":"review"}}}` + "\n", "", "", ""},
		{"the end of codex", "codex", "To continue this session, run codex resume 0199a213-81c0-7800-8aa1-bbab2a035a53", "0199a213-81c0-7800-8aa1-bbab2a035a53", "", ""},
		{"a file of opencode", "opencode", "{\n  \"id\": \"ses_3ffca45a2ffef1fjbYFDGFsNIm\",\n  \"slug\": \"tidy-planet\",\n  \"version\": \"1.1.36\",\n  \"projectID\": \"9\",\n  \"directory\": \"/work/app\",\n  \"title\": \"a {b}\",\n  \"time\": {\n    \"created\": 1769530047072,\n    \"updated\": 1769530997208\n  }\n}\n", "ses_3ffca45a2ffef1fjbYFDGFsNIm", "/work/app", "1769530047072"},
		{"a subagent of opencode", "opencode", `{"id":"ses_1","projectID":"9","directory":"/work/app","parentID":"ses_0","title":"x","time":{"created":1,"updated":1}}`, "", "", ""},
		{"the list of opencode", "opencode", "[\n  {\n    \"id\": \"ses_3f\",\n    \"title\": \"t\",\n    \"updated\": 2,\n    \"created\": 1769530047072,\n    \"projectId\": \"9\",\n    \"directory\": \"/work/app\"\n  }\n]\n", "ses_3f", "/work/app", "1769530047072"},
		{"the end of opencode", "opencode", "  Continue  opencode -s ses_3f", "ses_3f", "", ""},
	} {
		id, dir, created := "", "", ""
		for _, source := range Get(c.profile).Spec.Conversation.Capture {
			re := regexp.MustCompile(source.Pattern)
			if m := re.FindStringSubmatch(c.text); m != nil && id == "" {
				group := func(name string) string {
					if i := re.SubexpIndex(name); i >= 0 {
						return m[i]
					}
					return ""
				}
				id, dir, created = group("id"), group("dir"), group("created")
			}
		}
		if id != c.id || dir != c.dir || created != c.created {
			t.Errorf("%s: id %q, dir %q, created %q", c.name, id, dir, created)
		}
	}
}
