package tmux

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skc.dev/skc/effects"
)

// paneFormat is the one format by which panes are read. Only numbers come
// before the name; a name never holds a colon; what was started is last. tmux
// escapes line ends in both.
const paneFormat = "p #{session_id} #{window_id} #{pane_id} #{pane_pid} #{pane_dead} s#{pane_dead_status} g#{pane_dead_signal} #{session_name}:#{pane_start_command}"

// row is one line of paneFormat.
type row struct {
	session, window, pane, name string
	pid                         int
	dead                        bool // the terminal is closed as well
	known                       bool // how the program ended
	code                        int
	signal                      string
	launch                      effects.LaunchID // zero for a pane that is not ours
}

// parseRow reads one line; false for a line that is not of paneFormat.
func parseRow(line string) (row, bool) {
	f := strings.SplitN(line, " ", 9)
	if len(f) != 9 || f[0] != "p" || !id(f[1], '$') || !id(f[2], '@') || !id(f[3], '%') || !strings.HasPrefix(f[6], "s") || !strings.HasPrefix(f[7], "g") {
		return row{}, false
	}
	pid, err := strconv.Atoi(f[4])
	if err != nil {
		return row{}, false
	}
	name, started, ok := strings.Cut(f[8], ":")
	if !ok {
		return row{}, false
	}
	r := row{session: f[1], window: f[2], pane: f[3], pid: pid, dead: f[5] == "1", name: name}
	if s := f[6][1:]; s != "" {
		if r.code, err = strconv.Atoi(s); err != nil {
			return row{}, false
		}
		r.known = true
	}
	if s := f[7][1:]; s != "" {
		r.known, r.signal = true, signalName(s)
	}
	r.launch = parseMark(started)
	return r, true
}

func id(s string, sigil byte) bool {
	if len(s) < 2 || s[0] != sigil {
		return false
	}
	_, err := strconv.ParseUint(s[1:], 10, 31)
	return err == nil
}

// signalName gives the name of what tmux writes as a number, or as a name
// without SIG.
func signalName(s string) string {
	n, err := strconv.Atoi(s)
	if err != nil {
		return "SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")
	}
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return name
	}
	return "SIG" + s // a real-time signal has no name
}

// parseMark finds the launch that a pane carries: the last part of the path
// that ends what was started. tmux shows it in quotes when the path needs them.
func parseMark(started string) effects.LaunchID {
	started = strings.TrimRight(started, `"'`)
	l, ok := effects.ParseLaunchID(started[strings.LastIndexByte(started, '/')+1:])
	if !ok {
		return effects.LaunchID{}
	}
	return l
}

// entry is one pane that carries a mark.
type entry struct {
	effects.TmuxPane
	killing bool // we are ending its session; its windows' notices are no news
	waiting bool // its program ended and tmux was not yet heard how
	blind   bool // the kernel will not tell of its death
}

// index holds the marked panes. It is guarded by Client.mu.
type index struct {
	panes map[string]*entry // by pane id
	uids  map[string]*entry // by UID, the highest attempt of each
	dups  bool              // some UID is carried by more than one pane
}

func newIndex() *index {
	return &index{panes: map[string]*entry{}, uids: map[string]*entry{}}
}

func (x *index) add(e *entry) {
	x.remove(x.panes[e.PaneID])
	x.panes[e.PaneID] = e
	old := x.uids[e.Launch.UID]
	if old != nil {
		x.dups = true
	}
	if old == nil || newer(e, old) {
		x.uids[e.Launch.UID] = e
	}
}

// newer orders panes that carry one UID; of one attempt the first pane is the
// one that we made.
func newer(a, b *entry) bool {
	if a.Launch.Attempt != b.Launch.Attempt {
		return a.Launch.Attempt > b.Launch.Attempt
	}
	if len(a.PaneID) != len(b.PaneID) { // ids are counted up
		return len(a.PaneID) < len(b.PaneID)
	}
	return a.PaneID < b.PaneID
}

func (x *index) remove(e *entry) {
	if e == nil || x.panes[e.PaneID] != e {
		return
	}
	delete(x.panes, e.PaneID)
	if x.uids[e.Launch.UID] != e {
		return
	}
	delete(x.uids, e.Launch.UID)
	if !x.dups {
		return
	}
	for _, o := range x.panes {
		if o.Launch.UID == e.Launch.UID {
			if best := x.uids[o.Launch.UID]; best == nil || newer(o, best) {
				x.uids[o.Launch.UID] = o
			}
		}
	}
}

// window calls f for every marked pane of a window. Windows are few by session
// and notices of them rare, so they have no map of their own.
func (x *index) window(id string, f func(*entry)) {
	for _, e := range x.panes {
		if e.WindowID == id {
			f(e)
		}
	}
}

func (x *index) session(id string, f func(*entry)) {
	for _, e := range x.panes {
		if e.SessionID == id {
			f(e)
		}
	}
}
