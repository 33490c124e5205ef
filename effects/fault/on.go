//go:build skcfaults

package fault

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled tells whether this build can inject faults.
const Enabled = true

// Point is one named step.
type Point struct{ name string }

type rule struct {
	action string
	nth    int64
}

var (
	mu     sync.Mutex
	points []string
	rules  map[string]rule
	hits   = map[string]int64{}
	calls  int64
)

// New names a step. Call it from a package variable, so that List is complete.
func New(name string) Point {
	mu.Lock()
	defer mu.Unlock()
	points = append(points, name)
	return Point{name}
}

// At marks that the step has come to this place, and does what SKC_FAULT asks
// for it.
func (p Point) At(phase Phase) error {
	mu.Lock()
	r, n := match(p.name + ":" + string(phase))
	mu.Unlock()
	if n == 0 || n != r.nth {
		return nil
	}
	return act(r.action)
}

// Call counts one call of the file layer and fails it when SKC_FAULT asks for it.
func Call() error {
	mu.Lock()
	load()
	calls++
	n, r := calls, rules["calls"]
	mu.Unlock()
	if r.nth != n {
		return nil
	}
	return act(r.action)
}

// List is every place of every step, sorted.
func List() []string {
	mu.Lock()
	defer mu.Unlock()
	var all []string
	for _, p := range points {
		for _, at := range []Phase{Before, During, After} {
			all = append(all, p+":"+string(at))
		}
	}
	sort.Strings(all)
	return all
}

// match counts a hit of place and returns its rule and the count; 0 when no
// rule names it.
func match(place string) (rule, int64) {
	load()
	r, ok := rules[place]
	if !ok {
		return rule{}, 0
	}
	hits[place]++
	return r, hits[place]
}

func load() {
	if rules != nil {
		return
	}
	rules = map[string]rule{}
	for _, item := range strings.Split(os.Getenv("SKC_FAULT"), ",") {
		if item == "" {
			continue
		}
		place, action, ok := strings.Cut(item, "=")
		if !ok {
			fail(item)
		}
		nth := int64(1)
		if a, n, ok := strings.Cut(action, "@"); ok {
			v, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				fail(item)
			}
			action, nth = a, v
		}
		if place != "calls" && !strings.Contains(place, ":") {
			place += ":after"
		}
		rules[place] = rule{action, nth}
	}
}

func fail(item string) {
	fmt.Fprintf(os.Stderr, "SKC_FAULT: %q is not <point>:<phase>=<action>[@n]\n", item)
	os.Exit(2)
}

func act(action string) error {
	switch action {
	case "kill":
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; nothing more may happen
	case "EIO":
		return syscall.EIO
	case "ENOSPC":
		return syscall.ENOSPC
	case "EMFILE":
		return syscall.EMFILE
	case "EROFS":
		return syscall.EROFS
	}
	d, err := time.ParseDuration(action)
	if err != nil {
		fail(action)
	}
	time.Sleep(d)
	return nil
}
