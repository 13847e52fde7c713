// Package nodeipam gives every Node its Pod ranges, node.spec.podCIDRs, from ClusterCIDR objects. It watches, asks and writes. What it writes is
// decided below it, by packages that make no calls:
//
//	nodeipam      queues, workers, writes, events, metrics, health
//	  debugpage   what the controller knows, as a page and as JSON
//	  allocator   all that is known, and who gets which block
//	  clustercidr one ClusterCIDR compiled, and in which order ClusterCIDRs are tried for a Node
//	  text        messages that have an end
//	ipam          prefixes, owners, and the next free block
//
// One Node's way:
//
//  1. An event enters in the state what the Node shows, and puts its name on a queue if there is something to do (heardOfNode).
//  2. Nothing is decided before every ClusterCIDR and every Node that exists has been read, from caches at least as new as
//     the leader's lease (fresh.go), and what it holds has been entered in the state (start.go, allocator/rebuild.go).
//  3. syncNode (node.go) reads the Node from the cache. Gone: its blocks are free. Shows podCIDRs: they are what it
//     holds, whoever wrote them. Being deleted: nothing changes, its Pods may still run.
//  4. Otherwise the state (allocator/reservation.go) reserves one block from every range of the first ClusterCIDR that can serve it, under
//     the one lock there is. None can: the Node is pending, an event on it says why, and whatever may help wakes it.
//  5. One PATCH writes the blocks, with the UID of the Node they were chosen for, and only while the leader lease is good
//     (fence.go, docs/fencing.md).
//  6. The watch shows the Node with its podCIDRs, and the reservation becomes an observation.
//
// A reservation belongs to a Node, by UID, until the Node shows podCIDRs or is gone. A PATCH whose answer was an error, or was lost,
// may have been carried out, or may still be: it is repeated with the same blocks until an answer or a read tells that no write of them was
// carried out and none can be (allocator/reservation.go). Then the Node may get others.
//
// A panic ends the Controller, not the process: another one is built in its place and starts as a new leader does (panic.go, and package
// restart).
//
// Beside that way: clustercidr.go and finalizer.go keep finalizers, flags.go and service.go follow the flags of the in-tree allocator and service
// ranges, stored.go reads ClusterCIDRs; announce.go and events.go write events, status.go statuses; other.go notices another allocator, missing.go a
// restore of etcd; health.go, metrics.go and debug.go say what is known.
package nodeipam
