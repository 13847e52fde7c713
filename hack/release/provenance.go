package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	checksumFile  = "SHA256SUMS"
	predicateType = "https://slsa.dev/provenance/v1"
)

func provenanceFile(version string) string { return "provenance-" + version + ".intoto.json" }

// provenance writes from what and how the release was made. It is not signed here: who publishes a release signs, with a key that no build has.
func (r *release) provenance() error {
	files, err := filesIn(r.output, provenanceFile(r.version), checksumFile)
	if err != nil {
		return err
	}
	var subjects []*intoto.ResourceDescriptor
	for _, name := range files {
		digest, err := digestOf(filepath.Join(r.output, name))
		if err != nil {
			return err
		}
		subjects = append(subjects, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": digest}})
	}
	parameters, err := structpb.NewStruct(map[string]any{
		"VERSION": r.version, "REGISTRY": r.registry,
		"PROGRAMS": builtFor(r.builds, true), "COMMANDS": builtFor(r.builds, false),
	})
	if err != nil {
		return err
	}
	toolchain := r.builds[0].info.GoVersion
	predicate := &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{
			BuildType:          repository + "/blob/" + r.version + "/docs/engineering/releasing.md",
			ExternalParameters: parameters,
			ResolvedDependencies: []*intoto.ResourceDescriptor{
				{Name: "sources", Uri: "git+" + repository + "@refs/tags/" + r.version, Digest: map[string]string{"gitCommit": r.commit()}},
				{Name: "toolchain", Uri: "pkg:golang/toolchain@" + toolchain},
			},
		},
		RunDetails: &provenance.RunDetails{Builder: &provenance.Builder{Id: repository + "/blob/" + r.version + "/hack/release.sh"}},
	}
	if err := predicate.Validate(); err != nil {
		return err
	}
	asStruct := &structpb.Struct{}
	content, err := protojson.Marshal(predicate)
	if err != nil {
		return err
	}
	if err := protojson.Unmarshal(content, asStruct); err != nil {
		return err
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, Subject: subjects, PredicateType: predicateType, Predicate: asStruct}
	if err := statement.Validate(); err != nil {
		return err
	}
	if content, err = indented(statement); err != nil {
		return err
	}
	return r.write(provenanceFile(r.version), content)
}

// builtFor says for which platforms each program was built.
func builtFor(builds []build, image bool) map[string]any {
	all := map[string]any{}
	for _, program := range programsOf(builds, image) {
		var platforms []string
		for _, b := range of(builds, program) {
			platforms = append(platforms, b.platform())
		}
		all[program] = strings.Join(platforms, ",")
	}
	return all
}

// indented is the message as JSON. protojson chooses blanks by chance, so that nobody compares its bytes; these here are compared.
func indented(message proto.Message) ([]byte, error) {
	content, err := protojson.Marshal(message)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	if err := json.Indent(&all, content, "", "  "); err != nil {
		return nil, err
	}
	all.WriteByte('\n')
	return all.Bytes(), nil
}

// checksums writes those of all files, as `sha256sum --check` reads them.
func (r *release) checksums() error {
	files, err := filesIn(r.output, checksumFile)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, name := range files {
		digest, err := digestOf(filepath.Join(r.output, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", digest, name)
	}
	return r.write(checksumFile, []byte(sums.String()))
}

// filesIn are the names of the files in a directory but for some, sorted.
func filesIn(dir string, but ...string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
next:
	for _, entry := range entries {
		for _, name := range but {
			if entry.Name() == name {
				continue next
			}
		}
		names = append(names, entry.Name())
	}
	return names, nil
}

func digestOf(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}
