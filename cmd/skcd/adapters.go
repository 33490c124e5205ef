package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/controller/managed"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/launch"
	"skc.dev/skc/effects/probe"
	"skc.dev/skc/effects/process"
	"skc.dev/skc/effects/prompt"
	"skc.dev/skc/reconcilers/session"
)

// launcherFiles is session.Launcher over effects/launch.
type launcherFiles struct {
	dir      string
	layer    *files.Layer
	base     []string
	userHome string
	binary   string
	clock    clock.Clock
}

func (l launcherFiles) Environment(s *v1alpha1.Session) ([]string, error) {
	own, err := launch.Resolve(s.Spec.Env, l.userHome)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", effects.ErrUnavailable, err)
	}
	return launch.Join(l.base, own, launch.Markers(string(s.UID), s.Namespace, s.Name), lifecycleMarkers(s)), nil
}

// lifecycleMarkers say to the program of a Session that requests know who it is
// and where it keeps its state for others.
func lifecycleMarkers(s *v1alpha1.Session) (env []string) {
	id := s.Annotations[v1alpha1.SessionIDAnnotation]
	if id == "" || !effects.ControlFree(id) {
		return nil
	}
	env = append(env, "SKC_SESSION_ID="+id)
	if by := s.Annotations[v1alpha1.LifecycleRequestAnnotation]; by != "" && effects.ControlFree(by) {
		env = append(env, "SKC_LIFECYCLE_REQUEST_ID="+by)
	}
	if w := s.Status.Workspace; w != nil {
		env = append(env, "SKC_STATE_ROOT="+filepath.Join(w.Path, ".skc", "state"))
	}
	return env
}

func (l launcherFiles) Write(id effects.LaunchID, p effects.Launch) error {
	_, err := launch.Write(l.layer, l.dir, id, launch.Plan{Argv: p.Argv, Env: p.Env, Dir: p.Dir})
	if errors.Is(err, launch.ErrTooLarge) || errors.Is(err, launch.ErrInvalid) {
		return controller.Terminal(err)
	}
	return err
}

func (l launcherFiles) Failure(id effects.LaunchID) (*effects.LaunchFailure, error) {
	f, err := launch.ReadFailure(l.dir, id)
	if f == nil || err != nil {
		return nil, err
	}
	return &effects.LaunchFailure{Reason: f.Reason, Message: f.Message}, nil
}

func (l launcherFiles) Started(ctx context.Context, id effects.LaunchID, p effects.ProcessID) bool {
	return launch.Started(ctx, l.clock, l.dir, id, p, l.binary)
}

func (l launcherFiles) Clear(uid string) error {
	_, err := launch.Sweep(l.layer, l.dir, func(id effects.LaunchID) bool { return id.UID != uid })
	return err
}

// processes is session.Processes over effects/process. The program in the pane
// counts as one of the session's, whatever it did to its environment.
type processes struct {
	*process.Sessions
	watcher *process.Watcher
}

func (p processes) Prepare(uid string) error {
	_, err := p.Sessions.Prepare(uid)
	return err
}

func (p processes) Signal(ctx context.Context, uid string, main effects.ProcessID, signal string) error {
	sig := unix.SignalNum(signal)
	if sig == 0 {
		return fmt.Errorf("there is no signal %s", signal)
	}
	all, err := p.List(ctx, uid)
	if err != nil {
		return err
	}
	if err := p.Sessions.Signal(ctx, uid, sig); err != nil {
		return err
	}
	return p.apart(main, all, sig)
}

// killLimit is how long one pass waits for what got SIGKILL. What the kernel does
// not let go, as a process that waits for a dead disk, must not hold a worker.
const killLimit = 5 * time.Second

func (p processes) Kill(ctx context.Context, uid string, main effects.ProcessID) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	n, err := p.Sessions.Kill(ctx, uid)
	if err != nil || main.PID == 0 {
		return n, err
	}
	if alive, err := process.Alive(main); err != nil || !alive {
		return n, err
	}
	return n + 1, process.Signal(main, unix.SIGKILL)
}

// apart signals the main process when it is none of those found.
func (p processes) apart(main effects.ProcessID, found []effects.ProcessID, sig unix.Signal) error {
	if main.PID == 0 {
		return nil
	}
	for _, f := range found {
		if f == main {
			return nil
		}
	}
	if err := process.Signal(main, sig); err != nil {
		return err
	}
	return process.Signal(main, unix.SIGCONT)
}

func (p processes) Watch(id effects.ProcessID, died func()) error { return p.watcher.Watch(id, died) }

// probes is session.Prober over effects/probe.
type probes struct{ *probe.Prober }

func (p probes) Ensure(key api.Key, id effects.LaunchID, spec *v1alpha1.Readiness, t session.ProbeTarget) session.ProbeResult {
	r := p.Prober.Ensure(key, id, spec, probe.Target{Dir: t.Dir, Env: t.Env, Screen: t.Screen})
	return session.ProbeResult{Known: r.Known, OK: r.Ready, Message: r.Message}
}

// prompts is session.Prompts over effects/prompt.
type prompts struct{ *prompt.Prompter }

func (prompts) Read(path string) (string, error) { return prompt.ReadFile(path) }

// quarantines is session.Quarantines over the store and the definitions that the
// controller writes.
type quarantines struct {
	store.Typed[*v1alpha1.Quarantine]
	definitions *managed.Root
}

func (q quarantines) Ensure(ctx context.Context, o *v1alpha1.Quarantine) error {
	return q.definitions.Create(ctx, o)
}

// watchers of deaths: tmux has its own, since a process is watched for one
// reason at a time.
type watchers struct{ panes, stops *process.Watcher }

func newWatchers() (watchers, error) {
	panes, err := process.NewWatcher()
	if err != nil {
		return watchers{}, err
	}
	stops, err := process.NewWatcher()
	if err != nil {
		return watchers{}, errors.Join(err, panes.Close())
	}
	return watchers{panes, stops}, nil
}

func (w watchers) Close() error { return errors.Join(w.panes.Close(), w.stops.Close()) }
