package nodeipam

import (
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// figures are what the metrics show about the state.
func (c *Controller) figures() (f metrics.Figures, ok bool) {
	if !c.serves.Load() {
		return f, false // An empty state says nothing.
	}
	f = metrics.Figures{Pending: map[string]int{}, States: map[string]string{}, Blockers: map[string]int{}}
	c.with(func(s *allocator.State) {
		counts := s.Counts()
		f.WithPodCIDRs, f.Holding, f.Sharing, f.OutOfRange = counts.Assigned, counts.Holding, counts.Sharing, counts.OutOfRange
		for reason, n := range counts.Pending {
			f.Pending[string(reason)] = n
		}
		for _, p := range s.Pools() {
			if f.States[p.Name] = p.State.String(); p.State == ipam.Terminating {
				f.Blockers[p.Name] = s.Users(p)
			}
			for _, r := range p.Ranges {
				f.Ranges = append(f.Ranges, rangeFigures(s, p, r))
			}
		}
	})
	return f, true
}

func rangeFigures(s *allocator.State, p *pool.Pool, r ipam.Range) metrics.RangeFigures {
	traffic := s.Traffic(p, r.Family())
	return metrics.RangeFigures{
		ClusterCIDR: p.Name, Family: r.Family(), Status: *s.RangeStatus(p, r), CoveredBy: s.CoveredBy(r),
		Allocations: traffic.Allocations, Releases: traffic.Releases, Tries: traffic.Tries, TriesSum: traffic.TriesSum,
	}
}
