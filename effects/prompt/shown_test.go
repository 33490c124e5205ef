package prompt

import (
	"strings"
	"testing"
)

func TestShown(t *testing.T) {
	long := strings.Repeat("Please fix the login bug in issue twelve. ", 20) + "Then rest."
	for _, c := range []struct {
		name        string
		before, now string
		text        string
		want        bool
	}{
		{name: "nothing changed", before: "> ", now: "> ", text: "Fix it."},
		{name: "only a clock changed", before: "12:00\n> ", now: "12:01\n> ", text: "Fix it."},
		{name: "the text", before: "> ", now: "> Fix it.", text: "Fix it.", want: true},
		{name: "it stood there before", before: "Fix it.", now: "Fix it.\nworking", text: "Fix it."},
		{name: "it stood there before, and stands there once more", before: "Fix it.", now: "Fix it.\n> Fix it.", text: "Fix it.", want: true},
		{name: "wrapped in a frame", before: "╭────╮\n│ >  │\n╰────╯",
			now: "╭────────────────────╮\n│ > Please fix the    │\n│   login bug         │\n╰────────────────────╯", text: "Please fix the login bug", want: true},
		{name: "the end of what scrolled away", before: "$", now: "issue twelve. Please fix the login bug in issue\ntwelve. Then rest.", text: long, want: true},
		{name: "the beginning of what is cut", before: "$", now: "> Please fix the login bug in issue …", text: long, want: true},
		{name: "lines of Claude Code", before: "> ", now: "> [Pasted text #1 +12 lines]", text: long, want: true},
		{name: "characters of Codex", before: "> ", now: "› [Pasted Content 2301 chars]", text: long, want: true},
		{name: "lines of OpenCode", before: "> ", now: "┃ [Pasted ~12 lines]", text: long, want: true},
		{name: "a placeholder of before", before: "[Pasted text #1 +12 lines]", now: "[Pasted text #1 +12 lines]\n*", text: long},
		{name: "another word in brackets", before: "", now: "[pastedness]", text: long},
		{name: "a placeholder over two lines", before: "", now: "[Pasted text #1\n+12 lines]", text: long, want: true},
		{name: "only its first line", before: "> ", now: "> Fix the bug (+2 lines)", text: "Fix the bug\nand\nrest", want: true},
		{name: "only its last line", before: "> ", now: "> 3: and then rest", text: "Fix\nthe bug\nand then rest", want: true},
		{name: "a line that is too short to tell", before: "> ", now: "> 3: go", text: "Fix the bug\nand\ngo"},
		{name: "a line end within", before: "", now: "Fix\n  it.", text: "Fix\nit.", want: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := shown(strings.Split(c.before, "\n"), strings.Split(c.now, "\n"), c.text); got != c.want {
				t.Errorf("shown = %v, want %v", got, c.want)
			}
		})
	}
}
