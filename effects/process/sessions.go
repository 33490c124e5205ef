package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
)

// UIDVariable is the variable of the environment that says whose a process is.
// Children inherit it, however far they go from the terminal.
const UIDVariable = "SKC_SESSION_UID"

var (
	pointSignal = fault.New("process.signal")
	pointKill   = fault.New("process.kill")
)

// Sessions finds and ends all processes of a session, by its UID.
//
// Where cgroup v2 can be had, each session has a group that its program is
// brought into as soon as it runs (see Join). Once a complete look found nothing
// of the session outside, the group is the truth: nothing leaves it, whatever it
// does to its environment. Until then, and without a group (none to be had, or
// the session was started before there was one), those count too that carry its
// UID in their environment. That second way cannot see a process that wiped its
// environment, or one that may not be looked into (another user's, or one marked
// not dumpable).
//
// A process is signalled only when its start time is still the one that was
// seen. Pids below 2, this process and those given to Spare are never listed,
// signalled or killed. All methods may be called at the same time.
type Sessions struct {
	groups groups

	mu      sync.Mutex
	spare   map[effects.ProcessID]bool
	joining map[string]effects.ProcessID // asked for and not yet done
	joined  map[string]effects.ProcessID // done
	kick    chan struct{}                // something is in joining
}

// NewSessions looks for a place for cgroups, unless told not to.
func NewSessions(cgroups bool) *Sessions {
	s := &Sessions{
		joining: map[string]effects.ProcessID{}, joined: map[string]effects.ProcessID{}, kick: make(chan struct{}, 1),
	}
	if cgroups {
		s.groups = findGroups()
	} else {
		s.groups.why = errors.New("cgroups are turned off")
	}
	return s
}

// Base is the folder that holds the sessions' groups, or why there is none.
func (s *Sessions) Base() (string, error) { return s.groups.base, s.groups.why }

// Spare replaces the list of processes that belong to no session whatever they
// carry: the tmux server.
func (s *Sessions) Spare(ids ...effects.ProcessID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = map[effects.ProcessID]bool{}
	for _, id := range ids {
		s.spare[id] = true
	}
}

func (s *Sessions) spared(id effects.ProcessID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id.PID < 2 || id.PID == os.Getpid() || s.spare[id]
}

// Prepare makes the group that the session's next program is brought into, and
// returns its folder, "" when there are no cgroups. A group that no process is
// left in is made anew, so that its counters begin at 0. After an error the
// program can be started without a group and is found by its environment.
func (s *Sessions) Prepare(uid string) (string, error) {
	if err := checkUID(uid); err != nil {
		return "", err
	}
	if s.groups.base == "" {
		return "", nil
	}
	s.mu.Lock()
	delete(s.joined, uid)
	s.mu.Unlock()
	dir, err := s.groups.prepare(uid)
	if err != nil {
		return "", fmt.Errorf("prepare the process group of %s: %w", uid, err)
	}
	return dir, nil
}

// Release removes the session's group. One that is gone is a success; one that
// still holds a process is an error.
func (s *Sessions) Release(uid string) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.joined, uid)
	delete(s.joining, uid)
	s.mu.Unlock()
	if err := s.groups.release(uid); err != nil {
		return fmt.Errorf("release the process group of %s: %w", uid, err)
	}
	return nil
}

// OOMKilled tells whether the kernel killed a process of the session for want
// of memory since Prepare. Where the kernel does not count that, it is false.
func (s *Sessions) OOMKilled(uid string) (bool, error) {
	if err := checkUID(uid); err != nil {
		return false, err
	}
	n, err := s.groups.oomKills(uid)
	if err != nil {
		return false, fmt.Errorf("look for memory kills of %s: %w", uid, err)
	}
	return n > 0, nil
}

// List is all processes of the session, or an error: never a part of them.
func (s *Sessions) List(ctx context.Context, uid string) ([]effects.ProcessID, error) {
	m, err := s.look(ctx, uid, func(effects.ProcessID) {})
	if err != nil {
		return nil, fmt.Errorf("list the processes of %s: %w", uid, err)
	}
	return append(m.inside, m.outside...), nil
}

// Signal sends sig to each process of the session. One that is stopped is then
// continued, or it could not heed the signal. Those that ended meanwhile are
// passed over; an error of one keeps the signal from none of the others.
func (s *Sessions) Signal(ctx context.Context, uid string, sig unix.Signal) error {
	if err := pointSignal.At(fault.Before); err != nil {
		return err
	}
	all, err := s.List(ctx, uid)
	if err != nil {
		return err
	}
	var errs []error
	for i, id := range all {
		err := send(id, sig)
		if err == nil && sig != unix.SIGKILL && sig != unix.SIGSTOP {
			err = send(id, unix.SIGCONT)
		}
		if err != nil && !errors.Is(err, effects.ErrNotFound) {
			errs = append(errs, err)
		}
		if i == 0 {
			errs = append(errs, pointSignal.At(fault.During))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return pointSignal.At(fault.After)
}

// Kill ends every process of the session with SIGKILL and returns, with how
// many there were, when a complete look finds none left. It gives up when ctx
// ends, or when what is left may not be killed.
func (s *Sessions) Kill(ctx context.Context, uid string) (int, error) {
	if err := pointKill.At(fault.Before); err != nil {
		return 0, err
	}
	killed := map[effects.ProcessID]bool{}
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		// What is found is stopped at once, so that it does not fork away while
		// the look goes on.
		m, err := s.look(ctx, uid, func(id effects.ProcessID) { _ = send(id, unix.SIGSTOP) })
		if err != nil {
			return len(killed), fmt.Errorf("kill the processes of %s: %w", uid, err)
		}
		if len(m.inside)+len(m.outside) == 0 && !m.dying {
			return len(killed), pointKill.At(fault.After)
		}
		one := m.outside
		if len(m.inside) > 0 && (m.mixed || s.groups.kill(uid) != nil) {
			one = append(one, m.inside...)
		} else {
			for _, id := range m.inside {
				killed[id] = true
			}
		}
		var errs []error
		for _, id := range one {
			switch err := send(id, unix.SIGKILL); {
			case err == nil:
				killed[id] = true
			case !errors.Is(err, effects.ErrNotFound):
				errs = append(errs, err)
			}
		}
		if len(errs) > 0 && len(errs) == len(m.inside)+len(m.outside) {
			return len(killed), fmt.Errorf("kill the processes of %s: %w", uid, errors.Join(errs...))
		}
		if err := pointKill.At(fault.During); err != nil {
			return len(killed), err
		}
		if err := sleep(ctx, pause); err != nil {
			return len(killed), fmt.Errorf("kill the processes of %s: %d left: %w", uid, len(m.inside)+len(m.outside), err)
		}
	}
}

// members is one look at a session.
type members struct {
	inside, outside []effects.ProcessID // of its group
	mixed           bool                // the group holds spared processes too
	dying           bool                // the group holds processes that have no pid any more
}

// look finds all processes of the session. It calls found for each that is
// outside of a group as soon as it is seen.
func (s *Sessions) look(ctx context.Context, uid string, found func(effects.ProcessID)) (members, error) {
	var m members
	if err := checkUID(uid); err != nil {
		return m, err
	}
	g, err := s.groups.look(uid)
	if err != nil {
		return m, err
	}
	m.dying = g.populated && len(g.processes) == 0
	for _, id := range g.processes {
		if s.spared(id) {
			m.mixed = true
			continue
		}
		m.inside = append(m.inside, id)
	}
	if g.exists && g.whole {
		return m, nil
	}
	inside := g.members()
	err = scan(ctx, marked(map[string]bool{uid: true}), func(_ string, id effects.ProcessID) {
		if !inside[id] && !s.spared(id) {
			found(id)
			m.outside = append(m.outside, id)
		}
	})
	return m, err
}

// checkUID keeps what is no UID from becoming a path.
func checkUID(uid string) error {
	ok := len(uid) > 0 && len(uid) <= 64
	for _, c := range []byte(uid) {
		ok = ok && (c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
	}
	if !ok {
		return fmt.Errorf("%q is not the UID of a session", uid)
	}
	return nil
}

// marked tells whose an environment is: of the sessions asked for, the one that
// one of its NUL-ended variables is the mark of.
func marked(uids map[string]bool) func(env []byte) string {
	return func(env []byte) string {
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if uid, ok := bytes.CutPrefix(v, []byte(UIDVariable+"=")); ok && uids[string(uid)] {
				return string(uid)
			}
		}
		return ""
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
