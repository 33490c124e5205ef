//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"skc.dev/skc/hack/e2e/world"
)

// withControl starts a skcd that serves lifecycle requests of chat 42, whose
// agents are programs that wait.
func withControl(t *testing.T) (w *world.World, address, token string) {
	t.Helper()
	w = world.New(t)
	w.Write(filepath.Join(w.Dir, "secret"), "1234567890:"+world.Random()+"\n")
	world.Must(t, os.Chmod(filepath.Join(w.Dir, "secret"), 0o600))
	w.Config(fmt.Sprintf("lifecycle: {secretFile: %q, pairedChat: \"42\", profile: waiting}\n", filepath.Join(w.Dir, "secret")))
	w.Drop("profile.yaml", `
apiVersion: skc.dev/v1alpha1
kind: AgentProfile
metadata: {name: waiting}
spec:
  command: [sh, -c, 'echo "$SKC_SESSION_UID" >> started; exec sleep 6003', sh]
`)
	w.Start()
	address, token = controlOf(w)
	return w, address, token
}

func controlOf(w *world.World) (address, token string) {
	w.Helper()
	var found struct{ URL, Token string }
	w.Until("the control is there", func() bool {
		status, body := w.Get("/v1/control-token")
		return status == 200 && json.Unmarshal([]byte(body), &found) == nil
	})
	return strings.TrimPrefix(found.URL, "ws://"), found.Token
}

// ask sends frames over one connection and returns the first answer to each.
func ask(w *world.World, address, token string, frames ...string) (answers []string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), world.Patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+address+"/?token="+token, nil) //nolint:bodyclose // an upgrade has no body
	world.Must(w, err)
	defer ws.CloseNow() //nolint:errcheck // all is read
	for _, f := range frames {
		world.Must(w, ws.Write(ctx, websocket.MessageText, []byte(strings.Replace(f, "{", fmt.Sprintf(`{"token":%q,`, token), 1))))
		_, answer, err := ws.Read(ctx)
		world.Must(w, err)
		answers = append(answers, string(answer))
	}
	return answers
}

// B-079, B-080, R28: a web page gets no upgrade, with the token or without, and
// a hundred wrong tokens hold nobody up.
func TestCase036ForeignWebPage(t *testing.T) {
	t.Parallel()
	w, address, token := withControl(t)
	lines := strings.Fields(steps(w, "036-foreign-web-page", "URL="+address, "TOKEN="+token))
	if len(lines) != 13 {
		t.Errorf("%d answers: %v", len(lines), lines)
	}
	for i, status := range lines {
		if status != "401" && status != "403" && status != "421" {
			t.Errorf("answer %d is %s", i, status)
		}
	}
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), world.Patience)
		ws, res, err := websocket.Dial(ctx, "ws://"+address+"/?token="+world.Random(), nil) //nolint:bodyclose // it has none
		cancel()
		if err == nil || res == nil || res.StatusCode != 401 {
			t.Fatalf("a wrong token: %v, %v, %v", ws, res, err)
		}
	}
	if got := ask(w, address, token, `{"type":"session_resume","requestId":"r","updateId":1,"chatId":"43","target":{"sessionIdOrPrefix":"s"}}`); !strings.Contains(got[0], "chat not paired") {
		t.Errorf("answer %s", got)
	}
}

// A chat creates a session, asks again, closes it, asks again: each is done once,
// and the audit file tells it without a name. The token is on no disk.
func TestLifecycleControl(t *testing.T) {
	t.Parallel()
	w, address, token := withControl(t)
	create := fmt.Sprintf(`{"type":"session_create","requestId":"r1","lifecycleRequestId":"l1","intendedSessionId":"s1","updateId":1,"chatId":"42","target":{"kind":"existing_path","path":%q}}`, w.Work)
	shut := `{"type":"session_close","requestId":"r2","updateId":2,"chatId":"42","target":{"sessionId":"s1"},"force":true}`
	for i, got := range ask(w, address, token, create, create, strings.Replace(create, "r1", "other", 1)) {
		if !strings.Contains(got, `"type":"session_create_response"`) || !strings.Contains(got, `"sessionId":"s1"`) {
			t.Fatalf("create, %d: %s", i, got)
		}
	}
	if got := ask(w, address, token, strings.Replace(create, w.Work, w.Dir, 1)); !strings.Contains(got[0], "update id reused with different body") {
		t.Errorf("another body: %s", got)
	}
	pid := w.UntilRunning("s1")
	if n := w.Starts("started"); n != 1 {
		t.Errorf("%d starts, want 1", n)
	}
	// Another controller has another token, and knows the requests.
	w.Stop(syscall.SIGKILL)
	w.Start()
	old := token
	if address, token = controlOf(w); token == old {
		t.Error("the token outlived its process")
	}
	for i, got := range ask(w, address, token, create, shut, shut) {
		if want := []string{"session_create_response", `"processGone":true`, `"processGone":true`}[i]; !strings.Contains(got, want) {
			t.Errorf("%s: %s", want, got)
		}
	}
	if world.Lives(pid) {
		t.Errorf("process %d is still there", pid)
	}
	if n := w.Starts("started"); n != 1 {
		t.Errorf("%d starts, want 1", n)
	}
	w.Write(filepath.Join(w.Dir, "frame.json"), create)
	rows := w.MustCtl("audit", "verify", "--chat", "42", "--request", filepath.Join(w.Dir, "frame.json"))
	for event, n := range map[string]int{"accepted": 1, "spawn_started": 1, "success": 1, "duplicate_reack": 3} {
		if got := strings.Count(rows, " "+event+" "); got != n {
			t.Errorf("%d rows %s, want %d, in:\n%s", got, event, n, rows)
		}
	}
	w.Stop(syscall.SIGTERM)
	world.Must(t, filepath.WalkDir(w.Home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), old) || strings.Contains(string(text), token) {
			t.Errorf("the token is in %s", path)
		}
		return err
	}))
	if _, err := os.Stat(filepath.Join(w.State, "notifications", "control.json")); err == nil {
		t.Error("the discovery file is still there")
	}
}
