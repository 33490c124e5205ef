// Package storetest is the contract of a store, run against each one there is.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
)

// Store is what the contract speaks of: what reconcilers use, what a source of
// desired state uses, and who is told.
type Store interface {
	store.Objects
	Apply(ctx context.Context, d store.Desired) error
	SetAccepted(ctx context.Context, key api.Key, c metav1.Condition) error
	Remove(ctx context.Context, key api.Key, from store.Source) error
	Sources(ctx context.Context) (map[api.Key]store.Source, error)
	OnChange(f func(api.Key))
	OnStatus(f func(api.Key))
	OnGone(f func(api.Key))
}

// Source is where Desired says that its objects are defined.
var Source = store.Source{Root: "/spool", File: "/spool/web.yaml", Document: 0}

// Key is the key of a session in the default namespace.
func Key(name string) api.Key {
	return api.Key{Kind: v1alpha1.KindSession, Namespace: v1alpha1.DefaultNamespace, Name: name}
}

// Desired is a session with a command, as the spool hands it over.
func Desired(name string, command ...string) store.Desired {
	spec := map[string]any{
		"target":  map[string]any{"existingPath": map[string]any{"path": "/"}},
		"command": append([]string{}, command...),
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		panic(err) // strings only
	}
	s := &v1alpha1.Session{Spec: v1alpha1.SessionSpec{
		Target:        v1alpha1.SessionTarget{ExistingPath: &v1alpha1.PathTarget{Path: "/"}},
		Command:       command,
		DesiredState:  v1alpha1.DesiredRunning,
		RestartPolicy: v1alpha1.RestartOnFailure,
	}}
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.KindSession))
	s.Name, s.Namespace = name, v1alpha1.DefaultNamespace
	return store.Desired{Object: s, RawSpec: raw, Source: Source}
}

// Profile is a profile with a command, as the spool hands it over.
func Profile(name string, command ...v1alpha1.ArgTemplate) store.Desired {
	p := &v1alpha1.AgentProfile{Spec: v1alpha1.AgentProfileSpec{Command: command}}
	raw, err := json.Marshal(map[string]any{"command": command})
	if err != nil {
		panic(err) // strings only
	}
	p.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.KindAgentProfile))
	p.Name = name
	return store.Desired{Object: p, RawSpec: raw, Source: Source}
}

// world is one store and what it told.
type world struct {
	Store
	t *testing.T

	mu      sync.Mutex
	changed []string
	gone    []string
}

func newWorld(t *testing.T, s Store) *world {
	w := &world{Store: s, t: t}
	s.OnChange(func(k api.Key) {
		_, _ = s.Get(context.Background(), k) // it is not called under a lock
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed = append(w.changed, k.Name)
	})
	s.OnGone(func(k api.Key) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.gone = append(w.gone, k.Name)
	})
	return w
}

func (w *world) apply(d store.Desired) *v1alpha1.Session {
	w.t.Helper()
	must(w.t, w.Apply(w.t.Context(), d))
	return w.get(d.Object.GetName())
}

func (w *world) get(name string) *v1alpha1.Session {
	w.t.Helper()
	o, err := w.Get(w.t.Context(), Key(name))
	must(w.t, err)
	return o.(*v1alpha1.Session)
}

// update changes a session as a reconciler does.
func (w *world) update(name string, change func(*v1alpha1.Session)) *v1alpha1.Session {
	w.t.Helper()
	before := w.get(name)
	after := before.DeepCopy()
	change(after)
	must(w.t, w.Update(w.t.Context(), before, after))
	return after
}

// told is whose changes were told since the last call.
func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.changed
	w.changed = nil
	return out
}

func (w *world) wantTold(why string, want ...string) {
	w.t.Helper()
	if got := w.told(); !slices.Equal(got, want) {
		w.t.Errorf("changes told after %s = %v, want %v", why, got, want)
	}
}

func (w *world) wantErr(what string, err, want error) {
	w.t.Helper()
	if !errors.Is(err, want) {
		w.t.Errorf("%s = %v, want an error matching %q", what, err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Conform is what reconcilers and sources may assume of a store.
func Conform(t *testing.T, newStore func(t *testing.T) Store) {
	run := func(name string, f func(t *testing.T, w *world)) {
		t.Run(name, func(t *testing.T) { f(t, newWorld(t, newStore(t))) })
	}

	run("what is not there is not found", func(t *testing.T, w *world) {
		_, err := w.Get(t.Context(), Key("web"))
		w.wantErr("Get", err, effects.ErrNotFound)
		s := Desired("web", "true").Object.(*v1alpha1.Session)
		after := s.DeepCopy()
		after.Status.ObservedGeneration = 1
		w.wantErr("Update", w.Update(t.Context(), s, after), effects.ErrNotFound)
		w.wantErr("SetAccepted", w.SetAccepted(t.Context(), Key("web"), metav1.Condition{Status: metav1.ConditionTrue}), effects.ErrNotFound)
		must(t, w.Remove(t.Context(), Key("web"), Source))
		list, err := w.List(t.Context(), v1alpha1.KindSession)
		must(t, err)
		if len(list) != 0 {
			t.Errorf("List = %v, want none", list)
		}
		w.wantTold("nothing")
	})

	run("a new object has its identity and no status", func(t *testing.T, w *world) {
		d := Desired("web", "sleep", "60")
		d.Object.SetLabels(map[string]string{"team": "web"})
		d.Object.(*v1alpha1.Session).Status.ObservedGeneration = 7
		s := w.apply(d)
		if len(s.UID) != 36 || s.Generation != 1 || s.ResourceVersion == "" || s.CreationTimestamp.IsZero() {
			t.Errorf("metadata = %+v, want a UID, generation 1, a resource version, a creation time", s.ObjectMeta)
		}
		if diff := cmp.Diff(v1alpha1.SessionStatus{}, s.Status); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		if api.KeyOf(s) != Key("web") || s.APIVersion != v1alpha1.GroupVersion.String() || s.Labels["team"] != "web" {
			t.Errorf("object = %+v", s)
		}
		if got := s.Annotations[v1alpha1.SourceFileAnnotation]; got != Source.File {
			t.Errorf("source annotation = %q, want %q", got, Source.File)
		}
		w.wantTold("the first Apply", "web")
		other := w.apply(Desired("api", "true"))
		if other.UID == s.UID {
			t.Error("two objects have one UID")
		}
		list, err := store.For[*v1alpha1.Session](w, v1alpha1.KindSession).List(t.Context())
		must(t, err)
		if len(list) != 2 || list[0].Name != "api" || list[1].Name != "web" {
			t.Errorf("List = %v, want api, web", list)
		}
		sources, err := w.Sources(t.Context())
		must(t, err)
		if sources[Key("web")] != Source || len(sources) != 2 {
			t.Errorf("Sources = %v", sources)
		}
	})

	run("copies are private", func(t *testing.T, w *world) {
		d := Desired("web", "sleep", "60")
		d.Object.SetLabels(map[string]string{"a": "1"})
		w.apply(d)
		d.Object.(*v1alpha1.Session).Spec.Command[0] = "changed by the caller"
		d.Object.GetLabels()["a"] = "2"
		w.get("web").Spec.Command[0] = "changed by a reader"
		w.get("web").Annotations[v1alpha1.SourceFileAnnotation] = "changed by a reader"
		after := w.update("web", func(s *v1alpha1.Session) {
			s.Status.Conditions = []metav1.Condition{{Type: "Ready", Message: "good"}}
		})
		after.Status.Conditions[0].Message = "changed by the updater"
		list, err := w.List(t.Context(), v1alpha1.KindSession)
		must(t, err)
		list[0].SetLabels(map[string]string{"a": "3"})
		s := w.get("web")
		if s.Spec.Command[0] != "sleep" || s.Labels["a"] != "1" || s.Status.Conditions[0].Message != "good" || s.Annotations[v1alpha1.SourceFileAnnotation] != Source.File {
			t.Errorf("the stored object changed from outside: %+v", s)
		}
	})

	run("generation counts changes of the spec only", func(t *testing.T, w *world) {
		first := w.apply(Desired("web", "a"))
		w.told()
		if s := w.apply(Desired("web", "a")); s.ResourceVersion != first.ResourceVersion {
			t.Errorf("an equal Apply changed the resource version %s to %s", first.ResourceVersion, s.ResourceVersion)
		}
		w.wantTold("an equal Apply")
		s := w.apply(Desired("web", "b"))
		if s.Generation != 2 || s.UID != first.UID || s.ResourceVersion == first.ResourceVersion || s.Spec.Command[0] != "b" || !s.CreationTimestamp.Equal(&first.CreationTimestamp) {
			t.Errorf("after a change of the spec: %+v", s)
		}
		w.wantTold("a change of the spec", "web")
		d := Desired("web", "b")
		d.Object.SetLabels(map[string]string{"a": "1"})
		d.Object.SetAnnotations(map[string]string{"b": "2", v1alpha1.SourceFileAnnotation: "/forged"})
		labelled := w.apply(d)
		if labelled.Generation != 2 || labelled.Labels["a"] != "1" || labelled.Annotations["b"] != "2" || labelled.ResourceVersion == s.ResourceVersion {
			t.Errorf("after a change of labels and annotations: %+v", labelled.ObjectMeta)
		}
		if got := labelled.Annotations[v1alpha1.SourceFileAnnotation]; got != Source.File {
			t.Errorf("a file set the source annotation to %q", got)
		}
		w.wantTold("a change of labels and annotations", "web")
		if s := w.apply(Desired("web", "b")); len(s.Labels) != 0 || s.Annotations["b"] != "" {
			t.Errorf("labels and annotations that were taken out are there: %+v", s.ObjectMeta)
		}
		w.told()
		d = Desired("web", "b")
		d.Source.File = "/spool/other.yaml"
		if s := w.apply(d); s.Generation != 2 || s.Annotations[v1alpha1.SourceFileAnnotation] != d.Source.File {
			t.Errorf("after a move of the file: %+v", s.ObjectMeta)
		}
	})

	run("an update stores status and finalizers and nothing else", func(t *testing.T, w *world) {
		before := w.apply(Desired("web", "a"))
		w.told()
		after := w.update("web", func(s *v1alpha1.Session) {
			s.Spec.Command = []string{"changed"}
			s.Labels = map[string]string{"changed": "yes"}
			s.Annotations = nil
			s.Generation = 9
			s.Finalizers = []string{v1alpha1.SessionFinalizer}
			s.Status.ObservedGeneration = 1
			s.Status.Restarts.Total = 3
		})
		s := w.get("web")
		if s.Spec.Command[0] != "a" || len(s.Labels) != 0 || s.Generation != 1 || s.Annotations[v1alpha1.SourceFileAnnotation] == "" {
			t.Errorf("the update changed more than it may: %+v", s)
		}
		if !slices.Equal(s.Finalizers, []string{v1alpha1.SessionFinalizer}) || s.Status.ObservedGeneration != 1 || s.Status.Restarts.Total != 3 {
			t.Errorf("the update is not there: %+v", s)
		}
		if after.ResourceVersion != s.ResourceVersion || s.ResourceVersion == before.ResourceVersion {
			t.Errorf("resource versions: before %s, after %s, stored %s", before.ResourceVersion, after.ResourceVersion, s.ResourceVersion)
		}
		w.wantTold("an Update")
		if s := w.apply(Desired("web", "b")); s.Status.Restarts.Total != 3 || len(s.Finalizers) != 1 {
			t.Errorf("a change of the spec lost status or finalizers: %+v", s)
		}
	})

	run("an update without a change writes nothing", func(t *testing.T, w *world) {
		s := w.apply(Desired("web", "a"))
		after := w.update("web", func(*v1alpha1.Session) {})
		if got := w.get("web").ResourceVersion; got != s.ResourceVersion || after.ResourceVersion != s.ResourceVersion {
			t.Errorf("resource version = %s, after %s, want %s", got, after.ResourceVersion, s.ResourceVersion)
		}
	})

	run("an update of an old version is a conflict", func(t *testing.T, w *world) {
		old := w.apply(Desired("web", "a"))
		update := func() error {
			after := old.DeepCopy()
			after.Status.ObservedGeneration = 5
			return w.Update(t.Context(), old, after)
		}
		w.apply(Desired("web", "b"))
		w.wantErr("Update after a change of the spec", update(), effects.ErrConflict)
		old = w.get("web")
		w.update("web", func(s *v1alpha1.Session) { s.Status.ObservedGeneration = 2 })
		w.wantErr("Update after another one", update(), effects.ErrConflict)
		if got := w.get("web").Status.ObservedGeneration; got != 2 {
			t.Errorf("observedGeneration = %d, want 2", got)
		}
		old = w.get("web")
		must(t, w.Remove(t.Context(), Key("web"), Source))
		w.wantErr("Update when it is gone", update(), effects.ErrNotFound)
		w.apply(Desired("web", "b"))
		w.wantErr("Update of another object of that name", update(), effects.ErrConflict)
	})

	run("the last update of many at once wins nothing for the others", func(t *testing.T, w *world) {
		const writers, rounds = 8, 10
		w.apply(Desired("web", "a"))
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range rounds {
					for {
						o, err := w.Get(context.Background(), Key("web"))
						if err != nil {
							t.Error(err)
							return
						}
						after := o.DeepCopyObject().(*v1alpha1.Session)
						after.Status.ObservedGeneration++
						if err = w.Update(context.Background(), o, after); err == nil {
							break
						} else if !errors.Is(err, effects.ErrConflict) {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		if got := w.get("web").Status.ObservedGeneration; got != writers*rounds {
			t.Errorf("counted %d, want %d: an update was lost", got, writers*rounds)
		}
	})

	run("the source condition", func(t *testing.T, w *world) {
		w.apply(Desired("web", "a"))
		w.told()
		set := func(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
			must(t, w.SetAccepted(t.Context(), Key("web"), metav1.Condition{Type: "Other", Status: status, Reason: reason, Message: message}))
			return meta.FindStatusCondition(w.get("web").Status.Conditions, v1alpha1.SourceAccepted)
		}
		first := set(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "read")
		if first == nil || first.Status != metav1.ConditionTrue || first.ObservedGeneration != 1 || first.LastTransitionTime.IsZero() {
			t.Fatalf("condition = %+v", first)
		}
		w.wantTold("the first SetAccepted", "web")
		rv := w.get("web").ResourceVersion
		set(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "read")
		if got := w.get("web").ResourceVersion; got != rv {
			t.Error("an equal SetAccepted was stored")
		}
		w.wantTold("an equal SetAccepted")
		if c := set(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "read again"); c.Message != "read again" || !c.LastTransitionTime.Equal(&first.LastTransitionTime) {
			t.Errorf("after another message: %+v", c)
		}
		set(metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, "web.yaml:3: no")
		if s := w.get("web"); len(s.Status.Conditions) != 1 || s.Status.Conditions[0].Status != metav1.ConditionFalse || s.Generation != 1 {
			t.Errorf("after a refusal: %+v", s)
		}
	})

	run("the source condition comes with the object", func(t *testing.T, w *world) {
		d := Desired("web", "a")
		d.Accepted = &metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "read"}
		s := w.apply(d)
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceAccepted)
		if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != 1 {
			t.Fatalf("condition = %+v", c)
		}
		w.wantTold("the first Apply", "web")
		if again := w.apply(d); again.ResourceVersion != s.ResourceVersion {
			t.Error("an equal Apply was stored")
		}
		w.wantTold("an equal Apply")
		d = Desired("web", "b") // with nothing to say of the file
		if s := w.apply(d); s.Generation != 2 || len(s.Status.Conditions) != 1 {
			t.Errorf("after an Apply without a condition: %+v", s)
		}
		w.told()
		d.Accepted = &metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDuplicateObject, Message: "two files"}
		if s := w.apply(d); s.Generation != 2 || s.Status.Conditions[0].Status != metav1.ConditionFalse {
			t.Errorf("after an Apply with another condition: %+v", s)
		}
		w.wantTold("another condition", "web")
	})

	run("finalizers hold a deletion", func(t *testing.T, w *world) {
		w.apply(Desired("web", "a"))
		old := w.update("web", func(s *v1alpha1.Session) { s.Finalizers = []string{"one", "two"} })
		w.told()
		elsewhere := Source
		elsewhere.File = "/spool/other.yaml"
		w.wantErr("Remove by another file", w.Remove(t.Context(), Key("web"), elsewhere), effects.ErrConflict)
		must(t, w.Remove(t.Context(), Key("web"), Source))
		s := w.get("web")
		if s.DeletionTimestamp == nil || s.UID != old.UID {
			t.Fatalf("after Remove: %+v", s.ObjectMeta)
		}
		w.wantTold("Remove", "web")
		rv := s.ResourceVersion
		must(t, w.Remove(t.Context(), Key("web"), Source))
		if got := w.get("web").ResourceVersion; got != rv {
			t.Error("a second Remove was stored")
		}
		w.wantTold("a second Remove")
		w.wantErr("Apply during deletion", w.Apply(t.Context(), Desired("web", "b")), store.ErrTerminating)
		w.update("web", func(s *v1alpha1.Session) { s.Finalizers = []string{"two"} })
		w.update("web", func(s *v1alpha1.Session) { s.Status.ObservedGeneration = 1 })
		w.wantTold("updates during deletion")
		w.update("web", func(s *v1alpha1.Session) { s.Finalizers = nil })
		_, err := w.Get(t.Context(), Key("web"))
		w.wantErr("Get after the last finalizer", err, effects.ErrNotFound)
		w.wantTold("the last finalizer", "web")
		if !slices.Equal(w.gone, []string{"web"}) {
			t.Errorf("gone = %v, want web", w.gone)
		}
		if s := w.apply(Desired("web", "a")); s.UID == old.UID || s.DeletionTimestamp != nil || s.Generation != 1 || len(s.Finalizers) != 0 {
			t.Errorf("applied anew: %+v", s.ObjectMeta)
		}
	})

	run("an object without finalizers goes at once", func(t *testing.T, w *world) {
		w.apply(Desired("web", "a"))
		w.told()
		must(t, w.Remove(t.Context(), Key("web"), Source))
		_, err := w.Get(t.Context(), Key("web"))
		w.wantErr("Get after Remove", err, effects.ErrNotFound)
		w.wantTold("Remove", "web")
		if !slices.Equal(w.gone, []string{"web"}) {
			t.Errorf("gone = %v, want web", w.gone)
		}
	})

	run("it can be applied again when it is told to be gone", func(t *testing.T, w *world) {
		w.apply(Desired("web", "a"))
		again := make(chan error, 1)
		w.OnGone(func(api.Key) { again <- w.Apply(context.Background(), Desired("web", "b")) })
		must(t, w.Remove(t.Context(), Key("web"), Source))
		must(t, <-again)
		if s := w.get("web"); s.Spec.Command[0] != "b" {
			t.Errorf("command = %v", s.Spec.Command)
		}
	})

	run("an ended context changes nothing", func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w.wantErr("Apply", w.Apply(ctx, Desired("web", "a")), context.Canceled)
		_, err := w.Get(t.Context(), Key("web"))
		w.wantErr("Get", err, effects.ErrNotFound)
	})

	run("keys that climb are refused", func(t *testing.T, w *world) {
		for _, name := range []string{"..", "../x", "a/b", "", ".hidden", "a\x00b"} {
			if err := w.Apply(t.Context(), Desired(name, "a")); err == nil {
				t.Errorf("Apply of the name %q succeeded", name)
			}
		}
	})

	run("an object of a kind without namespaces", func(t *testing.T, w *world) {
		key := api.Key{Kind: v1alpha1.KindAgentProfile, Name: "bot"}
		d := Profile("bot", "bot")
		must(t, w.Apply(t.Context(), d))
		w.apply(Desired("bot", "sleep")) // the name is another kind's too
		o, err := w.Get(t.Context(), key)
		must(t, err)
		if api.KeyOf(o) != key || o.GetUID() == "" || o.GetGeneration() != 1 {
			t.Errorf("Get returned %s, uid %q, generation %d", api.KeyOf(o), o.GetUID(), o.GetGeneration())
		}
		must(t, w.SetAccepted(t.Context(), key, metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}))
		must(t, w.Apply(t.Context(), Profile("bot", "bot", "--new")))
		list, err := store.For[*v1alpha1.AgentProfile](w, v1alpha1.KindAgentProfile).List(t.Context())
		must(t, err)
		if len(list) != 1 || list[0].UID != o.GetUID() || list[0].Generation != 2 || len(list[0].Spec.Command) != 2 || len(list[0].Status.Conditions) != 1 {
			t.Errorf("List returned %+v", list)
		}
		sources, err := w.Sources(t.Context())
		must(t, err)
		if sources[key] != d.Source {
			t.Errorf("the source is %+v", sources[key])
		}
		astray := Profile("astray", "bot")
		astray.Object.SetNamespace(v1alpha1.DefaultNamespace)
		if err := w.Apply(t.Context(), astray); err == nil {
			t.Error("Apply took a namespace for a kind that has none")
		}
		homeless := Desired("homeless", "sleep")
		homeless.Object.SetNamespace("")
		if err := w.Apply(t.Context(), homeless); err == nil {
			t.Error("Apply took a session without a namespace")
		}
		must(t, w.Remove(t.Context(), key, d.Source))
		if _, err := w.Get(t.Context(), key); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("Get after Remove = %v", err)
		}
		w.get("bot")
	})

	run("a stored status is told to those who wait for it", func(t *testing.T, w *world) {
		var told []string
		w.OnStatus(func(k api.Key) {
			_, _ = w.Get(t.Context(), k) // it is not called under a lock
			told = append(told, k.Name)
		})
		s := w.apply(Desired("web", "a"))
		must(t, w.Update(t.Context(), s, s.DeepCopy()))
		stale := s.DeepCopy()
		w.update("web", func(s *v1alpha1.Session) { s.Status.ObservedGeneration = 1 })
		after := stale.DeepCopy()
		after.Status.ObservedGeneration = 7
		w.wantErr("Update", w.Update(t.Context(), stale, after), effects.ErrConflict)
		w.update("web", func(s *v1alpha1.Session) { s.Finalizers = []string{"a"} })
		must(t, w.Remove(t.Context(), Key("web"), Source))
		w.update("web", func(s *v1alpha1.Session) { s.Finalizers = nil })
		if want := []string{"web", "web"}; !slices.Equal(told, want) {
			t.Errorf("statuses told = %v, want %v: one a stored update, and none for what is gone", told, want)
		}
	})

	run("objects do not wait for each other", func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if err := w.Apply(context.Background(), Desired(fmt.Sprintf("s%d", i), "a")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		list, err := w.List(t.Context(), v1alpha1.KindSession)
		must(t, err)
		if len(list) != 20 || len(w.told()) != 20 {
			t.Errorf("%d objects, want 20, each told once", len(list))
		}
	})
}
