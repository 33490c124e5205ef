// Command gen writes what is made from the definitions and the sources of the
// kinds, beside what controller-gen makes: for each kind the JSON schema by which
// editors check and complete files, and the reference page. It runs in the
// root of the repository, after controller-gen.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"skc.dev/skc/api/v1alpha1"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run() error {
	groups, err := constants("api/v1alpha1/conditions.go")
	if err != nil {
		return err
	}
	for _, kind := range v1alpha1.Kinds() {
		crd := v1alpha1.CRD(kind)
		root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		schema, err := editorSchema(kind, root)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join("config/schema", strings.ToLower(kind)+".json"), schema, 0o644); err != nil {
			return err
		}
		page, err := reference(kind, root, groups)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join("docs/reference", strings.ToLower(kind)+".md"), page, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// editorSchema is the kind as plain JSON schema: strict, without what only an
// API server understands, and without status, which no file has.
func editorSchema(kind string, root *apiextensionsv1.JSONSchemaProps) ([]byte, error) {
	label := map[string]any{"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
	texts := map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}
	metadata := map[string]any{"name": label, "namespace": label, "labels": texts, "annotations": texts}
	if v1alpha1.ClusterScoped(kind) {
		delete(metadata, "namespace")
	}
	schema := map[string]any{
		"$schema":              "http://json-schema.org/draft-07/schema#",
		"title":                kind,
		"description":          root.Description,
		"type":                 "object",
		"additionalProperties": false,
		"required":             []string{"apiVersion", "kind", "metadata", "spec"},
		"properties": map[string]any{
			"apiVersion": map[string]any{"const": v1alpha1.GroupVersion.String()},
			"kind":       map[string]any{"const": kind},
			"metadata": map[string]any{
				"type": "object", "additionalProperties": false, "required": []string{"name"},
				"properties": metadata,
			},
			"spec": plain(root.Properties["spec"]),
		},
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(schema)
	return out.Bytes(), err
}

// plain is one field of the schema, without the parts that only the API server knows.
func plain(p apiextensionsv1.JSONSchemaProps) map[string]any {
	out := map[string]any{"type": p.Type}
	set := func(key string, is bool, value any) {
		if is {
			out[key] = value
		}
	}
	set("description", p.Description != "", p.Description)
	set("default", p.Default != nil, p.Default)
	set("enum", len(p.Enum) > 0, p.Enum)
	set("pattern", p.Pattern != "", p.Pattern)
	set("minLength", p.MinLength != nil, p.MinLength)
	set("maxLength", p.MaxLength != nil, p.MaxLength)
	set("minimum", p.Minimum != nil, p.Minimum)
	set("maximum", p.Maximum != nil, p.Maximum)
	set("minItems", p.MinItems != nil, p.MinItems)
	set("maxItems", p.MaxItems != nil, p.MaxItems)
	set("required", len(p.Required) > 0, p.Required)
	if p.Items != nil {
		out["items"] = plain(*p.Items.Schema)
	}
	if p.Properties != nil {
		fields := map[string]any{}
		for name, field := range p.Properties {
			fields[name] = plain(field)
		}
		out["properties"] = fields
		out["additionalProperties"] = false
	}
	return out
}

// group is one const block of the sources: condition types, or reasons.
type group struct {
	doc    string
	values []value
}

type value struct{ text, doc string }

// constants reads the string constants of a file with their comments. A
// constant without one is an error: the page is made of them.
func constants(file string) ([]group, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var groups []group
	for _, d := range f.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		g := group{doc: oneLine(block.Doc.Text())}
		for _, s := range block.Specs {
			spec := s.(*ast.ValueSpec)
			name := spec.Names[0].Name
			lit, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || spec.Doc == nil {
				return nil, fmt.Errorf("%s: %s needs a text and a comment", file, name)
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, name, err)
			}
			doc := oneLine(spec.Doc.Text())
			for _, lead := range []string{name + ": ", name + " is ", name + " "} {
				doc = strings.TrimPrefix(doc, lead)
			}
			if word, _, _ := strings.Cut(doc, " "); !strings.Contains(word, ".") { // spec.suspend stays what it is
				doc = strings.ToUpper(doc[:1]) + doc[1:]
			}
			g.values = append(g.values, value{text: text, doc: doc})
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// reference is the page of a kind: every field, then conditions and reasons.
func reference(kind string, root *apiextensionsv1.JSONSchemaProps, groups []group) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!-- Made by hack/update-codegen.sh from api/v1alpha1. Edits here are lost. -->\n# %s\n\n%s\n\n", kind, oneLine(root.Description))
	scope, names := fmt.Sprintf("`name` and, if wanted, `namespace` (`%s` when left out)", v1alpha1.DefaultNamespace), "A name, and a namespace,"
	if v1alpha1.ClusterScoped(kind) {
		scope, names = "`name` and no `namespace`, and, if wanted", "A name"
	}
	fmt.Fprintf(&b, "`apiVersion: %s`, `kind: %s`. `metadata` has %s, `labels` and `annotations`.\n", v1alpha1.GroupVersion, kind, scope)
	b.WriteString(names + " is at most 63 of a-z, 0-9 and `-`, beginning and ending with a letter or digit: no dots, no slashes.\n")
	b.WriteString("Unknown fields, repeated keys, anchors, aliases and tags are refused. Text that YAML takes for something else (`no`, `010`, `1e3`, `~`) needs quotes.\n")
	for _, section := range []struct{ field, title string }{{"spec", "Spec"}, {"status", "Status"}} {
		fmt.Fprintf(&b, "\n## %s\n\n| field | type | default | limits | what it is |\n| --- | --- | --- | --- | --- |\n", section.title)
		if err := rows(&b, section.field, root.Properties[section.field], false); err != nil {
			return nil, err
		}
	}
	for _, g := range groups {
		title, rest, _ := strings.Cut(g.doc, ". ")
		fmt.Fprintf(&b, "\n## %s\n\n", strings.TrimSuffix(title, "."))
		if rest != "" {
			b.WriteString(rest + "\n\n")
		}
		b.WriteString("| value | when |\n| --- | --- |\n")
		for _, v := range g.values {
			fmt.Fprintf(&b, "| `%s` | %s |\n", v.text, cell(v.doc))
		}
	}
	return b.Bytes(), nil
}

// rows writes a field's rules and, below it, its fields, each by its whole path.
func rows(b *bytes.Buffer, path string, p apiextensionsv1.JSONSchemaProps, required bool) error {
	if strings.Contains(path, ".") {
		if p.Description == "" {
			return fmt.Errorf("%s has no comment in the types", path)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", path, typeName(p), defaultText(p), cell(strings.Join(limits(p, required), "; ")), cell(oneLine(p.Description)))
	}
	if path == "status.conditions" {
		return nil // Kubernetes' own type: the tables of types and reasons say more
	}
	if p.Items != nil && p.Items.Schema.Properties != nil {
		p.Properties, p.Required = p.Items.Schema.Properties, p.Items.Schema.Required
		path += "[]"
	}
	order := slices.Sorted(maps.Keys(p.Properties))
	slices.SortStableFunc(order, func(a, b string) int { // required ones first
		return cmp.Compare(weight(p, a), weight(p, b))
	})
	for _, name := range order {
		if err := rows(b, path+"."+name, p.Properties[name], slices.Contains(p.Required, name)); err != nil {
			return err
		}
	}
	return nil
}

func weight(p apiextensionsv1.JSONSchemaProps, field string) int {
	if slices.Contains(p.Required, field) {
		return 0
	}
	return 1
}

func typeName(p apiextensionsv1.JSONSchemaProps) string {
	switch {
	case p.Type == "array":
		return "list of " + typeName(*p.Items.Schema)
	case p.Format == "date-time":
		return "time"
	case strings.Contains(p.Pattern, "(ns|us|ms|s|m|h)"):
		return "duration"
	case p.Type == "string":
		return "text"
	case p.Type == "object":
		return "mapping"
	}
	return p.Type
}

func defaultText(p apiextensionsv1.JSONSchemaProps) string {
	if p.Default == nil || string(p.Default.Raw) == "{}" {
		return ""
	}
	return "`" + strings.Trim(string(p.Default.Raw), `"`) + "`"
}

func limits(p apiextensionsv1.JSONSchemaProps, required bool) []string {
	var out []string
	add := func(is bool, format string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(required, "required")
	var enum []string
	for _, e := range p.Enum {
		enum = append(enum, "`"+strings.Trim(string(e.Raw), `"`)+"`")
	}
	add(len(enum) > 0, "one of %s", strings.Join(enum, ", "))
	if p.Minimum != nil && p.Maximum != nil {
		add(true, "%.0f to %.0f", *p.Minimum, *p.Maximum)
	}
	if p.MaxLength != nil && typeName(p) != "duration" {
		add(true, "at most %d characters", *p.MaxLength)
	}
	if p.MinItems != nil {
		add(true, "at least %d", *p.MinItems)
	}
	if p.MaxItems != nil {
		add(true, "at most %d", *p.MaxItems)
	}
	rules := p.XValidations
	if p.Items != nil {
		items := p.Items.Schema
		if items.MaxLength != nil {
			add(true, "each at most %d characters", *items.MaxLength)
		}
		rules = append(slices.Clone(rules), items.XValidations...)
		add(len(p.XListMapKeys) > 0, "no two with one %s", strings.Join(p.XListMapKeys, " and "))
	}
	for _, r := range rules {
		add(true, "%s", r.Message)
	}
	return out
}

// cell keeps text inside one cell of a table.
func cell(s string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s) }
