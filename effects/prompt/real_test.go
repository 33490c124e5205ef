package prompt_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/utils/clock"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/process"
	"skc.dev/skc/effects/prompt"
	"skc.dev/skc/effects/tmux"
	"skc.dev/skc/effects/tmux/tmuxtest"
)

// life is one life of a controller with a real tmux in dir.
type life struct {
	dir     string
	client  *tmux.Client
	prompts *prompt.Prompter
	log     *lockedBuffer
}

// lockedBuffer takes the log of all goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) line(prefix, args string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintln(&b.b, prefix, args)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func socket(dir string) string { return filepath.Join(dir, "run", "tmux.sock") }

// live calls do in one life.
func live(ctx context.Context, dir string, do func(context.Context, *life) error) (err error) {
	watcher, err := process.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, watcher.Close()) }()
	l := &life{dir: dir, log: &lockedBuffer{}}
	layer := &files.Layer{}
	l.client = tmux.New(tmux.Options{
		Socket: socket(dir), Launcher: "/bin/sh", LaunchDir: dir, Processes: watcher, Files: layer, Clock: clock.RealClock{},
		Log: funcr.New(l.log.line, funcr.Options{Verbosity: 100}),
	})
	l.prompts = prompt.New(prompt.Options{
		Dir: filepath.Join(dir, "prompts"), Files: layer, Terminal: l.client, BootID: "boot", Clock: clock.RealClock{},
		Reader: prompt.Foreground(process.NewSessions(false)),
	})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- l.client.Run(ctx) }()
	defer func() { cancel(); err = errors.Join(err, <-done) }()
	return do(ctx, l)
}

// deliver pastes text into the session's program until that has come to an end.
func (l *life) deliver(ctx context.Context, text string) (effects.PromptStatus, error) {
	for {
		pane, err := l.client.Get(ctx, uid)
		if err != nil {
			return effects.PromptStatus{}, err
		}
		s, err := l.prompts.Paste(ctx, pane, text)
		var held *effects.PromptHeldError
		if errors.As(err, &held) {
			s.Again = 20 * time.Millisecond
		} else if err != nil || s.State != effects.PromptIntended {
			return s, err
		}
		select { // nothing else tells of a screen
		case <-time.After(s.Again):
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}

// realDir is where one test has its tmux, which ends with it.
func realDir(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: apt-get install tmux")
	}
	dir, err := os.MkdirTemp("", "skc")
	must(t, err)
	t.Cleanup(func() {
		// Not asked: tmux 3.3a may wait for ever for the client of a controller that
		// was killed.
		data, err := os.ReadFile(socket(dir) + ".server")
		must(t, err)
		pid, err := strconv.Atoi(strings.Fields(string(data))[0])
		if err != nil || pid < 2 {
			t.Fatalf("the record of the server is %q", data)
		}
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		must(t, os.RemoveAll(dir))
	})
	return dir
}

// reader is a program that asks for bracketed paste, echoes what it reads, and
// keeps it.
const reader = "stty raw; printf '\\033[?2004hready\\r\\n'; exec cat >>\"$HERE/read\"\n"

// start starts the session with that script as its program.
func (l *life) start(ctx context.Context, script string) (effects.TmuxPane, error) {
	id := tmuxtest.Launch(1, 1)
	err := os.WriteFile(filepath.Join(l.dir, id.FileName()), []byte("HERE='"+l.dir+"'\n"+script), 0o600)
	if err != nil {
		return effects.TmuxPane{}, err
	}
	pane, err := l.client.Create(ctx, tmuxtest.Want("web", id))
	if err != nil {
		return pane, err
	}
	for {
		s, err := l.client.Screen(ctx, pane)
		if err != nil || strings.Contains(strings.Join(s.Lines, "\n"), "ready") {
			return pane, err
		}
		select { // nothing else tells of a screen
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return pane, ctx.Err()
		}
	}
}

func ask(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "tmux", append([]string{"-N", "-S", socket(dir)}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// TestSecret looks for a prompt wherever it must not be, while it is pasted and
// afterwards.
func TestSecret(t *testing.T) {
	dir := realDir(t)
	secret := "canary-" + rand.Text()
	text := "Fix the login bug, " + secret + ".\n#{pid} $(touch " + dir + "/x) #(touch " + dir + "/x) 'é' ; kill-server\n"
	stop, watched := make(chan struct{}), make(chan string, 1)
	go func() { watched <- watchCommandLines(secret, stop) }()
	err := live(t.Context(), dir, func(ctx context.Context, l *life) error {
		if _, err := l.start(ctx, reader); err != nil {
			return err
		}
		if s, err := l.deliver(ctx, text); err != nil || s.State != effects.PromptDelivered || strings.Contains(s.Message, secret) {
			t.Errorf("it came to %+v, %v", s, err)
		}
		if strings.Contains(l.log.String(), secret) {
			t.Errorf("the log holds it:\n%s", l.log)
		}
		for _, args := range [][]string{
			{"list-buffers"}, {"show-environment", "-g"}, {"show-environment", "-t", "web"}, {"show-options", "-g"}, {"show-options", "-s"},
			{"show-options", "-gw"}, {"show-options", "-t", "web"}, {"show-options", "-p", "-t", "web"}, {"show-messages", "-t", strings.TrimSpace(ask(t, dir, "list-clients", "-F", "#{client_name}"))}, {"show-hooks", "-g"},
			{"list-panes", "-a", "-F", "#{pane_start_command} #{pane_title} #{window_name} #{session_name}"}, {"list-clients"},
		} {
			if out := ask(t, dir, args...); strings.Contains(out, secret) || args[0] == "list-buffers" && out != "" {
				t.Errorf("tmux %q: %s", args, out)
			}
		}
		return nil
	})
	close(stop)
	if line := <-watched; line != "" {
		t.Errorf("a command line held it: %q", line)
	}
	must(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "read"))
	must(t, err)
	want := "\x1b[200~" + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\r") + "\x1b[201~\r"
	if string(got) != want {
		t.Errorf("the program read %q, want %q", got, want)
	}
	for _, pid := range strings.Fields(ask(t, dir, "display-message", "-p", "#{pid}")) {
		if env, err := os.ReadFile("/proc/" + pid + "/environ"); err == nil && bytes.Contains(env, []byte(secret)) {
			t.Error("the environment of tmux holds it")
		}
	}
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == filepath.Join(dir, "read") {
			return err
		}
		if data, err := os.ReadFile(path); err != nil || bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s holds it, %v", path, err)
		}
		return nil
	}))
	if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
		t.Error("text of the prompt was run")
	}
}

// watchCommandLines reads all command lines again and again until stop and
// returns one that held text.
func watchCommandLines(text string, stop <-chan struct{}) (found string) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range lines {
			if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
				found = string(b)
			}
		}
		select {
		case <-stop:
			return found
		case <-tick.C:
		}
	}
}

// A program in the foreground counts by its session, not by its parents, and a
// terminal that collects lines takes one line only.
func TestForegroundOfARealPane(t *testing.T) {
	for _, c := range []struct {
		name, script, text string
		held               bool
	}{
		{name: "the pane's program", script: reader, text: "Fix it,\nand then rest."},
		{name: "a child of the session in the foreground", text: "Fix it,\nand then rest.",
			script: "set -m\nexport " + process.UIDVariable + "=" + uid + "\nsh -c '" + strings.ReplaceAll(strings.TrimSpace(reader), "'", `'\''`) + "'\n"},
		{name: "a child that says to be of no session", text: "Fix it,\nand then rest.", held: true,
			script: "set -m\nsh -c '" + strings.ReplaceAll(strings.TrimSpace(reader), "'", `'\''`) + "'\n"},
		{name: "lines into a terminal that collects lines", text: "Fix it,\nand then rest.", held: true, script: "echo ready; exec cat >>\"$HERE/read\"\n"},
		{name: "a line into a terminal that collects lines", text: "one line", script: "echo ready; exec cat >>\"$HERE/read\"\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := realDir(t)
			must(t, live(t.Context(), dir, func(ctx context.Context, l *life) error {
				pane, err := l.start(ctx, "HERE='"+dir+"'; export HERE\n"+c.script)
				if err != nil {
					return err
				}
				if c.held {
					var held *effects.PromptHeldError
					if s, err := l.prompts.Paste(ctx, pane, c.text); !errors.As(err, &held) || s.State != effects.PromptNone {
						t.Errorf("Paste = %+v, %v, want it held back", s, err)
					}
					return nil
				}
				s, err := l.deliver(ctx, c.text)
				if err != nil || s.State != effects.PromptDelivered {
					t.Errorf("it came to %+v, %v", s, err)
				}
				return nil
			}))
			if got, _ := os.ReadFile(filepath.Join(dir, "read")); c.held && len(got) != 0 {
				t.Errorf("the program read %q", got)
			}
		})
	}
}

// realChild is one life of a controller in a process of its own: it starts the
// session if there is none, brings the prompt as far as it can and says how far
// that was.
func realChild(dir string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := live(ctx, dir, func(ctx context.Context, l *life) error {
		if _, err := l.client.Get(ctx, uid); errors.Is(err, effects.ErrNotFound) {
			_, err := l.start(ctx, reader)
			return err
		}
		s, err := l.deliver(ctx, canary)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(s)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestKilledWithTmux is TestKilled with a real tmux, which goes on when the
// controller is killed.
func TestKilledWithTmux(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs a build with the tag skcfaults")
	}
	for _, c := range []struct {
		point  string
		before effects.PromptState // when it is killed before the step
		after  effects.PromptState
		most   int // times that it was read, at most, when killed before
	}{
		{"prompt.intend", effects.PromptDelivered, effects.PromptUnknown, 1},
		{"tmux.paste", effects.PromptUnknown, effects.PromptUnknown, 0},
		{"tmux.enter", effects.PromptUnknown, effects.PromptUnknown, 1},
		{"prompt.settle", effects.PromptUnknown, effects.PromptDelivered, 1},
	} {
		for _, phase := range []string{"before", "during", "after"} {
			t.Run(c.point+" "+phase, func(t *testing.T) {
				t.Parallel()
				dir := realDir(t)
				realLife(t, dir, "")
				realLife(t, dir, c.point+":"+phase+"=kill")
				var s effects.PromptStatus
				for range 2 { // nothing comes back in a later life
					s = realLife(t, dir, "")
				}
				data, err := os.ReadFile(filepath.Join(dir, "read"))
				must(t, err)
				n, enters := bytes.Count(data, []byte(canary)), bytes.Count(data, []byte("\r"))
				t.Logf("read %d times with %d Enter, and it is %+v", n, enters, s)
				want := c.before
				if phase == "after" {
					want = c.after
				}
				if s.State != want && (phase != "during" || s.State != c.after) {
					t.Errorf("it is %+v, want %s", s, want)
				}
				if n > 1 || enters > 1 || enters > n || phase == "before" && n > c.most {
					t.Errorf("the program read %q", data)
				}
				if s.State == effects.PromptDelivered && (n != 1 || enters != 1) {
					t.Errorf("it is said to be delivered, and the program read %q", data)
				}
				if out := ask(t, dir, "list-buffers"); out != "" {
					t.Errorf("buffers left: %s", out)
				}
			})
		}
	}
}

func realLife(t *testing.T, dir, place string) (s effects.PromptStatus) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"=tmux", "SKC_FAULT="+place)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if killed != (place != "") || err != nil && !killed {
		t.Fatalf("a life with %q ended with %v\n%s%s", place, err, out, &said)
	}
	if len(out) > 0 {
		must(t, json.Unmarshal(out, &s))
	}
	return s
}
