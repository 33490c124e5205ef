package spool

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects/files"
)

// TestStartDecodesWhatIsNew: what a start finds as it was costs no decoding,
// and nothing that changed while nobody looked goes unseen.
func TestStartDecodesWhatIsNew(t *testing.T) {
	all := func() map[string]string { return map[string]string{"a": "1", "b": "1", "p": "1", "q": "1"} }
	for _, c := range []struct {
		name   string
		live   func(w *world) // before the restart
		down   func(w *world) // while no controller runs
		parses int64
		want   func(want map[string]string)
		check  func(w *world)
	}{
		{name: "nothing"},
		{
			name:   "another spec",
			down:   func(w *world) { w.put("a.yaml", session("a", "2")) },
			parses: 1,
			want:   func(want map[string]string) { want["a"] = "2" },
		},
		{
			name:   "a comment",
			down:   func(w *world) { w.put("a.yaml", "# new\n"+session("a", "1")) },
			parses: 1,
		},
		{
			name:   "written with the same bytes",
			down:   func(w *world) { w.put("a.yaml", session("a", "1")) },
			parses: 0,
		},
		{
			name:   "a document less",
			down:   func(w *world) { w.put("two.yaml", session("q", "1")) },
			parses: 1,
			want:   func(want map[string]string) { delete(want, "p") },
		},
		{
			name:   "moved",
			down:   func(w *world) { w.move("a.yaml", "c.yaml") },
			parses: 1,
		},
		{
			name:   "gone",
			down:   func(w *world) { w.remove("a.yaml") },
			parses: 0,
			want:   func(want map[string]string) { delete(want, "a") },
		},
		{
			name:   "defined twice, by a file that comes later",
			down:   func(w *world) { w.put("z.yaml", session("a", "2")) },
			parses: 1,
			check:  func(w *world) { w.wantReason("a", v1alpha1.ReasonDuplicateObject, "z.yaml") },
		},
		{
			name:   "defined twice, by a file that comes earlier",
			down:   func(w *world) { w.put("0.yaml", session("a", "2")+"---\n"+session("x", "1")) },
			parses: 1,
			want:   func(want map[string]string) { want["x"] = "1" },
			check:  func(w *world) { w.wantReason("a", v1alpha1.ReasonDuplicateObject, "0.yaml") },
		},
		{
			name:   "twice no more",
			live:   func(w *world) { w.put("z.yaml", session("a", "2")) },
			down:   func(w *world) { w.remove("z.yaml") },
			parses: 1,
		},
		{
			name: "a document of it is another's",
			live: func(w *world) {
				w.put("three.yaml", session("a", "2")+"---\n"+session("o", "1"))
			},
			parses: 2, // a.yaml is not accepted, and three.yaml may be about to be
			want:   func(want map[string]string) { want["o"] = "1" },
			check:  func(w *world) { w.wantReason("a", v1alpha1.ReasonDuplicateObject, "three.yaml") },
		},
		{
			name:   "that another had, and has no more",
			live:   func(w *world) { w.put("three.yaml", session("a", "2")+"---\n"+session("o", "1")) },
			down:   func(w *world) { w.remove("a.yaml") },
			parses: 1,
			want:   func(want map[string]string) { want["a"], want["o"] = "2", "1" },
		},
		{
			name:   "bad, and as it was again",
			live:   func(w *world) { w.put("a.yaml", "nonsense: [") },
			down:   func(w *world) { w.put("a.yaml", session("a", "1")) },
			parses: 1,
		},
		{
			name:   "bad now",
			down:   func(w *world) { w.put("a.yaml", "nonsense: [") },
			parses: 1,
			check:  func(w *world) { w.wantReason("a", v1alpha1.ReasonInvalidSpec, "") },
		},
		{
			name: "held, and back",
			live: func(w *world) {
				w.swapRoot(func(string) {})
				w.pass(5 * time.Second)
				w.wantReason("a", v1alpha1.ReasonPruneHeld, "")
			},
			down: func(w *world) {
				w.put("a.yaml", session("a", "1"))
				w.put("b.yaml", session("b", "1"))
				w.put("two.yaml", session("p", "1")+"---\n"+session("q", "1"))
			},
			parses: 3,
		},
		{
			name:   "another judge",
			down:   func(w *world) { w.options.Version = "other" },
			parses: 3,
		},
		{
			name:   "a judge without a name",
			down:   func(w *world) { w.options.Version = "" },
			parses: 3,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.put("a.yaml", session("a", "1"))
			w.put("b.yaml", session("b", "1"))
			w.put("two.yaml", session("p", "1")+"---\n"+session("q", "1"))
			w.start()
			uids := map[string]int{}
			for k, o := range w.sink.all() {
				uids[k.Name] = o.uid
			}
			if c.live != nil {
				c.live(w)
				w.pass(time.Second)
			}
			w.stop()
			if c.down != nil {
				c.down(w)
			}
			w.start()
			w.pass(5 * time.Second)
			if n := w.s.Stats().Parses; n != c.parses {
				t.Errorf("%d files decoded, want %d", n, c.parses)
			}
			want := all()
			if c.want != nil {
				c.want(want)
			}
			w.want(want)
			for name := range want {
				if o := w.sink.get(name); uids[name] != 0 && o.uid != uids[name] {
					t.Errorf("%s was made anew", name)
				}
			}
			if c.check != nil {
				c.check(w)
			} else if _, there := want["a"]; there {
				w.wantReason("a", v1alpha1.ReasonAccepted, "")
			}

			if _, there := want["b"]; there { // it is as alive as one that was decoded
				w.put("b.yaml", session("b", "9"))
				w.settle()
				w.want(with(want, "b", "9"))
				w.put("b.yaml", "nonsense: [")
				w.settle()
				w.wantReason("b", v1alpha1.ReasonInvalidSpec, "")
				w.put("b.yaml", session("b", "1"))
				w.settle()
				w.want(want)
				w.wantReason("b", v1alpha1.ReasonAccepted, "")
			}
		})
	}
}

func with(m map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	for k, v := range m {
		if k != key {
			out[k] = v
		}
	}
	return out
}

// An object that goes while its file stays is read from it again, although the
// file was not decoded at the start.
func TestStartAndThenGone(t *testing.T) {
	w := newWorld(t)
	w.put("a.yaml", session("a", "1"))
	w.put("b.yaml", session("b", "1"))
	w.start()
	w.restart()
	if n := w.s.Stats().Parses; n != 0 {
		t.Errorf("%d files decoded, want none", n)
	}
	w.sink.finish(key("a"))
	w.settle()
	w.pass(5 * time.Second)
	w.want(map[string]string{"a": "1", "b": "1"})
	w.wantReason("a", v1alpha1.ReasonAccepted, "")
}

// cpuTime is what the process has used; a busy machine does not change it much.
func cpuTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	must(tb, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStart is a start with 10,000 known objects, from nothing to Synced,
// beside reading and hashing the same files: the goal is 1.5 times (P12).
func BenchmarkStart(b *testing.B) {
	const n = 10_000
	dir, err := filepath.EvalSymlinks(b.TempDir())
	must(b, err)
	source, objects, reports := filepath.Join(dir, "spool"), filepath.Join(dir, "objects"), filepath.Join(dir, "reports")
	must(b, os.Mkdir(source, 0o700))
	must(b, os.Mkdir(reports, 0o700))
	for i := range n {
		must(b, os.WriteFile(filepath.Join(source, fmt.Sprintf("s%d.yaml", i)), []byte(session(fmt.Sprint("s", i), "1")), 0o600))
	}
	start := func(version string) (parses int64) {
		layer := &files.Layer{}
		st, err := store.Open(b.Context(), store.Options{Dir: objects, Files: layer, Clock: clock.RealClock{}, Log: logr.Discard()})
		must(b, err)
		w := &world{t: b, options: Options{
			Roots: []string{source}, ReportDir: reports, Files: layer, Decode: v1alpha1.Decode, Version: version,
			Sink: st, Clock: clock.RealClock{}, Log: logr.Discard(),
		}}
		w.run()
		<-w.s.Synced()
		parses = w.s.Stats().Parses
		w.stop()
		return parses
	}
	start("1")
	readAll := func(dirs ...string) {
		for _, dir := range dirs {
			entries, err := os.ReadDir(dir)
			must(b, err)
			for _, e := range entries {
				data, err := os.ReadFile(filepath.Join(dir, e.Name()))
				must(b, err)
				sha256.Sum256(data)
			}
		}
	}
	namespace := filepath.Join(objects, "session", "default")
	b.Run("again", func(b *testing.B) {
		var took, both, sources, opened, tookCPU, bothCPU time.Duration
		var parses int64
		b.ReportAllocs()
		for b.Loop() {
			began, cpu := time.Now(), cpuTime(b)
			parses += start("1")
			took += time.Since(began)
			tookCPU += cpuTime(b) - cpu
			began, cpu = time.Now(), cpuTime(b)
			readAll(source, namespace)
			both += time.Since(began)
			bothCPU += cpuTime(b) - cpu
			began = time.Now()
			readAll(source)
			sources += time.Since(began)
			began = time.Now()
			st, err := store.Open(b.Context(), store.Options{Dir: objects, Files: &files.Layer{}, Clock: clock.RealClock{}, Log: logr.Discard()})
			must(b, err)
			var all map[api.Key]store.Source
			all, err = st.Sources(b.Context())
			must(b, err)
			if len(all) != n {
				b.Fatalf("%d sources", len(all))
			}
			opened += time.Since(began)
		}
		ms := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(b.N) }
		b.ReportMetric(ms(took), "ms/start")
		b.ReportMetric(ms(opened), "ms/open")
		b.ReportMetric(ms(both), "ms/read+sha256")
		b.ReportMetric(took.Seconds()/both.Seconds(), "x-both")
		b.ReportMetric(took.Seconds()/sources.Seconds(), "x-sources")
		b.ReportMetric(ms(tookCPU), "cpu-ms/start")
		b.ReportMetric(tookCPU.Seconds()/bothCPU.Seconds(), "x-both-cpu")
		b.ReportMetric(float64(parses), "parses")
	})
	b.Run("another version", func(b *testing.B) {
		i := 1
		for b.Loop() {
			i++
			if parses := start(fmt.Sprint(i)); parses != n {
				b.Fatalf("%d files decoded", parses)
			}
		}
	})
}
