package cluster

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/multicidr/controller-manager/cmd/internal/program"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
)

// Process is the Pod in which a leader runs.
type Process struct {
	Namespace, Pod string
	// Port is the one with the debug page; 0 if there is none.
	Port int
	// Flag is the one that sets the port.
	Flag string
}

func (p Process) String() string { return p.Namespace + "/" + p.Pod }

// Host is the part of a leader's identity in its Lease that names the Pod or the host. The rest is random.
func (l Leader) Host() string {
	if i := strings.LastIndex(l.Holder, "_"); i > 0 {
		return l.Holder[:i]
	}
	return l.Holder
}

// Namespace is that of the Lease.
func (l Leader) Namespace() string { return path.Dir(l.Lease) }

// ProcessOf looks for the Pod in which a leader runs: one that is called as it calls itself, or that uses the network and so the name of a Node. ok is false if it
// runs in no Pod.
func (r *Reader) ProcessOf(ctx context.Context, l Leader) (process Process, ok bool, err error) {
	namespace, host := l.Namespace(), l.Host()
	pod, err := r.Kube.CoreV1().Pods(namespace).Get(ctx, host, metav1.GetOptions{})
	switch {
	case err == nil:
		if process, ok := processIn(pod, l.Form); ok {
			return process, true, nil
		}
	case !apierrors.IsNotFound(err):
		return Process{}, false, fmt.Errorf("get Pod %s/%s: %w", namespace, host, err)
	}
	nodes, err := r.nodesCalled(ctx, host)
	if err != nil {
		return Process{}, false, err
	}
	for _, node := range nodes {
		opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
		pods, err := r.Kube.CoreV1().Pods(namespace).List(ctx, opts)
		if err != nil {
			return Process{}, false, fmt.Errorf("list Pods of Node %s: %w", node, err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if process, ok := processIn(pod, l.Form); ok && pod.Spec.HostNetwork && pod.Spec.NodeName == node {
				return process, true, nil
			}
		}
	}
	return Process{}, false, nil
}

// nodesCalled returns the names of the Nodes on a host. A Node's name is usually that of its host.
func (r *Reader) nodesCalled(ctx context.Context, host string) (names []string, err error) {
	names = []string{host}
	nodes, err := r.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.Set{corev1.LabelHostname: host}.String()})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	if err == nil {
		for _, node := range nodes.Items {
			if node.Name != host {
				names = append(names, node.Name)
			}
		}
	}
	return names, nil
}

// MayForward reports whether the user may forward ports of a Pod. The error of one who may not does not say so.
func (r *Reader) MayForward(ctx context.Context, p Process) bool {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: p.Namespace, Verb: "create", Resource: "pods", Subresource: "portforward", Name: p.Pod,
	}}}
	answer, err := r.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	return err != nil || answer.Status.Allowed
}

// processIn returns the process of a Pod in which a leader of that form can run. The Lease of kube-controller-manager is its own. Every program can
// have another one: node-ipam-controller and a cloud-controller-manager use the same, and each of the three one of a leader migration.
func processIn(pod *corev1.Pod, form string) (process Process, ok bool) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		runs := runsController(c)
		process = Process{Namespace: pod.Namespace, Pod: pod.Name, Flag: "secure-port"}
		switch {
		case isProgram(c, program.Manager) && (form == program.Manager || runs):
			process.Port = port(c, process.Flag, 10257)
		case form == program.Manager || isProgram(c, program.Manager):
			continue
		case isProgram(c, program.Peer):
			process.Port = port(c, process.Flag, 0)
		case runs: // A cloud-controller-manager has any name.
			process.Flag = "node-ipam-secure-port"
			process.Port = port(c, process.Flag, 10262)
		default:
			continue
		}
		return process, true
	}
	return Process{}, false
}

func isProgram(c *corev1.Container, name string) bool {
	return c.Name == name || slices.ContainsFunc(program.Of(*c), func(p program.Program) bool { return p.Name == name })
}

// runsController reports whether --controllers names the controller.
func runsController(c *corev1.Container) bool {
	names := strings.Split(flagOf(c, "controllers"), ",")
	return slices.Contains(names, nodeipam.Name) || slices.Contains(names, nodeipam.Alias)
}

func port(c *corev1.Container, flag string, byDefault int) int {
	if value, err := strconv.Atoi(flagOf(c, flag)); err == nil {
		return value
	}
	return byDefault
}

// flagOf is the value of a flag of a container's programs.
func flagOf(c *corev1.Container, name string) string {
	for _, p := range program.Of(*c) {
		if value := p.Flag(name); value != "" {
			return value
		}
	}
	return ""
}
