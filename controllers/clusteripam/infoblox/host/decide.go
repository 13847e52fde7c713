package host

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Subnet is a network that a pool allocates from.
type Subnet struct {
	Prefix  netip.Prefix
	Gateway netip.Addr // not valid if there is none
}

// Claim is what is known about a claim that needs an address.
type Claim struct {
	UID             types.UID
	Namespace, Name string
	// Wanted is a host record as it would be created, without comment and addresses.
	Wanted  Record
	Subnets []Subnet
	// MayShare: other claims may have addresses in the same record.
	MayShare bool
	// Had is what the claim was told that it has. Its address is not valid if the claim was told nothing.
	Had Released
	// Says is the UID that the host record has which the claim says it had before it was moved to this cluster, or put back.
	Says types.UID
}

// World is what is known about other claims.
type World interface {
	// Known returns what is known about a claim; nil if this cluster does not know it.
	Known(claim types.UID) *Known
	// HeldByAnother reports whether an IPAddress of another claim has an address in this network view.
	HeldByAnother(claim types.UID, address netip.Addr) bool
	// HeldFor returns the namespaces in which an IPAddress that was made for a claim has an address, or a claim was told so, also if the claim is gone, or has
	// another UID by now.
	HeldFor(claim types.UID, address netip.Addr) (namespaces []string)
	// Expected reports whether a claim says that an address was made for this one, and was not told so here: it is being moved, and its IPAddress may come.
	Expected(claim types.UID, address netip.Addr) bool
}

// Known is a claim of this cluster.
type Known struct {
	Namespace string
	// Address is that of its IPAddress; not valid if it has none.
	Address netip.Addr
	// Told is what the claim was told if somebody has taken its IPAddress away. Its machine uses it.
	Told netip.Addr
	// Leaves: the claim gives up its record. If it has no IPAddress, it gets none there any more.
	Leaves bool
}

// Verb is what to do next.
type Verb int

const (
	// Create the record.
	Create Verb = iota + 1
	// Update the record.
	Update
	// Use the address: it belongs to the claim.
	Use
	// Taken: the record belongs to somebody else.
	Taken
	// Wait until the other claims in the record have their addresses.
	Wait
	// Ambiguous: it is not known which address of the record belongs to the claim.
	Ambiguous
	// Lost: no record and subnet has the address that the claim was told.
	Lost
)

func (v Verb) String() string {
	return [...]string{"", "Create", "Update", "Use", "Taken", "Wait", "Ambiguous", "Lost"}[v]
}

// Step is what to do next about a claim.
type Step struct {
	Verb Verb
	// Record is what to write, or what stands in the way.
	Record Record
	// Next: the write asks for one more address, of the subnet that the caller tries.
	Next bool
	// Address, and its subnet: what to use, and, of an Update without Next, what stays.
	Address netip.Addr
	Subnet  Subnet
	// Useless are addresses that Infoblox has given and that cannot be used: a gateway, or an address that another IPAddress has.
	Useless []netip.Addr
}

// Next decides what to do for a claim that has no IPAddress, from the records that Infoblox has under the name.
func Next(c Claim, found []Record, w World) Step {
	if c.Had.Address.IsValid() {
		return c.again(found, w)
	}
	ours, ok := recordOf(c.UID, found)
	switch {
	case ok:
		return c.within(ours, w)
	case len(found) == 0:
		r := c.Wanted
		r.Comment = Mark([]types.UID{c.UID}, c.Namespace+"/"+c.Name)
		return Step{Verb: Create, Record: r, Next: true}
	case len(found) > 1 || !c.MayShare:
		return Step{Verb: Taken, Record: found[0]}
	default:
		return c.join(found[0], w)
	}
}

// again decides about a claim whose IPAddress was taken away by force. Its machine uses the address, so the claim gets this one or none.
func (c Claim) again(found []Record, w World) Step {
	if w.Known(c.Had.Was) != nil { // The claim may be a copy of another one.
		c.Had.Was = c.UID
	}
	r := slices.IndexFunc(found, c.Had.Reserves)
	s := slices.IndexFunc(c.Subnets, func(s Subnet) bool { return s.Prefix.Contains(c.Had.Address) })
	if r < 0 || s < 0 {
		return Step{Verb: Lost}
	}
	return Step{Verb: Use, Record: found[r], Address: c.Had.Address, Subnet: c.Subnets[s]}
}

// recordOf returns the record of a claim. There can be several only if Infoblox lets records have the same name and a create was sent again.
func recordOf(claim types.UID, found []Record) (r Record, ok bool) {
	for _, f := range found {
		if f.Of(claim) && (!ok || f.Ref < r.Ref) {
			r, ok = f, true
		}
	}
	return r, ok
}

// join decides what to do about a record of the right name that is not the claim's yet.
func (c Claim) join(r Record, w World) Step {
	others := r.Claims()
	if len(others) == 0 || len(others) >= maxClaims || r.Of(c.Says) && w.Known(c.Says) == nil { // Its own former record: its IPAddress may come, and it would have two addresses there.
		return Step{Verb: Taken, Record: r}
	}
	wait := false
	for _, other := range others {
		known := w.Known(other)
		switch {
		case known == nil && slices.ContainsFunc(r.Addresses(), func(a netip.Addr) bool { return slices.Contains(w.HeldFor(other, a), c.Namespace) }):
			continue // Its claim was moved, and has another UID, or is gone.
		case known == nil, known.Namespace != c.Namespace: // Machines of two namespaces are two machines.
			return Step{Verb: Taken, Record: r}
		}
		wait = wait || !known.Address.IsValid() && !slices.Contains(r.Addresses(), known.Told)
	}
	if wait {
		return Step{Verb: Wait, Record: r}
	}
	r.Comment = Mark(append(others, c.UID), c.Namespace+"/"+c.Name)
	return Step{Verb: Update, Record: r, Next: true}
}

// within decides which address of its record a claim uses.
func (c Claim) within(r Record, w World) Step {
	var usable, useless []netip.Addr
	subnets := map[netip.Addr]Subnet{}
	for _, a := range r.ownedBy(w, c.UID) {
		i := slices.IndexFunc(c.Subnets, func(s Subnet) bool { return s.Prefix.Contains(a) })
		switch {
		case i < 0: // of a subnet that the pool no longer has
		case a == c.Subnets[i].Gateway || w.HeldByAnother(c.UID, a):
			useless = append(useless, a)
		default:
			usable, subnets[a] = append(usable, a), c.Subnets[i]
		}
	}
	switch {
	case len(usable) > 1:
		return Step{Verb: Ambiguous, Record: r}
	case len(usable) == 0:
		// The useless ones stay until there is another one: Infoblox would give them again.
		return Step{Verb: Update, Record: r, Next: true, Useless: useless}
	case len(useless) > 0:
		for _, a := range useless {
			r = r.Without(a)
		}
		return Step{Verb: Update, Record: r, Address: usable[0], Subnet: subnets[usable[0]], Useless: useless}
	default:
		return Step{Verb: Use, Record: r, Address: usable[0], Subnet: subnets[usable[0]]}
	}
}

// ownedBy returns the addresses of a claim's record that no other claim in it has, or was told, and no IPAddress that has lost its claim. was are UIDs that
// the claim had before.
func (r Record) ownedBy(w World, claim types.UID, was ...types.UID) []netip.Addr {
	held := map[netip.Addr]bool{}
	var gone []types.UID
	for _, other := range r.Claims() {
		switch known := w.Known(other); {
		case other == claim:
		case known != nil:
			held[known.Address], held[known.Told] = true, true
		case !slices.Contains(was, other):
			gone = append(gone, other)
		}
	}
	return slices.DeleteFunc(r.Addresses(), func(a netip.Addr) bool {
		return held[a] || slices.ContainsFunc(gone, func(other types.UID) bool { return len(w.HeldFor(other, a)) > 0 || w.Expected(other, a) })
	})
}

// Removal is one write that gives up what a claim has in a record: what stays of the record, or nothing if it is to be deleted.
type Removal struct {
	Record Record
	Delete bool
}

// Released is a claim that gives up its address.
type Released struct {
	// UID is the claim's, and Was the one that it had when its IPAddress was created: in a cluster to which it was moved it got another one.
	UID, Was types.UID
	// Address is that of the claim's IPAddress; not valid if there is none.
	Address netip.Addr
	// Unmarked: another program has created the IPAddress, and it does not mark host records.
	Unmarked bool
}

// Reserves reports whether a host record is that of the claim, and has the address of its IPAddress.
func (c Released) Reserves(r Record) bool {
	own := r.Of(c.UID) || r.Of(c.Was) || c.Unmarked && len(r.Claims()) == 0
	return own && slices.Contains(r.Addresses(), c.Address)
}

// has reports whether a claim has a host record.
func (c Released) has(r Record, w World) bool {
	claims := r.Claims()
	switch {
	case slices.Contains(claims, c.UID):
		return true
	case !slices.Contains(r.Addresses(), c.Address), w.Known(c.Was) != nil: // That one has it.
		return false
	case len(claims) == 0:
		return c.Unmarked
	default:
		return slices.Contains(claims, c.Was)
	}
}

// givesUp returns which addresses of its record a claim gives up. unknown is true if another claim in it does not have its IPAddress yet, and no address of
// the record is the one that it was told.
func (c Released) givesUp(r Record, w World) (gone []netip.Addr, unknown bool) {
	owned := r.ownedBy(w, c.UID, c.Was)
	switch {
	case slices.Contains(owned, c.Address):
		return []netip.Addr{c.Address}, false
	case slices.Contains(r.Addresses(), c.Address): // Another claim has it, too: somebody has edited one of the two IPAddresses, and nobody knows which.
		return nil, false
	}
	gone = owned // No IPAddress shows what was allocated here.
	for _, other := range r.Claims() {
		switch known := w.Known(other); {
		case other == c.UID || known == nil || known.Address.IsValid() || slices.Contains(r.Addresses(), known.Told):
		case known.Leaves:
			gone = nil // The last claim gives up all addresses.
		default:
			unknown = true
		}
	}
	return gone, unknown
}

// Release returns the writes that give up what a claim has in the records that Infoblox has under its name. wait is true if another claim in a
// record does not have its IPAddress yet, so that it is not known which address is whose.
func Release(c Released, found []Record, w World) (removals []Removal, wait bool) {
	for _, r := range found {
		if !c.has(r, w) {
			continue
		}
		gone, unknown := c.givesUp(r, w)
		wait = wait || unknown
		rest := r
		for _, a := range gone {
			rest = rest.Without(a)
		}
		rest.Comment = ""
		if others := slices.DeleteFunc(r.Claims(), func(other types.UID) bool { return other == c.UID || other == c.Was && w.Known(other) == nil }); len(others) > 0 {
			rest.Comment = Mark(others, "")
		}
		removals = append(removals, Removal{Record: rest, Delete: len(rest.IPv4)+len(rest.IPv6) == 0})
	}
	slices.SortFunc(removals, func(a, b Removal) int { return cmp.Compare(a.Record.Ref, b.Record.Ref) })
	return removals, wait
}
