//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"skc.dev/skc/hack/e2e/world"
)

// wantCtl runs skcctl and holds it to an exit code and to words of its result.
func wantCtl(w *world.World, code int, words string, args ...string) world.Result {
	w.Helper()
	r := w.Ctl(args...)
	if r.Code != code || !strings.Contains(r.Out+r.Err, words) {
		w.Errorf("skcctl %q: exit code %d, want %d with %q:\n%s%s", args, r.Code, code, words, r.Out, r.Err)
	}
	return r
}

// A script asks with a key, repeats, changes its mind, closes and resumes: each
// is done once, also by a controller that came later, and the ledger tells it.
func TestRequestsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	w, _, _ := withControl(t)
	create := []string{"create", "session", "s1", "--path", w.Work, "--key", "k1"}
	wantCtl(w, 0, "session/s1 created\n", create...)
	pid := w.UntilRunning("s1")
	wantCtl(w, 0, "session/s1 created\n", create...)
	wantCtl(w, 7, "duplicate_conflict", "create", "session", "s1", "--path", w.Dir, "--key", "k1")
	wantCtl(w, 7, "duplicate_conflict", "close", "s1", "--key", "k1")
	wantCtl(w, 0, "session/s1 reattached\n", "resume", "s", "--key", "k2")
	if now := w.UntilRunning("s1"); now != pid || w.Starts("started") != 1 {
		t.Errorf("pid %d, then %d; %d starts, want 1", pid, now, w.Starts("started"))
	}
	wantCtl(w, 11, "is there already", "create", "session", "s1", "--path", w.Work)

	wantCtl(w, 0, "session/s1 closed\n", "close", "s1", "--key", "k3")
	if world.Lives(pid) {
		t.Errorf("process %d is still there", pid)
	}
	wantCtl(w, 0, "session/s1 cold restarted\n", "resume", "s1", "--key", "k4")
	pid = w.UntilRunning("s1")
	wantCtl(w, 0, "session/s1 closed\n", "close", "s1", "--key", "k3") // the answer, and no second close
	wantCtl(w, 0, "session/s1 cold restarted\n", "resume", "s1", "--key", "k4")
	if now := w.UntilRunning("s1"); now != pid || w.Starts("started") != 2 {
		t.Errorf("pid %d, then %d; %d starts, want 2", pid, now, w.Starts("started"))
	}

	// An id that is no name: the answer says what the session is called, and that
	// name is understood.
	name := strings.Fields(strings.TrimPrefix(wantCtl(w, 0, "session/s-", "create", "session", "A b", "--dir", filepath.Join(w.Work, "made")).Out, "session/"))[0]
	wantCtl(w, 0, "session/"+name+" closed\n", "close", name, "--key", "k5")
	wantCtl(w, 0, "session/"+name+" closed\n", "close", name, "--key", "k5")

	// What is not there, what is not ours, and what cannot start.
	wantCtl(w, 4, "not_found", "close", "nobody")
	wantCtl(w, 4, "not_found", "resume", "nobody")
	w.Apply(session("mine", sleeper))
	w.UntilRunning("mine")
	wantCtl(w, 10, "close_refused", "close", "mine")
	wantCtl(w, 11, "spawn_failed", "create", "session", "s2", "--path", filepath.Join(w.Dir, "nowhere"))
	w.UntilGone("s2")

	// Brought while no controller is there, and served when one is.
	w.Stop(syscall.SIGTERM)
	wantCtl(w, 6, "the request stays", "close", "s1", "--key", "k6")
	w.Start()
	wantCtl(w, 0, "session/s1 closed\n", "close", "s1", "--key", "k6")

	var doc struct {
		Version int
		Entries map[string]struct{ State, Verb string }
	}
	text := w.MustCtl("request", "export", "--format=ledger-v1")
	world.Must(t, json.Unmarshal([]byte(text), &doc))
	if e := doc.Entries["cli/k1"]; doc.Version != 1 || e.State != "success" || e.Verb != "session_create" {
		t.Errorf("the ledger is %s", text)
	}
	if again := w.MustCtl("request", "export", "--format=ledger-v1"); again != text {
		t.Error("the export is another each time")
	}
	file := filepath.Join(w.State, "managed", "default", "sessionrequest-"+strings.TrimPrefix(strings.TrimSpace(w.MustCtl("request", "get", "k1", "-o", "name")), "sessionrequest/")+".yaml")
	rows := w.MustCtl("audit", "verify", "--chat", "", "--request", file)
	// Two keys asked for that: one was done, one found it there already.
	for event, n := range map[string]int{"accepted": 2, "spawn_started": 1, "success": 1, "failure": 1} {
		if got := strings.Count(rows, " "+event+" "); got != n {
			t.Errorf("%d rows %s, want %d, in:\n%s", got, event, n, rows)
		}
	}
	if got := w.MustCtl("request", "describe", "k3"); !strings.Contains(got, "Process Gone:") || !strings.Contains(got, "Start it again: skcctl resume s1") {
		t.Errorf("describe says:\n%s", got)
	}
}

// 2 and 20 skcctl with one key at once: one session, one answer.
func TestManyRequestsOfOneKey(t *testing.T) {
	t.Parallel()
	w, _, _ := withControl(t)
	for i, n := range []int{2, 20} {
		all := make([]world.Result, n)
		var clients sync.WaitGroup
		for c := range n {
			clients.Go(func() {
				all[c] = w.Ctl("create", "session", fmt.Sprintf("s%d", n), "--path", w.Work, "--key", fmt.Sprintf("k%d", n))
			})
		}
		clients.Wait()
		for _, r := range all {
			if r.Code != 0 || r.Out != fmt.Sprintf("session/s%d created\n", n) {
				t.Errorf("%d at once: exit code %d: %s%s", n, r.Code, r.Out, r.Err)
			}
		}
		if got := w.Starts("started"); got != i+1 {
			t.Errorf("%d at once: %d starts, want %d", n, got, i+1)
		}
	}
}

// Without a secret nothing is served, and it is said what is missing; what was
// asked is not done later.
func TestRequestsAreOff(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	var clients sync.WaitGroup
	for range 10 {
		clients.Go(func() {
			wantCtl(w, 10, "there is no secret for their audit", "create", "session", "s1", "--path", w.Work, "--key", "k1")
		})
	}
	clients.Wait()
	if got := w.MustCtl("request", "get", "-o", "name"); got != "" {
		t.Errorf("still there: %s", got)
	}
}
