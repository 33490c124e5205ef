package setup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"skc.dev/skc/api"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = api.Key{Name: "web"}

type world struct {
	*Runner
	t     *testing.T
	dir   string
	ended chan api.Key
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), ended: make(chan api.Key, 8)}
	w.Runner = New(func(k api.Key) { w.ended <- k })
	t.Cleanup(w.Close)
	return w
}

func (w *world) launch(argv ...string) effects.Launch {
	return effects.Launch{Argv: argv, Dir: w.dir, Env: []string{"PATH=/usr/bin:/bin", "SECRET=s3cret"}}
}

// run is the result of one run.
func (w *world) run(id string, l effects.Launch) effects.SetupResult {
	w.t.Helper()
	if got := w.Ensure(web, id, l); got != nil {
		w.t.Fatalf("at once: %+v", got)
	}
	w.wait()
	got := w.Ensure(web, id, l)
	if got == nil {
		w.t.Fatal("no result after its end")
	}
	return *got
}

func (w *world) wait() {
	w.t.Helper()
	select {
	case <-w.ended:
	case <-time.After(20 * time.Second):
		w.t.Fatal("no end of the setup")
	}
}

func TestResults(t *testing.T) {
	for name, tt := range map[string]struct {
		argv []string
		want effects.SetupResult
	}{
		"success":       {[]string{"sh", "-c", "echo one; echo two >&2"}, effects.SetupResult{Ended: true, LastLines: []string{"one", "two"}}},
		"a code":        {[]string{"sh", "-c", "exit 7"}, effects.SetupResult{Ended: true, ExitCode: 7}},
		"a signal":      {[]string{"sh", "-c", "kill -9 $$"}, effects.SetupResult{Ended: true, Signal: "SIGKILL"}},
		"no program":    {[]string{"no-such-program"}, effects.SetupResult{Message: `there is no program "no-such-program" in the PATH of the session`}},
		"not a program": {[]string{"/"}, effects.SetupResult{Message: `the program "/" cannot be started: permission denied`}},
		"no shell":      {[]string{"printf", "%s", "$SECRET;`id`"}, effects.SetupResult{Ended: true, LastLines: []string{"$SECRET;`id`"}}},
		"colours":       {[]string{"printf", `\033[31mred\033[0m\t\001x\r10%%\r100%%\n`}, effects.SetupResult{Ended: true, LastLines: []string{"100%"}}},
		"no terminal":   {[]string{"sh", "-c", "cat; (: < /dev/tty) 2> err || echo none"}, effects.SetupResult{Ended: true, LastLines: []string{"none"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			got := w.run("1", w.launch(tt.argv...))
			if got.Ended != tt.want.Ended || got.ExitCode != tt.want.ExitCode || got.Signal != tt.want.Signal || got.Message != tt.want.Message || !slices.Equal(got.LastLines, tt.want.LastLines) {
				t.Errorf("%q = %+v, want %+v", tt.argv, got, tt.want)
			}
		})
	}
}

func TestOutputIsBounded(t *testing.T) {
	w := newWorld(t)
	got := w.run("1", w.launch("sh", "-c", `i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); done; head -c 5000000 /dev/zero | tr '\0' x`))
	if n := len(got.LastLines); n != 50 || got.LastLines[48] != "199" || len(got.LastLines[49]) != 500 {
		t.Errorf("%d lines, the last %d bytes long", n, len(got.LastLines[n-1]))
	}
}

func TestOnceForEachID(t *testing.T) {
	w := newWorld(t)
	l := w.launch("sh", "-c", "echo x >> log")
	w.run("1", l)
	w.Ensure(web, "1", l)
	w.run("2", l)
	if data, _ := os.ReadFile(filepath.Join(w.dir, "log")); strings.Count(string(data), "x") != 2 {
		t.Errorf("ran %q, want twice", data)
	}
	w.Forget(web)
}

// What the command left in its group ends with it; else it would work on in the
// folder beside the program.
func TestNothingIsLeft(t *testing.T) {
	w := newWorld(t)
	got := w.run("1", w.launch("sh", "-c", "sleep 600 & echo $! > pid"))
	if !got.Ended || got.ExitCode != 0 {
		t.Fatalf("%+v", got)
	}
	data, err := os.ReadFile(filepath.Join(w.dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, err := process.StartTime(pid); errors.Is(err, effects.ErrNotFound) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is left", pid)
		}
	}
}

func TestCloseEndsIt(t *testing.T) {
	w := newWorld(t)
	w.Ensure(web, "1", w.launch("sh", "-c", "trap '' TERM; echo up > up; sleep 600; sleep 600"))
	deadline := time.Now().Add(10 * time.Second)
	for {
		if data, _ := os.ReadFile(filepath.Join(w.dir, "up")); len(data) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it never began")
		}
	}
	w.Close()
	if got := w.Ensure(web, "1", effects.Launch{}); got == nil || got.Signal == "" {
		t.Errorf("after Close: %+v, want ended by a signal", got)
	}
	if got := w.Ensure(web, "2", w.launch("true")); got != nil || w.Running() != 0 { // Close has waited for all
		t.Errorf("begun after Close: %+v", got)
	}
}
