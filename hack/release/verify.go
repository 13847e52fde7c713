package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"helm.sh/helm/v4/pkg/registry"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
	"sigs.k8s.io/yaml"
)

// published is a release that is being read back, by its files alone.
type published struct {
	dir     string
	files   []string
	version string
	commit  string
	extract string // where the programs of this platform are put
	lines   []string
}

// verify reads a release back. It changes nothing in its directory.
func verify(dir, extract string) error {
	p := &published{dir: dir, extract: extract}
	if err := errors.Join(p.checkSums(), p.checkProvenance()); err != nil {
		return err
	}
	errs := []error{p.checkImages(), p.checkCommands(), p.checkKrew(), p.checkCharts(), p.checkManifests(), p.checkComponents()}
	for _, line := range p.lines {
		fmt.Println("verify-release:", line)
	}
	return errors.Join(errs...)
}

func (p *published) say(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

func (p *published) read(name string) ([]byte, error) { return os.ReadFile(p.path(name)) }

func (p *published) path(name string) string { return filepath.Join(p.dir, name) }

// matching are the names that begin and end so.
func (p *published) matching(prefix, suffix string) []string {
	return slices.DeleteFunc(slices.Clone(p.files), func(name string) bool {
		return !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, suffix)
	})
}

// checkSums sees that SHA256SUMS names all files, and that they are those.
func (p *published) checkSums() error {
	var err error
	if p.files, err = filesIn(p.dir, checksumFile); err != nil {
		return err
	}
	sums, err := p.read(checksumFile)
	if err != nil {
		return err
	}
	var named []string
	for line := range strings.Lines(string(sums)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		got, err := digestOf(filepath.Join(p.dir, name))
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s is not the file of %s", name, checksumFile)
		}
		named = append(named, name)
	}
	if !slices.Equal(named, p.files) {
		return fmt.Errorf("%s names %q, there are %q", checksumFile, named, p.files)
	}
	p.say("%s: %d files", checksumFile, len(named))
	return nil
}

// checkProvenance reads the statement, which says what all else is compared with.
func (p *published) checkProvenance() error {
	names := p.matching("provenance-", ".intoto.json")
	if len(names) != 1 {
		return fmt.Errorf("there are %d statements of provenance", len(names))
	}
	p.version = strings.TrimSuffix(strings.TrimPrefix(names[0], "provenance-"), ".intoto.json")
	text, err := p.read(names[0])
	if err != nil {
		return err
	}
	statement := &intoto.Statement{}
	if err := protojson.Unmarshal(text, statement); err != nil {
		return err
	}
	if err := statement.Validate(); err != nil {
		return err
	}
	predicate := &provenance.Provenance{}
	if text, err = protojson.Marshal(statement.Predicate); err != nil {
		return err
	}
	if err := protojson.Unmarshal(text, predicate); err != nil {
		return err
	}
	if err := predicate.Validate(); err != nil {
		return err
	}
	p.commit = predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"]
	var subjects []string
	for _, subject := range statement.Subject {
		digest, err := digestOf(filepath.Join(p.dir, subject.Name))
		if err != nil {
			return err
		}
		if digest != subject.Digest["sha256"] {
			return fmt.Errorf("%s is not the one that was made", subject.Name)
		}
		subjects = append(subjects, subject.Name)
	}
	want := slices.DeleteFunc(slices.Clone(p.files), func(name string) bool { return name == names[0] })
	if !slices.Equal(subjects, want) {
		return fmt.Errorf("%s is about %q, there are %q", names[0], subjects, want)
	}
	p.say("%s: %s, commit %s", names[0], p.version, p.commit)
	return nil
}

// imageName is that of an archive: program and tag.
var imageName = regexp.MustCompile(`^(.+)-(v[0-9.]+-mc.+)\.tar$`)

// checkImages reads each archive as an OCI image layout, and runs the program of this platform.
func (p *published) checkImages() error {
	var errs []error
	for _, name := range p.matching("", ".tar") {
		if strings.HasSuffix(name, ".oci.tar") {
			continue
		}
		if err := p.checkImage(name); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (p *published) checkImage(name string) error {
	ctx := context.Background()
	store, err := oci.NewFromTar(ctx, filepath.Join(p.dir, name))
	if err != nil {
		return err
	}
	parts := imageName.FindStringSubmatch(name)
	if parts == nil {
		return fmt.Errorf("its name is not PROGRAM-TAG.tar")
	}
	program, tag := parts[1], parts[2]
	top, err := store.Resolve(ctx, tag)
	if err != nil {
		return err
	}
	manifests := []ocispec.Descriptor{top}
	if top.MediaType == ocispec.MediaTypeImageIndex {
		var index ocispec.Index
		if err := fetch(ctx, store, top, &index); err != nil {
			return err
		}
		manifests = index.Manifests
	}
	var platforms []string
	for _, descriptor := range manifests {
		platform, err := p.checkPlatform(ctx, store, descriptor, program, tag)
		if err != nil {
			return err
		}
		platforms = append(platforms, platform)
	}
	p.say("%s: image %s for %s", name, tag, strings.Join(platforms, ", "))
	return nil
}

// checkPlatform reads the image for one platform.
func (p *published) checkPlatform(ctx context.Context, store content.Fetcher, descriptor ocispec.Descriptor, program, tag string) (string, error) {
	var manifest ocispec.Manifest
	if err := fetch(ctx, store, descriptor, &manifest); err != nil {
		return "", err
	}
	var image ocispec.Image
	if err := fetch(ctx, store, manifest.Config, &image); err != nil {
		return "", err
	}
	platform := image.OS + "/" + image.Architecture
	if user := image.Config.User; (user == "") != (program == "kube-controller-manager") {
		return "", fmt.Errorf("%s: the user is %q", platform, user)
	}
	if got := image.Config.Labels[ocispec.AnnotationRevision]; got != p.commit {
		return "", fmt.Errorf("%s: the image is of commit %q", platform, got)
	}
	layer, err := content.FetchAll(ctx, store, manifest.Layers[0])
	if err != nil {
		return "", err
	}
	files, err := untarGz(layer)
	if err != nil {
		return "", err
	}
	if len(files["etc/ssl/certs/ca-certificates.crt"]) == 0 {
		return "", fmt.Errorf("%s: there are no certificates", platform)
	}
	return platform, p.checkProgram(files["usr/local/bin/"+program], program, image.OS, image.Architecture, tag)
}

// checkProgram sees what the linker left in the program, and runs it if this machine can. Its tag is that of its image, or the version.
func (p *published) checkProgram(binary []byte, program, system, arch, tag string) error {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("%s for %s/%s: %w", program, system, arch, err)
	}
	want := map[string]string{"GOOS": system, "GOARCH": arch, "vcs.revision": p.commit, "vcs.modified": "false"}
	for key, value := range want {
		if got := setting(info, key); got != value {
			return fmt.Errorf("%s for %s/%s: its %s is %q, want %q", program, system, arch, key, got, value)
		}
	}
	if info.Main.Version != p.version {
		return fmt.Errorf("%s for %s/%s says that it is %s", program, system, arch, info.Main.Version)
	}
	if err := noPaths(binary); err != nil {
		return fmt.Errorf("%s for %s/%s: %w", program, system, arch, err)
	}
	if system != runtime.GOOS || arch != runtime.GOARCH {
		return nil
	}
	return p.runProgram(binary, program, tag)
}

// runProgram asks the program for its version, and leaves it where others can run it.
func (p *published) runProgram(binary []byte, program, tag string) error {
	dir := p.extract
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "release"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	file := filepath.Join(dir, program)
	if err := os.WriteFile(file, binary, 0o755); err != nil {
		return err
	}
	output, err := exec.Command(file, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", program, err)
	}
	kubernetes, _, isTag := strings.Cut(tag, "-mc")
	if ours := " (multicidr " + p.version + ")\n"; !strings.HasSuffix(string(output), ours) || isTag && string(output) != "Kubernetes "+kubernetes+ours {
		return fmt.Errorf("%s --version says %q", program, output)
	}
	p.say("%s --version: %s", program, bytes.TrimSpace(output))
	return nil
}

// noPaths fails if the program names a directory of the machine that it was built on, as far as this may be that machine.
func noPaths(binary []byte) error {
	home, _ := os.UserHomeDir()
	for _, dir := range []string{home + "/go/pkg/mod", os.Getenv("GOMODCACHE"), os.TempDir() + "/multicidr-release"} {
		if len(dir) > 5 && bytes.Contains(binary, []byte(dir)) {
			return fmt.Errorf("the program names the directory %s", dir)
		}
	}
	return nil
}

// checkCommands reads the archives of command line tools: COMMAND-VERSION-OS-ARCH.
func (p *published) checkCommands() error {
	named := regexp.MustCompile(`^(.+)-` + regexp.QuoteMeta(p.version) + `-([a-z]+)-([a-z0-9]+)\.(tar\.gz|zip)$`)
	var errs []error
	for _, name := range p.files {
		parts := named.FindStringSubmatch(name)
		if parts == nil {
			continue
		}
		archive, err := p.read(name)
		if err != nil {
			return err
		}
		command, system, arch := parts[1], parts[2], parts[3]
		unpack, file := untarGz, command
		if system == "windows" {
			unpack, file = unzip, command+".exe"
		}
		files, err := unpack(archive)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		if len(files["LICENSE"]) == 0 {
			errs = append(errs, fmt.Errorf("%s has no LICENSE", name))
		}
		errs = append(errs, p.checkProgram(files[file], command, system, arch, p.version))
	}
	return errors.Join(errs...)
}

// checkCharts compares Helm's archives with the OCI layouts. That they can be installed, test/chart sees.
func (p *published) checkCharts() error {
	ctx := context.Background()
	names := p.matching("", ".tgz")
	if len(names) != len(chartNames) {
		return fmt.Errorf("there are the charts %q, want %q", names, chartNames)
	}
	for _, name := range names {
		archive, err := p.read(name)
		if err != nil {
			return err
		}
		store, err := oci.NewFromTar(ctx, filepath.Join(p.dir, strings.TrimSuffix(name, ".tgz")+".oci.tar"))
		if err != nil {
			return err
		}
		descriptor, err := store.Resolve(ctx, strings.TrimPrefix(p.version, "v"))
		if err != nil {
			return err
		}
		var manifest ocispec.Manifest
		if err := fetch(ctx, store, descriptor, &manifest); err != nil {
			return err
		}
		layer, err := content.FetchAll(ctx, store, manifest.Layers[0])
		if err != nil {
			return err
		}
		if manifest.Config.MediaType != registry.ConfigMediaType || manifest.Layers[0].MediaType != registry.ChartLayerMediaType || !bytes.Equal(layer, archive) {
			return fmt.Errorf("the OCI layout of %s has another chart", name)
		}
		p.say("%s: the same in its OCI layout", name)
	}
	return nil
}

// checkManifests reads the objects. That the API server takes them, test/chart sees.
func (p *published) checkManifests() error {
	for _, name := range p.matching("", ".yaml") {
		text, err := p.read(name)
		if err != nil {
			return err
		}
		objects := 0
		for document := range strings.SplitSeq("\n"+string(text), "\n---\n") {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if object != nil {
				objects++
			}
		}
		if objects == 0 {
			return fmt.Errorf("%s has no objects", name)
		}
		p.say("%s: %d objects", name, objects)
	}
	return nil
}

// checkComponents reads the lists of components. The texts of the licences of all of them must be there.
func (p *published) checkComponents() error {
	archive, err := p.read("third-party-licenses-" + p.version + ".tar.gz")
	if err != nil {
		return err
	}
	licenses, err := untarGz(archive)
	if err != nil {
		return err
	}
	texts := map[string]bool{}
	for name := range licenses {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			texts[dir] = true
		}
	}
	boms := p.matching("", ".cdx.json")
	if len(boms) == 0 {
		return fmt.Errorf("there are no lists of components")
	}
	for _, name := range boms {
		if err := p.checkBOM(name, texts); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// checkBOM reads one list. texts are the components, with their versions, whose licences are there.
func (p *published) checkBOM(name string, texts map[string]bool) error {
	text, err := p.read(name)
	if err != nil {
		return err
	}
	bom := cdx.BOM{}
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return err
	}
	if bom.Components == nil || len(*bom.Components) == 0 {
		return fmt.Errorf("it has no components")
	}
	for _, c := range *bom.Components {
		if !texts[c.Name+"@"+c.Version] || c.Licenses == nil {
			return fmt.Errorf("there is no licence of %s %s", c.Name, c.Version)
		}
	}
	p.say("%s: %d components", name, len(*bom.Components))
	return nil
}

// fetch reads a blob as JSON. The digest is checked on the way.
func fetch(ctx context.Context, store content.Fetcher, descriptor ocispec.Descriptor, into any) error {
	blob, err := content.FetchAll(ctx, store, descriptor)
	if err != nil {
		return err
	}
	return json.Unmarshal(blob, into)
}

func untarGz(archive []byte) (map[string][]byte, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for r := tar.NewReader(unpacked); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

func unzip(archive []byte) (map[string][]byte, error) {
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, entry := range r.File {
		file, err := entry.Open()
		if err != nil {
			return nil, err
		}
		if files[entry.Name], err = io.ReadAll(file); err != nil {
			return nil, err
		}
	}
	return files, nil
}
