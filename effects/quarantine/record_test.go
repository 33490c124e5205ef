package quarantine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"skc.dev/skc/effects/files"
)

// planOf is the plan of a thing that was set aside, counted, not given back, and
// purged.
func planOf(t testing.TB) []byte {
	t.Helper()
	w := newWorld(t)
	origin := w.tree("no utf8 \xff")
	_, err := w.SetAside(t.Context(), w.request("x", origin))
	must(t, err)
	_, err = w.Inventory(t.Context(), "x")
	must(t, err)
	w.between(2, func() error { return os.Mkdir(origin, 0o700) })
	_, err = w.Restore(t.Context(), "x", origin)
	wantCode(t, err, PlaceTaken)
	w.layer.Guard = nil
	_, err = w.Purge(t.Context(), "x", nil)
	must(t, err)
	data, err := os.ReadFile(filepath.Join(w.plans, "x.jsonl"))
	must(t, err)
	return data
}

// TestTornPlan cuts a plan at every byte: what is read is what was whole, and
// the next line is read too.
func TestTornPlan(t *testing.T) {
	data := planOf(t)
	whole, err := decode("x.jsonl", "x", data)
	must(t, err)
	if whole.State != Purged || whole.Attempts != 3 || whole.Branch != details.Branch {
		t.Fatalf("record = %+v", whole.Record)
	}
	for n := range data {
		j, err := decode("x.jsonl", "x", data[:n])
		must(t, err)
		lines := bytes.Count(data[:n], []byte("\n"))
		if n+1 < len(data) && data[n] == '\n' { // whole but for its end
			lines++
		}
		if j.seq != lines && n+1 < len(data) {
			t.Fatalf("cut at %d: %d lines read, want %d", n, j.seq, lines)
		}
		rest := bytes.SplitAfterN(data, []byte("\n"), j.seq+1)[j.seq]
		if again, err := decode("x.jsonl", "x", append(append(bytes.Clone(data[:n]), '\n'), rest...)); err != nil || again.State != Purged {
			t.Fatalf("cut at %d and gone on: %+v, %v", n, again, err)
		}
	}
}

func TestSpoiledPlan(t *testing.T) {
	data := planOf(t)
	lines := bytes.SplitAfter(data, []byte("\n"))
	for name, tc := range map[string]struct {
		data []byte
		code Code
	}{
		"newer":               {append(bytes.Clone(data), `{"v":2,"seq":99}`+"\n"...), NewerVersion},
		"a spoiled line":      {bytes.Replace(data, []byte(`"event":"size"`), []byte(`"event":"size`), 1), Damaged},
		"a line twice":        {append(bytes.Clone(lines[0]), data...), Damaged},
		"a line missing":      {bytes.Join(append(append([][]byte{}, lines[:2]...), lines[3:]...), nil), Damaged},
		"no first line":       {bytes.Join(lines[1:], nil), Damaged},
		"an unknown event":    {bytes.Replace(data, []byte(`"event":"size"`), []byte(`"event":"sise"`), 1), Damaged},
		"a relative path":     {bytes.Replace(data, []byte(`"to":"/`), []byte(`"to":"x/`), 1), Damaged},
		"of another":          {bytes.Replace(data, []byte(`"id":"x"`), []byte(`"id":"y"`), 1), Damaged},
		"an id that climbs":   {bytes.Replace(data, []byte(`"id":"x"`), []byte(`"id":"../x"`), 1), Damaged},
		"a field of no sense": {bytes.Replace(data, []byte(`"number":1`), []byte(`"number":"1"`), 1), Damaged},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode("x.jsonl", "x", tc.data)
			wantCode(t, err, tc.code)
		})
	}
	w := newWorld(t)
	origin := w.tree("web")
	before := sums(t, origin)
	put(t, filepath.Join(w.plans, "x.jsonl"), `{"v":2}`+"\n")
	_, err := w.SetAside(t.Context(), w.request("x", origin))
	wantCode(t, err, NewerVersion)
	wantSums(t, origin, before)
	must(t, os.Remove(filepath.Join(w.plans, "x.jsonl")))
	must(t, os.Mkdir(filepath.Join(w.plans, "x.jsonl"), 0o700))
	_, err = w.SetAside(t.Context(), w.request("x", origin))
	wantCode(t, err, Damaged)
	wantSums(t, origin, before)
}

// TestOneLineAnEvent: nothing in an error or a plan breaks a line.
func TestOneLineAnEvent(t *testing.T) {
	data := planOf(t)
	for line := range bytes.Lines(data) {
		if !json.Valid(line) {
			t.Errorf("%q", line)
		}
	}
	w := newWorld(t)
	_, err := w.SetAside(t.Context(), Request{ID: "x", Origin: w.path("work", "a\nb\x1b[0m"), Expect: Identity{Kind: Dir, Dev: 1, Ino: 1}})
	if err == nil || strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("error = %q, want one line", err)
	}
}

// TestOtherBoot: device numbers may change at a boot; the inode and its birth
// name the thing then, and only then.
func TestOtherBoot(t *testing.T) {
	w := newWorld(t)
	origin := w.tree("web")
	before := sums(t, origin)
	r, err := w.SetAside(t.Context(), w.request("x", origin))
	must(t, err)
	if r.Identity.Birth == 0 {
		t.Skip("this file system knows no birth")
	}
	path := filepath.Join(w.plans, "x.jsonl")
	data, err := os.ReadFile(path)
	must(t, err)
	otherDev := regexp.MustCompile(`"dev":"\d+"`).ReplaceAll(data, []byte(`"dev":"1"`))
	must(t, os.WriteFile(path, otherDev, 0o600))
	_, err = w.Restore(t.Context(), "x", origin)
	wantCode(t, err, IdentityMismatch)
	must(t, os.WriteFile(path, bytes.ReplaceAll(otherDev, []byte(r.Identity.Boot), []byte("another boot")), 0o600))
	_, err = w.Restore(t.Context(), "x", origin)
	must(t, err)
	wantSums(t, origin, before)
}

func TestErrorsMatch(t *testing.T) {
	err := fmt.Errorf("x: %w", &Error{Code: QuarantineDestinationRequired, Path: "/a", Err: files.ErrNotPrivate})
	if !errors.Is(err, QuarantineDestinationRequired) || !errors.Is(err, CrossDevice) || !errors.Is(err, files.ErrNotPrivate) || errors.Is(err, IOError) {
		t.Errorf("%v", err)
	}
}

func FuzzDecode(f *testing.F) {
	data := planOf(f)
	f.Add(data)
	for line := range bytes.Lines(data) {
		f.Add(line)
	}
	f.Add([]byte(`{"v":1,"seq":1,"event":"plan"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := decode("x.jsonl", "x", data)
		if err != nil {
			if !errors.Is(err, Damaged) && !errors.Is(err, NewerVersion) {
				t.Fatalf("error %v of no kind", err)
			}
			return
		}
		if j.seq == 0 {
			return
		}
		if j.ID != "x" || j.State == "" || j.Attempts == 0 || j.Identity.Ino == 0 || j.State != Purged && !usable(j.Place) {
			t.Fatalf("record %+v of %q", j.Record, data)
		}
		if j.open != nil && (j.State == Kept || j.State == Restored || j.State == Purged) {
			t.Fatalf("an attempt is open in state %s", j.State)
		}
		raw, err := json.Marshal(j.last)
		var back attempt
		if err != nil || json.Unmarshal(raw, &back) != nil || back != j.last {
			t.Fatalf("%+v is read back as %+v, %v", j.last, back, err)
		}
		torn := append(bytes.Clone(data), "\n{\"v\":1,\"seq"...)
		if again, err := decode("x.jsonl", "x", torn); err != nil || again.seq != j.seq {
			t.Fatalf("with a torn line: %v", err)
		}
	})
}
