package launch

import (
	"fmt"
	"os"
	"strings"
)

// runs tells whether the process still is the program at path; a program that
// was upgraded meanwhile has another file there.
func runs(pid int, path string) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err != nil || strings.TrimSuffix(exe, " (deleted)") == path
}
