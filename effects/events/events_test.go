package events

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func session(name string) *v1alpha1.Session {
	s := &v1alpha1.Session{}
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.KindSession))
	s.Name, s.Namespace, s.UID = name, "default", types.UID("uid-of-"+name)
	return s
}

func recorder(t *testing.T, dir string, clk clock.Clock) *Recorder {
	t.Helper()
	r := NewRecorder(Options{Dir: dir, Files: &files.Layer{}, Clock: clk, Log: logr.Discard()})
	t.Cleanup(r.Close)
	return r
}

func read(t *testing.T, dir string, filter Filter) []Event {
	t.Helper()
	list, err := Read(dir, filter)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// lines counts the lines that are on disk.
func lines(t *testing.T, dir string) int {
	t.Helper()
	n := 0
	for _, path := range logFiles(dir) {
		b, err := os.ReadFile(path)
		if err == nil {
			n += strings.Count(string(b), "\n")
		} else if !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return n
}

func TestRepeatedEventsAreCounted(t *testing.T) {
	dir := t.TempDir() + "/events"
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	r := recorder(t, dir, clk)
	start := clk.Now()
	for range 100 {
		r.Event(session("web"), Warning, "Error", "exit code 1")
		clk.Step(time.Second)
	}
	r.Event(session("web"), Warning, "Error", "exit code 2")
	r.Event(session("api"), Warning, "Error", "exit code 1")
	r.Close()
	if got := lines(t, dir); got != 10 { // counts 1 2 4 8 16 32 64 and, at the end, 100; and two others
		t.Errorf("%d lines, want 10", got)
	}
	list := read(t, dir, func(e Event) bool { return e.Name == "web" })
	if len(list) != 2 {
		t.Fatalf("events = %+v, want 2", list)
	}
	e := list[0]
	if e.Count != 100 || !e.FirstTime.Equal(start) || !e.Time.Equal(start.Add(99*time.Second)) || e.UID != "uid-of-web" || e.Kind != "Session" || e.Type != Warning {
		t.Errorf("event = %+v", e)
	}
}

func TestWindowEnds(t *testing.T) {
	dir := t.TempDir() + "/events"
	clk := clocktesting.NewFakeClock(time.Now())
	r := recorder(t, dir, clk)
	for range 3 {
		r.Event(session("web"), Warning, "Error", "again")
	}
	clk.Step(window)
	r.Event(session("web"), Warning, "Error", "again")
	clk.Step(-time.Hour) // must not keep the window open
	r.Event(session("web"), Warning, "Error", "again")
	r.Close()
	var counts []int64
	for _, e := range read(t, dir, nil) {
		counts = append(counts, e.Count)
	}
	if fmt.Sprint(counts) != "[1 3 1]" { // by time: the last is an hour early
		t.Errorf("counts = %v, want 1 3 1", counts)
	}
}

// A count that is not a power of two is written when its time is over, though
// nothing more happens.
func TestWindowEndsByItself(t *testing.T) {
	dir := t.TempDir() + "/events"
	clk := clocktesting.NewFakeClock(time.Now())
	events, err := Follow(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := recorder(t, dir, clk)
	for range 3 {
		r.Event(session("web"), Normal, "Started", "it runs")
	}
	for _, want := range []int64{1, 2} {
		if e := next(t, events); e.Count != want {
			t.Fatalf("count = %d, want %d", e.Count, want)
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for got := false; !got; {
		clk.Step(window) // the writer may not have set its timer yet
		select {
		case e := <-events:
			got = true
			if e.Count != 3 {
				t.Fatalf("count = %d, want 3", e.Count)
			}
		case <-time.After(10 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatal("the count 3 was never written")
			}
		}
	}
}

func TestMessagesAreInert(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"plain", "it ended: exit code 1", "it ended: exit code 1"},
		{"lines", "a\nb\r\n\tc", "a b   c"},
		{"escapes", "\x1b[31mred\x07\u009b", "?[31mred??"},
		{"bidi", "a\u202eb\u2066c", "a?b?c"},
		{"text", "naïve 日本 😀", "naïve 日本 😀"},
		{"not utf-8", "a\xffb", "a\ufffdb"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := inert(tc.in); got != tc.want {
				t.Errorf("inert(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
	for _, long := range []string{strings.Repeat("x", 5000), strings.Repeat("é", 5000), strings.Repeat("\xff", 5000), strings.Repeat("x", 1023) + "日本"} {
		got := inert(long)
		if len(got) > maxMessageBytes || !strings.HasSuffix(got, "…") {
			t.Errorf("inert of %d bytes has %d bytes, ends in %q", len(long), len(got), got[len(got)-3:])
		}
		if strings.ToValidUTF8(got, "") != got {
			t.Errorf("inert of %.10q cut a rune", long)
		}
	}
}

func TestTornLines(t *testing.T) {
	dir := t.TempDir() + "/events"
	clk := clocktesting.NewFakeClock(time.Now())
	r := recorder(t, dir, clk)
	r.Event(session("web"), Normal, "One", "")
	r.Close()
	path := filepath.Join(dir, fileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range whole { // a crash in the second write
		if err := os.WriteFile(path, append(append([]byte{}, whole...), whole[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dir, nil); len(got) != 1 {
			t.Fatalf("cut at %d: %d events, want 1", cut, len(got))
		}
		r := recorder(t, dir, clk)
		r.Event(session("web"), Normal, "Two", "")
		r.Close()
		got := read(t, dir, nil)
		if reasons := fmt.Sprintf("%d %s %s", len(got), got[0].Reason, got[len(got)-1].Reason); reasons != "2 One Two" {
			t.Fatalf("cut at %d: after another event: %s", cut, reasons)
		}
	}
	if err := os.WriteFile(path, []byte("not json\n{}\n[1]\n\n"+string(whole)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir, nil); len(got) != 1 {
		t.Errorf("between lines that are none: %d events, want 1", len(got))
	}
}

func TestReadOfNothing(t *testing.T) {
	if got := read(t, t.TempDir()+"/missing", nil); len(got) != 0 {
		t.Errorf("events = %v, want none", got)
	}
}

// next waits for the next event of a Follow.
func next(t *testing.T, events <-chan Event) Event {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			t.Fatal("the channel was closed")
		}
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("no event came")
	}
	panic("not reached")
}

func TestFollow(t *testing.T) {
	dir := t.TempDir() + "/events"
	clk := clocktesting.NewFakeClock(time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	fromNothing, err := Follow(ctx, dir, nil) // the folder comes later
	if err != nil {
		t.Fatal(err)
	}
	r := recorder(t, dir, clk)
	r.Event(session("web"), Normal, "One", "")
	if e := next(t, fromNothing); e.Reason != "One" {
		t.Fatalf("event = %+v", e)
	}
	r.Event(session("api"), Normal, "Two", "")
	next(t, fromNothing)
	chosen, err := Follow(ctx, dir, func(e Event) bool { return e.Name == "api" })
	if err != nil {
		t.Fatal(err)
	}
	if e := next(t, chosen); e.Reason != "Two" {
		t.Fatalf("event = %+v", e)
	}
	r.Event(session("web"), Normal, "Three", "")
	r.Event(session("api"), Normal, "Four", "")
	if e := next(t, chosen); e.Reason != "Four" {
		t.Fatalf("event = %+v", e)
	}
	cancel()
	for range chosen { // ends, or goleak tells
	}
}

// TestFollowOverRotation writes several files full, from several goroutines,
// and expects a follower to see each event once, and a reader those that are
// kept.
func TestFollowOverRotation(t *testing.T) {
	dir := t.TempDir() + "/events"
	r := recorder(t, dir, clock.RealClock{})
	const writers, each = 4, 4000 // 16,000 lines of 1.2 KB: more than four files
	message := strings.Repeat("m", 1000)
	events, err := Follow(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	slots := make(chan struct{}, 500) // no faster than it is followed, or the follower may lose whole files
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				slots <- struct{}{}
				r.Event(session(fmt.Sprintf("w%d", w)), Normal, "Written", fmt.Sprintf("%d %s", i, message))
			}
		})
	}
	for range writers * each {
		e := next(t, events)
		seen[e.Name+" "+e.Message]++
		<-slots
	}
	wg.Wait()
	if len(seen) != writers*each {
		t.Errorf("%d different events, want %d", len(seen), writers*each)
	}
	for _, path := range logFiles(dir) {
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Size() > maxFileBytes || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s has %d bytes, mode %o; at most %d and 600", path, fi.Size(), fi.Mode().Perm(), maxFileBytes)
		}
	}
	got := read(t, dir, nil)
	if len(got) != lines(t, dir) || len(got) < 10000 {
		t.Errorf("read %d events of %d lines", len(got), lines(t, dir))
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1+keepFiles {
		t.Errorf("%d files, %v; want %d", len(list), err, 1+keepFiles)
	}
}

// TestReadWhileRotated reads again and again while files are rotated: what
// was read once is read until it is dropped with the oldest file.
func TestReadWhileRotated(t *testing.T) {
	dir := t.TempDir() + "/events"
	r := recorder(t, dir, clock.RealClock{})
	message := strings.Repeat("m", 1000)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				r.Event(session("web"), Normal, "Written", fmt.Sprintf("%06d %s", i, message))
			}
		}
	})
	defer func() { close(stop); wg.Wait() }()
	for range 10 {
		list := read(t, dir, nil)
		for i := 1; i < len(list); i++ {
			var a, b int
			fmt.Sscan(list[i-1].Message, &a)
			fmt.Sscan(list[i].Message, &b)
			if b <= a { // gaps are events that the writer dropped; order and oneness hold
				t.Fatalf("event %d is followed by %d", a, b)
			}
		}
	}
}

// A log that cannot be written costs events, one line in the controller's log,
// and nothing else.
func TestDiskTrouble(t *testing.T) {
	dir := t.TempDir() + "/events"
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where the folder should be
		t.Fatal(err)
	}
	var mu sync.Mutex
	var told []string
	r := NewRecorder(Options{Dir: dir, Files: &files.Layer{}, Clock: clock.RealClock{}, Log: funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, args)
	}, funcr.Options{})})
	for i := range 50 {
		r.Event(session("web"), Normal, "Try", fmt.Sprint(i))
	}
	r.Close()
	r.Close()
	r.Event(session("web"), Normal, "Late", "")
	if len(told) != 1 {
		t.Errorf("told %d times: %q", len(told), told)
	}
}

// A full queue drops lines and says so; counts go on.
func TestSlowDisk(t *testing.T) {
	r := &Recorder{
		opts: Options{Clock: clock.RealClock{}}, wake: make(chan struct{}, 1), windows: map[same]*counted{},
	}
	for i := range 3 * maxPending {
		r.Event(session("web"), Normal, "Try", fmt.Sprint(i))
	}
	if len(r.pending) != maxPending || r.dropped == 0 || len(r.windows) != maxWindows || len(r.order) != maxWindows {
		t.Errorf("pending %d, dropped %d, windows %d, order %d", len(r.pending), r.dropped, len(r.windows), len(r.order))
	}
}

func FuzzRead(f *testing.F) {
	line, err := json.Marshal(Event{Time: time.Unix(1, 0), Name: "web", Count: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(line, '\n'))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir, nil); err != nil {
			t.Errorf("Read = %v", err)
		}
	})
}
