package lifecycle

import (
	"strings"
	"testing"
)

func TestParseCommand(t *testing.T) {
	private, group := Chat{Kind: "private", BotName: "SkcBot", Home: "/home/u"}, Chat{Kind: "group", BotName: "SkcBot", Home: "/home/u"}
	usage, invalid := Command{Kind: CommandUsage}, Command{Kind: CommandReject, Reason: RejectInvalidTarget}
	prompt, none := Command{Kind: CommandReject, Reason: RejectPromptUnsupported}, Command{Kind: CommandNone}
	path := func(p string) Command { return Command{Kind: CommandCreate, Target: ExistingPath{Path: p}} }
	preset := func(c Command, p string) Command { c.ModelPreset = &p; return c }
	closing := func(id string) Command { return Command{Kind: CommandClose, Target: CloseTarget{SessionID: id}} }
	recent := func(which string) Command { return Command{Kind: CommandRecent, Which: which} }
	long := strings.Repeat("a", 128)
	for _, c := range []struct {
		text string
		chat Chat
		want Command
	}{
		{"", private, none},
		{" \n", private, none},
		{"hello -- world", private, none},
		{"/session_createx path /r", private, none},
		{"/session_create-x path /r", private, none},
		{"/SESSION_CREATE path /r", private, none},
		{"/session_fork a", private, none},
		{"x /session_close a", private, none},
		{"/session_close@", private, none},
		{"/session_close@OtherBot a", private, none},
		{"/session_close@SkcBot@SkcBot a", private, none},
		{"/session_close@skcbot a", private, closing("a")},
		{"/session_close@SKCBOT a", group, closing("a")},
		{"/session_close a", private, closing("a")},
		{"/session_close a", Chat{}, closing("a")},
		{"/session_close@SkcBot a", Chat{}, none},
		{"/session_close a", group, none},
		{"/session_close a", Chat{Kind: "supergroup"}, none},
		{"/session_close a", Chat{Kind: "channel", BotName: "SkcBot"}, none},
		{"/session_close -- a", group, none},
		{"\u00a0/session_close\u2003a\ufeff", private, closing("a")},
		{"/session_close\u0085a", private, none},

		{"/session_close " + long, private, closing(long)},
		{"/session_close " + long + "a", private, invalid},
		{"/session_close a/b", private, invalid},
		{"/session_close a$(whoami)", private, invalid},
		{"/session_close é", private, invalid},
		{"/session_close a\x00", private, invalid},
		{"/session_close a b", private, usage},
		{"/session_close", private, usage},
		{"/session_resume", private, usage},
		{"/session_resume a b", private, usage},
		{"/session_resume -", private, Command{Kind: CommandResume, Target: ResumeTarget{SessionIDOrPrefix: "-"}}},
		{"/session_resume a;b", private, invalid},

		{"/session_recent", private, recent("all")},
		{"/session_recent create", private, recent("create")},
		{"/session_recent resume", private, recent("resume")},
		{"/session_recent all", private, usage},
		{"/session_recent create resume", private, usage},
		{"/session_recent Create", private, usage},

		{"/session_create path /r -- do this", private, prompt},
		{"/session_create path /r --", private, prompt},
		{"/session_create -- path", private, prompt},
		{"/session_create path /r\n--\nx", private, prompt},
		{"/session_close bad$id -- x", private, prompt},
		{"/session_recent --", private, prompt},
		{"/session_create path /r --x", private, usage},
		{"/session_create path --x", private, path("--x")},
		{"/session_create path /r--x", private, path("/r--x")},

		{"/session_create", private, usage},
		{"/session_create path", private, usage},
		{"/session_create path /a b", private, usage},
		{"/session_create file /a", private, usage},
		{"/session_create PATH /a", private, usage},
		{"/session_create dir /a", private, Command{Kind: CommandCreate, Target: PlainDir{Path: "/a"}}},
		{"/session_create dir", private, usage},
		{"/session_create worktree /r", private, usage},
		{"/session_create worktree /r b c", private, usage},
		{"/session_create worktree ~/r feat/x.y_z-1", private, Command{Kind: CommandCreate, Target: Worktree{Repo: "/home/u/r", Branch: "feat/x.y_z-1"}}},
		{"/session_create worktree /r -b", private, invalid},
		{"/session_create worktree /r a..b", private, invalid},
		{"/session_create worktree /r a~1", private, invalid},
		{"/session_create worktree /r " + strings.Repeat("b", 255), private, Command{Kind: CommandCreate, Target: Worktree{Repo: "/r", Branch: strings.Repeat("b", 255)}}},
		{"/session_create worktree /r " + strings.Repeat("b", 256), private, invalid},
		{"/session_create worktree /r;x b", private, invalid},

		{"/session_create path ~", private, path("/home/u")},
		{"/session_create path ~/", private, path("/home/u/")},
		{"/session_create path ~/a", private, path("/home/u/a")},
		{"/session_create path ~x", private, invalid},
		{"/session_create path ~~", private, invalid},
		{"/session_create path a~", private, path("a~")},
		{"/session_create path ~", Chat{}, invalid},
		{"/session_create path ~/a", Chat{}, invalid},
		{"/session_create path 新/😀", private, path("新/😀")},
		{"/session_create path /" + strings.Repeat("a", 4095), private, path("/" + strings.Repeat("a", 4095))},
		{"/session_create path /" + strings.Repeat("a", 4096), private, invalid},
		{"/session_create path /" + strings.Repeat("é", 4095), private, path("/" + strings.Repeat("é", 4095))},
		{"/session_create path " + strings.Repeat("😀", 2049), private, invalid},
		{"/session_create path /a\x00", private, invalid},
		{"/session_create path /a\xff", private, invalid},

		{"/session_create path /r --mpreset p", private, preset(path("/r"), "p")},
		{"/session_create --mpreset p path /r", private, preset(path("/r"), "p")},
		{"/session_create path --mpreset=p /r", private, preset(path("/r"), "p")},
		{"/session_create path /r --mpreset", private, usage},
		{"/session_create path /r --mpreset=", private, invalid},
		{"/session_create path /r --mpreset=a/b", private, invalid},
		{"/session_create path /r --mpreset " + long + "a", private, invalid},
		{"/session_create path /r --mpreset a --mpreset b", private, usage},
		{"/session_create path /r --mpreset=a --mpreset=a", private, usage},
		{"/session_create path /r --MPRESET a", private, usage},
		{"/session_create path --mpreset a;b", private, invalid},
		{"/session_close a --mpreset b", private, usage},
	} {
		equal(t, ParseCommand(c.text, c.chat), c.want)
		if t.Failed() {
			t.Fatalf("of %q in %+v", c.text, c.chat)
		}
	}
	for _, bad := range ";&|`$(){}<>*?!\\\"'" {
		equal(t, ParseCommand("/session_create path /a"+string(bad), private), invalid)
	}
}

func TestReply(t *testing.T) {
	for text, replies := range map[string]bool{
		"/session_create canary":                 true,
		"/session_create path /r -- canary":      true,
		"/session_close canary;":                 true,
		"/session_create path /r --mpreset=ca/y": true,
		"canary":                                 false,
		"/session_close canary":                  false,
	} {
		reply := ParseCommand(text, Chat{}).Reply()
		if strings.Contains(reply, "canary") || (reply != "") != replies {
			t.Errorf("%s: %q", text, reply)
		}
	}
}
