package lease

import (
	"context"
	"maps"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// LabelTerm on a Lease is the number of the term (leaseTransitions) whose leader called Fence.Mark: since then only fenced writes could
// arrive. Every elector increases leaseTransitions when it takes over the Lease from another process, and does not change labels. So if the
// label is not the number of the last term, another program was the last leader, or the last leader ended before it called Mark.
const LabelTerm = "networking.x-k8s.io/node-ipam-term"

// Predecessor is the kind of leader before this process. A write of a predecessor may arrive after it has lost the Lease; only a fence
// rules that out.
type Predecessor string

const (
	// NoElection: there is no Lease, so nothing is known.
	NoElection Predecessor = ""
	// NoPredecessor: this process created the Lease.
	NoPredecessor Predecessor = "none"
	// FencedPredecessor: the last leader called Fence.Mark, so no write from before this term can arrive now.
	FencedPredecessor Predecessor = "fenced"
	// OtherPredecessor: any other leader, or an unknown one.
	OtherPredecessor Predecessor = "other"
)

// Predecessor returns the kind of leader before this process. The answer is final once this process is the leader.
func (f *Fence) Predecessor() Predecessor {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.predecessor
}

// Led returns for how long this process has been the leader or, if its fence is Unelected, has run. The true time can be longer, because
// the monotonic clock stops while the machine is suspended. It is 0 before this process is the leader.
func (f *Fence) Led() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.leads() {
		return 0
	}
	return f.clocks.now().monotonic - f.begun
}

// leads reports whether the term has begun. The caller holds mu.
func (f *Fence) leads() bool { return f.holder == "" || f.duration > 0 }

// Mark records that from now on only fenced writes can arrive: the writes of the predecessor are over, and this process sends no other
// writes. The next renewal writes the mark to the Lease.
func (f *Fence) Mark() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.marked = true
}

// follows notes the kind of leader before this process, unless this process is the leader.
func (f *Fence) follows(p Predecessor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.leads() {
		f.predecessor = p
	}
}

// findPredecessor reads the labels of the Lease before this process takes it: what an elector reads does not have them. If the Lease changes
// before it is taken, the API server refuses the elector's Update. A lock that is not a LeaseLock has no labels, so the predecessor stays unknown.
func (l *lock) findPredecessor(ctx context.Context) error {
	l.fence.mu.Lock()
	leads := l.fence.leads()
	l.fence.mu.Unlock()
	if leads {
		return nil
	}
	inner := leaseLockOf(l.Interface)
	if inner == nil {
		l.fence.follows(OtherPredecessor)
		return nil
	}
	lease, err := inner.Client.Leases(inner.LeaseMeta.Namespace).Get(ctx, inner.LeaseMeta.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// The API server may have carried out a first write whose answer was lost. Then the Lease is this process's own, and says nothing about others.
	if lease.Spec.Strategy != nil || ptr.Deref(lease.Spec.HolderIdentity, "") != l.Identity() {
		l.fence.follows(predecessorOf(lease))
	}
	return nil
}

func predecessorOf(lease *coordinationv1.Lease) Predecessor {
	switch {
	case lease.Spec.Strategy != nil:
		// In coordinated leader election the API server names a new holder and does not count that as a transition.
		return OtherPredecessor
	case lease.Spec.LeaseTransitions != nil && lease.Labels[LabelTerm] == strconv.Itoa(int(*lease.Spec.LeaseTransitions)):
		return FencedPredecessor
	}
	return OtherPredecessor
}

// label makes the lock write the label with this record if the term is marked.
func (l *lock) label(record resourcelock.LeaderElectionRecord) {
	l.fence.mu.Lock()
	marked := l.fence.marked
	l.fence.mu.Unlock()
	if inner := leaseLockOf(l.Interface); inner != nil && marked {
		inner.Labels = maps.Clone(inner.Labels)
		if inner.Labels == nil {
			inner.Labels = map[string]string{}
		}
		inner.Labels[LabelTerm] = strconv.Itoa(record.LeaderTransitions)
	}
}

// leaseLockOf returns the LeaseLock in a lock, or nil.
func leaseLockOf(lock resourcelock.Interface) *resourcelock.LeaseLock {
	for {
		switch l := lock.(type) {
		case *resourcelock.LeaseLock:
			return l
		case interface{ Unwrap() resourcelock.Interface }:
			lock = l.Unwrap()
		default:
			return nil
		}
	}
}
