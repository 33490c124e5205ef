package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
	"skc.dev/skc/effects/process"
)

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1.0 KiB", 1258291: "1.2 MiB", 1<<20 - 1: "1.0 MiB", 1 << 30: "1.0 GiB",
		5 << 40: "5.0 TiB", math.MaxInt64: "8.0 EiB",
	} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestAhead(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]string{
		7*24*time.Hour - time.Minute: "in 6d23h", 90 * time.Second: "in 90s", 0: "now", -time.Hour: "now",
	} {
		if got := ahead(now.Add(after), now); got != want {
			t.Errorf("ahead(%s) = %q, want %q", after, got, want)
		}
	}
}

func TestRed(t *testing.T) {
	check := func(name string, ok bool) v1alpha1.SafetyCheck { return v1alpha1.SafetyCheck{Name: name, OK: ok} }
	for _, tt := range []struct {
		name   string
		checks []v1alpha1.SafetyCheck
		want   string
	}{
		{"nothing looked at", nil, ""},
		{"all well", []v1alpha1.SafetyCheck{check(git.CheckDirty, true), check(git.CheckUnpushed, true)}, ""},
		{"two of them", []v1alpha1.SafetyCheck{check(git.CheckDirty, false), check(git.CheckStash, true), check(git.CheckLock, false)}, "dirty lock"},
		{"commits that are nowhere", []v1alpha1.SafetyCheck{check(git.CheckUnpushed, false), check(git.CheckUpstream, false)}, "unpushed"},
		{"commits that are upstream as equal patches", []v1alpha1.SafetyCheck{check(git.CheckUnpushed, false), check(git.CheckUpstream, true)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var names []string
			for _, c := range red(tt.checks) {
				names = append(names, c.Name)
			}
			if got := strings.Join(names, " "); got != tt.want {
				t.Errorf("red = %q, want %q", got, tt.want)
			}
		})
	}
}

// worktreeSessions are n sessions, each with a worktree of its own on one
// repository.
func worktreeSessions(t *testing.T, n int) []*v1alpha1.Session {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	dir := t.TempDir()
	repo := filepath.Join(dir, "app")
	for _, args := range [][]string{{"init", "-q", "-b", "main", repo}, {"-C", repo, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "first"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	g, err := git.New(git.Options{Files: &files.Layer{}, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	var all []*v1alpha1.Session
	for i := range n {
		s := &v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i), Namespace: "default", UID: types.UID(fmt.Sprintf("uid-%d", i))}}
		w, err := g.EnsureWorktree(t.Context(), effects.WantWorktree{Repo: repo, Branch: s.Name, Path: filepath.Join(dir, s.Name), UID: string(s.UID)})
		if err != nil {
			t.Fatal(err)
		}
		s.Spec.Target.Worktree = &v1alpha1.WorktreeTarget{Repo: v1alpha1.Path(repo), Branch: s.Name}
		s.Status.Workspace = &v1alpha1.WorkspaceStatus{Path: w.Path, CreatedByController: true,
			Safety: []v1alpha1.SafetyCheck{{Name: git.CheckDirty, Value: "seen before"}}}
		all = append(all, s)
	}
	return all
}

func objects(sessions []*v1alpha1.Session) []api.Object {
	all := make([]api.Object, 0, len(sessions))
	for _, s := range sessions {
		all = append(all, s)
	}
	return all
}

// What lies in quarantine is looked at where it lies: what was done after the
// controller's last look counts before a purge.
func TestLooksAtWhatIsSetAside(t *testing.T) {
	s := worktreeSessions(t, 1)[0]
	path, place := s.Status.Workspace.Path, filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(filepath.Join(path, "note"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := git.New(git.Options{Files: &files.Layer{}, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := errors.Join(g.Transfer(ctx, path, string(s.UID), "owner"), g.BeforeMove(ctx, path, "owner", "set aside"),
		os.Rename(path, place), g.AfterMove(ctx, place, "owner")); err != nil {
		t.Fatal(err)
	}
	q := &v1alpha1.Quarantine{ObjectMeta: metav1.ObjectMeta{UID: "q"}}
	q.Spec.Origin = v1alpha1.QuarantineOrigin{Type: v1alpha1.QuarantineWorktree, Path: path, Owner: "owner"}
	q.Status = v1alpha1.QuarantineStatus{Path: place, Safety: []v1alpha1.SafetyCheck{{Name: git.CheckUntracked, OK: true}}}
	c := &cli{clock: clock.RealClock{}, err: &strings.Builder{}}
	seen := c.lookSafe(ctx, []api.Object{q}, patience{check: time.Minute, all: time.Minute, atOnce: 1})["q"]
	bad := red(seen.checks)
	if !seen.live || len(bad) != 1 || bad[0].Name != git.CheckUntracked {
		t.Errorf("%+v, want untracked alone not OK, looked at now", seen)
	}
}

// A git that never answers costs the time that is given, however many names
// there are, and what was seen before is told instead.
func TestLooksAreBoundedInAll(t *testing.T) {
	sessions := worktreeSessions(t, 6)
	for i := range 94 {
		s := sessions[i%6].DeepCopy()
		s.UID = types.UID(fmt.Sprintf("other-%d", i)) // the mark says that it is another's
		sessions = append(sessions, s)
	}
	slow := filepath.Join(t.TempDir(), "git")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(slow)+":"+os.Getenv("PATH"))
	c := &cli{clock: clock.RealClock{}, err: &strings.Builder{}}
	begun := time.Now()
	seen := c.lookSafe(t.Context(), objects(sessions), patience{check: 5 * time.Second, all: 200 * time.Millisecond, atOnce: 2})
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if len(seen) != 100 {
		t.Fatalf("%d answers, want 100", len(seen))
	}
	for _, s := range sessions[:6] {
		if got := seen[s.UID]; !got.ours || len(got.checks) != 1 || got.checks[0].Value != "seen before" {
			t.Errorf("%s: %+v, want what the status has", s.Name, got)
		}
	}
}

// Each of several worktrees is looked at now, and told apart from the others.
func TestLooksAtManyWorktrees(t *testing.T) {
	sessions := worktreeSessions(t, 12)
	note := filepath.Join(sessions[3].Status.Workspace.Path, "note")
	if err := os.WriteFile(note, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &cli{clock: clock.RealClock{}, err: &strings.Builder{}}
	seen := c.lookSafe(t.Context(), objects(sessions), patience{check: time.Minute, all: time.Minute, atOnce: 4})
	for i, s := range sessions {
		got := seen[s.UID]
		if !got.live || !got.ours {
			t.Errorf("%s: %+v, want ours, looked at now", s.Name, got)
		}
		var names []string
		for _, x := range red(got.checks) {
			names = append(names, x.Name)
		}
		want := ""
		if i == 3 {
			want = git.CheckUntracked
		}
		if strings.Join(names, " ") != want {
			t.Errorf("%s: red are %v, want %q", s.Name, names, want)
		}
	}
}

const keptYAML = `apiVersion: skc.dev/v1alpha1
kind: Quarantine
metadata:
  name: web-1
spec:
  # where it was
  origin: {type: Folder, path: @DIR@/was, identity: "1:2", owner: q-1}
  session: {namespace: default, name: web, uid: u-1}
  reason: SessionDeleted
`

// Requests that follow each other at once, each refused for another reason: each
// is told its own, and the file is afterwards what it was, whatever is asked for
// and whenever the controller looks.
func TestRestoreTellsItsOwnRefusal(t *testing.T) {
	h := newTestHome(t)
	h.own(t)
	ctx := t.Context()
	c, err := openController(ctx, h.Home)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(h.Managed(), "default", "quarantine-web-1.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(keptYAML, "@DIR@", h.dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.sync(ctx); err != nil {
		t.Fatal(err)
	}
	key := named("quarantine/web-1")
	acting, stop := context.WithCancel(ctx)
	acted := make(chan error, 1)
	reason := make(chan string, 1)
	go func() { acted <- standIn(acting, c, reason) }()
	reasons := []string{v1alpha1.ReasonPlaceTaken, v1alpha1.ReasonSessionExists, v1alpha1.ReasonRefused, v1alpha1.ReasonUncertain}
	for round := range 30 {
		want := reasons[rand.IntN(len(reasons))]
		reason <- want
		args := []string{"restore", "web", "--timeout=20s"}
		if rand.IntN(2) == 0 {
			args = append(args, "--to", filepath.Join(h.dir, fmt.Sprintf("to%d", round)))
		}
		code, out, errs := h.skcctl(ctx, args...)
		wantCode := exitFailure
		if want == v1alpha1.ReasonPlaceTaken || want == v1alpha1.ReasonSessionExists {
			wantCode = exitConflict
		}
		if code != wantCode || !strings.Contains(errs, "is not restored: "+want) || !strings.Contains(out, "the request is taken back") {
			t.Fatalf("round %d: %v: exit code %d, want %d for %s: %s%s", round, args, code, wantCode, want, out, errs)
		}
		if data, err := os.ReadFile(file); err != nil || string(data) != text {
			t.Fatalf("round %d: the file holds %q, %v", round, data, err)
		}
	}
	stop()
	if err := receive(t, acted); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, key); err != nil {
		t.Fatal(err)
	}
}

// standIn reads the files again and again, with a random while in between, and
// refuses each request with the next of the reasons.
func standIn(ctx context.Context, c *controllerStandIn, reasons <-chan string) error {
	for answered := int64(0); ctx.Err() == nil; {
		<-time.After(time.Duration(rand.IntN(6)) * time.Millisecond)
		if err := c.sync(ctx); err != nil {
			return err
		}
		key := named("quarantine/web-1")
		o, err := c.Get(ctx, key)
		if err != nil {
			return err
		}
		if o.GetGeneration() == answered {
			continue
		}
		<-time.After(time.Duration(rand.IntN(6)) * time.Millisecond)
		status := `{conditions: [{type: Ready, status: "True", reason: Kept, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`
		if o.(*v1alpha1.Quarantine).Spec.Restore {
			status = fmt.Sprintf(`{conditions: [{type: Ready, status: "False", reason: %s, message: why, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, <-reasons)
		}
		if err := c.statusOf(ctx, key, []byte(status)); err != nil {
			return err
		}
		answered = o.GetGeneration()
	}
	return nil
}

// What runs in the session ends with it and is not in the way; what else works
// in the folder is.
func TestLooksPastTheSessionItself(t *testing.T) {
	sessions := worktreeSessions(t, 2)
	for i, s := range sessions {
		cmd := exec.Command("sleep", "600")
		cmd.Dir = s.Status.Workspace.Path
		cmd.Env = append(os.Environ(), process.UIDVariable+"="+string(sessions[0].UID))
		if err := cmd.Start(); err != nil {
			t.Fatal(i, err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	c := &cli{clock: clock.RealClock{}, err: &strings.Builder{}}
	seen := c.lookSafe(t.Context(), objects(sessions), patience{check: time.Minute, all: time.Minute, atOnce: 2})
	if bad := red(seen[sessions[0].UID].checks); len(bad) != 0 {
		t.Errorf("with its own program in it: %+v, want nothing", bad)
	}
	if bad := red(seen[sessions[1].UID].checks); len(bad) != 1 || bad[0].Name != git.CheckWorkingIn {
		t.Errorf("with another's program in it: %+v, want working-in", bad)
	}
}
