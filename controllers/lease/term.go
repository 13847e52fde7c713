package lease

import (
	"context"
	"strconv"

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
	if f.duration == 0 {
		f.predecessor = p
	}
}

// findPredecessor reads the labels of the Lease before this process takes it: what an elector reads does not have them. If the Lease changes
// before it is taken, the API server refuses the elector's Update.
func (l *lock) findPredecessor(ctx context.Context) error {
	inner, ok := l.Interface.(*resourcelock.LeaseLock)
	if !ok || l.fence.leads() {
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

// predecessorOf never trusts a Lease of coordinated leader election: there the API server names a new holder and does not count that as a
// transition.
func predecessorOf(lease *coordinationv1.Lease) Predecessor {
	if n := lease.Spec.LeaseTransitions; lease.Spec.Strategy == nil && n != nil && lease.Labels[LabelTerm] == strconv.Itoa(int(*n)) {
		return FencedPredecessor
	}
	return OtherPredecessor
}

// label makes the lock write the label with this record if the term is marked.
func (l *lock) label(record resourcelock.LeaderElectionRecord) {
	l.fence.mu.Lock()
	defer l.fence.mu.Unlock()
	if inner, ok := l.Interface.(*resourcelock.LeaseLock); ok && l.fence.marked {
		inner.Labels = map[string]string{LabelTerm: strconv.Itoa(record.LeaderTransitions)} // Others on the Lease stay.
	}
}
