//go:build e2e

package faults

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// start is one line of the log into which every program writes that it starts.
type start struct {
	uid, name, version string
	pid                int
	began              string // start time of the process, as the kernel counts
}

// startLog is that log, looked at every 50 ms for two programs of one UID.
type startLog struct {
	path string
	end  chan struct{}
	over sync.WaitGroup

	mu    sync.Mutex
	pairs map[string]bool
}

func follow(path string) *startLog {
	l := &startLog{path: path, end: make(chan struct{}), pairs: map[string]bool{}}
	l.over.Add(1)
	go func() {
		defer l.over.Done()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			l.twins()
			select {
			case <-l.end:
				return
			case <-tick.C:
			}
		}
	}()
	return l
}

func (l *startLog) close() {
	close(l.end)
	l.over.Wait()
}

// all are the starts so far.
func (l *startLog) all() (out []start) {
	data, err := os.ReadFile(l.path)
	if err != nil {
		return nil // nothing was started
	}
	for line := range strings.Lines(string(data)) {
		// UID, name, version, and /proc/PID/stat, of which the 22nd field is the start.
		f := strings.Fields(line)
		if len(f) < 25 {
			continue
		}
		pid, _ := strconv.Atoi(f[3])
		out = append(out, start{f[0], f[1], f[2], pid, f[24]})
	}
	return out
}

// lives tells whether just this process runs.
func (s start) lives() bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(s.pid) + "/stat")
	i := bytes.LastIndexByte(data, ')')
	if err != nil || i < 0 {
		return false
	}
	f := strings.Fields(string(data[i+1:]))
	return len(f) > 19 && f[0] != "Z" && f[0] != "X" && f[19] == s.began
}

// twins looks for two programs of one UID, and returns what was found so far.
// The log is read before the processes are looked at: one that ends before the
// next begins is never taken for its twin.
func (l *startLog) twins() (found []string) {
	alive := map[string][]string{}
	for _, s := range l.all() {
		if s.lives() {
			alive[s.uid] = append(alive[s.uid], fmt.Sprintf("%s of %s, pid %d", s.version, s.name, s.pid))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range alive {
		if len(a) > 1 {
			l.pairs[strings.Join(a, " and ")] = true
		}
	}
	for p := range l.pairs {
		found = append(found, p)
	}
	return found
}

// versions are the versions of a session's program, in the order of their start.
func (l *startLog) versions(name string) (out []string) {
	for _, s := range l.all() {
		if s.name == name {
			out = append(out, s.version)
		}
	}
	return out
}

// alive are the pids of a session's programs that run.
func (l *startLog) alive(name string) (out []int) {
	for _, s := range l.all() {
		if s.name == name && s.lives() {
			out = append(out, s.pid)
		}
	}
	return out
}

// last is the last start of a session.
func (l *startLog) last(name string) (last start) {
	for _, s := range l.all() {
		if s.name == name {
			last = s
		}
	}
	return last
}

// uids are the UIDs that a session had.
func (l *startLog) uids(name string) (out []string) {
	seen := map[string]bool{}
	for _, s := range l.all() {
		if s.name == name && !seen[s.uid] {
			seen[s.uid] = true
			out = append(out, s.uid)
		}
	}
	return out
}
