package preflight

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/cmd/internal/program"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
)

// network is what the programs of the network say, wherever it stands.
type network struct {
	findings
	settings []setting
	ipam     map[string]string // Calico's, and where that stands
}

// setting is a list of networks that has to contain every Pod range.
type setting struct {
	about  string // the program
	name   string // of the setting, and where it stands
	cidrs  string
	remedy string
	single bool // networks of one family say nothing of the other one
}

// What to do if a setting does not contain a range.
const (
	masquerades   = "widen it so that it contains all ranges, else traffic between Pods is masqueraded"
	widenFlannel  = "widen Network or IPv6Network in net-conf.json so that it contains all ranges, and restart flannel"
	setNodeCIDR   = "set detectLocalMode: NodeCIDR in that ConfigMap and restart it: kubectl -n kube-system rollout restart daemonset kube-proxy"
	flagNodeCIDR  = "start it with --detect-local-mode=NodeCIDR"
	createIPPools = "create an IPPool for the range. With Calico's own IPAM, Pods get addresses from IPPools and not from podCIDRs; only with host-local and usePodCidr do they follow ClusterCIDRs"
)

const proxy, flannel, calico, cilium, masq = "kube-proxy", "flannel", "Calico", "Cilium", "ip-masq-agent"

// inConfigMaps are the settings of programs by the key in a ConfigMap, or by a part of its text, whatever the ConfigMap is called.
var inConfigMaps = []struct {
	key, part string
	read      func(n *network, where, text string)
}{
	{"net-conf.json", "", (*network).flannel},
	{"config.conf", "", (*network).kubeProxy},
	{"", "kind: KubeProxyConfiguration", (*network).kubeProxy},
	{"", "nonMasqueradeCIDRs", (*network).masqAgent},
	{"cni_network_config", "", (*network).calicoCNI},
	{"antrea-agent.conf", "", (*network).antrea},
}

// ignoring are network plugins that do not read podCIDRs, by a part of the name of their program or image.
var ignoring = []struct{ part, name, source string }{
	{"amazon-k8s-cni", "the Amazon VPC CNI", "docs.aws.amazon.com/eks/latest/userguide/alternate-cni-plugins.html"},
	{"ovnkube", "OVN-Kubernetes", "ovn-kubernetes/ovn-kubernetes go-controller/pkg/factory/factory.go"},
	{"ovn-kubernetes", "OVN-Kubernetes", "ovn-kubernetes/ovn-kubernetes go-controller/pkg/factory/factory.go"},
	{"weave-kube", "Weave Net", "weaveworks/weave site/kubernetes/kube-addon.md"},
}

// checkNetwork looks at kube-proxy, network plugins, and what else knows the addresses of Pods.
func checkNetwork(fs *findings, s *state, ranges []namedRange) {
	n := &network{ipam: map[string]string{}}
	for i := range s.configMaps {
		n.configMap(&s.configMaps[i])
	}
	for _, p := range s.that(func(p process) bool { return !p.hosted }) {
		n.process(p)
	}
	n.embedded(s.nodes)
	n.calico(s.installs, s.ipPools)
	for _, set := range n.settings {
		uncovered(&n.findings, set, ranges)
	}
	if !n.about(proxy) {
		n.add(OK, proxy, "none is seen. If one runs all the same, see that its --detect-local-mode is not ClusterCIDR")
	}
	for _, set := range n.settings {
		n.well(set.about, "%s %s contains all ranges", set.name, set.cidrs)
	}
	n.policies(s, ranges)
	*fs = append(*fs, n.findings...)
}

// about reports whether something was found of a program.
func (n *network) about(program string) bool {
	return slices.ContainsFunc(n.settings, func(s setting) bool { return s.about == program }) ||
		slices.ContainsFunc(n.findings, func(f Finding) bool { return f.About == program })
}

// set adds a setting. The same networks of the same program count once: a kube-proxy runs on every Node.
func (n *network) set(about, name, cidrs, remedy string) {
	if cidrs != "" && !slices.ContainsFunc(n.settings, func(o setting) bool { return o.about == about && o.cidrs == cidrs && o.remedy == remedy }) {
		n.settings = append(n.settings, setting{about, name, cidrs, remedy, about == cilium || about == masq})
	}
}

func (n *network) configMap(c *corev1.ConfigMap) {
	where := "ConfigMap " + c.Namespace + "/" + c.Name
	for _, key := range slices.Sorted(maps.Keys(c.Data)) {
		text := c.Data[key]
		for _, in := range inConfigMaps {
			if in.key == key && (key != "config.conf" || strings.Contains(c.Name, proxy)) || in.part != "" && key != "config.conf" && strings.Contains(text, in.part) {
				in.read(n, where, text)
			}
		}
	}
	if strings.Contains(c.Name, "cilium-config") {
		n.cilium(where, c.Data)
	}
}

func (n *network) flannel(where, text string) {
	var c struct{ Network, IPv6Network string }
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		n.add(warning, flannel, "net-conf.json of %s cannot be read: %v", where, err)
		return
	}
	n.set(flannel, "Network in net-conf.json of "+where, strings.Trim(c.Network+","+c.IPv6Network, ","), widenFlannel)
}

func (n *network) kubeProxy(where, text string) {
	var c struct {
		DetectLocalMode string `json:"detectLocalMode"`
		ClusterCIDR     string `json:"clusterCIDR"`
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		n.add(warning, proxy, "the configuration in %s cannot be read: %v", where, err)
		return
	}
	n.proxy("clusterCIDR of "+where, c.DetectLocalMode, c.ClusterCIDR, setNodeCIDR)
}

// proxy is for one kube-proxy.
func (n *network) proxy(name, mode, cidrs, remedy string) {
	switch {
	case mode != "" && mode != "ClusterCIDR":
		n.well(proxy, "its mode to detect local traffic is %s", mode)
	case cidrs == "":
		n.well(proxy, "it does not tell Pods of the cluster from others, since %s is empty", name)
	default:
		n.set(proxy, name, cidrs, remedy)
	}
}

func (n *network) masqAgent(where, text string) {
	var c struct {
		NonMasqueradeCIDRs []string `json:"nonMasqueradeCIDRs"`
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		n.add(warning, masq, "nonMasqueradeCIDRs in %s cannot be read: %v", where, err)
		return
	}
	n.set(masq, "nonMasqueradeCIDRs of "+where, strings.Join(c.NonMasqueradeCIDRs, ","), "add the range, else traffic to its Pods is masqueraded")
}

func (n *network) calicoCNI(where, text string) {
	switch {
	case strings.Contains(text, `"calico-ipam"`):
		n.ipam["calico-ipam"] = where
	case strings.Contains(text, "usePodCidr"):
		n.ipam["host-local"] = where
	case strings.Contains(text, `"host-local"`):
		n.ipam["host-local without usePodCidr"] = where
	}
}

func (n *network) antrea(where, text string) {
	if valueIn(text, "trafficEncapMode") == "networkPolicyOnly" {
		n.add(problem, "Antrea", "trafficEncapMode of %s is networkPolicyOnly, so another plugin gives Pods their addresses: see that it reads podCIDRs", where)
		return
	}
	n.well("Antrea", "it follows podCIDRs, and has no list of ranges")
}

func (n *network) cilium(where string, settings map[string]string) {
	if mode := settings["ipam"]; mode != "kubernetes" {
		n.add(problem, cilium, "its ipam mode is %q (%s), so Pods get addresses from Cilium and not from podCIDRs: ClusterCIDRs would change nothing. It follows them with ipam: kubernetes, in a new cluster", cmp.Or(mode, "cluster-pool"), where)
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		if settings["routing-mode"] == "tunnel" || settings["enable-"+family+"-masquerade"] == "false" {
			continue // traffic between Pods is not masqueraded
		}
		name := family + "-native-routing-cidr"
		n.set(cilium, name+" of "+where, settings[name], masquerades)
	}
	n.well(cilium, "it follows podCIDRs")
}

// process is for programs with settings on their command lines and in their variables.
func (n *network) process(p process) {
	for _, i := range ignoring {
		if strings.Contains(p.Image, i.part) && !n.about("Pods") {
			n.add(warning, "Pods", "%v is %s, which does not read podCIDRs (%s): ClusterCIDRs change nothing for its Pods", p, i.name, i.source)
		}
	}
	of := map[string]func(*network, process){
		program.Proxy: (*network).proxyProcess, "flanneld": (*network).flannelProcess, "cilium-agent": (*network).ciliumProcess,
		"kube-router": func(n *network, p process) {
			n.set("kube-router", "--cluster-cidr of "+p.String(), p.Flag("cluster-cidr"), "take it away, or "+masquerades)
			n.well("kube-router", "it follows podCIDRs, and has no list of ranges")
		},
		"kindnetd": func(n *network, p process) {
			n.set("kindnet", "POD_SUBNET of "+p.String(), p.Env["POD_SUBNET"], masquerades)
		},
	}
	if read := of[p.Name]; read != nil {
		read(n, p)
	}
	if p.Env["USE_POD_CIDR"] == "true" {
		n.ipam["host-local"] = "USE_POD_CIDR of " + p.String()
	}
	if strings.Contains(p.Name+p.Image, masq) && !n.about(masq) {
		n.set(masq, "nonMasqueradeCIDRs, which "+p.String()+" has by default:", "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16", "create a ConfigMap ip-masq-agent with all ranges, else traffic to Pods is masqueraded")
	}
}

func (n *network) proxyProcess(p process) {
	switch config := p.Flag("config"); {
	case config != "" && !n.about(proxy):
		n.add(warning, proxy, "%v has --config=%s, which cannot be read: see that detectLocalMode in it is not ClusterCIDR", p, config)
	case config != "": // In a ConfigMap.
	case p.unread("cluster-cidr") || p.unread("detect-local-mode"):
		n.add(warning, proxy, "%v has %s: see that its --detect-local-mode is not ClusterCIDR", p, p.hiding())
	default:
		n.proxy("--cluster-cidr of "+p.String(), p.Flag("detect-local-mode"), p.Flag("cluster-cidr"), flagNodeCIDR)
	}
}

func (n *network) flannelProcess(p process) {
	if p.Flag("kube-subnet-mgr") == "" && len(p.Args) > 0 {
		n.add(warning, flannel, "%v has no --kube-subnet-mgr, so it takes networks of Nodes from etcd and not from podCIDRs: ClusterCIDRs would change nothing", p)
	}
}

func (n *network) ciliumProcess(p process) {
	settings := map[string]string{}
	for _, name := range []string{"ipam", "ipv4-native-routing-cidr", "ipv6-native-routing-cidr"} {
		settings[name] = p.Flag(name)
	}
	if settings["ipam"] != "" {
		n.cilium(p.String(), settings)
	}
}

// embedded warns of k3s, which has the programs of the network in its own process.
func (n *network) embedded(nodes []corev1.Node) {
	for _, node := range nodes {
		if !strings.Contains(node.Status.NodeInfo.KubeletVersion, "+k3s") {
			continue
		}
		if !n.about(proxy) {
			n.add(warning, proxy, "k3s has it in its own process, with the --cluster-cidr of its servers: start k3s on each Node with --kube-proxy-arg=detect-local-mode=NodeCIDR, or see that its --cluster-cidr contains all ranges")
		}
		if _, ok := node.Annotations["flannel.alpha.coreos.com/backend-type"]; ok && !n.about(flannel) {
			n.add(warning, flannel, "k3s has it in its own process, and its Network is the --cluster-cidr of its servers: see that this contains all ranges, or set another one with --flannel-conf")
		}
		return
	}
}

// calicoInstalled reads the IPAM that Calico's operator installs.
func (n *network) calicoInstalled(install unstructured.Unstructured) {
	kind, _, _ := unstructured.NestedString(install.Object, "spec", "cni", "ipam", "type")
	if plugin, _, _ := unstructured.NestedString(install.Object, "spec", "cni", "type"); kind == "" && (plugin == "" || plugin == "Calico") {
		kind = "Calico" // the operator's default
	}
	if name := map[string]string{"Calico": "calico-ipam", "HostLocal": "host-local"}[kind]; name != "" {
		n.ipam[name] = "Installation " + install.GetName()
	}
}

// calico looks at Calico's IPAM, and at its pools if Pods have addresses of podCIDRs.
func (n *network) calico(installs, pools []unstructured.Unstructured) {
	for _, i := range installs {
		n.calicoInstalled(i)
	}
	for _, name := range []string{"calico-ipam", "host-local without usePodCidr"} {
		if where := n.ipam[name]; where != "" {
			n.add(problem, calico, "its IPAM is %s (%s), so nobody reads podCIDRs: Pods get addresses from elsewhere, and ClusterCIDRs would change nothing. Calico follows podCIDRs with host-local and usePodCidr, in a new cluster", name, where)
			return
		}
	}
	var cidrs []string
	for _, pool := range pools {
		cidr, _, _ := unstructured.NestedString(pool.Object, "spec", "cidr")
		cidrs = append(cidrs, cidr)
	}
	n.set(calico, "its IPPools", strings.Join(cidrs, ","), createIPPools)
	if where := n.ipam["host-local"]; where != "" && len(pools) == 0 {
		n.well(calico, "its IPAM is host-local (%s), so Pods follow podCIDRs", where)
	} else if len(pools) > 0 && where == "" {
		n.add(OK, calico, "see that its IPAM is host-local with usePodCidr, else Pods do not follow podCIDRs")
	}
}

// uncovered warns about every range that no network of a setting contains.
func uncovered(fs *findings, s setting, ranges []namedRange) {
	var covered []netip.Prefix
	for cidr := range strings.SplitSeq(s.cidrs, ",") {
		prefixes, err := fromflags.ParseCIDRs(s.name, cidr)
		if err != nil {
			fs.add(warning, s.about, "%v", err)
			return
		}
		covered = append(covered, prefixes...)
	}
	for _, r := range ranges {
		same := slices.ContainsFunc(covered, func(c netip.Prefix) bool { return ipam.FamilyOf(c) == ipam.FamilyOf(r.prefix) })
		if (same || !s.single) && !slices.ContainsFunc(covered, func(c netip.Prefix) bool { return within(r.prefix, c) }) {
			fs.add(warning, s.about, "%s %v does not contain the range %v: %s", s.name, covered, r, s.remedy)
		}
	}
}
