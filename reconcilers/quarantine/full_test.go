package quarantine

import (
	"context"

	"skc.dev/skc/effects"
)

// fullVault is a Vault whose disk takes nothing more while on is set.
type fullVault struct {
	Vault
	on bool
}

func (f *fullVault) SetAside(ctx context.Context, a effects.SetAside) (effects.Kept, error) {
	if f.on {
		return effects.Kept{}, errFull
	}
	return f.Vault.SetAside(ctx, a)
}

func (f *fullVault) Purge(ctx context.Context, id string) (effects.Kept, error) {
	if f.on {
		return effects.Kept{}, errFull
	}
	return f.Vault.Purge(ctx, id)
}

func (f *fullVault) Inventory(ctx context.Context, id string) (effects.Kept, error) {
	if f.on {
		return effects.Kept{}, errFull
	}
	return f.Vault.Inventory(ctx, id)
}
