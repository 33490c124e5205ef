//go:build e2e

package lost

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/hack/e2e/world"
)

const (
	// settleLimit is how long all that was asked for may take.
	settleLimit = 40 * time.Second
	// brokenLimit is how long a skcd with a fault gets to run into it.
	brokenLimit = 3 * time.Second
	look        = 20 * time.Millisecond
)

// batch is some rounds in one home.
type batch struct {
	*world.World
	repos    []*repo
	outside  *thing
	clones   []*thing
	disk     string // a folder on another file system; empty when there is none
	subjects []*subject
	counts   *counts
}

// subject is one Session and all the folders that it ever had.
type subject struct {
	subjectPlan
	repo *repo
	path string // spec.target.worktree.path, empty for the default
	// live: there is a Session. blocked: it cannot have its folder, since somebody
	// has its branch or its place.
	live, blocked bool
	other         int // which target it has
	things        []*held
	now           *held // its folder
}

// held is a thing and where it must be.
type held struct {
	thing
	at    place
	path  string // when it is not in quarantine
	ours  bool   // skc made it and has not let go of it
	asked bool   // it was to be given back, and that must be refused
}

type place int

const (
	workspace place = iota
	quarantined
	nobodys
)

// TestNothingIsLost is the goal of this folder, R20.
func TestNothingIsLost(t *testing.T) {
	size, n := 5, 24
	if *full {
		size, n = 10, 31
	}
	if *rounds > 0 {
		n = (*rounds + size - 1) / size
	}
	// As many as fit: a batch is begun in the first half of that time, a phase in
	// all of it.
	enough := func(share time.Duration) bool { return false }
	if begin := time.Now(); !*full && *rounds == 0 {
		enough = func(share time.Duration) bool { return time.Since(begin) > 20*time.Second/share }
	}
	c := &counts{}
	t.Run("batch", func(t *testing.T) {
		for i := range n {
			if *only >= 0 && i != *only {
				continue
			}
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				if enough(2) {
					t.Skip("there is no time for more")
				}
				p := newPlan(*seed, i, size)
				play := func(p plan, c *counts, enough func(time.Duration) bool) ([]string, []string) {
					return try(t, func(t testing.TB) { playBatch(t, p, c, enough) })
				}
				wrong, said := play(p, c, enough)
				if len(wrong) == 0 {
					return
				}
				budget := 2 * time.Minute
				if *full {
					budget = 6 * time.Minute
				}
				all := len(p.phases)
				least, how := shrink(p, wrong, func(q plan) []string {
					w, s := play(q, &counts{}, func(time.Duration) bool { return false })
					if len(w) > 0 {
						said = s
					}
					return w
				}, budget)
				for _, text := range said {
					t.Log(text)
				}
				t.Errorf("seed %d, batch %d: %d problems:\n%s\n\nThe shortest that fails (of %d phases):\n%s\nIt fails with:\n%s",
					*seed, i, len(wrong), strings.Join(wrong[:min(len(wrong), 10)], "\n"), all, least, strings.Join(how[:min(len(how), 20)], "\n"))
			})
		}
	})
	report.printf("TestNothingIsLost: %s", c)
}

func playBatch(t testing.TB, p plan, c *counts, enough func(time.Duration) bool) {
	b := newBatch(t, p, c)
	c.rounds.Add(int64(len(b.subjects)))
	for i, ph := range p.phases {
		b.do(i, ph)
		if b.Failed() || enough(1) {
			return
		}
	}
}

// newBatch makes all Sessions, and puts work into their folders.
func newBatch(t testing.TB, p plan, c *counts) *batch {
	b := &batch{World: world.New(t, true), counts: c}
	b.Bin = bin
	world.Must(t, writeHome(b.Dir))
	// skcd's git says what a person would see.
	b.Env = append(b.Env, "LC_ALL=C")
	b.Config("massHold: 100ms\n")
	b.repos = newRepos(b.World, b.Work)
	for _, r := range b.repos {
		if r.name != "bare" {
			clone := held0(r.name+", the clone", r.path)
			clone.except = ".git"
			b.clones = append(b.clones, &clone.thing)
		}
	}
	outside := filepath.Join(b.Work, "outside")
	world.Must(t, os.Mkdir(outside, 0o755))
	put(t, outside, "precious", "precious\n")
	if b.disk = otherDisk(b.Dir); b.disk != "" {
		b.BeforeRemoval(func() { world.Must(b.World, os.RemoveAll(b.disk)) })
	}
	for _, sp := range p.subjects {
		s := &subject{subjectPlan: sp}
		for _, r := range b.repos {
			if r.name == sp.repo {
				s.repo = r
			}
		}
		switch {
		case sp.elsewhere && b.disk != "":
			s.path = filepath.Join(b.disk, "of "+sp.name, "tree")
		case sp.named:
			s.path = filepath.Join(b.Work, "named", sp.name)
		}
		b.subjects = append(b.subjects, s)
	}
	b.Start(flags...)
	for _, s := range b.subjects {
		b.apply(s)
	}
	b.settle("at the beginning")
	for _, s := range b.subjects {
		if s.now != nil {
			b.furnish(s.now, s.repo, random(p.seed, s.name), s.features)
		}
	}
	b.outside = &held0("the folder outside", outside).thing
	for _, th := range append(b.clones, b.outside) {
		world.Must(t, th.capture(th.places[0]))
	}
	return b
}

func held0(name, path string) *held {
	return &held{thing: thing{name: name, places: []string{path}, grows: map[string]grown{}}, path: path}
}

// otherDisk makes a folder on another file system than dir.
func otherDisk(dir string) string {
	there, err := os.MkdirTemp("/dev/shm", "skcl")
	if err != nil {
		return ""
	}
	a, _, _ := identity(dir)
	if b, _, _ := identity(there); a != b {
		return there
	}
	_ = os.Remove(there)
	return ""
}

// flags make skcd quick to act on what is gone.
var flags = []string{"--prune-settle=100ms"}

// furnish puts work into a folder; what lies there from then on must not be lost.
func (b *batch) furnish(h *held, r *repo, rand *rand.Rand, names []string) {
	b.Helper()
	f := &builder{TB: b.World, dir: h.path, outside: filepath.Join(b.Work, "outside"), repo: r, th: &h.thing, rand: rand}
	if h.git == "" {
		f.repo = nil
	}
	f.furnish(names)
	world.Must(b.World, h.capture(h.path))
	if b.outside != nil {
		world.Must(b.World, b.outside.capture(b.outside.places[0]))
	}
}

// spec is the file of a Session.
func (b *batch) spec(s *subject) string {
	target := fmt.Sprintf("worktree: {repo: %q, branch: %q%s}", s.repo.path, s.branch(), s.at())
	if s.other%3 == 2 {
		target = fmt.Sprintf("plainDir: {path: %q}", filepath.Join(b.Work, "plain", fmt.Sprintf("%s-%d", s.name, s.other)))
	}
	command := `[sleep, "6000"]`
	if s.writes {
		command = `[sh, -c, "trap '' TERM; i=0; while :; do echo $i >> own.db; i=$((i+1)); sleep 0.2; done"]`
	}
	policy := v1alpha1.CleanupQuarantine
	if s.retain {
		policy = v1alpha1.CleanupRetain
	}
	return fmt.Sprintf("apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: %s}\nspec:\n  target: {%s}\n  command: %s\n  stop: {gracePeriod: 100ms}\n  cleanup: {policy: %s}\n",
		s.name, target, command, policy)
}

func (s *subject) branch() string {
	if s.other == 0 {
		return "feat/" + s.name
	}
	return fmt.Sprintf("feat/%s-%d", s.name, s.other)
}

func (s *subject) at() string {
	if s.path == "" {
		return ""
	}
	path := s.path
	if s.other > 0 {
		path = fmt.Sprintf("%s-%d", path, s.other)
	}
	return fmt.Sprintf(", path: %q", path)
}

func (b *batch) apply(s *subject) {
	s.live, s.blocked, s.now = true, false, nil
	b.Drop(s.name+".yaml", b.spec(s))
}

// do does one phase, and checks after each part of it.
func (b *batch) do(i int, ph phase) {
	b.Helper()
	say := func(text string) string { return fmt.Sprintf("phase %d, %s", i+1, text) }
	switch {
	case len(ph.kills) > 0:
		b.Stop(syscall.SIGTERM)
		for k, faults := range ph.kills {
			if k == 0 && ph.cold {
				b.steps(ph)
			}
			b.Env = append(b.Env, "SKC_FAULT="+faults)
			c, _ := b.StartOrDie(flags...)
			b.Env = b.Env[:len(b.Env)-1]
			if k == 0 && !ph.cold {
				b.steps(ph)
			}
			for begin := time.Now(); c.Alive() && time.Since(begin) < brokenLimit && b.lacking() != ""; {
				time.Sleep(look)
			}
			if c.Alive() {
				b.counts.unreached.Add(1)
			} else {
				b.counts.kills.Add(1)
			}
			b.Stop(syscall.SIGKILL)
			b.check(say("killed by "+faults), true)
		}
		b.Start(flags...)
	case ph.after > 0:
		c := b.Now()
		c.Ended = true
		go func() { // the steps take their time too
			time.Sleep(ph.after)
			_ = c.Cmd.Process.Kill()
		}()
		b.steps(ph)
		<-c.Done
		b.Stop(syscall.SIGKILL)
		b.counts.kills.Add(1)
		b.check(say("killed after "+ph.after.String()), true)
		b.Start(flags...)
	default:
		b.steps(ph)
	}
	b.settle(say("settled"))
	b.check(say("settled"), false)
	b.takeBack(say("taken back"))
}

func (b *batch) steps(ph phase) {
	for _, st := range ph.steps {
		for _, s := range b.subjects {
			if s.name == st.subject && b.step(s, st) {
				b.counts.step(st.what)
			}
		}
	}
}

// step does one step, and says whether it made sense.
func (b *batch) step(s *subject, st step) bool {
	r := random(st.n, st.what)
	kept := func() *held {
		var all []*held
		for _, h := range s.things {
			if h.at == quarantined && !h.asked && b.quarantine(h) != nil {
				all = append(all, h)
			}
		}
		if len(all) == 0 {
			return nil
		}
		return all[r.IntN(len(all))]
	}
	switch st.what {
	case deleteFile, deleteCommand:
		if !s.live {
			return false
		}
		if st.what == deleteCommand {
			b.MustCtl("delete", "session", s.name)
		} else {
			world.Must(b.World, os.Remove(b.file(s)))
		}
		s.live, s.blocked = false, false
		b.leave(s)
	case retarget:
		if !s.live || s.blocked || s.now == nil || b.file(s) != filepath.Join(b.Spool, s.name+".yaml") {
			return false
		}
		b.leave(s)
		s.other++
		b.Drop(s.name+".yaml", b.spec(s))
	case apply:
		if s.live {
			return false
		}
		b.apply(s)
	case restore, restoreTo, restoreFile:
		h := kept()
		if h == nil {
			return false
		}
		b.restore(s, h, st.what, r)
	case work:
		if s.now == nil {
			return false
		}
		names := someFeatures(r, 3)
		names = slices.DeleteFunc(names, func(n string) bool {
			return slices.Contains([]string{"sparse", "stash", "conflict", "detached", "submodule", "nested", "commits"}, n)
		})
		b.furnish(s.now, s.repo, r, names)
	case clean:
		if err := s.repo.clean(); err != nil {
			b.Errorf("%v", err)
		}
	case forget:
		h := kept()
		if h == nil {
			return false
		}
		err := os.Remove(b.defines(b.quarantine(h)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.Fatal(err)
		}
	}
	return true
}

// leave is what becomes of a Session's folder when it has it no more.
func (b *batch) leave(s *subject) {
	h := s.now
	s.now = nil
	switch {
	case h == nil:
	case h.ours && !s.retain:
		h.at = quarantined
	default:
		h.at, h.ours = nobodys, false
	}
}

// restore asks for a thing to be given back, and foretells what comes of it.
func (b *batch) restore(s *subject, h *held, how string, r *rand.Rand) {
	q := b.quarantine(h)
	to := q.Spec.Origin.Path
	if how == restoreTo {
		// As near as it was to its repository, or not.
		in := filepath.Join(filepath.Dir(q.Spec.Origin.Path), []string{"", "back", "back/to"}[r.IntN(3)])
		world.Must(b.World, os.MkdirAll(in, 0o755))
		to = filepath.Join(in, fmt.Sprintf("%s again %08x", s.name, r.Uint32()))
	}
	taken := slices.ContainsFunc(s.things, func(o *held) bool { return o != h && o.at != quarantined && o.path == to })
	switch {
	case s.live && how != restoreTo, taken:
		h.asked = true
	case s.live, q.Spec.Session == nil, q.Spec.Session.Definition == "":
		h.at, h.path, h.ours = nobodys, to, false
	default:
		h.at, h.path = workspace, to
		s.live, s.blocked, s.now = true, false, h
	}
	h.places = append(h.places, to)
	switch how {
	case restore:
		b.MustCtl("restore", "quarantine/"+q.Name, "--wait=false")
	case restoreTo:
		b.MustCtl("restore", "quarantine/"+q.Name, "--wait=false", "--to", to)
	default:
		b.edit(q, func(spec map[string]any) { spec["restore"] = true })
	}
}

// edit changes the file that defines a Quarantine, as a person does.
func (b *batch) edit(q *v1alpha1.Quarantine, change func(spec map[string]any)) {
	path := b.defines(q)
	data, err := os.ReadFile(path)
	world.Must(b.World, err)
	doc := map[string]any{}
	world.Must(b.World, yaml.Unmarshal(data, &doc))
	change(doc["spec"].(map[string]any))
	data, err = yaml.Marshal(doc)
	world.Must(b.World, err)
	b.Write(path, string(data))
}

// takeBack withdraws what was refused.
func (b *batch) takeBack(when string) {
	some := false
	for _, s := range b.subjects {
		for _, h := range s.things {
			if q := b.quarantine(h); h.asked && q != nil {
				b.edit(q, func(spec map[string]any) { delete(spec, "restore"); delete(spec, "restoreTo") })
				h.asked, some = false, true
				b.counts.refused.Add(1)
			}
		}
	}
	if some {
		b.settle(when)
		b.check(when, false)
	}
}

// source is the file that defines the object of a state file; empty when there is
// none.
func source(state string) string {
	var o struct{ Source struct{ File string } }
	data, err := os.ReadFile(state)
	if err != nil || yaml.Unmarshal(data, &o) != nil {
		return ""
	}
	return o.Source.File
}

// defines is the file that defines a Quarantine.
func (b *batch) defines(q *v1alpha1.Quarantine) string {
	return source(filepath.Join(b.State, "objects", "quarantine", q.Namespace, q.Name+".yaml"))
}

// file is what defines the Session.
func (b *batch) file(s *subject) string {
	if file := source(b.StateFile(s.name)); file != "" {
		return file
	}
	return filepath.Join(b.Spool, s.name+".yaml")
}

// quarantine is the object that says where the thing is.
func (b *batch) quarantine(h *held) *v1alpha1.Quarantine {
	prefix := fmt.Sprintf("%d:%d", h.dev, h.ino)
	files, _ := filepath.Glob(filepath.Join(b.State, "objects", "quarantine", "default", "*.yaml"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		q := &v1alpha1.Quarantine{}
		if err != nil || yaml.Unmarshal(data, q) != nil {
			continue
		}
		id := string(q.Spec.Origin.Identity)
		if (id == prefix || strings.HasPrefix(id, prefix+":")) && meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.SetAside) {
			return q
		}
	}
	return nil
}

// settle waits until all is as it was asked for.
func (b *batch) settle(when string) {
	b.Helper()
	what := ""
	for begin := time.Now(); ; time.Sleep(look) {
		if what = b.lacking(); what == "" {
			break
		}
		if time.Since(begin) > settleLimit {
			b.check(when, true) // what is lost matters more
			b.Fatalf("%s: after %s: %s", when, settleLimit, what)
		}
	}
	for _, s := range b.subjects {
		b.learn(s)
	}
}

// lacking says what is not as it was asked for.
func (b *batch) lacking() string {
	for _, s := range b.subjects {
		if what := b.lackingOf(s); what != "" {
			return s.name + ": " + what
		}
	}
	return ""
}

func (b *batch) lackingOf(s *subject) string {
	o := b.Session(s.name)
	if o == nil == s.live {
		return fmt.Sprintf("there is a Session: %v", o != nil)
	}
	if s.live {
		if what := b.lackingLive(s, o); what != "" {
			return what
		}
	}
	for _, h := range s.things {
		if h.at != quarantined {
			if at := h.find(); at != h.path {
				return fmt.Sprintf("%s is at %q and not at %q", h.name, at, h.path)
			}
			continue
		}
		q := b.quarantine(h)
		if q == nil {
			return h.name + " is not set aside"
		}
		if dev, ino, ok := identity(q.Status.Path); !ok || dev != h.dev || ino != h.ino {
			return fmt.Sprintf("%s is not at %q, as its Quarantine says", h.name, q.Status.Path)
		}
		ready := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.Ready)
		switch {
		case ready == nil || q.Status.ObservedGeneration < q.Generation || q.DeletionTimestamp != nil:
			return h.name + ": its Quarantine is not yet looked at"
		case h.asked && ready.Reason != v1alpha1.ReasonSessionExists && ready.Reason != v1alpha1.ReasonPlaceTaken:
			return fmt.Sprintf("%s is to be refused, and is %s: %s", h.name, ready.Reason, ready.Message)
		case !h.asked && (ready.Reason != v1alpha1.ReasonKept || q.Spec.Restore):
			return fmt.Sprintf("%s is to be kept, and is %s: %s", h.name, ready.Reason, ready.Message)
		}
	}
	return ""
}

func (b *batch) lackingLive(s *subject, o *v1alpha1.Session) string {
	if o.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	folder := b.Condition(s.name, v1alpha1.WorkspaceReady)
	free := slices.ContainsFunc(s.things, func(h *held) bool { return h.at == nobodys })
	for _, reason := range []string{v1alpha1.ReasonBranchCheckedOutElsewhere, v1alpha1.ReasonPathNotEmpty} {
		if free && s.now == nil && folder == string(metav1.ConditionFalse)+"/"+reason {
			s.blocked = true
			return ""
		}
	}
	s.blocked = false
	if ready := b.Condition(s.name, v1alpha1.Ready); ready != string(metav1.ConditionTrue)+"/"+v1alpha1.ReasonRunning {
		return fmt.Sprintf("Ready is %q: %s; WorkspaceReady is %q", ready, b.Message(s.name, v1alpha1.Ready), folder)
	}
	if s.now != nil && (o.Status.Workspace == nil || o.Status.Workspace.Path != s.now.path) {
		return fmt.Sprintf("its folder is not %q: %+v", s.now.path, o.Status.Workspace)
	}
	return ""
}

// learn takes in a folder that a Session got.
func (b *batch) learn(s *subject) {
	o := b.Session(s.name)
	if !s.live || s.blocked || s.now != nil || o == nil || o.Status.Workspace == nil {
		return
	}
	path := o.Status.Workspace.Path
	dev, ino, _ := identity(path)
	for _, h := range s.things {
		if h.dev == dev && h.ino == ino { // it got one that it had before
			s.now = h
			return
		}
	}
	h := held0(fmt.Sprintf("%s, folder %d", s.name, len(s.things)+1), path)
	h.ours = true
	if s.writes {
		h.grows["own.db"] = grown{sum: sumOf(nil)}
		b.Until("the program of "+s.name+" writes", func() bool {
			_, err := os.Stat(filepath.Join(path, "own.db"))
			return err == nil
		})
	}
	if o.Status.Workspace.Repo != "" {
		h.git = mustGit(b.World, path, "rev-parse", "--absolute-git-dir")
	}
	s.things, s.now = append(s.things, h), h
	b.counts.things.Add(1)
	world.Must(b.World, h.capture(path))
	if len(s.things) > 1 { // of the first, the plan says what is in it
		b.furnish(h, s.repo, random(uint64(len(s.things)), s.name), []string{"untracked", "ignored", "staged", "commits"})
	}
}

// check sees that nothing is lost. midway: skcd was killed, and nothing but that
// counts.
func (b *batch) check(when string, midway bool) {
	b.Helper()
	b.counts.checks.Add(1)
	things := filepath.Join(b.State, "quarantine", "things")
	heads := map[*repo][]string{}
	for _, s := range b.subjects {
		for _, h := range s.things {
			at := h.find(things)
			if at == "" {
				b.Errorf("%s: %s is lost: it is at none of its places, and in no quarantine", when, h.name)
				continue
			}
			if h.git != "" && slices.Contains(h.places, at) {
				heads[s.repo] = append(heads[s.repo], h.head)
			}
			for _, what := range h.compare(at, midway) {
				b.Errorf("%s: %s", when, what)
			}
			if !midway && h.at != quarantined {
				for _, what := range h.usable(at) {
					b.Errorf("%s: %s", when, what)
				}
			}
		}
	}
	for _, th := range append(slices.Clone(b.clones), b.outside) {
		if th == nil {
			continue
		}
		for _, what := range th.compare(th.places[0], midway) {
			b.Errorf("%s: %s", when, what)
		}
	}
	for _, r := range b.repos {
		for _, what := range r.check(heads[r]...) {
			b.Errorf("%s: %s", when, what)
		}
	}
}
