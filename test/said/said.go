// Package said keeps in one file, said.golden, what the product tells people: health, events, conditions, errors about flags. A test compares what it hears with the file; a
// reader finds all sentences in one place, and a change of words is one diff. `make said` writes the file again.
package said

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	update = flag.Bool("said.update", false, "write what this test hears into test/said/said.golden")

	mu   sync.Mutex
	once = map[string]bool{} // tests whose earlier sentences were removed
)

// Check compares a sentence with that of this test, or subtest, in the file. A test may have several, in order.
func Check(t testing.TB, sentences ...string) {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	file, pkg := place(t)
	lines := read(t, file)
	of := pkg + " " + t.Name() + ": "
	sentences = slices.Clone(sentences)
	for i := range sentences {
		sentences[i] = cmp.Or(sentences[i], "(nothing)")
	}
	if *update {
		test, _, _ := strings.Cut(t.Name(), "/")
		lines = slices.DeleteFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, of) || !once[test] && (strings.HasPrefix(l, pkg+" "+test+"/") || strings.HasPrefix(l, pkg+" "+test+": "))
		})
		once[test] = true
		for _, s := range sentences {
			lines = append(lines, of+s)
		}
		slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(key(a), key(b)) })
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	var want []string
	for _, l := range lines {
		if s, ok := strings.CutPrefix(l, of); ok {
			want = append(want, s)
		}
	}
	if !slices.Equal(want, sentences) {
		t.Errorf("it says\n%s\nand test/said/said.golden has\n%s\nIf that is meant, run `make said`, and read the diff.", strings.Join(sentences, "\n"), strings.Join(want, "\n"))
	}
}

// Of returns the only sentence of another test, for one of the real binary: it must say the same.
func Of(t testing.TB, test string) string {
	t.Helper()
	file, _ := place(t)
	for _, l := range read(t, file) {
		if s, ok := strings.CutPrefix(l, test+": "); ok {
			return s
		}
	}
	t.Fatalf("test/said/said.golden has nothing of %s", test)
	return ""
}

func key(line string) string {
	k, _, _ := strings.Cut(line, ": ")
	return k
}

// place returns the path of the file, and that of the package of the test in the module.
func place(t testing.TB) (file, pkg string) {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir := root; ; root = filepath.Dir(root) {
		if file = filepath.Join(root, "test/said/said.golden"); exists(file) || root == filepath.Dir(root) {
			pkg, err = filepath.Rel(root, dir)
			if err != nil {
				t.Fatal(err)
			}
			return file, filepath.ToSlash(pkg)
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func read(t testing.TB, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
