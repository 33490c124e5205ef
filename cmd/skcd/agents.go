package main

import (
	"context"
	"errors"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/config/profiles"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/conversation"
	"skc.dev/skc/reconcilers/session"
)

// agentProfiles is session.Profiles over the store: a user's profile counts, and
// where there is none of the name the built-in one.
type agentProfiles struct {
	store.Typed[*v1alpha1.AgentProfile]
}

func (a agentProfiles) Get(ctx context.Context, name string) (*v1alpha1.AgentProfile, error) {
	p, err := a.Typed.Get(ctx, api.Key{Kind: v1alpha1.KindAgentProfile, Name: name})
	if errors.Is(err, effects.ErrNotFound) {
		if builtIn := profiles.Get(name); builtIn != nil {
			return builtIn, nil
		}
	}
	return p, err
}

// conversations is session.Conversations over effects/conversation.
type conversations struct{ *conversation.Finder }

func (c conversations) Recorded(record *v1alpha1.FileSet, id v1alpha1.ConversationID, t session.CaptureTarget) (bool, error) {
	return conversation.Recorded(record, id, captured(t))
}

func (c conversations) Ensure(key api.Key, id effects.LaunchID, sources []v1alpha1.CaptureSource, t session.CaptureTarget) [][]v1alpha1.ConversationID {
	return c.Finder.Ensure(key, id, sources, captured(t))
}

func (c conversations) Look(ctx context.Context, sources []v1alpha1.CaptureSource, t session.CaptureTarget) [][]v1alpha1.ConversationID {
	found := make([][]v1alpha1.ConversationID, len(sources))
	for i, s := range sources {
		if s.Files != nil {
			found[i] = conversation.Look(ctx, s, captured(t))
		}
	}
	return found
}

func captured(t session.CaptureTarget) conversation.Target {
	return conversation.Target{Dir: t.Dir, Env: t.Env, Since: t.Since, Screen: t.Screen}
}
