package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/controller/store/storetest"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/files/filestest"
)

func get(t testing.TB, s *store.Store, name string) *v1alpha1.Session {
	t.Helper()
	o, err := store.For[*v1alpha1.Session](s, v1alpha1.KindSession).Get(t.Context(), storetest.Key(name))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// filesIn lists all files below dir.
func filesIn(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// scratch is a folder for tests that make thousands: in memory where there is
// such a place, because each state that is repaired is synced.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "skc")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestReopen(t *testing.T) {
	dir := t.TempDir() + "/objects"
	s := open(t, dir)
	d := storetest.Desired("web", "sh", "-c", "echo \"$HOME\"\t\x7f\nsleep 60 # 日本")
	d.Object.SetLabels(map[string]string{"team": "web", "yes": "no"})
	d.Object.SetAnnotations(map[string]string{"note": "a: b\n- c"})
	apply(t, s, d)
	exit := int32(7)
	update(t, s, "web", func(o *v1alpha1.Session) {
		o.Finalizers = []string{v1alpha1.SessionFinalizer}
		o.Status.LastTermination = &v1alpha1.Termination{ExitCode: &exit, Reason: "Error", Attempt: 3, LastLines: []string{"", "a: b", "\x1b[0m"}}
		o.Status.Restarts.Total = 3
	})
	apply(t, s, storetest.Desired("api", "true"))
	want := get(t, s, "web")
	again := open(t, dir)
	// Defaults that the test's own Desired does not have are laid over what is stored.
	got := get(t, again, "web")
	got.Spec = want.Spec
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after opening again (-want +got):\n%s", diff)
	}
	apply(t, again, d)
	if s := get(t, again, "web"); s.Generation != 1 || s.ResourceVersion != want.ResourceVersion {
		t.Errorf("an equal Apply after opening again: generation %d, resource version %s, want 1, %s", s.Generation, s.ResourceVersion, want.ResourceVersion)
	}
	if w := again.Stats().Writes; w != 0 {
		t.Errorf("%d writes, want none", w)
	}
	if p := again.Problems(); len(p) != 0 {
		t.Errorf("problems = %v, want none", p)
	}
	remove(t, again, "api")
	remove(t, again, "web")
	third := open(t, dir)
	if s := get(t, third, "web"); s.DeletionTimestamp == nil {
		t.Error("the deletion was forgotten")
	}
	if _, err := third.Get(t.Context(), storetest.Key("api")); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("Get of a removed object = %v", err)
	}
	update(t, third, "web", func(o *v1alpha1.Session) { o.Finalizers = nil })
	if left := filesIn(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestWrites holds what is durable, what is derived, and what is no write.
func TestWrites(t *testing.T) {
	s := open(t, t.TempDir()+"/objects")
	for _, step := range []struct {
		name            string
		do              func()
		writes, durable int64
	}{
		{"create", func() { apply(t, s, storetest.Desired("web", "a")) }, 1, 1},
		{"the same", func() { apply(t, s, storetest.Desired("web", "a")) }, 0, 0},
		{"finalizer", func() { update(t, s, "web", func(o *v1alpha1.Session) { o.Finalizers = []string{"f"} }) }, 1, 1},
		{"observation", func() { update(t, s, "web", func(o *v1alpha1.Session) { o.Status.ObservedGeneration = 1 }) }, 1, 0},
		{"another", func() { update(t, s, "web", func(o *v1alpha1.Session) { o.Status.LaunchedDigest = "x" }) }, 1, 0},
		{"no change", func() { update(t, s, "web", func(*v1alpha1.Session) {}) }, 0, 0},
		{"restarts", func() { update(t, s, "web", func(o *v1alpha1.Session) { o.Status.Restarts.Total++ }) }, 1, 1},
		{"the conversation", func() {
			update(t, s, "web", func(o *v1alpha1.Session) { o.Status.Conversation = &v1alpha1.ConversationStatus{ID: "x"} })
		}, 1, 1},
		{"a folder that was made", func() {
			update(t, s, "web", func(o *v1alpha1.Session) { o.Status.Workspace = &v1alpha1.WorkspaceStatus{Identity: "1:2"} })
		}, 1, 1},
		{"what is seen of it", func() {
			update(t, s, "web", func(o *v1alpha1.Session) { o.Status.Workspace.Branch = "main" })
		}, 1, 0},
		{"label", func() {
			d := storetest.Desired("web", "a")
			d.Object.SetLabels(map[string]string{"a": "b"})
			apply(t, s, d)
		}, 1, 0},
		{"spec", func() { apply(t, s, storetest.Desired("web", "b")) }, 1, 1},
		{"deletion", func() { remove(t, s, "web") }, 1, 1},
		{"the end", func() { update(t, s, "web", func(o *v1alpha1.Session) { o.Finalizers = nil }) }, 1, 1},
	} {
		before := s.Stats()
		step.do()
		after := s.Stats()
		if w, d := after.Writes-before.Writes, after.Durable-before.Durable; w != step.writes || d != step.durable {
			t.Errorf("%s: %d writes, %d durable; want %d, %d", step.name, w, d, step.writes, step.durable)
		}
	}
}

// A kind's finalizer is there from the first write on.
func TestFirstFinalizer(t *testing.T) {
	o := options(t.TempDir() + "/objects")
	o.Finalizers = map[string]string{v1alpha1.KindSession: v1alpha1.SessionFinalizer}
	s, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, storetest.Desired("web", "a"))
	if got := get(t, s, "web").Finalizers; len(got) != 1 || got[0] != v1alpha1.SessionFinalizer {
		t.Errorf("finalizers = %v", got)
	}
	if got := s.Stats(); got.Durable != 1 || got.Writes != 1 {
		t.Errorf("stats = %+v, want one durable write", got)
	}
	remove(t, s, "web")
	if get(t, s, "web").DeletionTimestamp == nil {
		t.Error("the deletion was not held")
	}
}

// TestEveryPrefix cuts a state file at each byte, with and without the durable
// version beside it.
func TestEveryPrefix(t *testing.T) {
	source := t.TempDir() + "/objects"
	s := open(t, source)
	apply(t, s, storetest.Desired("web", "a"))
	update(t, s, "web", func(o *v1alpha1.Session) {
		o.Finalizers = []string{v1alpha1.SessionFinalizer}
		o.Status.Restarts.Total = 2
	})
	kept := show(t, statePath(source, "web"))
	update(t, s, "web", func(o *v1alpha1.Session) { o.Status.ObservedGeneration = 1 })
	whole := show(t, statePath(source, "web"))
	want := get(t, s, "web")

	outcomes := map[string]int{}
	for _, beside := range []bool{true, false} {
		for cut := range whole {
			dir := scratch(t) + "/objects"
			path := statePath(dir, "web")
			write(t, path, whole[:cut])
			if beside {
				write(t, filepath.Join(filepath.Dir(path), ".web.yaml.durable"), kept)
			}
			s := open(t, dir)
			problems := s.Problems()
			if len(problems) != 1 || problems[0].File != path || problems[0].Message == "" {
				t.Fatalf("cut at %d: problems = %+v, want one of %s", cut, problems, path)
			}
			if got := show(t, problems[0].SetAside); got != whole[:cut] {
				t.Fatalf("cut at %d: what was set aside has %d bytes", cut, len(got))
			}
			_, err := s.Get(t.Context(), storetest.Key("web"))
			switch {
			case beside:
				outcomes["whole"]++
				o := get(t, s, "web")
				if o.UID != want.UID || o.Generation != 1 || len(o.Finalizers) != 1 || o.Status.Restarts.Total != 2 {
					t.Fatalf("cut at %d: recovered %+v", cut, o)
				}
			case !errors.Is(err, effects.ErrNotFound):
				t.Fatalf("cut at %d: Get = %v, want not found until it is applied", cut, err)
			}
			again := open(t, dir) // the repair is on disk
			if len(again.Problems()) != 0 {
				t.Fatalf("cut at %d: opened again: problems = %+v", cut, again.Problems())
			}
			if beside {
				continue
			}
			apply(t, again, storetest.Desired("web", "a"))
			o := get(t, again, "web")
			switch {
			case problems[0].UID == "":
				outcomes["lost"]++
				if o.UID == want.UID {
					t.Fatalf("cut at %d: the UID was said to be lost and is there", cut)
				}
			default:
				outcomes["identity"]++
				if problems[0].UID != string(want.UID) || o.UID != want.UID || o.Generation != 2 || len(o.Finalizers) != 1 || !o.CreationTimestamp.Equal(&want.CreationTimestamp) {
					t.Fatalf("cut at %d: recovered %+v", cut, o.ObjectMeta)
				}
			}
		}
	}
	t.Log(outcomes)
	if metaEnd := strings.Index(whole, "\nsource:"); outcomes["whole"] != len(whole) || outcomes["identity"] < len(whole)-metaEnd-5 || outcomes["lost"] == 0 {
		t.Errorf("outcomes = %v of %d bytes, metadata ends at %d", outcomes, len(whole), metaEnd)
	}
}

// A byte changed in place is seen, wherever it is.
func TestEveryChangedByte(t *testing.T) {
	source := t.TempDir() + "/objects"
	s := open(t, source)
	apply(t, s, storetest.Desired("web", "a"))
	whole := show(t, statePath(source, "web"))
	for i := range whole {
		dir := scratch(t) + "/objects"
		changed := []byte(whole)
		changed[i] ^= 1
		write(t, statePath(dir, "web"), string(changed))
		s, err := store.Open(t.Context(), options(dir))
		if errors.Is(err, store.ErrNewerState) {
			continue // the version itself
		}
		if err != nil {
			t.Fatalf("byte %d: %v", i, err)
		}
		if len(s.Problems()) != 1 {
			t.Fatalf("byte %d: not seen", i)
		}
	}
}

func TestRecoveredIdentityCanBeRemoved(t *testing.T) {
	dir := t.TempDir() + "/objects"
	s := open(t, dir)
	apply(t, s, storetest.Desired("web", "a"))
	whole := show(t, statePath(dir, "web"))
	write(t, statePath(dir, "web"), whole[:strings.Index(whole, "\nspec:")+4])
	s = open(t, dir)
	sources, err := s.Sources(t.Context())
	if err != nil || sources[storetest.Key("web")] != storetest.Source {
		t.Fatalf("Sources = %v, %v", sources, err)
	}
	if list, err := s.List(t.Context(), v1alpha1.KindSession); err != nil || len(list) != 0 {
		t.Errorf("List = %v, %v; want none", list, err)
	}
	if _, err := (store.Client{Dir: dir}).Get(storetest.Key("web")); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("the client's Get = %v, want not found", err)
	}
	remove(t, s, "web")
	if _, err := os.Lstat(statePath(dir, "web")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}

// An object under deletion of which only the identity is left can still be
// finalized, and its name is free after that.
func TestRecoveredDeletionComesToItsEnd(t *testing.T) {
	dir := t.TempDir() + "/objects"
	s := open(t, dir)
	apply(t, s, storetest.Desired("web", "a"))
	update(t, s, "web", func(o *v1alpha1.Session) { o.Finalizers = []string{v1alpha1.SessionFinalizer} })
	remove(t, s, "web")
	want := get(t, s, "web")
	whole := show(t, statePath(dir, "web"))
	write(t, statePath(dir, "web"), whole[:strings.Index(whole, "\nspec:")+4])
	open(t, dir)
	s = open(t, dir) // also after another start
	got := get(t, s, "web")
	if got.UID != want.UID || got.DeletionTimestamp == nil || len(got.Finalizers) != 1 {
		t.Fatalf("recovered %+v", got.ObjectMeta)
	}
	update(t, s, "web", func(o *v1alpha1.Session) { o.Finalizers = nil })
	apply(t, s, storetest.Desired("web", "a"))
	if got := get(t, s, "web"); got.UID == want.UID || got.Generation != 1 {
		t.Errorf("applied anew: %+v", got.ObjectMeta)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(t *testing.T, path string)
		want error
		text string
	}{
		{"a newer version", func(t *testing.T, path string) { write(t, path, "stateVersion: 2\nwhatever: {}\n") }, store.ErrNewerState, "state version 2, this skc knows 1"},
		{"a file that cannot be read", func(t *testing.T, path string) {
			write(t, path, "")
			if err := os.Truncate(path, 9<<20); err != nil { // root reads anything that it may not
				t.Fatal(err)
			}
		}, files.ErrTooLarge, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := scratch(t) + "/objects"
			path := statePath(dir, "web")
			tc.make(t, path)
			before := filesIn(t, dir)
			_, err := store.Open(t.Context(), options(dir))
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("Open = %v, want %v with %s", err, tc.want, path)
			}
			if diff := cmp.Diff(before, filesIn(t, dir)); diff != "" {
				t.Errorf("Open changed something:\n%s", diff)
			}
		})
	}
}

func TestOpenTidies(t *testing.T) {
	dir := t.TempDir() + "/objects"
	s := open(t, dir)
	apply(t, s, storetest.Desired("web", "a"))
	folder := filepath.Dir(statePath(dir, "web"))
	write(t, filepath.Join(folder, ".web.yaml.skc-0123456789abcdef.tmp"), "cut")
	write(t, filepath.Join(folder, ".gone.yaml.durable"), "of an object that is gone")
	foreign := []string{"README", "notes.txt", "session/default/web.yaml.bak", "session/default/.hidden.yaml", "session/file", "session/a b/x.yaml"}
	for _, name := range foreign {
		write(t, filepath.Join(dir, name), "foreign")
	}
	if err := os.Symlink("web.yaml", filepath.Join(folder, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "folder.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, open := range []string{dir, filepath.Dir(folder), folder} {
		if err := os.Chmod(open, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir)
	list, err := s.List(t.Context(), v1alpha1.KindSession)
	if err != nil || len(list) != 1 || len(s.Problems()) != 0 {
		t.Errorf("List = %d objects, %v; problems %v; want web alone", len(list), err, s.Problems())
	}
	want := append([]string{"session/default/web.yaml", "session/default/link.yaml"}, foreign...)
	got := filesIn(t, dir)
	if len(got) != len(want) {
		t.Errorf("files = %q, want %q", got, want)
	}
	for _, closed := range []string{dir, filepath.Dir(folder), folder} {
		fi, err := os.Stat(closed)
		if err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("mode of %s = %o, %v; want 700", closed, fi.Mode().Perm(), err)
		}
	}
}

// Somebody removes files or folders below the running store: the next write
// brings them back.
func TestFilesRemovedBelow(t *testing.T) {
	dir := t.TempDir() + "/objects"
	s := open(t, dir)
	apply(t, s, storetest.Desired("web", "a"))
	for i, path := range []string{statePath(dir, "web"), filepath.Dir(statePath(dir, "web")), dir + "/session"} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		update(t, s, "web", func(o *v1alpha1.Session) { o.Status.ObservedGeneration = int64(i + 1) })
		o, err := (store.Client{Dir: dir}).Get(storetest.Key("web"))
		if err != nil || o.GetResourceVersion() != get(t, s, "web").ResourceVersion {
			t.Errorf("after %s was removed: %v", path, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	before := get(t, s, "web")
	after := before.DeepCopy()
	after.Status.ObservedGeneration = 9
	if err := s.Update(t.Context(), before, after); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Update with the whole folder gone = %v, want not exist", err)
	}
	if got := get(t, s, "web").Status.ObservedGeneration; got != 3 {
		t.Errorf("observedGeneration = %d, want 3: memory ran ahead of the disk", got)
	}
}

// stateOf is what of the object must survive a power cut once it was
// acknowledged.
func stateOf(t testing.TB, s *store.Store) string {
	t.Helper()
	found, err := s.Get(t.Context(), storetest.Key("web"))
	if errors.Is(err, effects.ErrNotFound) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	o := found.(*v1alpha1.Session)
	return fmt.Sprintf("%s generation %d finalizers %v deleting %v restarts %+v command %v",
		o.UID, o.Generation, o.Finalizers, o.DeletionTimestamp != nil, o.Status.Restarts, o.Spec.Command)
}

// life is what happens to one object. Each step done twice is the step done
// once, as a reconciler's or a spool's second try is.
var life = []func(s *store.Store) error{
	applied("a"),
	observed(1),
	finalized(v1alpha1.SessionFinalizer),
	observed(2), observed(3),
	restarted(1),
	observed(4),
	applied("b"), applied("c"),
	observed(5),
	removed,
	observed(6),
	finalized(),
	applied("d"),
	observed(7), observed(8),
	removed,
}

func applied(command string) func(*store.Store) error {
	return func(s *store.Store) error {
		return s.Apply(context.Background(), storetest.Desired("web", command))
	}
}

func removed(s *store.Store) error {
	return s.Remove(context.Background(), storetest.Key("web"), storetest.Source)
}

func changed(change func(*v1alpha1.Session)) func(*store.Store) error {
	return func(s *store.Store) error {
		before, err := store.For[*v1alpha1.Session](s, v1alpha1.KindSession).Get(context.Background(), storetest.Key("web"))
		if errors.Is(err, effects.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		after := before.DeepCopy()
		change(after)
		return s.Update(context.Background(), before, after)
	}
}

func observed(n int) func(*store.Store) error {
	return changed(func(o *v1alpha1.Session) { o.Status.LaunchedDigest = strings.Repeat("d", 600*n) })
}

func restarted(n int64) func(*store.Store) error {
	return changed(func(o *v1alpha1.Session) { o.Status.Restarts.Total = n })
}

func finalized(finalizers ...string) func(*store.Store) error {
	return changed(func(o *v1alpha1.Session) { o.Finalizers = finalizers })
}

// TestPowerCut builds every state that a power cut may leave during the life of
// an object: each opens, and holds all that was acknowledged.
func TestPowerCut(t *testing.T) {
	dir := t.TempDir() + "/objects"
	open(t, dir)
	write(t, dir+"/session/default/README", "so that the folders are there")
	r := filestest.Record(t, dir)
	o := options(dir)
	o.Files = &files.Layer{Trace: r.Trace}
	s, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := []string{"none"} // by mark
	for _, step := range life {
		if err := step(s); err != nil {
			t.Fatal(err)
		}
		r.Mark()
		acknowledged = append(acknowledged, stateOf(t, s))
	}

	// lost counts the states that hold neither what was acknowledged last nor
	// what was under way.
	lost := func(r *filestest.Recorder, report bool) (bad, all int) {
		for cut := range r.Cuts(1) {
			all++
			dir := scratch(t) + "/objects"
			cut.Write(t, dir)
			s, err := store.Open(t.Context(), options(dir))
			got := ""
			if err == nil {
				got = stateOf(t, s)
			}
			if err == nil && (got == acknowledged[cut.Marks] || cut.Marks+1 < len(acknowledged) && got == acknowledged[cut.Marks+1]) {
				continue
			}
			bad++
			if !report {
				return bad, all // one is enough
			}
			t.Errorf("%s: %v, %s; want %s", cut.What, err, got, acknowledged[cut.Marks])
		}
		return bad, all
	}
	if bad, all := lost(r, true); bad > 0 || all < 100 {
		t.Errorf("%d of %d states lost something", bad, all)
	} else {
		t.Logf("%d states", all)
	}
	for _, kind := range []files.OpKind{files.OpSync, files.OpSyncDir, files.OpLink} { // the check sees what it should
		if bad, _ := lost(r.Without(kind), false); bad == 0 {
			t.Errorf("without %s nothing is lost: the check is blind", kind)
		}
	}
}
