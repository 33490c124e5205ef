package quarantine

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"skc.dev/skc/effects/files"
)

// now is a clock for measures.
func now() time.Duration {
	_, up, err := uptime()
	if err != nil {
		panic(err)
	}
	return up
}

// machine is a machine whose clocks the test turns.
type machine struct {
	boot string
	up   time.Duration
	wall *clocktesting.FakePassiveClock
}

func (m *machine) open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Dir: dir, Files: &files.Layer{}, Clock: m.wall, Uptime: func() (string, time.Duration, error) { return m.boot, m.up, nil }})
	must(t, err)
	return s
}

// TestRetention: only observed time counts.
func TestRetention(t *testing.T) {
	w := newWorldIn(t, memory(t))
	dir := w.path("state", "quarantine")
	m := &machine{boot: "one", up: time.Minute, wall: clocktesting.NewFakePassiveClock(started)}
	s := m.open(t, dir)
	must(t, s.Observe())
	req := w.request("x", w.tree("web"))
	req.Retention = 10 * time.Hour
	r, err := s.SetAside(t.Context(), req)
	must(t, err)
	want := func(what string, left time.Duration) {
		t.Helper()
		if got := s.Remaining(r); got != left {
			t.Errorf("%s: %v left, want %v", what, got, left)
		}
	}
	want("at once", 10*time.Hour)
	m.wall.SetTime(started.AddDate(100, 0, 0))
	want("the clock jumps by 100 years", 10*time.Hour)
	m.wall.SetTime(started.AddDate(-30, 0, 0))
	m.up += 2 * time.Hour
	want("2 hours go by, the clock jumps back", 8*time.Hour)
	must(t, s.Observe())
	m.up += time.Hour / 2
	must(t, s.Observe()) // not worth a write
	m.up += time.Hour / 2
	s = m.open(t, dir)
	want("another controller in the same boot, one hour later", 7*time.Hour)
	m.up += time.Hour / 4
	m.boot, m.up = "two", 300*time.Hour
	s = m.open(t, dir)
	want("the machine starts anew, who knows how much later", 8*time.Hour) // what was not written is lost
	must(t, s.Observe())
	m.up += 3 * time.Hour
	want("3 hours after that", 5*time.Hour)
	must(t, s.Observe())
	m.up -= time.Hour
	want("a kernel that goes back in time", 5*time.Hour)
	m.up += 100 * time.Hour
	want("long after", 0)
	for name, spoil := range map[string]func(path string) error{
		"lost":   os.Remove,
		"empty":  func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"absurd": func(p string) error { return os.WriteFile(p, []byte(`{"observed":-5}`), 0o600) },
	} {
		must(t, spoil(filepath.Join(dir, "age.json")))
		s = m.open(t, dir)
		want("its file is "+name, 10*time.Hour)
		must(t, s.Observe())
	}
}

func TestObserveWritesOnceAnHour(t *testing.T) {
	w := newWorldIn(t, memory(t))
	m := &machine{boot: "one", wall: clocktesting.NewFakePassiveClock(started)}
	s := m.open(t, w.path("state", "quarantine"))
	for range 48 * 60 {
		m.up += time.Minute
		must(t, s.Observe())
	}
	if n := s.files.Writes(); n < 47 || n > 49 {
		t.Errorf("%d writes in 48 hours, want one an hour", n)
	}
}
