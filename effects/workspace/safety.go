package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"skc.dev/skc/api"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/background"
	"skc.dev/skc/effects/git"
	"skc.dev/skc/effects/process"
)

const (
	// safetyAtOnce is how many workspaces are looked at at the same time. One look
	// runs several gits.
	safetyAtOnce = 2
	// safetyLimit is how long one look may take in all.
	safetyLimit = 30 * time.Second
	// patience is how long a look lets worktrees be made first: somebody waits for
	// them, and for the look nobody does.
	patience, patienceStep = 5 * time.Second, 50 * time.Millisecond
)

// CheckContent is whether a plain folder holds anything.
const CheckContent = "content"

// Safety looks, beside the passes, whether a workspace can go without loss.
type Safety struct {
	worktrees *Worktrees
	own       func(ctx context.Context, uid string) ([]effects.ProcessID, error)
	runner    *background.Runner[effects.SafetyAsk, effects.SafetyAnswer]
}

// NewSafety makes a Safety. own lists the processes of a session: they end
// before its workspace goes, and so are not in the way. ended is called after
// each look.
func NewSafety(worktrees *Worktrees, own func(ctx context.Context, uid string) ([]effects.ProcessID, error), ended func(api.Key)) *Safety {
	s := &Safety{worktrees: worktrees, own: own}
	s.runner = background.New(safetyAtOnce, s.look, ended)
	return s
}

// Begin has the workspace looked at. While one of key is under way, or its end
// was not asked for, it does nothing.
func (s *Safety) Begin(key api.Key, ask effects.SafetyAsk) { s.runner.Begin(key, ask) }

// Ended hands over, once, what the look that Begin began has found: nil when
// there is nothing, or an error kept it from looking.
func (s *Safety) Ended(key api.Key) (ask effects.SafetyAsk, got *effects.SafetyAnswer, err error, running bool) {
	r, running := s.runner.Ended(key)
	if r == nil {
		return ask, nil, nil, running
	}
	if r.Err != nil {
		return r.In, nil, r.Err, false
	}
	return r.In, &r.Out, nil, false
}

// Stop ends the look at key's workspace.
func (s *Safety) Stop(key api.Key) { s.runner.Stop(key) }

// Running is how many looks are under way.
func (s *Safety) Running() int { return s.runner.Running() }

// Close ends all looks and returns when the last has.
func (s *Safety) Close() { s.runner.Close() }

func (s *Safety) look(ctx context.Context, _ api.Key, ask effects.SafetyAsk) (effects.SafetyAnswer, error) {
	var a effects.SafetyAnswer
	for left := patience; left > 0 && s.worktrees.Running() > 0; left -= patienceStep {
		select {
		case <-ctx.Done():
			return a, ctx.Err()
		case <-time.After(patienceStep):
		}
	}
	ctx, cancel := context.WithTimeout(ctx, safetyLimit)
	defer cancel()
	own, err := s.own(ctx, ask.UID)
	if err != nil {
		return a, err
	}
	ours := map[int]bool{}
	for _, p := range own {
		ours[p.PID] = true
	}
	spare := func(pid int) bool { return ours[pid] }
	if !ask.Worktree {
		a.Report, err = folderSafety(ctx, ask.Path, spare)
		return a, err
	}
	g, err := s.worktrees.Git()
	if err != nil {
		return a, err
	}
	if a.Report, err = g.Safety(ctx, ask.Path, git.Limits{Spare: spare}); err != nil {
		return a, err
	}
	a.Head, err = g.Head(ctx, ask.Path)
	return a, err
}

// folderSafety is the checks of a folder that git knows nothing of.
func folderSafety(ctx context.Context, path string, spare func(pid int) bool) (effects.SafetyReport, error) {
	var r effects.SafetyReport
	check := func(name, value, fix string, ok bool) {
		if ok {
			fix = ""
		}
		r.Checks = append(r.Checks, effects.SafetyCheck{Name: name, OK: ok, Value: value, Fix: fix})
	}
	d, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("folder %s: %w", path, effects.ErrNotFound)
	} else if err != nil {
		check(CheckContent, "not known: "+err.Error(), "see why", false)
	} else {
		const some = 1000
		names, err := d.Readdirnames(some)
		_ = d.Close()
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			check(CheckContent, "not known: "+err.Error(), "see why", false)
		case len(names) == 0:
			check(CheckContent, "empty", "", true)
		case len(names) == some:
			check(CheckContent, fmt.Sprintf("%d names or more", some), "copy what is worth keeping", false)
		case len(names) == 1:
			check(CheckContent, "1 name", "copy what is worth keeping", false)
		default:
			check(CheckContent, fmt.Sprintf("%d names", len(names)), "copy what is worth keeping", false)
		}
	}
	open, working, err := process.InUse(ctx, path, spare)
	show := func(name string, users []process.User, fix string) {
		if err != nil {
			check(name, "not known: "+err.Error(), "look again", false)
			return
		}
		var list []string
		for _, u := range users[:min(len(users), 3)] {
			list = append(list, u.String())
		}
		value := "none"
		if len(list) > 0 {
			value = strings.Join(list, ", ")
		}
		if more := len(users) - len(list); more > 0 {
			value += fmt.Sprintf(", and %d more", more)
		}
		check(name, value, fix, len(users) == 0)
	}
	show(git.CheckOpenFiles, open, "end these processes")
	show(git.CheckWorkingIn, working, "end these processes, or let them leave the folder")
	return r, nil
}
