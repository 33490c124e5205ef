package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api"
)

// canary stands where a secret would; no message may hold any of it.
const canary = "CANARY-51aa"

const head = `apiVersion: skc.dev/v1alpha1
kind: Session
metadata: {name: web}
spec:
`

// good is head and the fields that a spec must have; text put after it is in spec.
const good = head + `  target: {plainDir: {path: /srv/web}}
  command: [sh]
`

func withEnv(item string) string {
	return good + "  env:\n  - {name: KEY, value: " + canary + "}\n  - " + item + "\n"
}

func utf16File(s string) string {
	var b bytes.Buffer
	b.WriteString("\xff\xfe")
	for _, u := range utf16.Encode([]rune(s)) {
		b.Write([]byte{byte(u), byte(u >> 8)})
	}
	return b.String()
}

// Every kind of bad input has one clear problem list: file, line, field, rule.
func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		in   string
		want string // the whole error, less the file's name
	}{
		// The bytes.
		{"oversized", good + strings.Repeat("# long\n", MaxFileBytes/7), "f: the file is larger than 1048576 bytes"},
		{"not UTF-8 beside a secret", withEnv("{name: N, value: \xff}"), "f:9: the file is not UTF-8"},
		{"Latin-1", good + "  # caf\xe9\n", "f:7: the file is not UTF-8"},
		{"UTF-16", utf16File(good), "f:1: the file is UTF-16: save it as UTF-8"},
		{"NUL", withEnv("{name: N, value: \"a\x00b\"}"), "f:9: the file holds a NUL byte"},
		{"NUL written as an escape", withEnv(`{name: B, value: "a\0b"}`), "f:9: spec.env[1].value: may hold no NUL"},
		{"control character", withEnv("{name: B, value: \x07}"), `f:9: the file holds a control character: in double quotes write it as \xNN`},
		{"control character above ASCII", withEnv("{name: B, value: \u0090}"), `f:9: the file holds a control character: in double quotes write it as \xNN`},

		// The grammar.
		{"unparsable", withEnv("{name: N, value: [}"), "f:9: this is not YAML: did not find expected node content"},
		{"tabs", good + "\tenv: []\n", "f:7: this is not YAML: found character that cannot start any token"},
		{"open quote beside a secret", good + "  env:\n  - {name: KEY, value: \"" + canary + "}\n", "f:8: this is not YAML: found unexpected end of stream"},
		{"second document broken", good + "---\n" + head + "  x: [\n", "f:12: this is not YAML: did not find expected node content"},
		{"a marker inside a block scalar is a marker", good + "  env:\n  - name: A\n    value: |\n      a\n---\n      b\n", "f:12: a document must be a mapping with apiVersion, kind, metadata and spec"},
		{"a marker that only the parser sees", good + "  # x\u2028---\u2028a: b\n", "f:1: a document marker must stand on a line of its own"},
		{"directive", "%YAML 1.2\n---\n" + good, "f:1: directives (%YAML, %TAG) are not allowed"},
		{"a list", "- a\n", "f:1: a document must be a mapping with apiVersion, kind, metadata and spec"},
		{"text", "hello\n", "f:1: a document must be a mapping with apiVersion, kind, metadata and spec"},
		{"too deep", good + "  x: " + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "\n", "f:7: spec.x" + strings.Repeat("[0]", 62) + ": nested deeper than 64 levels"},
		{"far too deep", good + "  x: " + strings.Repeat("[", 200000) + "\n", "f:7: this is not YAML: exceeded max depth of 10000"},
		{"far too deep by indentation", good + "  x:\n  " + strings.Repeat("- ", 200000) + "\n", "f:7: this is not YAML: exceeded max depth of 10000"},

		// What makes YAML more than data.
		{"alias", withEnv("&a {name: N, value: x}") + "  - *a\n", "f:9: spec.env[1]: anchors are not allowed\nf:10: spec.env[2]: aliases are not allowed: write the value out"},
		{"alias to nothing", withEnv("*nothing"), "f:9: aliases are not allowed: write the value out"},
		{"alias bomb", "a: &a [x,x,x,x,x,x,x,x,x]\n" + bomb(), "f:1: a: anchors are not allowed\nf:2: b[0]: aliases are not allowed: write the value out"},
		{"merge key", withEnv("{<<: {name: N}, value: x}"), "f:9: spec.env[1]: merge keys are not allowed: write the fields out"},
		{"tag", withEnv("{name: N, value: !!str 010}"), "f:9: spec.env[1].value: tags are not allowed: for text use quotes"},
		{"own tag", withEnv("{name: N, value: !secret x}"), "f:9: spec.env[1].value: tags are not allowed: for text use quotes"},
		{"binary", withEnv("{name: N, value: !!binary aGk=}"), "f:9: spec.env[1].value: tags are not allowed: for text use quotes"},
		{"duplicate key", good + "  suspend: false\n  command: [" + canary + "]\n", "f:8: spec.command: is there twice: lines 6 and 8"},
		{"duplicate key on the secret line", withEnv("{name: N, value: a, value: " + canary + "}"), "f:9: spec.env[1].value: is there twice: lines 9 and 9"},
		{"a list as key", good + "  [a]: b\n", "f:7: spec: a key must be text: put it in quotes"},
		{"number as key", "metadata: {labels: {1: a}}\n" + good[:0] + "kind: Session\napiVersion: skc.dev/v1alpha1\n", "f:1: metadata.labels: a key must be text: put it in quotes"},
		{"yes as key", strings.Replace(good, "{name: web}", "{name: web, labels: {yes: a}}", 1), "f:3: metadata.labels[yes]: the key must be text: put it in quotes"},
		{"a value that lost its key", withEnv("{name: B, CANARY51aa}"), "f:9: spec.env[1].(a key): unknown field"},

		// What it is.
		{"no kind", "apiVersion: skc.dev/v1alpha1\n", "f:1: kind: is required: known are KINDS of skc.dev/v1alpha1"},
		{"wrong kind", strings.Replace(good, "Session", "Sesion", 1), "f:2: kind: unknown: did you mean Session?: known are KINDS of skc.dev/v1alpha1"},
		{"wrong apiVersion", strings.Replace(good, "v1alpha1", "v1", 1), "f:1: apiVersion: unknown: known are KINDS of skc.dev/v1alpha1"},
		{"foreign kind", "apiVersion: v1\nkind: Secret\ndata: " + canary + "\n", "f:1: apiVersion: unknown: known are KINDS of skc.dev/v1alpha1\nf:2: kind: unknown: known are KINDS of skc.dev/v1alpha1"},
		{"kind is a number", strings.Replace(good, "Session", "1", 1), "f:2: kind: must be text"},

		// Metadata.
		{"no metadata", strings.Replace(good, "metadata: {name: web}\n", "", 1), "f:1: metadata.name: is required"},
		{"no name", strings.Replace(good, "{name: web}", "{}", 1), "f:3: metadata.name: is required"},
		{"name is a number", strings.Replace(good, "web}", "1e6}", 1), "f:3: metadata.name: must be text: put it in quotes"},
		{"dotted name", strings.Replace(good, "web}", "rel-3.1.9}", 1), `f:3: metadata.name: "rel-3.1.9" is no name: a name is at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit`},
		{"climbing name", strings.Replace(good, "web}", "../other}", 1), `f:3: metadata.name: "../other" is no name: a name is at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit`},
		{"name with a line end", strings.Replace(good, "web}", `"a\nb"}`, 1), `f:3: metadata.name: "a\nb" is no name: a name is at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit`},
		{"name of 300 bytes", strings.Replace(good, "web}", strings.Repeat("a", 300)+"}", 1), `f:3: metadata.name: "` + strings.Repeat("a", 80) + `\u2026" is no name: a name is at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit`},
		{"climbing namespace", strings.Replace(good, "web}", "web, namespace: ../x}", 1), "f:3: metadata.namespace: a namespace is at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"},
		{"unknown in metadata", strings.Replace(good, "web}", "web, label: {}}", 1), "f:3: metadata.label: unknown field: did you mean labels?"},
		{"label is a boolean", strings.Replace(good, "web}", "web, labels: {team: no}}", 1), "f:3: metadata.labels[team]: must be text: put it in quotes"},
		{"label value", strings.Replace(good, "web}", "web, labels: {team: a b}}", 1), "f:3: metadata.labels[team]: a label's value is at most 63 of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"},
		{"label key", strings.Replace(good, "web}", "web, labels: {a b: c}}", 1), "f:3: metadata.labels: a key is at most 63 of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, if need be after a DNS name and '/'"},
		{"annotation is a number", strings.Replace(good, "web}", "web, annotations: {a: 1}}", 1), "f:3: metadata.annotations[a]: must be text: put it in quotes"},

		// Fields.
		{"unknown at the top", good + "specs: {}\n", "f:7: specs: unknown field: did you mean spec?"},
		{"unknown fields", good + "  comand: [sh]\n  readines: {}\n  zzz: 1\n", "f:7: spec.comand: unknown field: did you mean command?\nf:8: spec.readines: unknown field: did you mean readiness?\nf:9: spec.zzz: unknown field"},
		{"unknown deep", withEnv("{name: B, valueFrom: {fiel: x}}"), "f:9: spec.env[1].valueFrom.fiel: unknown field: did you mean file?\nf:9: spec.env[1].valueFrom.file: is required"},
		{"no spec", "apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: web}\n", "f:1: spec: is required"},
		{"empty spec", strings.TrimSuffix(head, "\n") + " {}\n", "f:4: spec.target: is required"},
		{"spec without a value", head, "f:4: spec: has no value: must be a mapping, or left out"},
		{"value is a list", withEnv("{name: B, value: [1]}"), "f:9: spec.env[1].value: must be text"},
		{"value left empty", withEnv("{name: B, value: }"), "f:9: spec.env[1].value: has no value: for empty text write \"\""},
		{"command is text", head + "  target: {plainDir: {path: /a}}\n  command: npm run dev\n", "f:6: spec.command: must be a list"},
		{"empty command", head + "  target: {plainDir: {path: /a}}\n  command: []\n", "f:6: spec.command: has fewer than 1 items"},
		{"empty program", head + "  target: {plainDir: {path: /a}}\n  command: [\"\"]\n", "f:6: spec.command: the program's name may not be empty"},
		{"octal port", good + "  readiness: {tcp: {port: 010}}\n", "f:7: spec.readiness.tcp.port: must be a whole number, in plain decimal digits"},
		{"port in base 60", good + "  readiness: {tcp: {port: 1:30}}\n", "f:7: spec.readiness.tcp.port: must be a whole number"},
		{"port as text", good + "  readiness: {tcp: {port: \"80\"}}\n", "f:7: spec.readiness.tcp.port: must be a whole number"},
		{"port too large", good + "  readiness: {tcp: {port: 65536}}\n", "f:7: spec.readiness.tcp.port: must be from 1 to 65535"},
		{"port beyond an int64", good + "  readiness: {tcp: {port: 99999999999999999999}}\n", "f:7: spec.readiness.tcp.port: must be a whole number"},
		{"yes as boolean", good + "  suspend: yes\n", "f:7: spec.suspend: must be true or false"},
		{"enum", good + "  desiredState: " + canary + "\n", "f:7: spec.desiredState: must be one of Running, Stopped"},
		{"two targets", head + "  target: {plainDir: {path: /a}, existingPath: {path: /b}}\n  command: [sh]\n", "f:5: spec.target: exactly one of worktree, existingPath, plainDir is needed"},
		{"no target", head + "  target: {}\n  command: [sh]\n", "f:5: spec.target: exactly one of worktree, existingPath, plainDir is needed"},
		{"climbing path", head + "  target: {plainDir: {path: /a/../../etc}}\n  command: [sh]\n", `f:5: spec.target.plainDir.path: a path may not climb with ".."`},
		{"climbing path at the end", head + "  target: {plainDir: {path: ~/x/..}}\n  command: [sh]\n", `f:5: spec.target.plainDir.path: a path may not climb with ".."`},
		{"relative path", head + "  target: {plainDir: {path: a}}\n  command: [sh]\n", "f:5: spec.target.plainDir.path: must be an absolute path, or begin with ~/"},
		{"path of a user", head + "  target: {plainDir: {path: ~root/x}}\n  command: [sh]\n", "f:5: spec.target.plainDir.path: must be an absolute path, or begin with ~/"},
		{"env name", withEnv("{name: 1A, value: x}"), "f:9: spec.env[1].name: must be letters, digits and '_', not beginning with a digit"},
		{"env name of skc", withEnv("{name: SKC_SESSION_UID, value: x}"), "f:9: spec.env[1].name: names that begin with SKC_, and TMUX and TMUX_PANE, are kept for skc itself"},
		{"env name twice", withEnv("{name: KEY, value: x}"), "f:9: spec.env[1]: is there twice: lines 8 and 9 have the same name"},
		{"env without value", withEnv("{name: B}"), "f:9: spec.env[1]: exactly one of value, valueFrom is needed"},
		{"env with both", withEnv("{name: B, value: " + canary + ", valueFrom: {file: /x}}"), "f:9: spec.env[1]: exactly one of value, valueFrom is needed"},
		{"duration without unit", good + "  stop: {gracePeriod: 10}\n", "f:7: spec.stop.gracePeriod: must be text: put it in quotes"},
		{"duration in words", good + "  stop: {gracePeriod: ten}\n", "f:7: spec.stop.gracePeriod: must be a duration, as 500ms, 10s or 1h30m"},
		{"duration too long", good + "  stop: {gracePeriod: 2h}\n", "f:7: spec.stop.gracePeriod: must be between 0s and 1h"},
		{"duration that overflows", good + "  stop: {gracePeriod: 99999999999h}\n", "f:7: spec.stop.gracePeriod: must be between 0s and 1h"},
		{"backoffs crossed", good + "  restart:\n    initialBackoff: 1h\n", "f:7: spec.restart: initialBackoff may not be longer than maxBackoff"},
		{"two probes", good + "  readiness: {tcp: {port: 1}, file: {path: a}}\n", "f:7: spec.readiness: exactly one of exec, file, tcp, http, screen is needed"},
		{"no prompt", good + "  startupPrompt: {}\n", "f:7: spec.startupPrompt: exactly one of text, file is needed"},
		{"two prompts", good + "  startupPrompt: {text: " + canary + ", file: /a}\n", "f:7: spec.startupPrompt: exactly one of text, file is needed"},
		{"prompt by mail", good + "  startupPrompt: {text: " + canary + ", delivery: Mail}\n", "f:7: spec.startupPrompt.delivery: must be one of File, Paste, Argument"},
		{"prompt with a NUL", good + "  startupPrompt: {text: \"" + canary + "\\0\"}\n", "f:7: spec.startupPrompt.text: may hold no NUL"},
		{"empty prompt", good + "  startupPrompt: {text: \"\"}\n", "f:7: spec.startupPrompt.text: is shorter than 1 characters"},
		{"screen pattern", good + "  readiness: {screen: {pattern: \"(" + canary + "\"}}\n", "f:7: spec.readiness.screen.pattern: must be a regular expression (RE2 syntax)"},
		{"too wide", good + "  terminal: {columns: 5000}\n", "f:7: spec.terminal.columns: must be from 10 to 1000"},

		// Several documents.
		{"one object twice", good + "---\n" + good, "f:8: metadata.name: session/default/web is there twice: lines 1 and 8"},
		{"all problems of all documents", good + "  a: 1\n---\n" + good + "  b: 1\n", "f:7: spec.a: unknown field\nf:15: spec.b: unknown field"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode("f", []byte(c.in))
			if err == nil {
				t.Fatalf("accepted, want %s", c.want)
			}
			c.want = strings.ReplaceAll(c.want, "KINDS", strings.Join(Kinds(), ", "))
			got := err.Error()
			if got != c.want {
				t.Errorf("error\n got: %s\nwant: %s", got, c.want)
			}
			if strings.Contains(got, "CANARY") {
				t.Errorf("the error holds a value of the file: %s", got)
			}
			if _, err := Decode("f", []byte(strings.ReplaceAll(c.in, "\n", "\r\n"))); err == nil || (err.Error() != c.want && c.name != "oversized" && c.name != "UTF-16") {
				t.Errorf("with CRLF line ends\n got: %v\nwant: %s", err, c.want)
			}
		})
	}
}

func bomb() string {
	var b strings.Builder
	for i := range 20 {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", 'b'+i, 'b'+i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", 'a'+i), 9), ","))
	}
	return b.String()
}

func mustDecode(t *testing.T, data string) []Decoded {
	t.Helper()
	docs, err := Decode("f", []byte(data))
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	return docs
}

// Text that looks like something else stays the text that was typed, and
// nothing but comments, markers and line ends is passed over.
func TestDecodeKeepsText(t *testing.T) {
	for in, want := range map[string]string{
		`NOPE`: "NOPE", `2024-01-01`: "2024-01-01", `2001-12-14t21:59:43.10-05:00`: "2001-12-14t21:59:43.10-05:00",
		`1.2.3`: "1.2.3", `12:30:45x`: "12:30:45x", `0x`: "0x", `1e`: "1e", `1e999`: "1e999", `"010"`: "010", `'no'`: "no", `"~"`: "~", `""`: "",
		`a: b`[0:1]: "a", `"\u263A\t\x41"`: "\u263a\tA", `"a\
      b"`: "ab", `'it''s'`: "it's", `a #b`: "a", `"#{b}"`: "#{b}", `$(rm -rf ~)`: "$(rm -rf ~)", `=`: "=", `"<<"`: "<<",
		"|\n      a\n      ...x\n       b\n": "a\n...x\n b\n", ">\n      a\n      b\n": "a b\n", "|-\n      a\n": "a",
	} {
		t.Run(in, func(t *testing.T) {
			docs := mustDecode(t, good+"  env:\n  - name: A\n    value: "+in+"\n")
			got := docs[0].Object.(*Session).Spec.Env[0].Value
			if got == nil || *got != want {
				t.Errorf("value = %v, want %q", got, want)
			}
		})
	}
}

func TestDecodeDocuments(t *testing.T) {
	named := func(name string) string { return strings.Replace(good, "web", name, 1) }
	js := `{"apiVersion": "skc.dev/v1alpha1", "kind": "Session",
		"metadata": {"name": "j", "annotations": {"a": "\/ \u00e9"}},
		"spec": {"command": ["sh"], "target": {"plainDir": {"path": "/a"}}}}
`
	for _, c := range []struct {
		name, in string
		want     []string // name@line
	}{
		{"empty", "", nil},
		{"only comments", "# a\n\n  # b\n", nil},
		{"only markers", "---\n---\n...\n---\n", nil},
		{"one", named("a"), []string{"a@1"}},
		{"no line end at the end", strings.TrimSpace(named("a")), []string{"a@1"}},
		{"comments before", "# x\n\n" + named("a"), []string{"a@3"}},
		{"byte order mark", "\xef\xbb\xbf" + named("a"), []string{"a@1"}},
		{"byte order mark and marker", "\xef\xbb\xbf---\n" + named("a"), []string{"a@2"}},
		{"marker first", "---\n" + named("a"), []string{"a@2"}},
		{"comment after a marker", named("a") + "--- # second\n" + named("b"), []string{"a@1", "b@8"}},
		{"blanks after a marker", named("a") + "---   \n" + named("b") + "---\t\n" + named("c"), []string{"a@1", "b@8", "c@15"}},
		{"CRLF", strings.ReplaceAll(named("a")+"---\n"+named("b"), "\n", "\r\n"), []string{"a@1", "b@8"}},
		{"end marker", named("a") + "...\n# x\n---\n" + named("b"), []string{"a@1", "b@10"}},
		{"end marker alone", named("a") + "...\n" + named("b"), []string{"a@1", "b@8"}},
		{"trailing and empty ones", named("a") + "---\n---\n# only a comment\n---\n", []string{"a@1"}},
		{"no marker: four dashes, in a word, indented", named("a") + "  env:\n  - name: A\n    value: |\n      a\n      ---\n      b\n# ---\n  - {name: B, value: a---}\n", []string{"a@1"}},
		{"on the marker's line", "--- " + strings.ReplaceAll(js, "\n", " ") + "\n--- # x\n" + named("b"), []string{"j@1", "b@3"}},
		{"JSON", js, []string{"j@1"}},
		{"JSON without white space", `{"apiVersion":"skc.dev/v1alpha1","kind":"Session","metadata":{"name":"j"},"spec":{"command":["sh",""],"target":{"plainDir":{"path":"/a"}},"readiness":{"tcp":{"port":1}},"suspend":true}}`, []string{"j@1"}},
		{"JSON and YAML", js + "---\n" + named("b"), []string{"j@1", "b@5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			docs := mustDecode(t, c.in)
			var got []string
			for _, d := range docs {
				got = append(got, fmt.Sprintf("%s@%d", d.Object.GetName(), d.Line))
				alone := mustDecode(t, c.in[d.Start:d.End])
				if len(alone) != 1 || !cmp.Equal(alone[0].Object, d.Object) {
					t.Errorf("bytes %d to %d are not document %s", d.Start, d.End, d.Object.GetName())
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("documents %v, want %v", got, c.want)
			}
			// Taking each document out leaves a file without it.
			for i, d := range docs {
				rest := mustDecode(t, c.in[:d.Start]+c.in[d.End:])
				if len(rest) != len(docs)-1 || slices.ContainsFunc(rest, func(r Decoded) bool { return r.Object.GetName() == docs[i].Object.GetName() }) {
					t.Errorf("without document %d: %d documents", i, len(rest))
				}
			}
		})
	}
}

func TestDecodeJSONEscapes(t *testing.T) {
	in := `{"apiVersion": "skc.dev/v1alpha1", "kind": "Session", "metadata": {"name": "j"}, "spec": {"target": {"plainDir": {"path": "/a"}},
		"command": ["\ud83d\ude00", "\/\\/\\\/", "\\ud83d\\ude00", "\u00e9\u2028\b\f\n\r\t\"", "a\\"]}}`
	var want struct{ Spec struct{ Command []string } }
	if err := json.Unmarshal([]byte(in), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Spec.Command, mustDecode(t, in)[0].Object.(*Session).Spec.Command); diff != "" {
		t.Errorf("(-JSON +decoded)\n%s", diff)
	}
	if _, err := Decode("f", []byte(strings.Replace(in, `\ude00`, "", 1))); err == nil {
		t.Error("half a character was read as another one")
	}
}

func TestDecodeDefaults(t *testing.T) {
	d := mustDecode(t, good)[0]
	s := d.Object.(*Session)
	if api.KeyOf(s) != (api.Key{Kind: "Session", Namespace: "default", Name: "web"}) {
		t.Errorf("key = %s", api.KeyOf(s))
	}
	if want := `{"command":["sh"],"target":{"plainDir":{"path":"/srv/web"}}}`; string(d.RawSpec) != want {
		t.Errorf("raw spec\n got: %s\nwant: %s", d.RawSpec, want)
	}
	got, err := yaml.Marshal(s.Spec)
	if err != nil {
		t.Fatal(err)
	}
	want := `cleanup:
  policy: Quarantine
  retention: 168h0m0s
command:
- sh
desiredState: Running
restart:
  initialBackoff: 1s
  maxBackoff: 5m0s
  resetAfter: 10m0s
restartPolicy: OnFailure
stop:
  gracePeriod: 10s
  signal: SIGTERM
target:
  plainDir:
    path: /srv/web
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("defaulted spec (-want +got)\n%s", diff)
	}
}

// Comments, the order of keys, quotes, flow style and line ends are not the spec.
func TestRawSpecIsCanonical(t *testing.T) {
	a := mustDecode(t, good+"  env: [{name: A, value: x}]\n")[0]
	for _, other := range []string{
		strings.ReplaceAll(good+"  env: [{name: A, value: x}]\n", "\n", "\r\n"),
		head + "  env:   # mine\n  - value: 'x'\n    \"name\": A\n  command:\n  - sh\n  target: {plainDir: {path: /srv/web}}\n",
	} {
		if b := mustDecode(t, other)[0]; !bytes.Equal(a.RawSpec, b.RawSpec) {
			t.Errorf("raw spec differs\n%s\n%s", a.RawSpec, b.RawSpec)
		}
	}
	if b := mustDecode(t, good+"  env: [{name: A, value: x}]\n  suspend: false\n")[0]; bytes.Equal(a.RawSpec, b.RawSpec) {
		t.Error("a default that is written is part of the spec")
	}
}

// What get -o yaml prints may be applied again, and is the same spec.
func TestDecodeTakesItsOwnOutput(t *testing.T) {
	printed := `apiVersion: skc.dev/v1alpha1
kind: Session
metadata:
  annotations: {skc.dev/source-file: /x/web.yaml, skc.dev/source-document: "0", note: kept}
  creationTimestamp: "2026-01-01T00:00:00Z"
  deletionTimestamp: null
  finalizers: [skc.dev/session]
  generation: 3
  managedFields: [{manager: skcd, fieldsV1: {"f:spec": {}}}]
  name: web
  namespace: default
  ownerReferences: []
  resourceVersion: "17"
  selfLink: /x
  uid: 0b5c
spec:
  target: {plainDir: {path: /srv/web}}
  command: [sh]
status:
  conditions: [{type: Ready, status: "True"}]
  restarts: 7
`
	d, want := mustDecode(t, printed)[0], mustDecode(t, good)[0]
	if !bytes.Equal(d.RawSpec, want.RawSpec) {
		t.Errorf("raw spec %s, want %s", d.RawSpec, want.RawSpec)
	}
	s := d.Object.(*Session)
	w := want.Object.(*Session)
	w.Annotations = map[string]string{"note": "kept"}
	if diff := cmp.Diff(w, s); diff != "" {
		t.Errorf("object (-want +got)\n%s", diff)
	}
	// The defaulted object, as it is printed, is accepted too and is the same object.
	out, err := yaml.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again := mustDecode(t, string(out))[0].Object
	if diff := cmp.Diff(s, again); diff != "" {
		t.Errorf("printed and read again (-want +got)\n%s", diff)
	}
}

func TestFromRecord(t *testing.T) {
	d := mustDecode(t, good)[0]
	var spec any
	if err := json.Unmarshal(d.RawSpec, &spec); err != nil {
		t.Fatal(err)
	}
	o, err := FromRecord("Session", map[string]any{
		"metadata": map[string]any{"name": "web", "namespace": "default", "uid": "u", "generation": float64(2), "finalizers": []any{SessionFinalizer}, "creationTimestamp": "2026-01-01T00:00:00Z"},
		"spec":     spec,
		"status":   map[string]any{"observedGeneration": int64(2), "restarts": map[string]any{"total": float64(4)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := o.(*Session)
	if diff := cmp.Diff(d.Object.(*Session).Spec, s.Spec); diff != "" {
		t.Errorf("spec (-decoded +record)\n%s", diff)
	}
	if s.UID != "u" || s.Generation != 2 || len(s.Finalizers) != 1 || s.Status.ObservedGeneration != 2 || s.Status.Restarts.Total != 4 || s.Kind != "Session" || s.APIVersion != "skc.dev/v1alpha1" {
		t.Errorf("record lost something: %+v", s)
	}
	if _, err := FromRecord("Nope", nil); err == nil {
		t.Error("a record of an unknown kind was read")
	}
	if _, err := FromRecord("Session", map[string]any{"spec": []any{}}); err == nil {
		t.Error("a record whose spec is a list was read")
	}
}

// The inputs of the bug log, with what is said about each.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			docs, err := Decode(filepath.Base(file), data)
			if err != nil {
				got.WriteString(err.Error() + "\n")
			}
			for _, d := range docs {
				fmt.Fprintf(&got, "line %d, bytes %d to %d: %s\n%s\n", d.Line, d.Start, d.End, api.KeyOf(d.Object), d.RawSpec)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if strings.Contains(got.String(), "CANARY") {
				t.Error("the error holds a value of the file")
			}
		})
	}
}

// The libraries go through maps; what is told, and in which order, is not theirs.
func TestDecodeIsDeterministic(t *testing.T) {
	in := []byte(head + "  target: {plainDir: {padh: /}, existingPath: {pathh: x}}\n  desiredState: 1\n  env: [{name: 1, valu: 2}, " + strings.Repeat("{name: 1A, valueFrom: {file: x}}, ", 60) + "]\n")
	_, first := Decode("f", in)
	for range 50 {
		if _, err := Decode("f", in); err.Error() != first.Error() {
			t.Fatalf("two texts for one file\n%v\n%v", first, err)
		}
	}
}

func TestProblemsAreLimited(t *testing.T) {
	_, err := Decode("f", []byte(strings.Repeat("a: "+canary+"\n---\n", 10000)))
	e, ok := api.AsInvalidSpec(err)
	if !ok || len(e.Problems) != maxProblems+1 {
		t.Fatalf("got %d problems, want %d and a word about the rest", len(e.Problems), maxProblems)
	}
}
