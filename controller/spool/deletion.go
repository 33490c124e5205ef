package spool

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skc.dev/skc/api"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// deletionSuffix is the ending of a record of what somebody deletes by name.
const deletionSuffix = ".delete.json"

// landed is how long the edit may take that follows a record. Until then an
// object whose document is there is one that the edit has not come to.
const landed = time.Minute

var pointDeletion = fault.New("spool.deletion")

// Deletion is one object that a user deletes by name, and the file that defines
// it. When its document is gone from there it was meant: none of the guards
// against a slip or an unmounted disk applies.
type Deletion struct {
	Key  api.Key `json:"key"`
	File string  `json:"file"`
}

// DeletionRecord is what WriteDeletion has written.
type DeletionRecord struct {
	layer *files.Layer
	path  string
	all   []Deletion
}

// WriteDeletion tells the spool what is about to be taken out of its files. It
// is called before they are edited, makes reportDir when it is missing, and
// works with the controller down, which then acts when it starts.
func WriteDeletion(layer *files.Layer, reportDir string, all []Deletion) (*DeletionRecord, error) {
	if err := files.MkdirPrivate(reportDir); err != nil {
		return nil, err
	}
	r := &DeletionRecord{layer, filepath.Join(reportDir, strings.ToLower(rand.Text())+deletionSuffix), all}
	return r, r.write()
}

func (r *DeletionRecord) write() error {
	data, err := json.Marshal(r.all)
	if err != nil {
		return fmt.Errorf("record a deletion: %w", err)
	}
	return r.layer.Write(pointDeletion, r.path, data, files.Durable)
}

// Keep takes back all that the record names but done: those files were not
// edited after all, and what happens to them later was not meant.
func (r *DeletionRecord) Keep(done []Deletion) error {
	switch {
	case len(done) == len(r.all):
		return nil
	case len(done) == 0:
		return r.layer.Remove(pointDeletion, r.path, files.Durable)
	}
	r.all = done
	return r.write()
}

// deletions is one record that the spool has read.
type deletions struct {
	sig  signature
	born time.Time
	open map[Deletion]bool // false when it came to its end
	left int               // that are open
}

// deletionRecords reads the records that are there.
func (s *Spool) deletionRecords() {
	entries, err := os.ReadDir(s.o.ReportDir)
	if err != nil {
		s.o.Log.Error(err, "read what was deleted by name")
		return
	}
	there := map[string]bool{}
	for _, e := range entries {
		if !hidden(e.Name()) && strings.HasSuffix(e.Name(), deletionSuffix) {
			path := filepath.Join(s.o.ReportDir, e.Name())
			there[path] = true
			s.deletionRecord(path)
		}
	}
	for path := range s.deletions {
		if !there[path] { // taken back
			delete(s.deletions, path)
		}
	}
	for path, d := range s.deletions {
		s.endRecord(path, d)
	}
	s.pruneNamed(s.pruneSoon)
}

func (s *Spool) deletionRecord(path string) {
	sig, _, err := statAt(-1, "/", path)
	old := s.deletions[path]
	if err == nil && old != nil && old.sig == sig {
		return
	}
	var data []byte
	if err == nil {
		data, err = files.Read(path, 16*maxReport)
	}
	if err != nil { // it is read at the next look
		if !errors.Is(err, fs.ErrNotExist) {
			s.o.Log.Error(err, "read what was deleted by name")
		}
		return
	}
	var all []Deletion
	if err := json.Unmarshal(data, &all); err != nil { // nothing of ours: the guards stay
		s.o.Log.Error(err, "what was deleted by name is not known", "record", path)
	}
	d := &deletions{sig: sig, born: time.Unix(0, sig.mtime), open: map[Deletion]bool{}}
	if now := s.now(); d.born.After(now) {
		d.born = now
	}
	for _, one := range all {
		ended := false
		if old != nil {
			open, was := old.open[one]
			ended = was && !open
		}
		if _, twice := d.open[one]; !twice && !ended {
			d.left++
		}
		d.open[one] = !ended
	}
	s.deletions[path] = d
	s.agenda.add(d.born.Add(landed), func() { s.expire(path, d) })
}

// named tells whether o's document went away because somebody deleted o by name.
func (s *Spool) named(o *object) bool {
	if o.goneSince.IsZero() {
		return false
	}
	for _, d := range s.deletions {
		if d.open[Deletion{o.key, o.source.File}] {
			return true
		}
	}
	return false
}

// endDeletion ends what was asked for o, which is removed or is there again. A
// record goes when nothing of it is left, and not before: a crash in between
// only repeats it.
func (s *Spool) endDeletion(o *object) {
	for path, d := range s.deletions {
		s.endOne(d, Deletion{o.key, o.source.File})
		s.endRecord(path, d)
	}
}

func (s *Spool) endOne(d *deletions, one Deletion) {
	if d.open[one] {
		d.open[one] = false
		d.left--
	}
}

func (s *Spool) endRecord(path string, d *deletions) {
	if d.left > 0 {
		return
	}
	if err := s.o.Files.Remove(pointDeletion, path, files.Derived); err != nil { // the next look tries again
		s.o.Log.Error(err, "remove the record of a deletion")
		return
	}
	delete(s.deletions, path)
}

// expire ends what the edit did not come to in time: the document is there, and
// should it go away later, that is something else.
func (s *Spool) expire(path string, d *deletions) {
	if s.deletions[path] != d {
		return
	}
	if !s.beginning() {
		for one, open := range d.open {
			if open && s.stays(one) {
				s.endOne(d, one)
			}
		}
		s.endRecord(path, d)
	}
	if d.left > 0 {
		s.agenda.add(s.now().Add(s.o.Poll), func() { s.expire(path, d) })
	}
}

// stays tells whether it is known that one is there, or that it never was.
func (s *Spool) stays(one Deletion) bool {
	o := s.objects[one.Key]
	if o == nil || o.source.File != one.File {
		return true
	}
	f := o.owner()
	if f == nil || f.dir == nil {
		return false
	}
	state, _ := f.trouble()
	return state == "" && f.have && f.settling == nil
}

// begun acts on what users asked for before the start, now that the files of
// the first look are read. It comes before Synced: what was deleted while
// nobody looked must not begin once more.
func (s *Spool) begun() {
	for path, d := range s.deletions {
		if !s.now().Before(d.born.Add(landed)) {
			s.expire(path, d)
		}
	}
	s.pruneNamed(func(r *root) { s.pruneAt(r, s.now()) })
	s.agenda.add(s.now(), s.confirms)
}

// pruneNamed prunes each root from which something named is gone.
func (s *Spool) pruneNamed(prune func(*root)) {
	if len(s.deletions) == 0 {
		return
	}
	for _, r := range s.roots {
		for o := range r.gone {
			if s.named(o) {
				prune(r)
				break
			}
		}
	}
}

// pruneSoon looks at what is gone from r when whoever deletes may be done with
// it, and spends little of the time on looking while they are not.
func (s *Spool) pruneSoon(r *root) {
	if r.soon {
		return
	}
	r.soon = true
	s.agenda.add(s.now().Add(max(s.o.Settle, 4*r.took)), func() {
		r.soon = false
		s.prune(r)
	})
}
