package quarantine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/files/filestest"
)

// calls are what is killed in the middle. Each finds the thing as the ones
// before left it.
var calls = []string{"set-aside", "inventory", "restore", "set-aside", "purge"}

// kills are the places of a call at which it may die.
func kills(call string) []string {
	points := map[string][]string{
		"set-aside": {"plan", "rename", "record"}, "restore": {"plan", "rename", "record"},
		"inventory": {"inventory", "record"}, "purge": {"plan", "rename", "record", "purge"}, "observe": {"age"},
	}[call]
	var out []string
	for _, p := range points {
		for _, phase := range []string{"before", "during", "after"} {
			for n := 1; n <= max(1, map[string]int{"record": 2, "inventory": 3, "purge": 3}[p]); n++ {
				out = append(out, fmt.Sprintf("quarantine.%s:%s=kill@%d", p, phase, n))
			}
		}
	}
	for n := range 30 {
		out = append(out, fmt.Sprintf("calls=kill@%d", n+1))
	}
	return out
}

// wantOnce sees that the tree is at exactly one place, whole.
func wantOnce(t testing.TB, w *world, before map[string]string, paths ...string) (at string) {
	t.Helper()
	for _, path := range append(paths, w.places(t)...) {
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if at != "" {
			t.Fatalf("found at %s and at %s", at, path)
		}
		at = path
		wantSums(t, path, before)
	}
	if at == "" {
		t.Fatalf("found nowhere of %q", paths)
	}
	return at
}

// TestKilled kills each call at each of its steps, and does it again.
func TestKilled(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs a build with the tag skcfaults")
	}
	for i, call := range calls {
		for _, place := range kills(call) {
			t.Run(fmt.Sprint(i, call, " ", place), func(t *testing.T) {
				t.Parallel()
				w := newWorldIn(t, memory(t))
				origin := w.tree("web")
				before := sums(t, origin)
				id := "x"
				for _, c := range calls[:i] {
					must(t, do(t.Context(), w.Store, c, id, origin))
					if c == "restore" {
						id = "y"
					}
				}
				killed, out, err := inChild(t, w, place, call, id, origin)
				if !killed && (err != nil || strings.HasPrefix(place, "quarantine.") && strings.HasSuffix(place, "@1")) {
					t.Fatalf("the child was not killed: %v\n%s", err, out)
				}
				if call != "purge" || len(w.places(t)) > 0 && !strings.HasSuffix(w.places(t)[0], removingSuffix) && killed {
					wantOnce(t, w, before, origin)
				}
				w.again(t, call, id, origin)
				w.wantAfter(t, call, origin, before)
			})
		}
	}
}

// again does a call after a crash, as the controller does at its start.
func (w *world) again(t testing.TB, call, id, origin string) {
	t.Helper()
	_, err := files.SweepTemps(w.dir)
	must(t, err)
	if w.Store, err = openStore(t.Context(), w.dir, w.layer); err != nil {
		t.Fatal(err)
	}
	if err := do(t.Context(), w.Store, call, id, origin); err != nil {
		t.Fatalf("%s again: %v", call, err)
	}
}

// wantAfter is the world after a call that came to its end.
func (w *world) wantAfter(t testing.TB, call, origin string, before map[string]string) {
	t.Helper()
	switch call {
	case "purge":
		if list := w.places(t); len(list) != 0 {
			t.Errorf("left: %q", list)
		}
		wantAbsent(t, origin)
	case "restore":
		if at := wantOnce(t, w, before, origin); at != origin {
			t.Errorf("restored at %s", at)
		}
	default:
		if at := wantOnce(t, w, before, origin); at == origin {
			t.Error("it is at its origin")
		}
	}
	if orphans, err := w.Orphans(t.Context(), w.path("work")); err != nil || len(orphans) != 0 {
		t.Errorf("Orphans = %+v, %v; want none", orphans, err)
	}
}

// TestKilledInRecovery kills the call, and twice who goes on, at places that a
// seed chooses.
func TestKilledInRecovery(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs a build with the tag skcfaults")
	}
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 3))
			i := []int{0, 2, 4}[random.IntN(3)]
			w := newWorldIn(t, memory(t))
			origin := w.tree("web")
			before := sums(t, origin)
			id := "x"
			for _, c := range calls[:i] {
				must(t, do(t.Context(), w.Store, c, id, origin))
				if c == "restore" {
					id = "y"
				}
			}
			for range 3 {
				places := kills(calls[i])
				place := places[random.IntN(len(places))]
				if killed, out, err := inChild(t, w, place, calls[i], id, origin); !killed && err != nil {
					t.Fatalf("%s: %v\n%s", place, err, out)
				}
				if calls[i] != "purge" {
					wantOnce(t, w, before, origin)
				}
			}
			w.again(t, calls[i], id, origin)
			w.wantAfter(t, calls[i], origin, before)
		})
	}
}

// TestKilledWhilePuttingBack: the wrong thing was moved, and on the way back we
// die. Both things are there; what is said of it depends on how far it came.
func TestKilledWhilePuttingBack(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs a build with the tag skcfaults")
	}
	for place, want := range map[string]error{
		"quarantine.rename:during=kill": Uncertain, // not even looked at
		"quarantine.back:before=kill":   Uncertain,
		"quarantine.back:during=kill":   Lost,
		"quarantine.back:after=kill":    Lost,
		"quarantine.record:before=kill": Lost,
		"quarantine.record:during=kill": IdentityMismatch,
		"quarantine.record:after=kill":  IdentityMismatch,
	} {
		t.Run(place, func(t *testing.T) {
			w := newWorld(t)
			origin := w.tree("web")
			before := sums(t, origin)
			req := w.request("x", origin)
			if killed, out, err := inChild(t, w, place, "swapped", "x", origin); !killed {
				t.Fatalf("not killed: %v\n%s", err, out)
			}
			wantSums(t, origin+".mine", before)
			everything := sums(t, w.dir)
			_, err := w.SetAside(t.Context(), req)
			wantCode(t, err, want)
			wantSums(t, w.dir, everything)
			foreign := append(w.places(t), origin)
			if data, err := os.ReadFile(filepath.Join(foreign[0], "foreign")); err != nil || string(data) != "f" {
				t.Errorf("the other thing: %q, %v", data, err)
			}
			// By hand, and it goes on.
			must(t, os.Rename(foreign[0], w.path("foreign")))
			must(t, os.Rename(origin+".mine", origin))
			r, err := w.SetAside(t.Context(), req)
			must(t, err)
			wantSums(t, string(r.Place), before)
		})
	}
}

// swapped is a SetAside during which another thing comes in the place of ours.
func swapped(ctx context.Context, dir, id, path string) error {
	n := 0
	layer := &files.Layer{Guard: func() error {
		if n++; n != 2 {
			return nil
		}
		return errors.Join(os.Rename(path, path+".mine"), os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "foreign"), []byte("f"), 0o644))
	}}
	s, err := openStore(ctx, dir, layer)
	if err != nil {
		return err
	}
	return do(ctx, s, "set-aside", id, path)
}

// TestPowerCut replays what was done to the disk, and cuts it off everywhere.
// A file stands for the thing: the states of the disk are those of names.
func TestPowerCut(t *testing.T) {
	r, dir, id := history(t)
	bad, all := violations(t, r, dir, id)
	if len(bad) != 0 || all < 15 {
		t.Errorf("%d of %d states are wrong, as: %v", len(bad), all, bad[:min(3, len(bad))])
	}
	t.Logf("%d states", all)
	for _, kind := range []files.OpKind{files.OpSync, files.OpSyncDir} { // it sees what it should
		if bad, _ := violations(t, r.Without(kind), dir, id); len(bad) == 0 {
			t.Errorf("without %s nothing is wrong: the check is blind", kind)
		}
	}
}

// history sets a file aside and gives it back elsewhere; each is acknowledged.
func history(t *testing.T) (*filestest.Recorder, string, [2]Identity) {
	w := newWorld(t)
	file := w.path("work", "file")
	put(t, file, "content")
	put(t, w.path("work", "back", "keeps the folder"), "")
	r := filestest.Record(t, w.dir)
	w.layer.Trace = r.Trace
	rec, err := w.SetAside(t.Context(), w.request("x", file))
	must(t, err)
	r.Mark()
	_, err = w.Restore(t.Context(), "x", w.path("work", "back", "file"))
	must(t, err)
	r.Mark()
	things, err := Identify(t.Context(), w.things)
	must(t, err)
	return r, w.dir, [2]Identity{rec.Identity, things}
}

// violations are the states in which the file is not found, or what was
// acknowledged is not so, or a recovery does not come to its end.
func violations(t *testing.T, r *filestest.Recorder, from string, ids [2]Identity) (bad []string, all int) {
	t.Helper()
	for cut := range r.Cuts(1) {
		all++
		if err := afterCut(t, cut, from, ids); err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", cut.What, err))
		}
	}
	return bad, all
}

func afterCut(t *testing.T, cut filestest.Cut, from string, ids [2]Identity) error {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	cut.Write(t, dir)
	must(t, os.MkdirAll(filepath.Join(dir, "state", "quarantine", "things"), 0o700))
	must(t, os.MkdirAll(filepath.Join(dir, "work", "back"), 0o700))
	// The new disk has other inodes: the plan is told of them.
	w := &world{t: t, dir: dir, layer: &files.Layer{}, Store: &Store{things: filepath.Join(dir, "state", "quarantine", "things")}}
	origin, back := w.path("work", "file"), w.path("work", "back", "file")
	var at []string
	for _, path := range append(w.places(t), origin, back) {
		if data, err := os.ReadFile(path); err == nil && string(data) == "content" {
			at = append(at, path)
		}
	}
	if len(at) != 1 {
		return fmt.Errorf("the file is at %q", at)
	}
	file, err := Identify(t.Context(), at[0])
	must(t, err)
	things, err := Identify(t.Context(), w.things)
	must(t, err)
	plan := filepath.Join(dir, "state", "quarantine", "plans", "x.jsonl")
	if data, err := os.ReadFile(plan); err == nil {
		data = bytes.ReplaceAll(data, []byte(from+"/"), []byte(dir+"/"))
		var told []byte
		for text := range bytes.Lines(data) {
			var l line
			if json.Unmarshal(text, &l) == nil && l.Attempt != nil {
				for _, id := range []*Identity{&l.Attempt.Identity, &l.Attempt.Folder} {
					if id.Ino == ids[0].Ino {
						*id = file
					} else if id.Ino == ids[1].Ino {
						*id = things
					}
				}
				text, err = json.Marshal(l)
				must(t, err)
				text = append(text, '\n')
			}
			told = append(told, text...)
		}
		data = told
		must(t, os.WriteFile(plan, data, 0o600))
	}
	if w.Store, err = openStore(t.Context(), dir, w.layer); err != nil {
		return err
	}
	if cut.Marks == 2 {
		if r, err := w.Get("x"); err != nil || r.State != Restored || at[0] != back {
			return fmt.Errorf("it was given back; now at %s: %+v, %w", at[0], r, err)
		}
		return nil
	}
	if cut.Marks == 1 {
		if _, err := w.Get("x"); err != nil || at[0] == origin {
			return fmt.Errorf("it was set aside; now at %s: %w", at[0], err)
		}
	} else if err := do(t.Context(), w.Store, "set-aside", "x", origin); err != nil {
		return err
	}
	_, err = w.Restore(t.Context(), "x", back)
	if data, readErr := os.ReadFile(back); err == nil && (readErr != nil || string(data) != "content") {
		err = fmt.Errorf("given back: %q, %w", data, readErr)
	}
	return err
}

// TestRandom sets random trees aside and gives them back, in random order, and
// breaks it off at random: with an error in any build, with a kill where there
// are fault points. After each step every byte is at exactly one place.
func TestRandom(t *testing.T) {
	rounds := uint64(300)
	if testing.Short() {
		rounds = 30
	}
	broken := 0
	for seed := range rounds {
		broken += randomRound(t, seed)
	}
	if broken < int(rounds)/3 {
		t.Errorf("only %d steps were broken off", broken)
	}
	t.Logf("%d rounds, %d steps broken off", rounds, broken)
}

func randomRound(t *testing.T, seed uint64) (broken int) {
	random := rand.New(rand.NewPCG(seed, 7))
	w := newWorldIn(t, memory(t))
	stop := errors.New("stop")
	type thing struct {
		id, at string
		before map[string]string
		turns  int
		kept   bool
	}
	things := make([]*thing, 1+random.IntN(2))
	for i := range things {
		path := w.path("work", fmt.Sprintf("t%d %s", i, randomName(random)))
		randomTree(t, random, path)
		things[i] = &thing{at: path, before: sums(t, path)}
	}
	for range 3 + random.IntN(4) {
		th := things[random.IntN(len(things))]
		call, path := "restore", w.path("work", fmt.Sprintf("t%p %d", th, th.turns))
		if !th.kept {
			call, path = "set-aside", th.at
			th.id = strings.ToLower(fmt.Sprintf("id-%p-%d", th, th.turns))
		}
		for breaks := random.IntN(3); breaks > 0; breaks-- {
			if fault.Enabled && random.IntN(2) == 0 {
				places := kills(call)
				place := places[random.IntN(len(places))]
				killed, out, err := inChild(t, w, place, call, th.id, path)
				if !killed && err != nil {
					t.Fatalf("seed %d: %s: %v\n%s", seed, place, err, out)
				}
				if killed {
					broken++
				}
			} else {
				n := 1 + random.IntN(4)
				w.layer.Guard = func() error {
					if n--; n <= 0 {
						return stop
					}
					return nil
				}
				if err := do(t.Context(), w.Store, call, th.id, path); errors.Is(err, stop) {
					broken++
				} else if err != nil {
					t.Fatalf("seed %d: %s: %v", seed, call, err)
				}
				w.layer.Guard = nil
			}
			wantAtOne(t, w, seed, th.before, th.at, path)
		}
		if err := do(t.Context(), w.Store, call, th.id, path); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, call, err)
		}
		r, err := w.Get(th.id)
		must(t, err)
		th.at, th.kept = string(r.Place), !th.kept
		th.turns++
		for _, th := range things {
			wantAtOne(t, w, seed, th.before, th.at)
		}
	}
	if orphans, err := w.Orphans(t.Context(), w.path("work")); err != nil || len(orphans) != 0 {
		t.Fatalf("seed %d: Orphans = %+v, %v; want none", seed, orphans, err)
	}
	return broken
}

// wantAtOne sees that exactly one of the paths, or of what is in quarantine,
// holds these bytes.
func wantAtOne(t *testing.T, w *world, seed uint64, before map[string]string, paths ...string) {
	t.Helper()
	seen := map[string]bool{}
	var at []string
	for _, path := range append(paths, w.places(t)...) {
		if _, err := os.Lstat(path); err != nil || seen[path] {
			continue
		}
		seen[path] = true
		if maps.Equal(sums(t, path), before) {
			at = append(at, path)
		}
	}
	if len(at) != 1 {
		t.Fatalf("seed %d: the thing is at %q of %q, want one place", seed, at, paths)
	}
}

func randomName(random *rand.Rand) string {
	parts := []string{"a", "é", "\n", "\xff", " ", "-", "..", "$(x)", "\\", "'", "*", "\x01"}
	name := fmt.Sprint(random.IntN(1000))
	for range random.IntN(4) {
		name += parts[random.IntN(len(parts))]
	}
	return name
}

func randomTree(t *testing.T, random *rand.Rand, root string) {
	t.Helper()
	must(t, os.Mkdir(root, 0o755))
	dirs, regular := []string{root}, []string{}
	for range random.IntN(12) {
		path := filepath.Join(dirs[random.IntN(len(dirs))], randomName(random))
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		switch random.IntN(5) {
		case 0:
			must(t, os.Mkdir(path, 0o755))
			dirs = append(dirs, path)
		case 1:
			must(t, os.Symlink(randomName(random), path))
		case 2:
			if len(regular) > 0 {
				must(t, os.Link(regular[random.IntN(len(regular))], path))
			}
		default:
			data := make([]byte, random.IntN(3000))
			for i := range data {
				data[i] = byte(random.Uint32())
			}
			must(t, os.WriteFile(path, data, 0o600))
			regular = append(regular, path)
		}
	}
}

func TestUnknownIDs(t *testing.T) {
	w := newWorld(t)
	for _, call := range []string{"restore", "inventory", "purge"} {
		wantCode(t, do(t.Context(), w.Store, call, "none", w.path("work", "x")), effects.ErrNotFound)
	}
}
