package child

import (
	"os"
	"os/signal"
	"syscall"
)

// reset takes back what the program must not inherit, whoever started the tmux
// server: ignored signals, and descriptors other than the terminal's. A signal
// that is handled is at its default after exec.
func reset() {
	c := make(chan os.Signal, 1)
	for sig := syscall.Signal(1); sig < 32; sig++ {
		if signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	for fd := 3; fd < 1024; fd++ {
		syscall.CloseOnExec(fd)
	}
}
