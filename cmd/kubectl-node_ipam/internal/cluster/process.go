package cluster

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Process is the Pod in which a leader runs.
type Process struct {
	Namespace, Pod string
	// Port is that of --secure-port; 0 if it has none.
	Port int
}

func (p Process) String() string { return p.Namespace + "/" + p.Pod }

// securePorts are the defaults of --secure-port by the form of the controller.
var securePorts = map[string]int{inManager: 10257, alone: 0}

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
		if c := containerOf(pod, l.Form); c != nil {
			return Process{namespace, host, securePort(c, l.Form)}, true, nil
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
			if c := containerOf(pod, l.Form); c != nil && pod.Spec.HostNetwork && pod.Spec.NodeName == node {
				return Process{namespace, pod.Name, securePort(c, l.Form)}, true, nil
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

// containerOf returns the container of a Pod that runs a program; nil if none does.
func containerOf(pod *corev1.Pod, program string) *corev1.Container {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == program || len(c.Command) > 0 && path.Base(c.Command[0]) == program
	})
	if i < 0 {
		return nil
	}
	return &pod.Spec.Containers[i]
}

func securePort(c *corev1.Container, form string) int {
	fs := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	port := fs.Int("secure-port", securePorts[form], "")
	if err := fs.Parse(slices.Concat(c.Command, c.Args)); err != nil {
		return securePorts[form] // Such a program would not run.
	}
	return *port
}
