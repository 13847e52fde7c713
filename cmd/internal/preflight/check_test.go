package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/manifests/crds"
)

func excluding(cc networkingv1.ClusterCIDR, cidrs ...string) networkingv1.ClusterCIDR {
	cc.Spec.ExcludedCIDRs = cidrs
	return cc
}

func TestCheck(t *testing.T) {
	second := clusterCIDR("second", "10.246.0.0/16")
	for description, tc := range map[string]struct {
		change func(*state)
		want   []string // level, aspect and a part of the text, of all that is not well
	}{
		"a cluster with one range and everything installed": {func(*state) {}, nil},
		"nothing is installed yet": {func(s *state) { s.noCRD, s.bindings = true, nil },
			[]string{"WARNING installed: there is no ClusterCIDR CRD", "WARNING installed: there is no ClusterRoleBinding of the controller's ServiceAccount"}},
		"a manager without service accounts for its controllers": {func(s *state) {
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")}
		}, []string{"WARNING installed: kube-controller-manager runs without --use-service-account-credentials"}},
		"the same, with the binding for that": {func(s *state) {
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")}
			s.bindings = bindingsOf(rbacv1.Subject{Kind: "User", Name: "system:kube-controller-manager"})
		}, nil},
		"the same, without the one for --cluster-cidr": {func(s *state) {
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")}
			s.bindings = bindingsOf(rbacv1.Subject{Kind: "User", Name: "system:kube-controller-manager"})[:1]
		}, []string{"WARNING installed: kube-controller-manager runs without --use-service-account-credentials, and its user may not create the ClusterCIDR"}},
		"no permission to make the ClusterCIDR of --cluster-cidr": {func(s *state) { s.bindings = s.bindings[:1] },
			[]string{"WARNING installed: the controller's ServiceAccount may not create the ClusterCIDR of --cluster-cidr: kubectl apply -f manifests/crds -f manifests/rbac"}},
		"nor a need for it": {func(s *state) {
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--use-service-account-credentials")}
			s.planned, s.bindings = []networkingv1.ClusterCIDR{clusterCIDR("first", "10.244.0.0/16")}, s.bindings[:1]
		}, nil},
		"the same, for node-ipam-controller": {func(s *state) { alone(s); s.server.Minor = "31" }, nil},
		"an API server without the functions of the CRD": {func(s *state) { alone(s); s.server.Minor = "30" },
			[]string{"PROBLEM version: "}},
		"an API server that is too new for node-ipam-controller": {func(s *state) { alone(s); s.server.Minor = "39" },
			[]string{"PROBLEM version: "}},
		"node-ipam-controller has a Deployment": {alone, nil},
		"node-ipam-controller is asked for and not there yet": {func(s *state) {
			alone(s)
			s.deployments, s.form = nil, peer
			s.given.ClusterCIDR, s.given.Allocate = "10.244.0.0/16", true
		},
			[]string{"WARNING installed: there is no Deployment of node-ipam-controller"}},
		"node-ipam-controller without permissions": {func(s *state) { alone(s); s.bindings = nil },
			[]string{"WARNING installed: no ClusterRoleBinding names the ServiceAccount net/ipam"}},
		"node-ipam-controller beside the in-tree allocator": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")}
		}, []string{"PROBLEM second writer: kube-controller-manager has --allocate-node-cidrs"}},
		"node-ipam-controller beside the same controller in the manager": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--controllers=*,multi-cidr-node-ipam-controller")}
		}, []string{"PROBLEM second writer: kube-controller-manager has multi-cidr-node-ipam-controller in --controllers"}},
		"node-ipam-controller beside the same controller in a manager with the range of flags": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--controllers=*,multi-cidr-node-ipam-controller")}
		}, []string{"PROBLEM second writer: kube-controller-manager has multi-cidr-node-ipam-controller in --controllers"}},
		"node-ipam-controller beside a manager whose allocator is off": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--controllers=*,-node-ipam-controller")}
		}, nil},
		"a CRD of this version": {func(s *state) { s.crd = ourCRD() }, nil},
		"a CRD without status and some fields": {func(s *state) { s.crd = olderCRD() },
			[]string{"WARNING installed: the ClusterCIDR CRD is of another version and lacks [status spec.excludedCIDRs spec.nodeSelector.nodeSelectorTerms.matchExpressions.values]: the API server hides these fields, so that blocks in excludedCIDRs can be allocated, for example. No ClusterCIDR is lost if you do this: kubectl apply -f manifests/crds -f manifests/rbac"}},
		"the same, with the chart": {func(s *state) { alone(s); s.crd = olderCRD() },
			[]string{"WARNING installed: the ClusterCIDR CRD is of another version and lacks [status"}},
		"a manager with a file": {func(s *state) {
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--config=/etc/kubernetes/manager.yaml")}
			s.clusterCIDRs = append(s.clusterCIDRs, clusterCIDR("first", "10.244.0.0/16"))
		}, []string{"WARNING manager: Pod kube-controller-manager-1 has --config=/etc/kubernetes/manager.yaml, and the flags in that file cannot be read: run this command again with those for ranges"}},
		"a manager with a file, and what is in it": {func(s *state) {
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--config=/etc/kubernetes/manager.yaml")}
			s.given.Allocate, s.given.ClusterCIDR = true, "10.244.0.0/16"
		}, nil},
		"a manager with a file, whose ranges are no flags of the file": {func(s *state) {
			s.pods[0] = managerPod("kube-controller-manager-1", "--config=/etc/kubernetes/manager.yaml", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")
		}, nil},
		"node-ipam-controller beside a manager with a file": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--config=/etc/kubernetes/manager.yaml", "--allocate-node-cidrs=false")}
		}, []string{"WARNING second writer: kube-controller-manager has --config=/etc/kubernetes/manager.yaml, and the flags in that file cannot be read: see that it has allocateNodeCIDRs: false"}},
		"node-ipam-controller beside a manager with a file, whose allocators are off": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--config=/etc/kubernetes/manager.yaml", "--allocate-node-cidrs=false", "--controllers=*")}
		}, nil},
		"a manager with both allocators by name": {func(s *state) {
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials", "--controllers=*,nodeipam,multicidrnodeipam")}
		}, []string{"PROBLEM manager: Pod kube-controller-manager-1 has both multi-cidr-node-ipam-controller and node-ipam-controller in --controllers"}},
		"two managers without election": {func(s *state) {
			for i := range 2 {
				p := managerPod(fmt.Sprint("kube-controller-manager-", i+1), "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials", "--leader-elect=false", "--controllers=*,multicidrnodeipam")
				s.pods = append(s.pods[:i], p)
			}
		}, []string{"PROBLEM second writer: Pods kube-controller-manager-1, kube-controller-manager-2 allocate, and kube-controller-manager-1, kube-controller-manager-2 without being the leader"}},
		"one manager without election": {func(s *state) {
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials", "--leader-elect=false")}
		}, nil},
		"half of the control plane is swapped": {func(s *state) {
			s.pods = []corev1.Pod{
				managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials", "--controllers=*,multi-cidr-node-ipam-controller"),
				managerPod("kube-controller-manager-2", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials"),
			}
		}, []string{"PROBLEM manager: kube-controller-manager-1 has multi-cidr-node-ipam-controller in --controllers and kube-controller-manager-2 has not"}},
		"half of the control plane is swapped, by the alias": {func(s *state) {
			s.pods = append(s.pods, managerPod("kube-controller-manager-2", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials", "--controllers=*,multicidrnodeipam"))
		}, []string{"PROBLEM manager: kube-controller-manager-2 has multi-cidr-node-ipam-controller in --controllers and kube-controller-manager-1 has not"}},
		"half of the control plane is swapped, in two arguments": {func(s *state) {
			s.pods = append(s.pods, managerPod("kube-controller-manager-2", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials", "--controllers", "*,multi-cidr-node-ipam-controller"))
		}, []string{"PROBLEM manager: kube-controller-manager-2 has multi-cidr-node-ipam-controller in --controllers and kube-controller-manager-1 has not"}},
		"all of the control plane is swapped, each in another way": {func(s *state) {
			s.pods = nil
			for i, args := range []string{"--controllers=*,multicidrnodeipam", "--controllers *,multi-cidr-node-ipam-controller", "--controllers=* --controllers=multicidrnodeipam"} {
				s.pods = append(s.pods, managerPod(fmt.Sprint("kube-controller-manager-", i),
					append(strings.Fields(args), "--allocate_node_cidrs", "--cluster-cidr", "10.244.0.0/16", "--use-service-account-credentials")...))
			}
		}, nil},
		"a manager whose --controllers cannot be read": {func(s *state) {
			s.pods[0].Spec.Containers[0].Command = append(s.pods[0].Spec.Containers[0].Command, "--controllers=*,multicidrnodeipam")
			s.pods = append(s.pods, managerPod("kube-controller-manager-2", `--controllers=*,"multicidrnodeipam`))
		}, []string{"PROBLEM manager: the flags of Pod kube-controller-manager-2 cannot be read: invalid argument"}},
		"node-ipam-controller beside the same controller in the manager, by its alias": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs=false", "--controllers=*,multicidrnodeipam")}
		}, []string{"PROBLEM second writer: kube-controller-manager has multi-cidr-node-ipam-controller in --controllers: take it out (its alias is multicidrnodeipam)"}},
		"node-ipam-controller beside the same controller in the manager, in two arguments": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--controllers", "*,multi-cidr-node-ipam-controller")}
		}, []string{"PROBLEM second writer: kube-controller-manager has multi-cidr-node-ipam-controller in --controllers"}},
		"node-ipam-controller beside the in-tree allocator, named by its alias": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--controllers", "nodeipam")}
		}, []string{"PROBLEM second writer: kube-controller-manager has --allocate-node-cidrs"}},
		"node-ipam-controller beside a manager whose allocator is off by its alias": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--controllers", "*,-nodeipam")}
		}, nil},
		"files without a ClusterCIDR": {func(s *state) { s.fruitless = []string{"second.yaml has no objects"} },
			[]string{"WARNING files: second.yaml has no objects: name "}},
		"node-ipam-controller twice": {func(s *state) {
			alone(s)
			second := *s.deployments[0].DeepCopy()
			second.Namespace = "net-2"
			s.deployments = append(s.deployments, second)
			s.bindings = append(s.bindings, bindingsOf(rbacv1.Subject{Kind: "ServiceAccount", Name: "ipam", Namespace: "net-2"})...)
		}, []string{"PROBLEM second writer: Deployment net/peer and Deployment net-2/peer both run"}},
		"a Node with all addresses": {func(s *state) {
			s.nodes = append(s.nodes, node("evil", "", "0.0.0.0/0"))
			s.clusterCIDRs = append(s.clusterCIDRs, second)
		},
			[]string{"PROBLEM podCIDRs: 0.0.0.0/0 of Node evil contains the whole range --cluster-cidr (10.244.0.0/16), second (10.246.0.0/16), so no other Node",
				"PROBLEM podCIDRs: 0.0.0.0/0 of Node evil overlaps the service range"}},
		"a Node with the whole range": {func(s *state) {
			s.planned = append(s.planned, second)
			s.nodes = append(s.nodes, node("wide", "", "10.246.0.0/16"))
		},
			[]string{"PROBLEM podCIDRs: 10.246.0.0/16 of Node wide contains the whole range second"}},
		"a Node with the only block of a range": {func(s *state) {
			single := clusterCIDR("single", "10.246.0.0/24")
			s.clusterCIDRs, s.nodes = append(s.clusterCIDRs, single), append(s.nodes, node("one", "", "10.246.0.0/24"))
		}, nil},
		"the API server is one minor version newer": {func(s *state) { s.server.Minor = "38+" }, nil},
		"the API server is two minor versions newer": {func(s *state) { s.server.Minor = "39" },
			[]string{"PROBLEM version: "}},
		"a podCIDR outside of every range": {func(s *state) { s.nodes = append(s.nodes, node("old", "", "172.20.0.0/24")) },
			[]string{"WARNING podCIDRs: 172.20.0.0/24 of Node old lies in no range"}},
		"the same podCIDR inside a range that is planned": {func(s *state) {
			s.nodes = append(s.nodes, node("old", "", "172.20.0.0/24"))
			s.planned = append(s.planned, clusterCIDR("old", "172.20.0.0/16"))
		}, nil},
		"two Nodes whose podCIDRs overlap, with a third between them in order": {func(s *state) {
			s.nodes = append(s.nodes, node("wide", "", "10.244.16.0/20"), node("in-1", "", "10.244.16.0/24"), node("in-2", "", "10.244.17.0/24"))
		}, []string{
			"PROBLEM podCIDRs: 10.244.16.0/20 of Node wide and 10.244.16.0/24 of Node in-1 share addresses",
			"PROBLEM podCIDRs: 10.244.16.0/20 of Node wide and 10.244.17.0/24 of Node in-2 share addresses",
		}},
		"a podCIDR in the service range": {func(s *state) {
			s.nodes = append(s.nodes, node("old", "", "10.96.7.0/24"))
		}, []string{"WARNING podCIDRs: 10.96.7.0/24 of Node old lies in no range", "PROBLEM podCIDRs: 10.96.7.0/24 of Node old overlaps the service range"}},
		"the same without the service range": {func(s *state) {
			s.planned = append(s.planned, excluding(clusterCIDR("wide", "10.96.0.0/11"), "10.96.0.0/16"))
		}, nil},
		"a range with Nodes' addresses in it": {func(s *state) { s.planned = append(s.planned, clusterCIDR("nodes", "192.0.2.0/24")) },
			[]string{"PROBLEM ranges: nodes (192.0.2.0/24) has the address 192.0.2.1 of Node n1 in it", "PROBLEM ranges: nodes (192.0.2.0/24) has the address 192.0.2.2 of Node n2",
				"PROBLEM ranges: nodes (192.0.2.0/24) has the address 192.0.2.3 of Node new"}},
		"the same without the Nodes' network": {func(s *state) {
			s.planned = append(s.planned, excluding(clusterCIDR("nodes", "192.0.0.0/16"), "192.0.2.0/28"))
		}, nil},
		"the same, where it is a change of one that is stored": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, clusterCIDR("nodes", "192.0.0.0/16"))
			s.planned = append(s.planned, excluding(clusterCIDR("nodes", "192.0.0.0/16"), "192.0.2.0/28"))
		}, nil},
		"flags with Nodes' addresses, excluded in the ClusterCIDR of the flags": {func(s *state) {
			s.nodes[2].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.244.9.3"}}
			made := excluding(clusterCIDR("created-from-flags-1", "10.244.0.0/16"), "10.244.9.0/24")
			made.Labels = map[string]string{networkingv1.LabelCreatedFromFlags: "true"}
			s.clusterCIDRs = append(s.clusterCIDRs, made)
		}, nil},
		"flags with Nodes' addresses": {func(s *state) {
			s.nodes[2].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.244.9.3"}}
		}, []string{"PROBLEM ranges: --cluster-cidr (10.244.0.0/16) has the address 10.244.9.3 of Node new in it, which Pods could get too: use other addresses; or"}},
		"a range that overlaps the service range": {func(s *state) { s.planned = append(s.planned, clusterCIDR("wide", "10.96.0.0/11")) },
			[]string{"WARNING ranges: wide (10.96.0.0/11) overlaps the service range ServiceCIDR kubernetes (10.96.0.0/16)"}},
		"a range inside the service range": {func(s *state) { s.planned = append(s.planned, clusterCIDR("inside", "10.96.64.0/20")) },
			[]string{"PROBLEM ranges: inside (10.96.64.0/20) lies in the service range"}},
		"a range with a Node's own address in it": {func(s *state) { s.nodes = append(s.nodes, node("n", "10.244.200.7")) },
			[]string{"PROBLEM ranges: --cluster-cidr (10.244.0.0/16) has the address 10.244.200.7 of Node n in it"}},
		"a ClusterCIDR that breaks a rule": {func(s *state) { s.planned = append(s.planned, clusterCIDR("bad", "10.246.0.0/30")) },
			[]string{"PROBLEM ranges: ClusterCIDR bad would allocate nothing: ", `PROBLEM files: ClusterCIDR bad would be refused: spec.perNodeHostBits: Invalid value: a block of this size does not fit into ipv4`}},
		"an exclusion outside of the ranges": {func(s *state) { s.planned = append(s.planned, excluding(second, "10.247.0.0/24")) },
			[]string{"PROBLEM files: ClusterCIDR second would be refused: spec.excludedCIDRs: Invalid value: every excluded CIDR must be inside ipv4 or ipv6"}},
		"two of one name": {func(s *state) { s.planned = append(s.planned, second, second) },
			[]string{"PROBLEM files: ClusterCIDR second would be refused: it is there more than once"}},
		"another block size for a ClusterCIDR that exists": {func(s *state) {
			changed := second
			changed.Spec.PerNodeHostBits++
			s.clusterCIDRs, s.planned = append(s.clusterCIDRs, second), append(s.planned, changed)
		}, []string{"PROBLEM files: ClusterCIDR second would be refused: spec.perNodeHostBits: Invalid value: perNodeHostBits cannot be changed"}},
		"another exclusion for a ClusterCIDR that exists": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.planned = append(s.planned, excluding(second, "10.246.1.0/24"))
		}, nil},
		"a disabled ClusterCIDR with addresses of Services and Nodes": {func(s *state) {
			disabled := clusterCIDR("second", "10.96.64.0/20")
			disabled.Spec.Allocation = networkingv1.AllocationDisabled
			s.planned, s.nodes = append(s.planned, disabled), append(s.nodes, node("n", "10.96.65.1"))
		}, []string{"WARNING ranges: second (10.96.64.0/20) lies in the service range", "WARNING ranges: second (10.96.64.0/20) has the address 10.96.65.1 of Node n"}},
		"no range at all": {func(s *state) { s.pods, s.nodes, s.given.ServiceRange = nil, nil, "10.96.0.0/16" },
			[]string{"WARNING ranges: there are none yet"}},
		"no manager among the Pods": {func(s *state) { s.pods, s.nodes = nil, nil },
			[]string{"WARNING manager: ", "WARNING ranges: there are none yet"}},
		"control planes with different ranges": {func(s *state) {
			s.pods = append(s.pods, managerPod("kube-controller-manager-2", "--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16", "--use-service-account-credentials"))
		}, []string{"PROBLEM manager: kube-controller-manager-1 and kube-controller-manager-2 have different flags"}},
		"kube-proxy knows one of two ranges": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.configMaps = configMap("kube-proxy", "config.conf", "detectLocalMode: ClusterCIDR\nclusterCIDR: 10.244.0.0/16\n")
		}, []string{"WARNING kube-proxy: clusterCIDR of ConfigMap kube-system/kube-proxy [10.244.0.0/16] does not contain the range second (10.246.0.0/16): set detectLocalMode: NodeCIDR"}},
		"kube-proxy goes by the Node": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.configMaps = configMap("kube-proxy", "config.conf", "detectLocalMode: NodeCIDR\nclusterCIDR: 10.244.0.0/16\n")
		}, nil},
		"flannel knows one of two ranges": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.configMaps = configMap("kube-flannel-cfg", "net-conf.json", `{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}`)
		}, []string{"WARNING flannel: Network in net-conf.json of ConfigMap kube-system/kube-flannel-cfg [10.244.0.0/16] does not contain the range second"}},
		"flannel's network is wide enough": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.configMaps = configMap("kube-flannel-cfg", "net-conf.json", `{"Network": "10.244.0.0/14", "IPv6Network": "fd00::/48"}`)
		}, nil},
		"Calico has a pool for one of two ranges": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.ipPools = []unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{"cidr": "10.244.0.0/16"}}}}
		}, []string{"WARNING Calico: its IPPools [10.244.0.0/16] does not contain the range second"}},
		"Cilium gives addresses itself": {func(s *state) { s.configMaps = configMap("cilium-config", "ipam", "cluster-pool") },
			[]string{`PROBLEM Cilium: its ipam mode is "cluster-pool"`}},
		"Cilium masquerades what is outside of its native range": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.configMaps = configMap("cilium-config", "ipam", "kubernetes", "ipv4-native-routing-cidr", "10.244.0.0/16")
		}, []string{"WARNING Cilium: ipv4-native-routing-cidr of ConfigMap kube-system/cilium-config [10.244.0.0/16] does not contain the range second"}},
		"Cilium's tunnels need no native range": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.configMaps = configMap("cilium-config", "ipam", "kubernetes", "routing-mode", "tunnel", "ipv4-native-routing-cidr", "10.244.0.0/16")
		}, nil},
		"a cloud-controller-manager gives podCIDRs too": {func(s *state) {
			s.pods = append(s.pods, pod("cloud-controller-manager-x", "/bin/ccm", "--allocate-node-cidrs=true", "--cloud-provider=x"))
		}, []string{"WARNING second writer: Pod cloud-controller-manager-x has --allocate-node-cidrs: cannot tell whether it allocates"}},
		"a cloud-controller-manager that does not": {func(s *state) {
			s.pods = append(s.pods, pod("cloud-controller-manager-x", "/bin/ccm", "--cloud-provider=x"))
		}, nil},
		"a cloud-controller-manager with the controller in it": {inCloud, nil},
		"the same, with the alias, another name and two arguments": {func(s *state) {
			inCloud(s)
			s.pods[len(s.pods)-1] = pod("acme-ccm-x", "/bin/acme", "--controllers", "*,multicidrnodeipam", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials")
		}, nil},
		"the same, twice, with different ranges": {func(s *state) {
			inCloud(s)
			s.pods = append(s.pods, pod("cloud-controller-manager-y", "/bin/ccm", "--controllers=*,multi-cidr-node-ipam-controller", "--use-service-account-credentials"))
		}, []string{"PROBLEM manager: cloud-controller-manager-x and cloud-controller-manager-y have different flags for ranges"}},
		"a cloud-controller-manager with the controller, without permissions": {func(s *state) { inCloud(s); s.bindings = nil },
			[]string{"WARNING installed: there is no ClusterRoleBinding of the controller's ServiceAccount"}},
		"a cloud-controller-manager with the controller, without that for --cluster-cidr": {func(s *state) { inCloud(s); s.bindings = s.bindings[:1] },
			[]string{"WARNING installed: the controller's ServiceAccount may not create the ClusterCIDR of --cluster-cidr: kubectl apply -f manifests/crds -f manifests/rbac"}},
		"a cloud-controller-manager with the controller, as its own user": {func(s *state) {
			inCloud(s)
			s.pods[len(s.pods)-1] = pod("ccm", "/bin/ccm", "--controllers=*,multicidrnodeipam", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")
		}, []string{"WARNING installed: Pod ccm runs without --use-service-account-credentials: set that flag, or bind"}},
		"an API server of a minor that there is a build for": {func(s *state) { s.server.Minor = "36" },
			[]string{"WARNING version: the API server is v1.37.1: take the kube-controller-manager that is built for v1.36"}},
		"an API server of a minor that there is no build for": {func(s *state) { s.server.Minor = "34" },
			[]string{"PROBLEM version: the API server is v1.37.1, and a kube-controller-manager of v1.37 must not be newer"}},
		"a cloud-controller-manager with the controller, on an older API server": {func(s *state) { inCloud(s); s.server.Minor = "36" },
			[]string{"PROBLEM version: the API server is v1.37.1, and a cloud-controller-manager of v1.37 must not be newer"}},
		"a cloud-controller-manager with the controller, beside the in-tree allocator": {func(s *state) {
			inCloud(s)
			s.pods = append(s.pods, managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16"))
		}, []string{"PROBLEM second writer: kube-controller-manager has --allocate-node-cidrs: set it to false, or add -node-ipam-controller to --controllers, on every control plane before you start the controller in the cloud-controller-manager"}},
		"a cloud-controller-manager with the controller, in a leader migration": {func(s *state) {
			inCloud(s)
			s.pods = append(s.pods, managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--enable-leader-migration"))
		}, []string{"WARNING second writer: kube-controller-manager allocates in a leader migration"}},
		"a cloud-controller-manager with the controller, beside one in the manager": {func(s *state) {
			inCloud(s)
			s.pods = append(s.pods, managerPod("kube-controller-manager-1", "--controllers=*,multi-cidr-node-ipam-controller"))
		}, []string{"PROBLEM second writer: kube-controller-manager has multi-cidr-node-ipam-controller in --controllers: take it out (its alias is multicidrnodeipam), or do not use the controller in the cloud-controller-manager"}},
		"a cloud-controller-manager with the controller, beside node-ipam-controller": {func(s *state) {
			inCloud(s)
			s.deployments = []appsv1.Deployment{deployment("--cluster-cidr=10.244.0.0/16")}
			s.bindings = append(s.bindings, bindingsOf(rbacv1.Subject{Kind: "ServiceAccount", Name: "ipam", Namespace: "net"})...)
		}, []string{"PROBLEM second writer: Pod cloud-controller-manager-x has multi-cidr-node-ipam-controller in --controllers"}},
		"the same, by its form": {func(s *state) {
			inCloud(s)
			s.form, s.deployments = cloud, []appsv1.Deployment{deployment("--cluster-cidr=10.244.0.0/16")}
		}, []string{"PROBLEM second writer: Deployment net/peer runs a node-ipam-controller: kubectl -n net scale deployment peer --replicas=0, before you start the controller in the cloud-controller-manager"}},
		"a cloud-controller-manager with the controller, and a swap of the manager": {func(s *state) {
			inCloud(s)
			s.form, s.pods = manager, append(s.pods, healthy().pods...)
		}, []string{
			"WARNING second writer: ccm-1 holds the Lease kube-system/node-ipam-controller: if a node-ipam-controller, or a cloud-controller-manager with this controller, still runs, stop it",
			"PROBLEM second writer: Pod cloud-controller-manager-x has multi-cidr-node-ipam-controller in --controllers: take it out (its alias is multicidrnodeipam) before you swap the manager",
		}},
		"a cloud-controller-manager with the controller, asked for and not there yet": {func(s *state) {
			s.form, s.pods = cloud, nil
			s.given.ClusterCIDR, s.given.Allocate = "10.244.0.0/16", true
		}, []string{"WARNING installed: no Pod has multi-cidr-node-ipam-controller in --controllers, except kube-controller-manager: start the cloud-controller-manager with it"}},
		"node-ipam-controller whose --cluster-cidr only orders families": {func(s *state) {
			alone(s)
			s.deployments = []appsv1.Deployment{deployment("--cluster-cidr=10.245.0.0/16", "--allocate-node-cidrs=false")}
			s.clusterCIDRs = append(s.clusterCIDRs, clusterCIDR("own", "10.244.0.0/16"))
			s.configMaps = configMap("kube-proxy", "config.conf", "detectLocalMode: ClusterCIDR\nclusterCIDR: 10.244.0.0/16\n")
		}, nil},
		"the other program that serves ClusterCIDRs": {func(s *state) {
			s.form, s.deployments = manager, append(s.deployments, deployment())
			s.leases = append(s.leases, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: peer, Namespace: "net"},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: new("peer-1")}})
		}, []string{"PROBLEM second writer: Deployment net/peer", "WARNING second writer: peer-1 holds the Lease net/node-ipam-controller"}},
		"a manager under another label, in another namespace": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{in("control-plane", "registry.k8s.io/kube-controller-manager:v1.37.1", pod("kcm", "/usr/local/bin/kube-controller-manager", "--allocate-node-cidrs"))}
		}, []string{"PROBLEM second writer: kube-controller-manager has --allocate-node-cidrs"}},
		"a manager that has ended": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs")}
			s.pods[0].Status.Phase = corev1.PodFailed
		}, nil},
		"a manager whose flags come from a variable": {func(s *state) {
			alone(s)
			s.pods = []corev1.Pod{pod("kcm", "sh", "-c", "exec kube-controller-manager --v=2 $FLAGS")}
		}, []string{"WARNING manager: Pod kcm has flags from variables or a script, which cannot be read: run this command again",
			"WARNING second writer: kube-controller-manager has flags from variables or a script, which cannot be read: see that it has allocateNodeCIDRs: false"}},
		"a manager whose range comes from a variable": {func(s *state) {
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=$(CIDR)", "--use-service-account-credentials")}
			s.clusterCIDRs = []networkingv1.ClusterCIDR{clusterCIDR("own", "10.244.0.0/16")}
		}, []string{"WARNING manager: Pod kube-controller-manager-1 has flags from variables or a script, which cannot be read: run this command again with those for ranges"}},
		"a manager in a Deployment without Pods": {func(s *state) {
			alone(s)
			d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "kcm", Namespace: "kube-system"}}
			d.Spec.Template.Spec = managerPod("kcm", "--allocate-node-cidrs").Spec
			s.deployments = append(s.deployments, d)
		}, []string{"PROBLEM second writer: kube-controller-manager has --allocate-node-cidrs"}},
		"this project's manager where its image has no such path": {func(s *state) {
			s.pods = []corev1.Pod{in("kube-system", "registry.example.com/kubernetes/kube-controller-manager:v1.37.1-mc0.2.0", pod("kcm", "/bin/kube-controller-manager", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials"))}
		}, []string{"PROBLEM manager: Pod kcm is started by /bin/kube-controller-manager, which this project's image does not have"}},
		"this project's manager under another tag, in a shell": {func(s *state) {
			s.pods = []corev1.Pod{pod("kcm", "/bin/sh", "-c", "kube-controller-manager --controllers=*,multicidrnodeipam --allocate-node-cidrs --cluster-cidr=10.244.0.0/16 --use-service-account-credentials")}
		}, []string{"PROBLEM manager: Pod kcm is started by /bin/sh, which this project's image does not have"}},
		"before a swap of a manager behind a wrapper, with flags by hand": {func(s *state) {
			s.before, s.nodes = kubeadmSwap, s.nodes[:2]
			s.pods = []corev1.Pod{pod("kcm", "/hyperkube", "controller-manager", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials")}
			s.given = s.processesOf()[0].flags
		}, []string{"PROBLEM kubeadm-swap: after the swap Pod kcm is started by /hyperkube"}},
		"a Lease that a Pod on the same host renews": {func(s *state) {
			alone(s)
			p := managerPod("kube-controller-manager-cp1", "--allocate-node-cidrs=false")
			p.Spec.NodeName = "cp1.example.com"
			s.pods, s.leases = []corev1.Pod{p}, append(s.leases, renewed(manager, "cp1_1"))
		}, nil},
		"a Lease that is renewed on a Node without such a Pod": {func(s *state) {
			alone(s)
			p := managerPod("kube-controller-manager-cp1", "--allocate-node-cidrs=false")
			p.Spec.NodeName = "cp1"
			s.pods, s.leases = []corev1.Pod{p}, append(s.leases, renewed(manager, "n2_1"))
		}, []string{"WARNING second writer: n2_1 renews the Lease kube-system/kube-controller-manager, and no Pod of it is seen"}},
		"a Lease that is renewed on a host that is no Node": {func(s *state) {
			alone(s)
			p := managerPod("kube-controller-manager-cp1", "--allocate-node-cidrs=false")
			p.Spec.NodeName = "n1"
			s.nodes[0].Labels = map[string]string{corev1.LabelHostname: "host-1.example.com"}
			s.pods, s.leases = []corev1.Pod{p}, append(s.leases, renewed(manager, "host-2_1"))
		}, []string{"WARNING second writer: host-2_1 renews the Lease kube-system/kube-controller-manager"}},
		"a Lease that is renewed on a host with another name than its Node": {func(s *state) {
			alone(s)
			p := managerPod("kube-controller-manager-cp1", "--allocate-node-cidrs=false")
			p.Spec.NodeName = "n1"
			s.nodes[0].Labels = map[string]string{corev1.LabelHostname: "host-1.example.com"}
			s.pods, s.leases = []corev1.Pod{p}, append(s.leases, renewed(manager, "host-1_1"))
		}, nil},
		"this project's node-ipam-controller behind a wrapper": {func(s *state) {
			alone(s)
			c := &s.deployments[0].Spec.Template.Spec.Containers[0]
			c.Image, c.Command = "localhost/multicidr/node-ipam-controller:v1.37.1-mc0.2.0", []string{"/go-runner", "/usr/local/bin/node-ipam-controller"}
		}, []string{"PROBLEM installed: Deployment net/peer is started by /go-runner, which this project's image does not have"}},
		"a Lease that was renewed long before an API server renewed its own": {func(s *state) {
			alone(s)
			api := renewed("apiserver-x", "apiserver-x_1")
			api.Labels = map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"}
			api.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(time.Hour)}
			s.leases = append(s.leases, renewed(manager, "cp1_1"), api)
		}, nil},
		"a Lease of a cloud-controller-manager that is not seen": {func(s *state) { s.leases = append(s.leases, renewed(cloud, "host_1")) },
			[]string{"WARNING second writer: host_1 renews the Lease kube-system/cloud-controller-manager"}},
		"a Lease of a manager whose flags are asked for": {func(s *state) {
			s.pods, s.nodes, s.leases = nil, nil, append(s.leases, renewed(manager, "cp1_1"))
			s.clusterCIDRs = append(s.clusterCIDRs, second)
		}, []string{"WARNING manager: no Pod in any namespace runs kube-controller-manager, but cp1_1 renews the Lease kube-system/kube-controller-manager: run this command again"}},
		"allocators that are known, and off": {func(s *state) {
			s.pods = append(s.pods,
				in("kube-system", "ghcr.io/siderolabs/talos-cloud-controller-manager:v1", pod("talos", "/talos", "--allocate-node-cidrs", "--controllers=cloud-node")),
				in("kube-system", "registry.k8s.io/cloud-provider-gcp/cloud-controller-manager:v1", pod("gcp", "/ccm", "--allocate-node-cidrs", "--controllers=*,-nodeipam")),
				in("kube-system", "mcr.microsoft.com/oss/kubernetes/azure-cloud-controller-manager:v1", pod("azure", "cloud-controller-manager", "--allocate-node-cidrs=false")),
				in("kube-system", "k8scloudprovider/openstack-cloud-controller-manager:v1", pod("openstack", "/ccm", "--allocate-node-cidrs")),
				in("kube-system", "any", pod("rke2", "cloud-controller-manager", "--allocate-node-cidrs=true", "--cloud-provider=rke2")),
				in("kube-system", "antrea/antrea-controller-ubuntu:v2", pod("antrea", "antrea-controller")))
			s.configMaps = configMap("antrea-config", "antrea-controller.conf", "nodeIPAM:\n  enableNodeIPAM: false\n", "antrea-agent.conf", "trafficEncapMode: encap\n")
		}, nil},
		"allocators that are known, and on": {func(s *state) {
			s.pods = append(s.pods,
				in("kube-system", "ghcr.io/siderolabs/talos-cloud-controller-manager:v1", pod("talos", "/talos", "--allocate-node-cidrs", "--controllers=cloud-node,node-ipam-controller")),
				in("kube-system", "any", pod("gcp", "cloud-controller-manager", "--allocate-node-cidrs", "--cloud-provider=gce")),
				in("kube-system", "registry.k8s.io/provider-aws/cloud-controller-manager:v1", pod("aws", "/ccm", "--controllers=*,nodeipam")),
				in("net", "imroc/podcidr-controller:v1", pod("tke", "/podcidr-controller")),
				in("kube-system", "any", pod("kops-controller-x", "/kops-controller")))
			s.configMaps = configMap("kops-controller", "config.yaml", `{"cloud":"aws","enableCloudIPAM":true}`)
		}, []string{
			"PROBLEM second writer: ConfigMap kube-system/kops-controller has enableCloudIPAM: true, with which kops-controller writes podCIDRs",
			"PROBLEM second writer: Pod talos allocates", "PROBLEM second writer: Pod gcp allocates",
			"PROBLEM second writer: Pod aws has node-ipam-controller in --controllers", "PROBLEM second writer: Pod net/tke writes podCIDRs"}},
		"allocators of which nobody can tell": {func(s *state) {
			s.pods = append(s.pods,
				in("kube-system", "antrea/antrea-controller-ubuntu:v2", pod("antrea", "antrea-controller")),
				in("kube-system", "any", pod("ccm", "sh", "-c", "cloud-controller-manager $FLAGS")))
		}, []string{"WARNING second writer: Pod antrea can write podCIDRs", "WARNING second writer: Pod ccm has flags from variables or a script, which cannot be read: cannot tell"}},
		"node-ipam-controller as a DaemonSet": {func(s *state) {
			d := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "ipam", Namespace: "net"}}
			d.Spec.Template.Spec = pod("", "/go-runner", "/node-ipam-controller", "--v=2").Spec
			s.form, s.daemonSets = manager, []appsv1.DaemonSet{d}
		}, []string{"PROBLEM second writer: DaemonSet net/ipam runs a node-ipam-controller: take it away, before you swap the manager"}},
		"two Pods of the Deployment of node-ipam-controller": {func(s *state) {
			alone(s)
			for i := range 2 {
				p := pod(fmt.Sprint("peer-5d6c7b8f9-", i))
				p.Namespace, p.Spec = "net", s.deployments[0].Spec.Template.Spec
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "peer-5d6c7b8f9", Controller: new(true)}}
				s.pods = append(s.pods, p)
			}
		}, nil},
		"canal, and kube-proxies with flags": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.configMaps = configMap("rke2-canal-config", "net-conf.json", `{"Network":"10.244.0.0/16"}`, "cni_network_config", `{"ipam":{"type":"host-local","ranges":[[{"subnet":"usePodCidr"}]]}}`)
			for _, node := range []string{"w1", "w2"} {
				s.pods = append(s.pods, pod("kube-proxy-"+node, "/usr/local/bin/kube-proxy", "--cluster-cidr=10.244.0.0/16"))
			}
		}, []string{
			"WARNING flannel: Network in net-conf.json of ConfigMap kube-system/rke2-canal-config [10.244.0.0/16] does not contain the range second",
			"WARNING kube-proxy: --cluster-cidr of Pod kube-proxy-w1 [10.244.0.0/16] does not contain the range second (10.246.0.0/16): start it with --detect-local-mode=NodeCIDR"}},
		"kube-proxies whose settings cannot be read": {func(s *state) {
			s.pods = append(s.pods, pod("kube-proxy-w1", "kube-proxy", "--config=/var/lib/kube-proxy/config.conf"))
		}, []string{"WARNING kube-proxy: Pod kube-proxy-w1 has --config=/var/lib/kube-proxy/config.conf, which cannot be read"}},
		"a kube-proxy whose configuration is under another name": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.configMaps = configMap("kube-proxy-config", "config", "kind: KubeProxyConfiguration\nclusterCIDR: 10.244.0.0/16\n")
			s.pods = append(s.pods, pod("kube-proxy-w1", "kube-proxy", "--config=/etc/config"))
		}, []string{"WARNING kube-proxy: clusterCIDR of ConfigMap kube-system/kube-proxy-config [10.244.0.0/16] does not"}},
		"k3s": {func(s *state) {
			s.nodes[0].Status.NodeInfo.KubeletVersion = "v1.37.1+k3s1"
			s.nodes[0].Annotations = map[string]string{"flannel.alpha.coreos.com/backend-type": "vxlan"}
		}, []string{"WARNING kube-proxy: k3s has it in its own process", "WARNING flannel: k3s has it in its own process"}},
		"Calico's own IPAM, by its operator": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.ipPools = []unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{"cidr": "10.244.0.0/16"}}}}
			s.installs = []unstructured.Unstructured{{Object: map[string]any{"metadata": map[string]any{"name": "default"}, "spec": map[string]any{"cni": map[string]any{"ipam": map[string]any{"type": "Calico"}}}}}}
		}, []string{"PROBLEM Calico: its IPAM is calico-ipam (Installation default), so nobody reads podCIDRs"}},
		"Calico with host-local": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.ipPools = []unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{"cidr": "10.244.0.0/16"}}}}
			s.configMaps = configMap("calico-config", "cni_network_config", `{"ipam": {"type": "host-local", "subnet": "usePodCidr"}}`)
		}, []string{"WARNING Calico: its IPPools [10.244.0.0/16] does not contain the range second"}},
		"Cilium by its flags, and plugins that read no podCIDRs": {func(s *state) {
			s.pods = append(s.pods, pod("cilium", "cilium-agent", "--ipam=cluster-pool"), in("kube-system", "602401143452.dkr.ecr.eu-west-1.amazonaws.com/amazon-k8s-cni:v1", pod("aws-node", "/app/entrypoint.sh")))
		}, []string{`PROBLEM Cilium: its ipam mode is "cluster-pool" (Pod cilium)`, "WARNING Pods: Pod aws-node is the Amazon VPC CNI, which does not read podCIDRs"}},
		"flannel with etcd, and Antrea behind another plugin": {func(s *state) {
			s.pods = append(s.pods, pod("flannel", "/opt/bin/flanneld", "--etcd-endpoints=https://192.0.2.1"))
			s.configMaps = configMap("antrea-config", "antrea-agent.conf", "trafficEncapMode: networkPolicyOnly\n")
		}, []string{"PROBLEM Antrea: trafficEncapMode", "WARNING flannel: Pod flannel has no --kube-subnet-mgr"}},
		"masquerading by default, and by a list": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, clusterCIDR("shared", "100.64.0.0/16"))
			s.pods = append(s.pods, in("kube-system", "registry.k8s.io/networking/ip-masq-agent-amd64:v2", pod("masq", "/ip-masq-agent")))
		}, []string{"WARNING ip-masq-agent: nonMasqueradeCIDRs, which Pod masq has by default: [10.0.0.0/8 172.16.0.0/12 192.168.0.0/16] does not contain the range shared"}},
		"NetworkPolicies that mean Pods, and others": {func(s *state) {
			s.clusterCIDRs = append(s.clusterCIDRs, second)
			s.policies = []networkingapiv1.NetworkPolicy{
				policy("pods", "10.244.0.0/16"), policy("same", "10.244.0.0/16"), policy("some", "10.244.0.0/23"), policy("all", "0.0.0.0/0"), policy("wide", "10.0.0.0/8"),
				policy("elsewhere", "203.0.113.0/24"), policy("outside", "0.0.0.0/0", "10.244.0.0/16"), policy("nets", "0.0.0.0/0", "10.0.0.0/8"), policy("one", "10.244.3.3/32"),
			}
		}, []string{
			"WARNING NetworkPolicies: ipBlock 10.244.0.0/16 contains Pods, and not the range second (10.246.0.0/16) (default/pods; default/same; default/outside)",
			"WARNING NetworkPolicies: ipBlock 10.244.0.0/23 contains Pods, and not the range --cluster-cidr (10.244.0.0/16) (default/some)"}},
		"before a rollback": {func(s *state) { s.before = rollback }, nil},
		"before a rollback, with what the stock manager does not have": {func(s *state) {
			s.before, s.fenced = rollback, true
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials", "--controllers=*,multi-cidr-node-ipam-controller", "--node-ipam-kube-api-qps", "0")}
			s.clusterCIDRs = []networkingv1.ClusterCIDR{clusterCIDR("virtual", "10.246.0.0/16")}
			s.clusterCIDRs[0].Spec.Allocation = networkingv1.AllocationNone
		}, []string{"WARNING rollback: the stock manager ends at its start with --node-ipam-kube-api-qps; multi-cidr-node-ipam-controller in --controllers: take that out of the command of Pod kube-controller-manager-1",
			"WARNING rollback: the ValidatingAdmissionPolicy lease-holder.networking.x-k8s.io refuses what the stock manager writes",
			"WARNING rollback: the stock manager allocates podCIDRs for the Nodes that ClusterCIDR virtual selects"}},
		"before a rollback from node-ipam-controller": {func(s *state) { alone(s); s.before = rollback },
			[]string{"WARNING rollback: Deployment net/peer allocates: stop it", "WARNING rollback: --allocate-node-cidrs is not among the flags that are known"}},
		"before a rollback where a Node shares its block with Services": {func(s *state) {
			s.before, s.given.Allocate, s.given.ClusterCIDR, s.given.ServiceRange = rollback, true, "10.244.0.0/16", "10.244.0.128/25"
			s.nodes[0].Spec.PodCIDRs = []string{"10.244.0.0/28"}
		}, []string{"WARNING ranges: --cluster-cidr (10.244.0.0/16) overlaps the service range", "PROBLEM rollback: Node n1 (10.244.0.0/28) and --service-cluster-ip-range (10.244.0.128/25) are in the same /24 block"}},
		"before a swap": {func(s *state) { s.before = kubeadmSwap },
			[]string{"WARNING kubeadm-swap: 1 Node has no podCIDRs (new): see why"}},
		"before a swap where there is nothing to swap": {func(s *state) {
			s.before, s.pods, s.nodes = kubeadmSwap, nil, nil
			s.given.ClusterCIDR, s.given.Allocate = "10.244.0.0/16", true
		},
			[]string{"PROBLEM kubeadm-swap: no Pod in any namespace runs kube-controller-manager"}},
		"before a swap of managers that all allocate": {func(s *state) {
			s.before, s.nodes = kubeadmSwap, s.nodes[:2]
			for _, name := range []string{"a", "b"} {
				s.pods = append(slices.Clip(s.pods), managerPod(name, "--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16", "--leader-elect=false", "--use-service-account-credentials=true"))
			}
		}, []string{"PROBLEM second writer: Pods kube-controller-manager-1, a, b allocate, and a, b without", "PROBLEM kubeadm-swap: 2 of 3 managers run with --leader-elect=false"}},
		"before the chart": {func(s *state) {
			s.before, s.form, s.noCRD, s.bindings, s.pods = chart, peer, true, nil, nil
			s.given.ClusterCIDR, s.given.Allocate = "10.244.0.0/16", true
		}, nil},
		"before the chart beside the in-tree allocator, where no Node has podCIDRs": {func(s *state) {
			s.before, s.form, s.nodes = chart, peer, s.nodes[2:]
			s.given.ClusterCIDR, s.given.Allocate = "10.244.0.0/16", true
		},
			[]string{"PROBLEM second writer: kube-controller-manager has --allocate-node-cidrs", "WARNING chart: no Node has podCIDRs, so the program allocates at once"}},
		"before the chart where it is installed": {func(s *state) { alone(s); s.before = chart },
			[]string{"WARNING chart: Deployment net/peer runs a node-ipam-controller already"}},
		"before a takeover": {func(s *state) { alone(s); s.before = takeover }, nil},
		"before a takeover of ClusterCIDRs that were edited and deleted": {func(s *state) {
			alone(s)
			s.before, s.leases = takeover, nil
			edited, deleted := clusterCIDR("edited", "10.250.0.0/16"), clusterCIDR("deleted", "10.251.0.0/16")
			edited.Generation, deleted.DeletionTimestamp = 2, &metav1.Time{}
			s.clusterCIDRs = []networkingv1.ClusterCIDR{edited, deleted}
		}, []string{"WARNING takeover: there is no Lease", "WARNING takeover: ClusterCIDR edited was edited", "WARNING takeover: ClusterCIDR deleted is being deleted"}},
		"before dual stack": {func(s *state) { s.before = dualStack }, []string{
			"WARNING dual-stack: --cluster-cidr has IPv4 only", "PROBLEM dual-stack: no ClusterCIDR has both families", "WARNING dual-stack: Services have no IPv6 range",
			"WARNING dual-stack: 3 Nodes have addresses of one family (n1; n2; new)", "WARNING dual-stack: 2 Nodes have podCIDRs of one family and keep them (n1; n2)"}},
		"before dual stack, with all that it takes": {func(s *state) {
			s.before, s.nodes = dualStack, s.nodes[2:]
			s.nodes[0].Status.Addresses = append(s.nodes[0].Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "2001:db8::1"})
			s.pods = []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs=false", "--use-service-account-credentials=true")}
			s.services[0].Spec.CIDRs = append(s.services[0].Spec.CIDRs, "fd00:96::/112")
			both := clusterCIDR("both", "10.246.0.0/16")
			both.Spec.IPv6, both.Spec.IPv6PerNodeHostBits = "fd00:246::/48", new(int32(64))
			s.planned = []networkingv1.ClusterCIDR{both}
		}, nil},
		"before a restore": {func(s *state) { s.before = etcdRestore }, []string{
			"WARNING etcd-restore: no Pod of kube-system has the label component=etcd", "WARNING etcd-restore: 3 Nodes are not ready (n1; n2; new)", "WARNING etcd-restore: 1 Node has no podCIDRs (new)"}},
		"before a restore of a cluster of kubeadm": {func(s *state) {
			s.before, s.nodes = etcdRestore, s.nodes[:2]
			for i := range s.nodes {
				s.nodes[i].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			}
			s.pods = append(s.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "etcd-1", Labels: map[string]string{"component": "etcd"}}})
		}, nil},
	} {
		t.Run(description, func(t *testing.T) {
			s := healthy()
			tc.change(s)
			var got []string
			for _, f := range check(t.Context(), s) {
				if f.Level == OK {
					continue
				}
				line := f.Level.String() + " " + f.About + ": " + f.Text
				if at := len(got); at < len(tc.want) && strings.HasPrefix(line, tc.want[at]) {
					line = tc.want[at]
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings that are not OK, by their beginnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOurMinorIsThatOfTheModule(t *testing.T) {
	gomod, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("k8s.io/kubernetes v1.%d.", ourMinor); !strings.Contains(string(gomod), want) {
		t.Errorf("go.mod does not say %q: change ourMinor", want)
	}
	builds, err := filepath.Glob("../../../hack/kubernetes/v1.*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(builds)
	if want := fmt.Sprintf("v1.%d", oldestBuild); len(builds) == 0 || filepath.Base(builds[0]) != want {
		t.Errorf("the oldest minor of hack/kubernetes is not %s, of %v: change oldestBuild", want, builds)
	}
}

// healthy is a cluster that a table entry changes.
func healthy() *state {
	return &state{
		server:   &version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1"},
		nodes:    []corev1.Node{node("n1", "192.0.2.1", "10.244.0.0/24"), node("n2", "192.0.2.2", "10.244.1.0/24"), node("new", "192.0.2.3")},
		pods:     []corev1.Pod{managerPod("kube-controller-manager-1", "--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16", "--leader-elect=true", "--use-service-account-credentials=true")},
		services: []networkingapiv1.ServiceCIDR{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingapiv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}}},
		bindings: bindingsOf(rbacv1.Subject{Kind: "ServiceAccount", Name: "multi-cidr-node-ipam-controller", Namespace: "kube-system"}),
	}
}

// alone makes it one with node-ipam-controller, for the same range, and no kube-controller-manager that can be seen.
func alone(s *state) {
	s.pods, s.deployments = nil, []appsv1.Deployment{deployment("--cluster-cidr=10.244.0.0/16")}
	s.bindings = bindingsOf(rbacv1.Subject{Kind: "ServiceAccount", Name: "ipam", Namespace: "net"})
	s.leases = []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: peer, Namespace: "net"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("peer-1")}}}
}

// inCloud makes it one whose cloud-controller-manager has the controller in it, for the same range.
func inCloud(s *state) {
	s.pods = []corev1.Pod{pod("cloud-controller-manager-x", "/bin/ccm", "--controllers=*,multi-cidr-node-ipam-controller",
		"--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials")}
	s.leases = []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: peer, Namespace: "kube-system"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("ccm-1")}}}
}

func deployment(args ...string) appsv1.Deployment {
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "peer", Namespace: "net"}}
	d.Spec.Template.Spec.ServiceAccountName = "ipam"
	d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.example.com/node-ipam-controller:v1.37.1", Args: args}}
	return d
}

// bindingsOf are those of manifests/rbac: of the role, and of the one for --cluster-cidr.
func bindingsOf(subject rbacv1.Subject) (all []rbacv1.ClusterRoleBinding) {
	const role = "system:controller:multi-cidr-node-ipam-controller"
	for _, name := range []string{role, role + ":cluster-cidr-flag"} {
		all = append(all, rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{Name: name}, Subjects: []rbacv1.Subject{subject}})
	}
	return all
}

func node(name, address string, podCIDRs ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}}
	if address != "" {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: name}}
	}
	return n
}

func clusterCIDR(name, ipv4 string) networkingv1.ClusterCIDR {
	return networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ClusterCIDRSpec{IPv4: ipv4, PerNodeHostBits: 8}}
}

func pod(name string, command ...string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Command: command}}}}
}

// in gives a Pod a namespace and its container an image.
func in(namespace, image string, p corev1.Pod) corev1.Pod {
	p.Namespace, p.Spec.Containers[0].Image = namespace, image
	return p
}

// renewed is a Lease that is renewed now.
func renewed(name, holder string) coordinationv1.Lease {
	return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: time.Now()}}}
}

func policy(name, cidr string, except ...string) networkingapiv1.NetworkPolicy {
	peers := []networkingapiv1.NetworkPolicyPeer{{IPBlock: &networkingapiv1.IPBlock{CIDR: cidr, Except: except}}, {}}
	return networkingapiv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: networkingapiv1.NetworkPolicySpec{Egress: []networkingapiv1.NetworkPolicyEgressRule{{To: peers}}}}
}

// processesOf are those of the Pods.
func (s *state) processesOf() []process {
	s.find()
	return s.processes
}

func managerPod(name string, args ...string) corev1.Pod {
	p := pod(name, append([]string{"kube-controller-manager"}, args...)...)
	p.Labels = map[string]string{"component": "kube-controller-manager"}
	return p
}

func configMap(name string, keysAndValues ...string) []corev1.ConfigMap {
	c := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system"}, Data: map[string]string{}}
	for i := 0; i < len(keysAndValues); i += 2 {
		c.Data[keysAndValues[i]] = keysAndValues[i+1]
	}
	return []corev1.ConfigMap{c}
}

func ourCRD() *apiextensionsv1.CustomResourceDefinition {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(crds.ClusterCIDRs, &crd); err != nil {
		panic(err)
	}
	return &crd
}

// olderCRD lacks the status, a field, and a field in a list.
func olderCRD() *apiextensionsv1.CustomResourceDefinition {
	crd := ourCRD()
	v := &crd.Spec.Versions[0]
	v.Subresources = nil
	spec := v.Schema.OpenAPIV3Schema.Properties["spec"].Properties
	delete(spec, "excludedCIDRs")
	terms := spec["nodeSelector"].Properties["nodeSelectorTerms"].Items.Schema
	delete(terms.Properties["matchExpressions"].Items.Schema.Properties, "values")
	return crd
}
