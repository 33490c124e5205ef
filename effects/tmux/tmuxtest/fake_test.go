package tmuxtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/tmux/tmuxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFake(t *testing.T) {
	tmuxtest.Contract(t, func(t *testing.T) *tmuxtest.World {
		f := tmuxtest.NewFake()
		t.Cleanup(f.Close)
		changes := make(chan string, 1000)
		f.OnChange(func(uid string) { changes <- uid })
		return &tmuxtest.World{
			Mux: f, Changes: changes, Prepare: func(effects.LaunchID) {},
			PrepareReader: func(effects.LaunchID) {}, Reading: func(effects.TmuxPane) bool { return true }, Read: f.Read,
			Exit: f.Exit, Die: f.Die, Close: f.CloseSession, Rename: f.Rename, Tagged: f.TagOf,
			KillServer: f.KillServer, Hang: f.Hang, Resume: f.Resume,
		}
	})
}
