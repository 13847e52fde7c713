package incluster

import (
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// poolView is what the debug page shows of a pool.
type poolView struct {
	v1alpha2.PoolUsage
	Reason  string            `json:"reason,omitempty"` // that of its condition
	Problem string            `json:"problem,omitempty"`
	Waiting int               `json:"waiting"`          // how many claims wait
	Claims  map[string]string `json:"claims,omitempty"` // the blocks that claims hold
}

// Show implements runner.Logic.
func (l *logic) Show() any {
	views := map[string]poolView{}
	l.change(func(a *allocator) {
		for key, p := range a.pools {
			v := poolView{PoolUsage: p.counts(), Waiting: len(p.waiting), Claims: map[string]string{}}
			v.Reason, v.Problem, _ = p.state()
			for _, c := range p.claims {
				if c.block.IsValid() {
					v.Claims[contract.NameOf(c.object).String()] = textOf(c.block)
				}
			}
			views[key.String()] = v
		}
	})
	return map[string]any{"pools": views}
}

// Figures implements runner.Logic.
func (l *logic) Figures() runner.Figures {
	var f runner.Figures
	f.Waiting, f.Bound = l.Contract.Figures()
	l.change(func(a *allocator) {
		for key, p := range a.pools {
			f.Conflicts += len(p.clashes())
			if n := p.counts(); p.object != nil {
				f.Pools = append(f.Pools, runner.PoolFigures{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name,
					Total: float64(n.Total), Used: float64(n.Used), Free: float64(n.Free), OutOfRange: float64(n.OutOfRange)})
			}
		}
	})
	return f
}
