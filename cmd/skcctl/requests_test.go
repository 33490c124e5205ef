package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api"
	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// decide does what a controller does about a request: it reads the definition
// and judges it once, as status says.
func (c *controllerStandIn) decide(ctx context.Context, key api.Key, status []byte) error {
	judged := false
	for limit := time.After(20 * time.Second); ; {
		if err := c.sync(ctx); err != nil {
			return err
		}
		o, err := c.Get(ctx, key)
		switch {
		case errors.Is(err, effects.ErrNotFound):
			if judged {
				return nil
			}
		case err != nil:
			return err
		case !judged:
			if judged, err = true, c.judge(ctx, o.(*v1alpha1.SessionRequest), status); err != nil {
				return err
			}
			if o, err = c.Get(ctx, key); err != nil || !isRefused(o.(*v1alpha1.SessionRequest)) {
				return err
			}
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-limit:
			return errors.New("nobody asked, or nobody took it back")
		}
	}
}

// judge stores a status, and with it what an entry of the ledger has.
func (c *controllerStandIn) judge(ctx context.Context, rq *v1alpha1.SessionRequest, status []byte) error {
	if !strings.Contains(string(status), "state: ") {
		return c.statusOf(ctx, api.KeyOf(rq), status)
	}
	hash, err := ledger.Hash(&rq.Spec)
	if err != nil {
		return err
	}
	fields := map[string]any{}
	if err := yaml.Unmarshal(status, &fields); err != nil {
		return err
	}
	fields["request"], fields["requestHash"] = rq.Spec, hash
	fields["createdAt"], fields["updatedAt"] = "2026-01-02T03:04:05.000000Z", "2026-01-02T03:04:06.000000Z"
	if status, err = yaml.Marshal(fields); err != nil {
		return err
	}
	return c.statusOf(ctx, api.KeyOf(rq), status)
}

// serve judges every request with what answer makes of it, until ctx ends. It
// returns how often it judged.
func (c *controllerStandIn) serve(ctx context.Context, answer func(*v1alpha1.SessionRequest) string) (judged int, err error) {
	seen := map[types.UID]bool{}
	for {
		if err := c.sync(ctx); err != nil && ctx.Err() == nil {
			return judged, err
		}
		all, err := c.List(ctx, v1alpha1.KindSessionRequest)
		if err != nil && ctx.Err() == nil {
			return judged, err
		}
		for _, o := range all {
			if rq := o.(*v1alpha1.SessionRequest); !seen[rq.UID] && rq.DeletionTimestamp == nil {
				if err := c.judge(ctx, rq, []byte(answer(rq))); err != nil && ctx.Err() == nil {
					return judged, err
				}
				seen[rq.UID] = true
				judged++
			}
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return judged, nil
		}
	}
}

func created(rq *v1alpha1.SessionRequest) string {
	return fmt.Sprintf(`{state: success, session: {namespace: default, name: %s}, sessionId: %[1]s, conditions: [`+
		`{type: Accepted, status: "True", reason: RequestAccepted, message: fine, observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, rq.Spec.IDs.IntendedSessionID)
}

func refusedBecause(reason string) string {
	return fmt.Sprintf(`{reason: %s, conditions: [{type: Accepted, status: "False", reason: NotSo, message: that is why, observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, reason)
}

// many runs the command lines at the same time beside a stand-in for the
// controller, and returns what each printed and its exit code.
func many(t *testing.T, answer func(*v1alpha1.SessionRequest) string, lines ...[]string) (h testHome, said []string, codes map[int]int, judged int) {
	t.Helper()
	h = newTestHome(t)
	h.own(t)
	c, err := openController(t.Context(), h.Home)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var standIn, clients sync.WaitGroup
	standIn.Go(func() {
		if judged, err = c.serve(ctx, answer); err != nil {
			t.Error(err)
			stop()
		}
	})
	codes, said = map[int]int{}, make([]string, len(lines))
	var mu sync.Mutex
	for i, line := range lines {
		clients.Go(func() {
			code, out, errs := h.skcctl(ctx, line...)
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
			said[i] = out + errs
		})
	}
	clients.Wait()
	stop()
	standIn.Wait()
	return h, said, codes, judged
}

// defined are the requests that files define.
func definedRequests(t *testing.T, h testHome) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(h.Managed(), "*", "sessionrequest-*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// One key, many at once: one request, one answer.
func TestParallelRequestsOfOneKey(t *testing.T) {
	for _, n := range []int{2, 20} {
		var lines [][]string
		for range n {
			lines = append(lines, []string{"create", "session", "web", "--path", "/w", "--key", "k1"})
		}
		h, said, codes, judged := many(t, created, lines...)
		if judged != 1 || codes[exitOK] != n || len(definedRequests(t, h)) != 1 {
			t.Errorf("%d at once: judged %d times, exit codes %v, defined %q", n, judged, codes, definedRequests(t, h))
		}
		for _, text := range said {
			if !strings.Contains(text, "session/web created\n") {
				t.Errorf("one said %q", text)
			}
		}
	}
}

// One key for several things at once: one of them is done, all that ask for it
// get its answer, the others a conflict.
func TestParallelConflicts(t *testing.T) {
	var lines [][]string
	for i := range 18 {
		lines = append(lines, []string{"create", "session", "web", "--path", fmt.Sprintf("/w%d", i%3), "--key", "k1"})
	}
	_, said, codes, judged := many(t, created, lines...)
	if judged != 1 || codes[exitOK] != 6 || codes[exitConflict] != 12 {
		t.Errorf("judged %d times, exit codes %v, want 6 of 0 and 12 of 7: %q", judged, codes, said)
	}
}

// What is refused leaves nothing, however many asked.
func TestParallelRefusals(t *testing.T) {
	var lines [][]string
	for range 20 {
		lines = append(lines, []string{"close", "web", "--key", "k1"})
	}
	h, said, codes, _ := many(t, func(*v1alpha1.SessionRequest) string { return refusedBecause("unsupported_platform") }, lines...)
	if codes[exitRefused] != 20 || len(definedRequests(t, h)) != 0 {
		t.Errorf("exit codes %v, defined %q, said %q", codes, definedRequests(t, h), said)
	}
}

// The end of the wait says how to go on, and takes nothing back.
func TestRequestTimeout(t *testing.T) {
	h := newTestHome(t)
	h.own(t)
	fake := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	h.clock = fake
	type result struct {
		code int
		errs string
	}
	ended := make(chan result, 1)
	go func() {
		code, _, errs := h.skcctl(t.Context(), "resume", "web", "--key", "it's", "--timeout=90s")
		ended <- result{code, errs}
	}()
	eventually(t, fake.HasWaiters)
	eventually(t, func() bool { return len(definedRequests(t, h)) == 1 })
	fake.Step(90*time.Second - 1)
	select {
	case r := <-ended:
		t.Fatalf("ended before its time: %+v", r)
	default:
	}
	fake.Step(1)
	r := receive(t, ended)
	if r.code != exitTimeout || !strings.Contains(r.errs, `the request stays`) || !strings.Contains(r.errs, `--key 'it'\''s'`) {
		t.Errorf("%+v", r)
	}
	if len(definedRequests(t, h)) != 1 {
		t.Error("the request is gone")
	}
}

// A definition that another took away is made again, without being told.
func TestRequestIsDefinedAgain(t *testing.T) {
	h := newTestHome(t)
	h.own(t)
	fake := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	h.clock = fake
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		code, _, _ := h.skcctl(ctx, "resume", "web", "--key", "k1")
		ended <- code
	}()
	eventually(t, func() bool { return len(definedRequests(t, h)) == 1 && fake.HasWaiters() })
	if err := os.Remove(definedRequests(t, h)[0]); err != nil {
		t.Fatal(err)
	}
	fake.Step(relook)
	eventually(t, func() bool { return len(definedRequests(t, h)) == 1 })
	cancel()
	if code := receive(t, ended); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
}

// The file of a request is for its user alone, and is what the fronts write.
func TestRequestFile(t *testing.T) {
	h := newTestHome(t)
	h.skcctl(t.Context(), "create", "session", "a b", "--repo", "r", "--branch", "b", "--preset", "", "--key", "k1", "--wait=false")
	path := filepath.Join(h.Managed(), "default", "sessionrequest-"+ledger.Name("cli", "k1")+".yaml")
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", fi.Mode())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := v1alpha1.Decode(path, data)
	if err != nil || len(docs) != 1 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	s := docs[0].Object.(*v1alpha1.SessionRequest).Spec
	if s.Source != "cli" || s.Key != "k1" || *s.Target.Create.Repo != filepath.Join(h.dir, "r") || s.ModelPreset == nil || *s.ModelPreset != "" || s.IDs.IntendedSessionID != "a b" {
		t.Errorf("the file holds %+v", s)
	}
}

func TestOutcomeCodes(t *testing.T) {
	rq := func(state v1alpha1.RequestState, reason string) *v1alpha1.SessionRequest {
		r := &v1alpha1.SessionRequest{ObjectMeta: metav1.ObjectMeta{Name: "rq-1"}}
		r.Status.State, r.Status.Reason = state, reason
		return r
	}
	for _, c := range []struct {
		state  v1alpha1.RequestState
		reason string
		want   int
	}{
		{v1alpha1.RequestSuccess, "", exitOK},
		{v1alpha1.RequestUncertain, "spawn_failed", exitUncertain},
		{v1alpha1.RequestUncertain, "not_found", exitUncertain},
		{v1alpha1.RequestFailure, "spawn_failed", exitFailed},
		{v1alpha1.RequestFailure, "readiness_timeout", exitFailed},
		{v1alpha1.RequestFailure, "discovery_timeout", exitFailed},
		{v1alpha1.RequestFailure, "not_found", exitNotFound},
		{v1alpha1.RequestFailure, "ambiguous_target", exitConflict},
		{v1alpha1.RequestFailure, "close_refused", exitRefused},
		{"", "unauthorized", exitRefused},
		{"", "rate_limited", exitRefused},
		{"", "invalid_target", exitRefused},
		{"", "duplicate_conflict", exitConflict},
	} {
		if got := exitCode((&cli{}).outcome(newTestHome(t).Home, rq(c.state, c.reason))); got != c.want {
			t.Errorf("%q %s: exit code %d, want %d", c.state, c.reason, got, c.want)
		}
	}
}

// Whatever became of a request, describe says what a person can do.
func TestNextSteps(t *testing.T) {
	for _, c := range []struct {
		verb   v1alpha1.RequestVerb
		state  v1alpha1.RequestState
		reason string
		off    bool
		want   string
	}{
		{v1alpha1.VerbCreate, v1alpha1.RequestSuccess, "", false, "skcctl attach web -n team"},
		{v1alpha1.VerbResume, v1alpha1.RequestSuccess, "", false, "skcctl close web -n team"},
		{v1alpha1.VerbClose, v1alpha1.RequestSuccess, "", false, "skcctl resume web -n team"},
		{v1alpha1.VerbDelete, v1alpha1.RequestSuccess, "", false, "skcctl get quarantines -n team"},
		{v1alpha1.VerbClose, v1alpha1.RequestInProgress, "", false, "skcctl wait sessionrequest/rq-1 --for=condition=Complete -n team"},
		{v1alpha1.VerbClose, v1alpha1.RequestUncertain, "close_refused", false, "skcctl describe session web -n team"},
		{v1alpha1.VerbClose, v1alpha1.RequestFailure, "close_refused", false, "another key"},
		{v1alpha1.VerbResume, v1alpha1.RequestFailure, "ambiguous_target", false, "whole id"},
		{v1alpha1.VerbResume, v1alpha1.RequestFailure, "not_found", false, "skcctl get sessions -n team"},
		{v1alpha1.VerbCreate, v1alpha1.RequestFailure, "spawn_failed", false, "skcctl events -n team"},
		{v1alpha1.VerbCreate, "", "unauthorized", false, "lifecycle.pairedChat"},
		{v1alpha1.VerbCreate, "", "rate_limited", false, "lifecycle.createLimit"},
		{v1alpha1.VerbCreate, "", "duplicate_conflict", false, "another key"},
		{v1alpha1.VerbCreate, "", "invalid_target", false, "its key is free"},
		{v1alpha1.VerbCreate, "", "", true, "lifecycle.secretFile"},
	} {
		rq := &v1alpha1.SessionRequest{ObjectMeta: metav1.ObjectMeta{Name: "rq-1", Namespace: "team"}}
		rq.Spec.Verb = c.verb
		rq.Status.State, rq.Status.Reason = c.state, c.reason
		if c.state != "" {
			rq.Status.Session = &v1alpha1.SessionReference{Name: "web"}
		} else {
			accepted := metav1.Condition{Type: v1alpha1.Accepted, Status: metav1.ConditionFalse}
			if c.off {
				accepted.Reason = v1alpha1.ReasonLifecycleOff
			}
			rq.Status.Conditions = []metav1.Condition{accepted}
		}
		if got := strings.Join(nextSteps(rq, &rq.Spec), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%s %s %s: %q, want %q in it", c.verb, c.state, c.reason, got, c.want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{"": "''", "a-b_1.2:/@%+=,": "a-b_1.2:/@%+=,", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "é": "'é'"} {
		if got := shellWord(text); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", text, got, want)
		}
	}
}
