package incluster

import (
	"github.com/multicidr/controller-manager/controllers/clusteripam/addresses"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// poolView is what the debug page shows of a pool.
type poolView struct {
	addresses.Counts
	Reason  string            // that of its condition
	Waiting int               // how many claims wait
	Claims  map[string]string // the blocks that claims hold
}

// Show implements runner.Logic.
func (l *logic) Show() any {
	views := map[string]poolView{}
	l.change(func(a *allocator) {
		for key, p := range a.pools {
			v := poolView{Counts: p.usage.Counts(), Waiting: len(p.waiting), Claims: map[string]string{}}
			v.Reason, _, _ = p.state()
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
			if n := p.usage.Counts(); p.object != nil {
				f.Pools = append(f.Pools, runner.PoolFigures{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name,
					Total: float64(n.Total), Used: float64(n.Used), Free: float64(n.Free), OutOfRange: float64(n.OutOfRange)})
			}
		}
	})
	return f
}
