package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/multicidr/controller-manager/test/judge"
)

// creators is how many Nodes are created at a time. More of them do not create more per second on two cores, they only wait longer.
const creators = 16

// newNode is a Node as a kubelet registers it, with about as much in it.
func newNode(name string, index int) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("8"),
		corev1.ResourceMemory:           resource.MustParse("32Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("200Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
		"hugepages-2Mi":                 resource.MustParse("0"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				"beta.kubernetes.io/arch":          "amd64",
				"beta.kubernetes.io/os":            "linux",
				"kubernetes.io/arch":               "amd64",
				"kubernetes.io/hostname":           name,
				"kubernetes.io/os":                 "linux",
				"node.kubernetes.io/instance-type": "standard-8",
				"topology.kubernetes.io/region":    "north",
				"topology.kubernetes.io/zone":      "north-" + strconv.Itoa(index%3),
			},
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Spec: corev1.NodeSpec{ProviderID: "example://north/" + name},
		Status: corev1.NodeStatus{
			Capacity:    resources,
			Allocatable: resources,
			Conditions:  conditions(time.Now()),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: netip.AddrFrom4([4]byte{172, byte(16 + index>>16), byte(index >> 8), byte(index)}).String()},
				{Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID:               fmt.Sprintf("%032x", index),
				SystemUUID:              fmt.Sprintf("%08x-0000-4000-8000-000000000000", index),
				BootID:                  fmt.Sprintf("%08x-0000-4000-8000-000000000001", index),
				KernelVersion:           "6.12.0-1-amd64",
				OSImage:                 "Debian GNU/Linux 13 (trixie)",
				ContainerRuntimeVersion: "containerd://2.2.1",
				KubeletVersion:          "v1.37.1",
				OperatingSystem:         "linux",
				Architecture:            "amd64",
			},
		},
	}
}

// conditions are those that a kubelet reports.
func conditions(now time.Time) []corev1.NodeCondition {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message,
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
		}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
	}
}

// fleet are the Nodes of one measurement, and what this program's own watch has seen of them.
type fleet struct {
	prefix string
	size   int
	stop   context.CancelFunc

	mu      sync.Mutex
	created []time.Time // when the API server had answered the creation
	served  []time.Time // when the watch showed podCIDRs first
	stamps  []time.Time // creationTimestamp
	cidrs   [][]string
	order   []int // in which they were served
	first   time.Time
	failed  error
	done    chan struct{} // closed when all are served, or the watch has failed
}

// register creates the Nodes of a fleet, which it watches from before the first one.
func (c *cluster) register(ctx context.Context, prefix string, size int, change func(index int, node *corev1.Node)) (*fleet, error) {
	f, err := c.watchFleet(ctx, prefix, size)
	if err != nil {
		return nil, err
	}
	if err := c.create(ctx, f, change); err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

// watchFleet starts a watch for Nodes of that prefix, of which there are none yet.
func (c *cluster) watchFleet(ctx context.Context, prefix string, size int) (*fleet, error) {
	f := &fleet{
		prefix: prefix + "-", size: size,
		created: make([]time.Time, size), served: make([]time.Time, size), stamps: make([]time.Time, size), cidrs: make([][]string, size),
		done: make(chan struct{}),
	}
	list, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	ctx, f.stop = context.WithCancel(ctx)
	go func() {
		f.fail(follow(ctx, c.kube, list.ResourceVersion, func(event watch.EventType, node *corev1.Node) { f.see(node, time.Now()) }))
	}()
	return f, nil
}

// follow calls see for every event of Nodes after a resource version until ctx is done. The API server ends a watch that cannot keep up, as
// happens on a busy machine; then it goes on where it was, at once, which an informer and client-go's RetryWatcher do only after a second.
func follow(ctx context.Context, kube kubernetes.Interface, version string, see func(watch.EventType, *corev1.Node)) error {
	for {
		w, err := kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			return fmt.Errorf("watch Nodes: %w", err)
		}
		for event := range w.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if !ok {
				return fmt.Errorf("watch Nodes: %w", apierrors.FromObject(event.Object))
			}
			version = node.ResourceVersion
			see(event.Type, node)
		}
	}
}

func (f *fleet) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil && len(f.order) < f.size {
		f.failed = err
		close(f.done)
	}
}

// see notes what an event shows.
func (f *fleet) see(node *corev1.Node, now time.Time) {
	number, ours := strings.CutPrefix(node.Name, f.prefix)
	if !ours || len(node.Spec.PodCIDRs) == 0 {
		return
	}
	index, err := strconv.Atoi(number)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.served[index].IsZero() {
		return
	}
	f.served[index], f.stamps[index], f.cidrs[index] = now, node.CreationTimestamp.Time, node.Spec.PodCIDRs
	f.order = append(f.order, index)
	if len(f.order) == f.size {
		close(f.done)
	}
}

func (f *fleet) name(index int) string { return fmt.Sprintf("%s%06d", f.prefix, index) }

// create creates all Nodes of the fleet, each after change, if any, has changed it. It returns when the API server has answered the last.
func (c *cluster) create(ctx context.Context, f *fleet, change func(index int, node *corev1.Node)) error {
	errs := make([]error, f.size)
	f.first = time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
	for _, client := range c.creators {
		wg.Go(func() {
			for ctx.Err() == nil {
				index := f.size - int(next.Add(1)) // Who serves Nodes by name must not look like who serves them by age.
				if index < 0 {
					return
				}
				node := newNode(f.name(index), index)
				if change != nil {
					change(index, node)
				}
				_, errs[index] = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
				if errs[index] != nil {
					cancel()
				}
				now := time.Now()
				f.mu.Lock()
				f.created[index] = now
				f.mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, context.Canceled) })...)
}

// wait returns when all Nodes have podCIDRs, or with an error when that cannot be expected any more.
func (f *fleet) wait(ctx context.Context, r *runner, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took more than %s", timeout))
	defer cancel()
	var err error
	select {
	case <-f.done:
		return f.failed
	case <-r.Done():
		err = errors.New("it has ended")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Errorf("%d of %d Nodes have no podCIDRs: %w; the end of the log:\n%s", f.size-len(f.order), f.size, err, tail(r.LogPath()))
}

// last is when the last Node was served.
func (f *fleet) last() time.Time { return f.served[f.order[len(f.order)-1]] }

// latencies are the times from the answer to the creation of each Node until the watch showed podCIDRs. A Node that was served before the
// answer arrived did not wait.
func (f *fleet) latencies() []time.Duration {
	all := make([]time.Duration, f.size)
	for i := range all {
		all[i] = max(0, f.served[i].Sub(f.created[i]))
	}
	return all
}

// overlap returns an error that names Nodes with common addresses, if there are any in the fleets.
func overlap(fleets ...*fleet) error {
	var blocks judge.Blocks
	for _, f := range fleets {
		for i, cidrs := range f.cidrs {
			blocks.Add(f.name(i), cidrs...)
		}
	}
	return blocks.Overlap()
}
