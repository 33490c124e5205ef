// Package deps holds the import rule of the tree as a test: who may import whom,
// and who may touch the outside or the wall clock.
package deps

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = "skc.dev/skc"

// rules says, for each part of the tree, which other parts it may import. The
// longest part that fits a package counts; "x/..." is x and all below it.
var rules = map[string][]string{
	"api":                {"api/..."},
	"api/v1alpha1":       {"api", "config/crd"}, // the generated definition is data of the types
	"api/ledger":         {"api/lifecycle", "api/v1alpha1"},
	"api/lifecycle":      {},
	"config/crd":         {},
	"config/profiles":    {"api/v1alpha1"},
	"config/systemd":     {},
	"controller":         {"api/..."},
	"controller/spool":   {"api/...", "controller", "controller/store", "effects", "effects/files", "effects/fault"},
	"controller/store":   {"api/...", "controller", "controller/store/...", "effects", "effects/files", "effects/fault"},
	"controller/managed": {"api/...", "controller/spool", "effects", "effects/files", "effects/fault"},
	"controller/control": {"api/...", "effects", "effects/files", "effects/fault"},
	"controller/lease":   {"api/...", "controller", "effects", "effects/files", "effects/fault"},
	"reconcilers":        {"api/...", "controller", "effects"},
	"effects":            {"api/...", "effects/..."},
	"effects/fault":      {},
	"effects/background": {"api"},
	"effects/setup":      {"api", "effects", "effects/fault", "effects/process"},
	"cmd/skcd":           {"..."},
	"cmd/skcctl": {"api/...", "cmd/skcctl/...", "config/profiles", "controller/home", "controller/lease", "controller/managed", "controller/spool",
		"controller/store", "effects", "effects/audit", "effects/events", "effects/fault", "effects/files", "effects/git", "effects/process", "effects/tmux"},
	"cmd/skc-launch": {"effects/launch/..."},
	"hack":           {"..."},
}

// outside are the parts that may touch the outside and the wall clock. All
// else is a function of what it is given.
var outside = []string{"effects/...", "controller/spool/...", "controller/store/...", "controller/lease/...", "controller/managed/...", "controller/control/...", "controller/broker/...",
	"controller/home/...", "controller/health/...", "cmd/...", "hack/..."}

var outsideImports = []string{"os/...", "net", "net/http/...", "syscall", "io/ioutil", "plugin", "golang.org/x/sys/..."}

var wallClock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// folders are all that lies at the top.
var folders = []string{"api", "bin", "cmd", "config", "controller", "docs", "effects", "hack", "reconcilers"}

type pkg struct {
	ImportPath, Dir string
	Imports, Deps   []string
	GoFiles         []string
}

// packages lists ours, by their path below the module, as they are built for goos.
func packages(t *testing.T, goos string) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Imports,Deps,GoFiles", module+"/...")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := map[string]pkg{}
	for d := json.NewDecoder(out); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimPrefix(p.ImportPath, module+"/")] = p
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return found
}

func within(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		below, all := strings.CutSuffix(p, "...")
		return path == strings.TrimSuffix(below, "/") || all && strings.HasPrefix(path, below)
	})
}

// ruleOf is the rule of the longest part of path that has one.
func ruleOf(path string) ([]string, bool) {
	for part := path; part != "."; part = filepath.Dir(part) {
		if may, ok := rules[part]; ok {
			return may, true
		}
	}
	return nil, false
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		path, pattern string
		want          bool
	}{
		{"effects", "effects/...", true}, {"effects/tmux", "effects/...", true}, {"effectsx", "effects/...", false},
		{"effects", "effects", true}, {"effects/tmux", "effects", false}, {"anything", "...", true},
		{"os/exec", "os/...", true}, {"net/url", "net", false},
	} {
		if got := within(c.path, []string{c.pattern}); got != c.want {
			t.Errorf("within(%s, %s) = %v", c.path, c.pattern, got)
		}
	}
	if may, ok := ruleOf("api/v1alpha1"); !ok || !within("config/crd", may) {
		t.Error("the longest rule does not count")
	}
	if may, ok := ruleOf("reconcilers/session"); !ok || within("effects/tmux", may) {
		t.Error("reconcilers may import an effect")
	}
}

func TestImports(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		t.Run(goos, func(t *testing.T) {
			all := packages(t, goos)
			for _, path := range slices.Sorted(maps.Keys(all)) {
				may, ok := ruleOf(path)
				if !ok {
					t.Errorf("%s has no rule", path)
				}
				for _, imported := range all[path].Imports {
					if ours, is := strings.CutPrefix(imported, module+"/"); is {
						if !within(ours, may) {
							t.Errorf("%s may not import %s", path, ours)
						}
					} else if within(imported, outsideImports) && !within(path, outside) {
						t.Errorf("%s may not touch the outside, and imports %s", path, imported)
					}
				}
			}
			// The launcher runs before every command of a user: it is small and starts at once.
			for _, d := range all["cmd/skc-launch"].Deps {
				if host, _, _ := strings.Cut(d, "/"); strings.Contains(host, ".") && !strings.HasPrefix(d, module+"/") {
					t.Errorf("cmd/skc-launch depends on %s: it may have the standard library only", d)
				}
			}
		})
	}
}

func TestWallClock(t *testing.T) {
	for path, p := range packages(t, "linux") {
		if within(path, outside) {
			continue
		}
		for _, name := range p.GoFiles {
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(wallClock, s.Sel.Name) {
					t.Errorf("%s: time.%s: take an injected clock", set.Position(s.Pos()), s.Sel.Name)
				}
				return true
			})
		}
	}
}

func TestFolders(t *testing.T) {
	root := filepath.Join("..", "..")
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(folders, e.Name()) {
			t.Errorf("%s: DESIGN.md has no such folder", e.Name())
		}
	}
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == ".git" || name == "bin" || name == "testdata" {
			return filepath.SkipDir
		} else if slices.Contains([]string{"util", "utils", "common", "helpers", "internal", "pkg"}, name) {
			return fmt.Errorf("%s: a package is named for what it does", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
