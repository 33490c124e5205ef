package v1alpha1

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"skc.dev/skc/api"
)

// An API server takes every definition: it is structural and its rules are
// within the cost budget.
func TestDefinitionsAreValid(t *testing.T) {
	for _, kind := range Kinds() {
		crd := CRD(kind)
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		crd.Status.StoredVersions = []string{Version}
		var internal apiextensions.CustomResourceDefinition
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, &internal, nil); err != nil {
			t.Fatal(err)
		}
		for _, err := range validation.ValidateCustomResourceDefinition(context.Background(), &internal) {
			t.Errorf("%s: %v", kind, err)
		}
		if crd.Spec.Group != Group || crd.Spec.Versions[0].Name != Version || crd.Spec.Versions[0].Subresources == nil || crd.Spec.Versions[0].Subresources.Status == nil {
			t.Errorf("%s: group, version or status subresource is wrong", kind)
		}
	}
	if CRD("Nope") != nil {
		t.Error("a kind that there is not has a definition")
	}
}

// What decides about a restart is read as it is written: a default that a later
// release changes would restart everything.
func TestLaunchFieldsHaveNoDefaults(t *testing.T) {
	spec := kinds()[KindSession].schema.Properties["spec"]
	for _, name := range []string{"target", "command", "agent", "env", "terminal"} {
		field, ok := spec.Properties[name]
		if !ok {
			t.Fatalf("no field %s", name)
		}
		v := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
			if s.Default.Object != nil {
				t.Errorf("a default below spec.%s: %v", name, s.Default.Object)
			}
			return false
		}}
		v.Visit(field.DeepCopy())
	}
}

// Every pattern and every rule has words for people.
func TestSchemaSpeaks(t *testing.T) {
	used := map[string]bool{}
	v := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		if s.ValueValidation != nil && s.ValueValidation.Pattern != "" {
			used[s.ValueValidation.Pattern] = true
			if patternText[s.ValueValidation.Pattern] == "" {
				t.Errorf("no words for the pattern %s", s.ValueValidation.Pattern)
			}
		}
		for _, rule := range s.XValidations {
			if rule.Message == "" {
				t.Errorf("no message for the rule %s", rule.Rule)
			}
		}
		return false
	}}
	for _, k := range kinds() {
		spec := k.schema.Properties["spec"]
		v.Visit(spec.DeepCopy())
	}
	for p := range patternText {
		if !used[p] {
			t.Errorf("words for a pattern that no field has: %s", p)
		}
	}
}

// The rules of the definition hold for what skips our own checks, as an API
// server's clients do.
func TestRulesOfTheWholeObject(t *testing.T) {
	k := kinds()[KindSession]
	object := map[string]any{
		"apiVersion": "skc.dev/v1alpha1", "kind": "Session", "metadata": map[string]any{"name": "rel-3.1.9"},
		"spec": map[string]any{"command": []any{"sh"}, "target": map[string]any{"plainDir": map[string]any{"path": "/a"}}},
	}
	root, err := parseTree([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{doc: document{line: 1}, root: root, told: map[spot]bool{}}
	j.checkSchema(context.Background(), k, object)
	if len(j.problems) != 1 || j.problems[0].Path != "metadata.name" || j.problems[0].Line != 3 || !strings.Contains(j.problems[0].Message, "at most 63") {
		t.Errorf("problems = %+v, want one about metadata.name on line 3", j.problems)
	}
}

func TestSamples(t *testing.T) {
	files, err := filepath.Glob("../../config/samples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples (%v)", err)
	}
	names := map[api.Key]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := Decode(file, data)
		if err != nil || len(docs) == 0 {
			t.Errorf("%d documents, %v", len(docs), err)
		}
		for _, d := range docs {
			key := api.KeyOf(d.Object)
			if other := names[key]; other != "" {
				t.Errorf("%s: %s is in %s too", file, key, other)
			}
			names[key] = file
			if modeline := "# yaml-language-server: $schema=../schema/" + strings.ToLower(key.Kind) + ".json\n"; !strings.HasPrefix(string(data), modeline) {
				t.Errorf("%s does not begin with %s", file, modeline)
			}
			if s, ok := d.Object.(*Session); ok {
				if p := s.Spec.Target.PlainDir; p != nil && !strings.HasPrefix(string(p.Path), "/tmp/skc-demo/") {
					t.Errorf("%s: a sample makes folders in /tmp/skc-demo only", file)
				}
			}
		}
	}
}

func TestUseTimeDefaults(t *testing.T) {
	var s SessionSpec
	if got := s.TerminalOrDefault(); got != (TerminalSpec{Columns: 200, Rows: 50, HistoryLimit: 10000}) {
		t.Errorf("terminal = %+v", got)
	}
	s.Terminal = &TerminalSpec{Rows: 3}
	if got := s.TerminalOrDefault(); got != (TerminalSpec{Columns: 200, Rows: 3, HistoryLimit: 10000}) {
		t.Errorf("terminal = %+v", got)
	}
	// An object made in code has what the schema gives one from a file.
	d := mustDecode(t, good+"  readiness: {tcp: {port: 1}}\n")[0].Object.(*Session).Spec
	r, dr := &Readiness{}, d.Readiness
	for name, pair := range map[string][2]time.Duration{
		"initialBackoff": {s.Restart.InitialBackoffOrDefault(), d.Restart.InitialBackoffOrDefault()},
		"maxBackoff":     {s.Restart.MaxBackoffOrDefault(), d.Restart.MaxBackoffOrDefault()},
		"resetAfter":     {s.Restart.ResetAfterOrDefault(), d.Restart.ResetAfterOrDefault()},
		"gracePeriod":    {s.Stop.GracePeriodOrDefault(), d.Stop.GracePeriodOrDefault()},
		"period":         {r.PeriodOrDefault(), dr.PeriodOrDefault()},
		"deadline":       {r.DeadlineOrDefault(), dr.DeadlineOrDefault()},
	} {
		if pair[0] != pair[1] || pair[0] == 0 {
			t.Errorf("%s: %v in code, %v from a file", name, pair[0], pair[1])
		}
	}
	if s.Stop.SignalOrDefault() != d.Stop.SignalOrDefault() {
		t.Error("signal")
	}
}

// The digest is pinned: when it changes for one spec, every session restarts at
// the next upgrade.
func TestLaunchDigest(t *testing.T) {
	digest := func(in string) string { return mustDecode(t, in)[0].Object.(*Session).Spec.LaunchDigest() }
	base := digest(good)
	if want := "c97a5286ab820796379975756b356b46"; base != want {
		t.Errorf("digest = %s, want %s", base, want)
	}
	for name, in := range map[string]string{
		"a label": strings.Replace(good, "{name: web}", "{name: web, labels: {a: b}}", 1),
		"a probe": good + "  readiness: {tcp: {port: 1}}\n",
		"stopped": good + "  desiredState: Stopped\n",
		"stop":    good + "  stop: {gracePeriod: 1s}\n",
		"restart": good + "  restartPolicy: Never\n  restart: {maxRestarts: 3}\n",
		"suspend": good + "  suspend: true\n",
		"prompt":  good + "  startupPrompt: {text: a}\n",
		"comment": "# x\n" + good,
	} {
		if digest(in) != base {
			t.Errorf("%s changes the digest", name)
		}
	}
	for name, in := range map[string]string{
		"env":       good + "  env: [{name: A, value: \"\"}]\n",
		"valueFrom": good + "  env: [{name: A, valueFrom: {file: /a}}]\n",
		"terminal":  good + "  terminal: {columns: 200}\n",
		"command":   strings.Replace(good, "[sh]", "[sh, a]", 1),
		"target":    strings.Replace(good, "/srv/web", "/srv/web2", 1),
		"its sort":  strings.Replace(good, "plainDir", "existingPath", 1),
	} {
		if digest(in) == base {
			t.Errorf("%s does not change the digest", name)
		}
	}
}

// An agent is spoken to, a command finds a file, and who says how is heard.
func TestPromptDelivery(t *testing.T) {
	for spec, want := range map[string]PromptDelivery{
		good:                                  PromptFile,
		good + "  startupPrompt: {text: a}\n": PromptFile,
		good + "  startupPrompt: {text: a, delivery: Argument}\n":                                                                PromptArgument,
		strings.Replace(good, "command: [sh]", "agent: {profile: claude}", 1) + "  startupPrompt: {file: ~/a}\n":                 PromptPaste,
		strings.Replace(good, "command: [sh]", "agent: {profile: claude}", 1) + "  startupPrompt: {file: ~/a, delivery: File}\n": PromptFile,
	} {
		s := mustDecode(t, spec)[0].Object.(*Session).Spec
		if got := s.PromptDeliveryOrDefault(); got != want {
			t.Errorf("delivery %s, want %s, of\n%s", got, want, spec)
		}
	}
}
