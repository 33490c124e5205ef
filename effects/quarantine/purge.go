package quarantine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var pointPurge = fault.New("quarantine.purge")

// Purge removes the thing for good, or goes on where an earlier call ended; one
// that is purged already is a success. From the first call on there is no way
// back. progress (or nil) is told now and then how many entries are removed, of
// how many (0 when that was not counted).
//
// A folder must be the one that was set aside; whatever is in it by now goes. A
// file must also hold what it held: it matches IdentityMismatch when something
// still wrote to it. Links are removed, not followed; what is mounted below
// stops it (Mounted).
func (s *Store) Purge(ctx context.Context, id string, progress func(done, total int64)) (Record, error) {
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	j, err := s.load(id)
	if err != nil {
		return Record{}, fmt.Errorf("purge %s: %w", id, err)
	}
	if err := s.purge(ctx, j, progress); err != nil {
		return j.Record, fmt.Errorf("purge %s: %w", id, err)
	}
	return j.Record, nil
}

func (s *Store) purge(ctx context.Context, j *journal, progress func(done, total int64)) error {
	if j.State == Restoring {
		if err := s.giveUp(ctx, j); err != nil {
			return err
		}
	}
	if j.State == Kept {
		if err := s.planPurge(ctx, j); err != nil {
			return err
		}
	}
	if j.State == Removing && j.open != nil {
		if err := s.advance(ctx, j); err != nil {
			return err
		}
	}
	switch j.State {
	case Purged:
		return nil
	case Removing:
	default:
		return fmt.Errorf("%w: it is %s", effects.ErrConflict, j.State)
	}
	a := j.last // its To is what is removed
	at, err := s.find(ctx, a.Identity, string(a.To))
	if err != nil {
		return err
	}
	switch at {
	case other:
		return &Error{Code: Uncertain, Path: string(a.To), Text: "something else is where it was being removed"}
	case ours:
		if err := s.remove(ctx, j, progress); err != nil {
			return err
		}
	case nothing: // removed, and not written down
		if err := s.missing(ctx, &a, string(a.To)); !errors.Is(err, Lost) {
			return err
		}
	}
	if err := s.write(j, pointRecord, line{Event: eventPurged}); err != nil {
		return err
	}
	s.tidy(a.folderPath())
	return nil
}

// planPurge writes the attempt to move the thing to its removing name after a
// first look.
func (s *Store) planPurge(ctx context.Context, j *journal) error {
	a := j.next(purge, j.Place+removingSuffix)
	if err := s.present(ctx, a); err != nil {
		return err
	}
	dir, err := openFolder(a.folderPath())
	if err != nil {
		return err
	}
	defer dir.close()
	if err := s.ready(ctx, a, dir); err != nil {
		return err
	}
	return s.write(j, pointPlan, line{Event: eventAttempt, Attempt: a})
}

// remove takes away what was moved to its removing name.
func (s *Store) remove(ctx context.Context, j *journal, progress func(done, total int64)) error {
	path := string(j.last.To)
	dir, err := openFolder(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { dir.close() }()
	name := filepath.Base(path)
	st, err := dir.look(ctx, name, false)
	if err != nil {
		return err
	}
	if err := expect(path, Identity{Kind: j.Identity.Kind, Dev: st.Dev, Ino: j.Identity.Ino, Birth: j.Identity.Birth}, st); err != nil {
		return err
	}
	if err := unmounted(dir, path, st); err != nil {
		return err
	}
	r := &remover{store: s, progress: progress}
	if j.Size != nil {
		r.total = j.Size.Entries
	}
	if err := pointPurge.At(fault.Before); err != nil {
		return failed(path, "remove", err)
	}
	if st.Kind == Dir {
		top, err := openFolder(dir.path)
		if err != nil {
			return err
		}
		r.climber = climber{at: top, path: "."}
		defer r.close()
		if err := r.tree(ctx, name, st); err != nil {
			return err
		}
	} else if err := r.take(dir, name, 0); err != nil {
		return err
	}
	s.trace(files.Op{Kind: files.OpRemove, Path: path})
	r.tell()
	if err := errors.Join(fault.Call(), dir.sync()); err != nil {
		return err
	}
	s.trace(files.Op{Kind: files.OpSyncDir, Path: dir.path})
	if err := pointPurge.At(fault.After); err != nil {
		return failed(path, "remove", err)
	}
	return nil
}

// remover takes a tree away, entry by entry, from a look of its own.
type remover struct {
	climber
	store       *Store
	progress    func(done, total int64)
	done, total int64
}

func (r *remover) tell() {
	if r.progress != nil {
		r.progress(r.done, max(r.done, r.total))
	}
}

// tree removes the folder name, which st saw, with all below it.
func (r *remover) tree(ctx context.Context, name string, st stat) error {
	if err := r.enter(name, st); err != nil {
		return err
	}
	for r.top() != nil {
		top := r.top()
		if len(top.todo) > 0 {
			name := top.todo[0]
			top.todo = top.todo[1:]
			st, err := r.at.look(ctx, name, false)
			if err == nil && st.Kind == Dir {
				err = r.enter(name, st)
			}
			if err != nil && !changed(err) {
				return err
			}
			continue
		}
		empty, err := r.sweep(ctx, top)
		if err != nil {
			return err
		}
		if !empty {
			continue
		}
		name := top.name
		if err := r.up(); err != nil {
			return err
		}
		err = r.take(r.at, name, unix.AT_REMOVEDIR)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			// A program that was never told writes there. It is given some tries.
			if top.tries++; top.tries < 16 {
				st, err := r.at.look(ctx, name, false)
				if err == nil {
					err = r.enter(name, st)
				}
				if err != nil {
					return err
				}
				r.top().tries = top.tries
				continue
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enter goes down into a folder, and lets its owner in where he may not yet.
func (r *remover) enter(name string, st stat) error {
	err := r.down(name, st)
	if errors.Is(err, fs.ErrPermission) && unlock(r.at.fd, name) == nil {
		err = r.down(name, st)
	}
	return err
}

// sweep removes up to a batch of what is in the folder, and notes the folders
// in it; the rest is found by the next look. empty is true when nothing was
// left.
func (r *remover) sweep(ctx context.Context, top *frame) (empty bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := r.store.allowed(); err != nil {
		return false, err
	}
	if err := pointPurge.At(fault.During); err != nil {
		return false, failed(r.at.path, "remove", err)
	}
	dir, err := r.at.reader()
	if err != nil {
		return false, err
	}
	names, err := dir.Readdirnames(batch)
	_ = dir.Close()
	if len(names) == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			return true, nil
		}
		return false, failed(r.at.path, "read folder", err)
	}
	for _, name := range names {
		st, err := r.at.look(ctx, name, false)
		switch {
		case errors.Is(err, NotFound):
			continue
		case err != nil:
			return false, err
		case st.Kind == Dir:
			top.todo = append(top.todo, name)
			continue
		}
		if err := r.take(r.at, name, 0); err != nil {
			return false, err
		}
	}
	r.tell()
	return false, nil
}

// take removes one name.
func (r *remover) take(dir *folder, name string, flags int) error {
	path := filepath.Join(dir.path, name)
	if err := fault.Call(); err != nil {
		return failed(path, "remove", err)
	}
	err := unix.Unlinkat(dir.fd, name, flags)
	if errors.Is(err, unix.EACCES) && unlock(dir.fd, ".") == nil { // the folder it is in may not be changed
		err = unix.Unlinkat(dir.fd, name, flags)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		r.done++
	}
	return failed(path, "remove", err)
}
