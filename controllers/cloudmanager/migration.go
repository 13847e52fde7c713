package cloudmanager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/controller-manager/pkg/leadermigration"
	"k8s.io/utils/ptr"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// component is the program's name in the configuration of a leader migration, whoever made the program.
const component = "cloud-controller-manager"

// migration is the Lease that kube-controller-manager and this program share in a leader migration. Only this Lease keeps the node IPAM
// controllers of both from running at the same time: nobody but this controller uses its own. The program's elector renews it and says nothing
// about that, so it is read. Safe for concurrent use.
type migration struct {
	leases coordinationv1client.LeaseInterface
	// The names of the Leases of the program itself, and of the migration. It holds both under one identity, which it tells nobody.
	own, shared string

	mu      sync.Mutex
	program string      // that identity, which does not change while the process lives; empty before the program was seen to hold both
	term    *sharedTerm // the term of the shared Lease in which this controller leads; nil before its first renewal
	around  lease.Around
}

// errDeposed says that another process is the program now. The program's elector will notice, or takes its Leases back as if nothing had happened.
var errDeposed = errors.New("the Lease of the leader migration and the Lease of this program went to another process after this one had held them")

// sharedTerm is one term of the shared Lease. An elector that finds its Lease released takes it again, and goes on. It may then write the time at
// which it had acquired the Lease before, but always counts one transition more.
type sharedTerm struct {
	uid         types.UID
	transitions int32
	acquired    int64 // in microseconds
}

func termOf(l *coordinationv1.Lease) sharedTerm {
	return sharedTerm{l.UID, ptr.Deref(l.Spec.LeaseTransitions, 0), ptr.Deref(l.Spec.AcquireTime, metav1.MicroTime{}).UnixMicro()}
}

// newMigration returns nil if this controller does not take part in a leader migration.
func newMigration(program *config.CompletedConfig) (*migration, error) {
	generic := program.ComponentConfig.Generic
	if !leadermigration.Enabled(&generic) ||
		leadermigration.NewLeaderMigrator(&generic.LeaderMigration, component).FilterFunc(Name) != leadermigration.ControllerMigrated {
		return nil, nil
	}
	kubeconfig := rest.CopyConfig(program.Kubeconfig)
	kubeconfig.Timeout = max(generic.LeaderElection.RenewDeadline.Duration/2, time.Second) // as client-go's electors have it
	client, err := coordinationv1client.NewForConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return &migration{
		leases: client.Leases(generic.LeaderElection.ResourceNamespace),
		own:    generic.LeaderElection.ResourceName, shared: generic.LeaderMigration.LeaderName,
	}, nil
}

// begin makes the controller lead anew, under another identity: in whatever term of the shared Lease the program is by then.
func (m *migration) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.term = nil
}

// read reads both Leases before this controller's own is written. It returns an error while the program does not hold both, and once it is in another
// term of the shared one than at first: an allocator of another process may have led in between, so the controller has to start anew.
func (m *migration) read(ctx context.Context) error {
	own, err := m.get(ctx, m.own)
	if err != nil {
		return err
	}
	shared, err := m.get(ctx, m.shared)
	if err != nil {
		return err
	}
	holder, term := ptr.Deref(shared.Spec.HolderIdentity, ""), termOf(shared)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch ownHolder := ptr.Deref(own.Spec.HolderIdentity, ""); {
	case holder == "" || holder != ownHolder:
		return fmt.Errorf("the Lease %s/%s of the leader migration is held by %q, and %s by %q: this program does not hold both",
			shared.Namespace, m.shared, holder, m.own, ownHolder)
	case m.program != "" && holder != m.program:
		return fmt.Errorf("%w: %s/%s and %s are held by %q, and were by %q before", errDeposed, shared.Namespace, m.shared, m.own, holder, m.program)
	case m.term != nil && term != *m.term:
		return fmt.Errorf("the Lease %s/%s of the leader migration was released, deleted or held by somebody else after this controller had begun to lead, "+
			"so the controller starts anew", shared.Namespace, m.shared)
	}
	m.program, m.term = holder, &term
	m.around = lease.Around{
		UID: shared.UID, Transitions: int(term.transitions),
		Expires: ptr.Deref(shared.Spec.RenewTime, metav1.MicroTime{}).Add(time.Duration(ptr.Deref(shared.Spec.LeaseDurationSeconds, 0)) * time.Second),
	}
	return nil
}

func (m *migration) get(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	l, err := m.leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the Lease %s: %w", name, err)
	}
	return l, nil
}

// held returns the shared Lease as it was last read and found to be held.
func (m *migration) held() lease.Around {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.around
}
