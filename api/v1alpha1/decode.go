package v1alpha1

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/runtime"

	"skc.dev/skc/api"
)

// maxProblems is how many problems of one file are told.
const maxProblems = 50

// Decoded is one document of a file.
//
// +kubebuilder:object:generate=false
type Decoded struct {
	// Object is typed and defaulted, its namespace set unless its kind has none. Of metadata it has name,
	// namespace, labels and annotations; it has no status.
	Object api.Object
	// RawSpec is the spec as it is written, before defaulting, as JSON with
	// sorted keys: comments, the order of keys and line ends do not change it.
	RawSpec []byte
	// Line is where the document begins, from 1.
	Line int
	// Start and End are the bytes of the document in the file, without the
	// marker lines around it, so that the file without them has one document
	// less. One that begins on its marker's line (--- {kind: Session}) begins
	// after the marker and ends before the line end.
	Start, End int
}

// Decode reads the documents of one file, YAML or JSON, in their order. A file
// is one unit: when anything is wrong with it nothing is returned but an
// *api.InvalidSpecError that tells every problem with its line and field, and
// no value of the file but a refused metadata.name. A file with no document is
// no error. It looks at nothing but its arguments and may be called concurrently.
func Decode(file string, data []byte) ([]Decoded, error) {
	if p := readable(data); p != nil {
		return nil, &api.InvalidSpecError{File: file, Problems: []api.Problem{*p}}
	}
	var all []Decoded
	var problems []api.Problem
	first := map[api.Key]int{}
	for _, doc := range split(data) {
		j := &judge{doc: doc, told: map[spot]bool{}}
		d, ok := j.decode(data[doc.start:doc.end])
		problems = append(problems, j.problems...)
		if len(problems) > maxProblems {
			break
		}
		if !ok {
			continue
		}
		key := api.KeyOf(d.Object)
		if line, twice := first[key]; twice {
			problems = append(problems, api.Problem{Line: d.Line, Path: "metadata.name", Message: fmt.Sprintf("%s is there twice: lines %d and %d", key, line, d.Line)})
			continue
		}
		first[key] = d.Line
		all = append(all, d)
	}
	if len(problems) == 0 {
		return all, nil
	}
	slices.SortStableFunc(problems, func(a, b api.Problem) int {
		return cmp.Or(a.Line-b.Line, cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	if len(problems) > maxProblems {
		problems = append(problems[:maxProblems], api.Problem{Message: "there is more wrong than is told here"})
	}
	return nil, &api.InvalidSpecError{File: file, Problems: problems}
}

// FromRecord rebuilds the object of a kind from its stored JSON, whose spec is
// the one that was written (Decoded.RawSpec): it is defaulted anew and not
// judged again, since what was accepted once stays in force. doc is changed.
func FromRecord(kind string, doc map[string]any) (api.Object, error) {
	k := kinds()[kind]
	if k == nil {
		return nil, fmt.Errorf("unknown kind %q", kind)
	}
	defaulting.Default(doc, k.schema)
	o := k.newObject()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(doc, o); err != nil {
		return nil, fmt.Errorf("read %s: %w", strings.ToLower(kind), err)
	}
	o.GetObjectKind().SetGroupVersionKind(GroupVersion.WithKind(kind))
	return o, nil
}

// judge decodes one document and gathers what is wrong with it.
type judge struct {
	doc      document
	root     *yamlv3.Node
	problems []api.Problem
	endless  []*yamlv3.Node // infinities and not-a-numbers
	told     map[spot]bool  // the first to find a problem has the best words
}

type spot struct {
	line int
	path string
}

// decode is the whole way of one document. Each step sees only what the ones
// before it have found sound.
func (j *judge) decode(text []byte) (d Decoded, ok bool) {
	content := firstContent(text)
	begin := bytes.Count(text[:len(text)-len(content)], []byte("\n")) + 1
	if content[0] == '%' {
		j.add(begin, nil, "directives (%YAML, %TAG) are not allowed")
		return d, false
	}
	text = jsonAsYAML(text)
	var err error
	if j.root, err = parseTree(text); err != nil {
		line, message := yamlProblem(err, text)
		last := 1 + bytes.Count(bytes.TrimSpace(content), []byte("\n"))
		j.add(min(max(line, begin), begin+last-1), nil, message)
		return d, false
	}
	if j.root.Kind != yamlv3.MappingNode {
		j.add(begin, nil, "a document must be a mapping with apiVersion, kind, metadata and spec")
		return d, false
	}
	if j.checkTree(j.root, nil, 1); len(j.problems) > 0 {
		return d, false
	}
	if len(j.endless) > 0 {
		text = mask(text, j.endless)
	}
	value, err := parseValue(text)
	object, isMap := value.(map[string]any)
	if err != nil || !isMap {
		j.add(begin, nil, errNotYAML.Error())
		return d, false
	}
	k := j.kind(object)
	if k == nil {
		return d, false
	}
	passOver(j.root, object)
	j.compare(j.root, j.root.Line, object, k.tree, nil)
	meta, _ := object["metadata"].(map[string]any)
	j.checkMetadata(meta)
	if _, has := meta["namespace"]; has && k.crd.Spec.Scope == apiextensionsv1.ClusterScoped {
		j.addPath("metadata.namespace", "an "+k.crd.Spec.Names.Kind+" belongs to no namespace: leave it out")
	}
	raw, err := json.Marshal(object["spec"])
	if err != nil {
		j.addPath("spec", errNotYAML.Error())
		return d, false
	}
	j.checkSchema(context.Background(), k, object)
	if len(j.problems) > 0 {
		return d, false
	}
	if meta["namespace"] == nil && !ClusterScoped(k.crd.Spec.Names.Kind) {
		meta["namespace"] = DefaultNamespace
	}
	o := k.newObject()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, o); err != nil {
		j.addPath("", "does not fit the kind")
		return d, false
	}
	return Decoded{Object: o, RawSpec: raw, Line: j.fileLine(begin), Start: j.doc.start, End: j.doc.end}, true
}

// kind finds the kind that the document says it is.
func (j *judge) kind(object map[string]any) *kind {
	known := fmt.Sprintf("known are %s of %s", strings.Join(Kinds(), ", "), GroupVersion)
	for _, field := range []string{"apiVersion", "kind"} {
		_, n := child(j.root, field)
		switch text, ok := object[field].(string); {
		case n == nil:
			j.addPath(field, "is required: "+known)
		case !ok || text != n.Value:
			j.addPath(field, "must be text")
		case field == "apiVersion" && text != GroupVersion.String():
			j.addPath(field, "unknown: "+known)
		case field == "kind" && kinds()[text] == nil:
			j.addPath(field, "unknown"+didYouMean(text, kinds())+": "+known)
		}
	}
	if len(j.problems) > 0 {
		return nil
	}
	return kinds()[object["kind"].(string)]
}

func (j *judge) fileLine(line int) int { return j.doc.line + line - 1 }

// add tells a problem at a line of the document, one for each field.
func (j *judge) add(line int, at *place, message string) {
	j.tell(line, at.String(), message)
}

// addOnce tells the first problem of a sort, which is often one of thousands.
func (j *judge) addOnce(line int, at *place, message string) {
	if !j.told[spot{path: message}] {
		j.add(line, at, message)
		j.told[spot{path: message}] = true
	}
}

// addPath tells a problem at a field.
func (j *judge) addPath(path, message string) {
	_, line, _ := find(j.root, path)
	j.tell(line, path, message)
}

func (j *judge) tell(line int, path, message string) {
	if len(j.problems) > maxProblems || j.told[spot{line, path}] {
		return
	}
	j.told[spot{line, path}] = true
	j.problems = append(j.problems, api.Problem{Line: j.fileLine(line), Path: path, Message: message})
}
