package main

import (
	"bytes"
	"testing"
)

func TestInert(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain text", "a b é 日本", "a b é 日本"},
		{"an escape sequence", "a\x1b[31mred", `a\x1b[31mred`},
		{"C1 and DEL", "a\u009b31m\x7f", `a\u009b31m\x7f`},
		{"the direction of writing", "a\u202eb\u2066c", `a\u202eb\u2066c`},
		{"a line end", "a\r\nb\tc", `a\x0d\nb\tc`},
		{"no UTF-8", "a\xff\xfeb", `a\xff\xfeb`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := inertLine(tt.in); got != tt.want {
				t.Errorf("inertLine(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
	if got := inert("a\nb\tc\r"); got != "a\nb\tc\\x0d" {
		t.Errorf("inert kept or lost a line end: %q", got)
	}
}

func TestPlainText(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain text", "a\tb\r\né 日本\n", "a\tb\né 日本\n"},
		{"colours", "\x1b[1;31mred\x1b[0m!", "red!"},
		{"a title, ended by BEL", "a\x1b]0;title\ab", "ab"},
		{"a title, ended by ST", "a\x1b]0;ti\x1b[tle\x1b\\b", "ab"},
		{"a character set", "a\x1b(0b", "ab"},
		{"bracketed paste and keys", "\x1b[?2004h\x1b=\x1b>a", "a"},
		{"C1, BEL, BS, direction", "a\u009b\a\b\u202eb", "ab"},
		{"no UTF-8", "a\xffb", "a\ufffdb"},
		{"a sequence that does not end", "a\x1b[12", "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for cut := 0; cut <= len(tt.in); cut++ { // wherever it is cut
				var b bytes.Buffer
				p := &plainText{w: &b}
				for _, part := range []string{tt.in[:cut], tt.in[cut:]} {
					if n, err := p.Write([]byte(part)); n != len(part) || err != nil {
						t.Fatalf("Write = %d, %v", n, err)
					}
				}
				if b.String() != tt.want {
					t.Fatalf("cut at %d: %q became %q, want %q", cut, tt.in, b.String(), tt.want)
				}
			}
		})
	}
}
