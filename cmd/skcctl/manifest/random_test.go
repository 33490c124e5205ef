package manifest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"skc.dev/skc/api/v1alpha1"
)

// writer makes documents in all the ways that people write them.
type writer struct{ *rand.Rand }

func (w writer) one(of ...string) string { return of[w.IntN(len(of))] }

// note is nothing, a blank line, or a comment.
func (w writer) note(indent string) string {
	return w.one("", "", "\n", indent+"# spec: desiredState: \"no\" 日本\n", "    # deeper\n")
}

func (w writer) end() string { return w.one("\n", "\n", " # why: {x}\n", "   \n") }

// block is a document in block style, with a random indentation.
func (w writer) block(name string) string {
	in := w.one("  ", " ", "    ")
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(fmt.Sprintf(format, args...) + w.end()) }
	spec := func() {
		line("%s:", w.one("spec", `"spec"`, "'spec'"))
		fields := []func(){
			func() { line("%s", in+"target: {plainDir: {path: \"/tmp/é: {,}\"}}") },
			func() {
				line(in+"command:%s", w.one(" [a, 'it''s', \"b\\\"c\"]", "\n"+in+"- a\n"+in+"- |\n"+in+in+"desiredState: Running\n"+in+in+"spec:", "\n"+in+"- a"))
			},
		}
		if w.IntN(2) == 0 {
			fields = append(fields, func() {
				line(in+"desiredState: %s", w.one("Running", "'Running'", `"Running"`, `"Runn\x69ng"`, "Stopped"))
			})
		}
		w.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		for _, f := range fields {
			b.WriteString(w.note(in))
			f()
		}
	}
	metadata := func() {
		if w.IntN(3) == 0 {
			line("metadata: %s", w.one("{name: "+name+"}", "{ annotations: {}, name: "+name+" }", "{name: "+name+", annotations: {a: 'b'}}"))
			return
		}
		line("metadata:")
		b.WriteString(w.note(in))
		line(in+"name: %s", name)
		b.WriteString(w.one("", in+"annotations:\n"+in+in+"a: b\n", in+"annotations: # none\n"+w.note(in)+in+in+"skc.dev/restartedAt: \"é\"\n", in+"annotations: {\n"+in+in+"a: b }\n", in+"labels: {a: b}\n"))
	}
	parts := []func(){spec, metadata, func() { line("kind: Session") }, func() { line("apiVersion: skc.dev/v1alpha1") }}
	w.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for _, p := range parts {
		b.WriteString(w.note(""))
		p()
	}
	return b.String()
}

// flow is a document in flow style or JSON, in one line or in several.
func (w writer) flow(name string) string {
	nl := w.one("", "\n", "\n\t", "\n    ")
	state := w.one("", `, "desiredState": "Running"`)
	annotations := w.one("", `, "annotations": {}`, `, "annotations": {`+nl+`"a": "b"}`)
	return "{" + nl + `"apiVersion": "skc.dev/v1alpha1",` + nl + `"kind":"Session", "metadata": {` + nl + `"name": "` + name + `"` + annotations + "}," + nl +
		`"spec":{` + nl + `"command": ["a", "}"], "target": {"plainDir": {"path": "/x"}}` + state + nl + "}}\n"
}

func (w writer) file() string {
	var b strings.Builder
	b.WriteString(w.one("", "", "\ufeff", "# top\n", "---\n", "# top\n--- # first\n"))
	for i := range 1 + w.IntN(4) {
		if i > 0 {
			b.WriteString(w.one("---\n", "--- # next\n", "---   \n", "...\n---\n", "---\n# alone\n---\n"))
		}
		if w.IntN(3) == 0 {
			b.WriteString(w.flow(fmt.Sprintf("s%d", i)))
		} else {
			b.WriteString(w.block(fmt.Sprintf("s%d", i)))
		}
	}
	text := b.String()
	if w.IntN(3) == 0 {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

// TestRandomEdits: in files of all shapes each edit is done, says what it should
// (Set, Remove and Replace compare it), and leaves all other bytes alone.
func TestRandomEdits(t *testing.T) {
	parsed, edits, refused := 0, 0, 0
	for seed := range uint64(100) {
		w := writer{rand.New(rand.NewPCG(seed, 1))}
		text := w.file()
		f, err := Parse("x.yaml", []byte(text))
		if err != nil {
			continue // a tab or a wrong indentation in an unlucky place
		}
		parsed++
		i := w.IntN(len(f.Docs))
		for _, path := range [][]string{{"spec", "desiredState"}, {"metadata", "annotations", v1alpha1.RestartedAtAnnotation}} {
			edits++
			value := w.one("Stopped", "Running")
			next, err := f.Set(i, value, path...)
			if err != nil {
				refused++
				t.Logf("seed %d: %v", seed, err)
				continue
			}
			outside(t, f, next, i)
			if again, err := next.Set(i, value, path...); err != nil || !bytes.Equal(again.Data, next.Data) {
				t.Errorf("seed %d: a second Set of %v: %v\n%s\nbecame\n%s", seed, path, err, next.Data, again.Data)
			}
			// Nothing is taken away: what was there is there, in its order.
			if !strings.Contains(text, "desiredState") && path[0] == "spec" && !contains(next.Data, f.Data) {
				t.Errorf("seed %d: bytes were lost:\n%s\nbecame\n%s", seed, f.Data, next.Data)
			}
		}
		if _, err := f.Remove(i); err != nil {
			t.Errorf("seed %d: remove: %v\n%s", seed, err, text)
		}
		from, err := Parse("y.yaml", []byte(strings.Replace(doc("x"), "name: x", "name: "+f.Docs[i].Object.GetName(), 1)))
		if err != nil {
			t.Fatal(err)
		}
		if next, err := f.Replace(i, from, 0); err != nil {
			t.Errorf("seed %d: replace: %v\n%s", seed, err, text)
		} else {
			outside(t, f, next, i)
		}
	}
	if parsed < 80 || refused*100 > edits {
		t.Errorf("%d of 100 files were good, %d of %d edits were refused", parsed, refused, edits)
	}
}

// contains tells whether all bytes of old are in data in their order.
func contains(data, old []byte) bool {
	for _, c := range data {
		if len(old) > 0 && old[0] == c {
			old = old[1:]
		}
	}
	return len(old) == 0
}
