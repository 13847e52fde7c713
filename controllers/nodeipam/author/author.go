// Package author tells who wrote a Node's podCIDRs: this process, an earlier leader, or another allocator. The PATCH that writes podCIDRs adds
// the name of the process that sends it.
package author

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Of returns the name of the process that wrote the Node's podCIDRs; empty if it left none.
func Of(node *v1.Node) string { return node.Annotations[networkingv1.AnnotationLeaseHolder] }

// Change is a transition between two states of a Node that another process caused.
type Change struct {
	Holder   string // the name of that process, if it left one
	Replaced bool   // it replaced the name self
}

// Other returns the transition between two states of a Node, the second of which shows podCIDRs, if another process than self caused it. sent
// is whether self has sent podCIDRs for the Node.
func Other(was, node *v1.Node, self string, sent func() bool) (by Change, other bool) {
	wrote := func(n *v1.Node) bool { return Of(n) == self }
	by = Change{Holder: Of(node)}
	// Two processes that choose alike write the same podCIDRs, and the API server refuses neither. If this process was the later one, the
	// Node had podCIDRs before it had a name, and the state may have taken them for this process's own.
	by.Replaced = wrote(was) && by.Holder != "" && !wrote(node)
	named := wrote(node) && clustercidr.ShowsPodCIDRs(was) && Of(was) == ""
	switch {
	case named:
		by.Holder = ""
		return by, true
	case wrote(node) && wrote(was) && !clustercidr.ShowsPodCIDRs(was):
		by.Holder = ""
		return by, !sent()
	default:
		return by, !wrote(node) && (!clustercidr.ShowsPodCIDRs(was) || by.Replaced)
	}
}

// Message says that another process wrote a Node's podCIDRs, and what to do. elected is whether there is leader election, by whose Lease the API
// server can tell the two apart.
func (by Change) Message(node *v1.Node, elected bool) string {
	writer := "It did not say who it is"
	if by.Holder != "" {
		writer = fmt.Sprintf("It is %q", text.Cut(by.Holder, text.MaxValue))
	}
	// Do not suggest --allocate-node-cidrs=false: on a kube-controller-manager that contains this controller, it would remove the range of
	// its flags.
	message := fmt.Sprintf("podCIDRs %s were written by another process than this controller. %s. Only one allocator may be on: turn the other one off (a stock kube-controller-manager: "+
		"add -node-ipam-controller to its --controllers; one of two processes without leader election: stop it)", text.Cut(fmt.Sprint(node.Spec.PodCIDRs), text.MaxListed), writer)
	if elected {
		message += ", or let the API server keep it out (manifests/fencing)"
	}
	return message + "."
}

// earlierLasts is for how long after the start a write of an earlier leader can arrive. The fence rules that out; where it fails, the bound
// is the API server's --request-timeout, which has the same default.
const earlierLasts = time.Minute

// Earlier is what the start found out about earlier leaders. A delayed write of theirs is no sign of a second allocator. It can only
// affect a Node that was pending when this process read all Nodes. The zero value knows of no earlier leader.
type Earlier struct {
	until   time.Time // when none of their writes can arrive any more
	holders map[string]bool
	pending map[types.UID]bool
}

// FindEarlier returns what nodes, which are all Nodes at the start, reveal about earlier leaders. last is the holder of the Lease before this
// process; empty if unknown.
func FindEarlier(nodes []*v1.Node, last string, now time.Time) Earlier {
	e := Earlier{until: now.Add(earlierLasts), holders: map[string]bool{last: true}, pending: map[types.UID]bool{}}
	for _, node := range nodes {
		if clustercidr.ShowsPodCIDRs(node) {
			e.holders[Of(node)] = true
		} else {
			e.pending[node.UID] = true
		}
	}
	delete(e.holders, "") // no name could be any process
	return e
}

// Wrote reports whether a Node's podCIDRs may have been written by an earlier leader.
func (e Earlier) Wrote(node *v1.Node, now time.Time) bool {
	return e.holders[Of(node)] && e.pending[node.UID] && now.Before(e.until)
}
