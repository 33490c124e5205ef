//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skc.dev/skc/hack/e2e/world"
)

// refused drops a file and applies it too: both refuse it, with the same
// message but for the file's name, and the message is returned.
func refused(w *world.World, file, text string) string {
	w.Helper()
	text = strings.ReplaceAll(text, "@WORK@", w.Work)
	in := filepath.Join(w.Dir, file)
	w.Write(in, text)
	r := w.Ctl("apply", "-f", in)
	if r.Code != 3 {
		w.Errorf("%s: apply ended with %d: %s%s", file, r.Code, r.Out, r.Err)
	}
	w.Drop(file, text)
	path := filepath.Join(w.Spool, file)
	message := ""
	w.Until(file+" is refused", func() bool {
		for line := range strings.Lines(w.MustCtl("get", "sources", "-o", "wide")) {
			if f := strings.Fields(line); len(f) > 3 && f[0] == path && f[2] == "Invalid" {
				_, message, _ = strings.Cut(line, "Invalid")
				message = strings.TrimSpace(message)
				return true
			}
		}
		return false
	})
	// The same verdict in the same words.
	for _, line := range strings.Split(strings.TrimSpace(r.Err), "\n") {
		told := strings.TrimPrefix(line, in)
		if told = strings.TrimLeft(told, ": "); told != "" && !strings.Contains(message, told) {
			w.Errorf("%s: apply says %q, the spool %q", file, told, message)
		}
	}
	if runs := w.Procs(); len(runs) != 0 {
		w.Errorf("%s: %v runs", file, runs)
	}
	w.Remove(file)
	return message
}

// B-071, case 031: values that YAML reads as something else are refused with
// field and hint; quoted, they are the text that was written.
func TestB071ImplicitTypes(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	text := caseFile(w, "031-implicit-types", "n.yaml")
	m := refused(w, "n.yaml", text)
	for _, want := range []string{"spec.env[0].value", "spec.env[11].value", "spec.command[3]", "spec.command[4]", "quotes"} {
		if !strings.Contains(m, want) {
			t.Errorf("%s is not told of: %s", want, m)
		}
	}
	m = strings.ReplaceAll(m, w.Dir, "") // whose name has digits of its own
	for _, bad := range []string{"false", " 1.1 ", "83", "1000", "45045", "2024-01-01T"} {
		if strings.Contains(m, bad) {
			t.Errorf("the message has %q: %s", bad, m)
		}
	}
	refused(w, "label.yaml", strings.Replace(session("l", "[cat]"), "{name: l}", "{name: l, labels: {a: no}}", 1))
	refused(w, "command.yaml", session("c", "[echo, 010]"))

	values := []string{"NO", "yes", "on", "true", "1.10", "0123", "1e3", "~", "2024-01-01", "12:30:45", "0x1F", ".inf", "null", "0b1", "1_000"}
	env := "env:"
	for i, v := range values {
		env += "\n  - {name: T_" + string(rune('a'+i)) + ", value: \"" + v + "\"}"
	}
	w.Drop("q.yaml", session("quoted", script("env | grep ^T_ | sort > out; printf '%s\\n' \"$@\" > argv; exec sleep 6000", append([]string{"x"}, values...)...), env))
	w.UntilRunning("quoted")
	w.Until("the texts arrive", func() bool { return len(w.Lines("quoted/argv")) == len(values) })
	if got := w.Lines("quoted/argv"); !slices.Equal(got, values) {
		t.Errorf("argv %q, want %q", got, values)
	}
	for i, got := range w.Lines("quoted/out") {
		if want := "T_" + string(rune('a'+i)) + "=" + values[i]; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// B-073, case 033: a key that is there twice, two variables of one name, a merge
// key: refused, both lines named.
func TestB073DuplicateKeys(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	m := refused(w, "d.yaml", caseFile(w, "033-duplicate-keys", "d.yaml"))
	if !strings.Contains(m, "6") || !strings.Contains(m, "9") || !strings.Contains(m, "command") {
		t.Errorf("both lines and the key are not named: %s", m)
	}
	m = refused(w, "e.yaml", caseFile(w, "033-duplicate-keys", "e.yaml"))
	if !strings.Contains(m, "env") {
		t.Errorf("the field is not named: %s", m)
	}
	refused(w, "merge.yaml", "base: &b {command: [cat]}\n"+session("m", "[cat]", "<<: *b"))
	refused(w, "alias.yaml", session("m", "&c [cat]"))
}

// B-074, case 034: all documents or none, by apply and by the spool.
func TestB074DocumentSeparators(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	m := refused(w, "half.yaml", caseFile(w, "034-document-separators", "half.yaml"))
	if m == "" {
		t.Error("nothing is told")
	}
	if out := strings.TrimSpace(w.MustCtl("get", "-o", "name")); out != "" {
		t.Errorf("there are %s", out)
	}
	multi := caseFile(w, "034-document-separators", "multi.yaml")
	r := w.CtlIn(multi, "apply", "-f", "-", "--dry-run")
	if r.Code != 0 || strings.Count(r.Out, "created") != 3 {
		t.Errorf("apply: code %d, %s%s", r.Code, r.Out, r.Err)
	}
	w.Drop("multi.yaml", multi)
	for _, s := range []string{"m1", "m2", "m3"} {
		w.UntilRunning(s)
	}
	if out := strings.Fields(w.MustCtl("get", "-o", "name")); len(out) != 3 {
		t.Errorf("sessions: %q", out)
	}
}

// B-076: text that looks like a number stays text, or is refused with the hint.
func TestB076NumberLikeStrings(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	for file, meta := range map[string]string{"name.yaml": "{name: 1e6}", "hex.yaml": "{name: a, labels: {l: 0x1F}}", "uid.yaml": "{name: a, annotations: {id: 00123}}", "sha.yaml": "{name: a, labels: {commit: 4225332e04}}"} {
		if m := refused(w, file, strings.Replace(session("NAME", "[cat]"), "{name: NAME}", meta, 1)); !strings.Contains(m, "quotes") {
			t.Errorf("%s: no hint to quote: %s", file, m)
		}
	}
	w.Apply(strings.Replace(session("NAME", "[cat]"), "{name: NAME}", `{name: "1e6", labels: {l: "0x1F", commit: "4225332e04"}, annotations: {id: "00123"}}`, 1))
	w.UntilRunning("1e6")
	s := w.Status("1e6")
	if s.Labels["l"] != "0x1F" || s.Labels["commit"] != "4225332e04" || s.Annotations["id"] != "00123" {
		t.Errorf("labels %v, annotations %v", s.Labels, s.Annotations)
	}
	if out := w.MustCtl("get", "-l", "commit=4225332e04", "-o", "name"); !strings.HasSuffix(strings.TrimSpace(out), "/1e6") {
		t.Errorf("by label: %q", out)
	}
}

// B-085, case 038: errors name file, line and field, never a value, at any
// verbosity.
func TestB085CanaryInError(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start("-v", "1")
	texts := map[string]string{
		"utf8.yaml": "apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: u}\nspec:\n  env:\n  - {name: KEY, value: \"CANARY-51ee\xff\"}\n",
		"type.yaml": session("t", "[cat]", "env: {KEY: CANARY-51ff}"),
		"enum.yaml": session("t", "[cat]", "restartPolicy: CANARY-5100"),
		"key.yaml":  session("t", "[cat]", "CANARY-5101: 1"),
		"long.yaml": session("t", "[cat]", "env: [{name: \"CANARY-5102 not a name\", value: x}]"),
	}
	for _, f := range []string{"a.yaml", "b.yaml", "c.yaml"} {
		texts[f] = caseFile(w, "038-canary-in-error", f)
	}
	for file, text := range texts {
		m := refused(w, file, text)
		// A field of the user's naming may be told; a value may not.
		if strings.Contains(m, "CANARY") && file != "key.yaml" {
			t.Errorf("%s: %s", file, m)
		}
		if file != "c.yaml" && file != "utf8.yaml" && !strings.Contains(m, "spec") {
			t.Errorf("%s: no field is named: %s", file, m)
		}
		for _, args := range [][]string{{"apply", "-f", filepath.Join(w.Dir, file)}, {"get", "sources"}, {"describe"}, {"events", "-A"}} {
			if r := w.Ctl(args...); strings.Contains(r.Out+r.Err, "CANARY") && file != "key.yaml" {
				t.Errorf("skcctl %q prints it: %s%s", args, r.Out, r.Err)
			}
		}
	}
	// A good object whose file goes bad.
	w.Drop("live.yaml", session("live", sleeper, "env: [{name: A, value: one}]"))
	w.UntilRunning("live")
	w.Drop("live.yaml", session("live", sleeper, "env: [{name: A, value: CANARY-51aa}, {name: N, value: [1]}]"))
	w.UntilCondition("live", "Ready", "False/InvalidSpec")
	data, err := os.ReadFile(w.StateFile("live"))
	world.Must(t, err)
	if strings.Contains(string(data), "CANARY") || strings.Contains(w.Now().Text(), "CANARY") {
		t.Errorf("status or log has it:\n%s\n%s", data, w.Now().Text())
	}
}

// Wrong kind, wrong version, unknown field: one clear error, the same by apply
// and by the spool.
func TestBadInput(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Start()
	for file, text := range map[string]string{
		"kind.yaml":    strings.Replace(session("x", "[cat]"), "kind: Session", "kind: Pod", 1),
		"version.yaml": strings.Replace(session("x", "[cat]"), "v1alpha1", "v9", 1),
		"field.yaml":   session("x", "[cat]", "comand: [cat]"),
		"none.yaml":    strings.Replace(session("x", "[]"), "plainDir", "existingPath", 1),
		"both.yaml":    strings.Replace(session("x", "[cat]"), "{plainDir: {path: \"@WORK@/x\"}}", "{plainDir: {path: /a}, existingPath: {path: /b}}", 1),
		"range.yaml":   session("x", "[cat]", "terminal: {columns: 100000}"),
		"own.yaml":     session("x", "[cat]", "env: [{name: SKC_SESSION_UID, value: x}]"),
		"list.yaml":    "- a\n- b\n",
		"scalar.yaml":  "hello\n",
	} {
		if m := refused(w, file, text); m == "" {
			t.Errorf("%s: nothing is told", file)
		}
	}
}
