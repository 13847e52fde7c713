package nodeipam

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

// TestWhatThePureCoreImports keeps what decides from making calls: it reads no clock, holds no lock, logs nothing and knows no client. What it is told,
// it is told in arguments, so equal input has equal output.
func TestWhatThePureCoreImports(t *testing.T) {
	const module = "github.com/multicidr/controller-manager/"
	types := `k8s\.io/(api/(core|networking)/v1|apimachinery/pkg/(types|labels|selection|util/validation/field|api/(equality|meta)|apis/meta/v1)|component-helpers/.*|utils/net)|` + module + `apis/networking/v1`
	for dir, allowed := range map[string]string{
		"../text":     `[a-z0-9/]+|` + module + `controllers/ipam`,
		"clustercidr": `[a-z0-9/]+|` + types + `|` + module + `controllers/(ipam|text)`,
		"fromflags":   `[a-z0-9/]+|` + types + `|` + module + `controllers/(ipam|nodeipam/clustercidr)`,
		"exhausted":   `[a-z0-9/]+|` + module + `controllers/(ipam|text|nodeipam/clustercidr)`,
		"conditions":  `[a-z0-9/]+|` + types + `|` + module + `controllers/(ipam|text|nodeipam/clustercidr)`,
		"names":       `[a-z0-9/]+`,
		"pending":     `[a-z0-9/]+|` + module + `controllers/(ipam|text|nodeipam/(clustercidr|exhausted))`,
		"allocator":   `[a-z0-9/]+|` + types + `|` + module + `controllers/(ipam|text|nodeipam/(clustercidr|conditions|exhausted|names|pending|traffic))`,
		"traffic":     `[a-z0-9/]+|` + module + `controllers/ipam`,
		"debugpage":   `[a-z0-9/]+|` + types + `|github.com/munnerz/goautoneg|k8s\.io/klog/v2|` + module + `controllers/(ipam|text|nodeipam/(clustercidr|allocator))`,
		"contents":    `net/netip|` + types + `|` + module + `controllers/nodeipam/(clustercidr|allocator)`,
		"inspect":     `[a-z0-9/]+|` + types + `|` + module + `controllers/(ipam|text|nodeipam/(clustercidr|fromflags|pending|allocator|contents))`,
		"author":      `[a-z0-9/]+|` + types + `|` + module + `controllers/(text|nodeipam/clustercidr)`,
		"finalizers":  `time|` + module + `controllers/(queues|writes)`,
	} {
		only := regexp.MustCompile(`^(` + allowed + `)$`)
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
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				calls := path == "context" || path == "os" || strings.HasPrefix(path, "sync") || strings.HasPrefix(path, "net/http")
				if !only.MatchString(path) || calls && dir != "debugpage" {
					t.Errorf("%s imports %s", name, path)
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Now" {
					t.Errorf("%s reads a clock", name)
				}
				return true
			})
		}
	}
}
