package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"skc.dev/skc/controller/control"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/effects/audit"
	"skc.dev/skc/effects/files"
)

// controlRetry is how long after a failure the control is tried again.
const controlRetry = time.Minute

// auditKey is the key of the secret file, or nil when requests of chats are not
// served: no file is configured, or it cannot be used. Nothing stands in for it,
// and sessions go on without it.
func (l lifecycleConfig) auditKey(userHome string, log logr.Logger) []byte {
	if l.SecretFile == "" {
		return nil
	}
	key, err := audit.Key(home.Expand(l.SecretFile, userHome))
	if err != nil {
		log.Error(err, "lifecycle requests are off")
		return nil
	}
	return key
}

// lifecycleControl is the control of this process, once it is there.
type lifecycleControl struct {
	server atomic.Pointer[control.Server]
}

// ServeHTTP tells address and token, for the control socket.
func (l *lifecycleControl) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := l.server.Load()
	if s == nil {
		http.Error(w, "the lifecycle control is off", http.StatusNotFound)
		return
	}
	s.TokenHandler().ServeHTTP(w, r)
}

// run serves requests until ctx ends. A control that fails costs no session: it
// is tried again.
func (l *lifecycleControl) run(ctx context.Context, address string, h home.Home, layer *files.Layer, clk clock.WithTicker, requests control.Submitter) {
	log := logr.FromContextOrDiscard(ctx).WithName("control")
	for {
		s, err := control.Listen(control.Options{
			Address: address, Owner: uuid.NewString(), Dir: h.Notifications(), Files: layer, Submitter: requests, Clock: clk, Log: log,
		})
		if err == nil {
			l.server.Store(s)
			err = s.Serve(ctx)
			l.server.Store(nil)
		}
		if err != nil {
			log.Error(err, "the lifecycle control failed")
		}
		select {
		case <-ctx.Done():
			return
		case <-clk.After(controlRetry):
		}
	}
}
