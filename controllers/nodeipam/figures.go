package nodeipam

import (
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
)

// figures are what the metrics show about the state.
func (c *Controller) figures() (f metrics.Figures, ok bool) {
	if !c.serves.Load() {
		return f, false // An empty state says nothing.
	}
	f = metrics.Figures{States: map[string]string{}, Blockers: map[string]int{}}
	c.with(func(s *allocator.State) {
		counts := s.Counts()
		f.WithPodCIDRs, f.Holding, f.Sharing, f.OutOfRange, f.Pending = counts.Assigned, counts.Holding, counts.Sharing, counts.OutOfRange, counts.Pending
		for _, p := range s.Pools() {
			if f.States[p.Name] = p.State.String(); p.State == ipam.Terminating {
				f.Blockers[p.Name] = s.Users(p)
			}
			for _, r := range p.Ranges {
				f.Ranges = append(f.Ranges, metrics.RangeFigures{
					ClusterCIDR: p.Name, Family: r.Family(), Status: *s.RangeStatus(p, r), CoveredBy: s.CoveredBy(r), Traffic: s.Traffic(p, r.Family()),
				})
			}
		}
	})
	return f, true
}
