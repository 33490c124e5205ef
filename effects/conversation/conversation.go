// Package conversation finds the id that an agent gave its conversation: in its
// files, in what a command of it prints, or on its screen. It tells what it
// finds, and only ids that are safe as an argument; whose conversation that is,
// when more than one might be, is decided elsewhere. It reads files and writes
// none.
package conversation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/api/v1alpha1"
)

// maxRead is how much of a file, and of what a command prints, is matched.
const maxRead = 64 << 10

// slack is how much earlier than the recorded start a conversation may begin:
// that time is taken when tmux has answered.
const slack = 2 * time.Second

// Target is the program whose conversation is looked for.
type Target struct {
	Dir   string    // absolute folder of the session
	Env   []string  // its whole environment
	Since time.Time // when it was started
	// Screen is the visible screen, line by line. It must heed its context.
	Screen func(context.Context) ([]string, error)
}

func (t Target) env(name string) string {
	for _, v := range slices.Backward(t.Env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// root is the folder above the files of a set.
func (t Target) root(set *v1alpha1.FileSet) string {
	if set.RootEnv != "" {
		if dir := t.env(set.RootEnv); filepath.IsAbs(dir) {
			return filepath.Clean(dir)
		}
	}
	if rest, ok := strings.CutPrefix(string(set.Root), "~"); ok {
		return filepath.Join(t.env("HOME"), rest)
	}
	return filepath.Clean(string(set.Root))
}

// Recorded tells whether the agent has written down the conversation: whether a
// file of the set is there. An error says that it cannot be known.
func Recorded(set *v1alpha1.FileSet, id v1alpha1.ConversationID, t Target) (bool, error) {
	prefix := string(id[:min(8, len(id))])
	glob := strings.NewReplacer("{conversationIDPrefix}", prefix, "{conversationID}", string(id)).Replace(set.Glob)
	root := t.root(set)
	found, err := fs.Glob(os.DirFS(root), glob)
	if err != nil {
		return false, fmt.Errorf("look for %s below %s: %w", glob, root, err)
	}
	if len(found) > 0 {
		return true, nil
	}
	// Glob passes over what it may not read, and that may be where the file is.
	if _, err := os.ReadDir(root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for %s: %w", glob, err)
	}
	return false, nil
}

// Look looks once at one source that is files, a command, or the screen, and
// returns the ids that it tells, each once, in order. What cannot be read tells
// nothing.
func Look(ctx context.Context, source v1alpha1.CaptureSource, t Target) []v1alpha1.ConversationID {
	pattern, err := regexp.Compile(source.Pattern)
	if err != nil {
		return nil
	}
	var ids []v1alpha1.ConversationID
	switch {
	case source.Files != nil:
		ids = inFiles(ctx, source.Files, pattern, t)
	case len(source.Command) > 0:
		ids = match(pattern, output(ctx, source.Command, t), t, -1)
	case source.Terminal == v1alpha1.TerminalScreen && t.Screen != nil:
		lines, err := t.Screen(ctx)
		if err == nil {
			ids = inLines(pattern, lines)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func inFiles(ctx context.Context, set *v1alpha1.FileSet, pattern *regexp.Regexp, t Target) (ids []v1alpha1.ConversationID) {
	root := t.root(set)
	names, _ := fs.Glob(os.DirFS(root), set.Glob)
	for _, name := range names {
		if ctx.Err() != nil {
			return nil
		}
		path := filepath.Join(root, name)
		fi, err := os.Stat(path)
		if err != nil || !fi.Mode().IsRegular() || fi.ModTime().Before(t.Since.Add(-slack)) {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(f, maxRead))
		_ = f.Close()
		if err == nil { // the first: what follows may be a copy of another, as after a fork
			ids = append(ids, match(pattern, text, t, 1)...)
		}
	}
	return ids
}

// match returns the ids that the first n matches in text, or all when n is -1, tell
// of conversations in t's folder that have begun since its start, as far as the
// pattern has groups for that.
func match(pattern *regexp.Regexp, text []byte, t Target, n int) (ids []v1alpha1.ConversationID) {
	id, dir, created := pattern.SubexpIndex("id"), pattern.SubexpIndex("dir"), pattern.SubexpIndex("created")
	for _, m := range pattern.FindAllSubmatch(text, n) {
		if dir >= 0 && !sameFolder(string(m[dir]), t.Dir) {
			continue
		}
		if created >= 0 {
			ms, err := strconv.ParseInt(string(m[created]), 10, 64)
			if err != nil || time.UnixMilli(ms).Before(t.Since.Add(-slack)) {
				continue
			}
		}
		if id >= 0 && valid.Match(m[id]) {
			ids = append(ids, v1alpha1.ConversationID(m[id]))
		}
	}
	return ids
}

// inLines returns the ids that the lines of a terminal tell, each matched alone.
func inLines(pattern *regexp.Regexp, lines []string) (ids []v1alpha1.ConversationID) {
	at := pattern.SubexpIndex("id")
	for _, line := range lines {
		for _, m := range pattern.FindAllStringSubmatch(line, -1) {
			if at >= 0 && valid.MatchString(m[at]) {
				ids = append(ids, v1alpha1.ConversationID(m[at]))
			}
		}
	}
	return ids
}

// valid is what the type says, and no option.
var valid = regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._-]{0,127}$`)

// sameFolder tells whether two paths lead to one folder: an agent may have
// followed links.
func sameFolder(a, b string) bool {
	if a == b {
		return true
	}
	fa, err := os.Stat(a)
	if err != nil || !filepath.IsAbs(a) {
		return false
	}
	fb, err := os.Stat(b)
	return err == nil && os.SameFile(fa, fb)
}

// output is what a command prints on its standard output; nothing when it cannot
// be run or ends with an error. It runs without a shell, in a process group of its
// own that ends with it.
func output(ctx context.Context, argv []string, t Target) []byte {
	path := program(argv[0], t)
	if path == "" {
		return nil
	}
	var out head
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Dir, cmd.Env, cmd.Stdout = t.Dir, append([]string{}, t.Env...), &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return nil
	}
	return out.text
}

// head keeps the first bytes that are written to it.
type head struct{ text []byte }

func (h *head) Write(b []byte) (int, error) {
	h.text = append(h.text, b[:min(len(b), maxRead-len(h.text))]...)
	return len(b), nil
}

// program is found in the PATH of the session and not in ours.
func program(name string, t Target) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, dir := range filepath.SplitList(t.env("PATH")) {
		path := filepath.Join(dir, name)
		if !filepath.IsAbs(path) {
			path = filepath.Join(t.Dir, path)
		}
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return ""
}
