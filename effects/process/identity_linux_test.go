package process

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"skc.dev/skc/effects"
)

func TestParseStat(t *testing.T) {
	tail := " 1 1 1 34816 1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0\n"
	for _, c := range []struct {
		name, in, want string
		gone, bad      bool
	}{
		{name: "plain", in: "7 (sh) S" + tail, want: "987654"},
		{name: "spaces and parentheses in the name", in: "7 (a ) Z (b)) R" + tail, want: "987654"},
		{name: "line end in the name", in: "7 (a\nb) R" + tail, want: "987654"},
		{name: "zombie", in: "7 (sh) Z" + tail, gone: true},
		{name: "dead", in: "7 (sh) X" + tail, gone: true},
		{name: "first thread ended, others run", in: "7 (sh) Z 1 1 1 34816 1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 987654 0 0\n", want: "987654"},
		{name: "empty", in: "", bad: true},
		{name: "cut", in: "7 (sh) S 1 1", bad: true},
		{name: "no number", in: "7 (sh) S 1 1 1 34816 1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 x 0 0\n", bad: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := parseStat(7, []byte(c.in))
			if gone := errors.Is(err, effects.ErrNotFound); gone != c.gone {
				t.Errorf("gone = %v, want %v (%v)", gone, c.gone, err)
			}
			if (err != nil) != (c.gone || c.bad) || s.started != c.want {
				t.Errorf("start time %q, %v; want %q", s.started, err, c.want)
			}
		})
	}
}

// The kernel lets a program choose its name.
func TestStartTimeOfAnOddName(t *testing.T) {
	odd := filepath.Join(t.TempDir(), "a) Z (b 9")
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(odd, sleep, 0o700); err != nil {
		t.Fatal(err)
	}
	id, _ := child(t, odd, "600")
	if ok, err := Alive(id); !ok || err != nil {
		t.Errorf("Alive = %v, %v", ok, err)
	}
}
