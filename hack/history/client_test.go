//go:build e2e

package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/hack/e2e/world"
)

const (
	chat = "42"
	// patience is more than any request may take.
	patience = 150 * time.Second
	look     = 10 * time.Millisecond
)

// now is the clock of histories.
func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return t.Nano()
}

// client is one program that sends requests, over one connection at a time.
type client struct {
	home *home
	n    int
	sent int
	ws   *websocket.Conn
}

func (c *client) close() {
	if c.ws != nil {
		_ = c.ws.CloseNow()
		c.ws = nil
	}
}

// connect waits until there is a skcd that takes connections.
func (c *client) connect(ctx context.Context) error {
	for c.ws == nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		status, body := c.home.Get("/v1/control-token")
		var found struct{ URL, Token string }
		if status == 200 && json.Unmarshal([]byte(body), &found) == nil {
			dial, cancel := context.WithTimeout(ctx, 5*time.Second)
			c.ws, _, _ = websocket.Dial(dial, found.URL+"/?token="+found.Token, nil) //nolint:bodyclose // it has none
			cancel()
			c.home.token.Store(&found.Token)
			if c.ws != nil {
				return nil
			}
		}
		time.Sleep(look)
	}
	return nil
}

// send sends one request and waits for its answer, or goes away.
func (c *client) send(h *history, m move, quiet bool) delivery {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d := delivery{Client: c.n, Key: m.key, Body: m.body, Quiet: quiet, Lifecycle: m.lifecycle}
	k := h.Keys[m.key]
	if k.File {
		return c.drop(ctx, h, d)
	}
	if c.connect(ctx) != nil {
		d.Call, d.Answer.Kind = now(), late
		return d
	}
	c.sent++
	r := c.home.request(k, m)
	r.RequestID = fmt.Sprintf("r-%d-%d-%d", h.N, c.n, c.sent)
	if quiet {
		r.RequestID += "q"
	}
	frame, err := r.Frame(*c.home.token.Load())
	world.Must(c.home, err)
	if m.drop >= 0 && !quiet {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, m.drop)
		defer stop()
	}
	d.Call = now()
	var data []byte
	if err = c.ws.Write(ctx, websocket.MessageText, frame); err == nil {
		_, data, err = c.ws.Read(ctx)
	}
	if err != nil {
		c.close() // the answer is lost
		if ctx.Err() != nil && (m.drop < 0 || quiet) {
			d.Answer.Kind = late
		}
		return d
	}
	d.Return = now()
	if d.Answer, err = parse(data, r.RequestID, r.LifecycleRequestID); err != nil {
		d.Answer = answer{Kind: unknown, Message: err.Error()}
	}
	if b := k.Bodies[m.body]; b.Verb == "close" && d.Answer.Kind == ok {
		d.Answer.Survivors = c.home.log.alive(b.ID)
	}
	return d
}

// request is a move as a frame says it.
func (hm *home) request(k key, m move) lifecycle.Request {
	b := k.Bodies[m.body]
	r := lifecycle.Request{UpdateID: k.Update, ChatID: chat}
	switch b.Verb {
	case "create":
		r.Target = lifecycle.ExistingPath{Path: filepath.Join(hm.Work, b.Dir)}
		r.LifecycleRequestID, r.IntendedSessionID = m.lifecycle, b.ID
	case "close":
		yes := true
		r.Target, r.Force = lifecycle.CloseTarget{SessionID: b.ID}, &yes
	default:
		r.Target = lifecycle.ResumeTarget{SessionIDOrPrefix: b.ID}
	}
	return r
}

// parse reads an answer.
func parse(data []byte, requestID, lifecycleID string) (a answer, err error) {
	var f struct {
		Type, RequestID, Status, LifecycleRequestID, SessionID, Mode, Reason, Message string
		ProcessGone                                                                   bool
		Candidates                                                                    []struct{ SessionID string }
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return a, err
	}
	if f.RequestID != requestID {
		return a, fmt.Errorf("the answer to %s went to %s", f.RequestID, requestID)
	}
	a = answer{Reason: f.Reason, Message: f.Message, Session: f.SessionID, Mode: f.Mode}
	for _, c := range f.Candidates {
		a.Candidates = append(a.Candidates, c.SessionID)
	}
	switch {
	case f.Status == "ok":
		var rest map[string]any
		if err := json.Unmarshal(data, &rest); err != nil {
			return a, err
		}
		delete(rest, "requestId")
		if f.Type == "session_create_response" {
			if f.LifecycleRequestID != lifecycleID {
				return a, errors.New("the answer has the lifecycle request id of another delivery")
			}
			delete(rest, "lifecycleRequestId")
		}
		if f.Type == "session_close_response" && !f.ProcessGone {
			return a, errors.New("a close without processGone")
		}
		text, err := json.Marshal(rest)
		a.Kind, a.Text = ok, string(text)
		return a, err
	case f.Status != "error" || f.Type != "session_lifecycle_error":
		return a, fmt.Errorf("unknown answer %s", data)
	}
	switch lifecycle.Reason(f.Reason) {
	case lifecycle.ReasonTerminalUncertain:
		a.Kind = map[string]string{lifecycle.MessageInProgress: pending, lifecycle.MessageNotProcessed: uncertain}[f.Message]
	case lifecycle.ReasonDuplicateConflict:
		a.Kind = map[bool]string{true: conflict}[f.Message == lifecycle.MessageConflict]
	case lifecycle.ReasonRateLimited:
		a.Kind = refused
	case lifecycle.ReasonSpawnFailed, lifecycle.ReasonNotFound, lifecycle.ReasonAmbiguousTarget, lifecycle.ReasonCloseRefused, lifecycle.ReasonDiscoveryTimeout:
		a.Kind = failure
	}
	if a.Kind == "" {
		return a, fmt.Errorf("unexpected answer %s", data)
	}
	return a, nil
}

// source is who brings requests by files.
const source = "files"

// drop writes a request into the spool, if it is not there, and waits for its
// outcome, whichever skcd sees to it.
func (c *client) drop(ctx context.Context, h *history, d delivery) delivery {
	b := h.Keys[d.Key].Bodies[d.Body]
	if !d.Quiet {
		c.sent++
		d.Object = fmt.Sprintf("h%d-k%d-b%d-c%d-%d", h.N, d.Key, d.Body, c.n, c.sent)
	}
	o := v1alpha1.SessionRequest{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindSessionRequest}}
	o.Name = d.Object
	o.Spec.Source, o.Spec.Key = source, fmt.Sprint(h.Keys[d.Key].Update)
	if d.Quiet {
		o.Name = fmt.Sprintf("h%d-k%d-b%d-quiet-%d", h.N, d.Key, d.Body, c.n)
		d.Object = o.Name
	}
	switch b.Verb {
	case "create":
		path := filepath.Join(c.home.Work, b.Dir)
		o.Spec.Verb, o.Spec.Target.Create = v1alpha1.VerbCreate, &v1alpha1.CreateTarget{Kind: string(lifecycle.KindExistingPath), Path: &path}
		o.Spec.IDs = &v1alpha1.RequestIDs{LifecycleRequestID: d.Lifecycle, IntendedSessionID: b.ID}
	case "close", "delete":
		o.Spec.Verb, o.Spec.Target.Session = v1alpha1.VerbDelete, &v1alpha1.SessionSelector{ID: b.ID}
		if b.Verb == "close" {
			yes := true
			o.Spec.Verb, o.Spec.Force = v1alpha1.VerbClose, &yes
		}
	default:
		o.Spec.Verb, o.Spec.Target.Session = v1alpha1.VerbResume, &v1alpha1.SessionSelector{ID: b.ID}
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": o.APIVersion, "kind": o.Kind, "metadata": map[string]any{"name": o.Name}, "spec": o.Spec})
	world.Must(c.home, err)
	d.Call = now()
	c.home.Write(filepath.Join(c.home.Spool, o.Name+".yaml"), string(text))
	for ctx.Err() == nil {
		if a := c.home.status(o.Name); a.Kind != lost {
			d.Answer, d.Return = a, now()
			if b.Verb == "close" && a.Kind == ok {
				d.Answer.Survivors = c.home.log.alive(b.ID)
			}
			return d
		}
		time.Sleep(2 * look)
	}
	d.Answer.Kind = late
	return d
}

// status is the answer that a request from a file shows.
func (hm *home) status(name string) (a answer) {
	data, err := os.ReadFile(filepath.Join(hm.State, "objects", "sessionrequest", v1alpha1.DefaultNamespace, name+".yaml"))
	if err != nil {
		return a
	}
	var o v1alpha1.SessionRequest
	world.Must(hm, yaml.Unmarshal(data, &o))
	st := o.Status
	a = answer{Reason: st.Reason, Mode: st.ResumeMode}
	for _, c := range st.Candidates {
		a.Candidates = append(a.Candidates, c.SessionID)
	}
	slices.Sort(a.Candidates)
	switch st.State {
	case v1alpha1.RequestSuccess:
		a.Kind, a.Session = ok, st.SessionID
	case v1alpha1.RequestFailure:
		a.Kind = failure
		if c := meta.FindStatusCondition(st.Conditions, v1alpha1.Complete); c != nil {
			a.Message = c.Message
		}
	case v1alpha1.RequestUncertain:
		a.Kind, a.Reason = uncertain, string(lifecycle.ReasonTerminalUncertain)
	case v1alpha1.RequestInProgress:
		return answer{}
	default:
		c := meta.FindStatusCondition(st.Conditions, v1alpha1.Accepted)
		if c == nil || c.Status != metav1.ConditionFalse {
			return answer{}
		}
		a.Kind = refused
		if st.Reason == string(lifecycle.ReasonDuplicateConflict) {
			a.Kind = conflict
		}
	}
	return a
}
