package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var (
	pointDrop   = fault.New("git.drop")
	pointGitdir = fault.New("git.gitdir")
	pointRelink = fault.New("git.relink")
)

// entry is one worktree with what git's list does not say.
type entry struct {
	effects.ListedWorktree
	admin string // its own folder of git; empty for the main worktree
	mark  mark
}

// entries is all worktrees, the main one first.
func (g *Git) entries(ctx context.Context, repo effects.Repository) ([]entry, error) {
	list, err := g.List(ctx, repo)
	if err != nil {
		return nil, err
	}
	admins := map[string]string{}
	dir := filepath.Join(repo.GitDir, "worktrees")
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list worktrees: %w", err)
	}
	for _, d := range names {
		admin := filepath.Join(dir, d.Name())
		path, err := registeredPath(admin)
		if err != nil {
			return nil, err
		}
		admins[path] = admin
	}
	var all []entry
	for i, w := range list {
		e := entry{ListedWorktree: w}
		if i > 0 {
			e.admin = admins[w.Path]
			if e.admin == "" {
				return nil, fmt.Errorf("list worktrees: %w: %q", effects.ErrConflict, w.Path)
			}
			if e.mark, err = readMark(e.admin); err != nil {
				return nil, err
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// making is the reason with which a worktree is locked while it is being made.
// git writes it with the registration itself, so that there is no moment at
// which a crash leaves one that is not known as ours.
func making(uid string) string { return "skc: being made for session " + uid }

// of tells whether the worktree is uid's.
func (e entry) of(uid string) bool {
	return e.admin != "" && (e.mark.UID == uid || e.Locked && e.LockReason == making(uid))
}

// kept tells whether somebody locked it; our own lock while making does not count.
func (e entry) kept() bool {
	return e.Locked && !strings.HasPrefix(e.LockReason, making(""))
}

// where says what is at the path of an entry.
type where int

const (
	there    where = iota // the worktree
	missing               // nothing
	unlinked              // the folder that we made; its .git file is gone or leads nowhere
	occupied              // something else
)

// look says what is at the entry's path. An error means that it is not known.
func (e entry) look() (where, error) {
	if e.admin == "" {
		return there, nil
	}
	id, err := files.Identity(e.Path, false)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return missing, nil
	} else if err != nil {
		return occupied, fmt.Errorf("look at worktree: %w", err)
	}
	if ok, err := leadsTo(e.Path, e.admin); err != nil || ok {
		return there, err
	}
	if e.mark.Path != e.Path || inode(e.mark.Identity) != inode(id) {
		return occupied, nil
	}
	if got, err := exists(filepath.Join(e.Path, ".git")); err != nil || !got {
		return unlinked, err
	}
	to, err := adminOf(e.Path)
	if err != nil || to == "" {
		return occupied, err
	}
	if got, err := exists(to); err != nil || !got { // the repository was moved
		return unlinked, err
	}
	return occupied, nil
}

// leadsTo tells whether the .git file at path leads to that folder of git.
func leadsTo(path, admin string) (bool, error) {
	to, err := adminOf(path)
	if err != nil || to == "" {
		return false, err
	}
	a, errA := files.Identity(to, true)
	b, errB := files.Identity(admin, true)
	return errA == nil && errB == nil && a == b, nil
}

// maxSiblings is how many folders are looked at for a worktree that was moved.
const maxSiblings = 10000

// movedTo finds a worktree that was moved by hand: to the path where it is
// wanted, or to another name in the folder it was in. Empty when it is not there.
func (e entry) movedTo(want string) (string, error) {
	candidates := []string{want}
	dir, err := os.Open(filepath.Dir(e.Path))
	if err == nil {
		names, err := dir.Readdirnames(maxSiblings)
		_ = dir.Close()
		if err != nil && len(names) > 0 {
			return "", fmt.Errorf("look for moved worktree: %w", err)
		}
		for _, n := range names {
			candidates = append(candidates, filepath.Join(filepath.Dir(e.Path), n))
		}
	}
	for _, c := range candidates {
		if c == e.Path {
			continue
		}
		if fi, err := os.Lstat(c); err != nil || !fi.IsDir() {
			continue
		}
		if ok, err := leadsTo(c, e.admin); err == nil && ok {
			return c, nil
		}
	}
	return "", nil
}

// diskMissing tells whether the folder is away because its file system is: it
// was on another one than the repository, and what is left of its path is not.
func (e entry) diskMissing(repo effects.Repository) bool {
	if !e.mark.OtherDisk {
		return false
	}
	dir := filepath.Dir(e.Path)
	for {
		id, err := files.Identity(dir, true)
		if err == nil {
			return device(id) == device(repo.Identity)
		}
		if dir == "/" {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

// point makes git know that the worktree is at path. It is what `git worktree
// repair path` does, for this one entry.
func (g *Git) point(admin, path string) error {
	if now, err := registeredPath(admin); err != nil || now == path {
		return err
	}
	return g.o.Files.WriteMode(pointGitdir, filepath.Join(admin, "gitdir"), []byte(path+"/.git\n"), files.Durable, 0o644)
}

// relink makes the .git file of a folder lead to its registration again.
func (g *Git) relink(e entry) error {
	if err := sweepLinks(e.Path); err != nil {
		return err
	}
	return g.o.Files.WriteMode(pointRelink, filepath.Join(e.Path, ".git"), []byte("gitdir: "+e.admin+"\n"), files.Durable, 0o644)
}

// sweepLinks removes what a relink that was killed left in the user's folder.
func sweepLinks(path string) error {
	all, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("sweep worktree: %w", err)
	}
	for _, d := range all {
		if !d.Type().IsRegular() || !strings.HasPrefix(d.Name(), "..git.skc-") || !files.IsTemp(d.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(path, d.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep worktree: %w", err)
		}
	}
	return nil
}

const (
	droppedDir  = "skc-dropped" // in the repository's folder of git
	droppedKeep = 14 * 24 * time.Hour
)

// drop makes git forget one worktree whose folder is gone, and no other. Its
// registration is moved aside, kept for two weeks, and for good when it holds
// the repositories of submodules. A commit that only its detached HEAD held
// gets a ref. Worktrees that somebody locked, and folders that are there after
// all, are left: then the error tells so.
func (g *Git) drop(ctx context.Context, hold *os.File, repo effects.Repository, e entry) error {
	if e.kept() {
		return &effects.LockedMissingError{Path: e.Path, Reason: e.LockReason}
	}
	if e.diskMissing(repo) {
		return &effects.DiskMissingError{Path: e.Path}
	}
	if e.Detached {
		if err := g.keep(ctx, hold, repo, "refs/skc/dropped/"+e.Head, e.Head); err != nil {
			return fmt.Errorf("keep HEAD of %q: %w", e.Path, err)
		}
	}
	dir := filepath.Join(repo.GitDir, droppedDir)
	if err := files.MkdirPrivate(dir); err != nil {
		return fmt.Errorf("drop %q: %w", e.Path, err)
	}
	now := g.o.Clock.Now()
	aside := filepath.Join(dir, fmt.Sprintf("%d.%09d.%s", now.Unix(), now.Nanosecond(), filepath.Base(e.admin)))
	if err := g.o.Files.Rename(pointDrop, e.admin, aside); err != nil {
		return fmt.Errorf("drop %q: %w", e.Path, err)
	}
	// What came in the meantime wins.
	locked, err := exists(filepath.Join(aside, "locked"))
	link, linkErr := adminOf(e.Path)
	if err != nil || linkErr != nil || link == e.admin || locked && !e.Locked {
		return errors.Join(fmt.Errorf("drop %q: %w", e.Path, effects.ErrConflict), os.Rename(aside, e.admin), err, linkErr)
	}
	return g.sweepDropped(dir)
}

// keep makes a ref for a commit that no ref holds.
func (g *Git) keep(ctx context.Context, hold *os.File, repo effects.Repository, ref, commit string) error {
	held, err := g.read(ctx, "--git-dir="+repo.GitDir, "for-each-ref", "--count=1", "--contains="+commit, "--format=%(refname)")
	if err != nil || len(held) > 0 {
		return err
	}
	return g.write(ctx, hold, "--git-dir="+repo.GitDir, "update-ref", "-m", "skc: kept", "--end-of-options", ref, commit)
}

func (g *Git) sweepDropped(dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweep dropped worktrees: %w", err)
	}
	for _, d := range names {
		stamp, _, _ := strings.Cut(d.Name(), ".")
		seconds, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil || g.o.Clock.Since(time.Unix(seconds, 0)) < droppedKeep {
			continue
		}
		path := filepath.Join(dir, d.Name())
		if has, err := exists(filepath.Join(path, "modules")); err != nil || has {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("sweep dropped worktrees: %w", err)
		}
	}
	return nil
}
