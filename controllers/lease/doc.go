// Package lease keeps a leader that was deposed from writing.
//
// Leader election alone does not: a leader finds out that it lost its lease when it next tries to renew it, and until then a
// process that was paused, a machine that was suspended or a network that was cut lets it go on as if nothing had happened.
// So a write asks a Fence first, and gets leave only if it will have ended, whatever comes, before anybody else can lead:
//
//	renewal sent      write sent          its answer is due         lease over
//	     |-----------------|----------------------|-------------------|----> time
//	     |<----elapsed---->|<------timeout------->|
//	                       |<---transit--->|<------timeout------->|
//	     |<------------------------duration-------------------------->|
//
//	a write may be sent only while duration - elapsed > transit + timeout
//
// Elapsed time counts from when the last renewal that succeeded was sent. Whoever wants to take the lease over counts the same
// duration from when it saw that renewal, which is later. A renewal that failed, or whose answer was lost, does not count, even
// if it was carried out.
//
// The API server counts the timeout of a request from when it receives it, and a request can be held up on its way: for a third of
// the lease at least, or for longer if more of the lease is left. The timeout is a third of the lease too, or what the caller asks for if
// that is less. With client-go's usual 15 seconds both are 5, so writes stop 5 seconds after the last renewal. The lease is renewed
// every 2 seconds, so writes are always possible. CheckTimes says whether that is so for other settings.
//
// A write that was not answered is over when the lease runs out that was good when it was sent. Until then this process does not release
// the lease: it lets it run out.
//
// The other half is that a process leads once. What it holds for free, or for its own, is right only as long as nobody else decides; so it
// does not take the lease back after somebody else has had it, and does not release what is another one's.
//
// Others may have led before without any fence. So a leader marks the Lease with the number of its term once nothing of theirs can arrive any
// more, and a leader that does not find the number of the last term there knows that it has to wait.
//
// What it cannot see: a process can still stop after its last look at the clock and before the kernel has the request, and a request
// can be held up on its way for longer than that. docs/fencing.md says what that means and what the API server can do about it.
package lease
