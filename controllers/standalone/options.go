package standalone

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	apiserveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	cliflag "k8s.io/component-base/cli/flag"
	componentbaseconfig "k8s.io/component-base/config"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// options are what a user can configure.
type options struct {
	apiServer, kubeconfig string
	webserver             string // address of the HTTP server

	election componentbaseconfig.LeaderElectionConfiguration
	id       string
	identity string // set by complete: id with a random suffix

	program program

	secureServing  *apiserveroptions.SecureServingOptions
	authentication *apiserveroptions.DelegatingAuthenticationOptions
	authorization  *apiserveroptions.DelegatingAuthorizationOptions
	logs           *logsapi.LoggingConfiguration
}

func newOptions(p program) *options {
	o := &options{
		webserver: ":8081",
		election: componentbaseconfig.LeaderElectionConfiguration{
			LeaderElect:   true,
			LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
			RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
			RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
			ResourceLock:  resourcelock.LeasesResourceLock,
			ResourceName:  p.name(),
		},
		program:        p,
		secureServing:  apiserveroptions.NewSecureServingOptions(),
		authentication: apiserveroptions.NewDelegatingAuthenticationOptions(),
		authorization:  apiserveroptions.NewDelegatingAuthorizationOptions(),
		logs:           logsapi.NewLoggingConfiguration(),
	}
	o.secureServing.BindPort = 0
	// Without a directory a self-signed certificate stays in memory: root file systems are read-only.
	o.secureServing.ServerCert.CertDirectory, o.secureServing.ServerCert.PairName = "", p.name()
	o.authentication.RemoteKubeConfigFileOptional = true
	o.authorization.RemoteKubeConfigFileOptional = true
	return o
}

// variable is an environment variable that stands for a flag which is not on the command line.
type variable struct{ name, flag string }

// sections are the flags, in the order in which the help shows them.
func (o *options) sections() (sections cliflag.NamedFlagSets) {
	fs := sections.FlagSet("cluster")
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "Path of a kubeconfig. Needed only outside of the cluster.")
	fs.StringVar(&o.apiServer, "apiserver", o.apiServer,
		"URL of the API server. It replaces the URL in the kubeconfig. Inside of the cluster it replaces the kubernetes Service, which needs a working kube-proxy.")

	fs = sections.FlagSet("serving")
	fs.StringVar(&o.webserver, "webserver-bind-address", o.webserver,
		"Address of the HTTP server, which serves /healthz, /readyz and, without --secure-port, /metrics.")
	fs.StringVar(&o.webserver, "health-probe-address", o.webserver, "Older name of --webserver-bind-address.")
	if err := fs.MarkDeprecated("health-probe-address", "use --webserver-bind-address"); err != nil {
		panic(err) // The line above has added the flag.
	}

	fs, by := sections.FlagSet("leader election"), &o.election
	fs.BoolVar(&by.LeaderElect, "enable-leader-election", by.LeaderElect, "Do the work only while holding a Lease. Needed with more than one replica.")
	fs.DurationVar(&by.LeaseDuration.Duration, "leader-elect-lease-duration", by.LeaseDuration.Duration, "How long a standby waits after the last renewal before it takes the Lease.")
	fs.DurationVar(&by.RenewDeadline.Duration, "leader-elect-renew-deadline", by.RenewDeadline.Duration,
		"How long the leader tries to renew the Lease before it exits. Must be less than --leader-elect-lease-duration.")
	fs.DurationVar(&by.RetryPeriod.Duration, "leader-elect-retry-period", by.RetryPeriod.Duration, "How often the leader renews the Lease, and a standby tries to take it.")
	fs.StringVar(&by.ResourceLock, "leader-elect-resource-lock", by.ResourceLock, `Kind of the lock. The only one is "leases".`)
	fs.StringVar(&by.ResourceName, "leader-elect-resource-name", by.ResourceName, "Name of the Lease.")
	fs.StringVar(&by.ResourceNamespace, "leader-elect-namespace", by.ResourceNamespace, "Namespace of the Lease. Empty: the value of POD_NAMESPACE.")
	fs.StringVar(&o.id, "leader-elect-id", o.id,
		"Identity of this process in the Lease. A random suffix makes it unique. Empty: the value of POD_NAME or, without that, the host name.")

	o.program.addFlags(&sections)

	o.secureServing.AddFlags(sections.FlagSet("secure serving"))
	o.authentication.AddFlags(sections.FlagSet("authentication"))
	o.authorization.AddFlags(sections.FlagSet("authorization"))
	logsapi.AddFlags(o.logs, sections.FlagSet("logs"))

	for _, v := range o.program.variables() {
		for _, fs := range sections.FlagSets {
			if flag := fs.Lookup(v.flag); flag != nil {
				flag.Usage += " [$" + v.name + "]"
			}
		}
	}
	return sections
}

// complete fills in what the command line leaves to the environment, and validates everything.
func (o *options) complete(fs *pflag.FlagSet, getenv func(string) string) error {
	if !fs.Changed("leader-elect-resource-name") {
		o.election.ResourceName = o.program.lease()
	}
	if fs.Changed("health-probe-address") {
		fs.Lookup("webserver-bind-address").Changed = true // It is the same flag.
	}
	for _, v := range o.program.variables() {
		value := getenv(v.name)
		if value == "" || fs.Changed(v.flag) {
			continue
		}
		if err := fs.Set(v.flag, value); err != nil {
			return fmt.Errorf("the environment variable %s is wrong: %w", v.name, err)
		}
	}
	o.election.ResourceNamespace = cmp.Or(o.election.ResourceNamespace, getenv("POD_NAMESPACE"))
	o.identity = lease.Identity(cmp.Or(o.id, getenv("POD_NAME")))
	// The API server that this program uses for everything else also decides which clients may read metrics.
	o.authentication.RemoteKubeConfigFile = cmp.Or(o.authentication.RemoteKubeConfigFile, o.kubeconfig)
	o.authorization.RemoteKubeConfigFile = cmp.Or(o.authorization.RemoteKubeConfigFile, o.kubeconfig)
	return utilerrors.Flatten(utilerrors.NewAggregate(o.validate()))
}

// validate returns everything that is wrong, and what to do about it.
func (o *options) validate() []error {
	var errs []error
	if scheme, _, ok := strings.Cut(o.apiServer, "://"); ok && scheme != "https" && scheme != "http" { // It would be tried for ever.
		errs = append(errs, fmt.Errorf("--apiserver=%s is not the URL of an API server: it must begin with https://", o.apiServer))
	}
	// Checked even without leader election: the user set the flag for a reason.
	if o.election.ResourceLock != resourcelock.LeasesResourceLock {
		errs = append(errs, fmt.Errorf("--leader-elect-resource-lock=%s does not exist any more: Kubernetes removed the locks on Endpoints and ConfigMaps, "+
			"because every client that watched these objects received every renewal. Remove the flag, or set it to leases", o.election.ResourceLock))
	}
	if o.election.LeaderElect {
		errs = append(errs, o.validateElection()...)
	}
	errs = append(errs, o.program.validate()...)
	errs = append(errs, o.secureServing.Validate()...)
	errs = append(errs, o.authentication.Validate()...)
	return append(errs, o.authorization.Validate()...)
}

func (o *options) validateElection() []error {
	by := o.election
	if by.ResourceNamespace == "" {
		return []error{errors.New("the Lease has no namespace: set --leader-elect-namespace, or POD_NAMESPACE as the chart does, or turn off leader election with --enable-leader-election=false")}
	}
	// The API server would refuse another name for ever.
	wrong := append(validation.NameIsDNSSubdomain(by.ResourceName, false), validation.ValidateNamespaceName(by.ResourceNamespace, false)...)
	if len(wrong) > 0 {
		return []error{fmt.Errorf("%q in the namespace %q is not the name of a Lease (--leader-elect-resource-name, --leader-elect-namespace, POD_NAMESPACE): %s", by.ResourceName, by.ResourceNamespace, wrong[0])}
	}
	return lease.ValidateTimes(by.LeaseDuration.Duration, by.RenewDeadline.Duration, by.RetryPeriod.Duration)
}

// clientConfig returns the configuration of all clients. Inside a cluster it has the credentials of the service account.
func (o *options) clientConfig() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	switch {
	case o.kubeconfig == "" && err == nil:
		// The credentials are kept. clientcmd would drop them if it got a URL.
		config.Host = cmp.Or(o.apiServer, config.Host)
	case o.kubeconfig == "" && o.apiServer == "":
		return nil, fmt.Errorf("this process does not run in a Pod with a service account (%w): set --kubeconfig", err)
	default:
		if config, err = clientcmd.BuildConfigFromFlags(o.apiServer, o.kubeconfig); err != nil {
			return nil, fmt.Errorf("read --kubeconfig: %w", err)
		}
	}
	// Nodes are large, and much smaller as protobuf than as JSON.
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return config, nil
}
