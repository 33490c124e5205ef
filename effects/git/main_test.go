package git_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/git"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	home, err := os.MkdirTemp("", "skcgit")
	if err != nil {
		panic(err)
	}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "GIT_") {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv("HOME", home)
	_ = os.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "none"))
	_ = os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\n\tname = T\n\temail = t@example.invalid\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n"), 0o600)
	code := m.Run()
	_ = os.RemoveAll(home)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// world is a folder with one clone, app, that has two commits.
type world struct {
	t    testing.TB
	dir  string
	repo string
	git  *git.Git
	o    git.Options
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	w := &world{t: t, dir: dir, repo: filepath.Join(dir, "app")}
	w.sh(dir, "init", "-q", "-b", "main", w.repo)
	w.put("app/README", "read me\n")
	w.put("app/d/file", "file\n")
	w.commit(w.repo, "one")
	w.put("app/d/file", "more\n")
	w.commit(w.repo, "two")
	w.with(git.Options{LockWait: 300 * time.Millisecond})
	return w
}

// with makes w's git anew.
func (w *world) with(o git.Options) {
	w.t.Helper()
	if o.Files == nil {
		o.Files = &files.Layer{}
	}
	g, err := git.New(o)
	must(w.t, err)
	w.git, w.o = g, o
}

// sh runs git as a person would.
func (w *world) sh(dir string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) put(name, text string) {
	w.t.Helper()
	must(w.t, os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
	must(w.t, os.WriteFile(w.path(name), []byte(text), 0o644))
}

func (w *world) commit(dir, message string) string {
	w.t.Helper()
	w.sh(dir, "add", "-A")
	w.sh(dir, "commit", "-q", "--allow-empty", "-m", message)
	return w.sh(dir, "rev-parse", "HEAD")
}

func (w *world) want(branch string) effects.WantWorktree {
	return effects.WantWorktree{Repo: w.repo, Branch: branch, UID: "uid-" + strings.Map(func(r rune) rune {
		if r == '/' || r == '.' || r == '_' {
			return '-'
		}
		return r
	}, branch), Path: w.path("wt/" + strings.ReplaceAll(branch, "/", "-"))}
}

func (w *world) ensure(want effects.WantWorktree) effects.Worktree {
	w.t.Helper()
	got, err := w.git.EnsureWorktree(w.t.Context(), want)
	if err != nil {
		w.t.Fatalf("EnsureWorktree(%q): %v", want.Branch, err)
	}
	return got
}

// wantError is the error of EnsureWorktree as T.
func wantError[T error](w *world, want effects.WantWorktree) T {
	w.t.Helper()
	got, err := w.git.EnsureWorktree(w.t.Context(), want)
	e, ok := errors.AsType[T](err)
	if !ok {
		w.t.Fatalf("EnsureWorktree(%q at %q) = %+v, %v; want a %T", want.Branch, want.Path, got, err, e)
	}
	return e
}

// wantWhole sees that the worktree is there, clean, unlocked and marked.
func (w *world) wantWhole(want effects.WantWorktree) {
	w.t.Helper()
	if got := w.sh(want.Path, "status", "--porcelain"); got != "" {
		w.t.Errorf("worktree %q is not clean:\n%s", want.Path, got)
	}
	if got := w.sh(want.Path, "branch", "--show-current"); got != want.Branch {
		w.t.Errorf("worktree %q is on %q, want %q", want.Path, got, want.Branch)
	}
	uid, ok, err := w.git.Marked(w.t.Context(), want.Path)
	if err != nil || !ok || uid != want.UID {
		w.t.Errorf("Marked(%q) = %q, %v, %v; want %q", want.Path, uid, ok, err, want.UID)
	}
	if list := w.sh(w.repo, "worktree", "list", "--porcelain"); strings.Contains(list, "skc: being made") {
		w.t.Errorf("a worktree is still locked:\n%s", list)
	}
	w.sh(w.repo, "fsck", "--no-dangling")
}

func (w *world) branches() string {
	return w.sh(w.repo, "for-each-ref", "--format=%(refname:short)", "refs/heads")
}

// tree is all files below dir but git's own, with what they hold.
func (w *world) tree(dir string) string {
	w.t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			lines = append(lines, fmt.Sprintf("%q %x", rel, data))
			return err
		}
		lines = append(lines, fmt.Sprintf("%q %s", rel, d.Type()))
		return nil
	})
	must(w.t, err)
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
