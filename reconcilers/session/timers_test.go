package session

import (
	"testing"
	"testing/synctest"
	"time"
)

// A deadline is fixed when it is first asked for, on the monotonic clock: what is
// left shrinks with it, and a new wall time is a new deadline.
func TestTimersCountDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tm timers
		wall := time.Now().Add(10 * time.Second)
		left := func() time.Duration { return tm.left("u", "restart", time.Now(), wall, time.Minute) }
		if got := left(); got != 10*time.Second {
			t.Fatalf("left = %s, want 10s", got)
		}
		time.Sleep(4 * time.Second)
		if got := left(); got != 6*time.Second {
			t.Fatalf("left after 4s = %s, want 6s", got)
		}
		time.Sleep(time.Hour)
		if got := left(); got != 0 {
			t.Fatalf("left after the deadline = %s, want 0", got)
		}
		wall = time.Now().Add(time.Second)
		if got := left(); got != time.Second {
			t.Fatalf("left for a new deadline = %s, want 1s", got)
		}
	})
}

func TestTimersClampWhatAnotherClockWrote(t *testing.T) {
	var tm timers
	now := time.Now()
	for _, tt := range []struct {
		name string
		wall time.Time
		want time.Duration
	}{
		{"a day ahead is at most the limit", now.Add(24 * time.Hour), time.Minute},
		{"a day ago is over", now.Add(-24 * time.Hour), 0},
		{"within the limit", now.Add(30 * time.Second), 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tm.left("u", "restart", now, tt.wall, time.Minute); got != tt.want {
				t.Errorf("left = %s, want %s", got, tt.want)
			}
		})
	}
	tm.forget("u")
	if len(tm.m) != 0 {
		t.Errorf("%d deadlines after forget", len(tm.m))
	}
}
