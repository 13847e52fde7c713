// Package inspect answers questions about a cluster from its objects: why a Node has its podCIDRs or none, who has an address, how full
// ClusterCIDRs are, and what a change of them would do. It fills an allocator's state as the controller does at its start, and lets that
// allocate. So it predicts what the controller does, because it is the same code. It makes no calls.
//
// What only the controller's memory knows is missing: blocks that it has reserved and not written yet. A prediction chooses them anew, which
// gives the same blocks unless something has changed in between.
//
//	objects ─► New ─► state ─► settle: pending Nodes get reservations, the oldest first
//	                    │                      │
//	                    └──── Who              └──── Explain, Status, Plan
package inspect
