package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

func canonical(spec v1alpha1.SessionSpec) ([]byte, error) { return json.Marshal(spec) }

func policy(p v1alpha1.RestartPolicy) func(*v1alpha1.SessionSpec) {
	return func(s *v1alpha1.SessionSpec) { s.RestartPolicy = p }
}

func stopped(s *v1alpha1.SessionSpec) { s.DesiredState = v1alpha1.DesiredStopped }

func TestASessionComesUpAndASecondPassWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	if next := w.pass(); next != 0 {
		t.Errorf("next look in %s, want none: changes tell", next)
	}
	w.wantRunning(1)
	w.wantCondition(v1alpha1.WorkspaceReady, metav1.ConditionTrue, v1alpha1.ReasonWorkspaceCreated)
	w.wantCondition(v1alpha1.ProbeSucceeded, metav1.ConditionTrue, v1alpha1.ReasonNoProbe)
	w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRunning)
	s := w.get()
	if s.Status.ObservedGeneration != 1 || s.Status.Restarts.Total != 0 || s.Status.LastTermination != nil {
		t.Errorf("status %+v, want generation 1, no restart, no death", s.Status)
	}
	writes := w.store.Stats().Writes
	w.restartController()
	w.pass()
	if got := w.store.Stats().Writes; got != writes {
		t.Errorf("%d writes of passes that find nothing to do", got-writes)
	}
}

func TestWhatComesAfterAnEnd(t *testing.T) {
	for _, tt := range []struct {
		policy     v1alpha1.RestartPolicy
		exit       int
		wantReason string // of SessionRunning
		restarted  bool
	}{
		{v1alpha1.RestartNever, 0, v1alpha1.ReasonCompleted, false},
		{v1alpha1.RestartNever, 7, v1alpha1.ReasonError, false},
		{v1alpha1.RestartOnFailure, 0, v1alpha1.ReasonCompleted, false},
		{v1alpha1.RestartOnFailure, 7, v1alpha1.ReasonRunning, true},
		{v1alpha1.RestartAlways, 0, v1alpha1.ReasonRunning, true},
	} {
		t.Run(fmt.Sprintf("%s after %d", tt.policy, tt.exit), func(t *testing.T) {
			w := newWorld(t)
			w.apply(w.spec(policy(tt.policy)), nil)
			w.pass()
			w.mux.Write(w.pane(), "one", "two")
			w.mux.Exit(w.pane(), tt.exit)
			w.pass()
			d := w.get().Status.LastTermination
			if d == nil || d.ExitCode == nil || int(*d.ExitCode) != tt.exit || d.Attempt != 1 || !slices.Equal(d.LastLines, []string{"one", "two"}) {
				t.Fatalf("certificate %+v, want exit %d of attempt 1 with its last lines", d, tt.exit)
			}
			if tt.restarted {
				w.wantRunning(2)
			} else {
				w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, tt.wantReason)
				w.wantCondition(v1alpha1.Ready, metav1.ConditionFalse, tt.wantReason)
				w.restartController() // and it stays so
				w.pass()
				w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, tt.wantReason)
			}
		})
	}
}

func TestASignalIsNotAnExitCode(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(policy(v1alpha1.RestartNever)), nil)
	w.pass()
	w.mux.Die(w.pane(), "SIGSEGV")
	w.pass()
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonSignaled)
	if d := w.get().Status.LastTermination; d.Signal != "SIGSEGV" || d.ExitCode != nil {
		t.Errorf("certificate %+v, want SIGSEGV and no code", d)
	}
}

// B-031, B-032: the backoff doubles, survives a controller restart, is shown, and
// begins anew after a healthy time only.
func TestCrashLoop(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(policy(v1alpha1.RestartAlways)), nil)
	w.pass()
	w.mux.Exit(w.pane(), 1)
	w.pass()
	w.wantRunning(2) // the first at once
	attempt := int64(2)
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		w.clock.Step(2 * time.Second) // looked healthy for a moment
		w.mux.Exit(w.pane(), 1)
		if next := w.pass(); next != want {
			t.Fatalf("next start in %s, want %s", next, want)
		}
		w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonCrashLoopBackOff)
		if at := w.get().Status.Restarts.NextAttemptAt; at == nil || !at.Time.Equal(w.clock.Now().Add(want)) {
			t.Fatalf("nextAttemptAt %v, want in %s", at, want)
		}
		w.restartController()
		if next := w.pass(); next != want {
			t.Fatalf("after a controller restart: next start in %s, want %s", next, want)
		}
		w.clock.Step(want)
		w.pass()
		attempt++
		w.wantRunning(attempt)
	}
	w.clock.Step(10*time.Minute - time.Millisecond)
	w.mux.Exit(w.pane(), 1)
	if next := w.pass(); next != 16*time.Second {
		t.Fatalf("just under resetAfter: next start in %s, want 16s", next)
	}
	w.clock.Step(16 * time.Second)
	w.pass()
	w.clock.Step(10 * time.Minute)
	w.mux.Exit(w.pane(), 1)
	w.pass()
	w.wantRunning(attempt + 2) // at once
	if rs := w.get().Status.Restarts; rs.Consecutive != 1 || rs.Total != attempt+1 {
		t.Errorf("restarts %+v, want 1 in a row of %d", rs, attempt+1)
	}
}

func TestRestartLimit(t *testing.T) {
	w := newWorld(t)
	limit := func(n int32) func(*v1alpha1.SessionSpec) {
		return func(s *v1alpha1.SessionSpec) { s.Restart.MaxRestarts = n }
	}
	w.apply(w.spec(limit(1)), nil)
	w.pass()
	w.mux.Exit(w.pane(), 1)
	w.pass()
	w.mux.Exit(w.pane(), 1)
	if next := w.pass(); next != 0 {
		t.Errorf("next look in %s, want none", next)
	}
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonRestartLimitExceeded)
	w.apply(w.spec(limit(1)), map[string]string{v1alpha1.RestartedAtAnnotation: "now"})
	w.pass()
	w.wantRunning(3)
}

func TestStop(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		t.Run(fmt.Sprintf("stubborn %v", stubborn), func(t *testing.T) {
			w := newWorld(t)
			w.apply(w.spec(policy(v1alpha1.RestartAlways)), nil)
			w.pass()
			w.procs.stubborn = stubborn
			uid := string(w.get().UID)
			w.procs.extra[uid] = []fakeProcess{{effects.ProcessID{PID: 77, StartTime: "1"}, stubborn}}
			w.apply(w.spec(policy(v1alpha1.RestartAlways), stopped), nil)
			next := w.pass()
			if stubborn {
				w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStopping)
				w.wantCondition(v1alpha1.Ready, metav1.ConditionFalse, v1alpha1.ReasonStopping)
				if next != 10*time.Second {
					t.Fatalf("next look in %s, want the grace period", next)
				}
				w.restartController() // in the middle; it must not signal again
				w.pass()
				w.clock.Step(10 * time.Second)
				w.pass()
			}
			w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStopped)
			w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonStopped)
			if !slices.Equal(w.procs.signals, []string{"SIGTERM"}) || (w.procs.killed > 0) != stubborn {
				t.Errorf("signals %v, killed %d; want one SIGTERM, killed: %v", w.procs.signals, w.procs.killed, stubborn)
			}
			d := w.get().Status.LastTermination
			if d.RequestedBy != v1alpha1.RequestedStopped || d.Forced != stubborn || w.get().Status.Stopping != nil {
				t.Errorf("certificate %+v, want requested, forced: %v", d, stubborn)
			}
			w.apply(w.spec(policy(v1alpha1.RestartAlways)), nil)
			w.procs.stubborn = false
			w.pass()
			w.wantRunning(2)
			if rs := w.get().Status.Restarts; rs.Total != 0 {
				t.Errorf("restarts %+v: a stop and a start are no restart", rs)
			}
		})
	}
}

// A program that had ended by itself is started again when it is stopped and
// started, whatever the policy.
func TestStopAndStartOfWhatHadEnded(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(policy(v1alpha1.RestartNever)), nil)
	w.pass()
	w.mux.Exit(w.pane(), 0)
	w.pass()
	w.apply(w.spec(policy(v1alpha1.RestartNever), stopped), nil)
	w.pass()
	w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonStopped)
	w.apply(w.spec(policy(v1alpha1.RestartNever)), nil)
	w.pass()
	w.wantRunning(2)
}

func TestWhichChangesRestart(t *testing.T) {
	value := "1"
	for name, tt := range map[string]struct {
		edit        func(*v1alpha1.SessionSpec)
		annotations map[string]string
		restarts    bool
		requested   string
	}{
		"command":     {func(s *v1alpha1.SessionSpec) { s.Command = []string{"sleep", "700"} }, nil, true, v1alpha1.RequestedSpecChanged},
		"env":         {func(s *v1alpha1.SessionSpec) { s.Env = []v1alpha1.EnvVar{{Name: "A", Value: &value}} }, nil, true, v1alpha1.RequestedSpecChanged},
		"terminal":    {func(s *v1alpha1.SessionSpec) { s.Terminal = &v1alpha1.TerminalSpec{Columns: 90} }, nil, true, v1alpha1.RequestedSpecChanged},
		"restartedAt": {func(*v1alpha1.SessionSpec) {}, map[string]string{v1alpha1.RestartedAtAnnotation: "now"}, true, v1alpha1.RequestedRestart},
		"policy":      {policy(v1alpha1.RestartAlways), nil, false, ""},
		"stop signal": {func(s *v1alpha1.SessionSpec) { s.Stop.Signal = "SIGINT" }, nil, false, ""},
		"annotation":  {func(*v1alpha1.SessionSpec) {}, map[string]string{"note": "x"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.apply(w.spec(), nil)
			w.pass()
			pid := w.pane().Process
			w.apply(w.spec(tt.edit), tt.annotations)
			w.pass()
			if tt.restarts {
				w.wantRunning(2)
				if d := w.get().Status.LastTermination; d.RequestedBy != tt.requested {
					t.Errorf("requested by %q, want %q", d.RequestedBy, tt.requested)
				}
			} else if w.wantRunning(1); w.pane().Process != pid {
				t.Error("the program is another one")
			}
			if rs := w.get().Status.Restarts; rs.Total != 0 || rs.Consecutive != 0 {
				t.Errorf("restarts %+v, want none counted", rs)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	w.pass()
	w.procs.stubborn = true
	w.remove()
	w.pass()
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStopping)
	w.clock.Step(10 * time.Second)
	w.pass()
	if v := w.version(); v != "gone" {
		t.Fatalf("object is still there (version %s)", v)
	}
	if all, _ := w.mux.List(t.Context()); len(all) != 0 {
		t.Errorf("tmux still has %v", all)
	}
	if _, err := os.Stat(w.work); err == nil {
		t.Error("the folder that skc made, and that is empty, is still there")
	}
	if _, err := w.r.Reconcile(t.Context(), web); err != nil {
		t.Errorf("a pass over what is gone: %v", err)
	}
}

func TestServerLost(t *testing.T) {
	for _, p := range []v1alpha1.RestartPolicy{v1alpha1.RestartAlways, v1alpha1.RestartOnFailure, v1alpha1.RestartNever} {
		t.Run(string(p), func(t *testing.T) {
			w := newWorld(t)
			w.apply(w.spec(policy(p)), nil)
			w.pass()
			w.mux.KillServer()
			w.pass()
			if d := w.get().Status.LastTermination; d == nil || d.Reason != v1alpha1.ReasonServerLost {
				t.Fatalf("certificate %+v, want ServerLost", d)
			}
			if p == v1alpha1.RestartNever {
				w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonServerLost)
				return
			}
			w.wantRunning(2)
			if rs := w.get().Status.Restarts; rs.Consecutive != 0 || rs.Total != 1 || rs.NextAttemptAt != nil {
				t.Errorf("restarts %+v: the loss of the server costs no budget", rs)
			}
		})
	}
}

func TestReboot(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	w.pass()
	w.mux.KillServer()
	w.restartController()
	w.r.BootID = "boot-2"
	w.pass()
	if d := w.get().Status.LastTermination; d.Reason != v1alpha1.ReasonRebooted || d.BootID != "boot-1" {
		t.Errorf("certificate %+v, want Rebooted of boot-1", d)
	}
	w.wantRunning(2)
}

// Unknown is not absent: a tmux that does not answer stops, starts and forgets
// nothing.
func TestHungServer(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	w.pass()
	pid := w.pane().Process
	w.mux.Hang()
	w.apply(w.spec(func(s *v1alpha1.SessionSpec) { s.Command = []string{"other"} }), nil)
	w.pass()
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionUnknown, v1alpha1.ReasonTmuxUnreachable)
	w.wantCondition(v1alpha1.Ready, metav1.ConditionUnknown, v1alpha1.ReasonTmuxUnreachable)
	w.remove()
	w.pass()
	if w.version() == "gone" {
		t.Fatal("deleted without a look")
	}
	w.mux.Resume()
	if p := w.pane(); p.Dead || p.Process != pid {
		t.Fatalf("pane %+v, want the same program alive", p)
	}
	w.pass()
	if w.version() != "gone" {
		t.Fatal("not deleted after tmux answered again")
	}
}

// B-067: a controller that dies between the start and its record finds the
// program by what it carries.
func TestCrashBetweenStartAndRecord(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("first start %v", first), func(t *testing.T) {
			var w *world
			for n := 1; ; n++ { // fail the status write that follows the start
				w = newWorld(t)
				must(t, os.Mkdir(w.work, 0o755)) // a folder of our own takes a pass more
				w.apply(w.spec(), nil)
				if !first {
					w.pass()
					w.mux.Exit(w.pane(), 1)
					_, err := w.r.Reconcile(t.Context(), web) // the certificate
					must(t, err)
				}
				w.calls.n, w.calls.at = 0, n
				_, err := w.r.Reconcile(t.Context(), web)
				if _, ok := w.procs.main(string(w.get().UID)); ok && errors.Is(err, errInjected) {
					break
				}
				if n > 30 {
					t.Fatal("the start was never reached")
				}
			}
			w.calls.at = 0
			pid := w.pane().Process
			attempt := w.pane().Launch.Attempt
			w.restartController()
			w.pass()
			w.wantRunning(attempt)
			if w.pane().Process != pid {
				t.Error("another program was started")
			}
			if rs := w.get().Status.Restarts; (rs.Total == 0) != first || (rs.Consecutive == 0) != first {
				t.Errorf("restarts %+v after a crash; first start: %v", rs, first)
			}
			if (w.get().Status.LastTermination == nil) != first {
				t.Errorf("certificate %+v after a crash; first start: %v", w.get().Status.LastTermination, first)
			}
		})
	}
}

// For every n the nth effect fails once, before it acts or after; one more clean
// run leads to the world of an unbroken one.
func TestAnyFailureHeals(t *testing.T) {
	running := func(attempt int64) func(*world) { return func(w *world) { w.wantRunning(attempt) } }
	anyFailureHeals(t, newWorld, 0, []step{
		{"create", func(w *world) { w.apply(w.spec(), nil) }, running(1)},
		{"change", func(w *world) { w.apply(w.spec(func(s *v1alpha1.SessionSpec) { s.Command = []string{"b"} }), nil) }, running(2)},
		{"restart after death", func(w *world) { w.mux.Exit(w.pane(), 3) }, running(3)},
		{"left behind", func(w *world) {
			uid := string(w.get().UID)
			w.procs.extra[uid] = []fakeProcess{{effects.ProcessID{PID: 77, StartTime: "1"}, false}}
			w.clock.Step(time.Hour)
			w.mux.Exit(w.pane(), 3)
		}, running(4)},
		{"server lost", func(w *world) { w.mux.KillServer() }, running(5)},
		{"stop", func(w *world) {
			w.apply(w.spec(func(s *v1alpha1.SessionSpec) { s.Command = []string{"b"} }, stopped), nil)
		},
			func(w *world) { w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonStopped) }},
		{"start", func(w *world) { w.apply(w.spec(func(s *v1alpha1.SessionSpec) { s.Command = []string{"b"} }), nil) }, running(6)},
		{"delete", (*world).remove, func(w *world) {
			if w.version() != "gone" {
				w.t.Fatal("still there")
			}
		}},
	})
}

// step is one thing that a user, or a program, does, and what is there when all
// passes are over.
type step struct {
	name string
	do   func(w *world)
	want func(w *world)
}

// anyFailureHeals fails the nth call of any effect during each step from the given
// one on, for every n, before it acts and after, and ends the controller there.
func anyFailureHeals(t *testing.T, newWorld func(testing.TB) *world, from int, steps []step) {
	t.Helper()
	for i := from; i < len(steps); i++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after %v", steps[i].name, after), func(t *testing.T) {
				t.Parallel()
				for n := 1; ; n++ {
					w := newWorld(t)
					w.heedless = true
					w.restartController()
					for _, s := range steps[:i] {
						s.do(w)
						w.pass()
						s.want(w)
					}
					steps[i].do(w)
					w.calls.n, w.calls.at, w.calls.after, w.calls.hit = 0, n, after, false
					for range 50 {
						_, again, err := w.one()
						if errors.Is(err, errInjected) {
							w.restartController() // it may as well have died
						} else if must(t, err); !again {
							break
						}
					}
					w.calls.at = 0
					if w.version() != "gone" {
						w.pass()
					}
					steps[i].want(w)
					if !w.calls.hit {
						return // n is past the last effect: each of them has failed once
					}
				}
			})
		}
	}
}

// B-025: what a program left behind is ended before anything is started.
func TestLeftBehind(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	w.pass()
	uid := string(w.get().UID)
	w.procs.extra[uid] = []fakeProcess{{effects.ProcessID{PID: 77, StartTime: "1"}, true}}
	w.mux.Exit(w.pane(), 1)
	w.pass()
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStopping)
	if w.livingPanes() != 0 {
		t.Fatal("started beside what was left behind")
	}
	w.clock.Step(10 * time.Second)
	w.pass()
	w.wantRunning(2)
	if d := w.get().Status.LastTermination; d.RequestedBy != "" || !d.Forced {
		t.Errorf("certificate %+v, want not requested, forced", d)
	}
}

// A session closed by hand is a death like others; what outlived it is ended
// first (B-019, R16: never a second copy).
func TestClosedByHand(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	w.pass()
	uid := string(w.get().UID)
	w.procs.extra[uid] = []fakeProcess{{effects.ProcessID{PID: 77, StartTime: "1"}, false}}
	w.mux.CloseSession(w.pane())
	w.pass()
	w.wantRunning(2)
	if d := w.get().Status.LastTermination; d.Reason != v1alpha1.ReasonSessionKilled {
		t.Errorf("certificate %+v, want SessionKilled", d)
	}
	if len(w.procs.extra[uid]) != 0 {
		t.Error("what outlived its session was not ended")
	}
}

func TestRenamedByHand(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	w.pass()
	pid := w.pane().Process
	w.mux.Rename(w.pane(), "mine")
	w.pass()
	w.wantRunning(1)
	if w.pane().Process != pid {
		t.Error("another program was started")
	}
}

// B-088: a session of the user's with our name is left alone.
func TestNameTaken(t *testing.T) {
	w := newWorld(t)
	other := effects.LaunchID{UID: "11111111-1111-1111-1111-111111111111", Generation: 1, Attempt: 1}
	_, err := w.mux.Create(t.Context(), effects.NewTmuxSession{Name: "web", Columns: 80, Rows: 24, HistoryLimit: 100, Launch: other})
	must(t, err)
	w.apply(w.spec(), nil)
	if next := w.pass(); next == 0 {
		t.Error("want another look")
	}
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonNameTaken)
	if p, err := w.mux.Get(t.Context(), other.UID); err != nil || p.Dead {
		t.Errorf("the other session: %+v, %v", p, err)
	}
	if len(w.launcher.written) != 0 {
		t.Error("the launch file, with the environment in it, is still there")
	}
}

func TestSuspend(t *testing.T) {
	w := newWorld(t)
	suspend := func(s *v1alpha1.SessionSpec) { s.Suspend = true }
	w.apply(w.spec(suspend), nil)
	w.pass()
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonSuspended)
	if _, err := os.Stat(w.work); err == nil {
		t.Error("the folder was made")
	}
	w.apply(w.spec(), nil)
	w.pass()
	w.wantRunning(1)
	w.apply(w.spec(suspend, func(s *v1alpha1.SessionSpec) { s.Command = []string{"other"} }), nil)
	w.pass()
	w.wantRunning(1)
	w.mux.Exit(w.pane(), 1)
	w.pass()
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonSuspended)
	if w.get().Status.LastTermination == nil {
		t.Error("a death while suspended has no certificate")
	}
	w.apply(w.spec(func(s *v1alpha1.SessionSpec) { s.Command = []string{"other"} }), nil)
	w.pass()
	w.wantRunning(2)
}

func TestWhatKeepsAStartWaiting(t *testing.T) {
	for name, tt := range map[string]struct {
		block, free func(w *world)
		spec        func(*v1alpha1.SessionSpec)
		reason      string
	}{
		"folder": {
			func(*world) {}, func(w *world) { must(w.t, os.MkdirAll(w.work, 0o755)) },
			func(s *v1alpha1.SessionSpec) {
				s.Target = v1alpha1.SessionTarget{ExistingPath: s.Target.PlainDir}
			}, v1alpha1.ReasonWorkingDirectoryMissing,
		},
		"environment": {
			func(w *world) { w.launcher.envErr = fmt.Errorf("TOKEN: %w", effects.ErrUnavailable) },
			func(w *world) { w.launcher.envErr = nil }, func(*v1alpha1.SessionSpec) {}, v1alpha1.ReasonEnvironmentUnreadable,
		},
		"terminals": {
			func(w *world) { w.mux.Fill(effects.ErrExhausted) }, func(w *world) { w.mux.Fill(nil) },
			func(*v1alpha1.SessionSpec) {}, v1alpha1.ReasonOutOfTerminals,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.block(w)
			w.apply(w.spec(tt.spec), nil)
			if next := w.pass(); next == 0 || next > 10*time.Second {
				t.Errorf("next look in %s, want within 10s", next)
			}
			w.wantCondition(v1alpha1.Ready, metav1.ConditionFalse, tt.reason)
			tt.free(w)
			w.pass()
			w.wantRunning(1)
		})
	}
}

func TestLauncherFailureIsAReasonNotAnExit(t *testing.T) {
	w := newWorld(t)
	w.launcher.fails = &effects.LaunchFailure{Reason: v1alpha1.ReasonCommandNotFound, Message: "no-such-program: not found"}
	w.apply(w.spec(policy(v1alpha1.RestartNever)), nil)
	w.pass()
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonCommandNotFound)
	if d := w.get().Status.LastTermination; d.ExitCode != nil {
		t.Errorf("certificate %+v, want no exit code", d)
	}
	if len(w.launcher.failures) != 0 {
		t.Error("the report is still there")
	}
}

func TestReadiness(t *testing.T) {
	w := newWorld(t)
	probe := func(s *v1alpha1.SessionSpec) {
		s.Readiness = &v1alpha1.Readiness{File: &v1alpha1.FileProbe{Path: "ready"}, Deadline: &metav1.Duration{Duration: time.Minute}}
	}
	w.apply(w.spec(probe), nil)
	if next := w.pass(); next != time.Minute {
		t.Errorf("next look in %s, want the deadline", next)
	}
	w.wantCondition(v1alpha1.Ready, metav1.ConditionUnknown, v1alpha1.ReasonProbePending)
	w.prober.result = ProbeResult{Known: true, Message: "no file"}
	w.clock.Step(time.Minute)
	w.pass()
	w.wantCondition(v1alpha1.Ready, metav1.ConditionFalse, v1alpha1.ReasonReadinessDeadlineExceeded)
	w.prober.result = ProbeResult{Known: true, OK: true, Message: "file is there"}
	w.pass()
	w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRunning)
	w.prober.result = ProbeResult{Known: true, Message: "no file"}
	w.pass()
	w.wantCondition(v1alpha1.Ready, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed)
	w.wantRunning(1) // a probe restarts nothing
	w.clock.Step(time.Hour)
	w.mux.Exit(w.pane(), 1)
	w.pass()
	w.wantCondition(v1alpha1.Ready, metav1.ConditionUnknown, v1alpha1.ReasonProbePending) // another program
	w.apply(w.spec(), nil)
	w.pass()
	w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRunning)
}

// A source that is refused shows on the object, and nothing is stopped by it.
func TestRefusedSource(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	w.pass()
	must(t, w.store.SetAccepted(t.Context(), web, metav1.Condition{
		Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidSpec, Message: "/spool/web.yaml:3: spec.comand: unknown field",
	}))
	w.pass()
	w.wantRunning(1)
	w.wantCondition(v1alpha1.Ready, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
	w.apply(w.spec(), nil)
	w.pass()
	w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRunning)
}

func TestEventsTellEachChangeOnce(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	w.pass()
	w.mux.Exit(w.pane(), 3)
	w.pass()
	w.pass()
	want := []string{"Normal Created", "Normal Running", "Warning Ended", "Normal Running"}
	var got []string
	for _, l := range w.events.lines {
		got = append(got, strings.Join(strings.Fields(l)[:2], " "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", w.events.lines, want)
	}
}

func TestTheFolderOfATarget(t *testing.T) {
	r := Reconciler{UserHome: "/home/u"}
	for path, want := range map[v1alpha1.Path]string{"~": "/home/u", "~/a": "/home/u/a", "/x//y/": "/x/y", "~x": "~x"} {
		s := &v1alpha1.Session{Spec: v1alpha1.SessionSpec{Target: v1alpha1.SessionTarget{ExistingPath: &v1alpha1.PathTarget{Path: path}}}}
		if got := r.target(s).Path; got != filepath.Clean(want) {
			t.Errorf("folder of %s = %s, want %s", path, got, want)
		}
	}
}
