package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// pauseImage is what containerd.toml calls the sandbox image.
const pauseImage = "registry.k8s.io/pause:3.10.2"

// controlPlanePrograms are the static Pods that kubeadm writes, and where in bin their programs are.
var controlPlanePrograms = map[string]string{
	"etcd":                    "etcd",
	"kube-apiserver":          "kube-apiserver",
	"kube-scheduler":          "kube-scheduler",
	"kube-controller-manager": "upstream/kube-controller-manager",
}

// keepImages keeps what every machine is to have, also those that join later: archives, and images of one static program
// given as NAME=PROGRAM.
func (c *cluster) keepImages(images []string) error {
	dir := filepath.Join(c.dir, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, image := range images {
		kept, err := os.Create(filepath.Join(dir, fmt.Sprintf("%02d.tar", i)))
		if err != nil {
			return err
		}
		if name, program, made := strings.Cut(image, "="); made {
			err = writeImage(kept, name, program)
		} else {
			err = copyFile(kept, image)
		}
		if err := errors.Join(err, kept.Close()); err != nil {
			return fmt.Errorf("image %s: %w", image, err)
		}
	}
	return nil
}

func copyFile(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, file)
	return err
}

// importImages gives the machine what every machine needs.
func (m machine) importImages(ctx context.Context) error {
	if err := m.importProgram(ctx, pauseImage, filepath.Join(m.bin, "node/pause")); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(m.dir, "images", "*"))
	if err != nil {
		return err
	}
	for _, path := range archives {
		archive, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = m.run(ctx, archive, "ctr", "--namespace=k8s.io", "images", "import", "-")
		if err := errors.Join(err, archive.Close()); err != nil {
			return err
		}
	}
	return nil
}

// importControlPlane gives the machine the images that kubeadm names, made from the programs in bin.
func (m machine) importControlPlane(ctx context.Context) error {
	version, err := m.kubernetesVersion(ctx)
	if err != nil {
		return err
	}
	names, err := exec.CommandContext(ctx, filepath.Join(m.bin, "kubeadm"), "config", "images", "list", "--kubernetes-version="+version).Output()
	if err != nil {
		return fmt.Errorf("ask kubeadm for its images: %w", err)
	}
	for image := range strings.FieldsSeq(string(names)) {
		repository, _, _ := strings.Cut(image, ":")
		program, ours := controlPlanePrograms[repository[strings.LastIndex(repository, "/")+1:]]
		if !ours {
			continue // What we run without: the cluster's DNS and its Service proxy.
		}
		if err := m.importProgram(ctx, image, filepath.Join(m.bin, program)); err != nil {
			return err
		}
	}
	return nil
}

// importProgram makes an image of one static program and imports it.
func (m machine) importProgram(ctx context.Context, image, program string) error {
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(writeImage(writer, image, program)) }()
	_, err := m.run(ctx, reader, "ctr", "--namespace=k8s.io", "images", "import", "-")
	reader.Close() // Ends the writer, should ctr have ended early.
	return err
}

// writeImage writes an archive as `docker save` does, with one layer in it: the program, in /usr/local/bin.
func writeImage(w io.Writer, image, program string) error {
	file, err := os.Open(program)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	// Once for the sum, which comes before the layer, and once for the layer.
	sum := sha256.New()
	size := new(counter)
	if err := writeLayer(io.MultiWriter(sum, size), file, info); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/usr/local/bin/" + info.Name()}, "Env": []string{"PATH=/usr/local/bin"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sum.Sum(nil))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{image}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	for name, content := range map[string][]byte{"config.json": config, "manifest.json": manifest} {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: "layer.tar", Mode: 0o644, Size: int64(*size)}); err != nil {
		return err
	}
	if err := writeLayer(archive, file, info); err != nil {
		return err
	}
	return archive.Close()
}

func writeLayer(w io.Writer, program io.Reader, info fs.FileInfo) error {
	layer := tar.NewWriter(w)
	for _, dir := range []string{"usr/", "usr/local/", "usr/local/bin/"} {
		if err := layer.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := layer.WriteHeader(&tar.Header{Name: "usr/local/bin/" + info.Name(), Mode: 0o755, Size: info.Size()}); err != nil {
		return err
	}
	if _, err := io.Copy(layer, program); err != nil {
		return err
	}
	return layer.Close()
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
