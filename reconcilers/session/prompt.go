package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/effects"
)

// Prompts gives programs their startup prompts, each once in the life of a UID:
// a receipt is on the disk before anything of the text can reach a program.
type Prompts interface {
	// Read is the text that the file at path holds. An error is an
	// *effects.PromptTextError when the text is at fault, and holds nothing of it.
	Read(path string) (string, error)
	// Status is what is known of the prompt of this UID. What a look at the world
	// can settle it settles.
	Status(ctx context.Context, uid string) (effects.PromptStatus, error)
	// Publish lays the prompt where the program takes it, before each start; "" when
	// there is nothing to take any more. Only what was not begun needs the text.
	Publish(ctx context.Context, uid, text string) (path string, err error)
	// Paste does the next step of pasting into the pane's program; call it after
	// Again until the state is not Intended. Only the first step needs the text. An
	// *effects.PromptHeldError: nothing was done, try again.
	Paste(ctx context.Context, pane effects.TmuxPane, text string) (effects.PromptStatus, error)
	// Intend is true when the start may have the prompt as an argument: the receipt
	// says so now, and nothing had it before.
	Intend(ctx context.Context, id effects.LaunchID, text string) (bool, error)
	// Settle says how what is Intended came out.
	Settle(ctx context.Context, uid string, state effects.PromptState, message string) (effects.PromptStatus, error)
	// Withdraw forgets what is Intended as an argument of a start that never ran.
	Withdraw(ctx context.Context, uid string) error
	// Forget removes all that is kept of this UID; nothing there is a success.
	Forget(ctx context.Context, uid string) error
}

// maxArgument is the longest argument that every kernel takes.
const maxArgument = 131071

// ensurePrompt delivers a prompt that is pasted, sees what became of one that a
// start was given, and reports.
func (r *Reconciler) ensurePrompt(ctx context.Context, s *v1alpha1.Session) (controller.Result, error) {
	var none controller.Result
	if s.Spec.StartupPrompt == nil {
		set(s, v1alpha1.PromptDelivered, metav1.ConditionTrue, v1alpha1.ReasonNotAsked, "there is no startup prompt")
		return none, nil
	}
	if c := promptCondition(s); c != nil && c.Reason == v1alpha1.ReasonPromptDelivered {
		set(s, c.Type, c.Status, c.Reason, c.Message) // nothing leads on from there
		return none, nil
	}
	uid := string(s.UID)
	st, err := r.Prompts.Status(ctx, uid)
	if err != nil {
		return unseen(s, controller.Result{RequeueAfter: lookAgain}, err)
	}
	switch {
	case st.State == effects.PromptNone && s.Spec.PromptDeliveryOrDefault() == v1alpha1.PromptPaste:
		return r.ensurePasted(ctx, s)
	case st.State == effects.PromptNone:
		if _, ok := r.promptText(s); ok {
			pending(s, "waits for the next start of the program")
		}
		return none, nil // that start reads it anew
	case st.State == effects.PromptIntended && st.Delivery == effects.PromptByPaste:
		// To its end, whatever the program is now: half of it is typed.
		pane, err := r.Mux.Get(ctx, uid)
		if errors.Is(err, effects.ErrNotFound) {
			pane, err = effects.TmuxPane{Launch: effects.LaunchID{UID: uid}}, nil
		}
		if err != nil {
			return unseen(s, controller.Result{RequeueAfter: lookAgain}, err)
		}
		return r.paste(ctx, s, pane, "")
	case st.State == effects.PromptIntended && st.Delivery == effects.PromptByArgument:
		if st, err = r.settleArgument(ctx, s, st, false); err != nil {
			return none, err
		}
		if st.State == effects.PromptNone {
			pending(s, "waits for the next start of the program")
			return none, nil
		}
	}
	return reportPrompt(s, st), nil
}

// ensurePasted begins to paste, once the program is ready and takes a prompt.
func (r *Reconciler) ensurePasted(ctx context.Context, s *v1alpha1.Session) (controller.Result, error) {
	var none controller.Result
	switch {
	case s.Spec.Suspend:
		pending(s, "spec.suspend keeps hands off: nothing is typed")
		return none, nil
	case s.Status.Tmux == nil, !isTrue(s, v1alpha1.SessionRunning):
		pending(s, "waits for the program to run")
		return none, nil
	case !isTrue(s, v1alpha1.ProbeSucceeded):
		pending(s, "waits for the program to be ready")
		return none, nil // the probe wakes it
	}
	again := controller.Result{RequeueAfter: r.typingAgain(s)}
	pane, err := r.Mux.Get(ctx, string(s.UID))
	if err == nil && (pane.Dead || pane.Launch.Attempt != s.Status.Tmux.Attempt) {
		err = effects.ErrNotFound
	}
	if err != nil {
		return unseen(s, again, err)
	}
	takes, err := r.takesPrompt(ctx, s)
	if err != nil {
		return unseen(s, again, err)
	}
	if !takes {
		pending(s, "waits for the screen to show that the agent takes a prompt")
		return again, nil
	}
	text, ok := r.promptText(s)
	if !ok { // nothing tells when the file changes
		return controller.Result{RequeueAfter: lookAgain}, nil
	}
	return r.paste(ctx, s, pane, text)
}

// paste does one step, and reports.
func (r *Reconciler) paste(ctx context.Context, s *v1alpha1.Session, pane effects.TmuxPane, text string) (controller.Result, error) {
	st, err := r.Prompts.Paste(ctx, pane, text)
	var held *effects.PromptHeldError
	var refused *effects.PromptTextError
	switch {
	case errors.As(err, &held):
		set(s, v1alpha1.PromptDelivered, metav1.ConditionFalse, v1alpha1.ReasonPromptHeld, held.Why)
		return controller.Result{RequeueAfter: r.typingAgain(s)}, nil
	case errors.As(err, &refused):
		set(s, v1alpha1.PromptDelivered, metav1.ConditionFalse, v1alpha1.ReasonPromptRefused, refused.Error())
		return controller.Result{}, nil
	case err != nil:
		return unseen(s, controller.Result{RequeueAfter: lookAgain}, err)
	}
	return reportPrompt(s, st), nil
}

// unseen reports that the terminal could not be looked at. What is no matter of
// tmux is an error.
func unseen(s *v1alpha1.Session, again controller.Result, err error) (controller.Result, error) {
	switch {
	case errors.Is(err, effects.ErrNotFound):
		pending(s, "waits for the program to run")
	case errors.Is(err, effects.ErrUnreachable), errors.Is(err, effects.ErrUnavailable):
		pending(s, "the tmux server does not answer")
	default:
		return controller.Result{}, fmt.Errorf("deliver the startup prompt of %s: %w", api.KeyOf(s), err)
	}
	return again, nil
}

// typingAgain is how soon it is looked again whether the program takes a prompt:
// nothing tells. It is soon while the program is young, and calmer with one
// that does not for hours.
func (r *Reconciler) typingAgain(s *v1alpha1.Session) time.Duration {
	var age time.Duration
	if t := s.Status.Tmux; t != nil && t.StartedAt != nil {
		age = r.Clock.Since(t.StartedAt.Time)
	}
	return min(max(age/8, time.Second/2), 15*time.Second)
}

// takesPrompt tells whether the screen shows that the agent takes a prompt now.
// Of what has no pattern for that, nothing more than its readiness is known.
func (r *Reconciler) takesPrompt(ctx context.Context, s *v1alpha1.Session) (bool, error) {
	if s.Spec.Agent == nil {
		return true, nil
	}
	p, err := r.profile(ctx, s)
	if err != nil || p == nil || p.Screen == nil || p.Screen.Prompt == nil {
		return err == nil, err
	}
	pattern, err := regexp.Compile(p.Screen.Prompt.Pattern)
	if err != nil {
		return false, fmt.Errorf("pattern of profile %s: %w", s.Spec.Agent.Profile, err)
	}
	lines, err := r.screen(s)(ctx)
	return slices.ContainsFunc(lines, pattern.MatchString), err
}

// promptText reads the text. Without one the condition says why.
func (r *Reconciler) promptText(s *v1alpha1.Session) (text string, ok bool) {
	want := s.Spec.StartupPrompt
	text = want.Text
	if want.File != "" {
		var err error
		text, err = r.Prompts.Read(r.expand(want.File))
		var refused *effects.PromptTextError
		if errors.As(err, &refused) {
			set(s, v1alpha1.PromptDelivered, metav1.ConditionFalse, v1alpha1.ReasonPromptRefused, refused.Error())
			return "", false
		}
		if err != nil {
			set(s, v1alpha1.PromptDelivered, metav1.ConditionFalse, v1alpha1.ReasonPromptUnreadable, clip(err.Error(), maxMessage))
			return "", false
		}
	}
	if s.Spec.PromptDeliveryOrDefault() == v1alpha1.PromptArgument && len(text) > maxArgument {
		set(s, v1alpha1.PromptDelivered, metav1.ConditionFalse, v1alpha1.ReasonPromptRefused,
			fmt.Sprintf("the startup prompt has %d bytes, an argument at most %d; use another delivery", len(text), maxArgument))
		return "", false
	}
	return text, true
}

// offerPrompt is what start id has more, in its arguments and its environment,
// for the sake of the prompt. Nothing when it cannot be read: the program starts
// all the same, and the condition says why.
func (r *Reconciler) offerPrompt(ctx context.Context, s *v1alpha1.Session, id effects.LaunchID) (args, env []string, err error) {
	if s.Spec.StartupPrompt == nil {
		return nil, nil, nil
	}
	st, err := r.Prompts.Status(ctx, id.UID)
	if err == nil && st.State == effects.PromptIntended && st.Delivery == effects.PromptByArgument {
		st, err = r.settleArgument(ctx, s, st, true)
	}
	if err != nil {
		return nil, nil, err
	}
	var text string
	delivery := st.Delivery // as it was begun it is ended
	switch st.State {
	case effects.PromptDelivered, effects.PromptUnknown:
		return nil, nil, nil
	case effects.PromptNone:
		delivery = string(s.Spec.PromptDeliveryOrDefault())
		if delivery == effects.PromptByPaste {
			return nil, nil, nil
		}
		var ok bool
		if text, ok = r.promptText(s); !ok {
			return nil, nil, nil
		}
	}
	switch delivery {
	case effects.PromptByFile:
		path, err := r.Prompts.Publish(ctx, id.UID, text)
		if err == nil && path != "" {
			env = append(env, effects.PromptRefVariable+"="+path)
		}
		return nil, env, err
	case effects.PromptByArgument:
		if ok, err := r.Prompts.Intend(ctx, id, text); err != nil || !ok {
			return nil, nil, err
		}
		args = append(args, text)
	}
	return args, nil, nil
}

// settleArgument sees what became of a prompt that a start was given as an
// argument. At a next start all is known of the ones before: one that was not
// seen may have run and ended.
func (r *Reconciler) settleArgument(ctx context.Context, s *v1alpha1.Session, st effects.PromptStatus, next bool) (effects.PromptStatus, error) {
	uid, t, last := string(s.UID), s.Status.Tmux, s.Status.LastTermination
	settle := func(state effects.PromptState, message string) (effects.PromptStatus, error) {
		return r.Prompts.Settle(ctx, uid, state, message)
	}
	switch {
	case last != nil && last.Attempt == st.Attempt && slices.Contains(neverRan, last.Reason):
		return effects.PromptStatus{}, r.Prompts.Withdraw(ctx, uid)
	case last != nil && last.Attempt == st.Attempt && last.ExitCode != nil && !slices.Contains(launcherExits, *last.ExitCode):
		return settle(effects.PromptDelivered, fmt.Sprintf("start %d had it as its last argument", st.Attempt))
	case next || last != nil && last.Attempt >= st.Attempt || t != nil && t.Attempt > st.Attempt:
		return settle(effects.PromptUnknown, fmt.Sprintf("start %d may have had it as its last argument, and was not seen to run", st.Attempt))
	}
	pane, err := r.Mux.Get(ctx, uid)
	if err != nil || pane.Dead || pane.Launch.Attempt != st.Attempt {
		return st, nil // another pass sees it, or its end
	}
	if !r.Launcher.Started(ctx, pane.Launch, pane.Process) {
		st.Again = time.Second
		return st, nil
	}
	return settle(effects.PromptDelivered, fmt.Sprintf("start %d had it as its last argument", st.Attempt))
}

// launcherExits are the exit codes of a launcher that did not become the program.
var launcherExits = []int32{125, 126, 127}

// withdrawPrompt takes back what was intended for a start that never ran.
func (r *Reconciler) withdrawPrompt(ctx context.Context, s *v1alpha1.Session, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if err := r.Prompts.Withdraw(ctx, string(s.UID)); err != nil {
		return fmt.Errorf("take back the startup prompt of %s: %w", api.KeyOf(s), err)
	}
	return nil
}

// keepPrompt takes the prompt out of the definition that a restore of q brings
// back, unless nothing of it can have been delivered: what comes back goes on.
func (r *Reconciler) keepPrompt(ctx context.Context, s *v1alpha1.Session, q *v1alpha1.Quarantine) error {
	st, err := r.Prompts.Status(ctx, string(s.UID))
	if err != nil {
		return fmt.Errorf("look at the startup prompt of %s: %w", api.KeyOf(s), err)
	}
	if st.State == effects.PromptNone || st.State == effects.PromptIntended && st.Delivery == effects.PromptByFile {
		return nil
	}
	return editDefinition(q, func(spec map[string]any) { delete(spec, "startupPrompt") })
}

// editDefinition edits the spec of the definition that a restore of q brings
// back, if there is one.
func editDefinition(q *v1alpha1.Quarantine, edit func(spec map[string]any)) error {
	if q.Spec.Session == nil || q.Spec.Session.Definition == "" {
		return nil
	}
	var doc map[string]any
	d := json.NewDecoder(strings.NewReader(q.Spec.Session.Definition))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return fmt.Errorf("definition of %s/%s: %w", q.Spec.Session.Namespace, q.Spec.Session.Name, err)
	}
	spec, ok := doc["spec"].(map[string]any)
	if !ok {
		return nil
	}
	edit(spec)
	definition, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("definition of %s/%s: %w", q.Spec.Session.Namespace, q.Spec.Session.Name, err)
	}
	q.Spec.Session.Definition = string(definition)
	return nil
}

// reportPrompt says how far the prompt came.
func reportPrompt(s *v1alpha1.Session, st effects.PromptStatus) controller.Result {
	switch st.State {
	case effects.PromptDelivered:
		set(s, v1alpha1.PromptDelivered, metav1.ConditionTrue, v1alpha1.ReasonPromptDelivered, st.Message)
	case effects.PromptUnknown:
		set(s, v1alpha1.PromptDelivered, metav1.ConditionUnknown, v1alpha1.ReasonPromptUnknown, st.Message)
	default:
		pending(s, st.Message)
	}
	return controller.Result{RequeueAfter: st.Again}
}

func pending(s *v1alpha1.Session, message string) {
	set(s, v1alpha1.PromptDelivered, metav1.ConditionUnknown, v1alpha1.ReasonPromptPending, message)
}

func promptCondition(s *v1alpha1.Session) *metav1.Condition {
	return meta.FindStatusCondition(s.Status.Conditions, v1alpha1.PromptDelivered)
}

// promptShown stands for a line of the screen that shows some of the prompt.
const promptShown = "[startup prompt]"

// withoutPrompt is lines without those that show some of the startup prompt: what
// is on the screen of a program is in its certificate, and a prompt belongs in
// the program only. Of a prompt that cannot be read no line is known not to.
func (r *Reconciler) withoutPrompt(s *v1alpha1.Session, lines []string) []string {
	want := s.Spec.StartupPrompt
	if want == nil {
		return lines
	}
	text := want.Text
	if want.File != "" {
		var err error
		if text, err = r.Prompts.Read(r.expand(want.File)); err != nil {
			return nil
		}
	}
	shown := showing(lines, text)
	out := slices.Clone(lines)
	for i := range out {
		if shown[i] {
			out[i] = promptShown
		}
	}
	return out
}

// told is how many characters in a row of a prompt tell that they are of it, and
// toldWhole how many when nothing else is on the line.
const told, toldWhole = 12, 6

// showing tells which of the lines show as many characters in a row of the text,
// or all of it when it is shorter. Programs wrap and indent what they show, so
// spaces count for nothing.
func showing(lines []string, text string) map[int]bool {
	squeezed := []rune(strings.Join(strings.Fields(text), ""))
	n := min(told, len(squeezed))
	if n == 0 {
		return nil
	}
	at, shown := map[string][]int{}, map[int]bool{} // by what stands there: in which lines
	for i, l := range lines {
		line := []rune(strings.Join(strings.Fields(l), ""))
		shown[i] = len(line) >= toldWhole && strings.Contains(string(squeezed), string(line))
		for j := 0; j+n <= len(line); j++ {
			part := string(line[j : j+n])
			if in := at[part]; len(in) == 0 || in[len(in)-1] != i {
				at[part] = append(in, i)
			}
		}
	}
	for j := 0; j+n <= len(squeezed); j++ {
		for _, i := range at[string(squeezed[j:j+n])] {
			shown[i] = true
		}
	}
	return shown
}
