//go:build e2e

package world

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"skc.dev/skc/api/v1alpha1"
)

// close sees what skc left behind, then removes the world.
func (w *World) close() {
	w.Helper()
	if w.Failed() {
		w.dump()
	}
	defer w.sweep()
	if w.now != nil && w.now.Alive() && !w.Failed() {
		w.checkOrphans()
	}
	w.Stop(syscall.SIGTERM)
	if !w.Failed() {
		w.checkFiles()
		w.checkLogs()
	}
	if w.Failed() {
		w.dumpLogs()
	}
}

// objects are the sessions that the state files hold, by UID.
func (w *World) objects() map[string]string {
	all := map[string]string{}
	_ = filepath.WalkDir(filepath.Join(w.State, "objects"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(path, ".yaml") {
			return nil
		}
		data, err := os.ReadFile(path)
		s := &v1alpha1.Session{}
		if err == nil && yaml.Unmarshal(data, s) == nil {
			all[string(s.UID)] = s.Name
		}
		return nil
	})
	return all
}

// checkOrphans waits a little, and then fails on each process and each tmux
// session that belongs to no object.
func (w *World) checkOrphans() {
	w.Helper()
	var orphans []string
	for begin := time.Now(); ; time.Sleep(10 * look) {
		orphans = nil
		owned := w.objects()
		for _, p := range w.Procs() {
			if owned[p.UID] == "" {
				orphans = append(orphans, fmt.Sprintf("process %d of %s (%s): %q", p.PID, p.Name, p.UID, p.Args))
			}
		}
		for uid := range w.seen {
			if dir := Group(uid); dir != "" && owned[uid] == "" {
				orphans = append(orphans, "control group "+dir)
			}
		}
		if len(w.Servers()) > 1 {
			orphans = append(orphans, fmt.Sprintf("tmux servers %v", w.Servers()))
		}
		if out, err := w.Tmux("list-panes", "-a", "-F", "#{session_name} #{pane_start_command}"); err == nil {
			for _, line := range strings.Split(out, "\n") {
				if m := launchName.FindStringSubmatch(line); m != nil && owned[m[1]] == "" {
					orphans = append(orphans, "tmux session "+line)
				}
			}
		}
		if len(orphans) == 0 || time.Since(begin) > 5*time.Second {
			break
		}
	}
	for _, o := range orphans {
		w.Errorf("nobody owns the %s", o)
	}
}

var (
	launchName = regexp.MustCompile(`([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.[0-9]+\.[0-9]+`)
	temporary  = regexp.MustCompile(`\.tmp$`)
)

// checkFiles fails on a temporary, a launch file that nobody took, a file that
// others may use, and the canary.
func (w *World) checkFiles() {
	w.Helper()
	for _, dir := range []string{w.State, w.Run} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			fi, err := d.Info()
			if err != nil {
				return err
			}
			if path == filepath.Join(w.State, "quarantine", "things") && fi.Mode().Perm() == 0o700 {
				return fs.SkipDir // what lies in it is the user's own
			}
			if fi.Mode().Perm()&0o077 != 0 && fi.Mode()&fs.ModeSymlink == 0 {
				w.Errorf("%s has the mode %s", path, fi.Mode())
			}
			if temporary.MatchString(path) {
				w.Errorf("the temporary %s is left", path)
			}
			if !fi.Mode().IsRegular() {
				return nil
			}
			if filepath.Base(filepath.Dir(path)) == "launch" && launchName.MatchString(filepath.Base(path)) {
				w.Errorf("the launch file %s is left", path)
			}
			data, err := os.ReadFile(path)
			if err == nil && bytes.Contains(data, []byte(w.canary)) {
				w.Errorf("%s holds the canary", path)
			}
			return err
		})
		if err != nil {
			w.Error(err)
		}
	}
}

func (w *World) checkLogs() {
	w.Helper()
	for _, c := range w.all {
		text := c.Text()
		for _, bad := range []string{"panic", "goroutine ", w.canary} {
			if strings.Contains(text, bad) {
				w.Errorf("the log %s has %q:\n%s", c.Log, bad, text)
			}
		}
	}
}

func (w *World) dump() {
	for _, args := range [][]string{{"get", "-A", "-o", "wide"}, {"get", "sources", "-o", "wide"}, {"describe", "-A"}} {
		r := w.Ctl(args...)
		w.Logf("skcctl %s:\n%s%s", strings.Join(args, " "), clip(r.Out), r.Err)
	}
	for _, p := range w.Procs() {
		w.Logf("process %d of %s, parent %d: %q", p.PID, p.Name, parent(p.PID), p.Args)
	}
	w.Logf("tmux servers: %v", w.Servers())
	w.dumpLogs()
}

func (w *World) dumpLogs() {
	for _, c := range w.all[max(0, len(w.all)-3):] {
		if b, err := os.ReadFile(c.Log); err == nil {
			w.Logf("%s:\n%s", c.Log, clip(string(b)))
		}
	}
}

// clip keeps the end of a long text.
func clip(s string) string {
	const most = 12000
	if len(s) > most {
		return "...\n" + s[len(s)-most:]
	}
	return s
}

// sweep removes all that is left of the world, whoever left it.
func (w *World) sweep() {
	for _, c := range w.all {
		if c.Alive() {
			_ = c.Cmd.Process.Kill()
			<-c.Done
		}
	}
	for _, pid := range w.Servers() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	uids := map[string]string{}
	for uid := range w.seen {
		uids[uid] = ""
	}
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(look) {
		all := w.Procs()
		if len(all) == 0 && len(w.Servers()) == 0 {
			break
		}
		for _, p := range all {
			uids[p.UID] = ""
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	for uid := range w.objects() {
		uids[uid] = ""
	}
	for uid := range uids {
		w.removeGroup(uid)
	}
	for _, c := range w.all {
		_ = os.Remove(c.Log)
	}
	for _, fn := range w.removal {
		fn()
	}
	if os.Getenv("SKCE_KEEP") == "" {
		Must(w, os.RemoveAll(w.Dir))
	}
}

// groups is where the sessions' control groups may be.
func groups() []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		left, right, ok := strings.Cut(line, " - ")
		if f := strings.Fields(left); ok && len(f) > 4 && strings.HasPrefix(right, "cgroup2 ") {
			return []string{filepath.Join(f[4], "skc")}
		}
	}
	return nil
}

// Group is the control group of a session, "" when it has none.
func Group(uid string) string {
	for _, base := range groups() {
		if dir := filepath.Join(base, uid); uid != "" {
			if _, err := os.Stat(dir); err == nil {
				return dir
			}
		}
	}
	return ""
}

func (w *World) removeGroup(uid string) {
	dir := Group(uid)
	if dir == "" {
		return
	}
	var all []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	slices.Reverse(all)
	for _, d := range all {
		_ = os.Remove(d)
	}
}
