package main

import (
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/config/profiles"
)

// builtIn are the objects of a kind that come with skc and that no file defines.
func builtIn(kind string) []item {
	if kind != v1alpha1.KindAgentProfile {
		return nil
	}
	var items []item
	for _, p := range profiles.BuiltIn() {
		items = append(items, item{Object: p})
	}
	return items
}
