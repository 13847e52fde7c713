package lease

import (
	"slices"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Renewals is what the renewals of a lease tell about the store behind the API server. A renewal is a compare-and-swap on the Lease that
// this process wrote last, or saw last. So one that was sent after something was read, and that succeeded while the Lease never went back,
// proves that the store from which that was read has all that this process wrote until then.
//
// It does not see a store that went back to a moment after the last renewal: that takes a backup, and the loss of what came after it, within
// one retry period.
type Renewals struct {
	// Sent is how many renewals were sent, Proven which of them was the last one that succeeded, counted from 1.
	Sent, Proven int
	// WentBack is how many renewals had been sent when the Lease was last seen to be an earlier one of this term again, or gone: etcd was
	// restored from a backup, or somebody edited or deleted the Lease. 0: it never was.
	WentBack int
}

// Renewals returns what the renewals so far tell. Without leader election there are none.
func (f *Fence) Renewals() Renewals {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.renewals
}

// wentBack notes, and reports, that a lease is an earlier one of this term: its holder, this process, wrote it before the last one that it
// knows to be stored. Nobody else can have led between the two, since a process leads once. So what this process knows is still right, and
// more than what can be read now: it keeps the lease.
func (f *Fence) wentBack(record *resourcelock.LeaderElectionRecord) bool {
	// In coordinated leader election the lease does not say when a term began, and the API server may have written it.
	if f.duration == 0 || record.HolderIdentity != f.holder || f.acquired.IsZero() || !record.AcquireTime.Time.Equal(f.acquired) ||
		slices.ContainsFunc(f.stamps, stamp(*record).Equal) || !stamp(*record).Before(f.stamps[0]) {
		return false
	}
	f.renewals.WentBack = f.renewals.Sent
	f.stamps = append(f.stamps, stamp(*record)) // its own
	return true
}

// creates notes that the lease is about to be created, although this process holds it.
func (f *Fence) creates() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.duration > 0 {
		f.renewals.WentBack = f.renewals.Sent
	}
}
