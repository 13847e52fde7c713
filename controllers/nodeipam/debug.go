package nodeipam

import (
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/controller-manager/pkg/healthz"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/debugpage"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// DebuggingHandler serves the debug page: see package debugpage.
func (c *Controller) DebuggingHandler() http.Handler {
	return debugpage.Handler(debugpage.Source{Controller: Name, Time: c.now, Problem: c.problem, Nodes: c.listNodes, With: c.withCopy})
}

// withCopy calls f with a copy of the state, so that the lock is held only for the copy. It returns false after a panic.
func (c *Controller) withCopy(f func(*allocator.State)) bool {
	var s allocator.Snapshot
	if c.Err() != nil || !c.withWhole(func(b *allocator.State) { s = b.Snapshot() }) {
		return false
	}
	f(s.State())
	return true
}

func (c *Controller) listNodes() []*v1.Node {
	nodes, _ := c.nodes.List(labels.Everything()) // Listing a cache fails only for a selector that cannot be parsed.
	return nodes
}

// problem is what the health check reports; empty if all is well.
func (c *Controller) problem() string {
	if err := c.health.Check(nil); err != nil {
		return err.Error()
	}
	return ""
}

// HealthChecker reports an error that says what to do, as long as the controller cannot do all of its work.
func (c *Controller) HealthChecker() healthz.UnnamedHealthChecker { return &c.health }

// shown is the view of a Controller for metrics.
type shown struct{ *Controller }

func (s shown) Ready() bool { return s.HealthChecker().Check(nil) == nil }

func (s shown) Failing(kind health.Kind) int { return s.health.Failing(kind) }

func (s shown) Known() (f allocator.Figures, withPodCIDRs int, ok bool) {
	if !s.filled.Load() || s.Err() != nil {
		return f, 0, false // An empty state says nothing, and neither does one that is no longer updated.
	}
	if nodes, err := s.nodes.List(labels.Everything()); err == nil { // Listing a cache fails only for a selector that cannot be parsed.
		for _, node := range nodes {
			if len(node.Spec.PodCIDRs) > 0 {
				withPodCIDRs++
			}
		}
	}
	ok = s.withWhole(func(b *allocator.State) {
		f = b.Figures()
		for name := range s.listed.Waiting() {
			if _, counts := b.Pending(name); !counts {
				f.Pending[pending.Missed]++
			}
		}
	})
	return f, withPodCIDRs, ok
}
