package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
)

// agentWorld is a world with agents in it.
type agentWorld struct {
	*world
	profiles map[string]*v1alpha1.AgentProfileSpec
	recorded map[v1alpha1.ConversationID]bool
	recErr   error
	tells    [][]v1alpha1.ConversationID // what each source tells
	looking  map[api.Key]bool
	minted   int
	started  []string // every command that was written for a start
	queue    []api.Key
}

var (
	mint = &v1alpha1.AgentProfileSpec{
		Command:      []v1alpha1.ArgTemplate{"bot", "{conversationID}"},
		Conversation: &v1alpha1.ConversationSpec{Mint: &v1alpha1.MintedConversation{}},
		Resume:       []v1alpha1.ArgTemplate{"bot", "resume", "{conversationID}"},
		Screen:       &v1alpha1.AgentScreen{Ready: &v1alpha1.ScreenProbe{Pattern: "up"}},
	}
	capture = &v1alpha1.AgentProfileSpec{
		Command: []v1alpha1.ArgTemplate{"bot"},
		Conversation: &v1alpha1.ConversationSpec{Capture: []v1alpha1.CaptureSource{
			{Files: &v1alpha1.FileSet{Root: "/x", Glob: "*"}, Pattern: "(?P<id>.*)"},
			{Terminal: v1alpha1.TerminalLastLines, Pattern: "resume (?P<id>[a-z0-9]+)"},
		}},
		Resume: []v1alpha1.ArgTemplate{"bot", "resume", "{conversationID}"},
	}
)

func newAgentWorld(t *testing.T) *agentWorld {
	w := &agentWorld{world: newWorld(t), recorded: map[v1alpha1.ConversationID]bool{}, looking: map[api.Key]bool{},
		profiles: map[string]*v1alpha1.AgentProfileSpec{"mint": mint, "capture": capture, "plain": {Command: []v1alpha1.ArgTemplate{"sh"}}}}
	w.equip()
	return w
}

// equip gives the reconciler what agents need.
func (w *agentWorld) equip() {
	w.r.Profiles, w.r.Conversations, w.r.Launcher = w, w, recordingLauncher{w.launcher, w}
	w.r.NewID = func() string { w.minted++; return fmt.Sprintf("id-%d", w.minted) }
	w.r.Enqueue = func(key api.Key) { w.queue = append(w.queue, key) }
}

func (w *agentWorld) restart() {
	w.restartController()
	w.equip()
}

func (w *agentWorld) Get(_ context.Context, name string) (*v1alpha1.AgentProfile, error) {
	if p := w.profiles[name]; p != nil {
		return &v1alpha1.AgentProfile{Spec: *p.DeepCopy()}, nil
	}
	return nil, effects.ErrNotFound
}

func (w *agentWorld) Recorded(_ *v1alpha1.FileSet, id v1alpha1.ConversationID, _ CaptureTarget) (bool, error) {
	return w.recorded[id], w.recErr
}

func (w *agentWorld) Ensure(key api.Key, _ effects.LaunchID, _ []v1alpha1.CaptureSource, _ CaptureTarget) [][]v1alpha1.ConversationID {
	w.looking[key] = true
	return w.tells
}

func (w *agentWorld) Look(_ context.Context, sources []v1alpha1.CaptureSource, _ CaptureTarget) [][]v1alpha1.ConversationID {
	found := make([][]v1alpha1.ConversationID, len(sources))
	copy(found, w.tells)
	return found
}

func (w *agentWorld) Stop(key api.Key) { delete(w.looking, key) }

// recordingLauncher keeps what was to be started; the disk must know the
// conversation by then.
type recordingLauncher struct {
	*fakeLauncher
	w *agentWorld
}

func (l recordingLauncher) Write(id effects.LaunchID, p effects.Launch) error {
	argv := strings.Join(p.Argv, " ")
	l.w.started = append(l.w.started, argv)
	for _, s := range l.w.all() {
		if c := s.Status.Conversation; string(s.UID) == id.UID && c != nil && !strings.Contains(argv+strings.Join(p.Env, " "), string(c.ID)) {
			l.w.t.Errorf("%q is started, and the disk says %+v", argv, c)
		} else if string(s.UID) == id.UID && c == nil && strings.Contains(argv, "id-") {
			l.w.t.Errorf("%q is started, and the disk knows no conversation", argv)
		}
	}
	return l.fakeLauncher.Write(id, p)
}

func (w *agentWorld) all() []*v1alpha1.Session {
	all, err := store.For[*v1alpha1.Session](w.store, v1alpha1.KindSession).List(w.t.Context())
	must(w.t, err)
	return all
}

func named(name string) api.Key {
	return api.Key{Kind: v1alpha1.KindSession, Namespace: v1alpha1.DefaultNamespace, Name: name}
}

// agent is the spec of a Session with that agent.
func (w *agentWorld) agent(a v1alpha1.AgentSpec, edit ...func(*v1alpha1.SessionSpec)) v1alpha1.SessionSpec {
	s := w.spec(edit...)
	s.Command, s.Agent = nil, &a
	return s
}

func (w *agentWorld) applyAs(key api.Key, spec v1alpha1.SessionSpec) {
	w.t.Helper()
	s := &v1alpha1.Session{Spec: spec}
	s.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindSession}
	s.Name, s.Namespace = key.Name, key.Namespace
	raw, err := canonical(spec)
	must(w.t, err)
	accepted := metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}
	must(w.t, w.store.Apply(w.t.Context(), store.Desired{Object: s, RawSpec: raw, Accepted: &accepted, Source: store.Source{Root: "/spool", File: "/spool/" + key.Name}}))
}

// passOf makes passes over one Session until one changes nothing.
func (w *agentWorld) passOf(key api.Key) {
	w.t.Helper()
	version := func() string {
		s, err := w.store.Get(w.t.Context(), key)
		if errors.Is(err, effects.ErrNotFound) {
			return "gone"
		}
		must(w.t, err)
		return s.GetResourceVersion()
	}
	for range 20 {
		before := version()
		_, err := w.r.Reconcile(w.t.Context(), key)
		must(w.t, err)
		if version() == before {
			return
		}
	}
	w.t.Fatal("no end of changes after 20 passes")
}

func (w *agentWorld) getAs(key api.Key) *v1alpha1.Session {
	w.t.Helper()
	s, err := w.store.Get(w.t.Context(), key)
	must(w.t, err)
	return s.(*v1alpha1.Session)
}

func (w *agentWorld) wantReason(key api.Key, reason string) string {
	w.t.Helper()
	for _, c := range w.getAs(key).Status.Conditions {
		if c.Type == v1alpha1.SessionRunning {
			if c.Reason != reason {
				w.t.Errorf("SessionRunning of %s is %s %s (%s), want %s", key, c.Status, c.Reason, c.Message, reason)
			}
			return c.Message
		}
	}
	w.t.Errorf("%s has no SessionRunning", key)
	return ""
}

func (w *agentWorld) wantStarted(want ...string) {
	w.t.Helper()
	if !slices.Equal(w.started, want) {
		w.t.Errorf("started were\n%q, want\n%q", w.started, want)
	}
}

func (w *agentWorld) wantConversation(key api.Key, id v1alpha1.ConversationID, source v1alpha1.ConversationSource) {
	w.t.Helper()
	c := w.getAs(key).Status.Conversation
	if id == "" && c == nil {
		return
	}
	if c == nil || c.ID != id || c.Source != source {
		w.t.Errorf("the conversation of %s is %+v, want %s %s", key, c, source, id)
	}
}

func (w *agentWorld) die(key api.Key, lines ...string) {
	w.t.Helper()
	p, err := w.mux.Get(w.t.Context(), string(w.getAs(key).UID))
	must(w.t, err)
	w.mux.Write(p, lines...)
	w.mux.Die(p, "SIGKILL")
	w.clock.Step(time.Hour) // it ran so long that the next start is at once
}

func TestMintedIsResumed(t *testing.T) {
	w := newAgentWorld(t)
	must(t, os.Mkdir(w.work, 0o755)) // a folder of our own takes a pass more
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "mint", Args: []string{"-v"}}))
	_, err := w.r.Reconcile(t.Context(), web)
	must(t, err)
	w.wantConversation(web, "id-1", v1alpha1.ConversationMinted)
	w.wantStarted() // on disk first
	w.passOf(web)
	w.wantStarted("bot id-1 -v")
	w.die(web)
	w.passOf(web)
	w.restart()
	w.die(web)
	w.passOf(web)
	w.wantStarted("bot id-1 -v", "bot resume id-1 -v", "bot resume id-1 -v")
	w.profiles["mint"] = &v1alpha1.AgentProfileSpec{Command: []v1alpha1.ArgTemplate{"other"}}
	w.r.ProfileChanged("mint")
	if !slices.Equal(w.queue, []api.Key{web}) {
		t.Errorf("a changed profile asks for passes over %v", w.queue)
	}
	w.passOf(web)
	w.wantRunning(3) // a changed profile restarts nothing
	w.wantConversation(web, "id-1", v1alpha1.ConversationMinted)
}

// A copy is made once; then it is a conversation as others are.
func TestForkedOnce(t *testing.T) {
	w := newAgentWorld(t)
	fork := mint.DeepCopy()
	fork.Fork = []v1alpha1.ArgTemplate{"bot", "fork", "{conversationID}", "{newConversationID}"}
	w.profiles["fork"] = fork
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "fork", ForkFrom: "old"}))
	w.passOf(web)
	w.wantConversation(web, "id-1", v1alpha1.ConversationMinted)
	w.profiles["fork"] = mint // it need not be able to any more
	w.die(web)
	w.passOf(web)
	w.wantStarted("bot fork old id-1", "bot resume id-1")

	w = newAgentWorld(t)
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "mint", ForkFrom: "old"}))
	w.passOf(web)
	w.wantReason(web, v1alpha1.ReasonConversationUnsupported)
	w.wantStarted()
}

// A program that is not there has begun nothing.
func TestMintedNeverRan(t *testing.T) {
	w := newAgentWorld(t)
	w.launcher.fails = &effects.LaunchFailure{Reason: v1alpha1.ReasonCommandNotFound, Message: "no bot"}
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "mint"}))
	w.passOf(web)
	w.passOf(web)
	w.wantStarted("bot id-1", "bot id-1")
	w.wantReason(web, v1alpha1.ReasonRunning)
}

func TestMintedWithRecord(t *testing.T) {
	w := newAgentWorld(t)
	p := mint.DeepCopy()
	p.Conversation.Mint = &v1alpha1.MintedConversation{Record: &v1alpha1.FileSet{Root: "/x", Glob: "{conversationID}"}}
	w.profiles["mint"] = p
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "mint"}))
	w.passOf(web)
	w.die(web) // before anything was written down
	w.passOf(web)
	w.recorded["id-1"] = true
	w.die(web)
	w.passOf(web)
	w.wantStarted("bot id-1", "bot id-1", "bot resume id-1")

	w.recErr = errors.New("cannot be known") // unknown is not absent
	w.die(web)
	var err error
	for range 5 {
		if _, err = w.r.Reconcile(t.Context(), web); err != nil {
			break
		}
	}
	if !errors.Is(err, w.recErr) || len(w.started) != 3 {
		t.Errorf("got %v, started %q", err, w.started)
	}
}

func TestMintedByEnvironment(t *testing.T) {
	w := newAgentWorld(t)
	p := mint.DeepCopy()
	p.Command, p.Conversation.Mint = []v1alpha1.ArgTemplate{"bot"}, &v1alpha1.MintedConversation{Env: "A"}
	w.profiles["mint"] = p
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "mint"}))
	s := w.getAs(web)
	s.Status.Conversation = &v1alpha1.ConversationStatus{ID: "id-0", Source: v1alpha1.ConversationMinted, Profile: "mint"}
	argv, env, _, err := w.r.command(t.Context(), s, []string{"A=1", "B=2"})
	must(t, err)
	if !slices.Equal(argv, []string{"bot"}) || !slices.Equal(env, []string{"B=2", "A=id-0"}) {
		t.Errorf("begin: %q, %q", argv, env)
	}
	s.Status.Conversation.Begun = true
	argv, env, _, err = w.r.command(t.Context(), s, []string{"A=1", "B=2"})
	must(t, err)
	if !slices.Equal(argv, []string{"bot", "resume", "id-0"}) || !slices.Equal(env, []string{"A=1", "B=2"}) {
		t.Errorf("resume: %q, %q", argv, env)
	}
}

func TestGivenAndRefusals(t *testing.T) {
	w := newAgentWorld(t)
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "capture", ConversationID: "old"}))
	w.passOf(web)
	w.wantConversation(web, "old", v1alpha1.ConversationGiven)
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "capture", ConversationID: "older"}))
	w.passOf(web)
	w.wantConversation(web, "older", v1alpha1.ConversationGiven)
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "capture"})) // it has one
	w.passOf(web)
	w.wantStarted("bot resume old", "bot resume older", "bot resume older")
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "mint"})) // another agent's is no use
	w.passOf(web)
	w.wantConversation(web, "id-1", v1alpha1.ConversationMinted)

	for _, c := range []struct {
		agent  v1alpha1.AgentSpec
		reason string
	}{
		{v1alpha1.AgentSpec{Profile: "nope"}, v1alpha1.ReasonProfileNotFound},
		{v1alpha1.AgentSpec{Profile: "mint", ModelPreset: "x"}, v1alpha1.ReasonPresetUnknown},
		{v1alpha1.AgentSpec{Profile: "plain", ConversationID: "x"}, v1alpha1.ReasonConversationUnsupported},
		{v1alpha1.AgentSpec{Profile: "mint", ForkFrom: "x"}, v1alpha1.ReasonConversationUnsupported},
	} {
		w := newAgentWorld(t)
		w.applyAs(web, w.agent(c.agent))
		w.passOf(web)
		w.wantReason(web, c.reason)
		w.wantStarted()
		w.wantConversation(web, "", "")
	}
}

// The first start copies the conversation; those after it go on with the copy.
func TestFork(t *testing.T) {
	w := newAgentWorld(t)
	forks := mint.DeepCopy()
	forks.Fork = []v1alpha1.ArgTemplate{"bot", "fork", "{conversationID}", "--as={newConversationID}"}
	w.profiles["forks"] = forks
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "forks", ForkFrom: "x"}))
	w.passOf(web)
	w.wantConversation(web, "id-1", v1alpha1.ConversationMinted)
	w.mux.Die(w.pane(), "SIGKILL")
	w.passOf(web)
	w.wantStarted("bot fork x --as=id-1", "bot resume id-1")
}

func TestConversationIsClaimed(t *testing.T) {
	one, two, three := named("one"), named("two"), named("three")
	w := newAgentWorld(t)
	given := w.agent(v1alpha1.AgentSpec{Profile: "mint", ConversationID: "x"})
	for _, key := range []api.Key{two, one, three} { // who comes first has it
		w.applyAs(key, given)
		w.passOf(key)
	}
	refused := func(why string, keys ...api.Key) {
		t.Helper()
		for _, key := range keys {
			w.passOf(key)
			if m := w.wantReason(key, v1alpha1.ReasonConversationInUse); !strings.Contains(m, "session/default/two") {
				t.Errorf("%s: the message is %q", why, m)
			}
			w.wantConversation(key, "", "")
		}
	}
	refused("while it runs", one, three)
	w.restart()
	refused("after a restart, before the holder's pass", three, one)
	stopped := given
	stopped.DesiredState = v1alpha1.DesiredStopped
	w.applyAs(two, stopped)
	w.passOf(two)
	refused("while it is stopped", one, three)
	w.wantStarted("bot resume x")

	// Another conversation frees this one.
	w.applyAs(two, w.agent(v1alpha1.AgentSpec{Profile: "mint", ConversationID: "y"}))
	w.queue = nil
	w.passOf(two)
	w.wantConversation(two, "y", v1alpha1.ConversationGiven)
	if !slices.Equal(w.queue, []api.Key{one, three}) {
		t.Errorf("who waits is not told: %v", w.queue)
	}
	w.passOf(three)
	w.wantConversation(three, "x", v1alpha1.ConversationGiven)
	w.passOf(one)
	if m := w.wantReason(one, v1alpha1.ReasonConversationInUse); !strings.Contains(m, "session/default/three") {
		t.Errorf("the message is %q", m)
	}

	// So does the end of who has it.
	must(t, w.store.Remove(t.Context(), three, store.Source{Root: "/spool", File: "/spool/three"}))
	w.queue = nil
	w.passOf(three)
	_, err := w.r.Reconcile(t.Context(), three) // its last: it is gone
	must(t, err)
	if !slices.Contains(w.queue, one) {
		t.Errorf("who waits is not told: %v", w.queue)
	}
	w.passOf(one)
	w.wantConversation(one, "x", v1alpha1.ConversationGiven)
	w.wantStarted("bot resume x", "bot resume y", "bot resume x", "bot resume x")
}

// Two that say they have one conversation, as after damage: the older has it.
func TestClaimIsTheOlders(t *testing.T) {
	w := newAgentWorld(t)
	given := w.agent(v1alpha1.AgentSpec{Profile: "mint", ConversationID: "x"}, func(s *v1alpha1.SessionSpec) { s.DesiredState = v1alpha1.DesiredStopped })
	older, younger := named("z-older"), named("a-younger")
	for _, key := range []api.Key{older, younger} {
		w.applyAs(key, given)
		before := w.getAs(key)
		after := before.DeepCopy()
		after.Status.Conversation = &v1alpha1.ConversationStatus{ID: "x", Source: v1alpha1.ConversationGiven, Profile: "mint"}
		must(t, w.store.Update(t.Context(), before, after))
		w.clock.Step(2 * time.Second)
	}
	given.DesiredState = v1alpha1.DesiredRunning
	for _, key := range []api.Key{younger, older} {
		w.applyAs(key, given)
		w.passOf(key)
	}
	w.wantReason(younger, v1alpha1.ReasonConversationInUse)
	w.wantReason(older, v1alpha1.ReasonRunning)
}

func TestCapture(t *testing.T) {
	w := newAgentWorld(t)
	other := named("other")
	w.applyAs(other, w.agent(v1alpha1.AgentSpec{Profile: "mint", ConversationID: "taken"}))
	w.passOf(other)
	w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "capture"}))
	w.passOf(web)
	if !w.looking[web] {
		t.Fatal("nobody looks for the conversation")
	}
	w.tells = [][]v1alpha1.ConversationID{{"taken"}, nil}
	w.passOf(web)
	w.wantConversation(web, "", "")
	w.tells = [][]v1alpha1.ConversationID{{"a", "b", "taken"}, nil}
	w.passOf(web)
	w.wantConversation(web, "", "") // it may be either
	if !slices.ContainsFunc(w.events.lines, func(l string) bool { return strings.Contains(l, "Warning ConversationUnclear") }) {
		t.Errorf("nobody is told: %q", w.events.lines)
	}
	w.tells = [][]v1alpha1.ConversationID{{"a", "taken"}, nil}
	w.passOf(web)
	w.wantConversation(web, "a", v1alpha1.ConversationCaptured)
	if w.looking[web] {
		t.Error("it is looked for still")
	}
	w.tells = nil
	w.die(web)
	w.passOf(web)
	w.wantStarted("bot resume taken", "bot", "bot resume a")
}

// What an agent says in the end is its own, whoever else begins there.
func TestCaptureAtTheEnd(t *testing.T) {
	w := newAgentWorld(t)
	other := named("other")
	for _, key := range []api.Key{web, other} {
		w.applyAs(key, w.agent(v1alpha1.AgentSpec{Profile: "capture"}))
		w.passOf(key)
	}
	w.tells = [][]v1alpha1.ConversationID{{"a"}, nil}
	w.passOf(web)
	w.passOf(other)
	w.wantConversation(web, "", "") // two look for theirs in one folder
	w.wantConversation(other, "", "")
	w.die(web, "bot resume zzz", "to go on: bot resume b1", "bye")
	w.passOf(web)
	w.wantConversation(web, "b1", v1alpha1.ConversationCaptured)
	w.passOf(other)
	w.wantConversation(other, "", "") // the other is not looked for any more, and a may have been its
	w.wantStarted("bot", "bot", "bot resume b1")
}

// What a restore brings back resumes the conversation, if there is something to
// resume.
func TestKeepConversation(t *testing.T) {
	w := newAgentWorld(t)
	recorded := mint.DeepCopy()
	recorded.Conversation.Mint = &v1alpha1.MintedConversation{Record: &v1alpha1.FileSet{Root: "/x", Glob: "*"}}
	w.profiles["recorded"] = recorded
	w.recorded["there"] = true
	const plain = `{"spec":{"agent":{"forkFrom":"f","profile":"P"},"restart":{"maxRestarts":9007199254740993}}}`
	kept := func(id string) string {
		return `{"spec":{"agent":{"conversationID":"` + id + `","profile":"P"},"restart":{"maxRestarts":9007199254740993}}}`
	}
	for _, c := range []struct {
		name, profile, of string
		id                v1alpha1.ConversationID
		source            v1alpha1.ConversationSource
		begun             bool
		definition, want  string
	}{
		{"minted", "mint", "mint", "a", v1alpha1.ConversationMinted, true, plain, kept("a")},
		{"captured", "capture", "capture", "a", v1alpha1.ConversationCaptured, true, plain, kept("a")},
		{"not begun", "mint", "mint", "a", v1alpha1.ConversationMinted, false, plain, plain},
		{"another agent's", "mint", "capture", "a", v1alpha1.ConversationCaptured, true, plain, plain},
		{"written down", "recorded", "recorded", "there", v1alpha1.ConversationMinted, true, plain, kept("there")},
		{"not written down", "recorded", "recorded", "nowhere", v1alpha1.ConversationMinted, true, plain, plain},
		{"the profile is gone", "gone", "gone", "a", v1alpha1.ConversationMinted, true, plain, kept("a")},
		{"no definition", "mint", "mint", "a", v1alpha1.ConversationMinted, true, "", ""},
		{"a command by now", "mint", "mint", "a", v1alpha1.ConversationMinted, true, `{"spec":{"command":["x"]}}`, `{"spec":{"command":["x"]}}`},
	} {
		s := &v1alpha1.Session{Spec: w.agent(v1alpha1.AgentSpec{Profile: c.profile})}
		s.Status.Conversation = &v1alpha1.ConversationStatus{ID: c.id, Source: c.source, Profile: c.of, Begun: c.begun}
		q := &v1alpha1.Quarantine{Spec: v1alpha1.QuarantineSpec{Session: &v1alpha1.QuarantinedSession{Definition: c.definition}}}
		if err := w.r.keepConversation(t.Context(), s, q); err != nil || q.Spec.Session.Definition != c.want {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, q.Spec.Session.Definition, c.want)
		}
	}
}

func TestReadinessOfProfile(t *testing.T) {
	w := newAgentWorld(t)
	s := &v1alpha1.Session{Spec: w.agent(v1alpha1.AgentSpec{Profile: "mint"})}
	if p, err := w.r.readiness(t.Context(), s); err != nil || p == nil || p.Screen == nil || p.Screen.Pattern != "up" {
		t.Errorf("the profile's: %+v, %v", p, err)
	}
	own := &v1alpha1.Readiness{TCP: &v1alpha1.TCPProbe{Port: 1}}
	s.Spec.Readiness = own
	if p, err := w.r.readiness(t.Context(), s); err != nil || p != own {
		t.Errorf("its own: %+v, %v", p, err)
	}
	for _, name := range []string{"capture", "gone"} { // one that says nothing, and one that went while it runs
		s.Spec = w.agent(v1alpha1.AgentSpec{Profile: name})
		if p, err := w.r.readiness(t.Context(), s); err != nil || p != nil {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// Whatever effect fails, once, before it acts or after: in the end one program
// runs, in the one conversation that the status says and that ever was begun.
func TestAgentAnyFailure(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			w := newAgentWorld(t)
			w.calls.after = after
			w.applyAs(web, w.agent(v1alpha1.AgentSpec{Profile: "mint"}))
			w.calls.n, w.calls.at = 0, n
			for range 8 {
				_, _ = w.r.Reconcile(t.Context(), web)
			}
			w.die(web)
			for range 8 {
				_, _ = w.r.Reconcile(t.Context(), web)
			}
			hit := w.calls.n >= n
			w.calls.at = 0
			w.passOf(web)
			w.wantReason(web, v1alpha1.ReasonRunning)
			c := w.getAs(web).Status.Conversation
			if c == nil || w.livingPanes() != 1 {
				t.Fatalf("call %d: conversation %+v, %d programs", n, c, w.livingPanes())
			}
			for _, argv := range w.started {
				if !strings.HasSuffix(argv, " "+string(c.ID)) {
					t.Fatalf("call %d: started were %q, the conversation is %s", n, w.started, c.ID)
				}
			}
			if last := w.started[len(w.started)-1]; last != "bot resume "+string(c.ID) {
				t.Fatalf("call %d: the last start was %q", n, last)
			}
			if !hit {
				break
			}
		}
	}
}
