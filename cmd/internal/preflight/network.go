package preflight

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
)

func checkKubeProxy(fs *findings, config *corev1.ConfigMap, ranges []namedRange) {
	const about = "kube-proxy"
	if config == nil {
		fs.add(OK, about, "there is no ConfigMap kube-system/kube-proxy; if a kube-proxy runs all the same, see that its --detect-local-mode is not ClusterCIDR")
		return
	}
	var c struct {
		DetectLocalMode string `json:"detectLocalMode"`
		ClusterCIDR     string `json:"clusterCIDR"`
	}
	if err := yaml.Unmarshal([]byte(config.Data["config.conf"]), &c); err != nil {
		fs.add(warning, about, "config.conf of ConfigMap kube-proxy cannot be read: %v", err)
		return
	}
	if c.DetectLocalMode == "" || c.DetectLocalMode == "ClusterCIDR" {
		if c.ClusterCIDR == "" {
			fs.add(OK, about, "it does not tell Pods of the cluster from others, since clusterCIDR is empty")
			return
		}
		uncovered(fs, about, "clusterCIDR", c.ClusterCIDR, ranges,
			"set detectLocalMode: NodeCIDR in ConfigMap kube-system/kube-proxy and restart it: kubectl -n kube-system rollout restart daemonset kube-proxy")
	}
	fs.well(about, "detectLocalMode %q, clusterCIDR %q fit all ranges", c.DetectLocalMode, c.ClusterCIDR)
}

func checkFlannel(fs *findings, config *corev1.ConfigMap, ranges []namedRange) {
	const about = "flannel"
	if config == nil {
		return
	}
	var c struct{ Network, IPv6Network string }
	if err := json.Unmarshal([]byte(config.Data["net-conf.json"]), &c); err != nil {
		fs.add(warning, about, "net-conf.json of ConfigMap kube-flannel-cfg cannot be read: %v", err)
		return
	}
	uncovered(fs, about, "its Network", strings.Trim(c.Network+","+c.IPv6Network, ","), ranges,
		"widen Network or IPv6Network in net-conf.json so that it contains all ranges, and restart flannel")
	fs.well(about, "its networks contain all ranges")
}

func checkCalico(fs *findings, pools []unstructured.Unstructured, ranges []namedRange) {
	const about = "Calico"
	if len(pools) == 0 {
		return
	}
	var cidrs []string
	for _, pool := range pools {
		cidr, _, _ := unstructured.NestedString(pool.Object, "spec", "cidr")
		cidrs = append(cidrs, cidr)
	}
	uncovered(fs, about, "its IPPools", strings.Join(cidrs, ","), ranges,
		"create an IPPool for the range. With Calico's own IPAM, Pods get addresses from IPPools and not from podCIDRs; only with host-local and usePodCidr do they follow ClusterCIDRs")
	fs.well(about, "its IPPools contain all ranges; see that its IPAM is host-local with usePodCidr, else Pods do not follow podCIDRs")
}

func checkCilium(fs *findings, config *corev1.ConfigMap, ranges []namedRange) {
	const about = "Cilium"
	if config == nil {
		return
	}
	if mode := config.Data["ipam"]; mode != "kubernetes" {
		fs.add(problem, about, "its ipam mode is %q, so Pods get addresses from Cilium and not from podCIDRs: ClusterCIDRs would change nothing. It follows them with ipam: kubernetes, in a new cluster", mode)
	}
	for _, setting := range []string{"ipv4-native-routing-cidr", "ipv6-native-routing-cidr"} {
		if cidr := config.Data[setting]; cidr != "" {
			uncovered(fs, about, setting, cidr, ranges, "widen it so that it contains all ranges, else traffic between Pods is masqueraded")
		}
	}
	fs.well(about, "it follows podCIDRs")
}

// uncovered warns about every range that no CIDR of a setting contains. A setting for one family is only compared with ranges of that
// family.
func uncovered(fs *findings, about, setting, cidrs string, ranges []namedRange, remedy string) {
	var covered []netip.Prefix
	for s := range strings.SplitSeq(cidrs, ",") {
		prefixes, err := fromflags.ParseCIDRs(setting, s)
		if err != nil {
			fs.add(warning, about, "%v", err)
			return
		}
		covered = append(covered, prefixes...)
	}
	single := strings.HasPrefix(setting, "ipv")
	for _, r := range ranges {
		other := single && r.prefix.Addr().Is4() != covered[0].Addr().Is4()
		if !other && !slices.ContainsFunc(covered, func(c netip.Prefix) bool { return within(r.prefix, c) }) {
			fs.add(warning, about, "%s %v does not contain the range %v: %s", setting, covered, r, remedy)
		}
	}
}
