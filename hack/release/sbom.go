package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// certificates is the module whose list of certificate authorities hack/image puts into each image.
const certificates = "golang.org/x/crypto/x509roots/fallback"

// components writes a list of the components of each program, and the licences of all of them.
func (r *release) components() error {
	licenses, err := r.licensesOf(r.builds)
	if err != nil {
		return err
	}
	if licenses[certificates], err = r.certificates(); err != nil {
		return err
	}
	if err := classify(licenses); err != nil {
		return err
	}
	archive, err := licenseArchive(licenses)
	if err != nil {
		return err
	}
	if err := r.write("third-party-licenses-"+r.version+".tar.gz", archive); err != nil {
		return err
	}
	for _, image := range []bool{true, false} {
		for _, program := range programsOf(r.builds, image) {
			content, err := r.bomOf(program, image, licenses)
			if err != nil {
				return fmt.Errorf("components of %s: %w", program, err)
			}
			if err := r.write(r.bomFile(program, image), content); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) bomFile(program string, image bool) string {
	if image {
		return program + "-" + r.tag + ".cdx.json"
	}
	return program + "-" + r.version + ".cdx.json"
}

// certificates reads the module in the version that hack/image has.
func (r *release) certificates() (*licensed, error) {
	list := exec.Command("go", "list", "-m", "-json", certificates)
	list.Dir, list.Stderr = filepath.Join(r.root, "hack/image"), os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var module struct{ Path, Version, Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return nil, err
	}
	l := &licensed{path: module.Path, version: module.Version, files: map[string][]byte{}}
	return l, l.read(module.Dir, module.Dir)
}

// bomOf has what the Go linker put into any build of the program.
func (r *release) bomOf(program string, image bool, licenses map[string]*licensed) ([]byte, error) {
	created, err := r.time()
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	if image {
		versions[certificates] = licenses[certificates].version
	}
	for _, b := range of(r.builds, program) {
		versions["std"] = strings.TrimPrefix(b.info.GoVersion, "go")
		for _, module := range b.info.Deps {
			if module.Replace != nil {
				module = module.Replace
			}
			if other := cmp.Or(versions[module.Path], module.Version); other != module.Version {
				return nil, fmt.Errorf("%s is in it at %s and %s", module.Path, other, module.Version)
			}
			versions[module.Path] = module.Version
		}
	}
	var components []cdx.Component
	var references []string
	for _, path := range slices.Sorted(maps.Keys(versions)) {
		license := licenses[path]
		if license == nil {
			return nil, fmt.Errorf("no package of %s was listed", path)
		}
		component := cdx.Component{
			BOMRef: purl(path, versions[path]), Type: cdx.ComponentTypeLibrary, Name: path, Version: versions[path], PackageURL: purl(path, versions[path]),
			Scope: cdx.ScopeRequired, Licenses: &cdx.Licenses{{Expression: strings.Join(license.names, " AND ")}},
		}
		if path == certificates {
			component.Type = cdx.ComponentTypeData
		}
		components, references = append(components, component), append(references, component.BOMRef)
	}
	version := r.version
	if image {
		version = r.tag
	}
	this := cdx.Component{
		BOMRef: program, Type: cdx.ComponentTypeApplication, Name: program, Version: version,
		Licenses:           &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		ExternalReferences: &[]cdx.ExternalReference{{Type: cdx.ERTypeVCS, URL: repository}},
		Properties:         &[]cdx.Property{{Name: "git:commit", Value: r.commit()}, {Name: "go:platforms", Value: strings.Join(r.platforms(program), ",")}},
	}
	if image {
		this.Type = cdx.ComponentTypeContainer
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: created.UTC().Format(time.RFC3339), Component: &this}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: program, Dependencies: &references}}
	var content bytes.Buffer
	err = cdx.NewBOMEncoder(&content, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return content.Bytes(), err
}

func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }
