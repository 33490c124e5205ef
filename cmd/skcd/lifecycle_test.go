package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/controller/control"
	"skc.dev/skc/controller/health"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/effects/files"
)

// refusing answers every request as one of a chat that is not the paired one.
type refusing struct{}

func (refusing) Submit(context.Context, lifecycle.Request) (lifecycle.Outcome, error) {
	return lifecycle.Outcome{Status: lifecycle.Failed, Reason: lifecycle.ReasonUnauthorized, Message: lifecycle.MessageNotPaired}, nil
}

// A program of the same user finds the control, gets the token, and speaks.
func TestLifecycleControl(t *testing.T) {
	dir, err := os.MkdirTemp("", "skc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := home.Home{State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run")}
	for _, d := range []string{h.State, h.Run} {
		if err := files.MkdirPrivate(d); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var l lifecycleControl
	socket, err := health.Listen(h.ControlSocket())
	if err != nil {
		t.Fatal(err)
	}
	server := &health.Server{Gatherer: prometheus.NewRegistry(), Private: map[string]http.Handler{"GET /v1/control-token": &l}}
	served, ended := make(chan error, 1), make(chan struct{})
	go func() { served <- server.Serve(ctx, socket) }()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", h.ControlSocket())
	}}
	ask := func() (int, []byte) {
		res, err := (&http.Client{Transport: transport}).Get("http://skcd/v1/control-token")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close() //nolint:errcheck // a test
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, body
	}
	if status, body := ask(); status != http.StatusNotFound {
		t.Errorf("before it runs: %d %s", status, body)
	}
	go func() {
		defer close(ended)
		l.run(ctx, "127.0.0.1:0", h, &files.Layer{}, clock.RealClock{}, refusing{})
	}()
	discovery := filepath.Join(h.Notifications(), control.FileName)
	limit := time.After(20 * time.Second)
	for {
		if _, err := os.Stat(discovery); err == nil {
			break
		}
		select {
		case <-time.After(time.Millisecond):
		case <-limit:
			t.Fatal("no discovery file")
		}
	}
	var found control.Record
	var private struct{ URL, Token string }
	text, err := os.ReadFile(discovery)
	if _, body := ask(); errors.Join(err, json.Unmarshal(text, &found), json.Unmarshal(body, &private)) != nil || found.URL != private.URL {
		t.Fatalf("%s and %+v, %v", text, private, err)
	}
	ws, _, err := websocket.Dial(ctx, found.URL+"/?token="+private.Token, nil) //nolint:bodyclose // an upgrade has no body
	if err != nil {
		t.Fatal(err)
	}
	frame, err := lifecycle.Request{RequestID: "r", UpdateID: 1, ChatID: "42", Target: lifecycle.ResumeTarget{SessionIDOrPrefix: "s"}}.Frame(private.Token)
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(ctx, websocket.MessageText, frame); err != nil {
		t.Fatal(err)
	}
	if _, answer, err := ws.Read(ctx); err != nil || !strings.Contains(string(answer), lifecycle.MessageNotPaired) {
		t.Errorf("answer %s, %v", answer, err)
	}
	if err := ws.CloseNow(); err != nil {
		t.Error(err)
	}
	cancel()
	<-ended
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(discovery); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the discovery file is still there: %v", err)
	}
}

func TestAuditKey(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "token")
	if err := os.WriteFile(secret, []byte("1:c4n4ry\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key := (lifecycleConfig{SecretFile: "~/token"}).auditKey(dir, logr.Discard()); len(key) != lifecycle.AuditKeyBytes {
		t.Errorf("key of %d bytes", len(key))
	}
	var told []string
	log := funcr.New(func(_, args string) { told = append(told, args) }, funcr.Options{})
	if key := (lifecycleConfig{}).auditKey(dir, log); key != nil || len(told) != 0 {
		t.Errorf("nothing configured: %x, %q", key, told)
	}
	if err := os.Chmod(secret, 0o644); err != nil {
		t.Fatal(err)
	}
	if key := (lifecycleConfig{SecretFile: secret}).auditKey(dir, log); key != nil || len(told) != 1 || !strings.Contains(told[0], "make it 0600") || strings.Contains(told[0], "c4n4ry") {
		t.Errorf("open to others: %x, %q", key, told)
	}
}
