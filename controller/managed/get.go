package managed

import (
	"context"
	"fmt"

	"skc.dev/skc/api"
)

// Get is the definition of key as its file says it, which the spool may not have
// read yet. The error matches effects.ErrNotFound when there is none,
// effects.ErrConflict when the file holds more than that.
func (r *Root) Get(ctx context.Context, key api.Key) (api.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d, err := read(r.Path(key), key)
	if err != nil {
		return nil, fmt.Errorf("definition of %s: %w", key, err)
	}
	return d.Object, nil
}
