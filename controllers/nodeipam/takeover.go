package nodeipam

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// Term is this process's term as the leader. A lease.Fence is one.
type Term interface {
	// Predecessor is who led before.
	Predecessor() lease.Predecessor
	// Led is for how long this process has led, at least.
	Led() time.Duration
	// Mark says that nothing that a predecessor has sent can arrive any more, so that the next leader need not wait for it.
	Mark()
}

// waitTakeover returns when no write of another allocator can arrive any more, and the cache of Nodes shows all that have arrived; false if
// ctx was done before. The caches are fresh.
//
// Another allocator, such as the in-tree one, has no fence. Its last PATCH carries no UID, no bound by its lease, and no timeout: the API
// server may carry it out up to its --request-timeout after it has received it, when this process leads already. A choice before that could
// be the same block for another Node. So a leader chooses only after that time, unless the leader before it was this controller, too, whose writes
// are fenced, or the cluster is new.
func (c *Controller) waitTakeover(ctx context.Context) bool {
	if c.term == nil {
		return true
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return true // readAll says so
	}
	predecessor := c.term.Predecessor()
	if mayStillWrite(predecessor, slices.ContainsFunc(nodes, showsPodCIDRs)) && c.takeoverDelay > 0 {
		if !c.waitOut(ctx, predecessor) {
			return false
		}
	}
	c.term.Mark()
	return true
}

// mayStillWrite reports whether another allocator may have sent a write that has not arrived.
func mayStillWrite(p lease.Predecessor, anyPodCIDRs bool) bool {
	switch p {
	case lease.NoElection: // There is no term to wait from, and nothing to tell a restart by.
		return false
	case lease.FencedPredecessor:
		return false
	case lease.NoPredecessor: // Of this Lease. Another allocator has another one, or none.
		return anyPodCIDRs
	default:
		return true
	}
}

// waitOut waits until the delay is over, and until the cache of Nodes shows what arrived meanwhile.
func (c *Controller) waitOut(ctx context.Context, predecessor lease.Predecessor) bool {
	logger := klog.FromContext(ctx)
	if left := c.takeoverDelay - c.term.Led(); left > 0 {
		until := c.now().Add(left).UTC().Format(time.TimeOnly)
		logger.Info("Waiting before the first allocation: another allocator may have led before, and the API server may still carry out its last request",
			"until", until, "flag", "--node-ipam-takeover-delay", "delay", c.takeoverDelay, "predecessor", predecessor)
		c.health.waitFor(trouble{what: fmt.Sprintf("the last request of another allocator to be over, at %s UTC: another allocator may have led before, and the API server may still carry out "+
			"what it sent. Nothing has to be done (--node-ipam-takeover-delay=%v)", until, c.takeoverDelay)})
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	for ctx.Err() == nil {
		asOf, err := readLastNode(ctx, c.client)
		if err == nil {
			return asOf == "" || c.waitFresh(ctx, cached{"Nodes", asOf, c.nodesVersion})
		}
		if c.health.waitFor(trouble{"Nodes to be readable: apply manifests/rbac if that is forbidden", err}) {
			logger.Error(err, "Cannot read what another allocator has written")
		}
		select {
		case <-time.After(lookInterval):
		case <-ctx.Done():
		}
	}
	return false
}

// readLastNode makes a consistent read of all Nodes and returns the resource version of the one that was written last; empty if there are
// none. A cache that is as new as that shows every write that this read could see.
//
// ReadNodes reads one Node and returns the version of the read, but that is good for a watch that starts after it. This cache is
// watching already, and would learn only by a bookmark, which may take a minute, that there is nothing else to know.
func readLastNode(ctx context.Context, client kubernetes.Interface) (last string, err error) {
	options := metav1.ListOptions{Limit: 500}
	for {
		page, err := client.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("read Nodes: %w", err)
		}
		if last, err = newest(last, page.Items); err != nil {
			return "", err
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return last, nil
		}
	}
}

// newest is the last of the resource versions.
func newest(last string, nodes []v1.Node) (string, error) {
	for i := range nodes {
		version := nodes[i].ResourceVersion
		if last == "" {
			last = version
			continue
		}
		order, err := resourceversion.CompareResourceVersion(version, last)
		if err != nil {
			return "", fmt.Errorf("compare resource versions of Nodes: %w", err)
		}
		if order > 0 {
			last = version
		}
	}
	return last, nil
}
