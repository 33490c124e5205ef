//go:build e2e

package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/hack/e2e/world"
)

// userTmux is a tmux of the user's own, beside the private one.
type userTmux struct {
	w      *world.World
	socket string
}

func newUserTmux(w *world.World, config string) userTmux {
	w.Helper()
	u := userTmux{w, filepath.Join(w.Dir, "user.sock")}
	conf := filepath.Join(w.Dir, "user.conf")
	w.Write(conf, config)
	u.run("-f", conf, "new-session", "-d", "-s", "mine", "-x", "150", "-y", "40", "sleep 6000")
	w.BeforeRemoval(func() { _ = exec.Command("tmux", "-S", u.socket, "kill-server").Run() })
	return u
}

func (u userTmux) run(args ...string) string {
	u.w.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", u.socket}, args...)...)
	cmd.Env = append(os.Environ(), "TMUX=", "TERM=screen-256color")
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.w.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// attach opens a terminal that is attached to a session, as skcctl does it, and
// returns the name of that terminal.
func (u userTmux) attach(name string) string {
	u.w.Helper()
	env := fmt.Sprintf("SKC_HOME=%s TMUX=%s,1,0", u.w.Home, u.socket)
	u.run("new-session", "-d", "-s", "on-"+name, "-x", "150", "-y", "40",
		fmt.Sprintf("%s %s/skcctl attach %s", env, u.w.Bin, name))
	u.w.Until("somebody is attached to "+name, func() bool {
		out, _ := u.w.Tmux("list-clients", "-F", "#{session_name} #{client_control_mode}")
		return slices.Contains(strings.Split(out, "\n"), name+" 0")
	})
	return "on-" + name
}

// B-001, case 001: a dotted name is refused at the door with the rule, by apply
// and by the spool, and nothing of it exists.
func TestB001DottedNameIsRefused(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	text := caseFile(w, "001-name-with-dot", "dotted.yaml")
	r := w.CtlIn(text, "apply", "-f", "-")
	if r.Code != 3 || !strings.Contains(r.Err, "rel-3.1.9") || !strings.Contains(r.Err, "a-z, 0-9 and '-'") {
		t.Errorf("apply: code %d, %s", r.Code, r.Err)
	}
	if files, _ := os.ReadDir(w.Spool); len(files) != 0 {
		t.Errorf("apply left %v in the spool", files)
	}
	w.Drop("dotted.yaml", text)
	w.Until("get sources shows it", func() bool {
		return strings.Contains(w.MustCtl("get", "sources"), "Invalid")
	})
	out := w.MustCtl("get", "sources", "-o", "wide")
	if !strings.Contains(out, "a-z, 0-9 and '-'") {
		t.Errorf("the rule is not told:\n%s", out)
	}
	for _, args := range [][]string{{"get", "rel-3.1.9"}, {"attach", "rel-3.1.9"}, {"stop", "rel-3.1.9"}, {"delete", "session", "rel-3.1.9"}} {
		if r := w.Ctl(args...); r.Code != 2 || !strings.Contains(r.Err, "a-z, 0-9 and '-'") {
			t.Errorf("skcctl %q: code %d, %s", args, r.Code, r.Err)
		}
	}
	if n := len(w.Procs()); n != 0 {
		t.Errorf("%d processes run", n)
	}
}

// B-004: agent-1 is stopped, deleted and applied again beside agent-10; every
// verb reaches the one that it names.
func TestB004PrefixSibling(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	one, ten := session("agent-1", "[cat]"), session("agent-10", "[cat]")
	w.Apply(one)
	w.Apply(ten)
	first, p10 := w.UntilRunning("agent-1"), w.UntilRunning("agent-10")
	w.MustCtl("send", "agent-1", "for-the-short-one", "--enter")
	w.MustCtl("stop", "agent-1")
	w.UntilCondition("agent-1", "Ready", "True/Stopped")
	if r := w.Ctl("send", "agent-1", "x", "--enter"); r.Code == 0 {
		t.Error("text was sent to a session that does not run")
	}
	w.MustCtl("delete", "session", "agent-1", "--wait")
	w.UntilGone("agent-1")
	if r := w.Ctl("send", "agent-1", "x", "--enter"); r.Code != 4 {
		t.Errorf("send to a deleted session ended with %d, want 4: %s", r.Code, r.Err)
	}
	w.Apply(one)
	if again := w.UntilRunning("agent-1"); again == first {
		t.Error("agent-1 was not started again")
	}
	if p := w.Main("agent-10"); p != p10 {
		t.Errorf("agent-10 went from %d to %d", p10, p)
	}
	if out := w.MustCtl("logs", "agent-10"); strings.TrimSpace(out) != "" {
		t.Errorf("agent-10 was typed into: %q", out)
	}
}

// B-005: two homes of one user; what is meant for bill never reaches billing, in
// the same home or in the other.
func TestB005TwoInstallsShareNothing(t *testing.T) {
	t.Parallel()
	a, b := world.New(t), world.New(t)
	a.Start()
	b.Start()
	a.Apply(session("bill", "[cat]", "restartPolicy: Never"))
	a.Apply(session("billing", "[cat]"))
	b.Apply(session("billing", "[cat]"))
	a.UntilRunning("bill")
	pa, pb := a.UntilRunning("billing"), b.UntilRunning("billing")
	if a.Servers()[0] == b.Servers()[0] {
		t.Fatal("two homes share a tmux server")
	}
	a.MustTmux("kill-session", "-t", "=bill")
	a.UntilCondition("bill", "Ready", "False/SessionKilled")
	if r := a.Ctl("send", "bill", "rm -rf", "--enter"); r.Code != 9 {
		t.Errorf("send ended with %d, want 9: %s", r.Code, r.Err)
	}
	if r := a.Ctl("attach", "bill"); r.Code != 9 {
		t.Errorf("attach ended with %d, want 9: %s", r.Code, r.Err)
	}
	a.MustCtl("stop", "bill")
	a.UntilCondition("bill", "Ready", "True/Stopped")
	for _, w := range []*world.World{a, b} {
		if out := w.MustCtl("logs", "billing"); strings.TrimSpace(out) != "" {
			t.Errorf("billing got %q", out)
		}
	}
	if a.Main("billing") != pa || b.Main("billing") != pb {
		t.Error("billing was restarted")
	}
}

// B-007: two folders with the same last part, and two namespaces with the same
// name, are different sessions.
func TestB007SameBasename(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	text := "apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: %s, namespace: %s}\nspec: {target: {plainDir: {path: \"@WORK@/%s/api\"}}, command: [sh, -c, \"pwd > here; exec sleep 6000\"]}\n"
	w.Apply(fmt.Sprintf(text, "one", "default", "a"))
	w.Apply(fmt.Sprintf(text, "two", "default", "b"))
	w.Apply(fmt.Sprintf(text, "one", "other", "c"))
	pids := map[int]bool{w.UntilRunning("one"): true, w.UntilRunning("two"): true, w.UntilRunning("other/one"): true}
	if len(pids) != 3 {
		t.Errorf("three sessions share %v", pids)
	}
	for _, d := range []string{"a/api", "b/api", "c/api"} {
		d := d
		w.Until(d+" is where it runs", func() bool {
			l := w.Lines(d + "/here")
			return len(l) == 1 && l[0] == filepath.Join(w.Work, d)
		})
	}
}

// B-008: the same under C, POSIX and UTF-8: adopted once, exact bytes.
func TestB008Locales(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Env = []string{"LC_ALL=C"}
	w.Start()
	w.Apply("apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: loc, annotations: {note: \"日本-é\"}}\nspec: {target: {plainDir: {path: \"@WORK@/日本-é\"}}, command: [sh, -c, \"printf %s \\\"$1\\\" > out; exec sleep 6000\", x, \"日本-é\"]}\n")
	p := w.UntilRunning("loc")
	w.Until("the program got the bytes", func() bool {
		l := w.Lines("日本-é/out")
		return len(l) == 1 && l[0] == "日本-é"
	})
	for _, locale := range []string{"LC_ALL=POSIX", "LC_ALL=C.UTF-8", "LC_ALL=C"} {
		w.Stop(syscall.SIGTERM)
		w.Env = []string{locale}
		w.Start()
		if again := w.UntilRunning("loc"); again != p {
			t.Errorf("%s: the pid went from %d to %d", locale, p, again)
		}
		if note := w.Status("loc").Annotations["note"]; note != "日本-é" {
			t.Errorf("%s: the annotation is %q", locale, note)
		}
		if out := w.MustCtl("get", "loc", "-o", "jsonpath={.metadata.annotations.note}"); out != "日本-é" {
			t.Errorf("%s: skcctl prints %q", locale, out)
		}
	}
	r := w.CtlIn("apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: 日本-é}\nspec: {target: {plainDir: {path: /tmp}}, command: [cat]}\n", "apply", "-f", "-")
	if r.Code != 3 {
		t.Errorf("a name that is not ASCII: code %d, %s", r.Code, r.Err)
	}
}

// B-016: the user's tmux config means nothing to managed sessions, and the
// user's server is not touched.
func TestB016PersonalTmuxConfig(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	trap := filepath.Join(w.Dir, "trapped")
	config := fmt.Sprintf("set -g default-command 'touch %s; sleep 6000'\nset -g base-index 5\nset -g pane-base-index 3\nset-hook -g after-new-session 'run-shell \"touch %s\"'\nset-hook -g session-created 'run-shell \"touch %s\"'\nset -g exit-empty on\n", trap, trap, trap)
	w.Write(filepath.Join(w.Dir, ".tmux.conf"), config)
	world.Must(t, os.MkdirAll(filepath.Join(w.Dir, ".config", "tmux"), 0o700))
	w.Write(filepath.Join(w.Dir, ".config", "tmux", "tmux.conf"), config)
	u := newUserTmux(w, "set -g base-index 5\nset -g history-limit 4321\n")
	before := u.run("show-options", "-g") + u.run("show-hooks", "-g") + u.run("list-sessions", "-F", "#{session_id} #{session_name}")
	w.Env = []string{"TMUX=" + u.socket + ",1,0", "TMUX_PANE=%0", "XDG_CONFIG_HOME=" + filepath.Join(w.Dir, ".config")}
	w.Start()
	w.Apply(session("plain", sleeper))
	p := w.UntilRunning("plain")
	w.Until("the right program runs", func() bool { return slices.Equal(world.Args(p), []string{"sleep", "6000"}) })
	w.MustCtl("send", "plain", "hello")
	w.MustCtl("restart", "plain")
	w.Until("it is restarted", func() bool { m := w.Mains("plain"); return len(m) == 1 && m[0] != p })
	if _, err := os.Stat(trap); !os.IsNotExist(err) {
		t.Error("the user's config ran")
	}
	if out := w.MustTmux("show-options", "-gv", "base-index"); out != "0" {
		t.Errorf("base-index of the private server is %s", out)
	}
	after := u.run("show-options", "-g") + u.run("show-hooks", "-g") + u.run("list-sessions", "-F", "#{session_id} #{session_name}")
	if before != after {
		t.Errorf("the user's server changed:\n%s\nto\n%s", before, after)
	}
}

// B-017: another place for the socket (the XDG folders), TMUX of another
// server set: every verb uses the one private server.
func TestB017CustomSocketFolder(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	u := newUserTmux(w, "")
	x := filepath.Join(w.Dir, "x")
	for _, d := range []string{"config/skc/spool", "state", "r"} {
		world.Must(t, os.MkdirAll(filepath.Join(x, d), 0o700))
	}
	world.Must(t, os.Rename(filepath.Join(w.Home, "skcd.yaml"), filepath.Join(x, "config/skc/skcd.yaml")))
	w.Spool, w.State, w.Run = filepath.Join(x, "config/skc/spool"), filepath.Join(x, "state/skc"), filepath.Join(x, "r/skc")
	w.Homeless = true
	w.Env = []string{
		"XDG_CONFIG_HOME=" + filepath.Join(x, "config"), "XDG_STATE_HOME=" + filepath.Join(x, "state"), "XDG_RUNTIME_DIR=" + filepath.Join(x, "r"),
		"TMUX=" + u.socket + ",1,0",
	}
	w.Start()
	w.Apply(session("web", "[cat]"))
	w.MustCtl("wait", "web", "--for=condition=Ready", "--timeout=20s")
	p := w.Main("web")
	w.MustCtl("send", "web", "hello", "--enter")
	w.Until("logs shows it", func() bool { return strings.Contains(w.MustCtl("logs", "web"), "hello") })
	if s := w.Status("web"); s.Status.Tmux.Socket != w.Socket() || int(s.Status.Tmux.PanePID) != p {
		t.Errorf("status has %+v", s.Status.Tmux)
	}
	w.Stop(syscall.SIGTERM)
	w.Start()
	if again := w.UntilRunning("web"); again != p {
		t.Errorf("the pid went from %d to %d", p, again)
	}
	w.MustCtl("stop", "web")
	w.MustCtl("wait", "web", "--for=condition=Ready", "--timeout=20s")
	if m := w.Mains("web"); len(m) != 0 {
		t.Errorf("%v run after stop", m)
	}
	w.MustCtl("start", "web")
	w.UntilRunning("web")
	w.MustCtl("delete", "session", "web", "--wait")
	w.UntilGone("web")
	if out := u.run("list-sessions", "-F", "#{session_name}"); out != "mine" {
		t.Errorf("the user's server has %q", out)
	}
	if n := len(w.Servers()); n != 1 {
		t.Errorf("%d private servers", n)
	}
}

// B-023: attached people open windows and panes and leave with another one
// active; only the program's own pane is judged, and the rest goes with the
// session.
func TestB023SecondWindow(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	u := newUserTmux(w, "")
	w.Start()
	w.Apply(session("agent", sleeper))
	p := w.UntilRunning("agent")
	on := u.attach("agent")
	u.run("send-keys", "-t", on, "C-b", "%")
	u.run("send-keys", "-t", on, "C-b", "c")
	panes := func() int {
		return len(strings.Split(w.MustTmux("list-panes", "-s", "-t", "=agent:"), "\n"))
	}
	w.Until("there are three panes", func() bool { return panes() == 3 })
	extra := strings.Split(w.MustTmux("list-panes", "-s", "-t", "=agent:", "-F", "#{pane_pid}"), "\n")
	u.run("send-keys", "-t", on, "C-b", "d")
	w.Until("nobody is attached", func() bool {
		out, _ := w.Tmux("list-clients", "-F", "#{session_name}")
		return !slices.Contains(strings.Split(out, "\n"), "agent")
	})
	w.Always(3*time.Second, "the agent runs and its windows are left alone", func() bool {
		return slices.Equal(w.Mains("agent"), []int{p}) && panes() == 3 && w.Condition("agent", "Ready") == "True/Running"
	})
	u.attach("agent")
	w.MustCtl("restart", "agent")
	w.Until("the program is another one", func() bool { m := w.Mains("agent"); return len(m) == 1 && m[0] != p })
	if n := panes(); n != 3 {
		t.Errorf("%d panes after a restart, want the user's two and the program's", n)
	}
	w.MustCtl("delete", "session", "agent", "--wait")
	w.UntilGone("agent")
	for _, pid := range extra {
		w.Until("the shell of the extra pane is gone", func() bool {
			_, err := os.Stat("/proc/" + pid)
			return os.IsNotExist(err)
		})
	}
}

// B-086, case 039: names and paths that climb are refused by apply and spool
// alike, and nothing outside the folders of skc changes.
func TestB086NamesThatClimb(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	world.Must(t, os.MkdirAll(filepath.Join(w.Work, "x"), 0o700))
	before := tree(w, filepath.Dir(w.Work), w.State, w.Run, w.Spool, w.Now().Log)
	texts := map[string]string{}
	for _, f := range []string{"a", "b", "c", "d", "e", "f"} {
		texts[f] = caseFile(w, "039-names-that-climb", f+".yaml")
	}
	for i, name := range []string{`"/etc/passwd"`, `"nul\0"`, quote(strings.Repeat("x", 300)), `"-rf"`, `"."`, `"a b"`, `"a\nb"`, `"#(touch /tmp/x)"`, `""`} {
		texts[fmt.Sprintf("n%d", i)] = strings.Replace(session("NAME", "[sleep, \"600\"]"), "name: NAME", "name: "+name, 1)
	}
	for i, ns := range []string{`"../up"`, `"a/b"`, `".."`} {
		texts[fmt.Sprintf("s%d", i)] = strings.Replace(session("ok", "[sleep, \"600\"]"), "{name: ok", "{namespace: "+ns+", name: ok", 1)
	}
	for name, text := range texts {
		if r := w.CtlIn(strings.ReplaceAll(text, "@WORK@", w.Work), "apply", "-f", "-"); r.Code != 3 {
			t.Errorf("%s: apply ended with %d: %s", name, r.Code, r.Err)
		}
		w.Drop(name+".yaml", text)
	}
	w.Until("all are refused", func() bool {
		return strings.Count(w.MustCtl("get", "sources"), "Invalid") == len(texts)
	})
	if out := strings.TrimSpace(w.MustCtl("get", "-A", "-o", "name")); out != "" {
		t.Errorf("there are sessions:\n%s", out)
	}
	for name := range texts {
		w.Remove(name + ".yaml")
	}
	if after := tree(w, filepath.Dir(w.Work), w.State, w.Run, w.Spool, w.Now().Log); before != after {
		t.Errorf("outside of skc's folders changed:\n%s\nto\n%s", before, after)
	}
}

// B-086: a link in the place of a session's folder is not followed when the
// session is deleted.
func TestB086LinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	out := filepath.Join(w.Dir, "precious")
	world.Must(t, os.Mkdir(out, 0o700))
	w.Write(filepath.Join(out, "file"), "precious")
	world.Must(t, os.Symlink(out, filepath.Join(w.Work, "link")))
	w.Apply(session("link", sleeper))
	w.UntilRunning("link")
	w.MustCtl("delete", "session", "link", "--wait")
	w.UntilGone("link")
	if b, err := os.ReadFile(filepath.Join(out, "file")); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
}

// tree is what lies below dir: paths, modes, sizes, times, but not below skip.
func tree(w *world.World, dir string, skip ...string) string {
	w.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(skip, path) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		when := fi.ModTime()
		if path == dir || path == filepath.Dir(skip[0]) {
			when = time.Time{} // a test's own temporaries come and go
		}
		fmt.Fprintf(&b, "%s %s %d %d %s\n", path, fi.Mode(), fi.Size(), st.Ino, when)
		return nil
	})
	world.Must(w, err)
	return b.String()
}

// B-088: a tmux session of that name, not ours, in the private server: it is
// named in the status and left alone, whatever becomes of the Session.
func TestB088ForeignSessionIsLeft(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	w.Apply(session("keeper", sleeper)) // has the server started
	w.UntilRunning("keeper")
	w.MustTmux("new-session", "-d", "-s", "web", "sleep 5999")
	w.MustTmux("new-window", "-t", "=web:", "sleep 5998")
	foreign := w.MustTmux("list-panes", "-s", "-t", "=web:", "-F", "#{pane_id} #{pane_pid}")
	w.Apply(session("web", "[no-such-program-qqq]"))
	w.UntilCondition("web", "Ready", "False/NameTaken")
	if m := w.Message("web", "Ready"); !strings.Contains(m, "web") {
		t.Errorf("the message does not name it: %s", m)
	}
	if r := w.Ctl("send", "web", "x"); r.Code == 0 {
		t.Error("text went to a foreign session")
	}
	w.MustCtl("restart", "web")
	w.MustCtl("stop", "web")
	w.UntilCondition("web", "Ready", "True/Stopped")
	w.MustCtl("delete", "session", "web", "--wait")
	w.UntilGone("web")
	if now := w.MustTmux("list-panes", "-s", "-t", "=web:", "-F", "#{pane_id} #{pane_pid}"); now != foreign {
		t.Errorf("the foreign session went from %q to %q", foreign, now)
	}
	w.Apply(session("web", sleeper))
	w.UntilCondition("web", "Ready", "False/NameTaken")
	w.MustTmux("kill-session", "-t", "=web")
	w.UntilRunning("web")
}

// B-089: without a tmux server, and without a tmux, reading works and starts
// none; what should be stopped is.
func TestB089NoTmux(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	bare := filepath.Join(w.Dir, "bare") // a PATH without tmux
	world.Must(t, os.Mkdir(bare, 0o700))
	w.Env = []string{"PATH=" + bare}
	w.Apply(session("idle", "[cat]", "desiredState: Stopped"))
	for _, args := range [][]string{{"get"}, {"get", "-o", "yaml"}, {"get", "idle"}, {"describe", "session", "idle"}, {"get", "sources"}, {"events"}} {
		if r := w.Ctl(args...); r.Code != 0 || !strings.Contains(r.Err, "skcd is not running") {
			t.Errorf("controller down, skcctl %q: code %d, %s", args, r.Code, r.Err)
		}
	}
	w.Start()
	w.UntilCondition("idle", "Ready", "True/Stopped")
	w.Apply(session("busy", "[cat]"))
	w.UntilCondition("busy", "Ready", "Unknown/TmuxMissing")
	for _, args := range [][]string{{"get"}, {"get", "-o", "yaml"}, {"describe"}, {"events"}} {
		w.MustCtl(args...)
	}
	if n := len(w.Servers()); n != 0 {
		t.Errorf("%d servers were started", n)
	}
	w.MustCtl("delete", "session", "busy", "idle", "--wait")
	w.Stop(syscall.SIGTERM)

	w.Env = nil
	w.Apply(session("idle", "[cat]", "desiredState: Stopped"))
	w.Start()
	w.UntilCondition("idle", "Ready", "True/Stopped")
	for _, args := range [][]string{{"get"}, {"get", "-o", "yaml"}, {"describe"}, {"events"}, {"get", "sources"}} {
		w.MustCtl(args...)
	}
	if r := w.Ctl("logs", "idle"); r.Code == 0 && r.Out != "" {
		t.Errorf("logs of what never ran: %q", r.Out)
	}
	if n := len(w.Servers()); n != 0 {
		t.Errorf("a read started %d servers", n)
	}
}
