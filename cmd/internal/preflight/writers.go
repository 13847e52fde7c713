package preflight

import (
	"path"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/multicidr/controller-manager/controllers/build"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/text"
)

// startOf is how each form begins to allocate.
var startOf = map[string]string{manager: "swap the manager", peer: "start " + peer, cloud: "start the controller in the " + cloud}

// checkWriters looks for other programs that write podCIDRs. They do not know the blocks that the controller has reserved and not yet
// written.
func checkWriters(fs *findings, s *state, used usage) {
	const about = "second writer"
	checkAllocators(fs, about, s, used)
	checkPeers(fs, about, used)
	if used.form == manager {
		checkElection(fs, about, s.managers())
		checkLeases(fs, about, s.leases)
	} else {
		checkManagers(fs, about, s.managers(), used)
	}
	checkUnseen(fs, about, s, used)
	checkHosted(fs, about, s, used)
	if used.form != cloud {
		for _, p := range used.clouds {
			fs.add(problem, about, "%v has %s in --controllers: take it out (its alias is %s) before you %s", p, nodeipam.Name, nodeipam.Alias, startOf[used.form])
		}
	}
	fs.well(about, "none found among Pods and Leases")
}

// checkPeers reports a node-ipam-controller beside another form, or two of them.
func checkPeers(fs *findings, about string, used usage) {
	if used.form == peer {
		for _, other := range used.peers[min(1, len(used.peers)):] {
			fs.add(problem, about, "%s and %s both run a %s: keep one of them", used.peers[0].workload, other.workload, peer)
		}
		return
	}
	for _, p := range used.peers {
		remedy := "take it away"
		if kind, name, _ := strings.Cut(p.workload, " "); kind == "Deployment" || kind == "StatefulSet" {
			remedy = "kubectl -n " + p.namespace + " scale " + strings.ToLower(kind) + " " + path.Base(name) + " --replicas=0"
		}
		fs.add(problem, about, "%s runs a %s: %s, before you %s", p.workload, peer, remedy, startOf[used.form])
	}
}

// checkLeases reports who holds the Lease of the other forms.
func checkLeases(fs *findings, about string, leases []coordinationv1.Lease) {
	for _, lease := range leases {
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); lease.Name == peer && holder != "" {
			fs.add(warning, about, "%s holds the Lease %s/%s: if a %s, or a %s with this controller, still runs, stop it before you swap the manager; else kubectl -n %s delete lease %s",
				holder, lease.Namespace, lease.Name, peer, cloud, lease.Namespace, lease.Name)
		}
	}
}

// checkManagers looks for a kube-controller-manager that allocates or contains the controller, beside another form; one such finding is
// enough.
func checkManagers(fs *findings, about string, managers []process, used usage) {
	for _, p := range managers {
		ours := p.runsOurs()
		switch {
		case (ours || p.allocates()) && used.form == cloud && p.migrates:
			fs.add(warning, about, "%s allocates in a leader migration: go on with it: %s", manager, build.Page("install/cloud-controller-manager.md"))
			return
		case ours:
			fs.add(problem, about, "%s has %s in --controllers: take it out (its alias is %s), or do not use %s", manager, nodeipam.Name, nodeipam.Alias, used.program())
			return
		}
	}
	for _, p := range managers {
		if p.allocates() {
			fs.add(problem, about, "%s has --allocate-node-cidrs: set it to false, or add -%s to --controllers, on every control plane before you %s", manager, inTree, startOf[used.form])
			return
		}
	}
	for _, p := range managers {
		if p.hidesAllocator() {
			fs.add(warning, about, "%s has %s: see that it has allocateNodeCIDRs: false, or -%s in controllers, and not %s", manager, p.hiding(), inTree, nodeipam.Name)
			return
		}
	}
}

// allocates reports whether the in-tree allocator of a kube-controller-manager is on.
func (l commandLine) allocates() bool { return l.Allocate && l.enables(inTree, true) }

// program is what a form is called in a sentence.
func (u usage) program() string {
	if u.form == cloud {
		return "the controller in the " + cloud
	}
	return u.form
}

// checkElection looks for several kube-controller-managers that allocate, of which one does not wait until it is the leader.
func checkElection(fs *findings, about string, managers []process) {
	var allocate, unelected []string
	for _, p := range managers {
		if !p.runsOurs() && !p.allocates() {
			continue
		}
		allocate = append(allocate, p.called())
		if !p.elects {
			unelected = append(unelected, p.called())
		}
	}
	if len(allocate) > 1 && len(unelected) > 0 {
		fs.add(problem, about, "Pods %s allocate, and %s without being the leader (--leader-elect=false): take that flag away, or keep one of the Pods",
			strings.Join(allocate, ", "), strings.Join(unelected, ", "))
	}
}

// leasesOf are the Leases of programs that may allocate, and what else than the name of the Lease is in the names of such programs.
var leasesOf = []struct{ lease, part string }{
	{manager, manager},
	{cloud, "cloud"},
	{"kops-controller-leader", "kops-controller"}, // kubernetes/kops, cmd/kops-controller/main.go
}

// checkUnseen reports Leases that are renewed by a program that is in no Pod: those of k3s and k0s are processes of a machine, and hosted control planes
// are Pods of another cluster.
func checkUnseen(fs *findings, about string, s *state, used usage) {
	for _, of := range leasesOf {
		seen := s.that(func(p process) bool { return !p.hosted && p.isCalled(of.part) })
		if asked := s.given != (flags{}) || len(seen) == 0; of.lease == manager && used.form == manager && asked {
			continue // Its flags are given, or asked for already.
		}
		for _, lease := range s.leases {
			if lease.Name == of.lease && s.renewed(lease) && !s.runs(seen, *lease.Spec.HolderIdentity) {
				fs.add(warning, about, "%s renews the Lease %s/%s, and no Pod of it is seen, at least not on that host: cannot tell whether it allocates. See that its --allocate-node-cidrs is false before you %s",
					*lease.Spec.HolderIdentity, lease.Namespace, lease.Name, startOf[used.form])
			}
		}
	}
}

// checkHosted reports the kube-controller-managers of other clusters, one of which might be that of this one.
func checkHosted(fs *findings, about string, s *state, used usage) {
	var hosted []string
	for _, p := range s.that(func(p process) bool { return p.Name == manager && p.hosted && !p.idle() }) {
		hosted = append(hosted, p.called())
	}
	if len(hosted) > 0 && len(s.managers()) == 0 {
		fs.add(warning, about, "%s (%s) beside a kube-apiserver of the same namespace: probably of other clusters. If one is of this cluster, see that its --allocate-node-cidrs is false before you %s",
			text.Counted(len(hosted), manager+" stands", manager+"s stand"), text.Listed(hosted), startOf[used.form])
	}
}

// isCalled reports whether a part is in the names of a process. Images of cloud-controller-managers have any name, and so their Pods count.
func (p process) isCalled(part string) bool {
	return strings.Contains(p.Name, part) || strings.Contains(p.Image, part) || part == "cloud" && strings.Contains(p.name, part)
}

// idle reports whether a kube-controller-manager certainly does not allocate.
func (p process) idle() bool { return !p.allocates() && !p.runsOurs() && !p.hidesAllocator() }

// runs reports whether the holder of a Lease is one of the processes: it begins with the name of a Pod or of a host.
func (s *state) runs(processes []process, holder string) bool {
	host, _, _ := strings.Cut(holder, "_")
	short := func(name string) string { first, _, _ := strings.Cut(name, "."); return first }
	return slices.ContainsFunc(processes, func(p process) bool {
		names := []string{p.name, p.node}
		for i := range s.nodes {
			if n := &s.nodes[i]; n.Name == p.node {
				names = append(names, n.Labels[corev1.LabelHostname])
				for _, address := range n.Status.Addresses {
					if address.Type != corev1.NodeInternalIP && address.Type != corev1.NodeExternalIP {
						names = append(names, address.Address)
					}
				}
			}
		}
		return slices.ContainsFunc(names, func(name string) bool { return name != "" && short(name) == short(host) })
	})
}

// renewed reports whether a Lease was renewed in the last minute: by the clock of those who renew Leases, since that of this machine can be another.
func (s *state) renewed(lease coordinationv1.Lease) bool {
	if ptr.Deref(lease.Spec.HolderIdentity, "") == "" || lease.Spec.RenewTime == nil {
		return false
	}
	var now time.Time
	for _, l := range s.leases {
		if l.Labels["apiserver.kubernetes.io/identity"] != "" && l.Spec.RenewTime != nil && l.Spec.RenewTime.After(now) {
			now = l.Spec.RenewTime.Time
		}
	}
	if now.IsZero() {
		now = metav1.Now().Time
	}
	return lease.Spec.RenewTime.Add(time.Minute).After(now)
}
