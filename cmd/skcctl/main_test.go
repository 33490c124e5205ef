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
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
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
//	skcstate sync               the objects of the spool, each with its source
//	skcstate status NAME FILE   the status in the file; its generation is observed
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
			var status v1alpha1.SessionStatus
			if err := yaml.UnmarshalStrict(data, &status); err != nil {
				return err
			}
			return c.status(ctx, args[1], status)
		case "event":
			o, err := c.Get(ctx, session(args[1]))
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

// sync makes the store hold what the spool defines.
func (c *controllerStandIn) sync(ctx context.Context) error {
	paths, err := sourceFiles(c.home.Spool, true)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var there []api.Key
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := manifest.Parse(path, data)
		if err != nil {
			continue
		}
		for i, doc := range f.Docs {
			there = append(there, api.KeyOf(doc.Object))
			if err := c.Apply(ctx, store.Desired{Object: doc.Object, RawSpec: doc.RawSpec, Source: store.Source{Root: c.home.Spool, File: path, Document: i}}); err != nil {
				return err
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
