package process

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// Join has the session's program brought into its group, in the background, by
// Run: the program itself, what it forked meanwhile, and all that carries the
// session's mark. To join a group takes the kernel ten to twenty milliseconds,
// which no program has to wait for before its first instruction; asked for many
// at once it takes little more than for one. Until it is done the group is not
// taken for the whole, also by another controller. Asking again costs nothing.
func (s *Sessions) Join(uid string, main effects.ProcessID) {
	if s.groups.base == "" || checkUID(uid) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joined[uid] == main || s.joining[uid] == main {
		return
	}
	s.joining[uid] = main
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// gather is how long more are waited for: a look at all processes costs the same
// for one session as for a hundred.
const gather = 20 * time.Millisecond

// Run brings programs into their groups until ctx ends.
func (s *Sessions) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		if sleep(ctx, gather) != nil {
			return
		}
		s.mu.Lock()
		batch := map[string]effects.ProcessID{}
		for uid, main := range s.joining {
			batch[uid] = main
		}
		s.mu.Unlock()
		done := s.bring(ctx, batch)
		s.mu.Lock()
		for uid, main := range batch {
			if s.joining[uid] != main {
				continue // released, or started anew
			}
			delete(s.joining, uid)
			if done[uid] {
				s.joined[uid] = main
			}
		}
		s.mu.Unlock()
	}
}

// joinRounds is how often what is outside is looked for. Everything that is
// inside has its children there, so a second round finds nothing, but for what
// forks and ends faster than it can be moved.
const joinRounds = 10

// bring moves the programs, and then what is still outside of their groups, until
// a complete look finds nothing. It returns of which sessions the group is now
// the whole; the others are tried again when they are asked for again.
func (s *Sessions) bring(ctx context.Context, batch map[string]effects.ProcessID) map[string]bool {
	open := map[string]bool{}
	for uid, main := range batch {
		if s.move(uid, main) != nil {
			continue
		}
		open[uid] = true
		for _, id := range descendants(main) { // those born before that
			_ = s.move(uid, id) // one that ended is fine, one that is left is found below
		}
	}
	done := map[string]bool{}
	for round := range joinRounds {
		if len(open) == 0 || round > 0 && sleep(ctx, time.Millisecond) != nil {
			break
		}
		outside := map[string][]effects.ProcessID{}
		err := scan(ctx, marked(open), func(uid string, id effects.ProcessID) {
			outside[uid] = append(outside[uid], id)
		})
		if err != nil {
			break
		}
		for uid := range open {
			g, err := s.groups.look(uid)
			if err != nil || !g.exists {
				delete(open, uid)
				continue
			}
			inside, left := g.members(), 0
			for _, id := range outside[uid] {
				if !inside[id] && !s.spared(id) {
					left++
					_ = s.move(uid, id)
				}
			}
			if left == 0 && s.groups.seal(uid) == nil {
				done[uid] = true
				delete(open, uid)
			}
		}
	}
	return done
}

// move brings exactly this process into the session's group.
func (s *Sessions) move(uid string, id effects.ProcessID) error {
	alive, err := Alive(id)
	if err != nil {
		return err
	}
	if !alive {
		return effects.ErrNotFound
	}
	err = s.groups.join(uid, id.PID)
	if errors.Is(err, unix.ESRCH) {
		return effects.ErrNotFound
	}
	return err
}

// descendants are the children of a process, and theirs, as far as they can be
// seen.
func descendants(id effects.ProcessID) []effects.ProcessID {
	var all []effects.ProcessID
	for _, pid := range children(id.PID) {
		if started, err := StartTime(pid); err == nil {
			child := effects.ProcessID{PID: pid, StartTime: started}
			all = append(append(all, child), descendants(child)...)
		}
	}
	return all
}

// members is the processes of the group as a set.
func (g group) members() map[effects.ProcessID]bool {
	set := make(map[effects.ProcessID]bool, len(g.processes))
	for _, id := range g.processes {
		set[id] = true
	}
	return set
}
