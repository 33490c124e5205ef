//go:build e2e

package faults

import (
	"fmt"
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

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/hack/e2e/world"
)

const (
	// healLimit is the goal of every recovery.
	healLimit = 10 * time.Second
	// look is how often something is looked at again.
	look = 20 * time.Millisecond
	// neighbour is a session beside the subject that must not notice anything.
	neighbour = "beside"
)

// trial is one home in which one change is made, and broken.
type trial struct {
	*world.World
	kind *kind
	rand *rand.Rand
	log  *startLog
	file string // of the subject, in the spool
	// cold makes the change while no controller runs.
	cold bool
	// whole is a trial in which nothing is broken.
	whole bool
	// broke is the last controller with faults.
	broke *world.Controller

	// The work in the folder of the subject: where it should be, what it was, and
	// the commit that it is at.
	place, sum, commit string
	exchanged          bool   // another folder is where the work was
	asked              int    // runs of the setup that were asked for again,
	interrupted        string // and when that began for which it was the last time
}

// newTrial makes a home in which all is as it is before the change, and no
// controller runs.
func newTrial(t *testing.T, k *kind) *trial {
	t.Helper()
	w := world.New(t, true)
	w.Bin = bin
	r := random(t.Name())
	tr := &trial{World: w, kind: k, rand: r, file: "s.yaml", cold: r.IntN(2) == 0 && k.hold == ""}
	tr.log = follow(filepath.Join(w.Work, "log"))
	t.Cleanup(tr.log.close)
	if k.before != nil {
		k.before(tr)
	}
	if k.have == "" {
		return tr
	}
	if !k.alone {
		tr.Drop("beside.yaml", tr.spec(neighbour, "v1", running))
	}
	tr.Drop(tr.file, tr.spec(subject, "v1", running))
	tr.clean()
	tr.until(world.Patience, func() string {
		if what := tr.lacking(running, []string{"v1"}); what != "" || k.alone {
			return what
		}
		return tr.neighbourMissing()
	})
	if k.have == stopped {
		tr.Drop(tr.file, tr.spec(subject, "v1", stopped))
		tr.until(world.Patience, func() string { return tr.lacking(stopped, []string{"v1"}) })
	}
	if k.have == kept {
		tr.takeWork()
		tr.until(world.Patience, func() string { return first(tr.lacking(gone, []string{"v1"}), tr.unkept()) })
		tr.place = tr.tree()
		tr.file = filepath.Join("..", "state", "managed", v1alpha1.DefaultNamespace, "session-"+subject+".yaml")
	}
	tr.Stop([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[r.IntN(2)])
	return tr
}

// flags make skcd quick to act on what is gone, and quiet otherwise.
var flags = []string{"--prune-settle=100ms"}

// clean starts a controller in which nothing fails.
func (t *trial) clean() *world.Controller { return t.Start(flags...) }

// broken starts a controller with faults and makes the change, unless it was
// made before: after the controller is ready or has ended, or, in a cold trial,
// before it starts.
func (t *trial) broken(faults string, change bool, more ...string) *world.Controller {
	t.Helper()
	if change && t.cold {
		t.kind.change(t)
	}
	if change && t.kind.hold != "" && !strings.Contains(faults, t.kind.hold+"=kill") {
		faults += "," + t.kind.hold + "=2s"
	}
	t.Env = append(t.Env, "SKC_FAULT="+faults)
	c, _ := t.StartOrDie(append(slices.Clone(flags), more...)...)
	t.broke = c
	t.Env = t.Env[:len(t.Env)-1]
	if change && !t.cold {
		t.kind.change(t)
	}
	return c
}

// settle waits until the controller has ended or the change is done; then it
// asks it to end, which comes by more places. It tells whether it was killed.
func (t *trial) settle(c *world.Controller) (killed bool) {
	t.Helper()
	stuck := wait(2*healLimit, func() string {
		if !c.Alive() {
			return ""
		}
		return t.helped()
	})
	if stuck != "" {
		t.Errorf("lost: not killed, and after %s: %s", 2*healLimit, stuck)
	}
	if c.Alive() {
		_ = c.Cmd.Process.Signal(syscall.SIGTERM)
		c.Wait()
	}
	status, ok := c.Cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// heal starts a controller in which nothing fails, and sees that all comes right
// in time.
func (t *trial) heal() time.Duration {
	t.Helper()
	begin := time.Now()
	t.clean()
	t.until(healLimit-time.Since(begin), t.helped)
	return time.Since(begin)
}

// until waits until nothing is lacking.
func (t *trial) until(limit time.Duration, lacking func() string) {
	t.Helper()
	if what := wait(limit, lacking); what != "" {
		t.Fatalf("after %s: %s", limit.Round(time.Millisecond), what)
	}
}

// wait waits until nothing is lacking, and returns what still is at the end.
func wait(limit time.Duration, lacking func() string) string {
	for begin := time.Now(); ; time.Sleep(look) {
		what := lacking()
		if what == "" || time.Since(begin) > limit {
			return what
		}
	}
}

// undone says what of the change is not yet done.
func (t *trial) undone() string {
	if t.uncertain() {
		return ""
	}
	what := t.lacking(t.kind.want, t.kind.starts)
	if what == "" && t.kind.also != nil {
		what = t.kind.also(t)
	}
	return what
}

// helped is undone, after what a person has to do was done.
func (t *trial) helped() string {
	if t.kind.help != nil {
		t.kind.help(t)
	}
	return t.undone()
}

// starts are the versions that were started, without the one more that the kind
// allows for.
func (t *trial) starts(want []string) []string {
	had := t.log.versions(subject)
	if t.kind.twice && len(had) == len(want)+1 {
		had = had[1:]
	}
	return had
}

func (t *trial) lacking(state string, starts []string) string {
	if had := t.starts(starts); !slices.Equal(had, starts) {
		return fmt.Sprintf("the starts are %q, want %q", had, starts)
	}
	alive := t.log.alive(subject)
	if state == gone {
		switch {
		case t.Session(subject) != nil:
			return "the object is there"
		case len(alive) > 0:
			return fmt.Sprintf("the program runs: %v", alive)
		}
		return ""
	}
	if want := map[string]int{running: 1}[state]; len(alive) != want {
		return fmt.Sprintf("%d programs run, want %d", len(alive), want)
	}
	if state == ended {
		return ""
	}
	want := string(metav1.ConditionTrue) + "/" + state
	if state == failed {
		want = string(metav1.ConditionFalse) + "/" + v1alpha1.ReasonCommandNotFound
	}
	if ready := t.Condition(subject, v1alpha1.Ready); ready != want && (t.kind.prompt == "" || ready != "Unknown/"+v1alpha1.ReasonPromptUnknown) {
		return fmt.Sprintf("Ready is %q, want %q", ready, want)
	}
	s := t.Session(subject)
	if s == nil {
		return "the object is not there"
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceAccepted); c == nil || c.Status != metav1.ConditionTrue {
		return fmt.Sprintf("SourceAccepted is %v", c)
	}
	if tmux := s.Status.Tmux; state == running && (tmux == nil || tmux.PanePID != int64(t.log.last(subject).pid)) {
		return fmt.Sprintf("status has %+v, the program the pid %d", tmux, t.log.last(subject).pid)
	}
	return t.unprompted()
}

// check returns what is wrong after all came right: lost, doubled, touched. It
// then deletes the subject and returns what is left of it too.
func (t *trial) check() (wrong []string) {
	t.Helper()
	if what := t.undone(); what != "" {
		wrong = append(wrong, "lost: "+what)
	}
	if what := t.forgotten(); what != "" {
		wrong = append(wrong, "lost: "+what)
	}
	if t.uncertain() {
		return wrong // there is nothing to delete
	}
	if t.kind.finish != nil {
		t.kind.finish(t)
	}
	uids, most := t.uids(), 1
	if t.kind.anew {
		most = 2
	}
	if t.kind.want != gone && t.kind.want != ended {
		world.Must(t, os.Remove(t.where()))
	}
	if what := wait(healLimit, func() string {
		if t.Session(subject) != nil {
			return "the object is there"
		}
		return strings.Join(t.orphans(uids), "\n")
	}); what != "" {
		wrong = append(wrong, "orphan after delete: "+what)
	}
	if len(uids) > most {
		wrong = append(wrong, fmt.Sprintf("lost: one name had the UIDs %q", uids))
	}
	if had := t.starts(t.kind.starts); !slices.Equal(had, t.kind.starts) {
		wrong = append(wrong, fmt.Sprintf("duplicated: the starts are %q, want %q", had, t.kind.starts))
	}
	for _, twin := range t.log.twins() {
		wrong = append(wrong, "duplicated: at one time there were "+twin)
	}
	if t.kind.have != "" && !t.kind.alone {
		if what := t.neighbourMissing(); what != "" {
			wrong = append(wrong, "touched: "+what)
		}
	}
	return wrong
}

// forgotten is what the status does not tell of the programs that ended.
func (t *trial) forgotten() string {
	s := t.Session(subject)
	if s == nil {
		return ""
	}
	if last := s.Status.LastTermination; t.kind.death != "" && (last == nil || last.Signal != t.kind.death && last.RequestedBy != t.kind.death) {
		return fmt.Sprintf("the death certificate is %+v, want %s", last, t.kind.death)
	}
	if got := s.Status.Restarts; got.Total != t.kind.restarts || t.kind.restarts > 0 && got.Consecutive != t.kind.restarts {
		return fmt.Sprintf("the status counts %+v, want %d restarts", got, t.kind.restarts)
	}
	return ""
}

// uids are the UIDs that the subject has and had.
func (t *trial) uids() []string {
	all := t.log.uids(subject)
	if s := t.Session(subject); s != nil && !slices.Contains(all, string(s.UID)) {
		all = append(all, string(s.UID))
	}
	return all
}

func (t *trial) neighbourMissing() string {
	if had := t.log.versions(neighbour); !slices.Equal(had, []string{"v1"}) || len(t.log.alive(neighbour)) != 1 {
		return fmt.Sprintf("the session beside it was started %d times, and %d run", len(had), len(t.log.alive(neighbour)))
	}
	return ""
}

// where is the file that defines the subject: skcctl may have chosen another.
func (t *trial) where() string {
	path := filepath.Join(t.Spool, t.file)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	return filepath.Join(t.Spool, v1alpha1.DefaultNamespace, "session-"+subject+".yaml")
}

// orphans is all that is left of a session that was deleted.
func (t *trial) orphans(uids []string) (found []string) {
	t.Helper()
	panes := ""
	if len(t.Servers()) > 0 {
		panes, _ = t.Tmux("list-panes", "-a", "-F", "#{session_name} #{pane_start_command}")
	}
	for _, uid := range uids {
		for _, pid := range t.Of(uid) {
			found = append(found, fmt.Sprintf("process %d: %q", pid, world.Args(pid)))
		}
		if strings.Contains(panes, uid) {
			found = append(found, "tmux session in:\n"+panes)
		}
		if group := world.Group(uid); group != "" {
			found = append(found, "control group "+group)
		}
	}
	for _, dir := range []string{t.State, t.Run, t.Spool} {
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			switch {
			case err != nil || d.IsDir():
			case strings.HasSuffix(path, ".tmp"):
				found = append(found, "temporary "+path)
			case filepath.Dir(path) == filepath.Join(t.State, "launch"):
				found = append(found, "launch file "+path)
			case filepath.Dir(path) == filepath.Join(t.State, "prompts"):
				found = append(found, "startup prompt "+path)
			case strings.HasPrefix(path, filepath.Join(t.State, "objects")) && strings.Contains(filepath.Base(path), subject+".yaml"):
				found = append(found, "state file "+path)
			}
			return nil
		})
	}
	return found
}

// fired are the faults that a controller says it ran into.
func fired(c *world.Controller) map[string]int {
	hits := map[string]int{}
	for line := range strings.Lines(c.Text()) {
		if place, ok := strings.CutPrefix(line, "SKC_FAULT: "); ok {
			hits[strings.TrimSpace(place)]++
		}
	}
	return hits
}

// everyPlace has each place that is come by named in the log.
func everyPlace() string {
	var all []string
	for _, p := range places {
		all = append(all, p+"=0s@1+")
	}
	return strings.Join(all, ",")
}

// reached makes the change once unbroken, and returns how often it comes by
// each place and by each call of the file layer.
func reached(t *testing.T, k *kind) map[string]int {
	t.Helper()
	tr := newTrial(t, k)
	tr.cold, tr.whole = false, true
	c := tr.broken("calls=0s@1+,"+everyPlace(), true)
	if tr.settle(c) {
		t.Fatal("killed without a fault")
	}
	hits := fired(c)
	tr.heal()
	for _, what := range tr.check() {
		t.Error(what)
	}
	return hits
}
