package clusteripam

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestWhatThePureCoreImports keeps what decides from making calls: it reads no clock, holds no lock, logs nothing and knows no client. The
// two layers of addresses do not know each other.
func TestWhatThePureCoreImports(t *testing.T) {
	const module = `github\.com/multicidr/controller-manager/`
	types := `k8s\.io/(apiextensions-apiserver/pkg/apis/apiextensions/v1|apimachinery/pkg/(types|api/(equality|meta)|apis/meta/v1|util/resourceversion))|` +
		module + `(apis/(k0rdent|clusterapi)/v1[a-z0-9]*|controllers/text)`
	for dir, allowed := range map[string]string{
		"addresses":      `[a-z0-9/]+|` + module + `controllers/ipam`,
		"incluster/book": `[a-z0-9/]+|` + types + `|` + module + `controllers/clusteripam/addresses`,
		"claims/binding": `[a-z0-9/]+|` + types,
		"gate/opening":   `[a-z0-9/]+|` + types + `|` + module + `controllers/clusteripam/claims/binding`,
		"infoblox/host":  `[a-z0-9/]+|` + types,
		"infoblox/known": `[a-z0-9/]+|` + types + `|k8s\.io/api/core/v1|` + module + `controllers/clusteripam/(shell|cluster|infoblox/(host|wapi))`,
	} {
		only := regexp.MustCompile(`^(` + allowed + `)$`)
		for name, file := range filesOf(t, filepath.Join(dir, "*.go")) {
			for _, path := range importsOf(t, file) {
				if !only.MatchString(path) || path == "context" || path == "os" || strings.HasPrefix(path, "sync") || strings.HasPrefix(path, "net/http") {
					t.Errorf("%s imports %s", name, path)
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Now" {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
						t.Errorf("%s reads a clock", name)
					}
				}
				return true
			})
		}
	}
	for here, other := range map[string]string{"*.go": "nodeipam", "*/*.go": "nodeipam", "*/*/*.go": "nodeipam", "../nodeipam/*.go": "clusteripam", "../nodeipam/*/*.go": "clusteripam"} {
		for name, file := range filesOf(t, here) {
			for _, path := range importsOf(t, file) {
				if strings.Contains(path, "controllers/"+other) {
					t.Errorf("%s imports %s", name, path)
				}
			}
		}
	}
}

// filesOf parses the files of a pattern that are no tests.
func filesOf(t *testing.T, pattern string) map[string]*ast.File {
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, error %v", pattern, len(names), err)
	}
	files := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
	}
	return files
}

func importsOf(t *testing.T, file *ast.File) (paths []string) {
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}
