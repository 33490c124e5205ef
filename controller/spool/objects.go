package spool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
)

// object is one key that a file defines, or that the sink has from one.
type object struct {
	key    api.Key
	root   *root
	source store.Source // who owns it; its file may be gone
	inode  devino       // of the owner's file, by which a rename is known
	known  bool         // the sink has it
	claims []*file      // whose last good version defines it, the owner or not

	goneSince time.Time // since when no file of its owner's defines it
	held      string    // why it is not removed; empty when it is not held

	// What the sink is to be told.
	want   *store.Desired
	remove bool
	told   metav1.Condition

	queued, busy bool
	failures     int
	retryAt      time.Time
}

// op is one call of the sink.
type op struct {
	object *object
	want   *store.Desired
	remove bool
	source store.Source
	cond   *metav1.Condition

	applied bool
	err     error
}

// openRoots makes the roots, and the files that the sink's objects came from: a
// file keeps its objects until it is seen, or surely gone.
func (s *Spool) openRoots(known map[api.Key]store.Source) {
	byPath := map[string]*root{}
	for _, path := range s.o.Roots {
		if byPath[path] == nil {
			byPath[path] = s.newRoot(path, true)
		}
	}
	for key, source := range known {
		r := byPath[source.Root]
		if r == nil {
			r = s.newRoot(source.Root, false)
			byPath[source.Root] = r
		}
		f := s.files[source.File]
		if f == nil {
			f = &file{root: r, path: source.File}
			s.files[f.path] = f
			r.unseen[f] = struct{}{}
		}
		f.docs = append(f.docs, doc{key: key})
		o := &object{key: key, root: r, source: source, known: true, claims: []*file{f}}
		s.objects[key] = o
	}
}

// setDocs puts a new good version of f in force.
func (s *Spool) setDocs(f *file, decoded []v1alpha1.Decoded, digest string) {
	old := f.docs
	f.digest = digest
	f.docs = make([]doc, 0, len(decoded))
	for i := range decoded {
		f.docs = append(f.docs, doc{api.KeyOf(decoded[i].Object), &decoded[i]})
	}
	for _, d := range old {
		if f.doc(d.key) < 0 {
			s.unclaim(d.key, f)
		}
	}
	for _, d := range f.docs {
		o := s.objects[d.key]
		if o == nil {
			o = &object{key: d.key}
			s.objects[d.key] = o
		}
		if !slices.Contains(o.claims, f) {
			o.claims = append(o.claims, f)
		}
		s.resolve(o)
	}
}

// doc is the place of key in the file, -1 when it is not there.
func (f *file) doc(key api.Key) int {
	return slices.IndexFunc(f.docs, func(d doc) bool { return d.key == key })
}

func (s *Spool) unclaim(key api.Key, f *file) {
	o := s.objects[key]
	if o == nil {
		return
	}
	if f.path == o.source.File {
		o.inode = f.sig.devino
	}
	o.claims = slices.DeleteFunc(o.claims, func(c *file) bool { return c == f })
	s.resolve(o)
}

// owner is the file that o is read from, nil when it defines o no more.
func (o *object) owner() *file {
	for _, f := range o.claims {
		if f.path == o.source.File {
			return f
		}
	}
	return nil
}

// resolve decides which file o is read from after its claims have changed.
func (s *Spool) resolve(o *object) {
	f := o.owner()
	if f != nil && !f.root.configured && len(o.claims) > 1 { // what nobody reads any more gives way
		o.claims = slices.DeleteFunc(o.claims, func(c *file) bool { return c == f })
		f = o.first()
	}
	switch {
	case f != nil:
		s.take(o, f)
	case !o.known && o.want == nil && !o.busy && len(o.claims) == 0:
		s.notGone(o)
		delete(s.objects, o.key)
	case o.source.File == "":
		s.take(o, o.first())
	case s.renamed(o) != nil:
		s.take(o, s.renamed(o))
	case o.goneSince.IsZero():
		o.goneSince = s.now()
		o.want = nil
		o.root.gone[o] = struct{}{}
		s.pruneAt(o.root, o.goneSince.Add(s.o.PruneSettle))
		if s.named(o) {
			s.pruneSoon(o.root)
		}
	}
	for _, c := range o.claims {
		s.reports.files[c.path] = c
	}
	s.refresh(o)
}

// notGone ends o's wait for its removal.
func (s *Spool) notGone(o *object) {
	if o.goneSince.IsZero() {
		return
	}
	s.endDeletion(o)
	r := o.root
	o.goneSince, o.held = time.Time{}, ""
	delete(r.gone, o)
	delete(r.members, o)
	if len(r.members) == 0 {
		r.deadline = time.Time{}
	}
	s.reports.roots[r] = struct{}{}
}

// first is the claim that was seen first.
func (o *object) first() *file {
	return slices.MinFunc(o.claims, func(a, b *file) int { return int(a.order - b.order) })
}

// renamed is the claim that is the owner's file under another name.
func (s *Spool) renamed(o *object) *file {
	for _, f := range o.claims {
		if o.inode != (devino{}) && f.sig.devino == o.inode {
			return f
		}
	}
	return nil
}

// take makes f the owner of o, and o what f says.
func (s *Spool) take(o *object, f *file) {
	s.notGone(o)
	i := f.doc(o.key)
	source := store.Source{Root: f.root.path, File: f.path, Document: i, Documents: len(f.docs), Digest: f.digest}
	if f.docs[i].decoded == nil && f.path == o.source.File { // as the sink has it
		source = o.source
		source.Root = f.root.path
	}
	if f.path != o.source.File {
		s.leave(o)
	}
	stale := o.remove || source != o.source || !o.known
	o.remove = false
	o.root, o.source = f.root, source
	switch d := f.docs[i].decoded; {
	case d != nil:
		o.want = &store.Desired{Object: d.Object, RawSpec: d.RawSpec, Source: source, Renew: s.initial != nil}
	case stale && o.want == nil && f.dir != nil:
		s.reload(f) // the sink had it and has it no more
	}
}

// leave ends o's wait for its owner's file to come back.
func (s *Spool) leave(o *object) {
	path := o.source.File
	docs := slices.DeleteFunc(s.left[path], func(d doc) bool { return d.key == o.key })
	if len(docs) == 0 {
		delete(s.left, path)
	} else {
		s.left[path] = docs
	}
}

// reload decodes f again, although its bytes are the same.
func (s *Spool) reload(f *file) {
	f.have = false
	if f.settling == nil {
		s.settle(f, f.sig)
	}
	s.read(f)
}

// refresh tells the sink of o what it does not know.
func (s *Spool) refresh(o *object) {
	if o.queued || o.busy || s.now().Before(o.retryAt) {
		return
	}
	if c, ok := s.condition(o); !o.remove && o.want == nil && (!ok || !o.known || c == o.told) {
		return
	}
	o.queued = true
	s.applyQueue = append(s.applyQueue, o)
}

// nextApply is the call that is next, as things stand now.
func (s *Spool) nextApply() *op {
	for len(s.applyQueue) > 0 {
		o := s.applyQueue[0]
		c, ok := s.condition(o)
		p := &op{object: o, want: o.want, remove: o.remove, source: o.source}
		if ok && (o.want != nil || o.known && c != o.told) { // a new generation is accepted anew
			p.cond = &c
		}
		if p.remove || p.want != nil || p.cond != nil {
			return p
		}
		s.applyQueue = s.applyQueue[1:]
		o.queued = false
	}
	return nil
}

func (s *Spool) started(p *op) {
	s.applyQueue[0] = nil
	s.applyQueue = s.applyQueue[1:]
	p.object.queued, p.object.busy = false, true
	s.inApply++
}

func (s *Spool) applyWorker(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-s.applies:
			p.call(ctx, s.o.Sink)
			select {
			case <-ctx.Done():
				return
			case s.applied <- p:
			}
		}
	}
}

func (p *op) call(ctx context.Context, sink Sink) {
	if p.remove {
		p.err = sink.Remove(ctx, p.object.key, p.source)
		return
	}
	if p.want != nil { // one write for the object and for what its file's state is
		d := *p.want
		d.Accepted = p.cond
		p.err = sink.Apply(ctx, d)
		p.applied = p.err == nil
	} else if p.cond != nil {
		p.err = sink.SetAccepted(ctx, p.object.key, *p.cond)
	}
}

func (s *Spool) onApplied(p *op) {
	s.inApply--
	o := p.object
	o.busy = false
	if p.applied {
		o.known = true
		if o.want == p.want {
			o.want = nil
			if f := o.owner(); f != nil { // what it says is the sink's now
				f.docs[f.doc(o.key)].decoded = nil
			}
		}
	}
	if p.err != nil && !errors.Is(p.err, effects.ErrNotFound) {
		s.retry(o, p.err)
		return
	}
	o.failures = 0
	switch {
	case p.remove:
		o.known, o.told = false, metav1.Condition{}
		if o.remove {
			s.leave(o)
			s.notGone(o)
			o.remove, o.source = false, store.Source{}
		}
		if o.root != nil {
			s.endConfirm(o.root)
		}
	case p.cond != nil:
		o.told = *p.cond
	}
	if len(o.claims) == 0 && !o.known {
		s.resolve(o)
		return
	}
	s.refresh(o)
}

// retry makes the failed call again later; what else there is to do goes on.
func (s *Spool) retry(o *object, err error) {
	wait := min(retryMin<<min(o.failures, 16), retryMax)
	if o.failures == 0 {
		s.o.Log.Info("the store did not take a change; it is offered again", "object", o.key.String(), "reason", err.Error())
	}
	o.failures++
	o.retryAt = s.now().Add(wait)
	s.agenda.add(o.retryAt, func() { s.refresh(o) })
}

// onGone offers an object again that a file defined while the one before it
// was still being deleted.
func (s *Spool) onGone(key api.Key) {
	o := s.objects[key]
	if o == nil {
		return
	}
	o.known, o.told = false, metav1.Condition{}
	o.failures, o.retryAt = 0, time.Time{}
	s.resolve(o)
}

// condition is what o's SourceAccepted is to be; false when it is to be left as
// it is.
func (s *Spool) condition(o *object) (metav1.Condition, bool) {
	no := func(reason, message string) (metav1.Condition, bool) {
		return metav1.Condition{
			Type: v1alpha1.SourceAccepted, Status: metav1.ConditionFalse, Reason: reason, Message: clip(message),
		}, true
	}
	f := o.owner()
	r := o.root
	switch {
	case r == nil:
		return metav1.Condition{}, false
	case o.held != "":
		return no(v1alpha1.ReasonPruneHeld, o.held)
	case r.absent:
		return no(v1alpha1.ReasonPruneHeld, r.absentMessage())
	case r.state == RootUnreadable:
		return no(v1alpha1.ReasonSourceUnreadable, r.path+": "+r.message)
	case f == nil || o.known && s.beginning():
		return metav1.Condition{}, false
	}
	if state, message := f.trouble(); state == FileInvalid {
		return no(v1alpha1.ReasonInvalidSpec, message)
	} else if state != "" {
		return no(v1alpha1.ReasonSourceUnreadable, message)
	}
	if !f.have { // not read, or not yet again
		return metav1.Condition{}, false
	}
	for _, c := range o.claims {
		if c != f {
			return no(v1alpha1.ReasonDuplicateObject, duplicate(o, c))
		}
	}
	return accepted, true
}

// accepted is the condition of an object with which all is well.
var accepted = metav1.Condition{
	Type: v1alpha1.SourceAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted,
	Message: "the file is read and accepted",
}

func duplicate(o *object, other *file) string {
	return fmt.Sprintf("%s is defined by %s, which was first, and by %s too, which is not applied", o.key, o.source.File, other.path)
}

// trouble is why f is not simply good, apart from duplicates.
func (f *file) trouble() (FileState, string) {
	switch {
	case f.fault != "":
		return FileUnreadable, f.path + ": " + f.fault
	case f.failedDir() != nil:
		d := f.failedDir()
		return FileUnreadable, d.path + ": " + reason(d.err)
	case f.slow:
		return FileWriting, f.path + ": still being written"
	case f.invalid != nil:
		return FileInvalid, f.invalid.Error()
	}
	return "", ""
}

// failedDir is the directory above f that cannot be listed.
func (f *file) failedDir() *dir {
	d := f.dir
	if d == nil {
		d = f.below
	}
	for ; d != nil; d = d.parent {
		if d.err != nil {
			return d
		}
	}
	return nil
}

// clip keeps a message short enough for a condition.
func clip(message string) string {
	const most = 4096
	if len(message) > most {
		return message[:most] + "…"
	}
	return message
}
