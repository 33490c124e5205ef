package quarantine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
)

// Get reads what is known of one thing; it looks at no place. It matches
// NotFound when there is no plan.
func (s *Store) Get(id string) (Record, error) {
	j, err := s.load(id)
	if err != nil {
		return Record{}, err
	}
	if j.seq == 0 {
		return Record{}, &Error{Code: NotFound, Path: j.path, Text: "an empty plan"}
	}
	return j.Record, nil
}

// List is every thing that has a plan, by ID. With an error, which joins those
// of all plans that cannot be read, the others are returned as well, and the
// list is not complete.
func (s *Store) List(ctx context.Context) ([]Record, error) {
	journals, err := s.journals(ctx)
	var out []Record
	for _, j := range journals {
		if j.seq > 0 {
			out = append(out, j.Record)
		}
	}
	return out, err
}

func (s *Store) journals(ctx context.Context) (out []*journal, err error) {
	names, err := os.ReadDir(s.plans)
	if err != nil {
		return nil, failed(s.plans, "list", err)
	}
	var errs []error
	for _, d := range names {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		id, ok := strings.CutSuffix(d.Name(), planExt)
		if !ok {
			continue
		}
		j, err := s.load(id)
		switch {
		case errors.Is(err, NotFound) && validID.MatchString(id):
			continue // forgotten since
		case err != nil:
			errs = append(errs, err)
			continue
		}
		out = append(out, j)
	}
	return out, errors.Join(errs...)
}

// Orphan is something that does not fit together.
type Orphan struct {
	// ID is that of the plan, empty for a thing without one.
	ID string
	// Path of the thing, or of the plan.
	Path string
	// Err says what is wrong: Lost, Uncertain, IdentityMismatch, or NotFound for
	// a thing without a plan and a plan that holds nothing.
	Err error
}

// Orphans looks at all places: those of all plans, and the folders beside
// origins in the given ones. It reports what has our naming and no plan, and
// plans whose thing is not where it should be. An error means that the look was
// not complete; then nothing can be called an orphan and none is returned.
func (s *Store) Orphans(ctx context.Context, folders ...string) ([]Orphan, error) {
	places := []string{s.things}
	for _, dir := range folders {
		places = append(places, filepath.Join(dir, BesideName))
	}
	journals, err := s.journals(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range journals {
		if j.seq > 0 {
			places = append(places, j.last.folderPath())
		}
	}
	slices.Sort(places)
	// First the names, then the plans: what comes meanwhile has its plan by then.
	var named []string
	for _, place := range slices.Compact(places) {
		list, err := namesIn(place)
		if err != nil {
			return nil, err
		}
		named = append(named, list...)
	}
	if journals, err = s.journals(ctx); err != nil {
		return nil, err
	}
	claimed := map[string]bool{}
	var out []Orphan
	for _, j := range journals {
		if j.seq == 0 {
			out = append(out, Orphan{strings.TrimSuffix(filepath.Base(j.path), planExt), j.path, &Error{Code: NotFound, Path: j.path, Text: "the plan holds nothing"}})
			continue
		}
		claimed[string(j.Place)] = true
		if j.open != nil {
			claimed[string(j.open.From)], claimed[string(j.open.To)] = true, true
		}
		switch err := s.check(ctx, j); {
		case errors.Is(err, Lost), errors.Is(err, Uncertain), errors.Is(err, IdentityMismatch):
			out = append(out, Orphan{j.ID, string(j.Place), err})
		case errors.Is(err, effects.ErrUnreachable):
			// Not there to be looked at: no orphan, and none in it was counted.
		case err != nil:
			return nil, err
		}
	}
	for _, path := range named {
		if claimed[path] {
			continue
		}
		at, err := s.find(ctx, Identity{}, path)
		if err != nil {
			return nil, err
		}
		if at != nothing { // else it was given back meanwhile
			out = append(out, Orphan{"", path, &Error{Code: NotFound, Path: path, Text: "no plan names it"}})
		}
	}
	return out, nil
}

// namesIn are the paths in a place that have our naming.
func namesIn(place string) ([]string, error) {
	dir, err := openFolder(place)
	if errors.Is(err, NotFound) || errors.Is(err, NotDirectory) || errors.Is(err, ReparsePoint) {
		return nil, nil // no place of ours
	}
	if err != nil {
		return nil, err
	}
	defer dir.close()
	r, err := dir.reader()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	names, err := r.Readdirnames(-1)
	if err != nil {
		return nil, failed(place, "list", err)
	}
	var out []string
	for _, name := range names {
		if strings.HasPrefix(name, keptPrefix) {
			out = append(out, filepath.Join(place, name))
		}
	}
	return out, nil
}

// check looks, and touches nothing, whether a thing is where its plan says.
func (s *Store) check(ctx context.Context, j *journal) error {
	switch j.State {
	case Kept, Planned, Restoring, Removing:
	default:
		return nil // restored or purged: no concern of ours any more
	}
	if j.open == nil && j.State == Planned {
		return nil // it was put back, or never moved
	}
	a := j.last
	at, err := s.find(ctx, a.Identity, string(j.Place))
	if err != nil {
		return err
	}
	if at != nothing || j.State == Removing && j.open == nil {
		if at == other {
			return &Error{Code: IdentityMismatch, Path: string(j.Place), Text: "something else is there"}
		}
		return nil
	}
	if j.open != nil {
		from, err := s.find(ctx, a.Identity, string(a.From))
		if err != nil || from == ours {
			return err
		}
	}
	return s.missing(ctx, &a, string(j.Place))
}

// missing says that nothing is at path: the thing is Lost if its quarantine
// folder is there to be looked into, else who knows.
func (s *Store) missing(ctx context.Context, a *attempt, path string) error {
	folder, err := s.find(ctx, a.Folder, a.folderPath())
	if err != nil {
		return err
	}
	if folder != ours {
		return fmt.Errorf("%w: the quarantine folder %q is not there or is another one; is its disk mounted?", effects.ErrUnreachable, a.folderPath())
	}
	return &Error{Code: Lost, Path: path, Text: "it is not where it was kept"}
}

// Forget removes the plan of a thing that needs none any more: it was given
// back, purged, never moved, or is Lost. It matches effects.ErrConflict for any
// other: who forgets where a thing is has lost it. One without a plan is a
// success.
func (s *Store) Forget(ctx context.Context, id string) error {
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	j, err := s.load(id)
	if errors.Is(err, NotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("forget %s: %w", id, err)
	}
	if err := s.forgettable(ctx, j); err != nil {
		return fmt.Errorf("forget %s: %w", id, err)
	}
	for _, path := range []string{j.tree + ".part", j.tree} { // without its plan, nobody would find them
		if err := s.files.Remove(pointInventory, path, files.Derived); err != nil {
			return err
		}
	}
	return s.files.Remove(pointRecord, j.path, files.Durable)
}

func (s *Store) forgettable(ctx context.Context, j *journal) error {
	switch {
	case j.seq == 0, j.State == Restored, j.State == Purged, j.State == Planned && j.open == nil:
		return nil
	case j.State == Planned:
		from, err := s.find(ctx, j.open.Identity, string(j.open.From))
		if err != nil {
			return err
		}
		to, err := s.find(ctx, j.open.Identity, string(j.open.To))
		if err != nil {
			return err
		}
		if from == ours && to == nothing {
			return nil
		}
	}
	err := s.check(ctx, j)
	if errors.Is(err, Lost) {
		return nil
	}
	return errors.Join(fmt.Errorf("%w: it is %s", effects.ErrConflict, j.State), err)
}
