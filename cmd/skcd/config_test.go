package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func noEnv(string) string { return "" }

func TestFlagsWinOverTheConfigFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "skcd.yaml"), []byte("workers: 3\nresync: 7m\nspool: [/a, /b]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, _, err := parse([]string{"--home", dir, "--workers", "5"}, noEnv, "/")
	if err != nil {
		t.Fatal(err)
	}
	if o.Workers != 5 || o.Resync.Duration.String() != "7m0s" || len(o.Spool) != 2 || o.home.Spool != "/a" {
		t.Errorf("workers %d, resync %s, spool %v; want 5, 7m0s, [/a /b]", o.Workers, o.Resync.Duration, o.Spool)
	}
	if o, _, err = parse([]string{"--home", dir, "--spool", "c"}, noEnv, "/cwd"); err != nil || len(o.Spool) != 1 || o.Spool[0] != "/cwd/c" {
		t.Errorf("spool %v, %v; want [/cwd/c]", o.Spool, err)
	}
}

func TestStateAndSpoolNeedNoHome(t *testing.T) {
	o, _, err := parse([]string{"--state", "/x/state", "--spool", "/x/spool"}, noEnv, "/")
	if err != nil || o.home.Run != "/x/state/run" {
		t.Errorf("run %q, %v; want /x/state/run", o.home.Run, err)
	}
}

func TestWrongUse(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("wrokers: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lifecycle := func(line string) []string {
		path := filepath.Join(t.TempDir(), "skcd.yaml")
		if err := os.WriteFile(path, []byte("lifecycle:\n  "+line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"--home", dir, "--config", path}
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"unknown flag":          {[]string{"--nope"}, "unknown flag: --nope"},
		"argument":              {[]string{"run"}, `takes no argument, got "run"`},
		"no home":               {nil, "say --home DIR"},
		"long socket path":      {[]string{"--home", "/" + strings.Repeat("x", 100)}, "the kernel takes 103"},
		"line end in a path":    {[]string{"--home", "/a\nb"}, "line end"},
		"unknown key in config": {[]string{"--home", dir, "--config", bad}, `unknown field "wrokers"`},
		"missing config":        {[]string{"--home", dir, "--config", dir + "/none"}, "no such file"},
		"session env":           {[]string{"--home", dir, "--session-env", "=x"}, "is not NAME=VALUE"},
		"cgroups":               {[]string{"--home", dir, "--cgroups", "maybe"}, "want auto or off"},
		"workers":               {[]string{"--home", dir, "--workers", "0"}, "want at least 1"},
		"resync":                {[]string{"--home", dir, "--resync", "0s"}, "want more than 0"},
		"listening to all":      {lifecycle("address: 0.0.0.0:0"), "only a loopback address"},
		"listening to a name":   {lifecycle("address: localhost:0"), "is not IP:PORT"},
		"relative secret":       {lifecycle("secretFile: token"), "want an absolute path"},
		"chat without a secret": {lifecycle(`pairedChat: "42"`), "needs lifecycle.secretFile"},
		"profile":               {lifecycle("profile: A/B"), "is no name"},
		"create limit":          {lifecycle("createLimit: -1"), "want at least 1"},
		"create window":         {lifecycle("createWindow: 0s"), "want more than 0"},
		"retention":             {lifecycle("retention: -1h"), "want more than 0"},
		"unknown lifecycle key": {lifecycle("token: x"), `unknown field "token"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := parse(tt.args, noEnv, "/")
			if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("parse = %v; want a usage error with %q", err, tt.want)
			}
			var out, errOut bytes.Buffer
			if code := run(t.Context(), tt.args, noEnv, &out, &errOut); code != exitUsage || !strings.Contains(errOut.String(), tt.want) {
				t.Errorf("run = %d, %q; want %d", code, errOut.String(), exitUsage)
			}
		})
	}
}

// The sample config says every key, each with its default.
func TestSampleConfigIsTheDefaults(t *testing.T) {
	data, err := os.ReadFile("../../config/skcd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c config
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		t.Fatal(err)
	}
	c.SessionEnv = nil // an empty list is the default
	if diff := cmp.Diff(defaults(), c); diff != "" {
		t.Errorf("config/skcd.yaml differs from the defaults:\n%s", diff)
	}
	for _, key := range []string{"spool:", "state:", "run:", "launcher:"} { // those whose default is computed
		if !bytes.Contains(data, []byte("# "+key)) {
			t.Errorf("config/skcd.yaml does not tell of %s", key)
		}
	}
}
