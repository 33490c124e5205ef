package main

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
)

func (t *teller) request(rq *v1alpha1.SessionRequest) {
	s, st := &rq.Spec, &rq.Status
	if st.Request != nil {
		s = st.Request // as it was accepted
	}
	t.title(0, "Request")
	t.line(1, "Source", s.Source)
	t.line(1, "Key", s.Key)
	t.line(1, "Verb", string(s.Verb))
	if q := s.Requester; q != nil {
		t.line(1, "Requester", fmt.Sprintf("chat %s, update %d, request %s", q.ChatID, q.UpdateID, cmp.Or(q.RequestID, "<none>")))
	} else {
		t.line(1, "Requester", "who can write the file")
	}
	if c := s.Target.Create; c != nil {
		t.line(1, "Target", c.Kind)
		t.optional(2, "Path", c.Path)
		t.optional(2, "Repository", c.Repo)
		t.optional(2, "Branch", c.Branch)
	}
	if x := s.Target.Session; x != nil {
		t.line(1, "Target", "session "+x.ID)
		t.optional(2, "Path", x.Path)
		t.optional(2, "Tmux Session", x.TmuxSession)
		t.optional(2, "State File", x.SessionStateFile)
	}
	t.optional(1, "Model Preset", s.ModelPreset)
	if s.Force != nil {
		t.line(1, "Force", fmt.Sprint(*s.Force))
	}
	if ids := s.IDs; ids != nil {
		t.line(1, "Intended Session Id", ids.IntendedSessionID)
		t.line(1, "Lifecycle Request Id", ids.LifecycleRequestID)
	}
	if at := s.ExpiresAt; at != nil {
		t.line(1, "Expires", fmt.Sprintf("%s (%s)", at.Format(time.RFC3339), ahead(at.Time, t.now)))
	}
	t.title(0, "Outcome")
	t.line(1, "State", cmp.Or(string(st.State), "<none>"))
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.Ready); c != nil {
		t.line(1, "Message", c.Message)
	}
	for _, x := range []struct{ title, text string }{
		{"Reason", st.Reason}, {"Repeats", st.DuplicateOf}, {"Step", string(st.Step)}, {"Session", sessionText(st.Session)}, {"Session Id", st.SessionID},
		{"Tmux Session", st.TmuxSession}, {"State File", st.SessionStateFile}, {"Resume Mode", st.ResumeMode},
	} {
		if x.text != "" {
			t.line(1, x.title, x.text)
		}
	}
	if st.ProcessGone != nil {
		t.line(1, "Process Gone", fmt.Sprint(*st.ProcessGone))
	}
	for _, x := range []struct {
		title string
		at    *metav1.MicroTime
	}{{"Arrived", st.ArrivedAt}, {"Accepted", st.CreatedAt}, {"Last Change", st.UpdatedAt}, {"Counted", st.CountedAt}} {
		if x.at != nil {
			t.line(1, x.title, t.since(x.at.Time))
		}
	}
	if st.RequestHash != "" {
		t.line(1, "Request Hash", st.RequestHash)
	}
	if len(st.Candidates) > 0 {
		t.title(0, "Candidates")
		t.row(1, "ID", "PATH")
		for _, x := range st.Candidates {
			t.row(1, x.SessionID, cmp.Or(x.Path, "<none>"))
		}
	}
	t.lines(0, "What To Do", nextSteps(rq, s))
}

func (t *teller) optional(depth int, title string, text *string) {
	if text != nil {
		t.line(depth, title, *text)
	}
}

func sessionText(s *v1alpha1.SessionReference) string {
	if s == nil {
		return ""
	}
	text := s.Name
	if s.UID != "" {
		text += " (uid " + s.UID + ")"
	}
	if s.Quarantine != "" {
		text += ", from quarantine/" + s.Quarantine
	}
	return text
}

// nextSteps says what a person can do about a request, in commands where there
// are some.
func nextSteps(rq *v1alpha1.SessionRequest, s *v1alpha1.SessionRequestSpec) []string {
	st := &rq.Status
	in := ""
	if rq.Namespace != v1alpha1.DefaultNamespace {
		in = " -n " + rq.Namespace
	}
	ctl := func(words string) string { return "skcctl " + words + in }
	name := ""
	if st.Session != nil {
		name = st.Session.Name
	}
	anew := "Ask with another key: this one keeps its answer."
	switch {
	case st.State == v1alpha1.RequestSuccess && s.Verb == v1alpha1.VerbClose:
		return []string{"Start it again: " + ctl("resume "+name)}
	case st.State == v1alpha1.RequestSuccess && s.Verb == v1alpha1.VerbDelete:
		return []string{"See what was kept: " + ctl("get quarantines")}
	case st.State == v1alpha1.RequestSuccess:
		return []string{"Look at it: " + ctl("attach "+name), "End it: " + ctl("close "+name)}
	case st.State == v1alpha1.RequestInProgress:
		return []string{"Wait: " + ctl("wait sessionrequest/"+rq.Name+" --for=condition=Complete"), "A repeat of the request waits too, and does nothing twice."}
	case st.State == v1alpha1.RequestUncertain:
		look := "Look what there is: " + ctl("get sessions")
		if name != "" {
			look = "Look at the session: " + ctl("describe session "+name)
		}
		return []string{look, "It is never tried again. " + anew}
	case st.State == v1alpha1.RequestFailure:
		switch lifecycle.Reason(st.Reason) {
		case lifecycle.ReasonAmbiguousTarget:
			return []string{"Give the whole id of one of them. " + anew}
		case lifecycle.ReasonNotFound:
			return []string{"See what there is: " + ctl("get sessions"), anew}
		case lifecycle.ReasonSpawnFailed, lifecycle.ReasonReadinessTimeout:
			return []string{"Mend what the message names; events tell more: " + ctl("events")}
		}
		return []string{anew}
	}
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.Accepted)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	if c.Reason == v1alpha1.ReasonLifecycleOff {
		return []string{"Name a file with a secret, mode 0600, as lifecycle.secretFile in skcd.yaml, and start skcd again. Then it is served."}
	}
	switch lifecycle.Reason(st.Reason) {
	case lifecycle.ReasonUnauthorized:
		return []string{"Name the chat as lifecycle.pairedChat in skcd.yaml, if it may ask."}
	case lifecycle.ReasonRateLimited:
		return []string{"Ask later: lifecycle.createLimit and createWindow in skcd.yaml say how often."}
	case lifecycle.ReasonDuplicateConflict:
		return []string{"Take another key: the one that has this asked for something else."}
	}
	return []string{"Mend the request; nothing of it was done, and its key is free."}
}
