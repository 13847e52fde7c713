package standalone

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // workqueue_* metrics
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/klog/v2"
)

const (
	// readTimeout, writeTimeout and idleTimeout limit how long a client of the HTTP server can keep a connection: a client that scrapes every
	// 30 seconds may keep it.
	readTimeout, writeTimeout, idleTimeout = 5 * time.Second, 10 * time.Second, 45 * time.Second
	// maxScrapes limits how many requests for metrics are answered concurrently, because each answer is a copy of all metrics. Other
	// requests get a 503.
	maxScrapes = 4
	// stopTimeout limits the answers in progress when the process ends.
	stopTimeout = 5 * time.Second
)

// servers are the HTTP server, for probes, and the HTTPS server, for users who may see more.
type servers struct {
	secured *mux.PathRecorderMux // nil without --secure-port
	stop    chan struct{}
	stopped []<-chan struct{}
}

// serve starts the servers. With --secure-port only the HTTPS server has the metrics: a user who sets that flag does not want them to be
// public. The text of a single check can name any object and quotes the API server, and the debug page names every Node, so the HTTP server
// never has them: it says which check fails, and the log says why.
func serve(opts *options, config *rest.Config, health *health) (*servers, error) {
	s := &servers{stop: make(chan struct{})}
	plain, whole := mux.NewPathRecorderMux(opts.program.name()), mux.NewPathRecorderMux(opts.program.name())
	health.install(whole)
	plain.Handle("/healthz", whole)
	plain.Handle("/readyz", whole)
	metricsHandler := metrics.HandlerFor(legacyregistry.DefaultGatherer, metrics.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	if opts.secureServing.BindPort == 0 {
		plain.Handle("/metrics", metricsHandler)
		slis.SLIMetrics{}.Install(plain) // On this port any client could reset them.
	} else {
		s.secured = whole
		s.secured.Handle("/metrics", metricsHandler)
		slis.SLIMetricsWithReset{}.Install(s.secured)
	}

	listener, err := net.Listen("tcp", opts.webserver)
	if err != nil {
		return nil, fmt.Errorf("listen at --webserver-bind-address: %w", err)
	}
	if s.secured != nil {
		if err := s.serveSecured(opts, config); err != nil {
			return nil, err
		}
	}
	limited := &http.Server{Handler: plain, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout}
	stopped, _, err := server.RunServer(limited, listener, stopTimeout, s.stop)
	s.stopped = append(s.stopped, stopped)
	klog.InfoS("Answering probes", "address", listener.Addr().String())
	return s, err
}

// serveSecured starts the HTTPS server as kube-controller-manager does: the API server authenticates and authorizes clients.
func (s *servers) serveSecured(opts *options, config *rest.Config) error {
	if opts.apiServer != "" {
		apiServer, _, err := rest.DefaultServerUrlFor(config)
		if err != nil {
			return err
		}
		// These options support only a kubeconfig and the kubernetes Service.
		opts.authentication.CustomRoundTripperFn = towards(apiServer)
		opts.authorization.CustomRoundTripperFn = towards(apiServer)
	}
	if err := opts.secureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}); err != nil {
		return fmt.Errorf("make a self-signed certificate: %w", err)
	}
	var (
		serving        *server.SecureServingInfo
		authentication server.AuthenticationInfo
		authorization  server.AuthorizationInfo
	)
	if err := opts.secureServing.ApplyTo(&serving); err != nil {
		return fmt.Errorf("listen at --secure-port: %w", err)
	}
	if err := opts.authentication.ApplyTo(&authentication, serving, nil); err != nil {
		return err
	}
	if err := opts.authorization.ApplyTo(&authorization); err != nil {
		return err
	}
	stopped, _, err := serving.Serve(genericcontrollermanager.BuildHandlerChain(s.secured, &authorization, &authentication), stopTimeout, s.stop)
	s.stopped = append(s.stopped, stopped)
	return err
}

// end returns when both servers have ended.
func (s *servers) end() {
	close(s.stop)
	for _, stopped := range s.stopped {
		<-stopped
	}
}

// towards sends requests to another API server than the one that their client was created for.
func towards(apiServer *url.URL) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			request = request.Clone(request.Context())
			request.URL.Scheme, request.URL.Host = apiServer.Scheme, apiServer.Host
			return next.RoundTrip(request)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
