package nodeipam

import (
	"net/http"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/controller-manager/pkg/healthz"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/debugpage"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// DebuggingHandler serves the debug page: see package debugpage.
func (c *Controller) DebuggingHandler() http.Handler { return debugpage.Handler(c.look) }

// look copies everything to show; it returns an error after a panic. The lock is held only for the copy.
func (c *Controller) look() (debugpage.Look, error) {
	var s allocator.Snapshot
	if c.Err() != nil || !c.withWhole(func(b *allocator.State) { s = b.Snapshot() }) {
		return debugpage.Look{}, health.ErrBroken
	}
	seen := debugpage.Look{Controller: Name, Time: c.now().UTC(), State: s.State()}
	nodes, err := c.nodes.List(labels.Everything())
	if err == nil { // Listing a cache fails only for a selector that cannot be parsed.
		seen.Nodes = nodes
	}
	if err := c.health.Check(nil); err != nil {
		seen.Problem = err.Error()
	}
	return seen, nil
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
