package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/test/chaos/checker"
	"github.com/multicidr/controller-manager/test/chaos/faultproxy"
	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	// leaseName is the Lease of kube-controller-managers.
	leaseName = "kube-controller-manager"
	// restartDelay is between the end of a manager and its next start, as a kubelet would take.
	restartDelay = 500 * time.Millisecond
)

// manager is one of the competing managers, through all its processes, with the proxy before it.
type manager struct {
	name  string
	proxy *faultproxy.Proxy
	cp    *controlplane.ControlPlane
	opts  controlplane.ManagerOptions

	// faulted is locked while something is being done to it.
	faulted sync.Mutex
	// leased is when the proxy had the last renewal of the lease that the API server confirmed, in nanoseconds since 1970. From then on,
	// if not from later on, the lease is good for its duration.
	leased atomic.Int64
	// renewed is when the API server last confirmed that it has the lease, in nanoseconds since 1970.
	renewed atomic.Int64

	mu      sync.Mutex
	process *controlplane.Manager // nil between two processes
	starts  int
}

// newManager prepares a manager and starts its proxy.
func newManager(s settings, cp *controlplane.ControlPlane, index int, c *checker.Checker) (*manager, error) {
	m := &manager{name: fmt.Sprintf("manager-%d", index+1), cp: cp}
	upstream, err := cp.Config("system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	certificate, key, err := cp.ServingCertificate("faultproxy")
	if err != nil {
		return nil, err
	}
	config := faultproxy.Config{
		Upstream: upstream, Certificate: certificate, Key: key, Seed: s.Seed + uint64(index), LoseAbandoned: !s.Late,
		Observe: func(e faultproxy.Exchange) { m.observe(e, c) },
	}
	if s.CutWatches {
		config.MinWatch, config.MaxWatch = time.Second, 3*time.Second
	}
	if !s.Fence {
		config.Deadline = func() time.Time { return time.Unix(0, m.leased.Load()).Add(s.Lease) }
	}
	m.proxy, err = faultproxy.Start(config)
	if err != nil {
		return nil, err
	}
	behind := rest.CopyConfig(upstream)
	behind.Host = m.proxy.URL()
	kubeconfig, err := cp.WriteKubeconfig(m.name, behind)
	if err != nil {
		return nil, err
	}
	m.opts = controlplane.ManagerOptions{Name: m.name, Binary: s.Command[0], Kubeconfig: kubeconfig, Args: slices.Concat(s.managerArgs(), s.Command[1:])}
	return m, nil
}

var (
	leasePath = regexp.MustCompile(`^/apis/coordination\.k8s\.io/v1/namespaces/kube-system/leases/` + leaseName + `$`)
	nodePath  = regexp.MustCompile(`^/api/v1/nodes/([^/]+)$`)
)

// observe is told what passed the proxy.
func (m *manager) observe(e faultproxy.Exchange, c *checker.Checker) {
	ok := e.Status >= 200 && e.Status < 300
	if node := nodePath.FindStringSubmatch(e.Path); node != nil && e.Method == "PATCH" {
		text := fmt.Sprintf("%s sent a PATCH", m.name)
		if e.Status != 0 {
			text += fmt.Sprintf(", answered %d", e.Status)
		}
		if e.Fault != faultproxy.None {
			text += fmt.Sprintf(" (%s)", e.Fault)
		}
		c.NoteNode(node[1], text)
	}
	if ok && e.Method == "PUT" && leasePath.MatchString(e.Path) {
		m.leased.Store(max(m.leased.Load(), e.Received.UnixNano()))
		m.renewed.Store(time.Now().UnixNano())
	}
}

// run keeps the manager running until ctx is done.
func (m *manager) run(ctx context.Context) error {
	for {
		process, err := m.cp.LaunchManager(m.opts)
		if err != nil {
			return err
		}
		m.set(process)
		select {
		case <-process.Done():
			m.set(nil)
		case <-ctx.Done():
			return process.Stop()
		}
		if !sleep(ctx, restartDelay) {
			return nil
		}
	}
}

func (m *manager) set(process *controlplane.Manager) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process = process
	if process != nil {
		m.starts++
	}
}

// do acts on the manager's process, if there is one.
func (m *manager) do(act func(*controlplane.Process) error) (ok bool) {
	m.mu.Lock()
	process := m.process
	m.mu.Unlock()
	return process != nil && act(process.Process) == nil
}

// restarts returns how often it was started again.
func (m *manager) restarts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(0, m.starts-1)
}

// leader returns the manager that renewed the lease last, if it did so within the time.
func leader(managers []*manager, within time.Duration) (*manager, bool) {
	latest := slices.MaxFunc(managers, func(a, b *manager) int { return int(a.renewed.Load() - b.renewed.Load()) })
	return latest, time.Since(time.Unix(0, latest.renewed.Load())) < within
}

// sleep returns false if ctx was done before the time was over.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
