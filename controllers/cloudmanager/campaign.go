package cloudmanager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/beside"
	nodehealth "github.com/multicidr/controller-manager/controllers/nodeipam/health"
	nodemetrics "github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/nodeipam/stored"
	"github.com/multicidr/controller-manager/controllers/restart"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// pause is the time between two campaigns, and between two attempts at what a campaign needs.
const pause = time.Second

// participant is the controller in one process, whoever leads. Safe for concurrent use.
type participant struct {
	*registered
	clientName string
	program    *config.CompletedConfig
	watches    *nodehealth.Watches
	runs       restart.Runs

	// sharesNodes is whether the program's informer of Nodes is one whose reads are monitored.
	sharesNodes bool

	leading   chan struct{} // closed when the program leads, and started this controller
	beginning sync.Once
	over      chan struct{} // closed when the program does not lead any more

	mu        sync.Mutex
	waitsFor  string // what the start waits for; never empty
	why       error  // the API server's answer about it
	holder    string // of the Lease, as last seen
	unwritten error  // why the last write of the Lease failed; nil after one that did not, and when the Lease has another holder since
	running   *nodeipam.Controller
	own       informers.SharedInformerFactory // of ServiceCIDRs, and of Nodes if they are not shared; nil before the first campaign that was won
}

func newParticipant(r *registered, clientName string, program *config.CompletedConfig, watches *nodehealth.Watches) *participant {
	return &participant{
		registered: r, clientName: clientName, program: program, watches: watches,
		leading: make(chan struct{}), over: make(chan struct{}), waitsFor: "this program to be the leader",
	}
}

// Name implements the program's interface for controllers.
func (*participant) Name() string { return Name }

// mayLead lets the controller lead until ctx is done. It does not wait.
func (p *participant) mayLead(ctx context.Context) {
	p.beginning.Do(func() {
		p.waits(p.awaited(), nil)
		context.AfterFunc(ctx, func() { close(p.over) })
		close(p.leading)
	})
}

func (p *participant) leaseName() string {
	return p.program.ComponentConfig.Generic.LeaderElection.ResourceNamespace + "/" + p.lease
}

// awaited is what a standby waits for.
func (p *participant) awaited() string { return "the Lease " + p.leaseName() }

// waits notes what the start waits for. It reports whether that is new. Errors are not compared: they may name another port or time at every
// attempt.
func (p *participant) waits(what string, why error) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = p.waitsFor != what
	p.waitsFor, p.why = what, why
	return changed
}

// campaign takes part in the election until ctx is done.
func (p *participant) campaign(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		taking, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			select {
			case <-p.over:
				stop()
			case <-taking.Done():
			}
		}()
		if err := p.takePart(taking); err != nil && taking.Err() == nil {
			klog.FromContext(ctx).Error(err, "No Node gets podCIDRs", "controller", Name)
		}
		select {
		case <-p.over:
			<-ctx.Done() // The process ends.
		default:
		}
	}, pause)
}

// takePart waits for the Lease and leads while this process holds it. Another call is another process to everybody else: a process leads only
// once under one identity.
func (p *participant) takePart(ctx context.Context) error {
	logger := klog.LoggerWithName(klog.FromContext(ctx), Name)
	ctx = klog.NewContext(ctx, logger)
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host name, which is part of the identity in the Lease: %w", err)
	}
	times := p.program.ComponentConfig.Generic.LeaderElection
	// The program's own client, which may write Leases: it writes its own.
	inner, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, times.ResourceNamespace, p.lease,
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}, p.program.Kubeconfig, times.RenewDeadline.Duration)
	if err != nil {
		return fmt.Errorf("create the lock of Lease %s: %w", p.leaseName(), err)
	}
	lock := &nestedLock{Interface: inner, retry: times.RetryPeriod.Duration, leading: p.leading, seen: p.saw, wrote: p.wrote}
	if err := lease.CheckTimes(times.LeaseDuration.Duration, times.RetryPeriod.Duration, writes.Timeout); err != nil {
		logger.Error(err, "The leader stops writing before every renewal", "lease", p.lease)
	}
	return lease.Lead(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   times.LeaseDuration.Duration,
		RenewDeadline:   times.RenewDeadline.Duration,
		RetryPeriod:     times.RetryPeriod.Duration,
		ReleaseOnCancel: true,
		Name:            p.lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnNewLeader: func(holder string) {
				logger.Info("The Lease has a new holder", "lease", lock.Describe(), "holder", holder, "thisProcess", lock.Identity())
			},
			OnStoppedLeading: func() {
				logger.Info("This process does not hold the Lease any more", "lease", lock.Describe())
			},
		},
	}, lease.Clocks{}, p.lead)
}

// saw notes the holder of the Lease, or why it cannot be read.
func (p *participant) saw(holder string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.holder != holder {
		p.holder, p.unwritten = holder, nil
	}
	if p.waitsFor == p.awaited() {
		p.why = err
	}
}

// wrote notes how a write of the Lease ended.
func (p *participant) wrote(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwritten = err
}

// lead runs the controller while this process holds the Lease. A panic is an error: it must not end the controllers of the cloud.
func (p *participant) lead(ctx context.Context, fence *lease.Fence) error {
	defer func() {
		p.waits(p.awaited(), nil)
		p.mu.Lock()
		p.running = nil
		p.mu.Unlock()
	}()
	return p.runs.Guard(ctx, func() error { return p.serveNodes(ctx, fence) })
}

func (p *participant) serveNodes(ctx context.Context, fence *lease.Fence) error {
	defer nodemetrics.ShowUnbuilt()() // The API server can refuse credentials for any time.
	p.waits("credentials", nil)
	clientConfig, err := p.credentials(ctx)
	if err != nil {
		return nil // ctx is done
	}
	client, err := kubernetes.NewForConfig(clientConfig)
	if err != nil {
		return fmt.Errorf("create a client: %w", err)
	}
	flags, err := p.flags(p.program)
	if err != nil {
		return err
	}
	p.mu.Lock()
	if p.own == nil {
		p.own = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(stored.StripManagedFields))
	}
	p.mu.Unlock()
	nodes := p.program.SharedInformers
	if !p.sharesNodes {
		nodes = p.own
		p.watches.Nodes(nodes)
	}
	return beside.Program{
		Config: clientConfig, Client: client, Fence: fence,
		// The program starts its informer of Nodes. That of ServiceCIDRs is not one of its own: it must not wait for a kind that may not be served.
		Nodes: nodes.Core().V1().Nodes(), Informers: p.own, Watches: p.watches,
		StartInformers: func() { p.own.Start(p.over) },
		Waits:          p.waits,
		Again: func(ctx context.Context, build func(again bool) (*nodeipam.Controller, error)) error {
			return p.runs.Again(ctx, Name, func(_ context.Context, again bool) (restart.Controller, error) {
				built, err := build(again)
				if err != nil {
					return nil, err
				}
				p.mu.Lock()
				p.running = built
				p.mu.Unlock()
				return built, nil
			})
		},
	}.Run(ctx, flags, p.options)
}

// credentials returns the configuration of the controller's clients. With --use-service-account-credentials the API server makes them, which
// can fail.
func (p *participant) credentials(ctx context.Context) (c *rest.Config, err error) {
	err = wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		c, err = p.program.ClientBuilder.Config(p.clientName)
		if err != nil && p.waits("credentials of its service account", err) {
			klog.FromContext(ctx).Error(err, "No Node gets podCIDRs: the controller has no credentials")
		}
		return err == nil, nil
	})
	return c, err
}

// Errors of a write that make the elector read the Lease again: it has changed since the elector wanted to write, or may have.
var (
	errLeadsNow = errors.New("this program leads only now: trying again")
	errRenewed  = errors.New("another process leads: following it")
)

// nestedLock is a lock that is read from the start, and written only once the program leads. Until then a write waits, and fails when another
// process writes the Lease.
type nestedLock struct {
	resourcelock.Interface
	retry   time.Duration // between two reads while a write waits
	leading <-chan struct{}
	seen    func(holder string, err error)
	wrote   func(err error)
	read    []byte // what the elector has read last; it makes one call after the other
}

// Unwrap lets package lease reach the lock inside.
func (l *nestedLock) Unwrap() resourcelock.Interface { return l.Interface }

func (l *nestedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.seen(record.HolderIdentity, nil)
	} else {
		l.seen("", err)
	}
	l.read = raw
	return record, raw, err
}

func (l *nestedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

func (l *nestedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l *nestedLock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	select {
	case <-l.leading:
		err := write(ctx, record)
		l.wrote(err)
		return err
	default:
	}
	if err := l.awaitRenewal(ctx); err != nil {
		return err
	}
	return errRenewed
}

// awaitRenewal returns nil as soon as another process has written the Lease since the elector read it. The elector has to see that then, and not when
// this program leads: it counts the duration of a Lease from when it saw the last renewal.
func (l *nestedLock) awaitRenewal(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-l.leading:
			stop(errLeadsNow)
		case <-ctx.Done():
		}
	}()
	err := wait.PollUntilContextCancel(ctx, l.retry, true, func(ctx context.Context) (renewed bool, _ error) {
		record, raw, err := l.Interface.Get(ctx)
		if err == nil {
			l.seen(record.HolderIdentity, nil)
			renewed = record.HolderIdentity != "" && !bytes.Equal(raw, l.read)
		}
		return renewed, nil
	})
	if err != nil {
		err = context.Cause(ctx)
	}
	return err
}
