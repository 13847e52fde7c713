package allocator

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/internal/race"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// Nobody looks again at what is not among the Changes, so what is said about it would stay untrue. TestNothingChangesUnnoticed makes histories,
// and compares, as often as the state tells of its changes, all statuses, findings and users of ClusterCIDRs with those of the time before.
func TestNothingChangesUnnoticed(t *testing.T) {
	seeds := *seedsFlag
	if seeds == race.Part(uint64(200)) {
		seeds = race.Part(uint64(20))
	}
	noticed := map[string]int{}
	for seed := *firstFlag; seed < *firstFlag+seeds && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := newWorld(t, seed, map[string]int{})
			before, of := w.whatIsSaid(), w.b
			w.notices = func(e Changes) {
				if now := w.whatIsSaid(); w.b == of {
					w.compare(before, now, e, noticed)
				}
				before, of = w.whatIsSaid(), w.b
			}
			w.begin()
			for range 300 {
				w.move()
			}
		})
	}
	if t.Log(noticed); t.Failed() || seeds < 20 {
		return
	}
	for _, what := range []string{"status", "findings", "unused"} {
		if noticed[what] == 0 {
			t.Errorf("never changed: %s", what)
		}
	}
}

// sayings are what is said about objects, by UID.
type sayings struct {
	statuses map[types.UID]string
	findings map[types.UID]map[string]string
	used     map[types.UID]bool // terminating ClusterCIDRs
}

func (w *world) whatIsSaid() sayings {
	s := sayings{map[types.UID]string{}, map[types.UID]map[string]string{}, map[types.UID]bool{}}
	for name, cc := range w.clusterCIDRs {
		cc := cc.DeepCopy()
		cc.Status = networkingv1.ClusterCIDRStatus{}
		if status, known := w.b.Status(cc); known {
			s.statuses[cc.UID] = statusText(status)
		}
		if p := w.pools[name]; p.State == ipam.Terminating || p.Superseded {
			s.used[cc.UID] = w.isUsed(p)
		}
	}
	for _, n := range w.nodes {
		if clustercidr.ShowsPodCIDRs(n) && len(w.pools) > 0 { // Without any, nothing is out of range, and that is not worth a word.
			s.findings[n.UID] = w.b.Findings(n)
		}
	}
	return s
}

// statusText formats a status without times.
func statusText(status networkingv1.ClusterCIDRStatus) (s string) {
	for _, r := range []*networkingv1.RangeStatus{status.IPv4, status.IPv6} {
		if r != nil {
			s += fmt.Sprintf("%+v\n", *r)
		}
	}
	for _, c := range status.Conditions {
		s += fmt.Sprintln(c.Type, c.Status, c.Reason, c.Message)
	}
	return s
}

// isUsed reports whether a Node holds blocks of p, whether or not it has to keep them.
func (w *world) isUsed(p slowPool) bool {
	for name := range w.nodes {
		v, _ := w.b.Node(name)
		named, ok := w.pools[v.ClusterCIDR]
		inside := func(p slowPool) int {
			n := 0
			for _, b := range v.Blocks {
				if p.Contains(b) {
					n++
				}
			}
			return n
		}
		if ok && inside(named) == len(v.Blocks) {
			ok = named.Name == p.Name
		} else {
			ok = true
		}
		if ok && inside(p) > 0 {
			return true
		}
	}
	return false
}

// isGivenUp reports whether a worker is about to give up blocks of p: a Node whose writes were refused belongs to no terminating ClusterCIDR.
func (w *world) isGivenUp(p slowPool) bool {
	for name := range w.nodes {
		if v, ok := w.b.Node(name); ok && w.due[name] && v.State.revocable() && p.State == ipam.Terminating && slices.ContainsFunc(v.Blocks, p.Contains) {
			return true
		}
	}
	return false
}

func (w *world) compare(before, now sayings, e Changes, noticed map[string]int) {
	for name, cc := range w.clusterCIDRs {
		was, known := before.statuses[cc.UID]
		if is, ok := now.statuses[cc.UID]; known && ok && was != is {
			noticed["status"]++
			if !slices.Contains(e.ClusterCIDRs, name) && !w.isGivenUp(w.pools[name]) {
				w.fail("the status of %s is not written (-before +now):\n%s", name, cmp.Diff(was, is))
			}
		}
		if used, ok := now.used[cc.UID]; before.used[cc.UID] && ok && !used {
			noticed["unused"]++
			if !slices.Contains(e.Terminating, name) {
				w.fail("%s is not used any more, and nobody looks at it", name)
			}
		}
	}
	for name, n := range w.nodes {
		was, known := before.findings[n.UID]
		if is, ok := now.findings[n.UID]; known && ok && !maps.Equal(was, is) {
			noticed["findings"]++
			if !slices.Contains(e.Nodes, name) {
				w.fail("findings about %s are not reported (-before +now):\n%s", name, cmp.Diff(was, is))
			}
		}
	}
}
