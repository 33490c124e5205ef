package lifecycle

import (
	"errors"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how many arrays and objects may be open at once. It is far more
// than any frame has, and keeps a hostile one from growing the stack.
const maxDepth = 127

var errSyntax = errors.New("malformed JSON")

type kind byte

const (
	absent kind = iota // no such member, or one that is there twice
	null
	boolean
	number
	text
	array
	object
)

// value is one JSON value. encoding/json is not used to read: it lets a second
// member of a name win unseen and puts U+FFFD for lone surrogates.
type value struct {
	kind    kind
	yes     bool             // of a boolean
	str     string           // of a text, decoded; of a number, as written
	members map[string]value // of an object
	raw     []byte           // as written
}

func (v value) member(name string) value { return v.members[name] }

// document is a JSON text that was read whole.
type document struct {
	value
	duplicate  bool // some object has a name twice; that member reads as absent
	notUnicode bool // some string has a lone surrogate or bad UTF-8
}

type reader struct {
	in    []byte
	at    int
	depth int
	document
}

// read parses a whole JSON text (RFC 8259). A string that is not Unicode is no
// error: lone surrogates become the three bytes they would have in UTF-8, and
// bad bytes are kept, so that utf8.ValidString of it is false.
func read(in []byte) (document, error) {
	r := reader{in: in}
	r.space()
	v, err := r.value()
	if err != nil {
		return document{}, err
	}
	r.space()
	if r.at != len(in) {
		return document{}, errSyntax
	}
	r.document.value = v
	return r.document, nil
}

func (r *reader) space() {
	for r.at < len(r.in) {
		switch r.in[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// next is the byte at hand, 0 at the end: no valid text has that outside a string.
func (r *reader) next() byte {
	if r.at < len(r.in) {
		return r.in[r.at]
	}
	return 0
}

func (r *reader) take(c byte) bool {
	if r.next() != c || r.at >= len(r.in) {
		return false
	}
	r.at++
	return true
}

func (r *reader) value() (v value, err error) {
	begin := r.at
	switch c := r.next(); {
	case c == '{' || c == '[':
		if r.depth++; r.depth > maxDepth {
			return v, errSyntax
		}
		if c == '{' {
			v, err = r.object()
		} else {
			v, err = r.array()
		}
		r.depth--
	case c == '"':
		v.kind = text
		v.str, err = r.text()
	case c == 't':
		v, err = value{kind: boolean, yes: true}, r.word("true")
	case c == 'f':
		v, err = value{kind: boolean}, r.word("false")
	case c == 'n':
		v, err = value{kind: null}, r.word("null")
	default:
		v.kind = number
		err = r.number()
		v.str = string(r.in[begin:r.at])
	}
	v.raw = r.in[begin:r.at]
	return v, err
}

func (r *reader) word(w string) error {
	if end := r.at + len(w); end > len(r.in) || string(r.in[r.at:end]) != w {
		return errSyntax
	}
	r.at += len(w)
	return nil
}

func (r *reader) object() (value, error) {
	v := value{kind: object, members: map[string]value{}}
	r.at++
	r.space()
	if r.take('}') {
		return v, nil
	}
	for {
		r.space()
		if r.next() != '"' {
			return v, errSyntax
		}
		name, err := r.text()
		if err != nil {
			return v, err
		}
		r.space()
		if !r.take(':') {
			return v, errSyntax
		}
		r.space()
		m, err := r.value()
		if err != nil {
			return v, err
		}
		if _, twice := v.members[name]; twice {
			r.duplicate = true
			m = value{}
		}
		v.members[name] = m
		r.space()
		if r.take('}') {
			return v, nil
		}
		if !r.take(',') {
			return v, errSyntax
		}
	}
}

// array reads its elements only to see that they are well formed: no frame has one.
func (r *reader) array() (value, error) {
	v := value{kind: array}
	r.at++
	r.space()
	if r.take(']') {
		return v, nil
	}
	for {
		r.space()
		if _, err := r.value(); err != nil {
			return v, err
		}
		r.space()
		if r.take(']') {
			return v, nil
		}
		if !r.take(',') {
			return v, errSyntax
		}
	}
}

func (r *reader) text() (string, error) {
	r.at++
	var b []byte
	for r.at < len(r.in) {
		c := r.in[r.at]
		r.at++
		switch {
		case c == '"':
			s := string(b)
			if !utf8.ValidString(s) {
				r.notUnicode = true
			}
			return s, nil
		case c < ' ':
			return "", errSyntax
		case c != '\\':
			b = append(b, c)
		default:
			var err error
			if b, err = r.escape(b); err != nil {
				return "", err
			}
		}
	}
	return "", errSyntax
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads what follows a backslash.
func (r *reader) escape(b []byte) ([]byte, error) {
	c := r.next()
	r.at++
	if plain, ok := escapes[c]; ok {
		return append(b, plain), nil
	}
	if c != 'u' {
		return nil, errSyntax
	}
	first, err := r.unit()
	if err != nil {
		return nil, err
	}
	if !utf16.IsSurrogate(first) {
		return utf8.AppendRune(b, first), nil
	}
	// Only the low half that follows at once makes a pair; else it is read anew.
	if back := r.at; r.take('\\') && r.take('u') {
		second, err := r.unit()
		if err != nil {
			return nil, err
		}
		if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
			return utf8.AppendRune(b, pair), nil
		}
		r.at = back
	} else {
		r.at = back
	}
	return append(b, 0xe0|byte(first>>12), 0x80|byte(first>>6)&0x3f, 0x80|byte(first)&0x3f), nil
}

// unit reads four hex digits.
func (r *reader) unit() (rune, error) {
	if r.at+4 > len(r.in) {
		return 0, errSyntax
	}
	var u rune
	for _, c := range r.in[r.at : r.at+4] {
		switch {
		case '0' <= c && c <= '9':
			u = u<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			u = u<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, errSyntax
		}
	}
	r.at += 4
	return u, nil
}

func (r *reader) number() error {
	r.take('-')
	if !r.take('0') && !r.digits() {
		return errSyntax
	}
	if r.take('.') && !r.digits() {
		return errSyntax
	}
	if r.take('e') || r.take('E') {
		if !r.take('+') {
			r.take('-')
		}
		if !r.digits() {
			return errSyntax
		}
	}
	return nil
}

// digits reads one or more.
func (r *reader) digits() bool {
	begin := r.at
	for c := r.next(); '0' <= c && c <= '9'; c = r.next() {
		r.at++
	}
	return r.at > begin
}

// maxSafe is the largest integer of ECMAScript that no other number equals.
const maxSafe = 1<<53 - 1

// safeInteger reads a number as ECMAScript does, which has one type for all: so
// 1e3, 1.0 and -0 are integers, and what lies beyond maxSafe is none.
func (v value) safeInteger() (int64, bool) {
	if v.kind != number {
		return 0, false
	}
	f, err := strconv.ParseFloat(v.str, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxSafe {
		return 0, false
	}
	return int64(f), true
}
