package main

import (
	"os"
	"strings"
	"testing"
)

const root = "../.."

// A mutant whose place in the code has changed must be changed with it, and not be lost until somebody runs all of them.
func TestMutantsApply(t *testing.T) {
	names := map[string]bool{}
	if _, err := mutateAll(root, mutants); err != nil {
		t.Error(err)
	}
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("two mutants have the name %s", m.name)
		}
		names[m.name] = true
	}
}

func TestTableHasEveryMutant(t *testing.T) {
	text, err := os.ReadFile(root + "/" + document)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), begin)
	got, _, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("no table in %s", document)
	}
	for _, m := range mutants {
		if !strings.Contains(got, "| "+m.name+" | "+m.defect+" |") {
			t.Errorf("the table in %s lacks %s: run make mutants WRITE=1", document, m.name)
		}
	}
}
