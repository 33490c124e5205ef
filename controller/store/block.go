package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// State files are YAML in block style, for people, and are written and read by
// the two functions below and not by a YAML library: encoding and decoding are
// on the path of every status write and of every object at start, and this
// small subset costs about a tenth. Any YAML reader reads what emit writes; the
// tests hold the two against sigs.k8s.io/yaml. parse reads what emit wrote and
// nothing else: whether a file is what emit wrote is known by its checksum.
//
// Values are nil, bool, int64, float64, string, []any and map[string]any, as
// k8s.io/apimachinery decodes JSON. Keys are sorted.

// emit appends v as a block whose lines begin with indent spaces. A map or a
// list that is not empty ends with a line end, anything else does not.
func emit(b []byte, v any, indent int) []byte {
	switch v := v.(type) {
	case map[string]any:
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = pad(b, indent)
			}
			b = emitKey(b, k, v[k], indent)
		}
	case []any:
		for i, item := range v {
			if i > 0 {
				b = pad(b, indent)
			}
			b = append(b, "- "...)
			b = emit(b, item, indent+2)
			if !isBlock(item) {
				b = append(emitFlat(b, item), '\n')
			}
		}
	}
	return b
}

// emitKey appends one key and its value.
func emitKey(b []byte, key string, v any, indent int) []byte {
	b = append(emitString(b, key), ':')
	if !isBlock(v) {
		return append(emitFlat(append(b, ' '), v), '\n')
	}
	b = append(b, '\n')
	if _, isMap := v.(map[string]any); isMap {
		indent += 2 // a list stands under its key, as kubectl prints it
	}
	return emit(pad(b, indent), v, indent)
}

// isBlock tells a value that takes lines of its own.
func isBlock(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	return false
}

func pad(b []byte, n int) []byte {
	for range n {
		b = append(b, ' ')
	}
	return b
}

// emitFlat appends a value that stands in the line of its key.
func emitFlat(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		return appendFloat(b, v)
	case string:
		return emitString(b, v)
	case map[string]any:
		return append(b, "{}"...)
	case []any:
		return append(b, "[]"...)
	}
	panic(fmt.Sprintf("a value of type %T in a state file", v)) // decoded JSON holds no other
}

// appendFloat keeps a float a float for every reader: 3 is written 3.0.
func appendFloat(b []byte, f float64) []byte {
	start := len(b)
	b = strconv.AppendFloat(b, f, 'g', -1, 64)
	if !strings.ContainsAny(string(b[start:]), ".e") {
		b = append(b, ".0"...)
	}
	return b
}

// emitString appends s plainly when every YAML reader takes that for the same
// string, else in double quotes. Control characters, and those that reorder
// text, are escaped, so that the file can be shown on a terminal.
func emitString(b []byte, s string) []byte {
	if isPlain(s) {
		return append(b, s...)
	}
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case isHidden(r):
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// isHidden tells runes that YAML refuses unescaped or that a terminal obeys.
func isHidden(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f:
		return true
	case r == 0x61c, r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f:
		return true
	case r == 0xfeff, r >= 0xfff9 && r <= 0xffff:
		return true
	}
	return false
}

// isPlain is narrow on purpose: a plain string begins with a letter, '/' or
// '_', or is a UUID, so that a value that begins with a digit or '-' is a number
// and nothing else.
func isPlain(s string) bool {
	if s == "" {
		return false
	}
	if isUUID(s) {
		return true
	}
	if c := s[0]; !isLetter(c) && c != '/' && c != '_' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case isLetter(c), c >= '0' && c <= '9', strings.IndexByte("_./-+=@,()", c) >= 0:
		case c == ' ' && i+1 < len(s):
		case c == ':' && i+1 < len(s) && s[i+1] != ' ':
		default:
			return false
		}
	}
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n":
		return false
	}
	return true
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// isUUID tells the 36 characters of a UUID, which is a string to every YAML
// reader whatever its digits are.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

var errNotEmitted = errors.New("not as skc writes it")

// parse reads a block that emit wrote at indent 0.
func parse(text string) (any, error) {
	p := parser{rest: text}
	if err := p.next(); err != nil {
		return nil, err
	}
	v, err := p.block(0)
	if err == nil && !p.end {
		err = errNotEmitted
	}
	return v, err
}

// parser holds one line at a time, split into its indent and its text. The dash
// of a list item counts as indent once it has been read.
type parser struct {
	rest   string
	indent int
	text   string
	end    bool
}

// maxDepth is more than any document of a source file nests.
const maxDepth = 4 * 64

func (p *parser) next() error {
	if p.rest == "" {
		p.end, p.text = true, ""
		return nil
	}
	line, rest, ok := strings.Cut(p.rest, "\n")
	if !ok {
		return errNotEmitted
	}
	p.text = strings.TrimLeft(line, " ")
	p.indent, p.rest = len(line)-len(p.text), rest
	if p.text == "" {
		return errNotEmitted
	}
	return nil
}

// block reads the map or the list whose lines begin at indent.
func (p *parser) block(indent int) (any, error) {
	if p.end || p.indent != indent || indent > maxDepth {
		return nil, errNotEmitted
	}
	if strings.HasPrefix(p.text, "- ") {
		return p.list(indent)
	}
	m := map[string]any{}
	for !p.end && p.indent == indent && !strings.HasPrefix(p.text, "- ") {
		key, value, err := cutKey(p.text)
		if err != nil {
			return nil, err
		}
		if value != "" {
			if m[key], err = parseFlat(value[1:]); err != nil {
				return nil, err
			}
			if err := p.next(); err != nil {
				return nil, err
			}
			continue
		}
		if err := p.next(); err != nil {
			return nil, err
		}
		inner := indent
		if !strings.HasPrefix(p.text, "- ") {
			inner += 2
		}
		if m[key], err = p.block(inner); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (p *parser) list(indent int) (any, error) {
	list := []any{}
	for !p.end && p.indent == indent && strings.HasPrefix(p.text, "- ") {
		p.indent, p.text = p.indent+2, p.text[2:]
		var v any
		var err error
		if isItemBlock(p.text) {
			v, err = p.block(indent + 2)
		} else if v, err = parseFlat(p.text); err == nil {
			err = p.next()
		}
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// isItemBlock tells a list item that goes on as a list or a map from a flat one.
func isItemBlock(text string) bool {
	if strings.HasPrefix(text, "- ") {
		return true
	}
	_, _, err := cutKey(text)
	return err == nil
}

// cutKey splits "key: value" and "key:"; value keeps its space, and is empty
// when a block follows.
func cutKey(text string) (key, value string, err error) {
	if text == "" {
		return "", "", errNotEmitted
	}
	var end int
	if text[0] == '"' {
		if end = quotedEnd(text); end < 0 {
			return "", "", errNotEmitted
		}
		if key, err = unquote(text[:end]); err != nil {
			return "", "", err
		}
	} else {
		if end = strings.Index(text, ": "); end < 0 {
			end = len(text) - 1
		}
		key = text[:end]
	}
	if end >= len(text) || text[end] != ':' || key == "" && end == 0 {
		return "", "", errNotEmitted
	}
	value = text[end+1:]
	if value != "" && (value[0] != ' ' || len(value) == 1) {
		return "", "", errNotEmitted
	}
	return key, value, nil
}

// quotedEnd is the index after the closing quote of the string that begins text.
func quotedEnd(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func parseFlat(text string) (any, error) {
	switch text {
	case "":
		return nil, errNotEmitted
	case "null":
		return nil, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "{}":
		return map[string]any{}, nil
	case "[]":
		return []any{}, nil
	}
	if text[0] == '"' {
		if quotedEnd(text) != len(text) {
			return nil, errNotEmitted
		}
		return unquote(text)
	}
	if isPlain(text) {
		return text, nil
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return f, nil
	}
	return nil, errNotEmitted
}

// unquote reads a double-quoted string. What emitString escapes is escaped as
// in JSON.
func unquote(text string) (string, error) {
	if inner := text[1 : len(text)-1]; strings.IndexByte(inner, '\\') < 0 {
		return inner, nil
	}
	var s string
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return "", errNotEmitted
	}
	return s, nil
}
