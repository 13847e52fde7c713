package preflight

import (
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// allocator is a program that has --allocate-node-cidrs, or allocates without it, and what is known of it.
type allocator struct {
	part     string // of the name of the program or of its image
	provider string // --cloud-provider
	// allocates says whether it does: in a format of the program, of what the user is going to do, and of the source. configured reports that a ConfigMap of
	// allocatorSettings says it.
	allocates func(p process, configured bool) (Level, string)
	source    string
}

// allocators are those of which something is known. Of others with the flag nobody can tell.
var allocators = []allocator{
	{"hcloud-cloud-controller-manager", "hcloud", byNothing, "hetznercloud/hcloud-cloud-controller-manager docs/explanation/controllers.md"},
	{"openstack-cloud-controller-manager", "openstack", byNothing, "kubernetes/cloud-provider-openstack cmd/openstack-cloud-controller-manager/main.go"},
	{"rke2-cloud-provider", "rke2", byNothing, "rancher/rke2: k8s.io/cloud-provider app/controllermanager.go as it is"},
	{"linode-cloud-controller-manager", "linode", byFlag, "linode/linode-cloud-controller-manager docs/configuration/nodeipam.md"},
	{"cloud-provider-gcp", "gce", byFlag, "kubernetes/cloud-provider-gcp cmd/cloud-controller-manager/nodeipamcontroller.go"},
	{"azure-cloud-controller-manager", "azure", byFlag, "kubernetes-sigs/cloud-provider-azure: kubernetes-sigs.github.io/cloud-provider-azure/topics/ipam"},
	{"talos-cloud-controller-manager", "talos", byName, "siderolabs/talos-cloud-controller-manager docs/controllers.md"},
	{"kops-controller", "", bySetting, "kubernetes/kops cmd/kops-controller/controllers/awsipam.go"},
	{"antrea-controller", "", bySetting, "antrea-io/antrea docs/antrea-ipam.md"},
	{"podcidr-controller", "", always, "imroc/podcidr-controller README.md"},
	{"aws-ipam-controller", "", always, "gardener/aws-ipam-controller README.md"},
}

// allocatorSettings turn allocators on.
var allocatorSettings = []struct{ program, configMap, key, path, remedy string }{
	{"kops-controller", "kops-controller", "config.yaml", "enableCloudIPAM", "kOps sets it in IPv6 clusters: do not use this controller in such a cluster"},
	{"antrea-controller", "antrea-config", "antrea-controller.conf", "nodeIPAM.enableNodeIPAM", "set it to false, and restart antrea-controller"},
}

// checkAllocators looks for allocators in other programs. With this controller in one, its own does not run.
func checkAllocators(fs *findings, about string, s *state, used usage) {
	configured := map[string]bool{}
	for _, setting := range allocatorSettings {
		for _, c := range s.configMaps {
			if !strings.Contains(c.Name, setting.configMap) || c.Data[setting.key] == "" {
				continue
			}
			configured[setting.program] = true
			if valueIn(c.Data[setting.key], setting.path) == true {
				fs.add(problem, about, "ConfigMap %s/%s has %s: true, with which %s writes podCIDRs: %s", c.Namespace, c.Name, setting.path, setting.program, setting.remedy)
			}
		}
	}
	seen := map[string]bool{}
	for _, p := range s.that(func(p process) bool { return !p.hosted && p.Name != manager && !p.isPeer() && !p.runsOurs() }) {
		known := p.known()
		if level, text := known.allocates(p, configured[known.part]); text != "" && !seen[p.workload+text] {
			seen[p.workload+text] = true
			fs.add(level, about, text, p, startOf[used.form], known.source)
		}
	}
}

// known is what is known of a program.
func (p process) known() allocator {
	for _, a := range allocators {
		if strings.Contains(p.Image, a.part) || p.Name == a.part || a.provider != "" && p.provider == a.provider {
			return a
		}
	}
	return allocator{allocates: unknown}
}

func always(process, bool) (Level, string) {
	return problem, "%[1]v writes podCIDRs (%[3]s): take it away before you %[2]s"
}

// byNothing is for programs without an allocator, whatever their flags.
func byNothing(p process, _ bool) (Level, string) {
	if !p.Allocate {
		return OK, ""
	}
	return OK, "%[1]v has --allocate-node-cidrs and no allocator (%[3]s): leave the flag as it is when you %[2]s"
}

func bySetting(_ process, configured bool) (Level, string) {
	if configured {
		return OK, ""
	}
	return warning, "%[1]v can write podCIDRs, and no ConfigMap of it is seen: cannot tell whether it does (%[3]s). Turn that off before you %[2]s"
}

// byFlag is for programs that allocate with --allocate-node-cidrs, unless --controllers leaves the allocator out.
func byFlag(p process, _ bool) (Level, string) {
	switch _, out := p.ownAllocator(); {
	case out:
		return OK, ""
	case p.Allocate:
		return problem, "%[1]v allocates with --allocate-node-cidrs (%[3]s): add -" + inTree + " to its --controllers, or set that flag to false, before you %[2]s"
	}
	return hidden(p)
}

// byName is for programs whose allocator is off if --controllers does not name it.
func byName(p process, _ bool) (Level, string) {
	if named, _ := p.ownAllocator(); !named || p.refuses() {
		return OK, ""
	}
	return problem, "%[1]v allocates with " + inTree + " in --controllers (%[3]s): take that out before you %[2]s"
}

func unknown(p process, _ bool) (Level, string) {
	switch named, out := p.ownAllocator(); {
	case out:
		return OK, ""
	case named && !p.refuses():
		return problem, "%[1]v has " + inTree + " in --controllers, so it allocates: take that out before you %[2]s"
	case p.Allocate:
		return warning, "%[1]v has --allocate-node-cidrs: cannot tell whether it allocates, since many programs have the flag and no allocator, and some make no routes without it. Look into its documentation, and turn an allocator off before you %[2]s"
	case strings.Contains(p.Name+p.Image, cloud):
		return hidden(p)
	}
	return OK, ""
}

// hidden is for programs whose flags cannot be read.
func hidden(p process) (Level, string) {
	if !p.hides("allocate-node-cidrs") {
		return OK, ""
	}
	return warning, "%[1]v has " + p.hiding() + ": cannot tell whether it allocates. See that it does not before you %[2]s"
}

// refuses reports whether --allocate-node-cidrs is false.
func (l commandLine) refuses() bool { return l.said("allocate-node-cidrs") && !l.Allocate }

// ownAllocator reports whether --controllers names the allocator of another program, and whether it leaves it out.
func (l commandLine) ownAllocator() (named, out bool) {
	for _, entry := range l.controllers {
		if name := strings.TrimPrefix(entry, "-"); name == inTree || name == "node-ipam" {
			return name == entry, name != entry
		}
	}
	return false, !slices.Contains(l.controllers, "*")
}

// valueIn is the value of a field of YAML text, by its path; nil if there is none.
func valueIn(text, at string) any {
	var value any
	if yaml.Unmarshal([]byte(text), &value) != nil {
		return nil
	}
	for name := range strings.SplitSeq(at, ".") {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return value
}
