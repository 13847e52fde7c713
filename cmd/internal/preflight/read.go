package preflight

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

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
	crd          *apiextensionsv1.CustomResourceDefinition // nil if it cannot be read, too
	planned      []networkingv1.ClusterCIDR                // from files
	fruitless    []string                                  // files and directories without a ClusterCIDR, and what they contain instead
	given        flags                                     // from preflight's own command line
	form         string                                    // the same; may be empty
	before       string                                    // the same: the step that is going to be taken
	pods         []corev1.Pod                              // of kube-system
	services     []networkingapiv1.ServiceCIDR
	bindings     []rbacv1.ClusterRoleBinding
	kubeProxy    *corev1.ConfigMap
	flannel      *corev1.ConfigMap
	cilium       *corev1.ConfigMap
	ipPools      []unstructured.Unstructured // Calico's
	leases       []coordinationv1.Lease
	deployments  []appsv1.Deployment
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
}

func connect(config *rest.Config) (c clients, err error) {
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return c, err
	}
	if c.ours, err = versioned.NewForConfig(config); err != nil {
		return c, err
	}
	c.anything, err = dynamic.NewForConfig(config)
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
	return nil
}

// readPrograms reads which programs may allocate, and their permissions.
func (c clients) readPrograms(ctx context.Context, s *state) error {
	pods, err := c.kube.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Pods of kube-system: %w", err)
	}
	s.pods = pods.Items
	bindings, err := c.kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list ClusterRoleBindings: %w", err)
	}
	s.bindings = bindings.Items
	leases, err := c.kube.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + peer})
	if err != nil {
		return fmt.Errorf("list Leases: %w", err)
	}
	s.leases = leases.Items
	deployments, err := c.kube.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Deployments: %w", err)
	}
	s.deployments = deployments.Items
	return nil
}

// readNetwork reads the settings of kube-proxy and of CNI plugins.
func (c clients) readNetwork(ctx context.Context, s *state) (err error) {
	for _, m := range []struct {
		into       **corev1.ConfigMap
		name       string
		namespaces []string
	}{
		{&s.kubeProxy, "kube-proxy", []string{metav1.NamespaceSystem}},
		{&s.flannel, "kube-flannel-cfg", []string{"kube-flannel", metav1.NamespaceSystem}},
		{&s.cilium, "cilium-config", []string{metav1.NamespaceSystem, "cilium"}},
	} {
		for _, namespace := range m.namespaces {
			if *m.into != nil {
				break
			}
			if *m.into, err = there(c.kube.CoreV1().ConfigMaps(namespace).Get(ctx, m.name, metav1.GetOptions{})); err != nil {
				return fmt.Errorf("get ConfigMap %s: %w", m.name, err)
			}
		}
	}
	pools, err := there(c.anything.Resource(schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: "ippools"}).List(ctx, metav1.ListOptions{}))
	if err != nil {
		return fmt.Errorf("list Calico's IPPools: %w", err)
	}
	if pools != nil {
		s.ipPools = pools.Items
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
