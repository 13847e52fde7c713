package incluster

import (
	"maps"
	"slices"
	"strings"

	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
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
	// Conflicts are IPAddresses that have an address in common.
	Conflicts []string `json:"conflicts,omitempty"`
}

// Show implements runner.Logic.
func (l *logic) Show() any {
	views := []poolView{}
	l.change(func(a *allocator) {
		for _, key := range slices.SortedFunc(maps.Keys(a.pools), func(a, b runner.Key) int { return strings.Compare(a.String(), b.String()) }) {
			p := a.pools[key]
			n := p.usage.Counts()
			_, problem, _ := p.state()
			v := poolView{Pool: key.String(), Total: n.Total, Free: n.Free, Used: n.Used, OutOfRange: n.OutOfRange, Waiting: len(p.waiting), Allocates: p.eligible(),
				Problem: problem, Claims: map[string]string{}}
			for _, together := range p.clashes() {
				v.Conflicts = append(v.Conflicts, namesOf(together))
			}
			for _, c := range p.claims {
				if c.block.IsValid() {
					v.Claims[contract.NameOf(c.object).String()] = textOf(c.block)
				}
			}
			views = append(views, v)
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
