package spool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// RootState is what a root is like.
type RootState string

// The states of a root.
const (
	RootPending       RootState = "Pending"       // not looked at yet
	RootReady         RootState = "Ready"         // read and in force
	RootIncomplete    RootState = "Incomplete"    // some folder below cannot be listed: nothing is removed
	RootMissing       RootState = "Missing"       // no such folder: nothing is removed
	RootUnreadable    RootState = "Unreadable"    // the folder cannot be listed: nothing is removed
	RootReplaced      RootState = "Replaced"      // another folder that lacks objects: they are kept
	RootPruneHeld     RootState = "PruneHeld"     // a mass removal waits
	RootNotConfigured RootState = "NotConfigured" // no source root any more, and objects are left
)

// FileState is why a file is not simply good.
type FileState string

// The states of a file that is not good.
const (
	FileInvalid    FileState = "Invalid"    // its content is refused
	FileUnreadable FileState = "Unreadable" // it, or its folder, cannot be read
	FileWriting    FileState = "Writing"    // it does not stand still
	FileDuplicate  FileState = "Duplicate"  // it defines an object of another file
)

// Modes of watching.
const (
	ModeInotify = "inotify"
	ModePolling = "polling"
)

// RootReport is what is known of one root.
type RootReport struct {
	Path  string    `json:"path"`
	Mode  string    `json:"mode"` // inotify, or polling where a folder cannot be watched
	State RootState `json:"state"`
	// Message says why the state is not Ready and what is about to happen.
	Message string `json:"message,omitempty"`
	// Identity is the device and inode of the folder that is there.
	Identity string `json:"identity,omitempty"`
	// Overflows is how often events were lost since the start.
	Overflows int64 `json:"overflows"`
	// Held is how many objects are kept although no file defines them.
	Held int `json:"held"`
	// Deadline is when they are removed, if nothing changes.
	Deadline *metav1.Time `json:"deadline,omitempty"`
}

// FileReport is what is wrong with one file, or folder.
type FileReport struct {
	Path    string    `json:"path"`
	Root    string    `json:"root"`
	State   FileState `json:"state"`
	Message string    `json:"message"`
	// Lines are the lines of the problems, where known.
	Lines []int `json:"lines,omitempty"`
}

// Reports is all that the spool reports. A file that is not in it is good, or
// not there.
type Reports struct {
	Roots []RootReport
	Files []FileReport
}

const (
	rootSuffix     = ".root.json"
	fileSuffix     = ".file.json"
	identitySuffix = ".identity.json"
	confirmSuffix  = ".confirm.json"

	maxReport = 1 << 20
)

var (
	pointReport   = fault.New("spool.report")
	pointIdentity = fault.New("spool.identity")
	pointConfirm  = fault.New("spool.confirm")
)

// recordPath is where the record of one root or file is.
func recordPath(dir, path, suffix string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(dir, hex.EncodeToString(sum[:12])+suffix)
}

// ReadReports reads what the spool last reported into dir, sorted by path. A
// folder that is not there holds no reports. A record that cannot be read is in
// the error, with all others read.
func ReadReports(dir string) (Reports, error) {
	var all Reports
	var errs []error
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return all, fmt.Errorf("read reports: %w", err)
	}
	for _, e := range entries {
		var err error
		switch path := filepath.Join(dir, e.Name()); {
		case hidden(e.Name()):
		case strings.HasSuffix(path, rootSuffix):
			err = readRecord(path, &all.Roots)
		case strings.HasSuffix(path, fileSuffix):
			err = readRecord(path, &all.Files)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // gone since the listing: good again
			errs = append(errs, err)
		}
	}
	slices.SortFunc(all.Roots, func(a, b RootReport) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(all.Files, func(a, b FileReport) int { return strings.Compare(a.Path, b.Path) })
	return all, errors.Join(errs...)
}

func readRecord[T any](path string, into *[]T) error {
	data, err := files.Read(path, maxReport)
	if err != nil {
		return fmt.Errorf("read report: %w", err)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("read report %s: %w", path, err)
	}
	*into = append(*into, v)
	return nil
}

// identityRecord says which directory a root's objects came from. A confirmation
// has the same form: it holds for the directory that was there when someone
// confirmed, and for no other.
type identityRecord struct {
	Path     string `json:"path"`
	Identity string `json:"identity"` // empty: there is none
}

// WriteConfirm tells the spool that what is gone from root may be removed, and
// that the directory which is there now is the right one. It works with the
// controller down too, which then acts when it starts.
func WriteConfirm(layer *files.Layer, reportDir, root string) error {
	id, err := files.Identity(root, true)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("confirm the removals of %s: %w", root, err)
	}
	data, err := json.Marshal(identityRecord{root, id})
	if err != nil {
		return fmt.Errorf("confirm the removals of %s: %w", root, err)
	}
	return layer.Write(pointConfirm, recordPath(reportDir, root, confirmSuffix), data, files.Durable)
}

// confirms acts on the confirmations that are there, once each. What is gone is
// not known before the files of the first look are read.
func (s *Spool) confirms() {
	if s.beginning() {
		return
	}
	for _, r := range s.roots {
		path := recordPath(s.o.ReportDir, r.path, confirmSuffix)
		sig, _, err := statAt(-1, "/", path)
		if errors.Is(err, fs.ErrNotExist) {
			r.asked = signature{}
			continue
		}
		var data []byte
		if err == nil && sig != r.asked {
			data, err = files.Read(path, maxReport)
		}
		if err != nil { // the next look tries again
			s.o.Log.Error(err, "confirmation cannot be read", "root", r.path)
			continue
		}
		if sig != r.asked {
			r.asked = sig
			var c identityRecord
			if err := json.Unmarshal(data, &c); err != nil {
				s.o.Log.Error(err, "confirmation is not one", "root", r.path)
			} else if s.look(r); c.Identity == r.current || !r.configured {
				s.confirm(r)
			}
		}
		s.endConfirm(r)
	}
}

// endConfirm removes a confirmation when all that it asked for is done, and not
// before: a crash in between repeats it. Longer it must not stay, or it would
// hold for later removals too.
func (s *Spool) endConfirm(r *root) {
	if r.asked == (signature{}) || r.confirmed {
		return
	}
	for o := range r.gone {
		if o.remove {
			return
		}
	}
	if r.unrecorded && r.state != RootReady {
		s.writeIdentity(r)
	}
	if r.unrecorded { // a look at a root that is there writes it again
		return
	}
	path := recordPath(s.o.ReportDir, r.path, confirmSuffix)
	if sig, _, err := statAt(-1, "/", path); err == nil && sig != r.asked {
		return // another one, which is to be acted on
	}
	if err := s.o.Files.Remove(pointConfirm, path, files.Derived); err != nil { // the next look tries again
		s.o.Log.Error(err, "remove confirmation", "root", r.path)
		return
	}
	r.asked = signature{}
}

func (s *Spool) readIdentity(root string) string {
	data, err := files.Read(recordPath(s.o.ReportDir, root, identitySuffix), maxReport)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	var c identityRecord
	if err = errors.Join(err, json.Unmarshal(data, &c)); err != nil {
		s.o.Log.Error(err, "which directory a root was is not known; what is missing from it is held", "root", root)
		return ""
	}
	return c.Identity
}

// setIdentity makes the directory that is there the root's own.
func (s *Spool) setIdentity(r *root) {
	r.recorded = r.current
	s.writeIdentity(r)
}

func (s *Spool) writeIdentity(r *root) {
	data, err := json.Marshal(identityRecord{r.path, r.recorded})
	if err == nil {
		err = s.o.Files.Write(pointIdentity, recordPath(s.o.ReportDir, r.path, identitySuffix), data, files.Durable)
	}
	r.unrecorded = err != nil
	if err != nil {
		// It is known, and only not on disk. Forgotten, the next removal would look
		// like one from another directory, and be held for ever.
		s.o.Log.Error(err, "record which directory a root is; tried again", "root", r.path)
		s.agenda.add(s.now().Add(s.o.Poll), func() {
			if r.unrecorded {
				s.writeIdentity(r)
				s.endConfirm(r)
			}
		})
	}
}

// reports holds what is to be reported and what was.
type reports struct {
	roots map[*root]struct{}
	files map[string]*file
	dirs  map[*dir]struct{}

	written map[string][]byte // by the record's path
	stale   map[string]struct{}
	failing bool
}

// openReports reads what an earlier run reported: what is true no more goes
// when the first look is done.
func (s *Spool) openReports() error {
	s.reports = reports{
		roots: map[*root]struct{}{}, files: map[string]*file{}, dirs: map[*dir]struct{}{},
		written: map[string][]byte{}, stale: map[string]struct{}{},
	}
	entries, err := os.ReadDir(s.o.ReportDir)
	if err != nil {
		return fmt.Errorf("read reports: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(s.o.ReportDir, e.Name())
		if hidden(e.Name()) || !strings.HasSuffix(path, rootSuffix) && !strings.HasSuffix(path, fileSuffix) {
			continue
		}
		data, err := files.Read(path, maxReport)
		if err != nil {
			data = nil
		}
		s.reports.written[path] = data
		s.reports.stale[path] = struct{}{}
	}
	return nil
}

// flush writes the records that changed.
func (p *reports) flush(s *Spool) {
	if p.failing || s.beginning() || len(p.roots)+len(p.files)+len(p.dirs) == 0 && (len(p.stale) == 0 || s.initial != nil) {
		return
	}
	ok := true
	for r := range p.roots {
		if p.put(s, r.path, rootSuffix, s.rootReport(r)) {
			delete(p.roots, r)
		} else {
			ok = false
		}
	}
	for path, f := range p.files {
		var report any
		if now := s.files[path]; now != nil {
			f = now
		}
		if state, message, lines := s.fileReport(f); state != "" && !f.gone {
			report = FileReport{Path: f.path, Root: f.root.path, State: state, Message: message, Lines: lines}
		}
		if p.put(s, path, fileSuffix, report) {
			delete(p.files, path)
		} else {
			ok = false
		}
	}
	for d := range p.dirs {
		var report any
		if d.err != nil && !d.gone {
			report = FileReport{Path: d.path, Root: d.root.path, State: FileUnreadable, Message: reason(d.err)}
		}
		if p.put(s, d.path, fileSuffix, report) {
			delete(p.dirs, d)
		} else {
			ok = false
		}
	}
	if s.initial == nil {
		for path := range p.stale {
			if err := s.o.Files.Remove(pointReport, path, files.Derived); err != nil {
				ok = false
				continue
			}
			delete(p.stale, path)
			delete(p.written, path)
		}
	}
	if !ok {
		p.failing = true
		s.agenda.add(s.now().Add(s.o.Poll), func() { p.failing = false })
	}
}

// put writes the record of path, or removes it when report is nil. An equal one
// is not written.
func (p *reports) put(s *Spool, path, suffix string, report any) bool {
	if report == nil && len(p.written) == 0 {
		return true
	}
	record := recordPath(s.o.ReportDir, path, suffix)
	old, there := p.written[record]
	if report == nil {
		if there {
			if err := s.o.Files.Remove(pointReport, record, files.Derived); err != nil {
				s.o.Log.Error(err, "remove report", "path", path)
				return false
			}
			delete(p.written, record)
			delete(p.stale, record)
		}
		return true
	}
	data, err := json.Marshal(report)
	if err == nil && !(there && bytes.Equal(old, data)) {
		err = s.o.Files.Write(pointReport, record, data, files.Derived)
	}
	if err != nil {
		s.o.Log.Error(err, "write report", "path", path)
		return false
	}
	p.written[record] = data
	delete(p.stale, record)
	return true
}

func (s *Spool) rootReport(r *root) RootReport {
	report := RootReport{
		Path: r.path, Mode: ModeInotify, State: r.state, Message: r.message, Identity: r.current,
		Overflows: s.counts.overflows.Load(),
	}
	if r.polling {
		report.Mode = ModePolling
	}
	for o := range r.gone {
		if o.held != "" {
			report.Held++
		}
	}
	if r.absent {
		for _, o := range s.objects {
			if o.root == r && o.known {
				report.Held++
			}
		}
		report.Message = r.absentMessage()
	}
	switch {
	case r.state != RootReady:
	case !r.deadline.IsZero():
		report.State = RootPruneHeld
		report.Deadline = &metav1.Time{Time: r.deadline.UTC().Truncate(time.Second)}
		report.Message = fmt.Sprintf("%d objects are about to be removed, because their files are gone: %s%s", report.Held, r.someGone(), confirmHint)
	case report.Held > 0:
		report.State = RootReplaced
		report.Message = fmt.Sprintf("another directory than before, without the files of %d objects: %s%s", report.Held, r.someGone(), confirmHint)
	case len(r.bad) > 0:
		report.State = RootIncomplete
		paths := make([]string, 0, len(r.bad))
		for d := range maps.Keys(r.bad) {
			paths = append(paths, d.path)
		}
		report.Message = "cannot be listed, and nothing is removed until they can: " + some(paths)
	}
	return report
}

func (r *root) someGone() string {
	names := make([]string, 0, len(r.gone))
	for o := range r.gone {
		if o.held != "" {
			names = append(names, o.key.String())
		}
	}
	return some(names)
}

// some is the first names of many, always the same ones.
func some(names []string) string {
	slices.Sort(names)
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// fileReport is what is wrong with f.
func (s *Spool) fileReport(f *file) (FileState, string, []int) {
	if d := f.failedDir(); d != nil && f.fault == "" {
		return "", "", nil // the folder has a report of its own
	}
	state, message := f.trouble()
	if state == FileInvalid {
		var lines []int
		for _, p := range f.invalid.Problems {
			if p.Line > 0 {
				lines = append(lines, p.Line)
			}
		}
		return state, clip(message), lines
	}
	if state != "" {
		return state, message, nil
	}
	var messages []string
	for _, d := range f.docs {
		if o := s.objects[d.key]; o != nil && o.source.File != f.path && o.owner() != nil {
			messages = append(messages, duplicate(o, f))
		}
	}
	if len(messages) > 0 {
		return FileDuplicate, clip(strings.Join(messages, "\n")), nil
	}
	return "", "", nil
}

// dirtyRoot says that what is to be told of all objects of r may have changed.
func (s *Spool) dirtyRoot(r *root) {
	s.reports.roots[r] = struct{}{}
	for _, o := range s.objects {
		if o.root == r {
			s.refresh(o)
		}
	}
}
