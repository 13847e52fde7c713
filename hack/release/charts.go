package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/registry"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	"sigs.k8s.io/yaml"
)

var chartNames = []string{"cluster-ipam-controller", "node-ipam-controller"}

// charts packages the charts: with the name of the release's image, and of that image for catalogues.
func (r *release) charts() error {
	created, err := r.time()
	if err != nil {
		return err
	}
	for _, name := range chartNames {
		dir := filepath.Join(r.root, "bin/charts", name)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(r.root, "manifests/charts", name))); err != nil {
			return err
		}
		if err := r.nameImage(dir, name); err != nil {
			return err
		}
		pack := action.NewPackage()
		pack.Destination, pack.SourceDateEpoch = r.output, &created
		archive, err := pack.Run(dir, nil)
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("%s-%s.tgz", name, r.plain()); filepath.Base(archive) != want {
			return fmt.Errorf("the chart is %s, want %s: run hack/set-version.sh", filepath.Base(archive), want)
		}
		layout, err := chartLayout(archive, created)
		if err != nil {
			return err
		}
		if err := r.write(fmt.Sprintf("%s-%s.oci.tar", name, r.plain()), layout); err != nil {
			return err
		}
	}
	return nil
}

// nameImage makes image.repository's default the release's, in values.yaml and in the table of README.md.
func (r *release) nameImage(dir, name string) error {
	repository := r.registry + "/" + name
	for file, texts := range map[string][2]string{
		"values.yaml": {`repository: ""`, "repository: " + repository},
		"README.md":   {"| `image.repository` | `\"\"` |", "| `image.repository` | `" + repository + "` |"},
	} {
		path := filepath.Join(dir, file)
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := strings.Count(string(content), texts[0]); n != 1 {
			return fmt.Errorf("%s has %d times %s, want it once", path, n, texts[0])
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(content), texts[0], texts[1], 1)), 0o644); err != nil {
			return err
		}
	}
	images, err := yaml.Marshal([]map[string]any{{"name": name, "image": r.image(name), "platforms": r.platforms(name)}})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "Chart.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	// The annotations are the last part of the file.
	annotation := "  artifacthub.io/images: |\n    " + strings.ReplaceAll(strings.TrimSpace(string(images)), "\n", "\n    ") + "\n"
	return os.WriteFile(path, append(content, annotation...), 0o644)
}

func (r *release) platforms(program string) []string {
	var platforms []string
	for _, b := range of(r.builds, program) {
		platforms = append(platforms, b.platform())
	}
	return platforms
}

// chartLayout is a chart as an OCI image layout in a tar archive: what `helm push` makes in a registry, for tools that copy layouts there.
func chartLayout(archive string, created time.Time) ([]byte, error) {
	dir, err := os.MkdirTemp("", "chart")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	store, err := oci.NewWithContext(ctx, dir)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		return nil, err
	}
	chart, err := loader.LoadArchive(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(chart.Metadata)
	if err != nil {
		return nil, err
	}
	configDescriptor, err := oras.PushBytes(ctx, store, registry.ConfigMediaType, config)
	if err != nil {
		return nil, err
	}
	layer, err := oras.PushBytes(ctx, store, registry.ChartLayerMediaType, content)
	if err != nil {
		return nil, err
	}
	manifest, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_0, registry.ConfigMediaType, oras.PackManifestOptions{
		ConfigDescriptor: &configDescriptor,
		Layers:           []ocispec.Descriptor{layer},
		ManifestAnnotations: map[string]string{
			ocispec.AnnotationTitle:       chart.Name(),
			ocispec.AnnotationVersion:     chart.Metadata.Version,
			ocispec.AnnotationDescription: chart.Metadata.Description,
			ocispec.AnnotationURL:         chart.Metadata.Home,
			ocispec.AnnotationSource:      repository,
			ocispec.AnnotationCreated:     created.UTC().Format(time.RFC3339),
		},
	})
	if err != nil {
		return nil, err
	}
	if err := store.Tag(ctx, manifest, chart.Metadata.Version); err != nil {
		return nil, err
	}
	return tarDirectory(dir)
}
