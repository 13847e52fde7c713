package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/chaos/checker"
)

const (
	// probes is how many Nodes are created at rest while watches are cut, one each probeInterval.
	probes        = 30
	probeInterval = 500 * time.Millisecond
	// probeBound is until when each of them has podCIDRs: the longest pause of client-go's reflector between two watches, and some
	// seconds for the list that follows.
	probeBound = 65 * time.Second
	// probeLook is how often a Node is looked at.
	probeLook = 50 * time.Millisecond
	// probePool is the ClusterCIDR of these Nodes only, with room for all.
	probePool  = "probe"
	probeRange = "10.130.0.0/20"
)

// probe creates Nodes that can be served while watches are cut, and sees that each is, in time.
func (r *run) probe(ctx context.Context, result *report) error {
	labels := map[string]string{labelFill: probePool}
	if err := r.createProbePool(ctx); err != nil {
		return err
	}
	took := make([]time.Duration, probes)
	errs := make([]error, probes)
	workqueue.ParallelizeUntil(ctx, probes, probes, func(i int) {
		if sleep(ctx, time.Duration(i)*probeInterval) {
			took[i], errs[i] = r.probeNode(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("probe-%02d", i), Labels: labels}})
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	percentiles := checker.PercentilesOf(took)
	result.Probes = &percentiles
	return nil
}

func (r *run) createProbePool(ctx context.Context) error {
	_, err := r.pools.NetworkingV1().ClusterCIDRs().Create(ctx, &networkingv1.ClusterCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: probePool},
		Spec: networkingv1.ClusterCIDRSpec{
			IPv4: probeRange, PerNodeHostBits: 4,
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: labelFill, Operator: corev1.NodeSelectorOpIn, Values: []string{probePool}},
			}}}},
		},
	}, metav1.CreateOptions{})
	return err
}

// probeNode creates a Node and returns how long it took until it had podCIDRs; at most probeBound, which is a violation.
func (r *run) probeNode(ctx context.Context, node *corev1.Node) (time.Duration, error) {
	begin := time.Now()
	if _, err := r.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	err := wait.PollUntilContextTimeout(ctx, probeLook, probeBound, true, func(ctx context.Context) (bool, error) {
		n, err := r.kube.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		return err == nil && len(n.Spec.PodCIDRs) > 0, nil //nolint:nilerr // The next look says.
	})
	switch {
	case err == nil:
		return time.Since(begin), nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	}
	r.checker.Add(checker.Violation{Rule: checker.ServedLate, At: time.Now(), Message: fmt.Sprintf("Node %s has no podCIDRs after %s while watches are cut", node.Name, probeBound)})
	return probeBound, nil
}
