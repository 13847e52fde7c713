package preflight

import (
	"context"
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

// readRanges reads the objects with addresses: Nodes, ClusterCIDRs and ServiceCIDRs.
func (c clients) readRanges(ctx context.Context, s *state) error {
	nodes, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	s.nodes = nodes.Items
	clusterCIDRs, err := c.ours.NetworkingV1().ClusterCIDRs().List(ctx, metav1.ListOptions{})
	if s.noCRD = apierrors.IsNotFound(err); err != nil && !s.noCRD {
		return fmt.Errorf("list ClusterCIDRs: %w", err)
	}
	if clusterCIDRs != nil {
		s.clusterCIDRs = clusterCIDRs.Items
	}
	services, err := there(c.kube.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{}))
	if err != nil {
		return fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	if services != nil {
		s.services = services.Items
	}
	policy, err := there(c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, "lease-holder."+networkingv1.GroupName, metav1.GetOptions{}))
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("get ValidatingAdmissionPolicyBinding: %w", err)
	}
	s.fenced = err == nil && policy != nil
	return nil
}

// relevant is in the image, the command or the name of containers that may matter.
var relevant = regexp.MustCompile(`controller|allocate.node.cidrs|kube-|hyperkube|ipam|podcidr|antrea|cilium|calico|flannel|kindnet|weave|ovn|masq|aws-node`)

func matters(pod *corev1.Pod) bool {
	return pod.Namespace == metav1.NamespaceSystem || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return relevant.MatchString(strings.Join(slices.Concat([]string{c.Name, c.Image}, c.Command, c.Args), " "))
	})
}

// readPrograms reads which programs may allocate, and their permissions.
func (c clients) readPrograms(ctx context.Context, s *state) error {
	all := metav1.ListOptions{}
	pods := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
	})
	err := pods.EachListItem(ctx, all, func(object runtime.Object) error {
		if pod, ok := object.(*corev1.Pod); ok && matters(pod) {
			s.pods = append(s.pods, *pod)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	bindings, err := c.kube.RbacV1().ClusterRoleBindings().List(ctx, all)
	if err != nil {
		return fmt.Errorf("list ClusterRoleBindings: %w", err)
	}
	s.bindings = bindings.Items
	if err := c.readLeases(ctx, s); err != nil {
		return err
	}
	deployments, err := c.kube.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, all)
	if err != nil {
		return fmt.Errorf("list Deployments: %w", err)
	}
	s.deployments = deployments.Items
	daemonSets, err := c.kube.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, all)
	if err != nil {
		return fmt.Errorf("list DaemonSets: %w", err)
	}
	s.daemonSets = daemonSets.Items
	statefulSets, err := c.kube.AppsV1().StatefulSets(metav1.NamespaceAll).List(ctx, all)
	if err != nil {
		return fmt.Errorf("list StatefulSets: %w", err)
	}
	s.statefulSets = statefulSets.Items
	return nil
}

// readLeases reads those of kube-system, where API servers have theirs, too, and those of the peer in any namespace.
func (c clients) readLeases(ctx context.Context, s *state) error {
	for namespace, name := range map[string]string{metav1.NamespaceSystem: "", metav1.NamespaceAll: peer} {
		o := metav1.ListOptions{}
		if name != "" {
			o.FieldSelector = "metadata.name=" + name
		}
		leases, err := c.kube.CoordinationV1().Leases(namespace).List(ctx, o)
		if err != nil {
			return fmt.Errorf("list Leases: %w", err)
		}
		for _, l := range leases.Items {
			if name != "" || l.Name != peer {
				s.leases = append(s.leases, l)
			}
		}
	}
	return nil
}

// ofNetwork is in the names of ConfigMaps with settings of network programs.
var ofNetwork = regexp.MustCompile(`kube-proxy|flannel|canal|calico|cilium|kube-router|antrea|ip-masq|kindnet|kops-controller`)

// readNetwork reads the settings of kube-proxy and of CNI plugins, in whatever namespace they are.
func (c clients) readNetwork(ctx context.Context, s *state) error {
	names := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.names.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).List(ctx, o)
	})
	err := names.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		m, ok := object.(*metav1.PartialObjectMetadata)
		if !ok || !ofNetwork.MatchString(m.Name) {
			return nil
		}
		configMap, err := there(c.kube.CoreV1().ConfigMaps(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{}))
		if configMap != nil {
			s.configMaps = append(s.configMaps, *configMap)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read ConfigMaps: %w", err)
	}
	policies := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.kube.NetworkingV1().NetworkPolicies(metav1.NamespaceAll).List(ctx, o)
	})
	err = policies.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if p, ok := object.(*networkingapiv1.NetworkPolicy); ok {
			s.policies = append(s.policies, *p)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list NetworkPolicies: %w", err)
	}
	for _, of := range []struct {
		into     *[]unstructured.Unstructured
		resource schema.GroupVersionResource
	}{
		{&s.ipPools, schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: "ippools"}},
		{&s.ipPools, schema.GroupVersionResource{Group: "projectcalico.org", Version: "v3", Resource: "ippools"}},
		{&s.installs, schema.GroupVersionResource{Group: "operator.tigera.io", Version: "v1", Resource: "installations"}},
	} {
		list, err := there(c.anything.Resource(of.resource).List(ctx, metav1.ListOptions{}))
		if err != nil {
			return fmt.Errorf("list Calico's %s: %w", of.resource.Resource, err)
		}
		if list != nil && len(*of.into) == 0 {
			*of.into = list.Items
		}
	}
	return nil
}

// there replaces NotFound by nil.
func there[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}
