package main

import (
	"cmp"
	"strings"
)

// mutant is one change of one file that makes the controller wrong.
type mutant struct {
	name   string
	defect string // what is wrong then
	seen   string // who has or had this defect
	file   string
	old    string // found exactly once in file
	new    string // in its place
	// test is the package and the test that has to fail, for what the simulation does not have in it; empty for the simulation.
	test string
}

// caughtBy returns the package and the test that has to fail.
func (m mutant) caughtBy() (pkg, test string) {
	pkg, test, _ = strings.Cut(cmp.Or(m.test, simulation), " ")
	return pkg, test
}

const simulation = "./controllers/nodeipam TestSimulation"

// Who has or had a defect.
const (
	inTree = "in-tree" // Kubernetes' own range allocator
	peer   = "sigs"    // kubernetes-sigs/node-ipam-controller
)

const (
	bookFile       = "controllers/nodeipam/book.go"
	candidatesFile = "controllers/nodeipam/candidates.go"
	compileFile    = "controllers/nodeipam/compile.go"
	flagsFile      = "controllers/nodeipam/flags.go"
	fencedFile     = "controllers/nodeipam/fence.go"
	nodeFile       = "controllers/nodeipam/node.go"
	patchFile      = "controllers/nodeipam/patch.go"
	serviceFile    = "controllers/nodeipam/service.go"
	startFile      = "controllers/nodeipam/start.go"
	ledgerFile     = "controllers/ipam/ledger.go"
	prefixFile     = "controllers/ipam/prefix.go"
	setFile        = "controllers/ipam/set.go"
	clockFile      = "controllers/lease/clock.go"
	fenceFile      = "controllers/lease/fence.go"
)

// Mutants that a test of one part catches, because the simulation has no HTTP and no goroutines that wait.
const (
	testNewRange = "./controllers/ipam TestNewRange"
	testLatePick = "./controllers/ipam TestReserveRefusesAPickThatCameTooLate"
)

var mutants = []mutant{
	// Who holds what.
	{
		name: "podcidrs-outside-not-held", defect: "podCIDRs that lie in no range are not held", seen: peer,
		file: bookFile,
		old:  "\tb.hold(owner, blocks)\n",
		new:  "\tif !b.outside(blocks) {\n\t\tb.hold(owner, blocks)\n\t}\n",
	},
	{
		name: "podcidrs-of-others-not-held", defect: "podCIDRs that do not come from us are not held",
		file: bookFile,
		old:  "\tb.hold(owner, blocks)\n",
		new:  "\tif b.nodes[node.Name].pool != \"\" {\n\t\tb.hold(owner, blocks)\n\t}\n",
	},
	{
		name: "podcidrs-of-other-size-not-held", defect: "blocks of another size than the range gives now are not held", seen: inTree + ", kubernetes#70957, #90922",
		file: bookFile,
		old:  "\tb.hold(owner, blocks)\n",
		new: `	b.hold(owner, slices.DeleteFunc(slices.Clone(blocks), func(block netip.Prefix) bool {
		for _, p := range b.pools {
			for _, r := range p.Ranges {
				if r.Prefix.Overlaps(block) && r.BlockBits != block.Bits() {
					return true
				}
			}
		}
		return false
	}))
`,
	},
	{
		name: "relabelled-not-held", defect: "at the start, what a Node holds counts only if a ClusterCIDR selects the Node", seen: peer,
		file: startFile,
		old:  "\t\tblocks, _ := podCIDRsOf(node)\n",
		new: `		blocks, _ := podCIDRsOf(node)
		matches := false
		for _, p := range b.pools {
			matches = matches || !p.Selective
			for _, t := range p.terms {
				matches = matches || t.selector.Match(node)
			}
		}
		if !matches {
			blocks = nil
		}
`,
	},
	{
		name: "nodes-not-read-at-start", defect: "Nodes are served before it is known what all of them hold", seen: "in-tree before kubernetes#29058",
		file: startFile,
		old:  "\tfor _, node := range nodes {\n",
		new:  "\tfor _, node := range nodes[:0] {\n",
	},
	{
		name: "terminating-not-held-at-start", defect: "at the start, what Nodes hold from a ClusterCIDR that is being deleted is forgotten", seen: peer,
		file: startFile,
		old:  "\t\tblocks, _ := podCIDRsOf(node)\n",
		new: `		blocks, _ := podCIDRsOf(node)
		for _, block := range blocks {
			for _, p := range b.pools {
				if p.contains(block) && p.State.String() == "Terminating" {
					blocks = nil
				}
			}
		}
`,
	},
	{
		name: "range-of-missing-family", defect: "a dual-stack Node in a single-stack ClusterCIDR is looked up in a range that is not there", seen: peer,
		file: bookFile,
		old:  "\tb.hold(owner, blocks)\n",
		new: `	for i := range blocks {
		if p, ok := b.pools[b.nodes[node.Name].pool]; ok {
			_ = p.Ranges[i]
		}
	}
	b.hold(owner, blocks)
`,
	},
	{
		name: "no-owners", defect: "a block that two Nodes hold is free when one of them goes", seen: inTree + ", " + peer,
		file: setFile,
		old:  "\t\tn.count--\n",
		new:  "\t\tn.count = 0\n",
	},
	{
		name: "wider-holding-ignored", defect: "a block inside a wider one that is held counts as free",
		file: setFile,
		old:  "\t\tcovered = covered || n.count > 0\n",
		new:  "",
	},
	{
		name: "exclusions-ignored", defect: "excluded ranges are given to Nodes",
		file: bookFile,
		old:  "\tb.hold(exclusionsOf(p), p.excluded)\n",
		new:  "",
	},
	{
		name: "service-ranges-ignored", defect: "service ranges are given to Nodes", seen: peer,
		file: bookFile,
		old:  "\tb.hold(ipam.Owner{Kind: ipam.Service, ID: source}, ranges)\n",
		new:  "",
	},
	{
		name: "servicecidr-objects-ignored", defect: "a ServiceCIDR that comes later does not count", seen: inTree,
		file: serviceFile,
		old:  "\tc.with(func(b *book) { b.setService(serviceSource(name), serviceRangesOf(ctx, serviceCIDR)) })\n",
		new:  "\t_ = serviceCIDR\n",
	},

	// When a block is free.
	{
		name: "release-on-deletiontimestamp", defect: "a Node that is being deleted, but runs on behind a finalizer, loses its blocks", seen: peer + ", kubernetes#127792",
		file: nodeFile,
		old:  "\tcase apierrors.IsNotFound(err):\n\t\tb.gone(name)\n",
		new:  "\tcase apierrors.IsNotFound(err) || node.DeletionTimestamp != nil:\n\t\tb.gone(name)\n",
	},
	{
		name: "reservation-dropped-on-deletion", defect: "a Node that is being deleted loses its reservation, while the write of it may be on its way",
		file: nodeFile,
		old:  "\t\t\tdelete(b.waiting, name)\n",
		new:  "\t\t\tb.gone(name)\n",
	},
	{
		name: "never-released", defect: "the blocks of a Node that is gone stay held",
		file: nodeFile,
		old:  "\t\tb.gone(name)\n",
		new:  "\t\tdelete(b.waiting, name)\n",
	},
	{
		name: "released-by-its-pool-only", defect: "the blocks of a Node whose ClusterCIDR is not there are not released", seen: peer,
		file: nodeFile,
		old:  "\t\tb.gone(name)\n",
		new:  "\t\tif e, ok := b.nodes[name]; !ok || b.pools[e.pool] != nil {\n\t\t\tb.gone(name)\n\t\t}\n",
	},
	{
		name: "recreated-node-leaks", defect: "a Node that is deleted and created again between two looks keeps its old blocks", seen: inTree + ", " + peer,
		file: bookFile,
		old:  "\t\tb.gone(node.Name)\n",
		new:  "\t\tdelete(b.nodes, node.Name)\n",
	},
	{
		name: "forced-pool-frees-nodes", defect: "a ClusterCIDR whose finalizer was removed by force takes along what Nodes hold from it",
		file: bookFile,
		old:  "\tb.hold(exclusionsOf(p), nil)\n",
		new:  "\tb.hold(exclusionsOf(p), nil)\n\tfor _, uid := range slices.Collect(b.members(p)) {\n\t\tb.hold(ownerOf(uid), nil)\n\t}\n",
	},
	{
		name: "other-blocks-not-believed", defect: "a Node that shows other blocks than were reserved for it keeps the reserved ones only",
		file: bookFile,
		old:  "\tb.hold(owner, blocks)\n",
		new:  "\tif len(b.ledger.Held(owner)) == 0 {\n\t\tb.hold(owner, blocks)\n\t}\n",
	},
	{
		name: "events-not-heard", defect: "what a Node brings along counts only when its worker gets to it",
		file: nodeFile,
		old:  "\t\tif _, err := c.lookAtNode(b, name); err != nil {\n",
		new:  "\t\tif err := error(nil); err != nil {\n",
	},

	// What is chosen.
	{
		name: "half-a-dual-stack-node", defect: "a Node gets one family when the other one is full",
		file: ledgerFile,
		old:  "\t\tif blocks, full := l.blocks(p); len(full) == 0 {\n",
		new:  "\t\tif blocks, _ := l.blocks(p); len(blocks) > 0 {\n",
	},
	{
		name: "first-family-leaks", defect: "when the second family is full, the first one's block is lost", seen: inTree + ", " + peer + ", projectcalico/cni-plugin#908",
		file: ledgerFile,
		old:  "\t\tif blocks, full := l.blocks(p); len(full) == 0 {\n\t\t\treturn Pick{Pool: p, Blocks: blocks}, true\n\t\t}\n",
		new: `		blocks, full := l.blocks(p)
		if len(full) == 0 {
			return Pick{Pool: p, Blocks: blocks}, true
		}
		for _, b := range blocks {
			l.taken.Insert(b)
		}
`,
	},
	{
		name: "late-pick-reserved", defect: "a block is reserved although somebody else has got it since it was picked",
		file: ledgerFile,
		old:  " || slices.ContainsFunc(pick.Blocks, l.taken.Overlaps)",
		new:  "",
		test: testLatePick,
	},
	{
		name: "disabled-allocates", defect: "a disabled ClusterCIDR gives blocks",
		file: ledgerFile,
		old:  "\t\tif p.State != Enabled || ",
		new:  "\t\tif p.State != Enabled && p.State != Disabled || ",
	},
	{
		name: "terminating-allocates", defect: "a ClusterCIDR that is being deleted gives blocks",
		file: ledgerFile,
		old:  "\t\tif p.State != Enabled || ",
		new:  "\t\tif p.State != Enabled && p.State != Terminating || ",
	},
	{
		name: "unselective-never-terminates", defect: "the deletion of a ClusterCIDR without a nodeSelector is not noticed", seen: peer,
		file: compileFile,
		old:  "\tcase cc.DeletionTimestamp != nil:\n",
		new:  "\tcase cc.DeletionTimestamp != nil && p.Selective:\n",
	},
	{
		name: "edited-means-terminating", defect: "a ClusterCIDR that was ever edited counts as being deleted", seen: peer,
		file: compileFile,
		old:  "\tcase cc.DeletionTimestamp != nil:\n",
		new:  "\tcase cc.DeletionTimestamp != nil || cc.Generation > 1:\n",
	},
	{
		name: "terms-anded", defect: "the terms of a nodeSelector are ANDed", seen: peer,
		file: candidatesFile,
		old:  "\t\t\tif e.term != nil && !e.term.selector.Match(node) || ",
		new:  "\t\t\tif e.term != nil && slices.ContainsFunc(e.terms, func(t term) bool { return !t.selector.Match(node) }) || ",
	},
	{
		name: "fields-taken-for-labels", defect: "matchFields of a nodeSelector are looked for among the labels", seen: peer,
		file: compileFile,
		old:  "NodeSelectorTerms: []v1.NodeSelectorTerm{t}})",
		new:  "NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: slices.Concat(t.MatchExpressions, t.MatchFields)}}})",
	},
	{
		name: "block-larger-than-range", defect: "a ClusterCIDR whose blocks are larger than its range is accepted", seen: peer,
		file: prefixFile,
		old:  "\tif hostBits < 0 || hostBits > free {\n",
		new:  "\tif hostBits < 0 {\n",
		test: testNewRange,
	},
	{
		name: "cursor-not-from-status", defect: "after a restart the search begins at the start of the range",
		file: bookFile,
		old:  "\t\t\tb.ledger.SetCursor(&p.Pool, family, cursor)\n",
		new:  "\t\t\t_, _ = family, cursor\n",
	},
	{
		name: "cursor-stands-still", defect: "a block that was freed is given again at once",
		file: ledgerFile,
		old:  "\t\tl.SetCursor(pick.Pool, FamilyOf(b), after)\n",
		new:  "\t\t_ = after\n",
	},
	{
		name: "old-flags-serve", defect: "the ClusterCIDR of earlier flags goes on to give blocks",
		file: flagsFile,
		old:  "\tif c.superseded(cc) && (p.State == ipam.Enabled || p.State == ipam.Pending) {\n",
		new:  "\tif false {\n",
	},
	{
		name: "old-flags-stay", defect: "the ClusterCIDR of earlier flags is not deleted",
		file: flagsFile,
		old:  "\t\t\tif err := c.deleteFromFlags(ctx, cc); err != nil {\n\t\t\t\treturn err\n\t\t\t}\n",
		new:  "",
	},
	{
		name: "stale-order", defect: "Nodes are served by ClusterCIDRs as they were before they changed",
		file: bookFile,
		old:  "\tb.candidates = nil\n\tif delete(",
		new:  "\tif delete(",
	},

	// The one write.
	{
		name: "no-uid-precondition", defect: "a write that comes late hits a new Node of the same name",
		file: patchFile,
		old:  "\treturn encode(objectPatch{\n\t\tMetadata: metadataPatch{UID: node.UID, Annotations: annotations},\n",
		new:  "\treturn encode(map[string]any{\"metadata\": map[string]any{\"annotations\": annotations}, \"spec\": nodeSpecs{PodCIDR: cidrs[0], PodCIDRs: cidrs}})\n\treturn encode(objectPatch{\n",
	},
	{
		name: "reservation-undone", defect: "a write that seemed to fail gives up its blocks",
		file: nodeFile,
		old:  "\t\treturn fmt.Errorf(\"patch podCIDRs of Node %s: %w\", node.Name, err)\n",
		new:  "\t\tc.with(func(b *book) { b.hold(ownerOf(node.UID), nil) })\n\t\treturn fmt.Errorf(\"patch podCIDRs of Node %s: %w\", node.Name, err)\n",
	},
	{
		name: "failed-write-forgotten", defect: "a write that failed is not tried again",
		file: nodeFile,
		old:  "\t\treturn fmt.Errorf(\"patch podCIDRs of Node %s: %w\", node.Name, err)\n",
		new:  "\t\treturn nil\n",
	},
	{
		name: "podcidrs-of-others-rewritten", defect: "a Node that has podCIDRs from somebody else gets ours too",
		file: nodeFile,
		old:  "\t\tcase showsPodCIDRs(node):\n",
		new:  "\t\tcase showsPodCIDRs(node) && len(node.Annotations) > 0:\n",
	},
	{
		name: "going-node-served", defect: "a Node that is being deleted gets blocks",
		file: nodeFile,
		old:  "\t\tcase node.DeletionTimestamp != nil:\n",
		new:  "\t\tcase false:\n",
	},
	{
		name: "no-holder", defect: "a write does not say who holds the lease, so the admission policy refuses it",
		file: patchFile,
		old:  "\tif holder != \"\" {\n",
		new:  "\tif holder == \"\" {\n",
	},

	// The fence.
	{
		name: "fence-not-asked-for-nodes", defect: "a deposed leader writes podCIDRs",
		file: fencedFile,
		old:  "\treturn f.enter(ctx, func(ctx context.Context) error { return f.api.patchNode(ctx, name, patch) })\n",
		new:  "\treturn f.api.patchNode(ctx, name, patch)\n",
	},
	{
		name: "fence-always-open", defect: "a write is sent however old the lease is",
		file: fenceFile,
		old:  "\tcase f.duration-elapsed <= p.timeout:\n",
		new:  "\tcase elapsed < 0 && f.duration < 0:\n",
	},
	{
		name: "monotonic-clock-only", defect: "the time that a machine was suspended does not count",
		file: clockFile,
		old:  "max(now.monotonic-r.monotonic, now.wall.Sub(r.wall))",
		new:  "now.monotonic - r.monotonic",
	},
}
