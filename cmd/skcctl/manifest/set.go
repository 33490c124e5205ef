package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// ErrByHand is matched when a document is written in a way that this package
// does not edit; a person has to.
var ErrByHand = errors.New("cannot be edited safely; edit the file by hand")

var bom = []byte("\ufeff")

// set returns the document with the value, a string or a bool, at path, and
// every byte that is not part of that field as it was. The field is replaced where it stands,
// in the quotes it has; a missing one becomes the first of its mapping, with
// the mappings above it made as needed. It trusts nothing it did not see: what
// is no plain or quoted scalar on its place is ErrByHand.
func set(doc []byte, path []string, value any) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(doc, &root); err != nil || len(root.Content) != 1 {
		return nil, fmt.Errorf("%w: no YAML document", ErrByHand)
	}
	e := editor{doc: doc}
	var key *yaml.Node // under which parent stands; nil for the whole document
	parent := root.Content[0]
	for i, name := range path {
		if parent.Kind != yaml.MappingNode || parent.Anchor != "" {
			return nil, fmt.Errorf("%w: %s is no plain mapping", ErrByHand, strings.Join(path[:i], "."))
		}
		k, v := lookup(parent, name)
		switch {
		case k == nil:
			return e.insert(key, parent, path[i:], value)
		case i == len(path)-1:
			return e.replace(k, v, nil, value)
		case v.Kind == yaml.ScalarNode && v.Tag == "!!null":
			return e.replace(k, v, path[i+1:], value)
		}
		key, parent = k, v
	}
	return nil, fmt.Errorf("%w: no field is named", ErrByHand)
}

// unset returns the document without the scalar field at path, and every byte
// that is not part of that field, its line and its comma as it was. A field that
// is not there is no change.
func unset(doc []byte, path []string) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(doc, &root); err != nil || len(root.Content) != 1 {
		return nil, fmt.Errorf("%w: no YAML document", ErrByHand)
	}
	e := editor{doc: doc}
	parent := root.Content[0]
	for i, name := range path {
		if parent.Kind != yaml.MappingNode || parent.Anchor != "" {
			return nil, fmt.Errorf("%w: %s is no plain mapping", ErrByHand, strings.Join(path[:i], "."))
		}
		k, v := lookup(parent, name)
		switch {
		case k == nil:
			return doc, nil
		case i == len(path)-1:
			return e.remove(parent, k, v)
		}
		parent = v
	}
	return nil, fmt.Errorf("%w: no field is named", ErrByHand)
}

// remove takes the scalar v with its key k out of the mapping m.
func (e editor) remove(m, k, v *yaml.Node) ([]byte, error) {
	start := e.offset(k)
	end, ok := e.scalarEnd(v)
	if !ok || end < start {
		return nil, fmt.Errorf("%w: line %d", ErrByHand, k.Line)
	}
	if m.Style&yaml.FlowStyle != 0 {
		if rest := bytes.TrimLeft(e.doc[end:], " \t\r\n"); len(rest) > 0 && rest[0] == ',' {
			end = len(e.doc) - len(bytes.TrimLeft(rest[1:], " "))
		} else if before := bytes.TrimRight(e.doc[:start], " \t\r\n"); bytes.HasSuffix(before, []byte(",")) {
			start = len(before) - 1
		}
		return splice(e.doc, start, end, ""), nil
	}
	begin, next := e.lineStart(k.Line), e.nextLine(end)
	alone := len(bytes.TrimLeft(e.doc[begin:start], " ")) == 0
	behind := bytes.TrimSpace(e.doc[end:next])
	if !alone || len(behind) > 0 && behind[0] != '#' || len(m.Content) == 2 {
		return nil, fmt.Errorf("%w: line %d", ErrByHand, k.Line)
	}
	return splice(e.doc, begin, next, ""), nil
}

// lookup finds name in a mapping.
func lookup(m *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == name {
			return m.Content[i], m.Content[i+1]
		}
	}
	return nil, nil
}

// editor turns node positions into bytes of doc.
type editor struct{ doc []byte }

// replace puts a new value where the scalar v of key k stands. With a path it is
// a mapping that takes the place of a null.
func (e editor) replace(k, v *yaml.Node, path []string, value any) ([]byte, error) {
	quoted := k.Style&yaml.DoubleQuotedStyle != 0
	text := flow(path, value, quoted)
	if v.Kind == yaml.ScalarNode && v.Value == "" && v.Style == 0 && v.Tag == "!!null" { // nothing is written after the colon
		end, ok := e.scalarEnd(k)
		if !ok {
			return nil, fmt.Errorf("%w: line %d", ErrByHand, k.Line)
		}
		end += len(e.doc[end:]) - len(bytes.TrimLeft(e.doc[end:], " "))
		if end >= len(e.doc) || e.doc[end] != ':' {
			return nil, fmt.Errorf("%w: line %d", ErrByHand, k.Line)
		}
		return splice(e.doc, end+1, end+1, " "+text), nil
	}
	start := e.offset(v)
	end, ok := e.scalarEnd(v)
	if !ok {
		return nil, fmt.Errorf("%w: line %d", ErrByHand, v.Line)
	}
	if s, ok := value.(string); ok && len(path) == 0 {
		switch {
		case v.Style&yaml.SingleQuotedStyle != 0:
			text = "'" + strings.ReplaceAll(s, "'", "''") + "'"
		case v.Style&yaml.DoubleQuotedStyle != 0:
			text = scalar(s, true)
		}
	}
	return splice(e.doc, start, end, text), nil
}

// insert makes path[0] the first field of the mapping m, which stands under
// key.
func (e editor) insert(key, m *yaml.Node, path []string, value any) ([]byte, error) {
	if key == nil {
		return nil, fmt.Errorf("%w: the document has no %s", ErrByHand, path[0])
	}
	quoted := key.Style&yaml.DoubleQuotedStyle != 0
	inner := strings.TrimSuffix(strings.TrimPrefix(flow(path, value, quoted), "{"), "}")
	if len(m.Content) == 0 { // {}: an empty mapping has no other form
		at := e.offset(m)
		if at >= len(e.doc) || e.doc[at] != '{' {
			return nil, fmt.Errorf("%w: line %d", ErrByHand, m.Line)
		}
		return splice(e.doc, at+1, at+1, inner), nil
	}
	first := m.Content[0]
	at := e.offset(first)
	if m.Style&yaml.FlowStyle != 0 {
		sep := ", "
		if first.Line > m.Line { // one field a line: so is ours
			sep = "," + e.lineEnd(m.Line) + spaces(first.Column-1)
		}
		return splice(e.doc, at, at, inner+sep), nil
	}
	indent, eol := spaces(first.Column-1), e.lineEnd(key.Line)
	text := block(path, value, indent, eol)
	if first.Line > key.Line {
		// Behind the line of the key, so that a comment above the first field
		// stays with that field.
		if next, ok := e.afterKeyLine(key); ok {
			return splice(e.doc, next, next, indent+text+eol), nil
		}
	}
	return splice(e.doc, at, at, text+eol+indent), nil
}

// afterKeyLine is where the line after the key's begins, if nothing but a
// comment follows the key's colon.
func (e editor) afterKeyLine(key *yaml.Node) (int, bool) {
	at, ok := e.scalarEnd(key)
	if !ok {
		return 0, false
	}
	end := e.lineStart(key.Line + 1)
	rest := bytes.TrimLeft(e.doc[at:end], " ")
	if len(rest) == 0 || rest[0] != ':' {
		return 0, false
	}
	rest = bytes.TrimLeft(rest[1:], " \t")
	return end, len(bytes.TrimRight(rest, "\r\n")) == 0 || rest[0] == '#'
}

// scalarEnd is the byte after the scalar that stands at v's position, and false
// when something other than a plain word or a quoted text is there.
func (e editor) scalarEnd(v *yaml.Node) (int, bool) {
	at := e.offset(v)
	if v.Kind != yaml.ScalarNode || v.Anchor != "" || at >= len(e.doc) {
		return 0, false
	}
	rest := e.doc[at:]
	switch {
	case v.Style&yaml.DoubleQuotedStyle != 0 && rest[0] == '"':
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return at + i + 1, true
			}
		}
	case v.Style&yaml.SingleQuotedStyle != 0 && rest[0] == '\'':
		for i := 1; i < len(rest); i++ {
			if rest[i] != '\'' {
				continue
			}
			if i+1 < len(rest) && rest[i+1] == '\'' {
				i++
				continue
			}
			return at + i + 1, true
		}
	case v.Style == 0 && v.Value != "" && bytes.HasPrefix(rest, []byte(v.Value)):
		return at + len(v.Value), true
	}
	return 0, false
}

// offset is the byte at which v begins. Columns count characters.
func (e editor) offset(v *yaml.Node) int {
	at := e.lineStart(v.Line)
	for col := 1; col < v.Column && at < len(e.doc); col++ {
		_, n := utf8.DecodeRune(e.doc[at:])
		at += n
	}
	return at
}

// lineStart is the byte at which the line begins, counting from 1, or the end
// of the document. YAML 1.1 ends a line at five characters, and \r\n is one.
func (e editor) lineStart(line int) int {
	at := 0
	if bytes.HasPrefix(e.doc, bom) { // takes no column
		at = len(bom)
	}
	for ; line > 1 && at < len(e.doc); line-- {
		at = e.nextLine(at)
	}
	return at
}

func (e editor) nextLine(at int) int {
	for at < len(e.doc) {
		r, n := utf8.DecodeRune(e.doc[at:])
		at += n
		switch r {
		case '\r':
			if at < len(e.doc) && e.doc[at] == '\n' {
				at++
			}
			return at
		case '\n', '\u0085', '\u2028', '\u2029':
			return at
		}
	}
	return at
}

// lineEnd is how the line ends, for a new line beside it.
func (e editor) lineEnd(line int) string {
	if bytes.HasSuffix(e.doc[:e.lineStart(line+1)], []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

func splice(doc []byte, start, end int, text string) []byte {
	out := make([]byte, 0, len(doc)+len(text))
	out = append(out, doc[:start]...)
	out = append(out, text...)
	return append(out, doc[end:]...)
}

func spaces(n int) string { return strings.Repeat(" ", n) }

// flow writes path and value in one line: a scalar alone, else {a: {b: value}}.
func flow(path []string, value any, quoted bool) string {
	if len(path) == 0 {
		return scalar(value, quoted)
	}
	return "{" + scalar(path[0], quoted) + ": " + flow(path[1:], value, quoted) + "}"
}

// block writes path and value one key a line; the first line has no indent and
// the last no end.
func block(path []string, value any, indent, eol string) string {
	if len(path) == 1 {
		return scalar(path[0], false) + ": " + scalar(value, false)
	}
	indent += "  "
	return scalar(path[0], false) + ":" + eol + indent + block(path[1:], value, indent, eol)
}

// plain matches what needs no quotes: words, and keys like skc.dev/restartedAt.
var plain = regexp.MustCompile(`^[A-Za-z]+([./-][A-Za-z]+)*$`)

// scalar writes a bool, or a string as YAML and JSON read it back as one.
func scalar(value any, quoted bool) string {
	s, ok := value.(string)
	if !ok {
		return fmt.Sprint(value)
	}
	if !quoted && plain.MatchString(s) {
		switch strings.ToLower(s) {
		case "y", "n", "yes", "no", "on", "off", "true", "false", "null": // words of YAML 1.1
		default:
			return s
		}
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r >= 0x7f && r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
