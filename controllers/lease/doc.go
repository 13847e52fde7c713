// Package lease keeps a leader that was deposed from writing.
//
// Leader election alone does not: a leader finds out that it lost its lease when it next tries to renew it, and until then a
// process that was paused, a machine that was suspended or a network that was cut lets it go on as if nothing had happened.
// So a write asks a Fence first, and gets leave only if it will have ended, whatever comes, before anybody else can lead:
//
//	renewal sent         write sent      its deadline      lease over
//	     |--------------------|----------------|---------------|----> time
//	     |<-----elapsed------>|<---timeout---->|
//	     |<--------------------duration----------------------->|
//
//	a write may be sent only while duration - elapsed > timeout
//
// Elapsed time counts from when the last renewal that succeeded was sent. Whoever wants to take the lease over counts the same
// duration from when it saw that renewal, which is later. A renewal that failed, or whose answer was lost, does not count, even
// if it was carried out.
//
// How long a write may take follows from the lease: a third of it, or what the caller asks for if that is less. With client-go's
// usual 15 seconds that is 5, so writes stop 10 seconds after the last renewal, which is the usual renew deadline, at which the
// elector gives up. In between the lease is renewed every 2 seconds, so writes are always possible. CheckTimes says whether that is so
// for other settings.
//
// The other half is that a process leads once. What it holds for free, or for its own, is right only as long as nobody else decides; so it
// does not take the lease back after somebody else has had it, and does not release what is another one's.
//
// What it cannot see: a process can still stop after its last look at the clock and before the kernel has the request, and a request
// can still be delayed on its way. docs/fencing.md says what that means and what the API server can do about it.
package lease
