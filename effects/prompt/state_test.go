package prompt_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/prompt"
	"skc.dev/skc/effects/tmux"
	"skc.dev/skc/effects/tmux/tmuxtest"
)

const uid = "00000000-0000-4000-8000-000000000001"

// What a terminal that collects lines would take apart is held back.
func TestLines(t *testing.T) {
	w := newWorld(t)
	w.line = true
	p := w.Start(tmuxtest.Launch(1, 1))
	for _, text := range []string{"one\ntwo", strings.Repeat("x", 4096)} {
		var held *effects.PromptHeldError
		if _, err := w.Paste(t.Context(), p, text); !errors.As(err, &held) {
			t.Errorf("Paste of %.7q = %v, want it held back", text, err)
		}
	}
	if s, err := w.Paste(t.Context(), p, "one\n"); err != nil || s.State != effects.PromptIntended {
		t.Errorf("Paste of one line = %+v, %v", s, err)
	}
}

// failing is a terminal in which one call goes wrong.
type failing struct {
	prompt.Terminal
	paste, enter, drop error
	dropped            int
}

func (f *failing) Paste(ctx context.Context, p effects.TmuxPane, text []byte) error {
	if f.paste != nil {
		return f.paste
	}
	return f.Terminal.Paste(ctx, p, text)
}

func (f *failing) Enter(ctx context.Context, p effects.TmuxPane) error {
	if f.enter != nil {
		return f.enter
	}
	return f.Terminal.Enter(ctx, p)
}

func (f *failing) DropPaste(ctx context.Context, uid string) error {
	f.dropped++
	if f.drop != nil {
		return f.drop
	}
	return f.Terminal.DropPaste(ctx, uid)
}

func TestTerminalFails(t *testing.T) {
	for _, c := range []struct {
		name    string
		failing failing
		want    effects.PromptState
		held    bool
		dropped int
	}{
		{name: "the paste has no answer", failing: failing{paste: effects.ErrUnreachable}, want: effects.PromptUnknown, dropped: 1},
		{name: "the paste is refused", failing: failing{paste: tmux.ErrInputOff}, want: effects.PromptNone, held: true},
		{name: "Enter has no answer", failing: failing{enter: effects.ErrUnreachable}, want: effects.PromptUnknown},
		{name: "Enter is refused", failing: failing{enter: tmux.ErrDead}, want: effects.PromptUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.failing.Terminal = w.o.Terminal
			w.o.Terminal = &c.failing
			w.Restart()
			p := w.Start(tmuxtest.Launch(1, 1))
			var s effects.PromptStatus
			var err error
			for range 100 {
				if s, err = w.Paste(t.Context(), p, "Fix it."); err != nil || s.State != effects.PromptIntended {
					break
				}
				w.Step(s.Again)
			}
			var held *effects.PromptHeldError
			if s.State != c.want || errors.As(err, &held) != c.held || c.failing.dropped != c.dropped {
				t.Errorf("Paste came to %+v, %v, with %d dropped", s, err, c.failing.dropped)
			}
			if got := strings.Count(w.Read(p), "Fix it."); got > 1 || c.failing.paste != nil && got != 0 {
				t.Errorf("the program read %q", w.Read(p))
			}
			w.Restart()
			if s, err := w.Status(t.Context(), uid); err != nil || s.State != c.want {
				t.Errorf("Status = %+v, %v", s, err)
			}
		})
	}
}

// Until the text is out of tmux, a paste that broke off is not settled, and not
// done again.
func TestTextStaysInTmux(t *testing.T) {
	w := newWorld(t)
	f := &failing{Terminal: w.o.Terminal, drop: effects.ErrUnreachable}
	w.o.Terminal = f
	w.Restart()
	p := w.Start(tmuxtest.Launch(1, 1))
	if _, err := w.Paste(t.Context(), p, "Fix it."); err != nil {
		t.Fatal(err)
	}
	w.Restart()
	for range 2 {
		if s, err := w.Paste(t.Context(), p, "Fix it."); !errors.Is(err, effects.ErrUnreachable) || s.State != effects.PromptIntended {
			t.Errorf("Paste = %+v, %v", s, err)
		}
	}
	f.drop = nil
	if s, err := w.Paste(t.Context(), p, "Fix it."); err != nil || s.State != effects.PromptUnknown {
		t.Errorf("Paste = %+v, %v", s, err)
	}
	if got := strings.Count(w.Read(p), "Fix it."); got != 1 {
		t.Errorf("the program read %q", w.Read(p))
	}
}

func TestDamagedReceipt(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "cut": `{"version":1,"uid":"` + uid, "of a later version": `{"version":2,"uid":"` + uid + `","state":"Delivered"}`,
		"of another": `{"version":1,"uid":"00000000-0000-4000-8000-000000000002","state":"Delivered"}`,
		"no state":   `{"version":1,"uid":"` + uid + `","state":""}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			must(t, os.MkdirAll(w.o.Dir, 0o700))
			must(t, os.WriteFile(filepath.Join(w.o.Dir, uid+".receipt"), []byte(text), 0o600))
			if s, err := w.Status(t.Context(), uid); err != nil || s.State != effects.PromptUnknown {
				t.Errorf("Status = %+v, %v", s, err)
			}
			if path, err := w.Publish(t.Context(), uid, "x"); err != nil || path != "" {
				t.Errorf("Publish = %q, %v", path, err)
			}
			p := w.Start(tmuxtest.Launch(1, 1))
			if s, err := w.Paste(t.Context(), p, "x"); err != nil || s.State != effects.PromptUnknown || w.Read(p) != "" {
				t.Errorf("Paste = %+v, %v", s, err)
			}
			must(t, w.Forget(t.Context(), uid))
			if s, err := w.Status(t.Context(), uid); err != nil || s.State != effects.PromptNone {
				t.Errorf("Status = %+v, %v", s, err)
			}
		})
	}
}

// A folder that cannot be looked at is not an empty one.
func TestUnknownIsNotAbsent(t *testing.T) {
	w := newWorld(t)
	must(t, os.WriteFile(w.o.Dir, nil, 0o600))
	if s, err := w.Status(t.Context(), uid); err == nil {
		t.Errorf("Status = %+v", s)
	}
	if path, err := w.Publish(t.Context(), uid, "x"); err == nil {
		t.Errorf("Publish = %q", path)
	}
}

// What a program renamed and left, and what is somebody else's.
func TestForget(t *testing.T) {
	w := newWorld(t)
	path, err := w.Publish(t.Context(), uid, "Fix it.")
	must(t, err)
	must(t, os.Rename(path, path+".4711"))
	other, err := w.Publish(t.Context(), "00000000-0000-4000-8000-000000000002", "Other.")
	must(t, err)
	must(t, w.Forget(t.Context(), uid))
	entries, err := os.ReadDir(w.o.Dir)
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("left: %v", entries)
	}
	if got, ok := w.Take(other); !ok || got != "Other." {
		t.Errorf("the other took %q, %v", got, ok)
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prompt")
	must(t, os.WriteFile(path, []byte("Fix it.\n"), 0o600))
	if got, err := prompt.ReadFile(path); err != nil || got != "Fix it.\n" {
		t.Errorf("ReadFile = %q, %v", got, err)
	}
	must(t, os.WriteFile(path, []byte("secret\x00"), 0o600))
	var bad *effects.PromptTextError
	if _, err := prompt.ReadFile(path); !errors.As(err, &bad) || strings.Contains(err.Error(), "secret") {
		t.Errorf("ReadFile = %v, want a PromptTextError", err)
	}
	if _, err := prompt.ReadFile(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ReadFile = %v, want that there is none", err)
	}
}

// What is kept has an owner as long as its receipt tells; what has none is told
// when it is no longer young.
func TestLeftovers(t *testing.T) {
	w := newWorld(t)
	all := func(old time.Time) (out []string) {
		t.Helper()
		left, err := prompt.Leftovers(w.o.Dir, old)
		must(t, err)
		for _, l := range left {
			out = append(out, l.What+" of "+l.UID)
		}
		return out
	}
	if got := all(time.Time{}); len(got) != 0 {
		t.Errorf("of nothing there is %q", got)
	}
	path, err := w.Publish(t.Context(), uid, "text")
	must(t, err)
	must(t, os.Rename(path, path+".123")) // as a program does that dies then
	const other = "ffffffffffffffffffffffffffffffff"
	for _, name := range []string{other, other + ".staged", "somebody.else", other + "0"} {
		must(t, os.WriteFile(filepath.Join(w.o.Dir, name), nil, 0o600))
	}
	mine := []string{"receipt of a startup prompt of " + uid, "startup prompt of " + uid}
	if got := all(time.Now().Add(-time.Minute)); !slices.Equal(got, mine) {
		t.Errorf("left are %q, want %q", got, mine)
	}
	if got, want := all(time.Now().Add(time.Minute)), append(mine, "startup prompt of ", "startup prompt of "); !slices.Equal(got, want) {
		t.Errorf("left are, later, %q, want %q", got, want)
	}
}
