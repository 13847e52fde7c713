// Package nodeipam allocates Pod ranges (node.spec.podCIDRs) to Nodes from ClusterCIDR objects. This package watches and writes. What it
// writes is decided by packages that make no calls:
//
//	allocator   the allocation state, and which Node gets which block
//	clustercidr a compiled ClusterCIDR, and the order in which ClusterCIDRs are tried for a Node
//	pending     why Nodes are pending, for people
//	conditions  the conditions of ClusterCIDRs, for people
//	exhausted   why ClusterCIDRs have no free blocks, for people
//	fromflags   the ClusterCIDR that --cluster-cidr stands for
//	author      who wrote a Node's podCIDRs
//	names       a set of names
//	finalizers  whether the finalizers that were added to ClusterCIDRs are kept
//	text        messages of limited length (controllers/text)
//	ipam        prefixes, owners, and the next free block (controllers/ipam)
//
// These packages connect it to the API server and to people:
//
//	requests    what is written
//	writes      the fence that writes pass, and what an answer means (controllers/writes)
//	queues      retries (controllers/queues)
//	fresh       caches that are recent enough for decisions
//	seen        whether the changes of all kinds of objects are seen
//	stored      how ClusterCIDRs are read
//	takeover    the wait for the last writes of an earlier allocator
//	events, health, metrics, traffic, debugpage
//	options     the flags, and a Controller from them
//
// The path of one Node:
//
//  1. An event records in the state what the Node shows, and queues the Node's name if there is something to do (heardOfNode). If the Node needs
//     podCIDRs, the state decides at once, under the same lock, for this and all other pending Nodes, oldest first (allocator/line.go).
//  2. Nothing is decided before every existing ClusterCIDR and Node has been read, from caches at least as recent as the leader's Lease
//     (package fresh), and what the Nodes hold has been recorded in the state (start.go, allocator/rebuild.go).
//  3. syncNode (node.go) reads the Node from the cache. If it is gone, its blocks become free. If it shows podCIDRs, it holds those, no
//     matter which program wrote them. If it is being deleted, it gets no new blocks, and keeps those that may have been written: its Pods may still run.
//  4. Otherwise the state has reserved one block from every range of the first ClusterCIDR that can serve the Node, unless something may exist
//     that it does not know of (package seen), and checks that this is still right (allocator/reservation.go). If no ClusterCIDR can, the Node
//     is pending: an event on it says why. A block that becomes free or a ClusterCIDR that changes leads to the next decision, and those that
//     get blocks are queued.
//  5. One PATCH writes the blocks, with the UID of the Node for which they were chosen, and only while the leader Lease is valid
//     (requests/fence.go, docs/operators/fencing.md).
//  6. The watch shows the Node with its podCIDRs, and the reservation becomes an observation.
//
// A reservation belongs to a Node, by UID, until the Node shows podCIDRs or is gone. If the answer to a PATCH is an error or is lost, the
// PATCH may have been carried out, or may still be. It is repeated with the same blocks until an answer, or a read followed by a renewal of
// the Lease, shows that no write of the blocks was carried out and none can be (allocator/outcome.go). Then the Node may get other blocks.
//
// A panic ends the Controller, not the process: another Controller is built in its place and starts as a new leader does (panic.go, and
// package restart).
//
// The other files: clustercidr.go and finalizer.go maintain finalizers, status.go writes statuses, flags.go and service.go follow the flags
// of the in-tree allocator and the service ranges, and announce.go chooses events. other.go reports another allocator, and missing.go a
// restore of etcd.
package nodeipam
