package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/controller/store/storetest"
	"skc.dev/skc/effects"
)

func apply(t testing.TB, s *store.Store, d store.Desired) {
	t.Helper()
	if err := s.Apply(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// update changes a session's status and finalizers as a reconciler does.
func update(t testing.TB, s *store.Store, name string, change func(*v1alpha1.Session)) {
	t.Helper()
	before, err := store.For[*v1alpha1.Session](s, v1alpha1.KindSession).Get(t.Context(), storetest.Key(name))
	if err != nil {
		t.Fatal(err)
	}
	after := before.DeepCopy()
	change(after)
	if err := s.Update(t.Context(), before, after); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, s *store.Store, name string) {
	t.Helper()
	if err := s.Remove(t.Context(), storetest.Key(name), storetest.Source); err != nil {
		t.Fatal(err)
	}
}

func statePath(dir, name string) string {
	return filepath.Join(dir, "session", v1alpha1.DefaultNamespace, name+".yaml")
}

func TestClientReads(t *testing.T) {
	dir := t.TempDir() + "/objects"
	c := store.Client{Dir: dir}
	if _, err := c.Get(storetest.Key("web")); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("Get with no folder = %v, want not found", err)
	}
	if list, err := c.List(v1alpha1.KindSession, ""); err != nil || len(list) != 0 {
		t.Errorf("List with no folder = %v, %v", list, err)
	}
	s := open(t, dir)
	for _, name := range []string{"web", "api", "bad"} {
		apply(t, s, storetest.Desired(name, "sleep", "60"))
	}
	d := storetest.Desired("other", "true")
	d.Object.SetNamespace("second")
	apply(t, s, d)
	o, err := c.Get(storetest.Key("web"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := s.Get(t.Context(), storetest.Key("web"))
	if err != nil {
		t.Fatal(err)
	}
	if o.GetUID() != want.GetUID() || o.GetResourceVersion() != want.GetResourceVersion() || o.GetAnnotations()[v1alpha1.SourceFileAnnotation] != storetest.Source.File {
		t.Errorf("Get = %+v, want %+v", o, want)
	}
	if err := os.Truncate(statePath(dir, "bad"), 100); err != nil {
		t.Fatal(err)
	}
	list, err := c.List(v1alpha1.KindSession, v1alpha1.DefaultNamespace)
	if err == nil || len(list) != 2 || list[0].GetName() != "api" || list[1].GetName() != "web" {
		t.Errorf("List = %d objects, %v; want api and web, and an error for bad", len(list), err)
	}
	if list, _ := c.List(v1alpha1.KindSession, ""); len(list) != 3 {
		t.Errorf("List of all namespaces = %d objects, want 3", len(list))
	}
	if list, err := c.List(v1alpha1.KindSession, "second"); len(list) != 1 || err != nil {
		t.Errorf("List of one namespace = %d objects, %v", len(list), err)
	}
}

// next waits for the next event of a watch.
func next(t *testing.T, events <-chan store.Event) store.Event {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			t.Fatal("the watch ended")
		}
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("no event came")
	}
	panic("not reached")
}

// until waits for the event that says what is wanted; those before it may be
// other versions on the way there.
func until(t *testing.T, events <-chan store.Event, want string) {
	t.Helper()
	for {
		e := next(t, events)
		got := "error"
		if e.Err == nil {
			s := e.Object.(*v1alpha1.Session)
			got = fmt.Sprintf("%s %d", s.Name, s.Status.ObservedGeneration)
			if e.Deleted {
				got = s.Name + " deleted"
			}
		}
		if got == want {
			return
		}
	}
}

func TestWatch(t *testing.T) {
	root := t.TempDir()
	dir := root + "/state/objects"
	ctx, cancel := context.WithCancel(t.Context())
	events, err := store.Client{Dir: dir}.Watch(ctx, v1alpha1.KindSession, "")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, dir) // the folders come after the watch
	apply(t, s, storetest.Desired("web", "a"))
	until(t, events, "web 0")
	for i := range int64(50) {
		update(t, s, "web", func(o *v1alpha1.Session) { o.Status.ObservedGeneration = i + 1 })
	}
	until(t, events, "web 50")
	d := storetest.Desired("other", "true")
	d.Object.SetNamespace("second")
	apply(t, s, d)
	until(t, events, "other 0")

	second, err := store.Client{Dir: dir}.Watch(ctx, v1alpha1.KindSession, v1alpha1.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	until(t, second, "web 50") // what is there comes first
	if err := os.WriteFile(statePath(dir, "web"), []byte("cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, events, "error")
	until(t, second, "error")
	update(t, s, "web", func(o *v1alpha1.Session) { o.Status.ObservedGeneration = 51 })
	until(t, events, "web 51")
	remove(t, s, "web")
	until(t, events, "web deleted")
	until(t, second, "web deleted")
	apply(t, s, storetest.Desired("web", "a"))
	until(t, second, "web 0")
	if err := os.RemoveAll(filepath.Dir(statePath(dir, "web"))); err != nil {
		t.Fatal(err)
	}
	until(t, second, "web deleted")
	apply(t, s, storetest.Desired("again", "a"))
	until(t, second, "again 0")

	cancel()
	for _, c := range []<-chan store.Event{events, second} {
		for range c { // ends, or goleak tells
		}
	}
}

// mirror is what a watch has told so far.
type mirror struct {
	mu      sync.Mutex
	objects map[string]string // name to identity and version
	told    chan struct{}
}

func (m *mirror) follow(t *testing.T, events <-chan store.Event) {
	for e := range events {
		m.mu.Lock()
		switch {
		case e.Err != nil:
			t.Error(e.Err)
		case e.Deleted:
			delete(m.objects, e.Object.GetName())
		default:
			m.objects[e.Object.GetName()] = versionOf(e.Object)
		}
		m.mu.Unlock()
		select {
		case m.told <- struct{}{}:
		default:
		}
	}
}

func (m *mirror) equals(want map[string]string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Equal(m.objects, want)
}

func versionOf(o api.Object) string { return string(o.GetUID()) + " " + o.GetResourceVersion() }

// TestWatchMissesNothing begins watches while objects come and go, and expects
// each to end with what is there.
func TestWatchMissesNothing(t *testing.T) {
	dir := t.TempDir() + "/objects"
	s := open(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	var mirrors []*mirror
	var wg sync.WaitGroup
	for i := range 200 {
		name := fmt.Sprintf("s%d", i%7)
		apply(t, s, storetest.Desired(name, fmt.Sprint(i)))
		if i%3 == 0 {
			remove(t, s, name)
		}
		if i%20 == 0 {
			events, err := store.Client{Dir: dir}.Watch(ctx, v1alpha1.KindSession, "")
			if err != nil {
				t.Fatal(err)
			}
			m := &mirror{objects: map[string]string{}, told: make(chan struct{}, 1)}
			mirrors = append(mirrors, m)
			wg.Go(func() { m.follow(t, events) })
		}
	}
	list, err := s.List(t.Context(), v1alpha1.KindSession)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, o := range list {
		want[o.GetName()] = versionOf(o)
	}
	deadline := time.After(20 * time.Second)
	for i, m := range mirrors {
		for !m.equals(want) {
			select {
			case <-m.told:
			case <-deadline:
				t.Fatalf("watch %d ended with %v, want %v", i, m.objects, want)
			}
		}
	}
	cancel()
	wg.Wait()
}

func TestStateFile(t *testing.T) {
	dir := t.TempDir() + "/objects"
	s := open(t, dir)
	d := storetest.Desired("web", "sh", "-c", "echo \"$HOME\"\nsleep 60")
	d.Object.SetLabels(map[string]string{"team": "web"})
	apply(t, s, d)
	update(t, s, "web", func(o *v1alpha1.Session) { o.Finalizers = []string{v1alpha1.SessionFinalizer} })
	text := show(t, statePath(dir, "web"))
	for _, want := range []string{
		"stateVersion: 1\napiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata:\n",
		"  finalizers:\n  - skc.dev/session\n", "  labels:\n    team: web\n",
		"spec:\n  command:\n  - sh\n  - \"-c\"\n  - \"echo \\\"$HOME\\\"\\nsleep 60\"\n  target:\n",
		"source:\n  document: 0\n  file: /spool/web.yaml\n",
	} {
		if !bytes.Contains([]byte(text), []byte(want)) {
			t.Errorf("the state file lacks\n%s\nit is\n%s", want, text)
		}
	}
	for path, want := range map[string]os.FileMode{statePath(dir, "web"): 0o600, filepath.Dir(statePath(dir, "web")): 0o700, dir: 0o700} {
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := fi.Mode().Perm(); got != want {
			t.Errorf("mode of %s = %o, want %o", path, got, want)
		}
	}
}
