package tmux_test

import (
	"errors"
	"strings"
	"testing"

	"skc.dev/skc/effects/tmux"
	"skc.dev/skc/effects/tmux/tmuxtest"
)

// A pane whose input somebody turned off, and one in which somebody scrolls.
func TestPasteIntoOddPanes(t *testing.T) {
	r := newReal(t)
	l := tmuxtest.Launch(1, 1)
	r.PrepareReader(l)
	p, err := r.Create(t.Context(), tmuxtest.Want("web", l))
	must(t, err)
	eventually(t, "it reads", func() bool { return r.Reading(p) })
	r.tmux(t, "select-pane", "-d", "-t", p.PaneID)
	if err := r.client.Paste(t.Context(), p, []byte("x")); !errors.Is(err, tmux.ErrInputOff) {
		t.Errorf("Paste = %v, want ErrInputOff", err)
	}
	if err := r.client.Enter(t.Context(), p); !errors.Is(err, tmux.ErrInputOff) {
		t.Errorf("Enter = %v, want ErrInputOff", err)
	}
	r.tmux(t, "select-pane", "-e", "-t", p.PaneID)
	r.tmux(t, "copy-mode", "-t", p.PaneID)
	must(t, r.client.Paste(t.Context(), p, []byte("canary")))
	r.tmux(t, "copy-mode", "-t", p.PaneID)
	must(t, r.client.Enter(t.Context(), p))
	want := "\x1b[200~canary\x1b[201~\r"
	eventually(t, "it has read all", func() bool { return len(r.Read(p)) >= len(want) })
	if got := r.Read(p); got != want {
		t.Errorf("the program read %q, want %q", got, want)
	}
	if out := r.tmux(t, "list-buffers"); out != "" {
		t.Errorf("buffers left: %s", out)
	}
	// What a Paste that broke off left, and a buffer of a user's.
	r.tmux(t, "set-buffer", "-b", "skc-prompt-"+tmuxtest.UID(1), "left")
	r.tmux(t, "set-buffer", "-b", "mine", "kept")
	must(t, r.client.DropPaste(t.Context(), tmuxtest.UID(1)))
	must(t, r.client.DropPaste(t.Context(), tmuxtest.UID(1)))
	if out := r.tmux(t, "list-buffers"); !strings.HasPrefix(out, "mine:") || strings.Contains(out, "\n") {
		t.Errorf("buffers: %s", out)
	}
}
