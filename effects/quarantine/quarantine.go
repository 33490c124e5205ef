// Package quarantine sets one thing (a folder with all below it, or a file)
// aside by one rename, keeps it, and gives it back or purges it. At every
// moment, also after a crash, a power cut or on a full disk, each byte of it is
// at exactly one place that the plan names. It decides nothing: when something
// is set aside, given back or purged, its caller says. It knows nothing of git.
//
// Each thing has a plan, <dir>/plans/<id>.jsonl, to which is only ever
// appended: first what is meant to be done (the attempt), then, when that is on
// the disk, the rename, then, when both folders are on the disk, what came of
// it. Who finds an attempt without an end looks at both of its places; the
// thing is known by its Identity, so one look tells how far it came.
package quarantine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var (
	pointPlan   = fault.New("quarantine.plan")   // an attempt is written
	pointRename = fault.New("quarantine.rename") // and done
	pointBack   = fault.New("quarantine.back")   // and undone, when it moved the wrong thing
	pointRecord = fault.New("quarantine.record") // and its end is written
)

// BesideName is the folder beside an origin that lies on another file system
// than the Store.
const BesideName = ".skc-quarantine"

// keptPrefix begins the name of everything that is set aside. SweepTemps of
// effects/files stays out of such folders.
const keptPrefix = files.KeptPrefix

// removingSuffix ends the name of what is being purged.
const removingSuffix = ".removing"

// Options of a Store. All but Uptime must be given.
type Options struct {
	// Dir is the quarantine folder of the state, absolute. It is made.
	Dir   string
	Files *files.Layer
	Clock clock.PassiveClock
	// Uptime tells the boot and the time since then (asleep or not), which no
	// setting of a clock changes. The system's own when nil.
	Uptime func() (boot string, since time.Duration, err error)
}

// Store is one quarantine. Only one process uses it for changes. Its methods may
// be called at the same time; those on one ID wait for each other.
type Store struct {
	dir, plans, things string
	files              *files.Layer
	clock              clock.PassiveClock
	age                *age

	// placing is held for reading while a thing is on its way into a folder
	// beside its origin, and for writing while an empty one is taken away.
	placing sync.RWMutex

	mu   sync.Mutex
	busy map[string]chan struct{} // closed when the id is free again
}

// Open makes the folders and reads how much time was observed so far. It
// finishes no attempt: the next call for its ID does.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := files.MkdirPrivate(o.Dir); err != nil { // refuses a link in the last place
		return nil, fmt.Errorf("open quarantine: %w", err)
	}
	dir, err := Canonical(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open quarantine: %w", err)
	}
	s := &Store{
		dir: dir, plans: filepath.Join(dir, "plans"), things: filepath.Join(dir, "things"),
		files: o.Files, clock: o.Clock, busy: map[string]chan struct{}{},
	}
	for _, d := range []string{s.plans, s.things} {
		if err := files.MkdirPrivate(d); err != nil {
			return nil, fmt.Errorf("open quarantine: %w", err)
		}
	}
	if o.Uptime == nil {
		o.Uptime = uptime
	}
	if s.age, err = s.openAge(ctx, o.Uptime); err != nil {
		return nil, fmt.Errorf("open quarantine: %w", err)
	}
	return s, nil
}

// lock waits until no other call works on id.
func (s *Store) lock(ctx context.Context, id string) (unlock func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		wait, taken := s.busy[id]
		if !taken {
			free := make(chan struct{})
			s.busy[id] = free
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.busy, id)
				s.mu.Unlock()
				close(free)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Place is the folder into which the thing at origin would be moved: that of
// the state when both are on one mount of one file system, else one beside the
// origin, which is made. It matches QuarantineDestinationRequired when there
// can be none.
func (s *Store) Place(origin string) (string, error) {
	from, err := openFolder(filepath.Dir(origin))
	if err != nil {
		return "", err
	}
	defer from.close()
	place, err := s.place(from, false)
	if err != nil {
		return "", err
	}
	defer place.close()
	return place.path, nil
}

// place opens the folder for what is in from.
func (s *Store) place(from *folder, beside bool) (*folder, error) {
	if !beside {
		home, err := openFolder(s.things)
		if err != nil {
			return nil, err
		}
		same, err := oneMount(from, home)
		if same || err != nil {
			return home, err
		}
		home.close()
	}
	path := filepath.Join(from.path, BesideName)
	if filepath.Base(from.path) == BesideName {
		return nil, &Error{Code: OriginRefused, Path: from.path, Text: "is a quarantine folder itself"}
	}
	if err := files.MkdirPrivate(path); err != nil {
		code := IOError
		if errors.Is(err, files.ErrNotPrivate) || errors.Is(err, os.ErrPermission) {
			code = QuarantineDestinationRequired
		}
		return nil, &Error{Code: code, Path: path, Text: "no folder on the same file system", Err: err}
	}
	place, err := openFolder(path)
	if err != nil {
		return nil, err
	}
	if same, err := oneMount(from, place); err != nil || !same {
		place.close()
		return nil, errors.Join(&Error{Code: QuarantineDestinationRequired, Path: path, Text: "lies on another file system than its parent"}, err)
	}
	return place, nil
}

// oneMount tells whether a rename between two folders can succeed: the same
// file system, seen through the same mount.
func oneMount(a, b *folder) (bool, error) {
	x, err := lstat(a.fd, "")
	if err != nil {
		return false, failed(a.path, "look", err)
	}
	y, err := lstat(b.fd, "")
	if err != nil {
		return false, failed(b.path, "look", err)
	}
	return x.Dev == y.Dev && x.mount == y.mount, nil
}

// Request asks for one thing to be set aside.
type Request struct {
	// ID names it for good: lower-case letters, digits, dots and hyphens, at most 128.
	ID string
	// Origin is absolute and free of links, see Canonical.
	Origin string
	// Expect is what must be there, from Identify; Kind, Dev and Ino at least.
	Expect Identity
	Details
}

// SetAside moves the thing into quarantine, or goes on where an earlier call
// with the same ID ended, or, when it is Kept already, does nothing. Only the
// plan's paths are used then; another Origin is effects.ErrConflict.
//
// Unless the error matches Uncertain or Lost, an error means that the thing is
// at its origin or that the next call finds it; no byte is lost in either case.
func (s *Store) SetAside(ctx context.Context, req Request) (Record, error) {
	unlock, err := s.lock(ctx, req.ID)
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	r, err := s.setAside(ctx, req)
	if err != nil {
		return r, fmt.Errorf("set aside %q: %w", req.Origin, err)
	}
	return r, nil
}

func (s *Store) setAside(ctx context.Context, req Request) (Record, error) {
	if err := s.checkRequest(req); err != nil {
		return Record{}, err
	}
	j, err := s.load(req.ID)
	if errors.Is(err, NotFound) {
		j, err = &journal{path: filepath.Join(s.plans, req.ID+planExt)}, nil
	}
	if err != nil {
		return Record{}, err
	}
	if j.seq > 0 && string(j.Origin) != req.Origin {
		return j.Record, fmt.Errorf("%w: %s is the plan of %q", effects.ErrConflict, req.ID, j.Origin)
	}
	beside := false
	for tries := 0; ; tries++ {
		switch {
		case j.State == Kept:
			return j.Record, nil
		case j.State != "" && j.State != Planned:
			return j.Record, fmt.Errorf("%w: it is %s", effects.ErrConflict, j.State)
		}
		err := s.setAsideOnce(ctx, j, req, beside)
		switch {
		case err == nil, tries == 4:
		case j.open != nil: // not known to have ended
		case errors.Is(err, QuarantineCollision), errors.Is(err, errNoFolder):
			continue // with another name, or a folder made anew
		case errors.Is(err, CrossDevice) && !beside:
			// Looks like one file system and is none for a rename (overlays, quota
			// projects): the folder beside the origin is nearer.
			beside = true
			continue
		}
		if err != nil && beside && errors.Is(err, CrossDevice) {
			err = &Error{Code: QuarantineDestinationRequired, Path: req.Origin, Text: "not even the folder beside it can be reached by a rename", Err: err}
		}
		return j.Record, err
	}
}

func (s *Store) checkRequest(req Request) error {
	switch {
	case !validID.MatchString(req.ID):
		return &Error{Code: OriginRefused, Path: req.ID, Text: "is no id"}
	case !usable(Raw(req.Origin)):
		return &Error{Code: OriginRefused, Path: req.Origin, Text: "is not an absolute, clean path, or is the root"}
	case req.Origin == s.dir, strings.HasPrefix(req.Origin, s.dir+"/"), strings.HasPrefix(s.dir, req.Origin+"/"):
		return &Error{Code: OriginRefused, Path: req.Origin, Text: "holds the quarantine or lies in it"}
	case filepath.Base(req.Origin) == BesideName:
		return &Error{Code: OriginRefused, Path: req.Origin, Text: "is a quarantine folder itself"}
	case req.Expect.Ino == 0, req.Retention < 0:
		return &Error{Code: OriginRefused, Path: req.Origin, Text: "neither identity nor retention may be left out"}
	}
	return movable(req.Origin, req.Expect.Kind)
}

// setAsideOnce does one attempt, a new one or that which is open.
func (s *Store) setAsideOnce(ctx context.Context, j *journal, req Request, beside bool) error {
	s.placing.RLock()
	defer s.placing.RUnlock()
	if j.open == nil {
		if err := s.planSetAside(ctx, j, req, beside); err != nil {
			return err
		}
	}
	return s.advance(ctx, j)
}

// planSetAside writes a new attempt after a first look, so that what cannot be
// done leaves no plan.
func (s *Store) planSetAside(ctx context.Context, j *journal, req Request, beside bool) error {
	from, err := openFolder(filepath.Dir(req.Origin))
	if err != nil {
		return err
	}
	defer from.close()
	st, err := from.look(ctx, filepath.Base(req.Origin), true)
	if err != nil {
		return err
	}
	if err := expect(req.Origin, req.Expect, st); err != nil {
		return err
	}
	if err := unmounted(from, req.Origin, st); err != nil {
		return err
	}
	place, err := s.place(from, beside)
	if err != nil {
		return err
	}
	defer place.close()
	folder, err := lstat(place.fd, "")
	if err != nil {
		return failed(place.path, "look", err)
	}
	name := keptPrefix + newName()
	if _, err := lstat(place.fd, name); err == nil {
		return &Error{Code: QuarantineCollision, Path: filepath.Join(place.path, name)}
	}
	a := &attempt{
		Number: j.Attempts + 1, Do: setAside, From: Raw(req.Origin),
		To: Raw(filepath.Join(place.path, name)), Identity: st.thing(), Folder: folder.thing(),
	}
	l := line{Event: eventAttempt, Attempt: a}
	if j.seq == 0 {
		l.Event = eventPlan
		l.Plan = &plan{ID: req.ID, Details: req.Details, Origin: Raw(req.Origin), Since: s.age.now()}
	}
	return s.write(j, pointPlan, l)
}

// newName makes the last part of a planned name. Tests make names collide.
var newName = uuid.NewString

// expect compares what was seen with what should be there.
func expect(path string, want Identity, got stat) error {
	switch {
	case want.Matches(got.thing()):
		return nil
	case want.Kind == got.Kind:
		text := fmt.Sprintf("is %s, not %s", got.Identity, want)
		if want.sameObject(got.Identity) {
			text = "holds something else than it did"
		}
		return &Error{Code: IdentityMismatch, Path: path, Text: text}
	case got.Kind == Symlink:
		return &Error{Code: ReparsePoint, Path: path, Text: "is a symbolic link"}
	case want.Kind == Dir:
		return &Error{Code: NotDirectory, Path: path, Text: "is a " + string(got.Kind)}
	}
	return &Error{Code: NotRegularFile, Path: path, Text: "is a " + string(got.Kind)}
}

// unmounted refuses a mount point and what has one below: a rename would take
// the mount along, and a purge would stand before what is not ours.
func unmounted(parent *folder, path string, st stat) error {
	up, err := lstat(parent.fd, "")
	if err != nil {
		return failed(parent.path, "look", err)
	}
	if up.Dev != st.Dev || up.mount != st.mount {
		return &Error{Code: Mounted, Path: path, Text: "is a mount point"}
	}
	if st.Kind != Dir {
		return nil
	}
	found, err := mounts(path)
	if err != nil {
		return &Error{Code: IOError, Path: path, Text: "look for mounts", Err: err}
	}
	if len(found) > 0 {
		return &Error{Code: Mounted, Path: path, Text: fmt.Sprintf("something is mounted at %q", found[0])}
	}
	return nil
}

// errNoFolder: the folder beside the origin was taken away before it was used.
var errNoFolder = errors.New("the quarantine folder of the attempt is gone")

// advance brings the open attempt to an end: it looks how far it came, does
// what is left, and writes it down.
func (s *Store) advance(ctx context.Context, j *journal) error {
	a := j.open
	from, err := s.find(ctx, a.Identity, string(a.From))
	if err != nil {
		return err
	}
	to, err := s.find(ctx, a.Identity, string(a.To))
	if err != nil {
		return err
	}
	uncertain := func(text string) error {
		return &Error{Code: Uncertain, Path: string(a.From), Text: fmt.Sprintf("attempt %d to move it to %q: %s; it is not touched until one of them is moved away by hand", a.Number, a.To, text)}
	}
	switch {
	case from == ours && to == ours:
		return uncertain("it is found at both places (a hard link?)")
	case to == ours:
		// What has the old name now, if anything, is none of ours: the move is done
		// and nothing more is done there.
		return s.finish(ctx, j)
	case from == ours && to == other && a.Do == restore:
		return errors.Join(&Error{Code: PlaceTaken, Path: string(a.To)}, s.back(j, PlaceTaken))
	case to == other:
		return uncertain("something else has the new name")
	case from == ours:
		return s.move(ctx, j)
	}
	err = s.missing(ctx, a, string(a.From))
	var lost *Error
	if errors.As(err, &lost) && lost.Code == Lost {
		lost.Text = fmt.Sprintf("nothing is there, and nothing at %q", a.To)
		if from == other {
			lost.Text = fmt.Sprintf("something else is there, and nothing at %q", a.To)
		}
	}
	return err
}

// found is what a place holds.
type found int

const (
	nothing found = iota
	ours
	other
)

// find looks for the object at path. A path that leads over a link is an error.
func (s *Store) find(ctx context.Context, id Identity, path string) (found, error) {
	dir, err := openFolder(filepath.Dir(path))
	if errors.Is(err, NotFound) || errors.Is(err, NotDirectory) {
		return nothing, nil
	}
	if errors.Is(err, ReparsePoint) {
		return nothing, &Error{Code: Uncertain, Path: path, Text: "a part of the path became a link", Err: err}
	}
	if err != nil {
		return nothing, err
	}
	defer dir.close()
	switch st, err := dir.look(ctx, filepath.Base(path), false); {
	case errors.Is(err, NotFound):
		return nothing, nil
	case err != nil:
		return nothing, err
	case id.sameObject(st.Identity):
		return ours, nil
	}
	return other, nil
}

// move does the rename of the open attempt, whose thing was found at From.
func (s *Store) move(ctx context.Context, j *journal) error {
	a := j.open
	from, to, err := openBoth(a)
	if from != nil && a.Do == setAside && errors.Is(err, NotFound) {
		return errors.Join(errNoFolder, s.back(j, QuarantineDestinationRequired))
	}
	if err != nil {
		return err
	}
	defer from.close()
	defer to.close()
	if err := s.into(a, to); err != nil {
		return err
	}
	if err := s.ready(ctx, a, from); err != nil {
		if errors.Is(err, IdentityMismatch) {
			err = errors.Join(err, s.back(j, IdentityMismatch))
		}
		return err
	}
	err = s.rename(pointRename, from, filepath.Base(string(a.From)), to, filepath.Base(string(a.To)))
	switch {
	case errors.Is(err, QuarantineCollision) && a.Do == restore:
		return errors.Join(&Error{Code: PlaceTaken, Path: string(a.To)}, s.back(j, PlaceTaken))
	case errors.Is(err, QuarantineCollision):
		return errors.Join(err, s.back(j, QuarantineCollision))
	case errors.Is(err, CrossDevice):
		return errors.Join(err, s.back(j, CrossDevice))
	case err != nil:
		return err // nothing was moved; the attempt stays open for the next call
	}
	if err := pointRename.At(fault.During); err != nil {
		return failed(string(a.To), "rename", err)
	}
	return s.end(ctx, j, from, to)
}

// into verifies the quarantine folder of the attempt: it is ours alone still.
func (s *Store) into(a *attempt, to *folder) error {
	if a.Do != setAside {
		return nil
	}
	st, err := lstat(to.fd, "")
	if err != nil {
		return failed(to.path, "look", err)
	}
	if !a.Folder.sameObject(st.Identity) {
		return &Error{Code: Uncertain, Path: to.path, Text: "is not the quarantine folder of the plan any more"}
	}
	return nil
}

// ready verifies, by handles, what is about to be moved. A thing that is given
// back may have changed in quarantine; what is moved away is as it was named.
func (s *Store) ready(ctx context.Context, a *attempt, from *folder) error {
	path := string(a.From)
	st, err := from.look(ctx, filepath.Base(path), a.Do != restore)
	if err != nil {
		return err
	}
	want := a.Identity
	if a.Do == restore {
		want.SHA256 = ""
	}
	if err := expect(path, want, st); err != nil {
		return err
	}
	return unmounted(from, path, st)
}

// finish ends an attempt whose thing was found at To.
func (s *Store) finish(ctx context.Context, j *journal) error {
	from, to, err := openBoth(j.open)
	if errors.Is(err, NotFound) && from == nil { // the folder it came from is gone: there is no name left to sync
		if to, err = openFolder(filepath.Dir(string(j.open.To))); err == nil {
			defer to.close()
			return s.end(ctx, j, to, to)
		}
	}
	if err != nil {
		return err
	}
	defer from.close()
	defer to.close()
	return s.end(ctx, j, from, to)
}

// openBoth opens the folders of an attempt. from is nil when it failed there.
func openBoth(a *attempt) (from, to *folder, err error) {
	if from, err = openFolder(filepath.Dir(string(a.From))); err != nil {
		return nil, nil, err
	}
	to, err = openFolder(filepath.Dir(string(a.To)))
	if err != nil {
		from.close() // told, not to be used
	}
	return from, to, err
}

// end verifies what was moved, makes the move durable and writes it down. The
// wrong thing is put back.
func (s *Store) end(ctx context.Context, j *journal, from, to *folder) error {
	a := j.open
	name := filepath.Base(string(a.To))
	st, err := to.look(ctx, name, a.Do == setAside)
	if err != nil {
		return err
	}
	want := a.Identity
	if a.Do != setAside {
		want.SHA256 = "" // on the way back it may be used at once
	}
	if wrong := expect(string(a.To), want, st); wrong != nil {
		return s.putBack(j, from, to, wrong)
	}
	if err := s.syncBoth(from, to); err != nil {
		return err
	}
	if err := pointRename.At(fault.After); err != nil {
		return failed(string(a.To), "rename", err)
	}
	return s.write(j, pointRecord, line{Event: eventDone})
}

// putBack undoes a rename that moved something else: another thing was put in
// the place of ours between the look and the rename.
func (s *Store) putBack(j *journal, from, to *folder, wrong error) error {
	a := j.open
	err := s.rename(pointBack, to, filepath.Base(string(a.To)), from, filepath.Base(string(a.From)))
	if err != nil {
		return fmt.Errorf("%w; what was moved instead is at %q and could not be put back: %w", wrong, a.To, err)
	}
	if err := errors.Join(pointBack.At(fault.During), s.syncBoth(from, to), pointBack.At(fault.After)); err != nil {
		return errors.Join(wrong, err)
	}
	return errors.Join(wrong, s.back(j, IdentityMismatch))
}

// back writes that everything is where it was.
func (s *Store) back(j *journal, why Code) error {
	return s.write(j, pointRecord, line{Event: eventBack, Code: why})
}

// rename moves one name, if we still own the home.
func (s *Store) rename(step fault.Point, from *folder, name string, to *folder, as string) error {
	path := filepath.Join(from.path, name)
	if err := s.allowed(); err != nil {
		return err
	}
	if err := errors.Join(step.At(fault.Before), fault.Call()); err != nil {
		return failed(path, "rename", err)
	}
	if err := renameExclusive(from.fd, name, to.fd, as); err != nil {
		return failed(path, fmt.Sprintf("rename to %q", filepath.Join(to.path, as)), err)
	}
	s.trace(files.Op{Kind: files.OpRename, Path: path, To: filepath.Join(to.path, as)})
	return nil
}

func (s *Store) syncBoth(from, to *folder) error {
	for _, f := range []*folder{to, from} {
		if err := fault.Call(); err != nil {
			return failed(f.path, "sync", err)
		}
		if err := f.sync(); err != nil {
			if f == from && errors.Is(err, os.ErrPermission) {
				continue // may be written and not read; the rename is one change, and synced at its other end
			}
			return err
		}
		s.trace(files.Op{Kind: files.OpSyncDir, Path: f.path})
	}
	return nil
}

func (s *Store) allowed() error {
	if s.files.Guard == nil {
		return nil
	}
	return s.files.Guard()
}

func (s *Store) trace(op files.Op) {
	if s.files.Trace != nil {
		s.files.Trace(op)
	}
}

// Restore gives the thing back: it moves it to the path to, where nothing may be
// (PlaceTaken), on the same file system (CrossDevice), into a folder that is
// there. One that was restored to that path already is a success.
func (s *Store) Restore(ctx context.Context, id, to string) (Record, error) {
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	r, err := s.restore(ctx, id, to)
	if err != nil {
		return r, fmt.Errorf("restore %s to %q: %w", id, to, err)
	}
	return r, nil
}

func (s *Store) restore(ctx context.Context, id, to string) (Record, error) {
	j, err := s.load(id)
	if err != nil {
		return Record{}, err
	}
	if !usable(Raw(to)) || strings.HasPrefix(to, s.dir+"/") || filepath.Base(filepath.Dir(to)) == BesideName {
		return j.Record, &Error{Code: OriginRefused, Path: to, Text: "is no place to give something back to"}
	}
	if j.State == Restoring { // an earlier call did not come to its end
		if string(j.open.To) != to {
			if err := s.giveUp(ctx, j); err != nil {
				return j.Record, err
			}
		} else if err := s.advance(ctx, j); err != nil {
			return j.Record, err
		}
	}
	if j.State == Kept {
		if err := s.planRestore(ctx, j, to); err != nil {
			return j.Record, err
		}
		if err := s.advance(ctx, j); err != nil {
			return j.Record, err
		}
	}
	if j.State != Restored || string(j.Place) != to {
		return j.Record, fmt.Errorf("%w: it is %s at %q", effects.ErrConflict, j.State, j.Place)
	}
	s.tidy(j.last.folderPath())
	return j.Record, nil
}

// giveUp ends an open attempt to restore that is not to be done any more. One
// that was done is written down as such.
func (s *Store) giveUp(ctx context.Context, j *journal) error {
	at, err := s.find(ctx, j.open.Identity, string(j.open.From))
	if err != nil {
		return err
	}
	if at == ours {
		if at, err = s.find(ctx, j.open.Identity, string(j.open.To)); err == nil && at != ours {
			return s.back(j, "")
		}
	}
	if err != nil {
		return err
	}
	return s.advance(ctx, j)
}

// planRestore writes an attempt after a first look.
func (s *Store) planRestore(ctx context.Context, j *journal, to string) error {
	a := j.next(restore, Raw(to))
	if err := s.present(ctx, a); err != nil {
		return err
	}
	dir, err := openFolder(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer dir.close()
	if _, err := lstat(dir.fd, filepath.Base(to)); err == nil {
		return &Error{Code: PlaceTaken, Path: to}
	} else if !errors.Is(err, unix.ENOENT) {
		return failed(to, "look", err)
	}
	place, err := openFolder(a.folderPath())
	if err != nil {
		return err
	}
	defer place.close()
	if same, err := oneMount(place, dir); err != nil {
		return err
	} else if !same {
		return &Error{Code: CrossDevice, Path: to, Text: fmt.Sprintf("lies on another file system than %q, and nothing is moved by copying", a.From)}
	}
	if err := s.ready(ctx, a, place); err != nil {
		return err
	}
	return s.write(j, pointPlan, line{Event: eventAttempt, Attempt: a})
}

// next is a further attempt with what is kept.
func (j *journal) next(do operation, to Raw) *attempt {
	return &attempt{Number: j.Attempts + 1, Do: do, From: j.Place, To: to, Identity: j.Identity, Folder: j.last.Folder}
}

// present sees that the thing of an attempt is at From.
func (s *Store) present(ctx context.Context, a *attempt) error {
	at, err := s.find(ctx, a.Identity, string(a.From))
	if err != nil || at == ours {
		return err
	}
	if at == other {
		return &Error{Code: IdentityMismatch, Path: string(a.From), Text: "something else is where it was kept"}
	}
	return s.missing(ctx, a, string(a.From))
}

// tidy takes away an empty folder beside an origin. The state's own stays.
func (s *Store) tidy(dir string) {
	if dir == s.things {
		return
	}
	s.placing.Lock()
	defer s.placing.Unlock()
	_ = unix.Rmdir(dir) // not when something is in it
}
