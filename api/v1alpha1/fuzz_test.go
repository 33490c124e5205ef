package v1alpha1

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api"
)

// corpus is the samples, the cases of the bug log, and a few of our own.
func corpus(t testing.TB) [][]byte {
	t.Helper()
	all := [][]byte{
		[]byte(good),
		[]byte(goodProfile),
		[]byte(withEnv("{name: B, valueFrom: {file: ~/.token}}") + "  readiness: {http: {port: 80}}\n  terminal: {columns: 80}\n"),
		[]byte(`{"apiVersion":"skc.dev/v1alpha1","kind":"Session","metadata":{"name":"j"},"spec":{"command":["\ud83d\ude00"],"target":{"existingPath":{"path":"/"}}}}`),
	}
	for _, glob := range []string{"../../config/samples/*.yaml", "testdata/cases/*/*.yaml"} {
		files, err := filepath.Glob(glob)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files (%v)", glob, err)
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data)
		}
	}
	return all
}

// sound checks what holds for every input, good or bad.
func sound(t *testing.T, data []byte) error {
	t.Helper()
	begin := time.Now()
	docs, err := Decode("f", data)
	if took := time.Since(begin); took > 10*time.Second {
		t.Fatalf("took %v", took)
	}
	again, errAgain := Decode("f", data)
	if fmt.Sprint(err) != fmt.Sprint(errAgain) || !cmp.Equal(docs, again) {
		t.Fatalf("decoded twice: %v and %v", err, errAgain)
	}
	if err != nil {
		e, ok := api.AsInvalidSpec(err)
		if !ok || len(e.Problems) == 0 || docs != nil {
			t.Fatalf("error %v, documents %v", err, docs)
		}
		lines := bytes.Count(data, []byte("\n")) + 1
		for _, p := range e.Problems {
			if p.Line > lines+bytes.Count(data, []byte("\r"))+bytes.Count(data, []byte("\u2028"))+bytes.Count(data, []byte("\u2029"))+bytes.Count(data, []byte("\u0085")) || p.Message == "" {
				t.Fatalf("problem %+v of %d lines", p, lines)
			}
		}
		return err
	}
	for _, d := range docs {
		o := d.Object
		alone, err := Decode("f", data[d.Start:d.End])
		if err != nil || len(alone) != 1 || !cmp.Equal(alone[0].Object, d.Object) || !bytes.Equal(alone[0].RawSpec, d.RawSpec) {
			t.Fatalf("the document alone is %v (%v), not %v", alone, err, d)
		}
		out, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		printed, err := Decode("f", out)
		if err != nil || len(printed) != 1 || !cmp.Equal(printed[0].Object, d.Object, cmpopts.EquateEmpty()) {
			t.Fatalf("printed and read again: %v\n%s", err, out)
		}
		if s, ok := o.(*Session); ok && printed[0].Object.(*Session).Spec.LaunchDigest() != s.Spec.LaunchDigest() {
			t.Fatal("the launch digest changed by printing")
		}
		// The server's own pruning finds nothing to take out.
		value, err := parseValue(jsonAsYAML(data[d.Start:d.End]))
		if err != nil {
			t.Fatal(err)
		}
		object := value.(map[string]any)
		delete(object, "status")
		if unknown := pruning.PruneWithOptions(object, kinds()[api.KeyOf(o).Kind].schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
			t.Fatalf("unknown fields accepted: %v", unknown)
		}
	}
	return nil
}

func FuzzDecode(f *testing.F) {
	for _, data := range corpus(f) {
		f.Add(data)
	}
	for _, s := range []string{"#", "-", "?", "{", "\xef\xbb\xbf", "\t", "\n", "---", "...", "%", "<<: *a", "&a *a", "|", ">-\n", "? a\n: b", "\"", "'", "!!str", "a: .inf", "\u2028---"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { _ = sound(t, data) })
}

// B-077: what is nearly right neither panics nor hangs nor is taken for something
// else, and what it says never holds the secret that stands beside the mistake.
func TestMutations(t *testing.T) {
	seeds := corpus(t)
	r := rand.New(rand.NewPCG(77, 1))
	tokens := []string{"#", "-", "?", "{", "}", "[", "]", ":", ": ", ",", "&a", "*a", "!", "|", ">", "'", "\"", "%", "@", "`", "\t", "\n", "\r", "\x00", "\xff", "\xef\xbb\xbf", "\u0085", "\u2028", "---\n", "...\n", "\n  ", "<<: ", "~", "null", "1e3", "010", ".inf", "\\"}
	accepted := 0
	for n := range 10000 {
		data := bytes.Clone(seeds[r.IntN(len(seeds))])
		for range 1 + r.IntN(3) {
			at := r.IntN(len(data) + 1)
			end := min(len(data), at+r.IntN(12))
			switch r.IntN(5) {
			case 0:
				data = append(data[:at:at], data[end:]...)
			case 1:
				data = append(data[:at:at], append([]byte(tokens[r.IntN(len(tokens))]), data[at:]...)...)
			case 2:
				data = append(data[:at:at], append([]byte(tokens[r.IntN(len(tokens))]), data[end:]...)...)
			case 3: // a piece twice
				data = append(data[:end:end], data[at:]...)
			case 4:
				if at < len(data) {
					data[at] ^= 1 << r.IntN(8)
				}
			}
		}
		_, err := Decode("f", data)
		if n%20 == 0 { // it decodes five times
			err = sound(t, data)
		}
		if err == nil {
			accepted++
		} else if strings.Contains(err.Error(), "CANARY") {
			t.Fatalf("mutation %d: the error holds a value: %v\n%s", n, err, data)
		}
	}
	if accepted == 0 || accepted == 10000 {
		t.Fatalf("%d of 10000 accepted: the mutations try nothing", accepted)
	}
}

// Inputs that make a careless reader slow: each was tried at its worst.
func TestDecodeIsNotSlow(t *testing.T) {
	fill := func(s string) string { return strings.Repeat(s, MaxFileBytes/4/len(s)) }
	for name, in := range map[string]string{
		"deep lists":         fill("["),
		"deep mappings":      fill("{a: "),
		"anchors":            "a: [" + fill("&a a,") + "]",
		"comments":           "a:\n" + fill("  #c\n  - b\n"),
		"infinities":         good + "  x: [" + fill(".inf,") + "]\n",
		"one name":           good + "  env:\n" + fill("  - {name: A, value: b}\n"),
		"one key":            "{" + fill("a: b,") + "}",
		"documents":          fill("a: b\n---\n"),
		"one object":         fill(good + "---\n"),
		"climbing":           head + "  target: {plainDir: {path: /" + fill("../") + "}}\n  command: [sh]\n",
		"repeats of repeats": good + "  readiness: {screen: {pattern: \"" + strings.Repeat("(a{1,1000}){1,1000}", 50) + "\"}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			if _, err := Decode("f", []byte(in)); err == nil {
				t.Error("accepted")
			}
			if took := time.Since(begin); took > 30*time.Second { // far above what a busy machine needs, below a square
				t.Errorf("took %v", took)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct{ name, in string }{
		{"small", good},
		{"usual", withEnv("{name: B, value: x}") + "  readiness: {tcp: {port: 80}, period: 2s}\n  stop: {signal: SIGINT}\n"},
		{"refused", withEnv("{name: B, value: 1}") + "  readines: {tcp: {port: 80}}\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			data := []byte(c.in)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Decode("f", data)
			}
		})
	}
}

func BenchmarkFromRecord(b *testing.B) {
	docs, err := Decode("f", []byte(good))
	if err != nil {
		b.Fatal(err)
	}
	record := append(append([]byte(`{"metadata":{"name":"web","namespace":"default","uid":"u"},"spec":`), docs[0].RawSpec...), '}')
	b.ReportAllocs()
	for b.Loop() {
		var doc map[string]any
		if err := yaml.Unmarshal(record, &doc); err != nil {
			b.Fatal(err)
		}
		if _, err := FromRecord(KindSession, doc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	k := kinds()[KindSession]
	definition, err := yaml.Marshal(k.crd)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		compile(definition, k.newObject)
	}
}
