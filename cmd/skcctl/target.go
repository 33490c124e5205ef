package main

import (
	"fmt"
	"slices"
	"strings"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
)

// kinds are the ones that can be named on the command line, by the names that
// their CRDs give them.
var kinds = []string{v1alpha1.KindSession}

// kindNamed is the kind that word means: sessions, session, ses, or with the
// group behind it, as session.skc.dev.
func kindNamed(word string) (string, bool) {
	word = strings.ToLower(word)
	word, _ = strings.CutSuffix(word, "."+v1alpha1.Group)
	for _, kind := range kinds {
		names := v1alpha1.CRD(kind).Spec.Names
		if word == names.Plural || word == names.Singular || slices.Contains(names.ShortNames, word) {
			return kind, true
		}
	}
	return "", false
}

// selection is what the arguments of a verb choose: the named objects, or all
// of a kind when none is named.
type selection struct {
	kind string
	keys []api.Key
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
			s.kind = kind
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
		s.keys = append(s.keys, api.Key{Kind: kind, Namespace: ns, Name: name})
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
	return keys[0], nil
}

func kindList() string {
	var names []string
	for _, kind := range kinds {
		names = append(names, v1alpha1.CRD(kind).Spec.Names.Plural)
	}
	return strings.Join(names, ", ")
}

// short is how results name an object: session/web.
func short(k api.Key) string { return fmt.Sprintf("%s/%s", strings.ToLower(k.Kind), k.Name) }
