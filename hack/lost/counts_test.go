//go:build e2e

package lost

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// counts is what was done, so that a run that did nothing is seen.
type counts struct {
	rounds, things, kills, unreached, checks, refused atomic.Int64

	mu    sync.Mutex
	steps map[string]int
}

func (c *counts) step(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steps == nil {
		c.steps = map[string]int{}
	}
	c.steps[what]++
}

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var steps []string
	for _, what := range slices.Sorted(maps.Keys(c.steps)) {
		steps = append(steps, fmt.Sprintf("%d × %s", c.steps[what], what))
	}
	return fmt.Sprintf("%d rounds with %d folders; %s; %d restores refused; skcd killed %d times (%d faults not reached); %d checks of every byte and commit",
		c.rounds.Load(), c.things.Load(), strings.Join(steps, ", "), c.refused.Load(), c.kills.Load(), c.unreached.Load(), c.checks.Load())
}
