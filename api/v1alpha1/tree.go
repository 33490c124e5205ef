package v1alpha1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

const noAlias = "aliases are not allowed: write the value out"

// maxNesting is how deep lists and mappings may lie in one another.
const maxNesting = 64

// Two readers see each document. sigs.k8s.io/yaml gives the values, as it does
// everywhere in Kubernetes; yaml/v3 gives the tree with its lines. Where they
// disagree about a value the document is refused, so that nothing is read as
// something else than what is written.

// parseTree reads the one document in text. The parser's panics become errors.
func parseTree(text []byte) (root *yamlv3.Node, err error) {
	defer func() {
		if recover() != nil {
			err = errNotYAML
		}
	}()
	d := yamlv3.NewDecoder(bytes.NewReader(text))
	var doc, more yamlv3.Node
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	// Some characters end a line for the parser and not for split, which would
	// hide a second document.
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errHiddenMarker
	}
	if len(doc.Content) != 1 {
		return nil, errNotYAML
	}
	return doc.Content[0], nil
}

var (
	errNotYAML      = errors.New("this is not YAML")
	errHiddenMarker = errors.New("a document marker must stand on a line of its own")

	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	yamlErrorLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
)

// yamlProblem is what the parser said: the line in the text (0 when unknown)
// and a message that is known to hold none of the text.
func yamlProblem(err error, text []byte) (line int, message string) {
	if errors.Is(err, errNotYAML) || errors.Is(err, errHiddenMarker) {
		return 0, err.Error()
	}
	m := yamlErrorLine.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, errNotYAML.Error()
	}
	line, _ = strconv.Atoi(m[1])
	if unknown := unknownAnchor.FindStringSubmatch(m[2]); unknown != nil { // the only text that quotes the document
		if i := bytes.Index(text, []byte("*"+unknown[1])); i >= 0 {
			line = lineAt(text, i)
		}
		return line, noAlias
	}
	if !parserMessage.MatchString(m[2]) {
		return line, errNotYAML.Error()
	}
	if grammarMessage.MatchString(m[2]) {
		line++ // the parser counts these from 0
	}
	return line, errNotYAML.Error() + ": " + m[2]
}

var grammarMessage = regexp.MustCompile(`^did not find expected (key|node content|',' or|'-' indicator|<)`)

// parserMessage matches the parser's fixed texts.
var parserMessage = regexp.MustCompile(`^(did not find|could not find|found|block|mapping|control|invalid|exceeded)( [A-Za-z0-9%<>'"(),:/.?!\[\]{}\x60-]+)*$`)

// parseValue reads the document's value. Panics become errors.
func parseValue(text []byte) (value any, err error) {
	defer func() {
		if recover() != nil {
			err = errNotYAML
		}
	}()
	js, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, errNotYAML
	}
	if err := json.Unmarshal(js, &value); err != nil {
		return nil, errNotYAML
	}
	return value, nil
}

// mask overwrites .inf and .nan by text of the same length, which compare will
// find to be another one: JSON has no such numbers, and the one that refuses
// to write them does not say where they are.
func mask(text []byte, endless []*yamlv3.Node) []byte {
	text = bytes.Clone(text)
	at, line, column := 0, 1, 1 // endless is in the order of the text: one walk finds all
	for _, n := range endless {
		for at < len(text) && (line < n.Line || column < n.Column) {
			_, size := utf8.DecodeRune(text[at:])
			if column++; text[at] == '\n' {
				line, column = line+1, 1
			}
			at += size
		}
		if bytes.HasPrefix(text[at:], []byte(n.Value)) {
			copy(text[at:], `"`+strings.Repeat("x", len(n.Value)-2)+`"`)
		}
	}
	return text
}

// place is a field path as a chain, so that a path is spelled only for a problem.
type place struct {
	up    *place
	key   string
	index int // when key is empty
}

func (p *place) String() string {
	if p == nil {
		return ""
	}
	up := p.up.String()
	switch {
	case p.key == "":
		return up + "[" + strconv.Itoa(p.index) + "]"
	case up == "":
		return p.key
	case up == "metadata.labels" || up == "metadata.annotations":
		return up + "[" + p.key + "]"
	}
	return up + "." + p.key
}

// checkTree refuses what makes YAML more than data: aliases, anchors, tags,
// merge keys, repeated keys and keys that are no text.
// After it, reading the value costs no more than the text is long.
func (j *judge) checkTree(n *yamlv3.Node, at *place, depth int) {
	if depth > maxNesting {
		j.addOnce(n.Line, at, fmt.Sprintf("nested deeper than %d levels", maxNesting))
		return
	}
	switch {
	case n.Kind == yamlv3.AliasNode:
		j.addOnce(n.Line, at, noAlias)
		return
	case n.Anchor != "":
		j.addOnce(n.Line, at, "anchors are not allowed")
	case n.Style&yamlv3.TaggedStyle != 0:
		j.addOnce(n.Line, at, "tags are not allowed: for text use quotes")
	}
	switch n.Kind {
	case yamlv3.MappingNode:
		lines := make(map[string]int, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			child := &place{up: at, key: shownKey(k, v)}
			if k.Anchor != "" || k.Style&yamlv3.TaggedStyle != 0 {
				j.addOnce(k.Line, at, "a key may have no anchor and no tag")
				continue
			}
			if k.Kind != yamlv3.ScalarNode || !textKey(k) {
				j.add(k.Line, at, "a key must be text: put it in quotes")
				continue
			}
			if k.Value == "<<" {
				j.addOnce(k.Line, at, "merge keys are not allowed: write the fields out")
				continue
			}
			if first, ok := lines[k.Value]; ok {
				j.add(k.Line, child, fmt.Sprintf("is there twice: lines %d and %d", j.doc.line+first-1, j.doc.line+k.Line-1))
				continue
			}
			lines[k.Value] = k.Line
			j.checkTree(v, child, depth+1)
		}
	case yamlv3.SequenceNode:
		for i, v := range n.Content {
			j.checkTree(v, &place{up: at, index: i}, depth+1)
		}
	case yamlv3.ScalarNode:
		if plain(n) && n.ShortTag() == "!!float" && strings.ContainsAny(n.Value, "iInN") {
			j.endless = append(j.endless, n)
		}
	}
}

func plain(n *yamlv3.Node) bool {
	return n.Style&(yamlv3.DoubleQuotedStyle|yamlv3.SingleQuotedStyle|yamlv3.LiteralStyle|yamlv3.FoldedStyle) == 0
}

func textKey(k *yamlv3.Node) bool {
	if !plain(k) {
		return true
	}
	switch k.ShortTag() {
	case "!!int", "!!float", "!!bool", "!!null":
		return false
	}
	return true
}

var fieldName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,39}$`)

// shownKey is the key as messages name it. A value that lost its key, as in
// {name: TOKEN, s3cret}, is a key to the parser; what does not look like a
// field is not shown.
func shownKey(k, v *yamlv3.Node) string {
	if !fieldName.MatchString(k.Value) || v.Kind == yamlv3.ScalarNode && v.Value == "" && plain(v) && k.Line == v.Line && k.Column+len(k.Value) >= v.Column {
		return "(a key)"
	}
	return k.Value
}

// compare walks the tree beside the value and the schema: every field known,
// every value of the type that its field has and the same for both readers.
func (j *judge) compare(n *yamlv3.Node, line int, value any, s *structuralschema.Structural, at *place) {
	switch s.Type {
	case "object":
		m, ok := value.(map[string]any)
		if !ok || n.Kind != yamlv3.MappingNode {
			j.add(line, at, noValue(n, "must be a mapping"))
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			child, ok := s.Properties[k.Value]
			shown := k.Value
			switch {
			case ok:
			case s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil:
				child = *s.AdditionalProperties.Structural
				if qualifiedName(k.Value) != "" {
					shown = "(a key)"
				}
			default:
				j.add(k.Line, &place{up: at, key: shownKey(k, v)}, "unknown field"+didYouMean(k.Value, s.Properties))
				continue
			}
			sub := &place{up: at, key: shown}
			got, ok := m[k.Value]
			if !ok {
				j.add(k.Line, sub, "the key must be text: put it in quotes")
				continue
			}
			j.compare(v, k.Line, got, &child, sub)
		}
	case "array":
		list, ok := value.([]any)
		if !ok || n.Kind != yamlv3.SequenceNode || len(list) != len(n.Content) {
			j.add(line, at, noValue(n, "must be a list"))
			return
		}
		for i, v := range n.Content {
			j.compare(v, v.Line, list[i], s.Items, &place{up: at, index: i})
		}
	case "string":
		text, ok := value.(string)
		switch {
		case n.Kind != yamlv3.ScalarNode:
			j.add(line, at, "must be text")
		case value == nil && n.Value == "":
			j.add(line, at, `has no value: for empty text write ""`)
		case !ok || text != n.Value:
			j.add(line, at, "must be text: put it in quotes")
		}
	case "integer":
		num, ok := value.(int64)
		if !ok || n.Kind != yamlv3.ScalarNode {
			j.add(line, at, noValue(n, "must be a whole number"))
		} else if n.Value != strconv.FormatInt(num, 10) { // 010, 0x1F, 1_000, 1:30
			j.add(line, at, "must be a whole number, in plain decimal digits")
		}
	case "boolean":
		b, ok := value.(bool)
		if !ok || n.Kind != yamlv3.ScalarNode || n.Value != strconv.FormatBool(b) {
			j.add(line, at, noValue(n, "must be true or false"))
		}
	}
}

func noValue(n *yamlv3.Node, message string) string {
	if n.Kind == yamlv3.ScalarNode && n.Value == "" && plain(n) {
		return "has no value: " + message + ", or left out"
	}
	return message
}

// child finds the key of a mapping.
func child(n *yamlv3.Node, key string) (k, v *yamlv3.Node) {
	if n == nil || n.Kind != yamlv3.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// drop takes keys out of a mapping.
func drop(n *yamlv3.Node, passed func(key string) bool) {
	if n == nil || n.Kind != yamlv3.MappingNode {
		return
	}
	kept := n.Content[:0]
	for i := 0; i+1 < len(n.Content); i += 2 {
		if !passed(n.Content[i].Value) {
			kept = append(kept, n.Content[i], n.Content[i+1])
		}
	}
	n.Content = kept
}

var pathStep = regexp.MustCompile(`\[(\d+)\]|[^.\[\]]+`)

// find follows a field path as far as the tree goes: the node where it stops,
// the line of that (of its key, where it has one), and whether it is the end.
func find(root *yamlv3.Node, path string) (n *yamlv3.Node, line int, whole bool) {
	n, line = root, root.Line
	for _, m := range pathStep.FindAllStringSubmatch(path, -1) {
		if m[1] != "" {
			i, err := strconv.Atoi(m[1])
			if err != nil || n.Kind != yamlv3.SequenceNode || i >= len(n.Content) {
				return n, line, false
			}
			n = n.Content[i]
			line = n.Line
			continue
		}
		k, v := child(n, m[0])
		if v == nil {
			return n, line, false
		}
		n, line = v, k.Line
	}
	return n, line, true
}
