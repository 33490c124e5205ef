package prompttest_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/prompt/prompttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFake(t *testing.T) {
	prompttest.Contract(t, func(*testing.T) *prompttest.World {
		f, started := prompttest.NewFake(), 1000
		return &prompttest.World{
			Prompter: f,
			Start: func(id effects.LaunchID) effects.TmuxPane {
				started++
				return effects.TmuxPane{Launch: id, PaneID: "%1", SessionID: "$1", Process: effects.ProcessID{PID: started, StartTime: "1"}}
			},
			Read: f.Read, Take: f.Take, Away: f.Away, Mute: f.Mute, Restart: f.Restart, Reboot: f.Reboot,
			Step: func(time.Duration) {},
		}
	})
}
