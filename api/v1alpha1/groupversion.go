// Package v1alpha1 is the meaning of the kinds of skc.dev/v1alpha1: their
// types, defaults, validation, condition types and reasons. One schema,
// generated from the types, judges files and API-server objects alike.
//
// +kubebuilder:object:generate=true
// +groupName=skc.dev
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// Group, Version and GroupVersion are what apiVersion says in every file.
const (
	Group   = "skc.dev"
	Version = "v1alpha1"
)

// GroupVersion is skc.dev/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}
