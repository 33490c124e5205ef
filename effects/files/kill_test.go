package files_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// childEnv makes the test binary do one operation on the folder it names.
const childEnv = "FILES_TEST_CHILD"

// operations are done by a child that is killed in the middle, and with a
// failing call. Each finds a and log with old bytes, and leaves the wanted.
var operations = map[string]struct {
	do   func(l *files.Layer, dir string) error
	want map[string]string // nil: see whole
}{
	"write durable": {
		func(l *files.Layer, dir string) error {
			return l.Write(point, filepath.Join(dir, "a"), newBytes, files.Durable)
		}, map[string]string{"a": string(newBytes), "log": "one\n"},
	},
	"write derived": {
		func(l *files.Layer, dir string) error {
			return l.WriteMode(point, filepath.Join(dir, "a"), newBytes, files.Derived, 0o644)
		}, map[string]string{"a": string(newBytes), "log": "one\n"},
	},
	"append": {
		func(l *files.Layer, dir string) error {
			return l.Append(point, filepath.Join(dir, "log"), []byte("two\n"), files.Durable)
		}, map[string]string{"a": "old", "log": "one\ntwo\n"},
	},
	"remove": {
		func(l *files.Layer, dir string) error {
			return l.Remove(point, filepath.Join(dir, "a"), files.Durable)
		}, map[string]string{"log": "one\n"},
	},
	"rename": {
		func(l *files.Layer, dir string) error {
			return l.Rename(point, filepath.Join(dir, "a"), filepath.Join(dir, "b"))
		}, map[string]string{"b": "old", "log": "one\n"},
	},
	"link": {
		func(l *files.Layer, dir string) error {
			return l.Link(point, filepath.Join(dir, "a"), filepath.Join(dir, "b"))
		}, map[string]string{"a": "old", "b": "old", "log": "one\n"},
	},
}

var oldFiles = map[string]string{"a": "old", "log": "one\n"}

var newBytes = bytes.Repeat([]byte("new bytes\n"), 10000)

func child() int {
	for name, op := range operations {
		if name != os.Getenv(childEnv) {
			continue
		}
		if err := op.do(&files.Layer{}, os.Args[1]); err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	}
	return 2
}

func prepare(t *testing.T) string {
	dir := t.TempDir()
	for name, text := range oldFiles {
		put(t, filepath.Join(dir, name), text)
	}
	return dir
}

// isState tells whether dir holds exactly these files.
func isState(t *testing.T, dir string, want map[string]string) bool {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	for _, d := range list {
		text, ok := want[d.Name()]
		got, err := os.ReadFile(filepath.Join(dir, d.Name()))
		must(t, err)
		if !ok || string(got) != text {
			return false
		}
	}
	return len(list) == len(want)
}

// TestKilled kills a process in each phase of each operation and, once for
// every call of the layer, before that call: what is there is old or new.
func TestKilled(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs a build with the tag skcfaults")
	}
	for name, op := range operations {
		places := []string{"files.test:before=kill", "files.test:during=kill", "files.test:after=kill"}
		for n := range 8 {
			places = append(places, fmt.Sprintf("calls=kill@%d", n+1))
		}
		for _, place := range places {
			t.Run(name+" "+place, func(t *testing.T) {
				dir := prepare(t)
				cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
				cmd.Env = append(os.Environ(), childEnv+"="+name, "SKC_FAULT="+place)
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
				if !killed && (err != nil || place[:5] != "calls") { // it has fewer calls
					t.Fatalf("the child was not killed: %v\n%s", err, out)
				}
				_, err = files.SweepTemps(dir)
				must(t, err)
				if !isState(t, dir, oldFiles) && !isState(t, dir, op.want) {
					t.Error("what is there is neither old nor new")
				}
				if (!killed || place == "files.test:after=kill") && !isState(t, dir, op.want) {
					t.Error("it was done, and what is there is not new")
				}
				// The same again makes it so.
				if isState(t, dir, oldFiles) {
					must(t, op.do(&files.Layer{}, dir))
				}
				if !isState(t, dir, op.want) {
					t.Error("a second try did not come to its end")
				}
			})
		}
	}
}
