//go:build !skcfaults

package fault

// Enabled tells whether this build can inject faults.
const Enabled = false

// Point is one named step. This build keeps nothing of it.
type Point struct{}

// New names a step. Call it from a package variable, so that List is complete.
func New(string) Point { return Point{} }

// At does nothing in this build.
func (Point) At(Phase) error { return nil }

// Call does nothing in this build.
func Call() error { return nil }

// List is empty in this build.
func List() []string { return nil }
