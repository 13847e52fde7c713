package lease

import (
	"slices"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Renewals is what the renewals of a lease reveal about the store behind the API server. A renewal is a compare-and-swap on the Lease that
// this process last wrote or read. If a renewal that was sent after a read succeeds, and the Lease never went back, then the store behind
// that read had everything that this process had written until then.
//
// Renewals cannot show that a store went back to a moment after the last renewal. For that, a backup and the loss of the data after it must
// happen within one retry period.
type Renewals struct {
	// Sent is the number of renewals that were sent. Proven is the number, counted from 1, of the last successful one.
	Sent, Proven int
	// WentBack is how many renewals had been sent when the Lease was last found to be an earlier one of this term, or gone: etcd was
	// restored from a backup, or the Lease was edited or deleted. 0: that never happened.
	WentBack int
}

// Renewals returns what the renewals so far reveal. It is zero without leader election.
func (f *Fence) Renewals() Renewals {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.renewals
}

// wentBack notes and reports that a lease is an earlier one of this term: this process wrote it before the last one that it knows to be
// stored. No other process can have been the leader between the two, because a process leads only once. So the allocation state of this
// process is still right, and contains more than can be read now. This process keeps the lease.
func (f *Fence) wentBack(record *resourcelock.LeaderElectionRecord) bool {
	// In coordinated leader election the lease does not say when a term began, and the API server may have written it.
	if f.duration == 0 || record.HolderIdentity != f.holder || f.acquired.IsZero() || !record.AcquireTime.Time.Equal(f.acquired) ||
		slices.ContainsFunc(f.stamps, stamp(*record).Equal) || !f.sentBefore(stamp(*record)) {
		return false
	}
	f.renewals.WentBack = f.renewals.Sent
	f.stamps = append(f.stamps, stamp(*record)) // this process wrote it
	return true
}

// sentBefore reports whether a renewal with that time was sent before the last successful one. If a clock was set back, its time may be later.
func (f *Fence) sentBefore(at time.Time) bool {
	return at.Before(f.stamps[0]) || f.shown.end(at.Unix()) >= at.Unix()
}

// creates notes that the lease is about to be created, although this process holds it.
func (f *Fence) creates() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.duration > 0 {
		f.renewals.WentBack = f.renewals.Sent
	}
}
