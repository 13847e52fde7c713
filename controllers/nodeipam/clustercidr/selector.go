package clustercidr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/multicidr/controller-manager/controllers/text"
)

// maxIndexed limits how many values and terms of one selector are indexed. The index is built while the lock is held, and a selector can
// have 300,000 values. The terms of a larger selector are matched one by one, however many values they have.
const maxIndexed = 256

// compiledSelector is a nodeSelector, compiled independently of its pool.
type compiledSelector struct {
	text  string // canonical
	terms []term // those with the most requirements first
	// large is whether it has more than maxIndexed values and terms.
	large bool
	err   error // set if the selector breaks a rule; then there are no terms
}

// term is one term of a nodeSelector. Terms are ORed.
type term struct {
	requirements int
	all          []requirement // on labels and the name; ANDed
	// others are requirements on other fields. The CRD admits none.
	others *nodeaffinity.NodeSelector
	// oneOf has, for each requirement that asks for a label or the name, the attributes of which a Node has to have one. Empty for a large
	// selector.
	oneOf [][]attribute
}

// requirement is a requirement on one label, or with nameKey on the name. It gives the same result as nodeaffinity, but its cost hardly
// depends on the number of values, and it builds no index of the Node's fields.
type requirement struct {
	key      string
	operator v1.NodeSelectorOperator
	values   []string // sorted, without duplicates
	number   int64    // for Gt and Lt
}

func compileSelector(selector *v1.NodeSelector) compiledSelector {
	s := compiledSelector{text: canonical(selector)}
	if len(selector.NodeSelectorTerms) == 0 {
		s.err = errors.New("spec.nodeSelector has no terms and so matches no Node")
		return s
	}
	if _, s.err = nodeaffinity.NewNodeSelector(selector, field.WithPath(field.NewPath("spec", "nodeSelector"))); s.err != nil {
		return s
	}
	size := 0
	for _, t := range selector.NodeSelectorTerms {
		compiled := compileTerm(t)
		if compiled.requirements == 0 {
			continue // matches no Node, as in nodeaffinity
		}
		s.terms = append(s.terms, compiled)
		size++
		for _, r := range compiled.all {
			if r.operator == v1.NodeSelectorOpIn {
				size += len(r.values)
			}
		}
	}
	if s.large = size > maxIndexed; !s.large {
		for i := range s.terms {
			s.terms[i].oneOf = askedFor(s.terms[i].all)
		}
	}
	slices.SortStableFunc(s.terms, func(x, y term) int { return cmp.Compare(y.requirements, x.requirements) })
	return s
}

// compileTerm compiles a term that nodeaffinity has accepted.
func compileTerm(t v1.NodeSelectorTerm) term {
	compiled := term{requirements: len(t.MatchExpressions) + len(t.MatchFields)}
	add := func(key string, r v1.NodeSelectorRequirement) {
		compiled.all = append(compiled.all, compileRequirement(key, r))
	}
	for _, r := range t.MatchExpressions {
		add(r.Key, r)
	}
	var others []v1.NodeSelectorRequirement
	for _, r := range t.MatchFields {
		if r.Key == metav1.ObjectNameField {
			add(nameKey, r)
		} else {
			others = append(others, r)
		}
	}
	if len(others) > 0 {
		// The whole selector is valid, so a part of it is, too.
		compiled.others, _ = nodeaffinity.NewNodeSelector(&v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: others}}})
	}
	return compiled
}

func compileRequirement(key string, r v1.NodeSelectorRequirement) requirement {
	c := requirement{key: key, operator: r.Operator, values: slices.Compact(slices.Sorted(slices.Values(r.Values)))}
	if r.Operator == v1.NodeSelectorOpGt || r.Operator == v1.NodeSelectorOpLt {
		c.number, _ = strconv.ParseInt(r.Values[0], 10, 64) // nodeaffinity has checked that there is one value and that it is a number
	}
	return c
}

// askedFor returns, for each requirement that asks for a label or the name, the attributes of which a Node has to have one.
func askedFor(requirements []requirement) (all [][]attribute) {
	for _, r := range requirements {
		switch r.operator {
		case v1.NodeSelectorOpIn:
			attributes := make([]attribute, 0, len(r.values))
			for _, value := range r.values {
				attributes = append(attributes, attribute{r.key, value})
			}
			all = append(all, attributes)
		case v1.NodeSelectorOpExists, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			if r.key != nameKey {
				all = append(all, []attribute{{r.key, anyValue}})
			}
		}
	}
	return all
}

// matches reports whether a Node meets all requirements of the term.
func (t *term) matches(node *v1.Node) bool {
	for i := range t.all {
		if !t.all[i].matches(node) {
			return false
		}
	}
	return t.others == nil || t.others.Match(node)
}

func (r *requirement) matches(node *v1.Node) bool {
	value, has := node.Labels[r.key]
	if r.key == nameKey {
		if value, has = node.Name, true; value == "" {
			return true // nodeaffinity ignores the fields of a Node without a name, which no API server has
		}
	}
	switch r.operator {
	case v1.NodeSelectorOpIn:
		return has && r.has(value)
	case v1.NodeSelectorOpNotIn:
		return !has || !r.has(value)
	case v1.NodeSelectorOpExists:
		return has
	case v1.NodeSelectorOpDoesNotExist:
		return !has
	}
	number, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return false
	}
	if r.operator == v1.NodeSelectorOpGt {
		return number > r.number
	}
	return number < r.number
}

func (r *requirement) has(value string) bool {
	if len(r.values) == 1 { // the usual case
		return r.values[0] == value
	}
	_, found := slices.BinarySearch(r.values, value)
	return found
}

// Mismatch says which requirements a Node does not meet, of the selector's term of which it misses the fewest; empty if p matches the Node.
func (p *Pool) Mismatch(node *v1.Node) string {
	if p.Matches(node) {
		return ""
	}
	var fewest []string
	for i := range p.terms {
		var missed []string
		for j := range p.terms[i].all {
			if r := &p.terms[i].all[j]; !r.matches(node) {
				missed = append(missed, r.missedBy(node))
			}
		}
		if p.terms[i].others != nil && !p.terms[i].others.Match(node) {
			missed = append(missed, "matchFields")
		}
		if i == 0 || len(missed) < len(fewest) {
			fewest = missed
		}
	}
	if len(fewest) == 0 {
		return "its nodeSelector matches no Node"
	}
	return "it requires " + text.Listed(fewest)
}

// missedBy formats a requirement with what a Node has instead.
func (r *requirement) missedBy(node *v1.Node) string {
	key, has := r.key, "the Node has no such label"
	switch value, ok := node.Labels[r.key]; {
	case r.key == nameKey:
		key, has = metav1.ObjectNameField, fmt.Sprintf("the Node is %q", node.Name)
	case ok:
		has = fmt.Sprintf("the Node has %q", text.Cut(value, text.MaxValue))
	}
	wants := string(r.operator)
	if len(r.values) > 0 {
		wants += fmt.Sprintf(" [%s]", text.ValuesText(r.values))
	}
	return fmt.Sprintf("%s %s, and %s", key, wants, has)
}

// sameSelector reports whether two selectors are identical, including their order.
func sameSelector(a, b *v1.NodeSelector) bool {
	if a == nil || b == nil {
		return a == b
	}
	same := func(x, y v1.NodeSelectorRequirement) bool {
		return x.Key == y.Key && x.Operator == y.Operator && slices.Equal(x.Values, y.Values)
	}
	return slices.EqualFunc(a.NodeSelectorTerms, b.NodeSelectorTerms, func(x, y v1.NodeSelectorTerm) bool {
		return slices.EqualFunc(x.MatchExpressions, y.MatchExpressions, same) && slices.EqualFunc(x.MatchFields, y.MatchFields, same)
	})
}

// SelectorCache keeps the last compiled selector of each ClusterCIDR, by name. The status of a ClusterCIDR in use changes every second, its
// selector hardly ever, and compiling a selector of 1.5 MB takes a second.
type SelectorCache map[string]knownSelector

type knownSelector struct {
	source   *v1.NodeSelector
	compiled compiledSelector
}

// of returns the compiled selector of the ClusterCIDR of this name. selector must not be nil. A nil cache compiles each time.
func (s SelectorCache) of(name string, selector *v1.NodeSelector) compiledSelector {
	if known, ok := s[name]; ok && sameSelector(known.source, selector) {
		return known.compiled
	}
	compiled := compileSelector(selector)
	if s != nil {
		s[name] = knownSelector{selector, compiled}
	}
	return compiled
}
