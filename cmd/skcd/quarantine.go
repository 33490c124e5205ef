package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/controller/managed"
	"skc.dev/skc/controller/spool"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/background"
	"skc.dev/skc/effects/events"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
	"skc.dev/skc/effects/launch"
	"skc.dev/skc/effects/prompt"
	vault "skc.dev/skc/effects/quarantine"
	"skc.dev/skc/effects/workspace"
	"skc.dev/skc/reconcilers/quarantine"
)

// quarantineWorkers: a pass is some renames and gits, and what takes as long as a
// thing is large is done beside the passes. One would do, if a repository whose
// lock is waited for did not hold it.
const quarantineWorkers = 4

// quarantineKind serves the kind Quarantine.
type quarantineKind struct {
	*controller.Controller
	reconciler    *quarantine.Reconciler
	sizer, purger worker
	objects       *store.Store
	log           logr.Logger
}

// quarantineParts is what it is made of.
type quarantineParts struct {
	options
	clock       clock.Clock
	layer       *files.Layer
	objects     *store.Store
	definitions *managed.Root
	worktrees   *workspace.Worktrees
	known       *git.Known
	recorder    *events.Recorder
	metrics     *controller.Metrics
	registry    prometheus.Registerer
	userHome    string
	wake        func(api.Key)
	log         logr.Logger
}

// newQuarantines joins the parts. Close it before the end.
func newQuarantines(ctx context.Context, p quarantineParts) (*quarantineKind, error) {
	s, err := vault.Open(ctx, vault.Options{Dir: p.home.Quarantine(), Files: p.layer, Clock: p.clock})
	if err != nil {
		return nil, err
	}
	k := &quarantineKind{objects: p.objects, log: p.log}
	k.reconciler = &quarantine.Reconciler{
		Store:        store.For[*v1alpha1.Quarantine](p.objects, v1alpha1.KindQuarantine),
		Sessions:     store.For[*v1alpha1.Session](p.objects, v1alpha1.KindSession),
		Definitions:  p.definitions,
		Vault:        vault.Vault{Store: s},
		Worktrees:    gits{p.worktrees},
		Repositories: p.known,
		Leftovers:    leftovers{launch: p.home.Launch(), prompts: p.home.Prompts(), roots: p.config.Spool, clock: p.clock},
		Recorder:     p.recorder,
		Clock:        p.clock,
		Wake:         p.wake,
		Hidden:       func() error { return ownersHidden(p.objects, p.home.Sources()) },
		UserHome:     p.userHome,
		Grace:        p.OrphanGrace.Duration,
	}
	k.Controller = controller.New(controller.Options{
		Kind: v1alpha1.KindQuarantine, Reconciler: k.reconciler, Clock: clock.RealClock{}, Log: p.log, Metrics: p.metrics, Workers: quarantineWorkers,
	})
	// One disk is not counted faster by two, nor emptied.
	k.sizer, k.purger = newWorker(1, k.reconciler.Size, k.Enqueue), newWorker(2, k.reconciler.Purge, k.Enqueue)
	k.reconciler.Sizer, k.reconciler.Purger = k.sizer, k.purger
	p.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "skc_quarantine_objects", Help: "Things that are set aside, or are to be."},
			func() float64 { return float64(len(p.objects.Keys(v1alpha1.KindQuarantine))) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "skc_quarantine_purging", Help: "Things that are being removed for good."},
			func() float64 { return float64(k.purger.Running()) }),
	)
	return k, nil
}

// Look looks at everything again. Call it when the sources were read.
func (k *quarantineKind) Look(ctx context.Context) {
	if err := k.reconciler.Look(ctx); err != nil && ctx.Err() == nil {
		k.log.Error(err, "full look at what is set aside, and at what has no owner")
	}
	for _, key := range k.objects.Keys(v1alpha1.KindQuarantine) {
		k.Enqueue(key)
	}
}

// Close ends the work beside the passes, which goes on at the next start.
func (k *quarantineKind) Close() {
	k.sizer.Close()
	k.purger.Close()
}

// worker is quarantine.Worker over effects/background.
type worker struct {
	*background.Runner[struct{}, struct{}]
}

func newWorker(limit int, do func(context.Context, api.Key) error, ended func(api.Key)) worker {
	return worker{background.New(limit, func(ctx context.Context, key api.Key, _ struct{}) (struct{}, error) {
		return struct{}{}, do(ctx, key)
	}, ended)}
}

func (w worker) Begin(key api.Key) { w.Runner.Begin(key, struct{}{}) }

func (w worker) Ended(key api.Key) (ended, running bool, failed error) {
	r, running := w.Runner.Ended(key)
	if r == nil {
		return false, running, nil
	}
	return true, false, r.Err
}

// ownersHidden says why somebody who owns something may not be seen: what names
// him is damaged, or cannot be read.
func ownersHidden(objects *store.Store, reports string) error {
	for _, p := range objects.Problems() {
		if p.UID == "" {
			return fmt.Errorf("the state file of %s was damaged, and with it the UID was lost (see %s); restart skcd when that is settled", p.Key, p.SetAside)
		}
	}
	all, err := spool.ReadReports(reports)
	if err != nil {
		return err
	}
	for _, r := range all.Roots {
		switch r.State {
		case spool.RootReady, spool.RootPruneHeld, spool.RootNotConfigured:
		default:
			return fmt.Errorf("source %s is %s", r.Path, r.State)
		}
	}
	var known map[string]bool
	for _, f := range all.Files {
		if f.State != spool.FileInvalid && f.State != spool.FileUnreadable {
			continue
		}
		if known == nil {
			known = map[string]bool{}
			sources, err := objects.Sources(context.Background())
			if err != nil {
				return err
			}
			for _, s := range sources {
				known[s.File] = true
			}
		}
		if !known[f.Path] { // what it defines is not known
			return fmt.Errorf("source %s is %s", f.Path, f.State)
		}
	}
	return nil
}

// young is how old a temporary must be to be called left: one that is in use is
// milliseconds old.
const young = time.Minute

// leftovers is quarantine.Leftovers: launch files, each of which lives for the
// moment between its start and its exec, startup prompts with their receipts, and
// temporaries in the source roots.
type leftovers struct {
	launch, prompts string
	roots           []string
	clock           clock.PassiveClock
}

func (l leftovers) List(ctx context.Context) ([]effects.Leftover, error) {
	all, err := launch.Leftovers(l.launch)
	if err != nil {
		return nil, err
	}
	old := l.clock.Now().Add(-young)
	left, err := prompt.Leftovers(l.prompts, old)
	if err != nil {
		return nil, err
	}
	all = append(all, left...)
	for _, root := range l.roots {
		temps, err := files.Temps(ctx, root, old)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, path := range temps {
			all = append(all, effects.Leftover{Path: path, What: "temporary of an edit that came to no end"})
		}
	}
	return slices.Clip(all), nil
}

// gits is quarantine.Worktrees with the git that there is, if there is one.
type gits struct{ *workspace.Worktrees }

func (g gits) Head(ctx context.Context, path string) (string, error) {
	return with(g, func(git *git.Git) (string, error) { return git.Head(ctx, path) })
}

func (g gits) Safety(ctx context.Context, path string) (effects.SafetyReport, error) {
	return with(g, func(found *git.Git) (effects.SafetyReport, error) { return found.Safety(ctx, path, git.Limits{}) })
}

func (g gits) Transfer(ctx context.Context, path, from, to string) error {
	return g.do(func(git *git.Git) error { return git.Transfer(ctx, path, from, to) })
}

func (g gits) Unmark(ctx context.Context, path, uid string) error {
	return g.do(func(git *git.Git) error { return git.Unmark(ctx, path, uid) })
}

func (g gits) BeforeMove(ctx context.Context, path, uid, reason string) error {
	return g.do(func(git *git.Git) error { return git.BeforeMove(ctx, path, uid, reason) })
}

func (g gits) AfterMove(ctx context.Context, path, uid string) error {
	return g.do(func(git *git.Git) error { return git.AfterMove(ctx, path, uid) })
}

func (g gits) AfterRestore(ctx context.Context, path, uid string) (string, error) {
	return with(g, func(git *git.Git) (string, error) { return git.AfterRestore(ctx, path, uid) })
}

func (g gits) AfterPurge(ctx context.Context, repo effects.Repository, path, uid string) error {
	return g.do(func(git *git.Git) error { return git.AfterPurge(ctx, repo, path, uid) })
}

func (g gits) Open(ctx context.Context, path string) (effects.Repository, error) {
	return with(g, func(git *git.Git) (effects.Repository, error) { return git.Open(ctx, path) })
}

func (g gits) List(ctx context.Context, repo effects.Repository) ([]effects.ListedWorktree, error) {
	return with(g, func(git *git.Git) ([]effects.ListedWorktree, error) { return git.List(ctx, repo) })
}

func (g gits) Owned(ctx context.Context, gitDir string) ([]effects.OwnedWorktree, error) {
	return with(g, func(git *git.Git) ([]effects.OwnedWorktree, error) { return git.Owned(ctx, gitDir) })
}

func (g gits) do(f func(*git.Git) error) error {
	_, err := with(g, func(git *git.Git) (struct{}, error) { return struct{}{}, f(git) })
	return err
}

func with[T any](g gits, f func(*git.Git) (T, error)) (T, error) {
	found, err := g.Git()
	if err != nil {
		var none T
		return none, err
	}
	return f(found)
}
