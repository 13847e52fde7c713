package manager

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// tokenClient is the name of upstream's token controller in user agents and in the API server's logs.
const tokenClient = "tokens-controller"

// newTokenController returns the controller that signs service account tokens. Its upstream descriptor cannot be used here, because only
// upstream's Run sets its client builder. It uses the process's own credentials, because those of the other controllers may depend on its
// work.
//
// Without a private key it cannot sign anything, and newTokenController returns nil.
func newTokenController(ctx context.Context, c app.ControllerContext, clients clientbuilder.ControllerClientBuilder) (app.Controller, error) {
	logger := klog.LoggerWithName(klog.FromContext(ctx), names.ServiceAccountTokenController)
	options := c.ComponentConfig.SAController
	if options.ServiceAccountKeyFile == "" {
		logger.Info("Controller is disabled because there is no private key", "controller", names.ServiceAccountTokenController)
		return nil, nil
	}

	key, err := keyutil.PrivateKeyFromFile(options.ServiceAccountKeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the key of the service account token controller: %w", err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return nil, fmt.Errorf("use the key of the service account token controller: %w", err)
	}
	rootCA, err := tokenRootCA(options.RootCAFile, clients)
	if err != nil {
		return nil, err
	}
	client, err := clients.Client(tokenClient)
	if err != nil {
		return nil, fmt.Errorf("create client %q: %w", tokenClient, err)
	}

	tokens, err := serviceaccountcontroller.NewTokensController(logger,
		c.InformerFactory.Core().V1().ServiceAccounts(), c.InformerFactory.Core().V1().Secrets(), client,
		serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: rootCA})
	if err != nil {
		return nil, fmt.Errorf("create the service account token controller: %w", err)
	}
	return &loop{name: names.ServiceAccountTokenController, run: func(ctx context.Context) {
		tokens.Run(ctx, int(options.ConcurrentSATokenSyncs))
	}}, nil
}

// tokenRootCA returns the CA bundle for token secrets: the one in --root-ca-file or, without that flag, the one that the process trusts.
func tokenRootCA(file string, clients clientbuilder.ControllerClientBuilder) ([]byte, error) {
	if file == "" {
		config, err := clients.Config(tokenClient)
		if err != nil {
			return nil, fmt.Errorf("create client configuration %q: %w", tokenClient, err)
		}
		return config.CAData, nil
	}
	pem, err := os.ReadFile(file)
	if err == nil {
		_, err = cert.ParseCertsPEM(pem)
	}
	if err != nil {
		return nil, fmt.Errorf("read --root-ca-file %s: %w", file, err)
	}
	return pem, nil
}

// loop is a controller that consists of one function.
type loop struct {
	name string
	run  func(ctx context.Context)
}

func (l *loop) Name() string { return l.name }

func (l *loop) Run(ctx context.Context) { l.run(ctx) }
