package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// foreignFinalizer holds up the deletion of an object for somebody who is not us.
const foreignFinalizer = "example.com/hold"

// createClusterCIDR creates a ClusterCIDR and waits until the controller may give blocks of it: else who serves a Node that is
// created right after it would be a matter of luck.
func createClusterCIDR(c *cluster, args []string) error {
	args, noWait := cut(args, "-nowait")
	cc, err := parseClusterCIDR(args)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Create(ctx, cc, metav1.CreateOptions{}); err != nil {
		return err
	}
	if noWait || c.manager == nil || c.paused {
		return nil
	}
	return finalized(c, []string{cc.Name})
}

// cut returns args without a word, and whether it was there.
func cut(args []string, word string) ([]string, bool) {
	i := slices.Index(args, word)
	if i < 0 {
		return args, false
	}
	return slices.Concat(args[:i], args[i+1:]), true
}

func parseClusterCIDR(args []string) (*networkingv1.ClusterCIDR, error) {
	if err := want(args, 1, "a name"); err != nil {
		return nil, err
	}
	cc := &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: args[0]}}
	addTerm := func(term corev1.NodeSelectorTerm) {
		if cc.Spec.NodeSelector == nil {
			cc.Spec.NodeSelector = &corev1.NodeSelector{}
		}
		cc.Spec.NodeSelector.NodeSelectorTerms = append(cc.Spec.NodeSelector.NodeSelectorTerms, term)
	}
	for _, arg := range args[1:] {
		number := func(prefix string) (int32, error) {
			n, err := strconv.ParseInt(strings.TrimPrefix(arg, prefix), 10, 32)
			return int32(n), err
		}
		var err error
		switch prefix, prefixErr := netip.ParsePrefix(arg); {
		case prefixErr == nil && prefix.Addr().Is4():
			cc.Spec.IPv4 = arg
		case prefixErr == nil:
			cc.Spec.IPv6 = arg
		case strings.HasPrefix(arg, "hb"):
			cc.Spec.PerNodeHostBits, err = number("hb")
		case strings.HasPrefix(arg, "v6hb"):
			var bits int32
			bits, err = number("v6hb")
			cc.Spec.IPv6PerNodeHostBits = &bits
		case strings.HasPrefix(arg, "priority="):
			cc.Spec.Priority, err = number("priority=")
		case strings.HasPrefix(arg, "exclude="):
			cc.Spec.ExcludedCIDRs = append(cc.Spec.ExcludedCIDRs, strings.TrimPrefix(arg, "exclude="))
		case strings.HasPrefix(arg, "sel("):
			addTerm(corev1.NodeSelectorTerm{MatchExpressions: requirements(inside(arg, "sel"))})
		case strings.HasPrefix(arg, "field("):
			addTerm(corev1.NodeSelectorTerm{MatchFields: requirements("metadata.name=" + inside(arg, "field"))})
		case arg == "disabled":
			cc.Spec.Allocation = networkingv1.AllocationDisabled
		case arg == "none":
			cc.Spec.Allocation = networkingv1.AllocationNone
		case arg == "fromflags":
			cc.Labels = map[string]string{networkingv1.LabelCreatedFromFlags: "true"}
		case arg == "finalized":
			cc.Finalizers = []string{networkingv1.Finalizer}
		default:
			err = errors.New("unknown word")
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", arg, err)
		}
	}
	return cc, nil
}

// inside returns x of name(x).
func inside(arg, name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(arg, name+"("), ")")
}

func requirements(text string) (requirements []corev1.NodeSelectorRequirement) {
	for pair := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			requirements = append(requirements, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
		}
	}
	return requirements
}

func set(c *cluster, args []string) error {
	if err := want(args, 3, "cc, a name and what to set"); err != nil {
		return err
	}
	cc, err := c.object(args[0], args[1])
	if err != nil {
		return err
	}
	spec := map[string]any{}
	for _, arg := range args[2:] {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "priority":
			n, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			spec["priority"] = n
		case "exclude":
			excluded, _ := spec["excludedCIDRs"].([]string)
			if excluded == nil {
				excluded = []string{}
			}
			if value != "" {
				excluded = append(excluded, value)
			}
			spec["excludedCIDRs"] = excluded
		case "disabled":
			spec["allocation"] = networkingv1.AllocationDisabled
		case "enabled":
			spec["allocation"] = networkingv1.AllocationEnabled
		default:
			return fmt.Errorf("cannot set %q", arg)
		}
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	return cc.merge(context.Background(), string(patch))
}

func createNode(c *cluster, args []string) error {
	node, err := parseNode(args)
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Nodes().Create(context.Background(), node, metav1.CreateOptions{})
	return err
}

// createNodes creates many Nodes at once: NAME1, NAME2 and so on.
func createNodes(c *cluster, args []string) error {
	if err := want(args, 2, "a number and a name"); err != nil {
		return err
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	errs := make([]error, n)
	workqueue.ParallelizeUntil(context.Background(), 16, n, func(i int) {
		errs[i] = createNode(c, slices.Concat([]string{fmt.Sprint(args[1], i+1)}, args[2:]))
	})
	return errors.Join(errs...)
}

func parseNode(args []string) (*corev1.Node, error) {
	if err := want(args, 1, "a name"); err != nil {
		return nil, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: args[0], Labels: map[string]string{}}}
	for _, arg := range args[1:] {
		switch key, value, _ := strings.Cut(arg, "="); {
		case key == "addr":
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: value})
		case key == "from":
			node.Annotations = map[string]string{networkingv1.AnnotationClusterCIDR: value}
		case strings.Contains(arg, "="):
			node.Labels[key] = value
		case arg == "finalizer":
			node.Finalizers = []string{foreignFinalizer}
		default:
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, arg)
			node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		}
	}
	return node, nil
}

func label(c *cluster, args []string) error {
	if err := want(args, 2, "NODE KEY=VALUE"); err != nil {
		return err
	}
	node, err := c.object("node", args[0])
	if err != nil {
		return err
	}
	var labels []string
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		labels = append(labels, fmt.Sprintf("%q:%q", key, value))
	}
	return node.merge(context.Background(), fmt.Sprintf(`{"metadata":{"labels":{%s}}}`, strings.Join(labels, ",")))
}

// touch updates a Node many times, as its kubelet does.
func touch(c *cluster, args []string) error {
	if err := want(args, 2, "NODE N"); err != nil {
		return err
	}
	node, err := c.object("node", args[0])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[1])
	for i := 0; i < n && err == nil; i++ {
		err = node.merge(context.Background(), fmt.Sprintf(`{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, i))
	}
	return err
}

// assign gives a Node podCIDRs, as another allocator would.
func assign(c *cluster, args []string) error {
	if err := want(args, 2, "NODE CIDR"); err != nil {
		return err
	}
	node, err := c.object("node", args[0])
	if err != nil {
		return err
	}
	return node.merge(context.Background(), fmt.Sprintf(`{"spec":{"podCIDR":%q,"podCIDRs":["%s"]}}`, args[1], strings.Join(args[1:], `","`)))
}

func createServiceCIDR(c *cluster, args []string) error {
	args, held := cut(args, "finalizer")
	if err := want(args, 2, "a name and CIDRs"); err != nil {
		return err
	}
	serviceCIDR := &networkingapiv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: args[0]}, Spec: networkingapiv1.ServiceCIDRSpec{CIDRs: args[1:]}}
	if held {
		serviceCIDR.Finalizers = []string{foreignFinalizer}
	}
	_, err := c.kube.NetworkingV1().ServiceCIDRs().Create(context.Background(), serviceCIDR, metav1.CreateOptions{})
	return err
}

func deleteObjects(c *cluster, args []string) error {
	if err := want(args, 2, "a kind and names"); err != nil {
		return err
	}
	for _, name := range args[1:] {
		o, err := c.object(args[0], name)
		if err == nil {
			err = o.delete(context.Background())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// recreate deletes an object and creates another one of its name.
func recreate(c *cluster, args []string) error {
	if err := want(args, 2, "node or cc, and what to create"); err != nil {
		return err
	}
	create := map[string]func(*cluster, []string) error{"node": createNode, "cc": createClusterCIDR}[args[0]]
	if create == nil {
		return fmt.Errorf("cannot recreate a %q", args[0])
	}
	o, err := c.object(args[0], args[1])
	if err != nil {
		return err
	}
	if err := o.delete(context.Background()); err != nil {
		return err
	}
	if args[0] == "cc" { // The deletion waits for the finalizer, and here nobody else takes it away in time.
		if err := c.release(context.Background(), args[0], args[1]); err != nil {
			return err
		}
	}
	return create(c, args[1:])
}

func strip(c *cluster, args []string) error {
	if err := want(args, 2, "a kind and a name"); err != nil {
		return err
	}
	return c.release(context.Background(), args[0], args[1])
}

func manage(c *cluster, args []string) error {
	if err := want(args, 1, "what to do"); err != nil {
		return err
	}
	flags := c.program.flags(args[1:])
	switch args[0] {
	case "stop":
		return c.stopManager((*controlplane.Process).Stop)
	case "kill":
		return c.stopManager((*controlplane.Process).Kill)
	case "start":
		return c.startManager(flags...)
	case "restart":
		if err := c.stopManager((*controlplane.Process).Stop); err != nil {
			return err
		}
		return c.startManager(flags...)
	case "pause":
		c.paused = true
		return c.manager.Pause()
	case "continue":
		c.paused = false
		return c.manager.Continue()
	}
	return fmt.Errorf("cannot %q a manager", args[0])
}

func apiServer(c *cluster, args []string) error {
	if len(args) != 1 || args[0] != "restart" {
		return fmt.Errorf("want restart, not %q", args)
	}
	// An orderly end waits for the watches of a manager that is paused.
	if err := c.cp.APIServer().Kill(); err != nil {
		return err
	}
	return c.cp.StartAPIServer(context.Background())
}

func etcd(c *cluster, args []string) error {
	switch {
	case slices.Equal(args, []string{"pause"}):
		if err := c.knowsNodes(context.Background()); err != nil {
			return err
		}
		return c.cp.Etcd().Pause()
	case slices.Equal(args, []string{"continue"}):
		return c.cp.Etcd().Continue()
	}
	return fmt.Errorf("want pause or continue, not %q", args)
}

// knowsNodes waits until the API server has heard from etcd of every Node that exists: without etcd, it cannot tell watches of others.
func (c *cluster) knowsNodes(ctx context.Context) error {
	now, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err == nil {
		// This one is answered from the API server's watch cache.
		_, err = c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: now.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	}
	return err
}

// count makes writes count from here.
func count(c *cluster, _ []string) (err error) {
	c.counted, err = controlplane.MarkAudit(c.auditLog)
	return err
}
