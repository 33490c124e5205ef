package main

import (
	"io"
	"unicode"
	"unicode/utf8"
)

// plainText passes on what a program writes to its terminal, less all that
// steers a terminal: what others wrote must not draw over the screen of who
// reads it. Sequences and characters may be cut anywhere between two writes.
type plainText struct {
	w     io.Writer
	state int
	part  []byte // of a character
}

// Where in a control sequence the last byte was.
const (
	inText     = iota
	inEscape   // after ESC
	inCSI      // ESC [ ... letter
	inString   // ESC ], P, X, ^, _ ... until BEL or ESC \
	inStringST // after the ESC of that
	inCharset  // ESC ( and one more
)

func (p *plainText) Write(b []byte) (int, error) {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		out = p.next(out, c)
	}
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (p *plainText) next(out []byte, c byte) []byte {
	switch p.state {
	case inEscape:
		switch {
		case c == '[':
			p.state = inCSI
		case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_' || c == 'k':
			p.state = inString
		case c >= ' ' && c <= '/':
			p.state = inCharset
		default:
			p.state = inText
		}
		return out
	case inCSI:
		if c >= '@' && c <= '~' {
			p.state = inText
		}
		return out
	case inString:
		switch c {
		case '\a':
			p.state = inText
		case 0x1b:
			p.state = inStringST
		}
		return out
	case inStringST:
		p.state = inString
		if c == '\\' {
			p.state = inText
		}
		return out
	case inCharset:
		p.state = inText
		return out
	}
	if c == 0x1b {
		p.part = p.part[:0]
		p.state = inEscape
		return out
	}
	p.part = append(p.part, c)
	for len(p.part) > 0 && utf8.FullRune(p.part) {
		r, n := utf8.DecodeRune(p.part)
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
		}
		p.part = p.part[n:]
	}
	return out
}
