package spool

import (
	"fmt"
	"time"
)

const (
	// massMin and massShare: a look that would remove more than half of five or
	// more objects of a root is a mass removal.
	massMin   = 5
	massShare = 2
)

// pruning is what a root knows of objects whose documents went away.
type pruning struct {
	gone     map[*object]struct{} // no document of their owner's defines them
	complete time.Time            // when the last complete look began; zero before the first

	verifying bool      // a look was made, its files are being read
	verified  time.Time // when it was made
	confirmed bool      // someone said that what is gone may be removed
	asked     signature // of the confirmation that is acted on; zero when there is none
	soon      bool      // a prune of what was deleted by name is near
	// A mass removal waits until then, and members with it.
	deadline time.Time
	members  map[*object]struct{}
	blocked  string // why nothing is removed though something is gone
}

// pruneAt looks at what is gone from r at that time.
func (s *Spool) pruneAt(r *root, at time.Time) {
	s.agenda.add(at, func() { s.prune(r) })
}

// afterLook notes a complete look, and what it may end.
func (s *Spool) afterLook(r *root) {
	r.blocked = ""
	if r.state == RootReady && len(r.bad) == 0 {
		r.complete = s.now()
	} else if len(r.gone) > 0 {
		r.blocked = "nothing is removed until all of the root can be read"
	}
	if r.verifying {
		return
	}
	if r.state == RootReady && r.recorded == "" && !s.knows(r) {
		s.setIdentity(r)
	}
	if r.mismatch() || len(r.gone) > 0 {
		s.pruneAt(r, s.now().Add(s.o.PruneSettle))
	}
}

// mismatch tells whether the root is not the directory that its objects came from.
func (r *root) mismatch() bool { return r.state == RootReady && r.current != r.recorded }

func (s *Spool) knows(r *root) bool {
	for _, o := range s.objects {
		if o.root == r && o.known {
			return true
		}
	}
	return false
}

// prune removes what is surely gone. It looks at the whole root again first,
// and waits until what it finds is read: a document may have moved.
func (s *Spool) prune(r *root) {
	if r.verifying || !s.due(r) && !r.mismatch() {
		return
	}
	if s.beginning() {
		s.pruneAt(r, s.now().Add(s.o.PruneSettle))
		return
	}
	r.verifying, r.verified = true, s.now()
	s.look(r)
	s.readAll(r)
	if r.verifying { // a file that is written for ever blocks nobody for ever
		s.agenda.add(r.verified.Add(s.o.MassHold), func() { s.readAll(r) })
	}
}

// due tells whether something is gone for long enough.
func (s *Spool) due(r *root) bool {
	for o := range r.gone {
		if r.confirmed || s.isDue(o) || !o.remove && s.named(o) {
			return true
		}
	}
	return false
}

func (s *Spool) isDue(o *object) bool {
	return !o.remove && !o.goneSince.IsZero() && !s.now().Before(o.goneSince.Add(s.o.PruneSettle))
}

// readAll goes on with a prune when all files of the root are read.
func (s *Spool) readAll(r *root) {
	if !r.verifying || r.looking || r.unread > 0 && s.now().Before(r.verified.Add(s.o.MassHold)) {
		return
	}
	r.verifying = false
	if r.complete.Before(r.verified) { // it was not complete; the next look tries again
		return
	}
	s.decide(r)
	s.endConfirm(r)
	s.reports.roots[r] = struct{}{}
}

// decide removes, holds or hands over what is gone, after a complete look.
func (s *Spool) decide(r *root) {
	var removals []*object
	unsure := false
	suspects := s.suspects(r)
	for o := range r.gone {
		named := s.named(o)
		switch f := suspects.since(o.goneSince.Add(-s.o.PruneSettle)); {
		case o.remove:
		case named && o.goneSince.After(r.verified): // its document may have moved to where the look was before
			s.pruneSoon(r)
			unsure = true
		case named && len(o.claims) == 0:
			s.removeObject(o)
		case len(o.claims) == 0 && f != nil && !r.confirmed:
			unsure = true
			if s.isDue(o) {
				s.hold(o, fmt.Sprintf("the file is gone; %s, which came at that time, cannot be read and may define the object", f.path))
			}
		case len(o.claims) == 0:
			removals = append(removals, o)
		case named, s.isDue(o): // the other file that defines it has it now
			s.take(o, o.first())
			s.resolve(o)
		}
	}
	if len(removals) == 0 && !unsure {
		r.confirmed, r.deadline = false, time.Time{}
		clear(r.members)
		if r.mismatch() {
			s.setIdentity(r) // all that we know is there: the same content in another directory
		}
		return
	}
	switch now := s.now(); {
	case r.confirmed:
		for _, o := range removals {
			s.removeObject(o)
		}
		r.confirmed, r.deadline = false, time.Time{}
		clear(r.members)
		if r.mismatch() {
			s.setIdentity(r)
		}
	case r.mismatch():
		for _, o := range removals {
			if s.isDue(o) {
				s.hold(o, r.replacedMessage())
			}
		}
	case !r.deadline.IsZero():
		for _, o := range removals {
			_, member := r.members[o]
			switch {
			case !s.isDue(o):
			case now.Before(r.deadline):
				r.members[o] = struct{}{}
				s.hold(o, r.massMessage())
			case member:
				s.removeObject(o)
			}
		}
		if !now.Before(r.deadline) {
			r.deadline = time.Time{}
			clear(r.members)
			s.pruneAt(r, now.Add(s.o.PruneSettle)) // what went after them
		}
	case s.isMass(r, len(removals)):
		r.deadline = now.Add(s.o.MassHold)
		for _, o := range removals {
			r.members[o] = struct{}{}
		}
		for _, o := range removals {
			s.hold(o, r.massMessage())
		}
		s.pruneAt(r, r.deadline)
	default:
		for _, o := range removals {
			if s.isDue(o) {
				s.removeObject(o)
			}
		}
	}
}

// suspects are files of which it is not known what they define.
type suspects []*file

func (s *Spool) suspects(r *root) suspects {
	var all suspects
	for _, f := range s.files {
		if f.root == r && f.dir != nil && len(f.docs) == 0 && (f.invalid != nil || f.fault != "" || f.settling != nil) {
			all = append(all, f)
		}
	}
	return all
}

// since is a suspect that was first seen after t.
func (all suspects) since(t time.Time) *file {
	for _, f := range all {
		if f.born.After(t) {
			return f
		}
	}
	return nil
}

// isMass tells whether n removals are too many to be believed at once. All that
// is gone and not held went within one settle window.
func (s *Spool) isMass(r *root, n int) bool {
	known := 0
	for _, o := range s.objects {
		if o.root == r && o.known && !o.remove {
			known++
		}
	}
	return known >= massMin && n*massShare > known
}

func (s *Spool) removeObject(o *object) {
	o.remove, o.held, o.want = true, "", nil
	s.refresh(o)
}

func (s *Spool) hold(o *object, message string) {
	o.held = message
	s.refresh(o)
}

const confirmHint = "; skcctl prune --confirm removes them now"

func (r *root) massMessage() string {
	return fmt.Sprintf("the file is gone, and with it more than half of the objects of %s; they are removed at %s unless the files come back%s",
		r.path, r.deadline.UTC().Format(time.RFC3339), confirmHint)
}

func (r *root) replacedMessage() string {
	return fmt.Sprintf("%s is another directory than the one that defined the object, and does not define it; it is kept until someone says so%s",
		r.path, confirmHint)
}

func (r *root) absentMessage() string {
	if r.state == RootNotConfigured {
		return r.path + " is no source root any more; its objects are kept until someone says so" + confirmHint
	}
	return r.path + " is missing; its objects are kept until it is back or someone says so" + confirmHint
}

// confirm ends the hold of a root: what is gone from it is removed at once, and
// the directory that is there is the right one from now on.
func (s *Spool) confirm(r *root) {
	s.o.Log.Info("removal confirmed", "root", r.path)
	if r.state == RootMissing || r.state == RootNotConfigured {
		r.recorded = ""
		s.writeIdentity(r)
		if r.top != nil {
			s.goneDir(r.top)
			r.top = nil
		}
		for f := range r.unseen {
			s.goneFile(f)
		}
		for o := range r.gone {
			if len(o.claims) == 0 {
				s.removeObject(o)
			} else {
				s.take(o, o.first())
				s.resolve(o)
			}
		}
		return
	}
	if len(r.gone) == 0 {
		if r.mismatch() {
			s.setIdentity(r)
		}
		return
	}
	r.confirmed = true
	s.prune(r)
}
