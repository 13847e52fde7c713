// Command image puts one static program into a container image, without a container engine, a base image or a network.
//
//	image NAME PROGRAM... ARCHIVE
//
// The image holds the program at /usr/local/bin, where upstream's images have it, and the certificate authorities that Mozilla trusts.
// That of kube-controller-manager also holds /go-runner, as upstream's does: kOps and others start it under this wrapper. It is read from
// the directory of the program.
// With builds of the program for several platforms, the name stands for an index of one image for each.
//
// The archive is an OCI image layout. Its bytes follow from the programs, the name and this command alone; platform and revision are those that the Go
// linker left in the programs.
//
// The work is done by go-containerregistry, which ko uses, too. ko itself wants a base image from a registry, and has programs at /ko-app, where kubeadm's
// static Pods do not find them.
package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	programs     = "usr/local/bin"
	certificates = "etc/ssl/certs/ca-certificates.crt"

	manager = "kube-controller-manager"
	// wrapper is the name that Kubernetes' kube-log-runner has in upstream's image.
	wrapper = "go-runner"

	// nonroot is what distroless images call it.
	nonroot = "65532:65532"
)

// userOf is the user of a program's image. Distributions run a kube-controller-manager as the user of its image, as some other user, or as root,
// because upstream's image has no user; and only root can read the keys that kubeadm writes. So ours has none either.
func userOf(program string) string {
	if program == manager {
		return ""
	}
	return nonroot
}

func main() {
	last := len(os.Args) - 1
	if last < 3 {
		fmt.Fprintln(os.Stderr, "usage: image NAME PROGRAM... ARCHIVE, for example: image registry.example.com/kube-controller-manager:v1 bin/kube-controller-manager image.tar")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:last], os.Args[last]); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

func run(ref string, programs []string, archive string) error {
	// A name without a registry means one thing to Docker and another to a kubelet.
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		return err
	}
	images := make([]v1.Image, len(programs))
	for i, program := range programs {
		if images[i], err = imageOfProgram(tag, program); err != nil {
			return err
		}
	}
	content, err := archiveOf(tag, images)
	if err != nil {
		return err
	}
	return os.WriteFile(archive, content, 0o644)
}

func imageOfProgram(tag name.Tag, program string) (v1.Image, error) {
	about, err := aboutProgram(program)
	if err != nil {
		return nil, err
	}
	about.labels["org.opencontainers.image.version"] = tag.TagStr()
	files, err := filesOf(path.Base(tag.RepositoryStr()), program)
	if err != nil {
		return nil, err
	}
	layer, err := layerOf(files...)
	if err != nil {
		return nil, err
	}
	return imageOf(tag, about, layer)
}

// filesOf are the files of the image of this name, with the program in a file.
func filesOf(name, program string) ([]file, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	files := []file{{path.Join(programs, name), 0o755, content}, {certificates, 0o644, authorities()}}
	if name != manager {
		return files, nil
	}
	if content, err = os.ReadFile(filepath.Join(filepath.Dir(program), wrapper)); err != nil {
		return nil, fmt.Errorf("the image of %s has a /%s: build k8s.io/component-base/logs/kube-log-runner for this platform beside the program: %w", manager, wrapper, err)
	}
	return append(files, file{wrapper, 0o755, content}), nil
}

// about is what the Go linker left in a program.
type about struct {
	platform v1.Platform
	created  time.Time
	labels   map[string]string
}

func aboutProgram(program string) (about, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return about{}, fmt.Errorf("%s is no Go program: %w", program, err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["GOOS"] != "linux" || settings["CGO_ENABLED"] != "0" {
		return about{}, fmt.Errorf("%s would not run in an image without a C library: build it with CGO_ENABLED=0 GOOS=linux", program)
	}
	// The zero of the tar format and of most tools; better than the time of this run, which would make every image another one.
	created := time.Unix(0, 0).UTC()
	if at, ok := settings["vcs.time"]; ok {
		if created, err = time.Parse(time.RFC3339, at); err != nil {
			return about{}, err
		}
	}
	labels := map[string]string{
		"org.opencontainers.image.source":   "https://" + info.Main.Path,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created":  created.Format(time.RFC3339),
	}
	if revision := settings["vcs.revision"]; revision != "" {
		labels["org.opencontainers.image.revision"] = revision
	}
	if v := versionOf(info, "k8s.io/kubernetes"); v != "" {
		labels["io.k8s.version"] = v
	}
	return about{v1.Platform{OS: "linux", Architecture: settings["GOARCH"]}, created, labels}, nil
}

func versionOf(info *debug.BuildInfo, module string) string {
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return ""
}

// authorities are Mozilla's, as a program finds them where Linux keeps them. The few that it trusts only for certificates from before some
// date are left out: a file cannot say that.
func authorities() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			all.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return all.Bytes()
}

type file struct {
	path    string
	mode    int64
	content []byte
}

// writeTar writes the files, with all times at zero, and without directories: who unpacks makes those.
func writeTar(w io.Writer, files ...file) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		if err := archive.WriteHeader(&tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.content)), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

func layerOf(files ...file) (v1.Layer, error) {
	var content bytes.Buffer
	if err := writeTar(&content, files...); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

func imageOf(tag name.Tag, about about, layer v1.Layer) (v1.Image, error) {
	image, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: about.created}, CreatedBy: about.labels["org.opencontainers.image.source"]},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = about.platform.OS, about.platform.Architecture
	config.Created = v1.Time{Time: about.created}
	program := path.Base(tag.RepositoryStr())
	config.Config = v1.Config{
		User:       userOf(program),
		Entrypoint: []string{"/" + path.Join(programs, program)},
		// kubeadm's static Pod names the program without its directory.
		Env:    []string{"PATH=/" + programs, "SSL_CERT_FILE=/" + certificates},
		Labels: about.labels,
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Annotations(image, about.labels).(v1.Image), nil
}

// archiveOf writes an OCI image layout that has one thing, the image of the only platform or the index of all, and makes an archive of it.
func archiveOf(tag name.Tag, images []v1.Image) ([]byte, error) {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return nil, err
	}
	named := layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          tag.Name(), // containerd
		"org.opencontainers.image.ref.name": tag.TagStr(),
	})
	if len(images) == 1 {
		config, err := images[0].ConfigFile()
		if err != nil {
			return nil, err
		}
		return tarOf(dir, path.AppendImage(images[0], named, layout.WithPlatform(*config.Platform())))
	}
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	platforms := map[string]bool{}
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		if platforms[config.Platform().String()] {
			return nil, fmt.Errorf("two programs are for %s", config.Platform())
		}
		platforms[config.Platform().String()] = true
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	return tarOf(dir, path.AppendIndex(all, named))
}

// tarOf has the files of a directory, in the order of their names.
func tarOf(dir string, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	var files []file
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		files = append(files, file{name, 0o644, content})
		return err
	})
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	err = writeTar(&archive, files...)
	return archive.Bytes(), err
}
