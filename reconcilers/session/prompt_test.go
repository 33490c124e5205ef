package session

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

const (
	prompted = "Fix the login bug."
	typed    = "\x1b[200~" + prompted + "\x1b[201~\r"
)

// startWith gives a spec a startup prompt.
func startWith(delivery v1alpha1.PromptDelivery) func(*v1alpha1.SessionSpec) {
	return func(s *v1alpha1.SessionSpec) {
		s.StartupPrompt = &v1alpha1.StartupPrompt{Text: prompted, Delivery: delivery}
	}
}

func (w *world) wantPrompt(status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	w.wantCondition(v1alpha1.PromptDelivered, status, reason)
}

// passes makes passes as long as it takes to paste.
func (w *world) passes() {
	w.t.Helper()
	for range 5 {
		w.clock.Step(time.Second)
		w.pass()
	}
}

// ref is where a program finds its prompt; "" when it has none.
func ref(env []string) string {
	for _, v := range env {
		if path, ok := strings.CutPrefix(v, effects.PromptRefVariable+"="); ok {
			return path
		}
	}
	return ""
}

// got is how often any program of the Session got the prompt.
func (w *world) got() (n int) {
	seen := map[effects.ProcessID]bool{}
	for _, p := range w.launcher.ran {
		if slices.Contains(p.Argv, prompted) {
			n++
		}
		if !seen[p.pane.Process] {
			n += strings.Count(w.prompts.Read(p.pane), prompted)
		}
		seen[p.pane.Process] = true
		if p.took {
			n++
		}
	}
	return n
}

// again ends the program and sees that another is started.
func (w *world) again() {
	w.t.Helper()
	w.mux.Exit(w.pane(), 3)
	w.clock.Step(time.Hour)
	w.pass()
	w.passes()
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionTrue, v1alpha1.ReasonRunning)
}

func TestNoPromptIsAsked(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(), nil)
	w.pass()
	w.wantPrompt(metav1.ConditionTrue, v1alpha1.ReasonNotAsked)
	w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRunning)
	if ref(w.launcher.ran[0].Env) != "" {
		t.Error("the program looks for a prompt")
	}
}

func TestPromptIsPastedOnceWhenReady(t *testing.T) {
	w := newWorld(t)
	spec := w.spec(startWith(v1alpha1.PromptPaste), func(s *v1alpha1.SessionSpec) {
		s.Readiness = &v1alpha1.Readiness{File: &v1alpha1.FileProbe{Path: "up"}}
	})
	w.apply(spec, nil)
	w.passes()
	w.wantPrompt(metav1.ConditionUnknown, v1alpha1.ReasonPromptPending)
	if w.got() != 0 {
		t.Fatal("it was typed into a program that is not ready")
	}
	w.prober.result = ProbeResult{Known: true, OK: true}
	if next := w.pass(); next <= 0 || next > time.Second {
		t.Errorf("the paste is looked at again in %s", next)
	}
	w.wantCondition(v1alpha1.Ready, metav1.ConditionUnknown, v1alpha1.ReasonPromptPending)
	w.prober.result.OK = false // what is half typed is brought to its end all the same
	w.passes()
	w.prober.result.OK = true
	w.pass()
	w.wantPrompt(metav1.ConditionTrue, v1alpha1.ReasonPromptDelivered)
	w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRunning)
	if got := w.prompts.Read(w.pane()); got != typed {
		t.Errorf("the program read %q, want %q", got, typed)
	}
	for _, change := range []func(){
		func() {},
		w.restartController,
		func() { w.launcher.fails = nil; w.again() },
		func() { spec.StartupPrompt.Text = "Another."; w.apply(spec, nil) },
		func() { spec.StartupPrompt = nil; w.apply(spec, nil) },
		func() { startWith(v1alpha1.PromptPaste)(&spec); w.apply(spec, nil) },
		func() { spec.Command = []string{"b"}; w.apply(spec, nil) },
	} {
		change()
		w.passes()
		if w.got() != 1 {
			t.Fatalf("it was delivered %d times", w.got())
		}
	}
	writes := w.store.Stats().Writes
	w.passes()
	if w.store.Stats().Writes != writes {
		t.Error("passes after the delivery write")
	}
}

// A prompt waits for what the agent's screen shows, and no longer.
func TestPromptWaitsForTheScreen(t *testing.T) {
	w := newAgentWorld(t)
	w.profiles["asks"] = &v1alpha1.AgentProfileSpec{Command: []v1alpha1.ArgTemplate{"bot"},
		Screen: &v1alpha1.AgentScreen{Prompt: &v1alpha1.ScreenProbe{Pattern: "^> $"}}}
	spec := w.agent(v1alpha1.AgentSpec{Profile: "asks"}, startWith("")) // which is Paste
	w.applyAs(web, spec)
	w.passOf(web)
	w.mux.Write(w.pane(), "Do you trust this folder?", "1. > Yes")
	for range 4 {
		w.passOf(web)
	}
	w.wantPrompt(metav1.ConditionUnknown, v1alpha1.ReasonPromptPending)
	if w.got() != 0 {
		t.Fatal("it was typed into a question")
	}
	w.mux.Write(w.pane(), "> ")
	for range 4 {
		w.passOf(web)
	}
	w.wantPrompt(metav1.ConditionTrue, v1alpha1.ReasonPromptDelivered)
	if w.got() != 1 {
		t.Errorf("it was delivered %d times", w.got())
	}
}

func TestPromptIsHeldInTheBackground(t *testing.T) {
	w := newWorld(t)
	spec := w.spec(startWith(v1alpha1.PromptPaste))
	spec.DesiredState = v1alpha1.DesiredStopped
	w.apply(spec, nil)
	w.passes()
	w.wantPrompt(metav1.ConditionUnknown, v1alpha1.ReasonPromptPending)
	w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonStopped)
	spec.DesiredState, spec.Suspend = v1alpha1.DesiredRunning, true
	w.apply(spec, nil)
	w.passes()
	spec.Suspend = false
	w.apply(spec, nil)
	w.passes()
	if w.got() != 1 {
		t.Errorf("after a stop and hands off it was delivered %d times", w.got())
	}

	w = newWorld(t)
	spec.Readiness = &v1alpha1.Readiness{File: &v1alpha1.FileProbe{Path: "up"}}
	w.apply(spec, nil)
	w.pass()
	w.prompts.Away(w.pane(), true)
	w.prober.result = ProbeResult{Known: true, OK: true}
	w.passes()
	w.wantPrompt(metav1.ConditionFalse, v1alpha1.ReasonPromptHeld)
	w.wantCondition(v1alpha1.Ready, metav1.ConditionFalse, v1alpha1.ReasonPromptHeld)
	if w.got() != 0 {
		t.Fatal("it was typed into another program")
	}
	if next := w.pass(); next <= 0 || next > 15*time.Second {
		t.Errorf("it is looked again in %s", next)
	}
	spec.Suspend = true
	w.apply(spec, nil)
	w.pass()
	w.prompts.Away(w.pane(), false)
	w.passes()
	w.wantPrompt(metav1.ConditionUnknown, v1alpha1.ReasonPromptPending)
	spec.Suspend = false
	w.apply(spec, nil)
	w.passes()
	w.wantPrompt(metav1.ConditionTrue, v1alpha1.ReasonPromptDelivered)
	if w.got() != 1 {
		t.Errorf("it was delivered %d times", w.got())
	}
}

// A controller that dies while it pastes leaves it unknown, for ever.
func TestBrokenPasteIsUnknown(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(startWith(v1alpha1.PromptPaste)), nil)
	for range 5 {
		if w.got() == 0 {
			_, _, err := w.one()
			must(t, err)
		}
	}
	w.restartController()
	w.passes()
	w.wantPrompt(metav1.ConditionUnknown, v1alpha1.ReasonPromptUnknown)
	w.wantCondition(v1alpha1.Ready, metav1.ConditionUnknown, v1alpha1.ReasonPromptUnknown)
	w.again()
	w.wantPrompt(metav1.ConditionUnknown, v1alpha1.ReasonPromptUnknown)
	if w.got() != 1 {
		t.Errorf("it was typed %d times", w.got())
	}
	if !slices.ContainsFunc(w.events.lines, func(l string) bool { return strings.HasPrefix(l, "Warning PromptUnknown") }) {
		t.Errorf("the events are %q", w.events.lines)
	}
	w.apply(w.spec(), nil) // somebody has looked
	w.pass()
	w.wantCondition(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRunning)
}

// Each start finds the file until one takes it, and none after that.
func TestPromptFileIsThereUntilItIsTaken(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(startWith("")), nil) // which is File
	w.pass()
	w.wantPrompt(metav1.ConditionUnknown, v1alpha1.ReasonPromptPending)
	w.restartController()
	w.again()
	if ran := w.launcher.ran; len(ran) != 2 || ref(ran[0].Env) == "" || ref(ran[1].Env) != ref(ran[0].Env) || ran[0].Env[0] != "A=1" {
		t.Fatalf("the programs had %+v", ran)
	}
	if text, ok := w.prompts.Take(ref(w.launcher.ran[1].Env)); !ok || text != prompted {
		t.Errorf("it took %q, %v", text, ok)
	}
	w.pass()
	w.wantPrompt(metav1.ConditionTrue, v1alpha1.ReasonPromptDelivered)
	w.again()
	if path := ref(w.launcher.ran[2].Env); path != "" || w.got() != 0 {
		t.Errorf("the next program finds one at %q; %d got it otherwise", path, w.got())
	}
}

// What was begun in one way is ended in that way.
func TestAnotherDeliveryDeliversNotAgain(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(startWith(v1alpha1.PromptFile)), nil)
	w.pass()
	for _, d := range []v1alpha1.PromptDelivery{v1alpha1.PromptPaste, v1alpha1.PromptArgument} {
		w.apply(w.spec(startWith(d)), nil)
		w.again()
		if path := ref(w.launcher.ran[len(w.launcher.ran)-1].Env); path == "" || w.got() != 0 {
			t.Errorf("with delivery %s the program has %q, and %d got it so", d, path, w.got())
		}
	}
}

func TestPromptIsAnArgumentOfOneStart(t *testing.T) {
	w := newAgentWorld(t)
	w.launcher.fails = &effects.LaunchFailure{Reason: v1alpha1.ReasonCommandNotFound, Message: "no such program"}
	spec := w.agent(v1alpha1.AgentSpec{Profile: "plain", Args: []string{"-v"}}, startWith(v1alpha1.PromptArgument), policy(v1alpha1.RestartAlways))
	w.applyAs(web, spec)
	for range 3 {
		w.passOf(web)
	}
	w.clock.Step(time.Hour)
	w.passOf(web)
	w.passOf(web)
	w.wantPrompt(metav1.ConditionTrue, v1alpha1.ReasonPromptDelivered)
	w.die(web)
	w.passOf(web)
	w.passOf(web)
	w.wantReason(web, v1alpha1.ReasonRunning)
	w.wantStarted("sh -v "+prompted, "sh -v "+prompted, "sh -v") // the first never ran
}

// A start of which it is known that nothing came leaves the prompt for the next.
func TestArgumentOfAStartThatWasRefused(t *testing.T) {
	w := newWorld(t)
	other := effects.LaunchID{UID: "11111111-1111-1111-1111-111111111111", Generation: 1, Attempt: 1}
	pane, err := w.mux.Create(t.Context(), effects.NewTmuxSession{Name: "web", Columns: 80, Rows: 24, HistoryLimit: 100, Launch: other})
	must(t, err)
	w.apply(w.spec(startWith(v1alpha1.PromptArgument)), nil)
	w.passes()
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonNameTaken)
	w.wantPrompt(metav1.ConditionUnknown, v1alpha1.ReasonPromptPending)
	must(t, w.mux.Kill(t.Context(), pane))
	w.mux.Fill(effects.ErrExhausted)
	w.passes()
	w.wantCondition(v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonOutOfTerminals)
	w.mux.Fill(nil)
	w.passes()
	w.wantPrompt(metav1.ConditionTrue, v1alpha1.ReasonPromptDelivered)
	if w.got() != 1 {
		t.Errorf("%d programs got it", w.got())
	}
}

// A start with the prompt as its argument that nobody saw may have run.
func TestUnseenArgumentIsUnknown(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(startWith(v1alpha1.PromptArgument)), nil)
	id := effects.LaunchID{UID: string(w.get().UID), Generation: 1, Attempt: 1}
	_, err := w.prompts.Intend(t.Context(), id, prompted) // and there the controller died
	must(t, err)
	w.restartController()
	w.passes()
	w.wantRunning(1)
	w.wantPrompt(metav1.ConditionUnknown, v1alpha1.ReasonPromptUnknown)
	if w.got() != 0 {
		t.Errorf("%d programs got it after all", w.got())
	}
}

// What was seen of the start with the argument decides.
func TestArgumentOfAProgramThatEnded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		end    func(w *world)
		status metav1.ConditionStatus
		reason string
	}{
		{"it ended", func(w *world) { w.mux.Exit(w.pane(), 3) }, metav1.ConditionTrue, v1alpha1.ReasonPromptDelivered},
		{"by a code of the launcher", func(w *world) { w.mux.Exit(w.pane(), 126) }, metav1.ConditionUnknown, v1alpha1.ReasonPromptUnknown},
		{"by a signal", func(w *world) { w.mux.Die(w.pane(), "SIGKILL") }, metav1.ConditionUnknown, v1alpha1.ReasonPromptUnknown},
		{"with its server", func(w *world) { w.mux.KillServer() }, metav1.ConditionUnknown, v1alpha1.ReasonPromptUnknown},
		{"it runs", func(*world) {}, metav1.ConditionTrue, v1alpha1.ReasonPromptDelivered},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.apply(w.spec(policy(v1alpha1.RestartNever)), nil)
			w.pass()
			p := w.pane() // as if it had been given, and the controller had died
			_, err := w.prompts.Intend(t.Context(), p.Launch, prompted)
			must(t, err)
			w.apply(w.spec(policy(v1alpha1.RestartNever), startWith(v1alpha1.PromptArgument)), nil)
			tt.end(w)
			w.passes()
			w.wantPrompt(tt.status, tt.reason)
		})
	}
}

// A text that cannot be had or delivered keeps no program from running.
func TestPromptThatCannotBeDelivered(t *testing.T) {
	for _, tt := range []struct {
		name     string
		delivery v1alpha1.PromptDelivery
		content  string // of the file; "" when it is not there
		reason   string
	}{
		{"no file", v1alpha1.PromptPaste, "", v1alpha1.ReasonPromptUnreadable},
		{"no file to take", v1alpha1.PromptFile, "", v1alpha1.ReasonPromptUnreadable},
		{"no file for an argument", v1alpha1.PromptArgument, "", v1alpha1.ReasonPromptUnreadable},
		{"keys", v1alpha1.PromptPaste, "CANARY\x1b[201~rm", v1alpha1.ReasonPromptRefused},
		{"a NUL", v1alpha1.PromptFile, "CANARY\x00", v1alpha1.ReasonPromptRefused},
		{"a long argument", v1alpha1.PromptArgument, "CANARY" + strings.Repeat("x", maxArgument), v1alpha1.ReasonPromptRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			must(t, os.Mkdir(w.work, 0o700))
			path := filepath.Join(w.work, "prompt.txt")
			if tt.content != "" {
				must(t, os.WriteFile(path, []byte(tt.content), 0o600))
			}
			spec := w.spec(func(s *v1alpha1.SessionSpec) {
				s.StartupPrompt = &v1alpha1.StartupPrompt{File: "~/prompt.txt", Delivery: tt.delivery}
			})
			w.apply(spec, nil)
			w.passes()
			w.wantRunning(1)
			w.wantPrompt(metav1.ConditionFalse, tt.reason)
			w.wantCondition(v1alpha1.Ready, metav1.ConditionFalse, tt.reason)
			if said := fmt.Sprint(w.get().Status, w.events.lines); strings.Contains(said, "CANARY") {
				t.Errorf("the text is told: %s", said)
			}
			if l := w.launcher.ran[0]; ref(l.Env) != "" || len(l.Argv) != 2 {
				t.Errorf("the program has %+v", l)
			}
			must(t, os.WriteFile(path, []byte(prompted), 0o600)) // a good one comes
			w.passes()
			if tt.delivery != v1alpha1.PromptPaste {
				w.wantPrompt(metav1.ConditionUnknown, v1alpha1.ReasonPromptPending)
				w.again()
			}
			path = ref(w.launcher.ran[len(w.launcher.ran)-1].Env)
			if text, _ := w.prompts.Take(path); w.got() != 1 && text != prompted {
				t.Errorf("%d programs got it, and in the file was %q", w.got(), text)
			}
		})
	}
}

// Nothing is kept of a Session that is gone, and what is set aside for it gets no
// prompt again that it had.
func TestPromptGoesWithItsSession(t *testing.T) {
	w := newWorld(t)
	w.apply(w.spec(startWith(v1alpha1.PromptFile)), nil)
	w.pass()
	uid := string(w.get().UID)
	w.remove()
	w.pass()
	if st, err := w.prompts.Status(t.Context(), uid); err != nil || st.State != effects.PromptNone {
		t.Errorf("of the prompt there is %+v, %v", st, err)
	}

	const with, without = `{"spec":{"command":["x"],"startupPrompt":{"text":"t"}}}`, `{"spec":{"command":["x"]}}`
	pane := effects.TmuxPane{Process: effects.ProcessID{PID: 2, StartTime: "1"}}
	for i, tt := range []struct {
		name string
		do   func(id effects.LaunchID)
		want string
	}{
		{"not begun", func(effects.LaunchID) {}, with},
		{"not taken", func(id effects.LaunchID) { _, _ = w.prompts.Publish(t.Context(), id.UID, prompted) }, with},
		{"taken", func(id effects.LaunchID) {
			path, _ := w.prompts.Publish(t.Context(), id.UID, prompted)
			w.prompts.Take(path)
		}, without},
		{"an argument", func(id effects.LaunchID) { _, _ = w.prompts.Intend(t.Context(), id, prompted) }, without},
		{"half pasted", func(id effects.LaunchID) {
			pane.Launch = id
			_, _ = w.prompts.Paste(t.Context(), pane, prompted)
		}, without},
	} {
		id := effects.LaunchID{UID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Attempt: 1}
		tt.do(id)
		s := &v1alpha1.Session{}
		s.UID = types.UID(id.UID)
		q := &v1alpha1.Quarantine{Spec: v1alpha1.QuarantineSpec{Session: &v1alpha1.QuarantinedSession{Definition: with}}}
		if err := w.r.keepPrompt(t.Context(), s, q); err != nil || q.Spec.Session.Definition != tt.want {
			t.Errorf("%s: %v, %s", tt.name, err, q.Spec.Session.Definition)
		}
	}
}

// Whatever effect fails, and whatever the controller did not live to do: no
// prompt comes twice, and what is called delivered came.
func TestAnyFailureOfAPromptHeals(t *testing.T) {
	for _, d := range []v1alpha1.PromptDelivery{v1alpha1.PromptFile, v1alpha1.PromptPaste, v1alpha1.PromptArgument} {
		t.Run(string(d), func(t *testing.T) {
			// once has the program take what there is, and sees that it all fits.
			once := func(attempt int64) func(*world) {
				return func(w *world) {
					w.t.Helper()
					w.passes()
					w.wantRunning(attempt)
					for i, p := range w.launcher.ran {
						if _, ok := w.prompts.Take(ref(p.Env)); ok {
							w.launcher.ran[i].took = true
						}
					}
					w.passes()
					n := w.got()
					switch delivered := isTrue(w.get(), v1alpha1.PromptDelivered); {
					case n > 1:
						w.t.Fatalf("it was delivered %d times", n)
					case delivered && n != 1:
						w.t.Fatal("it is called delivered, and nobody got it")
					case !delivered && !w.calls.hit:
						w.t.Fatal("nothing failed, and it is not delivered")
					case !delivered:
						w.wantPrompt(metav1.ConditionUnknown, v1alpha1.ReasonPromptUnknown)
					}
				}
			}
			anyFailureHeals(t, newWorld, 0, []step{
				{"create", func(w *world) { w.apply(w.spec(startWith(d)), nil) }, once(1)},
				{"restart after death", func(w *world) { w.mux.Exit(w.pane(), 3) }, once(2)},
				{"change", func(w *world) {
					w.apply(w.spec(startWith(d), func(s *v1alpha1.SessionSpec) { s.Command = []string{"b"} }), nil)
				}, once(3)},
				{"delete", (*world).remove, func(w *world) {
					if w.version() != "gone" {
						w.t.Fatal("still there")
					}
				}},
			})
		})
	}
}

// The certificate of a program keeps what was on its screen, but not the prompt.
func TestNoPromptInACertificate(t *testing.T) {
	const text = "Fix the login bug in issue twelve.\nThe token is hunter2-very-long-indeed.\n"
	screen := []string{"ready", "> Fix the login bug in is", "  sue twelve. ", "  The token is hunter2-ver", "y-long-indeed.", "noted", "bug in"}
	for _, tt := range []struct {
		name string
		file bool
		text string
		want []string
	}{
		{"in the spec", false, text, []string{"ready", promptShown, promptShown, promptShown, promptShown, "noted", "bug in"}},
		{"in a file", true, text, []string{"ready", promptShown, promptShown, promptShown, promptShown, "noted", "bug in"}},
		{"in a file that went", true, "", nil},
		{"short", false, "noted", []string{"ready", "> Fix the login bug in is", "  sue twelve. ", "  The token is hunter2-ver", "y-long-indeed.", promptShown, "bug in"}},
		{"of nothing to see", false, " \n", screen},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			must(t, os.Mkdir(w.work, 0o700))
			want := &v1alpha1.StartupPrompt{Text: tt.text, Delivery: v1alpha1.PromptArgument}
			if tt.file {
				want = &v1alpha1.StartupPrompt{File: "~/prompt.txt", Delivery: v1alpha1.PromptArgument}
				if tt.text != "" {
					must(t, os.WriteFile(filepath.Join(w.work, "prompt.txt"), []byte(tt.text), 0o600))
				}
			}
			w.apply(w.spec(policy(v1alpha1.RestartNever), func(s *v1alpha1.SessionSpec) { s.StartupPrompt = want }), nil)
			w.pass()
			w.mux.Write(w.pane(), screen...)
			w.mux.Exit(w.pane(), 1)
			w.pass()
			if got := w.get().Status.LastTermination.LastLines; !slices.Equal(got, tt.want) {
				t.Errorf("it keeps %q, want %q", got, tt.want)
			}
		})
	}
}
