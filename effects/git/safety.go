package git

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/process"
)

// The checks of Safety, in the order of the report.
const (
	CheckDirty      = "dirty"      // changes of files that git follows
	CheckUntracked  = "untracked"  // files that git does not know
	CheckIgnored    = "ignored"    // files that git was told to pass over
	CheckStash      = "stash"      // stashes of the branch
	CheckUnpushed   = "unpushed"   // commits that no remote has
	CheckUpstream   = "upstream"   // those of them that are upstream as equal patches
	CheckSubmodules = "submodules" // the same in the repositories inside
	CheckOpenFiles  = "open-files" // processes that have files below it open
	CheckWorkingIn  = "working-in" // processes whose working directory is below it
	CheckLock       = "lock"       // somebody wants to keep it, or git is at work
)

// Limits of Safety.
type Limits struct {
	PerCheck time.Duration // default 5 s
	Examples int           // names given in a value; default 3
	// Spare, unless it is nil, is true of processes that are no concern: those
	// that end before the worktree goes.
	Spare func(pid int) bool
}

const notInTime = "not known in time"

// tree is the worktree that is looked at.
type tree struct {
	g           *Git
	path, admin string
	branch      string // empty when HEAD is detached
	limits      Limits
}

// Safety says what would be lost, or is in the way, if the worktree at path
// went. Every check has its own time limit; one that could not be made is not
// OK. It changes nothing. Only processes that the kernel lets us look at are
// seen.
func (g *Git) Safety(ctx context.Context, path string, limits Limits) (effects.SafetyReport, error) {
	if limits.PerCheck == 0 {
		limits.PerCheck = 5 * time.Second
	}
	if limits.Examples == 0 {
		limits.Examples = 3
	}
	path, err := canonical(path)
	if err != nil {
		return effects.SafetyReport{}, err
	}
	admin, err := adminOf(path)
	if err != nil {
		return effects.SafetyReport{}, err
	}
	if admin == "" {
		return effects.SafetyReport{}, fmt.Errorf("check %q: %w: there is no worktree", path, effects.ErrNotFound)
	}
	t := tree{g: g, path: path, admin: admin, limits: limits}
	if t.branch, err = branchOf(admin); err != nil {
		return effects.SafetyReport{}, err
	}
	m, err := readMark(admin)
	if err != nil {
		return effects.SafetyReport{}, err
	}
	if t.branch == "" {
		t.branch = m.Branch
	}
	checks := []struct {
		names []string
		run   func(context.Context) ([]effects.SafetyCheck, error)
	}{
		{[]string{CheckDirty}, t.dirty},
		{[]string{CheckUntracked}, t.untracked},
		{[]string{CheckIgnored}, t.ignored},
		{[]string{CheckStash}, t.stash},
		{[]string{CheckUnpushed, CheckUpstream}, t.commits},
		{[]string{CheckSubmodules}, t.submodules},
		{[]string{CheckOpenFiles, CheckWorkingIn}, nil},
		{[]string{CheckLock}, t.lock},
	}
	results := make([][]effects.SafetyCheck, len(checks))
	check := func(i int, run func(context.Context) ([]effects.SafetyCheck, error)) {
		ctx, cancel := context.WithTimeout(ctx, limits.PerCheck)
		defer cancel()
		found, err := run(ctx)
		if err == nil {
			results[i] = found
			return
		}
		value, fix := "not known: "+err.Error(), "see what git says"
		if ctx.Err() != nil {
			value, fix = notInTime, "look again when the machine is less busy"
		}
		for _, name := range checks[i].names {
			results[i] = append(results[i], effects.SafetyCheck{Name: name, Value: value, Fix: fix})
		}
	}
	var wg sync.WaitGroup
	for i, c := range checks {
		if c.run == nil {
			check(i, t.processes) // before the gits of the others use the folder themselves
		}
	}
	for i, c := range checks {
		if c.run != nil {
			wg.Go(func() { check(i, c.run) })
		}
	}
	wg.Wait()
	var r effects.SafetyReport
	for _, found := range results {
		r.Checks = append(r.Checks, found...)
	}
	return r, ctx.Err()
}

// git streams the output of a git that only reads.
func (t tree) git(ctx context.Context, dir string, out io.Writer, args ...string) error {
	return t.g.run(ctx, call{args: append([]string{"-C", dir}, args...), env: []string{"GIT_OPTIONAL_LOCKS=0"},
		timeout: t.limits.PerCheck, out: out})
}

func one(name string, ok bool, value, fix string) []effects.SafetyCheck {
	if ok {
		fix = ""
	}
	return []effects.SafetyCheck{{Name: name, OK: ok, Value: value, Fix: fix}}
}

// status counts the records of `git status --porcelain=2 -z`.
type status struct{ staged, unstaged, conflicted, submodules int }

func (t tree) status(ctx context.Context, dir string) (s status, err error) {
	skip := false // the old name of a renamed file, which follows its record
	err = t.git(ctx, dir, &records{each: func(r string) {
		if skip {
			skip = false
			return
		}
		if len(r) < 9 {
			return
		}
		switch r[0] {
		case '1', '2':
			skip = r[0] == '2'
			if r[2] != '.' {
				s.staged++
			}
			if r[3] != '.' {
				s.unstaged++
			}
			if r[5] == 'S' {
				s.submodules++
			}
		case 'u':
			s.conflicted++
		}
	}}, "status", "--porcelain=2", "-z", "--untracked-files=no", "--ignore-submodules=none", "--no-renames", "--no-ahead-behind")
	return s, err
}

func (s status) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{s.staged, "staged"}, {s.unstaged, "not staged"}, {s.conflicted, "in conflict"}, {s.submodules, "in submodules"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return "no changes"
	}
	return "changes: " + strings.Join(parts, ", ")
}

func (t tree) dirty(ctx context.Context) ([]effects.SafetyCheck, error) {
	s, err := t.status(ctx, t.path)
	return one(CheckDirty, s == status{}, s.String(), "commit the changes, or undo them"), err
}

// others counts the files that git does not follow. A folder of nothing else is
// one.
func (t tree) others(ctx context.Context, dir string, args ...string) (counted, error) {
	c := counted{examples: t.limits.Examples}
	err := t.git(ctx, dir, &records{each: c.add},
		append([]string{"ls-files", "-z", "--others", "--exclude-standard", "--directory", "--no-empty-directory"}, args...)...)
	return c, err
}

func (t tree) untracked(ctx context.Context) ([]effects.SafetyCheck, error) {
	c, err := t.others(ctx, t.path)
	return one(CheckUntracked, c.n == 0, c.String(), "add and commit them, or remove them"), err
}

func (t tree) ignored(ctx context.Context) ([]effects.SafetyCheck, error) {
	c, err := t.others(ctx, t.path, "--ignored")
	return one(CheckIgnored, c.n == 0, c.String(), "copy what is worth keeping, and remove them"), err
}

// stash counts the stashes of this branch. They stay in the repository, and
// are easily forgotten there.
func (t tree) stash(ctx context.Context) ([]effects.SafetyCheck, error) {
	if ok, err := t.has(ctx, "refs/stash"); err != nil || !ok {
		return one(CheckStash, true, "none", ""), err
	}
	branch := t.branch
	if branch == "" {
		branch = "(no branch)"
	}
	n := 0
	err := t.git(ctx, t.path, &records{each: func(r string) {
		if strings.HasPrefix(r, "WIP on "+branch+": ") || strings.HasPrefix(r, "On "+branch+": ") {
			n++
		}
	}}, "log", "-z", "--walk-reflogs", "--no-show-signature", "--format=%gs", "refs/stash", "--")
	return one(CheckStash, n == 0, count(n, "stash of this branch", "stashes of this branch"), "git stash pop, or git stash drop"), err
}

// has tells whether there is a ref below that name.
func (t tree) has(ctx context.Context, ref string) (bool, error) {
	out := &limited{max: 4096}
	err := t.git(ctx, t.path, out, "for-each-ref", "--count=1", "--format=%(refname)", "--end-of-options", ref)
	return out.buf.Len() > 0, err
}

// maxCommits is how far commits are counted.
const maxCommits = 1000

// commits looks for those that would be left behind. Without any remote they
// are those that no other branch or tag holds.
func (t tree) commits(ctx context.Context) ([]effects.SafetyCheck, error) {
	none := func(value string) []effects.SafetyCheck {
		return append(one(CheckUnpushed, true, value, ""), one(CheckUpstream, true, "nothing to compare", "")...)
	}
	head, err := t.g.headOf(ctx, t.admin)
	if err != nil {
		return nil, err
	}
	if head == "" {
		return none("no commits yet"), nil
	}
	remotes, err := t.has(ctx, "refs/remotes/")
	if err != nil {
		return nil, err
	}
	args := []string{"rev-list", "--count", "--max-count=" + strconv.Itoa(maxCommits), head, "--not"}
	where, fix := "on no remote", "push them"
	if remotes {
		args = append(args, "--remotes")
	} else {
		where, fix = "on no other branch (there is no remote)", "push them to a remote, or merge them"
		if t.branch != "" {
			args = append(args, "--exclude="+t.branch)
		}
		args = append(args, "--branches", "--tags")
	}
	n, err := t.number(ctx, t.path, args...)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return none("every commit is kept elsewhere"), nil
	}
	more := ""
	if n == maxCommits {
		more = " or more"
	}
	found := one(CheckUnpushed, false, fmt.Sprintf("%d%s %s", n, more, count(n, "commit "+where, "commits "+where)[len(strconv.Itoa(n))+1:]), fix)
	return append(found, t.upstream(ctx, head)...), nil
}

// upstream compares the patches of the commits with what is upstream.
func (t tree) upstream(ctx context.Context, head string) []effects.SafetyCheck {
	fail := func(value string) []effects.SafetyCheck {
		return one(CheckUpstream, false, value, "push them")
	}
	up := &limited{max: 4096}
	if t.branch != "" {
		if err := t.git(ctx, t.path, up, "for-each-ref", "--format=%(upstream)", "--end-of-options", heads+t.branch); err != nil {
			return fail(notInTime)
		}
	}
	for _, ref := range []string{strings.TrimSpace(up.buf.String()), "refs/remotes/origin/HEAD", "refs/remotes/origin/main", "refs/remotes/origin/master"} {
		if ref == "" {
			continue
		}
		id, err := t.g.resolve(ctx, effects.Repository{GitDir: t.admin}, ref)
		if err != nil {
			return fail(notInTime)
		}
		if id == "" {
			continue
		}
		var equal, missing int
		err = t.git(ctx, t.path, &records{end: '\n', each: func(r string) {
			if strings.HasPrefix(r, "- ") {
				equal++
			} else {
				missing++
			}
		}}, "cherry", "--end-of-options", id, head)
		if err != nil {
			return fail(notInTime)
		}
		short := strings.TrimPrefix(ref, "refs/remotes/")
		return one(CheckUpstream, missing == 0, fmt.Sprintf("%d of %d are in %s as equal patches", equal, equal+missing, short), "push them")
	}
	return fail("there is no upstream to compare with")
}

func (t tree) number(ctx context.Context, dir string, args ...string) (int, error) {
	out := &limited{max: 64}
	if err := t.git(ctx, dir, out, args...); err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(out.buf.String()))
	if err != nil {
		return 0, &effects.NotDoneError{What: "counted nothing"}
	}
	return n, nil
}

// maxSubmodules are looked into, over all levels.
const maxSubmodules = 200

func (t tree) submodules(ctx context.Context) ([]effects.SafetyCheck, error) {
	var bad []string
	looked := 0
	var into func(dir, name string) error
	into = func(dir, name string) error {
		var inside []string
		if ok, err := exists(filepath.Join(dir, ".gitmodules")); err != nil || !ok {
			return err
		}
		err := t.git(ctx, dir, &records{each: func(r string) {
			if info, file, ok := strings.Cut(r, "\t"); ok && strings.HasPrefix(info, "160000 ") {
				inside = append(inside, file)
			}
		}}, "ls-files", "-z", "--stage")
		if err != nil {
			return err
		}
		for _, file := range inside {
			sub, subName := filepath.Join(dir, file), filepath.Join(name, file)
			if ok, err := exists(filepath.Join(sub, ".git")); err != nil {
				return err
			} else if !ok {
				continue // not initialised: holds nothing
			}
			if looked++; looked > maxSubmodules {
				return fmt.Errorf("more than %d submodules", maxSubmodules)
			}
			found, err := t.inside(ctx, sub)
			if err != nil {
				return err
			}
			if found != "" {
				bad = append(bad, fmt.Sprintf("%s: %s", quote(subName), found))
			}
			if err := into(sub, subName); err != nil {
				return err
			}
		}
		return nil
	}
	if err := into(t.path, ""); err != nil {
		return nil, err
	}
	value := "none"
	if looked > 0 {
		value = fmt.Sprintf("%d, all clean and pushed", looked)
	}
	if len(bad) > 0 {
		value = strings.Join(bad[:min(len(bad), t.limits.Examples)], "; ")
		if more := len(bad) - t.limits.Examples; more > 0 {
			value += fmt.Sprintf("; and %d more", more)
		}
	}
	return one(CheckSubmodules, len(bad) == 0, value, "commit and push in each of them"), nil
}

// inside says what one repository of a submodule would lose.
func (t tree) inside(ctx context.Context, dir string) (string, error) {
	var found []string
	s, err := t.status(ctx, dir)
	if err != nil {
		return "", err
	}
	if s != (status{}) {
		found = append(found, s.String())
	}
	for _, o := range []struct{ what, arg string }{{"untracked", "--"}, {"ignored", "--ignored"}} {
		c, err := t.others(ctx, dir, o.arg)
		if err != nil {
			return "", err
		}
		if c.n > 0 {
			found = append(found, fmt.Sprintf("%d %s", c.n, o.what))
		}
	}
	n, err := t.number(ctx, dir, "rev-list", "--count", "--max-count="+strconv.Itoa(maxCommits), "--all", "--not", "--remotes")
	if err != nil {
		return "", err
	}
	if n > 0 {
		found = append(found, count(n, "commit on no remote", "commits on no remote"))
	}
	return strings.Join(found, ", "), nil
}

// processes looks for those that use the folder.
func (t tree) processes(ctx context.Context) ([]effects.SafetyCheck, error) {
	open, in, err := process.InUse(ctx, t.path, t.limits.Spare)
	if err != nil {
		return nil, err
	}
	show := func(users []process.User, name, fix string) []effects.SafetyCheck {
		var list []string
		for _, u := range users {
			list = append(list, u.String())
		}
		value := "none"
		if len(list) > 0 {
			value = strings.Join(list[:min(len(list), t.limits.Examples)], ", ")
			if more := len(list) - t.limits.Examples; more > 0 {
				value += fmt.Sprintf(", and %d more", more)
			}
		}
		return one(name, len(list) == 0, value, fix)
	}
	return append(show(open, CheckOpenFiles, "end these processes"),
		show(in, CheckWorkingIn, "end these processes, or let them leave the folder")...), nil
}

func (t tree) lock(context.Context) ([]effects.SafetyCheck, error) {
	reason, err := lockReason(t.admin)
	if err != nil {
		return nil, err
	}
	if reason != "" && !strings.HasPrefix(reason, setAside) {
		return one(CheckLock, false, "locked: "+quote(reason), "git worktree unlock it"), nil
	}
	for _, file := range []string{"index.lock", "HEAD.lock"} {
		if ok, err := exists(filepath.Join(t.admin, file)); err != nil || ok {
			return one(CheckLock, false, "git is at work, or died: there is "+quote(filepath.Join(t.admin, file)),
				"wait for it; when no git runs there, remove that file"), err
		}
	}
	return one(CheckLock, true, "none", ""), nil
}

func count(n int, singular, plural string) string {
	switch n {
	case 0:
		return "none"
	case 1:
		return "1 " + singular
	}
	return strconv.Itoa(n) + " " + plural
}

// counted is how many names there are, and the first of them.
type counted struct {
	n, examples int
	first       []string
}

func (c *counted) add(name string) {
	if c.n++; len(c.first) < c.examples {
		c.first = append(c.first, quote(name))
	}
}

func (c *counted) String() string {
	switch {
	case c.n == 0:
		return "none"
	case c.n > len(c.first):
		return fmt.Sprintf("%d: %s, …", c.n, strings.Join(c.first, ", "))
	}
	return fmt.Sprintf("%d: %s", c.n, strings.Join(c.first, ", "))
}

// quote makes a name of any bytes safe to show.
func quote(name string) string {
	if q := strconv.QuoteToGraphic(name); q != `"`+name+`"` || strings.ContainsAny(name, ", ") {
		return q
	}
	return name
}

// records calls each for every record of what is written to it. A record that
// is longer than a path can be is cut.
type records struct {
	each func(string)
	end  byte // zero by default
	rest []byte
}

func (r *records) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, r.end)
		if i < 0 {
			if room := 16<<10 - len(r.rest); room > 0 {
				r.rest = append(r.rest, p[:min(room, len(p))]...)
			}
			return n, nil
		}
		r.each(string(append(r.rest, p[:i]...)))
		r.rest, p = r.rest[:0], p[i+1:]
	}
}
