package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// ManagerOptions of a kube-controller-manager. The zero value runs ours with its defaults.
type ManagerOptions struct {
	// Alone runs node-ipam-controller, our controller as a program of its own, or with Binary another one of that kind. They have other
	// flags, and a lease with the program's name.
	Alone bool
	// Cloud runs the cloud-controller-manager of examples, with its own two leases.
	Cloud bool
	// Name is for the log's file name and for messages. Default: the program's.
	Name string
	// Binary is a file of BinDir or an absolute path. Default: kube-controller-manager, or node-ipam-controller.
	Binary string
	// User whose credentials the manager gets. Default: system:kube-controller-manager, or the controller's service account.
	User string
	// Kubeconfig is the path of the one that the manager gets. Default: User's, straight to the API server.
	Kubeconfig string
	// Args come after our own, so that they win. There is no --controllers among ours.
	Args []string
}

// Manager is a running kube-controller-manager, ours or any other of the same command line, or node-ipam-controller.
type Manager struct {
	*Process
	url    string
	probes string // the plain HTTP endpoint of node-ipam-controller
	own    string // where a cloud-controller-manager serves what concerns our controller
	lease  string
	client *http.Client
}

// Where our controller runs.
const (
	insideKCM = "kube-controller-manager"
	alone     = "node-ipam-controller"
	inCloud   = "cloud-controller-manager"
	// AloneUser is who node-ipam-controller is here: the controller's service account, whose permissions are in manifests/rbac.
	AloneUser = "system:serviceaccount:kube-system:multi-cidr-node-ipam-controller"
)

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
	program, user := insideKCM, "system:kube-controller-manager"
	if opts.Alone {
		program, user = alone, AloneUser
	}
	if opts.Cloud {
		program, user = inCloud, "system:"+inCloud
	}
	opts.Binary = cmp.Or(opts.Binary, program)
	opts.Name = cmp.Or(opts.Name, program)
	opts.User = cmp.Or(opts.User, user)
	if opts.Kubeconfig == "" {
		opts.Kubeconfig, err = cp.Kubeconfig(opts.User)
	}
	return err
}

func (cp *ControlPlane) launchManager(opts ManagerOptions) (*Manager, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	manager := &Manager{url: fmt.Sprintf("https://127.0.0.1:%d", port), lease: insideKCM}
	args := cp.managerArgs(opts.Kubeconfig, port)
	if opts.Alone {
		probes, err := FreePort()
		if err != nil {
			return nil, err
		}
		manager.lease, manager.probes = filepath.Base(opts.Binary), fmt.Sprintf("http://127.0.0.1:%d", probes)
		args = cp.aloneArgs(opts.Kubeconfig, port, probes)
	}
	if opts.Cloud {
		own, err := FreePort()
		if err != nil {
			return nil, err
		}
		manager.lease, manager.own = alone, fmt.Sprintf("https://127.0.0.1:%d", own)
		args = cp.cloudArgs(opts.Kubeconfig, port, own)
	}
	config := cp.AdminConfig()
	config.Host = manager.url
	if manager.client, err = rest.HTTPClientFor(config); err != nil {
		return nil, err
	}
	manager.Process, err = cp.startProcess(opts.Name, opts.Binary, "make build", append(args, opts.Args...)...)
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

// cloudArgs is what a cloud-controller-manager needs here.
func (cp *ControlPlane) cloudArgs(kubeconfig string, port, own int) []string {
	return []string{
		"--cloud-provider=example",
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		fmt.Sprintf("--node-ipam-secure-port=%d", own),
		"--tls-cert-file=" + cp.pki("manager.crt"),
		"--tls-private-key-file=" + cp.pki("manager.key"),
		"--client-ca-file=" + cp.pki("ca.crt"),
		"--use-service-account-credentials",
	}
}

// aloneArgs is what node-ipam-controller needs here. It serves HTTPS, so that one can ask it what one asks a manager.
func (cp *ControlPlane) aloneArgs(kubeconfig string, port, probes int) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		fmt.Sprintf("--webserver-bind-address=127.0.0.1:%d", probes),
		"--leader-elect-namespace=" + metav1.NamespaceSystem,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cp.pki("manager.crt"),
		"--tls-private-key-file=" + cp.pki("manager.key"),
		"--client-ca-file=" + cp.pki("ca.crt"),
	}
}

// Probe asks the plain HTTP endpoint of node-ipam-controller.
func (m *Manager) Probe(ctx context.Context, path string) (status int, body []byte, err error) {
	return get(ctx, http.DefaultClient, m.probes+path)
}

// URL is the manager's HTTPS endpoint.
func (m *Manager) URL() string { return m.url }

// Get asks the manager's HTTPS endpoint, as an administrator.
func (m *Manager) Get(ctx context.Context, path string) (status int, body []byte, err error) {
	url := m.url
	if m.own != "" && (strings.HasPrefix(path, "/healthz/") || strings.HasPrefix(path, "/debug/")) {
		url = m.own
	}
	return get(ctx, m.client, url+path)
}

// Metrics are the families that the manager shows at a path, by their names.
func (m *Manager) Metrics(ctx context.Context, path string) (map[string]*dto.MetricFamily, error) {
	status, body, err := m.Get(ctx, path)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("GET %s: %d %s", path, status, body)
	}
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return families, err
}

// WaitLeading returns when this manager holds the lease of its program.
func (m *Manager) WaitLeading(ctx context.Context) error {
	// The Lease would tell a host name and a random id; the metric tells it of this very process.
	leading := fmt.Sprintf(`leader_election_master_status{name=%q} 1`, m.lease)
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
