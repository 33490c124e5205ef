package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects/files"
)

// stateVersion is the version of the state file's layout, in its first line. A
// newer skc that changes the layout raises it and keeps the first line.
const stateVersion = 1

// ErrNewerState is matched when a state file was written by a newer skc.
var ErrNewerState = errors.New("written by a newer skc")

// errDamaged is matched when a state file is not whole: cut, emptied, or
// changed by something that is not skc.
var errDamaged = errors.New("damaged state file")

// Source says which file defines an object.
type Source struct {
	Root     string // source root, absolute
	File     string // absolute
	Document int    // place in the file, from 0
	// Documents is how many the file has, and Digest what tells its bytes, and
	// who judged them, from all others. Both are zero when that is not known. A
	// state file has them only while it says that its source is accepted, so who
	// finds them there knows that all of it is as the file asks.
	Documents int
	Digest    string
}

// at is the source without what may differ while the object is the same.
func (s Source) at() Source { return Source{Root: s.Root, File: s.File, Document: s.Document} }

// version is one version of one object. All of it is fixed once it is made, so
// that it can be read without a lock; what leaves the store is a copy.
type version struct {
	key api.Key

	// A version that was loaded holds the body of its file until it is first
	// asked for: a start reads every file and decodes none.
	body   []byte
	decode sync.Once
	err    error

	obj     api.Object // nil when only the identity is known (see recovery.go)
	rawSpec []byte     // canonical JSON of the user's spec
	meta    metav1.ObjectMeta
	source  Source
}

// loaded is the version in a state file whose body was found to be whole. The
// kind of its key is as the file writes it.
func loaded(namespace, name string, body []byte) (*version, error) {
	v := &version{key: api.Key{Kind: kindOf(body), Namespace: namespace, Name: name}, body: body}
	doc, _ := section(body, "source")
	var err error
	v.source, err = decodeSource(doc)
	return v, err
}

func kindOf(body []byte) string {
	_, rest, _ := bytes.Cut(body, []byte("\nkind: "))
	kind, _, _ := bytes.Cut(rest, []byte("\n"))
	return string(kind)
}

// ready decodes a loaded version, once.
func (v *version) ready() error {
	v.decode.Do(func() {
		if v.body == nil {
			return
		}
		if v.err = v.decodeBody(); v.err != nil {
			v.err = fmt.Errorf("decode state of %s: %w", v.key, v.err)
		}
		v.body = nil
	})
	return v.err
}

func (v *version) decodeBody() error {
	parsed, err := parse(string(v.body))
	if err != nil {
		return err
	}
	doc, ok := parsed.(map[string]any)
	if !ok {
		return errNotEmitted
	}
	if v.meta, err = decodeMeta(doc["metadata"]); err != nil {
		return err
	}
	if v.meta.Name != v.key.Name || v.meta.Namespace != v.key.Namespace || doc["kind"] != v.key.Kind {
		return fmt.Errorf("the file holds %v %s/%s", doc["kind"], v.meta.Namespace, v.meta.Name)
	}
	if doc["spec"] == nil {
		return nil // only the identity
	}
	if v.rawSpec, err = json.Marshal(doc["spec"]); err != nil {
		return err
	}
	delete(doc, "stateVersion")
	delete(doc, "metadata")
	delete(doc, "source")
	if v.obj, err = v1alpha1.FromRecord(v.key.Kind, doc); err != nil {
		return err
	}
	v.dress()
	return nil
}

// dress gives the typed object the metadata and the annotations that the store
// keeps.
func (v *version) dress() {
	v.obj.SetName(v.meta.Name)
	v.obj.SetNamespace(v.meta.Namespace)
	v.obj.SetUID(v.meta.UID)
	v.obj.SetGeneration(v.meta.Generation)
	v.obj.SetResourceVersion(v.meta.ResourceVersion)
	v.obj.SetCreationTimestamp(v.meta.CreationTimestamp)
	v.obj.SetDeletionTimestamp(v.meta.DeletionTimestamp)
	v.obj.SetLabels(maps.Clone(v.meta.Labels))
	v.obj.SetFinalizers(append([]string(nil), v.meta.Finalizers...))
	a := maps.Clone(v.meta.Annotations)
	if a == nil {
		a = map[string]string{}
	}
	a[v1alpha1.SourceFileAnnotation] = v.source.File
	a[v1alpha1.SourceDocumentAnnotation] = strconv.Itoa(v.source.Document)
	v.obj.SetAnnotations(a)
}

// next is a version that follows v and shares nothing that will be changed.
// v is decoded.
func (v *version) next() *version {
	n := &version{key: v.key, rawSpec: v.rawSpec, source: v.source}
	v.meta.DeepCopyInto(&n.meta)
	if v.obj != nil {
		n.obj = copyOf(v.obj)
	}
	return n
}

// from is v with another source. v is decoded.
func (v *version) from(s Source) *version {
	return &version{key: v.key, obj: v.obj, rawSpec: v.rawSpec, meta: v.meta, source: s}
}

// accepted tells whether v says that all of it is what its source asks for.
func (v *version) accepted() bool {
	if v.obj == nil {
		return false
	}
	c := meta.FindStatusCondition(v.obj.GetConditions(), v1alpha1.SourceAccepted)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == v.meta.Generation
}

func copyOf(o api.Object) api.Object { return o.DeepCopyObject().(api.Object) }

// userAnnotations is what a user's file may set.
func userAnnotations(a map[string]string) map[string]string {
	a = maps.Clone(a)
	delete(a, v1alpha1.SourceFileAnnotation)
	delete(a, v1alpha1.SourceDocumentAnnotation)
	if len(a) == 0 {
		return nil
	}
	return a
}

// statusOf is the Status field, which every kind has.
func statusOf(o api.Object) reflect.Value {
	return reflect.ValueOf(o).Elem().FieldByName("Status")
}

// encodeState is the text of v's state file.
func encodeState(v *version, how files.Durability) ([]byte, error) {
	b := fmt.Appendf(make([]byte, 0, 4096), "stateVersion: %d\n", stateVersion)
	b = emitKey(b, "apiVersion", v1alpha1.GroupVersion.String(), 0)
	b = emitKey(b, "kind", v.key.Kind, 0)
	meta, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v.meta)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	b = emitKey(b, "metadata", meta, 0)
	source := map[string]any{
		"root": v.source.Root, "file": v.source.File, "document": int64(v.source.Document),
	}
	if v.source.Digest != "" && v.accepted() {
		source["documents"], source["digest"] = int64(v.source.Documents), v.source.Digest
	}
	b = emitKey(b, "source", source, 0)
	if v.obj == nil {
		b = emitKey(b, "spec", nil, 0)
	} else {
		var spec any
		if err := utiljson.Unmarshal(v.rawSpec, &spec); err != nil {
			return nil, fmt.Errorf("encode spec: %w", err)
		}
		status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(statusOf(v.obj).Addr().Interface())
		if err != nil {
			return nil, fmt.Errorf("encode status: %w", err)
		}
		b = emitKey(b, "spec", spec, 0)
		b = emitKey(b, "status", status, 0)
	}
	return seal(b, how), nil
}

// The last line of a state file proves that all of it is there and is what skc
// wrote, and says whether it was synced: a power cut may leave a part of a file
// that was not, under its final name.
const (
	sealDurable = "# durable, sha256 "
	sealDerived = "# derived, sha256 "
	sealLen     = len(sealDurable) + 2*sha256.Size + 1
)

func seal(b []byte, how files.Durability) []byte {
	if how == files.Durable {
		b = append(b, sealDurable...)
	} else {
		b = append(b, sealDerived...)
	}
	sum := sha256.Sum256(b)
	return append(hex.AppendEncode(b, sum[:]), '\n')
}

// unseal returns the body of a whole state file and how it was written; else
// an error that matches errDamaged or ErrNewerState. The body is a part of data.
func unseal(data []byte) (body []byte, how files.Durability, err error) {
	if n, ok := versionOf(data); ok && n > stateVersion {
		return nil, 0, fmt.Errorf("%w: it has state version %d, this skc knows %d", ErrNewerState, n, stateVersion)
	}
	end := len(data) - sealLen
	if end < 0 {
		return nil, 0, errDamaged
	}
	head, tail := data[:end+len(sealDurable)], data[end+len(sealDurable):]
	sum := sha256.Sum256(head)
	var want [2*sha256.Size + 1]byte
	hex.Encode(want[:], sum[:])
	want[len(want)-1] = '\n'
	switch mark := string(head[end:]); {
	case !bytes.Equal(tail, want[:]):
		return nil, 0, errDamaged
	case mark == sealDurable:
		return data[:end], files.Durable, nil
	case mark == sealDerived:
		return data[:end], files.Derived, nil
	}
	return nil, 0, errDamaged
}

// versionOf reads the first line.
func versionOf(data []byte) (int, bool) {
	line, _, ok := strings.Cut(string(data[:min(len(data), 64)]), "\n")
	text, isVersion := strings.CutPrefix(line, "stateVersion: ")
	n, err := strconv.Atoi(text)
	return n, ok && isVersion && err == nil
}

// section returns the value of a top-level key of body, as a block, if all of
// it is there: if another key, or the seal, follows. No line of a value begins
// as a top-level key does, because strings hold no line ends.
func section(body []byte, name string) (any, bool) {
	_, text, ok := bytes.Cut(body, []byte("\n"+name+":\n"))
	if !ok {
		return nil, false
	}
	for end := 0; end < len(text); {
		if text[end] != ' ' {
			v, err := parse(name + ":\n" + string(text[:end]))
			if err != nil {
				return nil, false
			}
			return v.(map[string]any)[name], true
		}
		n := bytes.IndexByte(text[end:], '\n')
		if n < 0 {
			break
		}
		end += n + 1
	}
	return nil, false
}

func decodeMeta(v any) (metav1.ObjectMeta, error) {
	var meta metav1.ObjectMeta
	m, ok := v.(map[string]any)
	if !ok {
		return meta, errNotEmitted
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &meta); err != nil {
		return meta, fmt.Errorf("metadata: %w", err)
	}
	return meta, nil
}

func decodeSource(v any) (Source, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return Source{}, errNotEmitted
	}
	root, ok1 := m["root"].(string)
	file, ok2 := m["file"].(string)
	document, ok3 := m["document"].(int64)
	if !ok1 || !ok2 || !ok3 {
		return Source{}, errNotEmitted
	}
	s := Source{Root: root, File: file, Document: int(document)}
	documents, ok1 := m["documents"].(int64)
	if digest, ok2 := m["digest"].(string); ok1 && ok2 { // else it was not known
		s.Documents, s.Digest = int(documents), digest
	}
	return s, nil
}
