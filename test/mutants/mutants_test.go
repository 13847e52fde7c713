package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// A mutant whose place in the code has changed must be changed with it, and not be lost until somebody runs all of them.
func TestMutantsApply(t *testing.T) {
	mutants, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mutateAll(root, mutants); err != nil {
		t.Error(err)
	}
	t.Logf("%d mutants", len(mutants))
}

// A test that has moved to another package, or has another name, would catch nothing any more.
func TestCatalogueNamesTests(t *testing.T) {
	tests, err := catalogue(root)
	if err != nil {
		t.Fatal(err)
	}
	for defect, test := range tests {
		pkg, name, _ := strings.Cut(test, " ")
		files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "\nfunc "+name+"(")
		}
		if !found {
			t.Errorf("%s: there is no test %s in %q", defect, name, pkg)
		}
	}
	t.Logf("%d defects", len(tests))
}
