package store_test

import (
	"slices"
	"testing"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store/storetest"
)

// What there is is told before anything of it is decoded, also after a start.
func TestKeys(t *testing.T) {
	dir := t.TempDir() + "/objects"
	s := open(t, dir)
	if got := s.Keys(v1alpha1.KindSession); len(got) != 0 {
		t.Fatalf("Keys of an empty store = %v", got)
	}
	apply(t, s, storetest.Desired("web", "sleep"))
	for name, s := range map[string]interface{ Keys(kind string) []api.Key }{
		"the store that made it": s, "one that found it": open(t, dir),
	} {
		if got := s.Keys(v1alpha1.KindSession); !slices.Equal(got, []api.Key{storetest.Key("web")}) {
			t.Errorf("%s: Keys = %v, want web", name, got)
		}
		if got := s.Keys("Quarantine"); len(got) != 0 {
			t.Errorf("%s: Keys of another kind = %v", name, got)
		}
	}
}
