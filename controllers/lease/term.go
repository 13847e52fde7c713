package lease

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// LabelTerm on a Lease is the number of the term (leaseTransitions) whose leader called Fence.Mark: since then only fenced writes could
// arrive. Every elector increases leaseTransitions when it takes over the Lease from another process, and does not change labels. So if the
// label is not the number of the last term, another program was the last leader, or the last leader ended before it called Mark.
const LabelTerm = "networking.x-k8s.io/node-ipam-term"

// LabelAround on a Lease that is held inside of another one (Around) is the UID of that Lease and, after a dot, the number of its term in which
// LabelTerm was written. Only the Lease around it keeps some other allocators away. Whoever holds that one for one more term took it from the
// leader that wrote the label; after more terms somebody else has held it in between.
const LabelAround = "networking.x-k8s.io/node-ipam-migration-term"

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

// term is what a Fence knows about its term and the term before. It has its own lock.
type term struct {
	identity string // of this process

	mu          sync.Mutex
	predecessor Predecessor
	// around is the lease around this one, and aroundBefore is what LabelAround said before this term.
	around       Around
	aroundBefore string
	earlier      string // the last other holder that was read in the Lease before this process became the leader; empty if there was none
	// begun is when the first write of this term was answered, by the monotonic clock. Before that, leads is false.
	begun         time.Duration
	leads, marked bool
	// heldUntil is when the Lease of an earlier holder expired, by that holder's clock. vacant is the time from then to the beginning of this
	// term.
	heldUntil time.Time
	vacant    time.Duration
}

// Predecessor returns the kind of leader before this process. The answer is final once this process is the leader.
func (f *Fence) Predecessor() Predecessor {
	f.term.mu.Lock()
	defer f.term.mu.Unlock()
	return f.term.predecessor
}

// EarlierHolder returns the last other holder that this process saw in the Lease before it became the leader; empty if there was none.
func (f *Fence) EarlierHolder() string {
	f.term.mu.Lock()
	defer f.term.mu.Unlock()
	return f.term.earlier
}

// Led returns for how long this process has been the leader or, if its fence is Unelected, has run. The true time can be longer, because
// the monotonic clock stops while the machine is suspended. It is 0 before this process is the leader.
func (f *Fence) Led() time.Duration {
	now := f.readClocks().monotonic
	f.term.mu.Lock()
	defer f.term.mu.Unlock()
	if !f.term.leads {
		return 0
	}
	return now - f.term.begun
}

// Vacant returns for how long nobody had held the Lease when this term began, by the wall clocks of the last holder and of this machine. If
// the Lease was to be held for longer, the times in it are ahead of this machine's clock, and nobody can have held it for any time: then Vacant
// returns by how much they are. It is 0 before this process is the leader, and if there was no Lease.
func (f *Fence) Vacant() time.Duration {
	f.term.mu.Lock()
	defer f.term.mu.Unlock()
	return f.term.vacant
}

// Mark records that from now on only fenced writes can arrive: the writes of the predecessor are over, and this process sends no other
// writes. The next renewal writes the mark to the Lease.
func (f *Fence) Mark() {
	f.term.mu.Lock()
	defer f.term.mu.Unlock()
	f.term.marked = true
}

// begin notes that this process is now the leader, inside of that lease.
func (f *Fence) begin(around Around) {
	now := f.readClocks()
	f.term.mu.Lock()
	defer f.term.mu.Unlock()
	if f.term.leads {
		return
	}
	f.term.leads, f.term.begun = true, now.monotonic
	f.term.inside(around)
	if !f.term.heldUntil.IsZero() {
		f.term.vacant = now.wall.Sub(f.term.heldUntil).Abs()
	}
}

// inside notes the lease around this one, and that somebody else may have held that one since the last leader inside of it.
func (t *term) inside(around Around) {
	t.around = around
	switch {
	case around == (Around{}):
	case t.predecessor == NoPredecessor && around.Transitions == 0: // nobody has held either of them before
	case t.predecessor == FencedPredecessor && (t.aroundBefore == around.label(0) || t.aroundBefore == around.label(-1)):
	default:
		t.predecessor = OtherPredecessor
	}
}

// label returns LabelAround of a term that began so many terms later.
func (a Around) label(later int) string { return fmt.Sprintf("%s.%d", a.UID, a.Transitions+later) }

// found notes the Lease that was read before this process became the leader; nil if there was none.
func (t *term) found(lease *coordinationv1.Lease) {
	// The API server may have carried out a first write whose answer was lost. Then the Lease is this process's own, and says nothing about
	// others.
	own := lease != nil && lease.Spec.Strategy == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == t.identity
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leads || own {
		return
	}
	t.predecessor, t.heldUntil, t.aroundBefore = predecessorOf(lease), time.Time{}, ""
	if lease == nil {
		return
	}
	t.aroundBefore = lease.Labels[LabelAround]
	if lease.Spec.RenewTime != nil {
		t.heldUntil = lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	}
	if lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" && *lease.Spec.HolderIdentity != t.identity {
		t.earlier = *lease.Spec.HolderIdentity
	}
}

func predecessorOf(lease *coordinationv1.Lease) Predecessor {
	switch {
	case lease == nil:
		return NoPredecessor
	case lease.Spec.Strategy != nil:
		// In coordinated leader election the API server names a new holder and does not count that as a transition.
		return OtherPredecessor
	case lease.Spec.LeaseTransitions != nil && lease.Labels[LabelTerm] == strconv.Itoa(int(*lease.Spec.LeaseTransitions)):
		return FencedPredecessor
	}
	return OtherPredecessor
}

// follow makes t see every Lease that a lock reads. A lock that is not a LeaseLock has no labels, so the predecessor stays unknown.
func (t *term) follow(lock resourcelock.Interface) {
	t.identity, t.predecessor = lock.Identity(), OtherPredecessor
	if l := leaseLockOf(lock); l != nil {
		l.Client = seenLeases{l.Client, t}
	}
}

// label makes the lock write the labels with this record if the term is marked.
func (t *term) label(lock resourcelock.Interface, record resourcelock.LeaderElectionRecord) {
	t.mu.Lock()
	marked, around := t.marked, t.around
	t.mu.Unlock()
	if l := leaseLockOf(lock); l != nil && marked {
		l.Labels = maps.Clone(l.Labels)
		if l.Labels == nil {
			l.Labels = map[string]string{}
		}
		l.Labels[LabelTerm] = strconv.Itoa(record.LeaderTransitions)
		if around != (Around{}) {
			l.Labels[LabelAround] = around.label(0)
		}
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

// seenLeases notes the term of every Lease that is read.
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
