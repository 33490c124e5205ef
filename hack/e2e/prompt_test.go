//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/hack/e2e/world"
)

const (
	// reads is a program that reads its terminal as agents do: key by key, with
	// pastes in brackets. All that it reads is in ./got, with | for Enter.
	reads = `stty raw; printf '\033[?2004hready'; exec stdbuf -o0 tr '\r' '|' >> got`
	// takes takes the prompt from the file, if there is one, as the documentation
	// says.
	takes = `f=$SKC_STARTUP_PROMPT_REF; [ -z "$f" ] || { mv "$f" "$f.$$" && cat "$f.$$" >> got && rm "$f.$$"; }; echo start >> log; exec sleep 6000`
	// pasted is what reads has of it.
	pasted = "\x1b[200~Fix the login bug.|Then rest.\x1b[201~|"
)

// promptOf is a startup prompt as a line of a spec.
func promptOf(delivery, text string) string {
	return fmt.Sprintf("startupPrompt: {delivery: %s, text: %s}", delivery, quote(text))
}

// whenReads waits until such a program is there.
const whenReads = "readiness: {screen: {pattern: ready}, period: 100ms}"

const quick = "restart: {initialBackoff: 100ms, maxBackoff: 100ms}"

func got(w *world.World, name string) string {
	data, _ := os.ReadFile(filepath.Join(w.Work, name, "got"))
	return string(data)
}

// once does all that must not deliver a prompt again, and sees that the program
// is started anew each time.
func once(w *world.World, name, again string, check func(what string)) {
	w.Helper()
	restarted := func(what string, do func()) {
		w.Helper()
		pid := w.Main(name)
		do()
		w.Until(name+" runs anew after "+what, func() bool {
			pids := w.Mains(name)
			return len(pids) == 1 && pids[0] != pid && w.Condition(name, "SessionRunning") == "True/Running"
		})
		check(what)
	}
	restarted("a kill", func() { w.Kill(w.Main(name), syscall.SIGKILL) })
	restarted("a restart", func() { w.MustCtl("restart", name) })
	restarted("a kill while no skcd runs", func() {
		pid := w.Main(name)
		w.Stop(syscall.SIGKILL)
		w.Kill(pid, syscall.SIGKILL)
		w.Start()
	})
	restarted("another target", func() { w.Apply(again) })
}

// A pasted prompt waits until the program is ready, comes once with one Enter,
// and never again.
func TestPromptIsPasted(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	text := session("p", script("echo start >> log; "+reads), quick, "readiness: {file: {path: ready}, period: 100ms}",
		promptOf("Paste", "Fix the login bug.\nThen rest.\n"))
	w.Apply(text)
	w.UntilCondition("p", "PromptDelivered", "Unknown/PromptPending")
	w.Always(time.Second, "nothing is typed into what is not ready", func() bool { return got(w, "p") == "" })
	w.Write(filepath.Join(w.Work, "p", "ready"), "")
	w.UntilCondition("p", "PromptDelivered", "True/Delivered")
	w.UntilRunning("p")
	check := func(what string) {
		w.Helper()
		w.UntilCondition("p", "PromptDelivered", "True/Delivered")
		w.Always(time.Second, "it was pasted once, after "+what, func() bool { return got(w, "p") == pasted })
	}
	check("its delivery")
	out := w.MustCtl("describe", "session", "p")
	for _, want := range []string{"Startup Prompt:", "a text of 30 bytes, by Paste", "PromptDelivered"} {
		if !strings.Contains(out, want) {
			t.Errorf("describe lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "login") {
		t.Errorf("describe shows the prompt:\n%s", out)
	}
	// The same folder by another way to say it is another target.
	once(w, "p", strings.Replace(text, "plainDir", "existingPath", 1), check)
	w.MustCtl("delete", "session", "p", "--wait", "--timeout=30s")
	nothingKept(w)
}

// nothingKept sees that no prompt and no receipt is left.
func nothingKept(w *world.World) {
	w.Helper()
	left, err := os.ReadDir(filepath.Join(w.State, "prompts"))
	if err != nil || len(left) > 0 {
		w.Errorf("of prompts there is left: %v, %v", left, err)
	}
}

// A prompt in a file is there for each start until one takes it.
func TestPromptInAFile(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	const wanted = "Fix the login bug.\nThen rest.\n"
	file := filepath.Join(w.Dir, "prompt.txt")
	text := session("f", script("[ -e go ] || { echo start >> log; exec sleep 6000; }; "+takes), quick, fmt.Sprintf("startupPrompt: {file: %q}", file))
	w.Apply(text)
	w.UntilCondition("f", "PromptDelivered", "False/PromptUnreadable")
	w.UntilCondition("f", "SessionRunning", "True/Running")
	w.Write(file, wanted)
	w.MustCtl("restart", "f")
	w.UntilCondition("f", "PromptDelivered", "Unknown/PromptPending")
	w.Until("it was started twice", func() bool { return len(w.Lines("f/log")) == 2 })
	if got(w, "f") != "" {
		t.Error("it took what it did not look for")
	}
	world.Must(t, os.Remove(file)) // what was laid out is the text from then on
	w.Write(filepath.Join(w.Work, "f", "go"), "")
	w.Kill(w.Main("f"), syscall.SIGKILL)
	w.UntilCondition("f", "PromptDelivered", "True/Delivered")
	w.UntilRunning("f")
	once(w, "f", strings.Replace(text, "plainDir", "existingPath", 1), func(what string) {
		w.Helper()
		w.UntilCondition("f", "PromptDelivered", "True/Delivered")
		if got(w, "f") != wanted {
			w.Errorf("after %s it took %q", what, got(w, "f"))
		}
	})
	w.MustCtl("delete", "session", "f", "--wait", "--timeout=30s")
	nothingKept(w)
}

// A prompt as an argument is the last one, of one start that ran.
func TestPromptAsAnArgument(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	const wanted = "Fix 'the' $login \"bug\".\nThen rest."
	text := session("a", script(`printf '%s(%s)' $# "$*" >> got; exec sleep 6000`, "one"), quick, promptOf("Argument", wanted))
	text = strings.Replace(text, "\"sh\"", "sh", 1)
	w.Apply(strings.Replace(text, "command: [sh,", "command: [./no-such-program,", 1))
	w.UntilCondition("a", "Ready", "False/CommandNotFound")
	w.UntilCondition("a", "PromptDelivered", "Unknown/PromptPending") // that start never ran
	w.Apply(text)
	w.UntilRunning("a")
	w.UntilCondition("a", "PromptDelivered", "True/Delivered")
	want := "1(" + wanted + ")"
	w.Until("it has its argument", func() bool { return got(w, "a") == want })
	once(w, "a", strings.Replace(text, "plainDir", "existingPath", 1), func(what string) {
		w.Helper()
		want += "0()"
		w.Until("it has none after "+what, func() bool { return got(w, "a") == want })
	})
}

// Nothing is typed while a program that is none of the session is in the
// foreground, nor what a program that reads lines would take apart.
func TestPromptIsHeld(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Config("cgroups: \"off\"\n")
	w.Start()
	w.Apply(session("away", script(`set -m; env -u SKC_SESSION_UID sh -c 'stty raw; printf "\033[?2004h"; while [ ! -e back ]; do sleep 0.05; done; cat away > away.got' & fg > log; `+reads),
		promptOf("Paste", "Fix the login bug.\nThen rest.")))
	w.Apply(session("lines", script("exec cat >> got"), promptOf("Paste", "rm -rf one\nrm -rf two")))
	for _, name := range []string{"away", "lines"} {
		w.UntilCondition(name, "PromptDelivered", "False/PromptHeld")
		w.UntilCondition(name, "Ready", "False/PromptHeld")
	}
	if m := w.Message("away", "PromptDelivered"); !strings.Contains(m, "foreground") {
		t.Errorf("it says %q", m)
	}
	w.Always(2*time.Second, "nothing is typed", func() bool {
		return got(w, "away")+got(w, "lines") == "" && !strings.Contains(screen(w, "lines")+screen(w, "away"), "Fix")
	})
	nothingKept(w)
	w.Write(filepath.Join(w.Work, "away", "back"), "")
	w.Until("it is pasted when the session's program is back", func() bool { return got(w, "away") == pasted })
	w.UntilCondition("away", "PromptDelivered", "True/Delivered")
	w.MustCtl("delete", "session", "lines", "--wait", "--timeout=30s")
}

// An agent gets its prompt by the terminal, when its screen shows that it takes
// one, and in its conversation only once.
func TestPromptOfAnAgent(t *testing.T) {
	t.Parallel()
	w := agents(t)
	w.Apply(agent(w, "bot", "{profile: claude}", quick, "startupPrompt: {text: remember seven}"))
	untilStarts(w, "bot", 1)
	w.UntilCondition("bot", "PromptDelivered", "True/Delivered")
	w.Until("it has noted it", func() bool { return strings.Contains(screen(w, "bot"), "noted: remember seven") })
	w.Kill(w.Main("bot"), syscall.SIGKILL)
	untilStarts(w, "bot", 2)
	w.MustCtl("delete", "session", "bot", "--wait", "--timeout=30s")
	name := strings.TrimPrefix(strings.TrimSpace(w.MustCtl("get", "quarantines", "-o", "name")), "quarantine/")
	w.MustCtl("restore", name) // another UID, and the same conversation
	w.Until("it is back", func() bool { return w.Session("bot") != nil })
	untilStarts(w, "bot", 3)
	w.UntilCondition("bot", "PromptDelivered", "True/NotAsked")
	w.Always(time.Second, "it was said once", func() bool { return strings.Count(screen(w, "bot"), "remember seven") == 1 })
}

// A skcd that dies between the receipt and the proof leaves it Unknown, which the
// user sees, and which no later one ends by itself.
func TestPromptOfAControllerThatDied(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ delivery, place, program, most string }{
		// A paste waits for readiness, and an argument comes before it.
		{"Paste", "tmux.paste:before", reads, ""},
		{"Paste", "tmux.paste:after", reads, "\x1b[200~Fix it.\x1b[201~"},
		{"Paste", "tmux.enter:before", reads, "\x1b[200~Fix it.\x1b[201~"},
		{"Paste", "tmux.enter:after", reads, "\x1b[200~Fix it.\x1b[201~|"},
		{"Argument", "launch.write:before", `printf '%s' "$*" >> got; exec sleep 6000`, ""},
		{"Argument", "launch.write:after", `printf '%s' "$*" >> got; exec sleep 6000`, ""},
	} {
		t.Run(c.place, func(t *testing.T) {
			t.Parallel()
			w := world.New(t, true)
			w.Env = append(w.Env, "SKC_FAULT="+c.place+"=kill")
			more := []string{quick}
			if c.delivery == "Paste" {
				more = append(more, whenReads)
			}
			text := session("d", script(c.program, "sh"), append(more, promptOf(c.delivery, "Fix it."))...)
			w.Drop("d.yaml", text)
			died, _ := w.StartOrDie()
			w.Until("skcd has died", func() bool { return !died.Alive() })
			w.Env = w.Env[:len(w.Env)-1]
			w.Start()
			w.UntilCondition("d", "PromptDelivered", "Unknown/PromptUnknown")
			w.UntilCondition("d", "Ready", "Unknown/PromptUnknown")
			once(w, "d", strings.ReplaceAll(strings.Replace(text, "plainDir", "existingPath", 1), "@WORK@", w.Work), func(what string) {
				w.Helper()
				w.UntilCondition("d", "PromptDelivered", "Unknown/PromptUnknown")
				w.Always(time.Second, "nothing more is delivered after "+what, func() bool { return got(w, "d") == c.most })
			})
			if !slices.ContainsFunc(w.Events("d"), func(e string) bool { return strings.HasPrefix(e, "PromptUnknown") }) {
				t.Errorf("the events are %q", w.Events("d"))
			}
			w.Drop("d.yaml", session("d", script(c.program, "sh"), more...)) // somebody has looked
			w.UntilRunning("d")
		})
	}
}

// A canary in a prompt, an env value, a file of a value, and the secret of the
// lifecycle control are in the programs, and else only in the files of 0600 that
// the user wrote, and in the object as he wrote it.
func TestSecretsAndPromptsNowhere(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	canary := func() string { return "CANARY-" + world.Random() }
	inText, inFile, inRef, inEnv, inValue, inSecret := canary(), canary(), canary(), canary(), canary(), canary()
	all := []string{inText, inFile, inRef, inEnv, inValue, inSecret}
	ofSpec := []string{inText, inRef, inEnv} // which the object holds as the user wrote them
	path := func(name string) string { return filepath.Join(w.Dir, name) }
	w.Write(path("prompt"), inFile+"\n")
	w.Write(path("value"), inValue+"\n")
	w.Write(path("secret"), inSecret+"\n")
	w.Config(fmt.Sprintf("lifecycle: {secretFile: %q, pairedChat: \"42\", profile: shell}\n", path("secret")))

	stop, seen := make(chan struct{}), make(chan string, 1)
	var watch sync.WaitGroup
	watch.Add(1)
	looks := 0
	go func() {
		defer watch.Done()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			looks++
			for _, line := range world.CmdLines() {
				for _, c := range all {
					if bytes.Contains(line, []byte(c)) {
						select {
						case seen <- string(line):
						default:
						}
					}
				}
			}
		}
	}()
	w.Start("-v", "99")
	address, token := controlOf(w)
	env := fmt.Sprintf("env: [{name: A, value: %s}, {name: B, valueFrom: {file: %q}}]", inEnv, path("value"))
	keep := `printf '%s %s' "$A" "$B" > env; `
	w.Drop("text.yaml", session("text", script(keep+reads), quick, whenReads, env, promptOf("Paste", inText)))
	w.Drop("file.yaml", session("file", script(keep+reads), quick, whenReads, env, fmt.Sprintf("startupPrompt: {delivery: Paste, file: %q}", path("prompt"))))
	w.Drop("ref.yaml", session("ref", script(keep+takes), quick, env, promptOf("File", inRef)))
	w.Drop("held.yaml", session("held", script("exec cat"), env, promptOf("Paste", inText+"\n"+inText)))
	w.Drop("bad.yaml", session("bad", script("exec cat"), env, promptOf("Paste", "\x1b"+inText)))
	create := fmt.Sprintf(`{"type":"session_create","requestId":"r1","lifecycleRequestId":"l1","intendedSessionId":"s1","updateId":1,"chatId":"42","target":{"kind":"existing_path","path":%q}}`, w.Work)
	for _, frame := range []string{create, create, strings.Replace(create, `"updateId":1`, `"updateId":2,"startupPromptRef":"`+inText+`"`, 1)} {
		for _, answer := range ask(w, address, token, frame) {
			for _, c := range all {
				if strings.Contains(answer, c) {
					t.Errorf("an answer holds a secret: %s", answer)
				}
			}
		}
	}
	names := []string{"text", "file", "ref"}
	for _, name := range names {
		w.UntilCondition(name, "PromptDelivered", "True/Delivered")
	}
	w.UntilCondition("held", "PromptDelivered", "False/PromptHeld")
	w.UntilCondition("bad", "PromptDelivered", "False/PromptRefused")
	for i, name := range names {
		w.Kill(w.Main(name), syscall.SIGKILL)
		if want := []string{inText, inFile, inRef}[i]; strings.Count(got(w, name), want) != 1 {
			t.Errorf("%s got %q", name, got(w, name))
		}
		if want := inEnv + " " + inValue; w.Lines(name + "/env")[0] != want {
			t.Errorf("%s has %q", name, w.Lines(name+"/env"))
		}
	}
	w.Stop(syscall.SIGKILL)
	w.Start("-v", "99")
	for _, name := range names {
		w.UntilRunning(name)
	}

	said := map[string]string{}
	for _, args := range [][]string{{"get", "-A", "-o", "wide"}, {"describe", "-A"}, {"events"}, {"get", "sources", "-o", "wide"}, {"get", "sessionrequests", "-A", "-o", "yaml"},
		{"request", "export", "--format=ledger-v1"}} {
		r := w.Ctl(args...)
		said[fmt.Sprintf("skcctl %q", args)] = r.Out + r.Err
	}
	for _, args := range [][]string{
		{"list-buffers"}, {"show-environment", "-g"}, {"show-options", "-g"}, {"show-options", "-s"}, {"show-options", "-gw"}, {"show-hooks", "-g"},
		{"list-panes", "-a", "-F", "#{pane_start_command} #{pane_title} #{window_name} #{session_name}"},
		{"show-environment", "-t", "=text:"}, {"show-options", "-t", "=text:"}, {"show-options", "-p", "-t", "=text:"},
	} {
		said[fmt.Sprintf("tmux %q", args)] = w.MustTmux(args...)
	}
	for _, pid := range append(w.Servers(), w.Now().PID()) {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		world.Must(t, err)
		said[fmt.Sprintf("the environment of %d", pid)] = string(data)
	}
	logs, err := filepath.Glob(filepath.Join(w.Dir, "skcd-*"))
	world.Must(t, err)
	for _, log := range append(logs, w.Now().Log) {
		data, err := os.ReadFile(log)
		world.Must(t, err)
		said["the log "+log] = string(data)
	}
	close(stop)
	watch.Wait()
	select {
	case line := <-seen:
		t.Errorf("a secret was in the command line %q", line)
	default:
	}
	for what, text := range said {
		for i, c := range all {
			if strings.Contains(text, c) {
				t.Errorf("%s: it holds canary %d", what, i)
			}
		}
	}
	files := 0
	for _, dir := range []string{w.State, w.Run} {
		world.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			files++
			object := filepath.Dir(path) == filepath.Dir(w.StateFile("text"))
			for i, c := range all {
				if bytes.Contains(data, []byte(c)) && !(object && slices.Contains(ofSpec, c)) {
					t.Errorf("%s holds canary %d", path, i)
				}
			}
			return err
		}))
	}
	t.Logf("%d looks at all command lines, %d files, %d outputs", looks, files, len(said))
	if rows, err := os.ReadFile(filepath.Join(w.State, "audit", "telegram-lifecycle-audit.jsonl")); err != nil || len(rows) == 0 {
		t.Errorf("nothing was audited, %v", err)
	}
}
