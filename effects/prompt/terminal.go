package prompt

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// collectsLines tells whether the terminal at path gives its program whole
// lines.
func collectsLines(path string) (bool, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("open terminal %s: %w", path, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is written
	modes, err := unix.IoctlGetTermios(fd, getModes)
	if err != nil {
		return false, fmt.Errorf("look at terminal %s: %w", path, err)
	}
	return modes.Lflag&unix.ICANON != 0, nil
}
