// Package inspect answers questions about Nodes and ClusterCIDRs: why a Node has its podCIDRs or none, who has an address, how full
// ClusterCIDRs are, and what a change would do. kubectl node-ipam and the debug page show its answers. It makes no calls.
//
//	objects ─► New ─► state ─► settle: pending Nodes get reservations, the oldest first
//	                    │                     │
//	                    └──── Who             └──── Explain, Status, Map, Plan
//	the controller's state ─► Of ─► Status, Node
//
// From objects it fills an allocator's state as the controller does at its start, and lets that allocate. So it predicts what the controller
// does, because it is the same code. What only the controller's memory knows is missing then: blocks that are reserved and not written yet.
// A prediction chooses them again, which gives the same blocks unless something has changed in between.
package inspect
