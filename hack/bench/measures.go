//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/launch"
)

const sleeper = `[sleep, "100000"]`

// bringUp: P1, P10. Raw: tmux alone, a window of eight commands.
func bringUp(ctx context.Context, s settings, r *report) error {
	var raw, skc samples
	var syncs float64
	for range s.reps {
		t, err := newRawTmux(ctx)
		if err != nil {
			return err
		}
		begin := time.Now()
		err = t.window(s.n, func(i int) string { return fmt.Sprintf("new-session -d -s s%d -x 200 -y 50 sleep 100000", i) })
		if err == nil {
			var m map[string]int
			if m, err = t.panes(); err == nil {
				var all []int
				for _, p := range m {
					all = append(all, p)
				}
				err = untilExec(func() ([]int, error) { return all, nil }, s.n, "sleep")
			}
		}
		raw = append(raw, time.Since(begin))
		t.close()
		if err != nil {
			return err
		}

		w, err := newWorld(s)
		if err != nil {
			return err
		}
		err = func() error {
			defer w.close()
			if err := w.start(); err != nil {
				return err
			}
			all := names("s", s.n)
			for _, n := range all { // staged before the clock runs
				if err := os.WriteFile(filepath.Join(w.dir, "stage", n+".yaml"), []byte(w.file(n, sleeper, "")), 0o600); err != nil {
					return err
				}
			}
			begin := time.Now()
			for _, n := range all {
				if err := os.Rename(filepath.Join(w.dir, "stage", n+".yaml"), filepath.Join(w.spool(), n+".yaml")); err != nil {
					return err
				}
			}
			if err := w.untilReady(all); err != nil {
				return err
			}
			skc = append(skc, time.Since(begin))
			v, err := w.metric("skc_files_syncs_total")
			syncs = v / float64(s.n)
			return err
		}()
		if err != nil {
			return err
		}
	}
	r.ratio(fmt.Sprintf("P1 bring up %d", s.n), raw.q(.5), skc.q(.5), 1.25)
	r.value("P10 synced files a cold converge", "", syncs, 2)
	return nil
}

// dropToRunning: P3. Raw: the rename's event, one parse, one new-session.
func dropToRunning(ctx context.Context, s settings, r *report) error {
	w, err := newWorld(s)
	if err != nil {
		return err
	}
	defer w.close()
	f, err := newFIFO(w.dir, "up")
	if err != nil {
		return err
	}
	defer f.close()
	if err := w.start(); err != nil {
		return err
	}
	background := names("b", s.n)
	for _, n := range background {
		if err := w.drop(n, w.file(n, sleeper, "")); err != nil {
			return err
		}
	}
	if err := w.untilReady(background); err != nil {
		return err
	}
	t, err := newRawTmux(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.window(s.n, func(i int) string { return fmt.Sprintf("new-session -d -s b%d -x 200 -y 50 sleep 100000", i) }); err != nil {
		return err
	}
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watch.Close() //nolint:errcheck // only read from
	rawSpool := filepath.Join(t.dir, "spool")
	if err := os.Mkdir(rawSpool, 0o700); err != nil {
		return err
	}
	if err := watch.Add(rawSpool); err != nil {
		return err
	}
	script := "echo up > " + f.path + "; exec sleep 100000"
	var raw, skc samples
	for i := range s.samples {
		name := fmt.Sprintf("d-%d", i)
		text := w.file(name, fmt.Sprintf("[sh, -c, %q]", script), "")
		tmp := filepath.Join(t.dir, "tmp")
		if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
			return err
		}
		begin := time.Now()
		if err := os.Rename(tmp, filepath.Join(rawSpool, name+".yaml")); err != nil {
			return err
		}
		<-watch.Events
		b, err := os.ReadFile(filepath.Join(rawSpool, name+".yaml"))
		if err != nil {
			return err
		}
		var v map[string]any
		if err := yaml.UnmarshalStrict(b, &v); err != nil {
			return err
		}
		if _, err := t.do(fmt.Sprintf("new-session -d -s %s -x 200 -y 50 sh -c '%s'", name, script)); err != nil {
			return err
		}
		if err := f.wait(); err != nil {
			return err
		}
		raw = append(raw, time.Since(begin))
		time.Sleep(20 * time.Millisecond) // let the machine come to rest

		begin = time.Now()
		if err := w.drop(name, text); err != nil {
			return err
		}
		if err := f.wait(); err != nil {
			return err
		}
		skc = append(skc, time.Since(begin))
		time.Sleep(20 * time.Millisecond)
	}
	r.ratio(fmt.Sprintf("P3 file drop to first write, p50, %d present", s.n), raw.q(.5), skc.q(.5), 1.5)
	r.value("P3 p99", "ms", float64(skc.q(.99))/1e6, 50)
	return nil
}

// restart: P4, P5. Raw: pidfd, then respawn-pane.
func restart(ctx context.Context, s settings, r *report) error {
	w, err := newWorld(s)
	if err != nil {
		return err
	}
	defer w.close()
	f, err := newFIFO(w.dir, "up")
	if err != nil {
		return err
	}
	defer f.close()
	if err := w.start(); err != nil {
		return err
	}
	script := "echo up > " + f.path + "; exec sleep 100000"
	all := names("k", s.samples)
	for _, n := range all {
		if err := w.drop(n, w.file(n, fmt.Sprintf("[sh, -c, %q]", script), "")); err != nil {
			return err
		}
		if err := f.wait(); err != nil {
			return err
		}
	}
	if err := w.untilReady(all); err != nil {
		return err
	}
	t, err := newRawTmux(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	for i := range all {
		if _, err := t.do(fmt.Sprintf("new-session -d -s k%d -x 200 -y 50 sh -c '%s'", i, script)); err != nil {
			return err
		}
		if err := f.wait(); err != nil {
			return err
		}
	}
	panes, err := t.panes()
	if err != nil {
		return err
	}
	before, err := w.metric("skc_files_syncs_total")
	if err != nil {
		return err
	}
	var raw, skc samples
	i := 0
	for id, pid := range panes {
		died, err := pidfdWait(pid)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		if err := died(); err != nil {
			return err
		}
		if _, err := t.do("respawn-pane -k -t " + id); err != nil {
			return err
		}
		if err := f.wait(); err != nil {
			return err
		}
		raw = append(raw, time.Since(begin))
		time.Sleep(20 * time.Millisecond)

		pid, err = w.panePID(all[i])
		if err != nil {
			return err
		}
		begin = time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		if err := f.wait(); err != nil {
			return err
		}
		skc = append(skc, time.Since(begin))
		time.Sleep(20 * time.Millisecond)
		i++
	}
	r.ratio("P4 death to the replacement's first write, p50", raw.q(.5), skc.q(.5), 1.3)
	r.value("P4 p99", "ms", float64(skc.q(.99))/1e6, 50)
	after, err := w.metric("skc_files_syncs_total")
	if err != nil {
		return err
	}
	r.value("P10 synced files a restart", "", (after-before)/float64(len(skc)), 1)
	blind, err := w.metric("skc_tmux_deaths_blind_total")
	r.value("P5 deaths without an exit status", "", blind, 0)
	return err
}

// burst: P6. All die at once.
func burst(ctx context.Context, s settings, r *report) error {
	n := min(2*s.n, 200)
	var raw, skc samples
	for range s.reps {
		t, err := newRawTmux(ctx)
		if err != nil {
			return err
		}
		err = func() error {
			defer t.close()
			if err := t.window(n, func(i int) string { return fmt.Sprintf("new-session -d -s s%d -x 200 -y 50 sleep 100000", i) }); err != nil {
				return err
			}
			panes, err := t.panes()
			if err != nil {
				return err
			}
			var ids []string
			for id := range panes {
				ids = append(ids, id)
			}
			begin := time.Now()
			for _, pid := range panes {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					return err
				}
			}
			if err := t.window(n, func(i int) string { return "respawn-pane -k -t " + ids[i] }); err != nil {
				return err
			}
			fresh, err := t.panes()
			if err != nil {
				return err
			}
			var all []int
			for _, p := range fresh {
				all = append(all, p)
			}
			if err := untilExec(func() ([]int, error) { return all, nil }, n, "sleep"); err != nil {
				return err
			}
			raw = append(raw, time.Since(begin))
			return nil
		}()
		if err != nil {
			return err
		}
		w, err := newWorld(s)
		if err != nil {
			return err
		}
		err = func() error {
			defer w.close()
			if err := w.start(); err != nil {
				return err
			}
			all := names("s", n)
			for _, name := range all {
				if err := w.drop(name, w.file(name, sleeper, "")); err != nil {
					return err
				}
			}
			if err := w.untilReady(all); err != nil {
				return err
			}
			old := map[string]int{}
			for _, name := range all {
				if old[name], err = w.panePID(name); err != nil {
					return err
				}
			}
			begin := time.Now()
			for _, pid := range old {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					return err
				}
			}
			for left := all; len(left) > 0; time.Sleep(2 * time.Millisecond) {
				name := left[len(left)-1]
				if pid, err := w.panePID(name); err == nil && pid != old[name] && w.ready(name) {
					left = left[:len(left)-1]
				}
				if time.Since(begin) > time.Minute {
					return fmt.Errorf("%s did not come back; see %s", name, w.dir)
				}
			}
			skc = append(skc, time.Since(begin))
			return nil
		}()
		if err != nil {
			return err
		}
	}
	r.ratio(fmt.Sprintf("P6 %d die at once, all running again", n), raw.q(.5), skc.q(.5), 1.25)
	return nil
}

// atRest makes a world with objects that are stopped, and n that run.
func atRest(s settings, running int, args ...string) (*world, error) {
	w, err := newWorld(s, args...)
	if err != nil {
		return nil, err
	}
	all := names("r", running)
	for _, n := range all {
		if err := os.WriteFile(filepath.Join(w.spool(), n+".yaml"), []byte(w.file(n, sleeper, "")), 0o600); err != nil {
			return nil, err
		}
	}
	for _, n := range names("o", s.objects) {
		if err := os.WriteFile(filepath.Join(w.spool(), n+".yaml"), []byte(w.file(n, sleeper, "  desiredState: Stopped\n")), 0o600); err != nil {
			return nil, err
		}
	}
	if err := w.start(); err != nil {
		return nil, err
	}
	return w, w.untilReady(append(all, names("o", s.objects)...))
}

// noopResync: P8, by the processor time of one full look. Raw: fstatat of every file.
func noopResync(_ context.Context, s settings, r *report) error {
	w, err := atRest(s, 0, "--resync", "2s", "--rescan", "1h")
	if err != nil {
		return err
	}
	defer w.close()
	var raw samples
	for range 20 {
		begin := cpuSelf()
		if err := statAll(w.spool()); err != nil {
			return err
		}
		raw = append(raw, cpuSelf()-begin)
	}
	pid := w.cmd.Process.Pid
	time.Sleep(3 * time.Second)
	before := map[string]float64{}
	counts := []string{"skc_spool_rescans_total", "skc_spool_parses_total", "skc_files_writes_total", "skc_files_syncs_total"}
	for _, c := range counts {
		if before[c], err = w.metric(c); err != nil {
			return err
		}
	}
	c0 := cpu(pid)
	time.Sleep(15 * time.Second)
	used := cpu(pid) - c0
	delta := map[string]float64{}
	for _, c := range counts {
		v, err := w.metric(c)
		if err != nil {
			return err
		}
		delta[c] = v - before[c]
	}
	looks := max(delta["skc_spool_rescans_total"], 1)
	r.ratio(fmt.Sprintf("P8 no-op resync of %d objects, processor time", s.objects), raw.q(.5), used/time.Duration(looks), 2)
	r.value("P8 parses", "", delta["skc_spool_parses_total"], 0)
	r.value("P8 writes", "", delta["skc_files_writes_total"], 0)
	return nil
}

func cpuSelf() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func statAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // only read from
	entries, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range entries {
		var st unix.Stat_t
		if err := unix.Fstatat(int(d.Fd()), n, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	return nil
}

// startUp: P12. Raw: read and hash all files.
func startUp(_ context.Context, s settings, r *report) error {
	w, err := atRest(s, min(s.n, 200))
	if err != nil {
		return err
	}
	defer w.close()
	var raw, skc samples
	for range s.reps {
		w.stop()
		begin := time.Now()
		for _, dir := range []string{w.spool(), filepath.Join(w.state(), "objects/session/default")} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				b, err := os.ReadFile(filepath.Join(dir, e.Name()))
				if err != nil {
					return err
				}
				sha256.Sum256(b)
			}
		}
		raw = append(raw, time.Since(begin))
		begin = time.Now()
		if err := w.start(); err != nil {
			return err
		}
		skc = append(skc, time.Since(begin))
	}
	r.ratio(fmt.Sprintf("P12 start with %d objects", s.objects+min(s.n, 200)), raw.q(.5), skc.q(.5), 1.5)
	parses, err := w.metric("skc_spool_parses_total")
	r.value("P12 parses of unchanged files", "", parses, 0)
	return err
}

// idle: P7, P9.
func idle(_ context.Context, s settings, r *report) error {
	for _, c := range []struct {
		running, objects int
		memory           float64
	}{{min(2*s.n, 200), 0, 40}, {min(s.n, 1000), s.objects, 80}} {
		o := s
		o.objects = c.objects
		w, err := atRest(o, c.running)
		if err != nil {
			return err
		}
		err = func() error {
			defer w.close()
			time.Sleep(5 * time.Second)
			skcd, server := w.cmd.Process.Pid, w.serverPID()
			c0 := cpu(skcd) + cpu(server)
			const span = 20 * time.Second
			time.Sleep(span)
			used := cpu(skcd) + cpu(server) - c0
			what := fmt.Sprintf("%d running, %d objects", c.running, c.running+c.objects)
			r.value("P7 idle, "+what, "ms/s", float64(used.Milliseconds())/span.Seconds(), 1)
			r.value("P9 memory of skcd, "+what, "MB", rss(skcd), c.memory)
			return nil
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

// launcherCost: P14.
func launcherCost(ctx context.Context, s settings, r *report) error {
	dir, err := os.MkdirTemp("", "skcb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary
	layer := &files.Layer{}
	var raw, skc samples
	for i := range 10 * s.samples {
		begin := time.Now()
		if err := exec.CommandContext(ctx, "sh", "-c", "exec true").Run(); err != nil {
			return err
		}
		raw = append(raw, time.Since(begin))
		id := effects.LaunchID{UID: "00000000-0000-4000-8000-000000000000", Generation: 1, Attempt: int64(i + 1)}
		path, err := launch.Write(layer, dir, id, launch.Plan{Argv: []string{"true"}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: "/"})
		if err != nil {
			return err
		}
		begin = time.Now()
		if out, err := exec.CommandContext(ctx, filepath.Join(s.bin, "skc-launch"), path).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
		}
		skc = append(skc, time.Since(begin))
	}
	r.ratio("P14 launcher, start to the program's end", raw.q(.5), skc.q(.5), 2)
	return nil
}
