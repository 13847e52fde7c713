package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// pkg is the syntax of one Go package, without tests and generated files. Its types are not needed: what is looked for is written down as it is.
type pkg struct {
	path      string // from the root of the tree
	files     []*ast.File
	constants map[string]ast.Expr // what package-level constants are made of
}

// parse reads the packages below some directories.
func (t tree) parse(dirs ...string) ([]*pkg, error) {
	found := map[string]*pkg{}
	var all []*pkg
	for _, dir := range dirs {
		err := filepath.WalkDir(t.path(dir), func(file string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "generated":
				return filepath.SkipDir
			case d.IsDir(), !strings.HasSuffix(file, ".go"), strings.HasSuffix(file, "_test.go"), strings.HasPrefix(d.Name(), "zz_"):
				return nil
			}
			syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			path, err := filepath.Rel(string(t), filepath.Dir(file))
			if err != nil {
				return err
			}
			p := found[path]
			if p == nil {
				p = &pkg{path: filepath.ToSlash(path), constants: map[string]ast.Expr{}}
				found[path], all = p, append(all, p)
			}
			p.files = append(p.files, syntax)
			p.declare(syntax)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (p *pkg) declare(file *ast.File) {
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			values := spec.(*ast.ValueSpec)
			for i, value := range values.Values {
				p.constants[values.Names[i].Name] = value
			}
		}
	}
}

// value is that of an expression made of texts and constants of the package; ok is false for any other one.
func (p *pkg) value(e ast.Expr) (value string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		of, ok := p.constants[e.Name]
		if !ok {
			return "", false
		}
		return p.value(of)
	case *ast.BinaryExpr:
		x, okX := p.value(e.X)
		y, okY := p.value(e.Y)
		return x + y, okX && okY && e.Op == token.ADD
	}
	return "", false
}

var (
	isName = regexp.MustCompile(`^(?i:reason|event|condition|annotation|label|finalizer)([A-Z]|$)`)
	isWord = regexp.MustCompile(`^([A-Z][a-z]+)+$`)
)

// names returns the values of the constants that are names on objects, by package and constant; and the reasons that stand in the code as texts, by
// package and text.
func names(all []*pkg) map[string]string {
	found := map[string]string{}
	for _, p := range all {
		for name, e := range p.constants {
			if value, ok := p.value(e); ok && isName.MatchString(name) {
				found[p.path+"."+name] = value
			}
		}
		for _, value := range p.literalReasons() {
			found[fmt.Sprintf("%s.%q", p.path, value)] = value
		}
	}
	return found
}

// literalReasons are the reasons of events and conditions that are no constants.
func (p *pkg) literalReasons() (all []string) {
	add := func(e ast.Expr) {
		lit, ok := e.(*ast.BasicLit)
		if !ok {
			return
		}
		if value, ok := p.value(lit); ok && isWord.MatchString(value) {
			all = append(all, value)
		}
	}
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr: // a condition or an event: {Reason: "Text"}
				if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "reason") {
					add(n.Value)
				}
			case *ast.CallExpr: // Event(object, kind, "Text", message)
				if name := selected(n.Fun); name == "Event" || name == "tell" {
					for _, arg := range n.Args {
						add(arg)
					}
				}
			}
			return true
		})
	}
	return all
}
