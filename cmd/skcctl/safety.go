package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
	"skc.dev/skc/effects/process"
)

// patience bounds looks at workspaces: one check, all that a command looks at,
// and how many at once. What is not seen by then is told from the status.
type patience struct {
	check, all time.Duration
	atOnce     int
}

var lookPatience = patience{2 * time.Second, 5 * time.Second, 4}

// safety is whether a folder can go without loss.
type safety struct {
	ours   bool // skc made it
	live   bool // looked at now; else it is what the controller saw last
	checks []v1alpha1.SafetyCheck
}

// place is a folder that an object answers for, and what the object says of it.
type place struct {
	path  string
	marks []string // one of which a worktree of ours carries; none of other folders
	said  safety
}

// placeOf is the workspace of a Session, or what a Quarantine holds.
func placeOf(o api.Object) (place, bool) {
	switch o := o.(type) {
	case *v1alpha1.Session:
		w := o.Status.Workspace
		if w == nil {
			return place{}, false
		}
		p := place{path: w.Path, said: safety{ours: w.CreatedByController, checks: w.Safety}}
		if o.Spec.Target.Worktree != nil {
			p.marks = []string{string(o.UID)}
		}
		return p, true
	case *v1alpha1.Quarantine:
		p := place{path: cmp.Or(o.Status.Path, o.Spec.Origin.Path), said: safety{ours: true, checks: o.Status.Safety}}
		if o.Spec.Origin.Type == v1alpha1.QuarantineWorktree {
			p.marks = []string{o.Spec.Origin.Owner, o.Spec.Origin.MarkedBy}
		}
		return p, true
	}
	return place{}, false
}

// red are the checks that are not OK. Commits that no remote has are no loss
// when equal patches are upstream; that there is no upstream is none by itself.
func red(checks []v1alpha1.SafetyCheck) []v1alpha1.SafetyCheck {
	var all []v1alpha1.SafetyCheck
	upstream := false
	for _, c := range checks {
		upstream = upstream || c.Name == git.CheckUpstream && c.OK
	}
	for _, c := range checks {
		if !c.OK && c.Name != git.CheckUpstream && (c.Name != git.CheckUnpushed || !upstream) {
			all = append(all, c)
		}
	}
	return all
}

// lookSafe looks at what objects answer for, by their UID: at worktrees now, as
// far as there is a git and time enough; of all else it tells the status.
func (c *cli) lookSafe(ctx context.Context, objects []api.Object, limit patience) map[types.UID]safety {
	all := map[types.UID]safety{}
	worktrees := map[types.UID]place{}
	for _, o := range objects {
		p, ok := placeOf(o)
		if !ok {
			continue
		}
		all[o.GetUID()] = p.said
		if len(p.marks) > 0 {
			worktrees[o.GetUID()] = p
		}
	}
	if len(worktrees) == 0 {
		return all
	}
	g, err := git.New(git.Options{Files: &files.Layer{}, Clock: c.clock})
	if err != nil {
		c.note("%v; what is told of worktrees is what skcd saw last", err)
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, limit.all)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	turns := make(chan struct{}, limit.atOnce)
	for uid, p := range worktrees {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			seen, err := lookAt(ctx, g, p, limit.check)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all[uid] = seen
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done(): // gits that were begun end with it; one on a dead disk is not waited for
		select {
		case <-done:
		case <-time.After(limit.check):
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(all)
}

// lookAt looks at one worktree.
func lookAt(ctx context.Context, g *git.Git, p place, limit time.Duration) (safety, error) {
	if ctx.Err() != nil {
		return safety{}, ctx.Err()
	}
	uid, marked, err := g.Marked(ctx, p.path)
	if err != nil {
		return safety{}, err
	}
	seen := safety{ours: p.said.ours && marked && uid != "" && slices.Contains(p.marks, uid), live: true}
	if _, err := os.Lstat(p.path); err != nil {
		return safety{}, err
	}
	if !seen.ours {
		return seen, nil
	}
	// What runs in the session ends with it, and so is not in the way.
	own, err := process.NewSessions(false).List(ctx, uid)
	if err != nil {
		return safety{}, err
	}
	spare := func(pid int) bool {
		return slices.ContainsFunc(own, func(id effects.ProcessID) bool { return id.PID == pid })
	}
	report, err := g.Safety(ctx, p.path, git.Limits{PerCheck: limit, Spare: spare})
	if err != nil {
		return safety{}, err
	}
	for _, x := range report.Checks {
		seen.checks = append(seen.checks, v1alpha1.SafetyCheck(x))
	}
	return seen, nil
}

// foretell says, before sessions are deleted, what will become of the workspace
// of each: where it is, whether it stays, for how long it is kept, how it comes
// back, and what is in it that is nowhere else.
func (c *cli) foretell(ctx context.Context, h home.Home, keys []api.Key) {
	d := newDesired(h)
	var sessions []api.Object
	for _, key := range keys {
		o, err := d.state.Get(key)
		if err != nil {
			if !errors.Is(err, effects.ErrNotFound) { // else nothing was made for it
				c.note("%s: what becomes of its workspace is not known: %v", short(key), err)
			}
			continue
		}
		if s, ok := o.(*v1alpha1.Session); ok && s.Status.Workspace != nil && s.DeletionTimestamp == nil {
			sessions = append(sessions, s)
		}
	}
	seen := c.lookSafe(ctx, sessions, lookPatience)
	for _, o := range sessions {
		var b strings.Builder
		writeFate(&b, o.(*v1alpha1.Session), seen[o.GetUID()])
		fmt.Fprint(c.err, b.String()) //nolint:errcheck // as all that is said beside the result
	}
}

// restoreLine is the command that brings a thing back.
func restoreLine(ns, name string) string {
	if ns == v1alpha1.DefaultNamespace {
		return "skcctl restore " + name
	}
	return "skcctl restore " + name + " -n " + ns
}

// writeFate says what becomes of one workspace.
func writeFate(w io.Writer, s *v1alpha1.Session, seen safety) {
	path, name := s.Status.Workspace.Path, short(api.KeyOf(s))
	say := func(format string, args ...any) {
		fmt.Fprintf(w, "%s: %s\n", name, inertLine(fmt.Sprintf(format, args...))) //nolint:errcheck // a buffer
	}
	what, empty := path, false
	if b := s.Status.Workspace.Branch; s.Spec.Target.Worktree != nil {
		what = "the worktree " + path
		if b != "" {
			what += " (branch " + b + ")"
		}
	}
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return
	}
	if seen.ours && s.Spec.Target.Worktree == nil {
		names, err := os.ReadDir(path)
		empty = err == nil && len(names) == 0
	}
	switch {
	case !seen.ours:
		say("%s stays as it is: skc did not make it", what)
	case s.Spec.Cleanup.Policy == v1alpha1.CleanupRetain:
		say("%s stays where it is (cleanup.policy Retain), and is yours from then on", what)
	case empty:
		say("%s is removed: it is empty", what)
	default:
		kept := duration.HumanDuration(s.Spec.Cleanup.RetentionOrDefault())
		say("%s will be set aside and kept for %s; %s brings it back", what, kept, restoreLine(s.Namespace, s.Name))
		bad := red(seen.checks)
		if len(bad) > 0 && !seen.live {
			fmt.Fprintln(w, "  as skcd saw it last:") //nolint:errcheck // a buffer
		}
		for _, x := range bad {
			text := x.Name + ": " + x.Value
			if x.Fix != "" {
				text += " (" + x.Fix + ")"
			}
			fmt.Fprintf(w, "  %s\n", inertLine(text)) //nolint:errcheck // a buffer
		}
	}
}
