package quarantine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"time"

	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// version of the plans. A plan with a larger one is refused.
const version = 1

// State is how far a thing has come.
type State string

// The states. Only Kept can go to two others.
const (
	Planned   State = "Planned"   // to be set aside; it may be at its origin or at the planned place
	Kept      State = "Kept"      // in quarantine
	Restoring State = "Restoring" // to be given back; it may be at either place
	Restored  State = "Restored"
	Removing  State = "Removing" // the purge has begun; there is no way back
	Purged    State = "Purged"
)

// SessionRef names the Session a thing was of.
type SessionRef struct {
	UID       string `json:"uid,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Details say what a thing is and why it was set aside. They are kept as given.
type Details struct {
	Session     SessionRef `json:"session,omitzero"`
	Repo        Raw        `json:"repo,omitempty"`
	Branch      Raw        `json:"branch,omitempty"`
	Head        string     `json:"head,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	RequestedBy string     `json:"requestedBy,omitempty"`
	// Definition is whatever the caller needs to know of the thing later.
	Definition string `json:"definition,omitempty"`
	// Retention is how long it is kept, in nanoseconds of observed time.
	Retention time.Duration `json:"retention"`
}

// Size is how much a thing holds. Files with several names count once a name.
type Size struct {
	Bytes   int64 `json:"bytes"`
	Files   int64 `json:"files"`   // regular files
	Entries int64 `json:"entries"` // everything, the root included
	// Unreadable is how many folders could not be looked into.
	Unreadable int64 `json:"unreadable,omitempty"`
}

// Record is all that is known of one thing.
type Record struct {
	ID string `json:"id"`
	Details
	Origin Raw `json:"origin"`
	// Time is when it was planned, Deadline that and the retention, by the clock on
	// the wall. When it is due is decided by observed time: see Store.Remaining.
	Time     time.Time `json:"time"`
	Deadline time.Time `json:"deadline"`
	// Since is the observed time at which it was planned.
	Since time.Duration `json:"since"`

	// The following come from the attempts.

	State State `json:"state"`
	// Place is where it is, or, in the midst of an attempt, where it is meant to go.
	Place Raw `json:"place"`
	// From is where it was before the last attempt.
	From     Raw      `json:"from"`
	Identity Identity `json:"identity"`
	Attempts int      `json:"attempts"`
	Size     *Size    `json:"size,omitempty"` // nil while not counted
}

type operation string

const (
	setAside operation = "set-aside"
	restore  operation = "restore"
	purge    operation = "purge"
)

// attempt is one rename, planned.
type attempt struct {
	Number   int       `json:"number"`
	Do       operation `json:"do"`
	From     Raw       `json:"from"`
	To       Raw       `json:"to"`
	Identity Identity  `json:"identity"`
	// Folder is the quarantine folder of From or To. Only where it is found can
	// something be missed in it: it may lie on a disk that is not mounted.
	Folder Identity `json:"folder"`
}

// folderPath is the path of Folder.
func (a *attempt) folderPath() string {
	if a.Do == setAside {
		return filepath.Dir(string(a.To))
	}
	return filepath.Dir(string(a.From))
}

type event string

const (
	eventPlan    event = "plan"    // the first: what and why, with the first attempt
	eventAttempt event = "attempt" // a further one
	eventBack    event = "back"    // it ended with everything at From
	eventDone    event = "done"    // it ended at To
	eventPurged  event = "purged"
	eventSize    event = "size"
)

// line is one line of a plan. Seq counts the lines from 1: what a crash tore is
// no JSON and was never counted, so a gap shows that a whole line was spoiled.
type line struct {
	Version int       `json:"v"`
	Seq     int       `json:"seq"`
	Time    time.Time `json:"time"`
	Event   event     `json:"event"`
	Plan    *plan     `json:"plan,omitempty"`
	Attempt *attempt  `json:"attempt,omitempty"`
	Code    Code      `json:"code,omitempty"` // of back: why
	Size    *Size     `json:"size,omitempty"`
}

// plan is what a thing's first line holds.
type plan struct {
	ID string `json:"id"`
	Details
	Origin Raw           `json:"origin"`
	Since  time.Duration `json:"since"`
}

// journal is one plan file, read and followed to its end.
type journal struct {
	Record
	path string
	seq  int
	open *attempt // not ended yet
	last attempt
	tree string // the inventory beside it
}

func (r *journal) damaged(format string, args ...any) error {
	return &Error{Code: Damaged, Path: r.path, Text: fmt.Sprintf(format, args...)}
}

// maxPlan is many thousand attempts.
const maxPlan = 8 << 20

// decode follows the lines of a plan. Nothing but torn lines is the Record with
// seq 0: nothing was begun.
func decode(path, id string, data []byte) (*journal, error) {
	j := &journal{path: path}
	for text := range bytes.Lines(data) {
		var head struct {
			Version int `json:"v"`
		}
		if json.Unmarshal(text, &head) != nil {
			continue // torn
		}
		if head.Version > version {
			return nil, &Error{Code: NewerVersion, Path: path, Text: fmt.Sprintf("has version %d, this skc knows %d", head.Version, version)}
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil || l.Version != version {
			return nil, j.damaged("line after %d is of no known form", j.seq)
		}
		if err := j.follow(l); err != nil {
			return nil, err
		}
	}
	if j.seq > 0 && j.ID != id {
		return nil, j.damaged("it is the plan of another thing")
	}
	return j, nil
}

// follow does one line.
func (j *journal) follow(l line) error {
	if l.Seq != j.seq+1 || (l.Event == eventPlan) != (j.seq == 0) {
		return j.damaged("line %d follows line %d", l.Seq, j.seq)
	}
	bad := j.damaged("line %d (%s) does not fit the state %q", l.Seq, l.Event, j.State)
	switch l.Event {
	case eventPlan:
		if l.Plan == nil || !validID.MatchString(l.Plan.ID) {
			return bad
		}
		j.Record = Record{
			ID: l.Plan.ID, Details: l.Plan.Details, Origin: l.Plan.Origin, Since: l.Plan.Since,
			Time: l.Time, Deadline: l.Time.Add(l.Plan.Retention), State: Planned,
		}
		if err := j.begin(l.Attempt, bad); err != nil {
			return err
		}
	case eventAttempt:
		if err := j.begin(l.Attempt, bad); err != nil {
			return err
		}
	case eventBack, eventDone:
		if j.open == nil {
			return bad
		}
		a := *j.open
		j.open = nil
		if l.Event == eventBack {
			j.Place, j.State = a.From, Kept
			if a.Do == setAside {
				j.State = Planned
			}
		} else {
			j.Place = a.To
			j.State = map[operation]State{setAside: Kept, restore: Restored, purge: Removing}[a.Do]
		}
	case eventPurged:
		if j.State != Removing || j.open != nil {
			return bad
		}
		j.State, j.Place = Purged, ""
	case eventSize:
		if l.Size == nil {
			return bad
		}
		j.Size = l.Size
	default:
		return bad
	}
	j.seq = l.Seq
	return nil
}

// begin opens an attempt.
func (j *journal) begin(a *attempt, bad error) error {
	if a == nil || j.open != nil || a.Number != j.Attempts+1 || !usable(a.From) || !usable(a.To) || a.Identity.Ino == 0 {
		return bad
	}
	from, to := map[operation]State{setAside: Planned, restore: Kept, purge: Kept}[a.Do], Planned
	switch a.Do {
	case setAside:
		if a.From != j.Origin {
			return bad
		}
	case restore, purge:
		if a.From != j.Place {
			return bad
		}
		if to = Restoring; a.Do == purge {
			to = Removing
		}
	}
	if from != j.State {
		return bad
	}
	j.open, j.last, j.Attempts, j.State, j.Identity = a, *a, a.Number, to, a.Identity
	j.Place, j.From = a.To, a.From
	return nil
}

// usable tells a path that may be opened.
func usable(p Raw) bool {
	return filepath.IsAbs(string(p)) && filepath.Clean(string(p)) == string(p) && p != "/" && !bytes.ContainsRune([]byte(p), 0)
}

// validID is a file's name on every system, and no option.
var validID = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9.-]{0,126}[a-z0-9])?$`)

const planExt = ".jsonl"

// load reads the plan of id; NotFound when there is none.
func (s *Store) load(id string) (*journal, error) {
	if !validID.MatchString(id) {
		return nil, &Error{Code: NotFound, Path: id, Text: "is no id"}
	}
	path := filepath.Join(s.plans, id+planExt)
	data, err := files.Read(path, maxPlan)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Error{Code: NotFound, Path: path, Text: "no plan"}
	case errors.Is(err, files.ErrNotRegular), errors.Is(err, files.ErrTooLarge):
		return nil, &Error{Code: Damaged, Path: path, Err: err}
	case err != nil:
		return nil, &Error{Code: IOError, Path: path, Err: err}
	}
	j, err := decode(path, id, data)
	if err != nil {
		return nil, err
	}
	j.tree = filepath.Join(s.plans, id+treeExt)
	return j, nil
}

// write appends one line, durably, and follows it. After an error the line may
// or may not be there; the next load shows it.
func (s *Store) write(j *journal, step fault.Point, l line) error {
	l.Version, l.Seq, l.Time = version, j.seq+1, s.clock.Now().UTC()
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := s.files.Append(step, j.path, append(data, '\n'), files.Durable); err != nil {
		return &Error{Code: IOError, Path: j.path, Text: "write the plan", Err: err}
	}
	return j.follow(l)
}
