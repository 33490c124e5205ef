package request

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
)

func TestCreate(t *testing.T) {
	w := newWorld(t)
	rq := w.ask("one", w.create("web"))
	w.want("one", v1alpha1.RequestSuccess, "")
	s := w.getSession("web")
	if s == nil || s.Annotations[v1alpha1.RequestAnnotation] != string(rq.UID) || s.Annotations[v1alpha1.SessionIDAnnotation] != "web" ||
		s.Annotations[v1alpha1.LifecycleRequestAnnotation] != "lc-web" || s.Spec.Agent.Profile != profile {
		t.Fatalf("the session is %+v", s)
	}
	st := rq.Status
	if st.SessionID != "web" || st.TmuxSession != "web" || st.SessionStateFile != w.work+"/.skc/_session-web/runtime/tmux-sessions/web.json" || *st.EndpointURL != "" ||
		st.Session.UID != string(s.UID) || st.Step != "" {
		t.Errorf("the entry is %+v", st)
	}
	w.wantCondition(rq, v1alpha1.Accepted, metav1.ConditionTrue, v1alpha1.ReasonRequestAccepted)
	w.wantCondition(rq, v1alpha1.Complete, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
	w.wantCondition(rq, v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
	w.wantRows("accepted", "spawn_started", "success")
	if n := w.host.started("web"); n != 1 {
		t.Errorf("%d programs were started, want 1", n)
	}

	version, calls := w.version(requestKey("one")), w.calls.n
	w.enqueue(requestKey("one"))
	w.settle()
	if w.version(requestKey("one")) != version {
		t.Error("a pass with nothing to do wrote")
	}
	if got := w.calls.n - calls; got != 1 { // the Update of what is equal
		t.Errorf("a pass with nothing to do made %d calls", got)
	}
}

// A name that the id cannot be is made from it.
// With the switch on, the prompt of a create is its Session's, and nobody else's.
func TestCreateWithPrompt(t *testing.T) {
	w := newWorld(t)
	w.r.Prompts = true
	spec := w.create("web")
	spec.StartupPromptRef = ptr("/prompts/one")
	rq := w.ask("one", spec)
	w.want("one", v1alpha1.RequestSuccess, "")
	want := v1alpha1.StartupPrompt{File: "/prompts/one", Delivery: v1alpha1.PromptFile}
	if s := w.getSession("web"); s.Spec.StartupPrompt == nil || *s.Spec.StartupPrompt != want {
		t.Errorf("the session's prompt is %+v, want %+v", s.Spec.StartupPrompt, want)
	}
	if e, err := ledger.Entry(rq); err != nil || e.StartupPromptRef == nil || *e.StartupPromptRef != "/prompts/one" {
		t.Errorf("the entry is %+v (%v)", e, err)
	}
	resume := v1alpha1.SessionRequestSpec{Verb: v1alpha1.VerbResume, StartupPromptRef: ptr("/prompts/one"),
		Target: v1alpha1.RequestTarget{Session: &v1alpha1.SessionSelector{ID: "web"}}}
	w.ask("two", resume)
	w.want("two", "", lifecycle.ReasonInvalidTarget)
}

func TestCreateNames(t *testing.T) {
	for id, want := range map[string]string{"web": "web", "s0a1b2": "s0a1b2", "Sess.1": "s-17f9905c0877", strings.Repeat("a", 64): "s-ffe054fe7ae0"} {
		if got := nameFor(id); got != want {
			t.Errorf("name of %q is %q, want %q", id, got, want)
		}
	}
}

func TestCreateThatFails(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*world)
		edit    func(*v1alpha1.SessionRequestSpec)
		reason  lifecycle.Reason
		message string
		left    bool // a session of the name is there, which is not the request's
	}{
		{"the program is not there", func(w *world) { w.host.broken["web"] = v1alpha1.ReasonCommandNotFound }, nil, lifecycle.ReasonSpawnFailed, "CommandNotFound", false},
		{"the name is taken", func(w *world) { w.has("web") }, nil, lifecycle.ReasonSpawnFailed, "is there already", true},
		{"the id is taken", func(w *world) {
			w.has("other", func(s *v1alpha1.Session) { s.Annotations[v1alpha1.SessionIDAnnotation] = "web" })
		}, nil, lifecycle.ReasonSpawnFailed, "is there already", false},
		{"a user's session has the name", func(w *world) { w.file(w.session("web")); w.settle() }, nil, lifecycle.ReasonSpawnFailed, "is there already", true},
		{"the definition cannot be", nil, func(s *v1alpha1.SessionRequestSpec) { s.Target.Create.Path = ptr("not/absolute") }, lifecycle.ReasonSpawnFailed, "spec.target", false},
		{"the preset cannot be", nil, func(s *v1alpha1.SessionRequestSpec) { s.ModelPreset = ptr("-x y") }, lifecycle.ReasonSpawnFailed, "modelPreset", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.prepare != nil {
				c.prepare(w)
			}
			spec := w.create("web")
			if c.edit != nil {
				c.edit(&spec)
			}
			w.ask("one", spec)
			rq := w.want("one", v1alpha1.RequestFailure, c.reason)
			if m := condition(rq.Status.Conditions, v1alpha1.Complete).Message; !strings.Contains(m, c.message) {
				t.Errorf("the message is %q, want %q in it", m, c.message)
			}
			w.wantCondition(rq, v1alpha1.Ready, metav1.ConditionFalse, "SpawnFailed")
			if s := w.getSession("web"); (s != nil) != c.left {
				t.Errorf("the session is %+v", s)
			}
			if c.left && w.host.started("web") != 1 {
				t.Errorf("starts: %v", w.host.starts)
			}
		})
	}
}

func TestCreateInTime(t *testing.T) {
	w := newWorld(t)
	w.host.broken["web"] = v1alpha1.ReasonStarting // it never gets further
	w.ask("one", w.create("web"))
	w.want("one", v1alpha1.RequestInProgress, "")
	w.wantCondition(w.get("one"), v1alpha1.Ready, metav1.ConditionUnknown, v1alpha1.ReasonInProgress)
	w.advance(effectTime - time.Second)
	w.want("one", v1alpha1.RequestInProgress, "")
	w.advance(2 * time.Second)
	w.want("one", v1alpha1.RequestFailure, lifecycle.ReasonReadinessTimeout)
	if w.getSession("web") != nil {
		t.Error("the session is still there")
	}

	w.host.broken["late"] = v1alpha1.ReasonStarting
	w.ask("two", w.create("late"))
	w.host.slow["late"] = true // nobody sees it go
	w.advance(effectTime + withdrawTime + time.Second)
	rq := w.want("two", v1alpha1.RequestUncertain, lifecycle.ReasonSpawnFailed)
	w.wantCondition(rq, v1alpha1.Ready, metav1.ConditionFalse, "TerminalUncertain")

	spec := w.create("never")
	spec.ExpiresAt = &metav1.Time{Time: w.clock.Now().Add(-time.Second)}
	rq = w.ask("three", spec)
	w.want("three", "", lifecycle.ReasonReadinessTimeout)
	w.wantCondition(rq, v1alpha1.Accepted, metav1.ConditionFalse, "ReadinessTimeout")
}

func TestClose(t *testing.T) {
	for _, verb := range []v1alpha1.RequestVerb{v1alpha1.VerbClose, v1alpha1.VerbDelete} {
		t.Run(string(verb), func(t *testing.T) {
			w := newWorld(t)
			w.has("web")
			spec := about(verb, "web")
			spec.Target.Session.TmuxSession, spec.Target.Session.SessionStateFile = ptr("web"), ptr(w.work+"/.skc/_session-web/runtime/tmux-sessions/web.json")
			w.ask("one", spec)
			rq := w.want("one", v1alpha1.RequestSuccess, "")
			if rq.Status.ProcessGone == nil || !*rq.Status.ProcessGone || rq.Status.SessionID != "web" || rq.Status.TmuxSession != "web" {
				t.Errorf("the entry is %+v", rq.Status)
			}
			if n := w.host.alive(); n != 0 {
				t.Errorf("%d programs live", n)
			}
			s := w.getSession("web")
			if verb == v1alpha1.VerbDelete != (s == nil) {
				t.Errorf("the session is %+v", s)
			}
			w.wantRows("accepted", "success")
			w.ask("two", spec) // again, by another key
			if verb == v1alpha1.VerbClose {
				w.want("two", v1alpha1.RequestSuccess, "")
			} else {
				w.want("two", v1alpha1.RequestFailure, lifecycle.ReasonNotFound)
			}
		})
	}
}

func TestCloseRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*world)
		edit    func(*v1alpha1.SessionSelector)
		reason  lifecycle.Reason
		message string
	}{
		{"what is not there", func(*world) {}, nil, lifecycle.ReasonNotFound, "no session"},
		{"a user's session", func(w *world) { w.file(w.session("web")) }, nil, lifecycle.ReasonCloseRefused, "session-web.yaml; use skcctl"},
		{"one without a session id", func(w *world) { w.has("web", func(s *v1alpha1.Session) { s.Annotations = nil }) }, nil, lifecycle.ReasonCloseRefused, "session_not_managed"},
		{"another tmux session", func(w *world) { w.has("web") }, func(s *v1alpha1.SessionSelector) { s.TmuxSession = ptr("skc_lc_web") },
			lifecycle.ReasonCloseRefused, "session_id_mismatch"},
		{"another state file", func(w *world) { w.has("web") }, func(s *v1alpha1.SessionSelector) { s.SessionStateFile = ptr("/x.json") },
			lifecycle.ReasonCloseRefused, "state_file_mismatch"},
		{"a suspended one", func(w *world) { w.has("web"); w.edit("web", func(s map[string]any) { s["suspend"] = true }) }, nil, lifecycle.ReasonCloseRefused, "suspended"},
		{"two with the id", func(w *world) {
			w.has("web")
			w.has("web2", func(s *v1alpha1.Session) { s.Annotations[v1alpha1.SessionIDAnnotation] = "web" })
		}, nil, lifecycle.ReasonCloseRefused, "2 sessions"},
		{"while tmux does not answer", func(w *world) { w.has("web"); w.host.unreachable = true }, nil, lifecycle.ReasonCloseRefused, "server_unverifiable"},
	} {
		for _, verb := range []v1alpha1.RequestVerb{v1alpha1.VerbClose, v1alpha1.VerbDelete} {
			t.Run(c.name+" by "+string(verb), func(t *testing.T) {
				w := newWorld(t)
				c.prepare(w)
				w.settle()
				alive := w.host.alive()
				spec := about(verb, "web")
				if c.edit != nil {
					c.edit(spec.Target.Session)
				}
				w.ask("one", spec)
				rq := w.want("one", v1alpha1.RequestFailure, c.reason)
				if m := condition(rq.Status.Conditions, v1alpha1.Complete).Message; !strings.Contains(m, c.message) {
					t.Errorf("the message is %q, want %q in it", m, c.message)
				}
				if rq.Status.ProcessGone != nil {
					t.Error("processGone is set")
				}
				if w.host.alive() != alive {
					t.Errorf("%d programs live, %d did before", w.host.alive(), alive)
				}
			})
		}
	}
}

func (w *world) edit(name string, change func(map[string]any)) {
	w.t.Helper()
	must(w.t, w.defs.Edit(w.t.Context(), sessionKey(v1alpha1.DefaultNamespace, name), func(s map[string]any) error { change(s); return nil }))
	w.settle()
}

// What does not end in time is uncertain, and never a success.
func TestCloseTooLong(t *testing.T) {
	w := newWorld(t)
	w.has("web")
	w.host.slow["web"] = true
	w.ask("one", about(v1alpha1.VerbClose, "web"))
	w.want("one", v1alpha1.RequestInProgress, "")
	w.advance(effectTime + time.Second)
	rq := w.want("one", v1alpha1.RequestUncertain, lifecycle.ReasonCloseRefused)
	if rq.Status.ProcessGone != nil {
		t.Error("processGone is set")
	}
	w.wantRows("accepted", "terminal_uncertain/close_refused")
}

// A Session that its user starts again while it is closed is theirs.
func TestCloseAndStart(t *testing.T) {
	w := newWorld(t)
	w.has("web")
	w.host.slow["web"] = true
	w.ask("one", about(v1alpha1.VerbClose, "web"))
	w.edit("web", func(s map[string]any) { s["desiredState"] = "Running" })
	w.host.slow["web"] = false
	w.settle()
	w.want("one", v1alpha1.RequestUncertain, lifecycle.ReasonCloseRefused)
	if w.host.alive() != 1 || w.host.started("web") != 1 {
		t.Errorf("%d live, starts %v", w.host.alive(), w.host.starts)
	}
}

func stoppedSession(s *v1alpha1.Session) { s.Spec.DesiredState = v1alpha1.DesiredStopped }

func in(dir string) func(*v1alpha1.Session) {
	return func(s *v1alpha1.Session) { s.Spec.Target.ExistingPath.Path = v1alpha1.Path(dir) }
}

func TestResume(t *testing.T) {
	other := t.TempDir()
	for _, c := range []struct {
		name       string
		prepare    func(*world)
		id         string
		path       *string
		state      v1alpha1.RequestState
		reason     lifecycle.Reason
		mode       string
		session    string
		candidates int
		starts     int // more than before
	}{
		{"the live one", func(w *world) { w.has("web") }, "web", nil, v1alpha1.RequestSuccess, "", "reattached", "web", 0, 0},
		{"by the beginning of its id", func(w *world) { w.has("web-1") }, "we", nil, v1alpha1.RequestSuccess, "", "reattached", "web-1", 0, 0},
		{"an exact id beats prefixes", func(w *world) { w.has("web"); w.has("web-1"); w.has("web-2") }, "web", nil, v1alpha1.RequestSuccess, "", "reattached", "web", 0, 0},
		{"an exact id that is stopped beats live prefixes", func(w *world) { w.has("web", stoppedSession); w.has("web-1") }, "web", nil, v1alpha1.RequestSuccess, "", "cold_restarted", "web", 0, 1},
		{"several live", func(w *world) { w.has("web-1"); w.has("web-2"); w.has("web-3", stoppedSession) }, "web", nil, v1alpha1.RequestFailure, lifecycle.ReasonAmbiguousTarget, "", "", 2, 0},
		{"the live one beats the stopped", func(w *world) { w.has("web-1"); w.has("web-3", stoppedSession) }, "web", nil, v1alpha1.RequestSuccess, "", "reattached", "web-1", 0, 0},
		{"several stopped", func(w *world) { w.has("web-1", stoppedSession); w.has("web-2", stoppedSession) }, "web", nil, v1alpha1.RequestFailure, lifecycle.ReasonAmbiguousTarget, "", "", 2, 0},
		{"the folder chooses", func(w *world) { w.has("web-1"); w.has("web-2", in(other)) }, "web", &other, v1alpha1.RequestSuccess, "", "reattached", "web-2", 0, 0},
		{"a stopped one", func(w *world) { w.has("web", stoppedSession) }, "web", nil, v1alpha1.RequestSuccess, "", "cold_restarted", "web", 0, 1},
		{"one that was stopped after it ran", func(w *world) { w.has("web"); w.edit("web", func(s map[string]any) { s["desiredState"] = "Stopped" }) }, "web", nil,
			v1alpha1.RequestSuccess, "", "cold_restarted", "web", 0, 1},
		{"one that ended by itself", func(w *world) { w.host.programs[string(w.has("web").UID)].ended = v1alpha1.ReasonCompleted; w.settle() }, "web", nil,
			v1alpha1.RequestSuccess, "", "cold_restarted", "web", 0, 1},
		{"a live one of the user's", func(w *world) { w.file(w.session("web")) }, "web", nil, v1alpha1.RequestSuccess, "", "reattached", "web", 0, 0},
		{"a stopped one of the user's", func(w *world) { w.file(w.session("web", stoppedSession)) }, "web", nil, v1alpha1.RequestFailure, lifecycle.ReasonSpawnFailed, "", "", 0, 0},
		{"one in quarantine", func(w *world) { w.setAside("web") }, "web", nil, v1alpha1.RequestSuccess, "", "cold_restarted", "web", 0, 1},
		{"one in quarantine that was stopped", func(w *world) { w.setAside("web", stoppedSession) }, "we", nil, v1alpha1.RequestSuccess, "", "cold_restarted", "web", 0, 1},
		{"one that cannot come back", func(w *world) { w.setAside("web"); w.host.broken["web-q"] = v1alpha1.ReasonPlaceTaken }, "web", nil,
			v1alpha1.RequestFailure, lifecycle.ReasonSpawnFailed, "", "", 0, 0},
		{"one in quarantine and its namesake", func(w *world) { w.setAside("web"); w.has("web") }, "web", nil, v1alpha1.RequestSuccess, "", "reattached", "web", 0, 0},
		{"one in quarantine and one stopped", func(w *world) { w.setAside("web-1"); w.has("web-2", stoppedSession) }, "web", nil,
			v1alpha1.RequestFailure, lifecycle.ReasonAmbiguousTarget, "", "", 2, 0},
		{"none", func(w *world) { w.has("web") }, "api", nil, v1alpha1.RequestFailure, lifecycle.ReasonNotFound, "", "", 0, 0},
		{"one that does not start", func(w *world) { w.has("web", stoppedSession); w.host.broken["web"] = v1alpha1.ReasonCommandNotFound }, "web", nil,
			v1alpha1.RequestFailure, lifecycle.ReasonSpawnFailed, "", "", 0, 0},
		{"while tmux does not answer", func(w *world) { w.has("web"); w.host.unreachable = true }, "web", nil, v1alpha1.RequestFailure, lifecycle.ReasonDiscoveryTimeout, "", "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.prepare(w)
			w.settle()
			starts, alive := len(w.host.starts), w.host.alive()
			spec := about(v1alpha1.VerbResume, c.id)
			spec.Target.Session.Path = c.path
			w.ask("one", spec)
			rq := w.want("one", c.state, c.reason)
			st := rq.Status
			if st.ResumeMode != c.mode || len(st.Candidates) != c.candidates || c.session != "" && st.SessionID != c.session {
				t.Errorf("the entry is %+v", st)
			}
			if n := len(w.host.starts) - starts; n != c.starts || w.host.alive() != alive+c.starts {
				t.Errorf("%d programs were started, %d live, %d did before; want %d more", n, w.host.alive(), alive, c.starts)
			}
			if s := w.getSession("web"); c.reason == lifecycle.ReasonSpawnFailed && s != nil && s.Spec.DesiredState != v1alpha1.DesiredStopped {
				t.Error("it should not run, and a resume that failed left it so that it should")
			}
		})
	}
}

// The folder of a session is what its conversation is about.
func TestResumeNeedsTheFolder(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "gone")
	must(t, os.Mkdir(dir, 0o700))
	w.has("web", in(dir), stoppedSession)
	must(t, os.Remove(dir))
	w.ask("one", about(v1alpha1.VerbResume, "web"))
	rq := w.want("one", v1alpha1.RequestFailure, lifecycle.ReasonSpawnFailed)
	if m := condition(rq.Status.Conditions, v1alpha1.Complete).Message; !strings.Contains(m, "resume_cwd_unavailable") {
		t.Errorf("the message is %q", m)
	}
	if len(w.host.starts) != 0 {
		t.Error("it was started")
	}
}

// A status that tells less than tmux is not believed.
func TestResumeWaitsForProof(t *testing.T) {
	w := newWorld(t)
	s := w.has("web")
	w.host.slow["web"] = true
	w.host.programs[string(s.UID)].ended = v1alpha1.ReasonCompleted
	w.ask("one", about(v1alpha1.VerbResume, "web"))
	w.want("one", v1alpha1.RequestInProgress, "")
	w.host.slow["web"] = false
	w.advance(2 * lookAgain)
	rq := w.want("one", v1alpha1.RequestSuccess, "")
	if rq.Status.ResumeMode != string(lifecycle.ColdRestarted) || w.host.alive() != 1 {
		t.Errorf("mode %s, %d live", rq.Status.ResumeMode, w.host.alive())
	}
	w.wantRows("accepted", "success")
}

// A session that is being deleted may be on its way into quarantine.
func TestResumeWaitsForDeletion(t *testing.T) {
	w := newWorld(t)
	w.has("web")
	w.host.slow["web"] = true
	must(t, w.defs.Remove(t.Context(), sessionKey(v1alpha1.DefaultNamespace, "web")))
	w.ask("one", about(v1alpha1.VerbResume, "web"))
	w.want("one", v1alpha1.RequestInProgress, "")
	w.setAside("web")
	w.host.slow["web"] = false
	w.settle()
	rq := w.want("one", v1alpha1.RequestSuccess, "")
	if rq.Status.ResumeMode != string(lifecycle.ColdRestarted) || w.host.alive() != 1 {
		t.Errorf("mode %s, %d live", rq.Status.ResumeMode, w.host.alive())
	}
}

func TestFork(t *testing.T) {
	w := newWorld(t)
	s := w.has("web", func(s *v1alpha1.Session) { s.Spec.Command, s.Spec.Agent = nil, &v1alpha1.AgentSpec{Profile: "claude"} })
	w.ask("one", about(v1alpha1.VerbFork, "web"))
	w.want("one", v1alpha1.RequestFailure, lifecycle.ReasonSpawnFailed)
	after := s.DeepCopy()
	after.Status.Conversation = &v1alpha1.ConversationStatus{ID: "c-1", Source: v1alpha1.ConversationMinted, Profile: "claude"}
	must(t, w.store.Update(t.Context(), s, after))
	w.ask("two", about(v1alpha1.VerbFork, "web"))
	rq := w.want("two", v1alpha1.RequestSuccess, "")
	copied := w.getSession(rq.Status.Session.Name)
	if copied == nil || copied.Spec.Agent.ForkFrom != "c-1" || copied.Spec.Agent.Profile != "claude" || string(copied.Spec.Target.ExistingPath.Path) != w.work {
		t.Fatalf("the copy is %+v", copied)
	}
	if w.host.alive() != 2 {
		t.Errorf("%d live, want 2", w.host.alive())
	}
	w.ask("three", about(v1alpha1.VerbFork, "api"))
	w.want("three", v1alpha1.RequestFailure, lifecycle.ReasonNotFound)
}

// What was accepted stays in force.
func TestSpecIsImmutable(t *testing.T) {
	w := newWorld(t)
	w.host.slow["web"] = true
	w.ask("one", w.create("web"))
	rq := w.ask("one", w.create("other"))
	if rq.Generation != 2 {
		t.Fatalf("generation %d", rq.Generation)
	}
	w.host.slow["web"] = false
	w.settle()
	rq = w.want("one", v1alpha1.RequestSuccess, "")
	w.wantCondition(rq, v1alpha1.Accepted, metav1.ConditionTrue, v1alpha1.ReasonSpecChanged)
	if rq.Status.SessionID != "web" || w.getSession("other") != nil {
		t.Errorf("the entry is %+v", rq.Status)
	}
	w.settle()
	if got := w.version(requestKey("one")); got != rq.ResourceVersion {
		t.Error("it is written again and again")
	}
}

// A refused file is judged anew when it is another.
func TestRefusedAndMended(t *testing.T) {
	w := newWorld(t)
	spec := about(v1alpha1.VerbClose, "web")
	spec.Force = ptr(false)
	w.has("web")
	w.ask("one", spec)
	w.want("one", "", lifecycle.ReasonInvalidTarget)
	w.ask("one", about(v1alpha1.VerbClose, "web"))
	w.want("one", v1alpha1.RequestSuccess, "")
	w.wantRows("rejected/invalid_target", "accepted", "success")
}

func TestTombstone(t *testing.T) {
	w := newWorld(t)
	w.ask("one", w.create("web"))
	uid := w.get("one").UID
	w.unfile(requestKey("one"))
	w.settle()
	w.want("one", v1alpha1.RequestSuccess, "")
	w.restart()
	again := w.create("web")
	again.Key = "one"
	w.ask("two", again) // the file is gone, the key is not forgotten
	rq := w.want("two", v1alpha1.RequestSuccess, "")
	if rq.Status.DuplicateOf != "one" {
		t.Errorf("the status is %+v", rq.Status)
	}
	w.unfile(requestKey("two"))
	w.settle()
	if w.get("two") != nil {
		t.Error("what repeats a request outlives its file")
	}
	w.advance(w.r.Retention - time.Hour)
	if w.get("one") == nil {
		t.Fatal("the key is forgotten too soon")
	}
	w.advance(2 * time.Hour)
	if w.get("one") != nil {
		t.Fatal("the key is never forgotten")
	}
	w.ask("one", about(v1alpha1.VerbClose, "web"))
	if rq := w.want("one", v1alpha1.RequestSuccess, ""); rq.UID == uid {
		t.Error("it is the old one")
	}
}

// What skc wrote itself it takes away after the retention.
func TestRetention(t *testing.T) {
	w := newWorld(t)
	req := w.frame(1, lifecycle.PlainDir{Path: w.work})
	w.one(req)
	name := ledger.Name("control", "42:1")
	w.want(name, v1alpha1.RequestSuccess, "")
	w.advance(w.r.Retention - time.Minute)
	w.want(name, v1alpha1.RequestSuccess, "")
	w.advance(2 * time.Minute)
	if w.get(name) != nil {
		t.Error("it is still there")
	}
	if w.host.alive() != 1 {
		t.Error("the session went with it")
	}

	// What was refused without anybody waiting for it is no litter either.
	o, err := ledger.Object("control", w.frame(2, lifecycle.CloseTarget{SessionID: "web"}))
	must(t, err)
	o.Spec.Force = nil
	must(t, w.defs.Create(t.Context(), o))
	w.settle()
	w.want(o.Name, "", lifecycle.ReasonInvalidTarget)
	if out := w.one(w.frame(2, lifecycle.CloseTarget{SessionID: "s1"})); out.Status != lifecycle.OK { // and in nobody's way
		t.Errorf("the outcome is %+v", out)
	}
	o.Name = "rq-other"
	o.Spec.Key = "42:3"
	must(t, w.defs.Create(t.Context(), o))
	w.settle()
	w.want(o.Name, "", lifecycle.ReasonInvalidTarget)
	w.advance(w.r.Retention + time.Minute)
	if w.get(o.Name) != nil {
		t.Error("what was refused is still there")
	}
}

func TestLifecycleOff(t *testing.T) {
	w := newWorld(t)
	w.r.AuditKey = nil
	rq := w.ask("one", w.create("web"))
	w.wantCondition(rq, v1alpha1.Accepted, metav1.ConditionFalse, v1alpha1.ReasonLifecycleOff)
	w.wantRows()
	w.restart() // with a key
	w.settle()
	w.want("one", v1alpha1.RequestSuccess, "")
}
