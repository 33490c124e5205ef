package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/controller/health"
	"skc.dev/skc/controller/lease"
	"skc.dev/skc/controller/managed"
	"skc.dev/skc/controller/spool"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/conversation"
	"skc.dev/skc/effects/events"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
	"skc.dev/skc/effects/launch"
	"skc.dev/skc/effects/probe"
	"skc.dev/skc/effects/process"
	"skc.dev/skc/effects/prompt"
	"skc.dev/skc/effects/setup"
	"skc.dev/skc/effects/tmux"
	"skc.dev/skc/effects/workspace"
	"skc.dev/skc/reconcilers/session"
)

// serve owns the home until ctx ends. Sessions outlive it.
func serve(ctx context.Context, o options) (err error) {
	log := logr.FromContextOrDiscard(ctx)
	clk := clock.RealClock{}
	for _, dir := range []string{o.home.State, o.home.Run} {
		if err := files.MkdirPrivate(dir); err != nil {
			return err
		}
	}
	owner, err := lease.Acquire(o.home.Lock(), fmt.Sprintf("pid %d since %s", os.Getpid(), clk.Now().Format(time.RFC3339)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, owner.Release()) }()
	layer := &files.Layer{Guard: owner.Check}
	for _, dir := range []string{o.home.Objects(), o.home.Sources(), o.home.Events(), o.home.Launch(), o.home.Prompts(), o.home.Repositories()} {
		if err := files.MkdirPrivate(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{o.home.State, o.home.Run} {
		if n, err := files.SweepTemps(dir); err != nil {
			return err
		} else if n > 0 {
			log.Info("removed temporaries of an earlier controller", "folder", dir, "files", n)
		}
	}
	if len(o.config.Spool) == 1 { // one of several that is missing may be a disk that is not mounted
		if err := os.MkdirAll(o.home.Spool, 0o700); err != nil {
			return fmt.Errorf("make spool: %w", err)
		}
	}

	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	control, err := health.Listen(o.home.ControlSocket())
	if err != nil {
		return err
	}
	defer func() {
		if owner.Check() == nil {
			_ = os.Remove(o.home.ControlSocket())
		}
	}()
	var objectsLoaded, sourcesRead atomic.Bool
	var lifecycle lifecycleControl
	server := &health.Server{Gatherer: reg, Private: map[string]http.Handler{"GET /v1/control-token": &lifecycle}, Ready: map[string]health.Check{
		"objects": loaded(&objectsLoaded, "the state files are still being read"),
		"sources": loaded(&sourcesRead, "the spool is still being read"),
	}}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return server.Serve(ctx, control) })
	if o.MetricsAddress != "" {
		l, err := health.ListenLoopback(o.MetricsAddress)
		if err != nil {
			return err
		}
		g.Go(func() error { return server.Serve(ctx, l) })
	}
	g.Go(func() error { return owner.Watch(ctx) })
	g.Go(func() error {
		return manage(ctx, o, clk, layer, reg, &lifecycle, objectsLoaded.Store, sourcesRead.Store)
	})
	return g.Wait()
}

// manage joins the parts and runs them until ctx ends.
func manage(ctx context.Context, o options, clk clock.RealClock, layer *files.Layer, reg *prometheus.Registry, lifecycle *lifecycleControl, objectsLoaded, sourcesRead func(bool)) (err error) {
	log := logr.FromContextOrDiscard(ctx)
	me, err := launch.CurrentUser(ctx)
	if err != nil {
		return err
	}
	boot, err := process.BootID()
	if err != nil {
		return err
	}
	launcher, err := launcherPath(o.Launcher)
	if err != nil {
		return err
	}
	base, err := launch.BaseEnv(me, o.SessionEnv)
	if err != nil {
		return err
	}
	watchers, err := newWatchers()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, watchers.Close()) }()

	objects, err := store.Open(ctx, store.Options{
		Dir: o.home.Objects(), Files: layer, Clock: clk, Log: log.WithName("store"),
		Finalizers: map[string]string{
			v1alpha1.KindSession: v1alpha1.SessionFinalizer, v1alpha1.KindQuarantine: v1alpha1.QuarantineFinalizer,
			v1alpha1.KindSessionRequest: v1alpha1.SessionRequestFinalizer,
		},
	})
	if err != nil {
		return err
	}
	objectsLoaded(true)
	earlier := map[api.Key]bool{}
	for _, key := range objects.Keys(v1alpha1.KindSession) {
		earlier[key] = true
	}
	recorder := events.NewRecorder(events.Options{Dir: o.home.Events(), Files: layer, Clock: clk, Log: log.WithName("events")})
	defer recorder.Close()
	for _, p := range objects.Problems() {
		log.Info("a state file was damaged", "object", p.Key.String(), "file", p.File, "setAside", p.SetAside, "problem", p.Message)
		recorder.Event(damaged(p), events.Warning, "StateDamaged", p.Message+"; the damaged file is "+p.SetAside)
	}

	mux := tmux.New(tmux.Options{
		Socket: o.home.TmuxSocket(), Tmux: o.Tmux, Launcher: launcher, LaunchDir: o.home.Launch(),
		Processes: watchers.panes, Files: layer, Clock: clk, Log: log.WithName("tmux"), Timeout: o.TmuxTimeout.Duration,
	})
	sessions := process.NewSessions(o.Cgroups != "off")
	definitions, err := managed.Open(managed.Options{
		Dir: o.home.Managed(), Lock: filepath.Join(o.home.Run, "managed.lock"), Reports: o.home.Sources(), Files: layer,
	})
	if err != nil {
		return err
	}
	sources := spool.New(spool.Options{
		// What the controller asks for itself comes last: of two that define one
		// object that nobody knows yet, the user's counts.
		Roots: append(slices.Clone(o.config.Spool), definitions.Dir()), ReportDir: o.home.Sources(), Files: layer, Decode: v1alpha1.Decode, Version: judge(), Sink: objects,
		Clock: clk, Log: log.WithName("spool"),
		Settle: o.Settle.Duration, PruneSettle: o.PruneSettle.Duration, MassHold: o.MassHold.Duration, Rescan: o.Rescan.Duration,
	})
	metrics := controller.NewMetrics(reg)
	registerStats(reg, layer, objects, sources, mux)

	r := &session.Reconciler{
		Store:       store.For[*v1alpha1.Session](objects, v1alpha1.KindSession),
		Mux:         mux,
		Launcher:    launcherFiles{dir: o.home.Launch(), layer: layer, base: base, userHome: me.Home, binary: launcher, clock: clk},
		Processes:   processes{Sessions: sessions, watcher: watchers.stops},
		Folders:     workspace.Folders{},
		Quarantines: quarantines{store.For[*v1alpha1.Quarantine](objects, v1alpha1.KindQuarantine), definitions},
		Definitions: objects,
		Prompts: prompts{prompt.New(prompt.Options{
			Dir: o.home.Prompts(), Files: layer, Terminal: mux, Reader: prompt.Foreground(sessions), BootID: boot, Clock: clk,
		})},
		Recorder: recorder,
		Clock:    clk,
		Profiles: agentProfiles{store.For[*v1alpha1.AgentProfile](objects, v1alpha1.KindAgentProfile)},
		NewID:    func() string { return string(uuid.NewUUID()) },
		Jitter:   rand.Float64,
		UserHome: me.Home,
		BootID:   boot,
		Earlier:  func(key api.Key) bool { return earlier[key] },
	}
	c := controller.New(controller.Options{
		Kind: v1alpha1.KindSession, Reconciler: r, Clock: clk, Log: log.WithName("session"), Metrics: metrics, Workers: o.Workers,
	})
	r.Enqueue = c.Enqueue
	prober := probe.New(clk, c.Enqueue)
	defer prober.Close()
	r.Prober = probes{prober}
	worktrees := workspace.NewWorktrees(func() (*git.Git, error) { return git.New(git.Options{Files: layer, Clock: clk}) }, c.Enqueue)
	defer worktrees.Close()
	r.Worktrees = worktrees
	known := &git.Known{Dir: o.home.Repositories(), Files: layer}
	worktrees.Remember = known.Remember
	safety := workspace.NewSafety(worktrees, sessions.List, c.Enqueue)
	defer safety.Close()
	r.Safety = safety
	setups := setup.New(c.Enqueue)
	defer setups.Close()
	r.Setups = setups
	finder := conversation.NewFinder(clk, c.Enqueue)
	defer finder.Close()
	r.Conversations = conversations{finder}
	aside, err := newQuarantines(ctx, quarantineParts{
		options: o, clock: clk, layer: layer, objects: objects, definitions: definitions, worktrees: worktrees, known: known,
		recorder: recorder, metrics: metrics, registry: reg, userHome: me.Home, wake: c.Enqueue, log: log.WithName("quarantine"),
	})
	if err != nil {
		return err
	}
	defer aside.Close()
	requests := newRequests(requestParts{
		options: o, clock: clk, layer: layer, objects: objects, definitions: definitions, mux: mux, metrics: metrics,
		userHome: me.Home, control: lifecycle, log: log.WithName("request"),
	})
	objects.OnChange(c.Enqueue)
	objects.OnChange(aside.Enqueue)
	objects.OnChange(func(key api.Key) {
		if key.Kind == v1alpha1.KindAgentProfile {
			r.ProfileChanged(key.Name)
		}
	})
	mux.OnChange(func(uid string) {
		if s, err := mux.Server(ctx); uid == "" && err == nil {
			sessions.Spare(s.ProcessID)
		}
		r.Changed(uid)
	})

	g, ctx := errgroup.WithContext(ctx)
	// The passes in hand at the end still need tmux.
	muxCtx, stopMux := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return mux.Run(muxCtx) })
	g.Go(func() error { sessions.Run(muxCtx); return nil })
	g.Go(func() error { return sources.Run(ctx) })
	g.Go(func() error {
		defer stopMux()
		// What the files say now comes before the first act: a session that was
		// deleted while no controller ran must not be started once more.
		select {
		case <-ctx.Done():
			return nil
		case <-sources.Synced():
		}
		sourcesRead(true)
		enqueueAll := func() {
			for _, key := range objects.Keys(v1alpha1.KindSession) {
				c.Enqueue(key)
			}
		}
		enqueueAll()
		requests.Look()
		g.Go(func() error { requests.Run(ctx); return nil })
		g.Go(func() error { requests.Listen(ctx); return nil })
		g.Go(func() error {
			aside.Look(ctx)
			aside.Run(ctx)
			return nil
		})
		g.Go(func() error {
			controller.Resync(ctx, clk, o.Resync.Duration, func(ctx context.Context) {
				sources.Resync()
				if err := mux.Look(ctx); err != nil && !errors.Is(err, effects.ErrNotFound) {
					log.Error(err, "full look at tmux")
				}
				enqueueAll()
				requests.Look()
				aside.Look(ctx)
			})
			return nil
		})
		c.Run(ctx)
		return nil
	})
	return g.Wait()
}

// damaged is the object of a state file that could not be read whole, as an
// event names it.
func damaged(p store.Problem) api.Object {
	s := &v1alpha1.Session{}
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(p.Key.Kind))
	s.Namespace, s.Name, s.UID = p.Key.Namespace, p.Key.Name, types.UID(p.UID)
	return s
}

func loaded(done *atomic.Bool, not string) health.Check {
	return func() error {
		if done.Load() {
			return nil
		}
		return errors.New(not)
	}
}

// launcherPath finds skc-launch, beside this program unless told.
func launcherPath(path string) (string, error) {
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("where am I: %w", err)
		}
		path = filepath.Join(filepath.Dir(self), "skc-launch")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("launcher: %w", err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s is not there or cannot be run; put skc-launch beside skcd, or say --launcher", path)
	}
	return path, nil
}
