package main

import (
	"slices"
	"testing"

	"skc.dev/skc/api/v1alpha1"
)

func TestLifecycleMarkers(t *testing.T) {
	session := func(annotations map[string]string) *v1alpha1.Session {
		s := &v1alpha1.Session{}
		s.Annotations = annotations
		s.Status.Workspace = &v1alpha1.WorkspaceStatus{Path: "/w"}
		return s
	}
	for _, c := range []struct {
		name        string
		annotations map[string]string
		want        []string
	}{
		{"one that no request knows", map[string]string{v1alpha1.LifecycleRequestAnnotation: "lc"}, nil},
		{"one that a request made", map[string]string{v1alpha1.SessionIDAnnotation: "s1", v1alpha1.LifecycleRequestAnnotation: "lc"},
			[]string{"SKC_SESSION_ID=s1", "SKC_LIFECYCLE_REQUEST_ID=lc", "SKC_STATE_ROOT=/w/.skc/state"}},
		{"one with an id of its user's", map[string]string{v1alpha1.SessionIDAnnotation: "s1"}, []string{"SKC_SESSION_ID=s1", "SKC_STATE_ROOT=/w/.skc/state"}},
		{"an id that no environment holds", map[string]string{v1alpha1.SessionIDAnnotation: "s\x001"}, nil},
	} {
		if got := lifecycleMarkers(session(c.annotations)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
