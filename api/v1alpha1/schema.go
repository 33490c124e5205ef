package v1alpha1

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/cel"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api"
	"skc.dev/skc/config/crd"
)

// kind is what reading one kind needs.
type kind struct {
	newObject func() api.Object
	crd       *apiextensionsv1.CustomResourceDefinition
	schema    *structuralschema.Structural // as generated: metadata is opaque
	tree      *structuralschema.Structural // the same with the metadata that a file may have
	values    apiservervalidation.SchemaValidator
	rules     *schemacel.Validator
	messages  []string // of every CEL rule
}

// kinds are all kinds, compiled at the first use: about 10 ms.
var kinds = sync.OnceValue(func() map[string]*kind {
	return map[string]*kind{
		KindAgentProfile:   compile(crd.AgentProfiles, func() api.Object { return &AgentProfile{} }),
		KindQuarantine:     compile(crd.Quarantines, func() api.Object { return &Quarantine{} }),
		KindSession:        compile(crd.Sessions, func() api.Object { return &Session{} }),
		KindSessionRequest: compile(crd.SessionRequests, func() api.Object { return &SessionRequest{} }),
	}
})

// compile panics when the generated definition is broken, which a test finds.
func compile(definition []byte, newObject func() api.Object) *kind {
	k := &kind{newObject: newObject, crd: &apiextensionsv1.CustomResourceDefinition{}}
	must := func(err error) {
		if err != nil {
			panic(fmt.Sprintf("generated definition of %s: %v", k.crd.Spec.Names.Kind, err))
		}
	}
	must(yaml.UnmarshalStrict(definition, k.crd))
	var props apiextensions.JSONSchemaProps
	must(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(k.crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil))
	var err error
	k.schema, err = structuralschema.NewStructural(&props)
	must(err)
	k.values, _, err = apiservervalidation.NewSchemaValidator(&props)
	must(err)
	k.rules = schemacel.NewValidator(k.schema, true, cel.PerCallLimit)
	collect := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		for _, rule := range s.XValidations {
			k.messages = append(k.messages, rule.Message)
		}
		return false
	}}
	collect.Visit(k.schema.DeepCopy())

	text := structuralschema.Structural{Generic: structuralschema.Generic{Type: "string"}}
	texts := structuralschema.Structural{
		Generic:              structuralschema.Generic{Type: "object"},
		AdditionalProperties: &structuralschema.StructuralOrBool{Structural: &text},
	}
	k.tree = k.schema.DeepCopy()
	k.tree.Properties["metadata"] = structuralschema.Structural{
		Generic:    structuralschema.Generic{Type: "object"},
		Properties: map[string]structuralschema.Structural{"name": text, "namespace": text, "labels": texts, "annotations": texts},
	}
	return k
}

// ClusterScoped tells whether objects of a kind belong to no namespace. Their keys
// have an empty one.
func ClusterScoped(name string) bool {
	k := kinds()[name]
	return k != nil && k.crd.Spec.Scope == apiextensionsv1.ClusterScoped
}

// CRD is a copy of the definition of a kind, nil for a kind that there is not.
func CRD(name string) *apiextensionsv1.CustomResourceDefinition {
	if k := kinds()[name]; k != nil {
		return k.crd.DeepCopy()
	}
	return nil
}

// checkSchema defaults the object and judges it as an API server would. What
// the libraries say quotes values, so only their codes and paths are used.
func (j *judge) checkSchema(ctx context.Context, k *kind, object map[string]any) {
	defaulting.Default(object, k.schema)
	var known []*openapierrors.Validation
	result := k.values.Validate(object)
	for _, err := range result.Errors {
		if e, ok := err.(*openapierrors.Validation); ok {
			known = append(known, e)
		}
	}
	slices.SortFunc(known, func(a, b *openapierrors.Validation) int {
		return cmp.Or(int(a.Code())-int(b.Code()), cmp.Compare(a.Name, b.Name)) // they come in the order of a map
	})
	for _, e := range known {
		path := strings.TrimPrefix(e.Name, ".")
		j.addPath(path, valueMessage(e.Code(), k.at(path)))
	}
	if len(result.Errors) > 0 && len(j.problems) == 0 {
		j.addPath("", "is refused by the schema")
	}
	for _, e := range sorted(listtype.ValidateListSetsAndMaps(nil, k.schema, object)) {
		if e.Type == field.ErrorTypeDuplicate && len(j.problems) <= maxProblems {
			j.addPath(e.Field, "is there twice"+j.twice(e.Field, k))
		}
	}
	if len(j.problems) > 0 {
		return // a rule may assume what the schema says, and would only repeat it
	}
	errs, _ := k.rules.Validate(ctx, nil, k.schema, object, nil, cel.RuntimeCELCostBudget)
	for _, e := range sorted(errs) {
		path := e.Field
		if path == "" || path == "<nil>" {
			path = "metadata.name" // all that a rule on the whole object can see beside what has rules of its own
		}
		j.addPath(path, k.ruleMessage(e.Detail))
	}
}

func sorted(errs field.ErrorList) field.ErrorList {
	slices.SortFunc(errs, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Detail, b.Detail))
	})
	return errs
}

// ruleMessage is the message of the rule that failed, also where the rule could
// not be worked out, as with a duration that overflows.
func (k *kind) ruleMessage(detail string) string {
	for _, m := range k.messages {
		if detail == m || strings.HasSuffix(detail, ": "+m) {
			return m
		}
	}
	return "is refused by a rule of the schema"
}

// at is the schema of a field, nil when there is none.
func (k *kind) at(path string) *structuralschema.Structural {
	s := k.tree
	for _, m := range pathStep.FindAllStringSubmatch(path, -1) {
		if m[1] != "" {
			s = s.Items
		} else if p, ok := s.Properties[m[0]]; ok {
			s = &p
		} else {
			return nil
		}
		if s == nil {
			return nil
		}
	}
	return s
}

// valueMessage says what the schema asks for where a value broke it.
func valueMessage(code int32, s *structuralschema.Structural) string {
	if s == nil {
		return "is refused by the schema"
	}
	v := s.ValueValidation
	if v == nil {
		v = &structuralschema.ValueValidation{}
	}
	switch {
	case code == openapierrors.RequiredFailCode:
		return "is required"
	case code == openapierrors.InvalidTypeCode:
		return "must be of type " + s.Type
	case code == openapierrors.EnumFailCode:
		var known []string
		for _, e := range v.Enum {
			known = append(known, fmt.Sprint(e.Object))
		}
		return "must be one of " + strings.Join(known, ", ")
	case code == openapierrors.PatternFailCode:
		if text, ok := patternText[v.Pattern]; ok {
			return text
		}
		return "must match " + v.Pattern
	case code == openapierrors.TooLongFailCode && v.MaxLength != nil:
		return fmt.Sprintf("is longer than %d characters", *v.MaxLength)
	case code == openapierrors.TooShortFailCode && v.MinLength != nil:
		return fmt.Sprintf("is shorter than %d characters", *v.MinLength)
	case code == openapierrors.MaxItemsFailCode && v.MaxItems != nil:
		return fmt.Sprintf("has more than %d items", *v.MaxItems)
	case code == openapierrors.MinItemsFailCode && v.MinItems != nil:
		return fmt.Sprintf("has fewer than %d items", *v.MinItems)
	case v.Minimum != nil && v.Maximum != nil:
		return fmt.Sprintf("must be from %.0f to %.0f", *v.Minimum, *v.Maximum)
	}
	return "is refused by the schema"
}

// patternText says in words what each pattern of the schema asks for.
var patternText = map[string]string{
	`^[^\x00]*$`:                              "may hold no NUL",
	`^(/|~/|~$)[^\x00]*$`:                     "must be an absolute path, or begin with ~/",
	`^[^\x00-\x20\x7f]+$`:                     "may hold no spaces and no control characters",
	`^[0-9]+:[0-9]+(:[0-9]+(:[0-9a-f-]+)?)?$`: "must be DEVICE:INODE, DEVICE:INODE:BIRTH or DEVICE:INODE:BIRTH:BOOT",
	`^/[^\x00]*$`:                             "must be an absolute path",
	`^[A-Za-z_][A-Za-z0-9_]*$`:                "must be letters, digits and '_', not beginning with a digit",
	`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`:  "must be a duration, as 500ms, 10s or 1h30m",
	`^[A-Za-z0-9._-]{1,128}$`:                 "must be 1 to 128 of letters, digits, '.', '_' and '-'",
	`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`:         "must be a-z, 0-9 and '-', beginning and ending with a letter or digit",
	`^[A-Za-z0-9._-]+$`:                       "may hold letters, digits, '.', '_' and '-' only",
	`^/[!-~]*$`:                               "must begin with / and hold no spaces: write others as %XX",
}

// twice names the lines of the two items of a list that have the same key.
func (j *judge) twice(path string, k *kind) string {
	open := strings.LastIndexByte(path, '[')
	if open < 0 {
		return ""
	}
	var index int
	if _, err := fmt.Sscanf(path[open:], "[%d]", &index); err != nil {
		return ""
	}
	list := k.at(path[:open])
	n, _, whole := find(j.root, path[:open])
	if list == nil || !whole || index >= len(n.Content) {
		return ""
	}
	same := func(a, b int) bool {
		for _, key := range list.XListMapKeys {
			_, va := child(n.Content[a], key)
			_, vb := child(n.Content[b], key)
			if va == nil || vb == nil || va.Value != vb.Value {
				return false
			}
		}
		return true
	}
	for i := range index {
		if same(i, index) {
			return fmt.Sprintf(": lines %d and %d have the same %s", j.fileLine(n.Content[i].Line), j.fileLine(n.Content[index].Line), strings.Join(list.XListMapKeys, " and "))
		}
	}
	return ""
}

// didYouMean names the known name that is nearest to a mistyped one.
func didYouMean[T any](wrong string, known map[string]T) string {
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	sort.Strings(names)
	best, distance := "", 3
	if len(wrong) < 5 {
		distance = 2
	}
	if len(wrong) <= 64 {
		for _, name := range names {
			if d := editDistance(strings.ToLower(wrong), strings.ToLower(name)); d < distance {
				best, distance = name, d
			}
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// editDistance counts the letters to add, drop, change, or swap with the next.
func editDistance(a, b string) int {
	rows := [3][]int{}
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	before, last, row := rows[0], rows[1], rows[2]
	for k := range row {
		row[k] = k
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for k := range len(b) {
			cost := 1
			if a[i] == b[k] {
				cost = 0
			}
			row[k+1] = min(last[k+1]+1, row[k]+1, last[k]+cost)
			if i > 0 && k > 0 && a[i] == b[k-1] && a[i-1] == b[k] {
				row[k+1] = min(row[k+1], before[k-1]+1)
			}
		}
	}
	return row[len(b)]
}

// Kinds are the names of all kinds, sorted.
func Kinds() []string {
	var names []string
	for name := range kinds() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
