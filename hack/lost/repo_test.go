//go:build e2e

package lost

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"skc.dev/skc/hack/e2e/world"
)

// home is where git finds its config, for the tests and for skcd.
var home string

// writeHome makes the config of a person who uses git. A submodule may come from
// a path.
func writeHome(dir string) error {
	return os.WriteFile(filepath.Join(dir, ".gitconfig"),
		[]byte("[user]\n\tname = T\n\temail = t@example.invalid\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n[gc]\n\tauto = 0\n"), 0o600)
}

// git runs git as a person would, and returns what it printed without the last
// line end.
func git(dir string, args ...string) (string, error) { return gitWith(dir, "", args...) }

func gitWith(dir, in string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(in)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C"}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s in %s: %w\n%s%s", strings.Join(args, " "), dir, err, out.String(), errOut.String())
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

func mustGit(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := git(dir, args...)
	world.Must(t, err)
	return out
}

// repo is one repository and all commits that were ever made in it.
type repo struct {
	name, path, common string
	// module is the path of a submodule in it; empty when it has none.
	module string

	mu      sync.Mutex
	commits map[string]string // with where each was made
	stashes []string
}

func (r *repo) made(commit, where string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commits[commit] = where
}

// template is a folder with the repositories, of which newRepos makes copies.
var template struct {
	sync.Once
	dir string
}

// makeTemplate makes a clone, a bare repository, and a clone with a submodule.
func makeTemplate(t testing.TB, dir string) {
	t.Helper()
	first := filepath.Join(dir, "first")
	mustGit(t, dir, "init", "-q", first)
	for name, text := range map[string]string{
		"README": "read me\n", "d1/file": "one\n", "d1/more": "more\n", "d2/file": "two\n", "d2/x/deep": "deep\n",
		".gitignore": ".env\n*.db\nnode_modules/\n", "both": "a\nb\nc\n", "caf\xe9\nau lait": "not UTF-8\n",
	} {
		put(t, first, name, text)
	}
	put(t, first, "run", "#!/bin/sh\n")
	world.Must(t, os.Chmod(filepath.Join(first, "run"), 0o755))
	world.Must(t, os.Symlink("d1/file", filepath.Join(first, "link")))
	mustGit(t, first, "add", "-A")
	mustGit(t, first, "commit", "-q", "-m", "one")
	put(t, first, "d1/file", "one\nand more\n")
	mustGit(t, first, "commit", "-q", "-a", "-m", "two")
	mustGit(t, dir, "clone", "-q", "--bare", first, "up.git")

	library := filepath.Join(dir, "library")
	mustGit(t, dir, "init", "-q", library)
	put(t, library, "lib", "library\n")
	mustGit(t, library, "add", "-A")
	mustGit(t, library, "commit", "-q", "-m", "library")
	mustGit(t, first, "submodule", "--quiet", "add", library, "vendor/lib")
	mustGit(t, first, "commit", "-q", "-m", "with a submodule")
	mustGit(t, dir, "clone", "-q", "--bare", first, "up-modules.git")

	mustGit(t, dir, "clone", "-q", "up.git", "app")
	mustGit(t, dir, "clone", "-q", "--bare", "up.git", "bare.git")
	mustGit(t, dir, "clone", "-q", "up-modules.git", "modules")
}

// newRepos makes the repositories anew in dir. Their remotes and the submodule's
// are those of the template.
func newRepos(t testing.TB, dir string) []*repo {
	t.Helper()
	template.Do(func() {
		template.dir = filepath.Join(home, "template")
		world.Must(t, os.Mkdir(template.dir, 0o755))
		makeTemplate(t, template.dir)
	})
	for _, name := range []string{"app", "bare.git", "modules"} {
		if out, err := exec.Command("cp", "-a", filepath.Join(template.dir, name), dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	all := []*repo{
		{name: "app", path: filepath.Join(dir, "app")},
		{name: "bare", path: filepath.Join(dir, "bare.git")},
		{name: "modules", path: filepath.Join(dir, "modules"), module: "vendor/lib"},
	}
	for _, r := range all {
		r.commits = map[string]string{}
		r.common = mustGit(t, r.path, "rev-parse", "--path-format=absolute", "--git-common-dir")
		for _, c := range strings.Fields(mustGit(t, r.path, "rev-list", "--all")) {
			r.made(c, "the beginning")
		}
		if r.name != "bare" { // what people leave in their own clone
			put(t, r.path, "README", "changed in the clone\n")
			put(t, r.path, "untracked", "in the clone\n")
			put(t, r.path, ".env", "CLONE=1\n")
		}
	}
	return all
}

// check says what of the repository is not as it must be. heads are what is
// checked out in worktrees that are in place: of one in quarantine a ref must
// hold it.
func (r *repo) check(heads ...string) (wrong []string) {
	say := func(format string, args ...any) {
		wrong = append(wrong, r.name+": "+fmt.Sprintf(format, args...))
	}
	all, err := git(r.path, append([]string{"rev-list", "--single-worktree", "--all"}, heads...)...)
	if err != nil {
		say("%v", err)
		return wrong
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	reachable := map[string]bool{}
	for _, c := range strings.Fields(all) {
		reachable[c] = true
	}
	for c, where := range r.commits {
		if !reachable[c] {
			say("the commit %s, made in %s, is reachable from nothing", c, where)
		}
	}
	if len(r.stashes) > 0 {
		kept, err := git(r.path, "reflog", "show", "--no-abbrev", "--format=%H", "refs/stash")
		for _, c := range r.stashes {
			if !strings.Contains(kept, c) {
				say("the stash %s is gone: %v", c, err)
			}
		}
		if what := missing(r.common, r.stashes); what != "" {
			say("a stash is gone: %s", what)
		}
	}
	if _, err := git(r.path, "fsck", "--connectivity-only", "--no-dangling"); err != nil {
		say("%v", err)
	}
	return wrong
}

// clean does what git offers to clean up with, as hard as can be; a stash stays,
// as that would be the loss of who calls it.
func (r *repo) clean() error {
	_, prune := git(r.path, "worktree", "prune", "--expire=now")
	_, repair := git(r.path, "worktree", "repair")
	_, gc := git(r.path, "-c", "gc.reflogExpire=now", "-c", "gc.reflogExpireUnreachable=now",
		"-c", "gc.refs/stash.reflogExpire=never", "-c", "gc.refs/stash.reflogExpireUnreachable=never", "-c", "gc.worktreePruneExpire=now",
		"gc", "-q", "--prune=now")
	return errors.Join(prune, repair, gc)
}

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	world.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	world.Must(t, os.WriteFile(path, []byte(text), 0o644))
}
