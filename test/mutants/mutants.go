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
	// file is where old is; empty if old is in one file of controllers only, which is then found by itself.
	file string
	old  string // found exactly once in its file
	new  string // in its place
	// test is the package and the test that has to fail; empty for the simulation.
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

// Tests of one part: for what the simulation does not have in it, like HTTP and goroutines that wait; does not judge; or does not meet in so
// few seeds, like a write that is late by a little.
const (
	testAdvice       = "./controllers/nodeipam/allocator TestAdvice"
	testAfterRefusal = "./controllers/nodeipam TestReservationAfterARefusal"
	testAnswered     = "./controllers/nodeipam/requests TestAnswered"
	testAgain        = "./controllers/restart TestAgain"
	testAllocator    = "./controllers/nodeipam TestAnotherAllocatorIsNoticed"
	testEarlier      = "./controllers/nodeipam TestEarlierLeadersAreNotAccused"
	testHealth       = "./controllers/nodeipam/health TestHealth"
	testAnother      = "./controllers/nodeipam TestAnotherOneAfterAPanic"
	testAnew         = "./controllers/manager TestGuardedControllerThatEndsIsBuiltAnew"
	testTorn         = "./controllers/nodeipam TestNobodyUsesATornBook"
	testWaits        = "./controllers/nodeipam TestStartWaitsForWritesWithoutAnswer"
	testAtOnce       = "./controllers/nodeipam/allocator TestAllAtOnceIsOneByOne"
	testBook         = "./controllers/nodeipam/allocator TestBook"
	testBounds       = "./controllers/lease TestEnterBoundsTheWrite"
	testCandidates   = "./controllers/nodeipam/clustercidr TestCandidates"
	testManyFull     = "./controllers/nodeipam/allocator TestManyFullClusterCIDRs"
	testEnter        = "./controllers/lease TestEnter"
	testEventEnds    = "./controllers/nodeipam TestEventsEndWithTheProcess"
	testEventHangs   = "./controllers/nodeipam TestEventsThatHangDelayNobody"
	testEventNext    = "./controllers/nodeipam TestEventOfTheNextNode"
	testEventPasses  = "./controllers/nodeipam TestEventsLetNodesPass"
	testEventRetry   = "./controllers/nodeipam TestEventsThatAreRefused"
	testEventTrue    = "./controllers/nodeipam TestOnlyWhatIsTrueIsSaid"
	testCIDRs        = "./controllers/nodeipam/clustercidr TestMappedSpaceIsNotIPv4"
	testForeign      = "./controllers/nodeipam TestForeignTransitionTime"
	testFenced       = "./controllers/nodeipam/requests TestWritesAreFenced"
	testFinalizer    = "./controllers/nodeipam TestFinalizerThatIsNotThere"
	testFresh        = "./controllers/nodeipam TestFreshIsWhatListersShow"
	testObjects      = "./controllers/nodeipam TestFreshObjectByObject"
	testHandOver     = "./controllers/lease TestHandOverAfterAWriteWithoutAnswer"
	testHistories    = "./controllers/ipam TestRandomHistories"
	testInvalidRange = "./controllers/nodeipam/allocator TestInvalidRangeKeepsItsNodes"
	testLarge        = "./controllers/nodeipam TestLargeObjectsAreReadWithoutTheLock"
	testLatePick     = "./controllers/ipam TestReserveRefusesAPickThatCameTooLate"
	testLongLists    = "./controllers/ipam TestLongListsAreNotQuadratic"
	testNeverOlder   = "./controllers/nodeipam TestClusterCIDRNeverGetsOlder"
	testMessages     = "./controllers/nodeipam/allocator TestMessagesAreBounded"
	testPools        = "./controllers/clusteripam/incluster/book TestSimulation"
	testAdoption     = "./controllers/clusteripam/claims/binding TestPoolOfSomebodyElse"
	testGateClosed   = "./controllers/clusteripam/gate/opening TestGateStaysClosed"
	testClaims       = "./controllers/clusteripam/gate TestSimulation"
	testNetworks     = "./controllers/clusteripam/claims/binding TestNetworkOfAClaim"
	testConditions   = "./controllers/clusteripam/claims/binding TestConditions"
	testInstances    = "./controllers/clusteripam/claims/binding TestInstanceOfAClaim"
	testConfig       = "./controllers/clusteripam/gate/opening TestConfig"
	testOther        = "./controllers/clusteripam/shell TestOther"
	testOtherWrote   = "./controllers/nodeipam/author TestOther"
	testInfoblox     = "./controllers/clusteripam/infoblox TestSimulation"
	testModel        = "./controllers/nodeipam TestModel"
	testNewRange     = "./controllers/ipam TestNewRange"
	testNotThere     = "./controllers/nodeipam/requests TestNotThere"
	testOneTerm      = "./controllers/lease TestOneTerm"
	testCompiledOnce = "./controllers/nodeipam/clustercidr TestSelectorIsCompiledOnce"
	testPick         = "./controllers/ipam TestExamples" // the allocator's index has no such pools either
	testReading      = "./controllers/nodeipam TestEventWhileTheStartReads"
	testRelease      = "./controllers/lease TestReleaseWaitsForWrites"
	testRepetition   = "./controllers/lease TestTransportAllowsNoRepetition"
	testRevocable    = "./controllers/nodeipam TestRevocableReservationIsLookedAtAgain"
	testSentOnce     = "./controllers/nodeipam/requests TestPatchNodeIsSentOnce"
	testStateMetrics = "./controllers/nodeipam TestStateMetrics"
	testStatus       = "./controllers/nodeipam TestStatus"
	testRequests     = "./controllers/nodeipam/requests TestRequests"
	testStored       = "./controllers/nodeipam TestReservationThatWasStored"
	testStaysInside  = "./controllers/nodeipam/requests TestWriteWithoutAnswerStaysInside"
	testTakeover     = "./controllers/nodeipam/takeover TestTakeoverWait"
	testTakeoverSeen = "./controllers/nodeipam/takeover TestTakeoverIsSeen"
	testTermOnLease  = "./controllers/lease TestTermOnTheLease"
	testPredecessor  = "./controllers/lease TestPredecessor"
	testTransport    = "./controllers/lease TestTransport"
	testUnanswered   = "./controllers/lease TestUnanswered"
)

var mutants = []mutant{
	// Who holds what.
	{
		name: "podcidrs-outside-not-held", defect: "podCIDRs that lie in no range are not held", seen: peer,
		old: "\tb.hold(owner, blocks)\n",
		new: "\tif !b.OutOfRange(blocks) {\n\t\tb.hold(owner, blocks)\n\t}\n",
	},
	{
		name: "podcidrs-of-others-not-held", defect: "podCIDRs that do not come from us are not held",
		old: "\tb.hold(owner, blocks)\n",
		new: "\tif b.nodes[node.Name].pool != \"\" {\n\t\tb.hold(owner, blocks)\n\t}\n",
	},
	{
		name: "podcidrs-of-other-size-not-held", defect: "blocks of another size than the range gives now are not held", seen: inTree + ", kubernetes#70957, #90922",
		old: "\tb.hold(owner, blocks)\n",
		new: "\tb.hold(owner, slices.DeleteFunc(slices.Clone(blocks), func(block netip.Prefix) bool {\n\t\tfor _, p := range b.pools {\n\t\t\tfor _, r := range p.Ranges {\n\t\t\t\tif r.Prefix.Overlaps(block) && r.BlockBits != block.Bits() {\n\t\t\t\t\treturn true\n\t\t\t\t}\n\t\t\t}\n\t\t}\n\t\treturn false\n\t}))\n",
	},
	{
		name: "relabelled-not-held", defect: "at the start, what a Node holds counts only if a ClusterCIDR selects the Node", seen: peer,
		old: "\tb.ledger.Expect(len(all))\n",
		new: "\tfor i := range all {\n\t\tmatches := false\n\t\tfor _, p := range b.pools {\n\t\t\tmatches = matches || p.Matches(all[i].node)\n\t\t}\n\t\tif !matches {\n\t\t\tall[i] = shown{node: all[i].node, unreadable: all[i].unreadable}\n\t\t}\n\t}\n\tb.ledger.Expect(len(all))\n",
	},
	{
		name: "nodes-not-read-at-start", defect: "Nodes are served before it is known what all of them hold", seen: "in-tree before kubernetes#29058",
		old: "\tb.ledger.Expect(len(all))\n",
		new: "\tfor i := range all {\n\t\tall[i] = shown{node: all[i].node, unreadable: all[i].unreadable}\n\t}\n\tb.ledger.Expect(len(all))\n",
	},
	{
		name: "terminating-not-held-at-start", defect: "at the start, what Nodes hold from a ClusterCIDR that is being deleted is forgotten", seen: peer,
		old: "\tb.ledger.Expect(len(all))\n",
		new: "\tfor i, s := range all {\n\t\tfor _, block := range s.blocks {\n\t\t\tfor _, p := range b.pools {\n\t\t\t\tif p.Contains(block) && p.State.String() == \"Terminating\" {\n\t\t\t\t\tall[i] = shown{node: all[i].node, unreadable: all[i].unreadable}\n\t\t\t\t}\n\t\t\t}\n\t\t}\n\t}\n\tb.ledger.Expect(len(all))\n",
	},
	{
		name: "shared-at-start-not-noticed", defect: "Nodes that share addresses since before the start are not told",
		old:  " || b.Shares(all[i].node.UID)\n",
		new:  "\n",
		test: testAtOnce,
	},
	{
		name: "said-to-be-alone", defect: "the ledger says of who holds what lies in another's range that he is alone",
		old:  "\t\treturn !covered && n.child == [2]*node{}\n",
		new:  "\t\treturn covered || n.child == [2]*node{}\n",
		test: testAtOnce,
	},
	{
		name: "range-of-missing-family", defect: "a dual-stack Node in a single-stack ClusterCIDR is looked up in a range that is not there", seen: peer,
		old: "\tb.hold(owner, blocks)\n",
		new: "\tfor i := range blocks {\n\t\tif p, ok := b.pools[b.nodes[node.Name].pool]; ok {\n\t\t\t_ = p.Ranges[i]\n\t\t}\n\t}\n\tb.hold(owner, blocks)\n",
	},
	{
		name: "no-owners", defect: "a block that two Nodes hold is free when one of them goes", seen: inTree + ", " + peer,
		old: "\tl.taken.Remove(p)\n",
		new: "\tfor l.taken.Remove(p) {\n\t}\n\tdelete(l.shared, p)\n",
	},
	{
		name: "wider-holding-ignored", defect: "a block inside a wider one that is held counts as free",
		old: "\t\tcovered = covered || n.count > 0\n",
		new: "",
	},
	{
		name: "exclusions-ignored", defect: "excluded ranges are given to Nodes",
		old: "\t\tp.Excluded.Insert(excluded)\n",
		new: "\t\t_ = excluded\n",
	},
	{
		name: "exclusions-of-all", defect: "what one ClusterCIDR excludes is given by no other one either",
		old: "\tb.poolsChanged = true\n\tb.candidates.Add(p)\n\tif p.State",
		new: "\tb.hold(ipam.Owner{Kind: ipam.Kept, ID: p.ID}, p.Exclusions)\n\tb.poolsChanged = true\n\tb.candidates.Add(p)\n\tif p.State",
	},
	{
		name: "excluded-reservation-stays", defect: "a reservation that was never sent stands although its ClusterCIDR excludes it now",
		old: " || p.Excluded.Overlaps(block) {",
		new: " {",
	},
	{
		name: "excluded-counts-as-free", defect: "what a ClusterCIDR excludes counts as free",
		old: "Free: u.Free - l.excluded(p, r)}",
		new: "Free: u.Free}",
	},
	{
		name: "full-for-ever", defect: "what was full between exclusions counts as full after a block there was freed", test: "./controllers/ipam TestExamples",
		old: "\t\t\tif dropped {\n",
		new: "\t\t\tif false {\n",
	},
	{
		name: "mapped-is-all-of-ipv4", defect: "a podCIDR that an older API server has stored as ::ffff:0:0/96 takes all IPv4 ranges", test: testCIDRs,
		old: "addr.Is4In6() && bits > Mapped.Bits()",
		new: "addr.Is4In6() && bits >= Mapped.Bits()",
	},
	{
		name: "foreign-status-stays", defect: "what somebody else has put into a status stays there",
		old: "\tif foreign := requests.ForeignStatus(d.cc, d.want); foreign != nil {",
		new: "\tif foreign := requests.ForeignStatus(d.cc, d.want); false && foreign != nil {",
	},
	{
		name: "foreign-time-taken-over", defect: "the time of a transition that somebody else has written is taken over", test: testForeign,
		old: "if f.Manager != requests.Manager || ",
		new: "if ",
	},
	{
		name: "messages-without-end", defect: "a message is as long as what somebody has written", test: "./controllers/text TestCut",
		old: "\tif len(text) <= most {",
		new: "\tif len(text) <= most+1000 {",
	},
	{
		name: "excluded-address-reported", defect: "the address of a Node is reported although it is excluded, as the report says to do", test: testAdvice,
		old: "\t\t\tif !p.Gives(h.Prefix) {",
		new: "\t\t\tif false {",
	},
	{
		name: "service-ranges-ignored", defect: "service ranges are given to Nodes", seen: peer,
		old: "\tb.hold(ipam.Owner{Kind: ipam.Service, ID: source}, ranges)\n",
		new: "",
	},
	{
		name: "servicecidr-objects-ignored", defect: "a ServiceCIDR that comes later does not count", seen: inTree,
		old: "b.SetService(contents.ServiceSource(name), serviceRangesOf(context.Background(), serviceCIDR))",
		new: "_ = serviceCIDR",
	},

	// When a block is free.
	{
		name: "release-on-deletiontimestamp", defect: "a Node that is being deleted, but runs on behind a finalizer, loses its blocks", seen: peer + ", kubernetes#127792",
		old: "if b.Reclaim(node) {",
		new: "if node.DeletionTimestamp != nil {\n\t\tb.NodeGone(name, node.UID)\n\t\treturn node, nil\n\t}\n\tif b.Reclaim(node) {",
	},
	{
		name: "reservation-dropped-on-deletion", defect: "a Node that is being deleted loses its reservation, while the write of it may be on its way",
		old: "b.GiveUp(node)",
		new: "b.NodeGone(name, node.UID)",
	},
	{
		name: "never-released", defect: "the blocks of a Node that is gone stay held",
		old: "b.NodeGone(name, was.UID)",
		new: "_ = b",
	},
	{
		name: "released-by-its-pool-only", defect: "the blocks of a Node whose ClusterCIDR is not there are not released", seen: peer,
		old: "b.NodeGone(name, was.UID)",
		new: "n, known := b.Node(name)\n\tif _, there := b.Pool(n.ClusterCIDR); !known || there {\n\t\tb.NodeGone(name, was.UID)\n\t}",
	},
	{
		name: "recreated-node-leaks", defect: "a Node that is deleted and created again between two looks keeps its old blocks", seen: inTree + ", " + peer, test: "./controllers/nodeipam/allocator TestBook",
		old: "b.NodeGone(node.Name, uid)",
		new: "kept := b.ledger.Held(OwnerOf(uid))\n\t\tb.NodeGone(node.Name, uid)\n\t\tb.ledger.Hold(ipam.Owner{Kind: ipam.Kept, ID: string(node.UID)}, kept...)",
	},
	{
		name: "forced-pool-frees-nodes", defect: "a ClusterCIDR whose finalizer was removed by force takes along what Nodes hold from it",
		old: "\tb.ledger.Forget(&p.Pool)\n\tdelete(b.pools, name)\n",
		new: "\tb.ledger.Forget(&p.Pool)\n\tdelete(b.pools, name)\n\tfor _, uid := range slices.Collect(b.Members(p)) {\n\t\tb.hold(OwnerOf(uid), nil)\n\t}\n",
	},
	{
		name: "replaced-pool-is-the-same", defect: "a write without an answer is repeated although its ClusterCIDR was replaced by force with another one of that name, which need not select the Node",
		old:  ", e.from != nil && e.from.ID != b.pools[e.pool].ID:",
		new:  ":",
		test: "./controllers/nodeipam/allocator TestReplacedClusterCIDRIsAnotherOne",
	},
	{
		name: "other-blocks-not-believed", defect: "a Node that shows other blocks than were reserved for it keeps the reserved ones only",
		old: "\tb.hold(owner, blocks)\n",
		new: "\tif len(b.ledger.Held(owner)) == 0 {\n\t\tb.hold(owner, blocks)\n\t}\n",
	},
	{
		name: "node-event-not-entered", defect: "what a Node brings along counts only when its worker gets to it",
		old: "node, err := c.observeNode(b, name)",
		new: "node, err := (*v1.Node)(nil), error(nil)\n\t\tc.nodeQueue.Add(name)",
	},
	{
		name: "pool-event-not-entered", defect: "a ClusterCIDR that was disabled or deleted gives blocks until its worker gets to it",
		old: "_, _, err := c.enterClusterCIDR(name, func(*allocator.State, *networkingv1.ClusterCIDR) {})\n\t\treturn err",
		new: "return nil",
	},

	// What is chosen.
	{
		name: "half-a-dual-stack-node", defect: "a Node gets one family when the other one is full",
		old: "\tif bits > 0 || len(p.Ranges) == 0 {\n",
		new: "\tif bits > 0 && bits < 3 && len(p.Ranges) == 2 {\n\t\treturn Pick{Pool: p, Blocks: slices.DeleteFunc(slices.Clone(found[:]), func(b netip.Prefix) bool { return !b.IsValid() })}, nil\n\t}\n\tif bits > 0 || len(p.Ranges) == 0 {\n",
	},
	{
		name: "first-family-leaks", defect: "when the second family is full, the first one's block is lost", seen: inTree + ", " + peer + ", projectcalico/cni-plugin#908",
		old: "\tif bits > 0 || len(p.Ranges) == 0 {\n",
		new: "\tif bits > 0 || len(p.Ranges) == 0 {\n\t\tfor _, b := range found {\n\t\t\tif b.IsValid() {\n\t\t\t\tl.taken.Insert(b)\n\t\t\t}\n\t\t}\n",
	},
	{
		name: "late-pick-reserved", defect: "a block is reserved although somebody else has got it since it was picked",
		old:  " || slices.ContainsFunc(pick.Blocks, l.taken.Overlaps)",
		new:  "",
		test: testLatePick,
	},
	{
		name: "disabled-allocates", defect: "a disabled ClusterCIDR gives blocks",
		old:  "\t\tif p.State != Enabled || ",
		new:  "\t\tif p.State != Enabled && p.State != Disabled || ",
		test: testPick,
	},
	{
		name: "terminating-allocates", defect: "a ClusterCIDR that is being deleted gives blocks",
		old:  "\t\tif p.State != Enabled || ",
		new:  "\t\tif p.State != Enabled && p.State != Terminating || ",
		test: testPick,
	},
	{
		name: "unselective-never-terminates", defect: "the deletion of a ClusterCIDR without a nodeSelector is not noticed", seen: peer,
		file: "controllers/nodeipam/clustercidr/pool.go",
		old:  "case cc.DeletionTimestamp != nil:",
		new:  "case cc.DeletionTimestamp != nil && p.Selective:",
	},
	{
		name: "edited-means-terminating", defect: "a ClusterCIDR that was ever edited counts as being deleted", seen: peer,
		file: "controllers/nodeipam/clustercidr/pool.go",
		old:  "case cc.DeletionTimestamp != nil:",
		new:  "case cc.DeletionTimestamp != nil || cc.Generation > 1:",
	},
	{
		name: "terms-anded", defect: "the terms of a nodeSelector are ANDed", seen: peer,
		old: "\t\t\tif !e.matches(node) || ",
		new: "\t\t\tif slices.ContainsFunc(e.terms, func(t term) bool { return !t.matches(node) }) || ",
	},
	{
		name: "fields-taken-for-labels", defect: "matchFields of a nodeSelector are looked for among the labels", seen: peer,
		old: "\tif r.key == nameKey {\n",
		new: "\tif r.key == nameKey {\n\t\tvalue, has = node.Labels[\"metadata.name\"]\n\t} else if false {\n",
	},
	{
		name: "block-larger-than-range", defect: "a ClusterCIDR whose blocks are larger than its range is accepted", seen: peer,
		old:  "\tif hostBits < 0 || hostBits > free {\n",
		new:  "\tif hostBits < 0 {\n",
		test: testNewRange,
	},
	{
		name: "cursor-not-from-status", defect: "after a restart the search begins at the start of the range",
		old: "\t\tb.ledger.SetCursor(&p.Pool, family, cursor)\n",
		new: "\t\t_, _ = family, cursor\n",
	},
	{
		name: "cursor-stands-still", defect: "a block that was freed is given again at once",
		old: "\t\tl.SetCursor(pick.Pool, FamilyOf(b), after)\n",
		new: "\t\t_ = after\n",
	},
	{
		name: "old-flags-serve", defect: "the ClusterCIDR of earlier flags goes on to give blocks",
		old: "p.State, p.Superseded, p.Problem = ipam.Disabled, true, why",
		new: "p.Superseded, p.Problem = true, why",
	},
	{
		name: "old-flags-stay", defect: "the ClusterCIDR of earlier flags is not disabled",
		old: "\t\treturn c.writeAllocation(ctx, cc, networkingv1.AllocationDisabled)\n",
		new: "\t\treturn nil\n",
	},
	{
		name: "stale-reasons", defect: "why a Node is pending is said of ClusterCIDRs as they were before they changed",
		old:  "\t\tb.candidates.Remove(old)\n",
		new:  "",
		test: "./controllers/nodeipam/allocator TestReplacedPoolIsNoCandidate",
	},
	{
		name: "stale-order", defect: "Nodes are served by ClusterCIDRs as they were before they changed",
		old: "\t\tb.notFull.Remove(old)\n",
		new: "",
	},
	{
		name: "youngest-first", defect: "of the pending Nodes the youngest comes first",
		old: "p.Since.Compare(o.Since)",
		new: "o.Since.Compare(p.Since)",
	},
	{
		name: "whoever-asks-first", defect: "blocks are chosen for the Node that a worker looks at, and older ones are overtaken",
		old: "\tcase b.arrived[node.Name] != nil || !b.settled.Renew(node):\n\t\tb.arrive(node)\n",
		new: "\tcase b.settled.Renew(node):\n",
	},
	{
		name: "index-forgets-the-rest", defect: "a ClusterCIDR that asks for no label with certain values is never found",
		old: "\tadd(c.rest)\n",
		new: "",
	},
	{
		name: "index-knows-one-value", defect: "a ClusterCIDR that asks for one of several values is found by the first one only",
		old:  "\t\tif e.in = e.rarest(c.common); len(e.in) == 0 {\n",
		new:  "\t\tif e.in = e.rarest(c.common); len(e.in) > 1 {\n\t\t\te.in = e.in[:1]\n\t\t}\n\t\tif len(e.in) == 0 {\n",
		test: testCandidates,
	},
	{
		name: "one-requirement-is-enough", defect: "a Node is served from a ClusterCIDR of whose requirements it meets one",
		old:  "\t\tif !t.all[i].matches(node) {\n\t\t\treturn false\n\t\t}\n\t}\n\treturn t.others == nil || t.others.Match(node)\n",
		new:  "\t\tif t.all[i].matches(node) {\n\t\t\treturn true\n\t\t}\n\t}\n\treturn false\n",
		test: testCandidates,
	},
	{
		name: "candidates-out-of-order", defect: "ClusterCIDRs that ask for no label with certain values are tried before all others",
		old:  "\t\t\t\tif compareEntries(lists[i][0], lists[first][0]) < 0 {\n",
		new:  "\t\t\t\tif false {\n",
		test: testCandidates,
	},
	{
		name: "invalid-range-forgotten", defect: "a ClusterCIDR with a block size that is refused today goes while Nodes hold blocks from it",
		old:  "\t\tp.uncut = append(p.uncut, prefix.Masked())\n",
		new:  "",
		test: testInvalidRange,
	},

	// The one write.
	{
		name: "no-uid-precondition", defect: "a write that comes late hits a new Node of the same name",
		old: "\treturn Encode(objectPatch{\n\t\tMetadata: metadataPatch{UID: node.UID, Annotations: annotations},\n",
		new: "\treturn Encode(map[string]any{\"metadata\": map[string]any{\"annotations\": annotations}, \"spec\": nodeSpecs{PodCIDR: cidrs[0], PodCIDRs: cidrs}})\n\treturn Encode(objectPatch{\n",
	},
	{
		name: "reservation-undone", defect: "a write that seemed to fail gives up its blocks",
		old: "\treturn fmt.Errorf(\"patch podCIDRs of Node %s: %w\", node.Name, err)\n",
		new: "\tc.with(func(b *allocator.State) { b.NodeGone(node.Name, node.UID) })\n\treturn fmt.Errorf(\"patch podCIDRs of Node %s: %w\", node.Name, err)\n",
	},
	{
		name: "failed-write-forgotten", defect: "a write that failed is not tried again",
		old: "\treturn fmt.Errorf(\"patch podCIDRs of Node %s: %w\", node.Name, err)\n",
		new: "\treturn nil\n",
	},
	{
		name: "podcidrs-of-others-rewritten", defect: "a Node that has podCIDRs from somebody else gets ours too",
		file: "controllers/nodeipam/node.go",
		old:  "case clustercidr.ShowsPodCIDRs(node):",
		new:  "case clustercidr.ShowsPodCIDRs(node) && len(node.Annotations) > 0:",
	},
	{
		name: "going-node-served", defect: "a Node that is being deleted gets blocks",
		old: "\t\tcase node.DeletionTimestamp != nil:\n",
		new: "\t\tcase false:\n",
	},
	{
		name: "no-holder", defect: "a write does not say who holds the lease, so the admission policy refuses it",
		old: "networkingv1.AnnotationLeaseHolder: identity}",
		new: "networkingv1.AnnotationLeaseHolder: identity[:0]}",
	},
	{
		name: "missing-resource-is-no-error", defect: "a write to an API server that does not know the resource yet is not tried again",
		old:  " && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)",
		new:  "",
		test: testNotThere,
	},

	// The fence.
	{
		name: "fence-not-asked-for-nodes", defect: "a deposed leader writes podCIDRs",
		old: "\treturn f.enter(ctx, func(ctx context.Context) error { return f.API.PatchNode(ctx, name, patch) })\n",
		new: "\treturn f.API.PatchNode(ctx, name, patch)\n",
	},
	{
		name: "fence-not-asked-for-finalizers", defect: "a deposed leader removes finalizers",
		old:  "\treturn f.enter(ctx, func(ctx context.Context) error { return f.API.PatchClusterCIDR(ctx, name, patch) })\n",
		new:  "\treturn f.API.PatchClusterCIDR(ctx, name, patch)\n",
		test: testFenced,
	},
	{
		name: "fence-always-open", defect: "a write is sent however old the lease is",
		old: "\tcase left <= p.timeout+p.transit:\n",
		new: "\tcase left < 0 && f.duration < 0:\n",
	},
	{
		name: "fence-ignores-the-deadline", defect: "a write is sent as long as the lease is good, and may be carried out after it",
		old:  "\tcase left <= p.timeout+p.transit:\n",
		new:  "\tcase left <= p.transit:\n",
		test: testEnter,
	},
	{
		name: "lease-regained", defect: "a leader that slept while another one led takes its lease back and goes on", seen: "client-go's elector",
		old:  "\tif f.deposed {\n",
		new:  "\tif f.deposed = false; f.deposed {\n",
		test: testOneTerm,
	},
	{
		name: "lease-given-again", defect: "a leader that slept while another one led goes on when the API server that coordinates elects it again", seen: "client-go's elector",
		old:  " && slices.ContainsFunc(f.stamps, stamp(*record).Equal)\n",
		new:  " && slices.ContainsFunc(f.stamps, func(time.Time) bool { return true })\n",
		test: testOneTerm,
	},
	{
		name: "lease-counts-from-the-answer", defect: "the lease is counted from when the answer to its renewal came, not from when the renewal was sent",
		old:  "\tsent := l.fence.sends(&record)\n\tif err := write(ctx, record); err != nil {\n\t\treturn err\n\t}\n",
		new:  "\tif err := write(ctx, record); err != nil {\n\t\treturn err\n\t}\n\tsent := l.fence.readClocks()\n\trecord.RenewTime.Time = sent.wall\n",
		test: testEnter,
	},
	{
		name: "monotonic-clock-only", defect: "the time that a machine was suspended does not count",
		old: "max(now.monotonic-r.monotonic+max(0, now.suspended-r.suspended), now.wall.Sub(r.wall))",
		new: "now.monotonic - r.monotonic",
	},
	{
		name: "suspension-hidden", defect: "a wall clock that is set back after a suspension makes the lease good for longer",
		old:  "+max(0, now.suspended-r.suspended)",
		new:  "",
		test: testEnter,
	},
	{
		name: "wall-clock-only", defect: "a wall clock that was set back makes a lease good for longer",
		old:  "max(now.monotonic-r.monotonic+max(0, now.suspended-r.suspended), now.wall.Sub(r.wall))",
		new:  "now.wall.Sub(r.wall)",
		test: testEnter,
	},
	{
		name: "released-before-writes-end", defect: "a leader that ends gives the lease up while a write without an answer may still be carried out",
		old:  "\tif err = write(ctx); writes.Answered(err) {\n\t\tleave()\n\t}\n\tif RefusedByPolicy(err) {",
		new:  "\terr = write(ctx)\n\tleave()\n\tif RefusedByPolicy(err) {",
		test: testStaysInside,
	},
	{
		name: "release-does-not-close", defect: "the fence stays open when the lease is given up",
		old:  "\t\tl.fence.Close()\n",
		new:  "",
		test: testRelease,
	},
	{
		name: "failed-renewal-counts", defect: "a renewal that failed makes the lease good for longer",
		old:  "\tif err := write(ctx, record); err != nil {\n\t\treturn err\n\t}\n",
		new:  "\tif err := write(ctx, record); err != nil {\n\t\tl.fence.renew(sent, record, Around{}.Expires)\n\t\treturn err\n\t}\n",
		test: testEnter,
	},
	{
		name: "write-not-bounded-by-lease", defect: "a write may take longer than a third of the lease",
		old:  "\t\tp.timeout, p.transit = min(atMost, f.duration/timeoutShare), f.duration/transitShare\n",
		new:  "\t\tp.timeout, p.transit = atMost, 0\n",
		test: testBounds,
	},
	{
		name: "server-not-told-the-deadline", defect: "the API server is not told for how long it may carry a write out",
		old:  "\tquery.Set(\"timeout\", left.String())\n",
		new:  "\t_ = left\n",
		test: testTransport,
	},
	{
		name: "late-write-leaves", defect: "a write that waited too long after it passed the fence is sent",
		file: "controllers/lease/transport.go",
		old:  "\tif left <= 0 {\n",
		new:  "\tif false {\n",
		test: testTransport,
	},
	{
		name: "write-repeated-by-http", defect: "net/http sends a write again by itself, with the time that it had when it was sent first",
		old:  "\treq.GetBody = nil\n",
		new:  "",
		test: testRepetition,
	},

	// The start.
	{
		name: "stale-start", defect: "a new leader decides from caches older than its lease",
		old:  "\t\treturn err == nil && order >= 0, nil\n",
		new:  "\t\treturn err == nil || order >= 0, nil\n",
		test: testFresh,
	},
	{
		name: "mute-cache-is-fresh", defect: "a new leader decides from a cache that cannot tell how new it is",
		old: "\t\tif !cache.tellsSoon(ctx) && !WaitShown(ctx, h, cache.Contents) {\n",
		new: "\t\tif !cache.tellsSoon(ctx) && cache.Version() != \"\" && !WaitShown(ctx, h, cache.Contents) {\n",
	},
	{
		name: "gone-is-fresh", defect: "a new leader allocates from a ClusterCIDR that is gone, because its cache still shows it",
		old:  "err != nil || order <= 0 {",
		new:  "err != nil && order <= 0 {",
		test: testObjects,
	},
	{
		name: "fresh-by-the-reflector", defect: "a new leader takes for read what its informer still enters in the cache",
		old:  "fresh.VersionOf(cfg.Nodes.Informer().GetStore())",
		new:  "cfg.Nodes.Informer().LastSyncResourceVersion",
		test: testFresh,
	},
	{
		name: "start-calls-nobody", defect: "Nodes that were there before the start are not served",
		file: "controllers/nodeipam/start.go",
		old:  "\t\tc.nodeQueue.Add(node.Name)\n",
		new:  "\t\t_ = node.Name\n",
	},
	{
		name: "event-calls-nobody", defect: "an event of a Node without podCIDRs does not make anybody serve it",
		old: "return !clustercidr.ShowsPodCIDRs(node) ||",
		new: "return",
	},
	{
		name: "event-between-look-and-lock", defect: "an event that comes while the start reads the caches is passed over by its handler, and read by nobody",
		file: "controllers/nodeipam/node.go",
		old:  "c.with(func(b *allocator.State) {\n\t\tif !c.filled.Load() {\n\t\t\tc.heardListed(name, nil, before, now)\n\t\t\treturn // fill holds the lock while it reads the cache\n\t\t}",
		new:  "if !c.filled.Load() {\n\t\treturn\n\t}\n\tc.with(func(b *allocator.State) {",
		test: testReading,
	},
	{
		name: "filled-without-the-lock", defect: "the start reads the caches without the lock of the book, and an event in between is lost",
		old:  "\t\terr = c.fill(ctx, b)\n\t\tc.filled.Store(err == nil)\n\t})\n",
		new:  "\t})\n\terr = c.fill(ctx, c.state)\n\tc.filled.Store(err == nil)\n",
		test: testReading,
	},

	// Finalizers.
	{
		name: "finalizer-too-late", defect: "blocks are given from a ClusterCIDR before it has its finalizer",
		old:  "\t\tif p.State != Enabled || ",
		new:  "\t\tif p.State != Enabled && p.State != Pending || ",
		test: testPick,
	},
	{
		name: "finalizer-removed-in-use", defect: "a ClusterCIDR goes while Nodes hold blocks from it", seen: peer,
		old: "\tcase p.State == ipam.Terminating && finalized && !inUse:\n",
		new: "\tcase p.State == ipam.Terminating && finalized && (inUse || !inUse):\n",
	},
	{
		name: "reservations-do-not-count-as-use", defect: "a ClusterCIDR goes while a block from it is about to be written",
		old: "\t\t\t\tif h.Owner.Kind != ipam.Node || seen[uid] || ",
		new: "\t\t\t\tif h.Owner.Kind != ipam.Node || b.nodes[b.names[uid]].state != Assigned || seen[uid] || ",
	},
	{
		name: "finalizer-stays", defect: "a ClusterCIDR does not go when its last Node has gone",
		old: "\t\t\tb.vacated.Add(p.Name)\n",
		new: "",
	},
	{
		name: "failed-finalizer-forgotten", defect: "a removal of the finalizer that failed is not tried again", seen: inTree + ", " + peer,
		old: "\t\treturn false, fmt.Errorf(\"patch finalizers of ClusterCIDR %s: %w\", cc.Name, err)\n",
		new: "\t\t_ = fmt.Errorf\n\t\treturn false, nil\n",
	},
	{
		name: "finalizers-of-others-undone", defect: "a finalizer that somebody else adds meanwhile is lost",
		old: "UID: cc.UID, ResourceVersion: cc.ResourceVersion, ",
		new: "UID: cc.UID, ",
	},
	{
		name: "annotation-ignored", defect: "a Node belongs to every ClusterCIDR around its blocks, not to the one that it names",
		old: "ok && !outside(named) {\n",
		new: "ok && !outside(named) && named == p {\n",
	},
	{
		name: "outside-of-its-annotation", defect: "a Node belongs to the ClusterCIDR that it names although its blocks lie elsewhere",
		old: "ok && !outside(named) {\n",
		new: "ok && (true || !outside(named)) {\n",
	},

	// Who waits.
	{
		name: "nobody-is-woken", defect: "a Node that waits is not served when something changes", seen: inTree + " until its back-off ends",
		old: "Nodes: append(b.allocatedTo, b.recheck.Take()...)",
		new: "Nodes: b.recheck.Take()",
	},
	{
		name: "release-wakes-nobody", defect: "a block that becomes free wakes nobody", seen: inTree + " until its back-off ends",
		old: "\t\tb.open(p)\n",
		new: "",
	},
	{
		name: "pool-wakes-nobody", defect: "a ClusterCIDR that comes or changes wakes nobody", seen: inTree + " until its back-off ends",
		old: "\t\tb.open(now)\n",
		new: "",
	},
	{
		name: "first-clustercidr-unheard", defect: "Nodes that the first ClusterCIDR does not select are not told that one exists now",
		old: "begins && len(b.pools) == len(b.awaitingFinalizer)+1:\n",
		new: "begins && old == nil && len(b.pools) == 1:\n",
	},
	{
		name: "told-the-wrong-family", defect: "a pending Node is not told that a ClusterCIDR is full in another family by now",
		old:  "\t\tb.told[p.Name] = full\n\t\tb.review(p)\n",
		new:  "",
		test: "./controllers/nodeipam/allocator TestFullInTheOtherFamily",
	},
	{
		name: "everybody-has-a-turn", defect: "a release looks at every pending Node if many ClusterCIDRs have the same range",
		old:  "\t\tt.turns.Keep(1) // those that arrived\n",
		new:  "",
		test: "./controllers/nodeipam/allocator TestManyClusterCIDRsOfOneRange",
	},
	{
		name: "all-open-until-the-first-is-full", defect: "if many ClusterCIDRs get room at once, only the first of them serves",
		old:  "\tif len(t.open) == 0 {\n\t\tt.turns.Keep(1)",
		new:  "\tif true {\n\t\tt.turns.Keep(1)",
		test: "./controllers/nodeipam/allocator TestManyClusterCIDRsGetRoomAtOnce",
	},
	{
		name: "exists-is-not-indexed", defect: "a selector with Exists is checked for every Node",
		old:  "case v1.NodeSelectorOpExists, v1.NodeSelectorOpGt,",
		new:  "case v1.NodeSelectorOpGt,",
		test: "./controllers/nodeipam/clustercidr TestSelectorsOfALabelAreIndexed",
	},
	{
		name: "full-once-for-ever", defect: "a ClusterCIDR that was full is not tried again when one of its blocks becomes free",
		old: "\tif p.State == ipam.Enabled && !b.notFull.Has(p) {\n\t\tb.notFull.Add(p)\n\t}\n",
		new: "",
	},
	{
		name: "full-and-tried-for-each-node", defect: "a full ClusterCIDR is searched again for every Node that it selects",
		old:  "\tfor _, f := range found {\n\t\tb.close(f.pool, f.in)\n\t}\n",
		new:  "\t_ = found\n",
		test: testManyFull,
	},
	{
		name: "told-of-every-change", defect: "a Node is looked at again for each change of any of the thousands of ClusterCIDRs that select it",
		old:  "len(w.refusals) < pending.Most || ",
		new:  "len(w.refusals) > 0 || ",
		test: "./controllers/nodeipam/allocator TestWhoIsToldOfAChange",
	},
	{
		name: "why-of-all", defect: "what is said about a pending Node names every ClusterCIDR that selects it, of which there may be thousands",
		old:  "p.Name == awaits || len(refusals) == pending.Most {",
		new:  "p.Name == awaits {",
		test: testManyFull,
	},
	{
		name: "waiting-node-not-looked-at", defect: "a new label of a Node that waits does not help it",
		old: "r, _, ok = b.Reserve(node)",
		new: "if w, ok := b.pending[node.Name]; ok && len(w.refusals) == 0 {\n\t\treturn Reservation{}, false, false\n\t}\n\tr, _, ok = b.Reserve(node)",
	},
	{
		name: "does-not-wait-for-finalizer", defect: "a Node does not wait for the finalizer of the ClusterCIDR that comes first, and gets a block of another one",
		old:  "if p.AwaitsFinalizer() {",
		new:  "if false {",
		test: testBook,
	},

	// What people are told.
	{
		name: "event-repeated", defect: "a Node that waits is told the same again and again", seen: inTree + ", cilium/cilium#37759",
		old: "return why, why.Reasons != w.said.stored",
		new: "return why, true",
	},
	{
		name: "failed-event-forgotten", defect: "an event that could not be written is not written later",
		old: "\t\t\treturn writes.RefusedLater{Err: err}\n\t\t}\n\t\twritten",
		new: "\t\t\treturn nil\n\t\t}\n\t\twritten",
	},
	{
		name: "conflict-not-told", defect: "nobody is told that two Nodes have the same addresses", seen: inTree + ", " + peer,
		file: "controllers/nodeipam/allocator/findings.go",
		old:  "if len(others) > 0 {",
		new:  "if len(others) > 1000 {",
	},
	{
		name: "outsider-not-told", defect: "nobody is told that podCIDRs lie in no range", seen: inTree + ", " + peer,
		old: "if len(blocks) > 0 && b.OutOfRange(blocks) {",
		new: "if len(blocks) > 1000 && b.OutOfRange(blocks) {",
	},
	{
		name: "late-status-stays", defect: "a status that was written late stays, though it is older than what it replaced",
		old: "b.RecheckStatus(name) // a delayed status write may have undone a newer one",
		new: "",
	},
	{
		name: "status-looked-at-once", defect: "a ClusterCIDR's status is looked at once and never again",
		old: "\t\tdelete(c.statusQueued, name) // later changes queue it again\n",
		new: "",
	},

	// What a write without an answer, and one that was refused, say.
	{
		name: "released-while-unanswered", defect: "a leader that ends gives the lease up when the senders of its writes have given up, while one may still be on its way",
		old:  "\t\tif d := l.fence.Unanswered(); d > 0 {\n",
		new:  "\t\tif d := l.fence.Unanswered(); d < 0 {\n",
		test: testHandOver,
	},
	{
		name: "over-at-the-deadline-of-its-sender", defect: "a write without an answer counts as over when its sender gives up",
		old:  "\t\tp.over = f.renewed.monotonic + f.duration\n",
		new:  "\t\tp.over = p.entered.monotonic + p.timeout\n",
		test: testUnanswered,
	},
	{
		name: "no-time-for-the-way", defect: "a write is sent when nothing of the lease is left for its way to the API server",
		old:  "\tcase left <= p.timeout+p.transit:\n",
		new:  "\tcase left <= p.timeout:\n",
		test: testEnter,
	},
	{
		name: "refused-stands", defect: "a reservation whose every write was refused stands for ever",
		old: "\treturn s == reserved || s == refused\n",
		new: "\treturn false\n",
	},
	{
		name: "unanswered-is-refused", defect: "a write without an answer counts as refused",
		file: "controllers/nodeipam/node.go",
		old:  "\tif !writes.Answered(err) {\n",
		new:  "\tif err == nil {\n",
	},
	{
		name: "refusal-of-both", defect: "a refusal counts for a write before it, too, that was not answered",
		old:  "\tcase e.stored, !e.unansweredUntil.IsZero():\n",
		new:  "\tcase e.stored:\n",
		test: testAfterRefusal,
	},
	{
		name: "read-too-early", defect: "a read of a Node counts while a write may still be on its way to it",
		old:  "return ok && !now.Before(e.unansweredUntil)",
		new:  "_ = e\n\treturn ok",
		test: testAfterRefusal,
	},
	{
		name: "read-not-looked-at", defect: "a read that shows podCIDRs counts as one that shows none",
		old:  "if err != nil || now.UID != node.UID || clustercidr.ShowsPodCIDRs(now) {",
		new:  "if err != nil || now.UID != node.UID {",
		test: testAfterRefusal,
	},
	{
		name: "known-overlap-written", defect: "blocks that were never written are written although somebody else has them by now",
		old: "\tfor range b.ledger.Conflicts(o) {\n\t\treturn false\n\t}\n",
		new: "",
	},
	{
		name: "revocable-is-not-woken", defect: "a Node whose blocks were refused is looked at again by its timer only",
		old:  "\t\t\t\te.Nodes = append(e.Nodes, name)\n",
		new:  "",
		test: testRevocable,
	},
	{
		name: "client-repeats-a-patch", defect: "client-go sends a PATCH again by itself, and its answer counts for the first one, too",
		old:  "\t\tMaxRetries(0).\n",
		new:  "",
		test: testSentOnce,
	},
	{
		name: "answer-of-a-proxy", defect: "what a proxy answers for the API server counts as a refusal",
		old:  "\tif !errors.As(err, &status) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {\n",
		new:  "\tif !errors.As(err, &status) {\n",
		test: testAnswered,
	},

	// A Node that takes everything.
	{
		name: "cover-not-named", defect: "a Node that holds a whole range is named nowhere, and a range is full without a reason",
		old:  "\t\tcase h.Owner.Kind == ipam.Node && h.Prefix.Bits() < r.BlockBits:\n",
		new:  "\t\tcase false:\n",
		test: testBook,
	},
	{
		name: "block-counts-as-cover", defect: "a Node with the only block of a range is named as one that takes too much",
		old:  "\t\tcase h.Owner.Kind == ipam.Node && h.Prefix.Bits() < r.BlockBits:\n",
		new:  "\t\tcase h.Owner.Kind == ipam.Node:\n",
		test: testBook,
	},
	{
		name: "exhausted-without-reason", defect: "the condition of a full ClusterCIDR does not name the Nodes with podCIDRs larger than a block",
		old:  "larger != \"\" {\n",
		new:  "larger == \"never\" {\n",
		test: testStatus,
	},
	{
		name: "cover-without-metric", defect: "no metric, and so no alert, has the Node that holds a whole range",
		old:  "if r.CoveredBy != \"\" {",
		new:  "if false {",
		test: testStateMetrics,
	},

	// One object that is as large as it can be.
	{
		name: "long-list-squared", defect: "what an owner holds is compared with all that it holds, each with each",
		old:  "\tfew := len(prefixes) <= short\n",
		new:  "\tfew := true\n",
		test: testLongLists,
	},
	{
		name: "all-addresses", defect: "all addresses of a Node are entered, however many",
		old:  "[:min(len(node.Status.Addresses), MaxAddresses)]",
		new:  "",
		test: testLarge,
	},
	{
		name: "compiled-with-the-lock", defect: "no Node is served while a ClusterCIDR is compiled",
		old:  "p := c.compile(cc)\n\tc.with(func(b *allocator.State) {\n",
		new:  "var p *clustercidr.Pool\n\tc.with(func(b *allocator.State) {\n\t\tp = c.compile(cc)\n",
		test: testLarge,
	},
	{
		name: "large-selector-indexed", defect: "every value of a selector goes into the index, however many, while no Node is served",
		old:  "\tif s.large = size > maxIndexed; !s.large {\n",
		new:  "\tif s.large = size < 0; !s.large {\n",
		test: testLarge,
	},
	{
		name: "clustercidr-gets-older", defect: "what is entered of a ClusterCIDR can be older than what was entered before",
		old:  "\tc.entering.Lock()\n\tdefer c.entering.Unlock()\n\treturn c.enterClusterCIDR(name, also)\n",
		new:  "\treturn c.enterClusterCIDR(name, also)\n",
		test: testNeverOlder,
	},
	{
		name: "selector-never-changes", defect: "a ClusterCIDR keeps its first nodeSelector",
		old:  "ok && sameSelector(known.source, selector) {\n",
		new:  "ok {\n",
		test: testCompiledOnce,
	},

	// After a panic.
	{
		name: "no-wait-after-a-panic", defect: "after a panic the controller starts anew while writes from before may still be carried out",
		old:  "\t\tif left <= 0 {\n",
		new:  "\t\tif left <= 0 || true {\n",
		test: testWaits,
	},
	{
		name: "start-does-not-wait", defect: "the start does not ask whether writes from before may still be carried out",
		old:  "\tif !c.waitWrites(ctx) {\n",
		new:  "\tif false {\n",
		test: testWaits,
	},
	{
		name: "read-before-the-wait", defect: "the start goes by a read of Nodes from before it waited for writes",
		old:  "\t\tc.nodesAsOf = \"\"\n",
		new:  "",
		test: testWaits,
	},
	{
		name: "read-of-the-first-start", defect: "after a panic caches need be no newer than at the start of the term",
		old:  "\t\t\tg.context.NodesAsOf = \"\" // It is older than the writes of the last controller.\n",
		new:  "",
		test: testAnew,
	},
	{
		name: "torn-book-used", defect: "blocks are chosen by a book that a panic has left half changed",
		old:  "\tif c.torn {\n",
		new:  "\tif false {\n",
		test: testTorn,
	},
	{
		name: "handlers-stay", defect: "after a panic the shared informers go on to call the old controller",
		old:  "\tfor _, stop := range c.stopHearing {\n",
		new:  "\tfor _, stop := range c.stopHearing[:0] {\n",
		test: testAnother,
	},
	{
		name: "not-built-anew", defect: "a controller that has panicked stays away, and its process keeps the lease", seen: "we, until 2026-11-22",
		old:  "\t\tpause = min(2*pause, longestPause)\n",
		new:  "\t\t<-ctx.Done()\n\t\treturn nil\n",
		test: testAgain,
	},
	{
		name: "no-pause-after-a-panic", defect: "a controller that panics again and again starts again without a pause",
		old:  "\t\tcase <-time.After(pause):\n",
		new:  "\t\tcase <-time.After(0 * pause):\n",
		test: testAgain,
	},

	// Flags that change.
	{
		name: "label-is-enough", defect: "a user's ClusterCIDR that has the label of those from flags is taken for one of them",
		old: "\treturn strings.HasPrefix(cc.Name, Prefix) && cc.Labels",
		new: "\treturn cc.Labels",
	},
	{
		name: "old-flags-deleted-at-once", defect: "the ClusterCIDR of earlier flags is deleted while Nodes use it",
		old: "inUse = cc == nil || b.InUse(cc.Name)",
		new: "inUse = cc == nil",
	},
	{
		name: "old-flags-never-go", defect: "a superseded ClusterCIDR stays when its last Node is gone",
		old: "p.State == ipam.Terminating || p.Superseded)",
		new: "p.State == ipam.Terminating)",
	},
	{
		name: "flags-do-not-come-back", defect: "flags that come back do not enable their ClusterCIDR again",
		old: "\treturn c.writeAllocation(ctx, cc, networkingv1.AllocationEnabled)\n",
		new: "\treturn nil\n",
	},
	{
		name: "flags-overrule-users", defect: "flags that come back enable a ClusterCIDR that a user has disabled",
		old: "[networkingv1.AnnotationSuperseded]; !annotated {\n",
		new: "[networkingv1.AnnotationSuperseded]; !annotated && cc.Spec.Allocation != networkingv1.AllocationDisabled {\n",
	},
	{
		name: "changed-by-user-deleted", defect: "a superseded ClusterCIDR that a user has changed is deleted, and with it what he excluded",
		old: " || fromflags.ChangedByUser(cc) {\n",
		new: " {\n",
	},
	{
		name: "deleted-as-it-was", defect: "the ClusterCIDR of earlier flags is deleted although another leader has enabled it meanwhile",
		old:  "UID: &uid, ResourceVersion: &resourceVersion}",
		new:  "UID: &uid}",
		test: testRequests,
	},

	// Finalizers that are not kept.
	{
		name: "waits-for-finalizer-for-ever", defect: "Nodes wait for a ClusterCIDR whose finalizer is added and not kept, though another one could serve them",
		old:  "\tcase !ok, early && !tries.lost:\n",
		new:  "\tcase !ok, early || true:\n",
		test: "./controllers/nodeipam TestFinalizerThatIsNotThere",
	},
	{
		name: "finalizer-tried-once", defect: "a finalizer that was added and is not there is not added again",
		old: "\tc.clusterCIDRQueue.AddAfter(p.Name, finalizers.Patience)\n",
		new: "",
	},
	{
		name: "finalizer-patience-without-a-try", defect: "Nodes go on to the next ClusterCIDR because this process could not write for a while",
		file: "controllers/nodeipam/finalizer.go",
		old:  "\tif writes.NotItsTurn(err) {\n\t\tc.with(",
		new:  "\tif writes.NotItsTurn(err) && false {\n\t\tc.with(",
		test: testFinalizer,
	},

	// Events that nobody waits for.
	{
		name: "events-inline", defect: "the worker that allocates podCIDRs writes events, too, and every one that hangs delays Nodes",
		old:  "\tif !d.write {\n\t\treturn nil // it has podCIDRs",
		new:  "\tif !d.write {\n\t\tvar a announcement\n\t\tdue := false\n\t\tc.with(func(b *allocator.State) { a, due = c.due(b, events.Key(events.AboutNode, name, events.ReasonNotAvailable)) })\n\t\tif due {\n\t\t\treturn events.Writer{API: c.api, Now: c.now}.Write(ctx, a.about, a.reason, a.message)\n\t\t}\n\t\treturn nil // it has podCIDRs",
		test: testEventHangs,
	},
	{
		name: "status-waits-for-event", defect: "a status is written only when the event about it is stored",
		old: "\t\tstored, err = c.api.ApplyStatus(",
		new: "\t\tif about, message, due := c.announcer.alarms.Due(name, events.ReasonExhausted); due {\n" +
			"\t\t\t_ = events.Writer{API: c.api, Now: c.now}.Write(ctx, about, events.ReasonExhausted, message)\n\t\t}\n\t\tstored, err = c.api.ApplyStatus(",
		test: testEventHangs,
	},
	{
		name: "alarm-forgotten", defect: "an event on a ClusterCIDR is not written because its status is",
		old:  "\t\ta.about, a.message, due = c.announcer.alarms.Due(name, reason)\n\t\treturn a, due\n",
		new:  "\t\ta.about, a.message, due = c.announcer.alarms.Due(name, reason)\n\t\tcc, _ := c.clusterCIDRs.Get(name)\n\t\treturn a, due && cc == nil\n",
		test: testEventHangs,
	},
	{
		name: "newer-event-lost", defect: "what there is to say of a Node while an event of its name is on its way is never said",
		old:  "!due || a == written {\n",
		new:  "!due || written.reason != \"\" {\n",
		test: testEventNext,
	},
	{
		name: "untrue-event", defect: "an event is written that is not true any more",
		old:  "\te.reported = found\n",
		new:  "\tif len(found) > 0 || e.reported == nil {\n\t\te.reported = found\n\t}\n",
		test: testEventTrue,
	},
	{
		name: "events-before-nodes", defect: "under a limit of requests events take the place of podCIDRs",
		old:  "\tif c.nodeQueue.Len() == 0 {\n",
		new:  "\tif true {\n",
		test: testEventPasses,
	},
	{
		name: "nodes-before-events", defect: "events wait for ever while there are Nodes in the queue",
		old:  "c.now().Sub(c.announcer.since[key]) < eventPatience",
		new:  "c.now().Sub(c.announcer.since[key]) >= 0",
		test: testEventPasses,
	},
	{
		name: "end-waits-for-events", defect: "a process that is told to end waits for events that hang",
		old:  "context.WithTimeout(ctx, writes.Timeout) // A shutdown interrupts it: no decision depends on events.",
		new:  "context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout) // A shutdown",
		test: testEventEnds,
	},
	{
		name: "event-without-back-off", defect: "an event that cannot be stored is tried again at once whenever there is something else to say",
		old:  "\tif _, ok := c.announcer.since[key]; ok {\n",
		new:  "\tif _, ok := c.announcer.since[key]; ok && false {\n",
		test: testEventRetry,
	},

	// What another allocator has sent.
	{
		name: "takeover-without-a-wait", defect: "a new leader allocates while the last PATCH of a stock manager may still arrive", seen: inTree,
		old:  "\tdefault:\n\t\treturn true\n",
		new:  "\tdefault:\n\t\treturn false\n",
		test: testTakeover,
	},
	{
		name: "takeover-by-another-lease", defect: "a new Lease counts as a new cluster, although another allocator has given podCIDRs",
		old:  "\t\treturn anyPodCIDRs\n",
		new:  "\t\treturn false\n",
		test: testTakeover,
	},
	{
		name: "takeover-not-read-again", defect: "what arrived during the wait is not read before the first choice",
		old:  "return fresh.WaitShown(ctx, l.Health, l.Contents)",
		new:  "return true",
		test: testTakeoverSeen,
	},
	{
		name: "restart-without-a-wait", defect: "without leader election a block is chosen while the last PATCH of the process before may still arrive",
		old:  "delay: lease.OverWithoutLease(writes.Timeout)",
		new:  "delay: 0 * lease.OverWithoutLease(writes.Timeout)",
		test: testTakeover,
	},
	{
		name: "takeover-marked-too-early", defect: "a leader that ends during the wait tells its successor that it is over",
		old:  "\tpredecessor := l.Term.Predecessor()\n",
		new:  "\tpredecessor := l.Term.Predecessor()\n\tl.Term.Mark()\n",
		test: testTakeoverSeen,
	},
	{
		name: "term-of-any-label", defect: "the label of an earlier term hides that a stock manager has led since",
		old:  "lease.Labels[LabelTerm] == strconv.Itoa(int(*lease.Spec.LeaseTransitions)):\n",
		new:  "lease.Labels[LabelTerm] != \"\":\n\t\t_ = strconv.Itoa\n",
		test: testTermOnLease,
	},
	{
		name: "term-of-coordinated-election", defect: "under coordinated leader election, which counts no terms, the label of an earlier leader hides a later one",
		old:  "\tcase lease.Spec.Strategy != nil:\n",
		new:  "\tcase false:\n",
		test: testPredecessor,
	},
	{
		name: "term-labelled-at-once", defect: "a leader labels the Lease before it says that the writes of its predecessor are over",
		old:  "l := leaseLockOf(lock); l != nil && marked {\n",
		new:  "l := leaseLockOf(lock); l != nil && (true || marked) {\n",
		test: testTermOnLease,
	},

	// A lease inside of another one.
	{
		name: "own-lease-alone", defect: "without a leader migration a cloud-controller-manager asks nobody whether another version of it leads",
		file: "controllers/cloudmanager/outer.go",
		old:  "\tif !generic.LeaderElection.LeaderElect {\n",
		new:  "\tif !generic.LeaderElection.LeaderElect || !leadermigration.Enabled(&generic) {\n",
		test: "./controllers/cloudmanager TestWhichLeaseIsAround",
	},
	{
		name: "second-shown-again", defect: "after the wall clock was set back a renewal has the second of an earlier one, so a challenger that has read only that one takes the lease too soon",
		file: "controllers/lease/seconds.go",
		old:  "\tcase shown < second: //",
		new:  "\tcase shown < second || true: //",
		test: "./controllers/nodeipam TestSimulationHistories",
	},
	{
		name: "old-second-shown-again", defect: "the same, if the earlier renewal is longer ago than the lease",
		file: "controllers/lease/seconds.go",
		old:  "return p.first <= second && second <= p.last }",
		new:  "return max(p.first, s.last-15) <= second && second <= p.last }",
		test: "./controllers/lease TestClockRepeatsASecond",
	},
	{
		name: "renewals-run-ahead", defect: "with a short retry period the times of renewals run ahead of all clocks once the wall clock was set back",
		file: "controllers/lease/seconds.go",
		old:  "\tcase age < time.Second:\n",
		new:  "\tcase age < time.Second && second == s.last:\n",
		test: "./controllers/lease TestNoSecondIsShownAgain",
	},
	{
		name: "claim-elsewhere-stays", defect: "a claim that names another provider's pool by now never goes, and its IPAddress is named as one without a claim",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "\tcase !ours:\n\t\treturn false\n\tcase c.ref != nil && key",
		new:  "\tcase !ours || c.ref == nil:\n\t\treturn false\n\tcase key",
		test: "./controllers/clusteripam/incluster/book TestAClaimThatNamesAnotherProvider",
	},
	{
		name: "infoblox-claim-elsewhere-stays", defect: "a claim that names another provider's pool by now never goes, and its host record stays",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "ofInfoblox(claim.Spec.PoolRef) || prepared && claim.DeletionTimestamp != nil\n",
		new:  "ofInfoblox(claim.Spec.PoolRef) || prepared && false\n",
		test: "./controllers/clusteripam/infoblox TestClaimThatNamesAnotherProvider",
	},
	{
		name: "older-version-unseen", defect: "a controller in a cloud-controller-manager writes on after the Lease around its own has expired",
		file: "controllers/cloudmanager/campaign.go",
		old:  "\treturn l.around.held()\n",
		new:  "\th := l.around.held()\n\treturn lease.Around{UID: h.UID, Transitions: h.Transitions}\n",
		test: "./controllers/cloudmanager TestRandomHistories",
	},
	{
		name: "address-kept-for-nobody", defect: "a claim that is being deleted and never had an IPAddress keeps an address from those that wait",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "c.deleting() && hadOne:",
		new:  "c.deleting() && (hadOne || true):",
		test: "./controllers/clusteripam/incluster/book TestAClaimWithoutIPAddressKeepsNoAddress",
	},
	{
		name: "standby-follows-nobody", defect: "a standby of a cloud-controller-manager that wanted to lead begins to count a lease only when it leads",
		file: "controllers/cloudmanager/campaign.go",
		old:  "record.HolderIdentity != \"\" && !bytes.Equal",
		new:  "false && !bytes.Equal",
		test: "./controllers/cloudmanager TestRandomHistories",
	},
	{
		name: "standby-follows-the-first", defect: "a standby of a cloud-controller-manager takes the Lease for renewed when it is not",
		file: "controllers/cloudmanager/campaign.go",
		old:  "\tl.read = raw\n",
		new:  "\tif l.read == nil {\n\t\tl.read = raw\n\t}\n",
		test: "./controllers/cloudmanager TestStandbyFollows",
	},
	{
		name: "another-leader-is-this-one", defect: "after a pause at its beginning a cloud-controller-manager takes the next leader for itself",
		file: "controllers/cloudmanager/campaign.go",
		old:  "if p.outer != nil && wait",
		new:  "if false && wait",
		test: "./controllers/cloudmanager TestPausedAtTheBeginning",
	},
	{
		name: "panic-ends-the-cloud", defect: "a panic before the controller runs ends a cloud-controller-manager",
		file: "controllers/cloudmanager/campaign.go",
		old:  "return p.runs.Guard(ctx, func() error { return p.serveNodes(ctx, fence) })",
		new:  "return p.serveNodes(ctx, fence)",
		test: "./controllers/cloudmanager TestPanicIsAnError",
	},
	{
		name: "around-by-the-wall-clock", defect: "a wall clock that is set back in a pause prolongs the lease around",
		file: "controllers/lease/lock.go",
		old:  "max(f.renewed.wall.Add(f.duration).Sub(aroundExpires), f.duration-f.aroundLeft+f.aroundRead.until(f.renewed))",
		new:  "f.renewed.wall.Add(f.duration).Sub(aroundExpires)",
		test: testEnter,
	},
	{
		name: "around-through-a-suspension", defect: "a wall clock that is set back after a suspension prolongs the lease around",
		file: "controllers/lease/lock.go",
		old:  "f.duration-f.aroundLeft+f.aroundRead.until(f.renewed)",
		new:  "f.duration-f.aroundLeft+f.renewed.monotonic-f.aroundRead.monotonic",
		test: testEnter,
	},
	{
		name: "around-longer-than-a-lease", defect: "a wall clock that is set back just after the renewal of the lease around makes that one good for longer",
		file: "controllers/lease/lock.go",
		old:  "min(aroundExpires.Sub(f.sending.wall), f.duration)",
		new:  "aroundExpires.Sub(f.sending.wall)",
		test: testEnter,
	},
	{
		name: "one-lease-for-both-elections", defect: "the shared Lease of a leader migration may be the program's own",
		file: "controllers/internal/migrationfile/migrationfile.go",
		old:  "if c.LeaderElection.LeaderElect && c",
		new:  "if false && c",
		test: "./controllers/internal/migrationfile TestValidate",
	},

	// etcd restored from a backup.
	{
		name: "restored-leader-ends", defect: "a leader whose lease went back ends, and its successor knows only what the backup has",
		old:  "\tf.stamps = append(f.stamps, stamp(*record)) // this process wrote it\n",
		new:  "",
		test: "./controllers/lease TestRestoredLease",
	},
	{
		name: "restore-not-seen", defect: "nobody knows that the lease went back",
		old:  "\tf.renewals.WentBack = f.renewals.Sent\n\tf.stamps",
		new:  "\tf.stamps",
		test: "./controllers/lease TestWentBack",
	},
	{
		name: "lease-made-anew-unseen", defect: "a lease that is gone is made anew, and nobody knows that it was gone",
		old:  "\tif f.duration > 0 {\n",
		new:  "\tif false {\n",
		test: "./controllers/lease TestWentBack",
	},
	{
		name: "another-term-is-ours", defect: "a lease of another term of the same holder is taken for an earlier one of this term",
		old:  " || !record.AcquireTime.Time.Equal(f.acquired) ||\n",
		new:  " ||\n",
		test: "./controllers/lease TestWentBack",
	},
	{
		name: "missing-is-gone", defect: "a Node that is missing from a list frees its blocks at once",
		old:  "\tb.hold(d.owner(), d.blocks)\n",
		new:  "",
		test: "./controllers/nodeipam TestDoubt",
	},
	{
		name: "earlier-renewal-proves", defect: "a renewal that was sent before the list proves that etcd has everything",
		old:  "r.Proven > d.sent",
		new:  "r.Proven >= d.sent",
		test: "./controllers/nodeipam TestDoubt",
	},
	{
		name: "renewal-after-restore-proves", defect: "a renewal proves that etcd has everything although the lease went back",
		old:  "case r.WentBack > 0 && d.sent <= r.WentBack+ListedWithin:",
		new:  "case r.WentBack > 0 && r.Proven <= d.sent:",
		test: "./controllers/nodeipam TestDoubt",
	},
	{
		name: "doubt-for-ever", defect: "the blocks of a Node that is missing from a list are never free again",
		old:  "c.nodeQueue.AddAfter(name, doubtInterval)",
		new:  "",
		test: "./controllers/nodeipam TestDoubt",
	},
	{
		name: "worker-frees-missing", defect: "a worker that finds a Node missing frees its blocks before it is known why",
		old:  "\tcase apierrors.IsNotFound(err), err == nil && c.ahead(node):\n\t\treturn nil, nil\n",
		new:  "\tcase apierrors.IsNotFound(err):\n\t\tif uid, known := b.UID(name); known {\n\t\t\tb.NodeGone(name, uid)\n\t\t}\n\t\treturn nil, nil\n\tcase err == nil && c.ahead(node):\n\t\treturn nil, nil\n",
		test: "./controllers/nodeipam TestDoubt",
	},
	{
		name: "no-reclaim", defect: "a Node that registers again after a restore gets other blocks than its machine uses",
		old:  "b.hold(OwnerOf(node.UID), d.blocks)",
		new:  "",
		test: "./controllers/nodeipam TestDoubt",
	},

	// What the model finds.
	{
		name: "released-while-unanswered-in-the-model", defect: "the model does not notice that a lease is released while a write without an answer may still arrive",
		old:  "\t\tif d := l.fence.Unanswered(); d > 0 {\n",
		new:  "\t\tif d := l.fence.Unanswered(); d < 0 {\n",
		test: testModel,
	},
	{
		name: "stored-forgotten", defect: "a refusal undoes a write before it that was answered, and that the watch does not show yet",
		old:  "if b.Written(node, c.now(), !awaited); awaited {",
		new:  "if awaited {",
		test: testStored,
	},
	{
		name: "old-event-replaces", defect: "an old event of a Node that was created again since takes away what the start has given the new one",
		old:  "\t\tif is, ok := now.(*v1.Node); ok {\n\t\t\tc.heard(is)\n",
		new:  "\t\tif is, ok := now.(*v1.Node); ok {\n\t\t\tc.heard(is)\n\t\t\tif uid, known := b.UID(name); known && uid != is.UID {\n\t\t\t\tb.NodeGone(name, uid)\n\t\t\t}\n",
		test: "./controllers/nodeipam TestSimulationHistories",
	},
	{
		name: "unkept-podcidrs-forgotten", defect: "podCIDRs that an admission policy leaves out are not written again",
		old: "c.nodeQueue.AddAfter(node.Name, receiptLasts) // No event comes if an admission policy left the podCIDRs out.",
		new: "",
	},
	{
		name: "unkept-removal-forgotten", defect: "a finalizer that an admission policy puts back is not taken away again",
		old: "\tc.clusterCIDRQueue.AddAfter(cc.Name, queues.RetryMax)\n",
		new: "",
	},
	{
		name: "every-finalizer-waited-for", defect: "Nodes wait for the finalizers of all ClusterCIDRs whose writes hang, one after the other",
		old:  "\t\tif _, known := c.awaited[name]; !known {\n",
		new:  "\t\tif _, known := c.awaited[name]; !known || true {\n",
		test: "./controllers/nodeipam TestFinalizersThatHang",
	},
	{
		name: "removals-before-nodes", defect: "Nodes wait for the finalizer of a new ClusterCIDR until those of all that are deleted are gone",
		old:  "\t\tif urgent = c.nodesAwait(b) &&",
		new:  "\t\tif urgent = false && c.nodesAwait(b) &&",
		test: "./controllers/nodeipam TestRemovalsThatHang",
	},
	{
		name: "finalizer-lost-is-new", defect: "whoever takes a finalizer away at each event makes the controller write without a pause",
		old:  "\tcase !finalized && stays:\n",
		new:  "\tcase !finalized && stays:\n\t\tdelete(t, name)\n\tcase false:\n",
		test: "./controllers/nodeipam TestFinalizerTakenAwayAtEachEvent",
	},
	{
		name: "unkept-health-forgotten", defect: "health says ok while podCIDRs that are not kept are about to be written again",
		old:  "\t\treturn writes.Later(d.pause)\n",
		new:  "\t\tc.nodeQueue.AddAfter(name, d.pause)\n\t\treturn nil\n",
		test: "./controllers/nodeipam TestWritesThatAreNotKept",
	},
	{
		name: "own-write-accused", defect: "where a policy takes annotations away, every write of this process counts as another allocator's",
		old:  "own = e.answered &&",
		new:  "own = false && e.answered &&",
		test: "./controllers/nodeipam TestOwnWriteWithoutItsAnnotations",
	},
	{
		name: "unnamed-writer-unseen", defect: "another allocator that leaves no name and chooses alike is taken for this process",
		old:  "\tnamed := wrote(node) &&",
		new:  "\tnamed := false && wrote(node) &&",
		test: testOtherWrote,
	},
	{
		name: "served-in-doubt", defect: "after a restore of etcd a Node that is back already gets other blocks than its machine uses",
		old:  "if b.Undecided(name) { // The next renewal",
		new:  "if false { // The next renewal",
		test: "./controllers/nodeipam TestDoubtAboutANodeThatIsBackAlready",
	},
	{
		name: "flags-stored-otherwise", defect: "a ClusterCIDR of the flags that is stored otherwise than it was sent is made again under the next name, without end",
		old:  "\t\tc.storedOtherwise[name] = stored.UID\n",
		new:  "",
		test: "./controllers/nodeipam TestFlagsThatAreStoredOtherwise",
	},
	{
		name: "doubt-passed-over", defect: "a worker that sees another Node of a name before its event frees what may be in doubt",
		old:  "if uid, known := b.UID(name); known && uid != node.UID {\n\t\treturn nil, nil // The other Node's event",
		new:  "if false {\n\t\treturn nil, nil // The other Node's event",
		test: "./controllers/nodeipam TestDoubtWhenTheWorkerWasFaster",
	},
	{
		name: "said-with-what-is-gone", defect: "the event on a Node that waits without any ClusterCIDR is told apart by ClusterCIDRs that are gone",
		old:  "\tcase pools == 0: // no matter which ClusterCIDR was the last to go\n",
		new:  "\tcase pools == 0 && len(w.refusals) == 0:\n",
		test: "./controllers/nodeipam/allocator TestReasonsWithoutClusterCIDRs",
	},
	{
		name: "no-event-yet", defect: "as long as the controller has heard of no Node, it takes from the cache what no event has told",
		old:  "\t\tc.heardVersion = c.nodesAsOf // Whatever Node comes is newer than that, or already gone.\n",
		new:  "",
		test: "./controllers/nodeipam TestSimulationHistories",
	},
	{
		name: "cache-runs-ahead", defect: "a Node gets blocks as soon as it is in the cache, before the events of others have been handled that came first",
		old: "\tcase apierrors.IsNotFound(err), err == nil && c.ahead(node):\n",
		new: "\tcase apierrors.IsNotFound(err):\n",
	},
	{
		name: "over-too-early", defect: "a wall clock that was set forward makes a write without an answer over before it is",
		old:  "\t\tp.over = f.renewed.monotonic + f.duration\n",
		new:  "\t\tp.over = p.entered.monotonic + f.left(p.entered)\n",
		test: testUnanswered,
	},
	// Events: what people are told.
	{
		name: "two-look-alike", defect: "processes without leader election take each other's writes for their own",
		old:  "return host + \"_\" + string(uuid.NewUUID())",
		new:  "_ = uuid.NewUUID\n\treturn host[:0]",
		test: testAllocator,
	},
	{
		name: "replaced-name-unseen", defect: "two processes that write the same block into one Node do not notice each other",
		old:  "(!clustercidr.ShowsPodCIDRs(was) || by.Replaced)",
		new:  "!clustercidr.ShowsPodCIDRs(was)",
		test: testOtherWrote,
	},
	{
		name: "deposed-leader-accuses", defect: "a leader that was deposed reports its successor as another allocator",
		old:  "\tif err != nil {\n\t\treturn err\n\t}\n\tleave()\n",
		new:  "\tif err == nil {\n\t\tleave()\n\t}\n",
		test: "./controllers/nodeipam TestDeposedLeaderAccusesNobody",
	},
	{
		name: "earlier-leader-accused", defect: "a write of an earlier leader that arrives late counts as another allocator's",
		old:  " || c.earlier.Wrote(node, c.now()) {",
		new:  " {",
		test: testEarlier,
	},
	{
		name: "failing-for-ever", defect: "a write that has succeeded at last still counts as failing",
		old: "\t\tdelete(h.failures[kind], name)\n",
		new: "\t\t_ = name\n",
	},
	{
		name: "failing-writes-untold", defect: "a write that fails for ever, but not for a missing permission, is not told",
		old:  "return f.lasts || now.Sub(f.since) >= FailsFor",
		new:  "return f.lasts",
		test: testHealth,
	},
	{
		name: "refused-keeps-the-last-block", defect: "a Node whose every write is refused keeps the last block from a Node that nobody refuses",
		old:  "e.state == refused && now.Sub(e.failingSince) >= failureLasts && b.inTheWay(e) {",
		new:  "e.state == refused && now.IsZero() && b.inTheWay(e) {",
		test: "./controllers/nodeipam TestRefusedNodesDoNotPassTheLastBlockOn",
	},
	{
		name: "created-and-never-seen", defect: "a ClusterCIDR of the flags that goes before the watch has shown it is not made again",
		old:  "\"ipv6\", cc.Spec.IPv6)\n\t\tc.clusterCIDRQueue.AddAfter(name, queues.RetryMax)\n",
		new:  "\"ipv6\", cc.Spec.IPv6)\n",
		test: "./controllers/nodeipam TestFlagsClusterCIDRThatIsNeverSeen",
	},
	{
		name: "unkept-status-untold", defect: "a status that is answered with 200 and not kept is no problem for health",
		old:  "if !conditions.Shows(withoutTimes(stored), withoutTimes(d.want)) {",
		new:  "if stored.Conditions == nil && d.due != true {",
		test: "./controllers/nodeipam TestWritesThatAreNotKept",
	},
	{
		name: "unkept-finalizer-untold", defect: "a finalizer that is answered with 200 and not kept is no problem for health",
		old:  "if stored && p.Cause == clustercidr.CauseNotKept {",
		new:  "if false {",
		test: "./controllers/nodeipam TestWritesThatAreNotKept",
	},
	{
		name: "gave-way-comes-first", defect: "two Nodes whose every write is refused hand the last block to and fro, and a third one that nobody refuses waits",
		old:  "e.gaveWay, b.gaveWay = last.Add(time.Nanosecond), now",
		new:  "b.gaveWay, last = now, last.Add(0)",
		test: "./controllers/nodeipam TestRefusedNodesDoNotPassTheLastBlockOn",
	},
	{
		name: "restore-is-for-ever", defect: "after a restore of etcd, no lost answer is ever found out about again",
		old:  "return e.wentBack == wentBack || b.lost(e)",
		new:  "return wentBack == 0 || b.lost(e)",
		test: "./controllers/nodeipam TestLostAnswerLongAfterARestore",
	},
	{
		name: "finalizer-409-untold", defect: "a finalizer that is refused with 409 is no problem for health",
		old:  "tried = nil // An event is coming.",
		new:  "tried, err = nil, nil // An event is coming.",
		test: "./controllers/nodeipam TestFinalizerRefusedWith409",
	},
	{
		name: "restored-block-freed", defect: "a block that a Node had before a restore of etcd is free when a write of it is refused afterwards",
		old:  "if e.state.revocable() {      // No earlier",
		new:  "if first {      // No earlier",
		test: "./controllers/nodeipam TestBlockOfBeforeTheRestore",
	},
	{
		name: "gave-way-for-ever", defect: "a Node that has given its block up once comes after all others for ever",
		old:  "\t\treturn e.gaveWay\n",
		new:  "\t\treturn e.gaveWay.AddDate(100, 0, 0)\n",
		test: "./controllers/nodeipam TestNodeThatGaveWayOnce",
	},
	{
		name: "no-answer-keeps-the-last-block", defect: "a Node whose every write gets no answer keeps the last block from a Node that nobody refuses",
		old:  "now.Sub(e.failingSince) < failureLasts, !b.inTheWay(e):",
		new:  "true:",
		test: "./controllers/nodeipam TestNodeWhoseWritesGetNoAnswer",
	},
	{
		name: "read-is-proof-enough", defect: "a read counts before a renewal of the lease has shown that etcd was not restored before it",
		old:  "!e.read || r.Proven <= e.readAfter || ",
		new:  "!e.read || ",
		test: "./controllers/nodeipam TestRestoreWhileAWriteIsHeldBack",
	},
	{
		name: "read-of-before-a-write", defect: "a read of a Node counts for a write that was sent after it",
		old:  "e.tried, e.read = held, false",
		new:  "e.tried = held",
		test: "./controllers/nodeipam/allocator TestConclude",
	},
	{
		name: "deleted-and-not-asked-for", defect: "a Node that is being deleted behind a finalizer keeps the last block, and nobody asks whether it was stored",
		old:  "\t\t\td.pause, d.read = b.Settle(node, now, renewals.WentBack)\n",
		new:  "",
		test: "./controllers/nodeipam TestDeletedNodeThatKeepsTheLastBlock",
	},
	{
		name: "stored-once-keeps-the-last-block", defect: "a Node that once was answered with 200, and since then gets no answer, keeps the last block",
		old:  "\tcase !ok:\n\t\treturn 0, false\n\tcase e.read, ",
		new:  "\tcase !ok, e.stored:\n\t\treturn 0, false\n\tcase e.read, ",
		test: "./controllers/nodeipam TestStoredOnceAndThenNoAnswer",
	},
	{
		name: "written-after-a-restore", defect: "after a restore of etcd a Node is written podCIDRs that another Node shows, and has them as soon as a webhook lets that pass",
		old:  "return e.wentBack == wentBack || b.lost(e)",
		new:  "return e.wentBack == wentBack",
		test: "./controllers/nodeipam TestNodeWhoseReservationIsLost",
	},
	{
		name: "written-while-partly-taken", defect: "after a restore of etcd a Node is written a block and a part of another one, of which another Node shows the rest",
		old:  "return e.wentBack == wentBack || b.lost(e)",
		new:  "return e.wentBack == wentBack || b.taken(e)",
		test: "./controllers/nodeipam TestReservationLostAfterARestore",
	},
	{
		name: "lost-in-a-restore-and-free", defect: "blocks that a Node gave up after a restore of etcd are allocated to others, although its machine may use them",
		old:  "if e.wentBack != r.WentBack && !b.taken(e) {",
		new:  "if e.wentBack != r.WentBack && !b.taken(e) && now.IsZero() {",
		test: "./controllers/nodeipam TestReservationLostAfterARestore",
	},
	{
		name: "excluded-and-regained", defect: "a Node that registers again after a restore of etcd gets a block back that is excluded by now",
		old:  "return ok && p.Allocates(d.blocks) && p.Matches(node)",
		new:  "return ok && p.State == ipam.Enabled && p.Matches(node)",
		test: "./controllers/nodeipam TestDoubt",
	},
	{
		name: "listed-and-not-heard", defect: "while handlers hear of a list, a Node gets podCIDRs that another Node in the list has",
		old: "case c.waitsForList(node):",
		new: "case c.waitsForList(node) && c.workers < 0:",
	},
	{
		name: "listed-and-heard-too-early", defect: "a Node in a list counts as known when handlers hear of it, although the cache is ahead and the state does not know it",
		old:  "ended || shown != nil && shown.UID == uid",
		new:  "ended || exists && is.UID == uid",
		test: "./controllers/nodeipam TestListIsHeardInTheOrderOfNames",
	},
	{
		name: "missed-and-chosen", defect: "while changes are known not to be seen, Nodes get podCIDRs",
		old: "if c.waitsForMissed(b, d.node) {",
		new: "if c.waitsForMissed(b, d.node) && c.workers < 0 {",
	},
	{
		name: "missed-and-chosen-at-once", defect: "while changes are known not to be seen, blocks are chosen as soon as a Node or a ClusterCIDR is heard of",
		old: "if c.state.AllocationDue() && c.allKnown() {",
		new: "if c.state.AllocationDue() {",
	},
	{
		name: "missed-and-not-read", defect: "when all watches are open again, what was missed counts as known, although a list or a watch can still be behind",
		old: "if k.kinds[i].Know(ctx) {",
		new: "if len(k.kinds) > 0 || k.kinds[i].Know(ctx) {",
	},
	{
		name: "missed-while-others-are", defect: "a kind of object is read only when no other kind has a gap, so nothing is known where watches end all the time",
		old:  "if g := kind.Gap(); !g.Open && ",
		new:  "if g := kind.Gap(); !slices.ContainsFunc(k.gaps(), func(g health.Gap) bool { return g.Open }) && ",
		test: "./controllers/nodeipam/seen TestRun",
	},
	{
		name: "missed-and-healthy", defect: "health says nothing while no Node gets podCIDRs, because watches end before everything is read",
		old:  "if since.IsZero() || time.Since(since) < long {",
		new:  "if since.IsZero() || long > 0 {",
		test: "./controllers/nodeipam/seen TestRun",
	},
	{
		name: "missed-until-read", defect: "a Node that waits for ServiceCIDRs is not woken when the API server turns out not to have them",
		old:  "case !missed:\n\t\tthen()\n\tcase k.CatchUp(ctx):",
		new:  "case !missed:\n\tcase k.CatchUp(ctx):\n\t\tthen()",
		test: "./controllers/nodeipam/seen TestRun",
	},
	{
		name: "opening-is-no-gap", defect: "Nodes get podCIDRs while a watch is requested and not open",
		old:  "defer time.AfterFunc(opening, r.opensLate).Stop()",
		new:  "_ = r.opensLate",
		test: "./controllers/nodeipam/health TestGaps",
	},
	{
		name: "lost-answer-of-an-informer", defect: "nothing is seen any more after the answer to a list or watch of an informer was lost",
		old:  "if r.fail(errUnanswered, lost); lost {",
		new:  "if r.fail(errUnanswered, lost); false {",
		test: "./controllers/nodeipam/health TestLostAnswer",
	},
	{
		name: "lost-answer-of-a-read", defect: "no Node gets podCIDRs any more after the answer to a consistent read was lost",
		old:  "return context.WithTimeout(ctx, answered)",
		new:  "return context.WithCancel(ctx)",
		test: "./controllers/nodeipam/fresh TestLostAnswer",
	},
	{
		name: "gone-from-a-list", defect: "no Node gets podCIDRs any more after a Node went while a watch began with a list",
		old: "delete(l.reading, name)",
		new: "_ = name",
	},
	{
		name: "missed-where-reads-are-404", defect: "no Node gets podCIDRs while reads reach an API server that does not have ServiceCIDRs, and the watch another one",
		old:  "contents.Read = contents.UnlessAbsent(stop)",
		new:  "contents.Read = contents.Read.UnlessAbsent(func() {})",
		test: "./controllers/nodeipam TestServiceCIDRsThatReadsDoNotHave",
	},
	{
		name: "missed-by-the-gone", defect: "an event says that a Node waits which is gone, or has podCIDRs by now",
		old:  "c.listed.WaitsNoMore(name)",
		new:  "_ = c.listed.WaitsNoMore",
		test: "./controllers/nodeipam TestNodesThatNeedNothingDoNotWait",
	},
	{
		name: "missed-uncounted", defect: "the metric of pending Nodes does not count those that wait for what was missed",
		old:  "f.Pending[pending.Missed]++",
		new:  "f.Pending[pending.Missed] += 0",
		test: "./controllers/nodeipam TestNodesThatNeedNothingDoNotWait",
	},
	{
		name: "missed-and-let-go", defect: "a ClusterCIDR loses its finalizer while changes are not seen, and a Node that uses it may be among them",
		old: "b.InUse(name) || known.State == ipam.Terminating && c.waitsForUsers(name)",
		new: "b.InUse(name)",
	},
	{
		name: "missed-and-deleted", defect: "the ClusterCIDR of earlier flags is deleted while changes are not seen, and a Node that uses it may be among them",
		old:  "b.InUse(cc.Name) || c.waitsForUsers(cc.Name)",
		new:  "b.InUse(cc.Name)",
		test: "./controllers/nodeipam TestClusterCIDRsStayWhileSomethingIsMissed",
	},
	{
		name: "missed-and-kept", defect: "a ClusterCIDR that stayed because changes were not seen stays for ever",
		old:  "c.clusterCIDRQueue.Add(name)\n\t}\n\tclear(c.mayBeInUse)",
		new:  "_ = name\n\t}\n\tclear(c.mayBeInUse)",
		test: "./controllers/nodeipam TestClusterCIDRsStayWhileSomethingIsMissed",
	},
	{
		name: "missed-and-not-woken", defect: "Nodes that joined while changes were not seen are not queued when they are",
		old: "c.safely(func() { c.with(func(*allocator.State) { c.heardAll() }) })",
		new: "c.safely(func() { c.with(func(*allocator.State) {}) })",
	},
	{
		name: "missed-kind-forgotten", defect: "Nodes get podCIDRs while changes of ServiceCIDRs are known not to be seen",
		old: "add(\"ServiceCIDRs\", c.knowServiceCIDRs)",
		new: "_ = c.knowServiceCIDRs",
	},
	{
		name: "missed-and-only-cached", defect: "what was missed counts as known when the cache shows it, although handlers are behind and the state does not have it",
		old:  "c.listed.Cached(node)",
		new:  "_ = node.UID",
		test: "./controllers/nodeipam TestKnownWhenHeard",
	},
	{
		name: "missed-and-written-again", defect: "a block that was written and not kept is not written again while changes are not seen",
		old:  "if c.seen.Missed() == \"\" || b.MayBeWritten(node) {",
		new:  "if c.seen.Missed() == \"\" {",
		test: "./controllers/nodeipam TestNodesWaitForWhatWasMissed",
	},
	{
		name: "missed-unnoticed", defect: "a watch that breaks off while it works is no sign that changes are not seen",
		old:  "if time.Since(r.began) < lasts-lasts/100 {",
		new:  "if lasts < 0 {",
		test: "./controllers/nodeipam/health TestGaps",
	},
	{
		name: "back-late", defect: "after an outage of the API server, each kind of object is watched again after a pause of its own, of up to a minute",
		old:  "if err == nil || !passes(err) {",
		new:  "if err == nil || ctx != nil {",
		test: "./controllers/nodeipam/health TestBackSoon",
	},
	{
		name: "versions-went-back", defect: "after a restore of etcd to lower resource versions, new ClusterCIDRs count as gone for ever",
		old:  "all.Gone.read.Store(nil)",
		new:  "all.Gone.read.Load()",
		test: "./controllers/nodeipam TestVersionsThatWentBack",
	},
	{
		name: "heard-goes-back", defect: "a Node that a handler hears of while changes are caught up with counts as not heard of, and waits for the next event of any Node",
		old:  "CompareResourceVersion(heard, asOf)",
		new:  "CompareResourceVersion(max(heard, c.heardVersion), asOf)",
		test: "./controllers/nodeipam TestVersionsThatWentBack",
	},
	{
		name: "shown-and-lost", defect: "podCIDRs that a restore of etcd took from a Node are written again, whatever has become of them",
		old:  "if e.state == Assigned { // A restore",
		new:  "if e.state == Assigned && e.uid == \"\" { // A restore",
		test: "./controllers/nodeipam TestPodCIDRsLostInARestore",
	},
	{
		name: "objects-go-during-every-read", defect: "the start never ends in a cluster in which an object is deleted during every read of all objects",
		old:  "if !time.Now().Before(ask) {",
		new:  "if ask.IsZero() {",
		test: "./controllers/nodeipam TestFreshWhileObjectsGo",
	},
	{
		name: "came-and-went-and-allocates", defect: "a ClusterCIDR that came and went before the start allocates when an old cache shows it, and its finalizer is gone",
		old:  "return err == nil && order <= 0\n",
		new:  "return err == nil && order < -1\n",
		test: "./controllers/nodeipam TestClusterCIDRThatCameAndWent",
	},
	{
		name: "failed-reads-untold", defect: "a Node waits for a read that fails for good, and health does not say so",
		old:  "case err != nil && !writes.NotThere(err):\n\t\t\treturn fmt.Errorf(\"read Node",
		new:  "case err != nil && without:\n\t\t\treturn fmt.Errorf(\"read Node",
		test: "./controllers/nodeipam TestHeldBackAndReadsFail",
	},
	{
		name: "undecodable-status-for-ever", defect: "the status of a ClusterCIDR that cannot be decoded is written again and again",
		old:  "if decodeInto(map[string]any{\"status\": u.Object[\"status\"]}, cc) != nil {",
		new:  "if cc.Name == u.GetName() {",
		test: "./controllers/nodeipam TestDecode",
	},
	{
		name: "lost-and-written-again", defect: "blocks that may have been written are written again although somebody else has them by now, or their ClusterCIDR may not give them",
		old: "\tcase e.read, b.lost(e), e.from != nil && e.from.ID != b.pools[e.pool].ID:\n",
		new: "\tcase e.read:\n",
	},
	{
		name: "read-of-one-that-goes", defect: "a Node that is being deleted keeps blocks that a read has shown not to be stored, and their ClusterCIDR with them",
		old:  "\t\t\tc.conclude(b, node, now, renewals)\n",
		new:  "",
		test: "./controllers/nodeipam TestSimulationHistories",
	},
	{
		name: "left-out-is-no-failure", defect: "a Node whose podCIDRs are answered with 200 and left out keeps the last block from a Node that could have it",
		old:  "\te.answered = true\n\tif !shown {\n",
		new:  "\te.answered = true\n\tif e.writes != nil {\n\t\te.failingSince = time.Time{}\n\t}\n\tif !shown {\n",
		test: "./controllers/nodeipam TestNodeWhosePodCIDRsAreLeftOutForGood",
	},
	{
		name: "no-receipt-after-a-restore", defect: "health does not tell of podCIDRs that were lost with a restore of etcd and are not kept now",
		old:  "\t\te.storedAt = now\n",
		new:  "\t\t_ = now\n",
		test: "./controllers/nodeipam TestNotKeptAfterARestore",
	},
	{
		name: "stopped-between-two-clocks", defect: "a process that is stopped before it asks its lease takes a write for over too early",
		old:  "\t\tleft := c.fence.Unanswered() // read before the clock: a pause between the two can only make the result longer\n\t\tnow := c.now()\n",
		new:  "\t\tnow := c.now()\n\t\tleft := c.fence.Unanswered()\n",
		test: "./controllers/nodeipam TestStoppedBetweenTwoClocks",
	},
	{
		name: "gives-way-to-anybody", defect: "a Node whose writes fail waits behind a pending Node that cannot use its block",
		old:  "if p.State == ipam.Enabled && p.Gives(block) && slices.Contains(b.ledger.Full(&p.Pool), ipam.FamilyOf(block)) && b.wanted(p) {",
		new:  "if b.settled.Len() > 0 || p == nil {",
		test: "./controllers/nodeipam/allocator TestGivesWayOnlyToWhoGains",
	},
	{
		name: "vacant-while-it-was-held", defect: "a standby of node-ipam-controller waits for another allocator after each crash of a leader with a long lease",
		old:  "lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)",
		new:  "lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * 0)",
		test: "./controllers/lease TestVacantAfterALongLease",
	},
	{
		name: "end-waits-for-informers", defect: "a leader that ends keeps its Lease for as long as an informer sleeps after a list that was refused",
		old:  "\tdefer wg.Wait()\n\tctx, cancel := context.WithCancel(ctx)\n",
		new:  "\tdefer wg.Wait()\n\tdefer c.informers.Shutdown()\n\tctx, cancel := context.WithCancel(ctx)\n",
		test: "./controllers/nodeipam TestRunEndsBeforeItsInformers",
	},
	{
		name: "place-by-the-own-clock", defect: "the place of a Node that gave way goes by the clock of this machine, and the others' by that of the API server",
		old:  "e.gaveWay, b.gaveWay = last.Add(time.Nanosecond), now",
		new:  "e.gaveWay, b.gaveWay, last = now, now, last.Add(0)",
		test: "./controllers/nodeipam TestRefusedNodesAndClocksThatDiffer",
	},
	{
		name: "sent-before-the-restore", defect: "a write that is sent when a restore of etcd is known counts as one of before it",
		old:  "renewals.WentBack) // From now on",
		new:  "0) // From now on",
		test: "./controllers/nodeipam TestFirstWriteAfterTheRestoreIsLost",
	},
	{
		name: "other-podcidrs-end-a-doubt", defect: "a block in doubt is free when a Node of the name shows other podCIDRs, which a second restore brought back",
		old:  "shown, _ := clustercidr.PodCIDRsOf(node); slices.Equal(shown, d.blocks)",
		new:  "shown, _ := clustercidr.PodCIDRsOf(node); len(shown) > 0",
		test: "./controllers/nodeipam TestDoubt",
	},
	{
		name: "exists-for-ever", defect: "the creation of the ClusterCIDR of flags is answered with AlreadyExists for ever, and nobody is told",
		old:  "if err := c.wroteInto(said, created); err != nil {",
		new:  "if err := c.wroteInto(said, created); err == nil && false {",
		test: "./controllers/nodeipam TestCreationThatIsAnsweredWithAlreadyExists",
	},
	{
		name: "made-again-at-each-start", defect: "the ClusterCIDR of flags is made again at each start where a policy takes its label away",
		old:  "case cc.DeletionTimestamp == nil && c.flagsSay(cc) && !fromflags.Disabled(cc):\n\t\t\t// An earlier attempt",
		new:  "case cc.DeletionTimestamp == nil && fromflags.Made(cc) && c.flagsSay(cc):\n\t\t\t// An earlier attempt",
		test: "./controllers/nodeipam TestFollowFlags",
	},
	{
		name: "vacant-lease-trusted", defect: "node-ipam-controller trusts its own old Lease, and does not wait for an allocator that had another one meanwhile",
		old:  "anyPodCIDRs && l.Term.Vacant() > vacantTooLong:",
		new:  "anyPodCIDRs && l.Term.Vacant() < 0:",
		test: testTakeover,
	},
	{
		name: "throttled-means-sent", defect: "a request that waited too long for --node-ipam-kube-api-qps counts as a write without an answer",
		old:  "return NotItsTurn(err) || errors.As(err, &network)",
		new:  "return NotItsTurn(err) && !errors.Is(err, ErrThrottled) || errors.As(err, &network)",
		test: "./controllers/writes TestLimiter",
	},
	{
		name: "exclusions-dropped", defect: "of what users have excluded from the ClusterCIDRs of earlier flags, what is more than the API takes is dropped",
		old:  "range clustercidr.Summary(all, MaxExcluded) {",
		new:  "range all[:min(len(all), MaxExcluded)] {",
		test: "./controllers/nodeipam TestExclusionsOfSeveralFlags",
	},
	{
		name: "finalizers-that-are-answered", defect: "a Node gives up a ClusterCIDR while the finalizers before it are being answered",
		old:  "\t\tc.awaited[other] = c.now()\n\t}",
		new:  "\t\t_ = other\n\t}",
		test: "./controllers/nodeipam TestManyFinalizers",
	},
	{
		name: "preflight-without-aliases", defect: "the preflight does not see a second writer whose --controllers has an alias",
		file: "cmd/internal/preflight/commandline.go",
		old:  "if full, ok := aliases[name]; ok {",
		new:  "if full, ok := aliases[name]; ok && off {",
		test: "./cmd/internal/preflight TestCheck",
	},
	{
		name: "preflight-without-lists", defect: "the preflight does not look at the ClusterCIDRs of a list",
		file: "cmd/internal/files/files.go",
		old:  "list && json.Unmarshal(head.Items, &items) == nil && items != nil:",
		new:  "list && of != \"\" && json.Unmarshal(head.Items, &items) == nil && items != nil:",
		test: "./cmd/internal/files TestReadFiles",
	},
	{
		name: "unseen-untold", defect: "lists and watches of Nodes that fail for ever are no problem for health, unless a permission is missing",
		old:  "if !r.told && time.Since(r.since) >= unseenFor {",
		new:  "if apierrors.IsForbidden(err) && time.Since(r.since) >= unseenFor {",
		test: "./controllers/nodeipam/health TestWatchesThatFail",
	},
	{
		name: "pool-create-without-answer", defect: "a create request of an IPAddress without an answer counts as one that was not carried out",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "if answer.Result == Unknown && answer.Until.After(c.maybeUntil) {",
		new:  "if answer.Result == Unknown && answer.Until.After(c.maybeUntil) && c.gone {",
		test: testPools,
	},
	{
		name: "pool-refused-after-no-answer", defect: "a refusal counts for earlier create requests that were not answered, too",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "if c.maybeUntil.IsZero() && c.state == Sent {",
		new:  "if c.state == Sent {",
		test: "./controllers/clusteripam/incluster/book TestARefusalSaysNothingAboutAnEarlierRequest",
	},
	{
		name: "pool-read-too-early", defect: "a read that finds no IPAddress counts although a request can still arrive",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "over := !r.at.Before(c.maybeUntil)",
		new:  "over := true",
		test: testPools,
	},
	{
		name: "pool-claim-gone-at-once", defect: "a claim that is gone frees its address although its create request can still arrive",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "if c.unresolved() {\n\t\tb.ghosts[key]",
		new:  "if c.unresolved() && c.deleting() {\n\t\tb.ghosts[key]",
		test: "./controllers/clusteripam/incluster/book TestReadOnItsWayWhenAClaimGoes",
	},
	{
		name: "pool-broken-claim-unknown", defect: "the IPAddress of a claim that cannot be read counts after a restart as one without a claim, and its address is allocated again once somebody deletes it as told",
		old:  "\t\to = &v1beta2.IPAddressClaim{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta, Spec: c.object.Spec, Status: c.object.Status}\n\t}\n\tb.setClaim(o, true)",
		new:  "\t\to = &v1beta2.IPAddressClaim{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta, Spec: c.object.Spec, Status: c.object.Status}\n\tcase o.DeletionTimestamp == nil:\n\t\treturn\n\t}\n\tb.setClaim(o, true)",
		test: "./controllers/clusteripam/incluster/book TestABrokenClaim",
	},
	{
		name: "pool-in-the-way-for-ever", defect: "an IPAddress that stands in the way of a claim never goes when it is deleted",
		old:  "(c == nil || !c.broken && !c.owns(a.object))",
		new:  "c == nil",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressThatIsInTheWay",
	},
	{
		name: "pool-unanswered-stays", defect: "nobody finds out what became of an unanswered create request while others hold the claim, so its pool never goes",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "\tcase c.unresolved(), c.read:\n\t\tb.readWhenOver(c, now, n)\n\t}\n}\n\n// inUse",
		new:  "\t}\n}\n\n// inUse",
		test: "./controllers/clusteripam/incluster/book TestAnUnansweredCreateOfAClaimThatOthersHold",
	},
	{
		name: "pool-no-grace", defect: "the grace period of a pool is not kept",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "if now.Before(until) {\n\t\tn.sooner(until)\n\t\tn.Rests = true\n\t\treturn true",
		new:  "if now.Before(until) && c.unresolved() {\n\t\tn.sooner(until)\n\t\tn.Rests = true\n\t\treturn true",
		test: testPools,
	},
	{
		name: "pool-others-finalizers", defect: "an IPAddress is released while others have finalizers on its claim, whose machine may still run",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "return f != v1beta2.FinalizerReleaseAddress && f != metav1.FinalizerDeleteDependents",
		new:  "return f == metav1.FinalizerOrphanDependents",
		test: testPools,
	},
	{
		name: "pool-waits-for-garbage-collector", defect: "an IPAddress waits for the finalizer with which the garbage collector waits for the IPAddress",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "return f != v1beta2.FinalizerReleaseAddress && f != metav1.FinalizerDeleteDependents",
		new:  "return f != v1beta2.FinalizerReleaseAddress",
		test: "./controllers/clusteripam/incluster/book TestAClaimThatOthersHold",
	},
	{
		name: "pool-forced-away-given-up", defect: "a claim that has lost its IPAddress gives up the address, too, if its pool may not allocate it now",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "return c.had && c.pool.alone(c) || b.mayHave(c)",
		new:  "return b.mayHave(c)",
		test: testPools,
	},
	{
		name: "pool-waits-for-the-claim", defect: "nobody reads whether an IPAddress exists that is not created again, so its pool does not go",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "\tcase c.had && (b.mayCreate(c) || !c.arriving()):",
		new:  "\tcase c.had:",
		test: "./controllers/clusteripam/incluster/book TestAnUnansweredCreateWhileThePoolIsDeleted",
	},
	{
		name: "pool-other-pool-is-paused", defect: "a claim keeps an address from others because it names a paused pool by now",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "if c.read && !c.creating && !c.deleting() {",
		new:  "if false && c.read {",
		test: "./controllers/clusteripam/incluster/book TestAnAddressOfAnotherPoolThanThePausedOne",
	},
	{
		name: "pool-forced-away-stays-away", defect: "an IPAddress that is forced away while its claim is deleted is not created again, so a restart frees the address",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "\tcase c.had && (b.mayCreate",
		new:  "\tcase c.had && !c.deleting() && (b.mayCreate",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressIsForcedAway",
	},
	{
		name: "pool-had-gives-way", defect: "a claim whose machine may have its address gives it up for others that wait",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "if c.state != Refused || c.had || now.Sub",
		new:  "if c.state != Refused || now.Sub",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressIsForcedAway",
	},
	{
		name: "pool-claim-before-address", defect: "a claim loses its finalizer before its IPAddress is gone",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "\tcase last != nil:\n\t\tb.end(last",
		new:  "\tcase last != nil && !slices.Contains(c.object.Finalizers, v1beta2.FinalizerReleaseAddress):\n\t\tb.end(last",
		test: testPools,
	},
	{
		name: "pool-create-before-finalizer", defect: "an IPAddress is created before its claim has the finalizer",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "if !b.withoutCluster(c) && !slices.Contains(c.object.Finalizers, v1beta2.FinalizerReleaseAddress) {",
		new:  "if c.state == Assigned && !slices.Contains(c.object.Finalizers, v1beta2.FinalizerReleaseAddress) {",
		test: testPools,
	},
	{
		name: "pool-others-not-held", defect: "the address of an IPAddress of another program is free",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "\t\th.addresses = append(h.addresses, a)\n\t\tp.usage.Use(at.addr)",
		new:  "\t\th.addresses = append(h.addresses, a)\n\t\tif a.object.OwnerReferences != nil {\n\t\t\tp.usage.Use(at.addr)\n\t\t}",
		test: testPools,
	},
	{
		name: "pool-reservation-not-held", defect: "an address that is reserved for a claim is free until its IPAddress shows",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "\th.claims = append(h.claims, c)\n\tp.usage.Use(at)",
		new:  "\th.claims = append(h.claims, c)",
		test: testPools,
	},
	{
		name: "pool-reserved-stays", defect: "an address stays reserved although its pool may not allocate it any more",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "if c.state.revocable() && !b.mayKeep(c) {",
		new:  "if c.state.revocable() && !b.mayAllocate(c) {",
		test: testPools,
	},
	{
		name: "pool-sent-given-up", defect: "an address is given up while a create request of it is not answered",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "return s == Reserved || s == Refused",
		new:  "return s == Reserved || s == Sent || s == Refused",
		test: testPools,
	},
	{
		name: "pool-freed-wakes-nobody", defect: "an address that becomes free wakes no claim",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "\t\tdelete(p.holdings, at)\n\t\tb.freed[p] = true",
		new:  "\t\tdelete(p.holdings, at)",
		test: testPools,
	},
	{
		name: "pool-changed-wakes-nobody", defect: "a pool that may allocate from now on wakes no claim",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "!same || p.matters() != mattered {",
		new:  "!same || p.matters() != mattered && !p.eligible() {",
		test: testPools,
	},
	{
		name: "pool-goes-too-early", defect: "a pool loses its finalizer while IPAddresses of it exist",
		file: "controllers/clusteripam/incluster/book/status.go",
		old:  "if len(h.addresses) > 0 || slices",
		new:  "if slices",
		test: testPools,
	},
	{
		name: "pool-without-finalizer", defect: "addresses are allocated before the pool has its finalizer",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "p.compiled != nil &&\n\t\tslices.Contains(p.object.Finalizers, v1beta2.FinalizerProtectPool)",
		new:  "p.compiled != nil",
		test: testPools,
	},
	{
		name: "pool-terminating-allocates", defect: "addresses are allocated from a pool that is being deleted",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "return p.object != nil && p.object.DeletionTimestamp == nil && !paused(p.object)",
		new:  "return p.object != nil && !paused(p.object)",
		test: testPools,
	},
	{
		name: "pool-orphans-stay", defect: "an IPAddress that is being deleted stays when its claim is gone",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "\tb.end(a.object, true, n)\n}",
		new:  "\tif a.deleted {\n\t\tb.end(a.object, true, n)\n\t}\n}",
		test: testPools,
	},
	{
		name: "pool-conflict-unsaid", defect: "two IPAddresses with one address are not reported",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "p.conflicts[at.addr] = len(h.addresses) > 1;",
		new:  "p.conflicts[at.addr] = len(h.addresses) > 2;",
		test: testPools,
	},
	{
		name: "pool-exists-is-refused", defect: "an IPAddress that exists already counts as refused",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "\tcase Unknown, Exists:\n\t\tc.read = true",
		new:  "\tcase Unknown:\n\t\tc.read = true",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressThatExists",
	},
	{
		name: "pool-mapped-not-held", defect: "an IPv4 address that another program wrote as IPv6 is allocated",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "return at.Unmap().WithZone(\"\")",
		new:  "return at.WithZone(\"\")",
		test: "./controllers/clusteripam/incluster/book TestAddressesOfOthers",
	},
	{
		name: "pool-stray-unsaid", defect: "an IPAddress that keeps its address and has lost its claim is not reported",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "c.gone = true\n\tif a, ok := b.addresses[key]; ok {",
		new:  "c.gone = true\n\tif a, ok := b.addresses[key]; ok && c.broken {",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressWithoutClaim",
	},
	{
		name: "pool-edited-follows", defect: "a claim whose IPAddress is edited has what that says by now, and another claim gets what its machine has",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "at := a.first(); !c.has",
		new:  "at := a.place; !c.has",
		test: "./controllers/clusteripam/incluster/book TestASpecIsEdited",
	},
	{
		name: "pool-edited-not-held", defect: "what an IPAddress without a claim had before it was edited is free",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "\t\ta.holds = append(a.holds, a.place)\n",
		new:  "\t\tfor _, at := range a.holds {\n\t\t\tb.holdPlace(a, at, false)\n\t\t}\n\t\ta.holds = []place{a.place}\n",
		test: "./controllers/clusteripam/incluster/book TestAnEditedIPAddressWithoutClaim",
	},
	{
		name: "pool-edited-before-shown", defect: "what an IPAddress said in the answer to its creation is forgotten if it is edited before the cache shows it, and another claim gets that",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "ok && len(a.holds) == 0 && at != a.place {",
		new:  "ok && len(a.holds) > len(a.holds) && at != a.place {",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressIsEditedBeforeItShows",
	},
	{
		name: "pool-deleted-not-asked", defect: "a pool that is being deleted stays after the answer that says that no IPAddress of it can be created, until something else happens",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "\tb.unused(r.claim)\n",
		new:  "",
		test: "./controllers/clusteripam/incluster/book TestADeletedPoolGoesAfterAnAnswer",
	},
	{
		name: "pool-edited-claim-gives-up", defect: "a claim that names another pool by now gives up its address as soon as it has no IPAddress",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "return c.had && c.pool.alone(c)",
		new:  "return c.had && c.pool == c.ref && c.pool.alone(c)",
		test: testPools,
	},
	{
		name: "pool-edited-claim-not-released", defect: "a claim that names another pool by now goes without its IPAddress",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "return slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == c.uid() })",
		new:  "return false",
		test: "./controllers/clusteripam/incluster/book TestAnEditedClaimIsReleased",
	},
	{
		name: "pool-stray-hidden", defect: "an IPAddress without a claim is not named if a claim of its name is of another pool",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "without := c == nil || !c.broken && !c.owns(a.object)",
		new:  "without := c == nil",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressWithoutClaimThatIsHidden",
	},
	{
		name: "pool-broken-waits", defect: "a claim that cannot be read counts as one for which the pool is full",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "\tcase c.broken:\n",
		new:  "\tcase c.broken && c.had:\n",
		test: "./controllers/clusteripam/incluster/book TestABrokenClaim",
	},
	{
		name: "pool-grace-too-late", defect: "an IPAddress that was released is created again for a claim that may be gone, because the pool has a longer grace period by now",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "case last != nil || c.ended || c.creating:",
		new:  "case last != nil || c.creating:",
		test: "./controllers/clusteripam/incluster/book TestAGracePeriodThatComesTooLate",
	},
	{
		name: "pool-broken-claim-stays", defect: "a claim with a field that cannot be read is never released",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "case c.deleting():\n\t\tb.release(c, now, n)",
		new:  "case c.deleting() && !c.broken:\n\t\tb.release(c, now, n)",
		test: "./controllers/clusteripam/incluster/book TestABrokenClaim",
	},
	{
		name: "pool-broken-claim-written", defect: "what a claim has in fields that cannot be read is overwritten",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "if c.ref == nil || c.broken {",
		new:  "if c.ref == nil {",
		test: "./controllers/clusteripam/incluster/book TestABrokenClaim",
	},
	{
		name: "pool-early-read-of-a-gone-claim", defect: "a read that is on its way when a claim goes proves what became of the claim's create request, however early it was sent",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "\tif over {\n\t\tc.found, c.storedAt = o, now\n",
		new:  "\tif true {\n\t\tc.found, c.storedAt = o, now\n",
		test: "./controllers/clusteripam/incluster/book TestReadOnItsWayWhenAClaimGoes",
	},
	{
		name: "pool-earlier-read-of-a-gone-claim", defect: "a read from before a claim went proves the same",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "\t\tc.found = nil // A read that was too early proves nothing.\n",
		new:  "",
		test: "./controllers/clusteripam/incluster/book TestReadOnItsWayWhenAClaimGoes",
	},
	{
		name: "pool-late-show", defect: "an IPAddress that is gone, and that a late cache shows, counts as that of the next claim of its name, whose own address others get",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "\tcase !b.over[o.UID].IsZero():\n",
		new:  "\tcase b.over == nil:\n",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressIsShownAfterItsEnd",
	},
	{
		name: "pool-shown-before-stored", defect: "a late cache shows an IPAddress of another program while the create for the next claim of its name is on its way, and others get the address that was sent",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "c.arriving() && !c.has(shown.first())",
		new:  "false",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressOfAnotherProgramIsShownLate",
	},
	{
		name: "pool-shown-after-stored", defect: "the same, and the create was answered",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "return c.stored && shown.object.UID != c.answered ||",
		new:  "return false ||",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressOfAnotherProgramIsShownLate",
	},
	{
		name: "pool-found-before-stored", defect: "a read finds an IPAddress of another program while a lost create can still be carried out, and others get the address that was sent",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "over || c.has(at), now",
		new:  "true, now",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressOfAnotherProgramIsShownLate",
	},
	{
		name: "pool-shown-for-ever", defect: "a claim waits for ever if another program was faster than a create that was lost",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "own != nil && c.state == Assigned {",
		new:  "own != nil {",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressOfAnotherProgramIsFaster",
	},
	{
		name: "pool-overlap-unheard", defect: "a pool goes on naming an address that it shared with another pool until that was changed",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "\t\t\to.overlaps[i].at = at\n\t\t\tb.touch(o.key)\n",
		new:  "\t\t\to.overlaps[i].at = at\n",
		test: "./controllers/clusteripam/incluster/book TestPoolsShareAnotherAddress",
	},
	{
		name: "pool-alone-unheard", defect: "an IPAddress that was forced away is not created again when its address is one claim's alone again",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "\tfor _, o := range h.claims { // the address may be one claim's alone by now\n\t\tb.touch(o.key)\n\t}\n",
		new:  "",
		test: "./controllers/clusteripam/incluster/book TestAnAddressIsOneClaimsAloneAgain",
	},
	{
		name: "pool-reads-without-end", defect: "a claim that is deleted reads an IPAddress of another program, which took the name of its own, again and again",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "\tif over {\n\t\tc.maybeUntil = time.Time{}\n\t}\n",
		new:  "",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressTakesTheNameOfAReleasedOne",
	},
	{
		name: "pool-over-forgotten", defect: "an IPAddress that is gone counts as the next claim's if the cache says that it is gone before it shows it",
		file: "controllers/clusteripam/incluster/book/book.go",
		old:  "\tkey := ClaimKey(namespace, name)\n\ta, ok := b.addresses[key]\n",
		new:  "\tdelete(b.over, uid)\n\tkey := ClaimKey(namespace, name)\n\ta, ok := b.addresses[key]\n",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressIsShownAfterItsEnd",
	},
	{
		name: "pool-over-for-ever", defect: "IPAddresses that were gone before the cache showed them are remembered for ever",
		file: "controllers/clusteripam/incluster/book/write.go",
		old:  "now.Sub(since) > lateAtMost",
		new:  "now.Before(since)",
		test: "./controllers/clusteripam/incluster/book TestAnIPAddressIsShownAfterItsEnd",
	},
	{
		name: "pool-queue-keeps-gone", defect: "claims that are gone stay in the queue of their pool for as long as an older one waits",
		file: "controllers/clusteripam/incluster/book/claim.go",
		old:  "if len(p.waiting) < 2*len(p.claims)+16 {",
		new:  "if len(p.claims) > 0 {",
		test: "./controllers/clusteripam/incluster/book TestTheQueueForgetsClaimsThatAreGone",
	},
	{
		name: "pool-write-without-end", defect: "a write that something takes back is repeated without end, and its worker does nothing else",
		file: "controllers/clusteripam/incluster/controller.go",
		old:  "vain := sent[next.Request.What] > sameRequests",
		new:  "vain := sent[next.Request.What] > sameRequests && errors.Is(ctx.Err(), context.Canceled)",
		test: "./controllers/clusteripam/incluster TestWritesThatAreTakenBack",
	},
	{
		name: "pool-events-begin-anew", defect: "the events of writes that were taken back begin the next ones at once",
		file: "controllers/clusteripam/incluster/controller.go",
		old:  "if rests = l.rests[key].Sub(now); rests > 0 {",
		new:  "if rests = 0; rests > 0 {",
		test: "./controllers/clusteripam/incluster TestWritesThatAreTakenBack",
	},
	{
		name: "pool-grace-fails", defect: "an earlier failure is reported for as long as a grace period lasts",
		file: "controllers/clusteripam/incluster/controller.go",
		old:  "case next.Rests:",
		new:  "case next.Rests && now.IsZero():",
		test: "./controllers/clusteripam/incluster TestTheGracePeriodIsNoFailure",
	},
	{
		name: "infoblox-name-is-enough", defect: "a host record of the right name counts as the claim's, whoever made it", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "\tcase len(found) == 0:\n",
		new:  "\tcase len(found) == 1 && len(found[0].Claims()) == 0:\n\t\treturn c.within(found[0], w)\n\tcase len(found) == 0:\n",
		test: testInfoblox,
	},
	{
		name: "infoblox-shares-with-other-namespaces", defect: "claims of two namespaces share a host record",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "if known == nil || known.Namespace != c.Namespace {",
		new:  "if known == nil {",
		test: "./controllers/clusteripam/infoblox/host TestNext",
	},
	{
		name: "infoblox-joins-too-early", defect: "a claim joins a host record before the others in it have their IPAddresses, so nobody knows which address is whose",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "\tif wait {\n\t\treturn Step{Verb: Wait, Record: r}\n\t}\n",
		new:  "\t_ = wait\n",
		test: "./controllers/clusteripam/infoblox/host TestNext",
	},
	{
		name: "infoblox-gives-the-gateway", defect: "a machine gets the address of the gateway if Infoblox gives it", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "case a == c.Subnets[i].Gateway || w.HeldByAnother(c.UID, a):",
		new:  "case w.HeldByAnother(c.UID, a):",
		test: testInfoblox,
	},
	{
		name: "infoblox-gives-twice", defect: "an address that another IPAddress has is written again, because its host record was deleted by hand",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "case a == c.Subnets[i].Gateway || w.HeldByAnother(c.UID, a):",
		new:  "case a == c.Subnets[i].Gateway:",
		test: testInfoblox,
	},
	{
		name: "infoblox-releases-all", defect: "a release takes the addresses of all claims in a shared host record",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "return []netip.Addr{c.Address}, false",
		new:  "return r.Addresses(), false",
		test: testInfoblox,
	},
	{
		name: "infoblox-release-forgotten", defect: "an error of a release is said and forgotten: the host record stays for ever", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "removals[0]))\n\t\tif err != nil {\n",
		new:  "removals[0]))\n\t\tif _, ok := err.(*wapi.Error); ok {\n\t\t\treturn nil\n\t\t}\n\t\tif err != nil {\n",
		test: testInfoblox,
	},
	{
		name: "infoblox-released-too-early", defect: "a claim is let go although a write to Infoblox without an answer can still be carried out",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tif err := l.settles(r, false); err != nil {\n\t\treturn err\n\t}\n",
		new:  "",
		test: testInfoblox,
	},
	{
		name: "infoblox-takes-what-was-told", defect: "a claim takes out of a shared host record the address of a claim whose IPAddress somebody has deleted, and whose machine runs",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "\t\t\theld[known.Address], held[known.Told] = true, true\n",
		new:  "\t\t\theld[known.Address] = true\n",
		test: "./controllers/clusteripam/infoblox/host TestNext",
	},
	{
		name: "infoblox-leaves-what-was-told", defect: "a claim gives up its host record for another name although it was told an address, which the cache does not show yet",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "err == nil && (stored.UID != claim.UID || served(stored)):",
		new:  "err == nil && stored.UID != claim.UID:",
		test: "./controllers/clusteripam/infoblox TestLeave",
	},
	{
		name: "infoblox-told-without-answer", defect: "a claim gives up its host record while a write that tells it of its address can still be carried out",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "\tif address != \"\" && !writes.Answered(err) {\n\t\tl.Lock.With(func() { l.telling[claim.UID] = l.Now().Add(l.unanswered()) })\n\t}\n",
		new:  "",
		test: "./controllers/clusteripam/infoblox TestTellingWithoutAnswer",
	},
	{
		name: "infoblox-held-by-name-only", defect: "the address of an IPAddress whose InfobloxInstance was deleted is given again, by the same Infoblox under another name",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "return !exists && where.networkView",
		new:  "return !exists && known && where.networkView",
		test: "./controllers/clusteripam/infoblox TestHeldSomewhere",
	},
	{
		name: "infoblox-held-everywhere", defect: "an address whose InfobloxInstance was deleted is nobody's in another Infoblox with the same network, although the controller has seen that it was another one",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "\t\t\tl.hosts[gone.Name] = addressOf(gone)\n",
		new:  "\t\t\t_ = addressOf(gone)\n",
		test: "./controllers/clusteripam/infoblox TestHeldSomewhere",
	},
	{
		name: "infoblox-way-of-writing", defect: "an Infoblox whose host is written with its port, or with a last dot, counts as another one",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "\t\tp.instance = addressOf(i)\n",
		new:  "\t\tp.instance = strings.ToLower(i.Spec.Host) + i.Spec.Port\n",
		test: "./controllers/clusteripam/infoblox TestHeldByAnother",
	},
	{
		name: "infoblox-waits-for-people", defect: "a claim waits for ever because Infoblox gave it several addresses while none could be used",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "if !slices.Equal(r.Claims(), []types.UID{claim.UID}) {",
		new:  "if len(r.Claims()) > 0 {",
		test: "./controllers/clusteripam/infoblox TestAnotherInfobloxWithTheSameNetwork",
	},
	{
		name: "infoblox-chosen-for-nobody", defect: "an address is kept for a claim that was forced away while it got it",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "exists && step.Verb == host.Use {",
		new:  "(exists || !exists) && step.Verb == host.Use {",
		test: "./controllers/clusteripam/infoblox TestClaimIsForcedAwayWhileItGetsAnAddress",
	},
	{
		name: "infoblox-waits-for-the-told", defect: "a claim waits for ever for another one in its host record that was told its address and has no IPAddress",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "!known.Address.IsValid() && !slices.Contains(r.Addresses(), known.Told)\n\t}\n\tif wait {",
		new:  "!known.Address.IsValid()\n\t}\n\tif wait {",
		test: "./controllers/clusteripam/infoblox/host TestNext",
	},
	{
		name: "infoblox-two-infoblox-at-once", defect: "two claims change one host record at once, because their InfobloxInstances name one Infoblox by two hosts",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "return recordName{place{networkView: name.networkView}, name.name}",
		new:  "return name",
		test: "./controllers/clusteripam/infoblox TestOneAtATime",
	},
	{
		name: "infoblox-stray-in-a-shared-record", defect: "the address of an IPAddress that has lost its claim is taken out of a shared host record, although its machine may run",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "ok && a.Annotations[annotationClaim] == string(claim) {",
		new:  "ok && a.Annotations[annotationClaim]+\"-\" == string(claim) {",
		test: "./controllers/clusteripam/infoblox TestIPAddressWithoutClaimKeepsItsPart",
	},
	{
		name: "infoblox-release-of-a-new-leader", defect: "a release ends although an earlier leader may have sent a create that is carried out only then",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "if wait := l.began.Add(settled).Sub(l.Now()); wait > 0 {",
		new:  "if wait := l.began.Sub(l.Now()); wait > 0 {",
		test: "./controllers/clusteripam/infoblox TestLateCreateAfterAnotherOneAndAnotherLeader",
	},
	{
		name: "infoblox-moved-record-in-silence", defect: "the host record of a claim that was moved before it had an address stays in Infoblox, and nobody says so",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "\t\t\tl.sayIfItWas(claim, step.Record)\n",
		new:  "",
		test: "./controllers/clusteripam/infoblox TestClaimIsMovedBeforeItHasAnAddress",
	},
	{
		name: "clusteripam-invalid-object-breaks-all", defect: "an object of a user that the API server takes for invalid makes the controller unready",
		file: "controllers/clusteripam/shell/health.go",
		old:  " && f.What != takenForInvalid {",
		new:  " {",
		test: "./controllers/clusteripam/shell TestWhatMakesAControllerUnhealthy",
	},
	{
		name: "infoblox-later-create-hides-the-first", defect: "an IPAddress of a later create ends the wait for an earlier one, which comes when the claim is gone",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "\t\t\tdelete(l.chosen, claim.UID)\n",
		new:  "\t\t\tdelete(l.chosen, claim.UID)\n\t\t\tdelete(l.creating, claim.UID)\n",
		test: "./controllers/clusteripam/infoblox TestCreateWithoutAnswer",
	},
	{
		name: "infoblox-record-goes-with-its-instance", defect: "a write to Infoblox without an answer is forgotten when the InfobloxInstance is deleted, or names the same Infoblox by another host",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "\tkey := recordKey(name)\n",
		new:  "\tkey := recordName{l.canonical(name.place), name.name}\n",
		test: "./controllers/clusteripam/infoblox TestHostIsEditedAfterALostWrite",
	},
	{
		name: "infoblox-put-back-leaks", defect: "the address of a claim that was put back stays in the host record that it shares with one that was not",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "w.Known(c.Was) != nil: // That one has it.",
		new:  "slices.ContainsFunc(claims, func(other types.UID) bool { return w.Known(other) != nil }):",
		test: "./controllers/clusteripam/infoblox TestOneOfTwoClaimsIsPutBack",
	},
	{
		name: "infoblox-moved-record-is-nobodys", defect: "a claim waits for people because its host record is that of a claim that was moved",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "return slices.Contains(w.HeldFor(other, a), c.Namespace) }):",
		new:  "return false }):",
		test: "./controllers/clusteripam/infoblox TestClaimJoinsTheRecordOfAMovedOne",
	},
	{
		name: "infoblox-told-elsewhere-forgotten", defect: "the address that a claim was told goes back to Infoblox while the claim names another provider's pool",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "ok && c.Annotations[annotationClaim] == string(claim) {",
		new:  "ok && c.Annotations[annotationClaim]+\"-\" == string(claim) {",
		test: "./controllers/clusteripam/infoblox TestClaimNamesAnotherProviderForAWhile",
	},
	{
		name: "infoblox-no-place-first", defect: "a host record is made before the claim says where it is: what a release needs is lost with the process",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "\tif done {\n\t\treturn claim, nil\n\t}\n",
		new:  "\tif done || missing && len(claim.Finalizers) == 0 && claim.DeletionTimestamp == nil {\n\t\treturn claim, nil\n\t}\n",
		test: testInfoblox,
	},
	{
		name: "infoblox-unverified", defect: "a CA file that cannot be read turns the verification of the server off", seen: "infoblox-go-client",
		file: "controllers/clusteripam/infoblox/wapi/client.go",
		old:  "\t\t\treturn nil, fmt.Errorf(\"read the CA certificates: %w\", err)\n",
		new:  "\t\t\treturn &tls.Config{InsecureSkipVerify: true}, nil\n",
		test: "./controllers/clusteripam/infoblox/wapi TestVerification",
	},
	{
		name: "infoblox-error-is-an-answer", defect: "an error of the server or of a proxy counts as a refusal of the write",
		file: "controllers/clusteripam/infoblox/wapi/errors.go",
		old:  "return e.notSent || e.Status >= 400 && e.Status < 500 && e.Status != http.StatusRequestTimeout",
		new:  "return e.notSent || e.Status >= 400",
		test: "./controllers/clusteripam/infoblox/wapi TestFailures",
	},
	{
		name: "infoblox-unfenced", defect: "a leader that was deposed writes to Infoblox",
		file: "controllers/clusteripam/infoblox/controller.go",
		old:  "if f.fence == nil {\n",
		new:  "if f.WAPI != nil {\n",
		test: "./controllers/clusteripam/infoblox TestFence",
	},
	{
		name: "infoblox-fence-left-early", defect: "the successor does not wait for a write to Infoblox without an answer",
		file: "controllers/clusteripam/infoblox/controller.go",
		old:  "if err = write(ctx); wapi.Answered(err) {\n\t\tleave()\n\t}\n",
		new:  "err = write(ctx)\n\tleave()\n",
		test: "./controllers/clusteripam/infoblox TestFence",
	},
	{
		name: "infoblox-two-at-once", defect: "two claims change one host record at once, and one change is lost", seen: "infoblox-client",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "\t\tif l.busy[anywhere] {\n",
		new:  "\t\tif len(l.busy) < 0 {\n",
		test: "./controllers/clusteripam/infoblox TestOneAtATime",
	},
	{
		name: "infoblox-update-again", defect: "an address is asked for again while the last request without an answer can still be carried out",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "if err := l.settles(r, create); err != nil {",
		new:  "if err := l.settles(r, create); err != nil && create {",
		test: "./controllers/clusteripam/infoblox TestCreateAfterALostWrite",
	},
	{
		name: "infoblox-create-hurries", defect: "a host record is created while a lost update or delete of the last one with its reference can still be carried out",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "if r.unsettled = now.Add(settled); !create {",
		new:  "if r.unsettled = now.Add(settled); create {",
		test: "./controllers/clusteripam/infoblox TestCreateAfterALostWrite",
	},
	{
		name: "infoblox-new-leader-hurries", defect: "a new leader does not wait for writes of the last one that can still be carried out",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "\t\t\t\tl.recordState(name).unsettle(false, l.Now())",
		new:  "\t\t\t\tl.recordState(name)",
		test: "./controllers/clusteripam/infoblox TestLateJoinOfAnEarlierLeader",
	},
	{
		name: "infoblox-create-forgotten", defect: "the address of an IPAddress whose create was not answered is released, and the IPAddress comes",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tswitch wait := until.Sub(l.Now()); {\n",
		new:  "\tuntil = time.Time{}\n\tswitch wait := until.Sub(l.Now()); {\n",
		test: "./controllers/clusteripam/infoblox TestCreateWithoutAnswer",
	},
	{
		name: "infoblox-chosen-forgotten", defect: "an address is used again while it is being written into another IPAddress",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "if other != claim && h.address == address && (",
		new:  "if other != claim && h == (holding{}) && (",
		test: "./controllers/clusteripam/infoblox TestCreateWithoutAnswer",
	},
	{
		name: "infoblox-release-asks-the-pool", defect: "where a host record is comes from the pool, so it is lost with the pool", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tr.where(address)\n\tr.where(claim)\n",
		new:  "",
		test: testInfoblox,
	},
	{
		name: "infoblox-lost-server-at-once", defect: "a claim is let go although its InfobloxInstance may come back, and the host record stays for ever",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "case gone < lostServerAfter:",
		new:  "case gone < 0:",
		test: testInfoblox,
	},
	{
		name: "infoblox-instance-again", defect: "an InfobloxInstance that is created again looks like the last one, so that claims are not tried again",
		file: "controllers/clusteripam/infoblox/instance.go",
		old:  "s.change = l.changes",
		new:  "s.change++",
		test: testInfoblox,
	},
	{
		name: "infoblox-checked-once", defect: "an Infoblox is not asked again whether everything is there", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/instance.go",
		old:  "return v.inputs != inputs || now.Sub(v.checked) >= v.every()",
		new:  "return v.inputs != inputs",
		test: "./controllers/clusteripam/infoblox TestChecks",
	},
	{
		name: "infoblox-port-ignored", defect: "the port of an InfobloxInstance is ignored", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/instance.go",
		old:  "Port: i.Spec.Port, ",
		new:  "",
		test: "./controllers/clusteripam/infoblox TestChecks",
	},
	{
		name: "infoblox-ca-ignored", defect: "the CA file of an InfobloxInstance is ignored", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/instance.go",
		old:  "CAFile: i.Spec.CustomCAPath, ",
		new:  "",
		test: "./controllers/clusteripam/infoblox TestChecks",
	},
	{
		name: "infoblox-dns-view-for-nothing", defect: "a pool without a zone needs a DNS view", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/pool.go",
		old:  "case !ok && from.dnsZone != \"\":",
		new:  "case !ok:",
		test: "./controllers/clusteripam/infoblox TestChecks",
	},
	{
		name: "infoblox-no-timeout", defect: "a request to Infoblox may take for ever", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/wapi/client.go",
		old:  "cmp.Or(c.Timeout, 5*time.Second)",
		new:  "c.Timeout",
		test: "./controllers/clusteripam/infoblox/wapi TestTimeout",
	},
	{
		name: "infoblox-sent-twice", defect: "a request that fails is sent again, also if it writes", seen: "infoblox-go-client",
		file: "controllers/clusteripam/infoblox/wapi/client.go",
		old:  "\tresponse, err := c.http.Do(request)\n",
		new:  "\tresponse, err := c.http.Do(request)\n\tif err != nil && request.GetBody != nil {\n\t\trequest.Body, _ = request.GetBody()\n\t\tresponse, err = c.http.Do(request)\n\t}\n",
		test: "./controllers/clusteripam/infoblox/wapi TestFailures",
	},
	{
		name: "infoblox-ipv6-host", defect: "a host that is an IPv6 address is cut at its last colon", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/wapi/client.go",
		old:  "if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, \":\") {",
		new:  "if strings.Contains(host, \":\") {",
		test: "./controllers/clusteripam/infoblox/wapi TestHosts",
	},
	{
		name: "infoblox-renamed-is-another", defect: "an Infoblox under another name counts as another one, so that an address of which the host record was deleted by hand is given twice",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "return l.canonical(a) == l.canonical(b)",
		new:  "return a == b",
		test: "./controllers/clusteripam/infoblox TestHeldByAnother",
	},
	{
		name: "infoblox-moved-pool-forgets", defect: "a pool whose InfobloxInstance or network view got another name gives an address twice",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "w.mayBe(where) || w.samePool(name, own)",
		new:  "w.mayBe(where)",
		test: "./controllers/clusteripam/infoblox TestHeldByAnother",
	},
	{
		name: "infoblox-name-of-the-user", defect: "a release looks for the host record under the name that the user wishes by now",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "cmp.Or(object.GetAnnotations()[annotationName], object.GetAnnotations()[v1alpha1.AnnotationHostname])",
		new:  "cmp.Or(object.GetAnnotations()[v1alpha1.AnnotationHostname], object.GetAnnotations()[annotationName])",
		test: testInfoblox,
	},
	{
		name: "infoblox-left-behind", defect: "a claim whose hostname is edited before it has an address leaves a host record behind",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "if leaves = moved || has && !slices.Contains(names, had.name); leaves && !served(claim) {",
		new:  "if leaves = moved; leaves && !served(claim) {",
		test: testInfoblox,
	},
	{
		name: "infoblox-leaves-in-use", defect: "a host record is given up for another one although the cache is late and its IPAddress exists",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "\tcase err == nil:\n\t\treturn writes.Later(time.Second)\n",
		new:  "\tcase err == nil:\n",
		test: "./controllers/clusteripam/infoblox TestLeave",
	},
	{
		name: "infoblox-served-moves", defect: "a claim whose IPAddress was forced away gets the host record, and the address, that its hostname names by now",
		file: "controllers/clusteripam/infoblox/host/names.go",
		old:  "\tif n.Served {\n",
		new:  "\tif n.Served && n.Hostname == \"\" {\n",
		test: testInfoblox,
	},
	{
		name: "infoblox-machine-still-runs", defect: "the address of a claim in deletion is released although others have finalizers on the claim",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "return f != metav1.FinalizerDeleteDependents",
		new:  "return f == \"\"",
		test: testInfoblox,
	},
	{
		name: "infoblox-earlier-pool", defect: "an IPAddress that an earlier claim of the name left in another pool counts as the claim's",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "address.Spec.PoolRef.Name == claim.Spec.PoolRef.Name && address.Spec",
		new:  "address.Spec",
		test: "./controllers/clusteripam/infoblox TestIPAddressOfAnEarlierClaim",
	},
	{
		name: "infoblox-leftover-stays", defect: "an IPAddress that stands in the way of another allocator's claim is not released when it is deleted",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "\tcase s.leftover: // The claim",
		new:  "\tcase s.leftover && !s.rests: // The claim",
		test: "./controllers/clusteripam/infoblox TestIPAddressInTheWayOfAnotherAllocator",
	},
	{
		name: "infoblox-pool-leaves-addresses", defect: "a pool that is deleted goes although IPAddresses without a claim are of it, and garbage collection deletes them",
		file: "controllers/clusteripam/infoblox/pool.go",
		old:  "len(l.claimsOf[name]) > 0 || len(l.addressesOf[name]) > 0",
		new:  "len(l.claimsOf[name]) > 0",
		test: "./controllers/clusteripam/infoblox TestIPAddressWithoutClaim",
	},
	{
		name: "infoblox-stray-not-named", defect: "an IPAddress whose claim has lost its finalizer is not named anywhere",
		file: "controllers/clusteripam/infoblox/pool.go",
		old:  "return !ok || l.claims.Broken(c)",
		new:  "return ok && l.claims.Broken(c)",
		test: "./controllers/clusteripam/infoblox TestIPAddressWithoutClaim",
	},
	{
		name: "infoblox-release-of-an-old-cache", defect: "a claim that is deleted goes without its IPAddress because the cache does not show that yet",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "case address != nil, !prepared && until.IsZero():",
		new:  "case address != nil, until.IsZero() || prepared && until.IsZero():",
		test: "./controllers/clusteripam/infoblox TestCreateWithoutAnswer",
	},
	{
		name: "infoblox-releases-of-others", defect: "an IPAddress of another kind of pool is released",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "if address == nil || !ofInfoblox(address.Spec.PoolRef) ||",
		new:  "if address == nil ||",
		test: "./controllers/clusteripam/infoblox TestIPAddressOfAnotherAllocator",
	},
	{
		name: "infoblox-renamed-view", defect: "a release asks a network view that has another name by now, finds nothing, and the host record stays for ever",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "client.Hosts(ctx, c.name, \"\")",
		new:  "client.Hosts(ctx, c.name, c.networkView)",
		test: "./controllers/clusteripam/infoblox TestRenamedNetworkView",
	},
	{
		name: "infoblox-waits-for-lost-server", defect: "a claim without an address waits for ever for an InfobloxInstance that is gone, to give up a host record there",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tcase now.Sub(last) < missedEvery:\n",
		new:  "\tcase now.Sub(last) < missedEvery:\n\t\tif claim, ok := c.about.(*v1beta2.IPAddressClaim); ok && claim.DeletionTimestamp == nil {\n\t\t\treturn 0, nil\n\t\t}\n",
		test: "./controllers/clusteripam/infoblox TestReplacedInstance",
	},
	{
		name: "infoblox-wait-goes-on", defect: "the wait for an InfobloxInstance that came back and is gone again began when it was gone first",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tcase !missing && !noted:\n",
		new:  "\tcase !missing && (noted || !noted):\n",
		test: "./controllers/clusteripam/infoblox TestLostInstance",
	},
	{
		name: "infoblox-wait-while-paused", defect: "an InfobloxInstance that came back while its claim was paused counts as gone all the time",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tcase now.Sub(last).Abs() >= missedAnew, ",
		new:  "\tcase last.IsZero(), ",
		test: "./controllers/clusteripam/infoblox TestInstanceComesBackUnseen",
	},
	{
		name: "infoblox-wait-taken-back", defect: "a policy takes the annotation of the wait away, which never ends then, and nobody says so",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "if stored.GetAnnotations()[annotationMissing] != text {",
		new:  "if false {",
		test: "./controllers/clusteripam/infoblox TestMissingIsTakenBack",
	},
	{
		name: "infoblox-left-invalid-ip", defect: "the event about a host record that is left names the address \"invalid IP\"",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "if c.Address.IsValid() {\n\t\t\twith",
		new:  "if true {\n\t\t\twith",
		test: "./controllers/clusteripam/infoblox TestReplacedInstance",
	},
	{
		name: "infoblox-wait-begins-anew", defect: "a new leader waits for an InfobloxInstance that is gone as long as if it had just gone",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tcase now.Sub(last).Abs() >= missedAnew, ",
		new:  "\tcase l.prepared[c.UID].name == \"\", now.Sub(last).Abs() >= missedAnew, ",
		test: "./controllers/clusteripam/infoblox TestLostInstance",
	},
	{
		name: "infoblox-taken-for-ever", defect: "a claim is not tried again when the host record that is in its way may be gone",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "\treturn writes.Later(checkEvery)\n",
		new:  "\treturn nil\n",
		test: "./controllers/clusteripam/infoblox TestTakenRecordGoes",
	},
	{
		name: "infoblox-not-ready-answers", defect: "a claim is let go because another Infoblox, for which its InfobloxInstance stands for a while, has no such host record",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "checked && s.ready {",
		new:  "checked {",
		test: "./controllers/clusteripam/infoblox TestAnotherInfobloxAnswers",
	},
	{
		name: "infoblox-unchecked-fails", defect: "a release right after a start is reported as failed",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "case exists && !checked:",
		new:  "case exists && !checked && client != nil:",
		test: "./controllers/clusteripam/infoblox TestReleaseRightAfterAStart",
	},
	{
		name: "infoblox-renamed-record-unsaid", defect: "a host record that got another name stays for ever, and nobody says so",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\t\tl.notFound(c)\n",
		new:  "",
		test: "./controllers/clusteripam/infoblox TestRenamedRecord",
	},
	{
		name: "infoblox-renamed-record-hidden", defect: "a host record that got another name stays for ever, and nobody says so, because another one of the claim was deleted",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "return !r.Address.IsValid() || slices.ContainsFunc",
		new:  "return r.Unmarked || !r.Unmarked || slices.ContainsFunc",
		test: "./controllers/clusteripam/infoblox TestRenamedRecordAndAnother",
	},
	{
		name: "infoblox-swapped-views", defect: "a release asks a network view of the former name, and not the one that has the host record",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tfound, err := client.Hosts(ctx, c.name, \"\")",
		new:  "\tif exists, err := client.NetworkView(ctx, c.networkView); exists || err != nil {\n\t\treturn \"\", err\n\t}\n\tfound, err := client.Hosts(ctx, c.name, \"\")",
		test: "./controllers/clusteripam/infoblox TestSwappedNetworkViews",
	},
	{
		name: "infoblox-orphan-nowhere", defect: "the host record of an IPAddress that another program created and that has no claim stays for ever",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tl.wherePoolIs(&r, address)\n\tr.UID = r.Was\n",
		new:  "\tr.UID = r.Was\n",
		test: "./controllers/clusteripam/infoblox TestIPAddressOfAnotherProgramWithoutClaim",
	},
	{
		name: "infoblox-orphan-of-a-paused-pool", defect: "an IPAddress without a claim is released although its pool is paused",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tif rests {\n",
		new:  "\tif rests && address == nil {\n",
		test: "./controllers/clusteripam/infoblox TestIPAddressOfAnotherProgramWithoutClaim",
	},
	{
		name: "infoblox-rest-unsaid", defect: "addresses that stay in a host record of a claim that is gone are named nowhere",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "case !r.Delete && r.Record.Comment == \"\":",
		new:  "case false:",
		test: "./controllers/clusteripam/infoblox TestSubnetIsReplaced",
	},
	{
		name: "infoblox-wait-in-the-future", defect: "a wait for an InfobloxInstance that began in the future by a wrong clock lasts until then",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "case now.Sub(last).Abs() >= missedAnew, since.After(last):",
		new:  "case now.Sub(last) >= missedAnew:",
		test: "./controllers/clusteripam/infoblox TestInstanceMissingInTheFuture",
	},
	{
		name: "infoblox-leftover-blocks", defect: "a claim waits for an IPAddress in its way that cannot be released, also when it is deleted",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "errors.Join(l.releaseLeftover(ctx, s), l.bring(ctx, s))",
		new:  "l.releaseLeftover(ctx, s)",
		test: "./controllers/clusteripam/infoblox TestIPAddressInTheWayThatStays",
	},
	{
		name: "infoblox-edited-claim-stays", defect: "a claim that named a pool before it was edited keeps that pool for ever",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "ofInfoblox(before.Spec.PoolRef) && (now == nil || now.Spec.PoolRef != before.Spec.PoolRef) {",
		new:  "ofInfoblox(before.Spec.PoolRef) && now == nil {",
		test: "./controllers/clusteripam/infoblox TestClaimIsEdited",
	},
	{
		name: "infoblox-edited-address-forgotten", defect: "what an IPAddress had before it was edited is taken from its host record with the claim that shares it",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "if address != nil && l.first[address.UID].IsValid() {",
		new:  "if address != nil && !l.first[address.UID].IsValid() {",
		test: "./controllers/clusteripam/infoblox TestIPAddressIsEdited",
	},
	{
		name: "infoblox-terminating-is-the-claims", defect: "a claim is told that it has an IPAddress that is being released, and whose host record is gone",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "case !served(claim) && (by != \"\" && by",
		new:  "case !served(claim) && (by == \"\" && by",
		test: "./controllers/clusteripam/infoblox TestClaimWhileAnIPAddressIsReleased",
	},
	{
		name: "infoblox-leftover-of-an-old-cache", defect: "the IPAddress of a claim is released because the cache does not show yet that the claim has it",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "own = err == nil && l.owns(stored, s.foreign)",
		new:  "own = err != nil && l.owns(stored, s.foreign)",
		test: "./controllers/clusteripam/infoblox TestClaimThatHasTheIPAddressThatIsReleased",
	},
	{
		name: "infoblox-new-leader-hurries-on", defect: "a new leader does not wait for the DELETE of the last one if the IPAddress has no claim",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "ok && isLeaving(a) && ofInfoblox(a.Spec.PoolRef) {",
		new:  "ok && !isLeaving(a) && ofInfoblox(a.Spec.PoolRef) {",
		test: "./controllers/clusteripam/infoblox TestLateDeleteOfAnIPAddressWithoutClaim",
	},
	{
		name: "infoblox-releases-a-copy", defect: "the host record of a claim is deleted with a copy of its IPAddress",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "l.isPaused(address), l.copied(address)",
		new:  "l.isPaused(address), false",
		test: "./controllers/clusteripam/infoblox TestIPAddressIsCopied",
	},
	{
		name: "infoblox-copy-is-the-claims", defect: "a claim that was copied with its IPAddress has the address of the original",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  " || l.copied(address)):",
		new:  "):",
		test: "./controllers/clusteripam/infoblox TestIPAddressIsCopied",
	},
	{
		name: "infoblox-copy-of-a-moved-one", defect: "a copy of an IPAddress that has come from another cluster, or of another program's, has the host record of the original",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "l.keepsRecord(other) && l.sameRecord(l.hostRecordOf(address), l.hostRecordOf(other))",
		new:  "false",
		test: "./controllers/clusteripam/infoblox TestIPAddressIsCopied",
	},
	{
		name: "infoblox-copies-go-together", defect: "two IPAddresses of one host record take each other for the original when both are deleted, and the record stays",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "\"\" && (address.DeletionTimestamp == nil || claimed)",
		new:  "\"\" || claimed",
		test: "./controllers/clusteripam/infoblox TestLastIPAddressOfARecord",
	},
	{
		name: "infoblox-moved-one-forgets-its-copy", defect: "a claim that was moved gives up its host record although another IPAddress has that",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "is = address != nil && l.copied(address)",
		new:  "is = address != nil && false",
		test: "./controllers/clusteripam/infoblox TestLastIPAddressOfARecord",
	},
	{
		name: "infoblox-copy-outlives", defect: "a claim that was copied with its IPAddress is told that it has the address when the original is released, which frees it",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "s.copy = !s.held && slices.ContainsFunc(",
		new:  "s.copy = s.held && slices.ContainsFunc(",
		test: "./controllers/clusteripam/infoblox TestCopyOutlivesItsOriginal",
	},
	{
		name: "infoblox-forced-away-gets-another", defect: "a claim whose IPAddress was forced away gets another address while its machine runs",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "if c.Had.Address.IsValid() {",
		new:  "if false {",
		test: "./controllers/clusteripam/infoblox TestIPAddressIsForcedAway",
	},
	{
		name: "infoblox-copies-wait", defect: "a claim that waits for a copy of its IPAddress is not told that the copy is gone",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "for name := range l.holders[l.firstOf(a)] {",
		new:  "for name := range l.holders[netip.Addr{}] {",
		test: "./controllers/clusteripam/infoblox TestTwoCopiesAtOnce",
	},
	{
		name: "infoblox-record-gone", defect: "a claim is told that it has the IPAddress of an earlier claim, whose host record is gone",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "if !served(claim) && address.Annotations[annotationClaim] != string(claim.UID) {",
		new:  "if !served(claim) && address == nil {",
		test: "./controllers/clusteripam/infoblox TestIPAddressWithoutARecord",
	},
	{
		name: "infoblox-record-of-another", defect: "a host record with the name and the address of an IPAddress counts as its own, whosever it is",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "return own && slices.Contains(r.Addresses(), c.Address)",
		new:  "return (own || c.Address.IsValid()) && slices.Contains(r.Addresses(), c.Address)",
		test: "./controllers/clusteripam/infoblox TestReserves",
	},
	{
		name: "infoblox-gone-stays", defect: "an IPAddress that is being deleted and has no host record stays in the way of the next claim",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "\tcase isLeaving(address):\n",
		new:  "\tcase false:\n",
		test: "./controllers/clusteripam/infoblox TestIPAddressWithoutARecord",
	},
	{
		name: "infoblox-record-about-to-go", defect: "a claim is told that it has a host record that a lost DELETE is about to remove",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "if err := l.settles(r, false); err != nil { // A removal",
		new:  "if err := l.settles(&recordState{busy: r.busy}, false); err != nil { // A removal",
		test: "./controllers/clusteripam/infoblox TestClaimMeetsALateDelete",
	},
	{
		name: "infoblox-unclear-unsaid", defect: "a claim that is deleted waits without a word for another one in its host record, of which nobody knows which address it has",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "if l.Now().Sub(since.Time) < 10*time.Second {",
		new:  "if !since.IsZero() {",
		test: "./controllers/clusteripam/infoblox TestUnclearRecordIsNotReleased",
	},
	{
		name: "infoblox-stray-unheard", defect: "the pool does not name an IPAddress whose claim has gone while the controller runs",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "\tif a, ok := l.addresses.Get(claim.Namespace, claim.Name); ok {",
		new:  "\tif a, ok := l.addresses.Get(claim.Namespace, claim.Name); ok && now != nil {",
		test: "./controllers/clusteripam/infoblox TestClaimIsForcedAway",
	},
	{
		name: "infoblox-put-back-is-released", defect: "a claim that was put back with its IPAddress loses its address while its machine runs",
		file: "controllers/clusteripam/infoblox/claim.go",
		old:  "(by != \"\" && by != string(claim.UID) ||",
		new:  "(by != string(claim.UID) ||",
		test: "./controllers/clusteripam/infoblox TestClaimIsPutBack",
	},
	{
		name: "infoblox-begins-unwritten", defect: "a host record is deleted before its IPAddress says so, and the next claim of the name is told that it has the address",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tif begun {\n",
		new:  "\tif begun || c.kind == shell.IPAddressClaims {\n",
		test: "./controllers/clusteripam/infoblox TestClaimIsStrippedWhileItIsReleased",
	},
	{
		name: "infoblox-begins-unseen", defect: "a host record is deleted before the cache shows that its IPAddress says so",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\treturn writes.Later(time.Second)\n}\n\n// releaseOrphan releases",
		new:  "\treturn nil\n}\n\n// releaseOrphan releases",
		test: "./controllers/clusteripam/infoblox TestReleaseWaitsForTheCache",
	},
	{
		name: "infoblox-begin-taken-back", defect: "a policy takes the annotation of a release away, which never begins then, and nobody says so",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "\tcase stored.Annotations[annotationReleasedBy] == \"\":\n",
		new:  "\tcase false:\n",
		test: "./controllers/clusteripam/infoblox TestReleaseIsTakenBack",
	},
	{
		name: "infoblox-half-released", defect: "an IPAddress whose host record was given up stays in the way until somebody deletes it",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "address.DeletionTimestamp != nil || address.Annotations[annotationReleasedBy] != \"\"",
		new:  "address.DeletionTimestamp != nil",
		test: "./controllers/clusteripam/infoblox TestClaimIsStrippedWhileItIsReleased",
	},
	{
		name: "infoblox-delete-forgotten", defect: "an IPAddress that lost its finalizer before its DELETE failed stays for ever, in the way of the next claim",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "FinalizerProtectAddress); missing && address.DeletionTimestamp != nil {",
		new:  "FinalizerProtectAddress); missing {",
		test: "./controllers/clusteripam/infoblox TestClaimIsStrippedWhileItIsReleased",
	},
	{
		name: "infoblox-new-leader-knows-no-place", defect: "a new leader does not wait for the DELETE of the last one if another program has created the IPAddress",
		file: "controllers/clusteripam/infoblox/release.go",
		old:  "if _, ok := recordOf(c.address); !ok {",
		new:  "if _, ok := recordOf(c.address); !ok && false {",
		test: "./controllers/clusteripam/infoblox TestLateDeleteOfAnIPAddressOfAnotherProgram",
	},
	{
		name: "infoblox-edited-claim-known", defect: "a claim that was edited to another kind of pool is remembered for ever",
		file: "controllers/clusteripam/infoblox/logic.go",
		old:  "if before != nil && (now == nil || now.UID != before.UID) {\n\t\tl.forgetClaim",
		new:  "if before != nil && ofInfoblox(before.Spec.PoolRef) && (now == nil || now.UID != before.UID) {\n\t\tl.forgetClaim",
		test: "./controllers/clusteripam/infoblox TestClaimOfAnotherKindIsForgotten",
	},
	{
		name: "infoblox-unpaused-unheard", defect: "an IPAddress that was deleted while its pool was paused stays when the pool is not paused any more",
		file: "controllers/clusteripam/infoblox/pool.go",
		old:  "{l.claimsOf[pool], l.addressesOf[pool]}",
		new:  "{l.claimsOf[pool]}",
		test: "./controllers/clusteripam/infoblox TestIPAddressOfAPausedPool",
	},
	{
		name: "infoblox-releases-anothers", defect: "the release of an IPAddress that somebody has edited takes the address of another claim out of the host record that they share",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "\tcase slices.Contains(owned, c.Address):\n",
		new:  "\tcase slices.Contains(r.Addresses(), c.Address):\n",
		test: "./controllers/clusteripam/infoblox/host TestRelease",
	},
	{
		name: "infoblox-edited-unseen", defect: "the release of a claim takes the address of another one out of the host record that they share, because somebody has edited that one's IPAddress",
		file: "controllers/clusteripam/infoblox/host/decide.go",
		old:  "\t\treturn nil, false\n\t}\n\tgone = owned",
		new:  "\t\treturn owned, false\n\t}\n\tgone = owned",
		test: "./controllers/clusteripam/infoblox TestIPAddressIsEditedUnseen",
	},
	{
		name: "infoblox-capitals", defect: "host records whose names differ only in capitals are two",
		file: "controllers/clusteripam/infoblox/host/names.go",
		old:  "\tn.Hostname, n.Machine, n.DNSZone = fold(n.Hostname), fold(n.Machine), fold(n.DNSZone)\n",
		new:  "",
		test: "./controllers/clusteripam/infoblox/host TestNames",
	},

	// Claims and ClusterDeployments.
	{
		name: "claim-prefix-zero", defect: "machines get a /0 if the claim has a cidr and no prefix", seen: "k0rdent",
		file: "controllers/clusteripam/claims/binding/network.go",
		old:  "n.prefix = cidr.Bits()",
		new:  "n.prefix = 0",
		test: testNetworks,
	},
	{
		name: "claim-binding-moves", defect: "the claim is bound to another ClusterDeployment after its field was removed and set anew", seen: "k0rdent",
		file: "controllers/clusteripam/claims/binding/claim.go",
		old:  "if recorded := Cluster(v.Claim); recorded != \"\" {",
		new:  "if recorded := Cluster(v.Claim); recorded == v.Claim.Spec.Cluster && recorded != \"\" {",
		test: testClaims,
	},
	{
		name: "claim-takes-over-clusteripam", defect: "a ClusterIPAM of another claim is taken over", seen: "k0rdent",
		file: "controllers/clusteripam/claims/binding/claim.go",
		old:  "case !owned && ref != \"\" && ref != claim.Name:",
		new:  "case !owned && ref != \"\" && ref != claim.Name && controller != nil:",
		test: testClaims,
	},
	{
		name: "claim-takes-over-pool", defect: "the addresses of a claim are written into an unrelated pool of its name", seen: "k0rdent",
		file: "controllers/clusteripam/claims/binding/pool.go",
		old:  "case !owner && (p.create == nil || len(p.changes) > 0):",
		new:  "case !owner && p.create == nil:",
		test: testAdoption,
	},
	{
		name: "claim-clusteripam-not-adopted", defect: "a ClusterIPAM without an owner is not adopted, so nobody deletes it", seen: "k0rdent",
		file: "controllers/clusteripam/claims/binding/claim.go",
		old:  "\tif !Owned(ipam, claim) {\n\t\tmetadata[\"ownerReferences\"]",
		new:  "\tif !Owned(ipam, claim) && ipam.Spec.ClusterIPAMClaimRef == \"\" {\n\t\tmetadata[\"ownerReferences\"]",
		test: testClaims,
	},
	{
		name: "claim-edit-lost", defect: "an edit of the claim does not reach the pool", seen: "k0rdent",
		file: "controllers/clusteripam/claims/binding/pool.go",
		old:  "case len(p.changes) > 0:\n\t\treturn &Write",
		new:  "case len(p.changes) > 3:\n\t\treturn &Write",
		test: testClaims,
	},
	{
		name: "claim-pool-replaced", defect: "a patch of the pool removes what users added", seen: "k0rdent",
		file: "controllers/clusteripam/claims/binding/pool.go",
		old:  "Changes: map[string]any{\"spec\": p.changes}}",
		new:  "Changes: map[string]any{\"spec\": map[string]any{\"addresses\": p.changes[\"addresses\"], \"excludedAddresses\": nil}}}",
		test: testClaims,
	},
	{
		name: "claim-invalid-edit-carried-out", defect: "an invalid edit of the provider moves the claim to a pool that does not exist",
		file: "controllers/clusteripam/claims/binding/claim.go",
		old:  "if !valid && v.IPAM != nil",
		new:  "if !valid && v.IPAM == nil",
		test: testClaims,
	},
	{
		name: "claim-bound-without-a-pool", defect: "a claim stays bound when its pool is being deleted", seen: "k0rdent",
		file: "controllers/clusteripam/claims/binding/pool.go",
		old:  "p.ready, p.create, p.changes, p.problem = false, nil, nil, &Finding",
		new:  "p.create, p.changes, p.problem = nil, nil, &Finding",
		test: testClaims,
	},
	{
		name: "claim-old-pool-stays", defect: "the pool of an earlier provider stays for ever", seen: "k0rdent",
		file: "controllers/clusteripam/claims/binding/claim.go",
		old:  "return &Write{Verb: Delete, Kind: kind, Object: other}, nil",
		new:  "return nil, nil",
		test: testClaims,
	},
	{
		name: "claim-ref-refused", defect: "a ClusterIPAM whose claim reference a user has changed is written again and again",
		file: "controllers/clusteripam/claims/binding/claim.go",
		old:  "claimRef = nil // The",
		new:  "claimRef = claim.Name // The",
		test: testClaims,
	},
	{
		name: "claim-status-blind", defect: "the status of a claim is written although the claim has changed since it was read",
		file: "controllers/clusteripam/claims/carry.go",
		old:  "patch := shell.MergePatchOfVersion(w.Object, map[string]any{\"status\": w.Changes})",
		new:  "patch := shell.MergePatch(w.Object, map[string]any{\"status\": w.Changes})",
		test: testClaims,
	},
	{
		name: "claim-after-a-failure", defect: "writes go on after one that failed",
		file: "controllers/clusteripam/claims/carry.go",
		old:  "\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\treturn nil",
		new:  "\t\tif err != nil && w.Verb != binding.PatchStatus {\n\t\t\treturn err\n\t\t}\n\t}\n\treturn nil",
		test: testClaims,
	},
	{
		name: "claim-taken-back", defect: "a write that an admission policy takes back counts as done: nothing is tried again, and nobody is told",
		file: "controllers/clusteripam/claims/carry.go",
		old:  "\t\treturn fmt.Errorf(\"patch %s %s: %w\", kind, of, shell.ErrTakenBack)\n",
		new:  "\t\treturn nil\n",
		test: testClaims,
	},
	{
		name: "claim-earlier-owner", defect: "a pool of an earlier claim of the same name is used before garbage collection deletes it",
		file: "controllers/clusteripam/claims/binding/pool.go",
		old:  "case !owner && earlier:",
		new:  "case !owner && earlier && len(p.changes) > 0:",
		test: testAdoption,
	},
	{
		name: "claim-instance-moves", defect: "a pool that works moves to another InfobloxInstance",
		file: "controllers/clusteripam/claims/binding/pool.go",
		old:  "case meta.IsStatusConditionTrue(v.Infoblox.Status.Conditions, v1alpha1.ConditionReady):\n\t\t\treturn now",
		new:  "case len(v.Instances) > 9:\n\t\t\treturn now",
		test: testInstances,
	},
	{
		name: "claim-exhausted-unsaid", defect: "nobody is told that a pool is full", seen: "k0rdent",
		file: "controllers/clusteripam/claims/binding/pool.go",
		old:  "if usage.Free <= 0 {",
		new:  "if usage.Free < 0 {",
		test: testConditions,
	},
	{
		name: "claim-ignored-unsaid", defect: "nobody is told that a network is not used", seen: "k0rdent",
		file: "controllers/clusteripam/claims/binding/claim.go",
		old:  "if used(spec.ClusterNetwork) {",
		new:  "if used(spec.ExternalNetwork) && used(spec.ClusterNetwork) {",
		test: testConditions,
	},
	{
		name: "shell-takes-over-a-restart", defect: "the controllers work as soon as the Lease of k0rdent's manager ends, and its next process does, too",
		file: "controllers/clusteripam/shell/other.go",
		old:  "> o.valid+comesBack:",
		new:  "> o.valid:",
		test: testOther,
	},
	{
		name: "shell-failure-stays", defect: "the health check names a failure that is over, for as long as the object waits for something else",
		file: "controllers/clusteripam/shell/health.go",
		old:  "Sub(f.last) < repeatedWithin {",
		new:  "Sub(f.last) < 1000*repeatedWithin {",
		test: "./controllers/clusteripam/shell TestHealthOfWorkThatIsPutOff",
	},
	{
		name: "shell-no-pace", defect: "an object that is changed back each time is written without a pause",
		file: "controllers/clusteripam/shell/pace.go",
		old:  "\t\to.pause = now.Add(restlessPause)\n\t\treturn false\n",
		new:  "\t\treturn true\n",
		test: "./controllers/clusteripam/shell TestPace",
	},
	{
		name: "gate-for-anybody", defect: "a ClusterDeployment gets the addresses of a claim for another one",
		file: "controllers/clusteripam/gate/opening/deployment.go",
		old:  "case cluster != d.Name:\n",
		new:  "case cluster != d.Name && claim.Spec.Cluster != d.Name:\n",
		test: testGateClosed,
	},
	{
		name: "gate-bound-unsaid", defect: "a claim that k0rdent's manager has bound and nobody has recorded keeps the gate closed without a word",
		file: "controllers/clusteripam/gate/opening/deployment.go",
		old:  "claim.Status.Bound && claim.Spec.Cluster == d.Name:",
		new:  "!claim.Status.Bound && claim.Spec.Cluster == \"\" && claim.Spec.Cluster == d.Name:",
		test: "./controllers/clusteripam/gate/opening TestBoundByAnother",
	},
	{
		name: "gate-of-others-clusteripam", defect: "the gate opens by a ClusterIPAM that does not belong to the claim", seen: "k0rdent",
		file: "controllers/clusteripam/gate/opening/deployment.go",
		old:  "case ipam == nil || !binding.Owned(ipam, claim) || ",
		new:  "case ipam == nil || ",
		test: testGateClosed,
	},
	{
		name: "gate-half-open", defect: "config.ipPool is written without ipamEnabled",
		file: "controllers/clusteripam/gate/opening/deployment.go",
		old:  "changes[v1beta1.ConfigIPAMEnabled] = true",
		new:  "changes[v1beta1.ConfigIPAMEnabled] = len(c.changes) > 1",
		test: testConfig,
	},
	{
		name: "gate-overwrites-config", defect: "a pool that a user wrote into the config is replaced, again and again",
		file: "controllers/clusteripam/gate/opening/deployment.go",
		old:  "case reflect.DeepEqual(is, written[data.Name]):",
		new:  "case data.Ready:",
		test: testClaims,
	},
	{
		name: "gate-opens-for-a-users-pool", defect: "ipamEnabled is written although the pool in the config is not the claim's", seen: "k0rdent",
		file: "controllers/clusteripam/gate/opening/deployment.go",
		old:  "case c.foreign != \"\": //",
		new:  "case c.foreign != \"\" && enabled == true: //",
		test: testClaims,
	},
	{
		name: "gate-stale-config", defect: "the config keeps the pool that the claim had before", seen: "k0rdent",
		file: "controllers/clusteripam/gate/opening/deployment.go",
		old:  "written[data.Name]):\n\t\t\tc.changes[data.Name] = entry",
		new:  "written[data.Name]):",
		test: testConfig,
	},
	{
		name: "gate-overwrites-claim", defect: "a claim of a user that has the name of an inline claim is overwritten", seen: "k0rdent",
		file: "controllers/clusteripam/gate/opening/deployment.go",
		old:  "case !owner && len(changes) > 0:",
		new:  "case !owner && len(changes) > 4:",
		test: testClaims,
	},
	{
		name: "gate-inline-without-cluster", defect: "an inline claim is for no ClusterDeployment", seen: "k0rdent",
		file: "controllers/clusteripam/gate/opening/deployment.go",
		old:  "\tif want.Cluster == \"\" {\n",
		new:  "\tif want.Cluster == d.Name {\n",
		test: "./controllers/clusteripam/gate/opening TestInlineClaim",
	},
	{
		name: "gate-not-woken", defect: "a ClusterDeployment is not told of its claim", seen: "k0rdent",
		file: "controllers/clusteripam/gate/gate.go",
		old:  "for user := range l.users[nameOf(c.Object())] {",
		new:  "for user := range l.users[types.NamespacedName{Name: c.Object().GetName()}] {",
		test: testClaims,
	},
	{
		name: "claim-not-woken-by-instance", defect: "a claim waits for an InfobloxInstance and is not told when there is one",
		file: "controllers/clusteripam/claims/claims.go",
		old:  "if claim.Spec.Provider == v1beta1.ProviderInfoblox {\n\t\t\t\tl.Queue",
		new:  "if claim.Spec.Provider == v1beta1.ProviderInfoblox && claim.Status.Bound {\n\t\t\t\tl.Queue",
		test: testClaims,
	},
}
