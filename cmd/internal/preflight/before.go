package preflight

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/build"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/text"
)

// What --before can be: steps that have a page in docs.
const (
	kubeadmSwap = "kubeadm-swap"
	chart       = "chart"
	takeover    = "takeover"
	dualStack   = "dual-stack"
	etcdRestore = "etcd-restore"
	rollback    = "rollback"
)

// Steps are the values of --before.
var Steps = []string{kubeadmSwap, chart, takeover, dualStack, etcdRestore, rollback}

// formBefore is the form of the controller that a step is about; empty if it is about both.
var formBefore = map[string]string{kubeadmSwap: manager, chart: peer, takeover: peer}

// checkBefore checks what matters only before a step.
func checkBefore(fs *findings, s *state, used usage, ranges, services []namedRange) {
	switch s.before {
	case kubeadmSwap:
		beforeSwap(fs, s)
	case chart:
		beforeChart(fs, s, used)
	case takeover:
		beforeTakeover(fs, s, used)
	case dualStack:
		beforeDualStack(fs, s, ranges, services)
	case etcdRestore:
		beforeRestore(fs, s, used)
	case rollback:
		beforeRollback(fs, s, used, services)
	}
}

// beforeSwap is for docs/install/kubeadm.md.
func beforeSwap(fs *findings, s *state) {
	var pods, swapped []string
	elects := 0
	for _, p := range s.managers() {
		pods = append(pods, p.called())
		if p.runsOurs() {
			swapped = append(swapped, p.called())
		}
		if p.elects {
			elects++
		}
		if !p.isOurs() {
			checkStart(fs, kubeadmSwap, "after the swap ", p)
		}
	}
	switch {
	case len(pods) == 0:
		fs.add(problem, kubeadmSwap, "no Pod in any namespace runs %s, so there is none to swap: if you cannot change the control plane, use %s: %s", manager, peer, build.Page("install/helm.md"))
	case len(swapped) == len(pods):
		fs.add(OK, kubeadmSwap, "%s runs the controller already", strings.Join(swapped, ", "))
	case elects < len(pods) && len(pods) > 1:
		fs.add(problem, kubeadmSwap, "%d of %d managers run with --leader-elect=false, so several of them allocate at once after the swap: set it to true on every control plane first", len(pods)-elects, len(pods))
	case len(pods) == 1:
		fs.add(OK, kubeadmSwap, "%s is the only one: no Node gets podCIDRs for about a minute meanwhile", pods[0])
	default:
		fs.add(OK, kubeadmSwap, "swap one after the other: %s", strings.Join(pods, ", "))
	}
	withoutPodCIDRs(fs, kubeadmSwap, s, "see why before you change anything: kubectl describe node")
}

// withoutPodCIDRs warns about Nodes that have none.
func withoutPodCIDRs(fs *findings, about string, s *state, remedy string) {
	nodesThat(fs, about, s, func(n *corev1.Node) bool { return !pool.ShowsPodCIDRs(n) }, "Node has no podCIDRs", "Nodes have no podCIDRs", remedy)
}

// nodesThat warns about the Nodes that match.
func nodesThat(fs *findings, about string, s *state, match func(*corev1.Node) bool, one, many, remedy string) {
	var names []string
	for i := range s.nodes {
		if match(&s.nodes[i]) {
			names = append(names, s.nodes[i].Name)
		}
	}
	if len(names) > 0 {
		fs.add(warning, about, "%s (%s): %s", text.Counted(len(names), one, many), text.Listed(names), remedy)
	}
}

// beforeChart is for docs/install/helm.md, in a cluster without this form.
func beforeChart(fs *findings, s *state, used usage) {
	for _, p := range used.peers {
		fs.add(warning, chart, "%s runs a %s already: to replace it check with --before=%s", p.workload, peer, takeover)
	}
	some := slices.ContainsFunc(s.nodes, func(n corev1.Node) bool { return pool.ShowsPodCIDRs(&n) })
	if some {
		fs.add(OK, chart, "Nodes have podCIDRs, so the program allocates nothing in the first minute: the last PATCH of another allocator can arrive until then")
	} else if len(s.nodes) > 0 {
		fs.add(warning, chart, "no Node has podCIDRs, so the program allocates at once: if another allocator has just been stopped, wait for a minute before you install the chart")
	}
	tainted := func(n *corev1.Node) bool { return n.Spec.Unschedulable }
	nodesThat(fs, chart, s, tainted, "Node is cordoned", "Nodes are cordoned", "the Pods of the chart need another one: kubectl uncordon")
}

// beforeTakeover is for docs/install/from-kubernetes-sigs.md.
func beforeTakeover(fs *findings, s *state, used usage) {
	if len(used.peers) == 0 {
		fs.add(warning, takeover, "there is no Deployment of a %s to take over from: if it runs outside of the cluster, ignore this warning; else check with --before=%s", peer, chart)
	}
	if !slices.ContainsFunc(s.leases, func(l coordinationv1.Lease) bool { return l.Name == peer }) {
		fs.add(warning, takeover, "there is no Lease called %s: if the other program runs without leader election, stop it and wait for a minute before you start this one", peer)
	}
	for _, cc := range s.clusterCIDRs {
		switch {
		case cc.DeletionTimestamp != nil:
			fs.add(warning, takeover, "ClusterCIDR %s is being deleted: it allocates nothing, and is removed when no Node has a block of it. To keep the range, create another ClusterCIDR with it", cc.Name)
		case cc.Generation > 1:
			fs.add(warning, takeover, "ClusterCIDR %s was edited: the other program treats it as one that is being deleted, this one allocates from it. If it should not, set allocation: Disabled first", cc.Name)
		}
	}
	fs.well(takeover, "ClusterCIDRs stay as they are, and Nodes keep their podCIDRs")
}

// beforeDualStack is for clusters of one family that get the other one.
func beforeDualStack(fs *findings, s *state, ranges, services []namedRange) {
	families := map[string][]ipam.Family{}
	var names []string
	for _, r := range ranges {
		if r.grave == problem { // not Disabled
			names = append(names, r.name)
			families[r.name] = append(families[r.name], ipam.FamilyOf(r.prefix))
		}
	}
	slices.Sort(names)
	both := false
	for _, name := range slices.Compact(names) {
		if len(families[name]) > 1 {
			both = true
			continue
		}
		fs.add(warning, dualStack, "%s has %v only, and that cannot be changed: create a ClusterCIDR with both families and the same nodeSelector, and then disable this one", name, families[name][0])
	}
	if !both {
		fs.add(problem, dualStack, "no ClusterCIDR has both families: name the file of one with -f")
	}
	var known []netip.Prefix
	for _, r := range services {
		known = append(known, r.prefix)
	}
	if missing := missingFamily(known); missing != "" && len(known) > 0 {
		fs.add(warning, dualStack, "Services have no %s range: add one to --service-cluster-ip-range of kube-apiserver and %s", missing, manager)
	}
	nodesThat(fs, dualStack, s, func(n *corev1.Node) bool {
		addresses := pool.AddressesOf(n)
		return len(addresses) > 0 && missingFamily(addresses) != ""
	}, "Node has addresses of one family", "Nodes have addresses of one family",
		"give their kubelets both with --node-ip, else their Pods cannot use the other one")
	nodesThat(fs, dualStack, s, func(n *corev1.Node) bool {
		blocks, _ := pool.PodCIDRsOf(n)
		return len(blocks) > 0 && missingFamily(blocks) != ""
	}, "Node has podCIDRs of one family and keeps them", "Nodes have podCIDRs of one family and keep them", "once a ClusterCIDR has both, replace them one after the other: "+text.Replace)
	fs.well(dualStack, "ranges, Services and Nodes have both families")
}

// missingFamily names the family that none of the prefixes has; empty if they have both.
func missingFamily(all []netip.Prefix) string {
	for _, family := range []ipam.Family{ipam.IPv4, ipam.IPv6} {
		if !slices.ContainsFunc(all, func(p netip.Prefix) bool { return ipam.FamilyOf(p) == family }) {
			return fmt.Sprint(family)
		}
	}
	return ""
}

// beforeRestore is for docs/operate/restore-etcd.md, which has to be followed from its beginning. Afterwards it is too late for what is
// found here.
func beforeRestore(fs *findings, s *state, used usage) {
	var programs []string
	etcd := false
	for _, pod := range s.pods {
		etcd = etcd || pod.Labels["component"] == "etcd"
	}
	for _, p := range slices.Concat(s.managers(), used.clouds) {
		programs = append(programs, p.String())
	}
	for _, p := range used.peers {
		programs = append(programs, p.workload)
	}
	if len(programs) > 0 {
		fs.add(OK, etcdRestore, "stop these before the restore, and save their logs: %s", text.Listed(programs))
	} else {
		fs.add(warning, etcdRestore, "no program that allocates is seen: find out which one does, since it must not run while etcd is restored")
	}
	fs.add(OK, etcdRestore, "save the podCIDRs of %s and %s now: kubectl get nodes,clustercidrs.networking.x-k8s.io -o yaml", text.Counted(len(s.nodes), "Node", "Nodes"), text.Counted(len(s.clusterCIDRs), "ClusterCIDR", "ClusterCIDRs"))
	if !etcd {
		fs.add(warning, etcdRestore, "no Pod of kube-system has the label component=etcd: set ETCD_DATA and ETCD_PORT to those of your etcd: %s", build.Page("operate/restore-etcd.md"))
	}
	nodesThat(fs, etcdRestore, s, func(n *corev1.Node) bool { return !ready(n) }, "Node is not ready", "Nodes are not ready",
		"their machines may not answer when you ask which blocks are in use: then take these from the list that you have saved")
	withoutPodCIDRs(fs, etcdRestore, s, "if they get some before the restore, only the log of the controller has these blocks")
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
