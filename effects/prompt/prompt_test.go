package prompt_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/prompt"
	"skc.dev/skc/effects/prompt/prompttest"
	"skc.dev/skc/effects/tmux/tmuxtest"
)

// world is a Prompter over a terminal that exists only in memory.
type world struct {
	*prompttest.World
	o    prompt.Options
	tmux *tmuxtest.Fake
	away map[effects.ProcessID]bool
	line bool // terminals collect lines
}

func newWorld(t *testing.T) *world {
	w := &world{tmux: tmuxtest.NewFake(), away: map[effects.ProcessID]bool{}}
	t.Cleanup(w.tmux.Close)
	clock := testclock.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	w.o = prompt.Options{
		Dir: filepath.Join(t.TempDir(), "prompts"), Files: &files.Layer{}, Terminal: w.tmux, BootID: "boot-1", Clock: clock,
		Reader: func(_ context.Context, pane effects.TmuxPane, _ string) (prompt.Reader, error) {
			if w.away[pane.Process] {
				return prompt.Reader{}, effects.ErrNotFound
			}
			return prompt.Reader{Process: pane.Process, Lines: w.line}, nil
		},
	}
	restart := func() { w.Prompter = prompt.New(w.o) }
	w.World = &prompttest.World{
		Start: func(id effects.LaunchID) effects.TmuxPane {
			name := "web"
			if p, err := w.tmux.Get(t.Context(), id.UID); err == nil {
				must(t, w.tmux.Kill(t.Context(), p))
			}
			p, err := w.tmux.Create(t.Context(), tmuxtest.Want(name, id))
			must(t, err)
			return p
		},
		Read: w.tmux.Read,
		Take: func(path string) (string, bool) { return take(t, path) },
		Away: func(p effects.TmuxPane, away bool) { w.away[p.Process] = away },
		Mute: w.tmux.Mute, Restart: restart,
		Reboot: func() { w.o.BootID += "+"; restart() },
		Step:   clock.Step,
	}
	restart()
	return w
}

// take is what a program does with its prompt.
func take(t *testing.T, path string) (string, bool) {
	t.Helper()
	mine := path + ".mine"
	if err := os.Rename(path, mine); os.IsNotExist(err) {
		return "", false
	} else if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Lstat(mine); err != nil || fi.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", fi.Mode(), err)
	}
	data, err := os.ReadFile(mine)
	must(t, err)
	must(t, os.Remove(mine))
	return string(data), true
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestContract(t *testing.T) {
	prompttest.Contract(t, func(t *testing.T) *prompttest.World { return newWorld(t).World })
}
