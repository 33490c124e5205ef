package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf16"
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
	for i := 0; i < len(data); {
		r, n := rune(data[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(data[i:])
		}
		switch {
		case r == utf8.RuneError && n == 1:
			return &api.Problem{Line: lineAt(data, i), Message: "the file is not UTF-8"}
		case unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' && r != nextLine:
			return &api.Problem{Line: lineAt(data, i), Message: "the file holds a control character: in double quotes write it as \\xNN"}
		}
		i += n
	}
	return nil
}

// nextLine is a line end by YAML 1.1, though a control character.
const nextLine = '\u0085'

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
		if open.start > begin && data[open.start-1] != '\n' && end > open.start && data[end-1] == '\n' {
			end-- // the line end belongs to the marker, which stays when the document is taken out
		}
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

// jsonAsYAML rewrites the two escapes of JSON that the YAML readers do not take,
// \/ and the halves of a character above U+FFFF, by what they stand for. Lines stay. Text
// that is not JSON is left as it is.
func jsonAsYAML(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\`)) || !json.Valid(text) {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		if text[i] != '\\' { // in JSON a backslash is always the begin of an escape
			out = append(out, text[i])
			i++
			continue
		}
		if text[i+1] == '/' {
			out = append(out, '/')
			i += 2
			continue
		}
		if r := utf16.DecodeRune(escaped(text[i:]), escaped(text[min(i+6, len(text)):])); r != utf8.RuneError {
			out = utf8.AppendRune(out, r)
			i += 12
			continue
		}
		out = append(out, text[i], text[i+1])
		i += 2
	}
	return out
}

// escaped is the number of a \uXXXX that text begins with, else -1.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
