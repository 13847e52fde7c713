package nodeipam

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/seen"
)

// Watches of single kinds that break off, while users go on, and come back in any order: they go on where they ended, or begin with a list, which
// may be an older one. The process knows of that, and the judge knows what existed when the last watch came back.

func init() {
	hasToHappen = append(hasToHappen, "a Node waits for what was missed", "what was missed is known")
}

var gapMoves = map[string]moveKind{
	"break": {25, func(w *world, d *rand.Rand) []string {
		return with(processes(func(p *process) bool { return p.controller != nil }), []string{string(oneOf(d, kinds)), "all"})(w, d)
	}, onProcess(func(p *process, a []string) bool {
		broke := false
		for _, k := range kinds {
			if c := p.caches[k]; c != nil && c.listed && !c.gap.Open && (a[0] == "all" || a[0] == string(k)) {
				c.gap.Open, c.gap.Count, broke = true, c.gap.Count+1, true
			}
		}
		return broke
	})},
	"back": {150, func(w *world, d *rand.Rand) []string {
		var some [][]string
		for _, p := range w.running() {
			for _, k := range kinds {
				if c := p.caches[k]; c != nil && c.gap.Open && p.w.serves(k) {
					some = append(some, []string{p.name, string(k)})
				}
			}
		}
		words, ok := oneIfAny(d, some)
		if !ok {
			return nil
		}
		return append(words, oneOf(d, []string{"resumed", "0", "0", "1", "3"}), oneOf(d, []string{"heard", "unheard"}))
	}, onProcess(func(p *process, a []string) bool { return p.back(kind(a[0]), a[1], a[2] == "unheard") })},
	"catch-up": {300, processes(func(p *process) bool { return p.serving && p.controller.seen.Missed() != "" }),
		onProcess(func(p *process, _ []string) bool { return p.catchUp() })},
}

// missed is what a process has to know of a kind when no watch is broken off any more.
type missed struct {
	revision int // at which the last watch came back
	objects  map[string]metav1.Object
}

// back opens a watch again.
func (p *process) back(k kind, how string, behind bool) bool {
	c := p.caches[k]
	if c == nil || !c.gap.Open || !p.w.serves(k) {
		return false
	}
	c.gap.Open = false
	for _, k := range kinds {
		if p.caches[k].gap.Count > p.caughtUp[k] {
			p.missed[k] = missed{p.w.server.revision(), maps.Clone(p.w.server.objects[k])}
		}
	}
	if how != "resumed" {
		p.list(k, max(0, p.w.server.revision()-wordToInt(how)), behind)
	}
	return true
}

// cutOff reports whether a watch is broken off.
func (p *process) cutOff() bool {
	return slices.ContainsFunc(kinds, func(k kind) bool { return p.caches[k] != nil && p.caches[k].gap.Open })
}

// catchUp is what a process does when watches are open again.
func (p *process) catchUp() bool {
	if p.controller == nil || !p.serving || p.controller.seen.Missed() == "" {
		return false
	}
	if before := maps.Clone(p.caughtUp); !p.controller.seen.CatchUp(noTime) {
		return !maps.Equal(before, p.caughtUp)
	}
	p.controller.caughtUp()
	p.w.cover("what was missed is known")
	p.check()
	return true
}

// judgeMissed: nothing is chosen before a process knows what existed when the last watch came back.
func (p *process) judgeMissed(node *v1.Node, pool string) {
	if p.cutOff() {
		p.w.violate("what exists is known", "%s chose podCIDRs for Node %s while a watch is broken off", p.name, node.Name)
	}
	stale := func(k kind, name string, known metav1.Object) {
		now, then := p.w.server.objects[k][name], p.missed[k].objects[name]
		switch {
		case now != nil && then != nil && now.GetUID() == then.GetUID() && (known == nil || known.GetUID() != then.GetUID() || versionOf(known) < versionOf(then)),
			now == nil && then == nil && known != nil && versionOf(known) <= p.missed[k].revision:
			p.w.violate("what exists is known", "%s chose podCIDRs for Node %s, and does not know how the %s %s was when the last watch came back", p.name, node.Name, k, name)
		}
	}
	for name, o := range p.missed[kindNode].objects {
		if now := p.w.server.node(name); now != nil && now.UID == o.GetUID() && clustercidr.ShowsPodCIDRs(o.(*v1.Node)) {
			if known := p.seen.nodes[name]; known == nil || known.UID != now.UID || !clustercidr.ShowsPodCIDRs(known) {
				p.w.violate("what exists is known", "%s chose podCIDRs for Node %s, and does not know what Node %s has", p.name, node.Name, name)
			}
		}
	}
	for name := range p.missed[kindServiceCIDR].objects {
		if known := p.seen.serviceCIDRs[name]; known != nil {
			stale(kindServiceCIDR, name, known)
		} else {
			stale(kindServiceCIDR, name, nil)
		}
	}
	if known := p.seen.clusterCIDRs[pool]; known != nil && p.missed[kindClusterCIDR].objects != nil {
		stale(kindClusterCIDR, pool, known)
	}
}

// read is how the controller reads all objects of a kind.
func (p *process) read(k kind) fresh.Read {
	return func(context.Context, string) (map[string]string, string, error) {
		if !p.w.serves(k) {
			return nil, "", notServed("")
		}
		versions := map[string]string{}
		for name, o := range p.w.server.objects[k] {
			versions[name] = o.GetResourceVersion()
		}
		return versions, strconv.Itoa(p.w.server.revision()), nil
	}
}

// version is what a cache tells of how new it is.
func (p *process) version(k kind) func() string {
	return func() string {
		if p.mute {
			return ""
		}
		return strconv.Itoa(p.caches[k].revision)
	}
}

// sees makes the controller know of gaps, and the view learn what the controller does after them.
func (p *process) sees() {
	c, of := p.controller, map[string]kind{"Nodes": kindNode, "ClusterCIDRs": kindClusterCIDR, "ServiceCIDRs": kindServiceCIDR}
	c.reads = map[string]fresh.Read{}
	for kind, k := range of {
		c.reads[kind] = p.read(k)
	}
	c.nodesVersion, c.clusterCIDRsVersion = p.version(kindNode), p.version(kindClusterCIDR)
	c.readNodes = func(context.Context) (string, error) { return strconv.Itoa(p.w.server.revision()), nil }
	all := c.kinds(func(kind string) func() health.Gap {
		return func() health.Gap {
			gap := p.caches[of[kind]].gap
			gap.Kind, gap.Err, gap.Until = kind, errTimeout, p.w.ctx
			return gap
		}
	})
	for i := range all {
		k, know := of[all[i].Gap().Kind], all[i].Know
		all[i].Know = func(ctx context.Context) bool {
			known := know(ctx)
			if known {
				p.caughtUp[k] = p.caches[k].gap.Count
			}
			if known && k != kindNode {
				p.seeAll(k)
			}
			return known
		}
	}
	c.seen = seen.New(all...)
}

// seeAll lets the view learn all that the cache has of a kind. A ServiceCIDR that is gone is left to its event.
func (p *process) seeAll(k kind) {
	names := maps.Clone(p.caches[k].objects)
	if k == kindClusterCIDR {
		for name := range p.seen.clusterCIDRs {
			names[name] = nil
		}
	}
	for name := range names {
		p.see(k, name)
	}
}
