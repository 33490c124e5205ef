//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/hack/e2e/world"
)

// B-022, case 008: four ends that are told apart, none Ready, none restarted,
// and the same after a restart of the controller.
func TestB022ExitsToldApart(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	for _, f := range []string{"ok", "bad", "sig", "missing"} {
		w.Drop(f+".yaml", caseFile(w, "008-exit-codes-told-apart", f+".yaml"))
	}
	w.Apply(session("outside", sleeper, "restartPolicy: Never"))
	w.Kill(w.UntilRunning("outside"), syscall.SIGKILL)
	check := func() {
		for name, reason := range map[string]string{
			"ends-ok": "Completed", "ends-7": "Error", "ends-kill": "Signaled", "ends-missing": "CommandNotFound", "outside": "Signaled",
		} {
			w.UntilCondition(name, "Ready", "False/"+reason)
			s := w.Status(name)
			d := s.Status.LastTermination
			if d == nil || d.Reason != reason || s.Status.Restarts.Total != 0 || d.StartedAt == nil || d.FinishedAt == nil {
				t.Errorf("%s: certificate %+v, restarts %+v", name, d, s.Status.Restarts)
				continue
			}
			code := int32(-1)
			if d.ExitCode != nil {
				code = *d.ExitCode
			}
			switch name {
			case "ends-ok":
				if code != 0 {
					t.Errorf("%s ended with %d", name, code)
				}
			case "ends-7":
				if code != 7 {
					t.Errorf("%s ended with %d", name, code)
				}
			case "ends-kill", "outside":
				if d.Signal != "SIGKILL" {
					t.Errorf("%s ended by %q", name, d.Signal)
				}
			case "ends-missing":
				if !strings.Contains(d.Message, "no-such-program-qqq") {
					t.Errorf("%s: %s", name, d.Message)
				}
			}
		}
		if n := len(w.Procs()); n != 0 {
			t.Errorf("%d processes run", n)
		}
	}
	check()
	w.Stop(syscall.SIGKILL)
	w.Start()
	check()
}

// B-022: many that end at once; no death is lost, each has its own code.
func TestB022ManyEndAtOnce(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	const n = 30
	for i := range n {
		name := fmt.Sprintf("end-%d", i)
		w.Drop(name+".yaml", session(name, script(fmt.Sprintf("while [ ! -e ../go ]; do sleep 0.1; done; exit %d", i)), "restartPolicy: Never"))
	}
	for i := range n {
		w.UntilRunning(fmt.Sprintf("end-%d", i))
	}
	w.Write(filepath.Join(w.Work, "go"), "")
	for i := range n {
		name := fmt.Sprintf("end-%d", i)
		reason := "Error"
		if i == 0 {
			reason = "Completed"
		}
		w.UntilCondition(name, "Ready", "False/"+reason)
		if d := w.Session(name).Status.LastTermination; d.ExitCode == nil || int(*d.ExitCode) != i {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

const stubbornScript = `setsid sleep 7777 & nohup sleep 7778 >/dev/null 2>&1 & (setsid sh -c "trap '' TERM HUP; while :; do sleep 1; done" &) ; trap "" HUP TERM; while :; do sleep 1; done`

// B-025, case 009: stop and delete mean every process, with control groups and
// without; a stranger of the same name lives on; force is told.
func TestB025StubbornChildren(t *testing.T) {
	t.Parallel()
	for _, cgroups := range []string{"auto", "off"} {
		t.Run("cgroups="+cgroups, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			stranger := exec.Command("sleep", "7777")
			world.Must(t, stranger.Start())
			defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()
			w.Start("--cgroups", cgroups)
			w.Drop("stubborn.yaml", strings.Replace(caseFile(w, "009-stubborn-children", "stubborn.yaml"), "  restartPolicy", "  stop: {gracePeriod: 2s}\n  restartPolicy", 1))
			w.Apply(session("worse", script(stubbornScript), "stop: {gracePeriod: 1s}"))
			w.UntilRunning("stubborn")
			w.UntilRunning("worse")
			uid, worse := string(w.Session("stubborn").UID), string(w.Session("worse").UID)
			w.Until("its children run", func() bool { return len(w.Of(uid)) >= 4 && len(w.Of(worse)) >= 6 })
			w.MustCtl("stop", "stubborn")
			took := w.Within(7*time.Second, "nothing of it is left", func() bool { return len(w.Of(uid)) == 0 })
			w.UntilCondition("stubborn", "Ready", "True/Stopped")
			if took < time.Second {
				t.Errorf("it was killed after %s, before the grace period was over", took)
			}
			if d := w.Status("stubborn").Status.LastTermination; d == nil || !d.Forced || d.RequestedBy != "Stopped" {
				t.Errorf("the certificate does not tell of force: %+v", d)
			}
			if m := w.Message("stubborn", "Ready"); !strings.Contains(m, "SIGKILL") {
				t.Errorf("the message does not tell of force: %s", m)
			}
			w.MustCtl("delete", "session", "worse", "--wait")
			if left := w.Of(worse); len(left) != 0 {
				t.Errorf("%v are left after delete", left)
			}
			if g := world.Group(worse); g != "" {
				t.Errorf("the control group %s is left", g)
			}
			if !world.Lives(stranger.Process.Pid) {
				t.Error("a stranger was killed")
			}
		})
	}
}

// B-025: what a program leaves behind when it ends by itself is ended before
// the next start, so that never two generations run.
func TestB025LeftBehindByADeath(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	w.Apply(session("forker", script("[ -e n ] && exec sleep 6000; : > n; setsid sleep 7779 & sleep 0.3; exit 1"), "stop: {gracePeriod: 1s}"))
	w.Until("it was restarted", func() bool { s := w.Session("forker"); return s != nil && s.Status.Restarts.Total == 1 })
	w.UntilRunning("forker")
	for _, p := range w.Procs() {
		if slices.Contains(p.Args, "7779") {
			t.Errorf("%d of the first start still runs", p.PID)
		}
	}
}

// B-026: a hundred creates under a resync that looks all the time, and the
// record of each first one written late: no fresh session is killed.
func TestB026SweepDoesNotKillFresh(t *testing.T) {
	t.Parallel()
	w := world.New(t, true)
	w.Env = []string{"SKC_FAULT=tmux.create:after=200ms@3,store.status:before=200ms@5"}
	w.Start("--resync", "50ms")
	const n = 60
	for i := range n {
		name := fmt.Sprintf("fresh-%d", i)
		w.Drop(name+".yaml", session(name, sleeper, "restartPolicy: Never"))
	}
	for i := range n {
		w.UntilRunning(fmt.Sprintf("fresh-%d", i))
	}
	for i := range n {
		if n := w.Starts(fmt.Sprintf("fresh-%d/log", i)); n != 1 {
			t.Errorf("fresh-%d was started %d times", i, n)
		}
	}
}

// R13, B-028: parallel applies and touches of several versions during the start.
func TestB028DoubleStart(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	w.Drop("once.yaml", caseFile(w, "010-parallel-apply-one-process", "once.yaml"))
	for range 100 {
		now := time.Now()
		world.Must(t, os.Chtimes(filepath.Join(w.Spool, "once.yaml"), now, now))
	}
	w.UntilRunning("once")
	w.Always(2*time.Second, "it was started once", func() bool { return len(w.Lines("once/log")) == 1 && len(w.Mains("once")) == 1 })
}

// B-031, case 012: twenty programs that cannot run start no more often than the
// documented schedule says (at once, at once, 2 s, 4 s, 8 s ...), the status does
// not change between tries, skcd is idle, and a neighbour is not slowed. The
// whole ten minutes are in reconcilers/session TestBackoffSchedule.
func TestB031RestartStorm(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Start()
	text := caseFile(w, "012-restart-storm", "storm.yaml")
	const n = 20
	for i := range n {
		w.Drop(fmt.Sprintf("storm-%d.yaml", i), strings.ReplaceAll(text, "storm", fmt.Sprintf("storm-%d", i)))
	}
	begin := time.Now()
	for i := range n {
		w.UntilCondition(fmt.Sprintf("storm-%d", i), "Ready", "False/CrashLoopBackOff")
	}
	w.Until("the third start is over", func() bool { return len(w.Lines("storm-0/log")) >= 3 })
	w.Until("its next start is told", func() bool {
		s := w.Session("storm-0")
		return s.Status.Restarts.Total >= 2 && s.Status.Restarts.NextAttemptAt != nil && w.Condition("storm-0", "Ready") == "False/CrashLoopBackOff"
	})
	s := w.Session("storm-0")
	if s.Status.Restarts.NextAttemptAt == nil {
		t.Fatalf("restarts: %+v", s.Status.Restarts)
	}
	// Between two tries nothing is written.
	before, err := os.ReadFile(w.StateFile("storm-0"))
	world.Must(t, err)
	cpu, at := world.CPU(c.PID()), time.Now()
	w.Always(max(0, time.Until(s.Status.Restarts.NextAttemptAt.Time)-700*time.Millisecond), "the status stays as it is", func() bool {
		now, err := os.ReadFile(w.StateFile("storm-0"))
		return err == nil && bytes.Equal(before, now)
	})
	w.Apply(session("neighbour", sleeper))
	w.Within(2*time.Second, "the neighbour runs", func() bool { return len(w.Mains("neighbour")) == 1 })
	w.Until("sixteen seconds are over", func() bool { return time.Since(begin) > 16*time.Second })
	for i := range n {
		// 0, 0, 2, 6, 14 seconds: five in sixteen seconds, and never one more.
		if l := w.Lines(fmt.Sprintf("storm-%d/log", i)); len(l) > 5 || len(l) < 4 {
			t.Errorf("storm-%d was started %d times in %s, the schedule has 5", i, len(l), time.Since(begin))
		}
	}
	if used, of := world.CPU(c.PID())-cpu, time.Since(at); used > of/20 {
		t.Errorf("skcd used %s in %s, more than 5 %%", used, of)
	}
}

// B-032: a program that lives shorter than resetAfter keeps backing off; one
// that lives longer starts again at once.
func TestB032BackoffReset(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	restart := "restart: {initialBackoff: 300ms, maxBackoff: 1m, resetAfter: 2s}"
	w.Apply(session("short", script("echo x >> log; sleep 1; exit 1"), "restartPolicy: Always", restart))
	w.Apply(session("long", script("echo x >> log; sleep 2.3; exit 1"), "restartPolicy: Always", restart))
	w.Until("the short one backs off", func() bool { s := w.Session("short"); return s != nil && s.Status.Restarts.Consecutive >= 3 })
	var most int64
	w.Until("the long one was restarted four times", func() bool {
		s := w.Session("long")
		most = max(most, s.Status.Restarts.Consecutive)
		if c := w.Condition("long", "Ready"); c == "False/CrashLoopBackOff" {
			t.Errorf("the long one backs off: %+v", s.Status.Restarts)
			return true
		}
		return s.Status.Restarts.Total >= 4
	})
	if most > 1 {
		t.Errorf("the long one has %d restarts in a row", most)
	}
}

// maxRestarts: given up after so many in a row, across a controller restart; a
// restart by hand begins anew.
func TestMaxRestarts(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	w.Apply(session("limited", script("echo x >> log; exit 1"), "restart: {initialBackoff: 100ms, maxBackoff: 200ms, maxRestarts: 3}"))
	w.UntilCondition("limited", "Ready", "False/RestartLimitExceeded")
	if n := len(w.Lines("limited/log")); n != 4 {
		t.Errorf("%d starts, want 4", n)
	}
	w.Stop(syscall.SIGKILL)
	w.Start()
	w.UntilCondition("limited", "Ready", "False/RestartLimitExceeded")
	w.Always(time.Second, "it is not started", func() bool { return len(w.Lines("limited/log")) == 4 })
	w.MustCtl("restart", "limited")
	w.Until("it was tried again", func() bool { return len(w.Lines("limited/log")) == 8 })
	w.UntilCondition("limited", "Ready", "False/RestartLimitExceeded")
}

// B-040, case 017: out and back in, with four delays, while the old program
// takes three seconds to end: always Running again, never two at once.
func TestB040RemoveAndPutBack(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	text := strings.Replace(caseFile(w, "017-remove-and-put-back", "back.yaml"), "echo start >> log;", "mkdir alone || echo DOUBLE >> log; echo start >> log;", 1)
	text = strings.Replace(text, "sleep 3; exit", "sleep 3; rmdir alone; exit", 1)
	w.Drop("back.yaml", text)
	w.UntilRunning("back")
	for _, d := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second} {
		out := filepath.Join(w.Work, "back.yaml")
		world.Must(t, os.Rename(filepath.Join(w.Spool, "back.yaml"), out))
		time.Sleep(d) // the delay is the case
		world.Must(t, os.Rename(out, filepath.Join(w.Spool, "back.yaml")))
		w.Until(fmt.Sprintf("it runs after %s", d), func() bool {
			s := w.Session("back")
			return s != nil && s.DeletionTimestamp == nil && w.Condition("back", "Ready") == "True/Running" && len(w.Mains("back")) == 1
		})
	}
	if slices.Contains(w.Lines("back/log"), "DOUBLE") {
		t.Errorf("two ran at once: %q", w.Lines("back/log"))
	}
}

// B-044: twenty changes of the command while the program takes two seconds to
// end: never two at once, and the last one wins.
func TestB044ChangeWhileRunning(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	text := func(i int) string {
		return session("many", script(`mkdir alone || echo DOUBLE >> log; echo $1 >> log; trap 'sleep 2; rmdir alone; exit' TERM; while :; do sleep 0.1; done`, "x", fmt.Sprintf("version-%d", i)))
	}
	w.Drop("many.yaml", text(0))
	w.UntilRunning("many")
	w.Until("it runs", func() bool { return len(w.Lines("many/log")) == 1 })
	for i := 1; i <= 20; i++ {
		w.Drop("many.yaml", text(i))
		time.Sleep(30 * time.Millisecond) // quickly, but not in one event
	}
	w.Until("the last version runs", func() bool {
		l := w.Lines("many/log")
		return l[len(l)-1] == "version-20" && w.Condition("many", "Ready") == "True/Running"
	})
	if l := w.Lines("many/log"); slices.Contains(l, "DOUBLE") {
		t.Errorf("two ran at once: %q", l)
	}
	if m := w.Mains("many"); len(m) != 1 {
		t.Errorf("%v run", m)
	}
}

// Suspend: hands off. Nothing is started, stopped or restarted; the status goes
// on; then all is made right.
func TestSuspend(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	w.Apply(session("held", sleeper, "restartPolicy: Always"))
	p := w.UntilRunning("held")
	w.Apply(session("held", `[sh, -c, "echo changed >> log; exec sleep 6000"]`, "restartPolicy: Always", "suspend: true"))
	w.Until("the change is seen", func() bool { return strings.Contains(w.Message("held", "SessionRunning"), "suspend") })
	w.Always(2*time.Second, "the old program runs", func() bool { return slices.Equal(w.Mains("held"), []int{p}) })
	w.Kill(p, syscall.SIGKILL)
	w.UntilCondition("held", "Ready", "False/Suspended")
	if d := w.Session("held").Status.LastTermination; d == nil || d.Signal != "SIGKILL" {
		t.Errorf("the death has no certificate: %+v", d)
	}
	w.Always(2*time.Second, "nothing is started", func() bool { return len(w.Mains("held")) == 0 })
	w.Apply(session("held", `[sh, -c, "echo changed >> log; exec sleep 6000"]`, "restartPolicy: Always"))
	w.UntilRunning("held")
	w.Until("the new command runs", func() bool { return slices.Contains(w.Lines("held/log"), "changed") })
	w.Apply(session("held", sleeper, "suspend: true"))
	w.Remove("default/session-held.yaml")
	w.UntilGone("held") // deletion is no matter of hands
}

// Readiness of every kind: pending, ready, lost; and late when the deadline is
// over.
func TestReadiness(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	world.Must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	world.Must(t, l.Close())
	web := http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			http.Error(rw, "no", http.StatusTeapot)
		}
	})}
	for name, probe := range map[string]string{
		"p-exec": `exec: {command: [test, -e, up]}`, "p-file": `file: {path: up}`, "p-screen": `screen: {pattern: "^listening on [0-9]+$"}`,
		"p-tcp": fmt.Sprintf(`tcp: {port: %d}`, port), "p-http": fmt.Sprintf(`http: {port: %d, path: /ok}`, port),
		"p-bad": fmt.Sprintf(`http: {port: %d, path: /bad}`, port), "p-late": `file: {path: never}, deadline: 1s`,
	} {
		w.Apply(session(name, script("while [ ! -e up ]; do sleep 0.1; done; echo listening on 80; exec sleep 6000"), "readiness: {period: 200ms, "+probe+"}"))
	}
	for _, p := range []string{"p-exec", "p-file", "p-screen", "p-tcp", "p-http"} {
		w.UntilCondition(p, "Ready", "Unknown/ReadinessPending")
	}
	if r := w.Ctl("wait", "p-exec", "--for=condition=Ready", "--timeout=500ms"); r.Code != 5 {
		t.Errorf("wait for what is not ready: code %d, %s", r.Code, r.Err)
	}
	w.UntilCondition("p-late", "Ready", "False/ReadinessDeadlineExceeded")
	for _, p := range []string{"p-exec", "p-file", "p-screen"} {
		w.Write(filepath.Join(w.Work, p, "up"), "")
	}
	l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	world.Must(t, err)
	go func() { _ = web.Serve(l) }()
	for _, p := range []string{"p-exec", "p-file", "p-screen", "p-tcp", "p-http"} {
		w.UntilRunning(p)
	}
	world.Must(t, web.Close())
	world.Must(t, os.Remove(filepath.Join(w.Work, "p-exec", "up")))
	for _, p := range []string{"p-exec", "p-tcp", "p-http"} {
		w.UntilCondition(p, "Ready", "False/ReadinessLost")
	}
	if c := w.Condition("p-bad", "Ready"); c == "True/Running" {
		t.Error("418 counts as ready")
	}
	if c := w.Condition("p-screen", "Ready"); c != "True/Running" {
		t.Errorf("p-screen is %s", c)
	}
	for _, p := range []string{"p-exec", "p-tcp", "p-late"} {
		if s := w.Session(p); s.Status.Restarts.Total != 0 {
			t.Errorf("%s was restarted", p)
		}
	}
}

// What people do by hand in tmux is seen and healed, or reported.
func TestByHand(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	u := newUserTmux(w, "")
	w.Start()
	for _, s := range []string{"killed", "killed-pane", "renamed", "respawned", "pane-respawned"} {
		w.Apply(session(s, sleeper))
	}
	w.Apply(session("never", sleeper, "restartPolicy: Never"))
	pid := map[string]int{}
	for _, s := range []string{"killed", "killed-pane", "renamed", "respawned", "pane-respawned", "never"} {
		pid[s] = w.UntilRunning(s)
	}
	w.MustTmux("kill-session", "-t", "=killed")
	w.MustTmux("kill-pane", "-t", "=killed-pane:")
	w.MustTmux("kill-session", "-t", "=never")
	w.MustTmux("rename-session", "-t", "=renamed", "other")
	w.MustTmux("rename-window", "-t", "=other:", "thing")
	w.MustTmux("respawn-pane", "-k", "-t", "=respawned:")
	w.MustTmux("respawn-pane", "-k", "-t", "=pane-respawned:", "sleep 5555")
	for _, s := range []string{"killed", "killed-pane"} {
		w.Until(s+" runs again", func() bool { m := w.Mains(s); return len(m) == 1 && m[0] != pid[s] })
		w.UntilRunning(s)
		if d := w.Status(s).Status.LastTermination; d == nil || d.Reason != "SessionKilled" && d.Reason != "Signaled" {
			t.Errorf("%s: %+v", s, d)
		}
	}
	w.UntilCondition("never", "Ready", "False/SessionKilled")
	w.Until("respawned runs again", func() bool { m := w.Mains("respawned"); return len(m) == 1 && m[0] != pid["respawned"] })
	w.UntilRunning("respawned")
	// A pane that runs something else is either ended and the program back, or
	// named in the status. It is never called Ready.
	w.Until("pane-respawned is healed or reported", func() bool {
		ready := w.Condition("pane-respawned", "Ready")
		return ready == "False/NameTaken" || ready == "True/Running" && len(w.Mains("pane-respawned")) == 1
	})
	if p := w.UntilRunning("renamed"); p != pid["renamed"] {
		t.Errorf("a renamed session was restarted: %d to %d", pid["renamed"], p)
	}
	w.MustCtl("send", "renamed", "x")
	u.run("new-session", "-d", "-s", "look", fmt.Sprintf("SKC_HOME=%s %s/skcctl attach renamed", w.Home, w.Bin))
	w.Until("attach reaches it under its new name", func() bool {
		out, _ := w.Tmux("list-clients", "-F", "#{session_name} #{client_control_mode}")
		return strings.Contains(out, "other 0")
	})
	w.MustCtl("delete", "session", "renamed", "--wait")
	if out := w.MustTmux("list-sessions", "-F", "#{session_name}"); strings.Contains(out, "other") {
		t.Errorf("the renamed session is left: %s", out)
	}
	w.MustCtl("restart", "pane-respawned")
	if out, err := w.Tmux("kill-session", "-t", "=pane-respawned"); err == nil {
		w.UntilRunning("pane-respawned")
	} else {
		t.Logf("it is gone already: %s", out)
	}
}
