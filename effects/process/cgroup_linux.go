package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// baseName is the folder of cgroup v2 that holds one group a session. All
// homes of a user share it; UIDs keep the groups apart. It is there only while
// it holds a group.
const baseName = "skc"

// wholeMark is the folder within a session's group that says that nothing of the
// session is outside of it.
const wholeMark = "whole"

// groups is the place of the sessions' groups in the tree of cgroup v2.
type groups struct {
	base string // "" when there is none
	why  error  // why not
}

// findGroups looks for a place from the top of the tree down to our own group
// and takes the first where groups may be made. High up is better: what ends
// the controller's unit with all below it must not end the sessions.
func findGroups() groups {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return groups{why: err}
	}
	mounted, root, ok := findMount(string(mountinfo))
	if !ok {
		return groups{why: errors.New("cgroup v2 is not mounted")}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return groups{why: err}
	}
	why := errors.New("this process is in no cgroup v2")
	for _, dir := range candidates(mounted, root, ownPath(string(own))) {
		base := filepath.Join(dir, baseName)
		if why = tryBase(base); why == nil {
			return groups{base: base}
		}
	}
	return groups{why: why}
}

// findMount finds where cgroup v2 is mounted and which of its folders is there.
func findMount(mountinfo string) (mounted, root string, ok bool) {
	for line := range strings.Lines(mountinfo) {
		left, right, found := strings.Cut(line, " - ")
		f := strings.Fields(left)
		if found && len(f) >= 5 && strings.HasPrefix(right, "cgroup2 ") {
			return unescape(f[4]), unescape(f[3]), true
		}
	}
	return "", "", false
}

// unescape reads the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// ownPath is our own group, as /proc/self/cgroup names it.
func ownPath(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		if p, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSuffix(p, "\n")
		}
	}
	return ""
}

// candidates is the folders from the mount down to our own group.
func candidates(mounted, root, own string) []string {
	rel, err := filepath.Rel(root, own)
	if own == "" || err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return nil
	}
	dirs := []string{mounted}
	if rel != "." {
		for _, part := range strings.Split(rel, "/") {
			dirs = append(dirs, filepath.Join(dirs[len(dirs)-1], part))
		}
	}
	return dirs
}

// tryBase makes the base and proves that groups can be made in it that take
// processes.
func tryBase(base string) error {
	if err := makeBase(base); err != nil {
		return err
	}
	defer os.Remove(base) //nolint:errcheck // only when it is empty
	probe := filepath.Join(base, "probe-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(probe, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	defer os.Remove(probe) //nolint:errcheck // empty
	kind, err := os.ReadFile(filepath.Join(probe, "cgroup.type"))
	if err != nil {
		return err
	}
	if k := strings.TrimSpace(string(kind)); k != "domain" {
		return fmt.Errorf("groups in %s are of the type %s", base, k)
	}
	return unix.Access(filepath.Join(probe, "cgroup.procs"), unix.W_OK)
}

func makeBase(base string) error {
	err := os.Mkdir(base, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err == nil {
		// So that the kernel counts its kills a session. Not everywhere to be had.
		_ = os.WriteFile(filepath.Join(base, "cgroup.subtree_control"), []byte("+memory"), 0)
	}
	return nil
}

func (g groups) prepare(uid string) (string, error) {
	dir := filepath.Join(g.base, uid)
	// Anew when nothing is in it, so that counters and marks are of this start.
	if err := g.remove(uid); err != nil && !errors.Is(err, unix.EBUSY) {
		return "", err
	}
	for try := 0; ; try++ { // another Release may take the empty base away in between
		if err := makeBase(g.base); err != nil {
			return "", err
		}
		err := os.Mkdir(dir, 0o755)
		if err == nil || errors.Is(err, fs.ErrExist) {
			return dir, nil
		}
		if !gone(err) || try >= 10 {
			return "", err
		}
	}
}

// join moves a process into the group.
func (g groups) join(uid string, pid int) error {
	return write(filepath.Join(g.base, uid, "cgroup.procs"), strconv.Itoa(pid))
}

// seal says that nothing of the session is outside of its group.
func (g groups) seal(uid string) error {
	err := os.Mkdir(filepath.Join(g.base, uid, wholeMark), 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// children are the pids of the children of a process, of all its threads.
func children(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		for f := range strings.FieldsSeq(string(b)) {
			if child, err := strconv.Atoi(f); err == nil && child > 1 {
				all = append(all, child)
			}
		}
	}
	return all
}

// group is one look at a session's group.
type group struct {
	exists    bool
	whole     bool // nothing of the session is outside
	populated bool // the kernel says that something is in it
	processes []effects.ProcessID
}

func (g groups) look(uid string) (group, error) {
	var out group
	if g.base == "" {
		return out, nil
	}
	dir := filepath.Join(g.base, uid)
	events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	if gone(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.exists = true
	out.populated = bytes.Contains(events, []byte("populated 1"))
	switch _, err := os.Lstat(filepath.Join(dir, wholeMark)); {
	case err == nil:
		out.whole = true
	case !errors.Is(err, fs.ErrNotExist):
		return out, err
	}
	// Members of groups within are members: programs may make their own.
	err = walk(dir, func(dir string) error {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if gone(err) || errors.Is(err, unix.EOPNOTSUPP) { // a threaded group: listed above it
			return nil
		}
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(procs)) {
			pid, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
			if err != nil || pid < 1 {
				return fmt.Errorf("%s holds a process that cannot be seen from here", dir)
			}
			started, err := StartTime(pid)
			if errors.Is(err, effects.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			out.processes = append(out.processes, effects.ProcessID{PID: pid, StartTime: started})
		}
		return nil
	})
	return out, err
}

// walk calls f for dir and then for each group within.
func walk(dir string, f func(dir string) error) error {
	if err := f(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := walk(filepath.Join(dir, e.Name()), f); err != nil {
				return err
			}
		}
	}
	return nil
}

// gone tells whether a group was removed, before or while it was read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// kill ends all in the group and below at one stroke.
func (g groups) kill(uid string) error {
	return write(filepath.Join(g.base, uid, "cgroup.kill"), "1")
}

func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// release removes the group, and the base when that was the last.
func (g groups) release(uid string) error {
	if g.base == "" {
		return nil
	}
	if err := g.remove(uid); err != nil {
		return err
	}
	_ = os.Remove(g.base) // only when it is empty
	return nil
}

// remove removes the group and the groups within. A process that just ended
// holds its group for a moment longer than its pid.
func (g groups) remove(uid string) error {
	dir := filepath.Join(g.base, uid)
	for try := 0; ; try++ {
		var dirs []string
		err := walk(dir, func(d string) error {
			dirs = append(dirs, d)
			return nil
		})
		for i := len(dirs) - 1; i >= 0 && err == nil; i-- {
			if err = unix.Rmdir(dirs[i]); gone(err) {
				err = nil
			}
		}
		if err == nil || try >= 20 || !errors.Is(err, unix.EBUSY) {
			return err
		}
		if now, lookErr := g.look(uid); lookErr != nil || len(now.processes) > 0 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// oomKills is how many processes of the group the kernel killed for want of
// memory.
func (g groups) oomKills(uid string) (int, error) {
	if g.base == "" {
		return 0, nil
	}
	events, err := os.ReadFile(filepath.Join(g.base, uid, "memory.events"))
	if gone(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(events)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return 0, nil
}
