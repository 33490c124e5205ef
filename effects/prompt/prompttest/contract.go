// Package prompttest holds what every reconciler may assume of the delivery of
// startup prompts, as tests that run against the real one and against the fake
// that is here too.
package prompttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"skc.dev/skc/effects"
)

// Prompter is what reconcilers use; prompt.Prompter and Fake have it.
type Prompter interface {
	Status(ctx context.Context, uid string) (effects.PromptStatus, error)
	Publish(ctx context.Context, uid, text string) (path string, err error)
	Paste(ctx context.Context, pane effects.TmuxPane, text string) (effects.PromptStatus, error)
	Intend(ctx context.Context, id effects.LaunchID, text string) (bool, error)
	Settle(ctx context.Context, uid string, state effects.PromptState, message string) (effects.PromptStatus, error)
	Withdraw(ctx context.Context, uid string) error
	Forget(ctx context.Context, uid string) error
}

// World is a Prompter with the hands of those who act beside the controller.
type World struct {
	Prompter
	// Start starts a program that reads its terminal; Read is what it has read.
	Start func(id effects.LaunchID) effects.TmuxPane
	Read  func(pane effects.TmuxPane) string
	// Take has a program take a published prompt, as it should; false when there
	// is none.
	Take func(path string) (string, bool)
	// Away brings a program of somebody else into the foreground of the terminal,
	// or takes it away again.
	Away func(pane effects.TmuxPane, away bool)
	// Mute has the program show nothing of what it reads.
	Mute func(pane effects.TmuxPane)
	// Restart ends the controller and starts it again; Reboot the whole machine.
	Restart, Reboot func()
	// Step lets time pass.
	Step func(time.Duration)
}

const (
	uid  = "00000000-0000-4000-8000-000000000001"
	text = "Fix the login bug.\nThen rest.\n"
	// pasted is how a program reads text.
	pasted = "\x1b[200~Fix the login bug.\rThen rest.\x1b[201~"
)

func launch(attempt int64) effects.LaunchID {
	return effects.LaunchID{UID: uid, Generation: 1, Attempt: attempt}
}

// Contract is what every reconciler may assume.
func Contract(t *testing.T, newWorld func(*testing.T) *World) {
	t.Run("what was not begun is none", func(t *testing.T) {
		w := newWorld(t)
		w.is(t, effects.PromptNone, "")
		must(t, w.Forget(t.Context(), uid))
		must(t, w.Withdraw(t.Context(), uid))
		w.settle(t, effects.PromptUnknown)
		w.is(t, effects.PromptNone, "")
		if _, err := w.Status(t.Context(), "../../etc"); err == nil {
			t.Error("Status of what is no UID succeeds")
		}
	})
	t.Run("a file is taken once", func(t *testing.T) {
		w := newWorld(t)
		path := w.publish(t)
		w.is(t, effects.PromptIntended, effects.PromptByFile)
		w.Restart()
		if again := w.publish(t); again != path {
			t.Errorf("published again at %q, first at %q", again, path)
		}
		if got, ok := w.Take(path); !ok || got != text {
			t.Errorf("the program took %q, %v", got, ok)
		}
		if _, ok := w.Take(path); ok {
			t.Error("it was taken twice")
		}
		w.is(t, effects.PromptDelivered, effects.PromptByFile)
		w.Reboot()
		w.nothingMore(t, effects.PromptDelivered, effects.PromptByFile)
	})
	t.Run("a file that was taken while no controller ran is delivered", func(t *testing.T) {
		w := newWorld(t)
		path := w.publish(t)
		w.Take(path)
		w.Restart()
		w.nothingMore(t, effects.PromptDelivered, effects.PromptByFile)
	})
	t.Run("a file that was there when the machine stopped is not known to be untaken", func(t *testing.T) {
		w := newWorld(t)
		path := w.publish(t)
		w.Reboot()
		w.nothingMore(t, effects.PromptUnknown, effects.PromptByFile)
		if _, ok := w.Take(path); ok {
			t.Error("it can be taken still")
		}
	})
	t.Run("a paste comes once, with one Enter", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(launch(1))
		if s := w.paste(t, p); s.State != effects.PromptDelivered || s.Attempt != 1 {
			t.Errorf("Paste came to %+v", s)
		}
		w.paste(t, p)
		if got := w.Read(p); got != pasted+"\r" {
			t.Errorf("the program read %q, want %q", got, pasted+"\r")
		}
		w.nothingMore(t, effects.PromptDelivered, effects.PromptByPaste)
	})
	t.Run("nothing is pasted while another program is in the foreground", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(launch(1))
		w.Away(p, true)
		var held *effects.PromptHeldError
		if _, err := w.Paste(t.Context(), p, text); !errors.As(err, &held) {
			t.Errorf("Paste = %v, want it held back", err)
		}
		w.is(t, effects.PromptNone, "")
		w.Away(p, false)
		if s := w.paste(t, p); s.State != effects.PromptDelivered {
			t.Errorf("Paste came to %+v", s)
		}
		if got := w.Read(p); got != pasted+"\r" {
			t.Errorf("the program read %q, want %q", got, pasted+"\r")
		}
	})
	t.Run("no Enter goes to another program than the paste", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(launch(1))
		if s, err := w.Paste(t.Context(), p, text); err != nil || s.State != effects.PromptIntended {
			t.Fatalf("Paste = %+v, %v", s, err)
		}
		w.Away(p, true)
		if s := w.paste(t, p); s.State != effects.PromptUnknown {
			t.Errorf("Paste came to %+v", s)
		}
		if got := w.Read(p); got != pasted {
			t.Errorf("the program read %q, want %q", got, pasted)
		}
	})
	t.Run("what is not seen on the screen is not entered", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(launch(1))
		w.Mute(p)
		if s := w.paste(t, p); s.State != effects.PromptUnknown {
			t.Errorf("Paste came to %+v", s)
		}
		if got := w.Read(p); got != pasted {
			t.Errorf("the program read %q, want %q", got, pasted)
		}
		w.nothingMore(t, effects.PromptUnknown, effects.PromptByPaste)
	})
	t.Run("a paste that broke off is unknown and not done again", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(launch(1))
		if s, err := w.Paste(t.Context(), p, text); err != nil || s.State != effects.PromptIntended || s.Again <= 0 {
			t.Fatalf("Paste = %+v, %v", s, err)
		}
		w.Restart()
		if s := w.paste(t, p); s.State != effects.PromptUnknown {
			t.Errorf("Paste came to %+v", s)
		}
		if got := w.Read(p); got != pasted {
			t.Errorf("the program read %q, want %q", got, pasted)
		}
		w.nothingMore(t, effects.PromptUnknown, effects.PromptByPaste)
	})
	t.Run("an argument is for one start", func(t *testing.T) {
		w := newWorld(t)
		w.intends(t, true)
		w.intends(t, false)
		w.Restart()
		w.intends(t, false)
		w.is(t, effects.PromptIntended, effects.PromptByArgument)
		must(t, w.Withdraw(t.Context(), uid)) // that start never ran
		w.is(t, effects.PromptNone, "")
		w.intends(t, true)
		w.settle(t, effects.PromptDelivered)
		w.settle(t, effects.PromptUnknown) // too late
		must(t, w.Withdraw(t.Context(), uid))
		w.nothingMore(t, effects.PromptDelivered, effects.PromptByArgument)
		if _, err := w.Settle(t.Context(), uid, effects.PromptDelivered, ""); err != nil {
			t.Errorf("Settle again = %v", err)
		}
	})
	t.Run("text that cannot be delivered is refused and leaves nothing", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(launch(1))
		var bad *effects.PromptTextError
		for _, s := range []string{"", "a\x00b", strings.Repeat("x", 1<<20+1)} {
			if _, err := w.Publish(t.Context(), uid, s); !errors.As(err, &bad) {
				t.Errorf("Publish of %.5q = %v, want a PromptTextError", s, err)
			}
			if _, err := w.Intend(t.Context(), launch(1), s); !errors.As(err, &bad) {
				t.Errorf("Intend of %.5q = %v, want a PromptTextError", s, err)
			}
		}
		for _, s := range []string{"", " \n", "a\x00b", "a\x1b[201~rm -rf ~\r", "a\u009b201~b", "a\rb", "a\x03", "\xff", "\x7f"} {
			_, err := w.Paste(t.Context(), p, s)
			if !errors.As(err, &bad) {
				t.Errorf("Paste of %q = %v, want a PromptTextError", s, err)
			} else if s != "" && strings.Contains(err.Error(), "rm -rf") {
				t.Errorf("the error holds the text: %v", err)
			}
		}
		w.is(t, effects.PromptNone, "")
		if got := w.Read(p); got != "" {
			t.Errorf("the program read %q", got)
		}
	})
	t.Run("a UID that was forgotten has nothing", func(t *testing.T) {
		w := newWorld(t)
		path := w.publish(t)
		must(t, w.Forget(t.Context(), uid))
		must(t, w.Forget(t.Context(), uid))
		if _, ok := w.Take(path); ok {
			t.Error("the file can be taken still")
		}
		w.is(t, effects.PromptNone, "")
	})
}

// is sees how far the prompt came.
func (w *World) is(t *testing.T, state effects.PromptState, delivery string) {
	t.Helper()
	s, err := w.Status(t.Context(), uid)
	if err != nil || s.State != state || s.Delivery != delivery {
		t.Errorf("Status = %+v, %v, want %q by %q", s, err, state, delivery)
	}
	if strings.Contains(s.Message, "login") {
		t.Errorf("the message holds the text: %s", s.Message)
	}
}

// nothingMore sees that the prompt came to its end and that no way delivers it
// again, also after another start of the controller.
func (w *World) nothingMore(t *testing.T, state effects.PromptState, delivery string) {
	t.Helper()
	for range 2 {
		w.is(t, state, delivery)
		if path := w.publish(t); path != "" {
			t.Errorf("it is published again, at %s", path)
		}
		w.intends(t, false)
		p := w.Start(launch(7))
		if s := w.paste(t, p); s.State != state {
			t.Errorf("pasted again, and is %+v", s)
		}
		if got := w.Read(p); got != "" {
			t.Errorf("a later start read %q", got)
		}
		w.Restart()
	}
}

func (w *World) publish(t *testing.T) string {
	t.Helper()
	path, err := w.Publish(t.Context(), uid, text)
	must(t, err)
	return path
}

func (w *World) intends(t *testing.T, want bool) {
	t.Helper()
	if got, err := w.Intend(t.Context(), launch(1), text); err != nil || got != want {
		t.Errorf("Intend = %v, %v, want %v", got, err, want)
	}
}

func (w *World) settle(t *testing.T, state effects.PromptState) {
	t.Helper()
	if _, err := w.Settle(t.Context(), uid, state, "seen"); err != nil {
		t.Error(err)
	}
}

// paste goes on until the paste has come to its end.
func (w *World) paste(t *testing.T, p effects.TmuxPane) effects.PromptStatus {
	t.Helper()
	for range 1000 {
		s, err := w.Paste(t.Context(), p, text)
		if err != nil {
			t.Fatalf("Paste = %+v, %v", s, err)
		}
		if s.State != effects.PromptIntended {
			return s
		}
		w.Step(s.Again)
	}
	t.Fatal("the paste never ends")
	return effects.PromptStatus{}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
