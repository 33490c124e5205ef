//go:build e2e

package lost

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
	full   = flag.Bool("full", false, "at least 300 rounds, not only as many as fit half a minute")
	rounds = flag.Int("rounds", 0, "how many rounds; 0 leaves it to -full")
	only   = flag.Int("batch", -1, "run this batch alone")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano())%1_000_000, "seed of all that is random")

	// bin is where the binaries of this run are: copies, since a build may
	// replace those in the tree meanwhile.
	bin string
	// places are the fault points of the binary.
	places []string
)

func TestMain(m *testing.M) {
	// Whatever skc makes private must be so under the widest umask; what people
	// leave is as they made it.
	syscall.Umask(0o022)
	_ = flag.Set("test.parallel", "3")
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "skcl")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		home = filepath.Join(dir, "home")
		bin = filepath.Join(dir, "bin")
		for _, d := range []string{home, bin} {
			if err == nil {
				err = os.Mkdir(d, 0o700)
			}
		}
	}
	if err == nil {
		err = writeHome(home)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
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
	report.printf("seed %d, %d fault points, full: %v", *seed, len(places), *full)
	code := m.Run()
	report.write(filepath.Join(from, "lost.txt"))
	return code
}

// random is a source that gives the same for a name whenever the seed is the
// same, whatever else runs.
func random(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64())) //nolint:gosec // to be repeated, not to be secret
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
