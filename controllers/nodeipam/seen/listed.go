package seen

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// A watch delivers events in the order in which the objects changed, so whatever has podCIDRs that an earlier event told of is in the state.
// A list does not: it replaces the cache at once, and handlers then hear of its Nodes in the order of names. Nodes that were put back from a
// backup with their podCIDRs while the watch was down could come after a new one. So what a list shows counts from when it was read: before
// the informer gets a list, its Nodes with podCIDRs that the state does not know are noted, and nothing is chosen until they are known.

// Listed are Nodes with podCIDRs in lists of which handlers have not heard yet. Not safe for concurrent use.
type Listed struct {
	reading map[string]types.UID // in a list that is not complete, and may never be
	unheard map[string]types.UID // in complete lists
	waiting map[string]waiter    // Nodes for which something may be chosen when none of these is left, and nothing is missed (Kinds)
}

// waiter is a Node that waits.
type waiter struct {
	uid     types.UID
	created time.Time
}

// NewListed returns Listed without any Node.
func NewListed() Listed {
	return Listed{map[string]types.UID{}, map[string]types.UID{}, map[string]waiter{}}
}

// Begins notes that a list begins. The one before may have failed.
func (l Listed) Begins() { clear(l.reading) }

// Has notes a Node of the list, which may have had an earlier one of its name.
func (l Listed) Has(node *v1.Node) {
	l.Lacks(node.Name)
	note(l.reading, node)
}

// Lacks notes that the list does not have a Node any more.
func (l Listed) Lacks(name string) {
	delete(l.reading, name)
}

// Ends notes that the list is complete: handlers will hear of all its changes.
func (l Listed) Ends() {
	maps.Copy(l.unheard, l.reading)
	clear(l.reading)
}

// Cached notes a Node that the cache shows, and of which handlers may not have heard.
func (l Listed) Cached(node *v1.Node) { note(l.unheard, node) }

func note(nodes map[string]types.UID, node *v1.Node) {
	if blocks, _ := clustercidr.PodCIDRsOf(node); len(blocks) > 0 {
		nodes[node.Name] = node.UID
	}
}

// Forget drops the Nodes that are known with podCIDRs.
func (l Listed) Forget(known func(name string, uid types.UID) bool) {
	maps.DeleteFunc(l.unheard, known)
}

// Heard drops a Node of which an event told, and reports whether it did: the state has what the cache shows of it, or it is gone. If the cache
// is ahead of the event, there will be another one. shown is the Node that was recorded in the state; nil if none was.
func (l Listed) Heard(name string, shown *v1.Node, before, now any) bool {
	uid, ok := l.unheard[name]
	if !ok {
		return false
	}
	if tombstone, ok := before.(cache.DeletedFinalStateUnknown); ok {
		before = tombstone.Obj
	}
	was, existed := before.(*v1.Node)
	is, exists := now.(*v1.Node)
	ended := existed && was.UID == uid && (!exists || is.UID != uid)
	if ended || shown != nil && shown.UID == uid {
		delete(l.unheard, name)
		return true
	}
	return false
}

// Complete reports whether handlers have heard of all of them.
func (l Listed) Complete() bool { return len(l.unheard) == 0 }

// Wait notes that a Node waits until something can be chosen for it, and reports whether that is new.
func (l Listed) Wait(node *v1.Node) (news bool) {
	news = l.waiting[node.Name].uid != node.UID
	l.waiting[node.Name] = waiter{node.UID, node.CreationTimestamp.Time}
	return news
}

// WaitsNoMore notes that a Node needs nothing.
func (l Listed) WaitsNoMore(name string) { delete(l.waiting, name) }

// Waits returns the UID of the Node of this name that waits; false if none does.
func (l Listed) Waits(name string) (types.UID, bool) {
	w, ok := l.waiting[name]
	return w.uid, ok
}

// Waiting yields the names of the Nodes that wait.
func (l Listed) Waiting() iter.Seq[string] { return maps.Keys(l.waiting) }

// Wake returns the names of the Nodes that waited, the oldest first. None waits any more. Where the API server ends watches again and again,
// because it is overloaded, all Nodes wait each time: in any other order the same ones would always come last.
func (l Listed) Wake() []string {
	defer clear(l.waiting)
	return slices.SortedFunc(maps.Keys(l.waiting), func(a, b string) int {
		return cmp.Or(l.waiting[a].created.Compare(l.waiting[b].created), strings.Compare(a, b))
	})
}

// FromList reports whether an informer learned of a change from a list: the last state of a deleted object is unknown, or the object of
// that name has another UID.
func FromList(before, now any) bool {
	if _, ok := before.(cache.DeletedFinalStateUnknown); ok {
		return true
	}
	was, ok := before.(*v1.Node)
	is, ok2 := now.(*v1.Node)
	return ok && ok2 && was.UID != is.UID
}
