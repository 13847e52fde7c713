package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
)

// manifests writes what to apply without Helm and without a checkout, for each form.
func (r *release) manifests() error {
	for name, patterns := range map[string][]string{
		"install-kube-controller-manager.yaml": {"manifests/crds/*.yaml", "manifests/rbac/*.yaml"},
		"fencing-kube-controller-manager.yaml": {"manifests/fencing/keep-leases.yaml", "manifests/fencing/policy.yaml", "manifests/fencing/kube-controller-manager.yaml", "manifests/fencing/created-nodes.yaml"},
	} {
		if err := r.joined(name, patterns); err != nil {
			return err
		}
	}
	const ours = "localhost/multicidr/kube-controller-manager:"
	patch, err := r.source("manifests/kubeadm/patches/kube-controller-manager+strategic.yaml")
	if err != nil {
		return err
	}
	if !bytes.Contains(patch, []byte(ours+r.tag)) {
		return fmt.Errorf("the patch for kubeadm does not name the tag %s: run hack/set-version.sh", r.tag)
	}
	patch = bytes.Replace(patch, []byte(ours+r.tag), []byte(r.image("kube-controller-manager")), 1)
	if err := r.write("kubeadm-patch-kube-controller-manager.yaml", patch); err != nil {
		return err
	}

	if err := r.rendered("node-ipam-controller", "kube-system", map[string]any{"fencing": map[string]any{"enabled": true}}); err != nil {
		return err
	}
	return r.rendered("cluster-ipam-controller", "cluster-ipam", nil)
}

// joined writes files of the sources one after the other.
func (r *release) joined(name string, patterns []string) error {
	documents := []string{"# " + name + " of " + r.version + "\n"}
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(r.root, pattern))
		if err != nil {
			return err
		}
		if len(paths) == 0 {
			return fmt.Errorf("there is no %s", pattern)
		}
		slices.Sort(paths)
		for _, path := range paths {
			path, err = filepath.Rel(r.root, path)
			if err != nil {
				return err
			}
			content, err := r.source(path)
			if err != nil {
				return err
			}
			documents = append(documents, strings.TrimPrefix(strings.TrimSpace(string(content)), "---\n")+"\n")
		}
	}
	return r.write(name, []byte(strings.Join(documents, "---\n")))
}

// rendered writes what the chart of this release makes of its defaults and some values.
func (r *release) rendered(name, namespace string, values map[string]any) error {
	loaded, err := loader.Load(filepath.Join(r.output, fmt.Sprintf("%s-%s.tgz", name, r.plain())))
	if err != nil {
		return err
	}
	manifest, err := r.render(loaded, name, namespace, values)
	if err != nil {
		return err
	}
	// There will be no Helm that manages it.
	manifest = strings.ReplaceAll(manifest, "app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl")
	header := fmt.Sprintf("# install-%s.yaml of %s: what the chart makes of its defaults, in the namespace %s\n", name, r.version, namespace)
	if namespace != "kube-system" {
		header += "---\n" + namespaceOf(namespace)
	}
	return r.write("install-"+name+".yaml", []byte(header+strings.TrimPrefix(manifest, "\n")))
}

// render returns what a chart makes of values.
func (r *release) render(loaded chart.Charter, name, namespace string, values map[string]any) (string, error) {
	install := action.NewInstall(action.NewConfiguration())
	install.DryRunStrategy, install.ReleaseName, install.Namespace = action.DryRunClient, name, namespace
	kubernetes, _, _ := strings.Cut(r.tag, "-mc")
	var err error
	if install.KubeVersion, err = common.ParseKubeVersion(kubernetes); err != nil {
		return "", err
	}
	result, err := install.Run(loaded, values)
	if err != nil {
		return "", err
	}
	return result.(*releasev1.Release).Manifest, nil
}

// namespaceOf is a namespace that admits our Pods.
func namespaceOf(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels: {pod-security.kubernetes.io/enforce: restricted}\n", name)
}
