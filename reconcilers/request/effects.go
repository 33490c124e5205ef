package request

import (
	"context"

	"skc.dev/skc/api"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// Store is what this package needs of the requests.
type Store interface {
	// Get returns a private copy, or an error matching effects.ErrNotFound.
	Get(ctx context.Context, key api.Key) (*v1alpha1.SessionRequest, error)
	// List is complete, or an error.
	List(ctx context.Context) ([]*v1alpha1.SessionRequest, error)
	// Update writes finalizers and status of after, on the disk when it returns; an
	// object that changed since before was read is effects.ErrConflict.
	Update(ctx context.Context, before, after *v1alpha1.SessionRequest) error
}

// Sessions are seen and never written: what they should be is in Definitions.
type Sessions interface {
	// Get returns a private copy, or an error matching effects.ErrNotFound.
	Get(ctx context.Context, key api.Key) (*v1alpha1.Session, error)
	// List is complete, or an error.
	List(ctx context.Context) ([]*v1alpha1.Session, error)
}

// Quarantines are seen as Sessions are.
type Quarantines interface {
	Get(ctx context.Context, key api.Key) (*v1alpha1.Quarantine, error)
	List(ctx context.Context) ([]*v1alpha1.Quarantine, error)
}

// Definitions are the objects that the controller itself asks for. A change is
// on the disk when a call returns; the object follows later. Each call may be
// made again.
type Definitions interface {
	// Get returns what is defined, or an error matching effects.ErrNotFound.
	Get(ctx context.Context, key api.Key) (api.Object, error)
	// Create defines the object; a definition that is there stays as it is, whatever
	// it says. One that can never be is an *api.InvalidSpecError.
	Create(ctx context.Context, o api.Object) error
	// Edit changes the spec. The error matches effects.ErrNotFound when there is no
	// such definition.
	Edit(ctx context.Context, key api.Key, change func(spec map[string]any) error) error
	// Remove takes the definition away; one that is gone is a success.
	Remove(ctx context.Context, key api.Key) error
	// Holds tells whether the file is one of these definitions.
	Holds(file string) bool
}

// Panes prove what runs.
type Panes interface {
	// Get returns the pane that carries the UID, dead or alive. effects.ErrNotFound
	// only when a complete look shows that there is none.
	Get(ctx context.Context, uid string) (effects.TmuxPane, error)
}

// Folders are looked at and never made.
type Folders interface {
	// Check returns an error matching effects.ErrNotFound when there is no folder.
	Check(path string) error
}

// Audit is the audit file.
type Audit interface {
	// Append adds a row, which is on the disk when it returns.
	Append(row lifecycle.AuditRow) error
}
