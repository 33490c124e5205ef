package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
)

// definitions are those of all kinds, to be read only. A copy of each at each use
// would cost a wait for a thousand objects half a second a look.
var definitions = sync.OnceValue(func() map[string]*apiextensionsv1.CustomResourceDefinition {
	all := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, kind := range v1alpha1.Kinds() {
		all[kind] = v1alpha1.CRD(kind)
	}
	return all
})

func definition(kind string) *apiextensionsv1.CustomResourceDefinition { return definitions()[kind] }

// kindNamed is the kind that word means, by the names that the kinds' CRDs give:
// sessions, session, ses, or with the group behind it, as session.skc.dev.
func kindNamed(word string) (string, bool) {
	word = strings.ToLower(word)
	word, _ = strings.CutSuffix(word, "."+v1alpha1.Group)
	for _, kind := range v1alpha1.Kinds() {
		names := definition(kind).Spec.Names
		if word == names.Plural || word == names.Singular || slices.Contains(names.ShortNames, word) {
			return kind, true
		}
	}
	return "", false
}

// selection is what the arguments of a verb choose: the named objects, or all
// of a kind when none is named.
type selection struct {
	kind  string // of all, or of the first that is named
	given bool   // the kind was written, and is not the default
	keys  []api.Key
}

// of is the key of an object, in namespace ns if its kind has namespaces.
func of(kind, ns, name string) api.Key {
	if v1alpha1.ClusterScoped(kind) {
		ns = ""
	}
	return api.Key{Kind: kind, Namespace: ns, Name: name}
}

// choose reads [KIND] [NAME...] and [KIND/]NAME. A word that is no kind is the
// name of a session.
func (c *cli) choose(args []string) (selection, error) {
	ns, err := c.ns()
	if err != nil {
		return selection{}, err
	}
	s := selection{kind: v1alpha1.KindSession}
	if len(args) > 0 {
		if kind, ok := kindNamed(args[0]); ok {
			s.kind, s.given = kind, true
			args = args[1:]
		}
	}
	for _, arg := range args {
		kind, name := s.kind, arg
		if word, rest, ok := strings.Cut(arg, "/"); ok {
			if kind, ok = kindNamed(word); !ok {
				return s, usagef("%q is no kind; there are: %s", word, kindList())
			}
			name = rest
		}
		if err := checkName(strings.ToLower(kind)+" name", name); err != nil {
			return s, err
		}
		s.keys = append(s.keys, of(kind, ns, name))
	}
	if len(s.keys) > 0 {
		s.kind = s.keys[0].Kind
	}
	return s, nil
}

// chooseSome is choose for verbs that need at least one name.
func (c *cli) chooseSome(args []string) ([]api.Key, error) {
	s, err := c.choose(args)
	if err == nil && len(s.keys) == 0 {
		err = usagef("name at least one %s", strings.ToLower(s.kind))
	}
	return s.keys, err
}

// chooseOne is choose for verbs that work on one session.
func (c *cli) chooseOne(arg string) (api.Key, error) {
	keys, err := c.chooseSome([]string{arg})
	if err != nil {
		return api.Key{}, err
	}
	if keys[0].Kind != v1alpha1.KindSession {
		return api.Key{}, usagef("%s is no session", short(keys[0]))
	}
	return keys[0], nil
}

func kindList() string {
	var names []string
	for _, kind := range v1alpha1.Kinds() {
		names = append(names, plural(kind))
	}
	return strings.Join(names, ", ")
}

// kindsOf are the kinds of the objects, each once, in their order.
func kindsOf(keys []api.Key) []string {
	var all []string
	for _, key := range keys {
		if !slices.Contains(all, key.Kind) {
			all = append(all, key.Kind)
		}
	}
	return all
}

// plural is how people name several of a kind: sessions.
func plural(kind string) string { return definition(kind).Spec.Names.Plural }

// short is how results name an object: session/web.
func short(k api.Key) string { return fmt.Sprintf("%s/%s", strings.ToLower(k.Kind), k.Name) }
