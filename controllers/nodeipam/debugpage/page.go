package debugpage

import (
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("debug").Funcs(template.FuncMap{"number": number, "lower": strings.ToLower}).Parse(pageHTML))

// Limits of one page. The JSON has everything.
const (
	maxRows  = 200 // of a table
	maxNames = 20  // of Nodes that are pending for the same reason, or that have findings
	columns  = 64  // cells per line of a picture
	// A picture has at most 2^n cells, and fewer if a page has many pictures.
	maxCellBits     = 10
	minCellBits     = 4
	maxCellsOfRange = 256 // on the page with all ranges
	maxCellsOfPage  = 4096
	maxPictures     = maxCellsOfPage >> minCellBits
)

// pageData is the input of the template.
type pageData struct {
	ledger
	Status int // HTTP status
	Error  string
	Find   string // the text that was searched for
	Found  *found
	One    *clusterCIDRView // the only ClusterCIDR to show; nil: all
	In     string           // the part of it that is shown

	Pictures     []picture
	NoPictures   bool // there would be too many
	Holdings     []holdingRow
	MoreHoldings int

	States   []nodeCount
	Waiting  []waitingGroup
	Findings []nodeView
	More     int // number of findings that are not shown
}

type nodeCount struct {
	State string
	Count int
}

// waitingGroup is Nodes that are pending for the same reason.
type waitingGroup struct {
	Why   string
	Nodes []string
	More  int
	Count int
}

type holdingRow struct {
	CIDR  netip.Prefix
	Kind  string
	Name  string
	State string
}

// pageOf answers one query: ?cc=NAME for one ClusterCIDR, with &in=PREFIX for a part of its range; ?find=TEXT for Nodes and addresses;
// otherwise everything.
func pageOf(l ledger, b *allocator.State, query url.Values) pageData {
	d := pageData{ledger: l, Status: http.StatusOK, Find: strings.TrimSpace(query.Get("find"))}
	for _, state := range []string{nodeAssigned, nodeReserved, nodeWaiting, nodeWithout} {
		d.States = append(d.States, nodeCount{State: state})
	}
	for _, n := range l.Nodes {
		i := slices.IndexFunc(d.States, func(c nodeCount) bool { return c.State == n.State })
		d.States[i].Count++
	}
	if d.Find != "" {
		d.Found = search(b, l, d.Find)
		return d
	}
	if name := query.Get("cc"); name != "" {
		d.showOne(b, name, query.Get("in"))
		return d
	}
	d.showAll(b)
	return d
}

// showOne shows one ClusterCIDR: all of its ranges, or the part of a range given by in.
func (d *pageData) showOne(b *allocator.State, name, in string) {
	fail := func(status int, format string, args ...any) { d.Status, d.Error = status, fmt.Sprintf(format, args...) }
	i := slices.IndexFunc(d.ClusterCIDRs, func(cc clusterCIDRView) bool { return cc.Name == name })
	if i < 0 {
		fail(http.StatusNotFound, "There is no ClusterCIDR %q.", name)
		return
	}
	d.One = &d.ClusterCIDRs[i]
	p, _ := b.Pool(name)
	views := rangesOf(p)
	if d.In = in; in != "" {
		view, err := netip.ParsePrefix(in)
		if err != nil {
			fail(http.StatusBadRequest, "in: %q is no prefix.", in)
			return
		}
		j := slices.IndexFunc(p.Ranges, func(r ipam.Range) bool { return insideOf(view, r.Prefix) && view.Bits() <= r.BlockBits })
		if j < 0 {
			fail(http.StatusBadRequest, "in: %v is no part of a range of ClusterCIDR %s.", view, name)
			return
		}
		views = []rangeView{{p.Ranges[j], view.Masked()}}
	}
	for _, v := range views {
		d.Pictures = append(d.Pictures, pictureOf(b, p, v, maxCellBits))
		d.addHoldings(b, append(b.Holdings(v.view), exclusionsIn(p, v.view)...))
	}
}

// showAll shows all ClusterCIDRs, and those Nodes that need attention.
func (d *pageData) showAll(b *allocator.State) {
	var all []func(cellBits int) picture
	for _, cc := range d.ClusterCIDRs {
		p, _ := b.Pool(cc.Name)
		for _, v := range rangesOf(p) {
			all = append(all, func(cellBits int) picture { return pictureOf(b, p, v, cellBits) })
		}
	}
	if d.NoPictures = len(all) > maxPictures; !d.NoPictures {
		for _, draw := range all {
			d.Pictures = append(d.Pictures, draw(int(math.Log2(float64(min(maxCellsOfRange, maxCellsOfPage/len(all)))))))
		}
	}
	d.Waiting = waitingGroups(d.Nodes)
	for _, n := range d.Nodes {
		switch {
		case len(n.Findings) == 0:
		case len(d.Findings) == maxNames:
			d.More++
		default:
			d.Findings = append(d.Findings, n)
		}
	}
}

// OnlyOne returns One for the table of ClusterCIDRs.
func (d pageData) OnlyOne() []clusterCIDRView { return []clusterCIDRView{*d.One} }

func (d *pageData) addHoldings(b *allocator.State, holdings []ipam.Holding) {
	for _, h := range holdings {
		if len(d.Holdings) == maxRows {
			d.MoreHoldings++
			continue
		}
		d.Holdings = append(d.Holdings, rowOf(b, h))
	}
}

func rowOf(b *allocator.State, h ipam.Holding) holdingRow {
	holder := holderOf(b, h)
	row := holdingRow{CIDR: h.Prefix, Kind: holder.Kind, Name: holder.Name}
	switch {
	case h.Owner.Kind != ipam.Node:
		row.State = "never given"
	case isShown(b, h.Owner):
		row.State = "assigned"
	default:
		row.State = "reserved"
	}
	return row
}

// exclusionsIn returns p's exclusions in a prefix as holdings.
func exclusionsIn(p *clustercidr.Pool, prefix netip.Prefix) []ipam.Holding {
	var all []ipam.Holding
	for e := range p.Excluded.Overlapping(prefix) {
		all = append(all, ipam.Holding{Owner: ipam.Owner{Kind: ipam.Kept, ID: "an exclusion of ClusterCIDR " + p.Name}, Prefix: e})
	}
	return all
}

func waitingGroups(nodes []nodeView) []waitingGroup {
	var groups []waitingGroup
	index := map[string]int{}
	for _, n := range nodes {
		if n.State != nodeWaiting {
			continue
		}
		i, ok := index[n.Why]
		if !ok {
			i = len(groups)
			index[n.Why] = i
			groups = append(groups, waitingGroup{Why: n.Why})
		}
		g := &groups[i]
		if g.Count++; g.Count <= maxNames {
			g.Nodes = append(g.Nodes, n.Name)
		} else {
			g.More++
		}
	}
	slices.SortStableFunc(groups, func(x, y waitingGroup) int { return y.Count - x.Count })
	return groups
}

// found is the result of a search.
type found struct {
	Nodes []nodeView
	More  int // number of Nodes that are not shown
	// Only if an address or a prefix was searched for:
	Prefix    string
	Holdings  []holdingRow
	MoreRows  int
	Addresses []holdingRow // Nodes' own addresses
	Blocks    []foundBlock
}

// foundBlock is the block of a ClusterCIDR that contains an address.
type foundBlock struct {
	ClusterCIDR string
	Range       netip.Prefix
	Block       netip.Prefix
	Free        bool
}

// search searches for an address, a prefix, the UID of a Node or a part of a Node's name.
func search(b *allocator.State, l ledger, text string) *found {
	f := &found{}
	prefix, err := clustercidr.ParseCIDR(text) // parsed like podCIDRs
	if addr, addrErr := netip.ParseAddr(text); addrErr == nil {
		addr = addr.Unmap().WithZone("")
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	if err == nil {
		f.searchPrefix(b, l, prefix.Masked())
		return f
	}
	exact := func(n nodeView) bool { return n.Name == text || string(n.UID) == text }
	if i := slices.IndexFunc(l.Nodes, exact); i >= 0 {
		f.Nodes = []nodeView{l.Nodes[i]} // so that node-1 does not also find node-10
		return f
	}
	for _, n := range l.Nodes {
		switch {
		case !strings.Contains(n.Name, text):
		case len(f.Nodes) == maxRows:
			f.More++
		default:
			f.Nodes = append(f.Nodes, n)
		}
	}
	return f
}

// searchPrefix finds the owners that hold addresses of a prefix, and the blocks that contain it.
func (f *found) searchPrefix(b *allocator.State, l ledger, prefix netip.Prefix) {
	f.Prefix = strings.TrimSuffix(prefix.String(), fmt.Sprintf("/%d", prefix.Addr().BitLen()))
	holdings := b.Holdings(prefix)
	for _, cc := range l.ClusterCIDRs {
		p, _ := b.Pool(cc.Name)
		holdings = append(holdings, exclusionsIn(p, prefix)...)
	}
	for _, h := range holdings {
		if len(f.Holdings) == maxRows {
			f.MoreRows++
			continue
		}
		f.Holdings = append(f.Holdings, rowOf(b, h))
	}
	for _, n := range l.Nodes {
		for _, a := range n.Addresses {
			if prefix.Overlaps(a) && len(f.Addresses) < maxRows {
				f.Addresses = append(f.Addresses, holdingRow{CIDR: a, Kind: "Node", Name: n.Name})
			}
		}
	}
	for _, cc := range l.ClusterCIDRs {
		p, _ := b.Pool(cc.Name)
		for _, r := range p.Ranges {
			if insideOf(prefix, r.Prefix) {
				block := netip.PrefixFrom(prefix.Addr(), min(r.BlockBits, prefix.Bits())).Masked()
				f.Blocks = append(f.Blocks, foundBlock{cc.Name, r.Prefix, block, len(b.Holdings(block)) == 0 && !p.Excluded.Overlaps(block)})
			}
		}
	}
}

// insideOf reports whether p lies in q.
func insideOf(p, q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }

// rangeView is a range and the part of it that is shown.
type rangeView struct {
	ipam.Range
	view netip.Prefix
}

func rangesOf(p *clustercidr.Pool) []rangeView {
	var views []rangeView
	for _, r := range p.Ranges {
		views = append(views, rangeView{r, r.Prefix})
	}
	return views
}

// picture shows a range, or a part of it, as cells in address order.
type picture struct {
	ClusterCIDR string
	View        netip.Prefix
	Range       netip.Prefix
	Up          string // the next wider part; empty if View is the whole range
	Cell        string // what one cell stands for
	Lines       []pictureLine
	Columns     int
}

type pictureLine struct {
	First netip.Addr
	Cells []cell
}

// cell is one or more blocks. What it shows is decided here, how it looks is decided in the template.
type cell struct {
	Class string
	Title string
	Find  string // what a click searches for
	In    string // what a click zooms into
	// For a cell of many blocks: how far each color reaches, in percent. The rest is free.
	Many                             bool
	Allocated, Reserved, Unavailable int
}

// pictureOf draws a part of one of p's ranges with at most 2^cellBits cells. Each cell is at least one block.
func pictureOf(b *allocator.State, p *clustercidr.Pool, v rangeView, cellBits int) picture {
	bits := min(v.view.Bits()+cellBits, v.BlockBits)
	n := 1 << (bits - v.view.Bits())
	pic := picture{ClusterCIDR: p.Name, View: v.view, Range: v.Prefix, Columns: min(n, columns)}
	if v.view != v.Prefix {
		pic.Up = netip.PrefixFrom(v.view.Addr(), max(v.view.Bits()-cellBits, v.Prefix.Bits())).Masked().String()
	}
	of := ipam.Range{Prefix: netip.PrefixFrom(v.view.Addr(), bits), BlockBits: v.BlockBits}
	pic.Cell = fmt.Sprintf("one block, a /%d", bits)
	if bits < v.BlockBits {
		pic.Cell = fmt.Sprintf("a /%d, which is %s blocks of /%d", bits, number(of.Blocks()), v.BlockBits)
	}
	for at := of.Prefix; len(pic.Lines) < n/pic.Columns; {
		line := pictureLine{First: at.Addr()}
		for range pic.Columns {
			line.Cells = append(line.Cells, cellOf(b, p, ipam.Range{Prefix: at, BlockBits: v.BlockBits}))
			at = following(at)
		}
		pic.Lines = append(pic.Lines, line)
	}
	return pic
}

// following returns the next prefix of the same length; the first one follows the last one.
func following(p netip.Prefix) netip.Prefix {
	a := p.Addr().AsSlice()
	if p.Bits() == 0 {
		return p
	}
	for i, carry := (p.Bits()-1)/8, 1<<(7-(p.Bits()-1)%8); i >= 0 && carry > 0; i-- {
		carry += int(a[i])
		a[i], carry = byte(carry), carry>>8
	}
	addr, _ := netip.AddrFromSlice(a)
	return netip.PrefixFrom(addr, p.Bits())
}

// holdingsByName returns the holdings in a prefix. Holdings of the same prefix are sorted by their owners' names, not UIDs.
func holdingsByName(b *allocator.State, p netip.Prefix) []ipam.Holding {
	holdings := b.Holdings(p)
	for rest := holdings; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(h ipam.Holding) bool { return h.Prefix != rest[0].Prefix })
		if n < 0 {
			n = len(rest)
		}
		slices.SortFunc(rest[:n], func(x, y ipam.Holding) int { return strings.Compare(b.NameOf(x.Owner), b.NameOf(y.Owner)) })
		rest = rest[n:]
	}
	return holdings
}

// cellOf returns the cell for one part of a range of p.
func cellOf(b *allocator.State, p *clustercidr.Pool, r ipam.Range) cell {
	holdings := append(holdingsByName(b, r.Prefix), exclusionsIn(p, r.Prefix)...)
	if len(holdings) == 0 {
		return cell{Class: "f", Title: r.Prefix.String() + ": free"}
	}
	names, allocated, reserved, inConflict := inside(b, r, holdings)
	who := strings.Join(names, ", ")
	c := cell{Find: r.Prefix.String()}
	if r.Prefix.Bits() == r.BlockBits {
		switch {
		case reserved > 0:
			c.Class, c.Title = "r", "reserved for "+who
		case allocated > 0:
			c.Class, c.Title = "a", who
		default:
			c.Class, c.Title = "u", "unavailable: "+who
		}
	} else {
		total, free := r.Blocks(), b.Free(p, r)
		unavailable := b.Taken(p, r, total, free) - allocated
		c.Class, c.Find, c.In, c.Many = "m", "", r.Prefix.String(), true
		c.Title = fmt.Sprintf("%s allocated, %s unavailable, %s free: %s", number(allocated), number(unavailable), number(free), who)
		widths := shares(allocated-reserved, reserved, unavailable, free)
		c.Allocated, c.Reserved, c.Unavailable = widths[0], widths[0]+widths[1], widths[0]+widths[1]+widths[2]
	}
	if inConflict {
		c.Class += " x"
		c.Title = "CONFLICT " + c.Title
	}
	c.Title = r.Prefix.String() + ": " + c.Title
	return c
}

// inside returns, for the holdings in a part of a range, the owners' names, how many blocks are allocated, how many of these are only
// reserved, and whether any two holdings conflict.
func inside(b *allocator.State, r ipam.Range, holdings []ipam.Holding) (names []string, allocated, reserved uint64, inConflict bool) {
	var counted netip.Prefix // the last counted block: two Nodes can hold the same one
	for outer, h := range ipam.Nested(slices.Values(holdings)) {
		inConflict = inConflict || ipam.Conflicting(outer, h)
	}
	for _, h := range holdings {
		if h.Owner.Kind == ipam.Node && h.Prefix.Bits() == r.BlockBits && h.Prefix != counted {
			allocated++
			counted = h.Prefix
			if !isShown(b, h.Owner) {
				reserved++
			}
		}
		if len(names) <= maxNamedInCell {
			names = append(names, nameIn(b, h, r))
		}
	}
	if more := len(holdings) - maxNamedInCell; more > 0 {
		names = append(names[:maxNamedInCell], fmt.Sprintf("%d more", more))
	}
	return names, allocated, reserved, inConflict
}

// maxNamedInCell limits how many owners the title of a cell names.
const maxNamedInCell = 3

// nameIn formats an owner, with its prefix if that differs from the cell's.
func nameIn(b *allocator.State, h ipam.Holding, r ipam.Range) string {
	if h.Prefix == r.Prefix || h.Owner.Kind == ipam.Node && h.Prefix.Bits() == r.BlockBits {
		return b.NameOf(h.Owner)
	}
	return fmt.Sprintf("%s (%v)", b.NameOf(h.Owner), h.Prefix)
}

// minShare is the minimum width, in percent, of a part that is not empty.
const minShare = 8

// shares returns the parts in percent, which add up to 100. A part that is not 0 gets at least minShare, taken from the largest part.
func shares(parts ...uint64) []int {
	sum, largest, left := 0.0, 0, 100
	for i, p := range parts {
		sum += float64(p)
		if p > parts[largest] {
			largest = i
		}
	}
	widths := make([]int, len(parts))
	for i, p := range parts {
		if p > 0 && i != largest {
			widths[i] = max(minShare, int(math.Round(100*float64(p)/sum)))
			left -= widths[i]
		}
	}
	widths[largest] = left
	return widths
}

// number formats an integer of any type with commas between thousands. At the maximum of its type it says that there may be more.
func number(n any) string {
	s := fmt.Sprint(n)
	if s == fmt.Sprint(math.MaxInt64) || s == fmt.Sprint(uint64(math.MaxUint64)) {
		return "≥ 2⁶³"
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
