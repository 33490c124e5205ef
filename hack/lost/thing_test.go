//go:build e2e

package lost

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// thing is one folder whose content must not be lost, wherever it lies. It is
// known by its inode, as a path may lead elsewhere.
type thing struct {
	name     string
	dev, ino uint64
	// places are paths at which it was or may be; a rename elsewhere is no place.
	places []string
	want   map[string]string // what lies below it, as describe tells
	grows  map[string]grown  // files that only ever grow
	makers []*maker
	except string // a name in it that is not looked at
	// git is the worktree's own folder of git, empty when it is none.
	git   string
	index string // what is staged
	head  string // commit that is checked out
	subs  []submodule
}

// submodule is a repository inside a worktree.
type submodule struct {
	path, git, index string
	commits          []string
}

// grown is what a file held when it was last looked at; more may follow.
type grown struct {
	size int64
	sum  string
}

// identity is device and inode of what is at path.
func identity(path string) (dev, ino uint64, ok bool) {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return 0, 0, false
	}
	return st.Dev, st.Ino, true
}

// find is where the thing is now; empty when it is at none of its places and in
// no quarantine.
func (th *thing) find(quarantines ...string) string {
	paths := slices.Clone(th.places)
	for _, p := range th.places {
		quarantines = append(quarantines, filepath.Join(filepath.Dir(p), ".skc-quarantine"))
	}
	for _, dir := range quarantines {
		list, _ := os.ReadDir(dir)
		for _, d := range list {
			paths = append(paths, filepath.Join(dir, d.Name()))
		}
	}
	for _, p := range paths {
		if dev, ino, ok := identity(p); ok && dev == th.dev && ino == th.ino {
			return p
		}
	}
	return ""
}

// capture takes what lies at path for what must not be lost from now on.
func (th *thing) capture(path string) error {
	dev, ino, ok := identity(path)
	if !ok {
		return fmt.Errorf("%s is not there", path)
	}
	th.dev, th.ino = dev, ino
	if !slices.Contains(th.places, path) {
		th.places = append(th.places, path)
	}
	now, err := describe(path, th.except)
	if err != nil {
		return err
	}
	th.want = now
	for name := range th.grows {
		if th.grows[name], err = size(filepath.Join(path, name)); err != nil {
			return err
		}
	}
	if th.git == "" {
		return nil
	}
	if th.index, err = git(th.git, "--git-dir=.", "--work-tree=.", "ls-files", "-z", "--stage", "-t"); err != nil {
		return err
	}
	if th.head, err = git(th.git, "--git-dir=.", "--work-tree=.", "rev-parse", "HEAD"); err != nil {
		return err
	}
	for i, s := range th.subs {
		if th.subs[i].index, err = git(s.git, "--git-dir=.", "--work-tree=.", "ls-files", "-z", "--stage", "-t"); err != nil {
			return err
		}
	}
	return nil
}

// compare says what of the thing is not at path as it was. midway allows for
// the temporaries of a controller that was killed.
func (th *thing) compare(path string, midway bool) (wrong []string) {
	least := map[string]int64{}
	made := map[string]bool{}
	for _, m := range th.makers {
		for name, n := range m.acknowledged() {
			made[name], least[name] = true, n
		}
	}
	now, err := describe(path, th.except)
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", th.name, err)}
	}
	say := func(format string, args ...any) { wrong = append(wrong, th.name+": "+fmt.Sprintf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(th.want)) {
		want, got := th.want[name], now[name]
		switch _, grows := th.grows[name]; {
		case got == "":
			say("%q is gone from %s", name, path)
		case grows, th.link(name), th.made(name):
			if w, g := mode(want), mode(got); w != g {
				say("%q is %q, was %q", name, g, w)
			}
		case got != want:
			say("%q is %q, was %q", name, got, want)
		}
	}
	for name := range made {
		if now[name] == "" {
			say("%q, which was written meanwhile, is gone from %s", name, path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		switch {
		case th.want[name] != "", th.made(name), midway && strings.HasSuffix(name, ".tmp"):
		default:
			say("%q has come to be in %s: %q", name, path, now[name])
		}
	}
	for name, was := range th.grows {
		if now[name] == "" {
			continue
		}
		is, err := grownFrom(filepath.Join(path, name), was)
		if err != nil {
			say("%q: %v", name, err)
		} else if is.size < least[name] {
			say("%q has %d bytes, and %d were written", name, is.size, least[name])
		} else {
			th.grows[name] = is
		}
	}
	return append(wrong, th.compareGit(path, midway)...)
}

// compareGit looks at what of a worktree does not lie in its folder.
func (th *thing) compareGit(path string, midway bool) (wrong []string) {
	if th.git == "" {
		return nil
	}
	say := func(format string, args ...any) { wrong = append(wrong, th.name+": "+fmt.Sprintf(format, args...)) }
	if _, err := os.Stat(th.git); err != nil {
		say("git has forgotten the worktree that is now at %s: %v", path, err)
		return wrong
	}
	if at, err := os.ReadFile(filepath.Join(th.git, "gitdir")); !midway && (err != nil || string(at) != filepath.Join(path, ".git")+"\n") {
		say("git believes it to be at %q, and it is at %s: %v", at, path, err)
	}
	if index, err := git(th.git, "--git-dir=.", "--work-tree=.", "ls-files", "-z", "--stage", "-t"); err != nil {
		say("index: %v", err)
	} else if index != th.index {
		say("what is staged went from %q to %q", th.index, index)
	}
	if head, err := git(th.git, "--git-dir=.", "--work-tree=.", "rev-parse", "HEAD"); err != nil {
		say("HEAD: %v", err)
	} else if head != th.head {
		say("HEAD went from %s to %s", th.head, head)
	}
	if what := missing(th.git, staged(th.index)); what != "" {
		say("staged content is gone: %s", what)
	}
	for _, s := range th.subs {
		if index, err := git(s.git, "--git-dir=.", "--work-tree=.", "ls-files", "-z", "--stage", "-t"); err != nil {
			say("submodule %s: %v", s.path, err)
		} else if index != s.index {
			say("what is staged in the submodule %s went from %q to %q", s.path, s.index, index)
		}
		if what := missing(s.git, append(staged(s.index), s.commits...)); what != "" {
			say("of the submodule %s is gone: %s", s.path, what)
		}
		all, err := git(s.git, "--git-dir=.", "--work-tree=.", "rev-list", "--all", "HEAD", "--")
		if err != nil {
			say("submodule %s: %v", s.path, err)
		}
		for _, c := range s.commits {
			if !strings.Contains(all, c) {
				say("the commit %s of the submodule %s is reachable from nothing", c, s.path)
			}
		}
	}
	return wrong
}

// usable says what git has against the worktree at path, to which it was given
// back.
func (th *thing) usable(path string) (wrong []string) {
	if th.git == "" {
		return nil
	}
	if _, err := git(path, "status", "--porcelain=v2"); err != nil {
		wrong = append(wrong, fmt.Sprintf("%s: %v", th.name, err))
	}
	for _, s := range th.subs {
		dir, err := git(filepath.Join(path, s.path), "rev-parse", "--absolute-git-dir")
		if err != nil || dir != s.git {
			wrong = append(wrong, fmt.Sprintf("%s: the submodule %s belongs to %s, and did to %s: %v", th.name, s.path, dir, s.git, err))
		}
	}
	return wrong
}

// link tells whether name is the file with which a submodule finds its
// repository: a restore to another place writes it anew.
func (th *thing) link(name string) bool {
	return slices.ContainsFunc(th.subs, func(s submodule) bool { return name == filepath.Join(s.path, ".git") })
}

// made tells whether a maker of the thing makes files of that name.
func (th *thing) made(name string) bool {
	return slices.ContainsFunc(th.makers, func(m *maker) bool { return strings.HasPrefix(name, m.prefix) })
}

// describe is everything below root, by path: kind, mode, inode, names, size,
// time and content, less the folder except in it. It is made without the code
// under test.
func describe(root, except string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != root {
			return nil // a maker's
		}
		if err != nil {
			return err
		}
		if except != "" && path == filepath.Join(root, except) {
			return fs.SkipDir
		}
		fi, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) && path != root {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%s inode %d", fi.Mode(), st.Ino)
		switch {
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			} else if err != nil {
				return err
			}
			sum := sha256.Sum256(data)
			text += fmt.Sprintf(" names %d of %s, %d bytes %s", st.Nlink, fi.ModTime().UTC(), len(data), hex.EncodeToString(sum[:]))
		case fi.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " to " + to
		}
		out[rel] = text
		return nil
	})
	return out, err
}

// mode is the first word of what describe tells of a name.
func mode(text string) string {
	m, _, _ := strings.Cut(text, " ")
	return m
}

func size(path string) (grown, error) { return grownFrom(path, grown{sum: sumOf(nil)}) }

// grownFrom is what the file holds now; an error unless it begins with what it
// was.
func grownFrom(path string, was grown) (grown, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return was, err
	}
	if int64(len(data)) < was.size {
		return was, fmt.Errorf("has %d bytes, had %d", len(data), was.size)
	}
	if sumOf(data[:was.size]) != was.sum {
		return was, fmt.Errorf("its first %d bytes are others", was.size)
	}
	return grown{int64(len(data)), sumOf(data)}, nil
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// staged are the blobs of an index; a submodule's commit is none.
func staged(index string) (blobs []string) {
	for _, line := range strings.Split(index, "\x00") {
		if f := strings.Fields(line); len(f) > 3 && f[1] != "160000" {
			blobs = append(blobs, f[2])
		}
	}
	return blobs
}

// missing are those of the objects that git has no more.
func missing(gitDir string, objects []string) string {
	if len(objects) == 0 {
		return ""
	}
	var bad []string
	out, err := gitWith(gitDir, strings.Join(objects, "\n")+"\n", "--git-dir=.", "--work-tree=.", "cat-file", "--batch-check")
	if err != nil {
		return err.Error()
	}
	for line := range bytes.Lines([]byte(out)) {
		if bytes.Contains(line, []byte(" missing")) {
			bad = append(bad, string(bytes.TrimSpace(line)))
		}
	}
	return strings.Join(bad, ", ")
}
