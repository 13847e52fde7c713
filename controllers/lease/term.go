package lease

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LabelTerm on a Lease is the term (leaseTransitions) whose leader called Fence.Mark: from then on only fenced writes could arrive. Every
// elector counts leaseTransitions up when it takes the Lease from another process, and leaves labels alone. So a label that is not the
// number of the last term says that another program led last, or that the leader ended before it called Mark.
const LabelTerm = "networking.x-k8s.io/node-ipam-term"

// Predecessor is who led before this process. What a predecessor has sent may arrive after it has lost the Lease; only a fence rules that out.
type Predecessor string

const (
	// NoElection: there is no Lease, so there is nothing to tell from.
	NoElection Predecessor = ""
	// NoPredecessor: this process created the Lease.
	NoPredecessor Predecessor = "none"
	// FencedPredecessor: the last leader called Fence.Mark, so nothing that was sent before this term can arrive now.
	FencedPredecessor Predecessor = "fenced"
	// OtherPredecessor: any other leader, or nobody can tell.
	OtherPredecessor Predecessor = "other"
)

// term is what a Fence knows of the term that it is for, and of the one before. It has a lock of its own.
type term struct {
	identity string // of this process

	mu          sync.Mutex
	predecessor Predecessor
	earlier     string // the last other holder that was read in the Lease before this process led; empty if there was none
	// begun is when the first write of this term was answered, by the monotonic clock. Before, leads is false.
	begun         time.Duration
	leads, marked bool
}

// Predecessor is who led before this process. It is final once this process leads.
func (f *Fence) Predecessor() Predecessor {
	f.term.mu.Lock()
	defer f.term.mu.Unlock()
	return f.term.predecessor
}

// EarlierHolder is who held the Lease last, of all that this process has seen there before it led; empty if it saw nobody.
func (f *Fence) EarlierHolder() string {
	f.term.mu.Lock()
	defer f.term.mu.Unlock()
	return f.term.earlier
}

// Led is for how long this process has led, or run if its fence is Unelected, at least: the monotonic clock stands still while the machine is
// suspended. 0 before it leads.
func (f *Fence) Led() time.Duration {
	now := f.readClocks().monotonic
	f.term.mu.Lock()
	defer f.term.mu.Unlock()
	if !f.term.leads {
		return 0
	}
	return now - f.term.begun
}

// Mark says that from now on only fenced writes can arrive: the predecessor's are over, and this process makes no others. The next renewal
// writes it to the Lease.
func (f *Fence) Mark() {
	f.term.mu.Lock()
	defer f.term.mu.Unlock()
	f.term.marked = true
}

// begin notes that this process leads.
func (f *Fence) begin() {
	now := f.readClocks().monotonic
	f.term.mu.Lock()
	defer f.term.mu.Unlock()
	if !f.term.leads {
		f.term.leads, f.term.begun = true, now
	}
}

// found notes what a Lease was when it was read before this process led; nil if there was none.
func (t *term) found(lease *coordinationv1.Lease) {
	// A first write whose answer was lost was carried out all the same. It is this process's, and says nothing about others.
	own := lease != nil && lease.Spec.Strategy == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == t.identity
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leads || own {
		return
	}
	t.predecessor = predecessorOf(lease)
	if lease != nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" && *lease.Spec.HolderIdentity != t.identity {
		t.earlier = *lease.Spec.HolderIdentity
	}
}

func predecessorOf(lease *coordinationv1.Lease) Predecessor {
	switch {
	case lease == nil:
		return NoPredecessor
	case lease.Spec.Strategy != nil:
		// Coordinated leader election. The API server names a new holder and does not count that as a transition.
		return OtherPredecessor
	case lease.Spec.LeaseTransitions != nil && lease.Labels[LabelTerm] == strconv.Itoa(int(*lease.Spec.LeaseTransitions)):
		return FencedPredecessor
	}
	return OtherPredecessor
}

// follow makes t see every Lease that a lock reads. A lock that is no LeaseLock has no labels, so its predecessor stays unknown.
func (t *term) follow(lock resourcelock.Interface) {
	t.identity, t.predecessor = lock.Identity(), OtherPredecessor
	if l := leaseLockOf(lock); l != nil {
		l.Client = seenLeases{l.Client, t}
	}
}

// label makes the lock write the label with this record if the term is marked.
func (t *term) label(lock resourcelock.Interface, record resourcelock.LeaderElectionRecord) {
	t.mu.Lock()
	marked := t.marked
	t.mu.Unlock()
	if l := leaseLockOf(lock); l != nil && marked {
		l.Labels = maps.Clone(l.Labels)
		if l.Labels == nil {
			l.Labels = map[string]string{}
		}
		l.Labels[LabelTerm] = strconv.Itoa(record.LeaderTransitions)
	}
}

// leaseLockOf is the LeaseLock in a lock, or nil.
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

// seenLeases are Leases whose term is noted when they are read.
type seenLeases struct {
	coordinationv1client.LeasesGetter
	term *term
}

func (s seenLeases) Leases(namespace string) coordinationv1client.LeaseInterface {
	return seenLease{s.LeasesGetter.Leases(namespace), s.term}
}

type seenLease struct {
	coordinationv1client.LeaseInterface
	term *term
}

func (s seenLease) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := s.LeaseInterface.Get(ctx, name, options)
	switch {
	case err == nil:
		s.term.found(lease)
	case apierrors.IsNotFound(err):
		s.term.found(nil)
	}
	return lease, err
}
