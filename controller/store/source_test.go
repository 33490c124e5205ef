package store_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/controller/store/storetest"
)

var (
	isAccepted = metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "read"}
	isRefused  = metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidSpec, Message: "no"}
)

// digested is what the spool applies of a good file.
func digested(digest string, command ...string) store.Desired {
	d := storetest.Desired("web", command...)
	d.Source.Digest, d.Source.Documents, d.Accepted = digest, 3, &isAccepted
	return d
}

// TestDigest: after a restart a digest is known if, and only if, the object is
// as the file of that digest asks for.
func TestDigest(t *testing.T) {
	accept := func(c metav1.Condition) func(*testing.T, *store.Store) {
		return func(t *testing.T, s *store.Store) {
			if err := s.SetAccepted(t.Context(), storetest.Key("web"), c); err != nil {
				t.Fatal(err)
			}
		}
	}
	observe := func(t *testing.T, s *store.Store) {
		update(t, s, "web", func(o *v1alpha1.Session) { o.Status.ObservedGeneration += 7 })
	}
	say := func(d store.Desired) func(*testing.T, *store.Store) {
		return func(t *testing.T, s *store.Store) { apply(t, s, d) }
	}
	renewed := digested("2", "a")
	renewed.Renew = true
	silent := digested("2", "b")
	silent.Accepted = nil
	refused := digested("2", "a")
	refused.Accepted, refused.Renew = &isRefused, true
	elsewhere := digested("2", "a")
	elsewhere.Source.Document = 1
	for _, c := range []struct {
		name   string
		do     []func(*testing.T, *store.Store)
		want   string // digest after a restart
		writes int64
	}{
		{"applied", nil, "1", 0},
		{"an update keeps it", []func(*testing.T, *store.Store){observe}, "1", 1},
		{"a refused file has none", []func(*testing.T, *store.Store){accept(isRefused)}, "", 1},
		{"nor has it later", []func(*testing.T, *store.Store){accept(isRefused), observe}, "", 2},
		{"it is back when the file is", []func(*testing.T, *store.Store){accept(isRefused), accept(isAccepted)}, "1", 2},
		{"another spec brings its own", []func(*testing.T, *store.Store){say(digested("2", "b"))}, "2", 1},
		{"another place does", []func(*testing.T, *store.Store){say(elsewhere)}, "2", 1},
		{"a spec of which nothing is said has none", []func(*testing.T, *store.Store){say(silent)}, "", 1},
		{"a reformatted file costs no write", []func(*testing.T, *store.Store){say(digested("2", "a"))}, "1", 0},
		{"its digest comes with the next", []func(*testing.T, *store.Store){say(digested("2", "a")), observe}, "2", 1},
		{"or when it is asked for", []func(*testing.T, *store.Store){say(renewed), say(renewed)}, "2", 1},
		{"but not of a refused one", []func(*testing.T, *store.Store){accept(isRefused), say(refused), say(refused)}, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir() + "/objects"
			s := open(t, dir)
			apply(t, s, digested("1", "a"))
			before := s.Stats()
			for _, do := range c.do {
				do(t, s)
			}
			if n := s.Stats().Writes - before.Writes; n != c.writes {
				t.Errorf("%d writes, want %d", n, c.writes)
			}
			sources, err := open(t, dir).Sources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			documents := 0
			if c.want != "" {
				documents = 3
			}
			if got := sources[storetest.Key("web")]; got.Digest != c.want || got.Documents != documents || got.File != storetest.Source.File {
				t.Errorf("source after a restart = %+v, want digest %q", got, c.want)
			}
		})
	}
}

// What is left of a damaged file is not what its source asks for.
func TestRecoveredHasNoDigest(t *testing.T) {
	dir := t.TempDir() + "/objects"
	apply(t, open(t, dir), digested("1", "a"))
	whole := show(t, statePath(dir, "web"))
	if !strings.Contains(whole, "digest:") {
		t.Fatalf("no digest in %s", whole)
	}
	write(t, statePath(dir, "web"), whole[:strings.Index(whole, "\nspec:")+4])
	for range 2 { // recovered, and read again
		sources, err := open(t, dir).Sources(t.Context())
		if err != nil || sources[storetest.Key("web")] != storetest.Source {
			t.Errorf("Sources = %v, %v; want no digest", sources, err)
		}
	}
}
