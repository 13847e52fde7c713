package controlplane

import (
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
	if opts.Binary == "" {
		opts.Binary = "kube-controller-manager"
	}
	if opts.Name == "" {
		opts.Name = "kube-controller-manager"
	}
	if opts.User == "" {
		opts.User = "system:kube-controller-manager"
	}
	kubeconfig, err := cp.Kubeconfig(opts.User)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var manager *Manager
	err = retryTakenPorts(func() (err error) {
		manager, err = cp.startManager(ctx, opts, kubeconfig)
		return err
	})
	if err != nil {
		return nil, err
	}
	return manager, nil
}

func (cp *ControlPlane) startManager(ctx context.Context, opts ManagerOptions, kubeconfig string) (*Manager, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	process, err := cp.startProcess(opts.Name, opts.Binary, "make build", append(cp.managerArgs(kubeconfig, port), opts.Args...)...)
	if err != nil {
		return nil, err
	}
	manager := &Manager{Process: process, url: fmt.Sprintf("https://127.0.0.1:%d", port)}
	cp.mu.Lock()
	cp.managers = append(cp.managers, manager)
	cp.mu.Unlock()
	config := cp.AdminConfig()
	config.Host = manager.url
	if manager.client, err = rest.HTTPClientFor(config); err != nil {
		return nil, err
	}
	return manager, process.waitReady(ctx, httpOK(manager.client, manager.url+"/healthz"))
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
