package v1alpha1

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"skc.dev/skc/api"
)

// MaxFileBytes is the most that one file may hold.
const MaxFileBytes = 1 << 20

// document is the byte range of one YAML document, without its marker line.
type document struct {
	start, end int
	line       int // 1-based line of data[start]
}

var utf8BOM = []byte("\xef\xbb\xbf")

// readable refuses bytes that no YAML reader should see. nil means text.
func readable(data []byte) *api.Problem {
	if len(data) > MaxFileBytes {
		return &api.Problem{Message: fmt.Sprintf("the file is larger than %d bytes", MaxFileBytes)}
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return &api.Problem{Line: 1, Message: "the file is UTF-16: save it as UTF-8"}
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return &api.Problem{Line: lineAt(data, i), Message: "the file holds a NUL byte"}
	}
	if !utf8.Valid(data) {
		i := 0
		for i < len(data) {
			r, n := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			i += n
		}
		return &api.Problem{Line: lineAt(data, i), Message: "the file is not UTF-8"}
	}
	return nil
}

func lineAt(data []byte, offset int) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }

// split cuts a file into its documents; those with nothing but comments are
// left out. By the YAML specification a line that begins with --- or ... is a
// marker wherever it stands, inside a block scalar too, so no parser is needed.
// The libraries' own readers lose documents here or the bytes they lie at.
func split(data []byte) []document {
	var docs []document
	begin := 0
	if bytes.HasPrefix(data, utf8BOM) {
		begin = len(utf8BOM)
	}
	open := document{start: begin, line: 1}
	shut := func(end int) {
		open.end = end
		if !blank(data[open.start:end]) {
			docs = append(docs, open)
		}
	}
	line := 1
	for at := begin; at < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		switch text := data[at:next]; {
		case marker(text, "---"):
			shut(at)
			open = document{start: next, line: line + 1}
			if !blank(text[3:]) { // --- {kind: Session}: the document begins on the marker's line
				open = document{start: at + 3, line: line}
			}
		case marker(text, "..."):
			shut(at)
			open = document{start: next, line: line + 1}
		}
		at = next
	}
	shut(len(data))
	return docs
}

func marker(line []byte, mark string) bool {
	if !bytes.HasPrefix(line, []byte(mark)) {
		return false
	}
	return len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0
}

// blank is true when text has only white space and comments.
func blank(text []byte) bool { return len(firstContent(text)) == 0 }

// firstContent is text from the first line that is no comment and not empty.
func firstContent(text []byte) []byte {
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		if t := bytes.Trim(line, " \t\r"); len(t) > 0 && t[0] != '#' {
			return text
		}
		text = rest
	}
	return nil
}
