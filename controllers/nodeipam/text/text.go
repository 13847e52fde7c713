// Package text writes messages that have an end.
package text

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// What people and the API server are told has an end. An object of the API has room for a text of a megabyte, or for tens of thousands of
// podCIDRs, and a status or an event in which they were repeated would be refused, and so tried again for ever.
const (
	// maxNamed bounds how many objects a message names.
	MaxNamed = 10
	// maxListed bounds how many bytes a list in a message takes, so that what follows it, which is what to do, is there in an event too.
	MaxListed = 700
	// maxMessage is the longest message of an event that every API for events takes, in bytes.
	MaxMessage = 1024
	// maxCondition is the longest message of a condition. The API takes eight times as much; nobody reads that.
	MaxCondition = 4096
	// maxProblem is how much is said of what is wrong with one object. Every message about a Node repeats what is wrong with a ClusterCIDR.
	MaxProblem = 1000
	// maxValue is how much of one value is shown.
	MaxValue = 100
)

// cut returns a text of at most so many bytes: the beginning of one that is longer, up to the end of a character.
func Cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	const more = " ..."
	end := most - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// listed joins texts, as many as a message has room for, and says how many more there are.
func Listed(texts []string) string { return ListedOf(texts, len(texts)) }

// listedOf joins the first of n texts, which may be all that are given.
func ListedOf(texts []string, n int) string {
	few := firstFew(texts)
	if more := n - len(few); more > 0 {
		few = append(few, fmt.Sprintf("%d more", more))
	}
	return strings.Join(few, "; ")
}

// listedFew joins, sorted, the first of texts, of which it sorts up to maxNamed. If there are more it does not say how many: they need not be
// counted, and a message does not become another one whenever their number does.
func ListedFew(texts []string) string {
	slices.Sort(texts[:min(len(texts), MaxNamed)])
	few := firstFew(texts)
	if len(texts) > len(few) {
		few = append(few, "and more")
	}
	return strings.Join(few, "; ")
}

// firstFew returns a copy of the first texts that a list has room for, at least of one.
func firstFew(texts []string) []string {
	few, left := make([]string, 0, MaxNamed+1), MaxListed
	for _, text := range texts[:min(len(texts), MaxNamed)] {
		text = Cut(text, MaxListed)
		if left -= len(text); left < 0 {
			break
		}
		few = append(few, text)
	}
	return few
}

// blocksText writes blocks, of which a Node can show any number.
func BlocksText(blocks []netip.Prefix) string {
	text := fmt.Sprint(blocks[:min(len(blocks), MaxNamed)])
	if more := len(blocks) - MaxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// valuesText writes values that others have written.
func ValuesText(values []string) string {
	var texts []string
	for _, value := range values[:min(len(values), MaxNamed)] {
		texts = append(texts, fmt.Sprintf("%q", Cut(value, MaxValue)))
	}
	return ListedOf(texts, len(values))
}

func Families(fs []ipam.Family) string {
	var texts []string
	for _, f := range fs {
		texts = append(texts, f.String())
	}
	return strings.Join(texts, " and ")
}

// counted writes a number with the word that goes with it.
func Counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
