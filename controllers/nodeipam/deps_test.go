package nodeipam

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
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
		"debugpage":   `[a-z0-9/]+|` + types + `|k8s\.io/klog/v2|` + module + `controllers/nodeipam/(allocator|inspect)`,
		"contents":    `net/netip|` + types + `|` + module + `controllers/nodeipam/(clustercidr|allocator)`,
		"inspect":     `[a-z0-9/]+|` + types + `|` + module + `controllers/(ipam|text|nodeipam/(clustercidr|fromflags|pending|allocator))`,
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

// TestPackagesCanBeRead keeps a package from growing until nobody reads it from beginning to end: what has a noun of its own gets a package.
func TestPackagesCanBeRead(t *testing.T) {
	const most = 2500 // lines without tests
	lines := map[string]int{}
	for _, root := range []string{"../../apis", "../../cmd", "../../controllers"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(d.Name(), "zz_generated") {
				return err
			}
			text, err := os.ReadFile(path)
			lines[filepath.Dir(path)] += bytes.Count(text, []byte("\n"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if lines["../../controllers/nodeipam"] == 0 {
		t.Fatalf("%d packages, and not this one", len(lines))
	}
	for dir, n := range lines {
		if n > most {
			t.Errorf("%s has %d lines; at most %d: move what is separable into a package of its own", dir, n, most)
		}
	}
}
