//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skc.dev/skc/effects/process"
)

// world is one skcd on a home of its own.
type world struct {
	s    settings
	dir  string
	cmd  *exec.Cmd
	args []string
	http *http.Client
}

func newWorld(s settings, args ...string) (*world, error) {
	dir, err := os.MkdirTemp("", "skcb")
	if err != nil {
		return nil, err
	}
	w := &world{s: s, dir: dir, args: append(args, s.args...)}
	for _, d := range []string{w.spool(), filepath.Join(dir, "work"), filepath.Join(dir, "stage")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	w.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "home/run/skcd.sock"))
	}}}
	return w, nil
}

func (w *world) spool() string { return filepath.Join(w.dir, "home/spool") }
func (w *world) state() string { return filepath.Join(w.dir, "home/state") }

// start returns when skcd is ready.
func (w *world) start() error {
	w.cmd = exec.Command(filepath.Join(w.s.bin, "skcd"), append([]string{"--home", filepath.Join(w.dir, "home")}, w.args...)...)
	log, err := os.OpenFile(filepath.Join(w.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w.cmd.Stderr = log
	if err := w.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(500 * time.Microsecond) {
		if resp, err := w.http.Get("http://skcd/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	return fmt.Errorf("skcd is not ready after a minute; see %s/log", w.dir)
}

func (w *world) stop() {
	if w.cmd != nil {
		_ = w.cmd.Process.Signal(syscall.SIGTERM)
		_ = w.cmd.Wait()
		w.cmd = nil
	}
}

func (w *world) close() {
	w.stop()
	_ = exec.Command("tmux", "-S", filepath.Join(w.dir, "home/run/tmux.sock"), "kill-server").Run()
	groups := process.NewSessions(true)
	objects := filepath.Join(w.state(), "objects/session/default")
	files, _ := filepath.Glob(filepath.Join(objects, "*.yaml"))
	for _, f := range files { // nobody deletes these sessions, so nobody else releases their groups
		b, _ := os.ReadFile(f)
		if _, rest, ok := strings.Cut(string(b), "\n  uid: "); ok {
			uid, _, _ := strings.Cut(rest, "\n")
			_ = groups.Release(strings.Trim(uid, `"`))
		}
	}
	_ = os.RemoveAll(w.dir)
}

// metric reads one of skcd's counts.
func (w *world) metric(name string) (float64, error) {
	resp, err := w.http.Get("http://skcd/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read from
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), name+" "); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// file is the text of one Session.
func (w *world) file(name, command, more string) string {
	return w.fileAt(name, fmt.Sprintf("existingPath: {path: %s}", filepath.Join(w.dir, "work")), command, more)
}

// fileAt is the text of one Session with that target.
func (w *world) fileAt(name, target, command, more string) string {
	return fmt.Sprintf("apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: %s}\nspec:\n  target: {%s}\n  command: %s\n  restartPolicy: Always\n  terminal: {columns: 200, rows: 50}\n%s",
		name, target, command, more)
}

// drop renames a file into the spool, as editors and git do.
func (w *world) drop(name, text string) error {
	tmp := filepath.Join(w.dir, "stage", name+".yaml")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(w.spool(), name+".yaml"))
}

// untilReady waits until the state files of all names say Ready. It reads each
// until it does, so it costs some of the machine that it measures.
func (w *world) untilReady(names []string) error {
	left := append([]string(nil), names...)
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for len(left) > 0 && w.ready(left[len(left)-1]) {
			left = left[:len(left)-1]
		}
		if len(left) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d of %d are not ready, among them %s; see %s", len(left), len(names), left[0], w.dir)
}

func (w *world) ready(name string) bool {
	b, err := os.ReadFile(filepath.Join(w.state(), "objects/session/default", name+".yaml"))
	return err == nil && strings.Contains(string(b), "status: \"True\"\n    type: Ready")
}

// panePID reads the pid of the program from the state file.
func (w *world) panePID(name string) (int, error) {
	b, err := os.ReadFile(filepath.Join(w.state(), "objects/session/default", name+".yaml"))
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(l), "panePID: "); ok {
			pid, err := strconv.Atoi(v)
			if err != nil || pid < 2 {
				return 0, fmt.Errorf("panePID %q", v)
			}
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no panePID of %s", name)
}

// serverPID is the tmux server's.
func (w *world) serverPID() int {
	out, _ := exec.Command("tmux", "-S", filepath.Join(w.dir, "home/run/tmux.sock"), "display-message", "-p", "#{pid}").Output()
	pid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	return pid
}

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return all
}
