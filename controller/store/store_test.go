package store_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"skc.dev/skc/controller/store"
	"skc.dev/skc/controller/store/storetest"
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
