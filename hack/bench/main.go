//go:build linux

// Command bench measures skc against what it is made of, in one run: raw tmux
// over a pipelined control connection, raw files, raw processes. It prints
// ratios, each with its goal; absolute times are of this machine and this hour.
//
//	go run ./hack/bench                 every measure, small sizes
//	go run ./hack/bench -n 1000 -objects 10000 -reps 5
//	go run ./hack/bench -only bringup,restart
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"text/tabwriter"
	"time"
)

type settings struct {
	n, objects, reps, samples int
	bin                       string
	args                      []string // of skcd
}

// measure runs the raw way and skc's in turn and fills rows.
type measure struct {
	name string
	run  func(ctx context.Context, s settings, r *report) error
}

var measures = []measure{
	{"bringup", bringUp},
	{"drop", dropToRunning},
	{"restart", restart},
	{"burst", burst},
	{"noop", noopResync},
	{"startup", startUp},
	{"idle", idle},
	{"launcher", launcherCost},
	{"worktrees", worktrees},
}

func main() {
	var s settings
	var only string
	flag.IntVar(&s.n, "n", 100, "sessions to bring up")
	flag.IntVar(&s.objects, "objects", 2000, "objects at rest")
	flag.IntVar(&s.reps, "reps", 3, "repetitions, interleaved; medians are printed")
	flag.IntVar(&s.samples, "samples", 40, "single drops and deaths")
	flag.StringVar(&s.bin, "bin", "bin", "folder of the built binaries")
	flag.StringVar(&only, "only", "", "comma-separated names of measures")
	flag.Parse() // what follows is for skcd
	s.args = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s, only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, only string) error {
	bin, err := filepath.Abs(s.bin)
	if err != nil {
		return err
	}
	s.bin = bin
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("n=%d objects=%d reps=%d samples=%d, load %s\n", s.n, s.objects, s.reps, s.samples, strings.TrimSpace(string(load)))
	r := &report{w: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(r.w, "MEASURE\tRAW\tSKC\tRATIO\tGOAL\t")
	for _, m := range measures {
		if only != "" && !strings.Contains(","+only+",", ","+m.name+",") {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s ...\n", m.name)
		if err := m.run(ctx, s, r); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return r.w.Flush()
}

// report collects rows; a goal that is missed is said, and fails nothing: a
// loaded machine proves nothing.
type report struct{ w *tabwriter.Writer }

func (r *report) ratio(what string, raw, skc time.Duration, goal float64) {
	ratio := float64(skc) / float64(raw)
	fmt.Fprintf(r.w, "%s\t%s\t%s\t%.2f\t%s\t\n", what, round(raw), round(skc), ratio, verdict(ratio, goal, fmt.Sprintf("≤ %.2f", goal)))
}

func (r *report) value(what, unit string, got, goal float64) {
	fmt.Fprintf(r.w, "%s\t\t%.2f %s\t\t%s\t\n", what, got, unit, verdict(got, goal, fmt.Sprintf("≤ %g %s", goal, unit)))
}

func verdict(got, goal float64, text string) string {
	if got > goal {
		return text + " MISSED"
	}
	return text + " ok"
}

// samples are times; their quantiles are what is printed.
type samples []time.Duration

func (s samples) q(p float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	c := append(samples(nil), s...)
	sort.Slice(c, func(i, j int) bool { return c[i] < c[j] })
	return c[int(p*float64(len(c)-1)+0.5)]
}

func round(d time.Duration) time.Duration {
	switch {
	case d > 100*time.Millisecond:
		return d.Round(time.Millisecond)
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(100 * time.Nanosecond)
}
