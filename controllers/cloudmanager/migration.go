package cloudmanager

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/controller-manager/pkg/leadermigration"
)

// component is the program's name in the configuration of a leader migration, whoever made the program.
const component = "cloud-controller-manager"

// migration is the Lease that kube-controller-manager and this program share in a leader migration. Only this Lease keeps the node IPAM
// controllers of both from running at the same time: nobody but this controller uses its own. The program's elector renews it and says nothing
// about that, so it is read. Safe for concurrent use.
type migration struct {
	// The Leases of the program itself, and of the migration. It holds both under one identity, which it tells nobody.
	own, shared resourcelock.Interface

	mu   sync.Mutex
	last *resourcelock.LeaderElectionRecord // the shared Lease, as it was last read; nil before the program was seen to hold both
}

// newMigration returns nil if this controller does not take part in a leader migration.
func newMigration(program *config.CompletedConfig) (*migration, error) {
	generic := program.ComponentConfig.Generic
	if !generic.LeaderElection.LeaderElect || !leadermigration.Enabled(&generic) ||
		leadermigration.NewLeaderMigrator(&generic.LeaderMigration, component).FilterFunc(Name) != leadermigration.ControllerMigrated {
		return nil, nil
	}
	read := func(name string) (resourcelock.Interface, error) {
		return resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, generic.LeaderElection.ResourceNamespace, name,
			resourcelock.ResourceLockConfig{}, program.Kubeconfig, generic.LeaderElection.RenewDeadline.Duration)
	}
	own, err := read(generic.LeaderElection.ResourceName)
	if err != nil {
		return nil, err
	}
	shared, err := read(generic.LeaderMigration.LeaderName)
	if err != nil {
		return nil, err
	}
	return &migration{own: own, shared: shared}, nil
}

// read reads both Leases before this controller's own is written. Once another process has held the shared one, it returns an error for good: the
// program's elector ends the process soon.
func (m *migration) read(ctx context.Context) error {
	own, _, err := m.own.Get(ctx)
	if err != nil {
		return fmt.Errorf("read the Lease %s: %w", m.own.Describe(), err)
	}
	shared, _, err := m.shared.Get(ctx)
	if err != nil {
		return fmt.Errorf("read the Lease %s: %w", m.shared.Describe(), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case shared.HolderIdentity == "" || shared.HolderIdentity != own.HolderIdentity:
		return fmt.Errorf("the Lease %s of the leader migration is held by %q, and %s by %q: this program does not hold both",
			m.shared.Describe(), shared.HolderIdentity, m.own.Describe(), own.HolderIdentity)
	case m.last != nil && (shared.HolderIdentity != m.last.HolderIdentity || !shared.AcquireTime.Equal(&m.last.AcquireTime)):
		return fmt.Errorf("the Lease %s of the leader migration went to another process after this one had held it, so this process has to end and start again", m.shared.Describe())
	}
	m.last = shared
	return nil
}

func (m *migration) expires() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last.RenewTime.Add(time.Duration(m.last.LeaseDurationSeconds) * time.Second)
}
