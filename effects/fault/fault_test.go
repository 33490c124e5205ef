package fault_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// build builds the demo and returns its path.
func build(t *testing.T, tags string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "points")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", tags, "-o", bin, "./testdata/points").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

func TestReleaseBuildHoldsNoPoints(t *testing.T) {
	for tags, want := range map[string]bool{"": false, "skcfaults": true} {
		bin := build(t, tags)
		data, err := os.ReadFile(bin)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"pointsdemo", "SKC_FAULT"} {
			if got := bytes.Contains(data, []byte(text)); got != want {
				t.Errorf("a build with tags %q holds %q: %v, want %v", tags, text, got, want)
			}
		}
		out, err := exec.CommandContext(t.Context(), bin).Output()
		if err != nil {
			t.Fatal(err)
		}
		wantList := ""
		if want {
			wantList = "pointsdemo.ask:after\npointsdemo.ask:before\npointsdemo.ask:during\n" +
				"pointsdemo.write:after\npointsdemo.write:before\npointsdemo.write:during\n"
		}
		if string(out) != wantList {
			t.Errorf("list of a build with tags %q = %q, want %q", tags, out, wantList)
		}
	}
}

func TestActions(t *testing.T) {
	bin := build(t, "skcfaults")
	for _, tc := range []struct {
		name, fault string
		killed      bool
		code        int
		output      string // a part of it
		file        string // afterwards
	}{
		{name: "nothing asked", file: "new"},
		{name: "kill before", fault: "pointsdemo.write:before=kill", killed: true, file: "old"},
		{name: "kill during", fault: "pointsdemo.write:during=kill", killed: true, file: "old"},
		{name: "kill after", fault: "pointsdemo.write:after=kill", killed: true, file: "new"},
		{name: "after is meant", fault: "pointsdemo.write=kill", killed: true, file: "new"},
		{name: "an error", fault: "pointsdemo.write:during=ENOSPC", code: 1, output: "no space left", file: "old"},
		{name: "an error of another step", fault: "pointsdemo.ask:before=EMFILE", code: 1, output: "ask: too many open files", file: "old"},
		{name: "the second time, which never comes", fault: "pointsdemo.write:before=kill@2", file: "new"},
		{name: "a call", fault: "calls=EIO@3", code: 1, output: "input/output error", file: "old"},
		{name: "kill at a call", fault: "calls=kill@1", killed: true, file: "old"},
		{name: "calls from one on", fault: "calls=EROFS@2+", code: 1, output: "read-only", file: "old"},
		{name: "hold", fault: "pointsdemo.write:before=1ms", file: "new"},
		{name: "two", fault: "pointsdemo.ask:before=1ms,pointsdemo.write:during=EDQUOT", code: 1, output: "quota", file: "old"},
		{name: "no action", fault: "pointsdemo.write", code: 2, output: "SKC_FAULT", file: "old"},
		{name: "an unknown action", fault: "pointsdemo.write=explode", code: 2, output: "SKC_FAULT", file: "old"},
		{name: "an unknown phase", fault: "pointsdemo.write:later=kill", code: 2, output: "SKC_FAULT", file: "old"},
		{name: "no count", fault: "calls=EIO@x", code: 2, output: "SKC_FAULT", file: "old"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), bin, path)
			cmd.Env = append(os.Environ(), "SKC_FAULT="+tc.fault)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			code, killed := 0, false
			if errors.As(err, &exit) {
				code, killed = exit.ExitCode(), exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
			} else if err != nil {
				t.Fatal(err)
			}
			if killed != tc.killed || !killed && code != tc.code || !strings.Contains(string(out), tc.output) {
				t.Errorf("killed %v, code %d, output %q; want %v, %d, %q", killed, code, out, tc.killed, tc.code, tc.output)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != tc.file {
				t.Errorf("the file holds %q, %v; want %q", got, err, tc.file)
			}
		})
	}
}
