//go:build e2e

package lost

import "math/rand/v2"

// someFeatures are n features, drawn at random.
func someFeatures(r *rand.Rand, n int) []string {
	var all []string
	for _, i := range r.Perm(len(features))[:min(n, len(features))] {
		all = append(all, features[i].name)
	}
	return all
}
