//go:build e2e

package history

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/hack/e2e/world"
)

var (
	full      = flag.Bool("full", false, "1,000 histories and 10,000 requests at least, not only as many as fit half a minute")
	histories = flag.Int("histories", 0, "how many histories; 0 leaves it to -full")
	only      = flag.Int("only", -1, "run this history alone")
	kept      = flag.String("kept", "", "file of a history that TestKept judges again")
	keep      = flag.String("keep", "", "folder in which every history is kept, not only what cannot be explained")
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano())%1_000_000, "seed of all that is random")

	// bin is where the binaries of this run are: copies, since a build may
	// replace those in the tree meanwhile.
	bin string
	// out is where what a run leaves is written.
	out string
	// places are the fault points of the binary that a request may come by.
	places []string
)

func TestMain(m *testing.M) {
	syscall.Umask(0)
	_ = flag.Set("test.parallel", "3")
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "skch"); err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(bin) }()
	out = filepath.Join(world.Root(), "bin", "faults")
	for _, name := range []string{"skcd", "skcctl", "skc-launch"} {
		data, err := os.ReadFile(filepath.Join(out, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, name), data, 0o755) //nolint:gosec // a program
		}
		if err != nil {
			fmt.Println(err, "- run `make build build-faults` first")
			return 1
		}
	}
	list, err := exec.Command(filepath.Join(bin, "skcd"), "--list-fault-points").Output()
	for _, p := range strings.Fields(string(list)) {
		part, _, _ := strings.Cut(p, ".")
		switch part {
		case "audit", "control", "events", "launch", "managed", "process", "spool", "store", "tmux", "workspace":
			places = append(places, p)
		}
	}
	if err != nil || len(places) == 0 {
		fmt.Printf("no fault points: %v\n%s", err, list)
		return 1
	}
	report.printf("seed %d, %d fault points, full: %v", *seed, len(places), *full)
	code := m.Run()
	report.write(filepath.Join(out, "history.txt"))
	return code
}

// random is a source that gives the same for a name whenever the seed is the
// same, whatever else runs.
func random(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(*seed, h.Sum64())) //nolint:gosec // to be repeated, not to be secret
}

// summary is what a run says of itself.
type summary struct {
	mu    sync.Mutex
	lines []string
}

var report summary

func (s *summary) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *summary) write(path string) {
	text := strings.Join(s.lines, "\n") + "\n"
	fmt.Print(text)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		fmt.Println(err)
	}
}
