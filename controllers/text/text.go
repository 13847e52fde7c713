// Package text formats messages of limited length.
package text

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Everything that is reported is limited in length. An API object can contain a megabyte of text, or tens of thousands of podCIDRs. A
// status or event that repeated these would be refused and retried forever.
const (
	// MaxNamed limits how many objects a message names.
	MaxNamed = 10
	// MaxListed limits the bytes of a list in a message, so that the advice that follows still fits in an event.
	MaxListed = 700
	// MaxMessage is the longest event message, in bytes, that every events API accepts.
	MaxMessage = 1024
	// MaxCondition is the longest condition message. The API accepts eight times as much, which would be too long to read.
	MaxCondition = 4096
	// MaxProblem limits the text about what is wrong with one object. Every message about a Node repeats the problems of ClusterCIDRs.
	MaxProblem = 1000
	// MaxValue limits how much of one value is shown.
	MaxValue = 100
)

// Cut truncates a text to at most this many bytes, at a character boundary.
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

// Listed joins as many texts as a message has room for, and says how many more there are.
func Listed(texts []string) string { return ListedOf(texts, len(texts)) }

// ListedOf joins the first of n texts; texts need not contain all of them.
func ListedOf(texts []string, n int) string {
	few := firstFew(texts)
	if more := n - len(few); more > 0 {
		few = append(few, fmt.Sprintf("%d more", more))
	}
	return strings.Join(few, "; ")
}

// ListedFew joins the first texts, sorted. If there are more, it does not say how many. So they need not be counted, and the message does
// not change with their number.
func ListedFew(texts []string) string {
	slices.Sort(texts[:min(len(texts), MaxNamed)])
	return ListedFirst(texts)
}

// ListedFirst is ListedFew for texts whose order matters.
func ListedFirst(texts []string) string {
	few := firstFew(texts)
	if len(texts) > len(few) {
		few = append(few, "and more")
	}
	return strings.Join(few, "; ")
}

// firstFew returns a copy of the first texts that fit in a list, at least one.
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

// BlocksText formats blocks, of which a Node can show any number.
func BlocksText(blocks []netip.Prefix) string {
	text := fmt.Sprint(blocks[:min(len(blocks), MaxNamed)])
	if more := len(blocks) - MaxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// ValuesText formats values that come from objects.
func ValuesText(values []string) string {
	var texts []string
	for _, value := range values[:min(len(values), MaxNamed)] {
		texts = append(texts, fmt.Sprintf("%q", Cut(value, MaxValue)))
	}
	return ListedOf(texts, len(values))
}

// Replace says how a Node gets other podCIDRs. A group of Nodes in a cloud makes a new machine for one that is deleted; any other registers its Node
// again when it starts.
const Replace = "drain and delete it, then reboot its machine or, in a node group, delete the machine"

func Families(fs []ipam.Family) string {
	var texts []string
	for _, f := range fs {
		texts = append(texts, f.String())
	}
	return strings.Join(texts, " and ")
}

// Counted formats a number with the matching singular or plural.
func Counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
