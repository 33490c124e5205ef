package session

import (
	"sync"
	"time"
)

// timers remembers deadlines on the monotonic clock. The wall times in status
// are for people and for the next controller; while this one lives, a clock that
// is set does not move what it waits for.
type timers struct {
	mu sync.Mutex
	m  map[string]map[string]deadline // by UID, then by what is waited for
}

type deadline struct{ wall, due time.Time }

// left is the time from now until the wall deadline; at most limit, so that a
// clock that was set back while no controller ran cannot make it wait for days.
func (t *timers) left(uid, what string, now, wall time.Time, limit time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, ok := t.m[uid][what]
	if !ok || !d.wall.Equal(wall) {
		if t.m == nil {
			t.m = map[string]map[string]deadline{}
		}
		if t.m[uid] == nil {
			t.m[uid] = map[string]deadline{}
		}
		// Round(0) takes the monotonic part off: wall time against wall time.
		d = deadline{wall, now.Add(max(0, min(wall.Round(0).Sub(now.Round(0)), limit)))}
		t.m[uid][what] = d
	}
	return max(0, d.due.Sub(now))
}

func (t *timers) forget(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.m, uid)
}
