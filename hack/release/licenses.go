package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/licenseclassifier/v2/assets"
)

// licensed is a module in a program, with the files that say under which licences.
type licensed struct {
	path, version string
	names         []string          // of the licences, as SPDX calls them
	files         map[string][]byte // by their paths in the module
}

// licenseFile are the names of files with the text of a licence, or with what it asks to be handed on.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|notice|patents|copyright)([-.][^/]*)?$`)

// licensesOf finds the licences of all packages in a program: the files beside a package, and in the directories above it within its module.
func (r *release) licensesOf(builds []build) (map[string]*licensed, error) {
	type listed struct {
		Dir      string
		Standard bool
		Module   *struct{ Path, Version, Dir string }
	}
	all := map[string]*licensed{}
	seen := map[string]bool{}
	for _, b := range builds {
		list := exec.Command("go", "list", "-deps", "-json=Dir,Standard,Module", "./cmd/"+b.program)
		list.Dir, list.Stderr = r.root, os.Stderr
		list.Env = append(os.Environ(), "GOOS="+b.os, "GOARCH="+b.arch, "CGO_ENABLED=0")
		output, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
			var p listed
			if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if p.Standard || p.Module == nil || seen[p.Dir] {
				continue
			}
			seen[p.Dir] = true
			module := all[p.Module.Path]
			if module == nil {
				module = &licensed{path: p.Module.Path, version: cmp.Or(p.Module.Version, r.version), files: map[string][]byte{}}
				all[p.Module.Path] = module
			}
			if err := module.read(p.Module.Dir, p.Dir); err != nil {
				return nil, err
			}
		}
	}
	goRoot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	std := &licensed{path: "std", version: strings.TrimPrefix(runtime.Version(), "go"), files: map[string][]byte{}}
	all["std"] = std
	root := strings.TrimSpace(string(goRoot))
	return all, std.read(root, root)
}

// read reads the files of a directory of the module, and of those above.
func (l *licensed) read(module, dir string) error {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if entry.IsDir() || !licenseFile.MatchString(entry.Name()) || path.Ext(entry.Name()) == ".go" {
				continue
			}
			name, err := filepath.Rel(module, filepath.Join(dir, entry.Name()))
			if err != nil {
				return err
			}
			if l.files[filepath.ToSlash(name)], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
		if dir == module || len(dir) <= len(module) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// classify names the licences, and fails for a module whose licence it cannot tell: somebody has to read that first.
func classify(all map[string]*licensed) error {
	classifier, err := assets.DefaultClassifier()
	if err != nil {
		return err
	}
	var errs []error
	known := map[string][]string{} // Most modules have one of a few texts.
	for _, name := range slices.Sorted(maps.Keys(all)) {
		module := all[name]
		for _, file := range slices.Sorted(maps.Keys(module.files)) {
			text := string(module.files[file])
			if _, ok := known[text]; !ok {
				known[text] = []string{}
				for _, match := range classifier.Match(module.files[file]).Matches {
					if match.MatchType == "License" && !slices.Contains(known[text], match.Name) {
						known[text] = append(known[text], match.Name)
					}
				}
			}
			for _, license := range known[text] {
				if !slices.Contains(module.names, license) {
					module.names = append(module.names, license)
				}
			}
		}
		slices.Sort(module.names)
		if len(module.names) == 0 {
			errs = append(errs, fmt.Errorf("the licence of %s %s is not known; its files are %q", module.path, module.version, slices.Sorted(maps.Keys(module.files))))
		}
	}
	return errors.Join(errs...)
}

// licenseArchive has the texts of all licences, which most of them ask for, and a table of them.
func licenseArchive(all map[string]*licensed) ([]byte, error) {
	var table strings.Builder
	table.WriteString("module,version,licences\n")
	var files []file
	for _, name := range slices.Sorted(maps.Keys(all)) {
		module := all[name]
		fmt.Fprintf(&table, "%s,%s,%s\n", module.path, module.version, strings.Join(module.names, " AND "))
		for _, name := range slices.Sorted(maps.Keys(module.files)) {
			files = append(files, file{path.Join(module.path+"@"+module.version, name), 0o644, module.files[name]})
		}
	}
	return tarGzOf(append([]file{{"licenses.csv", 0o644, []byte(table.String())}}, files...)...)
}
