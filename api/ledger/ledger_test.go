package ledger_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/ledger"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ptr[T any](v T) *T { return &v }

// A frame is the same request after it was an object, and an object that a file
// can hold.
func TestObject(t *testing.T) {
	prompt := ptr("")
	for _, r := range []lifecycle.Request{
		{RequestID: "r", ChatID: "42", UpdateID: -7, LifecycleRequestID: "l", IntendedSessionID: "s", Target: lifecycle.ExistingPath{Path: "/ü<&>"}, ModelPreset: ptr("")},
		{RequestID: "r", ChatID: "42", UpdateID: 1 << 52, LifecycleRequestID: "l", IntendedSessionID: "s", Target: lifecycle.PlainDir{Path: "~/x"}, StartupPromptRef: prompt},
		{ChatID: "-100:5", UpdateID: 0, LifecycleRequestID: "", IntendedSessionID: "", Target: lifecycle.Worktree{Repo: "/r", Branch: "a/b"}, ModelPreset: ptr("opus")},
		{RequestID: "r", ChatID: "42", UpdateID: 2, Target: lifecycle.CloseTarget{SessionID: "s"}},
		{RequestID: "r", ChatID: "42", UpdateID: 2, Target: lifecycle.CloseTarget{SessionID: "s", TmuxSession: ptr(""), SessionStateFile: ptr("/f")}, Force: ptr(false)},
		{RequestID: "r", ChatID: "42", UpdateID: 3, Target: lifecycle.ResumeTarget{SessionIDOrPrefix: "s"}, StartupPromptRef: prompt},
		{RequestID: "r", ChatID: "42", UpdateID: 3, Target: lifecycle.ResumeTarget{SessionIDOrPrefix: "", Path: ptr("")}},
	} {
		o, err := ledger.Object("control", r)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		all, err := v1alpha1.Decode("rq.yaml", data)
		if err != nil || len(all) != 1 {
			t.Fatalf("a file of it: %v\n%s", err, data)
		}
		back := all[0].Object.(*v1alpha1.SessionRequest)
		if diff := cmp.Diff(r, ledger.Request(&back.Spec)); diff != "" {
			t.Errorf("it comes back as another (-was +is):\n%s", diff)
		}
		want, err := lifecycle.RequestHash(r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ledger.Hash(&back.Spec); err != nil || got != want {
			t.Errorf("hash %s, %v; want %s", got, err, want)
		}
		if back.Name != ledger.Name("control", lifecycle.LedgerKey(r.ChatID, r.UpdateID)) || len(back.Name) != 43 {
			t.Errorf("the name is %q", back.Name)
		}
	}
	if _, err := ledger.Object("control", lifecycle.Request{}); !errors.Is(err, lifecycle.ErrInvalidTarget) {
		t.Errorf("without a target: %v", err)
	}
}

// Verbs that share a target do not share a hash.
func TestVerbs(t *testing.T) {
	seen := map[string]v1alpha1.RequestVerb{}
	for _, v := range []v1alpha1.RequestVerb{v1alpha1.VerbClose, v1alpha1.VerbDelete, v1alpha1.VerbResume, v1alpha1.VerbFork} {
		hash, err := ledger.Hash(&v1alpha1.SessionRequestSpec{Verb: v, Target: v1alpha1.RequestTarget{Session: &v1alpha1.SessionSelector{ID: "s"}}})
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[hash]; ok {
			t.Errorf("%s and %s are one", v, other)
		}
		seen[hash] = v
	}
	if _, err := ledger.Hash(&v1alpha1.SessionRequestSpec{Verb: v1alpha1.VerbDelete}); !errors.Is(err, lifecycle.ErrInvalidTarget) {
		t.Errorf("without a target: %v", err)
	}
}

func entry(name string, verb v1alpha1.RequestVerb, edit func(*v1alpha1.SessionRequest)) *v1alpha1.SessionRequest {
	at := metav1.NewMicroTime(time.UnixMilli(1000))
	later := metav1.NewMicroTime(time.UnixMilli(2000))
	spec := v1alpha1.SessionRequestSpec{Source: "control", Key: name, Verb: verb, Requester: &v1alpha1.Requester{ChatID: "42", UpdateID: int64(len(name)), RequestID: "r-" + name},
		Target: v1alpha1.RequestTarget{Session: &v1alpha1.SessionSelector{ID: "s1"}}}
	if verb == v1alpha1.VerbCreate {
		spec.Target = v1alpha1.RequestTarget{Create: &v1alpha1.CreateTarget{Kind: "existing_path", Path: ptr("/w")}}
		spec.IDs = &v1alpha1.RequestIDs{LifecycleRequestID: "l", IntendedSessionID: "s1"}
	}
	o := &v1alpha1.SessionRequest{Spec: spec}
	o.Namespace, o.Name = v1alpha1.DefaultNamespace, name
	hash, err := ledger.Hash(&spec)
	if err != nil {
		panic(err)
	}
	o.Status = v1alpha1.SessionRequestStatus{State: v1alpha1.RequestSuccess, Request: &spec, RequestHash: hash, CreatedAt: &at, UpdatedAt: &later,
		SessionID: "s1", TmuxSession: "s1", SessionStateFile: "/w/f.json", EndpointURL: ptr("")}
	if edit != nil {
		edit(o)
	}
	return o
}

// The export is the reference's document, and can be read as such.
func TestExport(t *testing.T) {
	all := []*v1alpha1.SessionRequest{
		entry("a", v1alpha1.VerbCreate, nil),
		entry("bb", v1alpha1.VerbClose, func(o *v1alpha1.SessionRequest) { o.Status.ProcessGone = ptr(true) }),
		entry("ccc", v1alpha1.VerbResume, func(o *v1alpha1.SessionRequest) { o.Status.ResumeMode = "cold_restarted" }),
		entry("dddd", v1alpha1.VerbResume, func(o *v1alpha1.SessionRequest) {
			o.Status.State, o.Status.Reason = v1alpha1.RequestFailure, "not_found"
			o.Status.Request.Requester = nil
		}),
		entry("eeeee", v1alpha1.VerbClose, func(o *v1alpha1.SessionRequest) {
			o.Status.State, o.Status.Reason = v1alpha1.RequestUncertain, "close_refused"
		}),
		entry("ffffff", v1alpha1.VerbCreate, func(o *v1alpha1.SessionRequest) { o.Status.State = v1alpha1.RequestInProgress }),
		entry("ggggggg", v1alpha1.VerbDelete, nil),
		entry("hh", v1alpha1.VerbClose, func(o *v1alpha1.SessionRequest) { o.Status.DuplicateOf = "bb" }),
		entry("i", v1alpha1.VerbCreate, func(o *v1alpha1.SessionRequest) { o.Status = v1alpha1.SessionRequestStatus{} }),
		entry("j", v1alpha1.VerbCreate, func(o *v1alpha1.SessionRequest) { o.Status.Request.Source = "broker" }), // the chat's key is taken
	}
	l, left, err := ledger.Export(all)
	if err != nil || left != 1 {
		t.Fatalf("%d left, %v", left, err)
	}
	data, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden := "testdata/ledger.golden"
	if *update {
		if err := os.WriteFile(golden, append(data, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(data)+"\n"); diff != "" {
		t.Errorf("the document (-want +got):\n%s", diff)
	}
	back, err := lifecycle.DecodeLedger(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l, back); diff != "" {
		t.Errorf("read back (-was +is):\n%s", diff)
	}
	// An edited spec changes no entry.
	all[0].Spec.Verb = v1alpha1.VerbClose
	if e, err := ledger.Entry(all[0]); err != nil || e.Verb != lifecycle.SessionCreate {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := ledger.Entry(all[8]); !errors.Is(err, ledger.ErrNoEntry) {
		t.Errorf("what was not accepted: %v", err)
	}
}
