package ipam

import (
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestImportsOnlyTheStandardLibrary keeps the core pure. The standard library imports only itself, so it is enough to look at
// the direct imports. The test reads the files as text, so that no build tag hides one.
func TestImportsOnlyTheStandardLibrary(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	imports := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if pkg, err := build.Import(path, ".", build.FindOnly); err != nil || !pkg.Goroot {
				t.Errorf("%s imports %s, which is not in the standard library (%v)", name, path, err)
			}
			imports++
		}
	}
	if imports == 0 {
		t.Error("no import was read, so nothing was checked")
	}
}
