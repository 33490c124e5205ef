package git

import (
	"context"
	"fmt"

	"skc.dev/skc/effects"
)

// inUse cannot be told here without a foreign program.
func inUse(context.Context, string) (open, working []string, err error) {
	return nil, nil, fmt.Errorf("processes that use the folder: %w", effects.ErrUnavailable)
}
