package preflight

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/cmd/internal/program"
	"github.com/multicidr/controller-manager/controllers/build"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/text"
)

const (
	// peer is the name of the other program that allocates from ClusterCIDRs: kubernetes-sigs/node-ipam-controller, and this project's
	// program of the same name.
	peer    = program.Peer
	manager = program.Manager
	// cloud is any program that was made with k8s.io/cloud-provider/app and has the controller in it, whatever it is called.
	cloud = "cloud-controller-manager"

	// ourMinor is the minor version of Kubernetes that the programs are built from.
	ourMinor = 37
	// oldestBuild is the oldest minor version that the same sources are built for, in hack/kubernetes.
	oldestBuild = 35
	// oldestMinor is the oldest API server that node-ipam-controller works with: the CRD's rules use functions that older ones lack. The
	// chart's kubeVersion has the same version.
	oldestMinor = 31
)

// Level orders findings; it is also the exit code.
type Level int

const (
	OK Level = iota
	warning
	problem
)

func (l Level) String() string { return [...]string{"OK", "WARNING", "PROBLEM"}[l] }

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is one line: what was found, and what to do about it.
type Finding struct {
	Level Level  `json:"level"`
	About string `json:"about"`
	Text  string `json:"text"`
}

func (f Finding) String() string { return fmt.Sprintf("%-8s %s: %s", f.Level, f.About, f.Text) }

// findings collects findings; an aspect without any is OK.
type findings []Finding

func (fs *findings) add(l Level, about, format string, args ...any) {
	*fs = append(*fs, Finding{l, about, fmt.Sprintf(format, args...)})
}

// well adds an OK finding, unless there is another finding about the aspect.
func (fs *findings) well(about, format string, args ...any) {
	if !slices.ContainsFunc(*fs, func(f Finding) bool { return f.About == about }) {
		fs.add(OK, about, format, args...)
	}
}

// namedRange is a Pod range or a service range, and the name of its source.
type namedRange struct {
	name   string
	prefix netip.Prefix
	block  int // prefix length of its blocks; 0 for a service range
	// gives reports whether Nodes can get an address of a prefix: not if it is excluded. Nil for a service range.
	gives func(netip.Prefix) bool
	// grave is the level of addresses that others use: a warning while nothing is allocated from the range.
	grave Level
}

func (r namedRange) same(o namedRange) bool {
	return r.name == o.name && r.prefix == o.prefix && r.block == o.block
}

func (r namedRange) String() string { return fmt.Sprintf("%s (%v)", r.name, r.prefix) }

func check(ctx context.Context, s *state) []Finding {
	var fs findings
	s.find()
	used := formOf(&fs, s)
	checkVersion(&fs, s, used)
	checkInstalled(&fs, s, used)
	managers := managerFlags(&fs, s, used)
	with := managers // the flags whose ranges will be used
	if used.form != manager {
		with = append(used.flags(&fs), s.given)
	}
	ranges := rangesOf(&fs, s, with)
	services := servicesOf(&fs, s, append(with, managers...))
	checkRanges(&fs, s, ranges, services)
	checkNodes(&fs, s, ranges, services)
	checkNetwork(&fs, s, ranges)
	checkWriters(&fs, s, used)
	checkFiles(ctx, &fs, s)
	checkBefore(&fs, s, used, ranges, services)
	return fs
}

// usage is the form of the controller that this cluster uses, or is going to use, and the programs of the forms that are no
// kube-controller-manager.
type usage struct {
	form   string    // manager, peer or cloud
	peers  []process // that are a node-ipam-controller, or the program of kubernetes-sigs that it replaces; one of each workload
	clouds []process // that are a cloud-controller-manager with the controller in it
}

// formOf finds out which form the cluster uses.
func formOf(fs *findings, s *state) usage {
	const about, others = "form", ". Name another form with --form=%s or --form=%s"
	u := usage{clouds: s.that(process.isCloud)}
	managers := slices.DeleteFunc(s.managers(), func(p process) bool { return !p.runsOurs() })
	for _, p := range s.that(process.isPeer) {
		if !slices.ContainsFunc(u.peers, func(o process) bool { return o.workload == p.workload }) {
			u.peers = append(u.peers, p)
		}
	}
	switch {
	case s.form != "":
		u.form = s.form
		fs.add(OK, about, "%s", s.form)
	case len(u.peers) > 0:
		u.form = peer
		fs.add(OK, about, "%s, since %s runs it"+others, peer, u.peers[0].workload, manager, cloud)
	case len(u.clouds) > 0:
		u.form = cloud
		fs.add(OK, about, "%s, since %v has %s in --controllers"+others, cloud, u.clouds[0], nodeipam.Name, manager, peer)
	case len(managers) > 0:
		u.form = manager
		fs.add(OK, about, "%s, since %v has %s in --controllers"+others, manager, managers[0], nodeipam.Name, peer, cloud)
	default:
		u.form = manager
		fs.add(OK, about, "%s is assumed, since no program with the controller is seen"+others, manager, peer, cloud)
	}
	return u
}

// flags are the flags of the programs of the form. A kube-controller-manager beside them must not allocate, so its ranges do not count.
func (u usage) flags(fs *findings) []flags {
	if u.form == cloud {
		checkSame(fs, "manager", u.clouds)
		return flagsOf(u.clouds)
	}
	var all []flags
	for _, p := range u.peers {
		// True by default in this program, and that of kubernetes-sigs has no such flag.
		p.Allocate = p.ClusterCIDR != "" && (p.Allocate || !p.said("allocate-node-cidrs"))
		all = append(all, p.flags)
	}
	return all
}

func checkVersion(fs *findings, s *state, used usage) {
	minor, err := strconv.Atoi(strings.TrimRight(s.server.Minor, "+"))
	alone := used.form == peer
	switch {
	case err != nil && alone:
		fs.add(warning, "version", "the API server's version %q cannot be read; %s works with v1.%d to v1.%d", s.server.GitVersion, peer, oldestMinor, ourMinor+1)
	case err != nil:
		fs.add(warning, "version", "the API server's version %q cannot be read; a %s of v1.%d works with v1.%d and v1.%d", s.server.GitVersion, used.form, ourMinor, ourMinor, ourMinor+1)
	case alone && minor < oldestMinor:
		fs.add(problem, "version", "the API server is %s, and the ClusterCIDR CRD needs v1.%d: upgrade the cluster first", s.server.GitVersion, oldestMinor)
	case used.form == manager && minor >= oldestBuild && minor < ourMinor:
		fs.add(warning, "version", "the API server is %s: take the %s that is built for v1.%d, because a manager must not be newer than the API server: %s", s.server.GitVersion, manager, minor, build.Page("versions.md"))
	case !alone && minor < ourMinor:
		fs.add(problem, "version", "the API server is %s, and a %s of v1.%d must not be newer than it: upgrade the cluster first, or use %s, which works with v1.%d: %s", s.server.GitVersion, used.form, ourMinor, peer, oldestMinor, build.Page("install/helm.md"))
	case minor > ourMinor+1:
		fs.add(problem, "version", "the API server is %s, more than one minor version newer than the controller (v1.%d): take a newer build", s.server.GitVersion, ourMinor)
	}
	fs.well("version", "the API server is %s", s.server.GitVersion)
}

func checkInstalled(fs *findings, s *state, used usage) {
	if s.before == chart && len(used.peers) == 0 {
		fs.add(OK, "installed", "nothing yet: the chart brings the CRD, the permissions and the Deployment")
		return
	}
	if s.noCRD {
		fs.add(warning, "installed", "there is no ClusterCIDR CRD, and the controller waits for it: %s", used.install())
	}
	checkCRD(fs, s, used)
	switch used.form {
	case peer:
		checkDeployed(fs, s, used)
	case cloud:
		checkClouds(fs, s, used)
	default:
		checkBound(fs, s, used)
	}
	fs.well("installed", "CRD and ClusterRoleBinding are there")
}

// install is how the CRD and the permissions of a form are installed, for a reader with a checkout and for one with the files of a release.
func (u usage) install() string {
	if u.form == peer {
		return "install the Helm chart or run helm upgrade; without Helm, apply install-node-ipam-controller.yaml of a release"
	}
	return "kubectl apply -f manifests/crds -f manifests/rbac in a checkout, or -f install-kube-controller-manager.yaml of a release"
}

// checkClouds checks that the controller in each cloud-controller-manager has permissions.
func checkClouds(fs *findings, s *state, used usage) {
	if len(used.clouds) == 0 {
		fs.add(warning, "installed", "no Pod has %s in --controllers, except %s: start the %s with it (%s). If it runs outside of the cluster, ignore this warning", nodeipam.Name, manager, cloud, build.Page("install/cloud-controller-manager.md"))
	}
	const role = "system:controller:" + nodeipam.Name
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: nodeipam.Name, Namespace: metav1.NamespaceSystem}
	for _, p := range used.clouds {
		own := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: p.account, Namespace: p.namespace}
		switch {
		case p.accounts && !bound(s, role, account):
			fs.add(warning, "installed", noBinding+": %s", used.install())
		case p.accounts && p.Allocate && p.ClusterCIDR != "" && !bound(s, role+":cluster-cidr-flag", account):
			fs.add(warning, "installed", noBindingForFlag+": %s", used.install())
		case !p.accounts && !bound(s, role, own):
			fs.add(warning, "installed", "%v runs without --use-service-account-credentials: set that flag, or bind the ClusterRole %s to the program's own user", p, role)
		}
	}
}

// checkDeployed checks that the program exists and that its service account has permissions.
func checkDeployed(fs *findings, s *state, used usage) {
	if len(used.peers) == 0 {
		fs.add(warning, "installed", "there is no Deployment of %s: install the Helm chart (%s). If it runs outside of the cluster, ignore this warning", peer, build.Page("install/helm.md"))
	}
	for _, p := range used.peers {
		if ourTag.MatchString(p.Image) {
			checkStart(fs, "installed", "", p)
		}
		if !bound(s, "", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: p.account, Namespace: p.namespace}) {
			fs.add(warning, "installed", "no ClusterRoleBinding names the ServiceAccount %s/%s of %s, and the controller waits for permissions: run helm upgrade", p.namespace, p.account, p.workload)
		}
	}
}

const (
	noBinding        = "there is no ClusterRoleBinding of the controller's ServiceAccount, and it waits for it"
	noBindingForFlag = "the controller's ServiceAccount may not create the ClusterCIDR of --cluster-cidr"
)

// checkBound checks that the subject that the controller acts as has its roles.
func checkBound(fs *findings, s *state, used usage) {
	asUser, asAccount, makes := actsAs(s)
	// need warns about the first role that the subject lacks. The second role is for a controller that creates the ClusterCIDR of the
	// flags.
	need := func(subject rbacv1.Subject, noRole, noRoleForFlag string) {
		const role = "system:controller:" + nodeipam.Name
		switch {
		case !bound(s, role, subject):
			fs.add(warning, "installed", "%s", noRole)
		case makes && !bound(s, role+":cluster-cidr-flag", subject):
			fs.add(warning, "installed", "%s", noRoleForFlag)
		}
	}
	if asAccount {
		need(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: nodeipam.Name, Namespace: metav1.NamespaceSystem},
			noBinding+": "+used.install(), noBindingForFlag+": "+used.install())
	}
	if asUser {
		const without = manager + " runs without --use-service-account-credentials, and its user may not "
		remedy := ": set that flag, or " + used.install() + ", and kubectl apply -f " + build.Manifest("rbac-user/binding.yaml")
		need(rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:kube-controller-manager"}, without+"write Nodes"+remedy, without+"create the ClusterCIDR of --cluster-cidr"+remedy)
	}
}

// actsAs reports which subject the controller acts as: a service account with --use-service-account-credentials, which is assumed if no
// kube-controller-manager can be seen; otherwise kube-controller-manager's own user. makes is whether it creates a ClusterCIDR from the
// flags.
func actsAs(s *state) (asUser, asAccount, makes bool) {
	makes = s.given.Allocate && s.given.ClusterCIDR != ""
	asAccount = true
	for i, l := range s.managers() {
		asUser, asAccount = asUser || !l.accounts, i > 0 && asAccount || l.accounts
		makes = makes || l.Allocate && l.ClusterCIDR != ""
	}
	return asUser, asAccount, makes
}

// bound reports whether a ClusterRoleBinding grants the subject a role; any role if the name is empty.
func bound(s *state, role string, subject rbacv1.Subject) bool {
	return slices.ContainsFunc(s.bindings, func(b rbacv1.ClusterRoleBinding) bool {
		return (role == "" || b.RoleRef.Name == role) && slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == subject.Kind && s.Name == subject.Name && s.Namespace == subject.Namespace
		})
	})
}

// fromFlags is the name of the range of the in-tree allocator's flags.
const fromFlags = "--cluster-cidr"

// rangesOf returns all Pod ranges that exist or are planned.
func rangesOf(fs *findings, s *state, with []flags) []namedRange {
	var ranges []namedRange
	add := func(name string, cc *networkingv1.ClusterCIDR) {
		for _, r := range rangesIn(fs, name, cc) {
			if !slices.ContainsFunc(ranges, r.same) {
				ranges = append(ranges, r)
			}
		}
	}
	for _, f := range with {
		if !f.Allocate {
			continue // Then nothing is allocated from --cluster-cidr.
		}
		spec, err := f.Spec()
		if err != nil {
			fs.add(problem, "ranges", "%v", err)
		}
		// If the ClusterCIDR of the flags exists, it counts instead: it may have exclusions, which flags cannot express.
		if spec != nil && !made(s, *spec) {
			add(fromFlags, &networkingv1.ClusterCIDR{Spec: *spec})
		}
	}
	for i := range s.clusterCIDRs {
		if !slices.ContainsFunc(s.planned, func(cc networkingv1.ClusterCIDR) bool { return cc.Name == s.clusterCIDRs[i].Name }) {
			add(s.clusterCIDRs[i].Name, &s.clusterCIDRs[i])
		}
	}
	for i := range s.planned {
		add(s.planned[i].Name, &s.planned[i])
	}
	if len(ranges) == 0 {
		fs.add(warning, "ranges", "there are none yet, so new Nodes would be pending: name the ClusterCIDRs that you are going to apply with -f")
	}
	return ranges
}

// made reports whether a ClusterCIDR made from these flags exists.
func made(s *state, spec networkingv1.ClusterCIDRSpec) bool {
	return slices.ContainsFunc(s.clusterCIDRs, func(cc networkingv1.ClusterCIDR) bool {
		return cc.Labels[networkingv1.LabelCreatedFromFlags] == "true" && pool.SameRanges(cc.Spec, spec)
	})
}

// rangesIn are the ranges of one ClusterCIDR.
func rangesIn(fs *findings, name string, cc *networkingv1.ClusterCIDR) []namedRange {
	prefixes, gives, wrong := pool.RangesOf(cc)
	if wrong != "" {
		fs.add(problem, "ranges", "ClusterCIDR %s would allocate nothing: %s", name, wrong)
	}
	grave := problem
	if cc.Spec.Allocation == networkingv1.AllocationDisabled {
		grave = warning
	}
	var ranges []namedRange
	for _, p := range prefixes {
		hostBits := cc.Spec.PerNodeHostBits
		if p.Addr().Is6() {
			hostBits = ptr.Deref(cc.Spec.IPv6PerNodeHostBits, hostBits)
		}
		ranges = append(ranges, namedRange{name, p, p.Addr().BitLen() - int(hostBits), gives, grave})
	}
	return ranges
}

func servicesOf(fs *findings, s *state, managers []flags) []namedRange {
	var services []namedRange
	add := func(name, cidrs string) {
		prefixes, err := fromflags.ParseCIDRs(name, cidrs)
		if err != nil {
			fs.add(problem, "service ranges", "%v", err)
		}
		for _, p := range prefixes {
			if r := (namedRange{name: name, prefix: p}); !slices.ContainsFunc(services, r.same) {
				services = append(services, r)
			}
		}
	}
	for _, f := range managers {
		if f.ServiceRange != "" {
			add("--service-cluster-ip-range", f.ServiceRange)
		}
	}
	for _, service := range s.services {
		for _, cidr := range service.Spec.CIDRs {
			add("ServiceCIDR "+service.Name, cidr)
		}
	}
	if len(services) == 0 {
		fs.add(warning, "service ranges", "none found: run this command again with the --service-cluster-ip-range of kube-apiserver, so that no range is taken from Services")
	}
	fs.well("service ranges", "%v", services)
	return services
}

func checkRanges(fs *findings, s *state, ranges, services []namedRange) {
	const about = "ranges"
	for _, r := range ranges {
		for _, service := range services {
			switch {
			case !r.gives(service.prefix):
			case within(r.prefix, service.prefix):
				fs.add(r.grave, about, "%v lies in the service range %v and would allocate nothing: use other addresses", r, service)
			case r.prefix.Overlaps(service.prefix):
				fs.add(warning, about, "%v overlaps the service range %v: Nodes get nothing from the part that they share", r, service)
			}
		}
		for _, node := range s.nodes {
			for _, address := range pool.AddressesOf(&node) {
				if !r.gives(address) {
					continue
				}
				remedy := "use other addresses, or name the Nodes' network in its spec.excludedCIDRs"
				if r.name == fromFlags {
					remedy = "use other addresses; or, before a Node can get that block, name the Nodes' network in spec.excludedCIDRs of the ClusterCIDR created-from-flags-… which the controller makes"
				}
				fs.add(r.grave, about, "%v has the address %v of Node %s in it, which Pods could get too: %s", r, address.Addr(), node.Name, remedy)
			}
		}
	}
	fs.well(about, "%v", ranges)
}

// holding is a podCIDR and the Node that has it.
type holding struct {
	node   string
	block  netip.Prefix
	covers bool // it contains a whole range
}

// checkNodes checks the podCIDRs of Nodes, which stay whatever the ranges are.
func checkNodes(fs *findings, s *state, ranges, services []namedRange) {
	const about = "podCIDRs"
	var held []holding
	served := 0
	for _, node := range s.nodes {
		blocks, unreadable := pool.PodCIDRsOf(&node)
		if len(unreadable) > 0 {
			fs.add(problem, about, "%q of Node %s cannot be read, so nothing would keep these addresses from being allocated again. Replace the Node: %s", unreadable, node.Name, text.Replace)
		}
		if len(blocks) > 0 {
			served++
		}
		for _, block := range blocks {
			h := holding{node.Name, block, len(coveredBy(block, ranges)) > 0}
			checkHolding(fs, about, h, ranges, services)
			held = append(held, h)
		}
	}
	checkShared(fs, about, held)
	fs.well(about, "%d of %d Nodes have podCIDRs, all in a range and no two the same", served, len(s.nodes))
}

// checkHolding compares one podCIDR with the ranges.
func checkHolding(fs *findings, about string, h holding, ranges, services []namedRange) {
	switch {
	case h.covers:
		fs.add(problem, about, "%v of Node %s contains the whole range %s, so no other Node can get a block of it. Replace the Node: %s. "+
			"The admission policies refuse Nodes that are created with podCIDRs: %s", h.block, h.node, coveredBy(h.block, ranges), text.Replace, build.Page("operate/policies.md"))
	case !slices.ContainsFunc(ranges, func(r namedRange) bool { return within(h.block, r.prefix) }):
		fs.add(warning, about, "%v of Node %s lies in no range. The Node keeps it, and it is allocated to no other Node. Create a ClusterCIDR that contains it, or replace the Node. "+
			"The stock manager does not start while a podCIDR is outside of its --cluster-cidr", h.block, h.node)
	}
	for _, service := range services {
		if h.block.Overlaps(service.prefix) {
			fs.add(problem, about, "%v of Node %s overlaps the service range %v. Replace the Node: %s", h.block, h.node, service, text.Replace)
		}
	}
}

// checkShared reports podCIDRs that share addresses.
func checkShared(fs *findings, about string, held []holding) {
	// In address order, a block overlaps the one before it, or the widest one before that.
	slices.SortFunc(held, func(a, b holding) int { return a.block.Compare(b.block) })
	for i := 1; i < len(held); i++ {
		widest := held[i-1]
		if widest.block.Overlaps(held[i].block) {
			if !widest.covers { // otherwise it overlaps very many, and is already reported
				fs.add(problem, about, "%v of Node %s and %v of Node %s share addresses. Replace one of them: %s",
					widest.block, widest.node, held[i].block, held[i].node, text.Replace)
			}
			if widest.block.Bits() < held[i].block.Bits() {
				held[i] = widest
			}
		}
	}
}

// coveredBy names the ranges that a podCIDR contains, if it is larger than one of their blocks; empty if there are none.
func coveredBy(podCIDR netip.Prefix, ranges []namedRange) string {
	var covered []string
	for _, r := range ranges {
		if within(r.prefix, podCIDR) && podCIDR.Bits() < r.block {
			covered = append(covered, r.String())
		}
	}
	const named = 5
	if more := len(covered) - named; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(covered[:named], ", "), more)
	}
	return strings.Join(covered, ", ")
}

// within reports whether all of p lies in r.
func within(p, r netip.Prefix) bool { return r.Bits() <= p.Bits() && r.Contains(p.Addr()) }
