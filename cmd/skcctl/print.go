package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
)

// printer prints objects in the form that -o asks for.
type printer struct {
	format    string // the word before "=", "" for the table
	path      *jsonpath.JSONPath
	columns   []column
	noHeaders bool
	namespace bool // show it in the table
	labels    bool
	printed   string // the kind whose header is out already
	now       func() time.Time
}

type column struct {
	title string
	path  *jsonpath.JSONPath
}

const outputs = "table, wide, yaml, json, name, jsonpath=TEMPLATE, custom-columns=TITLE:PATH,..."

func newPrinter(output string) (*printer, error) {
	format, arg, has := strings.Cut(output, "=")
	p := &printer{format: format}
	var err error
	switch {
	case (format == "" || format == "table" || format == "wide" || format == "yaml" || format == "json" || format == "name") && !has:
	case format == "jsonpath" && arg != "":
		p.path, err = parsePath(arg, false)
	case format == "custom-columns" && arg != "":
		for part := range strings.SplitSeq(arg, ",") {
			title, path, ok := strings.Cut(part, ":")
			if !ok || title == "" {
				return nil, usagef("custom column %q is not TITLE:PATH", part)
			}
			col := column{title: title}
			if col.path, err = parsePath(path, true); err != nil {
				break
			}
			p.columns = append(p.columns, col)
		}
	default:
		return nil, usagef("output %q is none of: %s", output, outputs)
	}
	return p, err
}

// parsePath reads a JSONPath template, or, when bare is allowed, a path alone:
// {.metadata.name}, .metadata.name, metadata.name.
func parsePath(text string, bare bool) (*jsonpath.JSONPath, error) {
	if bare && !strings.HasPrefix(text, "{") {
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	j := jsonpath.New("path").AllowMissingKeys(true)
	if err := j.Parse(text); err != nil {
		return nil, &usageError{fmt.Errorf("path %q: %w", text, err)}
	}
	return j, nil
}

// content is the object as YAML and JSON show it. The values of environment
// variables are in it, as they are in the file.
func content(o runtime.Object) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}

// print prints items: as one list, or, for single, as the one object it is.
func (p *printer) print(ctx context.Context, w io.Writer, items []item, single bool) error {
	switch p.format {
	case "", "table", "wide":
		return p.tables(ctx, w, items)
	case "name":
		for _, it := range items {
			if _, err := fmt.Fprintln(w, short(api.KeyOf(it))); err != nil {
				return err
			}
		}
		return nil
	case "custom-columns":
		return p.custom(w, items)
	}
	objects := make([]any, 0, len(items))
	for _, it := range items {
		m, err := content(it.Object)
		if err != nil {
			return err
		}
		objects = append(objects, m)
	}
	var out runtime.Unstructured = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": objects,
	}}
	if single && len(objects) == 1 {
		out = &unstructured.Unstructured{Object: objects[0].(map[string]any)}
	}
	switch p.format {
	case "yaml":
		return (&printers.YAMLPrinter{}).PrintObj(out, w)
	case "json":
		return (&printers.JSONPrinter{}).PrintObj(out, w)
	default:
		return p.path.Execute(w, out.UnstructuredContent())
	}
}

// tables prints a table for each kind. The names of several kinds say which.
func (p *printer) tables(ctx context.Context, w io.Writer, items []item) error {
	keys := make([]api.Key, 0, len(items))
	for _, it := range items {
		keys = append(keys, api.KeyOf(it))
	}
	kinds := kindsOf(keys)
	for i, kind := range kinds {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		var own []item
		for j, it := range items {
			if keys[j].Kind == kind {
				own = append(own, it)
			}
		}
		if err := p.table(ctx, w, kind, own, len(kinds) > 1); err != nil {
			return err
		}
	}
	return nil
}

// forPeople says how a column reads in a table, by the path that its CRD gives:
// a byte count as a size, a time to come as how long that is. YAML and JSON have
// what is stored.
var forPeople = map[string]struct {
	title string
	text  func(value any, now time.Time) any
}{
	".status.size.bytes": {"Size", func(value any, _ time.Time) any {
		n, ok := value.(int64)
		if !ok {
			return value
		}
		return size(n)
	}},
	".status.deadline": {"Deadline", func(value any, now time.Time) any {
		text, _ := value.(string)
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return value
		}
		return ahead(at, now)
	}},
}

// size is a number of bytes for people: 512 B, 1.2 MiB.
func size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if f /= 1024; f < 1023.95 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// ahead is how long it is until a time: in 6d23h.
func ahead(at, now time.Time) string {
	if left := at.Sub(now); left > 0 {
		return "in " + duration.HumanDuration(left)
	}
	return "now"
}

// table prints the columns of the kind's CRD, as kubectl does from a server.
func (p *printer) table(ctx context.Context, w io.Writer, kind string, items []item, withKind bool) error {
	columns := definition(kind).Spec.Versions[0].AdditionalPrinterColumns
	convert, err := tableconvertor.New(columns)
	if err != nil {
		return err
	}
	table := &metav1.Table{}
	for _, it := range items {
		o := it.Object
		if it.pending {
			o = o.DeepCopyObject().(api.Object)
			o.SetConditions([]metav1.Condition{{Type: v1alpha1.Ready, Status: metav1.ConditionUnknown, Reason: "Pending", Message: "no controller has seen it yet"}})
		}
		m, err := content(o)
		if err != nil {
			return err
		}
		if s, ok := o.(*v1alpha1.Session); ok { // a zero is not written, and not nothing
			if err := unstructured.SetNestedField(m, s.Status.Restarts.Total, "status", "restarts", "total"); err != nil {
				return err
			}
		}
		u := &unstructured.Unstructured{Object: m}
		one, err := convert.ConvertToTable(ctx, u, nil)
		if err != nil {
			return err
		}
		for _, row := range one.Rows {
			for i, col := range columns { // behind the name
				if to, ok := forPeople[col.JSONPath]; ok && row.Cells[i+1] != nil {
					row.Cells[i+1] = to.text(row.Cells[i+1], p.now())
				}
			}
			for i, cell := range row.Cells {
				if text, ok := cell.(string); ok {
					row.Cells[i] = inertLine(text)
				}
			}
			row.Object = runtime.RawExtension{Object: u}
			table.Rows = append(table.Rows, row)
		}
		table.ColumnDefinitions = one.ColumnDefinitions
	}
	for i, col := range columns {
		if to, ok := forPeople[col.JSONPath]; ok && len(table.ColumnDefinitions) > 0 {
			table.ColumnDefinitions[i+1].Name, table.ColumnDefinitions[i+1].Type = to.title, "string"
		}
	}
	tabs := printers.GetNewTabWriter(w)
	err = printers.NewTablePrinter(printers.PrintOptions{
		Wide: p.format == "wide", NoHeaders: p.noHeaders || p.printed == kind, ShowLabels: p.labels,
		WithNamespace: p.namespace && !v1alpha1.ClusterScoped(kind),
		WithKind:      withKind, Kind: schema.GroupKind{Kind: kind},
	}).PrintObj(table, tabs)
	p.printed = kind
	if err != nil {
		return err
	}
	return tabs.Flush()
}

func (p *printer) custom(w io.Writer, items []item) error {
	tabs := printers.GetNewTabWriter(w)
	if !p.noHeaders && p.printed == "" {
		var titles []string
		for _, c := range p.columns {
			titles = append(titles, inertLine(c.title))
		}
		fmt.Fprintln(tabs, strings.Join(titles, "\t")) //nolint:errcheck // Flush tells
		p.printed = p.format
	}
	for _, it := range items {
		m, err := content(it.Object)
		if err != nil {
			return err
		}
		var cells []string
		for _, c := range p.columns {
			text, err := evaluate(c.path, m)
			if err != nil {
				return err
			}
			if text == "" {
				text = "<none>"
			}
			cells = append(cells, inertLine(text))
		}
		fmt.Fprintln(tabs, strings.Join(cells, "\t")) //nolint:errcheck // Flush tells
	}
	return tabs.Flush()
}

// evaluate is the text that the path gives for the object; several results are
// joined by commas, none is "".
func evaluate(path *jsonpath.JSONPath, object map[string]any) (string, error) {
	results, err := path.FindResults(object)
	if err != nil {
		return "", usagef("path: %v", err)
	}
	var texts []string
	for _, set := range results {
		for _, r := range set {
			text, err := asText(r)
			if err != nil {
				return "", err
			}
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ","), nil
}

func asText(v reflect.Value) (string, error) {
	if !v.IsValid() || !v.CanInterface() {
		return "", nil
	}
	switch x := v.Interface().(type) {
	case nil:
		return "", nil
	case string:
		return x, nil
	default:
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		err := e.Encode(x)
		return strings.TrimSuffix(b.String(), "\n"), err
	}
}

// sortBy orders items by what path gives: numbers as numbers, all else as text.
func sortBy(items []item, path string) error {
	j, err := parsePath(path, true)
	if err != nil {
		return err
	}
	type keyed struct {
		item
		text string
		num  float64
		isN  bool
	}
	all := make([]keyed, 0, len(items))
	for _, it := range items {
		m, err := content(it.Object)
		if err != nil {
			return err
		}
		text, err := evaluate(j, m)
		if err != nil {
			return err
		}
		k := keyed{item: it, text: text}
		k.isN = json.Unmarshal([]byte(text), &k.num) == nil
		all = append(all, k)
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if a.isN && b.isN {
			return cmp.Compare(a.num, b.num)
		}
		return cmp.Compare(a.text, b.text)
	})
	for i, k := range all {
		items[i] = k.item
	}
	return nil
}
