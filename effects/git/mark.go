package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var (
	pointMark   = fault.New("git.mark")
	pointUnmark = fault.New("git.unmark")
)

const markName = "skc"

// mark is what we write into a worktree's own folder of git when we made it.
type mark struct {
	UID  string
	Path string
	// Identity of the folder when it was written. Its device is for people: the
	// kernel may number devices anew at each start.
	Identity string
	// OtherDisk: the folder was not on the file system of the repository.
	OtherDisk bool
	// Branch it was on when it was set aside; empty when it is not.
	Branch string
}

func (m mark) encode() []byte {
	return fmt.Appendf(nil, "skc worktree 1\nuid %s\nidentity %s\nother-disk %t\nbranch %s\npath %s\n",
		m.UID, m.Identity, m.OtherDisk, strconv.QuoteToASCII(m.Branch), strconv.QuoteToASCII(m.Path))
}

var (
	markPattern = regexp.MustCompile(`^skc worktree 1\nuid ([0-9A-Za-z-]{1,64})\nidentity ([0-9]+:[0-9]+)\nother-disk (true|false)\nbranch (".*")\npath (".*")\n$`)
	uidPattern  = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)
)

func decodeMark(data []byte) (m mark, ok bool) {
	f := markPattern.FindSubmatch(data)
	if f == nil {
		return m, false
	}
	branch, errB := strconv.Unquote(string(f[4]))
	path, errP := strconv.Unquote(string(f[5]))
	m = mark{UID: string(f[1]), Identity: string(f[2]), OtherDisk: string(f[3]) == "true", Branch: branch, Path: path}
	return m, errB == nil && errP == nil
}

// readMark is the mark of a worktree's own folder; the zero mark when it has
// none that can be understood.
func readMark(admin string) (mark, error) {
	data, err := files.Read(filepath.Join(admin, markName), 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, nil
	} else if err != nil {
		return mark{}, fmt.Errorf("read mark: %w", err)
	}
	m, _ := decodeMark(data)
	return m, nil
}

// writeMark says durably that the worktree is uid's, and on which branch it was
// when it is set aside. What git wrote before is synced first: a mark on half a
// registration would help nobody.
func (g *Git) writeMark(admin, path, uid, branch string) error {
	id, err := files.Identity(path, false)
	if err != nil {
		return fmt.Errorf("mark worktree: %w", err)
	}
	common, err := files.Identity(admin, false)
	if err != nil {
		return fmt.Errorf("mark worktree: %w", err)
	}
	m := mark{UID: uid, Path: path, Identity: id, OtherDisk: device(id) != device(common), Branch: branch}
	if old, err := readMark(admin); err != nil || old == m {
		return err
	}
	for _, file := range []string{"gitdir", "commondir", "HEAD"} {
		if err := syncFile(filepath.Join(admin, file)); err != nil {
			return fmt.Errorf("mark worktree: %w", err)
		}
	}
	if err := syncFile(filepath.Join(path, ".git")); err != nil {
		return fmt.Errorf("mark worktree: %w", err)
	}
	if err := g.o.Files.Write(pointMark, filepath.Join(admin, markName), m.encode(), files.Durable); err != nil {
		return fmt.Errorf("mark worktree: %w", err)
	}
	return nil
}

// Marked proves that the worktree at path is ours: its .git leads to a folder
// of git that leads back, and the mark there names this path and this inode.
// Whatever is not so is not ours; an error means that it is not known.
func (g *Git) Marked(_ context.Context, path string) (uid string, ok bool, err error) {
	path, err = canonical(path)
	if err != nil {
		return "", false, err
	}
	m, _, ok, err := marked(path)
	return m.UID, ok, err
}

func marked(path string) (m mark, admin string, ok bool, err error) {
	admin, err = adminOf(path)
	if err != nil || admin == "" {
		return mark{}, "", false, err
	}
	back, err := registeredPath(admin)
	if err != nil || back != path {
		return mark{}, "", false, err
	}
	if m, err = readMark(admin); err != nil {
		return mark{}, "", false, err
	}
	id, err := files.Identity(path, false)
	if err != nil {
		return mark{}, "", false, err
	}
	if m.UID == "" || m.Path != path || inode(m.Identity) != inode(id) {
		return mark{}, "", false, nil
	}
	return m, admin, true, nil
}

// Unmark makes the worktree at path, which is uid's, nobody's: it will never be
// removed. One that carries no mark is a success.
func (g *Git) Unmark(_ context.Context, path, uid string) error {
	path, err := canonical(path)
	if err != nil {
		return err
	}
	admin, err := adminOf(path)
	if err != nil || admin == "" {
		return err
	}
	m, err := readMark(admin)
	if err != nil {
		return err
	}
	if m.UID != "" && m.UID != uid {
		return fmt.Errorf("unmark %q: %w: it belongs to session %s", path, effects.ErrConflict, m.UID)
	}
	return g.o.Files.Remove(pointUnmark, filepath.Join(admin, markName), files.Durable)
}

// Transfer makes the worktree at path, which is from's, to's. One that is to's
// already is a success. It waits for whoever moves or restores the worktree: he
// writes the mark that he has read.
func (g *Git) Transfer(ctx context.Context, path, from, to string) error {
	path, err := canonical(path)
	if err != nil {
		return err
	}
	if !uidPattern.MatchString(to) {
		return fmt.Errorf("%q is no UID", to)
	}
	err = g.patiently(ctx, func() error {
		admin, err := adminOf(path)
		if err != nil {
			return err
		}
		if admin != "" {
			_, unlock, err := g.exclusive(ctx, filepath.Dir(filepath.Dir(admin)))
			if err != nil {
				return err
			}
			defer unlock()
		}
		m, admin, ok, err := marked(path)
		if err != nil {
			return err
		}
		if !ok || m.UID != from && m.UID != to {
			return fmt.Errorf("%w: it is not a worktree of session %s", effects.ErrConflict, from)
		}
		return g.writeMark(admin, path, to, m.Branch)
	})
	if err != nil {
		return fmt.Errorf("hand over %q: %w", path, err)
	}
	return nil
}

// adminOf is the folder of git that the .git file at path leads to; empty when
// path is no linked worktree.
func adminOf(path string) (string, error) {
	data, err := files.Read(filepath.Join(path, ".git"), 64<<10)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, files.ErrNotRegular), errors.Is(err, files.ErrTooLarge):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look at worktree: %w", err)
	}
	to, ok := strings.CutPrefix(string(data), "gitdir: ")
	to = strings.TrimRight(to, "\r\n")
	if !ok || to == "" {
		return "", nil
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(path, to)
	}
	if filepath.Base(filepath.Dir(to)) != "worktrees" {
		return "", nil // of a submodule, or elsewhere
	}
	return filepath.Clean(to), nil
}

// registeredPath is where git believes that the worktree is; empty when git
// could not say.
func registeredPath(admin string) (string, error) {
	data, err := files.Read(filepath.Join(admin, "gitdir"), 64<<10)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("look at worktree: %w", err)
	}
	path, ok := strings.CutSuffix(strings.TrimRight(string(data), " \t\r\n"), "/.git")
	if !ok {
		return "", nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(admin, path)
	}
	return path, nil
}

// canonical is the path with the links of its folders resolved, as git keeps
// it. The last part is left: as a link it is not a worktree.
func canonical(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("path %q of a worktree is not absolute", path)
	}
	path = filepath.Clean(path)
	dir, rest := filepath.Dir(path), filepath.Base(path)
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == "/" {
			return "", fmt.Errorf("look at path of worktree: %w", err)
		}
		dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest)
	}
}

func device(identity string) string { d, _, _ := strings.Cut(identity, ":"); return d }
func inode(identity string) string  { _, i, _ := strings.Cut(identity, ":"); return i }

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
