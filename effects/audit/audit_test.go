package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/effects/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	key     = bytes.Repeat([]byte{7}, lifecycle.AuditKeyBytes)
	arrived = time.Date(2026, 5, 6, 7, 8, 9, 123456789, time.UTC)
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(path string) lifecycle.Request {
	return lifecycle.Request{
		RequestID: "r1", LifecycleRequestID: "l1", IntendedSessionID: "s1", UpdateID: 100, ChatID: "42",
		Target: lifecycle.ExistingPath{Path: path},
	}
}

func row(t *testing.T, r lifecycle.Request, event lifecycle.Event) lifecycle.AuditRow {
	t.Helper()
	a, err := lifecycle.NewAuditRow(key, r, arrived)
	must(t, err)
	a.Event = event
	return a
}

func open(t *testing.T, dir string, layer *files.Layer) *Log {
	t.Helper()
	l, err := Open(dir, layer)
	must(t, err)
	return l
}

func verify(t *testing.T, dir, chat string, r *lifecycle.Request) Report {
	t.Helper()
	var request []byte
	if r != nil {
		var err error
		request, err = lifecycle.CanonicalRequest(*r)
		must(t, err)
	}
	report, err := Verify(filepath.Join(dir, FileName), key, chat, request)
	must(t, err)
	return report
}

func TestARowIsOnTheDiskBeforeAppendReturns(t *testing.T) {
	var ops []files.Op
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, &files.Layer{Trace: func(op files.Op) { ops = append(ops, op) }})
	for range 2 {
		ops = nil
		must(t, l.Append(row(t, create("/a"), lifecycle.EventAccepted)))
		synced, named := false, false
		for _, op := range ops {
			switch op.Kind {
			case files.OpAppend:
				synced = false
			case files.OpSync:
				synced = true
			case files.OpSyncDir:
				named = true
			}
		}
		if !synced {
			t.Errorf("operations %v: the row is not synced", ops)
		}
		if first := len(verify(t, dir, "42", nil).Rows) == 1; named != first {
			t.Errorf("operations %v: the name is synced: %v, want %v", ops, named, first)
		}
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, FileName): 0o600} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %o", path, fi.Mode(), err, want)
		}
	}
	// A process that finds the file does not know whether its name is on the disk.
	ops = nil
	must(t, open(t, dir, l.files).Append(row(t, create("/a"), lifecycle.EventAccepted)))
	if ops[len(ops)-1].Kind != files.OpSyncDir {
		t.Errorf("operations %v: the name is not synced", ops)
	}
}

// Wherever a crash cuts a row off, the next one is whole, on a line of its own,
// and a row that only lacks its line feed is a row.
func TestTornLastLine(t *testing.T) {
	first, torn, next := row(t, create("/a"), lifecycle.EventAccepted), row(t, create("/b"), lifecycle.EventAccepted), row(t, create("/c"), lifecycle.EventSuccess)
	whole, err := torn.Line()
	must(t, err)
	for cut := range whole {
		dir := t.TempDir()
		l := open(t, dir, &files.Layer{})
		must(t, l.Append(first))
		f, err := os.OpenFile(filepath.Join(dir, FileName), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		_, err = f.Write(whole[:cut])
		must(t, errors.Join(err, f.Close()))
		want := Report{Rows: []lifecycle.AuditRow{first}, Total: 1, Malformed: 1}
		switch cut {
		case 0:
			want.Malformed = 0
		case len(whole) - 1:
			want = Report{Rows: []lifecycle.AuditRow{first, torn}, Total: 2}
		}
		if d := cmp.Diff(want, verify(t, dir, "42", nil)); d != "" {
			t.Errorf("cut at %d:\n%s", cut, d)
		}
		must(t, open(t, dir, &files.Layer{}).Append(next))
		want.Rows, want.Total = append(want.Rows, next), want.Total+1
		if d := cmp.Diff(want, verify(t, dir, "42", nil)); d != "" {
			t.Errorf("cut at %d, and one more row:\n%s", cut, d)
		}
	}
}

func TestAppendInParallel(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, &files.Layer{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 25 {
				if err := l.Append(row(t, create(fmt.Sprintf("/%d", i)), lifecycle.EventAccepted)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if r := verify(t, dir, "42", nil); len(r.Rows) != 200 || r.Total != 200 || r.Malformed != 0 {
		t.Errorf("%d rows of %d, %d malformed; want 200 of 200, 0", len(r.Rows), r.Total, r.Malformed)
	}
}

func TestRowsOutsideTheSetsAreRefused(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, &files.Layer{})
	bad := row(t, create("/a"), "launched")
	if err := l.Append(bad); err == nil {
		t.Error("an unknown event was appended")
	}
	bad.Event, bad.Reason = lifecycle.EventFailure, "because"
	if err := l.Append(bad); !errors.Is(err, lifecycle.ErrUnknownReason) {
		t.Errorf("an unknown reason: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, FileName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was made: %v", err)
	}
}

func TestNothingOfTheRequestIsInTheFile(t *testing.T) {
	const canary = "c4n4ry"
	dir := t.TempDir()
	l := open(t, dir, &files.Layer{})
	preset, prompt := canary+"preset", canary+"prompt"
	r := lifecycle.Request{
		RequestID: canary + "request", LifecycleRequestID: canary + "lifecycle", IntendedSessionID: canary + "session", UpdateID: 5, ChatID: canary + "chat",
		Target: lifecycle.Worktree{Repo: "/" + canary, Branch: canary}, ModelPreset: &preset, StartupPromptRef: &prompt,
	}
	for _, e := range lifecycle.Events {
		must(t, l.Append(row(t, r, e)))
	}
	text, err := os.ReadFile(filepath.Join(dir, FileName))
	must(t, err)
	if bytes.Contains(text, []byte(canary)) {
		t.Errorf("the file tells of the request:\n%s", text)
	}
	if got := verify(t, dir, r.ChatID, &r); len(got.Rows) != len(lifecycle.Events) {
		t.Errorf("%d rows found, want %d", len(got.Rows), len(lifecycle.Events))
	}
}

func TestVerify(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, &files.Layer{})
	a, b := create("/a"), create("/b")
	other := create("/a")
	other.ChatID = "43"
	repeated := create("/a") // what is not hashed does not count
	repeated.RequestID, repeated.UpdateID, repeated.IntendedSessionID = "r2", 101, "s2"
	for _, r := range []lifecycle.Request{a, b, other, repeated} {
		must(t, l.Append(row(t, r, lifecycle.EventAccepted)))
	}
	for _, c := range []struct {
		name    string
		chat    string
		request *lifecycle.Request
		want    []lifecycle.AuditRow
	}{
		{"a chat", "42", nil, []lifecycle.AuditRow{row(t, a, "accepted"), row(t, b, "accepted"), row(t, repeated, "accepted")}},
		{"a chat and a request", "42", &a, []lifecycle.AuditRow{row(t, a, "accepted"), row(t, repeated, "accepted")}},
		{"the same request in another chat", "43", &a, []lifecycle.AuditRow{row(t, other, "accepted")}},
		{"another chat", "44", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(Report{Rows: c.want, Total: 4}, verify(t, dir, c.chat, c.request)); d != "" {
				t.Error(d)
			}
		})
	}
	path := filepath.Join(dir, FileName)
	if r, err := Verify(path, bytes.Repeat([]byte{8}, 32), "42", nil); err != nil || len(r.Rows) != 0 || r.Total != 4 {
		t.Errorf("another key: %+v, %v", r, err)
	}
	if _, err := Verify(path, key[:31], "42", nil); !errors.Is(err, lifecycle.ErrInvalidAuditKey) {
		t.Errorf("a short key: %v", err)
	}
	if r, err := Verify(filepath.Join(dir, "none"), key, "42", nil); err != nil || r.Total+r.Malformed != 0 {
		t.Errorf("no file: %+v, %v", r, err)
	}
}

func TestMalformedLines(t *testing.T) {
	good, err := row(t, create("/a"), lifecycle.EventAccepted).Line()
	must(t, err)
	for name, line := range map[string]string{
		"no JSON":           "torn",
		"empty":             "",
		"a member more":     strings.Replace(string(good[:len(good)-1]), `,"event"`, `,"path":"/a","event"`, 1),
		"another order":     strings.Replace(string(good[:len(good)-1]), `{"schemaVersion":2,`, `{`, 1),
		"spaces":            strings.Replace(string(good[:len(good)-1]), `,`, `, `, 1),
		"an unknown event":  strings.Replace(string(good[:len(good)-1]), `"accepted"`, `"done"`, 1),
		"longer than a row": strings.Repeat("x", 3*maxLine),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, FileName), []byte(string(good)+line+"\n"+string(good)), 0o600))
			if r := verify(t, dir, "42", nil); len(r.Rows) != 2 || r.Total != 2 || r.Malformed != 1 {
				t.Errorf("%d rows of %d, %d malformed; want 2 of 2, 1", len(r.Rows), r.Total, r.Malformed)
			}
		})
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, FileName), []byte(strings.Repeat("x", 3*maxLine)), 0o600))
	if r := verify(t, dir, "42", nil); r.Total != 0 || r.Malformed != 1 {
		t.Errorf("%+v, want 1 malformed", r)
	}
}

func TestAFileThatIsNoneIsRefused(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"link":   func(path string) error { return os.Symlink("/dev/null", path) },
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, dir, &files.Layer{})
			must(t, put(filepath.Join(dir, FileName)))
			if err := l.Append(row(t, create("/a"), lifecycle.EventAccepted)); err == nil {
				t.Error("Append took it")
			}
			if _, err := Open(dir, &files.Layer{}); !errors.Is(err, files.ErrNotRegular) {
				t.Errorf("Open = %v", err)
			}
			if _, err := Verify(filepath.Join(dir, FileName), key, "42", nil); err == nil {
				t.Error("Verify took it")
			}
		})
	}
}

func TestAnOpenFileIsClosed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.Chmod(path, 0o666))
	open(t, dir, &files.Layer{})
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", fi.Mode(), err)
	}
}

// The rows of a create in the vectors, in their order.
func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.json")
	must(t, err)
	var doc struct {
		Vectors []struct {
			ID, Kind string
			Input    struct {
				Frame json.RawMessage
			}
			Expected []lifecycle.Event
		}
	}
	must(t, json.Unmarshal(data, &doc))
	for _, v := range doc.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			if v.Kind != "lifecycle-audit-events" {
				t.Fatalf("kind %s is not run", v.Kind)
			}
			f := lifecycle.ParseFrame(v.Input.Frame)
			dir := t.TempDir()
			l := open(t, dir, &files.Layer{})
			for _, e := range v.Expected {
				must(t, l.Append(row(t, f.Request, e)))
			}
			var got []lifecycle.Event
			for _, r := range verify(t, dir, f.Request.ChatID, &f.Request).Rows {
				got = append(got, r.Event)
			}
			if d := cmp.Diff(v.Expected, got); d != "" {
				t.Error(d)
			}
		})
	}
	if t.Logf("%-20s %d rows", "lifecycle-audit-events", len(doc.Vectors)); len(doc.Vectors) < 1 {
		t.Error("the vectors are lost")
	}
}
