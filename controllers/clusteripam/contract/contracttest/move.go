package contracttest

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// deleteForMove is the annotation that clusterctl sets before it deletes. It replaces all others.
const deleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"

// Move moves objects to another server as clusterctl does. kinds are in the order in which they are created; in a source they are deleted in the opposite order.
// between is called after each step, with what happens next; it may be nil. Cluster-scoped objects stay in the source.
func Move(from, to *Server, kinds []*runner.Kind, which func(*runner.Kind, *unstructured.Unstructured) bool, between func()) {
	if between == nil {
		between = func() {}
	}
	pauseClusters(from, which, true)
	between()
	moved, uids := copyAll(from, to, kinds, which, between)
	for _, key := range slices.Backward(moved) {
		of := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
		if key.Namespace == "" {
			continue
		}
		from.Annotate(key.Kind, of, map[string]string{deleteForMove: ""})
		between()
		_ = from.Delete(key.Kind, of, uids[key])
		between()
		from.Strip(key.Kind, of)
		between()
	}
	pauseClusters(to, which, nil)
}

// copyAll copies objects as they are, without their status, and with the owners that were copied, too.
func copyAll(from, to *Server, kinds []*runner.Kind, which func(*runner.Kind, *unstructured.Unstructured) bool, between func()) (
	moved []runner.Key, uids map[runner.Key]types.UID,
) {
	uids, became := map[runner.Key]types.UID{}, map[types.UID]types.UID{}
	for _, kind := range kinds {
		for _, o := range from.List(kind) {
			if !which(kind, o) {
				continue
			}
			key, uid := runner.KeyOf(kind, o), o.GetUID()
			moved = append(moved, key)
			uids[key] = uid
			Restore(to, kind, o, became)
			between()
		}
	}
	return moved, uids
}

// Restore creates an object of another server, or of another time, as it is, without its status. became has the UIDs that owners have now, and gets this one. If there is
// an object of this name, that stays.
func Restore(to *Server, kind *runner.Kind, o *unstructured.Unstructured, became map[types.UID]types.UID) {
	uid := o.GetUID()
	o = o.DeepCopy()
	var owners []metav1.OwnerReference
	for _, r := range o.GetOwnerReferences() {
		if now, ok := became[r.UID]; ok {
			r.UID = now
			owners = append(owners, r)
		}
	}
	o.SetOwnerReferences(owners)
	o.SetResourceVersion("")
	created, err := to.Create(kind, o.Object)
	if err != nil {
		created = to.Get(kind, o.GetNamespace(), o.GetName())
	}
	if created != nil {
		became[uid] = created.GetUID()
	}
}

func pauseClusters(s *Server, which func(*runner.Kind, *unstructured.Unstructured) bool, paused any) {
	for _, o := range s.List(runner.Clusters) {
		if which(runner.Clusters, o) {
			_, _ = s.Edit(runner.Clusters, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, false, map[string]any{"spec": map[string]any{"paused": paused}})
		}
	}
}
