package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// variable is the environment variable that says which mutant a test is run with; none if it is not set.
const variable = "MUTANT"

// mutate returns the text of a file of the module in root with all of its mutants in it. Each is a copy, with the change, of the function
// that it changes; and the function itself first asks whether it is to be the copy. So all mutants are compiled and linked
// once, and not once each, which would take most of the time.
func mutate(root, file string, mutants []mutant) (text, pkg string, err error) {
	source, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return "", "", err
	}
	original := string(source)
	heads := map[int]string{} // what comes in front of a function's body, by the offset where it begins
	var copies strings.Builder
	for i, m := range mutants {
		changed := original[:m.begin] + strings.Join(m.new, "\n") + "\n" + original[m.end:]
		before, name, err := function(file, original, m.begin)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", m.defect, err)
		}
		after, _, err := function(file, changed, m.begin)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", m.defect, err)
		}
		pkg = name
		copied := fmt.Sprintf("%sMutant%d", before.Name.Name, i)
		call, err := callOf(before, copied)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", m.defect, err)
		}
		body := int(before.Body.Lbrace)
		heads[body] += fmt.Sprintf("\nif activeMutant == %q { %s }\n", m.defect, call)
		nameAt, end := int(after.Name.Pos())-1, int(after.End())-1
		copies.WriteString("\n" + changed[int(after.Pos())-1:nameAt] + copied + changed[nameAt+len(after.Name.Name):end] + "\n")
	}
	var all strings.Builder
	last := 0
	for _, at := range slices.Sorted(maps.Keys(heads)) {
		all.WriteString(original[last:at] + heads[at])
		last = at
	}
	all.WriteString(original[last:] + copies.String())
	return all.String(), pkg, nil
}

// function returns the function at an offset of a file, and the name of its package. Positions begin with 1.
func function(file, text string, at int) (*ast.FuncDecl, string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, "", fmt.Errorf("not Go any more: %w", err)
	}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && int(d.Pos())-1 <= at && at < int(d.End()) {
			return d, f.Name.Name, nil
		}
	}
	return nil, "", fmt.Errorf("what it changes is not in a function")
}

// callOf returns the statement by which a function calls its copy in place of itself.
func callOf(f *ast.FuncDecl, name string) (string, error) {
	var args []string
	for _, p := range f.Type.Params.List {
		if len(p.Names) == 0 || slices.ContainsFunc(p.Names, func(n *ast.Ident) bool { return n.Name == "_" }) {
			return "", fmt.Errorf("a parameter of %s has no name", f.Name.Name)
		}
		for _, n := range p.Names {
			args = append(args, n.Name)
		}
		if _, variadic := p.Type.(*ast.Ellipsis); variadic {
			args[len(args)-1] += "..."
		}
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if f.Recv != nil {
		if len(f.Recv.List[0].Names) == 0 {
			return "", fmt.Errorf("the receiver of %s has no name", f.Name.Name)
		}
		call = f.Recv.List[0].Names[0].Name + "." + call
	}
	if f.Type.Results == nil {
		return call + "; return", nil
	}
	return "return " + call, nil
}

// mutateAll returns the texts of all files that mutants change, and of the files that they need beside them.
func mutateAll(root string, mutants []mutant) (map[string]string, error) {
	byFile := map[string][]mutant{}
	for _, m := range mutants {
		byFile[m.file] = append(byFile[m.file], m)
	}
	texts := map[string]string{}
	var errs error
	for file, of := range byFile {
		text, pkg, err := mutate(root, file, of)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		texts[file] = text
		texts[filepath.Join(filepath.Dir(file), "active_mutant.go")] = fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar activeMutant = os.Getenv(%q)\n", pkg, variable)
	}
	return texts, errs
}

// build compiles the tests of packages with all mutants in them, and returns the binaries by package. The tree is not
// touched: `go test -overlay` compiles other files in place of its own.
func build(ctx context.Context, dir string, mutants []mutant, pkgs []string) (map[string]string, error) {
	texts, err := mutateAll(".", mutants)
	if err != nil {
		return nil, err
	}
	replace := map[string]string{}
	for file, text := range texts {
		original, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		replace[original] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(replace[original], []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	spec, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(overlay, spec, 0o600); err != nil {
		return nil, err
	}
	binaries := map[string]string{}
	var failed []error
	for _, pkg := range pkgs {
		binaries[pkg] = filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "_")+".test")
		if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", binaries[pkg], pkg).CombinedOutput(); err != nil {
			failed = append(failed, fmt.Errorf("compile the tests of %s: %w\n%s", pkg, err, out))
		}
	}
	return binaries, errors.Join(failed...)
}
