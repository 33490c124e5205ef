package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/cmd/skcctl/manifest"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/lease"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/events"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
)

func TestMain(m *testing.M) {
	testscript.Main(leaks{m}, map[string]func(){
		"skcctl":   main,
		"skcstate": func() { os.Exit(skcstate(os.Args[1:])) },
	})
}

// leaks runs the tests and then looks for goroutines that are left.
type leaks struct{ m *testing.M }

func (l leaks) Run() int {
	code := l.m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// TestScript runs every file of testdata/script: the real main, in a home of
// its own, without a controller.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("SKC_HOME", filepath.Join(env.WorkDir, "h"))
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else every program of a -race run sleeps a second at its end
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// exits CODE PROGRAM ARGS... runs the program and wants that exit code.
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
				}
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				got := 0
				var exit *exec.ExitError
				if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
					got = exit.ExitCode()
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if got != want {
					ts.Fatalf("exit code %d, want %d", got, want)
				}
			},
		},
		UpdateScripts: os.Getenv("UPDATE") != "",
	})
}

// skcstate does what the controller does to the state, for the scripts:
//
//	skcstate sync               the objects of the files, each with its source
//	skcstate status [KIND/]NAME FILE   the status in the file; its generation is observed
//	skcstate worktree NAME      makes the worktree of a session
//	skcstate gone NAME          waits until no file defines the session, and lets it go
//	skcstate answer NAME WORD   waits until a Quarantine is to be restored or purged;
//	                            WORD is Restored, Purged, or the reason of a refusal,
//	                            whose end it waits for
//	skcstate decide NAME FILE   waits for a request, and stores the status in the file
//	                            once; one that is refused is waited for to be taken back
//	skcstate event NAME REASON MESSAGE
//	skcstate hold               owns the home until it is ended
//	skcstate held               waits until the home is owned
func skcstate(args []string) int {
	err := func() error {
		h, err := home.Find("", os.Getenv, "/")
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		switch args[0] {
		case "hold":
			if err := os.MkdirAll(h.Run, 0o700); err != nil {
				return err
			}
			l, err := lease.Acquire(h.Lock(), "pid 4711")
			if err != nil {
				return err
			}
			<-ctx.Done()
			return l.Release()
		case "held":
			for limit := time.After(10 * time.Second); ; {
				held, _, err := lease.Held(h.Lock())
				if held || err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				select {
				case <-time.After(5 * time.Millisecond):
				case <-limit:
					return errors.New("nobody owns the home")
				}
			}
		}
		c, err := openController(ctx, h)
		if err != nil {
			return err
		}
		switch args[0] {
		case "sync":
			return c.sync(ctx)
		case "status":
			data, err := os.ReadFile(args[2])
			if err != nil {
				return err
			}
			return c.statusOf(ctx, named(args[1]), data)
		case "worktree":
			return c.worktree(ctx, args[1])
		case "gone":
			return c.gone(ctx, args[1])
		case "answer":
			return c.answer(ctx, named("quarantine/"+args[1]), args[2])
		case "decide":
			data, err := os.ReadFile(args[2])
			if err != nil {
				return err
			}
			return c.decide(ctx, named("sessionrequest/"+args[1]), data)
		case "event":
			o, err := c.Get(ctx, named(args[1]))
			if err != nil {
				return err
			}
			r := events.NewRecorder(events.Options{Dir: h.Events(), Files: &files.Layer{}, Clock: clock.RealClock{}, Log: logr.Discard()})
			r.Event(o, events.Warning, args[2], args[3])
			r.Close()
			return nil
		}
		return fmt.Errorf("no such verb: %s", args[0])
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "skcstate:", err)
		return 1
	}
	return 0
}

// controllerStandIn does to the state what a controller does, when it is told to.
type controllerStandIn struct {
	*store.Store
	home home.Home
}

func openController(ctx context.Context, h home.Home) (*controllerStandIn, error) {
	for _, dir := range []string{h.State, h.Objects(), h.Events()} {
		if err := files.MkdirPrivate(dir); err != nil {
			return nil, err
		}
	}
	s, err := store.Open(ctx, store.Options{Dir: h.Objects(), Files: &files.Layer{}, Clock: clock.RealClock{}, Log: logr.Discard()})
	return &controllerStandIn{s, h}, err
}

func session(name string) api.Key {
	return api.Key{Kind: v1alpha1.KindSession, Namespace: v1alpha1.DefaultNamespace, Name: name}
}

// named is the key of [KIND/]NAME.
func named(word string) api.Key {
	kind, name := v1alpha1.KindSession, word
	if k, rest, ok := strings.Cut(word, "/"); ok {
		kind, _ = kindNamed(k)
		name = rest
	}
	return of(kind, v1alpha1.DefaultNamespace, name)
}

// sync makes the store hold what the files define.
func (c *controllerStandIn) sync(ctx context.Context) error {
	var there []api.Key
	for _, root := range []string{c.home.Spool, c.home.Managed()} {
		paths, err := sourceFiles(root, true)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			f, err := manifest.Parse(path, data)
			if err != nil {
				continue
			}
			for i, doc := range f.Docs {
				there = append(there, api.KeyOf(doc.Object))
				if err := c.Apply(ctx, store.Desired{Object: doc.Object, RawSpec: doc.RawSpec, Source: store.Source{Root: root, File: path, Document: i}}); err != nil {
					return err
				}
			}
		}
	}
	sources, err := c.Sources(ctx)
	if err != nil {
		return err
	}
	for key, source := range sources {
		if !slices.Contains(there, key) {
			if err := c.Remove(ctx, key, source); err != nil && !errors.Is(err, effects.ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

// statusOf stores a status, as YAML, as that of the current generation.
func (c *controllerStandIn) statusOf(ctx context.Context, key api.Key, status []byte) error {
	before, err := c.Get(ctx, key)
	if err != nil {
		return err
	}
	m, err := content(before)
	if err != nil {
		return err
	}
	fields := map[string]any{}
	if err := yaml.UnmarshalStrict(status, &fields); err != nil {
		return err
	}
	fields["observedGeneration"] = before.GetGeneration()
	m["status"] = fields
	after := before.DeepCopyObject().(api.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(m, after, true); err != nil {
		return err
	}
	return c.Update(ctx, before, after)
}

// worktree makes the worktree that a session asks for.
func (c *controllerStandIn) worktree(ctx context.Context, name string) error {
	o, err := c.Get(ctx, session(name))
	if err != nil {
		return err
	}
	s := o.(*v1alpha1.Session)
	g, err := git.New(git.Options{Files: &files.Layer{}, Clock: clock.RealClock{}})
	if err != nil {
		return err
	}
	want := s.Spec.Target.Worktree
	w, err := g.EnsureWorktree(ctx, effects.WantWorktree{Repo: string(want.Repo), Branch: want.Branch, Path: string(want.Path), UID: string(s.UID)})
	if err != nil {
		return err
	}
	return c.status(ctx, name, v1alpha1.SessionStatus{Workspace: &v1alpha1.WorkspaceStatus{
		Path: w.Path, Branch: w.Branch, Head: w.Head, CreatedByController: w.Ours,
		Safety: []v1alpha1.SafetyCheck{{Name: git.CheckDirty, Value: "seen before", Fix: "look again"}},
	}})
}

// gone waits until no file defines the session, and lets it go.
func (c *controllerStandIn) gone(ctx context.Context, name string) error {
	for limit := time.After(20 * time.Second); ; {
		if err := c.sync(ctx); err != nil {
			return err
		}
		if _, err := c.Get(ctx, session(name)); errors.Is(err, effects.ErrNotFound) {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-limit:
			return errors.New("nobody deleted it")
		}
	}
}

// answer does what a controller does about a request to restore or purge.
func (c *controllerStandIn) answer(ctx context.Context, key api.Key, word string) error {
	limit := time.After(20 * time.Second)
	for refused := false; ; {
		if err := c.sync(ctx); err != nil {
			return err
		}
		o, err := c.Get(ctx, key)
		if err != nil {
			return err
		}
		q := o.(*v1alpha1.Quarantine)
		if asked := q.Spec.Restore || q.Spec.Purge; asked == refused {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-limit:
				return errors.New("nobody asked, or nobody took it back")
			}
			continue
		}
		switch word {
		case v1alpha1.ReasonRestored:
			to := q.Spec.Origin.Path
			if q.Spec.RestoreTo != "" {
				to = string(q.Spec.RestoreTo)
			}
			if err := os.MkdirAll(to, 0o700); err != nil {
				return err
			}
			if x := q.Spec.Session; x != nil && x.Definition == "{}" {
				text := fmt.Sprintf("apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: %s, annotations: {%s: %s}}\nspec: {target: {plainDir: {path: %s}}, command: [a]}\n",
					x.Name, v1alpha1.RestoredFromAnnotation, q.Spec.Origin.Owner, to)
				if err := os.WriteFile(filepath.Join(c.home.Managed(), "default", "session-"+x.Name+".yaml"), []byte(text), 0o600); err != nil {
					return err
				}
			}
		case v1alpha1.ReasonPurged:
		default:
			if refused {
				return c.statusOf(ctx, key, []byte("{}"))
			}
			refused = true
			if err := c.statusOf(ctx, key, fmt.Appendf(nil, `{conditions: [{type: Ready, status: "False", reason: %s, message: "that is why", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, word)); err != nil {
				return err
			}
			continue
		}
		if err := os.Remove(q.Annotations[v1alpha1.SourceFileAnnotation]); err != nil {
			return err
		}
		return c.sync(ctx)
	}
}

// status stores a status as that of the current generation.
func (c *controllerStandIn) status(ctx context.Context, name string, status v1alpha1.SessionStatus) error {
	o, err := c.Get(ctx, session(name))
	if err != nil {
		return err
	}
	before := o.(*v1alpha1.Session)
	after := before.DeepCopy()
	after.Status = status
	after.Status.ObservedGeneration = after.Generation
	return c.Update(ctx, before, after)
}
