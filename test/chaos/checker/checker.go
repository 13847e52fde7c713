package checker

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// Options of a Checker. The zero value is for an allocator that serves from ClusterCIDRs only.
type Options struct {
	// Static are the ranges of an allocator that has them from flags and writes no annotation on Nodes.
	Static []Range
	// ServiceRanges must not be given to Nodes, beside those of ServiceCIDRs.
	ServiceRanges []netip.Prefix
	// Slack is how long before its revision, or before Event.AsOf, a decision may have been made: retries, and watches that lag.
	Slack time.Duration
	// Unlisted is for how long nobody need know of a Node that somebody creates with podCIDRs: out of scope during an outage, because a list after
	// it shows Nodes in no order.
	Unlisted time.Duration
	// Lease is the name of the leader lease, for the histories and for the count of leaders.
	Lease string
	// Flags: managers have flags that become a ClusterCIDR, and may have others than the one that led before. Otherwise such a ClusterCIDR is
	// superseded and gives nothing, whether or not it says so yet.
	Flags bool
}

const (
	// historyLines is how much is kept of one object's history.
	historyLines = 200
	// A violation's history has the notes of this long before it. It has also what came shortly after: whoever notes that a
	// request was answered does so when its revision is history already.
	noteWindow = time.Minute
	aftermath  = 5 * time.Second
)

// Checker takes events in the order of their revisions. Its methods may be called at once.
type Checker struct {
	opts Options

	mu         sync.Mutex
	begin      time.Time
	nodes      map[string]*node
	pools      map[string]*pool
	gone       map[string][]gonePool // all of each name
	services   map[string]service    // by the ServiceCIDR's name
	holder     string                // of the lease
	history    map[string][]line     // by object
	notes      []line
	violations []finding
	summary    Summary
	latencies  []time.Duration
}

// created begins the line of a history with which an object's life begins.
const created = "created, "

// line is one line of a history.
type line struct {
	revision int64 // 0 for a note
	at       time.Time
	text     string
}

// finding is a violation and the objects involved; its history is written when somebody asks.
type finding struct {
	Violation
	objects []string
}

// gonePool is a ClusterCIDR that is gone.
type gonePool struct {
	*pool
	at time.Time
}

// node is one Node object through its life.
type node struct {
	*corev1.Node // as it is now
	created      Event
	blocks       []netip.Prefix
	served       bool // its podCIDRs came after its creation
	labels       []labelled
}

// service is what a ServiceCIDR has since some time.
type service struct {
	since  time.Time
	ranges []netip.Prefix
}

// labelled is a Node with the labels it had from then on.
type labelled struct {
	since time.Time
	*corev1.Node
}

// New returns a Checker that has seen nothing yet.
func New(opts Options) *Checker {
	return &Checker{opts: opts, begin: time.Now(), nodes: map[string]*node{}, pools: map[string]*pool{}, gone: map[string][]gonePool{}, services: map[string]service{}, history: map[string][]line{}}
}

// Observe takes the next event.
func (c *Checker) Observe(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.summary.Revisions++
	switch {
	case e.Node != nil && e.Gone:
		c.nodeGone(e)
	case e.Node != nil:
		c.node(e)
	case e.ClusterCIDR != nil && e.Gone:
		c.poolGone(e)
	case e.ClusterCIDR != nil:
		c.pool(e)
	case e.ServiceCIDR != nil:
		c.service(e)
	case e.Lease != nil && !e.Gone && e.Lease.Name == c.opts.Lease:
		if holder := e.Lease.Spec.HolderIdentity; holder != nil && *holder != "" && *holder != c.holder {
			c.holder = *holder
			c.summary.Leaders++
			c.note(e, "leader is now "+*holder)
		}
	}
}

// Note adds something that the histories shall show, such as a fault.
func (c *Checker) Note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(Event{At: time.Now()}, fmt.Sprintf(format, args...))
}

// NoteNode adds something to the history of a Node, such as a request that somebody sent for it.
func (c *Checker) NoteNode(name, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log(Event{At: time.Now()}, nodeName(name), "%s", text)
}

func (c *Checker) note(e Event, text string) {
	c.notes = append(c.notes, line{e.Revision, e.At, text})
}

func (c *Checker) node(e Event) {
	name := e.Node.Name
	n, known := c.nodes[name]
	if known && n.UID != e.Node.UID { // etcd would have told of the removal in between, but this is not for us to trust
		c.nodeGone(e)
		known = false
	}
	if !known {
		n = &node{created: e}
		c.nodes[name] = n
		c.summary.Created++
		c.log(e, nodeName(name), created+"uid %s, labels %v", e.Node.UID, e.Node.Labels)
	}
	before := n.Node
	n.Node = e.Node
	if before == nil || !maps.Equal(before.Labels, e.Node.Labels) {
		n.labels = append(n.labels, labelled{e.At, e.Node})
		if before != nil {
			c.log(e, nodeName(name), "relabelled %v", e.Node.Labels)
		}
	}
	if e.Node.DeletionTimestamp != nil && (before == nil || before.DeletionTimestamp == nil) {
		c.log(e, nodeName(name), "being deleted, finalizers %v", e.Node.Finalizers)
	}

	blocks, err := parsePrefixes(e.Node.Spec.PodCIDRs)
	if err != nil {
		c.violate(e, OutsideRange, fmt.Sprintf("Node %s has unreadable podCIDRs: %v", name, err), nodeName(name))
		return
	}
	had := n.blocks
	n.blocks = blocks
	switch {
	case slices.Equal(had, blocks):
	case len(had) > 0:
		c.violate(e, Changed, fmt.Sprintf("podCIDRs of Node %s were %v and are %v", name, had, blocks), nodeName(name))
	case !known:
		c.summary.Foreign++
		c.log(e, nodeName(name), "was created with podCIDRs %v", blocks)
		for _, o := range c.overlappers(n) {
			c.summary.ForeignOverlaps++
			c.log(e, nodeName(name), "overlaps Node %s, which is nobody's fault but its creator's", o.Name)
		}
	default:
		n.served = true
		c.log(e, nodeName(name), "served %v from %q by %q", blocks, n.Annotations[networkingv1.AnnotationClusterCIDR], n.Annotations[networkingv1.AnnotationLeaseHolder])
		c.summary.Served++
		c.summary.LastServed = e.At
		if holder := n.Annotations[networkingv1.AnnotationLeaseHolder]; holder != "" && c.holder != "" && holder != c.holder {
			c.summary.Deposed++
			c.log(e, nodeName(name), "but the leader is %q", c.holder)
		}
		c.latencies = append(c.latencies, e.At.Sub(n.created.At))
		c.checkServed(e, n)
	}
}

// decided returns when, at the latest, the writer saw what it decided on.
func (e Event) decided() time.Time {
	if e.AsOf.IsZero() {
		return e.At
	}
	return e.AsOf
}

func (c *Checker) nodeGone(e Event) {
	if n, ok := c.nodes[e.Node.Name]; ok {
		c.log(e, nodeName(n.Name), "gone, uid %s, with podCIDRs %v", n.UID, n.blocks)
		delete(c.nodes, n.Name)
		c.summary.Deleted++
	}
}

// overlappers returns the live Nodes that share an address with n.
func (c *Checker) overlappers(n *node) []*node {
	var found []*node
	for _, o := range c.nodes {
		if _, _, overlap := overlapping(n.blocks, o.blocks); overlap && o != n {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b *node) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// checkServed is for a Node that has just got its podCIDRs.
func (c *Checker) checkServed(e Event, n *node) {
	for _, o := range c.overlappers(n) {
		rule, mine, its := Overlap, n.blocks, o.blocks
		switch {
		case !o.served && o.created.Revision > n.created.Revision && (e.AsOf.IsZero() || !o.created.At.Before(e.AsOf.Add(-c.opts.Slack))):
			// It may have come after the decision, and then nobody could know. One that is older than n itself was known: both
			// come to the allocator in one stream, in this order.
			c.summary.ForeignRaces++
			c.log(e, nodeName(n.Name), "overlaps Node %s, created with %v while this one waited", o.Name, its)
			continue
		case !o.served && e.At.Sub(o.created.At) <= c.opts.Unlisted:
			c.summary.ForeignRaces++
			c.log(e, nodeName(n.Name), "overlaps Node %s, created with %v during an outage", o.Name, its)
			continue
		case o.DeletionTimestamp != nil:
			rule = EarlyReuse
		}
		c.violate(e, rule, fmt.Sprintf("Node %s was served %v while Node %s has %v", n.Name, mine, o.Name, its), nodeName(n.Name), nodeName(o.Name))
	}
	if e.Other {
		return
	}
	known := c.opts.ServiceRanges
	for _, s := range c.services {
		if e.decided().Sub(s.since) > c.opts.Slack {
			known = slices.Concat(known, s.ranges)
		}
	}
	if block, service, ok := overlapping(n.blocks, known); ok {
		c.violate(e, ServiceRange, fmt.Sprintf("Node %s was served %v of service range %v", n.Name, block, service), nodeName(n.Name))
	}
	c.checkSource(e, n)
}

func (c *Checker) checkSource(e Event, n *node) {
	source := n.Annotations[networkingv1.AnnotationClusterCIDR]
	p, exists := c.pools[source]
	involved := []string{nodeName(n.Name), poolName(source)}
	switch {
	case source == "" && len(c.opts.Static) > 0:
		if !shaped(c.opts.Static, n.blocks) {
			c.violate(e, OutsideRange, fmt.Sprintf("Node %s was served %v, which is not one block of each range", n.Name, n.blocks), involved...)
		}
	case c.justGone(e, source, func(p *pool) bool {
		return shaped(p.ranges, n.blocks) && slices.ContainsFunc(n.labels, func(l labelled) bool { return p.matches(l.Node) })
	}):
	case !exists:
		c.violate(e, NoSource, fmt.Sprintf("Node %s was served %v from %q, and there is no such ClusterCIDR", n.Name, n.blocks, source), involved...)
	case !shaped(p.ranges, n.blocks):
		c.violate(e, OutsideRange, fmt.Sprintf("Node %s was served %v, which is not one block of each range of %s", n.Name, n.blocks, source), involved...)
	default:
		lag, ever := c.sinceAllowed(e, p, n)
		if ever && lag <= c.opts.Slack {
			if lag > 0 {
				c.summary.Late++
				c.summary.MaxLag = max(c.summary.MaxLag, lag)
				c.log(e, nodeName(n.Name), "came %s after %s stopped giving this", lag, source)
			}
			return
		}
		since := "at any time"
		if ever {
			since = "for " + lag.String()
		}
		c.violate(e, NotAllowed, fmt.Sprintf("Node %s was served %v from %s, which has not been to give this to it %s", n.Name, n.blocks, source, since), involved...)
	}
}

// justGone reports whether a ClusterCIDR of this name that could be meant has gone, and the writer may have missed that: it did not wait for its
// finalizer.
func (c *Checker) justGone(e Event, name string, could func(*pool) bool) bool {
	return slices.ContainsFunc(c.gone[name], func(p gonePool) bool {
		return e.decided().Sub(p.at) <= c.opts.Slack && could(p.pool) && !p.awaited(p.at, c.opts.Slack)
	})
}

// sinceAllowed returns how old a view of p or of n it takes, the older one of both, to give n these blocks; 0 if they may be given now.
// Nodes and ClusterCIDRs come to the allocator as two streams, of which one can lag behind the other, so any version of p is held
// against any labels of n.
func (c *Checker) sinceAllowed(e Event, p *pool, n *node) (lag time.Duration, ever bool) {
	for v, version := range p.versions {
		_, _, excluded := overlapping(n.blocks, version.exclusions)
		if !version.enabled || excluded {
			continue
		}
		for l, labels := range n.labels {
			if !p.matches(labels.Node) {
				continue
			}
			var age time.Duration
			if v+1 < len(p.versions) {
				age = max(0, e.decided().Sub(p.versions[v+1].since))
			}
			if l+1 < len(n.labels) {
				age = max(age, e.decided().Sub(n.labels[l+1].since))
			}
			if !ever || age < lag {
				lag, ever = age, true
			}
		}
	}
	return lag, ever
}

func (c *Checker) service(e Event) {
	name := e.ServiceCIDR.Name
	if e.Gone {
		delete(c.services, name)
		c.note(e, "ServiceCIDR "+name+" gone")
		return
	}
	ranges, err := parsePrefixes(e.ServiceCIDR.Spec.CIDRs)
	if err != nil || slices.Equal(ranges, c.services[name].ranges) {
		return // the API server lets none in that cannot be read
	}
	c.services[name] = service{e.At, ranges}
	c.note(e, fmt.Sprintf("ServiceCIDR %s has %v", name, ranges))
}

func (c *Checker) pool(e Event) {
	name := e.ClusterCIDR.Name
	p, known := c.pools[name]
	if known && p.uid != e.ClusterCIDR.UID {
		c.poolGone(e)
		known = false
	}
	if !known {
		var err error
		if p, err = newPool(e, c.opts.Flags); err != nil {
			c.log(e, poolName(name), "cannot be read: %v", err) // it can give nothing
			return
		}
		c.pools[name] = p
		c.summary.ClusterCIDRs++
		c.log(e, poolName(name), created+"uid %s, ranges %v, priority %d, selector %v", p.uid, p.ranges, e.ClusterCIDR.Spec.Priority, e.ClusterCIDR.Spec.NodeSelector)
	}
	if err := p.observe(e); err != nil {
		c.log(e, poolName(name), "cannot be read: %v", err)
		return
	}
	now := p.now()
	now.status = networkingv1.ClusterCIDRStatus{}
	c.log(e, poolName(name), "enabled %t, deleting %t, finalized %t, excluded %v", now.enabled, now.deleting, now.finalized, now.exclusions)
}

func (c *Checker) poolGone(e Event) {
	p, ok := c.pools[e.ClusterCIDR.Name]
	if !ok {
		return
	}
	c.log(e, poolName(p.name), "gone, uid %s", p.uid)
	delete(c.pools, p.name)
	c.gone[p.name] = append(c.gone[p.name], gonePool{p, e.At})
	for _, n := range c.members(p) {
		if !n.served && e.decided().Sub(n.created.At) <= max(c.opts.Slack, c.opts.Unlisted) {
			continue // somebody created it with blocks of p at about the moment when p was found to be unused
		}
		if !p.awaited(e.At, c.opts.Slack) {
			continue // allocation does not wait for the finalizer
		}
		if c.justGone(e, n.Annotations[networkingv1.AnnotationClusterCIDR], func(p *pool) bool { return p.holds(n.blocks) }) {
			continue // it belongs to another one, whose end the manager may not have seen yet
		}
		c.violate(e, GoneInUse, fmt.Sprintf("ClusterCIDR %s is gone while Node %s has %v of it", p.name, n.Name, n.blocks), poolName(p.name), nodeName(n.Name))
	}
}

// members returns the Nodes that keep p: those that were served from it, and those that somebody else gave one of its blocks.
func (c *Checker) members(p *pool) []*node {
	var found []*node
	for _, n := range c.nodes {
		source := n.Annotations[networkingv1.AnnotationClusterCIDR]
		named, ok := c.pools[source]
		if source == p.name {
			named, ok = p, true // p may just be gone
		}
		if ok && named.holds(n.blocks) && named != p {
			continue // it belongs to another one
		}
		if slices.ContainsFunc(n.blocks, p.touches) {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b *node) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// held returns all prefixes that nobody can give now.
func (c *Checker) held() []netip.Prefix {
	held := c.serviceRanges()
	for _, n := range c.nodes {
		held = append(held, n.blocks...)
	}
	return held
}

// without returns what p cannot give: what is held, and what p excludes, which is nobody else's concern.
func (p *pool) without(held []netip.Prefix) []netip.Prefix {
	return slices.Concat(held, p.now().exclusions)
}

func (c *Checker) serviceRanges() []netip.Prefix {
	ranges := slices.Clone(c.opts.ServiceRanges)
	for _, s := range c.services {
		ranges = append(ranges, s.ranges...)
	}
	return ranges
}

// Free returns how many Nodes a ClusterCIDR has blocks for, by counting.
func (c *Checker) Free(clusterCIDR string) (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pools[clusterCIDR]
	if !ok || !p.now().enabled {
		return 0, ok
	}
	return count(freeTuples(p.ranges, p.without(c.held()))), true
}

// count returns n, or what comes closest to it.
func count(n *big.Int) uint64 {
	if !n.IsUint64() {
		return math.MaxUint64
	}
	return n.Uint64()
}

// ServedFrom returns the Nodes that have podCIDRs from a ClusterCIDR.
func (c *Checker) ServedFrom(clusterCIDR string) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]bool{}
	for name, n := range c.nodes {
		if n.served && n.Annotations[networkingv1.AnnotationClusterCIDR] == clusterCIDR {
			names[name] = true
		}
	}
	return names
}

// Unsettled returns what would be violations if the allocator had nothing left to do.
func (c *Checker) Unsettled() []Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	recorded := len(c.violations)
	e := now()
	held := c.held()
	free := map[*pool]uint64{}
	for _, p := range c.pools {
		free[p] = count(freeTuples(p.ranges, p.without(held)))
	}
	static := count(freeTuples(c.opts.Static, held))
	for _, n := range c.nodes {
		if len(n.blocks) > 0 || n.DeletionTimestamp != nil {
			continue
		}
		if static > 0 {
			c.violate(e, LeftWaiting, fmt.Sprintf("Node %s waits while %d blocks are free", n.Name, static), nodeName(n.Name))
			continue
		}
		for _, p := range c.pools {
			if p.now().enabled && free[p] > 0 && p.matches(n.Node) {
				c.violate(e, LeftWaiting, fmt.Sprintf("Node %s waits while %s has %d free", n.Name, p.name, free[p]), nodeName(n.Name), poolName(p.name))
				break
			}
		}
	}
	for _, p := range c.pools {
		if p.now().deleting {
			if len(c.members(p)) == 0 && p.now().finalized { // others may have finalizers of their own
				c.violate(e, Stuck, fmt.Sprintf("ClusterCIDR %s is still being deleted and no Node has a block of it", p.name), poolName(p.name))
			}
			continue
		}
		c.checkStatus(e, p, p.without(held))
	}
	return c.takeFrom(recorded)
}

// now is the event of what is wrong when all is at rest.
func now() Event { return Event{At: time.Now()} }

// takeFrom returns the violations from the given number on, and forgets them.
func (c *Checker) takeFrom(recorded int) []Violation {
	var unsettled []Violation
	for _, f := range c.violations[recorded:] {
		unsettled = append(unsettled, c.told(f))
	}
	c.violations = c.violations[:recorded]
	slices.SortFunc(unsettled, func(a, b Violation) int {
		return cmp.Or(strings.Compare(string(a.Rule), string(b.Rule)), strings.Compare(a.Message, b.Message))
	})
	return unsettled
}

// checkStatus compares what a ClusterCIDR says is free with what is. held is what it cannot give.
func (c *Checker) checkStatus(e Event, p *pool, held []netip.Prefix) {
	for _, r := range p.ranges {
		status := p.statusOf(r)
		if status == nil {
			c.violate(e, Leak, fmt.Sprintf("ClusterCIDR %s does not say what is free in %v", p.name, r.Prefix), poolName(p.name))
			continue
		}
		if free := capped(r.free(held)); status.Free != free {
			c.violate(e, Leak, fmt.Sprintf("ClusterCIDR %s says that %d blocks of %v are free, and there are %d", p.name, status.Free, r.Prefix, free), poolName(p.name))
		}
	}
}

// Add records violations of which Unsettled turned out to be right.
func (c *Checker) Add(violations ...Violation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range violations {
		c.violations = append(c.violations, finding{Violation: v})
	}
}

// Violations returns what was found so far, oldest first.
func (c *Checker) Violations() []Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	var violations []Violation
	for _, f := range c.violations {
		violations = append(violations, c.told(f))
	}
	return violations
}

// Count returns how many violations were found so far.
func (c *Checker) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.violations)
}

func nodeName(name string) string { return "Node " + name }
func poolName(name string) string { return "ClusterCIDR " + name }

func (c *Checker) log(e Event, object, format string, args ...any) {
	lines := append(c.history[object], line{e.Revision, e.At, fmt.Sprintf(format, args...)})
	c.history[object] = lines[max(0, len(lines)-historyLines):]
}

// violate records a violation.
func (c *Checker) violate(e Event, rule Rule, message string, objects ...string) {
	c.violations = append(c.violations, finding{Violation{Rule: rule, Revision: e.Revision, At: e.At, Message: message}, objects})
}

// told returns a violation with its history: that of the objects since each was created, and what was noted around it.
func (c *Checker) told(f finding) Violation {
	if f.History != nil {
		return f.Violation
	}
	var lines []line
	for _, object := range f.objects {
		var life []line
		for _, l := range c.history[object] {
			if l.at.After(f.At.Add(aftermath)) {
				break
			}
			if strings.HasPrefix(l.text, created) && !l.at.After(f.At) {
				life = nil
			}
			l.text = object + ": " + l.text
			life = append(life, l)
		}
		lines = append(lines, life...)
	}
	for _, l := range c.notes {
		if f.At.Sub(l.at) <= noteWindow && l.at.Sub(f.At) <= aftermath {
			lines = append(lines, l)
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	v := f.Violation
	for _, l := range lines {
		revision := "       "
		if l.revision > 0 {
			revision = fmt.Sprintf("r%-6d", l.revision)
		}
		v.History = append(v.History, fmt.Sprintf("%s %8.3fs %s", revision, l.at.Sub(c.begin).Seconds(), l.text))
	}
	return v
}
