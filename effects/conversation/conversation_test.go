package conversation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place is a session's folder and the home of its agent.
type place struct {
	t         *testing.T
	dir, home string
	started   time.Time
}

func newPlace(t *testing.T) *place {
	p := &place{t: t, dir: t.TempDir(), home: t.TempDir(), started: time.Now()}
	return p
}

func (p *place) target() Target {
	return Target{Dir: p.dir, Env: []string{"HOME=" + p.home, "PATH=/usr/bin:/bin"}, Since: p.started}
}

func (p *place) write(name, text string, age time.Duration) {
	p.t.Helper()
	path := filepath.Join(p.home, name)
	must(p.t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(p.t, os.WriteFile(path, []byte(text), 0o600))
	at := p.started.Add(-age)
	must(p.t, os.Chtimes(path, at, at))
}

const pattern = `"id":"(?P<id>[^"]*)","dir":"(?P<dir>[^"]*)"`

func TestLookAtFiles(t *testing.T) {
	p := newPlace(t)
	line := func(id, dir string) string { return fmt.Sprintf("{\"id\":%q,\"dir\":%q}\n", id, dir) }
	link := filepath.Join(p.home, "link")
	must(t, os.Symlink(p.dir, link))
	p.write(".bot/a/1.json", line("fresh", p.dir)+line("its-parent", p.dir), 0)
	p.write(".bot/b/2.json", line("by-a-link", link), 0)
	p.write(".bot/b/3.json", line("old", p.dir), time.Minute)
	p.write(".bot/b/4.json", line("elsewhere", p.home), 0)
	p.write(".bot/b/5.json", line("nowhere", "/no/such/folder"), 0)
	p.write(".bot/b/6.json", line("relative", "."), 0)
	p.write(".bot/b/7.json", line("-rf", p.dir), 0)
	p.write(".bot/b/8.json", line("a b", p.dir), 0)
	p.write(".bot/b/9.json", strings.Repeat(" ", maxRead)+line("far", p.dir), 0)
	p.write(".bot/b/c/10.json", line("deep", p.dir), 0)
	p.write(".bot/b/11.txt", line("other-name", p.dir), 0)
	must(t, unix.Mkfifo(filepath.Join(p.home, ".bot", "b", "12.json"), 0o600)) // a look must not wait for a writer
	must(t, os.Mkdir(filepath.Join(p.home, ".bot", "b", "13.json"), 0o700))
	source := v1alpha1.CaptureSource{Files: &v1alpha1.FileSet{Root: "~/.bot", RootEnv: "BOT_HOME", Glob: "*/*.json"}, Pattern: pattern}
	if got := Look(t.Context(), source, p.target()); !slices.Equal(got, []v1alpha1.ConversationID{"by-a-link", "fresh"}) {
		t.Errorf("found %q", got)
	}
	elsewhere := p.target()
	elsewhere.Env = append(elsewhere.Env, "BOT_HOME="+filepath.Join(p.home, "other"))
	if got := Look(t.Context(), source, elsewhere); got != nil {
		t.Errorf("in another home: %q", got)
	}
	p.write("other/a/1.json", line("there", p.dir), 0)
	if got := Look(t.Context(), source, elsewhere); !slices.Equal(got, []v1alpha1.ConversationID{"there"}) {
		t.Errorf("in another home: %q", got)
	}
}

func TestLookAtCommand(t *testing.T) {
	p := newPlace(t)
	now := p.started.UnixMilli()
	run := func(ctx context.Context, script string) []v1alpha1.ConversationID {
		return Look(ctx, v1alpha1.CaptureSource{Command: []string{"sh", "-c", script}, Pattern: `(?P<id>\w+) (?P<created>\d+)`}, p.target())
	}
	if got := run(t.Context(), fmt.Sprintf("echo new %d; echo old %d; echo new %d; pwd > where", now, now-60_000, now)); !slices.Equal(got, []v1alpha1.ConversationID{"new"}) {
		t.Errorf("found %q", got)
	}
	if b, err := os.ReadFile(filepath.Join(p.dir, "where")); err != nil || strings.TrimSpace(string(b)) != p.dir {
		t.Errorf("it ran in %s, %v", b, err)
	}
	if got := run(t.Context(), fmt.Sprintf("echo new %d; exit 1", now)); got != nil {
		t.Errorf("of a command that failed: %q", got)
	}
	if got := Look(t.Context(), v1alpha1.CaptureSource{Command: []string{"no-such-program"}, Pattern: "(?P<id>x)"}, p.target()); got != nil {
		t.Errorf("of no command: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if got := run(ctx, "sleep 600 & echo $! > child; wait"); got != nil {
			t.Errorf("of one that was ended: %q", got)
		}
	}()
	var child int
	for limit := time.Now().Add(10 * time.Second); child == 0; {
		if time.Now().After(limit) {
			t.Fatal("the command does not start")
		}
		b, _ := os.ReadFile(filepath.Join(p.dir, "child"))
		_, _ = fmt.Sscan(string(b), &child)
	}
	cancel()
	<-done
	for limit := time.Now().Add(10 * time.Second); unix.Kill(child, 0) == nil && !zombie(child); {
		if time.Now().After(limit) {
			t.Fatal("what the command started outlives it")
		}
	}
}

func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestLookAtScreen(t *testing.T) {
	target := Target{Screen: func(context.Context) ([]string, error) { return []string{"id=a1", "none", "id=a1 id=b2"}, nil }}
	source := v1alpha1.CaptureSource{Terminal: v1alpha1.TerminalScreen, Pattern: `id=(?P<id>\w+)`}
	if got := Look(t.Context(), source, target); !slices.Equal(got, []v1alpha1.ConversationID{"a1", "b2"}) {
		t.Errorf("found %q", got)
	}
	source.Terminal = v1alpha1.TerminalLastLines // those are in the certificate of a death
	if got := Look(t.Context(), source, target); got != nil {
		t.Errorf("found %q", got)
	}
}

func TestRecorded(t *testing.T) {
	p := newPlace(t)
	p.write(".bot/x/0123456789.json", "", 0)
	p.write(".bot/y/s-abcdefgh.json", "", 0)
	full := &v1alpha1.FileSet{Root: "~/.bot", Glob: "*/{conversationID}.json"}
	prefix := &v1alpha1.FileSet{Root: "~/.bot", Glob: "*/s-{conversationIDPrefix}.json"}
	for _, c := range []struct {
		set  *v1alpha1.FileSet
		id   v1alpha1.ConversationID
		want bool
	}{
		{full, "0123456789", true}, {full, "01234567", false}, {prefix, "abcdefghijk", true}, {prefix, "abc", false},
		{&v1alpha1.FileSet{Root: "/no/such", Glob: "{conversationID}"}, "x", false},
	} {
		if got, err := Recorded(c.set, c.id, p.target()); err != nil || got != c.want {
			t.Errorf("%s of %+v: %v, %v", c.id, c.set, got, err)
		}
	}
	if _, err := Recorded(&v1alpha1.FileSet{Root: "~/.bot/x/0123456789.json", Glob: "{conversationID}"}, "x", p.target()); err == nil {
		t.Error("what cannot be read is taken for absent")
	}
}

// A finder tells of a change once, looks less and less often, and not at all
// after Stop.
func TestFinder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := api.Key{Kind: "Session", Namespace: "default", Name: "web"}
		var mu sync.Mutex
		looks, told, shows := 0, 0, "nothing"
		f := NewFinder(clock.RealClock{}, func(k api.Key) {
			mu.Lock()
			defer mu.Unlock()
			if k == key {
				told++
			}
		})
		target := Target{Screen: func(context.Context) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			looks++
			return []string{shows}, nil
		}}
		sources := []v1alpha1.CaptureSource{{Terminal: v1alpha1.TerminalScreen, Pattern: `id=(?P<id>\w+)`}}
		id := effects.LaunchID{UID: "u", Attempt: 1}
		after := func(d time.Duration, wantLooks, wantTold int, want ...v1alpha1.ConversationID) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			got := f.Ensure(key, id, sources, target)
			mu.Lock()
			defer mu.Unlock()
			if looks != wantLooks || told != wantTold || len(got) != 1 || !slices.Equal(got[0], want) {
				t.Errorf("%d looks, told %d times, found %q; want %d, %d, %q", looks, told, got, wantLooks, wantTold, want)
			}
		}
		after(0, 0, 0)
		after(time.Second, 1, 0)
		after(2*time.Second, 2, 0)
		mu.Lock()
		shows = "id=a1"
		mu.Unlock()
		after(4*time.Second, 3, 1, "a1")
		after(80*time.Second, 6, 1, "a1")
		id.Attempt = 2 // another program: nothing is known of it
		after(0, 6, 1)
		after(time.Second, 7, 2, "a1")
		f.Stop(key)
		time.Sleep(time.Minute)
		synctest.Wait()
		if looks != 7 {
			t.Errorf("%d looks after Stop", looks)
		}
		f.Ensure(key, id, sources, target)
		f.Close()
		f.Ensure(key, id, sources, target)
		time.Sleep(time.Minute)
		if looks != 7 {
			t.Errorf("%d looks after Close", looks)
		}
	})
}
