package prompt_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/prompt"
)

// childEnv makes the test binary deliver a prompt in the folder that is its
// first argument, as a controller that may be killed.
const childEnv = "PROMPT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

func child() int {
	if os.Getenv(childEnv) == "tmux" {
		return realChild(os.Args[1])
	}
	if err := deliver(context.Background(), os.Getenv(childEnv), os.Args[1]); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

const canary = "Fix the login bug. 7d1e4c"

// deliver is one life of a controller: it brings the prompt as far as it can.
func deliver(ctx context.Context, how, dir string) error {
	p := prompt.New(options(dir))
	id := effects.LaunchID{UID: uid, Generation: 1, Attempt: 1}
	switch how {
	case effects.PromptByFile:
		path, err := p.Publish(ctx, uid, canary)
		if err != nil || path == "" {
			return err
		}
		// The start of a program that takes its prompt.
		if data, err := os.ReadFile(path); err == nil && os.Rename(path, path+".1") == nil {
			read(dir, string(data))
			if err := os.Remove(path + ".1"); err != nil {
				return err
			}
		}
	case effects.PromptByArgument:
		carries, err := p.Intend(ctx, id, canary)
		if err != nil || !carries {
			return err
		}
		read(dir, canary)
		if _, err := p.Settle(ctx, uid, effects.PromptDelivered, "it runs"); err != nil {
			return err
		}
	case effects.PromptByPaste:
		for {
			s, err := p.Paste(ctx, effects.TmuxPane{Launch: id, Process: effects.ProcessID{PID: 2, StartTime: "1"}}, canary)
			if err != nil || s.State != effects.PromptIntended {
				return err
			}
			select { // nothing tells of what a terminal shows
			case <-time.After(s.Again / pace):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	_, err := p.Status(ctx, uid)
	return err
}

// fastClock has time pass at a multiple of its pace.
type fastClock struct{ begin time.Time }

const pace = 50

func (c fastClock) Now() time.Time { return c.begin.Add(pace * time.Since(c.begin)) }

func (c fastClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func options(dir string) prompt.Options {
	return prompt.Options{
		Dir: filepath.Join(dir, "prompts"), Files: &files.Layer{}, Terminal: fileTerminal{dir}, BootID: "boot", Clock: fastClock{time.Now()},
		Reader: func(_ context.Context, pane effects.TmuxPane, _ string) (prompt.Reader, error) {
			return prompt.Reader{Process: pane.Process}, nil
		},
	}
}

// read has the program have read something, for good.
func read(dir, text string) {
	f, err := os.OpenFile(filepath.Join(dir, "read"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close() //nolint:errcheck // a test's
	if _, err := f.WriteString(text); err != nil {
		panic(err)
	}
}

// fileTerminal is a terminal that outlives a controller: what was typed into it
// is in a file, and is what it shows.
type fileTerminal struct{ dir string }

var (
	pointTypePaste = fault.New("test.paste")
	pointTypeEnter = fault.New("test.enter")
)

func (f fileTerminal) Screen(context.Context, effects.TmuxPane) (effects.TmuxScreen, error) {
	data, err := os.ReadFile(filepath.Join(f.dir, "read"))
	if err != nil && !os.IsNotExist(err) {
		return effects.TmuxScreen{}, err
	}
	return effects.TmuxScreen{Lines: strings.Split(string(data), "\n")}, nil
}

func (f fileTerminal) typed(point fault.Point, text string) error {
	if err := point.At(fault.Before); err != nil {
		return err
	}
	read(f.dir, text)
	if err := point.At(fault.After); err != nil {
		return fmt.Errorf("%w: %w", effects.ErrUnreachable, err)
	}
	return nil
}

func (f fileTerminal) Paste(_ context.Context, _ effects.TmuxPane, text []byte) error {
	return f.typed(pointTypePaste, string(text))
}

func (f fileTerminal) Enter(context.Context, effects.TmuxPane) error {
	return f.typed(pointTypeEnter, "\n")
}

func (fileTerminal) DropPaste(context.Context, string) error { return nil }

// TestKilled kills the controller in each phase of each step, and lets the next
// one go on. The program gets its prompt at most once, and whether it did is
// said only where it can be known.
func TestKilled(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs a build with the tag skcfaults")
	}
	points := map[string][]string{
		effects.PromptByFile:     {"prompt.stage", "prompt.intend", "prompt.publish", "prompt.settle"},
		effects.PromptByArgument: {"prompt.intend", "prompt.settle"},
		effects.PromptByPaste:    {"prompt.intend", "test.paste", "test.enter", "prompt.settle"},
	}
	for how, points := range points {
		for _, point := range points {
			for _, phase := range []string{"before", "during", "after"} {
				for _, action := range []string{"kill", "ENOSPC"} {
					if strings.HasPrefix(point, "test.") && phase == "during" {
						continue // what is typed is typed or not
					}
					t.Run(strings.Join([]string{how, point, phase, action}, " "), func(t *testing.T) {
						t.Parallel()
						dir := t.TempDir()
						kill(t, how, dir, point+":"+phase+"="+action)
						once(t, how, dir)
					})
				}
			}
		}
	}
}

// once sees, after two more lives, that the program got its prompt at most once
// and that what is said of it is true.
func once(t *testing.T, how, dir string) {
	t.Helper()
	for range 2 { // nothing comes back later
		must(t, deliver(t.Context(), how, dir))
	}
	data, err := os.ReadFile(filepath.Join(dir, "read"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	s, err := prompt.New(options(dir)).Status(t.Context(), uid)
	must(t, err)
	n := bytes.Count(data, []byte(canary))
	t.Logf("read %d times, and it is %+v", n, s)
	switch {
	case n > 1 || bytes.Count(data, []byte("\n")) > 1:
		t.Fatalf("the program read %q", data)
	case s.State == effects.PromptDelivered && n != 1:
		t.Error("it is said to be delivered, and is not")
	case s.State == effects.PromptIntended && how != effects.PromptByArgument:
		t.Error("it is still under way")
	case how == effects.PromptByFile && (n != 1 || s.State != effects.PromptDelivered):
		t.Errorf("a file's way can always be known; it was read %d times and is %+v", n, s)
	}
	clean(t, dir)
}

// TestEachCall kills the controller, or has the disk fail, at each call of the
// file layer.
func TestEachCall(t *testing.T) {
	if !fault.Enabled {
		t.Skip("needs a build with the tag skcfaults")
	}
	for _, how := range []string{effects.PromptByFile, effects.PromptByArgument, effects.PromptByPaste} {
		for _, action := range []string{"kill", "EIO"} {
			t.Run(how+" "+action, func(t *testing.T) {
				t.Parallel()
				for n := 1; ; n++ {
					dir := t.TempDir()
					cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
					cmd.Env = append(os.Environ(), childEnv+"="+how, fmt.Sprintf("SKC_FAULT=calls=%s@%d", action, n))
					out, err := cmd.CombinedOutput()
					if !bytes.Contains(out, []byte("SKC_FAULT: calls")) {
						if err != nil || n < 8 {
							t.Fatalf("the unbroken life ended with %v after %d calls: %s", err, n, out)
						}
						return
					}
					once(t, how, dir)
				}
			})
		}
	}
}

// clean sees that the text is in no file but where the program has it.
func clean(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "prompts"))
	must(t, err)
	for _, e := range entries {
		if files.IsTemp(e.Name()) { // swept at every start
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, "prompts", e.Name()))
		must(t, err)
		if bytes.Contains(data, []byte("login")) {
			t.Errorf("%s holds the text", e.Name())
		}
		if fi, err := e.Info(); err != nil || fi.Mode() != 0o600 {
			t.Errorf("%s is %v", e.Name(), fi.Mode())
		}
	}
}

// kill runs one life that ends at that place, if it comes there.
func kill(t *testing.T, how, dir, place string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"="+how, "SKC_FAULT="+place)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if !bytes.Contains(out, []byte("SKC_FAULT: "+strings.SplitN(place, "=", 2)[0])) || strings.Contains(place, "kill") != killed {
		t.Fatalf("the child did not end there: %v\n%s", err, out)
	}
}

// TestPowerCut replays what the file layer did up to each of its syncs. Before a
// prompt can be taken, its receipt and its name are on the disk.
func TestPowerCut(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	var ops []files.Op
	o.Files = &files.Layer{Trace: func(op files.Op) { ops = append(ops, op) }}
	path, err := prompt.New(o).Publish(t.Context(), uid, canary)
	must(t, err)
	at := func(kind files.OpKind, to string) int {
		i := slices.IndexFunc(ops, func(op files.Op) bool { return op.Kind == kind && (op.To == to || op.Path == to) })
		if i < 0 {
			t.Fatalf("no %s of %s in %+v", kind, to, ops)
		}
		return i
	}
	staged, receipt, published := at(files.OpRename, path+".staged"), at(files.OpRename, filepath.Join(o.Dir, uid+".receipt")), at(files.OpRename, path)
	synced := func(from, to int) bool {
		return slices.ContainsFunc(ops[from:to], func(op files.Op) bool { return op.Kind == files.OpSyncDir && op.Path == o.Dir })
	}
	if staged > receipt || receipt > published || !synced(staged, receipt) || !synced(receipt, published) || !synced(published, len(ops)) {
		t.Errorf("the order does not hold: %+v", ops)
	}
	data, err := os.ReadFile(filepath.Join(o.Dir, uid+".receipt"))
	must(t, err)
	var r map[string]any
	must(t, json.Unmarshal(data, &r))
	if r["state"] != "Intended" || r["delivery"] != "File" || r["bootID"] != "boot" || bytes.Contains(data, []byte("login")) {
		t.Errorf("receipt: %s", data)
	}
	// The file is there and its receipt is of another start of the machine, as
	// after a cut in the middle of publishing: it was not handed out yet.
	must(t, os.Rename(path, path+".staged"))
	o.BootID = "boot 2"
	again, err := prompt.New(o).Publish(t.Context(), uid, canary)
	if err != nil || again != path {
		t.Errorf("Publish = %q, %v, want %q", again, err, path)
	}
}
