//go:build e2e

package lost

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/hack/e2e/world"
)

// builder puts what people leave behind into one folder.
type builder struct {
	testing.TB
	dir     string // of the worktree
	outside string // a folder that nobody may touch
	repo    *repo  // nil: no worktree
	th      *thing
	rand    *rand.Rand
}

// feature is one kind of work that can be lost. The order is one in which each
// can be done after those before it.
type feature struct {
	name string
	git  bool // only in a worktree
	do   func(*builder)
}

var features = []feature{
	{"sparse", true, (*builder).sparse},
	{"stash", true, (*builder).stash},
	{"commits", true, (*builder).commits},
	{"detached", true, (*builder).detached},
	{"submodule", true, (*builder).submodule},
	{"conflict", true, (*builder).conflict},
	{"locked", true, (*builder).locked},
	{"staged", true, (*builder).staged},
	{"unstaged", true, (*builder).unstaged},
	{"untracked", false, (*builder).untracked},
	{"ignored", false, (*builder).ignored},
	{"names", false, (*builder).names},
	{"hard-links", false, (*builder).hardLinks},
	{"symlinks", false, (*builder).symlinks},
	{"special", false, (*builder).special},
	{"modes", false, (*builder).modes},
	{"empty", false, (*builder).empty},
	{"nested", false, (*builder).nested},
	{"open-file", false, (*builder).openFile},
	{"maker", false, (*builder).maker},
}

// furnish does the features of these names.
func (b *builder) furnish(names []string) {
	b.Helper()
	for _, f := range features {
		for _, name := range names {
			if f.name == name && (!f.git || b.repo != nil) {
				f.do(b)
			}
		}
	}
}

func (b *builder) put(name, text string) {
	b.Helper()
	put(b.TB, b.dir, name, text)
}

// unique is a text that is nowhere else.
func (b *builder) unique() string { return fmt.Sprintf("%s %016x\n", b.th.name, b.rand.Uint64()) }

func (b *builder) git(args ...string) string {
	b.Helper()
	return mustGit(b.TB, b.dir, args...)
}

func (b *builder) commit(message string) string {
	b.Helper()
	b.git("commit", "-q", "--no-verify", "--allow-empty", "-m", message)
	c := b.git("rev-parse", "HEAD")
	b.repo.made(c, b.th.name)
	return c
}

func (b *builder) sparse() {
	b.git("sparse-checkout", "set", "--no-cone", "/*", "!/d2/")
}

func (b *builder) commits() {
	for range 1 + b.rand.IntN(2) {
		b.put(fmt.Sprintf("done-%d", b.rand.IntN(1000)), b.unique())
		b.put("d1/more", b.unique())
		b.git("add", "--sparse", "-A", "d1", ".")
		b.commit("work")
	}
}

func (b *builder) detached() {
	b.git("checkout", "-q", "--detach")
	b.put("on no branch", b.unique())
	b.git("add", "on no branch")
	b.commit("on no branch")
}

func (b *builder) stash() {
	for range 1 + b.rand.IntN(2) {
		b.put("d1/file", b.unique())
		b.put("to be stashed", b.unique())
		b.git("stash", "push", "-q", "-u", "-m", "work")
		all := append([]string{b.git("rev-parse", "refs/stash")}, strings.Fields(b.git("rev-parse", "refs/stash^1", "refs/stash^2", "refs/stash^3"))...)
		b.repo.mu.Lock()
		b.repo.stashes = append(b.repo.stashes, all[0])
		b.repo.mu.Unlock()
		if what := missing(b.repo.common, all); what != "" {
			b.Fatal(what)
		}
	}
}

// conflict leaves a merge half done: an index with three stages.
func (b *builder) conflict() {
	name := fmt.Sprintf("theirs-%016x", b.rand.Uint64())
	b.put("both", "theirs\n"+b.unique())
	blob := b.git("hash-object", "-w", "both")
	b.git("update-index", "--cacheinfo", "100644,"+blob+",both")
	theirs := b.git("commit-tree", "-p", "HEAD", "-m", "theirs", b.git("write-tree"))
	b.git("update-ref", "refs/heads/"+name, theirs)
	b.repo.made(theirs, b.th.name)
	b.put("both", "mine\n"+b.unique())
	b.git("add", "both")
	b.commit("mine")
	if _, err := git(b.dir, "merge", "-q", name); err == nil {
		b.Fatal("the merge had no conflict")
	}
}

func (b *builder) submodule() {
	path := b.repo.module
	if path == "" {
		return
	}
	b.git("submodule", "--quiet", "update", "--init", path)
	sub := filepath.Join(b.dir, path)
	s := submodule{path: path, git: mustGit(b.TB, sub, "rev-parse", "--absolute-git-dir")}
	if b.rand.IntN(2) == 0 {
		put(b.TB, sub, "lib", b.unique())
		mustGit(b.TB, sub, "commit", "-q", "-a", "-m", "in the submodule")
		s.commits = append(s.commits, mustGit(b.TB, sub, "rev-parse", "HEAD"))
	}
	put(b.TB, sub, "staged", b.unique())
	mustGit(b.TB, sub, "add", "staged")
	put(b.TB, sub, "untracked", b.unique())
	put(b.TB, sub, "lib", b.unique())
	b.th.subs = []submodule{s}
}

func (b *builder) locked() {
	if _, err := git(b.dir, "worktree", "lock", "--reason", "mine", b.dir); err != nil && !strings.Contains(err.Error(), "already locked") {
		b.Fatal(err)
	}
}

func (b *builder) staged() {
	b.put("staged", b.unique())
	b.git("add", "staged")
	b.put("staged and changed", b.unique())
	b.git("add", "staged and changed")
	b.put("staged and changed", b.unique())
	b.put("staged and removed", b.unique())
	b.git("add", "staged and removed")
	world.Must(b.TB, os.Remove(filepath.Join(b.dir, "staged and removed")))
}

func (b *builder) unstaged() {
	b.put("README", b.unique())
	_ = os.Remove(filepath.Join(b.dir, "d1", "more"))
}

func (b *builder) untracked() {
	b.put("untracked", b.unique())
	b.put("new/folder/untracked", b.unique())
	b.put("large", strings.Repeat(b.unique(), 5000))
}

func (b *builder) ignored() {
	b.put(".env", b.unique())
	b.put("s.db", b.unique())
	b.put("node_modules/x/index.js", b.unique())
}

func (b *builder) names() {
	for _, name := range []string{"new\nline", "no UTF-8 \xff\xfe", "-rf", "$(touch x)", "…", " ", "a\tb", "\x01", strings.Repeat("n", 255), "..."} {
		if b.rand.IntN(2) == 0 {
			b.put(name, b.unique())
		}
		if b.rand.IntN(4) == 0 {
			b.put(filepath.Join("folder of "+name[:min(len(name), 200)], name), b.unique())
		}
	}
	if b.repo != nil && b.rand.IntN(2) == 0 {
		b.put("staged\n\xff", b.unique())
		b.git("add", "staged\n\xff")
	}
}

func (b *builder) hardLinks() {
	b.put("one name", b.unique())
	_ = os.Remove(filepath.Join(b.dir, "another name"))
	world.Must(b.TB, os.Link(filepath.Join(b.dir, "one name"), filepath.Join(b.dir, "another name")))
	name := fmt.Sprintf("%016x", b.rand.Uint64())
	put(b.TB, b.outside, name, b.unique())
	if err := os.Link(filepath.Join(b.outside, name), filepath.Join(b.dir, "outside "+name)); err != nil {
		_ = os.Remove(filepath.Join(b.outside, name)) // on another disk
	}
}

func (b *builder) symlinks() {
	for name, to := range map[string]string{
		"to nowhere": "nowhere\xff", "to the system": "/etc/passwd", "up": "..", "to outside": b.outside, "to itself": "to itself", "in": "untracked",
	} {
		_ = os.Remove(filepath.Join(b.dir, name))
		world.Must(b.TB, os.Symlink(to, filepath.Join(b.dir, name)))
	}
}

func (b *builder) special() {
	for name, kind := range map[string]uint32{"fifo": unix.S_IFIFO, "socket": unix.S_IFSOCK} {
		_ = os.Remove(filepath.Join(b.dir, name))
		world.Must(b.TB, unix.Mknod(filepath.Join(b.dir, name), kind|0o600, 0))
	}
}

func (b *builder) modes() {
	for name, mode := range map[string]os.FileMode{"mode 755": 0o755, "mode 000": 0, "mode 4711": 0o711 | os.ModeSetuid, "mode 666": 0o666} {
		path := filepath.Join(b.dir, name)
		_ = os.Remove(path)
		b.put(name, b.unique())
		world.Must(b.TB, os.Chmod(path, mode))
	}
	path := filepath.Join(b.dir, "no entry")
	world.Must(b.TB, os.MkdirAll(path, 0o755))
	b.put("no entry/file", b.unique())
	world.Must(b.TB, os.Chmod(path, 0o500))
	if b.rand.IntN(3) == 0 {
		world.Must(b.TB, os.Chmod(b.dir, 0o700))
	}
}

func (b *builder) empty() {
	world.Must(b.TB, os.MkdirAll(filepath.Join(b.dir, "empty folder"), 0o755))
	world.Must(b.TB, os.MkdirAll(filepath.Join(b.dir, strings.Repeat("deep/", 1+b.rand.IntN(40))), 0o755))
}

// nested is a repository that git sees as one untracked folder.
func (b *builder) nested() {
	dir := filepath.Join(b.dir, "nested")
	world.Must(b.TB, os.MkdirAll(dir, 0o755))
	mustGit(b.TB, dir, "init", "-q")
	put(b.TB, dir, "file", b.unique())
	mustGit(b.TB, dir, "add", "-A")
	mustGit(b.TB, dir, "commit", "-q", "-m", "nested")
}

func (b *builder) openFile() { b.th.makers = append(b.th.makers, b.appendTo("written all the time")) }

func (b *builder) maker() {
	dir := "made"
	world.Must(b.TB, os.MkdirAll(filepath.Join(b.dir, dir), 0o755))
	b.th.makers = append(b.th.makers, b.makeIn(dir))
}

// maker writes into the folder as a program does that does not care where its
// folder went.
type maker struct {
	prefix string // of the paths that it writes
	mu     sync.Mutex
	acks   map[string]int64 // bytes that were written
}

func (m *maker) acknowledged() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]int64{}
	for k, v := range m.acks {
		out[k] = v
	}
	return out
}

// A maker writes as often as this, and makes no more files than that.
const (
	makersPause = 30 * time.Millisecond
	makersFiles = 200
)

// run calls step until the end of the test.
func (b *builder) run(m *maker, step func(i int) (name string, size int64, err error), closeAll func()) *maker {
	stop, done := make(chan struct{}), make(chan struct{})
	b.Cleanup(func() { close(stop); <-done; closeAll() })
	m.acks = map[string]int64{}
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			name, size, err := step(i)
			if err != nil {
				b.Errorf("a program that writes into %s: %v", b.th.name, err)
				return
			}
			m.mu.Lock()
			m.acks[name] = size
			m.mu.Unlock()
			select {
			case <-stop:
				return
			case <-time.After(makersPause):
			}
		}
	}()
	return m
}

// appendTo keeps a file open and appends to it.
func (b *builder) appendTo(name string) *maker {
	f, err := os.OpenFile(filepath.Join(b.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	world.Must(b.TB, err)
	if _, has := b.th.grows[name]; !has {
		b.th.grows[name] = grown{sum: sumOf(nil)}
	}
	fi, err := f.Stat()
	world.Must(b.TB, err)
	size := fi.Size()
	return b.run(&maker{prefix: name}, func(i int) (string, int64, error) {
		n, err := fmt.Fprintf(f, "%d\n", i)
		size += int64(n)
		return name, size, err
	}, func() { _ = f.Close() })
}

// makeIn keeps a folder open and makes files in it.
func (b *builder) makeIn(dir string) *maker {
	fd, err := unix.Open(filepath.Join(b.dir, dir), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	world.Must(b.TB, err)
	mine := fmt.Sprintf("%08x-", b.rand.Uint32())
	return b.run(&maker{prefix: dir + "/" + mine}, func(i int) (string, int64, error) {
		name := fmt.Sprintf("%s%d", mine, min(i, makersFiles))
		f, err := unix.Openat(fd, name, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return "", 0, err
		}
		_, err = unix.Write(f, []byte(name))
		_ = unix.Close(f)
		return dir + "/" + name, int64(len(name)), err
	}, func() { _ = unix.Close(fd) })
}
