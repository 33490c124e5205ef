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

// rule is what happens at one place.
type rule struct {
	action  func() error
	nth     int64
	forEver bool // from the nth time on
	hits    int64
}

// callsPlace is the place of every call of the file layer.
const callsPlace = "calls"

var (
	mu     sync.Mutex // guards what follows
	points []string
	rules  map[string]*rule // nil until SKC_FAULT was read
)

// New names a step. Call it from a package variable, so that List is complete.
func New(name string) Point {
	mu.Lock()
	defer mu.Unlock()
	for _, p := range points {
		if p == name {
			panic("two fault points are called " + name)
		}
	}
	points = append(points, name)
	return Point{name}
}

// At marks that the step has come to this place, and does what SKC_FAULT asks
// for it.
func (p Point) At(phase Phase) error { return hit(p.name + ":" + string(phase)) }

// Call counts one call of the file layer and does what SKC_FAULT asks for it.
func Call() error { return hit(callsPlace) }

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

// Set replaces what SKC_FAULT asks for, and counts anew. Tests in process use
// it; only this build has it.
func Set(spec string) error {
	parsed := map[string]*rule{}
	for _, item := range strings.Split(spec, ",") {
		if item == "" {
			continue
		}
		place, r, err := parse(item)
		if err != nil {
			return err
		}
		parsed[place] = r
	}
	mu.Lock()
	defer mu.Unlock()
	rules = parsed
	return nil
}

// hit counts one time at a place and does what is asked for it.
func hit(place string) error {
	mu.Lock()
	if rules == nil {
		mu.Unlock()
		if err := Set(os.Getenv("SKC_FAULT")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2) // a test that injects nothing would pass for the wrong reason
		}
		mu.Lock()
	}
	r := rules[place]
	due := false
	if r != nil {
		r.hits++
		due = r.hits == r.nth || r.forEver && r.hits > r.nth
	}
	mu.Unlock()
	if !due {
		return nil
	}
	fmt.Fprintln(os.Stderr, "SKC_FAULT:", place) // a test sees what was reached, and how often
	return r.action()
}

func parse(item string) (place string, r *rule, err error) {
	bad := fmt.Errorf("SKC_FAULT: %q is not <point>:<before|during|after>=<action>[@n|@n+]", item)
	place, text, ok := strings.Cut(item, "=")
	if !ok {
		return "", nil, bad
	}
	r = &rule{nth: 1}
	text, nth, counted := strings.Cut(text, "@")
	if counted {
		nth, r.forEver = strings.CutSuffix(nth, "+")
		if r.nth, err = strconv.ParseInt(nth, 10, 64); err != nil || r.nth < 1 {
			return "", nil, bad
		}
	}
	if r.action, ok = action(text); !ok {
		return "", nil, bad
	}
	if place == callsPlace {
		return place, r, nil
	}
	name, phase, ok := strings.Cut(place, ":")
	if !ok {
		phase = string(After)
	}
	switch Phase(phase) {
	case Before, During, After:
		return name + ":" + phase, r, nil
	}
	return "", nil, bad
}

var errnos = map[string]syscall.Errno{
	"EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC, "EMFILE": syscall.EMFILE, "EROFS": syscall.EROFS, "EDQUOT": syscall.EDQUOT,
}

func action(text string) (func() error, bool) {
	if text == "kill" {
		return func() error {
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way; nothing more may happen
		}, true
	}
	if errno, ok := errnos[text]; ok {
		return func() error { return errno }, true
	}
	d, err := time.ParseDuration(text)
	return func() error { time.Sleep(d); return nil }, err == nil
}
