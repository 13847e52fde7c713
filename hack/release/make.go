package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// repository is where the sources are published.
const repository = "https://github.com/multicidr/controller-manager"

// release is what is being made.
type release struct {
	root     string // the sources
	version  string // v0.2.0
	tag      string // of the images: v1.37.1-mc0.2.0
	registry string // the images are registry/PROGRAM:tag
	output   string
	builds   []build
}

func (r *release) make() error {
	if err := os.MkdirAll(r.output, 0o755); err != nil {
		return err
	}
	var err error
	if r.builds, err = readBuilds(r.root); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"images", r.images},
		{"command line tools", r.commands},
		{"manifest for Krew", r.krew},
		{"charts", r.charts},
		{"manifests", r.manifests},
		{"providers for clusterctl", r.providers},
		{"licences and components", r.components},
		{"provenance", r.provenance},
		{"checksums", r.checksums},
	} {
		fmt.Println("release:", step.name)
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// plain is the version without v, as charts and the tag have it.
func (r *release) plain() string { return strings.TrimPrefix(r.version, "v") }

func (r *release) image(program string) string { return r.registry + "/" + program + ":" + r.tag }

// write writes a file of the release.
func (r *release) write(name string, content []byte) error {
	return os.WriteFile(r.path(name), content, 0o644)
}

func (r *release) path(name string) string { return filepath.Join(r.output, name) }

// source reads a file of the sources.
func (r *release) source(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(r.root, name))
}
