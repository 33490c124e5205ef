package quarantine

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"
	"time"

	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var pointAge = fault.New("quarantine.age")

// age is the observed time of a quarantine: how long it is known to exist. Only
// time counts that the kernel saw pass within one boot, also while the machine
// slept or no controller ran. The clock on the wall, which jumps, is not asked;
// time with the machine off is not counted, and what was counted since the last
// write is lost in a crash of the machine. All errors keep things longer.
type age struct {
	uptime func() (string, time.Duration, error)
	path   string

	mu      sync.Mutex
	saved   ageFile // as it is on the disk
	current ageFile
}

// ageFile is what is written of it.
type ageFile struct {
	Version  int           `json:"version"`
	Observed time.Duration `json:"observed"`
	Boot     string        `json:"boot"`
	Uptime   time.Duration `json:"uptime"` // of that boot when Observed was right
}

// saveEvery is how much observed time goes by between two writes.
const saveEvery = time.Hour

func (s *Store) openAge(ctx context.Context, uptime func() (string, time.Duration, error)) (*age, error) {
	a := &age{uptime: uptime, path: filepath.Join(s.dir, "age.json")}
	data, err := files.Read(a.path, 4096)
	if err != nil || json.Unmarshal(data, &a.saved) != nil || a.saved.Observed < 0 {
		a.saved = ageFile{}
	}
	// Without its file, time goes on from the newest plan, so that at worst each
	// retention begins anew.
	list, _ := s.List(ctx)
	for _, r := range list {
		if r.Since > a.saved.Observed {
			a.saved = ageFile{Observed: r.Since}
		}
	}
	a.current = a.saved
	a.now()
	return a, ctx.Err()
}

// now counts what went by since the last call and returns all of it.
func (a *age) now() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	boot, up, err := a.uptime()
	if err != nil || boot == "" {
		return a.current.Observed
	}
	if boot == a.current.Boot && up > a.current.Uptime {
		a.current.Observed += up - a.current.Uptime
	}
	a.current.Boot, a.current.Uptime, a.current.Version = boot, up, version
	return a.current.Observed
}

// Observe counts time and writes it down, at most once an hour. Call it at each
// pass. Time that could not be written still counts for this process.
func (s *Store) Observe() error {
	s.age.now()
	s.age.mu.Lock()
	defer s.age.mu.Unlock()
	// The first count of a boot is written at once: what goes by until the next
	// write can then be told also by another process.
	if s.age.current.Boot == s.age.saved.Boot && s.age.current.Observed-s.age.saved.Observed < saveEvery {
		return nil
	}
	data, err := json.Marshal(s.age.current)
	if err != nil {
		return err
	}
	if err := s.files.Write(pointAge, s.age.path, append(data, '\n'), files.Durable); err != nil {
		return err
	}
	s.age.saved = s.age.current
	return nil
}

// Elapsed is how long a thing has been here by observed time: never more than
// went by, and less where it could not be known. A caller purges when it has
// reached the retention, and no clock that was set wrong makes that early.
func (s *Store) Elapsed(r Record) time.Duration { return max(0, s.age.now()-r.Since) }

// Remaining is what is left of a thing's retention; it is due at zero. A
// deadline for people is the time of day plus this.
func (s *Store) Remaining(r Record) time.Duration { return max(0, r.Retention-s.Elapsed(r)) }
