package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/statusz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/metrics/prometheus/slis"
	"k8s.io/component-base/version"
	zpagesfeatures "k8s.io/component-base/zpages/features"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/pkg/clientbuilder"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"
	configv1alpha1 "k8s.io/kube-controller-manager/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	configv1alpha1conversion "k8s.io/kubernetes/pkg/controller/apis/config/v1alpha1"

	"github.com/multicidr/controller-manager/controllers/build"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
)

// component is the name of the binary in leader migration, lease candidates, flagz and statusz.
const component = "kube-controller-manager"

// process has what the controllers of one process share.
type process struct {
	config      *config.CompletedConfig
	roster      roster
	rootClients clientbuilder.ControllerClientBuilder // with the process's own credentials
	clients     clientbuilder.ControllerClientBuilder // with the credentials of the controllers
	mux         *mux.PathRecorderMux                  // behind authentication and authorization; nil without --secure-port
	health      *health
	// shared returns the context of the controllers. It creates it at its first call, when the first lease has been acquired.
	shared func() (*sharedContext, error)
}

// run runs the configured controllers until the context ends. It is upstream's app.Run with the roster's controllers added. With leader
// election the controllers start when the lease is acquired, otherwise at once.
func run(ctx context.Context, c *config.CompletedConfig, roster roster) error {
	logger := klog.FromContext(ctx)
	// The version is the Kubernetes version, as tools expect. The build is the version of this project.
	logger.Info("Starting", "version", version.Get(), "build", build.Get())
	logger.Info("Golang settings", "GOGC", os.Getenv("GOGC"), "GOMAXPROCS", os.Getenv("GOMAXPROCS"), "GOTRACEBACK", os.Getenv("GOTRACEBACK"))

	c.EventBroadcaster.StartStructuredLogging(0)
	c.EventBroadcaster.StartRecordingToSink(&v1core.EventSinkImpl{Interface: c.Client.CoreV1().Events("")})
	defer c.EventBroadcaster.Shutdown()

	if err := registerConfigz(c); err != nil {
		return err
	}

	p := &process{config: c, roster: roster, health: newHealth()}
	p.rootClients, p.clients = clientBuilders(c)
	elect := c.ComponentConfig.Generic.LeaderElection.LeaderElect
	var leaseCheck *leaderelection.HealthzAdaptor
	if elect {
		leaseCheck = leaderelection.NewLeaderHealthzAdaptor(leaseCheckTolerance)
		p.health.AddHealthChecker(leaseCheck)
	}
	if c.SecureServing != nil {
		if err := p.serve(ctx.Done()); err != nil {
			return err
		}
	}

	stopInformers := p.shareContext(ctx)
	defer stopInformers()
	if elect {
		return p.runElected(ctx, leaseCheck)
	}
	return p.runSet(ctx, p.allControllers(), &lease.Fence{})
}

func registerConfigz(c *config.CompletedConfig) error {
	external := &configv1alpha1.KubeControllerManagerConfiguration{}
	if err := configv1alpha1conversion.Convert_config_KubeControllerManagerConfiguration_To_v1alpha1_KubeControllerManagerConfiguration(&c.ComponentConfig, external, nil); err != nil {
		return fmt.Errorf("convert the configuration for /configz: %w", err)
	}
	external.SetGroupVersionKind(configv1alpha1.SchemeGroupVersion.WithKind("KubeControllerManagerConfiguration"))
	cfgz, err := configz.New(app.ConfigzName)
	if err != nil {
		return fmt.Errorf("register /configz: %w", err)
	}
	switch set := any(cfgz.Set).(type) {
	case func(any): // at v1.35, which shows the internal form
		set(c.ComponentConfig)
	case func(runtime.Object) error:
		return set(external)
	default: // Nothing would say that /configz is empty: the compiler does not check these cases against another minor.
		return fmt.Errorf("fill /configz: component-base's method Set is a %T, which this program does not know: it was built with a Kubernetes minor that it does not support", set)
	}
	return nil
}

// serve starts the HTTPS server. It answers from now on, even while this process waits for the lease.
func (p *process) serve(stop <-chan struct{}) error {
	c := p.config
	p.mux = genericcontrollermanager.NewBaseHandler(&c.ComponentConfig.Generic.Debugging, p.health)
	slis.SLIMetricsWithReset{}.Install(p.mux)
	if utilfeature.DefaultFeatureGate.Enabled(zpagesfeatures.ComponentFlagz) && c.Flagz != nil {
		flagz.Install(p.mux, component, c.Flagz)
	}
	if utilfeature.DefaultFeatureGate.Enabled(zpagesfeatures.ComponentStatusz) {
		effective := c.ComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent)
		statusz.Install(p.mux, component, statusz.NewRegistry(effective, statusz.WithListedPaths(p.mux.ListedPaths())))
	}
	handler := genericcontrollermanager.BuildHandlerChain(p.mux, &c.Authorization, &c.Authentication)
	_, _, err := c.SecureServing.Serve(handler, 0, stop)
	return err
}

// clientBuilders returns builders with the process's own credentials and with those of the controllers. They are the same unless
// --use-service-account-credentials gives each controller a service account with the controller's name.
func clientBuilders(c *config.CompletedConfig) (root, controllers clientbuilder.ControllerClientBuilder) {
	root = clientbuilder.SimpleControllerClientBuilder{ClientConfig: c.Kubeconfig}
	if !c.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials {
		return root, root
	}
	return root, clientbuilder.NewDynamicClientBuilder(rest.AnonymousClientConfig(c.Kubeconfig), c.Client.CoreV1(), metav1.NamespaceSystem)
}

// sharedContext is upstream's controller context. All sets of a process share it. Upstream creates one for each leader lease, and at v1.37
// the second one fails, because both use the same informer name.
type sharedContext struct {
	app.ControllerContext
	// startInformers starts the informers that were requested since the last call.
	startInformers func()
}

// shareContext prepares p.shared. The informers run until stop is called. The caller calls stop after all controllers of all leases have
// ended.
func (p *process) shareContext(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	p.shared = sync.OnceValues(func() (*sharedContext, error) {
		upstream, err := app.CreateControllerContext(ctx, p.config, p.rootClients, p.clients)
		if err != nil {
			return nil, err
		}
		for _, d := range p.roster.added {
			if d.Prepare != nil && p.roster.enabled(d.Name, upstream.ComponentConfig.Generic.Controllers) {
				d.Prepare(upstream)
			}
		}
		announce := sync.OnceFunc(func() { close(upstream.InformersStarted) })
		c := &sharedContext{ControllerContext: upstream, startInformers: func() {
			upstream.InformerFactory.Start(ctx.Done())
			upstream.ObjectOrMetadataInformerFactory.Start(ctx.Done())
			announce()
		}}
		return c, nil
	})
	return cancel
}

// set is a set of controllers that run under one lease.
type set struct {
	upstream map[string]*app.ControllerDescriptor // without the token controller
	added    []Descriptor
	// onTokens is called when the service account token controller starts; nil for a set without that controller. That controller is not in
	// upstream above, because its descriptor cannot be used. It is not selected by name, because it always runs under the main lease.
	onTokens func()
}

func (p *process) allControllers() set {
	all := p.set(func(string) bool { return true })
	all.onTokens = func() {}
	return all
}

// set returns all controllers whose names pass the filter.
func (p *process) set(filter func(name string) bool) set {
	s := set{upstream: app.NewControllerDescriptors()}
	for name, d := range s.upstream {
		if d.RequiresSpecialHandling() || !filter(name) {
			delete(s.upstream, name)
		}
	}
	for _, d := range p.roster.added {
		if filter(d.Name) {
			s.added = append(s.added, d)
		}
	}
	return s
}

// runSet builds and runs the controllers of a set. It returns when the context has ended and they have returned, or after
// --controller-shutdown-timeout. If an upstream controller cannot be built, the process ends, as it does upstream. An added
// controller does not end it. fence is that of the lease; it is always open if there is none.
func (p *process) runSet(ctx context.Context, s set, fence *lease.Fence) error {
	logger := klog.FromContext(ctx)
	shared, err := p.shared()
	if err != nil {
		logger.Error(err, "Error building controller context")
		return err
	}
	controllers, err := p.build(ctx, s, fence, shared)
	if err != nil {
		logger.Error(err, "Error building controllers")
		return err
	}
	shared.startInformers()

	if len(controllers) == 0 {
		<-ctx.Done() // Hold the lease anyway: leader migration has such sets.
		return nil
	}
	if !app.RunControllers(ctx, shared.ControllerContext, controllers, app.ControllerStartJitter, p.config.ControllerShutdownTimeout) {
		return errors.New("controller shutdown timeout reached")
	}
	return nil
}

// readNodes returns the resource version of Nodes at a time when the lease has been acquired and the informers have not started. It tries
// only once and for a short time, because an API server that does not answer must not delay the other controllers. If it fails, it returns
// "".
func (p *process) readNodes(ctx context.Context) (asOf string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	asOf, err := nodeipam.ReadNodes(ctx, p.config.Client)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read Nodes before the informers start. The controllers that need it read Nodes themselves")
	}
	return asOf
}

func (p *process) build(ctx context.Context, s set, fence *lease.Fence, shared *sharedContext) ([]app.Controller, error) {
	logger := klog.FromContext(ctx)
	var controllers []app.Controller
	if s.onTokens != nil {
		token, err := newTokenController(ctx, shared.ControllerContext, p.rootClients)
		if err != nil {
			return nil, err
		}
		if token == nil {
			logger.Info("Warning: skipping controller", "controller", names.ServiceAccountTokenController)
			s.onTokens()
		} else {
			p.health.AddHealthChecker(controllerhealthz.NamedPingChecker(token.Name()))
			controllers = append(controllers, &loop{name: token.Name(), run: func(ctx context.Context) {
				s.onTokens()
				token.Run(ctx)
			}})
		}
	}

	upstream, err := app.BuildControllers(ctx, shared.ControllerContext, s.upstream, p.mux, p.health)
	if err != nil {
		return nil, err
	}
	controllers = append(controllers, upstream...)

	nodesAsOf := sync.OnceValue(func() string { return p.readNodes(ctx) }) // A read that fails takes seconds.
	for _, d := range s.added {
		if !p.roster.enabled(d.Name, shared.ComponentConfig.Generic.Controllers) {
			logger.Info("Warning: controller is disabled", "controller", d.Name)
			continue
		}
		controllers = append(controllers, p.guard(d, Context{ControllerContext: shared.ControllerContext, Fence: fence, NodesAsOf: nodesAsOf()}))
	}
	return controllers, nil
}
