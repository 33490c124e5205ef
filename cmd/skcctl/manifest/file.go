// Package manifest edits the documents of one spool file: puts one in the place
// of another, takes one out, sets one field or takes it out. Every byte outside
// the edit stays as it was. Each edit is read back by the decoder that the spool
// uses and compared with what it should have become; one that would mean
// anything else is refused. It touches no disk.
package manifest

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
)

// File is one spool file as it was read, or as an edit makes it. It is a
// value: edits return another one.
type File struct {
	Path string
	Data []byte
	Docs []v1alpha1.Decoded // in the order of the file; none in an empty file
}

// Parse decodes a file, or returns the error that the spool would report.
func Parse(path string, data []byte) (File, error) {
	docs, err := v1alpha1.Decode(path, data)
	if err != nil {
		return File{}, err
	}
	return File{path, data, docs}, nil
}

// Find is the index of the document that defines key, or -1.
func (f File) Find(key api.Key) int {
	return slices.IndexFunc(f.Docs, func(d v1alpha1.Decoded) bool { return api.KeyOf(d.Object) == key })
}

// Document is the bytes of document i.
func (f File) Document(i int) []byte { return f.Data[f.Docs[i].Start:f.Docs[i].End] }

// Same tells whether two documents say the same of an object: comments, the
// order of keys, the style, and defaults that are not written do not count.
func Same(a, b v1alpha1.Decoded) bool {
	return bytes.Equal(a.RawSpec, b.RawSpec) && api.KeyOf(a.Object) == api.KeyOf(b.Object) &&
		maps.Equal(a.Object.GetLabels(), b.Object.GetLabels()) &&
		maps.Equal(a.Object.GetAnnotations(), b.Object.GetAnnotations())
}

// Replace puts document j of from in the place of document i.
func (f File) Replace(i int, from File, j int) (File, error) {
	doc := from.Document(j)
	start, end := f.Docs[i].Start, f.Docs[i].End
	if start > 0 && f.Data[start-1] == '-' && !bytes.HasPrefix(doc, []byte(" ")) { // behind "---" on one line
		doc = append([]byte{'\n'}, doc...)
	}
	switch {
	case end == len(f.Data):
	case f.Data[end] == '\n': // that of a document on the marker's line is the marker's
		doc = bytes.TrimSuffix(doc, []byte("\n"))
	case !bytes.HasSuffix(doc, []byte("\n")): // a separator follows
		doc = append(slices.Clone(doc), '\n')
	}
	next, err := f.with(start, end, doc)
	if err != nil {
		return File{}, err
	}
	want := slices.Clone(f.Docs)
	want[i] = from.Docs[j]
	return next, f.check(next, want, i)
}

// Remove takes document i out, with the separator that is then too much. A
// file that had no other has no documents then.
func (f File) Remove(i int) (File, error) {
	start, end := f.Docs[i].Start, f.Docs[i].End
	if before := bytes.LastIndexByte(f.Data[:max(start-1, 0)], '\n') + 1; bytes.HasPrefix(f.Data[before:start], []byte("---")) {
		start = before                                              // its own marker, which may have a comment about it
		if f.Data[f.Docs[i].Start-1] != '\n' && end < len(f.Data) { // on the marker's line, which ends behind it
			end++
		}
	} else if line, _, _ := bytes.Cut(f.Data[end:], []byte("\n")); string(bytes.TrimRight(line, " \t\r")) == "---" {
		end = min(end+len(line)+1, len(f.Data))
	}
	next, err := f.with(start, end, nil)
	if err != nil {
		return File{}, err
	}
	return next, f.check(next, slices.Delete(slices.Clone(f.Docs), i, i+1), -1)
}

// Set gives the field at path of document i a value, a string or a bool.
func (f File) Set(i int, value any, path ...string) (File, error) {
	doc, err := set(f.Document(i), path, value)
	return f.edited(i, doc, err, "set "+strings.Join(path, "."), func(m map[string]any) error {
		return setNested(m, value, path)
	})
}

// Unset takes the field at path of document i out, which holds a string or a
// bool. One that is not there is a success.
func (f File) Unset(i int, path ...string) (File, error) {
	doc, err := unset(f.Document(i), path)
	return f.edited(i, doc, err, "unset "+strings.Join(path, "."), func(m map[string]any) error {
		unstructured.RemoveNestedField(m, path...)
		return nil
	})
}

// edited is the file with doc as document i, if that says what edit makes of
// what the old one says.
func (f File) edited(i int, doc []byte, err error, what string, edit func(map[string]any) error) (File, error) {
	if err != nil {
		return File{}, fmt.Errorf("%s:%d: %s: %w", f.Path, f.Docs[i].Line, what, err)
	}
	var was, is map[string]any
	if yaml.Unmarshal(f.Document(i), &was) != nil || yaml.Unmarshal(doc, &is) != nil ||
		edit(was) != nil || !reflect.DeepEqual(was, is) {
		return File{}, fmt.Errorf("%s:%d: %s: %w", f.Path, f.Docs[i].Line, what, ErrByHand)
	}
	next, err := f.with(f.Docs[i].Start, f.Docs[i].End, doc)
	if err != nil {
		return File{}, err
	}
	want := slices.Clone(f.Docs)
	if len(next.Docs) == len(want) {
		want[i] = next.Docs[i] // compared above, as a whole
	}
	return next, f.check(next, want, i)
}

// setNested is unstructured.SetNestedField that takes a null for an empty
// mapping.
func setNested(m map[string]any, value any, path []string) error {
	for i := 1; i < len(path); i++ {
		if v, found, _ := unstructured.NestedFieldNoCopy(m, path[:i]...); found && v == nil {
			unstructured.RemoveNestedField(m, path[:i]...)
		}
	}
	return unstructured.SetNestedField(m, value, path...)
}

// with is the file with data[start:end] replaced.
func (f File) with(start, end int, text []byte) (File, error) {
	next, err := Parse(f.Path, splice(f.Data, start, end, string(text)))
	if err != nil { // the new document is good alone, so it is the place that does not take it
		return File{}, fmt.Errorf("%s:%d: %w: it would read: %s", f.Path, 1+bytes.Count(f.Data[:start], []byte("\n")), ErrByHand, err)
	}
	return next, nil
}

// check compares an edited file with what it should say now. The bytes of all
// documents but number edited must be the old ones.
func (f File) check(next File, want []v1alpha1.Decoded, edited int) error {
	refuse := func(what string) error {
		return fmt.Errorf("%s: %w: the edit would change %s", f.Path, ErrByHand, what)
	}
	if len(next.Docs) != len(want) {
		return refuse("the number of documents")
	}
	for i, w := range want {
		if !Same(w, next.Docs[i]) {
			return refuse(api.KeyOf(w.Object).String())
		}
		if i != edited && !bytes.Equal(f.Data[w.Start:w.End], next.Document(i)) {
			return refuse("the text of " + api.KeyOf(w.Object).String())
		}
	}
	return nil
}

// Says tells whether document i writes the field at path, null too.
func (f File) Says(i int, path ...string) bool {
	var m map[string]any
	if yaml.Unmarshal(f.Document(i), &m) != nil {
		return false
	}
	_, found, _ := unstructured.NestedFieldNoCopy(m, path...)
	return found
}
