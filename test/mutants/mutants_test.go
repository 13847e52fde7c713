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

// A test that has moved to another package would catch nothing any more.
func TestTheTestsOfMutantsExist(t *testing.T) {
	sources := map[string]string{}
	for _, m := range mutants {
		pkg, test := m.caughtBy()
		if sources[pkg] == "" {
			files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
			if err != nil || len(files) == 0 {
				t.Fatalf("%s: %d test files, error %v", pkg, len(files), err)
			}
			for _, name := range files {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				sources[pkg] += string(text)
			}
		}
		if name, _, _ := strings.Cut(test, "/"); !strings.Contains(sources[pkg], "\nfunc "+name+"(") {
			t.Errorf("mutant %s: there is no test %s in %s", m.name, name, pkg)
		}
	}
}
