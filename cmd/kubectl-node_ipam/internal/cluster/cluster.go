// Package cluster reads from an API server what a cluster's Nodes and ranges are. It writes nothing. What the user may not read is named and left out.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/cmd/internal/program"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
)

// Reader reads objects.
type Reader struct {
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
	// Progress is called with the number of objects read so far; it may be nil.
	Progress func(kind string, n int)
}

// NewReader returns a reader for a client configuration.
func NewReader(config *rest.Config) (*Reader, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // A large list has hundreds of chunks. The server's priority and fairness rules decide how fast they come.
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	config.ContentType = runtime.ContentTypeProtobuf // a third of the time that JSON takes
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err := kubernetes.NewForConfig(config)
	return &Reader{Kube: kube, Dynamic: custom}, err
}

// Kinds of objects.
const (
	Nodes        = "Nodes"
	ClusterCIDRs = "ClusterCIDRs"
	ServiceCIDRs = "ServiceCIDRs"
	Leases       = "Leases"
	Pods         = "Pods"
)

// Missing is a kind of objects that could not be read.
type Missing struct {
	Kind string `json:"kind"`
	// Reason is Forbidden, or NotServed if the API server has no such kind.
	Reason string `json:"reason"`
	// Means says what follows from that.
	Means string `json:"means"`
}

const (
	Forbidden = "Forbidden"
	NotServed = "NotServed"
)

func (m Missing) String() string {
	what := "you may not list " + m.Kind
	if m.Reason == NotServed {
		what = "the API server has no " + m.Kind
	}
	return what + ": " + m.Means
}

// Objects are what was read.
type Objects struct {
	inspect.Objects
	Missing []Missing
}

// Lacks reports whether a kind could not be read because that is forbidden.
func (o *Objects) Lacks(kind string) bool {
	return slices.ContainsFunc(o.Missing, func(m Missing) bool { return m.Kind == kind && m.Reason == Forbidden })
}

// Objects reads Nodes, ClusterCIDRs and ServiceCIDRs.
func (r *Reader) Objects(ctx context.Context) (o Objects, err error) {
	for _, list := range []struct {
		kind                 string
		forbidden, notServed string
		page                 pager.ListPageFunc
		add                  func(runtime.Object)
	}{
		{ClusterCIDRs, "nothing can be said about ranges", "install the controller, or see with plan -f what would be",
			func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return clusterCIDRs(r.Dynamic).List(ctx, opts)
			},
			func(object runtime.Object) {
				cc := &networkingv1.ClusterCIDR{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, cc); err == nil {
					o.ClusterCIDRs = append(o.ClusterCIDRs, cc)
				}
			}},
		{ServiceCIDRs, "blocks in service ranges count as free", "name its service ranges with --service-cluster-ip-range, or their blocks count as free",
			func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return r.Kube.NetworkingV1().ServiceCIDRs().List(ctx, opts)
			},
			func(object runtime.Object) {
				o.ServiceCIDRs = append(o.ServiceCIDRs, object.(*networkingapiv1.ServiceCIDR))
			}},
		{Nodes, "which blocks are free, and which Nodes are pending, is not known", "",
			func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return r.Kube.CoreV1().Nodes().List(ctx, opts)
			},
			func(object runtime.Object) { o.Nodes = append(o.Nodes, trim(object.(*corev1.Node))) }},
	} {
		switch err := r.each(ctx, list.kind, list.page, list.add); {
		case apierrors.IsForbidden(err):
			o.Missing = append(o.Missing, Missing{list.kind, Forbidden, list.forbidden})
		case apierrors.IsNotFound(err):
			o.Missing = append(o.Missing, Missing{list.kind, NotServed, list.notServed})
		case err != nil:
			return Objects{}, fmt.Errorf("list %s: %w", list.kind, err)
		}
	}
	return o, nil
}

// pageSize is how many objects one request lists. A Node has several kilobytes, so a page has a few megabytes.
const pageSize = 1000

// each calls add for each object of a kind.
func (r *Reader) each(ctx context.Context, kind string, page pager.ListPageFunc, add func(runtime.Object)) error {
	p := pager.New(page)
	p.PageSize = pageSize
	n := 0
	return p.EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		add(object)
		if n++; r.Progress != nil && n%pageSize == 0 {
			r.Progress(kind, n)
		}
		return nil
	})
}

// trim returns what the allocator reads of a Node: a hundredth of it, so that 100,000 Nodes take little memory.
func trim(node *corev1.Node) *corev1.Node {
	small := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, UID: node.UID, Labels: node.Labels, CreationTimestamp: node.CreationTimestamp, DeletionTimestamp: node.DeletionTimestamp,
	}}
	for _, key := range []string{networkingv1.AnnotationClusterCIDR, networkingv1.AnnotationLeaseHolder} {
		if value, ok := node.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&small.ObjectMeta, key, value)
		}
	}
	small.Spec.PodCIDR, small.Spec.PodCIDRs = node.Spec.PodCIDR, node.Spec.PodCIDRs
	small.Status.Addresses = node.Status.Addresses
	return small
}

// Leader is the holder of a Lease by which a program with the controller leads, or may lead.
type Leader struct {
	Lease  string `json:"lease"` // namespace/name
	Form   string `json:"form"`  // the program
	Holder string `json:"holder"`
	// Unsure is whether the Lease does not say that its holder runs this controller. It may be a program without it, or have begun to lead
	// just now.
	Unsure bool `json:"unsure,omitempty"`
	// Age is the time since the last renewal. Expired is whether that is longer than the Lease lasts.
	Age     metav1.Duration `json:"age"`
	Expired bool            `json:"expired,omitempty"`
	// Allocated is how many Nodes have podCIDRs that this holder wrote.
	Allocated int `json:"allocated"`
}

// leaderLeases select the Leases of leaders: those that have the controller's label, and those of the usual names, whose holders may not have
// written it yet.
var leaderLeases = []struct {
	namespace string
	opts      metav1.ListOptions
}{
	{metav1.NamespaceAll, metav1.ListOptions{LabelSelector: lease.LabelTerm}},
	{metav1.NamespaceSystem, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, program.Manager).String()}},
	{metav1.NamespaceAll, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, program.Peer).String()}},
}

// Leaders reads the Leases of leaders. Those that certainly lead come first.
func (r *Reader) Leaders(ctx context.Context, nodes []*corev1.Node, now time.Time) (leaders []Leader, missing []Missing, err error) {
	wrote := map[string]int{} // Nodes by the holder that they have podCIDRs from
	for _, node := range nodes {
		wrote[node.Annotations[networkingv1.AnnotationLeaseHolder]]++
	}
	for _, of := range leaderLeases {
		list, err := r.Kube.CoordinationV1().Leases(of.namespace).List(ctx, of.opts)
		switch {
		case apierrors.IsForbidden(err):
			return leaders, []Missing{{Leases, Forbidden, "who leads is not known"}}, nil
		case err != nil:
			return nil, nil, fmt.Errorf("list Leases: %w", err)
		}
		for i := range list.Items {
			if l := &list.Items[i]; ptr.Deref(l.Spec.HolderIdentity, "") != "" {
				leaders = append(leaders, leaderOf(l, wrote, now))
			}
		}
	}
	slices.SortStableFunc(leaders, func(a, b Leader) int {
		rank := map[bool]int{true: 1}
		return cmp.Or(rank[a.Unsure]-rank[b.Unsure], rank[a.Expired]-rank[b.Expired], cmp.Compare(a.Lease, b.Lease))
	})
	return slices.CompactFunc(leaders, func(a, b Leader) bool { return a.Lease == b.Lease }), nil, nil
}

func leaderOf(l *coordinationv1.Lease, wrote map[string]int, now time.Time) Leader {
	leader := Leader{Lease: l.Namespace + "/" + l.Name, Form: program.Peer, Holder: *l.Spec.HolderIdentity, Allocated: wrote[*l.Spec.HolderIdentity]}
	leader.Unsure = l.Labels[lease.LabelTerm] != strconv.Itoa(int(ptr.Deref(l.Spec.LeaseTransitions, 0)))
	if l.Name == program.Manager {
		leader.Form = program.Manager
	}
	if l.Spec.RenewTime != nil {
		leader.Age.Duration = now.Sub(l.Spec.RenewTime.Time).Truncate(time.Second)
	}
	if l.Spec.LeaseDurationSeconds != nil {
		leader.Expired = leader.Age.Duration > time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second
	}
	return leader
}

// PodsWith reads the Pods that have an address, as namespace/name. Pods in the host's network have the Node's address. nodes are those that the address
// may be on; without one, every Pod is read.
func (r *Reader) PodsWith(ctx context.Context, address netip.Addr, nodes []string) (names []string, missing []Missing, err error) {
	// The API server selects Pods by their first address only, and that of the other family is the second one.
	selectors := []fields.Selector{fields.Everything()}
	if len(nodes) > 0 {
		selectors = []fields.Selector{fields.OneTermEqualSelector("status.podIP", address.String())}
	}
	for _, node := range nodes {
		selectors = append(selectors, fields.OneTermEqualSelector("spec.nodeName", node))
	}
	for _, selector := range selectors {
		page := func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = selector.String()
			return r.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, opts)
		}
		err := r.each(ctx, Pods, page, func(object runtime.Object) {
			if pod := object.(*corev1.Pod); has(pod, address) {
				names = append(names, pod.Namespace+"/"+pod.Name)
			}
		})
		switch {
		case apierrors.IsForbidden(err):
			return nil, []Missing{{Pods, Forbidden, "whether a Pod has the address is not known"}}, nil
		case err != nil:
			return nil, nil, fmt.Errorf("list Pods: %w", err)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil, nil
}

// has reports whether a Pod has an address. One that has ended still shows those that it had, and another Pod may have them by now.
func has(pod *corev1.Pod, address netip.Addr) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	is := func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && a.Unmap() == address
	}
	return is(pod.Status.PodIP) || slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return is(ip.IP) })
}

func clusterCIDRs(client dynamic.Interface) dynamic.ResourceInterface {
	return client.Resource(networkingv1.SchemeGroupVersion.WithResource("clustercidrs"))
}

// Names lists the names of Nodes or ClusterCIDRs that begin with a prefix, for completion.
func (r *Reader) Names(ctx context.Context, kind, prefix string) (names []string) {
	page := func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		if kind == Nodes {
			return r.Kube.CoreV1().Nodes().List(ctx, opts)
		}
		return clusterCIDRs(r.Dynamic).List(ctx, opts)
	}
	_ = r.each(ctx, kind, page, func(object runtime.Object) { // Without an answer there is nothing to complete.
		if o, err := meta.Accessor(object); err == nil && strings.HasPrefix(o.GetName(), prefix) {
			names = append(names, o.GetName())
		}
	})
	return names
}
