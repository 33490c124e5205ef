package quarantine

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
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

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/managed"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
	vault "skc.dev/skc/effects/quarantine"
)

func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("", "skcq")
	if err != nil {
		panic(err)
	}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "GIT_") {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv("HOME", home)
	_ = os.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "none"))
	_ = os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\n\tname = T\n\temail = t@example.invalid\n[init]\n\tdefaultBranch = main\n"), 0o600)
	code := m.Run()
	_ = os.RemoveAll(home)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	web = api.Key{Kind: v1alpha1.KindSession, Namespace: "default", Name: "web"}
	key = api.Key{Kind: v1alpha1.KindQuarantine, Namespace: "default", Name: "web-1a2b"}
)

const owner = "5e7a51de-0000-4000-8000-000000000001"

// world is the surroundings of Quarantines: the real store, the real managed
// root, real git and the real quarantine on one file system. What the spool does
// with the managed root is done by sync; what is done beside the passes, by work.
type world struct {
	t      testing.TB
	dir    string
	clock  *clocktesting.FakeClock
	uptime time.Duration
	boot   string
	layer  *files.Layer

	store *store.Store
	vault vault.Vault
	git   *git.Git
	known *git.Known
	root  *managed.Root
	calls *injector
	left  []effects.Leftover

	crashes bool // an injected failure is the end of the controller
	hidden  error
	events  []string
	woken   map[api.Key]int
	sizer   *fakeWorker
	purger  *fakeWorker
	r       *Reconciler
}

// injector fails the nth call of any effect: before it acts, or after.
type injector struct {
	mu    sync.Mutex
	n, at int
	after bool
	name  string // of the call that failed
}

var errInjected = errors.New("injected")

func (i *injector) around(name string, act func() error) error {
	i.mu.Lock()
	i.n++
	hit := i.n == i.at
	if hit {
		i.name = name
	}
	i.mu.Unlock()
	if hit && !i.after {
		return errInjected
	}
	err := act()
	if hit && err == nil {
		return errInjected
	}
	return err
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "skcq") // no disk, where that can be had: nothing here depends on one
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	dir, err = filepath.EvalSymlinks(dir)
	must(t, err)
	w := &world{
		t: t, dir: dir, clock: clocktesting.NewFakeClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)), uptime: time.Hour, boot: "boot-1",
		layer: &files.Layer{}, calls: &injector{}, woken: map[api.Key]int{},
	}
	w.sh(dir, "init", "-q", "-b", "main", w.path("app"))
	w.put("app/README", "read me\n")
	w.commit(w.path("app"))
	w.git, err = git.New(git.Options{Files: w.layer, LockWait: 300 * time.Millisecond})
	must(t, err)
	must(t, os.MkdirAll(w.path("state/repositories"), 0o700))
	w.known = &git.Known{Dir: w.path("state/repositories"), Files: w.layer}
	w.root, err = managed.Open(managed.Options{
		Dir: w.path("state/managed"), Lock: w.path("state/managed.lock"), Reports: w.path("state/sources"), Files: w.layer,
	})
	must(t, err)
	w.restart()
	return w
}

// restart begins with a new controller, which remembers nothing.
func (w *world) restart() {
	w.t.Helper()
	var err error
	w.store, err = store.Open(w.t.Context(), store.Options{
		Dir: w.path("state/objects"), Files: w.layer, Clock: w.clock, Log: logr.Discard(),
		Finalizers: map[string]string{v1alpha1.KindQuarantine: v1alpha1.QuarantineFinalizer, v1alpha1.KindSession: v1alpha1.SessionFinalizer},
	})
	must(w.t, err)
	s, err := vault.Open(w.t.Context(), vault.Options{
		Dir: w.path("state/quarantine"), Files: w.layer, Clock: w.clock,
		Uptime: func() (string, time.Duration, error) { return w.boot, w.uptime, nil },
	})
	must(w.t, err)
	w.vault = vault.Vault{Store: s}
	w.r = &Reconciler{
		Store:       failingStore{store.For[*v1alpha1.Quarantine](w.store, v1alpha1.KindQuarantine), w.calls},
		Sessions:    store.For[*v1alpha1.Session](w.store, v1alpha1.KindSession),
		Definitions: failingRoot{w.root, w.calls}, Vault: failingVault{w.vault, w.calls}, Worktrees: failingGit{w.git, w.calls},
		Repositories: w.known, Leftovers: w, Recorder: w, Clock: w.clock,
		Wake: func(k api.Key) { w.woken[k]++ }, Hidden: func() error { return w.hidden },
		UserHome: w.path("home"), Grace: time.Hour,
	}
	w.sizer, w.purger = &fakeWorker{do: w.r.Size}, &fakeWorker{do: w.r.Purge}
	w.r.Sizer, w.r.Purger = w.sizer, w.purger
}

// List is what w has for leftovers.
func (w *world) List(context.Context) ([]effects.Leftover, error) { return w.left, nil }

func (w *world) Event(o api.Object, eventType, reason, message string) {
	w.events = append(w.events, fmt.Sprintf("%s %s/%s %s %s", eventType, o.GetNamespace(), o.GetName(), reason, message))
}

func (w *world) path(names ...string) string {
	return filepath.Join(append([]string{w.dir}, names...)...)
}

func (w *world) put(name, text string) {
	w.t.Helper()
	must(w.t, os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
	must(w.t, os.WriteFile(w.path(name), []byte(text), 0o644))
}

func (w *world) sh(dir string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (w *world) commit(dir string) string {
	w.t.Helper()
	w.sh(dir, "add", "-A")
	w.sh(dir, "commit", "-q", "--allow-empty", "-m", "x")
	return w.sh(dir, "rev-parse", "HEAD")
}

// tree is every entry below a folder, with what it holds.
func (w *world) tree(dir string) string {
	w.t.Helper()
	var all []string
	must(w.t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		line := strings.TrimPrefix(path, dir) + " " + d.Type().String()
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(data))
		}
		all = append(all, line)
		return nil
	}))
	return strings.Join(all, "\n")
}

const sessionFile = "/spool/web.yaml"

// session makes a Session with a worktree of its own, with work in it, and what
// its reconciler would have written of that.
func (w *world) session() *v1alpha1.Session {
	w.t.Helper()
	s := &v1alpha1.Session{}
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.KindSession))
	s.Namespace, s.Name = web.Namespace, web.Name
	s.Labels = map[string]string{"team": "a"}
	s.Spec.Target.Worktree = &v1alpha1.WorktreeTarget{Repo: v1alpha1.Path(w.path("app")), Branch: "feat"}
	s.Spec.Command = []string{"true"}
	raw, err := json.Marshal(map[string]any{"target": s.Spec.Target, "command": s.Spec.Command})
	must(w.t, err)
	must(w.t, w.store.Apply(w.t.Context(), store.Desired{Object: s, RawSpec: raw, Source: store.Source{Root: "/spool", File: sessionFile}}))
	s = w.getSession()
	tree := w.worktree(string(s.UID), "feat")
	before := s.DeepCopy()
	s.Status.Workspace = &v1alpha1.WorkspaceStatus{
		Path: tree, CreatedByController: true, Identity: w.identity(tree), Repo: w.path("app/.git"), Branch: "feat",
		Safety: []v1alpha1.SafetyCheck{{Name: "dirty", OK: true, Value: "seen before there was any"}},
	}
	must(w.t, w.store.Update(w.t.Context(), before, s))
	return w.getSession()
}

func (w *world) getSession() *v1alpha1.Session {
	w.t.Helper()
	o, err := w.store.Get(w.t.Context(), web)
	must(w.t, err)
	return o.(*v1alpha1.Session)
}

// worktree makes one for uid, with unpushed, staged, untracked and ignored work.
func (w *world) worktree(uid, branch string) string {
	w.t.Helper()
	path := w.path("app.worktrees", branch)
	must(w.t, w.known.Remember(w.path("app/.git")))
	_, err := w.git.EnsureWorktree(w.t.Context(), effects.WantWorktree{Repo: w.path("app"), Branch: branch, Path: path, UID: uid})
	must(w.t, err)
	rel := "app.worktrees/" + branch + "/"
	w.put(rel+"committed", "1")
	w.commit(path)
	w.put(rel+"staged", "2")
	w.sh(path, "add", "staged")
	w.put(rel+"untracked", "3")
	return path
}

func (w *world) identity(path string) v1alpha1.FileIdentity {
	w.t.Helper()
	id, _, err := w.vault.Identify(w.t.Context(), path)
	must(w.t, err)
	return v1alpha1.FileIdentity(id.String())
}

// delete begins the deletion of the Session, and defines the Quarantine that its
// reconciler would.
func (w *world) delete(s *v1alpha1.Session, edit ...func(*v1alpha1.Quarantine)) {
	w.t.Helper()
	must(w.t, w.store.Remove(w.t.Context(), web, store.Source{Root: "/spool", File: sessionFile}))
	definition, err := w.store.Definition(web)
	must(w.t, err)
	ws := s.Status.Workspace
	q := newObject(key)
	q.Spec = v1alpha1.QuarantineSpec{
		Origin: v1alpha1.QuarantineOrigin{
			Type: v1alpha1.QuarantineWorktree, Path: ws.Path, Identity: ws.Identity, MarkedBy: string(s.UID), Owner: owner, Repo: ws.Repo, Branch: "feat",
		},
		Session:     &v1alpha1.QuarantinedSession{Namespace: web.Namespace, Name: web.Name, UID: string(s.UID), Definition: string(definition), File: sessionFile},
		Reason:      v1alpha1.QuarantineSessionDeleted,
		RequestedBy: "removal of " + sessionFile,
		Retention:   &v1alpha1.Duration{Duration: 168 * time.Hour},
	}
	for _, e := range edit {
		e(q)
	}
	must(w.t, w.root.Create(w.t.Context(), q))
}

// sessionGone ends the deletion of the Session.
func (w *world) sessionGone() {
	w.t.Helper()
	o, err := w.store.Get(w.t.Context(), web)
	if errors.Is(err, effects.ErrNotFound) {
		return
	}
	must(w.t, err)
	if o.GetDeletionTimestamp() == nil {
		return
	}
	after := o.DeepCopyObject().(*v1alpha1.Session)
	after.Finalizers = nil
	must(w.t, w.store.Update(w.t.Context(), o, after))
}

// sync does what the spool does: the store is what the managed root says.
func (w *world) sync() {
	w.t.Helper()
	seen := map[api.Key]bool{}
	must(w.t, filepath.WalkDir(w.root.Dir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		must(w.t, err)
		all, err := v1alpha1.Decode(path, data)
		if err != nil {
			for _, k := range w.store.Keys(v1alpha1.KindQuarantine) {
				if w.root.Path(k) == path {
					seen[k] = true
					must(w.t, w.store.SetAccepted(w.t.Context(), k, metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidSpec, Message: "bad"}))
				}
			}
			return nil
		}
		for _, one := range all {
			k := api.KeyOf(one.Object)
			seen[k] = true
			err := w.store.Apply(w.t.Context(), store.Desired{
				Object: one.Object, RawSpec: one.RawSpec, Source: store.Source{Root: w.root.Dir(), File: path},
				Accepted: &metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "accepted"},
			})
			if errors.Is(err, store.ErrTerminating) {
				err = nil
			}
			must(w.t, err)
		}
		return nil
	}))
	sources, err := w.store.Sources(w.t.Context())
	must(w.t, err)
	for k, src := range sources {
		if src.Root == w.root.Dir() && !seen[k] {
			must(w.t, w.store.Remove(w.t.Context(), k, src))
		}
	}
}

// pass brings everything to rest and returns when the Quarantine is due next. An
// injected failure is passed over once.
func (w *world) pass() time.Duration {
	w.t.Helper()
	before := ""
	for range 60 {
		w.sync()
		var next time.Duration
		failed := false
		for _, k := range w.store.Keys(v1alpha1.KindQuarantine) {
			res, err := w.r.Reconcile(w.t.Context(), k)
			if err != nil {
				failed = true
				if w.crashes && errors.Is(err, errInjected) {
					w.restart()
					must(w.t, w.r.Look(w.t.Context()))
				}
				if !errors.Is(err, errInjected) {
					w.t.Logf("%s: %v", k, err)
				}
			}
			if k == key || next == 0 {
				next = res.RequeueAfter
			}
		}
		busy := w.sizer.work(w.t.Context()) || w.purger.work(w.t.Context())
		now := w.state()
		if now == before && !failed && !busy {
			return next
		}
		before = now
	}
	w.t.Fatalf("no end of changes:\n%s", before)
	return 0
}

// state is all that a pass may change, but for what happens in git.
func (w *world) state() string {
	w.t.Helper()
	out := ""
	for _, kind := range []string{v1alpha1.KindQuarantine, v1alpha1.KindSession} {
		for _, k := range w.store.Keys(kind) {
			o, err := w.store.Get(w.t.Context(), k)
			if errors.Is(err, effects.ErrNotFound) {
				continue
			}
			must(w.t, err)
			out += k.String() + " " + o.GetResourceVersion() + "\n"
		}
	}
	return out + strings.Join(w.list("state/managed"), "\n") + strings.Join(w.list("state/quarantine"), "\n")
}

func (w *world) list(dir string) (all []string) {
	w.t.Helper()
	must(w.t, filepath.WalkDir(w.path(dir), func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	}))
	return all
}

func (w *world) get() *v1alpha1.Quarantine {
	w.t.Helper()
	return w.getOf(key)
}

func (w *world) getOf(k api.Key) *v1alpha1.Quarantine {
	w.t.Helper()
	o, err := w.store.Get(w.t.Context(), k)
	must(w.t, err)
	return o.(*v1alpha1.Quarantine)
}

func (w *world) gone(k api.Key) {
	w.t.Helper()
	if o, err := w.store.Get(w.t.Context(), k); !errors.Is(err, effects.ErrNotFound) {
		w.t.Fatalf("%s is there: %+v %v", k, o, err)
	}
	if _, err := os.Lstat(w.root.Path(k)); !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatalf("the definition of %s: %v", k, err)
	}
	if _, err := w.vault.Get(ID(k)); k.Kind == v1alpha1.KindQuarantine && !errors.Is(err, effects.ErrNotFound) {
		w.t.Fatalf("the plan of %s: %v", k, err)
	}
}

func (w *world) want(condition string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	w.t.Helper()
	return w.wantOf(key, condition, status, reason)
}

func (w *world) wantOf(k api.Key, condition string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	w.t.Helper()
	q := w.getOf(k)
	for _, c := range []string{v1alpha1.SourceAccepted, v1alpha1.SetAside, v1alpha1.Restored, v1alpha1.Ready} {
		if meta.FindStatusCondition(q.Status.Conditions, c) == nil {
			w.t.Fatalf("%s has no condition %s", k, c)
		}
	}
	c := meta.FindStatusCondition(q.Status.Conditions, condition)
	if c.Status != status || c.Reason != reason {
		w.t.Fatalf("%s of %s is %+v, want %s %s", condition, k, c, status, reason)
	}
	return c
}

// edit changes the spec in the managed file, as a person would.
func (w *world) edit(change func(spec map[string]any)) {
	w.t.Helper()
	must(w.t, w.root.Edit(w.t.Context(), key, func(spec map[string]any) error { change(spec); return nil }))
}

// goOn lets time go by, on the clock on the wall and as it is observed.
func (w *world) goOn(d time.Duration) {
	w.clock.Step(d)
	w.uptime += d
}

func (w *world) quarantines() []api.Key {
	keys := w.store.Keys(v1alpha1.KindQuarantine)
	slices.SortFunc(keys, func(a, b api.Key) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// fakeWorker does its work between two passes.
type fakeWorker struct {
	do      func(context.Context, api.Key) error
	waiting []api.Key
	ended   map[api.Key]error
	begun   int
}

func (f *fakeWorker) Begin(k api.Key) {
	if _, done := f.ended[k]; !done && !slices.Contains(f.waiting, k) {
		f.waiting = append(f.waiting, k)
		f.begun++
	}
}

func (f *fakeWorker) Ended(k api.Key) (ended, running bool, failed error) {
	if err, ok := f.ended[k]; ok {
		delete(f.ended, k)
		return true, false, err
	}
	return false, slices.Contains(f.waiting, k), nil
}

func (f *fakeWorker) Stop(k api.Key) {
	if slices.Contains(f.waiting, k) {
		f.waiting = slices.DeleteFunc(f.waiting, func(o api.Key) bool { return o == k })
		f.end(k, context.Canceled)
	}
}

func (f *fakeWorker) end(k api.Key, err error) {
	if f.ended == nil {
		f.ended = map[api.Key]error{}
	}
	f.ended[k] = err
}

func (f *fakeWorker) work(ctx context.Context) bool {
	all := f.waiting
	f.waiting = nil
	for _, k := range all {
		f.end(k, f.do(ctx, k))
	}
	return len(all) > 0
}

// The failing ones put the injector before and after each effect.
type failingStore struct {
	store.Typed[*v1alpha1.Quarantine]
	calls *injector
}

func (f failingStore) Update(ctx context.Context, before, after *v1alpha1.Quarantine) error {
	return f.calls.around("Update", func() error { return f.Typed.Update(ctx, before, after) })
}

type failingRoot struct {
	*managed.Root
	calls *injector
}

func (f failingRoot) Create(ctx context.Context, o api.Object) error {
	return f.calls.around("Create", func() error { return f.Root.Create(ctx, o) })
}

func (f failingRoot) CreateFrom(ctx context.Context, data []byte) error {
	return f.calls.around("CreateFrom", func() error { return f.Root.CreateFrom(ctx, data) })
}

func (f failingRoot) Remove(ctx context.Context, k api.Key) error {
	return f.calls.around("Remove", func() error { return f.Root.Remove(ctx, k) })
}

type failingVault struct {
	vault.Vault
	calls *injector
}

func (f failingVault) SetAside(ctx context.Context, a effects.SetAside) (k effects.Kept, err error) {
	err = f.calls.around("SetAside", func() error { k, err = f.Vault.SetAside(ctx, a); return err })
	return k, err
}

func (f failingVault) Check(ctx context.Context, id string) error {
	return f.calls.around("Check", func() error { return f.Vault.Check(ctx, id) })
}

func (f failingVault) Restore(ctx context.Context, id, to string) (k effects.Kept, err error) {
	err = f.calls.around("Restore", func() error { k, err = f.Vault.Restore(ctx, id, to); return err })
	return k, err
}

func (f failingVault) Purge(ctx context.Context, id string) (k effects.Kept, err error) {
	err = f.calls.around("Purge", func() error { k, err = f.Vault.Purge(ctx, id); return err })
	return k, err
}

func (f failingVault) Inventory(ctx context.Context, id string) (k effects.Kept, err error) {
	err = f.calls.around("Inventory", func() error { k, err = f.Vault.Inventory(ctx, id); return err })
	return k, err
}

func (f failingVault) Forget(ctx context.Context, id string) error {
	return f.calls.around("Forget", func() error { return f.Vault.Forget(ctx, id) })
}

type failingGit struct {
	*git.Git
	calls *injector
}

func (f failingGit) Safety(ctx context.Context, path string) (effects.SafetyReport, error) {
	return f.Git.Safety(ctx, path, git.Limits{})
}

func (f failingGit) Transfer(ctx context.Context, path, from, to string) error {
	return f.calls.around("Transfer", func() error { return f.Git.Transfer(ctx, path, from, to) })
}

func (f failingGit) Unmark(ctx context.Context, path, uid string) error {
	return f.calls.around("Unmark", func() error { return f.Git.Unmark(ctx, path, uid) })
}

func (f failingGit) BeforeMove(ctx context.Context, path, uid, reason string) error {
	return f.calls.around("BeforeMove", func() error { return f.Git.BeforeMove(ctx, path, uid, reason) })
}

func (f failingGit) AfterMove(ctx context.Context, path, uid string) error {
	return f.calls.around("AfterMove", func() error { return f.Git.AfterMove(ctx, path, uid) })
}

func (f failingGit) AfterRestore(ctx context.Context, path, uid string) (branch string, err error) {
	err = f.calls.around("AfterRestore", func() error { branch, err = f.Git.AfterRestore(ctx, path, uid); return err })
	return branch, err
}

func (f failingGit) AfterPurge(ctx context.Context, repo effects.Repository, path, uid string) error {
	return f.calls.around("AfterPurge", func() error { return f.Git.AfterPurge(ctx, repo, path, uid) })
}
