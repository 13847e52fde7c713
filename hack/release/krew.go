package main

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// plugin is the program that kubectl runs as `kubectl node-ipam`, and pluginName its name in Krew.
const (
	plugin     = "kubectl-node_ipam"
	pluginName = "node-ipam"
)

// krewPlugin is what Krew installs a plugin by: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
type krewPlugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Platforms        []krewPlatform `json:"platforms"`
	} `json:"spec"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

func krewName(version string) string { return "krew-" + pluginName + "-" + version + ".yaml" }

// download is where an archive of the plugin is published.
func download(version, archive string) string {
	return repository + "/releases/download/" + version + "/" + archive
}

// krew writes the manifest for Krew, with the checksums of the archives. Without the plugin there is none.
func (r *release) krew() error {
	m := krewPlugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": pluginName}}
	m.Spec.Version, m.Spec.Homepage = r.version, repository
	m.Spec.ShortDescription = "Ask who has which podCIDRs, and why"
	m.Spec.Description = "Shows how full ClusterCIDRs are, explains what podCIDRs a Node has or would get,\nsays who has an address, plans changes, and checks a cluster before them.\n"
	for _, b := range r.builds {
		if b.image || b.program != plugin {
			continue
		}
		archive := b.archive(r.version)
		sum, err := digestOf(r.path(archive))
		if err != nil {
			return err
		}
		p := krewPlatform{URI: download(r.version, archive), SHA256: sum, Bin: b.file()}
		p.Selector.MatchLabels = map[string]string{"os": b.os, "arch": b.arch}
		m.Spec.Platforms = append(m.Spec.Platforms, p)
	}
	if len(m.Spec.Platforms) == 0 {
		return nil
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	return r.write(krewName(r.version), text)
}

// checkKrew compares the manifest for Krew with the archives of the plugin: it names all of them, with the program that is in them.
func (p *published) checkKrew() error {
	archives := p.matching(plugin+"-"+p.version+"-", "")
	if len(archives) == 0 {
		return nil
	}
	text, err := p.read(krewName(p.version))
	if err != nil {
		return err
	}
	var m krewPlugin
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		return err
	}
	if len(m.Spec.Platforms) != len(archives) || m.Spec.Version != p.version {
		return fmt.Errorf("%s is about %s with %d archives, there are %q", krewName(p.version), m.Spec.Version, len(m.Spec.Platforms), archives)
	}
	for i, platform := range m.Spec.Platforms {
		labels := platform.Selector.MatchLabels
		sum, err := digestOf(p.path(archives[i]))
		if err != nil {
			return err
		}
		begin := strings.Join([]string{plugin, p.version, labels["os"], labels["arch"]}, "-") + "."
		if platform.URI != download(p.version, archives[i]) || platform.SHA256 != sum || !strings.HasPrefix(archives[i], begin) {
			return fmt.Errorf("%s names %s with %s for %v, it is %s with %s", krewName(p.version), platform.URI, platform.SHA256, labels, archives[i], sum)
		}
	}
	p.say("%s: %d archives", krewName(p.version), len(archives))
	return nil
}
