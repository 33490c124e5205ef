//go:build e2e

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"skc.dev/skc/api/v1alpha1"
)

var promptKinds = []*kind{
	{name: "prompt-file", change: (*trial).apply, want: running, starts: []string{"v1"}, prompt: v1alpha1.PromptFile, alone: true},
	{name: "prompt-paste", change: (*trial).apply, want: running, starts: []string{"v1"}, prompt: v1alpha1.PromptPaste, alone: true},
	{name: "prompt-argument", change: (*trial).apply, want: running, starts: []string{"v1"}, prompt: v1alpha1.PromptArgument, alone: true},
	{name: "delete-prompt", have: running, change: (*trial).take, want: gone, starts: []string{"v1"}, prompt: v1alpha1.PromptFile, alone: true},
}

// What the program does about its startup prompt, the text of which is in a file
// as often as it came.
var prompts = map[v1alpha1.PromptDelivery]string{
	v1alpha1.PromptFile:     `f=$SKC_STARTUP_PROMPT_REF; [ -z "$f" ] || { mv "$f" "$f.$$" && cat "$f.$$" >> %[1]s && rm "$f.$$"; }; exec sleep 6001`,
	v1alpha1.PromptPaste:    `stty raw; printf '\033[?2004hready'; exec stdbuf -o0 tr '\r' '|' >> %[1]s`,
	v1alpha1.PromptArgument: `printf '%%s' "$1" >> %[1]s; exec sleep 6001`,
}

const promptText = "Fix the login bug."

// got is where the program keeps what it got.
func (t *trial) got() string { return filepath.Join(t.Work, "got") }

// prompted is the script of a program that gets a prompt, if the kind has one,
// and what its spec has more.
func (t *trial) prompted(script string) (with, more string) {
	d := t.kind.prompt
	if d == "" {
		return script, ""
	}
	more = fmt.Sprintf("  startupPrompt: {delivery: %s, text: %s}\n", d, promptText)
	if d == v1alpha1.PromptPaste {
		more += "  readiness: {screen: {pattern: ready}, period: 100ms}\n"
	}
	return strings.TrimSuffix(script, "exec sleep 6001") + fmt.Sprintf(prompts[d], t.got()), more
}

// unprompted says what is not right about the startup prompt: it came once, or
// at most once and the status says that nobody can tell.
func (t *trial) unprompted() string {
	if t.kind.prompt == "" || t.kind.want == gone {
		return ""
	}
	data, err := os.ReadFile(t.got())
	if err != nil && !os.IsNotExist(err) {
		return err.Error()
	}
	n := strings.Count(string(data), promptText)
	is := t.Condition(subject, v1alpha1.PromptDelivered)
	switch {
	case n == 1 && is == "True/Delivered", n <= 1 && is == "Unknown/PromptUnknown" && !t.whole:
		return ""
	}
	return fmt.Sprintf("the prompt came %d times, and PromptDelivered is %s", n, is)
}
