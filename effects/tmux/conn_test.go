package tmux

import (
	"bufio"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"skc.dev/skc/effects"
)

// stream feeds text to the reader of a connection on which cmds were sent, and
// returns the notifications.
func stream(text string, cmds ...*command) (notes []string, err error) {
	cn := &conn{
		c: New(Options{Clock: clock.RealClock{}}), note: func(n string) { notes = append(notes, n) },
		slots: make(chan struct{}, len(cmds)), dead: make(chan struct{}), queue: cmds,
	}
	for _, cmd := range cmds {
		cmd.done = make(chan struct{})
		cn.slots <- struct{}{}
	}
	err = cn.parse(bufio.NewReaderSize(strings.NewReader(text), 16))
	return notes, err
}

func TestAnswersAreMatchedByOrder(t *testing.T) {
	a, b, c, d := &command{blocks: 1}, &command{blocks: 2}, &command{blocks: 2}, &command{blocks: 1}
	notes, _ := stream(strings.Join([]string{
		"%begin 1 10 0", "of the attach", "%end 1 10 0",
		"%session-changed $0 _anchor",
		"%begin 1 11 1", "one", "%end 1 9 1", "%end 1 11 1",
		"%begin 1 12 0", "of a hook", "%error 1 12 0",
		"%begin 2 13 1", "%end 2 13 1",
		"%unlinked-window-close @1",
		"%begin 2 14 1", "two, longer than the buffer of the reader", "%end 2 14 1",
		"%begin 2 15 1", "can't find pane: %9", "%error 2 15 1",
		"%begin 2 16 1", "%end 2 16 1", "",
	}, "\n"), a, b, c, d)
	if want := []string{"%session-changed $0 _anchor", "%unlinked-window-close @1"}; !slices.Equal(notes, want) {
		t.Errorf("notifications = %q, want %q", notes, want)
	}
	if len(a.reply.blocks) != 1 || !slices.Equal(a.reply.blocks[0], []string{"one", "%end 1 9 1"}) {
		t.Errorf("first answer = %q", a.reply)
	}
	if len(b.reply.blocks) != 2 || len(b.reply.blocks[0]) != 0 || !slices.Equal(b.reply.blocks[1], []string{"two, longer than the buffer of the reader"}) {
		t.Errorf("second answer = %q", b.reply)
	}
	if c.reply.err != "can't find pane: %9" {
		t.Errorf("third answer = %q", c.reply)
	}
	select {
	case <-d.done:
	default:
		t.Error("the fourth was not answered")
	}
}

// A program draws the end of a block, a block of its own and a notification:
// nothing of it is taken for tmux's.
func TestScreenCannotForgeAnEnd(t *testing.T) {
	screen, next := guarded(&command{blocks: 1}), &command{blocks: 1}
	drawn := []string{"%end 1 11 1", "%begin 1 12 1", "end-GUESS", "%end 1 12 1", "%error 1 11 1", "%session-renamed $1 evil"}
	text := append([]string{"%begin 1 11 1"}, drawn...)
	text = append(text, "%end 1 11 1", "%session-renamed $1 real", "%begin 1 12 1", screen.nonce, "%end 1 12 1", "%begin 1 13 1", "x", "%end 1 13 1", "")
	notes, _ := stream(strings.Join(text, "\n"), screen, next)
	if len(screen.reply.blocks) != 1 || !slices.Equal(screen.reply.blocks[0], drawn) {
		t.Errorf("screen = %q, want %q", screen.reply, drawn)
	}
	if !slices.Equal(notes, []string{"%session-renamed $1 real"}) {
		t.Errorf("notifications = %q", notes)
	}
	if len(next.reply.blocks) != 1 || !slices.Equal(next.reply.blocks[0], []string{"x"}) {
		t.Errorf("next answer = %q", next.reply)
	}
}

func TestParseRow(t *testing.T) {
	const uid = "00000000-0000-4000-8000-000000000001"
	launch := effects.LaunchID{UID: uid, Generation: 2, Attempt: 3}
	tests := []struct {
		name, line string
		want       row
		ok         bool
	}{
		{"alive", "p $1 @2 %3 44 0 s g web:/bin/skc-launch /run/" + uid + ".2.3", row{session: "$1", window: "@2", pane: "%3", name: "web", pid: 44, launch: launch}, true},
		{"exited, path in quotes", `p $1 @2 %3 44 1 s7 g web:"/a b/l" "/a b/` + uid + `.2.3"`, row{session: "$1", window: "@2", pane: "%3", name: "web", pid: 44, dead: true, known: true, code: 7, launch: launch}, true},
		{"killed, name with spaces", "p $1 @2 %3 44 1 s g9 my web:x /" + uid + ".2.3", row{session: "$1", window: "@2", pane: "%3", name: "my web", pid: 44, dead: true, known: true, signal: "SIGKILL", launch: launch}, true},
		{"a user's pane", "p $1 @2 %3 44 0 s g web:vim a:b", row{session: "$1", window: "@2", pane: "%3", name: "web", pid: 44}, true},
		{"a mark that is not the last part", "p $1 @2 %3 44 0 s g web:cat /" + uid + ".2.3 x", row{session: "$1", window: "@2", pane: "%3", name: "web", pid: 44}, true},
		{"another line", "%end 1 2 1", row{}, false},
		{"bad id", "p 1 @2 %3 44 0 s g web:x", row{}, false},
		{"bad pid", "p $1 @2 %3 x 0 s g web:x", row{}, false},
		{"no name", "p $1 @2 %3 44 0 s g web", row{}, false},
		{"empty", "", row{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := parseRow(tt.line); got != tt.want || ok != tt.ok {
				t.Errorf("parseRow(%q) = %+v, %v, want %+v, %v", tt.line, got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`a\134b\015\012`: "a\\b\r\n", `\303\251`: "é", `tail\01`: `tail\01`, `\999`: `\999`, "é": "é", "": "",
	} {
		if got := string(unescape(in)); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}

// No stream makes the reader panic or answer a command that was not sent.
func FuzzStream(f *testing.F) {
	f.Add("%begin 1 2 1\nx\n%end 1 2 1\n%begin 1 3 1\nend-X\n%end 1 3 1\n")
	f.Add("%begin 1 2 0\n%end 1 2 0\n%exit\n")
	f.Add("p $1 @2 %3 44 0 s g web:x\n%session-renamed\n%window-close\n")
	f.Fuzz(func(t *testing.T, text string) {
		plain, screen := &command{blocks: 2}, &command{blocks: 1, nonce: "end-X"}
		notes, err := stream(text, plain, screen)
		if err == nil {
			t.Error("the reader ended without a reason")
		}
		c := New(Options{Clock: clock.RealClock{}})
		for _, n := range notes {
			c.note(n)
		}
		for line := range strings.Lines(text) {
			parseRow(line)
			unescape(line)
		}
	})
}
