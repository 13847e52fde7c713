package preflight

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/cmd/internal/files"
)

// state is the input of the check. What a cluster does not have is nil.
type state struct {
	server       *version.Info
	nodes        []corev1.Node
	clusterCIDRs []networkingv1.ClusterCIDR
	noCRD        bool
	fenced       bool                                      // the policy lease-holder is in force
	crd          *apiextensionsv1.CustomResourceDefinition // nil if it cannot be read, too
	planned      []networkingv1.ClusterCIDR                // from files
	fruitless    []string                                  // files and directories without a ClusterCIDR, and what they contain instead
	given        flags                                     // from preflight's own command line
	form         string                                    // the same; may be empty
	before       string                                    // the same: the step that is going to be taken
	pods         []corev1.Pod                              // of kube-system, and others that may matter
	services     []networkingapiv1.ServiceCIDR
	bindings     []rbacv1.ClusterRoleBinding
	configMaps   []corev1.ConfigMap // of network programs
	policies     []networkingapiv1.NetworkPolicy
	ipPools      []unstructured.Unstructured // Calico's
	installs     []unstructured.Unstructured // Calico's, of its operator
	leases       []coordinationv1.Lease      // of kube-system, and those of the peer
	deployments  []appsv1.Deployment
	daemonSets   []appsv1.DaemonSet
	statefulSets []appsv1.StatefulSet

	processes []process // found in the above, by find
}

func read(ctx context.Context, config *rest.Config, paths []string, given flags) (*state, error) {
	c, err := connect(config)
	if err != nil {
		return nil, err
	}
	s := &state{given: given}
	if s.planned, s.fruitless, err = files.Read(paths); err != nil {
		return nil, err
	}
	if s.server, err = c.kube.Discovery().ServerVersion(); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context, *state) error{c.readRanges, c.readCRD, c.readPrograms, c.readNetwork} {
		if err := read(ctx, s); err != nil {
			return nil, err
		}
	}
	var existing []*networkingv1.ClusterCIDR
	for i := range s.clusterCIDRs {
		existing = append(existing, &s.clusterCIDRs[i])
	}
	return s, files.Apply(s.planned, existing)
}

type clients struct {
	kube     kubernetes.Interface
	ours     versioned.Interface
	anything dynamic.Interface
	names    metadata.Interface
}

func connect(config *rest.Config) (c clients, err error) {
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return c, err
	}
	if c.ours, err = versioned.NewForConfig(config); err != nil {
		return c, err
	}
	if c.anything, err = dynamic.NewForConfig(config); err != nil {
		return c, err
	}
	c.names, err = metadata.NewForConfig(config)
	return c, err
}

// listed calls take for every object of a kind.
func listed[O any, L runtime.Object](ctx context.Context, kind string, list func(context.Context, metav1.ListOptions) (L, error), take func(O)) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) })
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if o, ok := object.(O); ok {
			take(o)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", kind, err)
	}
	return nil
}

// optional replaces NotFound by nil: a cluster may lack the kind.
func optional(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// readRanges reads the objects with addresses: Nodes, ClusterCIDRs and ServiceCIDRs.
func (c clients) readRanges(ctx context.Context, s *state) error {
	ranges := listed(ctx, "ClusterCIDRs", c.ours.NetworkingV1().ClusterCIDRs().List, func(cc *networkingv1.ClusterCIDR) { s.clusterCIDRs = append(s.clusterCIDRs, *cc) })
	s.noCRD = apierrors.IsNotFound(ranges)
	policy, err := there(c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, "lease-holder."+networkingv1.GroupName, metav1.GetOptions{}))
	s.fenced = err == nil && policy != nil
	if apierrors.IsForbidden(err) {
		err = nil
	}
	return errors.Join(err, optional(ranges),
		listed(ctx, "Nodes", c.kube.CoreV1().Nodes().List, func(n *corev1.Node) { s.nodes = append(s.nodes, *n) }),
		optional(listed(ctx, "ServiceCIDRs", c.kube.NetworkingV1().ServiceCIDRs().List, func(o *networkingapiv1.ServiceCIDR) { s.services = append(s.services, *o) })))
}

// relevant is in the image, the command or the name of containers that may matter.
var relevant = regexp.MustCompile(`controller|allocate.node.cidrs|kube-|hyperkube|ipam|podcidr|antrea|cilium|calico|flannel|kindnet|weave|ovn|masq|aws-node`)

func matters(pod *corev1.Pod) bool {
	return pod.Namespace == metav1.NamespaceSystem || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return relevant.MatchString(strings.Join(slices.Concat([]string{c.Name, c.Image}, c.Command, c.Args), " "))
	})
}

// readPrograms reads which programs may allocate, their permissions, and their Leases: those of kube-system, where API servers have theirs, too,
// and those of the peer in any namespace.
func (c clients) readPrograms(ctx context.Context, s *state) error {
	apps := c.kube.AppsV1()
	return errors.Join(
		listed(ctx, "Pods", c.kube.CoreV1().Pods(metav1.NamespaceAll).List, func(p *corev1.Pod) {
			if matters(p) {
				s.pods = append(s.pods, *p)
			}
		}),
		listed(ctx, "ClusterRoleBindings", c.kube.RbacV1().ClusterRoleBindings().List, func(b *rbacv1.ClusterRoleBinding) { s.bindings = append(s.bindings, *b) }),
		listed(ctx, "Leases", c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).List, func(l *coordinationv1.Lease) { s.leases = append(s.leases, *l) }),
		listed(ctx, "Leases", c.peerLeases, func(l *coordinationv1.Lease) {
			if l.Namespace != metav1.NamespaceSystem {
				s.leases = append(s.leases, *l)
			}
		}),
		listed(ctx, "Deployments", apps.Deployments(metav1.NamespaceAll).List, func(d *appsv1.Deployment) { s.deployments = append(s.deployments, *d) }),
		listed(ctx, "DaemonSets", apps.DaemonSets(metav1.NamespaceAll).List, func(d *appsv1.DaemonSet) { s.daemonSets = append(s.daemonSets, *d) }),
		listed(ctx, "StatefulSets", apps.StatefulSets(metav1.NamespaceAll).List, func(d *appsv1.StatefulSet) { s.statefulSets = append(s.statefulSets, *d) }))
}

// peerLeases lists the Leases of the peer. Without the selector there would be one of each Node.
func (c clients) peerLeases(ctx context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	o.FieldSelector = "metadata.name=" + peer
	return c.kube.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, o)
}

// ofNetwork is in the names of ConfigMaps with settings of network programs.
var ofNetwork = regexp.MustCompile(`kube-proxy|flannel|canal|calico|cilium|kube-router|antrea|ip-masq|kindnet|kops-controller`)

// readNetwork reads the settings of kube-proxy and of CNI plugins, in whatever namespace they are.
func (c clients) readNetwork(ctx context.Context, s *state) error {
	var errs []error
	err := listed(ctx, "ConfigMaps", c.names.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).List, func(m *metav1.PartialObjectMetadata) {
		if !ofNetwork.MatchString(m.Name) {
			return
		}
		configMap, err := there(c.kube.CoreV1().ConfigMaps(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{}))
		if configMap != nil {
			s.configMaps = append(s.configMaps, *configMap)
		}
		errs = append(errs, err)
	})
	errs = append(errs, err, listed(ctx, "NetworkPolicies", c.kube.NetworkingV1().NetworkPolicies(metav1.NamespaceAll).List,
		func(p *networkingapiv1.NetworkPolicy) { s.policies = append(s.policies, *p) }))
	for _, of := range []struct {
		into     *[]unstructured.Unstructured
		resource schema.GroupVersionResource
	}{
		{&s.ipPools, schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: "ippools"}},
		{&s.ipPools, schema.GroupVersionResource{Group: "projectcalico.org", Version: "v3", Resource: "ippools"}},
		{&s.installs, schema.GroupVersionResource{Group: "operator.tigera.io", Version: "v1", Resource: "installations"}},
	} {
		if len(*of.into) == 0 {
			errs = append(errs, optional(listed(ctx, "Calico's "+of.resource.Resource, c.anything.Resource(of.resource).List,
				func(u *unstructured.Unstructured) { *of.into = append(*of.into, *u) })))
		}
	}
	return errors.Join(errs...)
}

// there replaces NotFound by nil.
func there[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}
