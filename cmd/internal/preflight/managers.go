package preflight

import (
	"fmt"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
)

// checkSame reports processes with different flags.
func checkSame(fs *findings, about string, all []process) {
	for i := range all {
		if all[i].flags != all[0].flags {
			fs.add(problem, about, "%s and %s have different flags for ranges, so the ranges would change with the leader: make them the same on every control plane", all[0].called(), all[i].called())
		}
	}
}

// checkSwap reports a control plane of which one part runs this controller and the other part does not.
func checkSwap(fs *findings, about string, s *state) {
	var swapped, stock string
	for _, p := range s.managers() {
		switch {
		case p.hides("controllers"):
		case p.runsOurs():
			swapped = p.called()
		default:
			stock = p.called()
		}
	}
	if swapped != "" && stock != "" {
		fs.add(problem, about, "%s has %s in --controllers and %s has not: finish the swap on every control plane before you add a range, which the one in %s does not know", swapped, nodeipam.Name, stock, stock)
	}
}

// checkManager looks at one kube-controller-manager.
func checkManager(fs *findings, about string, p process, given flags) {
	if p.hidesRanges() && given == (flags{}) {
		fs.add(warning, about, "%v has %s: run this command again with those for ranges, for example --allocate-node-cidrs --cluster-cidr=10.244.0.0/16", p, p.hiding())
	}
	if p.namesBoth() {
		fs.add(problem, about, "%v has both %s and %s in --controllers, and a %s with this controller ends at once: take %s out (its alias is nodeipam)", p, nodeipam.Name, inTree, manager, inTree)
	}
	if p.isOurs() {
		checkStart(fs, about, "", p)
	}
}

// managerFlags returns the flags of every kube-controller-manager found, and those on preflight's own command line.
func managerFlags(fs *findings, s *state, used usage) []flags {
	const about = "manager"
	for _, p := range s.processes {
		if p.Name == manager && !p.hosted && p.err != nil {
			fs.add(problem, about, "the flags of %v cannot be read: %v", p, p.err)
		}
	}
	managers := s.managers()
	for _, p := range managers {
		checkManager(fs, about, p, s.given)
	}
	if used.form == manager {
		checkSwap(fs, about, s)
		checkSame(fs, about, managers)
	}
	all := flagsOf(managers)
	if s.given != (flags{}) {
		all = append(all, s.given)
	} else if len(all) == 0 && used.form == manager {
		fs.add(warning, about, "no Pod in any namespace runs %s%s: run this command again with its flags, for example --allocate-node-cidrs --cluster-cidr=10.244.0.0/16", manager, s.holding(manager))
	}
	if len(all) > 0 {
		fs.well(about, "its flags for ranges could be read")
	}
	return all
}

// holding says who renews a Lease; empty if nobody does.
func (s *state) holding(lease string) string {
	for _, l := range s.leases {
		if l.Name == lease && s.renewed(l) {
			return fmt.Sprintf(", but %s renews the Lease %s/%s", *l.Spec.HolderIdentity, l.Namespace, l.Name)
		}
	}
	return ""
}

func flagsOf(processes []process) (all []flags) {
	for _, p := range processes {
		all = append(all, p.flags)
	}
	return all
}
