package spool

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
)

// TestWithTheStore goes once through an object's life with the real store in
// the place of the fake.
func TestWithTheStore(t *testing.T) {
	w := newWorld(t)
	var st *store.Store
	open := func() {
		var err error
		st, err = store.Open(t.Context(), store.Options{
			Dir: filepath.Join(w.dir, "objects"), Files: w.layer, Clock: w.clock, Log: logr.Discard(),
		})
		must(t, err)
		w.options.Sink = st
	}
	get := func(name string) api.Object {
		t.Helper()
		o, err := st.Get(t.Context(), key(name))
		must(t, err)
		return o
	}
	reason := func(name string) string {
		t.Helper()
		c := meta.FindStatusCondition(get(name).GetConditions(), v1alpha1.SourceAccepted)
		if c == nil {
			return ""
		}
		return c.Reason
	}
	open()
	for i := range 20 {
		w.put(fmt.Sprintf("s%d.yaml", i), session(fmt.Sprint("s", i), "1"))
	}
	w.clock.Step(time.Hour)
	w.start()
	uid := get("s3").GetUID()
	if uid == "" || get("s3").GetGeneration() != 1 || reason("s3") != v1alpha1.ReasonAccepted {
		t.Fatalf("s3: uid %q generation %d %s", uid, get("s3").GetGeneration(), reason("s3"))
	}

	w.put("s3.yaml", "# reformatted\n"+session("s3", "1"))
	w.put("s4.yaml", "nonsense: [")
	w.put("s5.yaml", session("s5", "2"))
	w.put("z.yaml", session("s6", "2"))
	w.move("s7.yaml", "moved.yaml")
	w.remove("s8.yaml")
	w.pass(3 * time.Second)
	for _, c := range []struct {
		name, reason string
		generation   int64
	}{
		{"s3", v1alpha1.ReasonAccepted, 1},
		{"s4", v1alpha1.ReasonInvalidSpec, 1},
		{"s5", v1alpha1.ReasonAccepted, 2},
		{"s6", v1alpha1.ReasonDuplicateObject, 1},
		{"s7", v1alpha1.ReasonAccepted, 1},
	} {
		if o := get(c.name); o.GetGeneration() != c.generation || reason(c.name) != c.reason {
			t.Errorf("%s: generation %d %s, want %d %s", c.name, o.GetGeneration(), reason(c.name), c.generation, c.reason)
		}
	}
	if _, err := st.Get(t.Context(), key("s8")); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("s8 after its file is gone: %v, want ErrNotFound", err)
	}

	restart := func(why string, parses, stateFiles int64) {
		t.Helper()
		w.stop()
		open()
		syncs, writes := w.layer.Syncs(), w.layer.Writes()
		w.start()
		w.pass(10 * time.Second)
		if n := w.layer.Syncs() - syncs; n != 0 {
			t.Errorf("%s: synced %d files", why, n)
		}
		if n := st.Stats().Writes; n != stateFiles {
			t.Errorf("%s: wrote %d state files, want %d", why, n, stateFiles)
		}
		if n := w.layer.Writes() - writes; stateFiles == 0 && n != 0 {
			t.Errorf("%s: wrote %d files", why, n)
		}
		if n := w.s.Stats().Parses; n != parses {
			t.Errorf("%s: decoded %d files, want %d", why, n, parses)
		}
	}
	const bad = 3 // s4.yaml, and the two that define s6
	restart("a start after s3.yaml was reformatted", bad+1, 1)
	restart("a start with nothing to do", bad, 0)
	if got := reason("s6"); got != v1alpha1.ReasonDuplicateObject {
		t.Errorf("s6 is %s after a restart", got)
	}
	w.options.Version = "next"
	restart("a start with another version", 20, 17) // all but s8.yaml, and z.yaml; s4 and s6 are not accepted
	restart("a start after that", bad, 0)
	w.put("s4.yaml", session("s4", "1"))
	w.remove("z.yaml")
	w.pass(3 * time.Second)
	restart("a start with good files only", 0, 0)
	if got := get("s3").GetUID(); got != uid {
		t.Errorf("s3 has uid %s after a restart, want %s", got, uid)
	}

	// A finalizer holds the deletion; put back, it becomes a new object after it.
	o := get("s9")
	after, ok := o.DeepCopyObject().(api.Object)
	if !ok {
		t.Fatalf("%T is no object", o)
	}
	after.SetFinalizers([]string{"skc.dev/test"})
	must(t, st.Update(t.Context(), o, after))
	w.move("s9.yaml", "s9.away")
	w.pass(3 * time.Second)
	w.move("s9.away", "s9.yaml")
	w.pass(5 * time.Second)
	o = get("s9")
	if o.GetDeletionTimestamp() == nil {
		t.Fatal("s9 is not being deleted")
	}
	old := o.GetUID()
	after, _ = o.DeepCopyObject().(api.Object)
	after.SetFinalizers(nil)
	must(t, st.Update(t.Context(), o, after))
	w.pass(time.Second)
	if o = get("s9"); o.GetUID() == old || o.GetDeletionTimestamp() != nil {
		t.Errorf("s9 has uid %s (was %s), deletion %v; want a new object", o.GetUID(), old, o.GetDeletionTimestamp())
	}
	if bytes.Equal([]byte(old), []byte(uid)) {
		t.Error("two objects with one uid")
	}
}

// An object of a kind without namespaces lives as others do: read, changed,
// known by its file's new name, refused with a namespace, and gone with its file,
// also over a restart.
func TestClusterScopeWithTheStore(t *testing.T) {
	w := newWorld(t)
	key := api.Key{Kind: v1alpha1.KindAgentProfile, Name: "s1"} // a session has that name too
	profile := func(command, more string) string {
		return "apiVersion: skc.dev/v1alpha1\nkind: AgentProfile\nmetadata: {name: s1" + more + "}\nspec: {command: [" + command + "]}\n"
	}
	var st *store.Store
	open := func() {
		var err error
		st, err = store.Open(t.Context(), store.Options{
			Dir: filepath.Join(w.dir, "objects"), Files: w.layer, Clock: w.clock, Log: logr.Discard(),
		})
		must(t, err)
		w.options.Sink = st
	}
	check := func(why string, generation int64, reason string, uid types.UID) types.UID {
		t.Helper()
		o, err := st.Get(t.Context(), key)
		must(t, err)
		c := meta.FindStatusCondition(o.GetConditions(), v1alpha1.SourceAccepted)
		if o.GetGeneration() != generation || c == nil || c.Reason != reason || uid != "" && o.GetUID() != uid {
			t.Errorf("%s: generation %d, uid %s, %+v; want %d, %s, %s", why, o.GetGeneration(), o.GetUID(), c, generation, uid, reason)
		}
		return o.GetUID()
	}
	open()
	w.put("a.yaml", profile("bot", "")+"---\n"+session("s1", "1"))
	w.clock.Step(time.Hour)
	w.start()
	uid := check("new", 1, v1alpha1.ReasonAccepted, "")
	w.put("a.yaml", profile("bot, --new", "")+"---\n"+session("s1", "1"))
	w.pass(time.Second)
	check("changed", 2, v1alpha1.ReasonAccepted, uid)
	w.move("a.yaml", "b.yaml")
	w.pass(3 * time.Second)
	check("renamed", 2, v1alpha1.ReasonAccepted, uid)
	w.put("b.yaml", profile("bot", ", namespace: default"))
	w.pass(3 * time.Second)
	check("with a namespace", 2, v1alpha1.ReasonInvalidSpec, uid)
	w.put("b.yaml", profile("bot", ""))
	w.pass(3 * time.Second)
	check("without", 3, v1alpha1.ReasonAccepted, uid)
	w.stop()
	open()
	w.start()
	check("after a restart", 3, v1alpha1.ReasonAccepted, uid)
	w.remove("b.yaml")
	w.pass(3 * time.Second)
	if _, err := st.Get(t.Context(), key); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("after its file is gone: %v", err)
	}
}
