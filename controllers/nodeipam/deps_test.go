package nodeipam_test

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

// TestPurePackages keeps what decides pure: it knows no client, context, clock, lock or log. Equal input gives equal output.
func TestPurePackages(t *testing.T) {
	const module = "github.com/multicidr/controller-manager/"
	impure := regexp.MustCompile(`^(context|log|math/rand|net/http|os|runtime|sync)(/|$)`)
	allowed := regexp.MustCompile(`^([a-z0-9/]+|` + // the standard library
		`k8s\.io/(api/.*|apimachinery/.*|component-helpers/scheduling/.*|utils/net)|` +
		module + `(apis/networking/v1|controllers/(ipam|text|nodeipam/(pool|allocator))))$`)
	clock := regexp.MustCompile(`^(Now|Since|Until|Sleep|After|AfterFunc|Tick|NewTimer|NewTicker)$`)
	for _, dir := range []string{"../ipam", "../text", "pool", "allocator", "fromflags"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, error %v", dir, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				if path, _ := strconv.Unquote(spec.Path.Value); impure.MatchString(path) || !allowed.MatchString(path) {
					t.Errorf("%s imports %s", name, path)
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && clock.MatchString(s.Sel.Name) {
						t.Errorf("%s reads a clock: time.%s", name, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
}
