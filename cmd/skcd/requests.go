package main

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"skc.dev/skc/api"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller"
	"skc.dev/skc/controller/control"
	"skc.dev/skc/controller/managed"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects/audit"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/tmux"
	"skc.dev/skc/effects/workspace"
	"skc.dev/skc/reconcilers/request"
)

// sourceControl is the source of requests that come by the control.
const sourceControl = "control"

// requestKind serves the kind SessionRequest, and the control that brings some.
type requestKind struct {
	*controller.Controller
	requestParts
	reconciler *request.Reconciler
}

// requestParts is what it is made of.
type requestParts struct {
	options
	clock       clock.WithTicker
	layer       *files.Layer
	objects     *store.Store
	definitions *managed.Root
	mux         *tmux.Client
	metrics     *controller.Metrics
	userHome    string
	control     *lifecycleControl
	log         logr.Logger
}

// newRequests joins the parts. Without a usable secret requests are refused,
// whoever brings them, and nothing listens.
func newRequests(p requestParts) *requestKind {
	key := p.Lifecycle.auditKey(p.userHome, p.log)
	var rows *audit.Log
	if key != nil {
		var err error
		if rows, err = audit.Open(p.home.Audit(), p.layer); err != nil {
			p.log.Error(err, "lifecycle requests are off")
			key = nil
		}
	}
	k := &requestKind{requestParts: p, reconciler: &request.Reconciler{
		Store:       store.For[*v1alpha1.SessionRequest](p.objects, v1alpha1.KindSessionRequest),
		Sessions:    store.For[*v1alpha1.Session](p.objects, v1alpha1.KindSession),
		Quarantines: store.For[*v1alpha1.Quarantine](p.objects, v1alpha1.KindQuarantine),
		Definitions: p.definitions,
		Panes:       p.mux,
		Folders:     workspace.Folders{},
		Audit:       rows,
		Clock:       p.clock,
		AuditKey:    key,
		PairedChat:  p.Lifecycle.PairedChat,
		Profile:     p.Lifecycle.Profile,
		Limit:       lifecycle.RateLimit{Max: p.Lifecycle.CreateLimit, Window: p.Lifecycle.CreateWindow.Duration},
		Retention:   p.Lifecycle.Retention.Duration,
		Psmux:       sync.OnceValue(func() bool { return isPsmux(p.Tmux) }),
		UserHome:    p.userHome,
	}}
	k.Controller = controller.New(controller.Options{
		Kind: v1alpha1.KindSessionRequest, Reconciler: k.reconciler, Clock: clock.RealClock{}, Log: p.log, Metrics: p.metrics,
		Workers: 1, // reading the ledger, judging and writing are one step
	})
	k.reconciler.Enqueue = k.Enqueue
	p.objects.OnChange(func(key api.Key) {
		if key.Kind == v1alpha1.KindSessionRequest {
			k.Enqueue(key)
		} else {
			k.reconciler.ObjectChanged(key)
		}
	})
	p.objects.OnStatus(func(key api.Key) {
		if key.Kind != v1alpha1.KindSessionRequest {
			k.reconciler.StatusChanged(key)
		}
	})
	return k
}

// Look looks at every request again. Call it when the sources were read.
func (k *requestKind) Look() {
	for _, key := range k.objects.Keys(v1alpha1.KindSessionRequest) {
		k.Enqueue(key)
	}
}

// Listen brings what comes by the control, until ctx ends. Call it when the
// sources were read: a request is judged by what there is.
func (k *requestKind) Listen(ctx context.Context) {
	if k.reconciler.AuditKey == nil {
		// The port that a killed controller published may be anybody's by now.
		if err := control.Withdraw(k.home.Notifications(), k.layer); err != nil {
			k.log.Error(err, "an old discovery file is left")
		}
		return
	}
	k.control.run(logr.NewContext(ctx, k.log), k.Lifecycle.Address, k.home, k.layer, k.clock, request.Front{Requests: k.reconciler, Source: sourceControl})
}

// isPsmux says whether the tmux program is one that cannot prove identity. One
// that does not answer is not called so: that is told elsewhere.
func isPsmux(program string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "-V").Output()
	name := strings.ToLower(string(out))
	return err == nil && (strings.Contains(name, "psmux") || strings.Contains(name, "pmux"))
}
