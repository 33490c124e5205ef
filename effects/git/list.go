package git

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"skc.dev/skc/effects"
)

// List is all worktrees that the repository knows, the main one or the bare
// repository first. Names may hold any bytes.
func (g *Git) List(ctx context.Context, repo effects.Repository) ([]effects.ListedWorktree, error) {
	out, err := g.read(ctx, "--git-dir="+repo.GitDir, "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return nil, fmt.Errorf("list worktrees of %q: %w", repo.GitDir, err)
	}
	list, err := parseList(string(out))
	if err != nil {
		return nil, fmt.Errorf("list worktrees of %q: %w", repo.GitDir, err)
	}
	return list, nil
}

// parseList reads `git worktree list --porcelain -z`: attributes that end with
// a zero byte, records that end with one more. Half a list is an error, and so
// is an empty one: there is always a first worktree. Attributes that git does
// not have yet are passed over.
func parseList(out string) ([]effects.ListedWorktree, error) {
	if out == "" {
		return nil, &effects.NotDoneError{What: "listed no worktree"}
	}
	var list []effects.ListedWorktree
	for out != "" {
		record, rest, ok := strings.Cut(out, "\x00\x00")
		if !ok {
			return nil, errors.New("the list of git broke off")
		}
		w, err := parseRecord(strings.Split(record, "\x00"))
		if err != nil {
			return nil, err
		}
		list, out = append(list, w), rest
	}
	return list, nil
}

func parseRecord(attributes []string) (w effects.ListedWorktree, err error) {
	seen := map[string]bool{}
	for i, a := range attributes {
		key, value, _ := strings.Cut(a, " ")
		if (key == "worktree") != (i == 0) || seen[key] {
			return w, fmt.Errorf("git listed a worktree with attribute %q in the wrong place", a)
		}
		seen[key] = true
		ok := true
		switch key {
		case "worktree":
			w.Path, ok = value, value != ""
		case "HEAD":
			w.Head, ok = value, isObjectID(value)
		case "branch":
			w.Branch, ok = value, strings.HasPrefix(value, "refs/")
		case "bare":
			w.Bare, ok = true, value == ""
		case "detached":
			w.Detached, ok = true, value == ""
		case "locked":
			w.Locked, w.LockReason = true, value
		case "prunable":
			w.Prunable, w.PrunableReason = true, value
		}
		if !ok {
			return w, fmt.Errorf("git listed a worktree with attribute %q", a)
		}
	}
	return w, nil
}

func isObjectID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
