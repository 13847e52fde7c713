package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/blang/semver/v4"

	coordinationv1 "k8s.io/api/coordination/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	basecompatibility "k8s.io/component-base/compatibility"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/component-base/featuregate"
	"k8s.io/controller-manager/pkg/leadermigration"
	"k8s.io/klog/v2"
	kubefeatures "k8s.io/kubernetes/pkg/features"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// leaseCheckTolerance is how long a leader that cannot renew its lease still counts as healthy after the lease expired.
const leaseCheckTolerance = 20 * time.Second

// elections is what the leader elections of one process share.
type elections struct {
	*process
	identity   string
	leaseCheck *leaderelection.HealthzAdaptor
	// work ends when the process is told to stop, or when the controllers under one of the leases have ended. The controllers under the
	// other lease are of no use alone, and the next leader takes over both leases.
	work     context.Context
	stopWork context.CancelFunc
}

// runElected runs the controllers under the main lease and, with leader migration, those that migrate under a second one.
func (p *process) runElected(ctx context.Context, leaseCheck *leaderelection.HealthzAdaptor) error {
	work, stopWork := context.WithCancel(ctx)
	defer stopWork()
	e := &elections{process: p, identity: lease.Identity(""), leaseCheck: leaseCheck, work: work, stopWork: stopWork}
	if coordinated() {
		if err := e.runCandidate(); err != nil {
			return err
		}
	}
	if leadermigration.Enabled(&p.config.ComponentConfig.Generic) {
		return e.leadMigrating()
	}
	return e.lead("leaderelection", p.config.ComponentConfig.Generic.LeaderElection, p.allControllers())
}

// leadMigrating runs one set of controllers under the main lease, and the set that migrates under a second lease. The component on the
// other side of the migration, for example a cloud-controller-manager, uses the second lease too. The controllers that belong to that
// component do not run here.
func (e *elections) leadMigrating() error {
	klog.FromContext(e.work).Info("starting leader migration")
	c := e.config.ComponentConfig.Generic
	migrator := leadermigration.NewLeaderMigrator(&c.LeaderMigration, component)
	main := e.set(func(name string) bool { return migrator.FilterFunc(name) == leadermigration.ControllerNonMigrated })
	main.onTokens = func() { close(migrator.MigrationReady) }
	migrated := e.set(func(name string) bool { return migrator.FilterFunc(name) == leadermigration.ControllerMigrated })
	second := c.LeaderElection
	second.ResourceLock, second.ResourceName = c.LeaderMigration.ResourceLock, c.LeaderMigration.LeaderName

	var mainErr, migratedErr error
	var running sync.WaitGroup
	running.Go(func() { mainErr = e.lead("leaderelection", c.LeaderElection, main) })
	// Only the holder of the first lease may acquire the second one. Otherwise two processes could hold one lease each and split the work.
	select {
	case <-migrator.MigrationReady:
		running.Go(func() { migratedErr = e.lead("migration leaderelection", second, migrated) })
	case <-e.work.Done():
	}
	running.Wait()
	return utilerrors.NewAggregate([]error{mainErr, migratedErr})
}

// lead waits for the lease, runs the set while holding it, and returns when both have ended. title is for the log.
//
// Upstream uses one context for the lease and the controllers. So with ControllerManagerReleaseLeaderElectionLockOnExit a successor may
// start while the last writes of this process are in flight. Here the lease outlives the set.
func (e *elections) lead(title string, by componentbaseconfig.LeaderElectionConfiguration, s set) error {
	defer e.stopWork()
	as := resourcelock.ResourceLockConfig{Identity: e.identity, EventRecorder: e.config.EventRecorder}
	return lease.Elect(e.work, by, e.config.Kubeconfig, as, leaderelection.LeaderElectionConfig{
		WatchDog:        e.leaseCheck,
		ReleaseOnCancel: releaseOnExit(),
		Coordinated:     coordinated(),
		Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {
			klog.FromContext(e.work).Error(nil, title+" lost/stopped")
		}},
	}, func(leading context.Context, fence *lease.Fence) error {
		defer e.stopWork()
		if err := e.runSet(leading, s, fence); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
}

// releaseOnExit reports whether a leader that is told to end releases its lease, and therefore handles signals. Kubernetes has this gate
// from v1.36 on.
func releaseOnExit() bool {
	const gate featuregate.Feature = "ControllerManagerReleaseLeaderElectionLockOnExit"
	_, known := utilfeature.DefaultMutableFeatureGate.GetAll()[gate]
	return known && utilfeature.DefaultFeatureGate.Enabled(gate)
}

func coordinated() bool {
	return utilfeature.DefaultFeatureGate.Enabled(kubefeatures.CoordinatedLeaderElection)
}

// runCandidate makes this process a candidate of coordinated leader election, in which the API server chooses the leader by version.
func (e *elections) runCandidate() error {
	effective := e.config.ComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent)
	binary, err := semver.ParseTolerant(effective.BinaryVersion().String())
	if err != nil {
		return err
	}
	emulated, err := semver.ParseTolerant(effective.EmulationVersion().String())
	if err != nil {
		return err
	}
	candidate, informers, err := leaderelection.NewCandidate(e.config.Client, "kube-system", e.identity, component,
		binary.FinalizeVersion(), emulated.FinalizeVersion(), coordinationv1.OldestEmulationVersion)
	if err != nil {
		return err
	}
	e.health.AddHealthChecker(healthz.NewInformerSyncHealthz(informers))
	go candidate.Run(e.work)
	return nil
}
