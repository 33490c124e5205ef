// Package events keeps what happened to objects, for people: an append-only log
// of JSON lines, rotated and bounded. It is no truth: nothing is decided by it,
// a crash may lose its last lines, and a disk that is full costs events and
// nothing else. Repeated events are counted, so that a crash loop does not
// flood it.
package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// The types of an event.
const (
	Normal  = "Normal"
	Warning = "Warning"
)

// Event is one line of the log: something that happened to an object Count
// times from FirstTime to Time. A later line of the same FirstTime replaces an
// earlier one.
type Event struct {
	Time      time.Time `json:"time"`
	Type      string    `json:"type"` // Normal or Warning
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Count     int64     `json:"count"`
	FirstTime time.Time `json:"firstTime"`
}

// Key is the object that it happened to.
func (e Event) Key() api.Key { return api.Key{Kind: e.Kind, Namespace: e.Namespace, Name: e.Name} }

// same is what equal events have in common.
type same struct{ uid, eventType, reason, message string }

func (e Event) same() same { return same{e.UID, e.Type, e.Reason, e.Message} }

const (
	fileName        = "events.jsonl"
	maxFileBytes    = 4 << 20
	keepFiles       = 3 // rotated ones
	maxMessageBytes = 1 << 10

	// window is how long equal events are counted as one.
	window = 10 * time.Minute
	// maxWindows bounds the memory of open windows.
	maxWindows = 4096
	// maxPending bounds the memory of lines that a slow disk keeps waiting.
	maxPending = 4096
)

var (
	pointAppend = fault.New("events.append")
	pointRotate = fault.New("events.rotate")
)

// logFiles are the files of the log in dir, the newest first.
func logFiles(dir string) []string {
	paths := []string{filepath.Join(dir, fileName)}
	for i := range keepFiles {
		paths = append(paths, fmt.Sprintf("%s.%d", paths[0], i+1))
	}
	return paths
}

// Options says where the log is and what the recorder needs.
type Options struct {
	Dir   string // events folder; made when it is missing
	Files *files.Layer
	Clock clock.Clock
	Log   logr.Logger
}

// Recorder writes the log. There is one of it, in the controller.
type Recorder struct {
	opts Options
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	windows map[same]*counted
	order   []*counted // by first time, so the first ends first
	pending []Event
	dropped int64
	closed  bool
}

// counted is one open window.
type counted struct {
	event   Event
	written int64 // the count in its last line
}

// NewRecorder begins to record. Close it.
func NewRecorder(o Options) *Recorder {
	r := &Recorder{opts: o, wake: make(chan struct{}, 1), done: make(chan struct{}), windows: map[same]*counted{}}
	go r.run()
	return r
}

// Event records that something happened to an object. It waits for no disk and
// never fails. The message is cut at 1 KiB and made inert. It may be called by
// several goroutines, and after Close does nothing.
func (r *Recorder) Event(obj api.Object, eventType, reason, message string) {
	key, now := api.KeyOf(obj), r.opts.Clock.Now().UTC()
	e := Event{
		Time: now, Type: eventType, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, UID: string(obj.GetUID()),
		Reason: reason, Message: inert(message), Count: 1, FirstTime: now,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.expire(now)
	c := r.windows[e.same()]
	if c == nil {
		c = &counted{event: e}
		r.windows[e.same()] = c
		r.order = append(r.order, c)
	} else {
		c.event.Count++
		c.event.Time = now
	}
	if n := c.event.Count; n&(n-1) == 0 { // 1, 2, 4, 8, ...
		r.line(c)
	}
	if len(r.order) > maxWindows {
		r.end(r.order[0])
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// line puts a line of c in the queue. The caller holds r.mu.
func (r *Recorder) line(c *counted) {
	if len(r.pending) >= maxPending {
		r.dropped++
		return
	}
	r.pending = append(r.pending, c.event)
	c.written = c.event.Count
}

// end closes the first window. The caller holds r.mu.
func (r *Recorder) end(c *counted) {
	if c.event.Count > c.written {
		r.line(c)
	}
	delete(r.windows, c.event.same())
	r.order[0] = nil
	r.order = r.order[1:]
}

// expire closes the windows that are over. The caller holds r.mu.
func (r *Recorder) expire(now time.Time) {
	for len(r.order) > 0 {
		// A clock that was set back must not hold a window open for years.
		if age := now.Sub(r.order[0].event.FirstTime); age >= 0 && age < window {
			return
		}
		r.end(r.order[0])
	}
}

// Close writes what is counted and not yet written, and ends the recorder.
func (r *Recorder) Close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		for len(r.order) > 0 {
			r.end(r.order[0])
		}
		close(r.wake)
	}
	r.mu.Unlock()
	<-r.done
}

// run writes lines until Close.
func (r *Recorder) run() {
	defer close(r.done)
	broken := false // the log could not be written and that was told
	timer := r.opts.Clock.NewTimer(window)
	defer timer.Stop()
	for open := true; open; {
		select {
		case _, open = <-r.wake:
		case <-timer.C():
		}
		r.mu.Lock()
		r.expire(r.opts.Clock.Now())
		lines, dropped := r.pending, r.dropped
		r.pending, r.dropped = nil, 0
		next := window
		if len(r.order) > 0 {
			next = r.order[0].event.FirstTime.Add(window).Sub(r.opts.Clock.Now())
		}
		r.mu.Unlock()
		timer.Reset(max(next, time.Second))
		if dropped > 0 {
			r.opts.Log.Info("the disk is too slow for the event log", "dropped", dropped)
		}
		if len(lines) == 0 {
			continue
		}
		err := r.write(lines)
		if err != nil && !broken {
			r.opts.Log.Error(err, "events are lost until their log can be written again")
		}
		broken = err != nil
	}
}

// write appends lines, and rotates the log before it gets too long.
func (r *Recorder) write(lines []Event) error {
	var data []byte
	for _, e := range lines {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		data = append(append(data, line...), '\n')
	}
	path := filepath.Join(r.opts.Dir, fileName)
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := files.MkdirPrivate(r.opts.Dir); err != nil {
			return err
		}
	case err != nil:
		return err
	case fi.Size() > 0 && fi.Size()+int64(len(data)) > maxFileBytes:
		if err := r.rotate(); err != nil {
			return err
		}
	}
	return r.opts.Files.Append(pointAppend, path, data, files.Derived)
}

// rotate moves every file one place on, the oldest first; the last is replaced.
func (r *Recorder) rotate() error {
	paths := logFiles(r.opts.Dir)
	for i := keepFiles; i > 0; i-- {
		if err := r.opts.Files.Rename(pointRotate, paths[i-1], paths[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// inert makes a message one line that no terminal obeys, at most 1 KiB long.
func inert(s string) string {
	if len(s) > maxMessageBytes {
		cut := maxMessageBytes - len("…")
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case r < 0x20, r >= 0x7f && r <= 0x9f, r == 0x61c, r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff:
			return '?'
		}
		return r // invalid bytes come as utf8.RuneError, three bytes each
	}, s)
	if len(s) > maxMessageBytes { // of invalid bytes
		return inert(s)
	}
	return s
}
