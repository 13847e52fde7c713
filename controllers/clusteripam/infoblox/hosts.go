package infoblox

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
)

// What is done with host records is decided here, from what Infoblox has and what is known about other claims. Nothing here makes a request.

const (
	mark       = "Kubernetes IPAddressClaim "
	maxComment = 256
	// maxClaims is how many claims can have addresses in one host record: their tokens have to fit in the comment.
	maxClaims = 6
)

var marked = regexp.MustCompile(`^` + mark + `([0-9a-f-]{36}(?:,[0-9a-f-]{36})*)(?: |$)`)

// comment returns the comment of a host record in which the claims with these tokens have addresses. It tells a record of a claim from one that only has
// the same name. of is for people.
func comment(tokens []types.UID, of string) string {
	var all []string
	for _, t := range tokens {
		all = append(all, string(t))
	}
	text := mark + strings.Join(all, ",")
	if rest := maxComment - len(text) - len(" ()"); of != "" && rest > 0 {
		text += " (" + of[:min(rest, len(of))] + ")"
	}
	return text
}

// tokensOf returns the tokens of the claims that have addresses in a host record, according to its comment.
func tokensOf(r wapi.Record) (tokens []types.UID) {
	if m := marked.FindStringSubmatch(r.Comment); m != nil {
		for t := range strings.SplitSeq(m[1], ",") {
			tokens = append(tokens, types.UID(t))
		}
	}
	return tokens
}

// subnet is a network that a pool allocates from.
type subnet struct {
	prefix  netip.Prefix
	gateway netip.Addr // not valid if there is none
}

// subnetOf returns the subnet of an address.
func subnetOf(all []subnet, a netip.Addr) (of subnet, ok bool) {
	i := slices.IndexFunc(all, func(s subnet) bool { return s.prefix.Contains(a) })
	if i < 0 {
		return of, false
	}
	return all[i], true
}

// owner is a claim, as far as its host record is concerned.
type owner struct {
	token           types.UID
	namespace, name string
	// says is the address that the claim says it has, or that its IPAddress has; not valid if there is none.
	says netip.Addr
	// shares: other claims of the namespace may have addresses in the same record.
	shares bool
	// unmarked: another program has allocated the address, and that does not mark host records.
	unmarked bool
	// fresh: an address that nobody else in the record has was given by Infoblox just now. Otherwise a machine may use it, whatever others say: a backup may be older.
	fresh bool
}

// others is what is known about the other claims of the cluster.
type others interface {
	// claim returns the namespace of the claim with a token, and the address that it or its IPAddress says.
	claim(token types.UID) (namespace string, has netip.Addr, known bool)
	// held reports whether another claim or IPAddress says an address of this network view.
	held(address netip.Addr) bool
}

// verb is what to do next for a claim without an IPAddress.
type verb string

const (
	create  verb = "create"  // the record, with the next free address
	update  verb = "update"  // the record; if no address is named, with one more
	use     verb = "use"     // the address: it is the claim's
	taken   verb = "taken"   // the record belongs to somebody else
	wait    verb = "wait"    // until the other claims in the record have their addresses
	unclear verb = "unclear" // which address of the record is the claim's
	lost    verb = "lost"    // the record does not have the address that the claim says
)

// step is what to do next about a claim.
type step struct {
	verb   verb
	record wapi.Record // what to write, or what stands in the way
	// address, and its subnet, are what to use, and in an update what stays.
	address netip.Addr
	subnet  subnet
}

// next decides what to do for a claim that has no IPAddress, from the records that Infoblox has under the name. wanted is the record as it would be
// created, without comment and addresses.
func (o owner) next(wanted wapi.Record, subnets []subnet, found []wapi.Record, w others) step {
	own := slices.IndexFunc(found, func(r wapi.Record) bool { return slices.Contains(tokensOf(r), o.token) })
	switch {
	case o.says.IsValid(): // It may have been told. It gets this address or none.
		reserved, _ := o.reserved(found, w)
		if in, ok := subnetOf(subnets, o.says); ok && reserved {
			return step{verb: use, address: o.says, subnet: in}
		}
		return step{verb: lost}
	case own >= 0:
		return o.within(found[own], subnets, w)
	case len(found) == 0:
		wanted.Comment = comment([]types.UID{o.token}, o.namespace+"/"+o.name)
		return step{verb: create, record: wanted}
	case len(found) > 1:
		return step{verb: taken, record: found[0]}
	default:
		return o.join(found[0], w)
	}
}

// join decides about a record of the right name that is not the claim's. One claim without an address in a record at a time, and no address that nobody is
// known to have: only so it is known whose the next one is. A claim of another program that is not adopted yet has one of these.
func (o owner) join(r wapi.Record, w others) step {
	tokens := tokensOf(r)
	if len(tokens) == 0 || len(tokens) >= maxClaims || !o.shares || !o.mayShare(r, w) {
		return step{verb: taken, record: r}
	}
	if rest, open := o.rest(r, w); open || len(rest) > 0 {
		return step{verb: wait, record: r}
	}
	r.Comment = comment(append(tokens, o.token), o.namespace+"/"+o.name)
	return step{verb: update, record: r}
}

// mayShare reports whether all other claims in a record are of the claim's namespace. Machines of two namespaces are two machines.
func (o owner) mayShare(r wapi.Record, w others) bool {
	return !slices.ContainsFunc(tokensOf(r), func(t types.UID) bool {
		namespace, _, known := w.claim(t)
		return t != o.token && (!known || namespace != o.namespace)
	})
}

// rest returns the addresses of a record that no other claim in it has. open: another one has none yet, so nobody knows whose these are.
func (o owner) rest(r wapi.Record, w others) (rest []netip.Addr, open bool) {
	rest = r.Addresses()
	for _, t := range tokensOf(r) {
		if _, has, _ := w.claim(t); t != o.token {
			rest = slices.DeleteFunc(rest, func(a netip.Addr) bool { return a == has })
			open = open || !has.IsValid()
		}
	}
	return rest, open
}

// within decides which address of its record a claim uses that says none: the one that nobody else has. It removes none that a machine may use.
func (o owner) within(r wapi.Record, subnets []subnet, w others) step {
	rest, open := o.rest(r, w)
	if open {
		return step{verb: wait, record: r}
	}
	s := step{verb: use, record: r}
	var useless []netip.Addr
	for _, a := range rest {
		switch in, ok := subnetOf(subnets, a); {
		case a == in.gateway, w.held(a) && o.fresh:
			useless = append(useless, a)
		case s.address.IsValid(), w.held(a), !ok: // The pool may have lost the subnet meanwhile.
			return step{verb: unclear, record: r}
		default:
			s.address, s.subnet = a, in
		}
	}
	if len(useless) > 0 || !s.address.IsValid() {
		s.verb, s.record = update, r.Without(useless...)
	}
	return s
}

// reserved reports whether one of these records reserves the address that the claim says. adopt is a record that does after its comment is written: that
// of another program, which does not mark records.
func (o owner) reserved(found []wapi.Record, w others) (ok bool, adopt *wapi.Record) {
	if w.held(o.says) {
		return false, nil
	}
	for _, r := range found {
		tokens := tokensOf(r)
		switch {
		case !slices.Contains(r.Addresses(), o.says):
		case slices.Contains(tokens, o.token):
			return true, nil
		case o.unmarked && len(tokens) < maxClaims && o.mayShare(r, w):
			r.Comment = comment(append(tokens, o.token), o.namespace+"/"+o.name)
			adopt = &r
		}
	}
	return false, adopt
}

// release returns what stays of the records under the claim's name without what the claim has in them, for one write each: one without addresses goes. left are
// addresses that stay there and of which nobody knows who uses them. known is false if it is not known which address is the claim's.
func (o owner) release(found []wapi.Record, w others) (stays []wapi.Record, left []netip.Addr, known bool) {
	for _, r := range found {
		tokens := tokensOf(r)
		if !slices.Contains(tokens, o.token) {
			continue
		}
		own, open := o.rest(r, w)
		if o.says.IsValid() {
			own, open = slices.DeleteFunc(own, func(a netip.Addr) bool { return a != o.says }), false
		}
		if open || len(own) > 1 {
			return nil, nil, false
		}
		r = r.Without(own...)
		if tokens = slices.DeleteFunc(tokens, func(t types.UID) bool { return t == o.token }); len(tokens) > 0 {
			r.Comment = comment(tokens, "")
		} else {
			r.Comment, left = "", append(left, r.Addresses()...)
		}
		stays = append(stays, r)
	}
	return stays, left, true
}
