package incluster

import (
	"slices"

	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// poolView is what the debug page shows of a pool.
type poolView struct {
	Pool       string `json:"pool"`
	Total      int    `json:"total"`
	Free       int    `json:"free"`
	Used       int    `json:"used"`
	OutOfRange int    `json:"outOfRange"`
	// Waiting is how many claims wait. Allocates is whether it may allocate anything.
	Waiting   int    `json:"waiting"`
	Allocates bool   `json:"allocates"`
	Problem   string `json:"problem,omitempty"`
	// Claims are the blocks that claims hold, by claim.
	Claims map[string]string `json:"claims,omitempty"`
	// Conflicts are IPAddresses of which another one has an address.
	Conflicts []string `json:"conflicts,omitempty"`
}

// Show implements runner.Logic.
func (l *logic) Show() any {
	views := []poolView{}
	l.change(func(a *allocator) {
		at := map[*pool]int{}
		for _, p := range a.order {
			n := p.usage.Counts()
			at[p] = len(views)
			v := poolView{Pool: p.key.String(), Total: n.Total, Free: n.Free, Used: n.Used, OutOfRange: n.OutOfRange, Waiting: len(p.waiting), Allocates: p.eligible(),
				Problem: p.problem(), Claims: map[string]string{}}
			for _, c := range p.clashes() {
				v.Conflicts = append(v.Conflicts, c.object.Namespace+"/"+c.object.Name)
			}
			views = append(views, v)
		}
		for _, c := range a.claims {
			if c.block.IsValid() {
				views[at[c.pool]].Claims[c.object.Namespace+"/"+c.object.Name] = textOf(c.block)
			}
		}
	})
	return map[string]any{"pools": views}
}

// Figures implements runner.Logic.
func (l *logic) Figures() runner.Figures {
	var f runner.Figures
	f.Waiting, f.Bound = l.Contract.Figures()
	l.change(func(a *allocator) {
		for _, p := range slices.Clone(a.order) {
			f.Conflicts += len(p.conflicts)
			if n := p.usage.Counts(); p.object != nil {
				f.Pools = append(f.Pools, runner.PoolFigures{Kind: p.key.Kind, Namespace: p.key.Namespace, Name: p.key.Name,
					Total: float64(n.Total), Used: float64(n.Used), Free: float64(n.Free), OutOfRange: float64(n.OutOfRange)})
			}
		}
	})
	return f
}
