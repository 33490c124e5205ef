package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/sets"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/lease"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/tmux"
)

// level is how bad what a check found is.
type level string

const (
	levelOK   level = "OK"
	levelWarn level = "WARN"
	levelFail level = "FAIL"
)

// finding is one line of doctor.
type finding struct {
	Level   level  `json:"level"`
	Check   string `json:"check"`
	Message string `json:"message"`
	Do      string `json:"do,omitempty"` // what helps
}

type doctorOptions struct {
	*cli
	output string
}

func newDoctor(c *cli) *cobra.Command {
	o := &doctorOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with this machine and home, and say what helps",
		Example: `  skcctl doctor
  skcctl doctor -o json`,
		Long: "It changes nothing. It fails when a check does.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), o) },
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "`FORM` of the output: json")
	return cmd
}

func runDoctor(ctx context.Context, o *doctorOptions) error {
	if o.output != "" && o.output != "json" {
		return usagef("output %q is not json", o.output)
	}
	h, err := o.home()
	if err != nil {
		return err
	}
	var all []finding
	for _, check := range []func(context.Context, *cli, home.Home) []finding{
		checkTmux, checkGit, checkFolders, checkController, checkSources, checkState, checkServer, checkQuarantine, checkLimits,
	} {
		all = append(all, check(ctx, o.cli, h)...)
	}
	if o.output == "json" {
		err = writeJSON(o.out, all)
	} else {
		tabs := tabwriter.NewWriter(o.out, 0, 8, 2, ' ', 0)
		for _, f := range all {
			text := f.Message
			if f.Do != "" {
				text += "; " + f.Do
			}
			fmt.Fprintf(tabs, "%s\t%s\t%s\n", f.Level, f.Check, inertLine(text)) //nolint:errcheck // Flush tells
		}
		err = tabs.Flush()
	}
	if err != nil {
		return err
	}
	failed := 0
	for _, f := range all {
		if f.Level == levelFail {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d checks failed", failed)
	}
	return nil
}

func checkTmux(ctx context.Context, _ *cli, _ home.Home) []finding {
	path, err := exec.LookPath("tmux")
	if err != nil {
		return []finding{{levelFail, "tmux", "there is no tmux in PATH", "install it: apt install tmux, or brew install tmux"}}
	}
	out, err := exec.CommandContext(ctx, path, "-V").Output()
	if err != nil {
		return []finding{{levelFail, "tmux", fmt.Sprintf("%s -V: %v", path, err), "install it anew"}}
	}
	version := strings.TrimSpace(string(out))
	var major, minor int
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "tmux "), "%d.%d", &major, &minor); err == nil && (major < 3 || major == 3 && minor < 3) {
		return []finding{{levelFail, "tmux", version + " at " + path, "skc needs tmux 3.3 or newer"}}
	}
	return []finding{{levelOK, "tmux", version + " at " + path, ""}}
}

// checkGit looks for the git that worktrees are made with. Sessions in other
// folders need none.
func checkGit(ctx context.Context, _ *cli, _ home.Home) []finding {
	path, err := exec.LookPath("git")
	if err != nil {
		return []finding{{levelWarn, "git", "there is no git in PATH, so no worktree can be made, looked at or given back", "install it: apt install git, or brew install git"}}
	}
	out, err := exec.CommandContext(ctx, path, "version").Output()
	if err != nil {
		return []finding{{levelWarn, "git", fmt.Sprintf("%s version: %v", path, err), "install it anew"}}
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	var major, minor int
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "git version "), "%d.%d", &major, &minor); err == nil && (major < 2 || major == 2 && minor < 36) {
		return []finding{{levelWarn, "git", version + " at " + path, "worktrees need git 2.36 or newer"}}
	}
	return []finding{{levelOK, "git", version + " at " + path, ""}}
}

func checkFolders(_ context.Context, _ *cli, h home.Home) []finding {
	var all []finding
	for _, f := range []struct {
		name, dir string
		private   bool
	}{{"spool", h.Spool, false}, {"state", h.State, true}, {"run", h.Run, true}} {
		fi, err := os.Stat(f.dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && f.private:
			all = append(all, finding{levelOK, f.name, f.dir + " is not there yet; skcd makes it", ""})
			continue
		case errors.Is(err, fs.ErrNotExist):
			all = append(all, finding{levelWarn, f.name, f.dir + " is not there", "skcctl apply makes it"})
			continue
		case err != nil:
			all = append(all, finding{levelFail, f.name, err.Error(), "let this user read it"})
			continue
		case !fi.IsDir():
			all = append(all, finding{levelFail, f.name, f.dir + " is no folder", "move it away"})
			continue
		}
		if _, err := os.ReadDir(f.dir); err != nil {
			all = append(all, finding{levelFail, f.name, err.Error(), "let this user read it"})
			continue
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		switch {
		case f.private && ok && int(st.Uid) != os.Geteuid():
			all = append(all, finding{levelFail, f.name, fmt.Sprintf("%s belongs to uid %d", f.dir, st.Uid), "run skc as that user, or choose another --home"})
		case f.private && fi.Mode().Perm()&0o077 != 0:
			all = append(all, finding{levelWarn, f.name, fmt.Sprintf("%s has mode %04o: others can look in", f.dir, fi.Mode().Perm()), "chmod 700 " + f.dir})
		case fi.Mode().Perm()&0o022 != 0:
			all = append(all, finding{levelWarn, f.name, fmt.Sprintf("%s has mode %04o: whoever writes there runs programs as you", f.dir, fi.Mode().Perm()), "chmod go-w " + f.dir})
		default:
			all = append(all, finding{levelOK, f.name, f.dir, ""})
		}
	}
	return all
}

func checkController(ctx context.Context, _ *cli, h home.Home) []finding {
	held, hint, err := lease.Held(h.Lock())
	if err != nil {
		return []finding{{levelFail, "controller", err.Error(), "let this user read " + h.Lock()}}
	}
	if !held {
		return []finding{{levelWarn, "controller", "skcd is not running for this home; sessions go on and nothing looks after them", "start it: skcd, or systemctl --user start skcd"}}
	}
	if hint != "" {
		hint = " (" + hint + ")"
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", h.ControlSocket())
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://skcd/healthz", nil)
	if err != nil {
		return []finding{{levelFail, "controller", err.Error(), ""}}
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return []finding{{levelFail, "controller", "skcd owns this home" + hint + " and does not answer: " + err.Error(), "look at its log; end it and start it again, sessions go on meanwhile"}}
	}
	defer res.Body.Close() //nolint:errcheck // only read from
	if res.StatusCode != http.StatusOK {
		return []finding{{levelFail, "controller", fmt.Sprintf("skcd%s says that it is not well: %s", hint, res.Status), "look at its log"}}
	}
	return []finding{{levelOK, "controller", "skcd is running" + hint, ""}}
}

func checkSources(_ context.Context, c *cli, h home.Home) []finding {
	list, err := c.readSources(h)
	if err != nil {
		return []finding{{levelFail, "sources", err.Error(), "let this user read the spool"}}
	}
	var all []finding
	files := 0
	for _, s := range list {
		if s.Type == sourceFile {
			files++
		}
		if s.bad() {
			first, _, _ := strings.Cut(s.Message, "\n")
			all = append(all, finding{levelWarn, "sources", fmt.Sprintf("%s: %s: %s", s.Path, s.State, first), "skcctl get sources -o wide tells all"})
		}
	}
	if len(all) == 0 {
		all = append(all, finding{levelOK, "sources", fmt.Sprintf("%d files, all accepted", files), ""})
	}
	return all
}

func checkState(_ context.Context, _ *cli, h home.Home) []finding {
	var all []finding
	n := 0
	for _, kind := range v1alpha1.Kinds() {
		objects, err := store.Client{Dir: h.Objects()}.List(kind, "")
		n += len(objects)
		if err != nil {
			all = append(all, finding{levelFail, "objects", err.Error(), "skcd sets a damaged file aside when it starts; one of a newer version needs the newer skcd"})
		}
	}
	if len(all) == 0 {
		all = append(all, finding{levelOK, "objects", fmt.Sprintf("%d", n), ""})
	}
	return all
}

// checkServer asks the private tmux server whether it answers, and whether it
// holds sessions that no object owns.
func checkServer(ctx context.Context, _ *cli, h home.Home) []finding {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := os.Lstat(h.TmuxSocket()); errors.Is(err, fs.ErrNotExist) {
		return []finding{{levelOK, "tmux server", "there is none at " + h.TmuxSocket(), ""}}
	}
	panes, err := tmux.ListOnce(ctx, tmuxProgram, h.TmuxSocket())
	switch {
	case errors.Is(err, effects.ErrUnavailable):
		return []finding{{levelFail, "tmux server", err.Error(), "install tmux"}}
	case err != nil:
		return []finding{{levelFail, "tmux server", err.Error(), "what runs there goes on; see whether the tmux process lives before it is ended"}}
	}
	owners := sets.New[string]()
	for _, kind := range v1alpha1.Kinds() {
		objects, err := store.Client{Dir: h.Objects()}.List(kind, "")
		if err != nil {
			return []finding{{levelWarn, "tmux server", "cannot tell whose its sessions are: not all objects can be read", ""}}
		}
		for _, o := range objects {
			owners.Insert(string(o.GetUID()))
		}
	}
	var all []finding
	for _, p := range panes {
		if !owners.Has(p.Launch.UID) {
			all = append(all, finding{levelWarn, "tmux server", fmt.Sprintf("session %s (%s, pid %d) carries the unknown UID %s", p.SessionID, p.Name, p.Process.PID, p.Launch.UID), "look at it, then: tmux -S " + h.TmuxSocket() + " kill-session -t '" + p.SessionID + "'"})
		}
	}
	if len(all) == 0 {
		all = append(all, finding{levelOK, "tmux server", fmt.Sprintf("answers, holds %d sessions", len(panes)), ""})
	}
	return all
}

// checkQuarantine tells how much is set aside, by file system: nothing is moved
// from one to another, so each holds its own.
func checkQuarantine(_ context.Context, _ *cli, h home.Home) []finding {
	objects, err := store.Client{Dir: h.Objects()}.List(v1alpha1.KindQuarantine, "")
	if err != nil {
		return []finding{{levelWarn, "quarantine", "not all that is set aside is known: " + err.Error(), ""}}
	}
	type disk struct {
		path   string // of one thing on it
		things int
		bytes  int64
		known  bool // no size is missing
	}
	disks := map[uint64]*disk{}
	for _, o := range objects {
		q, ok := o.(*v1alpha1.Quarantine)
		if !ok || q.Status.Path == "" || !holds(q) {
			continue
		}
		var st unix.Stat_t
		if err := unix.Lstat(q.Status.Path, &st); err != nil {
			continue // said by the object's own conditions
		}
		d := disks[uint64(st.Dev)]
		if d == nil {
			d = &disk{path: q.Status.Path, known: true}
			disks[uint64(st.Dev)] = d
		}
		d.things++
		if x := q.Status.Size; x != nil {
			d.bytes += x.Bytes
		} else {
			d.known = false
		}
	}
	if len(disks) == 0 {
		return []finding{{levelOK, "quarantine", "holds nothing", ""}}
	}
	var all []finding
	for _, dev := range slices.Sorted(maps.Keys(disks)) {
		d := disks[dev]
		var fs unix.Statfs_t
		f := finding{levelOK, "quarantine", fmt.Sprintf("%s in things set aside: %d, on the file system of %s", size(d.bytes), d.things, filepath.Dir(d.path)), ""}
		if !d.known {
			f.Message += " (not all of it is counted yet)"
		}
		if err := unix.Statfs(d.path, &fs); err == nil && fs.Blocks > 0 {
			free := int64(fs.Bavail) * int64(fs.Bsize)
			f.Message += fmt.Sprintf(", which has %s left", size(free))
			if float64(fs.Bavail) < 0.05*float64(fs.Blocks) {
				f.Level, f.Do = levelWarn, "nothing is purged before its deadline because of that; skcctl get quarantines --sort-by .status.size.bytes, and skcctl purge what is not wanted back"
			}
		}
		all = append(all, f)
	}
	return all
}

// checkLimits looks at what the kernel has left.
func checkLimits(_ context.Context, _ *cli, _ home.Home) []finding {
	var all []finding
	for _, l := range readLimits() {
		f := finding{levelOK, l.name, fmt.Sprintf("%d of %d used", l.used, l.max), ""}
		if l.used < 0 {
			f.Message = fmt.Sprintf("at most %d", l.max)
		}
		switch {
		case l.max < l.least:
			f.Level, f.Do = levelWarn, l.raise
		case l.used >= 0 && l.max-l.used < l.least:
			f.Level, f.Do = levelWarn, l.raise
			if l.used >= l.max {
				f.Level = levelFail
			}
		}
		all = append(all, f)
	}
	return all
}

// limit is something of which the kernel has only so much.
type limit struct {
	name      string
	used, max int // used is -1 when that cannot be known
	least     int // fewer left than this is worth a warning
	raise     string
}
