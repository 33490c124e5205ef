package process

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// A shell with job control brings another program into the foreground of its
// terminal, and comes back there when that ends.
func TestForeground(t *testing.T) {
	master, tty := openTerminal(t)
	// The shell is told what to do next by a line in its terminal.
	cmd := exec.Command("/bin/sh", "-c", "set -m; echo shell $$; read x; sh -c 'echo child $$; read x'; echo back $$; read x")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var said string
	pidAfter := func(word string) int {
		buf := make([]byte, 1024)
		for {
			if _, rest, ok := strings.Cut(said, word+" "); ok && strings.Contains(rest, "\n") {
				line, _, _ := strings.Cut(rest, "\r")
				pid, err := strconv.Atoi(line)
				must(t, err)
				return pid
			}
			n, err := master.Read(buf)
			must(t, err)
			said += string(buf[:n])
		}
	}
	next := func() {
		_, err := master.WriteString("\n")
		must(t, err)
	}
	started, err := StartTime(cmd.Process.Pid)
	must(t, err)
	id := effects.ProcessID{PID: cmd.Process.Pid, StartTime: started}
	wants := func(pid int) {
		t.Helper()
		got, err := Foreground(id)
		if err != nil || got.PID != pid || got.StartTime == "" {
			t.Errorf("Foreground = %+v, %v, want %d", got, err, pid)
		}
	}
	wants(pidAfter("shell"))
	next()
	child := pidAfter("child")
	if child == id.PID {
		t.Fatal("the shell ran no other program")
	}
	wants(child)
	next()
	wants(pidAfter("back"))

	for what, id := range map[string]effects.ProcessID{
		"another process of that pid": {PID: id.PID, StartTime: "1"},
		"no process":                  {PID: 1 << 22, StartTime: "1"},
	} {
		if got, err := Foreground(id); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("Foreground of %s = %+v, %v, want ErrNotFound", what, got, err)
		}
	}
	// A process without a terminal.
	lone := exec.Command("/bin/sleep", "600")
	lone.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	must(t, lone.Start())
	t.Cleanup(func() { _ = lone.Process.Kill(); _ = lone.Wait() })
	started, err = StartTime(lone.Process.Pid)
	must(t, err)
	if got, err := Foreground(effects.ProcessID{PID: lone.Process.Pid, StartTime: started}); !errors.Is(err, effects.ErrNotFound) {
		t.Errorf("Foreground without a terminal = %+v, %v, want ErrNotFound", got, err)
	}
}

func openTerminal(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _ = master.Close() })
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _ = tty.Close() })
	return master, tty
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
