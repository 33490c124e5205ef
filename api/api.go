// Package api holds what every kind of skc shares: the key of an object, the
// interface its types fulfil, and the error that says where a file is wrong.
// What one kind means is in api/v1alpha1.
package api

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Key names one object. Names are for people and for files; identity is the
// object's UID.
type Key struct {
	Kind      string // as in the file: Session
	Namespace string // empty for a kind that belongs to no namespace
	Name      string
}

// String is how messages and logs write a key: session/default/web, or
// agentprofile/claude.
func (k Key) String() string {
	if k.Namespace == "" {
		return strings.ToLower(k.Kind) + "/" + k.Name
	}
	return strings.ToLower(k.Kind) + "/" + k.Namespace + "/" + k.Name
}

// Object is one resource: metadata, spec, and a status with conditions.
type Object interface {
	metav1.Object
	runtime.Object
	GetConditions() []metav1.Condition
	SetConditions([]metav1.Condition)
}

// KeyOf is the key of an object whose TypeMeta is set, as it is on everything
// that came from a file or the store.
func KeyOf(o Object) Key {
	return Key{Kind: o.GetObjectKind().GroupVersionKind().Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Problem is one thing wrong with a document. It never holds a value of the
// document, which may be a secret, but for a name that is refused.
type Problem struct {
	Line    int    // 1-based line in the file; 0 when not known
	Path    string // field path, as spec.env[1].value; empty for the whole document
	Message string
}

// InvalidSpecError says all that is wrong with one file. The spool and the
// command line print the same text.
type InvalidSpecError struct {
	File     string
	Problems []Problem
}

// Error is one line a problem: file:line: path: message.
func (e *InvalidSpecError) Error() string {
	lines := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		var b strings.Builder
		if e.File != "" {
			b.WriteString(e.File)
			b.WriteByte(':')
		}
		if p.Line > 0 {
			fmt.Fprintf(&b, "%d:", p.Line)
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if p.Path != "" {
			b.WriteString(p.Path)
			b.WriteString(": ")
		}
		b.WriteString(p.Message)
		lines = append(lines, b.String())
	}
	return strings.Join(lines, "\n")
}

// AsInvalidSpec finds the InvalidSpecError in err's chain.
func AsInvalidSpec(err error) (*InvalidSpecError, bool) {
	var e *InvalidSpecError
	return e, errors.As(err, &e)
}
