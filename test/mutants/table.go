package main

import (
	"fmt"
	"os"
	"strings"
)

// The table of mutants is in this document, between these lines.
const (
	document = "docs/engineering/simulation.md"
	begin    = "<!-- mutants: written by `make mutants WRITE=1` -->\n"
	end      = "<!-- end of mutants -->\n"
)

func writeTable(mutants []mutant, verdicts []verdict) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s: want the lines %q and %q around the table", document, begin, end)
	}
	return os.WriteFile(document, []byte(before+begin+table(mutants, verdicts)+end+after), 0o644)
}

func table(mutants []mutant, verdicts []verdict) string {
	var t strings.Builder
	t.WriteString("| mutant | the defect | who has or had it | caught by | what broke | seed |\n|---|---|---|---|---|---|\n")
	for i, m := range mutants {
		v := verdicts[i]
		fmt.Fprintf(&t, "| %s | %s | %s | %s | %s | %s |\n", m.name, m.defect, m.seen, v.by, v.broke, v.seed)
	}
	return t.String()
}
