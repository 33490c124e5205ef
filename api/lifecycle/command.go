package lifecycle

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// CommandKind is what a chat message asks for (1.10).
type CommandKind string

const (
	CommandNone   CommandKind = "none"   // no command of ours, or not for this bot
	CommandCreate CommandKind = "create" // Target, ModelPreset
	CommandClose  CommandKind = "close"  // Target
	CommandResume CommandKind = "resume" // Target
	CommandRecent CommandKind = "recent" // Which
	CommandUsage  CommandKind = "usage"  // not as the grammar has it
	CommandReject CommandKind = "reject" // Reason
)

// Reasons of CommandReject. The second is never on the wire.
const (
	RejectInvalidTarget     = string(ReasonInvalidTarget)
	RejectPromptUnsupported = "prompt_unsupported"
)

// Chat is where a message came from.
type Chat struct {
	BotName string // without the @; empty if not known
	Kind    string // private, group, supergroup, channel; empty if not known
	Home    string // what ~ stands for; without it, ~ is refused
}

// Command is a message that was read.
type Command struct {
	Kind        CommandKind
	Target      Target
	ModelPreset *string
	Which       string // all, create, resume
	Reason      string
}

// Usage is the grammar, for people.
const Usage = `/session_create path <directory> [--mpreset <preset>]
/session_create dir <new directory> [--mpreset <preset>]
/session_create worktree <repository> <branch> [--mpreset <preset>]
/session_close <id>
/session_resume <id or its beginning>
/session_recent [create|resume]`

// Reply is what to tell the sender of a message that is wrong, and empty for
// the others. It holds nothing of the message, which may be a prompt or a secret.
func (c Command) Reply() string {
	switch {
	case c.Kind == CommandUsage:
		return "Commands:\n" + Usage
	case c.Reason == RejectPromptUnsupported:
		return "A session cannot be given a prompt here. Create it, then write to it in its own thread.\n" + Usage
	case c.Kind == CommandReject:
		return "A name or path in this command is not allowed.\n" + Usage
	}
	return ""
}

var (
	validID     = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
	validBranch = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,255}$`)
)

const maxPathUnits = 4096

// ParseCommand reads a chat message (1.10).
func ParseCommand(message string, chat Chat) Command {
	words := strings.FieldsFunc(message, isSpace)
	if len(words) == 0 || !addressed(words[0], chat) {
		return Command{Kind: CommandNone}
	}
	name, _, _ := strings.Cut(words[0], "@")
	parse, ok := map[string]func(args []string, home string) Command{
		"/session_create": parseCreate,
		"/session_close":  parseClose,
		"/session_resume": parseResume,
		"/session_recent": parseRecent,
	}[name]
	switch args := words[1:]; {
	case !ok:
		return Command{Kind: CommandNone}
	case slices.Contains(args, "--"): // what follows is a prompt: read no further
		return Command{Kind: CommandReject, Reason: RejectPromptUnsupported}
	default:
		return parse(args, chat.Home)
	}
}

func parseClose(args []string, _ string) Command {
	if len(args) != 1 {
		return Command{Kind: CommandUsage}
	}
	if !validID.MatchString(args[0]) {
		return invalidTarget()
	}
	return Command{Kind: CommandClose, Target: CloseTarget{SessionID: args[0]}}
}

func parseResume(args []string, _ string) Command {
	if len(args) != 1 {
		return Command{Kind: CommandUsage}
	}
	if !validID.MatchString(args[0]) {
		return invalidTarget()
	}
	return Command{Kind: CommandResume, Target: ResumeTarget{SessionIDOrPrefix: args[0]}}
}

func parseRecent(args []string, _ string) Command {
	switch {
	case len(args) == 0:
		return Command{Kind: CommandRecent, Which: "all"}
	case len(args) == 1 && (args[0] == "create" || args[0] == "resume"):
		return Command{Kind: CommandRecent, Which: args[0]}
	}
	return Command{Kind: CommandUsage}
}

func invalidTarget() Command { return Command{Kind: CommandReject, Reason: RejectInvalidTarget} }

// addressed says whether a command is meant for this bot: with its name
// anywhere, without any name only where no other bot can be meant.
func addressed(command string, chat Chat) bool {
	_, bot, named := strings.Cut(command, "@")
	if named {
		return chat.BotName != "" && strings.EqualFold(bot, chat.BotName)
	}
	return chat.Kind == "" || chat.Kind == "private"
}

func parseCreate(args []string, home string) Command {
	var words []string
	var preset *string
	for i := 0; i < len(args); i++ {
		v, given := strings.CutPrefix(args[i], "--mpreset=")
		if !given && args[i] == "--mpreset" && i+1 < len(args) {
			i++
			v, given = args[i], true
		}
		switch {
		case !given:
			words = append(words, args[i])
		case preset != nil:
			return Command{Kind: CommandUsage}
		default:
			preset = &v
		}
	}
	// Before arity, so that a bad preset never depends on what stands around it.
	if preset != nil && !validID.MatchString(*preset) {
		return invalidTarget()
	}
	create := func(t Target) Command { return Command{Kind: CommandCreate, Target: t, ModelPreset: preset} }
	switch {
	case len(words) == 2 && (words[0] == "path" || words[0] == "dir"):
		path, ok := expand(words[1], home)
		switch {
		case !ok:
			return invalidTarget()
		case words[0] == "path":
			return create(ExistingPath{Path: path})
		}
		return create(PlainDir{Path: path})
	case len(words) == 3 && words[0] == "worktree":
		repo, ok := expand(words[1], home)
		branch := words[2]
		if !ok || !validBranch.MatchString(branch) || strings.Contains(branch, "..") || branch[0] == '-' {
			return invalidTarget()
		}
		return create(Worktree{Repo: repo, Branch: branch})
	}
	return Command{Kind: CommandUsage}
}

// expand checks a path and puts the home for its tilde.
func expand(path, home string) (string, bool) {
	if path == "" || !utf8.ValidString(path) || utf16Len(path) > maxPathUnits || strings.ContainsAny(path, "\r\n\x00;&|`$(){}<>*?!\\\"'") {
		return "", false
	}
	rest, tilde := strings.CutPrefix(path, "~")
	switch {
	case !tilde:
		return path, true
	case home == "" || rest != "" && rest[0] != '/':
		return "", false
	}
	return home + rest, true
}

func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// isSpace is white space as ECMAScript has it, so that both sides split alike.
func isSpace(r rune) bool { return r == '\ufeff' || r != '\u0085' && unicode.IsSpace(r) }
