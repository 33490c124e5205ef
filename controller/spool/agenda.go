package spool

import (
	"container/heap"
	"time"
)

// agenda is what is to be done at a known time. An entry is never taken back:
// what it does looks whether it is still to be done.
type agenda struct{ entries entries }

type entry struct {
	at time.Time
	do func()
}

func (a *agenda) add(at time.Time, do func()) { heap.Push(&a.entries, entry{at, do}) }

// next is the time of the first entry.
func (a *agenda) next() (time.Time, bool) {
	if len(a.entries) == 0 {
		return time.Time{}, false
	}
	return a.entries[0].at, true
}

// run does all that is due at now, the earliest first. What an entry adds for
// now or earlier waits for the next call, so that a run ends.
func (a *agenda) run(now time.Time) {
	var due []entry
	for len(a.entries) > 0 && !a.entries[0].at.After(now) {
		due = append(due, heap.Pop(&a.entries).(entry)) //nolint:forcetypeassert // only entries are pushed
	}
	for _, e := range due {
		e.do()
	}
}

type entries []entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e entries) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *entries) Push(x any)        { *e = append(*e, x.(entry)) } //nolint:forcetypeassert // only entries are pushed
func (e *entries) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = entry{}
	*e = old[:len(old)-1]
	return last
}
