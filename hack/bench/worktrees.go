//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// worktrees: R21. Twenty worktree Sessions of one repository at once, until all
// run. Raw: git worktree add, one after the other, as at once it fails on its own
// locks.
func worktrees(ctx context.Context, s settings, r *report) error {
	const n = 20
	var raw, skc samples
	half := 0.0
	for rep := range s.reps {
		w, err := newWorld(s)
		if err != nil {
			return err
		}
		err = func() error {
			defer w.close()
			repo := filepath.Join(w.dir, "repo")
			git := func(args ...string) (string, error) {
				out, err := exec.CommandContext(ctx, "git", append([]string{"-C", repo, "-c", "user.name=t", "-c", "user.email=t@example.invalid"}, args...)...).CombinedOutput()
				if err != nil {
					err = fmt.Errorf("git %q: %w: %s", args, err, out)
				}
				return string(out), err
			}
			if err := os.Mkdir(repo, 0o700); err != nil {
				return err
			}
			if _, err := git("init", "-q", "-b", "main"); err != nil {
				return err
			}
			for i := range 200 {
				if err := os.WriteFile(filepath.Join(repo, fmt.Sprintf("file-%d", i)), []byte(strings.Repeat(fmt.Sprintln(i), 500)), 0o600); err != nil {
					return err
				}
			}
			for _, args := range [][]string{{"add", "-A"}, {"commit", "-q", "-m", "one"}} {
				if _, err := git(args...); err != nil {
					return err
				}
			}
			plain := func() error {
				begin := time.Now()
				for i := range n {
					if _, err := git("worktree", "add", "-q", "-b", fmt.Sprintf("plain-%d", i), filepath.Join(w.dir, "plain", fmt.Sprint(i))); err != nil {
						return err
					}
				}
				raw = append(raw, time.Since(begin))
				return nil
			}
			ours := func() error {
				all := names("wt", n)
				for _, name := range all {
					target := fmt.Sprintf("worktree: {repo: %s, branch: feat/%s}", repo, name)
					if err := os.WriteFile(filepath.Join(w.dir, "stage", name+".yaml"), []byte(w.fileAt(name, target, sleeper, "")), 0o600); err != nil {
						return err
					}
				}
				if err := w.start(); err != nil {
					return err
				}
				begin := time.Now()
				for _, name := range all {
					if err := os.Rename(filepath.Join(w.dir, "stage", name+".yaml"), filepath.Join(w.spool(), name+".yaml")); err != nil {
						return err
					}
				}
				if err := w.untilReady(all); err != nil {
					return err
				}
				skc = append(skc, time.Since(begin))
				whole := 0
				for _, name := range all {
					dir := filepath.Join(w.dir, "repo.worktrees", "feat-"+name)
					out, err := exec.CommandContext(ctx, "git", "-C", dir, "status", "--porcelain", "--branch").Output()
					if err != nil {
						return fmt.Errorf("git status in %s: %w", dir, err)
					}
					if strings.TrimSpace(string(out)) == "## feat/"+name {
						whole++
					}
				}
				half = max(half, float64(n-whole))
				return nil
			}
			order := []func() error{plain, ours}
			if rep%2 == 1 {
				order[0], order[1] = order[1], order[0]
			}
			for _, fn := range order {
				if err := fn(); err != nil {
					return err
				}
			}
			return nil
		}()
		if err != nil {
			return err
		}
	}
	r.ratio(fmt.Sprintf("R21 %d worktree sessions of one repository at once", n), raw.q(.5), skc.q(.5), 2)
	r.value(fmt.Sprintf("R21 worktrees that are not whole, of %d", n), "", half, 0)
	return nil
}
