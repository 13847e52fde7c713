package nodeipam

import (
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// figures are what the metrics show about the state.
func (c *Controller) figures() (f metrics.Figures, ok bool) {
	f = metrics.Figures{States: map[string]string{}, Blockers: map[string]int{}}
	var pools []*pool.Pool
	ok = c.whenStarted(func(s *allocator.State) {
		counts := s.Counts()
		f.WithPodCIDRs, f.Holding, f.Sharing, f.OutOfRange, f.Pending = counts.Assigned, counts.Holding, counts.Sharing, counts.OutOfRange, counts.Pending
		pools = s.Pools()
	})
	for _, p := range pools { // one after the other, so that Nodes need not wait for all of them
		c.with(func(s *allocator.State) {
			if now, ok := s.Pool(p.Name); ok && now == p {
				addPool(&f, s, p)
			}
		})
	}
	return f, ok
}

func addPool(f *metrics.Figures, s *allocator.State, p *pool.Pool) {
	if f.States[p.Name] = p.State.String(); p.State == ipam.Terminating {
		f.Blockers[p.Name] = s.Users(p)
	}
	for _, r := range p.Ranges {
		covering, _ := s.CoveredBy(r)
		f.Ranges = append(f.Ranges, metrics.RangeFigures{
			ClusterCIDR: p.Name, Family: r.Family(), Status: *s.RangeStatus(p, r), CoveredBy: covering.Owner.ID, Traffic: s.Traffic(p, r.Family()),
		})
	}
}
