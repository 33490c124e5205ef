package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// terminals is a home with a private tmux server, in which each session runs a
// script that writes what is typed into a file.
type terminals struct {
	testHome
	stand *controllerStandIn
}

func newTerminals(t *testing.T, names ...string) terminals {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("there is no tmux")
	}
	h := newTestHome(t)
	stand, err := openController(t.Context(), h.Home)
	if err != nil {
		t.Fatal(err)
	}
	w := terminals{h, stand}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", h.TmuxSocket(), "kill-server").Run() })
	for _, name := range names {
		code, _, errs := h.skcctlIn(t.Context(), strings.NewReader(strings.Replace(webYAML, "name: web", "name: "+name, 1)), "apply", "-f", "-")
		if code != 0 {
			t.Fatal(errs)
		}
	}
	if err := stand.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		w.start(t, name, fmt.Sprintf("echo here is %s; cat >%s", name, w.typed(name)))
	}
	return w
}

// typed is the file of what was typed into the session.
func (w terminals) typed(name string) string { return filepath.Join(w.dir, name+".typed") }

// start gives the session a terminal that runs the shell text.
func (w terminals) start(t *testing.T, name, text string) {
	t.Helper()
	o, err := w.stand.Get(t.Context(), session(name))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(w.dir, effects.LaunchID{UID: string(o.GetUID()), Generation: 1, Attempt: 1}.FileName())
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	// The tmux session has a name that says nothing of the object's.
	cmd := exec.Command("tmux", "-S", w.TmuxSocket(), "-f", "/dev/null", "new-session", "-d", "-s", "x"+name, program, ";", "set", "-g", "remain-on-exit", "on")
	cmd.Env = append(os.Environ(), "TMUX=", "LC_ALL=C.UTF-8")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	err = w.stand.status(t.Context(), name, v1alpha1.SessionStatus{
		Tmux:       &v1alpha1.TmuxStatus{Socket: w.TmuxSocket(), SessionID: "$99", PaneID: "%99", Attempt: 1},
		Conditions: []metav1.Condition{{Type: v1alpha1.SessionRunning, Status: metav1.ConditionTrue, Reason: "Running", LastTransitionTime: metav1.Now()}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w terminals) wantTyped(t *testing.T, name, want string) {
	t.Helper()
	var got []byte
	defer func() {
		if t.Failed() {
			t.Logf("%s got %q, want %q", name, got, want)
		}
	}()
	eventually(t, func() bool {
		got, _ = os.ReadFile(w.typed(name))
		return string(got) == want
	})
}

func TestSendReachesOneProgramOnly(t *testing.T) {
	w := newTerminals(t, "bill", "billing")
	ctx := t.Context()
	nasty := `it's "#{pane_id}" $(touch ` + w.dir + `/marker) ; kill-server \; é日本`
	if code, out, errs := w.skcctl(ctx, "send", "bill", nasty, "--enter"); code != 0 || out != "" {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	w.wantTyped(t, "bill", nasty+"\n")
	if code, _, errs := w.skcctlIn(ctx, strings.NewReader("one\ntwo\n"), "send", "bill", "-f", "-"); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	w.wantTyped(t, "bill", nasty+"\none\ntwo\n")
	if code, _, errs := w.skcctl(ctx, "send", "bill", "--keys", "x", "y", "Enter", "C-d"); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	w.wantTyped(t, "bill", nasty+"\none\ntwo\nxy\n")
	if code, _, errs := w.skcctl(ctx, "send", "billing", "--keys", "kill-server"); code != exitUsage {
		t.Errorf("a word that is no key: exit code %d: %s", code, errs)
	}
	w.wantTyped(t, "billing", "")
	if _, err := os.Stat(w.dir + "/marker"); err == nil {
		t.Error("what was sent was run")
	}

	// Its program has ended by C-d: nothing can be sent, and what it left can be
	// read.
	eventually(t, func() bool {
		code, _, _ := w.skcctl(ctx, "send", "bill", "more")
		return code == exitNotInTerminal
	})
	if code, out, errs := w.skcctl(ctx, "logs", "bill", "--tail", "100"); code != 0 || !strings.Contains(out, "here is bill\n") || !strings.Contains(out, "xy\n") {
		t.Errorf("logs of a dead terminal: exit code %d: %s%s", code, out, errs)
	}

	// The terminal is gone: nothing is found, least of all the neighbour's.
	if out, err := exec.Command("tmux", "-S", w.TmuxSocket(), "kill-session", "-t", "=xbill").CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	for _, args := range [][]string{{"send", "bill", "lost"}, {"logs", "bill"}, {"attach", "bill"}} {
		if code, out, errs := w.skcctl(ctx, args...); code != exitNotInTerminal || !strings.Contains(errs, "session/bill has no terminal") {
			t.Errorf("%v: exit code %d: %s%s", args, code, out, errs)
		}
	}
	w.wantTyped(t, "billing", "")
}

func TestLogsFollow(t *testing.T) {
	w := newTerminals(t, "web")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out syncBuffer
	done := make(chan int, 1)
	go func() {
		c := &cli{in: strings.NewReader(""), out: &out, err: &out, clock: w.clock, env: func(string) string { return "" }, cwd: w.dir}
		done <- execute(ctx, c, []string{"--home", w.dir, "logs", "-f", "web"})
	}()
	eventually(t, func() bool { return strings.Contains(out.String(), "here is web\n") })
	// What is typed is echoed; again and again, for the following begins after
	// the screen is printed.
	eventually(t, func() bool {
		_, _, _ = w.skcctl(t.Context(), "send", "web", "ping", "--enter")
		return strings.Contains(out.String(), "ping")
	})
	cancel()
	if code := receive(t, done); code != exitInterrupted {
		t.Errorf("exit code %d, want %d\n%s", code, exitInterrupted, out.String())
	}
}

func TestAttach(t *testing.T) {
	w := newTerminals(t, "bill", "billing")
	if code, _, errs := w.skcctl(t.Context(), "attach", "bill"); code != exitNotInTerminal || !strings.Contains(errs, "no terminal: this is not run in one") {
		t.Fatalf("attach without a terminal: exit code %d: %s", code, errs)
	}
	for _, args := range [][]string{{"attach", "bill"}, {"attach", "bill", "--read-only"}} {
		master, terminal := openTerminal(t)
		cmd := exec.Command("skcctl", append([]string{"--home", w.dir}, args...)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
		cmd.Env = append(os.Environ(), "TMUX=/nowhere,1,0", "TERM=xterm")
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = terminal.Close()
		var screen syncBuffer
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = screen.readFrom(master)
		}()
		clients := func() string {
			out, _ := exec.Command("tmux", "-S", w.TmuxSocket(), "list-clients", "-F", "#{session_name} #{client_readonly}").Output()
			return strings.TrimSpace(string(out))
		}
		want := "xbill 0"
		if len(args) > 2 {
			want = "xbill 1"
		}
		eventually(t, func() bool { return clients() == want })
		// tmux throws away what was typed before it had set up the terminal, which
		// is done when it has drawn it.
		eventually(t, func() bool { return strings.Contains(screen.String(), "here is bill") })
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		if err := pressUntil(t, master, "\x02d", ended); err != nil {
			t.Errorf("%v: %v\n%s", args, err, screen.String())
		}
		_ = master.Close()
		<-read
		eventually(t, func() bool { return clients() == "" })
	}
	w.wantTyped(t, "billing", "")
}

// pressUntil presses keys as a person would until done: again when nothing
// comes of them, for tmux takes keys that follow an attach, or each other,
// within a millisecond for pasted text (assume-paste-time).
func pressUntil(t *testing.T, terminal io.Writer, keys string, done <-chan error) error {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		if _, err := io.WriteString(terminal, keys); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			return err
		case <-limit:
			t.Fatal("the keys had no effect")
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// openTerminal opens a new pseudo-terminal.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		t.Skipf("no pseudo-terminal: %v", err)
	}
	return master, terminal
}

// syncBuffer is a buffer that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *syncBuffer) readFrom(f *os.File) (int64, error) {
	var all int64
	b := make([]byte, 4096)
	for {
		n, err := f.Read(b)
		_, _ = s.Write(b[:n])
		all += int64(n)
		if err != nil {
			return all, err
		}
	}
}
