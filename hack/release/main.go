// Command release writes what clusterctl and the Cluster API operator install cluster-ipam-controller by, from its chart. hack/release.sh makes all else.
//
//	go run ./hack/release -version=v0.2.0 -tag=v1.37.1-mc0.2.0 -registry=registry.example.com/multicidr -output=DIRECTORY
//
// It is ours because clusterctl has rules of its own: which objects a provider brings, how they are called and found again, and one name for the container.
// Helm and Kustomize change fields, but know none of these.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// release is what is being made.
type release struct {
	root     string // the sources
	version  string // v0.2.0
	tag      string // of the images: v1.37.1-mc0.2.0
	registry string // the images are registry/PROGRAM:tag
	output   string
}

func main() {
	var r release
	flag.StringVar(&r.root, "root", ".", "the sources")
	flag.StringVar(&r.version, "version", "", "the version")
	flag.StringVar(&r.tag, "tag", "", "the tag of the images")
	flag.StringVar(&r.registry, "registry", "", "the first part of the names of the images")
	flag.StringVar(&r.output, "output", "", "the directory for the files")
	flag.Parse()
	if err := r.providers(); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// write writes a file of the release.
func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.output, name), content, 0o644)
}

// provider is a form in which clusterctl and the Cluster API operator install cluster-ipam-controller.
type provider struct {
	file string
	// namespace is also the first part of the names of what has no namespace: by that clusterctl finds it again.
	namespace string
	// controllers are those that run; nil: all.
	controllers []string
	// crds are the plural names of the kinds that it brings. Those of claims and addresses are Cluster API's own.
	crds []string
	// sources are objects that the chart does not have.
	sources []string
}

var (
	inClusterCRDs = []string{"inclusterippools", "globalinclusterippools", "inclusterprefixpools", "globalinclusterprefixpools"}
	infobloxCRDs  = []string{"infobloxippools", "infobloxinstances"}
	k0rdentCRDs   = []string{"clusteripamclaims", "clusteripams", "clusterdeployments"}

	// The first one is for a management cluster without k0rdent, whose kinds it brings. The others are for any, and for both at once.
	providers = []provider{
		{"ipam-components.yaml", "cluster-ipam", nil, slices.Concat(inClusterCRDs, infobloxCRDs, k0rdentCRDs),
			[]string{"manifests/clusteripam/policy/used-pools.yaml", "manifests/clusteripam/rbac/user-roles.yaml"}},
		{"ipam-components-in-cluster.yaml", "in-cluster-ipam", []string{"in-cluster-ip-pool-controller"}, inClusterCRDs,
			[]string{"manifests/clusteripam/policy/used-pools.yaml"}},
		{"ipam-components-infoblox.yaml", "infoblox-ipam", []string{"infoblox-ip-pool-controller"}, infobloxCRDs, nil},
	}
)

// providers writes what clusterctl and the Cluster API operator read: which contract the release keeps, and the objects of each provider.
func (r *release) providers() error {
	if err := r.metadata(); err != nil {
		return err
	}
	for _, p := range providers {
		if err := r.provider(p); err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
	}
	return nil
}

// metadata writes the series of releases, among which this one must be.
func (r *release) metadata() error {
	const source = "manifests/clusteripam/clusterctl/metadata.yaml"
	text, err := os.ReadFile(filepath.Join(r.root, source))
	if err != nil {
		return err
	}
	var all struct {
		ReleaseSeries []struct{ Major, Minor int }
	}
	if err := yaml.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	for _, series := range all.ReleaseSeries {
		if strings.HasPrefix(r.version, fmt.Sprintf("v%d.%d.", series.Major, series.Minor)) {
			return r.write("metadata.yaml", text)
		}
	}
	return fmt.Errorf("%s has no series of %s: add it", source, r.version)
}

// provider writes the objects of a provider.
func (r *release) provider(p provider) error {
	name := p.namespace + "-controller"
	values := map[string]any{
		"fullnameOverride": name,
		"image":            map[string]any{"repository": r.registry + "/cluster-ipam-controller", "tag": r.tag},
		"leaderElection":   map[string]any{"resourceName": name},
	}
	if p.controllers != nil {
		values["controllers"] = p.controllers
	}
	manifest, err := r.render(name, p.namespace, values)
	if err != nil {
		return err
	}
	// The namespace may become another one, and with it that of the Secrets.
	manifest = strings.ReplaceAll(manifest, "--cluster-ipam-infoblox-namespace="+p.namespace, "--cluster-ipam-infoblox-namespace=$(POD_NAMESPACE)")
	documents := strings.Split(manifest, "\n---\n")
	for _, source := range p.sources {
		text, err := os.ReadFile(filepath.Join(r.root, source))
		if err != nil {
			return err
		}
		documents = append(documents, strings.Split(string(text), "\n---\n")...)
	}
	parts := []string{
		fmt.Sprintf("# %s of %s, for clusterctl and the Cluster API operator\n", p.file, r.version),
		// One that admits our Pods.
		fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels: {pod-security.kubernetes.io/enforce: restricted}\n", p.namespace),
	}
	for _, document := range documents {
		part, err := p.part(document)
		if err != nil {
			return err
		}
		if part != "" {
			parts = append(parts, part)
		}
	}
	return r.write(p.file, []byte(strings.Join(parts, "---\n")))
}

// render returns what the chart makes of values.
func (r *release) render(name, namespace string, values map[string]any) (string, error) {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(values)
	if err != nil {
		return "", err
	}
	kubernetes, _, _ := strings.Cut(r.tag, "-mc")
	helm := exec.Command("go", "-C", filepath.Join(root, "test/chart"), "tool", "helm", "template", name, filepath.Join(root, "manifests/charts/cluster-ipam-controller"),
		"--namespace="+namespace, "--kube-version="+kubernetes, "--values=-")
	helm.Stdin, helm.Stderr = strings.NewReader(string(text)), os.Stderr
	manifest, err := helm.Output()
	return string(manifest), err
}

// part returns an object as the provider has it; empty if it has none.
func (p provider) part(document string) (string, error) {
	var object map[string]any
	if err := yaml.Unmarshal([]byte(document), &object); err != nil || object == nil {
		return "", err
	}
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	delete(labels, "helm.sh/chart")
	if labels["app.kubernetes.io/managed-by"] == "Helm" {
		delete(labels, "app.kubernetes.io/managed-by")
	}
	switch object["kind"] {
	case "CustomResourceDefinition":
		plural, _, _ := strings.Cut(metadata["name"].(string), ".")
		if !slices.Contains(p.crds, plural) {
			return "", nil
		}
		annotations, _ := metadata["annotations"].(map[string]any)
		delete(annotations, "helm.sh/resource-policy")
	case "ClusterRole", "ClusterRoleBinding":
		if name := metadata["name"].(string); !strings.HasPrefix(name, p.namespace+"-") {
			metadata["name"] = p.namespace + "-" + name
		}
	case "Deployment":
		if err := nameContainer(object, "manager"); err != nil {
			return "", err
		}
	}
	text, err := yaml.Marshal(object)
	return string(text), err
}

// nameContainer gives the only container of a Deployment the name by which clusterctl and the operator know it.
func nameContainer(deployment map[string]any, name string) error {
	var value any = deployment
	for _, field := range []string{"spec", "template", "spec", "containers"} {
		value, _ = value.(map[string]any)[field]
	}
	containers, _ := value.([]any)
	if len(containers) != 1 {
		return fmt.Errorf("the Deployment has %d containers, want 1", len(containers))
	}
	containers[0].(map[string]any)["name"] = name
	return nil
}
