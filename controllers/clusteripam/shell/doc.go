// Package shell runs one controller of Cluster IPAM: a Logic that decides, and around it everything that talks to the API server.
//
// The path of one object:
//
//  1. The controller waits until the API server serves every kind that the Logic reads (kinds.go). CustomResourceDefinitions may come, go or
//     change their versions while the process runs. Each change begins a new term (term.go), with a new Logic. Only a kind that is
//     Optional may be absent.
//  2. A term begins with consistent reads, made after the leader's Lease was acquired and after every unanswered write of the process is
//     over. Then Logic.Fill builds the state from the Stores.
//  3. An event first changes the Store of its kind, then Logic.Heard changes the state and queues keys (feed.go). Stores and state change
//     together, under one Lock. No event is skipped, and none is seen twice.
//  4. A worker takes a key and calls Logic.Sync, which reads Stores and state under the Lock, and writes without it. The returned error
//     says when to try again (package writes: Later, RefusedLater, a closed fence, or an ever longer pause).
//  5. A write passes the fence (api.go), and is sent exactly once. writes.Answered(err) says whether its outcome is known. What the API
//     server answers is in the Store at once, so that nothing is decided from a cache that is older than this process's own writes.
//  6. The watch shows the result, and Logic.Heard confirms it.
//
// A panic ends the Controller, not the process: package restart builds another one.
//
// A simulation uses Store, Feed and Lock as they are, and puts its own server, clock and queue into Parts.
package shell
