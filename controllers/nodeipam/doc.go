// Package nodeipam allocates Pod ranges (node.spec.podCIDRs) to Nodes from ClusterCIDR objects.
//
// The way of one Node, from its event to its podCIDRs:
//
//  1. handlers.go: the informer's handler records in the state what the Node shows, and queues its name if there is something to do.
//     Handlers are added when the caches are fresh (start.go), so the state never knows less than an earlier leader did.
//  2. node.go: a worker takes the name and asks the state what to do. It never asks a cache.
//  3. allocator/choose.go: the state makes the ordinary choice, after a walk over older Nodes if one is due, and reserves the blocks.
//  4. ipam/ledger.go: a block is free if it overlaps nothing that anybody holds.
//  5. node.go: the worker waits for the client-side limit and for the fence (package lease), and only then locks the state, has the
//     reservation checked, and sends one PATCH with the UID of the Node (api/api.go).
//  6. node.go: the answer. 200: assigned. Refused: the blocks are free at once, and the Node is in back-off. No answer: the same blocks are
//     sent again. One read decides only about blocks that are not sent again.
//  7. The watch shows the Node with podCIDRs, and they are what it holds.
//
// Everything under one lock is computation; no request is made and no large object is compiled while it is held. A panic ends the process, as
// in every controller beside this one.
package nodeipam
