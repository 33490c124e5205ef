package lifecycle

import "time"

// RateLimit is a sliding window (1.7): at most Max hits in any Window. It keeps
// nothing itself, so the hits of a chat outlive the process if their owner does.
type RateLimit struct {
	Max    int
	Window time.Duration
}

// CreateRateLimit is the limit of creates a chat has if nothing else is said.
var CreateRateLimit = RateLimit{Max: 3, Window: 10 * time.Minute}

// Allow says whether one more hit is allowed now, and which hits to keep: those
// that still count, and the new one if it was allowed. A refused attempt leaves
// no trace. hits is not changed.
func (l RateLimit) Allow(hits []time.Time, now time.Time) (kept []time.Time, ok bool) {
	for _, t := range hits {
		if now.Sub(t) < l.Window {
			kept = append(kept, t)
		}
	}
	if len(kept) >= l.Max {
		return kept, false
	}
	return append(kept, now), true
}
