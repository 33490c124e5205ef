package manifest

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustParse(t *testing.T, data string) File {
	t.Helper()
	f, err := Parse("web.yaml", []byte(data))
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, data)
	}
	return f
}

// doc is a good document named name.
func doc(name string) string {
	return "apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata:\n  name: " + name +
		"\nspec:\n  target:\n    plainDir: {path: /tmp/x}\n  command: [sleep, \"1\"]\n"
}

func TestSet(t *testing.T) {
	const head = "apiVersion: skc.dev/v1alpha1\nkind: Session\n"
	for _, tt := range []struct {
		name  string
		data  string
		path  string
		value string
		// The edit: old is replaced by new, once, and nothing else changes.
		old, new string
	}{
		{
			name: "a plain value is replaced where it stands",
			data: doc("web") + "  desiredState:  Running   # for now\n",
			path: "spec.desiredState", value: "Stopped",
			old: "Running   #", new: "Stopped   #",
		},
		{
			name: "double quotes stay",
			data: doc("web") + "  desiredState: \"\\x52unning\" # odd\n",
			path: "spec.desiredState", value: "Stopped",
			old: `"\x52unning"`, new: `"Stopped"`,
		},
		{
			name: "single quotes stay",
			data: doc("web") + "  desiredState: 'Running'\n",
			path: "spec.desiredState", value: "Stopped",
			old: "'Running'", new: "'Stopped'",
		},
		{
			name: "a missing field comes first, above the comments of the next",
			data: doc("web"),
			path: "spec.desiredState", value: "Stopped",
			old: "spec:\n", new: "spec:\n  desiredState: Stopped\n",
		},
		{
			name: "the indentation is the file's",
			data: head + "metadata: {name: web}\nspec: # what runs\n\n      # where\n      target: {plainDir: {path: /x}}\n      command: [a]\n",
			path: "spec.desiredState", value: "Stopped",
			old: "spec: # what runs\n", new: "spec: # what runs\n      desiredState: Stopped\n",
		},
		{
			name: "CRLF stays CRLF",
			data: strings.ReplaceAll(doc("web"), "\n", "\r\n"),
			path: "spec.desiredState", value: "Stopped",
			old: "spec:\r\n", new: "spec:\r\n  desiredState: Stopped\r\n",
		},
		{
			name: "flow style",
			data: head + "metadata: {name: web}\nspec: { target: {plainDir: {path: /x}}, command: [a] }\n",
			path: "spec.desiredState", value: "Stopped",
			old: "{ target", new: "{ desiredState: Stopped, target",
		},
		{
			name: "JSON",
			data: `{"apiVersion":"skc.dev/v1alpha1","kind":"Session","metadata":{"name":"web"},"spec":{"target":{"plainDir":{"path":"/x"}},"command":["a"]}}`,
			path: "spec.desiredState", value: "Stopped",
			old: `"spec":{`, new: `"spec":{"desiredState": "Stopped", `,
		},
		{
			name: "JSON, one field a line",
			data: "{\n  \"apiVersion\": \"skc.dev/v1alpha1\",\n  \"kind\": \"Session\",\n  \"metadata\": {\n    \"name\": \"web\"\n  },\n  \"spec\": {\n    \"target\": {\"plainDir\": {\"path\": \"/x\"}},\n    \"command\": [\"a\"]\n  }\n}\n",
			path: "metadata.annotations.skc.dev/restartedAt", value: "now",
			old: "\"metadata\": {\n    ", new: "\"metadata\": {\n    \"annotations\": {\"skc.dev/restartedAt\": \"now\"},\n    ",
		},
		{
			name: "an annotation where there are none",
			data: doc("web"),
			path: "metadata.annotations.skc.dev/restartedAt", value: "2026-01-02T03:04:05Z",
			old: "metadata:\n", new: "metadata:\n  annotations:\n    skc.dev/restartedAt: \"2026-01-02T03:04:05Z\"\n",
		},
		{
			name: "an annotation beside others",
			data: head + "metadata:\n  name: web\n  annotations:\n    a: b # why\nspec:\n  target: {plainDir: {path: /x}}\n  command: [a]\n",
			path: "metadata.annotations.skc.dev/restartedAt", value: "now",
			old: "annotations:\n", new: "annotations:\n    skc.dev/restartedAt: now\n",
		},
		{
			name: "an annotation beside others in flow style",
			data: head + "metadata: {annotations: {a: b}, name: web}\nspec:\n  target: {plainDir: {path: /x}}\n  command: [a]\n",
			path: "metadata.annotations.skc.dev/restartedAt", value: "now",
			old: "{a: b}", new: "{skc.dev/restartedAt: now, a: b}",
		},
		{
			name: "empty annotations",
			data: head + "metadata:\n  name: web\n  annotations: {}\nspec:\n  target: {plainDir: {path: /x}}\n  command: [a]\n",
			path: "metadata.annotations.skc.dev/restartedAt", value: "now",
			old: "{}", new: "{skc.dev/restartedAt: now}",
		},
		{
			name: "a tab and wide letters before the value",
			data: head + "metadata: {name: web, annotations: {a: \"日本-é\", skc.dev/restartedAt: old}}\nspec: {target: {plainDir: {path: /x}}, command: [a]}\n",
			path: "metadata.annotations.skc.dev/restartedAt", value: "now",
			old: ": old", new: ": now",
		},
		{
			name: "a word of YAML 1.1 is quoted",
			data: doc("web"),
			path: "metadata.namespace", value: "on",
			old: "metadata:\n", new: "metadata:\n  namespace: \"on\"\n",
		},
		{
			name: "a byte order mark",
			data: "\ufeff" + doc("web") + "  desiredState: Running\n",
			path: "spec.desiredState", value: "Stopped",
			old: "Running", new: "Stopped",
		},
		{
			name: "behind the marker, on its line",
			data: "--- {apiVersion: skc.dev/v1alpha1, kind: Session, metadata: {name: web}, spec: {target: {plainDir: {path: /x}}, command: [a], desiredState: Running}}\n",
			path: "spec.desiredState", value: "Stopped",
			old: "Running", new: "Stopped",
		},
		{
			name: "quoted keys",
			data: head + "metadata: {name: web}\n\"spec\":\n  target: {plainDir: {path: /x}}\n  command: [a]\n",
			path: "spec.desiredState", value: "Stopped",
			old: "\"spec\":\n", new: "\"spec\":\n  desiredState: Stopped\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Alone, and with neighbours whose bytes must not move.
			before, after := doc("one")+"# end of one\n---\n# of ours\n", "---   \n"+doc("two")
			want := strings.Replace(tt.data, tt.old, tt.new, 1)
			path := strings.SplitN(tt.path, ".", 3)
			alone := mustParse(t, tt.data)
			got, err := alone.Set(0, tt.value, path...)
			if err != nil {
				t.Fatalf("Set: %v", err)
			}
			if diff := cmp.Diff(want, string(got.Data)); diff != "" {
				t.Errorf("alone (-want +got):\n%s", diff)
			}
			if again, err := got.Set(0, tt.value, path...); err != nil || !bytes.Equal(again.Data, got.Data) {
				t.Errorf("a second Set = %v, changed bytes: %v", err, !bytes.Equal(again.Data, got.Data))
			}
			if strings.HasPrefix(tt.data, "\ufeff") || strings.HasPrefix(tt.data, "---") {
				return
			}
			if !strings.HasSuffix(tt.data, "\n") {
				tt.data, want = tt.data+"\n", want+"\n"
			}
			among := mustParse(t, before+tt.data+after)
			got, err = among.Set(1, tt.value, path...)
			if err != nil {
				t.Fatalf("Set among others: %v", err)
			}
			if diff := cmp.Diff(before+want+after, string(got.Data)); diff != "" {
				t.Errorf("among others (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetRefuses(t *testing.T) {
	for _, tt := range []struct{ name, spec string }{
		{"a block scalar", "  desiredState: |-\n    Running\n"},
		{"a tagged scalar", "  desiredState: !!str Running\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse("web.yaml", []byte(doc("web")+tt.spec))
			if err != nil {
				t.Skipf("the decoder refuses it already: %v", err)
			}
			if got, err := f.Set(0, "Stopped", "spec", "desiredState"); !errors.Is(err, ErrByHand) {
				t.Fatalf("Set = %v, want ErrByHand; made:\n%s", err, got.Data)
			}
		})
	}
}

const quarantined = `apiVersion: skc.dev/v1alpha1
kind: Quarantine
metadata: {name: web-1}
`

func TestSetBool(t *testing.T) {
	for _, tt := range []struct{ name, spec, want string }{
		{"a new one", "spec:\n  # where\n  origin: {type: Folder, path: /x, identity: \"1:2\", owner: o}\n  reason: Orphaned\n",
			"spec:\n  restore: true\n  # where\n  origin: {type: Folder, path: /x, identity: \"1:2\", owner: o}\n  reason: Orphaned\n"},
		{"one that is there", "spec:\n  restore: false # not yet\n  origin: {type: Folder, path: /x, identity: \"1:2\", owner: o}\n  reason: Orphaned\n",
			"spec:\n  restore: true # not yet\n  origin: {type: Folder, path: /x, identity: \"1:2\", owner: o}\n  reason: Orphaned\n"},
		{"in one line", "spec: {reason: Orphaned, origin: {type: Folder, path: /x, identity: \"1:2\", owner: o}}\n",
			"spec: {restore: true, reason: Orphaned, origin: {type: Folder, path: /x, identity: \"1:2\", owner: o}}\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := mustParse(t, quarantined+tt.spec).Set(0, true, "spec", "restore")
			if err != nil {
				t.Fatalf("Set: %v", err)
			}
			if diff := cmp.Diff(quarantined+tt.want, string(got.Data)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := mustParse(t, doc("a")).Set(0, true, "spec", "desiredState"); err == nil {
		t.Error("a text was set to true")
	}
}

func TestUnset(t *testing.T) {
	const origin = "origin: {type: Folder, path: /x, identity: \"1:2\", owner: o}"
	for _, tt := range []struct{ name, spec, want string }{
		{"the first", "spec:\n  restoreTo: /a # there\n  restore: true\n  " + origin + "\n  reason: Orphaned\n",
			"spec:\n  restore: true\n  " + origin + "\n  reason: Orphaned\n"},
		{"the last, without a line end", "spec:\n  restore: true\n  " + origin + "\n  reason: Orphaned\n  restoreTo: \"/a b\"",
			"spec:\n  restore: true\n  " + origin + "\n  reason: Orphaned\n"},
		{"in one line", "spec: {restoreTo: /a, restore: true, " + origin + ", reason: Orphaned}\n",
			"spec: {restore: true, " + origin + ", reason: Orphaned}\n"},
		{"the last in one line", "spec: {restore: true, " + origin + ", reason: Orphaned , restoreTo: '/a' }\n",
			"spec: {restore: true, " + origin + ", reason: Orphaned  }\n"},
		{"one that is not there", "spec: {" + origin + ", reason: Orphaned}\n", "spec: {" + origin + ", reason: Orphaned}\n"},
		{"CRLF", "spec:\r\n  restoreTo: /a\r\n  restore: true\r\n  " + origin + "\r\n  reason: Orphaned\r\n",
			"spec:\r\n  restore: true\r\n  " + origin + "\r\n  reason: Orphaned\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := mustParse(t, quarantined+tt.spec).Unset(0, "spec", "restoreTo")
			if err != nil {
				t.Fatalf("Unset: %v", err)
			}
			if diff := cmp.Diff(quarantined+tt.want, string(got.Data)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	f := mustParse(t, quarantined+"spec:\n  restore: true\n  "+origin+"\n  reason: Orphaned\n  restoreTo: >-\n    /a\n")
	if got, err := f.Unset(0, "spec", "restoreTo"); !errors.Is(err, ErrByHand) {
		t.Errorf("Unset of a folded text = %v, want ErrByHand; made:\n%s", err, got.Data)
	}
	if got, err := f.Unset(0, "spec", "reason"); err == nil {
		t.Errorf("what is needed was taken out:\n%s", got.Data)
	}
}

func TestRemove(t *testing.T) {
	a, b, c := doc("a"), doc("b"), doc("c")
	for _, tt := range []struct {
		name, data string
		i          int
		want       string
	}{
		{"the only one", "# top\n" + a, 0, ""},
		{"the first", a + "---\n" + b, 0, b},
		{"the first, marked", "---\n" + a + "---\n" + b, 0, "---\n" + b},
		{"the first; the next has a comment", a + "--- # of b\n" + b, 0, "--- # of b\n" + b},
		{"the one between", a + "---\n" + b + "--- # of c\n" + c, 1, a + "--- # of c\n" + c},
		{"the last", a + "---\n" + b + "---\n# of c\n" + c, 2, a + "---\n" + b},
		{"the last, on the marker's line", a + "--- {apiVersion: skc.dev/v1alpha1, kind: Session, metadata: {name: z}, spec: {target: {plainDir: {path: /x}}, command: [a]}}\n", 1, a},
		{"comments alone stay", a + "---\n# kept\n---\n" + b, 1, a + "---\n# kept\n"},
		{"without a last line end", a + "---\n" + strings.TrimSuffix(b, "\n"), 1, a},
		{"CRLF", strings.ReplaceAll(a+"---\n"+b, "\n", "\r\n"), 0, strings.ReplaceAll(b, "\n", "\r\n")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := mustParse(t, tt.data).Remove(tt.i)
			if err != nil {
				t.Fatalf("Remove: %v", err)
			}
			if diff := cmp.Diff(tt.want, string(got.Data)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReplace(t *testing.T) {
	a, b, c := doc("a"), doc("b"), doc("c")
	newB := strings.Replace(b, `"1"`, `"2"`, 1)
	inline := " {apiVersion: skc.dev/v1alpha1, kind: Session, metadata: {name: b}, spec: {target: {plainDir: {path: /x}}, command: [a]}}"
	for _, tt := range []struct{ name, data, with, want string }{
		{"in a file of its own", b, newB, newB},
		{"among others", "# top\n" + a + "---\n" + b + "---\n" + c, newB, "# top\n" + a + "---\n" + newB + "---\n" + c},
		{"without a last line end", b + "---\n" + c, strings.TrimSuffix(newB, "\n"), newB + "---\n" + c},
		{"on the marker's line", a + "---" + inline + "\n---\n" + c, newB, a + "---\n" + newB + "---\n" + c},
		{"from the marker's line", a + "---\n" + b + "---\n" + c, "---" + inline, a + "---\n" + inline + "\n---\n" + c},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, from := mustParse(t, tt.data), mustParse(t, tt.with)
			got, err := f.Replace(f.Find(api.Key{Kind: v1alpha1.KindSession, Namespace: "default", Name: "b"}), from, 0)
			if err != nil {
				t.Fatalf("Replace: %v", err)
			}
			if diff := cmp.Diff(tt.want, string(got.Data)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzEdit: whatever the decoder takes can be edited or is refused, and an edit
// changes what it should and no other byte.
func FuzzEdit(f *testing.F) {
	f.Add(doc("a")+"---\n"+doc("b"), "Stopped")
	f.Add(strings.ReplaceAll(doc("a"), "\n", "\r\n"), "on")
	f.Add(`{"apiVersion":"skc.dev/v1alpha1","kind":"Session","metadata":{"name":"web","annotations":{}},"spec":{"target":{"plainDir":{"path":"/x"}},"command":["a"]}}`, "x\ny\"")
	f.Add("\ufeff"+doc("a")+"  desiredState: 'Running'\n", "Running")
	f.Add("? metadata\n: ? name\n  : a\n? spec\n: target: {plainDir: {path: /x}}\n  command: [a]\n? kind\n: Session\n? apiVersion\n: skc.dev/v1alpha1\n", "Stopped")
	f.Add(doc("a")+"  desiredState: !!str \"Running\"\nstatus: {\u0085a: b}\n", "Stopped")
	f.Fuzz(func(t *testing.T, data, value string) {
		file, err := Parse("x.yaml", []byte(data))
		if err != nil {
			return
		}
		for i := range file.Docs {
			for _, path := range [][]string{{"spec", "desiredState"}, {"metadata", "annotations", v1alpha1.RestartedAtAnnotation}, {"metadata", "namespace"}} {
				next, err := file.Set(i, value, path...)
				if err != nil {
					continue
				}
				if !next.Says(i, path...) {
					t.Fatalf("Set %v to %q left it unsaid:\n%q", path, value, next.Data)
				}
				outside(t, file, next, i)
				if without, err := next.Unset(i, path...); err == nil {
					if without.Says(i, path...) {
						t.Fatalf("Unset %v left it said:\n%q", path, without.Data)
					}
					outside(t, next, without, i)
				}
			}
			if next, err := file.Remove(i); err == nil && len(next.Docs) != len(file.Docs)-1 {
				t.Fatalf("Remove left %d of %d documents", len(next.Docs), len(file.Docs))
			}
			for j := range file.Docs {
				if next, err := file.Replace(i, file, j); err == nil {
					outside(t, file, next, i)
				}
			}
		}
	})
}

// outside checks that only bytes of document i differ.
func outside(t *testing.T, was, is File, i int) {
	t.Helper()
	start, tail := was.Docs[i].Start, len(was.Data)-was.Docs[i].End
	if len(is.Data) < start+tail || !bytes.Equal(was.Data[:start], is.Data[:start]) || !bytes.Equal(was.Data[len(was.Data)-tail:], is.Data[len(is.Data)-tail:]) {
		t.Fatalf("bytes outside document %d changed:\nwas %q\nis  %q", i, was.Data, is.Data)
	}
}
