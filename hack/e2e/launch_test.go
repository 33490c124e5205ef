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

// B-010: a command that looks like tmux's options is a program's name.
func TestB010CommandThatLooksLikeAnOption(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	for i, command := range []string{`["-e", "X=1", "sleep", "600"]`, `["--", "sleep", "600"]`, `["-d"]`, `[";", "kill-server"]`, `["sleep;", "600"]`} {
		name := fmt.Sprintf("dash-%d", i)
		w.Apply(session(name, command, "restartPolicy: Never"))
		w.UntilCondition(name, "Ready", "False/CommandNotFound")
		if s := w.Status(name); s.Status.LastTermination == nil || s.Status.LastTermination.Reason != "CommandNotFound" {
			t.Errorf("%s: the certificate is %+v", command, s.Status.LastTermination)
		}
	}
	if n := len(w.Procs()); n != 0 {
		t.Errorf("%d processes run: %+v", n, w.Procs())
	}
}

// B-011, case 004: seven arguments, byte for byte.
func TestB011ArgvExact(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	w.Drop("argv.yaml", caseFile(w, "004-argv-exact", "argv.yaml"))
	w.UntilRunning("argv")
	want := "[a b][$HOME][it's][*][][back\\\\slash][line1\nline2]"
	w.Until("out has the seven arguments", func() bool {
		b, _ := os.ReadFile(filepath.Join(w.Work, "argv", "out"))
		return string(b) == want
	})
}

// B-011: a program that ends at once leaves its code and its last words.
func TestB011SilentEarlyExit(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	w.Apply(session("early", script("echo the last words; exit 3"), "restartPolicy: Never"))
	w.UntilCondition("early", "Ready", "False/Error")
	d := w.Status("early").Status.LastTermination
	if d == nil || d.ExitCode == nil || *d.ExitCode != 3 || !slices.Contains(d.LastLines, "the last words") {
		t.Errorf("the certificate is %+v", d)
	}
	if out := w.MustCtl("logs", "early"); !strings.Contains(out, "the last words") {
		t.Errorf("logs prints %q", out)
	}
}

// B-013: forty variables of a thousand bytes, and an argument as long as the
// kernel takes; one byte more is refused with the limit, at the door.
func TestB013LargeEnvironment(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	var env strings.Builder
	for i := range 40 {
		fmt.Fprintf(&env, "\n  - {name: V%02d, value: %q}", i, strings.Repeat(fmt.Sprint(i%10), 1000))
	}
	w.Apply(session("vars", script("env | grep -c '^V[0-9][0-9]=.\\{1000\\}$' > out; exec sleep 6000"), "env:"+env.String()))
	w.UntilRunning("vars")
	w.Until("all forty are there", func() bool { return slices.Equal(w.Lines("vars/out"), []string{"40"}) })

	w.Apply(session("most", script("printf %s \"$1\" | wc -c > out; exec sleep 6000", "x", strings.Repeat("q", 131071))))
	w.UntilRunning("most")
	w.Until("the longest argument is whole", func() bool { return slices.Equal(w.Lines("most/out"), []string{"131071"}) })

	text := session("more", script("exec sleep 6000", "x", strings.Repeat("q", 131072)))
	if r := w.CtlIn(strings.ReplaceAll(text, "@WORK@", w.Work), "apply", "-f", "-"); r.Code != 3 || !strings.Contains(r.Err, "131071") {
		t.Errorf("code %d, %.300s", r.Code, r.Err)
	}
	// Together more than the kernel takes: each alone is fine, so the start says it.
	many := slices.Repeat([]string{strings.Repeat("q", 100000)}, 9)
	for i := range 4 {
		w.Apply(session(fmt.Sprintf("part-%d", i), script("exec sleep 6000", append([]string{"x"}, many...)...)))
		w.UntilRunning(fmt.Sprintf("part-%d", i))
	}
}

// B-014: after the tmux server is gone and started again by a controller of
// another environment, sessions still have what spec and config say.
func TestB014EnvironmentAfterServerRestart(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Env = []string{"FOO=first", "LANG=xx_XX", "SSH_AUTH_SOCK=/tmp/agent"}
	w.Start()
	w.Apply(session("show", script("env | sort > out; exec sleep 6000"), "env: [{name: BAR, value: \"2\"}]"))
	read := func() []string {
		var out []string
		w.Until("the environment is written", func() bool { out = w.Lines("show/out"); return len(out) > 5 })
		return slices.DeleteFunc(out, func(l string) bool { return strings.HasPrefix(l, "TMUX") })
	}
	w.UntilRunning("show")
	first := read()
	for _, v := range first {
		if strings.HasPrefix(v, "FOO=") || strings.HasPrefix(v, "SSH_AUTH_SOCK=") || v == "LANG=xx_XX" {
			t.Errorf("%s is inherited", v)
		}
	}
	if !slices.Contains(first, "BAR=2") || !slices.Contains(first, "SKCE_WORLD="+w.Dir) {
		t.Errorf("spec or config is missing in %q", first)
	}
	// What somebody sets in tmux by hand is not of spec and config either.
	w.MustTmux("set-environment", "-g", "FOO", "by-hand")
	w.MustTmux("set-environment", "-t", "=show:", "FOO", "by-hand")
	world.Must(t, os.Remove(filepath.Join(w.Work, "show", "out")))
	w.MustCtl("restart", "show")
	if again := read(); !slices.Equal(first, again) {
		t.Errorf("the environment went from\n%q to\n%q", first, again)
	}
	w.UntilRunning("show")
	w.Stop(syscall.SIGTERM)
	world.Must(t, os.Remove(filepath.Join(w.Work, "show", "out")))
	for _, pid := range w.Servers() {
		w.Kill(pid, syscall.SIGKILL)
	}
	w.Env = []string{"FOO=second", "LANG=yy_YY"}
	w.Start()
	w.UntilRunning("show")
	if second := read(); !slices.Equal(first, second) {
		t.Errorf("the environment went from\n%q to\n%q", first, second)
	}
	if out := w.MustTmux("show-environment", "-g"); strings.Contains(out, "FOO=") || strings.Contains(out, "SKCE_CANARY") {
		t.Errorf("the server's environment has\n%s", out)
	}
}

// R30: nasty strings in arguments, environment, labels and annotations arrive
// byte for byte, and nothing of them is ever run.
func TestR30Injection(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start("-v", "1")
	marker := filepath.Join(w.Dir, "ran")
	nasty := []string{
		"$(touch " + marker + ")", "`touch " + marker + "`", "; touch " + marker, "| touch " + marker, "&& touch " + marker,
		"#(touch " + marker + ")", "#{session_name}", "#[fg=red]", "%1", "$7", "=web:", "{last}", "~", "!", "@0",
		"--upload-pack=touch " + marker, "-c core.pager=touch " + marker, "../../etc/passwd", "/dev/null", "*", "?", "[a-z]",
		"\x1b]0;title\x07", "\x1b[31m", "\x1b]52;c;ZXZpbA==\x07", "a\nb", "a\r\nb", "\ttab", "\u202eevil", "é日本", " ", "", "'", "\"", "\\", "\\\\", ";", "a;", "};", "'; kill-server; '",
		"%%", "%s%n", "{{.}}", "${PATH}", "<script>", "\u0085", "\u2028",
	}
	args, env, notes := []string{"sh", "-c", quote(`i=0; for a in "$@"; do printf '%s' "$a" > a$i; i=$((i+1)); done; i=0; while [ $i -lt $COUNT ]; do eval "printf '%s' \"\$E$i\"" > e$i; i=$((i+1)); done; : > done; exec sleep 6000`), "x"}, fmt.Sprintf("\n  - {name: COUNT, value: %q}", fmt.Sprint(len(nasty))), ""
	for i, s := range nasty {
		args = append(args, yamlText(s))
		env += fmt.Sprintf("\n  - {name: E%d, value: %s}", i, yamlText(s))
		notes += fmt.Sprintf("\n    n%d: %s", i, yamlText(s))
	}
	text := session("nasty", "["+strings.Join(args, ", ")+"]", "env:"+env)
	text = strings.Replace(text, "metadata: {name: nasty}", "metadata:\n  name: nasty\n  annotations:"+notes, 1)
	w.Apply(text)
	p := w.UntilRunning("nasty")
	w.Until("the program wrote all", func() bool { _, err := os.Stat(filepath.Join(w.Work, "nasty", "done")); return err == nil })
	for i, s := range nasty {
		for _, kind := range []string{"a", "e"} {
			if b, err := os.ReadFile(filepath.Join(w.Work, "nasty", fmt.Sprintf("%s%d", kind, i))); err != nil || string(b) != s {
				t.Errorf("%s%d: got %q, want %q (%v)", kind, i, b, s, err)
			}
		}
	}
	s := w.Status("nasty")
	for i, want := range nasty {
		if got := s.Annotations[fmt.Sprintf("n%d", i)]; got != want {
			t.Errorf("annotation %q came back as %q", want, got)
		}
	}
	// What a terminal would obey is harmless in what skcctl prints for people.
	for _, args := range [][]string{{"get", "-o", "wide"}, {"describe", "session", "nasty"}, {"get", "sources"}, {"events"}, {"get", "nasty", "-o", "custom-columns=A:.metadata.annotations.n22"}} {
		if out := w.MustCtl(args...); strings.ContainsAny(out, "\x1b\x07\r") {
			t.Errorf("skcctl %q prints escapes: %q", args, out)
		}
	}
	evil := "evil\x1b[31m\x07\u202e.yaml"
	w.Drop(evil, "kind: \"\\e[31m\"\n")
	w.Until("it is refused", func() bool { return strings.Contains(w.MustCtl("get", "sources"), "Invalid") })
	for _, args := range [][]string{{"get", "sources", "-o", "wide"}, {"apply", "-f", filepath.Join(w.Spool, evil)}, {"get", "no\x1b[31m"}, {"get", "nasty", "-o", "\x1b[31m"}, {"\x1b[31m"}} {
		if r := w.Ctl(args...); strings.ContainsAny(r.Out+r.Err, "\x1b\x07\r\u202e") {
			t.Errorf("skcctl %q prints escapes: %q %q", args, r.Out, r.Err)
		}
	}
	w.Remove(evil)
	// Labels take no such text; a name of a condition or a label is refused, not run.
	for _, s := range []string{"$(touch " + marker + ")", "#(touch " + marker + ")", "-x", "a b"} {
		r := w.CtlIn(strings.Replace(text, "  annotations:", "  labels: {l: "+yamlText(s)+"}\n  annotations:", 1), "apply", "-f", "-")
		if r.Code != 3 {
			t.Errorf("the label %q is taken: %d", s, r.Code)
		}
	}
	// Sent text is pasted, whatever it is.
	w.Apply(session("cat", "[cat]"))
	w.UntilRunning("cat")
	for _, s := range []string{"#(touch " + marker + ")", "; kill-server", "$(touch " + marker + ")", "-X cancel", "Enter"} {
		w.MustCtl("send", "cat", "--enter", "--", s)
		w.Until("it shows "+s, func() bool { return strings.Contains(w.MustCtl("logs", "cat"), s) })
	}
	w.MustCtl("restart", "nasty")
	w.Until("it is restarted", func() bool { m := w.Mains("nasty"); return len(m) == 1 && m[0] != p })
	w.MustCtl("delete", "session", "nasty", "--wait")
	if _, err := os.Stat(marker); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something was run")
	}
}

// yamlText is a text as a double-quoted YAML scalar.
func yamlText(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028:
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// R29: a secret in an env value and one from a file are in the program, and in
// no command line at any moment, no file of skc but the user's own and the
// object's, no log, no event, no tmux environment or option.
func TestR29SecretNowhere(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	secret := filepath.Join(w.Dir, "token")
	inFile, inSpec := "CANARY-"+world.Random(), "CANARY-"+world.Random()
	w.Write(secret, inFile+"\n")
	canaries := [][]byte{[]byte(inFile), []byte(inSpec)}

	stop, seen := make(chan struct{}), make(chan string, 1)
	var watch sync.WaitGroup
	watch.Add(1)
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
			for _, line := range world.CmdLines() {
				for _, c := range canaries {
					if bytes.Contains(line, c) {
						select {
						case seen <- string(line):
						default:
						}
					}
				}
			}
		}
	}()
	w.Start("-v", "1")
	w.Drop("secret.yaml", session("secret", script("sleep 0.3; kill -9 $$"),
		"restart: {initialBackoff: 200ms, maxBackoff: 500ms}",
		fmt.Sprintf("env: [{name: A, value: %s}, {name: B, valueFrom: {file: %q}}]", inSpec, secret)))
	w.Until("it was restarted three times", func() bool { s := w.Session("secret"); return s != nil && s.Status.Restarts.Total >= 3 })
	w.Drop("secret.yaml", session("secret", script("printf '%s %s\\n' $A $B > out; exec sleep 6000"),
		fmt.Sprintf("env: [{name: A, value: %s}, {name: B, valueFrom: {file: %q}}]", inSpec, secret)))
	w.UntilRunning("secret")
	w.Until("the program has both", func() bool { return slices.Equal(w.Lines("secret/out"), []string{inSpec + " " + inFile}) })
	w.MustCtl("restart", "secret")
	w.MustCtl("wait", "secret", "--for=condition=Ready")
	w.Drop("broken.yaml", strings.Replace(session("broken", "[cat]", fmt.Sprintf("env: [{name: A, value: %s, valu: %s}]", inSpec, inSpec)), "@WORK@", w.Work, 1))
	w.Until("the broken file is reported", func() bool { return strings.Contains(w.MustCtl("get", "sources"), "Invalid") })
	for _, args := range [][]string{{"get", "-o", "wide"}, {"describe"}, {"events"}, {"get", "sources", "-o", "wide"}, {"logs", "secret"}} {
		r := w.Ctl(args...)
		for _, c := range canaries {
			if strings.Contains(r.Out+r.Err, string(c)) {
				t.Errorf("skcctl %q prints a secret", args)
			}
		}
	}
	tmux := w.MustTmux("show-environment", "-g") + w.MustTmux("show-environment", "-t", "=secret:") + w.MustTmux("show-options", "-g") +
		w.MustTmux("show-options", "-s") + w.MustTmux("show-options", "-t", "=secret:") + w.MustTmux("list-panes", "-a", "-F", "#{pane_start_command}#{pane_title}#{window_name}")
	close(stop)
	watch.Wait()
	select {
	case line := <-seen:
		t.Errorf("a secret was in the command line %q", line)
	default:
	}
	for i, c := range canaries {
		if strings.Contains(tmux, string(c)) {
			t.Error("tmux holds a secret")
		}
		if strings.Contains(w.Now().Text(), string(c)) {
			t.Error("the log holds a secret")
		}
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
				// The object holds the spec as the user wrote it, in 0600 files.
				object := path == w.StateFile("secret") || path == filepath.Join(filepath.Dir(w.StateFile("secret")), ".secret.yaml.durable")
				if own := i == 1 && object; bytes.Contains(data, c) && !own {
					t.Errorf("%s holds a secret", path)
				}
				return err
			}))
		}
	}
	w.Remove("broken.yaml")
}
