package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/multicidr/controller-manager/test/results"
)

// column is a value in the table of a scenario.
type column struct{ head, value string }

// A place of a document for the results of a file begins with a line that names the file, beside the document, and ends with placeEnd.
var (
	place    = regexp.MustCompile(`(?ms)^(<!-- results of ([^ ]+) -->\n).*?^(` + placeEnd + `)`)
	placeEnd = "<!-- end of results -->"
)

// reportInto writes the results of all files into the places that a document has for them.
func reportInto(document string) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	var errs []error
	text = place.ReplaceAllFunc(text, func(whole []byte) []byte {
		parts := place.FindSubmatch(whole)
		var b bytes.Buffer
		b.Write(parts[1])
		errs = append(errs, report(&b, filepath.Join(filepath.Dir(document), string(parts[2]))))
		b.Write(parts[3])
		return b.Bytes()
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if len(errs) == 0 {
		return fmt.Errorf("%s has no place for results", document)
	}
	return os.WriteFile(document, text, 0o644)
}

// report writes the results of a file as Markdown: medians of all rounds, and every round's mark.
func report(out io.Writer, path string) error {
	file, err := results.Read(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	name := ""
	if len(file.Results) > 0 {
		name, _, _ = strings.Cut(file.Results[0].Name, "/")
	}
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("%s is not of a scenario of this program", path)
	}
	m := file.Machine
	fmt.Fprintf(out, "\n`%s` at commit %.12s, %s, on %d cores of %s with %d GiB, Linux %s, load average %.1f before:\n\n",
		file.Command, file.Commit, file.Date.Format("2006-01-02"), m.Cores, m.CPU, m.MemoryBytes>>30, m.Kernel, m.LoadAverage)
	writeTable(out, scenarios[i].what(), scenarios[i].columns, file.Results)
	writeMarks(out, file.Marks)
	fmt.Fprintln(out)
	return nil
}

func writeTable(out io.Writer, what string, columns []column, all []results.Result) {
	fmt.Fprintf(out, "| %s | |", what)
	for _, c := range columns {
		fmt.Fprintf(out, " %s |", c.head)
	}
	fmt.Fprintf(out, "\n|---:|---|%s\n", strings.Repeat("---:|", len(columns)))
	for len(all) > 0 {
		first := all[0]
		var rounds, rest []results.Result
		for _, r := range all {
			if r.Name == first.Name && r.Nodes == first.Nodes {
				rounds = append(rounds, r)
			} else {
				rest = append(rest, r)
			}
		}
		_, who, _ := strings.Cut(first.Name, "/")
		fmt.Fprintf(out, "| %d | %s |", first.Nodes, who)
		for _, c := range columns {
			fmt.Fprintf(out, " %s |", median(rounds, c.value))
		}
		fmt.Fprintln(out)
		all = rest
	}
}

// median is that of a value, with three digits, which is as much as rounds have in common.
func median(rounds []results.Result, value string) string {
	var all []float64
	for _, r := range rounds {
		if v, ok := r.Values[value]; ok {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return digits((all[(len(all)-1)/2] + all[len(all)/2]) / 2)
}

func digits(v float64) string {
	if v >= 100 || v == float64(int(v)) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func writeMarks(out io.Writer, marks []results.Mark) {
	if len(marks) == 0 {
		return
	}
	fmt.Fprint(out, "\n| mark | limit | round by round | |\n|---|---:|---|---|\n")
	for len(marks) > 0 {
		first := marks[0]
		var rest []results.Mark
		var got []string
		held := 0
		for _, m := range marks {
			if m.Name != first.Name || m.Unit != first.Unit { // One name may be held against several.
				rest = append(rest, m)
				continue
			}
			got = append(got, strconv.FormatFloat(m.Got, 'g', 4, 64))
			if m.Held {
				held++
			}
		}
		verdict := "held"
		if held < len(got) {
			verdict = fmt.Sprintf("held in %d of %d", held, len(got))
		}
		fmt.Fprintf(out, "| %s | %v %s | %s | %s |\n", first.Name, first.Limit, first.Unit, strings.Join(got, ", "), verdict)
		marks = rest
	}
}
