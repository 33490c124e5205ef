//go:build e2e

package lost

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skc.dev/skc/hack/e2e/world"
)

// folder is one that is removed at the end, in memory where that can be had.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "skcl")
	if err != nil {
		dir, err = os.MkdirTemp("", "skcl")
	}
	world.Must(t, err)
	t.Cleanup(func() { world.Must(t, os.RemoveAll(dir)) })
	return dir
}

// furnished is a worktree, made without skc, with some of each feature.
func furnished(t testing.TB, repos []*repo, which string, names []string) *thing {
	t.Helper()
	i := slices.IndexFunc(repos, func(r *repo) bool { return r.name == which })
	r := repos[i]
	dir := filepath.Dir(r.path)
	path := filepath.Join(dir, "w", "tree")
	mustGit(t, r.path, "worktree", "add", "-q", "-b", "feat", path)
	th := &thing{name: "tree", grows: map[string]grown{}, git: mustGit(t, path, "rev-parse", "--absolute-git-dir")}
	outside := filepath.Join(dir, "outside")
	world.Must(t, os.MkdirAll(outside, 0o755))
	(&builder{TB: t, dir: path, outside: outside, repo: r, th: th, rand: random(7, t.Name())}).furnish(names)
	world.Must(t, th.capture(path))
	return th
}

// First check the checker: what a broken skc would do is done by hand, and must
// be found.
func TestTheChecksSee(t *testing.T) {
	if !*full {
		t.Skip("only with -full")
	}
	var all []string
	for _, f := range features {
		all = append(all, f.name)
	}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	for name, tt := range map[string]struct {
		harm func(w string, th *thing, r *repo)
		want string // "" when nothing is wrong
	}{
		"a move by rename": {func(w string, th *thing, r *repo) {
			mustGit(t, r.path, "update-ref", "refs/kept", th.head)
			must(os.Rename(th.places[0], filepath.Join(w, "q", "x")))
			must(os.WriteFile(filepath.Join(th.git, "gitdir"), []byte(filepath.Join(w, "q", "x", ".git")+"\n"), 0o600))
		}, ""},
		"a move that git was not told": {func(w string, th *thing, r *repo) {
			mustGit(t, r.path, "update-ref", "refs/kept", th.head)
			must(os.Rename(th.places[0], filepath.Join(w, "q", "x")))
		}, "git believes it to be at"},
		"a move without a ref for its commit": {func(w string, th *thing, _ *repo) {
			must(os.Rename(th.places[0], filepath.Join(w, "q", "x")))
			must(os.WriteFile(filepath.Join(th.git, "gitdir"), []byte(filepath.Join(w, "q", "x", ".git")+"\n"), 0o600))
		}, "is reachable from nothing"},
		"a move to nowhere": {func(w string, th *thing, _ *repo) {
			must(os.Rename(th.places[0], filepath.Join(w, "elsewhere")))
		}, "is at none of its places"},
		"a copy": {func(w string, th *thing, _ *repo) {
			must(exec.Command("cp", "-a", th.places[0], filepath.Join(w, "copy")).Run())
			must(os.Rename(th.places[0], filepath.Join(w, "old")))
			must(os.Rename(filepath.Join(w, "copy"), th.places[0]))
		}, "is at none of its places"},
		"a removed file": {func(_ string, th *thing, _ *repo) { must(os.Remove(filepath.Join(th.places[0], "s.db"))) }, `"s.db" is gone`},
		"a removed folder": {func(_ string, th *thing, _ *repo) {
			must(os.Remove(filepath.Join(th.places[0], "empty folder")))
		}, `"empty folder" is gone`},
		"another byte": {func(_ string, th *thing, _ *repo) {
			f, err := os.OpenFile(filepath.Join(th.places[0], "large"), os.O_RDWR, 0)
			must(err)
			_, err = f.WriteAt([]byte{'#'}, 50000)
			must(err)
			must(f.Close())
		}, `"large" is`},
		"another time": {func(_ string, th *thing, _ *repo) {
			fi, err := os.Stat(th.places[0])
			must(err)
			must(os.Chtimes(filepath.Join(th.places[0], "run"), fi.ModTime().Add(1), fi.ModTime().Add(1)))
		}, `"run" is`},
		"another mode":            {func(_ string, th *thing, _ *repo) { must(os.Chmod(filepath.Join(th.places[0], "mode 755"), 0o644)) }, `"mode 755" is`},
		"another mode of the top": {func(_ string, th *thing, _ *repo) { must(os.Chmod(th.places[0], 0o711)) }, `"." is`},
		"a link turned": {func(_ string, th *thing, _ *repo) {
			must(os.Remove(filepath.Join(th.places[0], "up")))
			must(os.Symlink("../..", filepath.Join(th.places[0], "up")))
		}, `"up" is`},
		"a hard link broken": {func(_ string, th *thing, _ *repo) {
			name := filepath.Join(th.places[0], "another name")
			data, err := os.ReadFile(name)
			must(err)
			must(os.Remove(name))
			must(os.WriteFile(name, data, 0o644))
		}, `"another name" is`},
		"a FIFO removed":      {func(_ string, th *thing, _ *repo) { must(os.Remove(filepath.Join(th.places[0], "fifo"))) }, `"fifo" is gone`},
		"a name of odd bytes": {func(_ string, th *thing, _ *repo) { must(os.Remove(filepath.Join(th.places[0], "caf\xe9\nau lait"))) }, "au lait"},
		"something added": {func(_ string, th *thing, _ *repo) {
			must(os.WriteFile(filepath.Join(th.places[0], "added"), nil, 0o600))
		}, `"added" has come to be`},
		"a temporary left": {func(_ string, th *thing, _ *repo) {
			must(os.WriteFile(filepath.Join(th.places[0], ".x.tmp"), nil, 0o600))
		}, "has come to be"},
		"an open file cut": {func(_ string, th *thing, _ *repo) {
			must(os.Truncate(filepath.Join(th.places[0], "written all the time"), 0))
		}, `"written all the time"`},
		"an open file replaced": {func(_ string, th *thing, _ *repo) {
			must(os.Remove(filepath.Join(th.places[0], "written all the time")))
			must(os.WriteFile(filepath.Join(th.places[0], "written all the time"), nil, 0o644))
		}, `"written all the time"`},
		"what was made meanwhile removed": {func(_ string, th *thing, _ *repo) {
			for name := range th.makers[1].acknowledged() {
				must(os.Remove(filepath.Join(th.places[0], name)))
				return
			}
		}, "made/"},
		"a branch deleted": {func(_ string, _ *thing, r *repo) { mustGit(t, r.path, "update-ref", "-d", "refs/heads/feat") }, ""}, // HEAD is detached there
		"a detached commit dropped": {func(_ string, th *thing, _ *repo) {
			mustGit(t, th.places[0], "update-ref", "--no-deref", "HEAD", "feat")
		}, "HEAD went from"},
		"a stash dropped": {func(_ string, _ *thing, r *repo) { mustGit(t, r.path, "stash", "drop", "-q") }, "stash"},
		"a registration pruned": {func(w string, th *thing, r *repo) {
			must(os.Rename(th.places[0], filepath.Join(w, "q", "x")))
			must(os.Remove(filepath.Join(th.git, "locked")))
			mustGit(t, r.path, "worktree", "prune", "--expire=now")
		}, "git has forgotten"},
		"an index reset": {func(_ string, th *thing, _ *repo) { mustGit(t, th.places[0], "reset", "-q") }, "what is staged went"},
		"a blob lost": {func(_ string, th *thing, r *repo) {
			for _, blob := range staged(th.index) {
				if os.Remove(filepath.Join(r.common, "objects", blob[:2], blob[2:])) == nil {
					return
				}
			}
			t.Fatal("no blob")
		}, "gone"},
		"a submodule's commit lost": {func(_ string, th *thing, _ *repo) {
			c := th.subs[0].commits
			th.subs[0].commits = append(c, "1234567890123456789012345678901234567890")
		}, "of the submodule"},
		"a cleaning": {func(_ string, th *thing, r *repo) { must(r.clean()) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := folder(t)
			world.Must(t, os.MkdirAll(filepath.Join(w, "q"), 0o700))
			repos := newRepos(t, w)
			th := furnished(t, repos, "modules", all)
			for len(th.makers[1].acknowledged()) == 0 || th.grows["written all the time"].size == 0 {
				world.Must(t, th.capture(th.places[0]))
			}
			look := func() (wrong []string) {
				if at := th.find(filepath.Join(w, "q")); at == "" {
					wrong = append(wrong, th.name+": is at none of its places")
				} else {
					wrong = th.compare(at, false)
				}
				for i, r := range repos {
					if i == 2 && th.find() != "" {
						wrong = append(wrong, r.check(th.head)...)
					} else {
						wrong = append(wrong, r.check()...)
					}
				}
				return wrong
			}
			if wrong := look(); len(wrong) > 0 {
				t.Fatalf("wrong before: %q", wrong)
			}
			tt.harm(w, th, repos[2])
			wrong := strings.Join(look(), "\n")
			if tt.want == "" && wrong != "" || !strings.Contains(wrong, tt.want) {
				t.Errorf("found %q, want %q in it", wrong, tt.want)
			}
		})
	}
}

// Each feature alone, and many together, can be made in each repository, and is
// what the checks take for whole.
func TestFeatures(t *testing.T) {
	if !*full {
		t.Skip("only with -full")
	}
	for _, which := range []string{"app", "bare", "modules"} {
		sets := map[string][]string{}
		for _, f := range features {
			sets[f.name] = []string{f.name}
		}
		for i := range 3 {
			sets[fmt.Sprint(i)] = someFeatures(random(*seed, fmt.Sprint(which, i)), 8)
		}
		for _, name := range slices.Sorted(maps.Keys(sets)) {
			t.Run(which+"/"+name, func(t *testing.T) {
				t.Parallel()
				w := folder(t)
				repos := newRepos(t, w)
				th := furnished(t, repos, which, sets[name])
				wrong := append(th.compare(th.places[0], false), th.usable(th.places[0])...)
				for _, r := range repos {
					if r.name == which {
						wrong = append(wrong, r.check(th.head)...)
					} else {
						wrong = append(wrong, r.check()...)
					}
				}
				if len(wrong) > 0 {
					t.Errorf("seed %d, %q: %q", *seed, sets[name], wrong)
				}
			})
		}
	}
}
