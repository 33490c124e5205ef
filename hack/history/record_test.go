//go:build e2e

package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// history is all that was seen from outside of one history. Times are
// nanoseconds since the machine started, by the clock that the kernel uses for
// the start of a process.
type history struct {
	Seed       uint64
	N          int
	Limit      int // creates that chats of its home may make; 0 is more than there are
	Keys       []key
	Deliveries []delivery
	Starts     []start
	Ends       []ending
	Twins      []string // programs of one session that were seen to run at the same time
	Kills      int      // ends of skcd
	Faults     int      // those of them that were at a fault point
}

// key is one key of the ledger, and the requests that use it: the first body,
// and others that should be refused once the first has it, or the other way round.
type key struct {
	Update int64
	Family int
	File   bool // brought by files in the spool, not by the control
	Bodies []body
}

// body is what is asked for.
type body struct {
	Verb string // create, close, resume, or delete, which only files can
	ID   string // of resume, an id or how one begins
	Dir  string // of create
	Gone bool   // Dir is not there
}

// delivery is one time that a request was sent.
type delivery struct {
	Client, Key, Body int
	Quiet             bool   `json:",omitempty"` // sent when all was over
	Object            string `json:",omitempty"` // that a file defined
	Lifecycle         string // the lifecycle request id that it had
	Call              int64
	Return            int64 `json:",omitempty"` // 0: no answer came
	Answer            answer
}

// Kinds of answers.
const (
	lost      = ""          // the connection ended before
	pending   = "pending"   // nobody can tell yet
	refused   = "refused"   // the ledger has nothing of it
	conflict  = "conflict"  // the key is another request's
	ok        = "ok"        // done
	failure   = "failure"   // not done, for good
	uncertain = "uncertain" // nobody will ever tell
	late      = "late"      // the client's patience is over: always wrong
	unknown   = "unknown"   // no answer of the protocol, or one to another: always wrong
)

// answer is one answer.
type answer struct {
	Kind       string   `json:",omitempty"`
	Reason     string   `json:",omitempty"`
	Message    string   `json:",omitempty"`
	Session    string   `json:",omitempty"`
	Mode       string   `json:",omitempty"`
	Candidates []string `json:",omitempty"`
	// Text is the frame without the ids that are of the delivery alone.
	Text string `json:",omitempty"`
	// Survivors are the programs of the session that ran when a close was said to
	// be done.
	Survivors []start `json:",omitempty"`
}

// final tells whether the ledger will never say anything else.
func (a answer) final() bool { return a.Kind == ok || a.Kind == failure || a.Kind == uncertain }

// same tells whether two final answers are one.
func (a answer) same(b answer) bool {
	return a.Kind == b.Kind && a.Reason == b.Reason && a.Session == b.Session && a.Mode == b.Mode && (a.Text == b.Text || a.Kind != ok)
}

func (a answer) String() string {
	text := a.Kind
	for _, s := range []string{a.Reason, a.Session, a.Mode, a.Message} {
		if s != "" {
			text += " " + s
		}
	}
	if len(a.Candidates) > 0 {
		text += fmt.Sprint(" ", a.Candidates)
	}
	if text == "" {
		return "no answer"
	}
	return text
}

// start is one line of the log into which every program writes that it starts.
type start struct {
	ID, UID, Lifecycle string
	PID                int
	At                 int64 // the kernel counts hundredths: at the earliest then
}

// tick is how exact At is.
const tick = int64(10_000_000)

// ending is what was there of a session at the end.
type ending struct {
	ID     string
	Exists bool
	UID    string
	Live   []start
}

func (h *history) write(path string) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, append(bytes.ReplaceAll(data, []byte(`},{`), []byte("},\n{")), '\n'), 0o600)
}

func read(path string) (*history, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	h := &history{}
	return h, json.Unmarshal(data, h)
}

// ids are the sessions that a family of requests is about.
func (h *history) ids(family int) (out []string) {
	seen := map[string]bool{}
	for _, k := range h.Keys {
		for _, b := range k.Bodies {
			if k.Family == family && b.Verb == "create" && !seen[b.ID] {
				seen[b.ID] = true
				out = append(out, b.ID)
			}
		}
	}
	return out
}

func (h *history) families() (n int) {
	for _, k := range h.Keys {
		n = max(n, k.Family+1)
	}
	return n
}
