package nodeipam

import (
	"cmp"
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
)

// lookInterval is how often a missing CRD or permission is looked for again.
const lookInterval = time.Second

// start returns when the book knows every ClusterCIDR and what every Node holds, so that the first choice can be made;
// false if ctx was done before. What is missing is said in the log and by the health check, and waited for.
func (c *Controller) start(ctx context.Context) bool {
	if !c.waitWrites(ctx) {
		return false
	}
	// The informer would look for itself, but with ever longer pauses and without telling people what to do.
	var clusterCIDRsAsOf string
	err := wait.PollUntilContextCancel(ctx, lookInterval, true, func(ctx context.Context) (ok bool, _ error) {
		clusterCIDRsAsOf, ok = c.canRead(ctx)
		return ok, nil
	})
	if err != nil {
		return false
	}
	c.informers.Start(ctx.Done())
	for kind, synced := range c.synced {
		c.health.waitFor(trouble{what: "the cache of " + kind + " to fill"})
		if !cache.WaitForNamedCacheSyncWithContext(ctx, synced) {
			return false
		}
	}
	if c.serviceCIDRs != nil && !c.waitShown(ctx, c.serviceCIDRContents()) {
		return false
	}
	if !c.waitFresh(ctx, cached{c.nodeContents(), c.nodesAsOf, c.nodesVersion}, cached{c.clusterCIDRContents(), clusterCIDRsAsOf, c.clusterCIDRsVersion}) {
		return false
	}
	if !c.waitTakeover(ctx) {
		return false
	}
	if err := c.readAll(ctx); err != nil {
		// Listing a cache fails only for a selector that cannot be parsed.
		klog.FromContext(ctx).Error(err, "Cannot start")
		c.health.waitFor(trouble{what: err.Error()})
		return false
	}
	c.health.waitFor(trouble{})
	klog.FromContext(ctx).Info("Read all ClusterCIDRs and Nodes, starting to serve")
	return true
}

// canRead reports whether ClusterCIDRs and Nodes can be read, and says what to do if not. If so, asOf is the resource version
// of a consistent read of ClusterCIDRs, and c.nodesAsOf that of one of Nodes.
func (c *Controller) canRead(ctx context.Context) (asOf string, ok bool) {
	list, err := c.stored().List(ctx, metav1.ListOptions{Limit: 1})
	t := c.unreadable(err)
	if err == nil && c.nodesAsOf == "" {
		if c.nodesAsOf, err = ReadNodes(ctx, c.client); err != nil {
			t = trouble{"Nodes cannot be read: if that is forbidden, " + ApplyRBAC, err}
		}
	}
	if err == nil {
		return list.GetResourceVersion(), true
	}
	if ctx.Err() == nil && c.health.waitFor(t) {
		klog.FromContext(ctx).Error(err, "No Node gets podCIDRs: "+t.what)
	}
	return "", false
}

// readAll enters all that is cached in the book.
func (c *Controller) readAll(ctx context.Context) error {
	var err error
	c.entering.Lock()
	defer c.entering.Unlock()
	c.with(func(b *book) {
		// From here on events are entered as they come, so the caches are read with the book in hand.
		err = c.fill(ctx, b)
		c.filled.Store(err == nil)
	})
	if err != nil {
		return err
	}
	if c.flags != nil {
		c.clusterCIDRQueue.Add(nameFromFlags(c.flags)) // it is made if it is not there
	}
	return nil
}

func (c *Controller) fill(ctx context.Context, b *book) error {
	clusterCIDRs, err := c.clusterCIDRs.List(labels.Everything())
	if err != nil {
		return err
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	var serviceCIDRs []*networkingapiv1.ServiceCIDR
	if c.serviceCIDRs != nil {
		if serviceCIDRs, err = c.serviceCIDRs.List(labels.Everything()); err != nil {
			return err
		}
	}
	for _, cc := range clusterCIDRs {
		b.setPool(c.compile(cc))
	}
	for _, serviceCIDR := range serviceCIDRs {
		b.setService(serviceSource(serviceCIDR.Name), serviceRangesOf(ctx, serviceCIDR))
	}
	c.foundEarlier(nodes)
	var called []*v1.Node
	for _, node := range nodes {
		c.heard(node)
	}
	for _, s := range b.observeAll(nodes) {
		if !showsPodCIDRs(s.node) || s.unreadable {
			called = append(called, s.node) // whom others concern are called for that
		}
	}
	slices.SortFunc(called, func(x, y *v1.Node) int {
		return byAge(x.CreationTimestamp.Time, x.Name, y.CreationTimestamp.Time, y.Name)
	})
	for _, node := range called {
		c.nodeQueue.Add(node.Name)
	}
	return nil
}

// shown is what the book learns of a Node at the start.
type shown struct {
	node       *v1.Node
	entry      *nodeEntry // nil if there is nothing to enter
	blocks     []netip.Prefix
	unreadable bool // there are podCIDRs that cannot be read
	unusual    bool // there is more to enter than what it holds
}

// observeAll does what observe does with one Node after the other, in a book that has none but all pools and service ranges, in a fraction
// of the time: on several processors, without looking for what was there before, and in maps that need not grow. All pools are touched
// already, since they are new. It returns what it read, in the order of the Nodes.
//
// With very many Nodes nearly all of the time is waiting for memory. So blocks are entered in the order of their addresses: then what the
// next one needs is in the processor's cache already.
func (b *book) observeAll(nodes []*v1.Node) []shown {
	all := make([]shown, len(nodes))
	inParallel(len(nodes), func(i int) {
		node := nodes[i]
		blocks, unreadable := podCIDRsOf(node)
		all[i] = shown{node: node, blocks: blocks, unreadable: len(unreadable) > 0}
		if len(blocks) > 0 {
			all[i].entry = &nodeEntry{uid: node.UID, pool: node.Annotations[networkingv1.AnnotationClusterCIDR], state: assigned, atStart: true}
			all[i].unusual = !slices.ContainsFunc(blocks, b.inRange)
		}
	})

	b.nodes, b.names = make(map[string]*nodeEntry, len(all)), make(map[types.UID]string, len(all))
	b.ledger.Expect(len(all))
	alone := true
	sideBySide(func() {
		for i := range all {
			s := &all[i]
			addresses := addressesOf(s.node)
			if s.entry == nil {
				if len(addresses) == 0 {
					continue
				}
				s.entry = &nodeEntry{uid: s.node.UID}
			}
			s.entry.addresses = addresses
			s.unusual = s.unusual || slices.ContainsFunc(addresses, b.inRange)
			b.nodes[s.node.Name], b.names[s.entry.uid] = s.entry, s.node.Name
			if s.entry.state == assigned {
				b.holding++
			}
		}
	}, func() {
		for _, o := range byFirstBlock(all) {
			alone = b.ledger.Hold(o.owner, o.blocks...) && alone
		}
	})
	if !alone { // Somebody shares addresses with others, or with himself.
		inParallel(len(all), func(i int) {
			all[i].unusual = all[i].unusual || b.shares(all[i].node.UID)
		})
	}
	for _, s := range all {
		if s.unusual {
			b.locate(s.entry)
			b.judge(s.entry.uid)
		}
	}
	return all
}

// ownedBlocks is what a Node holds.
type ownedBlocks struct {
	owner  ipam.Owner
	blocks []netip.Prefix
}

// byFirstBlock returns what those hold who hold anything, in the order of the first block's address.
func byFirstBlock(all []shown) []ownedBlocks {
	type place struct {
		first uint64 // the first bits of the address, which for IPv6 are not all
		index int32
	}
	order := make([]place, 0, len(all))
	for i := range all {
		if blocks := all[i].blocks; len(blocks) > 0 {
			first := blocks[0].Addr().As16()
			bits := first[:8]
			if blocks[0].Addr().Is4() {
				bits = first[8:]
			}
			order = append(order, place{binary.BigEndian.Uint64(bits), int32(i)})
		}
	}
	slices.SortFunc(order, func(x, y place) int { return cmp.Compare(x.first, y.first) })
	sorted := make([]ownedBlocks, len(order))
	for i, o := range order {
		s := &all[o.index]
		sorted[i] = ownedBlocks{ownerOf(s.node.UID), s.blocks}
	}
	return sorted
}
