package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Filter chooses events; nil chooses all.
type Filter func(Event) bool

// Read returns the events of the log in dir that filter chooses, each with its
// latest count, in the order of their times. Lines that are not whole are
// passed over. A log that is missing is empty. It needs no controller.
func Read(dir string, filter Filter) ([]Event, error) {
	f := follower{dir: dir, filter: filter}
	defer f.close()
	lines, err := f.begin()
	return merge(lines), err
}

// merge keeps the latest line of each event.
func merge(lines []Event) []Event {
	type id struct {
		same
		first int64
	}
	latest := map[id]int{}
	var out []Event
	for _, e := range lines {
		k := id{e.same(), e.FirstTime.UnixNano()}
		i, known := latest[k]
		switch {
		case !known:
			latest[k] = len(out)
			out = append(out, e)
		case e.Count > out[i].Count:
			out[i] = e
		}
	}
	slices.SortStableFunc(out, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return out
}

// Follow tells of the events that filter chooses: first of those that are
// there, as Read does, then of each line as it is written, until ctx ends,
// which closes the channel. It goes on over rotations.
func Follow(ctx context.Context, dir string, filter Filter) (<-chan Event, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		notify = nil // no inotify to be had
	}
	f := &follower{dir: dir, filter: filter, notify: notify}
	f.watched() // before the first look, so that nothing falls between
	lines, err := f.begin()
	if err != nil {
		f.close()
		return nil, err
	}
	out := make(chan Event)
	go f.run(ctx, merge(lines), out)
	return out, nil
}

// How often the log is looked at: file events only hasten that.
const (
	relook     = 2 * time.Second
	relookBare = 300 * time.Millisecond
)

// follower reads the log as it grows. It holds the newest file open, so that it
// finds it again, by device and inode, after it was rotated.
type follower struct {
	dir    string
	filter Filter
	notify *fsnotify.Watcher

	file *os.File // nil while there is none
	part []byte   // of a line whose end is not written yet
}

func (f *follower) close() {
	if f.file != nil {
		_ = f.file.Close()
	}
	if f.notify != nil {
		_ = f.notify.Close()
	}
}

// watched tells whether file events come, and sees to it if that is possible.
func (f *follower) watched() bool { return f.notify != nil && f.notify.Add(f.dir) == nil }

func (f *follower) run(ctx context.Context, first []Event, out chan<- Event) {
	defer close(out)
	defer f.close()
	var wake chan fsnotify.Event
	var errs chan error
	if f.notify != nil {
		wake, errs = f.notify.Events, f.notify.Errors
	}
	for lines := first; ; {
		for _, e := range lines {
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
		pause := relookBare
		if f.watched() {
			pause = relook
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-errs: // events were lost
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		lines, _ = f.more() // what could not be read now may be at the next look
	}
}

// begin reads all files. The newest is read first: a rotation between two reads
// then shows lines twice, and never hides any.
func (f *follower) begin() ([]Event, error) {
	newer, err := f.newer()
	if err != nil {
		return nil, err
	}
	return f.take(newer)
}

// more reads what was written since.
func (f *follower) more() ([]Event, error) {
	var lines []Event
	newer, err := f.newer()
	if err != nil {
		return nil, err
	}
	if f.file != nil { // to its end, also when it was rotated
		if lines, err = f.rest(f.file); err != nil {
			closeAll(newer)
			return nil, err
		}
	}
	if len(newer) == 0 {
		return lines, nil
	}
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
	more, err := f.take(newer)
	return append(lines, more...), err
}

// newer opens the files that are newer than the held one, the newest first.
func (f *follower) newer() (out []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(out)
			out = nil
		}
	}()
	var held os.FileInfo
	if f.file != nil {
		if held, err = f.file.Stat(); err != nil {
			return out, err
		}
	}
	for _, path := range logFiles(f.dir) {
		file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, err
		}
		fi, err := file.Stat()
		if err == nil && held != nil && os.SameFile(fi, held) {
			return out, file.Close()
		}
		if err != nil || !fi.Mode().IsRegular() || sameAsOne(fi, out) {
			_ = file.Close()
			continue
		}
		out = append(out, file)
	}
	return out, nil
}

// sameAsOne tells a file that was rotated between two opens.
func sameAsOne(fi os.FileInfo, opened []*os.File) bool {
	return slices.ContainsFunc(opened, func(o *os.File) bool {
		other, err := o.Stat()
		return err == nil && os.SameFile(fi, other)
	})
}

// take reads files, given the newest first, and holds the newest.
func (f *follower) take(newer []*os.File) ([]Event, error) {
	var lines []Event
	for i, file := range slices.Backward(newer) {
		f.part = nil
		more, err := f.rest(file)
		if err != nil {
			closeAll(newer[:i+1])
			return lines, err
		}
		lines = append(lines, more...)
		if i > 0 {
			_ = file.Close()
		} else {
			f.file = file
		}
	}
	return lines, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// rest reads a file from where it was read last to its end.
func (f *follower) rest(file *os.File) ([]Event, error) {
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	data = append(f.part, data...)
	end := bytes.LastIndexByte(data, '\n') + 1
	f.part = bytes.Clone(data[end:])
	var out []Event
	for line := range bytes.Lines(data[:end]) {
		var e Event
		// What a crash tore is no JSON.
		if json.Unmarshal(line, &e) == nil && !e.Time.IsZero() && (f.filter == nil || f.filter(e)) {
			out = append(out, e)
		}
	}
	return out, nil
}
