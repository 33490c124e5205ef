package lifecycle

import (
	"errors"
	"strconv"
	"unicode/utf8"
)

// ErrNotUnicode is matched when a string to write is no Unicode text: it holds
// a lone surrogate or bytes that are not UTF-8.
var ErrNotUnicode = errors.New("text is not Unicode")

// writer builds JSON objects with their members in the order of the calls and
// no white space. After a string that is not Unicode it yields only the error.
type writer struct {
	buf []byte
	err error
}

func (w *writer) open() { w.buf = append(w.buf, '{') }
func (w *writer) end()  { w.buf = append(w.buf, '}') }

func (w *writer) done() ([]byte, error) {
	w.end()
	if w.err != nil {
		return nil, w.err
	}
	return w.buf, nil
}

// comma separates from what was written before at the same level.
func (w *writer) comma() {
	if last := w.buf[len(w.buf)-1]; last != '{' && last != '[' {
		w.buf = append(w.buf, ',')
	}
}

func (w *writer) name(name string) {
	w.comma()
	w.quote(name)
	w.buf = append(w.buf, ':')
}

func (w *writer) quote(s string) {
	b, err := appendString(w.buf, s)
	if err != nil {
		w.err = err
		return
	}
	w.buf = b
}

func (w *writer) str(name, v string) {
	w.name(name)
	w.quote(v)
}

func (w *writer) opt(name string, v *string) {
	if v != nil {
		w.str(name, *v)
	}
}

func (w *writer) orNull(name string, v *string) {
	if v == nil {
		w.raw(name, "null")
		return
	}
	w.str(name, *v)
}

func (w *writer) raw(name, v string) {
	w.name(name)
	w.buf = append(w.buf, v...)
}

func (w *writer) num(name string, v int64) { w.raw(name, strconv.FormatInt(v, 10)) }
func (w *writer) flag(name string, v bool) { w.raw(name, strconv.FormatBool(v)) }

// appendString appends s as ECMAScript's JSON writes it (1.4). encoding/json
// differs: it escapes <, >, &, U+2028 and U+2029, and puts U+FFFD for what is
// not UTF-8, so that two requests would have one hash.
func appendString(dst []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, ErrNotUnicode
	}
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			if c < ' ' {
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			} else {
				dst = append(dst, c)
			}
		}
	}
	return append(dst, '"'), nil
}
