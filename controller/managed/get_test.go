package managed_test

import (
	"errors"
	"os"
	"testing"

	"skc.dev/skc/api"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
)

func TestGet(t *testing.T) {
	r := open(t, t.TempDir(), &files.Layer{})
	q := quarantine()
	key := api.KeyOf(q)
	if _, err := r.Get(t.Context(), key); !errors.Is(err, effects.ErrNotFound) {
		t.Fatalf("Get before Create = %v, want %v", err, effects.ErrNotFound)
	}
	must(t, r.Create(t.Context(), q))
	o, err := r.Get(t.Context(), key)
	if err != nil || api.KeyOf(o) != key {
		t.Fatalf("Get = %v, %v", o, err)
	}
	data, err := os.ReadFile(r.Path(key))
	must(t, err)
	must(t, os.WriteFile(r.Path(key), append(append(data, "---\n"...), data...), 0o600))
	if _, err := r.Get(t.Context(), key); err == nil || errors.Is(err, effects.ErrNotFound) {
		t.Fatalf("Get of a file that holds more = %v", err)
	}
}
