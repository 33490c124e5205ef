package main

import (
	"fmt"
	"strings"
	"unicode"
)

// inert makes text from files, programs and tmux harmless for a terminal:
// control characters and the ones that turn the direction of writing are shown
// as escapes. Line ends and tabs stay.
func inert(s string) string {
	return escape(s, "\n\t")
}

// inertLine is inert for one line, or one cell of a table.
func inertLine(s string) string {
	return escape(s, "")
}

func escape(s, keep string) string {
	harmless := func(r rune) bool {
		return r != unicode.ReplacementChar && (unicode.IsPrint(r) || strings.ContainsRune(keep, r))
	}
	if strings.IndexFunc(s, func(r rune) bool { return !harmless(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case harmless(r):
			b.WriteRune(r)
		case r == unicode.ReplacementChar && s[i] != 0xef: // no UTF-8
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
