package tmux_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/tmux"
	"skc.dev/skc/effects/tmux/tmuxtest"
)

// buffer is a writer that may be read meanwhile.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestPasteAndKeys(t *testing.T) {
	r := newReal(t)
	l := tmuxtest.Launch(1, 1)
	r.script(t, l, "stty raw -echo; printf '\\033[?2004h'; touch ready; exec cat >got")
	p, err := r.Create(t.Context(), tmuxtest.Want("web", l))
	must(t, err)
	got := func() string {
		b, _ := os.ReadFile(filepath.Join(r.o.LaunchDir, "got"))
		return string(b)
	}
	eventually(t, "the program is ready", func() bool {
		_, err := os.Stat(filepath.Join(r.o.LaunchDir, "got"))
		return err == nil && r.tmux(t, "display-message", "-p", "-t", p.PaneID, "#{pane_current_command}") == "cat"
	})
	r.tmux(t, "copy-mode", "-t", p.PaneID) // someone scrolls back
	text := "#{pid} ; kill-server \\; $(x) 'é' \"\" -t %0 " + strings.Repeat("z", 30_000)
	must(t, tmux.Paste(t.Context(), "tmux", r.o.Socket, p.PaneID, []byte(text), true))
	must(t, tmux.SendKeys(t.Context(), "tmux", r.o.Socket, p.PaneID, []string{"a", "Up", "C-c", "Enter"}))
	want := "\x1b[200~" + text + "\x1b[201~\r" + "a\x1b[A\x03\r"
	eventually(t, "all was read", func() bool { return len(got()) >= len(want) })
	if got() != want {
		t.Errorf("program read %q, want %q", got(), want)
	}
	for _, bad := range []string{"", "hello", ";", "Enter;", "-l", "C-", "C-Enter x", "$x", "é"} {
		if err := tmux.SendKeys(t.Context(), "tmux", r.o.Socket, p.PaneID, []string{bad}); !errors.Is(err, tmux.ErrInvalid) {
			t.Errorf("SendKeys %q = %v, want ErrInvalid", bad, err)
		}
	}
	r.Die(p, "SIGKILL")
	r.Until(t, "it is dead", func() bool {
		p, err := r.Get(t.Context(), tmuxtest.UID(1))
		return err == nil && p.Dead
	})
	if err := tmux.Paste(t.Context(), "tmux", r.o.Socket, p.PaneID, []byte("x"), true); !errors.Is(err, tmux.ErrDead) {
		t.Errorf("Paste into a dead pane = %v, want ErrDead", err)
	}
	if err := tmux.SendKeys(t.Context(), "tmux", r.o.Socket, p.PaneID, []string{"a"}); !errors.Is(err, tmux.ErrDead) {
		t.Errorf("SendKeys to a dead pane = %v, want ErrDead", err)
	}
	if err := tmux.Paste(t.Context(), "tmux", r.o.Socket, "%99", []byte("x"), true); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("Paste into no pane = %v, want ErrNotFound", err)
	}
	if out := r.tmux(t, "list-buffers"); out != "" {
		t.Errorf("buffers left: %q", out)
	}
	must(t, r.Look(t.Context())) // the server lives
}

func TestFollow(t *testing.T) {
	r := newReal(t)
	l := tmuxtest.Launch(1, 1)
	// A second gate: whoever reads the first one again, before its writer has
	// closed it, finds its end.
	more := filepath.Join(r.o.LaunchDir, "more")
	must(t, unix.Mkfifo(more, 0o600))
	r.script(t, l, "read x <'"+fifo(l)+"'; printf 'back\\\\slash é\\033[1m\\n'; i=0; while [ $i -lt 500 ]; do echo $i; i=$((i+1)); done; read x <more; exit 3")
	p, err := r.Create(t.Context(), tmuxtest.Want("web", l))
	must(t, err)
	r.tmux(t, "split-window", "-t", p.PaneID, "--", "sh", "-c", "while :; do echo other; sleep 0.01; done")
	var out buffer
	done := make(chan error, 1)
	go func() { done <- tmux.Follow(t.Context(), "tmux", r.o.Socket, p.SessionID, p.PaneID, &out) }()
	eventually(t, "someone follows", func() bool {
		return strings.Contains(r.tmux(t, "list-clients", "-t", p.SessionID, "-F", "#{client_flags}"), "read-only")
	})
	r.Exit(p, 0)
	eventually(t, "all was followed", func() bool { return strings.HasSuffix(out.String(), "499\r\n") })
	must(t, os.WriteFile(more, []byte("\n"), 0))
	must(t, <-done)
	if s := out.String(); !strings.HasPrefix(s, "back\\slash é\x1b[1m\r\n") || !strings.HasSuffix(s, "498\r\n499\r\n") || strings.Contains(s, "other") {
		t.Errorf("followed %q", s)
	}
	must(t, tmux.Follow(t.Context(), "tmux", r.o.Socket, p.SessionID, p.PaneID, &out)) // of the dead: at once

	lines, err := tmux.CaptureOnce(t.Context(), "tmux", r.o.Socket, p.PaneID, 2)
	if err != nil || !slices.Equal(lines, []string{"498", "499"}) {
		t.Errorf("CaptureOnce = %q, %v", lines, err)
	}
	if _, err := tmux.CaptureOnce(t.Context(), "tmux", r.o.Socket, "%99", 2); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("CaptureOnce of no pane = %v, want ErrNotFound", err)
	}
	p = r.Start(t, "api", tmuxtest.Launch(2, 1))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- tmux.Follow(ctx, "tmux", r.o.Socket, p.SessionID, p.PaneID, &out) }()
	eventually(t, "someone follows", func() bool { return r.tmux(t, "list-clients", "-t", p.SessionID) != "" })
	cancel()
	must(t, <-done)
}

func TestWithoutAServer(t *testing.T) {
	r := newReal(t)
	if err := tmux.Paste(t.Context(), "tmux", r.o.Socket, "%1", []byte("x"), false); !errors.Is(err, effects.ErrUnreachable) {
		t.Errorf("Paste = %v, want ErrUnreachable", err)
	}
	if _, err := tmux.CaptureOnce(t.Context(), "/nonexistent/tmux", r.o.Socket, "%1", 1); !errors.Is(err, effects.ErrUnavailable) {
		t.Errorf("CaptureOnce = %v, want ErrUnavailable", err)
	}
	if len(r.servers()) != 0 {
		t.Error("a server was started")
	}
}
