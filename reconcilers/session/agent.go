package session

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// Profiles finds AgentProfiles: the user's, and where there is none of the name
// the built-in ones.
type Profiles interface {
	// Get returns a private copy, or an error matching effects.ErrNotFound.
	Get(ctx context.Context, name string) (*v1alpha1.AgentProfile, error)
}

// Conversations finds what agents call their conversations.
type Conversations interface {
	// Recorded tells whether the agent has written the conversation down.
	Recorded(record *v1alpha1.FileSet, id v1alpha1.ConversationID, target CaptureTarget) (bool, error)
	// Ensure keeps looking at the sources and returns what each told last: the ids
	// of conversations that may be the running program's.
	Ensure(key api.Key, id effects.LaunchID, sources []v1alpha1.CaptureSource, target CaptureTarget) [][]v1alpha1.ConversationID
	// Look looks once at those of the sources that are files.
	Look(ctx context.Context, sources []v1alpha1.CaptureSource, target CaptureTarget) [][]v1alpha1.ConversationID
	// Stop ends the looks at key, if there are any.
	Stop(key api.Key)
}

// CaptureTarget is the program whose conversation is looked for.
type CaptureTarget struct {
	Dir    string
	Env    []string
	Since  time.Time
	Screen func(ctx context.Context) ([]string, error)
}

// ProfileChanged is called when an AgentProfile is new, changed or gone: it
// concerns the Sessions that have asked for it.
func (r *Reconciler) ProfileChanged(name string) {
	for _, key := range r.agents.usersOf(name) {
		r.Enqueue(key)
	}
}

// profile is the profile of s's agent; nil, with the condition set, when there is
// none.
func (r *Reconciler) profile(ctx context.Context, s *v1alpha1.Session) (*v1alpha1.AgentProfileSpec, error) {
	name := s.Spec.Agent.Profile
	r.agents.use(name, api.KeyOf(s))
	p, err := r.Profiles.Get(ctx, name)
	if errors.Is(err, effects.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get profile %s: %w", name, err)
	}
	return &p.Spec, nil
}

// command is what the next start of s runs, and its environment. An argv of nil
// means that it cannot be started now; the condition says why, or the pass is to
// end so that the conversation is on disk first.
func (r *Reconciler) command(ctx context.Context, s *v1alpha1.Session, env []string) ([]string, []string, controller.Result, error) {
	var none controller.Result
	agent := s.Spec.Agent
	if agent == nil {
		return s.Spec.Command, env, none, nil
	}
	refuse := func(reason, message string) ([]string, []string, controller.Result, error) {
		set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, reason, message)
		return nil, nil, none, nil // a change of the spec, the profile or the other Session wakes it
	}
	p, err := r.profile(ctx, s)
	if err != nil {
		return nil, nil, none, err
	}
	if p == nil {
		return refuse(v1alpha1.ReasonProfileNotFound, fmt.Sprintf("there is no AgentProfile %s", agent.Profile))
	}
	want, err := wanted(p, s, r.NewID)
	if err != nil {
		return refuse(v1alpha1.ReasonConversationUnsupported, err.Error())
	}
	begin, resume, err := commands(p, agent, want)
	if err != nil {
		return refuse(v1alpha1.ReasonPresetUnknown, err.Error())
	}
	if want == nil { // the agent makes the id, and ensureConversation finds it
		return begin, env, none, nil
	}
	if other, err := r.claim(ctx, s, want.ID); err != nil {
		return nil, nil, none, err
	} else if other != nil {
		return refuse(v1alpha1.ReasonConversationInUse, fmt.Sprintf("conversation %s is %s's, running or not", want.ID, other))
	}
	if have := s.Status.Conversation; have == nil || *have != *want {
		// On disk before the agent knows it: this pass writes it, the next one starts.
		s.Status.Conversation = want
		set(s, v1alpha1.SessionRunning, metav1.ConditionUnknown, v1alpha1.ReasonStarting, "the conversation is written down first")
		return nil, nil, controller.Result{RequeueAfter: time.Microsecond}, nil
	}
	resumes := want.Source != v1alpha1.ConversationMinted || want.Begun
	if mint := p.Conversation.Mint; resumes && want.Source == v1alpha1.ConversationMinted && mint != nil && mint.Record != nil {
		if resumes, err = r.Conversations.Recorded(mint.Record, want.ID, CaptureTarget{Env: env}); err != nil {
			set(s, v1alpha1.SessionRunning, metav1.ConditionFalse, v1alpha1.ReasonStartFailed, "whether the conversation began is not known: "+err.Error())
			return nil, nil, none, fmt.Errorf("learn whether conversation %s of %s began: %w", want.ID, api.KeyOf(s), err)
		}
	}
	if resumes {
		return resume, env, none, nil
	}
	if mint := p.Conversation.Mint; mint != nil && mint.Env != "" {
		env = append(slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, mint.Env+"=") }), mint.Env+"="+string(want.ID))
	}
	return begin, env, none, nil
}

// wanted is the conversation that s should have: the one that the spec gives, the
// one that it has, or a new one; nil when only the agent can make one.
func wanted(p *v1alpha1.AgentProfileSpec, s *v1alpha1.Session, newID func() string) (*v1alpha1.ConversationStatus, error) {
	agent, have := s.Spec.Agent, s.Status.Conversation
	if have != nil && have.Profile != agent.Profile {
		have = nil
	}
	given := agent.ConversationID
	switch {
	case have == nil && agent.ForkFrom != "" && len(p.Fork) == 0:
		return nil, fmt.Errorf("profile %s cannot copy a conversation", agent.Profile)
	case p.Conversation == nil && given != "":
		return nil, fmt.Errorf("profile %s cannot resume a conversation", agent.Profile)
	case p.Conversation == nil:
		return nil, nil
	case have != nil && (given == "" || given == have.ID):
		want := *have
		return &want, nil
	case given != "":
		return &v1alpha1.ConversationStatus{ID: given, Source: v1alpha1.ConversationGiven, Profile: agent.Profile}, nil
	case p.Conversation.Mint != nil:
		return &v1alpha1.ConversationStatus{ID: v1alpha1.ConversationID(newID()), Source: v1alpha1.ConversationMinted, Profile: agent.Profile}, nil
	}
	return nil, nil
}

// commands are what begins the conversation, and what resumes it.
func commands(p *v1alpha1.AgentProfileSpec, agent *v1alpha1.AgentSpec, c *v1alpha1.ConversationStatus) (begin, resume []string, err error) {
	var id v1alpha1.ConversationID
	if c != nil {
		id = c.ID
	}
	if agent.ForkFrom != "" {
		begin, err = p.ForkArgv(agent, agent.ForkFrom, id)
	} else {
		begin, err = p.Begin(agent, id)
	}
	if err != nil {
		return nil, nil, err
	}
	resume, err = p.ResumeArgv(agent, id)
	return begin, resume, err
}

// begun records that the agent ran with its conversation, so that a later start
// resumes it.
func begun(s *v1alpha1.Session) {
	if c := s.Status.Conversation; c != nil && s.Spec.Agent != nil && c.Profile == s.Spec.Agent.Profile {
		c.Begun = true
	}
}

// keepConversation writes into the definition that a restore of q brings back
// which conversation the Session had: its status goes with it, and nothing else
// knows the id.
func (r *Reconciler) keepConversation(ctx context.Context, s *v1alpha1.Session, q *v1alpha1.Quarantine) error {
	c, agent := s.Status.Conversation, s.Spec.Agent
	if c == nil || agent == nil || !c.Begun || c.Profile != agent.Profile || agent.ConversationID == c.ID || q.Spec.Session == nil || q.Spec.Session.Definition == "" {
		return nil
	}
	if c.Source == v1alpha1.ConversationMinted {
		p, err := r.profile(ctx, s)
		if err != nil {
			return err
		}
		env, err := r.Launcher.Environment(s)
		if err == nil && p != nil && p.Conversation != nil && p.Conversation.Mint != nil && p.Conversation.Mint.Record != nil {
			// What cannot be known is kept: an id too many says so when it is resumed.
			if there, err := r.Conversations.Recorded(p.Conversation.Mint.Record, c.ID, CaptureTarget{Env: env}); err == nil && !there {
				return nil
			}
		}
	}
	return editDefinition(q, func(spec map[string]any) {
		if mine, ok := spec["agent"].(map[string]any); ok { // else it was edited meanwhile, and no pass has seen that
			mine["conversationID"] = string(c.ID)
			delete(mine, "forkFrom") // the copy is made
		}
	})
}

// neverRan are the ends of programs that have not begun.
var neverRan = []string{v1alpha1.ReasonCommandNotFound, v1alpha1.ReasonExecFailed, v1alpha1.ReasonStartFailed,
	v1alpha1.ReasonPermissionDenied, v1alpha1.ReasonWorkingDirectoryMissing}

// readiness is the probe of s: its own, or what its agent's profile says of the
// screen; nil when there is neither.
func (r *Reconciler) readiness(ctx context.Context, s *v1alpha1.Session) (*v1alpha1.Readiness, error) {
	if s.Spec.Readiness != nil || s.Spec.Agent == nil {
		return s.Spec.Readiness, nil
	}
	p, err := r.profile(ctx, s)
	if err != nil || p == nil || p.Screen == nil || p.Screen.Ready == nil {
		return nil, err
	}
	return &v1alpha1.Readiness{Screen: p.Screen.Ready}, nil
}

// ensureConversation finds the conversation of an agent that makes its ids: while
// it runs, and once more when it has ended.
func (r *Reconciler) ensureConversation(ctx context.Context, s *v1alpha1.Session) (controller.Result, error) {
	var none controller.Result
	key, uid := api.KeyOf(s), string(s.UID)
	var sources []v1alpha1.CaptureSource
	if a := s.Spec.Agent; a != nil && s.Status.Tmux != nil && s.Status.Workspace != nil && (s.Status.Conversation == nil || s.Status.Conversation.Profile != a.Profile) {
		p, err := r.profile(ctx, s)
		if err != nil {
			return none, err
		}
		if p != nil && p.Conversation != nil {
			sources = p.Conversation.Capture
		}
	}
	if len(sources) == 0 || s.Status.LaunchedDigest != launchDigest(s) && !certified(s) { // the program is of another spec
		r.stopCapture(key, uid)
		return none, nil
	}
	env, err := r.Launcher.Environment(s)
	if err != nil {
		return none, nil // it says so where it matters; the terminal is not worth a start without the rest
	}
	target := CaptureTarget{Dir: s.Status.Workspace.Path, Env: env, Screen: r.screen(s)}
	if at := s.Status.Tmux.StartedAt; at != nil {
		target.Since = at.Time
	}
	p := place{s.Spec.Agent.Profile, target.Dir}
	var found [][]v1alpha1.ConversationID
	var shared bool
	if t := s.Status.Tmux; isTrue(s, v1alpha1.SessionRunning) {
		shared = r.agents.begin(p, uid, t.Attempt)
		id := effects.LaunchID{UID: uid, Generation: t.Generation, Attempt: t.Attempt, Digest: s.Status.LaunchedDigest}
		found = r.Conversations.Ensure(key, id, sources, target)
	} else if certified(s) {
		shared = r.agents.shared(p, uid, t.Attempt)
		r.stopCapture(key, uid)
		found = r.Conversations.Look(ctx, sources, target)
		for i, source := range sources {
			if source.Terminal == v1alpha1.TerminalLastLines {
				found[i] = lastLines(source.Pattern, s.Status.LastTermination.LastLines)
			}
		}
	}
	for i, ids := range found {
		id, err := r.only(ctx, s, ids, shared && sources[i].Terminal == "")
		if err != nil {
			return none, err
		}
		if id == "" {
			continue
		}
		if other, err := r.claim(ctx, s, id); err != nil || other != nil {
			return none, err
		}
		s.Status.Conversation = &v1alpha1.ConversationStatus{ID: id, Source: v1alpha1.ConversationCaptured, Profile: s.Spec.Agent.Profile, Begun: true}
		r.stopCapture(key, uid)
		return none, nil
	}
	return none, nil
}

// only is the one id of ids that no other Session has; "" when there is none, or
// more than one, or when others look for theirs in the same place: it might be
// anybody's, and a conversation that is resumed by mistake cannot be unsaid.
func (r *Reconciler) only(ctx context.Context, s *v1alpha1.Session, ids []v1alpha1.ConversationID, shared bool) (v1alpha1.ConversationID, error) {
	var free []v1alpha1.ConversationID
	for _, id := range ids {
		other, err := r.agents.heldByOther(ctx, r.Store, string(s.UID), id)
		if err != nil {
			return "", err
		}
		if other == nil {
			free = append(free, id)
		}
	}
	switch {
	case len(free) == 0:
		return "", nil
	case len(free) > 1 || shared:
		if r.agents.unclear(string(s.UID), s.Status.Tmux.Attempt) {
			r.Recorder.Event(s, eventWarning, "ConversationUnclear",
				"conversations have begun in this folder that may be of another session or program; none is taken for this one's")
		}
		return "", nil
	}
	return free[0], nil
}

// lastLines are the ids that the last lines of an ended program tell: the last
// one counts, since it is what the program said in the end.
func lastLines(pattern string, lines []string) []v1alpha1.ConversationID {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil
	}
	at := re.SubexpIndex("id")
	for _, line := range slices.Backward(lines) {
		if m := re.FindStringSubmatch(line); m != nil && at >= 0 && conversationID.MatchString(m[at]) {
			return []v1alpha1.ConversationID{v1alpha1.ConversationID(m[at])}
		}
	}
	return nil
}

// conversationID is what the type allows, and no option.
var conversationID = regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._-]{0,127}$`)

func (r *Reconciler) stopCapture(key api.Key, uid string) {
	if r.agents.found(uid) {
		r.Conversations.Stop(key)
	}
}

// screen reads the visible screen of s's program.
func (r *Reconciler) screen(s *v1alpha1.Session) func(context.Context) ([]string, error) {
	uid, rows := string(s.UID), int(s.Spec.TerminalOrDefault().Rows)
	return func(ctx context.Context) ([]string, error) {
		pane, err := r.Mux.Get(ctx, uid)
		if err != nil {
			return nil, err
		}
		return r.Mux.Capture(ctx, pane, rows)
	}
}

// claim makes the conversation s's, or returns who has it.
func (r *Reconciler) claim(ctx context.Context, s *v1alpha1.Session, id v1alpha1.ConversationID) (*api.Key, error) {
	other, freed, err := r.agents.claim(ctx, r.Store, api.KeyOf(s), string(s.UID), id)
	for _, key := range freed {
		r.Enqueue(key)
	}
	return other, err
}
