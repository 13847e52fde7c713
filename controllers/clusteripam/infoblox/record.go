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
	// had are the addresses that were under the record's name before this process wrote it. A machine may use them, whatever others say: a backup may be older.
	had []netip.Addr
}

// others is what is known about the other claims of the cluster.
type others interface {
	// claim returns the namespace of the claim with a token, and the address that it or its IPAddress says.
	claim(token types.UID) (namespace string, has netip.Addr, known bool)
	// held reports whether another claim or its IPAddress says an address in this network view, and here whether it does so in this very record.
	held(address netip.Addr) bool
	here(address netip.Addr) bool
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
	// useless addresses were given by Infoblox to this process, or are gateways. The write must not get them again.
	useless []netip.Addr
}

// next decides what to do for a claim that has no IPAddress, from the records that Infoblox has under the name. wanted is the record as it would be
// created, without comment and addresses.
func (o owner) next(wanted wapi.Record, subnets []subnet, found []wapi.Record, w others) step {
	ours, ok := o.recordIn(found)
	switch {
	case ok && o.says.IsValid():
		return o.again(ours, subnets, w)
	case ok:
		return o.within(ours, subnets, w)
	case o.says.IsValid():
		return step{verb: lost, record: wanted}
	case len(found) == 0:
		wanted.Comment = comment([]types.UID{o.token}, o.namespace+"/"+o.name)
		return step{verb: create, record: wanted}
	case len(found) > 1:
		return step{verb: taken, record: found[0]}
	default:
		return o.join(found[0], w)
	}
}

// recordIn returns the record of a claim.
func (o owner) recordIn(found []wapi.Record) (r wapi.Record, ok bool) {
	for _, f := range found {
		if slices.Contains(tokensOf(f), o.token) && (!ok || f.Ref < r.Ref) {
			r, ok = f, true
		}
	}
	return r, ok
}

// again decides about a claim that says its address, which it may have been told. It gets this one or none.
func (o owner) again(r wapi.Record, subnets []subnet, w others) step {
	i := slices.IndexFunc(subnets, func(s subnet) bool { return s.prefix.Contains(o.says) })
	if i < 0 || !slices.Contains(r.Addresses(), o.says) || w.held(o.says) {
		return step{verb: lost, record: r}
	}
	return step{verb: use, record: r, address: o.says, subnet: subnets[i]}
}

// join decides about a record of the right name that is not the claim's. One claim without an address in a record at a time: only so it is known whose
// the address is that nobody else has.
func (o owner) join(r wapi.Record, w others) step {
	tokens := tokensOf(r)
	if len(tokens) == 0 || len(tokens) >= maxClaims || !o.shares || !o.mayShare(r, w) {
		return step{verb: taken, record: r}
	}
	if _, open := o.shared(r, w); open {
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

// shared returns the addresses that the other claims in a record have. open: one of them has none yet, so nobody knows whose the rest is.
func (o owner) shared(r wapi.Record, w others) (has map[netip.Addr]bool, open bool) {
	has = map[netip.Addr]bool{}
	for _, t := range tokensOf(r) {
		if _, address, _ := w.claim(t); t != o.token {
			has[address] = true
			open = open || !address.IsValid()
		}
	}
	return has, open
}

// within decides which address of its record a claim uses that says none: the one that nobody else has. It removes none that a machine may use.
func (o owner) within(r wapi.Record, subnets []subnet, w others) step {
	has, open := o.shared(r, w)
	if open {
		return step{verb: wait, record: r}
	}
	s := step{verb: use, record: r}
	usable, unsure, here := 0, 0, 0
	for _, a := range slices.DeleteFunc(r.Addresses(), func(a netip.Addr) bool { return has[a] }) {
		i := slices.IndexFunc(subnets, func(s subnet) bool { return s.prefix.Contains(a) })
		switch {
		case i >= 0 && a == subnets[i].gateway, w.held(a) && !slices.Contains(o.had, a):
			s.useless = append(s.useless, a)
		case w.here(a):
			here++
		case w.held(a), i < 0: // or the pool has lost the subnet meanwhile
			unsure++
		default:
			usable++
			s.address, s.subnet = a, subnets[i]
		}
	}
	switch {
	case usable+unsure > 1, usable == 0 && unsure+here > 0:
		return step{verb: unclear, record: r}
	case usable == 0, len(s.useless) > 0:
		s.verb, s.record = update, r.Without(s.useless...)
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

// removal is one write that gives back what a claim has in a record: what stays of it, or nothing if it is to be deleted.
type removal struct {
	record wapi.Record
	delete bool
	// left: addresses stay of which nobody knows who uses them.
	left bool
}

// release returns the writes that give back what a claim has in the records that Infoblox has under its name. verb is wait or unclear if it is not known which
// address that is, otherwise empty. A record goes with its last address.
func (o owner) release(found []wapi.Record, w others) (removals []removal, why verb) {
	for _, r := range found {
		tokens := tokensOf(r)
		if !slices.Contains(tokens, o.token) {
			continue
		}
		has, open := o.shared(r, w)
		gone := slices.DeleteFunc(r.Addresses(), func(a netip.Addr) bool { return has[a] || w.here(a) })
		if o.says.IsValid() {
			gone, open = slices.DeleteFunc(gone, func(a netip.Addr) bool { return a != o.says || w.held(a) }), false
		}
		switch {
		case open:
			return nil, wait
		case len(gone) > 1:
			return nil, unclear
		}
		left := r.Without(gone...)
		left.Comment = ""
		if tokens = slices.DeleteFunc(tokens, func(t types.UID) bool { return t == o.token }); len(tokens) > 0 {
			left.Comment = comment(tokens, "")
		}
		n := len(left.Addresses())
		removals = append(removals, removal{record: left, delete: n == 0, left: n > 0 && len(tokens) == 0})
	}
	return removals, ""
}
