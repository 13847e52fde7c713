package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"
)

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
	text, err := r.source(source)
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
	const chart = "cluster-ipam-controller"
	loaded, err := loader.Load(filepath.Join(r.root, "manifests/charts", chart))
	if err != nil {
		return err
	}
	name := p.namespace + "-controller"
	values := map[string]any{
		"fullnameOverride": name,
		"image":            map[string]any{"repository": r.registry + "/" + chart},
		"leaderElection":   map[string]any{"resourceName": name},
	}
	if p.controllers != nil {
		var names []any
		for _, c := range p.controllers {
			names = append(names, c)
		}
		values["controllers"] = names
	}
	manifest, err := r.render(loaded, name, p.namespace, values)
	if err != nil {
		return err
	}
	// The namespace may become another one, and with it that of the Secrets.
	manifest = strings.ReplaceAll(manifest, "--cluster-ipam-infoblox-namespace="+p.namespace, "--cluster-ipam-infoblox-namespace=$(POD_NAMESPACE)")
	documents := strings.Split(manifest, "\n---\n")
	for _, source := range p.sources {
		text, err := r.source(source)
		if err != nil {
			return err
		}
		documents = append(documents, strings.Split(string(text), "\n---\n")...)
	}
	parts := []string{fmt.Sprintf("# %s of %s, for clusterctl and the Cluster API operator\n", p.file, r.version), namespaceOf(p.namespace)}
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
