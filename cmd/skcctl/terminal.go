package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/tmux"
)

// tmuxProgram is found in PATH.
const tmuxProgram = "tmux"

// tmuxPatience is how long one answer of tmux may take.
const tmuxPatience = 10 * time.Second

// terminal finds the pane of a session: the one that carries its UID, whatever
// it and its tmux session are called. The error matches errNoTerminal when
// there is none; the session is returned beside it.
func (c *cli) terminal(ctx context.Context, h home.Home, key api.Key) (*v1alpha1.Session, effects.TmuxPane, error) {
	var none effects.TmuxPane
	s, err := c.session(h, key)
	if err != nil {
		return nil, none, err
	}
	ctx, cancel := context.WithTimeout(ctx, tmuxPatience)
	defer cancel()
	panes, err := tmux.ListOnce(ctx, tmuxProgram, h.TmuxSocket())
	if err != nil && s.Status.Tmux != nil {
		return s, none, fmt.Errorf("%s: %w; skcctl doctor looks for the cause", short(key), err)
	}
	for _, p := range panes {
		if p.Launch.UID == string(s.UID) {
			return s, p, nil
		}
	}
	return s, none, fmt.Errorf("%s has %w (%s); see skcctl describe session %s", short(key), errNoTerminal, why(s), key.Name)
}

// why is what the controller says of the program.
func why(s *v1alpha1.Session) string {
	x := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SessionRunning)
	if x == nil {
		return "it was not started yet"
	}
	if x.Message == "" {
		return x.Reason
	}
	return x.Reason + ": " + x.Message
}

// running finds the pane of a session whose program runs.
func (c *cli) runningTerminal(ctx context.Context, h home.Home, key api.Key) (effects.TmuxPane, error) {
	s, pane, err := c.terminal(ctx, h, key)
	if err == nil && pane.Dead {
		err = fmt.Errorf("%s has %w with a running program (%s); skcctl logs %s shows what it left", short(key), errNoTerminal, why(s), key.Name)
	}
	return pane, err
}

// session is the stored session, or an error that says what to do.
func (c *cli) session(h home.Home, key api.Key) (*v1alpha1.Session, error) {
	o, err := (store.Client{Dir: h.Objects()}).Get(key)
	if errors.Is(err, effects.ErrNotFound) {
		if _, _, e := newDesired(h).locate(key); e == nil {
			c.noteDown(h, "start it and the session comes up")
			return nil, fmt.Errorf("%s has %w: no controller has seen it yet", short(key), errNoTerminal)
		}
		return nil, notFound(key)
	}
	if err != nil {
		return nil, err
	}
	s, ok := o.(*v1alpha1.Session)
	if !ok {
		return nil, fmt.Errorf("%s is no session", short(key))
	}
	return s, nil
}

func notFound(key api.Key) error {
	all := "skcctl get -A"
	if key.Kind != v1alpha1.KindSession {
		all = "skcctl get " + plural(key.Kind) + " -A"
	}
	return fmt.Errorf("%s %w%s; %s shows what there is", short(key), effects.ErrNotFound, inNamespace(key.Namespace), all)
}

// lost words what tmux says of a pane that was there a moment ago.
func lost(key api.Key, err error) error {
	switch {
	case errors.Is(err, effects.ErrNotFound), errors.Is(err, tmux.ErrDead):
		return fmt.Errorf("%s has %w any more: %w; see skcctl describe session %s", short(key), errNoTerminal, err, key.Name)
	case errors.Is(err, tmux.ErrInvalid):
		return &usageError{err}
	case err != nil:
		return fmt.Errorf("%s: %w", short(key), err)
	}
	return nil
}
