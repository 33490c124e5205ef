package prompt

import (
	"regexp"
	"strings"
	"unicode"
)

// placeholder is what agents show instead of a long paste:
//
//	[Pasted text #1 +12 lines]    [Pasted Content 2301 chars]    [Pasted ~12 lines]
var placeholder = regexp.MustCompile(`(?i)\[past(ed|ing)\b[^\]]{0,80}\]`)

// chunk is how much of the beginning and of the end of a prompt is looked for.
const chunk = 24

// shortest is how long one line must be to tell of the whole.
const shortest = 8

// shown tells whether a screen shows that text was pasted since it was as
// before: there is one more placeholder, or its beginning or its end stands there
// once more. That something changed is not enough: a clock or a spinner changes.
//
// Programs wrap what is pasted, indent it and draw frames around it, so spaces
// and all characters that draw lines and blocks count for nothing.
func shown(before, now []string, text string) bool {
	was, is := strings.Join(before, "\n"), strings.Join(now, "\n")
	if len(placeholder.FindAllString(is, -1)) > len(placeholder.FindAllString(was, -1)) {
		return true
	}
	was, is = squeeze(was), squeeze(is)
	for _, part := range parts(text) {
		if strings.Count(is, part) > strings.Count(was, part) {
			return true
		}
	}
	return false
}

// parts are the pieces of a prompt, squeezed, of which one on the screen is
// enough: its ends, and those of its first and last line, if they are not too
// short to tell, for what shows only a line.
func parts(text string) (all []string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	whole, first, last := []rune(squeeze(text)), []rune(squeeze(lines[0])), []rune(squeeze(lines[len(lines)-1]))
	n := min(chunk, len(whole))
	all = append(all, string(whole[:n]), string(whole[len(whole)-n:]))
	if len(first) >= shortest {
		all = append(all, string(first[:min(chunk, len(first))]))
	}
	if len(last) >= shortest {
		all = append(all, string(last[max(0, len(last)-chunk):]))
	}
	return all
}

// squeeze leaves out of a text what programs change when they show it.
func squeeze(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) || c >= 0x2500 && c <= 0x259F {
			return -1
		}
		return c
	}, text)
}
