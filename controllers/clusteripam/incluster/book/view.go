package book

import (
	"maps"
	"slices"

	"github.com/multicidr/controller-manager/controllers/clusteripam/addresses"
)

// View is a copy of the book for people.
type View struct {
	Pools  []PoolView  `json:"pools"`
	Claims []ClaimView `json:"claims"`
	// Departed are claims that are gone and whose IPAddress may still be created. They keep their addresses.
	Departed []ClaimView `json:"departed,omitempty"`
}

// PoolView is one pool.
type PoolView struct {
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Total      int    `json:"total"`
	Free       int    `json:"free"`
	Used       int    `json:"used"`
	OutOfRange int    `json:"outOfRange"`
	// Waiting is how many claims wait for an address of the pool. Allocates is whether it may allocate any.
	Waiting   int    `json:"waiting"`
	Exists    bool   `json:"exists"`
	Allocates bool   `json:"allocates"`
	Problem   string `json:"problem,omitempty"`
	// Conflicts are the IPAddresses that have the same address, by address. Overlaps are other pools with an address of this one.
	Conflicts map[string][]string `json:"conflicts,omitempty"`
	Overlaps  map[string]string   `json:"overlaps,omitempty"`
}

// ClaimView is one claim.
type ClaimView struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Pool      string `json:"pool,omitempty"`
	State     string `json:"state"`
	Address   string `json:"address,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Problem   string `json:"problem,omitempty"`
}

// View returns a copy of the book.
func (b *Book) View() (v View) {
	waiting := map[*pool]int{}
	for _, key := range slices.SortedFunc(maps.Keys(b.claims), Compare) {
		c := b.claims[key]
		if c.ref == nil {
			continue
		}
		if c.state == Waiting && !c.deleting() {
			waiting[c.ref]++
		}
		v.Claims = append(v.Claims, b.viewOf(c))
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.ghosts), Compare) {
		for _, g := range b.ghosts[key] {
			v.Departed = append(v.Departed, ClaimView{Namespace: key.Namespace, Name: key.Name, UID: string(g.uid()), State: g.state.String(), Address: g.addr.String()})
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.pools), Compare) {
		p := b.pools[key]
		n := p.usage.Counts()
		pv := PoolView{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Total: n.Total, Free: n.Free, Used: n.Used, OutOfRange: n.OutOfRange,
			Waiting: waiting[p], Exists: p.object != nil, Allocates: p.eligible(), Problem: p.invalid}
		for at := range p.conflicts {
			if pv.Conflicts == nil {
				pv.Conflicts = map[string][]string{}
			}
			pv.Conflicts[at.String()] = p.holders(at)
		}
		for _, o := range p.overlaps {
			if pv.Overlaps == nil {
				pv.Overlaps = map[string]string{}
			}
			pv.Overlaps[o.pool.key.String()] = o.at.String()
		}
		v.Pools = append(v.Pools, pv)
	}
	return v
}

func (b *Book) viewOf(c *claim) ClaimView {
	v := ClaimView{Namespace: c.key.Namespace, Name: c.key.Name, UID: string(c.uid()), Pool: c.ref.key.String(), State: c.state.String()}
	if c.addr.IsValid() {
		v.Address = c.addr.String()
	}
	switch {
	case b.isPaused(c):
		v.Reason = "Paused"
	case c.deleting():
		v.Reason = "Deleting"
	case c.state != Assigned:
		v.Reason, v.Problem = b.why(c)
	}
	return v
}

// Figures are the numbers of a book.
type Figures struct {
	// Waiting is how many claims have no address, by the reason in their condition.
	Waiting map[string]int
	// Assigned is how many claims have one, and Conflicts how many addresses belong to several IPAddresses.
	Assigned, Conflicts int
	Pools               map[Key]addresses.Counts
}

// Figures returns the numbers of the book.
func (b *Book) Figures() Figures {
	f := Figures{Waiting: map[string]int{}, Pools: map[Key]addresses.Counts{}}
	for _, c := range b.claims {
		switch {
		case c.ref == nil || c.deleting():
		case c.state == Assigned || c.stored:
			f.Assigned++
		case b.isPaused(c):
			f.Waiting["Paused"]++
		default:
			if reason, _ := b.why(c); reason != "" {
				f.Waiting[reason]++
			}
		}
	}
	for key, p := range b.pools {
		f.Conflicts += len(p.conflicts)
		if p.object != nil {
			f.Pools[key] = p.usage.Counts()
		}
	}
	return f
}
