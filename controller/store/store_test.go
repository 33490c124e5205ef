package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/controller/store/storetest"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(child(dir))
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), options(dir))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func options(dir string) store.Options {
	return store.Options{Dir: dir, Files: &files.Layer{}, Clock: clock.RealClock{}, Log: logr.Discard()}
}

func TestConform(t *testing.T) {
	storetest.Conform(t, func(t *testing.T) storetest.Store { return open(t, t.TempDir()+"/objects") })
}

func show(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What belongs to no namespace is read again after a restart, by the store and
// by the command line, also when its file is damaged.
func TestClusterScopeOnDisk(t *testing.T) {
	dir := t.TempDir() + "/objects"
	key := api.Key{Kind: v1alpha1.KindAgentProfile, Name: "bot"}
	s := open(t, dir)
	apply(t, s, storetest.Profile("bot", "bot"))
	before, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "agentprofile", "_cluster", "bot.yaml")
	if text := show(t, path); strings.Contains(text, "namespace:") {
		t.Errorf("the state file names a namespace:\n%s", text)
	}
	check := func(what string, o api.Object, err error) {
		t.Helper()
		if err != nil || api.KeyOf(o) != key || o.GetUID() != before.GetUID() {
			t.Errorf("%s: %v, %v", what, o, err)
		}
	}
	client := store.Client{Dir: dir}
	o, err := client.Get(key)
	check("Client.Get", o, err)
	list, err := client.List(v1alpha1.KindAgentProfile, "")
	if len(list) != 1 {
		t.Fatalf("Client.List = %v, %v", list, err)
	}
	check("Client.List", list[0], err)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := client.Watch(ctx, v1alpha1.KindAgentProfile, "")
	if err != nil {
		t.Fatal(err)
	}
	check("Client.Watch", next(t, events).Object, nil)
	cancel()
	for range events { // until it is closed
	}
	o, err = open(t, dir).Get(t.Context(), key)
	check("after a restart", o, err)

	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, data[:len(data)-10], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if p := s.Problems(); len(p) != 1 || p[0].Key != key || p[0].UID != string(before.GetUID()) {
		t.Errorf("the problems are %+v", p)
	}
	apply(t, s, storetest.Profile("bot", "bot"))
	o, err = s.Get(t.Context(), key)
	check("after damage", o, err)
}

func TestDefinition(t *testing.T) {
	s := open(t, t.TempDir())
	if _, err := s.Definition(storetest.Key("web")); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("of what is not there: %v, want ErrNotFound", err)
	}
	d := storetest.Desired("web", "a")
	d.Object.SetLabels(map[string]string{"a": "b"})
	d.Object.SetAnnotations(map[string]string{"note": "x"})
	if err := s.Apply(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	got, err := s.Definition(storetest.Key("web"))
	if err != nil {
		t.Fatal(err)
	}
	back, err := v1alpha1.Decode("definition.json", got)
	if err != nil {
		t.Fatalf("%s is no definition: %v", got, err)
	}
	o := back[0]
	if string(o.RawSpec) != string(d.RawSpec) || o.Object.GetLabels()["a"] != "b" || len(o.Object.GetAnnotations()) != 1 || o.Object.GetAnnotations()["note"] != "x" {
		t.Errorf("definition %s, want spec %s, and what the user said of labels and annotations only", got, d.RawSpec)
	}
}

// TestEntryIsDurable: the status of a request is the only place that knows how
// far it came.
func TestEntryIsDurable(t *testing.T) {
	s := open(t, t.TempDir())
	rq := &v1alpha1.SessionRequest{Spec: v1alpha1.SessionRequestSpec{Source: "cli", Key: "1", Verb: v1alpha1.VerbDelete,
		Target: v1alpha1.RequestTarget{Session: &v1alpha1.SessionSelector{ID: "web"}}}}
	rq.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.KindSessionRequest))
	rq.Name, rq.Namespace = "rq", v1alpha1.DefaultNamespace
	raw, err := json.Marshal(rq.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), store.Desired{Object: rq, RawSpec: raw, Source: storetest.Source}); err != nil {
		t.Fatal(err)
	}
	now := metav1.NowMicro()
	for _, c := range []struct {
		name string
		edit func(*v1alpha1.SessionRequestStatus)
		want int64
	}{
		{"a state", func(s *v1alpha1.SessionRequestStatus) { s.State = v1alpha1.RequestInProgress }, 1},
		{"a step", func(s *v1alpha1.SessionRequestStatus) { s.Step = v1alpha1.StepBegun }, 1},
		{"a count", func(s *v1alpha1.SessionRequestStatus) { s.CountedAt = &now }, 1},
		{"a time", func(s *v1alpha1.SessionRequestStatus) { s.UpdatedAt = &now }, 1},
		{"a condition", func(s *v1alpha1.SessionRequestStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionUnknown, Reason: "A"})
		}, 0},
	} {
		o, err := s.Get(t.Context(), api.KeyOf(rq))
		if err != nil {
			t.Fatal(err)
		}
		after := o.(*v1alpha1.SessionRequest).DeepCopy()
		c.edit(&after.Status)
		before := s.Stats().Durable
		if err := s.Update(t.Context(), o, after); err != nil {
			t.Fatal(err)
		}
		if got := s.Stats().Durable - before; got != c.want {
			t.Errorf("%s: %d durable writes, want %d", c.name, got, c.want)
		}
	}
}
