// Package profiles holds the AgentProfiles that come with skc, as data: one file
// each, with what it assumes of its agent. A user's AgentProfile of the same name
// counts instead.
package profiles

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"skc.dev/skc/api/v1alpha1"
)

//go:embed *.yaml
var data embed.FS

// BuiltIn are the profiles by name, each a copy, with BuiltInAnnotation.
func BuiltIn() []*v1alpha1.AgentProfile {
	var out []*v1alpha1.AgentProfile
	for _, p := range all() {
		out = append(out, p.DeepCopy())
	}
	return out
}

// Get is a copy of the profile of that name, nil when there is none.
func Get(name string) *v1alpha1.AgentProfile {
	for _, p := range all() {
		if p.Name == name {
			return p.DeepCopy()
		}
	}
	return nil
}

// all panics when a file is no profile, which a test finds.
var all = sync.OnceValue(func() []*v1alpha1.AgentProfile {
	var out []*v1alpha1.AgentProfile
	must := func(err error) {
		if err != nil {
			panic(fmt.Sprintf("built-in profiles: %v", err))
		}
	}
	files, err := data.ReadDir(".")
	must(err)
	for _, f := range files {
		text, err := data.ReadFile(f.Name())
		must(err)
		docs, err := v1alpha1.Decode(f.Name(), text)
		must(err)
		for _, d := range docs {
			p := d.Object.(*v1alpha1.AgentProfile)
			p.Annotations = map[string]string{v1alpha1.BuiltInAnnotation: "true"}
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.AgentProfile) int { return strings.Compare(a.Name, b.Name) })
	return out
})
