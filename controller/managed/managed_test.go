package managed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/managed"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/files/filestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string, layer *files.Layer) *managed.Root {
	t.Helper()
	r, err := managed.Open(managed.Options{
		Dir: filepath.Join(dir, "managed"), Lock: filepath.Join(dir, "managed.lock"), Reports: filepath.Join(dir, "sources"), Files: layer,
	})
	must(t, err)
	return r
}

var key = api.Key{Kind: v1alpha1.KindQuarantine, Namespace: "team", Name: "web-1a2b"}

func quarantine() *v1alpha1.Quarantine {
	q := &v1alpha1.Quarantine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{"on": "yes"},
			UID: "not for a file", Generation: 7, Finalizers: []string{v1alpha1.QuarantineFinalizer},
		},
		Spec: v1alpha1.QuarantineSpec{
			Origin: v1alpha1.QuarantineOrigin{
				Type: v1alpha1.QuarantineWorktree, Path: "/home/me/it's: a #path\n", Identity: "1:2", Owner: "0123", Head: strings.Repeat("1", 40),
			},
			Session:     &v1alpha1.QuarantinedSession{Namespace: "team", Name: "web", UID: "null", Definition: `{"kind":"Session","spec":{"command":["` + strings.Repeat("words and words ", 20) + `"]}}`},
			Reason:      v1alpha1.QuarantineSessionDeleted,
			RequestedBy: "removal of web.yaml",
		},
		Status: v1alpha1.QuarantineStatus{Path: "/somewhere"},
	}
	q.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(key.Kind))
	return q
}

const written = `apiVersion: skc.dev/v1alpha1
kind: Quarantine
metadata:
  labels:
    "on": "yes"
  name: web-1a2b
  namespace: team
spec:
  origin:
    head: "1111111111111111111111111111111111111111"
    identity: "1:2"
    owner: "0123"
    path: |
      /home/me/it's: a #path
    type: Worktree
  reason: SessionDeleted
  requestedBy: removal of web.yaml
  session:
    definition: '{"kind":"Session","spec":{"command":["words and words words and words
`

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	layer := &files.Layer{}
	r := open(t, dir, layer)
	must(t, r.Create(t.Context(), quarantine()))
	path := filepath.Join(dir, "managed", "team", "quarantine-web-1a2b.yaml")
	if got := r.Path(key); got != path {
		t.Errorf("Path = %s, want %s", got, path)
	}
	text, err := os.ReadFile(path)
	must(t, err)
	if got := string(text); !strings.HasPrefix(got, written) {
		t.Errorf("the file is (-want +got):\n%s", cmp.Diff(written, got))
	}
	all, err := v1alpha1.Decode(path, text)
	must(t, err)
	got := all[0].Object.(*v1alpha1.Quarantine)
	got.Spec.Retention = nil // a default
	if diff := cmp.Diff(quarantine().Spec, got.Spec); diff != "" {
		t.Errorf("the spool reads (-want +got):\n%s", diff)
	}
	for _, p := range []string{path, filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		if fi, err := os.Stat(p); err != nil || fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v, %v", p, fi.Mode(), err)
		}
	}

	must(t, os.WriteFile(path, []byte("# mine\n"), 0o600))
	writes := layer.Writes()
	must(t, r.Create(t.Context(), quarantine()))
	if text, _ := os.ReadFile(path); string(text) != "# mine\n" || layer.Writes() != writes {
		t.Errorf("Create over a file that is there wrote it: %q", text)
	}

	bad := quarantine()
	bad.Name, bad.Spec.Reason = "other", "Whim"
	err = r.Create(t.Context(), bad)
	if _, refused := api.AsInvalidSpec(err); !refused {
		t.Errorf("Create of a bad object = %v, want an InvalidSpecError", err)
	}
	if _, err := os.Stat(r.Path(api.KeyOf(bad))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a bad object was written: %v", err)
	}
	if !r.Holds(path) || r.Holds(dir) || r.Holds(filepath.Join(dir, "managed")) || r.Holds(filepath.Join(dir, "managed2", "x.yaml")) || r.Holds("") {
		t.Error("Holds is wrong")
	}
}

func TestCreateFrom(t *testing.T) {
	r := open(t, t.TempDir(), &files.Layer{})
	must(t, r.CreateFrom(t.Context(), []byte(`{"apiVersion":"skc.dev/v1alpha1","kind":"Session","metadata":{"name":"web","uid":"u","annotations":{"skc.dev/restored-from":"o"}},
		"spec":{"target":{"existingPath":{"path":"/tmp"}},"command":["true"],"terminal":{"columns":120}},"status":{"x":1}}`)))
	const want = `apiVersion: skc.dev/v1alpha1
kind: Session
metadata:
  annotations:
    skc.dev/restored-from: o
  name: web
spec:
  command:
  - "true"
  target:
    existingPath:
      path: /tmp
  terminal:
    columns: 120
`
	text, err := os.ReadFile(r.Path(api.Key{Kind: "Session", Namespace: "default", Name: "web"}))
	must(t, err)
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
	if err := r.CreateFrom(t.Context(), []byte("{")); err == nil {
		t.Error("half a definition was taken")
	}
}

func TestEdit(t *testing.T) {
	dir := t.TempDir()
	layer := &files.Layer{}
	r := open(t, dir, layer)
	restore := func(spec map[string]any) error { spec["restore"] = true; return nil }
	if err := r.Edit(t.Context(), key, restore); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("Edit of what is not there = %v", err)
	}
	must(t, r.Create(t.Context(), quarantine()))
	must(t, r.Edit(t.Context(), key, restore))
	read := func() *v1alpha1.Quarantine {
		text, err := os.ReadFile(r.Path(key))
		must(t, err)
		all, err := v1alpha1.Decode("", text)
		must(t, err)
		return all[0].Object.(*v1alpha1.Quarantine)
	}
	want := quarantine()
	want.Spec.Restore = true
	got := read()
	got.Spec.Retention = nil
	if diff := cmp.Diff(want.Spec, got.Spec) + cmp.Diff(want.Labels, got.Labels); diff != "" {
		t.Error(diff)
	}
	writes := layer.Writes()
	must(t, r.Edit(t.Context(), key, restore))
	if layer.Writes() != writes {
		t.Error("an edit that changes nothing was written")
	}
	boom := errors.New("boom")
	if err := r.Edit(t.Context(), key, func(spec map[string]any) error { clear(spec); return boom }); !errors.Is(err, boom) || layer.Writes() != writes {
		t.Errorf("a failed edit: %v, written: %v", err, layer.Writes() != writes)
	}
	if err := r.Edit(t.Context(), key, func(spec map[string]any) error { spec["purge"] = true; return nil }); err == nil || layer.Writes() != writes {
		t.Error("an edit to what is not valid was written")
	}
	text, err := os.ReadFile(r.Path(key))
	must(t, err)
	must(t, os.WriteFile(r.Path(key), append(text, []byte("---\n"+strings.ReplaceAll(string(text), key.Name, "second"))...), 0o600))
	if err := r.Edit(t.Context(), key, restore); !errors.Is(err, effects.ErrConflict) {
		t.Errorf("Edit of a file with two = %v", err)
	}
	if err := r.Remove(t.Context(), key); !errors.Is(err, effects.ErrConflict) {
		t.Errorf("Remove of a file with two = %v", err)
	}
}

func words(t testing.TB, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "sources", "*.delete.json"))
	must(t, err)
	return all
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, &files.Layer{})
	must(t, r.Remove(t.Context(), key)) // before there is anything
	must(t, r.Create(t.Context(), quarantine()))
	must(t, r.Remove(t.Context(), key))
	if _, err := os.Lstat(r.Path(key)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
	said := words(t, dir)
	if len(said) != 1 {
		t.Fatalf("words for the spool: %v", said)
	}
	text, err := os.ReadFile(said[0])
	must(t, err)
	var got []struct {
		Key  api.Key
		File string
	}
	must(t, json.Unmarshal(text, &got))
	if len(got) != 1 || got[0].Key != key || got[0].File != r.Path(key) {
		t.Errorf("the word is %s", text)
	}
	must(t, r.Remove(t.Context(), key))
	if again := words(t, dir); len(again) != 1 {
		t.Errorf("a second Remove left word: %v", again)
	}
	must(t, os.RemoveAll(filepath.Join(dir, "managed")))
	must(t, r.Remove(t.Context(), key))
	must(t, r.Create(t.Context(), quarantine()))
}

// TestManyAtOnce: calls on one object, in this process and beside another that
// holds the lock, come one after the other.
func TestManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, &files.Layer{})
	unlock, err := files.LockFolder(t.Context(), filepath.Join(dir, "managed"), "")
	must(t, err)
	var begun, done atomic.Int64
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			begun.Add(1)
			if err := r.Create(context.WithoutCancel(t.Context()), quarantine()); err != nil {
				t.Error(err)
			}
			done.Add(1)
			if err := r.Edit(context.WithoutCancel(t.Context()), key, func(spec map[string]any) error {
				text, _ := spec["requestedBy"].(string)
				spec["requestedBy"] = text + fmt.Sprintf("+%d", i)
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	if done.Load() != 0 {
		t.Error("a call did not wait for the lock")
	}
	unlock()
	wg.Wait()
	text, err := os.ReadFile(r.Path(key))
	must(t, err)
	all, err := v1alpha1.Decode("", text)
	must(t, err)
	if got := all[0].Object.(*v1alpha1.Quarantine).Spec.RequestedBy; strings.Count(got, "+") != 20 {
		t.Errorf("edits were lost: %s", got)
	}

	unlock, err = files.LockFolder(t.Context(), filepath.Join(dir, "managed"), "")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Remove(ctx, key); !errors.Is(err, context.Canceled) {
		t.Errorf("Remove that nobody waits for = %v", err)
	}
	unlock()
}

// TestPowerCut: what was acknowledged is there after every power cut, and what
// is there is whole.
func TestPowerCut(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, &files.Layer{})
	for _, sub := range []string{"managed/team", "sources"} {
		must(t, files.MkdirPrivate(filepath.Join(dir, sub)))
	}
	must(t, os.WriteFile(filepath.Join(dir, "managed", "team", ".keep"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "sources", ".keep"), nil, 0o600))
	rec := filestest.Record(t, dir)
	r := open(t, dir, &files.Layer{Trace: rec.Trace})
	state := func(dir string) string {
		text, err := os.ReadFile(filepath.Join(dir, "managed", "team", filepath.Base(r.Path(key))))
		if errors.Is(err, os.ErrNotExist) {
			return "none"
		}
		return string(text)
	}
	want := []string{"none"}
	for _, step := range []func() error{
		func() error { return r.Create(t.Context(), quarantine()) },
		func() error {
			return r.Edit(t.Context(), key, func(spec map[string]any) error { spec["restore"] = true; return nil })
		},
		func() error { return r.Remove(t.Context(), key) },
	} {
		must(t, step())
		rec.Mark()
		want = append(want, state(dir))
	}
	lost := func(rec *filestest.Recorder, report bool) (bad int) {
		for cut := range rec.Cuts(1) {
			dir := t.TempDir()
			cut.Write(t, dir)
			got := state(dir)
			if got == want[cut.Marks] || cut.Marks+1 < len(want) && got == want[cut.Marks+1] {
				continue
			}
			bad++
			if report {
				t.Errorf("%s: %q", cut.What, got)
			}
		}
		return bad
	}
	lost(rec, true)
	for _, kind := range []files.OpKind{files.OpSync, files.OpSyncDir} {
		if lost(rec.Without(kind), false) == 0 {
			t.Errorf("without %s nothing is lost: the check is blind", kind)
		}
	}
}
