package git

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"skc.dev/skc/effects/files"
)

// relinkSubmodules lets the submodules of a worktree that was moved find their
// repositories, which lie in the worktree's folder of git, and these find them.
// git links the two by relative paths, and has no command that mends them.
func (g *Git) relinkSubmodules(ctx context.Context, hold *os.File, gitDir, path string) error {
	modules := filepath.Join(gitDir, "modules")
	if ok, err := exists(modules); err != nil || !ok {
		return err
	}
	var links []string
	err := g.run(ctx, call{args: []string{"--git-dir=" + gitDir, "ls-files", "-z", "--stage"}, env: []string{"GIT_OPTIONAL_LOCKS=0"},
		out: &records{each: func(r string) {
			if info, file, ok := strings.Cut(r, "\t"); ok && strings.HasPrefix(info, "160000 ") {
				links = append(links, file)
			}
		}}})
	if err != nil {
		return err
	}
	for _, file := range links {
		sub := filepath.Join(path, file)
		link := filepath.Join(sub, ".git")
		data, err := files.Read(link, 64<<10)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, files.ErrNotRegular) {
			continue // not initialised, or with a repository of its own
		} else if err != nil {
			return err
		}
		// What follows the last folder of git that it names is the way from there.
		to := strings.TrimRight(strings.TrimPrefix(string(data), "gitdir: "), "\r\n")
		i := strings.LastIndex(to, "/"+filepath.Base(gitDir)+"/modules/")
		if i < 0 {
			continue
		}
		own := filepath.Join(gitDir, to[i+len("/"+filepath.Base(gitDir)+"/"):])
		if ok, err := exists(own); err != nil || !ok {
			return err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(sub, to)
		}
		if !sameFolder(to, own) {
			if err := g.o.Files.WriteMode(pointRelink, link, []byte("gitdir: "+own+"\n"), files.Durable, 0o644); err != nil {
				return err
			}
		}
		if err := g.write(ctx, hold, "config", "--file", filepath.Join(own, "config"), "core.worktree", sub); err != nil {
			return err
		}
		if err := g.relinkSubmodules(ctx, hold, own, sub); err != nil {
			return err
		}
	}
	return nil
}
