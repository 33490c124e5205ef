//go:build e2e

package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/hack/e2e/world"
)

// home is one home of skcd, in which some histories follow each other.
type home struct {
	*world.World
	log   *startLog
	limit int
	token atomic.Pointer[string]
	keeper
}

// The program says who it is and goes on as one that does as SIGTERM tells it.
// Nothing is forked before the line is written: it has pid and start time.
const program = `read -r stat < /proc/$$/stat; echo "$SKC_SESSION_UID $SKC_SESSION_ID $SKC_LIFECYCLE_REQUEST_ID $stat" >> %s; exec sleep 6004`

// newHome makes a home; limit is the limit of creates of a chat, 0 for one that
// is never reached.
func newHome(t testing.TB, limit int) *home {
	t.Helper()
	w := world.New(t, true)
	w.Bin = bin
	hm := &home{World: w, limit: limit, log: &startLog{path: filepath.Join(w.Work, "log"), dead: map[start]bool{}}}
	secret := filepath.Join(w.Dir, "secret")
	w.Write(secret, "1234567890:"+world.Random()+"\n")
	world.Must(t, os.Chmod(secret, 0o600))
	if limit == 0 {
		limit = 1_000_000
	}
	w.Config(fmt.Sprintf("lifecycle: {secretFile: %q, pairedChat: %q, profile: logs, createLimit: %d, createWindow: 24h}\n", secret, chat, limit))
	for _, dir := range []string{"one", "two"} {
		world.Must(t, os.Mkdir(filepath.Join(w.Work, dir), 0o700))
	}
	w.Drop("profile.yaml", fmt.Sprintf(`apiVersion: skc.dev/v1alpha1
kind: AgentProfile
metadata: {name: logs}
spec:
  command: [sh, -c, %q]
`, fmt.Sprintf(program, hm.log.path)))
	hm.keeper.begin(w)
	return hm
}

// close has the home end under a skcd in which nothing fails, which sees what
// was left behind.
func (hm *home) close() {
	hm.Helper()
	hm.keeper.end()
	hm.Env = nil
	hm.Start()
}

// keeper starts skcd again whenever it ended.
type keeper struct {
	w    *world.World
	over sync.WaitGroup

	mu     sync.Mutex
	rand   *rand.Rand // nil: nothing is to fail
	now    *world.Controller
	armed  bool
	ended  bool
	kills  int // ends of skcd
	faults int // those at a fault point
}

func (k *keeper) begin(w *world.World) {
	k.w = w
	ready := make(chan struct{})
	k.over.Go(func() {
		for first := true; ; first = false {
			k.mu.Lock()
			if k.ended {
				k.mu.Unlock()
				return
			}
			k.w.Env, k.armed = nil, false
			if k.rand != nil && k.rand.IntN(4) > 0 {
				k.w.Env, k.armed = []string{"SKC_FAULT=" + randomKill(k.rand)}, true
			}
			c := k.w.Spawn()
			k.now = c
			k.mu.Unlock()
			if first {
				close(ready)
			}
			<-c.Done
			k.mu.Lock()
			if status, ok := c.Cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() && status.ExitStatus() != 0 {
				k.w.Errorf("skcd ended by itself: %s", c.Cmd.ProcessState)
			}
			k.kills++
			if strings.Contains(c.Text(), "SKC_FAULT: ") {
				k.faults++
			}
			k.mu.Unlock()
		}
	})
	<-ready
}

// fail has skcd be killed, from now on, or with nil no more.
func (k *keeper) fail(r *rand.Rand) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rand = r
}

// kill ends the skcd that runs, if it is one that a fault is to end, or, with
// armed false, if it is one that nothing else ends.
func (k *keeper) kill(sig syscall.Signal, armed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.armed == armed {
		_ = k.now.Cmd.Process.Signal(sig)
	}
}

func (k *keeper) killed() (all, faults int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kills, k.faults
}

func (k *keeper) end() {
	k.mu.Lock()
	k.ended = true
	c := k.now
	_ = c.Cmd.Process.Signal(syscall.SIGKILL)
	k.mu.Unlock()
	k.over.Wait()
}

// randomKill kills at some call of the file layer, or at the first that is
// reached of some places.
func randomKill(r *rand.Rand) string {
	if r.IntN(2) == 0 {
		return fmt.Sprintf("calls=kill@%d", 5+r.IntN(150))
	}
	var all []string
	for range 5 {
		all = append(all, fmt.Sprintf("%s=kill@%d", places[r.IntN(len(places))], 1+r.IntN(6)))
	}
	return strings.Join(all, ",")
}

// startLog is the log that the programs write.
type startLog struct {
	path string

	mu   sync.Mutex
	dead map[start]bool
}

// all are the starts so far.
func (l *startLog) all() (out []start) {
	data, err := os.ReadFile(l.path)
	if err != nil {
		return nil // nothing was started
	}
	for line := range strings.Lines(string(data)) {
		// UID, id, lifecycle request id, and /proc/PID/stat, of which the 22nd field is the start.
		f := strings.Fields(line)
		if len(f) < 25 {
			continue
		}
		pid, _ := strconv.Atoi(f[3])
		ticks, _ := strconv.ParseInt(f[24], 10, 64)
		out = append(out, start{UID: f[0], ID: f[1], Lifecycle: f[2], PID: pid, At: ticks * tick})
	}
	return out
}

// lives tells whether just this process runs.
func (s start) lives() bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID) + "/stat")
	i := bytes.LastIndexByte(data, ')')
	if err != nil || i < 0 {
		return false
	}
	f := strings.Fields(string(data[i+1:]))
	return len(f) > 19 && f[0] != "Z" && f[0] != "X" && f[19] == strconv.FormatInt(s.At/tick, 10)
}

// alive are the programs of a session that run; of all, with "".
func (l *startLog) alive(id string) (out []start) {
	all := l.all() // before the processes are looked at
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range all {
		switch {
		case id != "" && s.ID != id || l.dead[s]:
		case s.lives():
			out = append(out, s)
		default:
			l.dead[s] = true
		}
	}
	return out
}

// twins are sessions of which two programs run.
func (l *startLog) twins() (found []string) {
	ids := map[string]start{}
	for _, s := range l.alive("") {
		if o, ok := ids[s.ID]; ok {
			found = append(found, fmt.Sprintf("%s: pid %d and pid %d", s.ID, o.PID, s.PID))
		}
		ids[s.ID] = s
	}
	return found
}

// follow looks for twins until the end.
func (l *startLog) follow(end <-chan struct{}) (found []string) {
	seen := map[string]bool{}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, t := range l.twins() {
			if !seen[t] {
				seen[t], found = true, append(found, t)
			}
		}
		select {
		case <-end:
			return found
		case <-tick.C:
		}
	}
}
