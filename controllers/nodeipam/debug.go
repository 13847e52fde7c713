package nodeipam

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// The ledger as JSON. docs/debugging.md describes the fields; people's scripts read them, so none changes its name or meaning.

type debugLedger struct {
	Controller string    `json:"controller"`
	Time       time.Time `json:"time"`
	// Trouble is what the health check says; empty if all is well.
	Trouble       string              `json:"trouble,omitempty"`
	ClusterCIDRs  []debugClusterCIDR  `json:"clusterCIDRs"`
	Nodes         []debugNode         `json:"nodes"`
	ServiceRanges []debugServiceRange `json:"serviceRanges"`
	Conflicts     []debugConflict     `json:"conflicts"`
	// ConflictsTotal is how many there are. Conflicts has at most maxConflicts of them.
	ConflictsTotal int `json:"conflictsTotal"`
}

type debugClusterCIDR struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// State is the reason of the condition Ready, and Why is its message.
	State        string         `json:"state"`
	Why          string         `json:"why"`
	Priority     int32          `json:"priority"`
	NodeSelector string         `json:"nodeSelector,omitempty"` // as text
	Ranges       []debugRange   `json:"ranges"`
	Excluded     []netip.Prefix `json:"excluded"`
	// Members is how many Nodes belong to it.
	Members int `json:"members"`
	// Overlapping is the message of that condition while it is True.
	Overlapping string `json:"overlapping,omitempty"`
}

// debugRange has the numbers of the status, and Reserved.
type debugRange struct {
	Family            string `json:"family"`
	CIDR              string `json:"cidr"`
	BlockPrefixLength int    `json:"blockPrefixLength"`
	Total             int64  `json:"total"`
	Allocated         int64  `json:"allocated"`
	Reserved          int64  `json:"reserved"` // of the allocated: their Nodes do not show them yet
	Unavailable       int64  `json:"unavailable"`
	Free              int64  `json:"free"`
	Cursor            string `json:"cursor,omitempty"`
}

// States of a Node.
const (
	nodeAssigned = "Assigned" // it shows podCIDRs
	nodeReserved = "Reserved" // blocks are reserved for it, and it does not show them yet
	nodeWaiting  = "Waiting"  // no ClusterCIDR can serve it
	nodeWithout  = "Without"  // it has nothing and waits for nothing: being deleted, or not looked at yet
)

type debugNode struct {
	Name   string         `json:"name"`
	UID    types.UID      `json:"uid"`
	State  string         `json:"state"`
	Blocks []netip.Prefix `json:"blocks"`
	// ClusterCIDRs are the names of those it belongs to.
	ClusterCIDRs []string       `json:"clusterCIDRs"`
	Addresses    []netip.Prefix `json:"addresses"`
	// Findings is what is wrong with its podCIDRs, message by reason; the reasons are those of events.
	Findings map[string]string `json:"findings,omitempty"`
	// Why and RefusedBy say why it waits.
	Why       string         `json:"why,omitempty"`
	RefusedBy []debugRefusal `json:"refusedBy,omitempty"`
}

type debugRefusal struct {
	ClusterCIDR string `json:"clusterCIDR"`
	Reason      string `json:"reason"`
}

type debugServiceRange struct {
	Source string         `json:"source"`
	CIDRs  []netip.Prefix `json:"cidrs"`
}

// debugConflict is two holders of the same addresses. The second one's prefix lies in the first one's.
type debugConflict struct {
	Holders [2]debugHolder `json:"holders"`
}

type debugHolder struct {
	Kind string       `json:"kind"` // Node or Service
	Name string       `json:"name"` // of the Node, or the source of the service range
	CIDR netip.Prefix `json:"cidr"`
}

// DebuggingHandler shows the ledger: as a page, or with ?format=json or an Accept header that prefers it, as JSON. It only reads.
func (c *Controller) DebuggingHandler() http.Handler { return http.HandlerFunc(c.serveDebug) }

func (c *Controller) serveDebug(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "This only shows. Use GET.", http.StatusMethodNotAllowed)
		return
	}
	if strings.Trim(r.URL.Path, "/") != "" { // what is left below our own path
		http.NotFound(w, r)
		return
	}
	var body bytes.Buffer // whole or not at all
	var err error
	status, mediaType := http.StatusOK, "text/html; charset=utf-8"
	ledger, book, ok := c.debugged()
	if !ok {
		http.Error(w, errBroken.Error(), http.StatusServiceUnavailable)
		return
	}
	switch format := r.FormValue("format"); {
	case format == "json", format == "" && goautoneg.Negotiate(r.Header.Get("Accept"), []string{"text/html", "application/json"}) == "application/json":
		mediaType = "application/json"
		err = json.NewEncoder(&body).Encode(ledger)
	default:
		page := pageOf(ledger, book, r.URL.Query())
		status, err = page.Status, debugPage.Execute(&body, page)
	}
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Cannot show the ledger")
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", mediaType)
	header.Set("Vary", "Accept")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	// No script runs, whatever a name contains; nothing is loaded from anywhere.
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	if _, err := w.Write(body.Bytes()); err != nil {
		klog.FromContext(r.Context()).V(4).Info("The reader of the ledger has gone", "err", err)
	}
}

// debugged returns all there is to show, and the copy of the book that it was read from; not ok after a panic. The lock is held for the
// copy only.
func (c *Controller) debugged() (_ debugLedger, _ *allocator.State, ok bool) {
	var s allocator.Snapshot
	if c.Err() != nil || !c.withWhole(func(b *allocator.State) { s = b.Snapshot() }) {
		return debugLedger{}, nil, false
	}
	now := c.now().UTC()
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		nodes = nil // Listing a cache fails only for a selector that cannot be parsed.
	}
	b := s.State()
	l := debugLedgerOf(b, nodes)
	l.Controller, l.Time = Name, now
	if err := c.health.Check(nil); err != nil {
		l.Trouble = err.Error()
	}
	return l, b, true
}

// debug returns what b says of these Nodes and of those that it knows beside them: the cache that they come from may be
// ahead or behind.
func debugLedgerOf(b *allocator.State, nodes []*v1.Node) debugLedger {
	l := debugLedger{ClusterCIDRs: []debugClusterCIDR{}, ServiceRanges: []debugServiceRange{}, Conflicts: []debugConflict{}}
	memberOf := map[types.UID][]string{}
	for _, p := range b.Pools() {
		cc := debugPool(b, p)
		for uid := range b.Members(p) {
			memberOf[uid] = append(memberOf[uid], p.Name)
			cc.Members++
		}
		l.ClusterCIDRs = append(l.ClusterCIDRs, cc)
	}

	conflicts, total, with := b.AllConflicts()
	l.ConflictsTotal = total
	for _, c := range conflicts {
		l.Conflicts = append(l.Conflicts, debugConflict{Holders: [2]debugHolder{debugHolderOf(b, c.Outer), debugHolderOf(b, c.Inner)}})
	}
	l.ServiceRanges = debugServices(b)

	byName := map[string]*v1.Node{}
	for name, uid := range b.NodeUIDs() {
		byName[name] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	}
	for _, node := range nodes {
		byName[node.Name] = node
	}
	l.Nodes = make([]debugNode, 0, len(byName))
	for _, node := range byName {
		n := debugNodeOf(b, node)
		n.ClusterCIDRs = append(n.ClusterCIDRs, memberOf[n.UID]...)
		if others, ok := with[n.UID]; ok {
			n.find(allocator.ReasonConflict, "shares addresses with "+others.String())
		}
		l.Nodes = append(l.Nodes, n)
	}
	slices.SortFunc(l.Nodes, func(x, y debugNode) int { return strings.Compare(x.Name, y.Name) })
	return l
}

func debugPool(b *allocator.State, p *allocator.Pool) debugClusterCIDR {
	ready := b.Ready(p)
	cc := debugClusterCIDR{
		Name: p.Name, UID: p.ID, State: ready.Reason, Why: ready.Message, Priority: p.Priority, NodeSelector: p.Selector,
		Ranges: []debugRange{}, Excluded: append([]netip.Prefix{}, p.Exclusions...),
	}
	if overlapping := b.Overlapping(p); overlapping.Status == metav1.ConditionTrue {
		cc.Overlapping = overlapping.Message
	}
	for _, r := range p.Ranges {
		s := b.RangeStatus(p, r)
		cc.Ranges = append(cc.Ranges, debugRange{
			Family: r.Family().String(), CIDR: s.CIDR, BlockPrefixLength: int(s.BlockPrefixLength), Cursor: s.Cursor,
			Total: s.Total, Allocated: s.Allocated, Reserved: int64(reservedIn(b, r)), Unavailable: s.Unavailable, Free: s.Free,
		})
	}
	return cc
}

// reserved returns how many of r's blocks are held by a Node that does not show them.
func reservedIn(b *allocator.State, r ipam.Range) (n uint64) {
	for _, h := range b.Holdings(r.Prefix) {
		if h.Prefix.Bits() == r.BlockBits && h.Owner.Kind == ipam.Node && !isShown(b, h.Owner) {
			n++
		}
	}
	return n
}

// isShown reports whether a Node shows what it holds.
func isShown(b *allocator.State, node ipam.Owner) bool {
	n, ok := b.Node(b.NameOfNode(types.UID(node.ID)))
	return ok && n.State == allocator.Assigned
}

func debugNodeOf(b *allocator.State, node *v1.Node) debugNode {
	owner := allocator.OwnerOf(node.UID)
	blocks := b.HeldBy(owner)
	n := debugNode{
		Name: node.Name, UID: node.UID, State: nodeWithout, ClusterCIDRs: []string{},
		Blocks: append([]netip.Prefix{}, blocks...), Addresses: []netip.Prefix{},
	}
	if known, ok := b.Node(node.Name); ok && known.UID == node.UID {
		n.Addresses = append(n.Addresses, known.Addresses...)
	}
	_, unreadable := allocator.PodCIDRsOf(node)
	pending, waits := b.Pending(node.Name)
	switch {
	case len(blocks) > 0 && !isShown(b, owner):
		n.State = nodeReserved
	case len(blocks) > 0 || len(unreadable) > 0:
		n.State = nodeAssigned
	case waits:
		n.State, n.Why = nodeWaiting, pending.Why
		for _, r := range pending.RefusedBy {
			n.RefusedBy = append(n.RefusedBy, debugRefusal(r))
		}
	}
	if len(unreadable) > 0 {
		n.find(allocator.ReasonUnreadable, "podCIDRs "+allocator.Cut(strings.Join(unreadable, ", "), allocator.MaxListed)+" cannot be read")
	}
	if n.State == nodeAssigned && len(blocks) > 0 && b.OutOfRange(blocks) {
		n.find(allocator.ReasonOutsideRanges, "its podCIDRs lie in no ClusterCIDR")
	}
	return n
}

func (n *debugNode) find(reason, message string) {
	if n.Findings == nil {
		n.Findings = map[string]string{}
	}
	n.Findings[reason] = message
}

func debugServices(b *allocator.State) []debugServiceRange {
	services := []debugServiceRange{}
	for _, all := range allocator.Everything {
		for _, h := range b.Holdings(all) {
			known := slices.ContainsFunc(services, func(s debugServiceRange) bool { return s.Source == h.Owner.ID })
			if h.Owner.Kind == ipam.Service && !known {
				services = append(services, debugServiceRange{Source: h.Owner.ID, CIDRs: b.HeldBy(h.Owner)})
			}
		}
	}
	slices.SortFunc(services, func(x, y debugServiceRange) int { return strings.Compare(x.Source, y.Source) })
	return services
}

func debugHolderOf(b *allocator.State, h ipam.Holding) debugHolder {
	holder := debugHolder{Kind: h.Owner.Kind.String(), Name: h.Owner.ID, CIDR: h.Prefix}
	if h.Owner.Kind == ipam.Node {
		holder.Name = b.NameOfNode(types.UID(h.Owner.ID))
	}
	return holder
}
