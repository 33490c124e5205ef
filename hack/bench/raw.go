//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// rawTmux is a private server and one control connection to it, used with as
// little around it as there can be.
type rawTmux struct {
	dir, sock string
	pid       int
	cmd       *exec.Cmd
	in        io.WriteCloser
	replies   chan reply
}

type reply struct {
	ok   bool
	body string
}

func newRawTmux(ctx context.Context) (*rawTmux, error) {
	dir, err := os.MkdirTemp("", "skcb")
	if err != nil {
		return nil, err
	}
	t := &rawTmux{dir: dir, sock: filepath.Join(dir, "s"), replies: make(chan reply, 1<<16)}
	tmux := func(args ...string) ([]byte, error) {
		c := exec.CommandContext(ctx, "tmux", append([]string{"-S", t.sock, "-f", "/dev/null"}, args...)...)
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=screen", "HOME=/"}
		return c.CombinedOutput()
	}
	if out, err := tmux("new-session", "-d", "-s", "_anchor", "-x", "200", "-y", "50", "cat", ";", "set-option", "-g", "remain-on-exit", "on", ";", "set-option", "-g", "automatic-rename", "off"); err != nil {
		return nil, fmt.Errorf("start tmux: %w: %s", err, out)
	}
	out, err := tmux("display-message", "-p", "#{pid}")
	if err != nil {
		return nil, err
	}
	if t.pid, err = strconv.Atoi(strings.TrimSpace(string(out))); err != nil || t.pid < 2 {
		return nil, fmt.Errorf("tmux pid %q", out)
	}
	t.cmd = exec.CommandContext(ctx, "tmux", "-S", t.sock, "-f", "/dev/null", "-C", "attach-session", "-t", "=_anchor", "-f", "no-output")
	t.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=screen"}
	if t.in, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	go t.read(stdout)
	return t, nil
}

func (t *rawTmux) read(r io.Reader) {
	br := bufio.NewReaderSize(r, 1<<20)
	var body bytes.Buffer
	in := false
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			close(t.replies)
			return
		}
		switch {
		case strings.HasPrefix(line, "%begin "):
			in = true
			body.Reset()
		case in && (strings.HasPrefix(line, "%end ") || strings.HasPrefix(line, "%error ")):
			in = false
			if strings.HasSuffix(line, " 1\n") { // 0 is not an answer to a line of ours
				t.replies <- reply{strings.HasPrefix(line, "%end "), body.String()}
			}
		case in:
			body.WriteString(line)
		}
	}
}

func (t *rawTmux) do(line string) (string, error) {
	if _, err := io.WriteString(t.in, line+"\n"); err != nil {
		return "", err
	}
	r, open := <-t.replies
	if !open || !r.ok {
		return "", fmt.Errorf("tmux %q: %s", line, r.body)
	}
	return r.body, nil
}

// window sends n lines with at most eight in flight.
func (t *rawTmux) window(n int, line func(i int) string) error {
	sent := 0
	for done := range n {
		for ; sent < n && sent < done+8; sent++ {
			if _, err := io.WriteString(t.in, line(sent)+"\n"); err != nil {
				return err
			}
		}
		if r, open := <-t.replies; !open || !r.ok {
			return errors.New(r.body)
		}
	}
	return nil
}

// panes are the pids of all panes but the anchor's.
func (t *rawTmux) panes() (map[string]int, error) {
	out, err := t.do("list-panes -a -F '#{pane_id} #{pane_pid} #{session_name}'")
	if err != nil {
		return nil, err
	}
	m := map[string]int{}
	for l := range strings.Lines(out) {
		f := strings.Fields(l)
		if len(f) == 3 && f[2] != "_anchor" {
			pid, err := strconv.Atoi(f[1])
			if err != nil || pid < 2 {
				return nil, fmt.Errorf("pane pid %q", l)
			}
			m[f[0]] = pid
		}
	}
	return m, nil
}

func (t *rawTmux) close() {
	_ = exec.Command("tmux", "-S", t.sock, "kill-server").Run()
	_ = t.in.Close()
	_ = t.cmd.Wait()
	_ = os.RemoveAll(t.dir)
}

// untilExec waits until n of the pids run the program.
func untilExec(pids func() ([]int, error), n int, program string) error {
	done := map[int]bool{}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		all, err := pids()
		if err != nil {
			return err
		}
		for _, p := range all {
			if !done[p] {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p))
				done[p] = strings.TrimSpace(string(b)) == program
			}
		}
		count := 0
		for _, ok := range done {
			if ok {
				count++
			}
		}
		if count >= n {
			return nil
		}
	}
	return fmt.Errorf("not %d of %s after two minutes", n, program)
}

// fifo tells of the first write of a program.
type fifo struct {
	path string
	f    *os.File
	r    *bufio.Reader
}

func newFIFO(dir, name string) (*fifo, error) {
	path := filepath.Join(dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) // read-write: no end of file when a writer goes
	if err != nil {
		return nil, err
	}
	return &fifo{path, f, bufio.NewReader(f)}, nil
}

func (f *fifo) wait() error {
	if err := f.f.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	_, err := f.r.ReadString('\n')
	return err
}

func (f *fifo) close() { _ = f.f.Close() }

// cpu is the processor time of a process so far.
func cpu(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	u, _ := strconv.Atoi(f[11])
	s, _ := strconv.Atoi(f[12])
	return time.Duration(u+s) * 10 * time.Millisecond
}

// rss is the resident memory of a process in MB.
func rss(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for l := range strings.Lines(string(b)) {
		if f := strings.Fields(l); len(f) > 1 && f[0] == "VmRSS:" {
			kb, _ := strconv.ParseFloat(f[1], 64)
			return kb / 1024
		}
	}
	return 0
}

// pidfd waits for the death of a process, as cheaply as can be.
func pidfdWait(pid int) (func() error, error) {
	fd, _, e := syscall.Syscall(434, uintptr(pid), 0, 0) // pidfd_open
	if e != 0 {
		return nil, e
	}
	return func() error {
		defer syscall.Close(int(fd)) //nolint:errcheck // a handle
		for {
			var set syscall.FdSet
			set.Bits[fd/64] |= 1 << (fd % 64)
			if _, err := syscall.Select(int(fd)+1, &set, nil, nil, &syscall.Timeval{Sec: 30}); err != syscall.EINTR { //nolint:errorlint // the errno itself
				return err
			}
		}
	}, nil
}
