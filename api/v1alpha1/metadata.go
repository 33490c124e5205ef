package v1alpha1

import (
	"fmt"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Annotations that say where an object comes from. skc writes them; in a file
// they are passed over.
const (
	// SourceFileAnnotation is the absolute path of the file that defines the object.
	SourceFileAnnotation = "skc.dev/source-file"
	// SourceDocumentAnnotation is the number of the document in that file, from 0.
	SourceDocumentAnnotation = "skc.dev/source-document"
)

// nameRule is what a name may be. It is a DNS label, as for a Kubernetes pod's
// host name, and nothing that tmux rewrites or that climbs out of a folder.
const nameRule = "at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"

// writtenByServer are the metadata fields that get -o yaml prints and a file
// does not decide. Passing them over lets its output be applied again.
var writtenByServer = map[string]bool{
	"uid": true, "resourceVersion": true, "generation": true, "creationTimestamp": true, "deletionTimestamp": true,
	"deletionGracePeriodSeconds": true, "managedFields": true, "finalizers": true, "ownerReferences": true, "selfLink": true,
}

// passOver takes out of the document what only skc writes.
func passOver(root *yamlv3.Node, object map[string]any) {
	delete(object, "status")
	drop(root, func(k string) bool { return k == "status" })
	_, metaNode := child(root, "metadata")
	meta, _ := object["metadata"].(map[string]any)
	for k := range meta {
		if writtenByServer[k] {
			delete(meta, k)
		}
	}
	drop(metaNode, func(k string) bool { return writtenByServer[k] })
	_, annotationsNode := child(metaNode, "annotations")
	annotations, _ := meta["annotations"].(map[string]any)
	source := func(k string) bool { return k == SourceFileAnnotation || k == SourceDocumentAnnotation }
	drop(annotationsNode, source)
	for k := range annotations {
		if source(k) {
			delete(annotations, k)
		}
	}
}

// checkMetadata judges what the schema does not: names, labels, annotations.
// Types are judged already; a value of a wrong type is passed over here.
func (j *judge) checkMetadata(meta map[string]any) {
	if name, ok := meta["name"]; !ok {
		j.addPath("metadata.name", "is required")
	} else if name, ok := name.(string); ok && len(validation.IsDNS1123Label(name)) > 0 {
		shown := name
		if len(shown) > 80 {
			shown = strings.ToValidUTF8(shown[:80], "") + "…"
		}
		// A name is no secret, and who typed it looks for it.
		j.addPath("metadata.name", fmt.Sprintf("%+q is no name: a name is %s", shown, nameRule))
	}
	if ns, ok := meta["namespace"].(string); ok && len(validation.IsDNS1123Label(ns)) > 0 {
		j.addPath("metadata.namespace", "a namespace is "+nameRule)
	}
	_, node := child(j.root, "metadata")
	for _, field := range []string{"labels", "annotations"} {
		_, m := child(node, field)
		if m == nil || m.Kind != yamlv3.MappingNode {
			continue
		}
		at := &place{up: &place{key: "metadata"}, key: field}
		size := 0
		for i := 0; i+1 < len(m.Content); i += 2 {
			k, v := m.Content[i], m.Content[i+1]
			size += len(k.Value) + len(v.Value)
			if wrong := qualifiedName(k.Value); wrong != "" {
				j.add(k.Line, at, wrong)
				continue
			}
			if field == "labels" && v.Kind == yamlv3.ScalarNode && len(validation.IsValidLabelValue(v.Value)) > 0 {
				j.add(k.Line, &place{up: at, key: k.Value}, "a label's value is at most 63 of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit")
			}
		}
		if size > maxAnnotationBytes {
			j.addPath(at.String(), fmt.Sprintf("is larger than %d bytes in all", maxAnnotationBytes))
		}
	}
}

// maxAnnotationBytes is the API server's limit.
const maxAnnotationBytes = 256 << 10

// qualifiedName says what is wrong with the key of a label or annotation.
func qualifiedName(key string) string {
	if len(validation.IsQualifiedName(strings.ToLower(key))) == 0 {
		return ""
	}
	return "a key is at most 63 of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, if need be after a DNS name and '/'"
}
