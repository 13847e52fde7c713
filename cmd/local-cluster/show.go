package main

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
)

// lookInterval is the pause between two looks at the cluster.
const lookInterval = 200 * time.Millisecond

// view is what a person sees of the cluster at one moment.
type view struct {
	status inspect.Status
	nodes  []inspect.NodeStatus
}

// show draws the view whenever something changes, until ctx is done.
func show(ctx context.Context, config *rest.Config, hints []string) error {
	fmt.Println(strings.Join(hints, "\n"))
	_, _, live := screenSize()
	var before view
	return watch(ctx, config, func(v view) bool {
		switch {
		case !live:
			printChanges(v, before)
		case !reflect.DeepEqual(v, before):
			draw(v, hints)
		}
		before = v
		return false
	})
}

// showUntilAllocated prints what changes until there are count Nodes, and each has podCIDRs or is pending, and then the view.
func showUntilAllocated(ctx context.Context, config *rest.Config, count int, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not every Node had podCIDRs within %s", timeout))
	defer cancel()
	var last view
	err := watch(ctx, config, func(v view) bool {
		printChanges(v, last)
		last = v
		return len(v.nodes) >= count && v.status.Nodes.Reserved == 0
	})
	fmt.Println("\n" + strings.Join(last.lines(len(last.nodes)), "\n"))
	return err
}

// watch calls see with the view again and again, until it returns true or ctx is done, which is an error.
func watch(ctx context.Context, config *rest.Config, see func(view) (done bool)) error {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	own, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	for {
		v, err := look(ctx, kube, own)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case see(v):
			return nil
		}
		select {
		case <-time.After(lookInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look reads the cluster.
func look(ctx context.Context, kube kubernetes.Interface, own versioned.Interface) (v view, err error) {
	nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return v, err
	}
	services, err := kube.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if err != nil {
		return v, err
	}
	clusterCIDRs, err := own.NetworkingV1().ClusterCIDRs().List(ctx, metav1.ListOptions{})
	if err != nil {
		return v, err
	}
	return viewOf(nodes.Items, clusterCIDRs.Items, services.Items), nil
}

func viewOf(nodes []corev1.Node, clusterCIDRs []networkingv1.ClusterCIDR, services []networkingapiv1.ServiceCIDR) (v view) {
	c := inspect.New(inspect.Objects{Nodes: pointers(nodes), ClusterCIDRs: pointers(clusterCIDRs), ServiceCIDRs: pointers(services)})
	v.nodes = c.Nodes()
	v.status = c.StatusOf(v.nodes)
	slices.SortStableFunc(v.nodes, func(a, b inspect.NodeStatus) int { return urgency(a) - urgency(b) })
	return v
}

func pointers[T any](all []T) (to []*T) {
	for i := range all {
		to = append(to, &all[i])
	}
	return to
}

// urgency orders Nodes by how much they need somebody's eyes.
func urgency(n inspect.NodeStatus) int {
	switch {
	case len(n.PodCIDRs) == 0:
		return 0
	case n.State != inspect.Allocated || len(n.Findings) > 0:
		return 1
	default:
		return 2
	}
}

// from says where podCIDRs are from, or why there are none, in the words of kubectl node-ipam.
func from(n inspect.NodeStatus) string {
	if n.State != inspect.Allocated {
		return strings.ToLower(string(n.State))
	}
	texts := []string{cmp.Or(strings.Join(n.ClusterCIDRs, ", "), "no ClusterCIDR")}
	for _, f := range n.Findings {
		texts = append(texts, f.Reason)
	}
	return strings.Join(texts, ", ")
}

func podCIDRs(n inspect.NodeStatus) string {
	if n.State != inspect.Allocated {
		return "-"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(n.PodCIDRs), " ", ", "), "[]")
}

// lines are the tables, of at most maxNodes Nodes, and below them why Nodes are pending.
func (v view) lines(maxNodes int) []string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tPOD CIDRS\tFROM")
	shown := v.nodes[:min(len(v.nodes), maxNodes)]
	for _, n := range shown {
		fmt.Fprintf(table, "%s\t%s\t%s\n", n.Node, podCIDRs(n), from(n))
	}
	table.Flush()
	if more := len(v.nodes) - len(shown); more > 0 {
		fmt.Fprintf(&text, "... and %d more\n", more)
	}
	counts := v.status.Nodes
	fmt.Fprintf(&text, "%d of %d Nodes have podCIDRs, %d pending\n\n", counts.Allocated, counts.Total, counts.Pending)

	fmt.Fprintln(table, "CLUSTERCIDR\tRANGE\tBLOCK\tALLOCATED\tFREE\tSTATE")
	for _, cc := range v.status.ClusterCIDRs {
		for _, r := range cc.Ranges {
			fmt.Fprintf(table, "%s\t%s\t/%d\t%d\t%s\t%s\n", cc.Name, r.CIDR, r.BlockPrefixLength, r.Allocated, inspect.Count(uint64(r.Free)), cc.State)
		}
	}
	table.Flush()
	for _, p := range v.status.Pending {
		fmt.Fprintf(&text, "\n%d pending, such as %s: %s\n", len(p.Nodes), p.Nodes[0], p.Message)
	}
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}

// printChanges prints the lines that tell what is new since the view before.
func printChanges(v, before view) {
	for _, line := range v.changes(before) {
		fmt.Println(line)
	}
}

func (v view) changes(before view) (lines []string) {
	known := map[string]string{}
	for _, n := range before.nodes {
		known[n.Node] = change(n)
	}
	for _, n := range v.nodes {
		if line := change(n); line != known[n.Node] {
			lines = append(lines, line)
		}
		delete(known, n.Node)
	}
	for name := range known {
		lines = append(lines, fmt.Sprintf("Node %s is gone", name))
	}
	return lines
}

// change is what to tell of a Node that was not so before; empty if that comes.
func change(n inspect.NodeStatus) string {
	switch n.State {
	case inspect.Reserved:
		return ""
	case inspect.Allocated:
		return fmt.Sprintf("Node %s: %s from %s", n.Node, podCIDRs(n), from(n))
	default:
		return fmt.Sprintf("Node %s is %s: %s", n.Node, from(n), n.Message)
	}
}

// draw fills the screen, so that the newest view is all there is to see. A line that is too long loses its end, and Nodes that do not fit are
// counted. A hint is to be copied whole, so the terminal breaks it.
func draw(v view, hints []string) {
	width, height, _ := screenSize()
	const clear, clearLine = "\033[H\033[2J", "\033[K"
	for _, hint := range hints {
		height -= 1 + len(hint)/max(width, 1)
	}
	rest := len(v.lines(0)) + 2 // an empty line before the hints, and the cursor's after them
	var lines []string
	for _, line := range v.lines(max(height-rest, 1)) {
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:max(width-1, 0)]) + "…"
		}
		lines = append(lines, line)
	}
	fmt.Print(clear + strings.Join(slices.Concat(lines, []string{""}, hints), clearLine+"\n") + "\n")
}
