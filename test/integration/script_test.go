package integration

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestScripts runs testdata/*.txt, each in an empty cluster. Every step is one line, and a sentence stands before it:
//
//	cc NAME [sel(KEY=VALUE,...)]... [field(NODE)] [IPv4] [IPv6] hbN [v6hbN] [priority=N]
//	                                      create a ClusterCIDR; each sel is a term of its own, sel() an empty one
//	node NAME [KEY=VALUE]... [CIDR]... [finalizer]
//	                                      create a Node with labels and podCIDRs; finalizer holds up its deletion
//	label NODE KEY=VALUE...               set labels
//	unhold NODE                           take the finalizer away
//	delete node|cc NAME...                start a deletion
//	manager stop|start|restart|kill|pause|continue [FLAG]...
//	                                      kill leaves none running; flags of start and restart replace the usual ones
//	served [-within D] NODE CIDR... [by CC]
//	                                      the Node has exactly these podCIDRs, podCIDR is the first of them
//	waits [-within D] NODE [TEXT]         the Node has none and an event that says why, with this text in it
//	event [-within D] NODE REASON [TEXT]  the Node has this warning
//	terminating NAME                      the ClusterCIDR is being deleted and held by our finalizer
//	gone [-within D] node|cc NAME         the object does not exist any more
//
// Each one waits for what it says, so there is no step that sleeps. That something does not happen is shown by a later
// step that the controller can only have done afterwards.
func TestScripts(t *testing.T) {
	testscript.RunT(serial{t}, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			t := env.T().(serial).T
			env.Values[clusterKey{}] = sharedCluster(t)
			// Before the cluster is emptied.
			t.Cleanup(func() {
				if err := shared.overlaps(context.Background()); err != nil {
					t.Error(err)
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"cc":          command(createClusterCIDR),
			"node":        command(createNode),
			"label":       command(label),
			"unhold":      command(unhold),
			"delete":      command(deleteObjects),
			"manager":     command(manage),
			"served":      command(served),
			"waits":       command(waits),
			"event":       command(event),
			"terminating": command(terminating),
			"gone":        command(gone),
		},
	})
}

type clusterKey struct{}

// serial makes the scripts run one after the other: they share a cluster.
type serial struct{ *testing.T }

func (s serial) Parallel()     {}
func (s serial) Verbose() bool { return testing.Verbose() }
func (s serial) Run(name string, run func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { run(serial{t}) })
}

// command makes a function a command of the scripts.
func command(run func(c *cluster, args []string) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, negated bool, args []string) {
		if negated {
			ts.Fatalf("there is no ! for this command")
		}
		ts.Check(run(ts.Value(clusterKey{}).(*cluster), args))
	}
}

func createClusterCIDR(c *cluster, args []string) error {
	cc, err := parseClusterCIDR(args)
	if err != nil {
		return err
	}
	_, err = c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Create(context.Background(), cc, metav1.CreateOptions{})
	return err
}

func parseClusterCIDR(args []string) (*networkingv1.ClusterCIDR, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("want a name")
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
		case strings.HasPrefix(arg, "sel("):
			addTerm(corev1.NodeSelectorTerm{MatchExpressions: requirements(inside(arg, "sel"))})
		case strings.HasPrefix(arg, "field("):
			addTerm(corev1.NodeSelectorTerm{MatchFields: requirements("metadata.name=" + inside(arg, "field"))})
		default:
			err = fmt.Errorf("unknown word")
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

func createNode(c *cluster, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want a name")
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: args[0], Labels: map[string]string{}}}
	for _, arg := range args[1:] {
		switch key, value, isLabel := strings.Cut(arg, "="); {
		case isLabel:
			node.Labels[key] = value
		case arg == "finalizer":
			node.Finalizers = []string{"example.com/hold"}
		default:
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, arg)
			node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		}
	}
	_, err := c.kube.CoreV1().Nodes().Create(context.Background(), node, metav1.CreateOptions{})
	return err
}

func label(c *cluster, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("want NODE KEY=VALUE")
	}
	ctx := context.Background()
	var patch []string
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		patch = append(patch, fmt.Sprintf("%q:%q", key, value))
	}
	_, err := c.kube.CoreV1().Nodes().Patch(ctx, args[0], types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%s}}}`, strings.Join(patch, ",")), metav1.PatchOptions{})
	return err
}

func unhold(c *cluster, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want NODE")
	}
	return c.clearFinalizers(context.Background(), args[0])
}

func deleteObjects(c *cluster, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("want node or cc, and names")
	}
	ctx := context.Background()
	for _, name := range args[1:] {
		var err error
		switch args[0] {
		case "node":
			err = c.kube.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		case "cc":
			err = c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Delete(ctx, name, metav1.DeleteOptions{})
		default:
			err = fmt.Errorf("want node or cc, not %q", args[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func manage(c *cluster, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want what to do")
	}
	flags := ours
	if len(args) > 1 {
		flags = slices.Concat(ours, args[1:])
	}
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
		return c.manager.Pause()
	case "continue":
		return c.manager.Continue()
	default:
		return fmt.Errorf("cannot %q a manager", args[0])
	}
}

func served(c *cluster, args []string) error {
	within, args, err := parseWithin(args, 2)
	if err != nil {
		return err
	}
	want, by := args[1:], ""
	if i := slices.Index(want, "by"); i >= 0 && i == len(want)-2 {
		want, by = want[:i], want[i+1]
	}
	node, err := c.waitServed(args[0], within)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(want, node.Spec.PodCIDRs); diff != "" {
		return fmt.Errorf("podCIDRs of Node %s (-want +got):\n%s", node.Name, diff)
	}
	if node.Spec.PodCIDR != want[0] {
		return fmt.Errorf("podCIDR of Node %s is %q, want the first of podCIDRs, %q", node.Name, node.Spec.PodCIDR, want[0])
	}
	if got := node.Annotations[networkingv1.AnnotationClusterCIDR]; by != "" && got != by {
		return fmt.Errorf("Node %s was served by %q, want %q", node.Name, got, by)
	}
	return nil
}

func waits(c *cluster, args []string) error {
	within, args, err := parseWithin(args, 1)
	if err != nil {
		return err
	}
	if err := expectEvent(c, args[0], "CIDRNotAvailable", strings.Join(args[1:], " "), within); err != nil {
		return err
	}
	node, err := c.kube.CoreV1().Nodes().Get(context.Background(), args[0], metav1.GetOptions{})
	if err == nil && len(node.Spec.PodCIDRs) > 0 {
		err = fmt.Errorf("Node %s has podCIDRs %v, want none", node.Name, node.Spec.PodCIDRs)
	}
	return err
}

func event(c *cluster, args []string) error {
	within, args, err := parseWithin(args, 2)
	if err != nil {
		return err
	}
	return expectEvent(c, args[0], args[1], strings.Join(args[2:], " "), within)
}

func expectEvent(c *cluster, name, reason, text string, within time.Duration) error {
	node, err := c.kube.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	found, err := c.waitEvent(node, reason, within)
	if err == nil && !strings.Contains(found.Message, text) {
		err = fmt.Errorf("event %s of Node %s says %q, want %q in it", reason, name, found.Message, text)
	}
	return err
}

func terminating(c *cluster, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want NAME")
	}
	cc, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(context.Background(), args[0], metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case cc.DeletionTimestamp == nil:
		return fmt.Errorf("ClusterCIDR %s is not being deleted", cc.Name)
	case !slices.Contains(cc.Finalizers, networkingv1.Finalizer):
		return fmt.Errorf("ClusterCIDR %s has finalizers %q, want %q", cc.Name, cc.Finalizers, networkingv1.Finalizer)
	}
	return nil
}

func gone(c *cluster, args []string) error {
	within, args, err := parseWithin(args, 2)
	if err != nil {
		return err
	}
	return eventually(within, func(ctx context.Context) error {
		var err error
		switch args[0] {
		case "node":
			_, err = c.kube.CoreV1().Nodes().Get(ctx, args[1], metav1.GetOptions{})
		case "cc":
			_, err = c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, args[1], metav1.GetOptions{})
		}
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return fmt.Errorf("%s %s is still there", args[0], args[1])
		}
		return err
	})
}

// parseWithin reads -within D, which makes a time part of what is tested, and wants at least so many words after it.
func parseWithin(args []string, atLeast int) (time.Duration, []string, error) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	within := flags.Duration("within", patience, "")
	if err := flags.Parse(args); err != nil {
		return 0, nil, err
	}
	if flags.NArg() < atLeast {
		return 0, nil, fmt.Errorf("want at least %d words, not %q", atLeast, flags.Args())
	}
	return *within, flags.Args(), nil
}
