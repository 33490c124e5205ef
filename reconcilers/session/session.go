// Package session is what a Session means: a folder, one program in one tmux
// pane, its readiness, and a status that says all of it. It keeps true that at
// no time two programs run for one Session, that a death leaves a certificate,
// and that what cannot be seen is neither stopped nor started.
package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// Reconciler converges Sessions. Its exported fields are set once, before the
// first pass.
type Reconciler struct {
	Store     Store
	Mux       Multiplexer
	Launcher  Launcher
	Processes Processes
	Folders   Folders
	Worktrees Worktrees
	Setups    Setups
	Safety    Safety
	// Quarantines and Definitions serve what is given up.
	Quarantines Quarantines
	Definitions Definitions
	Prober      Prober
	Recorder    Recorder
	Clock       clock.PassiveClock
	// Profiles and Conversations serve the Sessions with an agent.
	Profiles      Profiles
	Conversations Conversations
	Prompts       Prompts
	// NewID makes a UUID that nobody has.
	NewID func() string
	// Enqueue asks for a pass.
	Enqueue func(api.Key)
	// Jitter is a random part of 1, to spread backoffs.
	Jitter func() float64
	// UserHome is what ~ stands for.
	UserHome string
	// BootID names this boot of the machine.
	BootID string
	// Earlier tells whether an earlier controller knew a Session of that name, and
	// so may have started it and not lived to record that.
	Earlier func(api.Key) bool

	mu     sync.Mutex
	keys   map[string]api.Key // by UID: whom a change in tmux concerns
	timers timers
	setups map[string]*setupRun // by UID
	agents agents
}

type phaseFunc func(context.Context, *v1alpha1.Session) (controller.Result, error)

// Reconcile makes one pass over one Session.
func (r *Reconciler) Reconcile(ctx context.Context, key api.Key) (res controller.Result, err error) {
	s, err := r.Store.Get(ctx, key)
	if errors.Is(err, effects.ErrNotFound) {
		r.forget(key)
		return res, nil // gone since it was queued
	}
	if err != nil {
		return res, fmt.Errorf("get %s: %w", key, err)
	}
	r.remember(key, string(s.UID))
	if s.DeletionTimestamp == nil && !hasFinalizer(s) {
		before := s.DeepCopy()
		s.Finalizers = append(s.Finalizers, v1alpha1.SessionFinalizer)
		// On disk before the first effect, or a crash leaks a session.
		if err := r.Store.Update(ctx, before, s); err != nil {
			return retryConflict(controller.Result{}, fmt.Errorf("add finalizer to %s: %w", key, err))
		}
	}
	before := s.DeepCopy()
	defer func() { // every path reports what it saw, the failing ones above all
		r.summarize(s)
		if err == nil {
			s.Status.ObservedGeneration = s.Generation
		}
		uerr := r.update(ctx, before, s)
		if uerr == nil {
			r.recordTransitions(before, s)
		}
		res, err = retryConflict(res, errors.Join(err, uerr))
	}()
	if s.DeletionTimestamp != nil {
		return r.finalize(ctx, s)
	}
	for _, phase := range []phaseFunc{r.ensureWorkspace, r.ensureProcess, r.ensureReadiness, r.ensureConversation, r.ensureSafety, r.ensurePrompt} {
		next, err := phase(ctx, s)
		if err != nil {
			return controller.Result{}, err
		}
		res = res.Soonest(next)
	}
	return res, nil
}

// finalize ends all that the Session has in the world, then lets it go.
func (r *Reconciler) finalize(ctx context.Context, s *v1alpha1.Session) (controller.Result, error) {
	if !hasFinalizer(s) {
		return controller.Result{}, nil
	}
	key := api.KeyOf(s)
	r.collectSetup(s)
	r.Safety.Stop(key)
	obs, err := r.observe(ctx, s)
	if errors.Is(err, effects.ErrUnavailable) && s.Status.Tmux == nil {
		err = nil // no tmux program, and none ever ran this Session
	}
	if err != nil {
		return r.unknown(s, err)
	}
	if obs.died {
		return r.reportDeath(s)
	}
	stopped, res, err := r.ensureStopped(ctx, s, obs, v1alpha1.RequestedDeleted)
	if err != nil || !stopped {
		return res, err
	}
	if obs.found {
		if err := r.Mux.Kill(ctx, obs.pane); err != nil {
			return res, fmt.Errorf("end tmux session of %s: %w", key, err)
		}
	}
	if err := r.Launcher.Clear(string(s.UID)); err != nil {
		return res, fmt.Errorf("clear launch files of %s: %w", key, err)
	}
	if err := r.Processes.Release(string(s.UID)); err != nil {
		return res, fmt.Errorf("release %s: %w", key, err)
	}
	if done, res, err := r.finalizeWorkspace(ctx, s); err != nil || !done {
		return res, err
	}
	// Last: what is set aside must know whether it was delivered.
	if err := r.Prompts.Forget(ctx, string(s.UID)); err != nil {
		return res, fmt.Errorf("forget the startup prompt of %s: %w", key, err)
	}
	var keep []string
	for _, f := range s.Finalizers {
		if f != v1alpha1.SessionFinalizer {
			keep = append(keep, f)
		}
	}
	s.Finalizers = keep
	return res, nil
}

// update writes the status. The source of the object may have changed it
// meanwhile; what this pass did in the world is then put on the new version,
// since nobody else would know of it.
func (r *Reconciler) update(ctx context.Context, before, s *v1alpha1.Session) error {
	err := r.Store.Update(ctx, before, s)
	if !errors.Is(err, effects.ErrConflict) {
		return err
	}
	key := api.KeyOf(s)
	latest, gerr := r.Store.Get(ctx, key)
	if errors.Is(gerr, effects.ErrNotFound) {
		return nil
	}
	if gerr != nil || latest.UID != s.UID {
		return err
	}
	merged := latest.DeepCopy()
	s.Status.DeepCopyInto(&merged.Status)
	if c := meta.FindStatusCondition(latest.Status.Conditions, v1alpha1.SourceAccepted); c != nil {
		meta.SetStatusCondition(&merged.Status.Conditions, *c)
	}
	merged.Finalizers = s.Finalizers
	r.summarize(merged)
	r.Enqueue(key) // the new version was not looked at
	return r.Store.Update(ctx, latest, merged)
}

// retryConflict makes of a conflict, which is nobody's fault, a second pass.
func retryConflict(res controller.Result, err error) (controller.Result, error) {
	if errors.Is(err, effects.ErrConflict) {
		return controller.Result{RequeueAfter: time.Millisecond}, nil
	}
	return res, err
}

// Changed is called when tmux saw something of the program with that UID; an
// empty one means that everything may have changed.
func (r *Reconciler) Changed(uid string) {
	r.mu.Lock()
	var keys []api.Key
	if uid == "" {
		for _, k := range r.keys {
			keys = append(keys, k)
		}
	} else if k, ok := r.keys[uid]; ok {
		keys = append(keys, k)
	}
	r.mu.Unlock()
	for _, k := range keys {
		r.Enqueue(k)
	}
}

func (r *Reconciler) remember(key api.Key, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil {
		r.keys = map[string]api.Key{}
	}
	r.keys[uid] = key
}

func (r *Reconciler) forget(key api.Key) {
	r.Prober.Stop(key)
	r.Setups.Forget(key)
	r.Safety.Stop(key) // its end enqueues the key once more
	_, _, _, _ = r.Safety.Ended(key)
	_, _, _, _ = r.Worktrees.Ended(key)
	var gone []string
	r.mu.Lock()
	for uid, k := range r.keys {
		if k == key {
			delete(r.keys, uid)
			r.timers.forget(uid)
			delete(r.setups, uid)
			gone = append(gone, uid)
		}
	}
	r.mu.Unlock()
	for _, uid := range gone {
		r.stopCapture(key, uid)
		for _, waits := range r.agents.forget(key, uid) {
			r.Enqueue(waits)
		}
	}
}

func hasFinalizer(s *v1alpha1.Session) bool {
	for _, f := range s.Finalizers {
		if f == v1alpha1.SessionFinalizer {
			return true
		}
	}
	return false
}

// set sets one condition for the generation that is looked at. Its time moves
// only with its status: it answers "since when?", and a reworded message must
// not reset that clock.
func set(s *v1alpha1.Session, condition string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: message, ObservedGeneration: s.Generation,
	})
}
