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

// outer is the Lease that this controller's own is held inside of: in a leader migration the one that kube-controller-manager and this program
// share, otherwise that of the program. Only this Lease keeps other allocators away, in an older version of the program for example: nobody but
// this controller uses its own. The program's elector renews it and says nothing about that, so it is read. Safe for concurrent use.
type outer struct {
	leases coordinationv1client.LeaseInterface
	// name is the Lease, and program that of the program itself, which is the same one outside of a migration. The program holds both under one
	// identity, which it tells nobody.
	name, program string
	wholeSeconds  bool // see lease.CountsFromWholeSecond

	mu       sync.Mutex
	identity string     // that identity, which does not change while the process lives; empty before the program was seen to hold both
	term     *outerTerm // the term of the Lease in which this controller leads; nil before it has its own Lease
	last     outerTerm  // the term that was last read
	around   lease.Around
}

// errDeposed says that another process is the program now. The program's elector will notice, or takes its Leases back as if nothing had happened.
var errDeposed = errors.New("another process has taken what this one held")

// outerTerm is one term of that Lease. An elector that finds its Lease released takes it again, and goes on. It may then write the time at
// which it had acquired the Lease before, but always counts one transition more.
type outerTerm struct {
	uid         types.UID
	transitions int32
	acquired    int64 // in microseconds
}

func termOf(l *coordinationv1.Lease) outerTerm {
	return outerTerm{l.UID, ptr.Deref(l.Spec.LeaseTransitions, 0), ptr.Deref(l.Spec.AcquireTime, metav1.MicroTime{}).UnixMicro()}
}

// newOuter returns nil if the program does not elect a leader.
func newOuter(program *config.CompletedConfig) (*outer, error) {
	generic := program.ComponentConfig.Generic
	if !generic.LeaderElection.LeaderElect {
		return nil, nil
	}
	name := generic.LeaderElection.ResourceName
	if leadermigration.Enabled(&generic) &&
		leadermigration.NewLeaderMigrator(&generic.LeaderMigration, component).FilterFunc(Name) == leadermigration.ControllerMigrated {
		name = generic.LeaderMigration.LeaderName
	}
	kubeconfig := rest.CopyConfig(program.Kubeconfig)
	kubeconfig.Timeout = max(generic.LeaderElection.RenewDeadline.Duration/2, time.Second) // as client-go's electors have it
	client, err := coordinationv1client.NewForConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("create a client for the Lease %s: %w", name, err)
	}
	return &outer{leases: client.Leases(generic.LeaderElection.ResourceNamespace), name: name, program: generic.LeaderElection.ResourceName,
		wholeSeconds: lease.CountsFromWholeSecond(generic.LeaderElection.RetryPeriod.Duration)}, nil
}

// begin makes the controller lead anew, under another identity: in whatever term of the Lease the program is by then.
func (o *outer) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.term = nil
}

// leads notes that this controller has its own Lease, in the term that was read last. Before that it may be any term: nobody starts anew who
// has not begun.
func (o *outer) leads() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.term == nil {
		o.term = new(o.last)
	}
}

// read reads the Lease, and in a migration that of the program, before this controller's own is written. It returns an error while the program
// does not hold them, and once it is in another term than the one in which this controller began: an allocator of another process may have led
// in between, so the controller has to start anew.
func (o *outer) read(ctx context.Context) error {
	l, err := o.get(ctx, o.name)
	if err != nil {
		return err
	}
	program := l
	if o.program != o.name {
		if program, err = o.get(ctx, o.program); err != nil {
			return err
		}
	}
	holder, term := ptr.Deref(l.Spec.HolderIdentity, ""), termOf(l)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch ofProgram := ptr.Deref(program.Spec.HolderIdentity, ""); {
	case holder == "":
		return fmt.Errorf("the Lease %s/%s is held by nobody: this program does not hold it any more", l.Namespace, o.name)
	case holder != ofProgram:
		return fmt.Errorf("the Lease %s/%s of the leader migration is held by %q, and %s by %q: this program does not hold both", l.Namespace, o.name, holder, o.program, ofProgram)
	case o.identity != "" && holder != o.identity:
		return fmt.Errorf("%w: the Lease %s/%s is held by %q, and was by %q", errDeposed, l.Namespace, o.name, holder, o.identity)
	case o.term != nil && term != *o.term:
		return fmt.Errorf("the Lease %s/%s was released, deleted or held by somebody else after this controller had begun to lead, so the controller starts anew", l.Namespace, o.name)
	}
	o.identity, o.last = holder, term
	renewed := ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}).Time
	if o.wholeSeconds {
		renewed = renewed.Truncate(time.Second)
	}
	o.around = lease.Around{
		UID: l.UID, Transitions: int(term.transitions),
		Expires: renewed.Add(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second),
	}
	return nil
}

func (o *outer) get(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	l, err := o.leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the Lease %s: %w", name, err)
	}
	return l, nil
}

// held returns the Lease as it was last read and found to be held.
func (o *outer) held() lease.Around {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.around
}
