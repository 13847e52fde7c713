package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// ManagerOptions of a kube-controller-manager. The zero value runs ours with its defaults.
type ManagerOptions struct {
	// Name is for the log's file name and for messages. Default: kube-controller-manager.
	Name string
	// Binary is a file of BinDir or an absolute path. Default: kube-controller-manager.
	Binary string
	// User whose credentials the manager gets. Default: system:kube-controller-manager.
	User string
	// Kubeconfig is the path of the one that the manager gets. Default: User's, straight to the API server.
	Kubeconfig string
	// Args come after our own, so that they win. There is no --controllers among ours.
	Args []string
}

// Manager is a running kube-controller-manager, ours or any other of the same command line.
type Manager struct {
	*Process
	url    string
	client *http.Client
}

// StartManager returns when the manager's /healthz answers 200, which is before it leads.
func (cp *ControlPlane) StartManager(ctx context.Context, opts ManagerOptions) (*Manager, error) {
	if err := cp.complete(&opts); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var manager *Manager
	err := retryTakenPorts(func() (err error) {
		if manager, err = cp.launchManager(opts); err != nil {
			return err
		}
		return manager.waitReady(ctx, httpOK(manager.client, manager.url+"/healthz"))
	})
	if err != nil {
		return nil, err
	}
	return manager, nil
}

// LaunchManager starts a manager and does not wait for anything: it may find its port taken, or no API server, and end.
func (cp *ControlPlane) LaunchManager(opts ManagerOptions) (*Manager, error) {
	if err := cp.complete(&opts); err != nil {
		return nil, err
	}
	return cp.launchManager(opts)
}

// complete fills in the defaults.
func (cp *ControlPlane) complete(opts *ManagerOptions) (err error) {
	opts.Binary = cmp.Or(opts.Binary, "kube-controller-manager")
	opts.Name = cmp.Or(opts.Name, "kube-controller-manager")
	opts.User = cmp.Or(opts.User, "system:kube-controller-manager")
	if opts.Kubeconfig == "" {
		opts.Kubeconfig, err = cp.Kubeconfig(opts.User)
	}
	return err
}

func (cp *ControlPlane) launchManager(opts ManagerOptions) (*Manager, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	manager := &Manager{url: fmt.Sprintf("https://127.0.0.1:%d", port)}
	config := cp.AdminConfig()
	config.Host = manager.url
	if manager.client, err = rest.HTTPClientFor(config); err != nil {
		return nil, err
	}
	manager.Process, err = cp.startProcess(opts.Name, opts.Binary, "make build", append(cp.managerArgs(opts.Kubeconfig, port), opts.Args...)...)
	if err != nil {
		return nil, err
	}
	cp.mu.Lock()
	cp.managers = append(cp.managers, manager)
	cp.mu.Unlock()
	return manager, nil
}

// managerArgs is what every manager needs here, as kubeadm would pass it.
func (cp *ControlPlane) managerArgs(kubeconfig string, port int) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cp.pki("manager.crt"),
		"--tls-private-key-file=" + cp.pki("manager.key"),
		"--client-ca-file=" + cp.pki("ca.crt"),
		"--root-ca-file=" + cp.pki("ca.crt"),
		"--cluster-signing-cert-file=" + cp.pki("ca.crt"),
		"--cluster-signing-key-file=" + cp.pki("ca.key"),
		"--service-account-private-key-file=" + cp.pki("sa.key"),
		// The manager's own user may not patch Nodes; the controllers' service accounts may.
		"--use-service-account-credentials",
	}
}

// URL is the manager's HTTPS endpoint.
func (m *Manager) URL() string { return m.url }

// Get asks the manager's HTTPS endpoint, as an administrator.
func (m *Manager) Get(ctx context.Context, path string) (status int, body []byte, err error) {
	return get(ctx, m.client, m.url+path)
}

// WaitLeading returns when this manager holds the lease kube-controller-manager.
func (m *Manager) WaitLeading(ctx context.Context) error {
	// The Lease would tell a host name and a random id; the metric tells it of this very process.
	const leading = `leader_election_master_status{name="kube-controller-manager"} 1`
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return m.waitReady(ctx, func(ctx context.Context) error {
		status, body, err := m.Get(ctx, "/metrics")
		if err == nil && !strings.Contains(string(body), leading) {
			err = fmt.Errorf("GET /metrics: %d, not leading", status)
		}
		return err
	})
}
