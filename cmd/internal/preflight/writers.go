package preflight

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
)

// checkWriters looks for other programs that write podCIDRs. They do not know the blocks that the controller has reserved and not yet
// written.
func checkWriters(fs *findings, s *state, used usage) {
	const about = "second writer"
	checkCloud(fs, about, s.pods)
	if used.form == peer {
		for i, d := range used.deployments {
			if first := used.deployments[0]; i > 0 {
				fs.add(problem, about, "Deployments %s/%s and %s/%s both run a %s: keep one of them", first.Namespace, first.Name, d.Namespace, d.Name, peer)
			}
		}
	} else {
		for _, d := range used.deployments {
			fs.add(problem, about, "Deployment %s/%s runs a %s: kubectl -n %s scale deployment %s --replicas=0, before you %s", d.Namespace, d.Name, peer, d.Namespace, d.Name, startOf[used.form])
		}
	}
	if used.form == manager {
		checkElection(fs, about, s.pods)
		checkLeases(fs, about, s.leases)
	} else {
		checkManagers(fs, about, managerCommandLines(s), used)
	}
	if used.form != cloud {
		for _, pod := range used.clouds {
			fs.add(problem, about, "Pod %s has %s in --controllers: take it out (its alias is %s) before you %s", pod.Name, nodeipam.Name, alias, startOf[used.form])
		}
	}
	fs.well(about, "none found")
}

// startOf is how each form begins to allocate.
var startOf = map[string]string{manager: "swap the manager", peer: "start " + peer, cloud: "start the controller in the " + cloud}

// checkLeases reports who holds the Lease of the other forms.
func checkLeases(fs *findings, about string, leases []coordinationv1.Lease) {
	for _, lease := range leases {
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" {
			fs.add(warning, about, "%s holds the Lease %s/%s: if a %s, or a %s with this controller, still runs, stop it before you swap the manager; else kubectl -n %s delete lease %s",
				holder, lease.Namespace, lease.Name, peer, cloud, lease.Namespace, lease.Name)
		}
	}
}

// checkCloud looks for a cloud-controller-manager whose own allocator is on. With this controller in it, that one does not run.
func checkCloud(fs *findings, about string, pods []corev1.Pod) {
	for _, pod := range pods {
		for _, c := range pod.Spec.Containers {
			named := strings.Contains(pod.Name, cloud) || strings.Contains(c.Image, cloud)
			if l, err := commandLineOf(c); named && err == nil && l.Allocate && !l.runsOurs() {
				fs.add(problem, about, "Pod %s is a %s with --allocate-node-cidrs: set it to false there", pod.Name, cloud)
			}
		}
	}
}

// checkManagers looks for a kube-controller-manager that allocates or contains the controller, beside another form; one such finding is
// enough.
func checkManagers(fs *findings, about string, managers []commandLine, used usage) {
	for _, l := range managers {
		ours := l.runsOurs()
		switch {
		case (ours || l.allocates()) && used.form == cloud && l.migrates:
			fs.add(warning, about, "%s allocates in a leader migration: go on with it (docs/operators/cloud-controller-manager.md)", manager)
			return
		case ours:
			fs.add(problem, about, "%s has %s in --controllers: take it out (its alias is %s), or do not use %s", manager, nodeipam.Name, alias, used.program())
			return
		}
	}
	for _, l := range managers {
		if l.allocates() {
			fs.add(problem, about, "%s has --allocate-node-cidrs: set it to false, or add -%s to --controllers, on every control plane before you %s", manager, inTree, startOf[used.form])
			return
		}
	}
	for _, l := range managers {
		if l.hidesAllocator() {
			fs.add(warning, about, "%s has --config=%s, and the flags in that file cannot be read: see that it has allocateNodeCIDRs: false, or -%s in controllers, and not %s", manager, l.config, inTree, nodeipam.Name)
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
func checkElection(fs *findings, about string, pods []corev1.Pod) {
	var allocate, unelected []string
	for _, pod := range pods {
		if pod.Labels["component"] != manager {
			continue
		}
		for _, l := range commandLinesOf(pod.Spec) {
			if !l.runsOurs() && (!l.Allocate || !l.enables(inTree, true)) {
				continue
			}
			allocate = append(allocate, pod.Name)
			if !l.elects {
				unelected = append(unelected, pod.Name)
			}
		}
	}
	if len(allocate) > 1 && len(unelected) > 0 {
		fs.add(problem, about, "Pods %s allocate, and %s without being the leader (--leader-elect=false): take that flag away, or keep one of the Pods",
			strings.Join(allocate, ", "), strings.Join(unelected, ", "))
	}
}
