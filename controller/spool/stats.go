package spool

import "sync/atomic"

// Stats counts what was done since the start, for metrics.
type Stats struct {
	Parses    int64 // files decoded
	Reads     int64 // files read
	Rescans   int64 // full looks at a root
	Overflows int64 // times that events were lost
	Events    int64 // events heard
}

type counts struct{ parses, reads, rescans, overflows, events atomic.Int64 }

// Stats is a copy of the counters. It may be called at any time.
func (s *Spool) Stats() Stats {
	c := &s.counts
	return Stats{
		Parses: c.parses.Load(), Reads: c.reads.Load(), Rescans: c.rescans.Load(),
		Overflows: c.overflows.Load(), Events: c.events.Load(),
	}
}
