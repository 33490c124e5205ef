package spool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects/files"
)

// file is one file with a resource's name, or one that an object says defines
// it. Its docs are those of its last good version: a file that is unreadable,
// invalid or being written keeps them.
type file struct {
	root  *root
	dir   *dir // nil until it is seen
	below *dir // why it was not seen: a directory that cannot be listed
	path  string
	order int64 // the first seen is the least
	born  time.Time
	seen  uint64
	gone  bool

	sig     signature // when the bytes were read
	trusted bool      // equal signatures mean equal bytes
	have    bool      // hash and the verdict are those of bytes that stood still
	hash    [sha256.Size]byte
	invalid *api.InvalidSpecError // the verdict, nil when good
	docs    []doc
	digest  string // of the version that docs are; empty when not known

	changed  time.Time // when its last change was seen
	fault    string    // why it cannot be read; empty when it can
	slow     bool      // it has been changing for long
	settling *settling
	job      *job
	again    bool // something happened since the job began

	initial bool               // of the first look, and its turn has not come
	ready   bool               // nothing of it is waited for
	waiting []v1alpha1.Decoded // docs that wait for its turn
	decided string             // their digest
}

// doc is one document: which object it defines, and what it says until the
// sink has it.
type doc struct {
	key     api.Key
	decoded *v1alpha1.Decoded
}

// settling is what is known of a file while it is not known to stand still.
type settling struct {
	since   time.Time
	gap     time.Duration // longest pause between two changes
	last    signature
	moved   bool // it appeared under its name and no write was heard since
	written bool // a write was heard
	reads   int

	// The last read. data is kept while a fence is awaited.
	read    time.Time
	hash    [sha256.Size]byte
	sig     signature
	trusted bool
	data    []byte
}

// job is one file to be read, or the bytes of one to be decoded.
type job struct {
	file   *file
	name   string // as messages name it
	path   string
	decode bool

	at            time.Time
	data          []byte
	hash          [sha256.Size]byte
	before, after signature
	trusted       bool
	decoded       []v1alpha1.Decoded
	err           error
}

func (s *Spool) readWorker(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-s.reads:
			if j.decode {
				s.counts.parses.Add(1)
				j.decoded, j.err = s.o.Decode(j.name, j.data)
			} else {
				s.counts.reads.Add(1)
				j.err = j.read()
			}
			select {
			case <-ctx.Done():
				return
			case s.readDone <- j:
			}
		}
	}
}

func (j *job) read() (err error) {
	if j.before == (signature{}) { // else it was just looked at
		if j.before, _, err = statAt(-1, "/", j.path); err != nil {
			return err
		}
	}
	if j.data, err = files.Read(j.path, v1alpha1.MaxFileBytes); err != nil {
		return err
	}
	j.hash = sha256.Sum256(j.data)
	j.after, _, err = statAt(-1, "/", j.path)
	return err
}

// lookFile compares what a stat of f found with what was read of it.
func (s *Spool) lookFile(f *file, sig signature, op fsnotify.Op) {
	st := f.settling
	if st == nil {
		if f.have && f.trusted && f.fault == "" && sig == f.sig {
			return
		}
		st = s.settle(f, sig)
	} else if sig != st.last {
		st.last = sig
		s.change(f, st)
	} else if !op.Has(fsnotify.Create) && !op.Has(fsnotify.Write) {
		return // nothing new; it is being read
	}
	if op.Has(fsnotify.Create) {
		st.moved, st.written = true, false
	}
	if op.Has(fsnotify.Write) {
		st.moved, st.written = false, true
	}
	st.data = nil
	s.read(f)
}

// settle begins to wait until f stands still.
func (s *Spool) settle(f *file, sig signature) *settling {
	st := &settling{since: s.now(), last: sig}
	f.settling = st
	s.change(f, st)
	f.root.unread++
	s.agenda.add(st.since.Add(slowAfter), func() {
		if f.settling == st {
			f.slow = true
			s.dirty(f)
		}
	})
	return st
}

// change notes a change, and the pause before it unless that was a long one.
func (s *Spool) change(f *file, st *settling) {
	if gap := s.now().Sub(f.changed); gap <= 10*s.o.Settle {
		st.gap = max(st.gap, gap)
	}
	f.changed = s.now()
}

// settled ends the wait.
func (s *Spool) settled(f *file) {
	if f.settling != nil {
		f.settling = nil
		f.root.unread--
		s.readAll(f.root)
	}
	f.slow = false
}

func (s *Spool) read(f *file) {
	if f.job != nil {
		f.again = true
		return
	}
	f.job = &job{file: f, name: f.path, path: filepath.Join(f.dir.real, filepath.Base(f.path)), at: s.now()}
	if f.initial && f.settling.reads == 0 {
		f.job.before = f.settling.last
	}
	s.readQueue = append(s.readQueue, f.job)
}

// quiet is how long f must stand still. One that is written with pauses gets
// longer than they are, and one that has become shorter is likely to be on its
// way back to its length.
func (s *Spool) quiet(f *file, st *settling) time.Duration {
	d := max(s.o.Settle, 2*st.gap)
	if f.have && st.sig.size < f.sig.size {
		d = max(d, 10*s.o.Settle)
	}
	return d
}

func (s *Spool) onRead(j *job) {
	f := j.file
	f.job = nil
	if f.gone {
		return
	}
	if j.decode {
		s.onDecoded(j)
		return
	}
	st := f.settling
	if st == nil { // a fault came between
		f.again = false
		return
	}
	again := f.again
	f.again = false
	st.reads++
	if j.err != nil {
		s.onReadError(f, j, again)
		return
	}
	still := j.before == j.after && !again
	trusted := j.after.settledBy(j.at)
	now := s.now()
	switch {
	case !still:
		s.turn(f)
		st.read = time.Time{}
		wait := s.o.Settle // a writer without pause costs no more than this
		if st.reads < 3 {
			wait = 0
		}
		s.readIn(f, wait)
	case f.have && j.hash == f.hash: // what is in force already
		f.sig, f.trusted = j.after, trusted
		s.accepted(f)
	case !st.written && j.after.age(now) >= s.o.Settle:
		s.accept(f, j.data, j.hash, j.after, trusted)
	case !st.read.IsZero() && st.hash == j.hash && st.sig == j.after && now.Sub(st.read) >= s.quiet(f, st):
		s.accept(f, j.data, j.hash, j.after, trusted)
	default:
		if st.read.IsZero() || st.hash != j.hash || st.sig != j.after {
			st.read, st.hash, st.sig, st.trusted = now, j.hash, j.after, trusted
		}
		if st.moved && s.watch.await(f) {
			st.data = j.data
		}
		s.readIn(f, st.read.Add(s.quiet(f, st)).Sub(now))
		if st.reads > 1 {
			s.turn(f) // the first look need not wait for a writer
		}
	}
}

// readIn reads f again after d, when it is still not known to stand still.
func (s *Spool) readIn(f *file, d time.Duration) {
	st := f.settling
	if d <= 0 {
		s.read(f)
		return
	}
	s.agenda.add(s.now().Add(d), func() {
		if f.settling == st && f.job == nil && (st.read.IsZero() || s.now().Sub(st.read) >= s.quiet(f, st)) {
			s.read(f)
		}
	})
}

// passed accepts a file that arrived by rename: a fence was heard after its
// bytes were read, and no write before it.
func (s *Spool) passed(f *file) {
	st := f.settling
	if st == nil || st.data == nil || f.job != nil { // a later event drops the data
		return
	}
	s.accept(f, st.data, st.hash, st.sig, st.trusted)
}

func (s *Spool) onReadError(f *file, j *job, again bool) {
	switch {
	case errors.Is(j.err, fs.ErrNotExist): // since it was looked at
		s.lookAt(ref{f.root, f.dir, filepath.Base(f.path)}, 0)
		if f.settling != nil && !f.gone && f.job == nil {
			s.readIn(f, s.o.Settle)
		}
	case again:
		s.readIn(f, s.o.Settle)
	case errors.Is(j.err, files.ErrTooLarge):
		f.sig, f.trusted, f.have = j.before, j.before.settledBy(j.at), true
		f.hash = [sha256.Size]byte{}
		f.invalid = &api.InvalidSpecError{File: f.path, Problems: []api.Problem{
			{Message: fmt.Sprintf("the file is larger than %d bytes", v1alpha1.MaxFileBytes)},
		}}
		s.accepted(f)
	default:
		s.setFault(f, reason(j.err))
		s.agenda.add(s.now().Add(s.o.Poll), func() {
			if f.fault != "" && !f.gone && !f.dir.gone {
				s.lookAt(ref{f.root, f.dir, filepath.Base(f.path)}, 0)
			}
		})
	}
}

// setFault says that f cannot be read. What it defined stays.
func (s *Spool) setFault(f *file, why string) {
	s.settled(f)
	s.turn(f)
	if f.fault != why {
		f.fault = why
		s.dirty(f)
	}
}

// digest tells bytes, and who judges them, from all others.
func (s *Spool) digest(hash [sha256.Size]byte) string {
	if s.o.Version == "" {
		return ""
	}
	sum := sha256.Sum256(append(hash[:], s.o.Version...))
	return hex.EncodeToString(sum[:])
}

// unchanged tells whether the sink's objects are what f's bytes say, all of
// them and nobody else's, so that there is nothing to be learnt by decoding them.
func (s *Spool) unchanged(f *file, digest string) bool {
	if !f.initial || digest == "" || len(f.docs) == 0 {
		return false
	}
	for _, d := range f.docs {
		o := s.objects[d.key]
		if o == nil || !o.known || o.want != nil || len(o.claims) != 1 || o.claims[0] != f {
			return false
		}
		is := store.Source{Root: f.root.path, File: f.path, Document: o.source.Document, Documents: len(f.docs), Digest: digest}
		if o.source != is {
			return false
		}
	}
	return true
}

// accept decodes bytes that stand still.
func (s *Spool) accept(f *file, data []byte, hash [sha256.Size]byte, sig signature, trusted bool) {
	f.settling.data = nil
	if digest := s.digest(hash); s.unchanged(f, digest) {
		f.sig, f.trusted, f.have, f.hash, f.digest = sig, trusted, true, hash, digest
		for _, d := range f.docs {
			s.objects[d.key].told = accepted
		}
		s.accepted(f)
		return
	}
	f.job = &job{file: f, name: f.path, decode: true, data: data, hash: hash, after: sig, trusted: trusted}
	s.readQueue = append(s.readQueue, f.job)
}

func (s *Spool) onDecoded(j *job) {
	f := j.file
	f.sig, f.trusted, f.have, f.hash = j.after, j.trusted, true, j.hash
	again, op := f.again, fsnotify.Write
	if f.settling.moved {
		op = fsnotify.Create
	}
	f.again = false
	f.invalid = verdict(f, j)
	if f.invalid == nil {
		if digest := s.digest(j.hash); f.initial {
			f.waiting, f.decided = j.decoded, digest
		} else {
			s.setDocs(f, j.decoded, digest)
		}
	}
	s.accepted(f)
	if again {
		s.lookAt(ref{f.root, f.dir, filepath.Base(f.path)}, op)
	}
}

// verdict is what is wrong with the decoded file.
func verdict(f *file, j *job) *api.InvalidSpecError {
	if j.err != nil {
		if e, ok := api.AsInvalidSpec(j.err); ok {
			return e
		}
		return &api.InvalidSpecError{File: f.path, Problems: []api.Problem{{Message: j.err.Error()}}}
	}
	if len(j.decoded) == 0 && len(f.docs) > 0 {
		// A file that was emptied is more likely half written than meant: nobody
		// deletes that way, and a delete cannot be taken back.
		return &api.InvalidSpecError{File: f.path, Problems: []api.Problem{
			{Message: "the file defines nothing any more; remove the file to delete what it defined"},
		}}
	}
	return nil
}

// accepted ends a change of f: its bytes are those in force, good or not.
func (s *Spool) accepted(f *file) {
	f.fault = ""
	s.settled(f)
	s.turn(f)
	s.dirty(f)
}

// turn says that nothing of f is waited for, and lets the files of the first
// look have their objects in order.
func (s *Spool) turn(f *file) {
	f.ready = true
	if f.initial {
		s.advanceInitial()
	}
}

func (s *Spool) advanceInitial() {
	l := s.initial
	if l == nil || !l.sorted {
		return
	}
	for l.next < len(l.files) && l.files[l.next].ready {
		f := l.files[l.next]
		l.next++
		f.initial = false
		if f.waiting != nil && !f.gone {
			s.setDocs(f, f.waiting, f.decided)
		}
		f.waiting = nil
	}
	if !l.left() {
		for _, o := range s.objects {
			s.refresh(o)
		}
		s.begun()
	}
}

// goneFile drops a file that is surely not there.
func (s *Spool) goneFile(f *file) {
	f.gone = true
	if f.dir != nil {
		delete(f.dir.files, filepath.Base(f.path))
	}
	delete(f.root.unseen, f)
	delete(s.files, f.path)
	s.settled(f)
	s.turn(f)
	docs := f.docs
	f.docs = nil
	if len(docs) > 0 {
		s.left[f.path] = docs
	}
	for _, d := range docs {
		s.unclaim(d.key, f)
	}
	if len(f.root.gone) > 0 {
		s.pruneAt(f.root, s.now().Add(s.o.PruneSettle)) // it may have been why something was kept
	}
	s.reports.files[f.path] = f
}

// adopt gives a file that came back to its path the objects that wait there: if
// it turns out to be bad, they have their last good version.
func (s *Spool) adopt(f *file) {
	docs := s.left[f.path]
	delete(s.left, f.path)
	for _, d := range docs {
		if o := s.objects[d.key]; o != nil && o.source.File == f.path && o.owner() == nil && !o.remove {
			f.docs = append(f.docs, doc{key: d.key})
			o.claims = append(o.claims, f)
			s.resolve(o)
		}
	}
}

// dirty says that what is to be told of f may have changed.
func (s *Spool) dirty(f *file) {
	s.reports.files[f.path] = f
	for _, d := range f.docs {
		if o := s.objects[d.key]; o != nil {
			s.refresh(o)
		}
	}
}
