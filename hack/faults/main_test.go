//go:build e2e

package faults

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
	full   = flag.Bool("full", false, "every place, not only a part that the seed chooses")
	rounds = flag.Int("rounds", 1, "how often each pair of place and kind is killed")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano())%1_000_000, "seed of all that is random")

	// bin is where the binaries of this run are: copies, since a build may
	// replace those in the tree meanwhile.
	bin string
	// places are all that the binary says it has.
	places []string
)

func TestMain(m *testing.M) {
	// Whatever skc makes private must be so under the widest umask.
	syscall.Umask(0)
	// The trials mostly wait for each other's processes.
	_ = flag.Set("test.parallel", "8")
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "skcf"); err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(bin) }()
	from := filepath.Join(world.Root(), "bin", "faults")
	for _, name := range []string{"skcd", "skcctl", "skc-launch"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, name), data, 0o755) //nolint:gosec // a program
		}
		if err != nil {
			fmt.Println(err, "- run `make build build-faults` first")
			return 1
		}
	}
	out, err := exec.Command(filepath.Join(bin, "skcd"), "--list-fault-points").Output()
	if places = strings.Fields(string(out)); err != nil || len(places) == 0 {
		fmt.Printf("no fault points: %v\n%s", err, out)
		return 1
	}
	report.printf("seed %d, %d places, full: %v, rounds: %d", *seed, len(places), *full, *rounds)
	code := m.Run()
	report.write(filepath.Join(from, "report.txt"))
	return code
}

// random is a source that gives a trial the same whenever the seed is the same,
// whatever else runs.
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
