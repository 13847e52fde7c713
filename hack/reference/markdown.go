package main

import (
	"fmt"
	"regexp"
	"strings"
)

// generated marks the pages that this program writes.
const generated = "<!-- Written by make generate. Do not edit. -->"

// markdown collects a page: one sentence a line, no hard wraps.
type markdown struct {
	b       strings.Builder
	list    bool            // the last block was an item
	anchors map[string]bool // of headings
	err     error
}

// text returns the page.
func (w *markdown) text() (string, error) { return strings.TrimRight(w.b.String(), "\n") + "\n", w.err }

// front is what the site knows of a page.
func (w *markdown) front(title, description string, weight int) {
	fmt.Fprintf(&w.b, "---\ntitle: %q\ndescription: %q\nweight: %d\n---\n\n%s\n\n", title, description, weight, generated)
}

// heading adds a heading. Others link to its anchor, so two headings of a page with the same one are an error.
func (w *markdown) heading(level int, text string) {
	w.endList()
	if w.anchors == nil {
		w.anchors = map[string]bool{}
	}
	if a := anchor(text); w.anchors[a] && w.err == nil {
		w.err = fmt.Errorf("two headings have the anchor #%s", a)
	} else {
		w.anchors[a] = true
	}
	fmt.Fprintf(&w.b, "%s %s\n\n", strings.Repeat("#", level), text)
}

// paragraph adds sentences.
func (w *markdown) paragraph(text string) {
	w.endList()
	w.b.WriteString(strings.Join(sentences(text), "\n") + "\n\n")
}

// item adds an item of a list. Its sentences stay in one item.
func (w *markdown) item(text string) {
	w.b.WriteString("- " + strings.Join(sentences(text), "\n  ") + "\n")
	w.list = true
}

// code adds a block of code.
func (w *markdown) code(language, text string) {
	w.endList()
	fmt.Fprintf(&w.b, "```%s\n%s\n```\n\n", language, strings.TrimRight(text, "\n"))
}

func (w *markdown) endList() {
	if w.list {
		w.b.WriteString("\n")
		w.list = false
	}
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)

// anchor is what forges and the site make of a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

var sentenceEnd = regexp.MustCompile("([.!?][)\"]?) +([A-Z`$(])")

// sentences splits a text, whose lines may be wrapped, into sentences.
func sentences(text string) []string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.Split(sentenceEnd.ReplaceAllString(text, "$1\n$2"), "\n")
}

// paragraphs splits a text at empty lines.
func paragraphs(text string) []string {
	return regexp.MustCompile(`\n\s*\n`).Split(strings.TrimSpace(text), -1)
}

// plain makes a text that is no Markdown one that shows as it is. What is between backticks is code already.
func plain(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.NewReplacer("<", "&lt;", "*", `\*`, "_", `\_`, "[", `\[`).Replace(parts[i])
	}
	return strings.Join(parts, "`")
}

// ended is a text with a full stop at its end.
func ended(text string) string {
	if text = strings.TrimSpace(text); strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// quoted is a text as code.
func quoted(text string) string { return "`" + strings.Join(strings.Fields(text), " ") + "`" }
