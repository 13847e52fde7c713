// Package nodeipam gives every Node its Pod ranges, node.spec.podCIDRs, from ClusterCIDR objects. This package watches and writes. What it writes is
// decided by packages that make no calls:
//
//	allocator   all that is known, and which Node gets which block
//	clustercidr one ClusterCIDR compiled, and in which order ClusterCIDRs are tried for a Node
//	fromflags   the ClusterCIDR that --cluster-cidr stands for
//	text        messages of a limited length
//	ipam        prefixes, owners, and the next free block (controllers/ipam)
//
// These are between it and the API server, or people:
//
//	requests    what is written, the fence, and what an answer tells
//	queues      retries
//	fresh       caches that are new enough to decide by
//	stored      how ClusterCIDRs are read
//	events, health, metrics, debugpage
//
// One Node's way:
//
//  1. An event enters in the state what the Node shows, and puts its name on a queue if there is something to do (heardOfNode).
//  2. Nothing is decided before every ClusterCIDR and every Node that exists has been read, from caches at least as new as
//     the leader's lease (package fresh), and what it holds has been entered in the state (start.go, allocator/rebuild.go).
//  3. syncNode (node.go) reads the Node from the cache. Gone: its blocks are free. Shows podCIDRs: they are what it
//     holds, whoever wrote them. Being deleted: nothing changes, its Pods may still run.
//  4. Otherwise the state (allocator/reservation.go) reserves one block from every range of the first ClusterCIDR that can serve it, under
//     the one lock there is. None can: the Node is pending, an event on it says why, and whatever may help wakes it.
//  5. One PATCH writes the blocks, with the UID of the Node they were chosen for, and only while the leader lease is good
//     (requests/fence.go, docs/operators/fencing.md).
//  6. The watch shows the Node with its podCIDRs, and the reservation becomes an observation.
//
// A reservation belongs to a Node, by UID, until the Node shows podCIDRs or is gone. A PATCH whose answer was an error, or was lost,
// may have been carried out, or may still be: it is repeated with the same blocks until an answer, or a read and a renewal of the lease after it,
// tell that no write of them was carried out and none can be (allocator/outcome.go). Then the Node may get others.
//
// A panic ends the Controller, not the process: another one is built in its place and starts as a new leader does (panic.go, and package
// restart).
//
// Beside that way: clustercidr.go and finalizer.go keep finalizers, status.go writes statuses, flags.go and service.go follow the flags of the in-tree
// allocator and service ranges, announce.go chooses events; other.go notices another allocator, missing.go a restore of etcd, and takeover.go waits for
// what an earlier allocator has sent.
package nodeipam
