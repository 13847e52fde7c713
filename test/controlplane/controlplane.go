package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// startTimeout bounds one start where the caller's context has no earlier deadline. A start takes about
// four seconds; the rest is for machines that compile at the same time.
const startTimeout = 2 * time.Minute

// Options of a control plane. The zero value is valid.
type Options struct {
	// BinDir holds etcd, kube-apiserver and kube-controller-manager. Default: that of function BinDir.
	BinDir string
	// Dir takes logs, keys and data. Default: a temporary directory, which Stop removes. A directory
	// given here is never removed.
	Dir string
	// ServiceRange is --service-cluster-ip-range. Default: kubeadm's IPv4 range and an IPv6 one.
	ServiceRange string
	// APIServerArgs come after our own, so that they win.
	APIServerArgs []string
	// EtcdArgs come after our own, so that they win.
	EtcdArgs []string
}

// ControlPlane is a running etcd and kube-apiserver with the managers started on them.
// Its methods may be called at once, save for Start*, Restart* and Stop of one and the same component.
type ControlPlane struct {
	opts       Options
	dir        string
	ca         *authority
	admin      *rest.Config
	etcdPorts  [2]int
	serverPort int

	mu        sync.Mutex
	etcd      *Process
	apiServer *Process
	managers  []*Manager
}

// Start returns when the API server is ready. ctx bounds the start only; Stop ends what was started.
func Start(ctx context.Context, opts Options) (_ *ControlPlane, err error) {
	if opts.BinDir == "" {
		if opts.BinDir, err = BinDir(); err != nil {
			return nil, err
		}
	}
	if opts.ServiceRange == "" {
		opts.ServiceRange = "10.96.0.0/16,fd00:10:96::/112"
	}
	cp := &ControlPlane{opts: opts, dir: opts.Dir}
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if _, err := cp.binary(program, "make tools"); err != nil {
			return nil, err
		}
	}
	if cp.dir == "" {
		if cp.dir, err = os.MkdirTemp("", "controlplane-"); err != nil {
			return nil, fmt.Errorf("make a directory for the control plane: %w", err)
		}
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("start control plane (logs kept in %s): %w", cp.LogDir(), errors.Join(err, cp.StopKeepingLogs()))
		}
	}()
	if err := cp.prepare(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// The API server waits for etcd by itself, but then says so every second; etcd is up in a moment.
	if err := cp.startEtcdOnFreePorts(ctx); err != nil {
		return nil, err
	}
	if err := cp.startAPIServerOnFreePort(ctx); err != nil {
		return nil, err
	}
	return cp, nil
}

// prepare makes the directories and the keys.
func (cp *ControlPlane) prepare() error {
	for _, dir := range []string{cp.LogDir(), cp.PKIDir(), cp.path("kubeconfig")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	var err error
	cp.ca, err = newPKI(cp.PKIDir())
	return err
}

// Stop ends every process, managers first, and removes the temporary directory.
func (cp *ControlPlane) Stop() error {
	err := cp.stopProcesses()
	if cp.opts.Dir == "" {
		err = errors.Join(err, os.RemoveAll(cp.dir))
	}
	return err
}

// StopKeepingLogs ends every process and leaves logs and keys for a look at what went wrong, but not etcd's data,
// which takes sixty megabytes even when it is empty.
func (cp *ControlPlane) StopKeepingLogs() error {
	return errors.Join(cp.stopProcesses(), os.RemoveAll(cp.path("etcd")))
}

func (cp *ControlPlane) stopProcesses() error {
	cp.mu.Lock()
	managers, apiServer, etcd := cp.managers, cp.apiServer, cp.etcd
	cp.mu.Unlock()

	// Clients before servers, so that nobody spends its last seconds on retries.
	errs := make([]error, len(managers))
	var wg sync.WaitGroup
	for i, manager := range managers {
		wg.Go(func() { errs[i] = manager.Stop() })
	}
	wg.Wait()
	for _, server := range []*Process{apiServer, etcd} {
		if server != nil {
			errs = append(errs, server.Stop())
		}
	}
	return errors.Join(errs...)
}

// Etcd is the current etcd process: to kill, pause and continue. StartEtcd brings a dead one back.
func (cp *ControlPlane) Etcd() *Process {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.etcd
}

// APIServer is the current kube-apiserver process; StartAPIServer brings a dead one back.
func (cp *ControlPlane) APIServer() *Process {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.apiServer
}

// EtcdEndpoint is etcd's client URL; it wants the client certificate PKIDir()/etcd-client.{crt,key}.
func (cp *ControlPlane) EtcdEndpoint() string {
	return fmt.Sprintf("https://127.0.0.1:%d", cp.etcdPorts[0])
}

// Dir is the directory with everything in it: logs, keys, kubeconfigs, etcd's data.
func (cp *ControlPlane) Dir() string { return cp.dir }

// LogDir has one log per component; a restarted component appends to its log.
func (cp *ControlPlane) LogDir() string { return cp.path("logs") }

// PKIDir has ca.{crt,key}, sa.{key,pub} and the certificates of the servers.
func (cp *ControlPlane) PKIDir() string { return cp.path("pki") }

func (cp *ControlPlane) path(elem ...string) string {
	return filepath.Join(append([]string{cp.dir}, elem...)...)
}

func (cp *ControlPlane) pki(name string) string { return filepath.Join(cp.PKIDir(), name) }

func (cp *ControlPlane) startEtcdOnFreePorts(ctx context.Context) error {
	return retryTakenPorts(func() (err error) {
		for i := range cp.etcdPorts {
			if cp.etcdPorts[i], err = FreePort(); err != nil {
				return err
			}
		}
		return cp.StartEtcd(ctx)
	})
}

// StartEtcd starts a dead etcd again, on its old ports and data, and waits until it is healthy.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error {
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", cp.etcdPorts[1])
	process, err := cp.startProcess("etcd", "etcd", "make tools", append([]string{
		"--name=local",
		"--data-dir=" + cp.path("etcd"),
		"--listen-client-urls=" + cp.EtcdEndpoint(),
		"--advertise-client-urls=" + cp.EtcdEndpoint(),
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=local=" + peerURL,
		// With a client CA only our API server gets in, and we cannot take a stranger's etcd for ours
		// when somebody was faster on the port.
		"--client-cert-auth",
		"--trusted-ca-file=" + cp.pki("ca.crt"),
		"--cert-file=" + cp.pki("etcd.crt"),
		"--key-file=" + cp.pki("etcd.key"),
		// The data need not outlive the machine, only the process.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}, cp.opts.EtcdArgs...)...)
	if err != nil {
		return err
	}
	cp.mu.Lock()
	cp.etcd = process
	cp.mu.Unlock()
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CAFile: cp.pki("ca.crt"), CertFile: cp.pki("etcd-client.crt"), KeyFile: cp.pki("etcd-client.key"),
	}})
	if err != nil {
		return err
	}
	return process.waitReady(ctx, httpOK(client, cp.EtcdEndpoint()+"/health"))
}

func (cp *ControlPlane) startAPIServerOnFreePort(ctx context.Context) error {
	return retryTakenPorts(func() (err error) {
		if cp.serverPort, err = FreePort(); err != nil {
			return err
		}
		if cp.admin, err = cp.Config("admin", "system:masters"); err != nil {
			return err
		}
		return cp.StartAPIServer(ctx)
	})
}

// RestartAPIServer stops the API server in an orderly way and starts it again on the same port.
func (cp *ControlPlane) RestartAPIServer(ctx context.Context) error {
	if err := cp.APIServer().Stop(); err != nil {
		return err
	}
	return cp.StartAPIServer(ctx)
}

// StartAPIServer starts a dead API server again, on its old port, and waits until it is ready.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	args := []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", cp.serverPort),
		"--etcd-servers=" + cp.EtcdEndpoint(),
		"--etcd-cafile=" + cp.pki("ca.crt"),
		"--etcd-certfile=" + cp.pki("etcd-client.crt"),
		"--etcd-keyfile=" + cp.pki("etcd-client.key"),
		"--tls-cert-file=" + cp.pki("apiserver.crt"),
		"--tls-private-key-file=" + cp.pki("apiserver.key"),
		"--client-ca-file=" + cp.pki("ca.crt"),
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + cp.pki("sa.pub"),
		"--service-account-signing-key-file=" + cp.pki("sa.key"),
		"--service-cluster-ip-range=" + cp.opts.ServiceRange,
		"--allow-privileged",
		// A loopback address cannot be an endpoint of the kubernetes Service, and nobody needs one here.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		// Priority and fairness splits this sum; the default of 600 makes thousands of Nodes at once queue.
		"--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000",
	}
	process, err := cp.startProcess("kube-apiserver", "kube-apiserver", "make tools", append(args, cp.opts.APIServerArgs...)...)
	if err != nil {
		return err
	}
	cp.mu.Lock()
	cp.apiServer = process
	cp.mu.Unlock()
	client, err := rest.HTTPClientFor(cp.admin)
	if err != nil {
		return err
	}
	if err := process.waitReady(ctx, httpOK(client, cp.admin.Host+"/readyz")); err != nil {
		return err
	}
	// Ready does not wait for the namespaces, but a manager's lease and everybody's objects do.
	return process.waitReady(ctx, cp.namespacesExist)
}

func (cp *ControlPlane) namespacesExist(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		return err
	}
	for _, namespace := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		if _, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err != nil {
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("namespace %s does not exist yet", namespace)
			}
			return err
		}
	}
	return nil
}

// startProcess starts a program of BinDir. makeTarget is what to run when it is missing.
func (cp *ControlPlane) startProcess(name, program, makeTarget string, args ...string) (*Process, error) {
	binary, err := cp.binary(program, makeTarget)
	if err != nil {
		return nil, err
	}
	return StartProcess(name, filepath.Join(cp.LogDir(), name+".log"), binary, args...)
}

// binary is the path of a program, which an absolute path names itself.
func (cp *ControlPlane) binary(program, makeTarget string) (string, error) {
	path := program
	if !filepath.IsAbs(path) {
		path = filepath.Join(cp.opts.BinDir, program)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w; `%s` builds it", err, makeTarget)
	}
	return path, nil
}

// BinDir is the directory of the programs of one minor of Kubernetes, as in the Makefile: bin/v1.36 of this module if the environment has
// KUBERNETES=v1.36, and bin/ if it has not, or has the minor of go.mod. A program that is in such a directory itself uses those beside it.
func BinDir() (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin")
	if minor := os.Getenv("KUBERNETES"); minor != "" {
		if _, err := os.Stat(filepath.Join(root, "hack/kubernetes", minor, "go.mod")); err == nil {
			bin = filepath.Join(bin, minor)
		}
		return bin, nil
	}
	if self, err := os.Executable(); err == nil && filepath.Dir(filepath.Dir(self)) == bin {
		return filepath.Dir(self), nil
	}
	return bin, nil
}

// Program is the path of a program of BinDir. If it is not there, starting it will say so.
func Program(name string) string {
	bin, err := BinDir()
	if err != nil {
		bin = "bin" // outside of the module
	}
	return filepath.Join(bin, name)
}

// ModuleRoot is the directory of the go.mod above the working directory. Tests run in their package's directory and
// commands anywhere in the tree, so a path relative to the working directory would not do.
func ModuleRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in or above %s: run inside the repository", wd)
		}
	}
}
