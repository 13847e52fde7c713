package pool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/multicidr/controller-manager/controllers/text"
)

// term is one term of a nodeSelector, with at least one requirement. Terms are ORed.
type term struct {
	requirements int
	source       v1.NodeSelectorTerm
	selector     *nodeaffinity.NodeSelector
}

// addSelector compiles the nodeSelector, or takes it from an earlier pool of the same object and generation: compiling 1.5 MB takes a second.
func (p *Pool) addSelector(selector *v1.NodeSelector, earlier *Pool) (err error) {
	if selector == nil {
		return nil
	}
	p.Selective = true
	if earlier != nil && earlier.ID == p.ID && earlier.generation == p.generation && len(earlier.terms) > 0 {
		p.Selector, p.terms = earlier.Selector, earlier.terms
		return nil
	}
	p.Selector = canonical(selector)
	p.terms, err = compileTerms(selector)
	return err
}

func compileTerms(selector *v1.NodeSelector) (terms []term, err error) {
	if len(selector.NodeSelectorTerms) == 0 {
		return nil, errors.New("spec.nodeSelector has no terms and so matches no Node")
	}
	for _, source := range selector.NodeSelectorTerms {
		t := term{requirements: len(source.MatchExpressions) + len(source.MatchFields), source: source}
		if t.requirements == 0 {
			continue // It matches no Node, as elsewhere in Kubernetes.
		}
		if t.selector, err = nodeaffinity.NewNodeSelector(&v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{source}}); err != nil {
			_, err = nodeaffinity.NewNodeSelector(selector, field.WithPath(field.NewPath("spec", "nodeSelector"))) // It says which term.
			return nil, err
		}
		terms = append(terms, t)
	}
	slices.SortStableFunc(terms, func(x, y term) int { return cmp.Compare(y.requirements, x.requirements) })
	return terms, nil
}

// Matches reports whether the selector of p selects a Node.
func (p *Pool) Matches(node *v1.Node) bool {
	return !p.Selective || slices.ContainsFunc(p.terms, func(t term) bool { return t.selector.Match(node) })
}

// Mismatch says which requirements a Node does not meet, of the term of which it misses the fewest; empty if p selects the Node.
func (p *Pool) Mismatch(node *v1.Node) string {
	if p.Matches(node) {
		return ""
	}
	var fewest []string
	for i, t := range p.terms {
		missed := t.missedBy(node)
		if i == 0 || len(missed) < len(fewest) {
			fewest = missed
		}
	}
	if len(fewest) == 0 {
		return "its nodeSelector matches no Node"
	}
	return "it requires " + text.Listed(fewest)
}

// missedBy formats the requirements that a Node does not meet, with what it has instead.
func (t term) missedBy(node *v1.Node) (missed []string) {
	check := func(r v1.NodeSelectorRequirement, alone v1.NodeSelectorTerm, what string, values map[string]string) {
		selector, err := nodeaffinity.NewNodeSelector(&v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{alone}})
		if err != nil || selector.Match(node) {
			return
		}
		wants, has := string(r.Operator), "the Node has no such "+what
		if len(r.Values) > 0 {
			wants += fmt.Sprintf(" [%s]", text.ValuesText(slices.Sorted(slices.Values(r.Values))))
		}
		if value, ok := values[r.Key]; ok {
			has = fmt.Sprintf("the Node has %q", text.Cut(value, text.MaxValue))
		}
		missed = append(missed, fmt.Sprintf("%s %s, and %s", r.Key, wants, has))
	}
	for _, r := range t.source.MatchExpressions {
		check(r, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{r}}, "label", node.Labels)
	}
	for _, r := range t.source.MatchFields {
		check(r, v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{r}}, "field", map[string]string{metav1.ObjectNameField: node.Name})
	}
	return missed
}

// canonical formats a selector with sorted values, requirements and terms, so that selectors that differ only in order give the same text.
func canonical(selector *v1.NodeSelector) string {
	requirements := func(prefix string, rs []v1.NodeSelectorRequirement) []string {
		var texts []string
		for _, r := range rs {
			texts = append(texts, fmt.Sprintf("%s%s %s %q", prefix, r.Key, r.Operator, slices.Sorted(slices.Values(r.Values))))
		}
		return texts
	}
	var terms []string
	for _, t := range selector.NodeSelectorTerms {
		texts := append(requirements("", t.MatchExpressions), requirements("field ", t.MatchFields)...)
		slices.Sort(texts)
		terms = append(terms, strings.Join(texts, ", "))
	}
	slices.Sort(terms)
	return strings.Join(terms, " or ")
}
