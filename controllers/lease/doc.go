// Package lease prevents a former leader from writing.
//
// Leader election alone does not. A leader notices only at its next renewal that it has lost its lease. If its process was paused, its
// machine suspended or its network cut, it continues until then as if nothing had happened. So every write asks a Fence first. The Fence
// permits a write only if the write is certain to end before another process can become the leader:
//
//	renewal sent      write sent          its answer is due         lease over
//	     |-----------------|----------------------|-------------------|----> time
//	     |<----elapsed---->|<------timeout------->|
//	                       |<---transit--->|<------timeout------->|
//	     |<------------------------duration-------------------------->|
//
//	a write may be sent only while duration - elapsed > transit + timeout
//
// Elapsed time counts from the moment at which the last successful renewal was sent. A process that wants to acquire the lease counts the
// same duration from the moment at which it saw that renewal, which is later. A renewal that failed, or whose answer was lost, does not
// count, even if the API server carried it out.
//
// The API server counts the timeout of a request from the moment at which it receives the request, and a request can be delayed on its way.
// The transit time allows for that: it is a third of the lease, or more if more of the lease is left. The timeout is also a third of the
// lease, or what the caller asks for if that is less. With client-go's usual lease of 15 seconds both are 5 seconds, so writes stop 5
// seconds after the last renewal. The lease is renewed every 2 seconds, so writes are always possible. Elect logs if that is not so
// with other settings.
//
// The API server can carry out an unanswered write until the expiry of the lease that was valid when the write was sent. Until then this
// process does not release the lease but lets it expire.
//
// The second rule is that a process leads only once. Its view of which blocks are free is right only while no other process allocates. So
// it does not acquire the lease again after another process has held it, and it does not release the lease of another process.
//
// Earlier leaders may have had no fence. So a leader marks the Lease with the number of its term once no write of an earlier leader can
// arrive any more. A leader that does not find the number of the last term there must wait.
//
// This package cannot prevent everything. A process can stop after its last look at the clock and before the kernel has the request, and a
// request can be delayed for longer than the transit time. Part of that time can get lost: electors tell renewals apart by whole seconds, so
// if the wall clock is set back, or the retry period is below a second, a challenger may count from an earlier renewal.
// docs/operate/policies.md says what that means and what the API server can do about it.
package lease
