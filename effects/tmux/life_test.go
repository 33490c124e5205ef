package tmux_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/tmux"
	"skc.dev/skc/effects/tmux/tmuxtest"
)

func quick(o *tmux.Options) { o.Timeout, o.Heartbeat = 2*time.Second, time.Second }

// eventually asks ok often, for what no event of ours tells.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(tmuxtest.Limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("it never came that %s", what)
		}
	}
}

func TestLostSocketIsMadeAgain(t *testing.T) {
	foreign := func(t *testing.T, path string) {
		l, err := net.Listen("unix", path+".x") // renamed, since healing is faster than two steps
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		must(t, os.Rename(path+".x", path))
	}
	remove := func(t *testing.T, path string) { must(t, os.Remove(path)) }
	tests := []struct {
		name      string
		loss      func(t *testing.T, path string)
		connected bool
	}{
		{"removed while connected", remove, true},
		{"replaced by a foreign one while connected", foreign, true},
		{"replaced by a file while connected", func(t *testing.T, path string) {
			must(t, os.WriteFile(path+".x", nil, 0o600))
			must(t, os.Rename(path+".x", path))
		}, true},
		{"removed with its folder while connected", func(t *testing.T, path string) {
			must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".gone"))
		}, true},
		{"removed while no controller ran", remove, false},
		{"replaced by a foreign one while no controller ran", foreign, false},
		{"removed with the record while no controller ran", func(t *testing.T, path string) {
			remove(t, path)
			remove(t, path+".server")
		}, false},
		{"only the record removed", func(t *testing.T, path string) { remove(t, path+".server") }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newReal(t, quick)
			var panes []effects.TmuxPane
			for i := 1; i <= 3; i++ {
				panes = append(panes, r.Start(t, "s"+strconv.Itoa(i), tmuxtest.Launch(i, 1)))
			}
			if !tt.connected {
				r.stop()
			}
			tt.loss(t, r.o.Socket)
			if !tt.connected {
				r.run(t)
			}
			eventually(t, "the socket leads to the server again", func() bool {
				out, err := r.try("display-message", "-p", "#{pid}")
				return err == nil && out == strconv.Itoa(panes[0].Server.PID)
			})
			eventually(t, "the server is written down", func() bool {
				_, err := os.Stat(r.o.Socket + ".server")
				return err == nil
			})
			for _, p := range panes {
				if got, err := r.Get(t.Context(), p.Launch.UID); err != nil || got != p {
					t.Errorf("Get = %+v, %v, want %+v", got, err, p)
				}
			}
			r.Start(t, "s4", tmuxtest.Launch(4, 1))
			if n := r.client.Stats().ServerStarts; tt.connected && n != 1 || !tt.connected && n != 0 {
				t.Errorf("%d servers were started", n)
			}
		})
	}
}

func TestForeignListenerIsNotAdopted(t *testing.T) {
	r := newReal(t, func(o *tmux.Options) {
		o.Timeout = time.Second
		must(t, os.Mkdir(filepath.Dir(o.Socket), 0o700))
		l, err := net.Listen("unix", o.Socket)
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
	})
	_, err := r.Create(t.Context(), tmuxtest.Want("web", tmuxtest.Launch(1, 1)))
	if !errors.Is(err, effects.ErrUnreachable) || errors.Is(err, effects.ErrNotFound) {
		t.Errorf("Create = %v, want ErrUnreachable", err)
	}
	if _, err := r.Get(t.Context(), tmuxtest.UID(1)); !errors.Is(err, effects.ErrUnreachable) {
		t.Errorf("Get = %v, want ErrUnreachable", err)
	}
	if n := r.client.Stats().ServerStarts; n != 0 {
		t.Errorf("%d servers were started", n)
	}
}

func TestServerOfAUserOnOurSocketIsAdopted(t *testing.T) {
	r := newReal(t, func(o *tmux.Options) {
		must(t, os.Mkdir(filepath.Dir(o.Socket), 0o700))
		cmd := exec.Command("tmux", "-S", o.Socket, "-f", "/dev/null", "new-session", "-d", "-s", "mine", "--", "sleep", "1000")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=screen"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	p := r.Start(t, "web", tmuxtest.Launch(1, 1))
	r.Exit(p, 5)
	r.Until(t, "the exit is known", func() bool {
		got, err := r.Get(t.Context(), tmuxtest.UID(1))
		return err == nil && got.ExitKnown && got.ExitCode == 5
	})
	r.tmux(t, "has-session", "-t", "=mine")
	if n := r.client.Stats().ServerStarts; n != 0 {
		t.Errorf("%d servers were started", n)
	}
}

func TestClientKilled(t *testing.T) {
	r := newReal(t, quick)
	p := r.Start(t, "web", tmuxtest.Launch(1, 1))
	for _, what := range []string{"killed", "stopped", "its anchor closed"} {
		pid := r.client.ClientPID()
		switch what {
		case "killed":
			kill(t, pid, unix.SIGKILL)
		case "stopped": // it only holds the connection: nothing is lost
			kill(t, pid, unix.SIGSTOP)
			must(t, r.Look(t.Context()))
			kill(t, pid, unix.SIGKILL)
		default:
			r.tmux(t, "kill-session", "-t", "=_anchor")
		}
		eventually(t, "another client than "+strconv.Itoa(pid)+" is connected after the first was "+what, func() bool {
			now := r.client.ClientPID()
			return now != 0 && now != pid
		})
		if got, err := r.Get(t.Context(), tmuxtest.UID(1)); err != nil || got != p {
			t.Errorf("%s: Get = %+v, %v, want %+v", what, got, err, p)
		}
	}
}

func TestDeathsWithoutAController(t *testing.T) {
	r := newReal(t)
	var panes []effects.TmuxPane
	for i := 1; i <= 20; i++ {
		panes = append(panes, r.Start(t, "s"+strconv.Itoa(i), tmuxtest.Launch(i, 1)))
	}
	r.stop()
	for i, p := range panes {
		r.Exit(p, i+1)
	}
	r.run(t)
	for i, p := range panes {
		r.Until(t, "the exit is known", func() bool {
			got, err := r.Get(t.Context(), p.Launch.UID)
			return err == nil && got.Dead && got.ExitKnown && got.ExitCode == i+1
		})
	}
}

func TestManyDeathsAtOnce(t *testing.T) {
	const n = 200
	r := newReal(t)
	var wg sync.WaitGroup
	gate := filepath.Join(r.o.LaunchDir, "gate")
	must(t, syscall.Mkfifo(gate, 0o600))
	for i := 1; i <= n; i++ {
		l := tmuxtest.Launch(i, 1)
		r.script(t, l, fmt.Sprintf("read x <gate; [ %d -lt 151 ] && exit %d; kill -KILL $$", i, i))
		wg.Go(func() {
			if _, err := r.Create(t.Context(), tmuxtest.Want("s"+strconv.Itoa(i), l)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	must(t, r.Look(t.Context()))
	// Each program waits at the gate for its writer; then all see its end at once.
	f, err := os.OpenFile(gate, os.O_WRONLY, 0)
	must(t, err)
	eventually(t, "all programs wait", func() bool {
		out, err := exec.Command("sh", "-c", "ls /proc/[0-9]*/fd/* -l 2>/dev/null | grep -c -- '-> "+gate+"$'").Output()
		got, _ := strconv.Atoi(strings.TrimSpace(string(out)))
		return err == nil && got == n+1
	})
	must(t, f.Close())
	for i := 1; i <= n; i++ {
		r.Until(t, fmt.Sprintf("the exit of %d is known", i), func() bool {
			p, err := r.Get(t.Context(), tmuxtest.UID(i))
			return err == nil && p.Dead
		})
		p, err := r.Get(t.Context(), tmuxtest.UID(i))
		must(t, err)
		if i < 151 && (!p.ExitKnown || p.ExitCode != i) || i >= 151 && (!p.ExitKnown || p.Signal != "SIGKILL") {
			t.Errorf("session %d = %+v", i, p)
		}
	}
	if s := r.client.Stats(); s.Deaths != n || s.DeathsBlind != 0 {
		t.Errorf("deaths = %d, of them unknown %d, want %d and 0", s.Deaths, s.DeathsBlind, n)
	}
}

func TestOneServerForManyFirstCreates(t *testing.T) {
	r := newReal(t)
	var wg sync.WaitGroup
	for i := 1; i <= 20; i++ {
		r.Prepare(tmuxtest.Launch(i, 1))
		wg.Go(func() {
			if _, err := r.Create(t.Context(), tmuxtest.Want("s"+strconv.Itoa(i), tmuxtest.Launch(i, 1))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := r.client.Stats().ServerStarts; n != 1 {
		t.Errorf("%d servers were started", n)
	}
}

func TestStopOfTheLastSessionDoesNotEndTheServer(t *testing.T) {
	r := newReal(t)
	p := r.Start(t, "s0", tmuxtest.Launch(1, 1))
	server := p.Server
	for i := range 50 {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.Kill(t.Context(), p); err != nil {
				t.Error(err)
			}
		})
		next := r.Start(t, "s"+strconv.Itoa(i+1), tmuxtest.Launch(i+2, 1))
		wg.Wait()
		if next.Server != server {
			t.Fatalf("server = %+v, want %+v", next.Server, server)
		}
		p = next
	}
}

func TestNothingOfTheUserReachesTheServer(t *testing.T) {
	home := t.TempDir()
	mark := filepath.Join(home, "mark")
	conf := "set -g default-command 'touch " + mark + "'\nset -g base-index 5\nset-hook -g session-created 'run-shell \"touch " + mark + "\"'\n"
	must(t, os.WriteFile(filepath.Join(home, ".tmux.conf"), []byte(conf), 0o600))
	t.Setenv("HOME", home)
	t.Setenv("FOO", "first")
	t.Setenv("TMUX", "/nowhere/tmux,1,0")
	t.Setenv("LC_ALL", "C")
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	r := newReal(t)
	l := tmuxtest.Launch(1, 1)
	r.script(t, l, "env >'"+l.FileName()+".env'; pwd -P >pwd; read x <'"+fifo(l)+"'")
	p, err := r.Create(t.Context(), tmuxtest.Want("web", l))
	must(t, err)
	var env string
	eventually(t, "the environment is written", func() bool {
		b, err := os.ReadFile(filepath.Join(r.o.LaunchDir, l.FileName()+".env"))
		env = string(b)
		return err == nil && strings.Contains(env, "TERM=")
	})
	if strings.Contains(env, "FOO=") || strings.Contains(env, "LC_ALL") || strings.Contains(env, "/nowhere") {
		t.Errorf("environment of the pane:\n%s", env)
	}
	if out := r.tmux(t, "show-environment", "-g"); strings.Contains(out, "FOO") {
		t.Errorf("environment of the server:\n%s", out)
	}
	if out := r.tmux(t, "list-windows", "-t", p.SessionID, "-F", "#{window_index}"); out != "0" {
		t.Errorf("window index = %s: the user's file was read", out)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a hook of the user ran")
	}
	for path, want := range map[string]os.FileMode{
		r.o.Socket: os.ModeSocket | 0o600, r.o.Socket + ".server": 0o600, filepath.Dir(r.o.Socket): os.ModeDir | 0o700,
	} {
		fi, err := os.Stat(path)
		must(t, err)
		if fi.Mode()&^0o100 != want&^0o100 || fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("mode of %s = %v, want %v", path, fi.Mode(), want)
		}
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.Server.PID)); err != nil || cwd != "/" {
		t.Errorf("server works in %q, %v", cwd, err)
	}
	if sid, err := unix.Getsid(p.Server.PID); err != nil || sid != p.Server.PID {
		t.Errorf("session of the server = %d, %v, want its own", sid, err)
	}
	if sid, err := unix.Getsid(r.client.ClientPID()); err != nil || sid != r.client.ClientPID() {
		t.Errorf("session of the client = %d, %v, want its own", sid, err)
	}
}

func TestNamesAreReadInAnyLocale(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	r := newReal(t)
	p := r.Start(t, "web", tmuxtest.Launch(1, 1))
	r.Rename(p, "日本-é")
	r.Await(t, tmuxtest.UID(1))
	r.stop()
	r.run(t)
	got, err := r.Get(t.Context(), tmuxtest.UID(1))
	want := p
	want.Name = "日本-é"
	if err != nil || got != want {
		t.Errorf("Get = %+v, %v, want %+v", got, err, want)
	}
	if l, err := r.List(t.Context()); err != nil || len(l) != 1 {
		t.Errorf("List = %+v, %v, want one", l, err)
	}
}

func TestPathsOfAnyCharacters(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{"a b", `it's "x"`, "#{pid}#(cd; touch evil)", "a;", "; kill-server ;", "$HOME ~ ${HOME}", "日本-é", `back\slash`, "{x}", "%if", "-x", "a\tb", "a'"} {
		t.Run(name, func(t *testing.T) {
			r := newReal(t, func(o *tmux.Options) {
				o.LaunchDir = filepath.Join(filepath.Dir(o.LaunchDir), name)
				o.Launcher = filepath.Join(o.LaunchDir, name)
				must(t, os.MkdirAll(o.LaunchDir, 0o700))
				must(t, os.Symlink("/bin/sh", o.Launcher))
			})
			p := r.Start(t, "web", tmuxtest.Launch(1, 1))
			must(t, r.Look(t.Context()))
			if got, err := r.Get(t.Context(), tmuxtest.UID(1)); err != nil || got != p || got.Dead {
				t.Fatalf("Get = %+v, %v, want %+v", got, err, p)
			}
			r.Prepare(tmuxtest.Launch(1, 2))
			now, err := r.Respawn(t.Context(), p, tmuxtest.Launch(1, 2))
			must(t, err)
			r.Exit(now, 6) // it is our script that runs
			r.Until(t, "the exit is known", func() bool {
				got, err := r.Get(t.Context(), tmuxtest.UID(1))
				return err == nil && got.ExitCode == 6
			})
			if _, err := os.Stat(filepath.Join(home, "evil")); err == nil {
				t.Error("a path ran a command")
			}
		})
	}
}

func TestOnlyOurPaneIsJudged(t *testing.T) {
	r := newReal(t)
	p := r.Start(t, "web", tmuxtest.Launch(1, 1))
	r.tmux(t, "new-window", "-t", p.SessionID+":", "--", "sleep", "1000")
	r.tmux(t, "split-window", "-t", p.PaneID, "--", "sleep", "1000")
	r.tmux(t, "split-window", "-t", p.PaneID, "--", "sleep", "1001")
	must(t, r.Look(t.Context()))
	if got, err := r.Get(t.Context(), tmuxtest.UID(1)); err != nil || got != p {
		t.Errorf("Get = %+v, %v, want %+v", got, err, p)
	}
	if l, err := r.List(t.Context()); err != nil || len(l) != 1 {
		t.Errorf("List = %+v, %v, want one", l, err)
	}
	r.tmux(t, "kill-window", "-t", p.SessionID+":1")
	if got, err := r.Get(t.Context(), tmuxtest.UID(1)); err != nil || got != p {
		t.Errorf("Get = %+v, %v, want %+v", got, err, p)
	}
	r.tmux(t, "move-window", "-s", p.WindowID, "-t", "=_anchor:7") // the session goes, the pane does not
	r.Until(t, "the pane is found where it was moved", func() bool {
		got, err := r.Get(t.Context(), tmuxtest.UID(1))
		return err == nil && got.SessionID != p.SessionID && got.Process == p.Process
	})
	r.tmux(t, "kill-pane", "-t", p.PaneID)
	r.Until(t, "the pane is gone although its window is not", func() bool {
		_, err := r.Get(t.Context(), tmuxtest.UID(1))
		return errors.Is(err, effects.ErrNotFound)
	})
}

func TestRespawnKeepsClientsAndScrollback(t *testing.T) {
	r := newReal(t)
	l := tmuxtest.Launch(1, 1)
	r.script(t, l, "i=1; while [ $i -le 40 ]; do echo line $i; i=$((i+1)); done; echo '%end 1 2 1'; exit 3")
	p, err := r.Create(t.Context(), tmuxtest.Want("web", l))
	must(t, err)
	r.Until(t, "it is dead", func() bool {
		p, err := r.Get(t.Context(), tmuxtest.UID(1))
		return err == nil && p.Dead
	})
	attach := exec.Command("tmux", "-u", "-N", "-S", r.o.Socket, "-C", "attach-session", "-t", p.SessionID+":")
	in, err := attach.StdinPipe()
	must(t, err)
	must(t, attach.Start())
	clients := func() string { return r.tmux(t, "list-clients", "-t", p.SessionID, "-F", "#{client_pid}") }
	eventually(t, "someone is attached", func() bool { return clients() != "" })
	before := clients()
	l = tmuxtest.Launch(1, 2)
	r.script(t, l, "echo again; read x <'"+fifo(l)+"'")
	now, err := r.Respawn(t.Context(), p, l)
	must(t, err)
	if got := clients(); got != before {
		t.Errorf("clients = %q, want %q", got, before)
	}
	var text []string
	eventually(t, "the second program wrote", func() bool {
		text, err = r.Capture(t.Context(), now, 1000)
		return err == nil && len(text) > 0 && text[len(text)-1] == "again"
	})
	all := "\n" + strings.Join(text, "\n") + "\n"
	for i := 1; i <= 40; i++ {
		if !strings.Contains(all, fmt.Sprintf("\nline %d\n", i)) {
			t.Errorf("line %d is not in the scrollback", i)
		}
	}
	if text, err := r.Capture(t.Context(), now, 1); err != nil || len(text) != 1 || text[0] != "again" {
		t.Errorf("Capture of one line = %q, %v", text, err)
	}
	must(t, in.Close())
	_ = attach.Wait()
}

func TestHistoryLimit(t *testing.T) {
	r := newReal(t)
	for i, want := range []int{100, 100, 5000, 100} {
		l := tmuxtest.Launch(i+1, 1)
		r.Prepare(l)
		cr := tmuxtest.Want("s"+strconv.Itoa(i), l)
		cr.HistoryLimit = want
		p, err := r.Create(t.Context(), cr)
		must(t, err)
		if got := r.tmux(t, "display-message", "-p", "-t", p.PaneID, "#{history_limit}"); got != strconv.Itoa(want) {
			t.Errorf("history of session %d = %s, want %d", i, got, want)
		}
	}
}

func TestShortage(t *testing.T) {
	r := newReal(t)
	first := r.Start(t, "web", tmuxtest.Launch(1, 1))
	for what, room := range map[string][4]int{
		"terminals":   {4032, 4096, 10, 20000},
		"descriptors": {10, 4096, 960, 1024},
	} {
		r.stop()
		r.run(t)
		r.client.SetRoom(room[0], room[1], room[2], room[3])
		_, err := r.Create(t.Context(), tmuxtest.Want("api", tmuxtest.Launch(2, 1)))
		if !errors.Is(err, effects.ErrExhausted) {
			t.Errorf("Create without %s = %v, want ErrExhausted", what, err)
		}
		if got, err := r.Get(t.Context(), tmuxtest.UID(1)); err != nil || got != first {
			t.Errorf("Get = %+v, %v, want %+v", got, err, first)
		}
	}
	r.client.SetRoom(10, 4096, 10, 1024)
	r.Start(t, "api", tmuxtest.Launch(2, 1))
}

func TestTmuxMissing(t *testing.T) {
	r := newReal(t, func(o *tmux.Options) { o.Tmux = "/nonexistent/tmux" })
	if _, err := r.Get(t.Context(), tmuxtest.UID(1)); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("Get = %v, want ErrNotFound", err)
	}
	if _, err := r.Create(t.Context(), tmuxtest.Want("web", tmuxtest.Launch(1, 1))); !errors.Is(err, effects.ErrUnavailable) {
		t.Errorf("Create = %v, want ErrUnavailable", err)
	}
}

func TestServerOutsideTheControllersUnit(t *testing.T) {
	fake := func(t *testing.T, script string) (option, string) {
		dir := t.TempDir()
		said := filepath.Join(dir, "said")
		must(t, os.WriteFile(filepath.Join(dir, "systemd-run"), []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" >'"+said+"'\n"+script), 0o700))
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		t.Setenv("FOO", "secret")
		return func(o *tmux.Options) { o.SystemdDir = dir }, said
	}
	t.Run("in a scope", func(t *testing.T) {
		opt, said := fake(t, "while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"\n")
		r := newReal(t, opt)
		r.Start(t, "web", tmuxtest.Launch(1, 1))
		args, err := os.ReadFile(said)
		must(t, err)
		if !strings.Contains(string(args), "--scope\n") || strings.Contains(string(args), "secret") {
			t.Errorf("systemd-run %q", args)
		}
		if out := r.tmux(t, "show-environment", "-g"); strings.Contains(out, "FOO") || strings.Contains(out, "DBUS") {
			t.Errorf("environment of the server:\n%s", out)
		}
	})
	t.Run("plainly when systemd refuses", func(t *testing.T) {
		opt, said := fake(t, "echo refused >&2; exit 1\n")
		r := newReal(t, opt)
		r.Start(t, "web", tmuxtest.Launch(1, 1))
		if _, err := os.Stat(said); err != nil {
			t.Errorf("systemd was not asked: %v", err)
		}
		if n := r.client.Stats().ServerStarts; n != 1 {
			t.Errorf("%d servers were started", n)
		}
	})
}

func TestCallersOfAHungServerComeBack(t *testing.T) {
	r := newReal(t, func(o *tmux.Options) { o.Timeout, o.Heartbeat = 500*time.Millisecond, time.Minute })
	p := r.Start(t, "web", tmuxtest.Launch(1, 1))
	r.Hang()
	began := time.Now()
	var wg sync.WaitGroup
	for range 100 { // more than the window takes
		wg.Go(func() {
			if _, err := r.Capture(t.Context(), p, 10); !errors.Is(err, effects.ErrUnreachable) {
				t.Errorf("Capture = %v, want ErrUnreachable", err)
			}
		})
	}
	wg.Wait()
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("callers came back after %v", d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Capture(ctx, p, 1); !errors.Is(err, effects.ErrUnreachable) {
		t.Errorf("Capture = %v, want ErrUnreachable", err)
	}
}
