package quarantine

import (
	"os"
	"syscall"
	"testing"
)

func sameDevice(t *testing.T, a os.FileInfo, path string) bool {
	t.Helper()
	b, err := os.Stat(path)
	must(t, err)
	return a.Sys().(*syscall.Stat_t).Dev == b.Sys().(*syscall.Stat_t).Dev
}
