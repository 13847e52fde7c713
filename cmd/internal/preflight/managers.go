package preflight

import (
	"slices"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
)

// managerCommandLines are the command lines of all kube-controller-managers that are Pods.
func managerCommandLines(s *state) []commandLine {
	var all []commandLine
	for _, pod := range s.pods {
		if pod.Labels["component"] == manager {
			all = append(all, commandLinesOf(pod.Spec)...)
		}
	}
	return all
}

// checkSame reports Pods with different flags. of are the Pods' names.
func checkSame(fs *findings, about string, all []flags, of []string) {
	for i := range all {
		if all[i] != all[0] {
			fs.add(problem, about, "%s and %s have different flags for ranges, so the ranges would change with the leader: make them the same on every control plane", of[0], of[i])
		}
	}
}

// checkSwap reports a control plane of which one part runs this controller and the other part does not.
func checkSwap(fs *findings, about string, s *state) {
	var swapped, stock string
	for _, pod := range s.pods {
		if pod.Labels["component"] != manager {
			continue
		}
		switch lines := commandLinesOf(pod.Spec); {
		case slices.ContainsFunc(lines, func(l commandLine) bool { return l.hides("controllers") }):
		case slices.ContainsFunc(lines, commandLine.runsOurs):
			swapped = pod.Name
		case len(lines) > 0:
			stock = pod.Name
		}
	}
	if swapped != "" && stock != "" {
		fs.add(problem, about, "%s has %s in --controllers and %s has not: finish the swap on every control plane before you add a range, which the one in %s does not know", swapped, nodeipam.Name, stock, stock)
	}
}

// checkManager looks at the flags of one kube-controller-manager.
func checkManager(fs *findings, about, pod string, l commandLine, given flags) {
	if l.hidesRanges() && given == (flags{}) {
		fs.add(warning, about, "Pod %s has --config=%s, and the flags in that file cannot be read: repeat with those for ranges, for example --allocate-node-cidrs --cluster-cidr=10.244.0.0/16", pod, l.config)
	}
	if l.namesBoth() {
		fs.add(problem, about, "Pod %s has both %s and %s in --controllers, and a %s with this controller ends at once: take %s out (its alias is nodeipam)", pod, nodeipam.Name, inTree, manager, inTree)
	}
}

// managerFlags returns the flags of every kube-controller-manager found, and those on preflight's own command line.
func managerFlags(fs *findings, s *state, used usage) []flags {
	const about = "manager"
	var all []flags
	var of []string
	for _, pod := range s.pods {
		if pod.Labels["component"] != manager {
			continue
		}
		for _, c := range pod.Spec.Containers {
			l, err := commandLineOf(c)
			if err != nil {
				fs.add(problem, about, "the flags of Pod %s cannot be read: %v", pod.Name, err)
				continue
			}
			all, of = append(all, l.flags), append(of, pod.Name)
			checkManager(fs, about, pod.Name, l, s.given)
		}
	}
	if used.form == manager {
		checkSwap(fs, about, s)
		checkSame(fs, about, all, of)
	}
	if s.given != (flags{}) {
		all = append(all, s.given)
	} else if len(all) == 0 && used.form == manager {
		fs.add(warning, about, "no Pod of kube-system has the label component=%s: repeat with the flags that it has, for example --allocate-node-cidrs --cluster-cidr=10.244.0.0/16", manager)
	}
	if len(all) > 0 {
		fs.well(about, "its flags for ranges could be read")
	}
	return all
}
