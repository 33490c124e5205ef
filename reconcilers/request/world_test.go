package request

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/managed"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	chat    = "42"
	profile = "skc"
)

var auditKey = slices.Repeat([]byte{1}, lifecycle.AuditKeyBytes)

// world is all around the requests: the real store and the real definitions on
// real files, a spool that reads them, and Sessions that do what they should.
type world struct {
	t     *testing.T
	clock *clocktesting.FakeClock
	dir   string
	work  string // a folder that is there
	calls *injector
	store *store.Store
	defs  *managed.Root
	host  *host
	audit *fakeAudit
	r     *Reconciler
	limit lifecycle.RateLimit
	psmux bool

	mu    sync.Mutex
	queue map[api.Key]bool
	due   map[api.Key]time.Time
}

// injector fails the nth call of any effect, before it acts or after. When the
// process is to die there nothing acts any more until it is started again.
type injector struct {
	mu    sync.Mutex
	n, at int
	after bool
	dies  bool
	dead  bool
}

var errInjected = errors.New("injected")

func (i *injector) around(act func() error) error {
	i.mu.Lock()
	i.n++
	hit, dead := i.n == i.at, i.dead
	if hit && i.dies {
		i.dead = true
	}
	i.mu.Unlock()
	if dead || hit && !i.after {
		return errInjected
	}
	err := act()
	if hit && err == nil {
		return errInjected
	}
	return err
}

func (i *injector) isDead() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dead
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)), dir: t.TempDir(), work: t.TempDir(),
		calls: &injector{}, limit: lifecycle.RateLimit{Max: 3, Window: 10 * time.Minute},
	}
	w.host = &host{w: w, programs: map[string]*program{}, broken: map[string]string{}, slow: map[string]bool{}}
	w.audit = &fakeAudit{w: w}
	w.restart()
	return w
}

// restart begins with a new store and a new Reconciler on the same files.
func (w *world) restart() {
	w.t.Helper()
	w.calls.mu.Lock()
	w.calls.dead = false
	w.calls.mu.Unlock()
	layer := &files.Layer{}
	var err error
	w.store, err = store.Open(context.Background(), store.Options{
		Dir: filepath.Join(w.dir, "objects"), Files: layer, Clock: w.clock, Log: logr.Discard(),
		Finalizers: map[string]string{v1alpha1.KindSession: v1alpha1.SessionFinalizer, v1alpha1.KindSessionRequest: v1alpha1.SessionRequestFinalizer},
	})
	must(w.t, err)
	w.defs, err = managed.Open(managed.Options{
		Dir: filepath.Join(w.dir, "managed"), Lock: filepath.Join(w.dir, "managed.lock"), Reports: filepath.Join(w.dir, "sources"), Files: layer,
	})
	must(w.t, err)
	w.mu.Lock()
	w.queue, w.due = map[api.Key]bool{}, map[api.Key]time.Time{}
	w.mu.Unlock()
	s := w.store
	w.r = &Reconciler{
		Store:       failingStore{store.For[*v1alpha1.SessionRequest](s, v1alpha1.KindSessionRequest), w.calls},
		Sessions:    store.For[*v1alpha1.Session](s, v1alpha1.KindSession),
		Quarantines: store.For[*v1alpha1.Quarantine](s, v1alpha1.KindQuarantine),
		Definitions: failingDefinitions{w.defs, w.calls},
		Panes:       w.host, Folders: workspace.Folders{}, Audit: w.audit, Clock: w.clock, Enqueue: w.enqueue,
		AuditKey: auditKey, PairedChat: chat, Profile: profile, Limit: w.limit, Retention: 30 * 24 * time.Hour,
		Psmux: func() bool { return w.psmux }, UserHome: w.work,
	}
	r := w.r
	s.OnChange(func(k api.Key) {
		if k.Kind == v1alpha1.KindSessionRequest {
			w.enqueue(k)
		} else {
			r.ObjectChanged(k)
		}
	})
	s.OnStatus(func(k api.Key) {
		if k.Kind != v1alpha1.KindSessionRequest {
			r.StatusChanged(k)
		}
	})
	for _, k := range s.Keys(v1alpha1.KindSessionRequest) {
		w.enqueue(k)
	}
}

func (w *world) enqueue(k api.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue[k] = true
}

// next takes one key that is queued, or due.
func (w *world) next() (api.Key, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, at := range w.due {
		if !at.After(w.clock.Now()) {
			delete(w.due, k)
			w.queue[k] = true
		}
	}
	for k := range w.queue {
		delete(w.queue, k)
		return k, true
	}
	return api.Key{}, false
}

// settle lets everything go on until nothing changes any more. Errors of a pass
// have it made again, as the queue does.
func (w *world) settle() {
	w.t.Helper()
	if !w.goOn(200) {
		w.t.Fatal("no end of changes")
	}
}

func (w *world) goOn(rounds int) (quiet bool) {
	w.t.Helper()
	for range rounds {
		if w.calls.isDead() {
			return true
		}
		changed := w.spool()
		changed = w.host.pass() || changed
		for {
			k, ok := w.next()
			if !ok || w.calls.isDead() {
				break
			}
			changed = true
			res, err := w.r.Reconcile(w.t.Context(), k)
			w.mu.Lock()
			if err != nil {
				w.due[k] = w.clock.Now().Add(100 * time.Millisecond)
			} else if res.RequeueAfter > 0 {
				w.due[k] = w.clock.Now().Add(res.RequeueAfter)
			}
			w.mu.Unlock()
			if err != nil {
				w.clock.Step(100 * time.Millisecond)
			}
		}
		if !changed {
			return true
		}
	}
	return false
}

// advance lets time go by.
func (w *world) advance(d time.Duration) {
	w.t.Helper()
	end := w.clock.Now().Add(d)
	for {
		w.settle()
		w.mu.Lock()
		next := end
		for _, at := range w.due {
			if at.Before(next) {
				next = at
			}
		}
		w.mu.Unlock()
		now := w.clock.Now()
		if !now.Before(end) {
			return
		}
		w.clock.Step(max(next.Sub(now), time.Millisecond))
	}
}

// spool has the store follow the files, and tells whether anything changed.
func (w *world) spool() (changed bool) {
	w.t.Helper()
	ctx := context.Background()
	defined := map[api.Key]bool{}
	for _, root := range []string{filepath.Join(w.dir, "spool"), filepath.Join(w.dir, "managed")} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
				return nil
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			all, err := v1alpha1.Decode(path, data)
			must(w.t, err)
			for _, o := range all {
				key := api.KeyOf(o.Object)
				if defined[key] {
					continue // the first keeps it
				}
				defined[key] = true
				before := w.version(key)
				err := w.store.Apply(ctx, store.Desired{Object: o.Object, RawSpec: o.RawSpec, Source: store.Source{Root: root, File: path},
					Accepted: &metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "accepted"}})
				if err != nil && !errors.Is(err, store.ErrTerminating) {
					w.t.Fatal(err)
				}
				changed = changed || w.version(key) != before
			}
			return nil
		})
	}
	sources, err := w.store.Sources(ctx)
	must(w.t, err)
	for key, source := range sources {
		if !defined[key] {
			before := w.version(key)
			must(w.t, w.store.Remove(ctx, key, source))
			changed = changed || w.version(key) != before
		}
	}
	return changed
}

func (w *world) version(key api.Key) string {
	o, err := w.store.Get(context.Background(), key)
	if errors.Is(err, effects.ErrNotFound) {
		return ""
	}
	must(w.t, err)
	return o.GetResourceVersion()
}

// file puts an object into the user's own spool.
func (w *world) file(o api.Object) {
	w.t.Helper()
	data, err := json.Marshal(o)
	must(w.t, err)
	data, err = yaml.JSONToYAML(data)
	must(w.t, err)
	must(w.t, os.MkdirAll(filepath.Join(w.dir, "spool"), 0o700))
	must(w.t, os.WriteFile(w.userFile(api.KeyOf(o)), data, 0o600))
}

func (w *world) userFile(key api.Key) string {
	return filepath.Join(w.dir, "spool", strings.ToLower(key.Kind)+"-"+key.Name+".yaml")
}

func (w *world) unfile(key api.Key) {
	w.t.Helper()
	must(w.t, os.Remove(w.userFile(key)))
}

// sessionIn is a Session of the user's with the id.
func (w *world) session(name string, edit ...func(*v1alpha1.Session)) *v1alpha1.Session {
	s := &v1alpha1.Session{Spec: v1alpha1.SessionSpec{
		Target: v1alpha1.SessionTarget{ExistingPath: &v1alpha1.PathTarget{Path: v1alpha1.Path(w.work)}}, Command: []string{"sleep", "60"},
	}}
	s.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindSession}
	s.Namespace, s.Name = v1alpha1.DefaultNamespace, name
	s.Annotations = map[string]string{v1alpha1.SessionIDAnnotation: name}
	for _, e := range edit {
		e(s)
	}
	return s
}

// has is a Session that a request made once, running.
func (w *world) has(name string, edit ...func(*v1alpha1.Session)) *v1alpha1.Session {
	w.t.Helper()
	must(w.t, w.defs.Create(w.t.Context(), w.session(name, edit...)))
	w.settle()
	return w.getSession(name)
}

func (w *world) getSession(name string) *v1alpha1.Session {
	w.t.Helper()
	o, err := w.store.Get(context.Background(), sessionKey(v1alpha1.DefaultNamespace, name))
	if errors.Is(err, effects.ErrNotFound) {
		return nil
	}
	must(w.t, err)
	return o.(*v1alpha1.Session)
}

func requestKey(name string) api.Key {
	return api.Key{Kind: v1alpha1.KindSessionRequest, Namespace: v1alpha1.DefaultNamespace, Name: name}
}

func (w *world) get(name string) *v1alpha1.SessionRequest {
	w.t.Helper()
	o, err := w.store.Get(context.Background(), requestKey(name))
	if errors.Is(err, effects.ErrNotFound) {
		return nil
	}
	must(w.t, err)
	return o.(*v1alpha1.SessionRequest)
}

// request is a SessionRequest as a file has it.
func request(name string, spec v1alpha1.SessionRequestSpec) *v1alpha1.SessionRequest {
	o := &v1alpha1.SessionRequest{Spec: spec}
	o.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindSessionRequest}
	o.Namespace, o.Name = v1alpha1.DefaultNamespace, name
	if o.Spec.Source == "" {
		o.Spec.Source = "files"
	}
	if o.Spec.Key == "" {
		o.Spec.Key = name
	}
	return o
}

// ask files a request and lets everything go on.
func (w *world) ask(name string, spec v1alpha1.SessionRequestSpec) *v1alpha1.SessionRequest {
	w.t.Helper()
	w.file(request(name, spec))
	w.settle()
	return w.get(name)
}

func (w *world) create(id string) v1alpha1.SessionRequestSpec {
	return v1alpha1.SessionRequestSpec{
		Verb: v1alpha1.VerbCreate, IDs: &v1alpha1.RequestIDs{LifecycleRequestID: "lc-" + id, IntendedSessionID: id},
		Target: v1alpha1.RequestTarget{Create: &v1alpha1.CreateTarget{Kind: "existing_path", Path: &w.work}},
	}
}

func about(verb v1alpha1.RequestVerb, id string) v1alpha1.SessionRequestSpec {
	s := v1alpha1.SessionRequestSpec{Verb: verb, Target: v1alpha1.RequestTarget{Session: &v1alpha1.SessionSelector{ID: id}}}
	if verb == v1alpha1.VerbClose {
		s.Force = ptr(true)
	}
	return s
}

func ptr[T any](v T) *T { return &v }

// frame is a frame of the paired chat.
func (w *world) frame(update int64, target lifecycle.Target) lifecycle.Request {
	r := lifecycle.Request{RequestID: fmt.Sprintf("rq-%d", update), ChatID: chat, UpdateID: update, Target: target}
	switch target.Kind() {
	case lifecycle.KindClose:
		r.Force = ptr(true)
	case lifecycle.KindResume:
	default:
		r.LifecycleRequestID, r.IntendedSessionID = r.RequestID, fmt.Sprintf("s%d", update)
	}
	return r
}

type submitted struct {
	lifecycle.Outcome
	err error
}

// submit delivers a frame in n goroutines and lets everything go on until each
// has its answer.
func (w *world) submit(n int, req ...lifecycle.Request) []submitted {
	w.t.Helper()
	out := make([]submitted, n*len(req))
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() {
			o, err := w.r.Submit(w.t.Context(), "control", req[i%len(req)])
			out[i] = submitted{o, err}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	end := time.Now().Add(time.Minute)
	for {
		select {
		case <-done:
			return out
		default:
		}
		if time.Now().After(end) {
			w.t.Fatal("no answer within a minute")
		}
		w.goOn(200)
		w.clock.Step(time.Millisecond)
	}
}

func (w *world) one(req lifecycle.Request) lifecycle.Outcome {
	w.t.Helper()
	out := w.submit(1, req)[0]
	must(w.t, out.err)
	return out.Outcome
}

// want checks how far a request came.
func (w *world) want(name string, state v1alpha1.RequestState, reason lifecycle.Reason) *v1alpha1.SessionRequest {
	w.t.Helper()
	rq := w.get(name)
	if rq == nil {
		w.t.Fatalf("there is no request %s", name)
	}
	if rq.Status.State != state || rq.Status.Reason != string(reason) {
		w.t.Fatalf("%s is %q, reason %q; want %q, %q\n%+v", name, rq.Status.State, rq.Status.Reason, state, reason, rq.Status.Conditions)
	}
	return rq
}

func (w *world) wantCondition(rq *v1alpha1.SessionRequest, t string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	c := meta.FindStatusCondition(rq.Status.Conditions, t)
	if c == nil || c.Status != status || c.Reason != reason {
		w.t.Errorf("%s of %s is %+v, want %s %s", t, rq.Name, c, status, reason)
	}
}

func (w *world) wantRows(want ...string) {
	w.t.Helper()
	if got := w.audit.events(); !slices.Equal(got, want) {
		w.t.Errorf("audit rows are %q, want %q", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type failingStore struct {
	store.Typed[*v1alpha1.SessionRequest]
	calls *injector
}

func (f failingStore) Update(ctx context.Context, before, after *v1alpha1.SessionRequest) error {
	return f.calls.around(func() error { return f.Typed.Update(ctx, before, after) })
}

type failingDefinitions struct {
	*managed.Root
	calls *injector
}

func (f failingDefinitions) Get(ctx context.Context, key api.Key) (o api.Object, err error) {
	err = f.calls.around(func() error { o, err = f.Root.Get(ctx, key); return err })
	return o, err
}

func (f failingDefinitions) Create(ctx context.Context, o api.Object) error {
	return f.calls.around(func() error { return f.Root.Create(ctx, o) })
}

func (f failingDefinitions) Edit(ctx context.Context, key api.Key, change func(map[string]any) error) error {
	return f.calls.around(func() error { return f.Root.Edit(ctx, key, change) })
}

func (f failingDefinitions) Remove(ctx context.Context, key api.Key) error {
	return f.calls.around(func() error { return f.Root.Remove(ctx, key) })
}

// fakeAudit keeps the rows in memory; they outlive the controller.
type fakeAudit struct {
	w    *world
	mu   sync.Mutex
	rows []lifecycle.AuditRow
	fail map[lifecycle.Event]error
}

func (f *fakeAudit) Append(row lifecycle.AuditRow) error {
	if _, err := row.Line(); err != nil {
		return err
	}
	return f.w.calls.around(func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := f.fail[row.Event]; err != nil {
			return err
		}
		f.rows = append(f.rows, row)
		return nil
	})
}

func (f *fakeAudit) events() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rows {
		e := string(r.Event)
		if r.Reason != "" {
			e += "/" + string(r.Reason)
		}
		out = append(out, e)
	}
	return out
}

// host does with Sessions what their reconciler does, as far as a request can
// see it: it starts, stops, reports what it saw, and lets a deleted one go only
// when its program is gone.
type host struct {
	w           *world
	programs    map[string]*program // by UID
	starts      []string            // ids of sessions, one for each program that was started
	broken      map[string]string   // sessions that do not start, and why
	slow        map[string]bool     // sessions that are not looked at
	unreachable bool
	pid         int
}

type program struct {
	pane  effects.TmuxPane
	ended string // why; empty while it runs
}

func (h *host) Get(_ context.Context, uid string) (effects.TmuxPane, error) {
	if h.unreachable {
		return effects.TmuxPane{}, effects.ErrUnreachable
	}
	p := h.programs[uid]
	if p == nil {
		return effects.TmuxPane{}, effects.ErrNotFound
	}
	pane := p.pane
	pane.Dead = p.ended != ""
	return pane, nil
}

func (h *host) alive() (n int) {
	for _, p := range h.programs {
		if p.ended == "" {
			n++
		}
	}
	return n
}

func (h *host) started(id string) (n int) {
	for _, s := range h.starts {
		if s == id {
			n++
		}
	}
	return n
}

func (h *host) pass() (changed bool) {
	ctx := context.Background()
	changed = h.quarantines()
	all, err := store.For[*v1alpha1.Session](h.w.store, v1alpha1.KindSession).List(ctx)
	must(h.w.t, err)
	for _, s := range all {
		if h.slow[s.Name] || h.unreachable {
			continue
		}
		after := s.DeepCopy()
		h.look(after)
		if after.DeletionTimestamp != nil {
			delete(h.programs, string(s.UID))
			after.Finalizers = nil
		}
		before := h.w.version(api.KeyOf(s))
		must(h.w.t, h.w.store.Update(ctx, s, after))
		changed = changed || h.w.version(api.KeyOf(s)) != before
	}
	return changed
}

// quarantines gives back what is asked for, as their reconciler does.
func (h *host) quarantines() (changed bool) {
	ctx := context.Background()
	all, err := store.For[*v1alpha1.Quarantine](h.w.store, v1alpha1.KindQuarantine).List(ctx)
	must(h.w.t, err)
	for _, q := range all {
		after := q.DeepCopy()
		say := func(t string, status metav1.ConditionStatus, reason string) {
			meta.SetStatusCondition(&after.Status.Conditions, metav1.Condition{Type: t, Status: status, Reason: reason, Message: "as it is",
				ObservedGeneration: q.Generation, LastTransitionTime: metav1.NewTime(h.w.clock.Now()).Rfc3339Copy()})
		}
		switch {
		case condition(q.Status.Conditions, v1alpha1.Restored).Status == metav1.ConditionTrue:
		case !q.Spec.Restore:
			say(v1alpha1.SetAside, metav1.ConditionTrue, v1alpha1.ReasonKept)
			say(v1alpha1.Restored, metav1.ConditionFalse, v1alpha1.ReasonNotAsked)
		case h.broken[q.Name] != "":
			say(v1alpha1.Restored, metav1.ConditionFalse, h.broken[q.Name])
		default:
			s := quarantinedSession(q)
			s.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindSession}
			s.Annotations[v1alpha1.RestoredFromAnnotation] = q.Spec.Origin.Owner
			must(h.w.t, h.w.defs.Create(ctx, s))
			say(v1alpha1.SetAside, metav1.ConditionFalse, v1alpha1.ReasonRestored)
			say(v1alpha1.Restored, metav1.ConditionTrue, v1alpha1.ReasonRestored)
		}
		before := h.w.version(api.KeyOf(q))
		must(h.w.t, h.w.store.Update(ctx, q, after))
		changed = changed || h.w.version(api.KeyOf(q)) != before
	}
	return changed
}

// setAside is a Session in quarantine.
func (w *world) setAside(name string, edit ...func(*v1alpha1.Session)) {
	w.t.Helper()
	definition, err := json.Marshal(w.session(name, edit...))
	must(w.t, err)
	q := &v1alpha1.Quarantine{Spec: v1alpha1.QuarantineSpec{
		Origin:  v1alpha1.QuarantineOrigin{Type: v1alpha1.QuarantineFolder, Path: w.work, Identity: "1:2", Owner: "owner-" + name},
		Session: &v1alpha1.QuarantinedSession{Namespace: v1alpha1.DefaultNamespace, Name: name, UID: "1", Definition: string(definition)},
		Reason:  v1alpha1.QuarantineSessionDeleted,
	}}
	q.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindQuarantine}
	q.Namespace, q.Name = v1alpha1.DefaultNamespace, name+"-q"
	must(w.t, w.defs.Create(w.t.Context(), q))
	w.settle()
}

func (h *host) look(s *v1alpha1.Session) {
	uid := string(s.UID)
	p := h.programs[uid]
	say := func(status metav1.ConditionStatus, reason string) {
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.SessionRunning, Status: status, Reason: reason,
			Message: "as it is", ObservedGeneration: s.Generation, LastTransitionTime: metav1.NewTime(h.w.clock.Now()).Rfc3339Copy()})
	}
	s.Status.ObservedGeneration = s.Generation
	s.Status.Workspace = &v1alpha1.WorkspaceStatus{Path: h.w.work}
	if t := s.Spec.Target; t.ExistingPath != nil {
		s.Status.Workspace.Path = string(t.ExistingPath.Path)
	}
	if s.DeletionTimestamp != nil || s.Spec.DesiredState == v1alpha1.DesiredStopped {
		if p != nil {
			p.ended = v1alpha1.ReasonStopped
		}
		s.Status.LaunchedDigest = ""
		say(metav1.ConditionFalse, v1alpha1.ReasonStopped)
		return
	}
	if why := h.broken[s.Name]; why != "" {
		say(metav1.ConditionFalse, why)
		return
	}
	if p != nil && p.ended == "" {
		say(metav1.ConditionTrue, v1alpha1.ReasonRunning)
		return
	}
	if p != nil && s.Status.LaunchedDigest != "" {
		s.Status.LastTermination = &v1alpha1.Termination{Reason: p.ended, Attempt: s.Status.Tmux.Attempt}
		say(metav1.ConditionFalse, p.ended)
		return
	}
	h.pid++
	n := int64(1)
	if s.Status.Tmux != nil {
		n = s.Status.Tmux.Attempt + 1
	}
	h.programs[uid] = &program{pane: effects.TmuxPane{Process: effects.ProcessID{PID: h.pid, StartTime: fmt.Sprint(h.pid)}, Launch: effects.LaunchID{UID: uid, Attempt: n}}}
	h.starts = append(h.starts, sessionID(s))
	s.Status.Tmux = &v1alpha1.TmuxStatus{PanePID: int64(h.pid), PaneStartTime: fmt.Sprint(h.pid), Attempt: n}
	s.Status.LaunchedDigest = "d"
	say(metav1.ConditionTrue, v1alpha1.ReasonRunning)
}
