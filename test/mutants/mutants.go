package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one change of the sources that puts a defect into them.
type mutant struct {
	defect    string // a row of test/defects.md
	pkg, test string // what has to fail, from that row
	old, new  []string
	// file has the lines of old once, between these offsets.
	file       string
	begin, end int
}

// read returns the mutants of mutants.txt, which are apart by empty lines. The first line of each is a defect as test/defects.md has it. Then come lines
// that are removed (-), added (+), or stay and make the place the only one. Spaces at both ends of lines do not count.
func read(root string) (mutants []mutant, err error) {
	text, err := os.ReadFile(filepath.Join(root, "test/mutants/mutants.txt"))
	if err != nil {
		return nil, err
	}
	tests, err := catalogue(root)
	if err != nil {
		return nil, err
	}
	sources, err := readSources(filepath.Join(root, "controllers"))
	if err != nil {
		return nil, err
	}
	for one := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		lines := strings.Split(one, "\n")
		m := mutant{defect: lines[0]}
		for _, line := range lines[1:] {
			of, rest := line[0], strings.TrimSpace(line[1:])
			if of != '+' {
				m.old = append(m.old, rest)
			}
			if of != '-' {
				m.new = append(m.new, rest)
			}
		}
		test, ok := tests[m.defect]
		if !ok {
			return nil, fmt.Errorf("%s: test/defects.md has no such row", m.defect)
		}
		pkg, name, _ := strings.Cut(test, " ")
		m.pkg, m.test = "./"+pkg, name
		if err := m.find(root, sources); err != nil {
			return nil, err
		}
		mutants = append(mutants, m)
	}
	return mutants, nil
}

// find finds the only place of a mutant.
func (m *mutant) find(root string, sources map[string]string) error {
	var places []string
	for file, text := range sources {
		lines := strings.SplitAfter(text, "\n")
		begin := 0
		for i, line := range lines {
			if n := len(m.old); i+n <= len(lines) && slices.EqualFunc(lines[i:i+n], m.old, func(is, want string) bool { return strings.TrimSpace(is) == want }) {
				places = append(places, file)
				m.begin, m.end = begin, begin+len(strings.Join(lines[i:i+n], ""))
			}
			begin += len(line)
		}
	}
	if len(places) != 1 {
		return fmt.Errorf("%s: want these lines in one place of the code, found them in %v: the code has changed, so change test/mutants/mutants.txt\n%s",
			m.defect, places, strings.Join(m.old, "\n"))
	}
	var err error
	m.file, err = filepath.Rel(root, places[0])
	return err
}

func readSources(dir string) (map[string]string, error) {
	sources := map[string]string{}
	return sources, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		sources[path] = string(text)
		return err
	})
}

// catalogue returns the rows of test/defects.md: the package and test that fails, by defect.
func catalogue(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "test/defects.md"))
	if err != nil {
		return nil, err
	}
	tests := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) == 3 && strings.HasPrefix(line, "| ") && cells[1] != "test" && !strings.HasPrefix(cells[1], "none") {
			tests[strings.TrimPrefix(cells[0], "| ")] = cells[1]
		}
	}
	return tests, nil
}
