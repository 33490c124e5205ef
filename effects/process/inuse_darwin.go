package process

import (
	"context"
	"fmt"

	"skc.dev/skc/effects"
)

// InUse cannot be told here without a foreign program.
func InUse(context.Context, string, func(pid int) bool) (open, working []User, err error) {
	return nil, nil, fmt.Errorf("processes that use the folder: %w", effects.ErrUnavailable)
}
