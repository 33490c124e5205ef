package spool

import (
	"fmt"
	"testing"

	"skc.dev/skc/api/v1alpha1"
)

func TestFilesBecomeObjects(t *testing.T) {
	w := newWorld(t)
	w.write("a.yaml", session("a", "1"))
	w.start()
	w.want(map[string]string{"a": "1"})
	w.wantReason("a", v1alpha1.ReasonAccepted, "")
	w.wantRoot(w.spool, RootReady, "")

	w.put("deep/er/b.yml", session("b", "1"))
	w.put("c.yaml", session("c", "1")+"---\n"+session("d", "1"))
	w.flush() // no time passes: what arrives by rename is read at once
	w.want(map[string]string{"a": "1", "b": "1", "c": "1", "d": "1"})

	w.write("a.yaml", session("a", "2"))
	w.settle()
	w.want(map[string]string{"a": "2", "b": "1", "c": "1", "d": "1"})
}

func TestRenamedOverManyTimes(t *testing.T) { // B-046
	w := newWorld(t)
	w.put("a.yaml", session("a", "first"))
	w.start()
	for i := range 1000 {
		w.put("a.yaml", session("a", fmt.Sprint(i)))
	}
	w.flush()
	w.settle()
	w.want(map[string]string{"a": "999"})
	w.put("a.yaml", session("a", "last"))
	w.flush()
	w.want(map[string]string{"a": "last"})
	if uid := w.sink.get("a").uid; uid != 1 {
		t.Errorf("the object was made %d times, want once", uid)
	}
}
