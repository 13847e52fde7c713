package nodeipam

import (
	"net/http"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/controller-manager/pkg/healthz"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/debugpage"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
)

// DebuggingHandler shows what the controller knows: see package debugpage.
func (c *Controller) DebuggingHandler() http.Handler { return debugpage.Handler(c.look) }

// look copies all that there is to show; an error after a panic. The lock is held for the copy only.
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

// HealthChecker reports an error, which says what to do, for as long as the controller cannot do all of its work.
func (c *Controller) HealthChecker() healthz.UnnamedHealthChecker { return &c.health }
