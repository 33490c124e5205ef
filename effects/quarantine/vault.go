package quarantine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
)

var pointFolder = fault.New("quarantine.folder") // the folder above is made anew

// Vault is a Store in the plain values of package effects, for reconcilers. A
// path that it is given may have links in it above the last name.
type Vault struct{ *Store }

// Identify tells what is at path, without reading it.
func (v Vault) Identify(ctx context.Context, path string) (id effects.FileIdentity, folder bool, err error) {
	path, err = Canonical(path)
	if err != nil {
		return id, false, failed(path, "look", err)
	}
	dir, err := openFolder(filepath.Dir(path))
	if err != nil {
		return id, false, err
	}
	defer dir.close()
	st, err := dir.look(ctx, filepath.Base(path), false)
	if err != nil {
		return id, false, err
	}
	return effects.FileIdentity{Dev: st.Dev, Ino: st.Ino, Birth: st.Birth, Boot: st.Boot}, st.Kind == Dir, movable(path, st.Kind)
}

// SetAside is Store.SetAside.
func (v Vault) SetAside(ctx context.Context, a effects.SetAside) (effects.Kept, error) {
	kind := File
	if a.Folder {
		kind = Dir
	}
	return v.kept(v.Store.SetAside(ctx, Request{
		ID: a.ID, Origin: a.Origin,
		Expect:  Identity{Kind: kind, Dev: a.Identity.Dev, Ino: a.Identity.Ino, Birth: a.Identity.Birth, Boot: a.Identity.Boot},
		Details: Details{Definition: a.Definition, Head: a.Head, Reason: a.Reason, Retention: a.Retention},
	}))
}

// Get is Store.Get.
func (v Vault) Get(id string) (effects.Kept, error) { return v.kept(v.Store.Get(id)) }

// List is every thing that has a plan, by ID, and the plans that cannot be read.
func (v Vault) List(ctx context.Context) (all []effects.Kept, unreadable []effects.Stray, err error) {
	names, err := os.ReadDir(v.plans)
	if err != nil {
		return nil, nil, failed(v.plans, "list", err)
	}
	for _, d := range names {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		id, ok := strings.CutSuffix(d.Name(), planExt)
		if !ok {
			continue
		}
		switch j, err := v.load(id); {
		case errors.Is(err, NotFound):
		case errors.Is(err, effects.ErrUnreadable):
			unreadable = append(unreadable, effects.Stray{ID: id, Path: filepath.Join(v.plans, d.Name()), Err: err})
		case err != nil:
			return nil, nil, err
		case j.seq > 0:
			k, _ := v.kept(j.Record, nil)
			all = append(all, k)
		}
	}
	return all, unreadable, nil
}

// Restore is Store.Restore into a folder that is made when it is missing.
func (v Vault) Restore(ctx context.Context, id, to string) (effects.Kept, error) {
	try := func() (effects.Kept, error) {
		path, err := Canonical(to)
		if err != nil {
			return effects.Kept{}, failed(to, "look", err)
		}
		return v.kept(v.Store.Restore(ctx, id, path))
	}
	k, err := try()
	if !errors.Is(err, NotFound) {
		return k, err
	}
	if _, there := os.Lstat(filepath.Dir(to)); !errors.Is(there, fs.ErrNotExist) {
		return k, err
	}
	// It is looked for first: a folder that is made for something on a disk that
	// is away would be in the way of the disk.
	if err := v.Check(ctx, id); err != nil {
		return k, err
	}
	if err := pointFolder.At(fault.Before); err != nil {
		return k, err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return k, failed(filepath.Dir(to), "make folder", err)
	}
	if err := errors.Join(pointFolder.At(fault.During), pointFolder.At(fault.After)); err != nil {
		return k, err
	}
	return try()
}

// Purge is Store.Purge.
func (v Vault) Purge(ctx context.Context, id string) (effects.Kept, error) {
	return v.kept(v.Store.Purge(ctx, id, nil))
}

// Inventory is Store.Inventory.
func (v Vault) Inventory(ctx context.Context, id string) (effects.Kept, error) {
	return v.kept(v.Store.Inventory(ctx, id))
}

// Observe is Store.Observe, and returns all the time that was observed.
func (v Vault) Observe() (time.Duration, error) {
	err := v.Store.Observe()
	return v.age.now(), err
}

// Orphans is Store.Orphans.
func (v Vault) Orphans(ctx context.Context, folders []string) ([]effects.Stray, error) {
	all, err := v.Store.Orphans(ctx, folders...)
	out := make([]effects.Stray, 0, len(all))
	for _, o := range all {
		out = append(out, effects.Stray{ID: o.ID, Path: o.Path, Err: o.Err})
	}
	return out, err
}

func (v Vault) kept(r Record, err error) (effects.Kept, error) {
	k := effects.Kept{
		ID: r.ID, Origin: string(r.Origin), Place: string(r.Place), From: string(r.From), State: effects.KeptState(r.State),
		Definition: r.Definition, Head: r.Head, At: r.Time, Attempts: r.Attempts,
	}
	if r.ID != "" {
		k.Elapsed = v.Elapsed(r)
	}
	if s := r.Size; s != nil {
		k.Size = &effects.KeptSize{Bytes: s.Bytes, Files: s.Files, Entries: s.Entries, Unreadable: s.Unreadable}
	}
	return k, err
}

// Check looks whether the thing is where its plan says. It matches Lost,
// Uncertain, IdentityMismatch, or effects.ErrUnreachable when the place cannot be
// looked at. Nothing is touched.
func (s *Store) Check(ctx context.Context, id string) error {
	j, err := s.load(id)
	if err == nil {
		err = s.check(ctx, j)
	}
	if err != nil {
		return fmt.Errorf("check %s: %w", id, err)
	}
	return nil
}
