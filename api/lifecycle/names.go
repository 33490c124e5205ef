package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"
)

// SessionSegment is a session id as one path segment (1.11): percent-encoded,
// and dots too, so that no id climbs.
func SessionSegment(id string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(id) {
		c := id[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_!~*'()", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

// Slug is a name in lower-case letters, digits and single dashes between them,
// "default" if nothing is left (1.11).
func Slug(name string) string {
	// The one letter whose lower case is two code points elsewhere and one in Go.
	name = strings.ToLower(strings.ReplaceAll(name, "\u0130", "i\u0307"))
	words := strings.FieldsFunc(name, func(r rune) bool { return (r < 'a' || 'z' < r) && (r < '0' || '9' < r) })
	if len(words) == 0 {
		return "default"
	}
	return strings.Join(words, "-")
}

// SessionRoot is the directory of a session below its working directory (1.11).
func SessionRoot(cwd, id string) string {
	return path.Join(cwd, ".skc", "_session-"+SessionSegment(id))
}

// StateFile is where the program in a session keeps its state for others (1.11).
func StateFile(cwd, id, tmuxSession string) string {
	return path.Join(SessionRoot(cwd, id), "runtime", "tmux-sessions", Slug(tmuxSession)+".json")
}

// WorktreeSlug is the folder name of the worktree of a branch (1.11): two
// branches never share one.
func WorktreeSlug(branch string) string {
	sum := sha256.Sum256([]byte(branch))
	return Slug(branch) + "-" + hex.EncodeToString(sum[:4])
}
