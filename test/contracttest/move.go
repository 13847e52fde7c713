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

// Move moves objects to another server as clusterctl does: an object after its owners, and back to front it deletes them in the source. kinds are the order of those
// without owners. What has an owner that is not moved stays, and so does, as a copy, what is cluster-scoped or belongs to that.
// between is called after each step, with what happens next; it may be nil.
func Move(from, to *Server, kinds []*runner.Kind, which func(*runner.Kind, *unstructured.Unstructured) bool, between func()) {
	if between == nil {
		between = func() {}
	}
	pauseClusters(from, which, true)
	between()
	all, global, became := sequence(from, kinds, which), map[types.UID]bool{}, map[types.UID]types.UID{}
	for _, m := range all {
		global[m.object.GetUID()] = m.object.GetNamespace() == "" || slices.ContainsFunc(m.object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return global[r.UID] })
		if !Restore(to, m.kind, m.object, became) && !global[m.object.GetUID()] {
			update(to, m.kind, m.object, became)
		}
		between()
	}
	for _, m := range slices.Backward(all) {
		if global[m.object.GetUID()] {
			continue
		}
		of := types.NamespacedName{Namespace: m.object.GetNamespace(), Name: m.object.GetName()}
		from.Annotate(m.kind, of, map[string]string{deleteForMove: ""})
		between()
		_ = from.Delete(m.kind, of, "")
		between()
		from.Strip(m.kind, of)
		between()
	}
	pauseClusters(to, which, nil)
}

// moving is an object as it is in the source.
type moving struct {
	kind   *runner.Kind
	object *unstructured.Unstructured
}

// sequence returns what is moved: every object after all its owners.
func sequence(from *Server, kinds []*runner.Kind, which func(*runner.Kind, *unstructured.Unstructured) bool) (all []moving) {
	placed := map[types.UID]bool{}
	for {
		before := len(all)
		for _, kind := range kinds {
			for _, o := range from.List(kind) {
				waits := slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return !placed[r.UID] })
				if !placed[o.GetUID()] && !waits && which(kind, o) {
					all = append(all, moving{kind, o})
				}
			}
		}
		for _, m := range all[before:] {
			placed[m.object.GetUID()] = true
		}
		if len(all) == before {
			return all
		}
	}
}

// update makes an object that exists what clusterctl has copied.
func update(to *Server, kind *runner.Kind, o *unstructured.Unstructured, became map[types.UID]types.UID) {
	of := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	to.Annotate(kind, of, o.GetAnnotations())
	_, _ = to.Edit(kind, of, false, map[string]any{"spec": o.Object["spec"], "metadata": map[string]any{
		"labels": o.GetLabels(), "finalizers": o.GetFinalizers(), "ownerReferences": owners(o, became)}})
}

// owners returns the owners of an object of another server that were copied, too.
func owners(o *unstructured.Unstructured, became map[types.UID]types.UID) (all []metav1.OwnerReference) {
	for _, r := range o.GetOwnerReferences() {
		if now, ok := became[r.UID]; ok {
			r.UID = now
			all = append(all, r)
		}
	}
	return all
}

// Restore creates an object of another server, or of another time, as it is, without its status. became has the UIDs that owners have now, and gets this one. If there is
// an object of this name, that stays, and created is false.
func Restore(to *Server, kind *runner.Kind, o *unstructured.Unstructured, became map[types.UID]types.UID) (created bool) {
	uid := o.GetUID()
	o = o.DeepCopy()
	o.SetOwnerReferences(owners(o, became))
	o.SetResourceVersion("")
	is, err := to.Create(kind, o.Object)
	if err != nil {
		is = to.Get(kind, o.GetNamespace(), o.GetName())
	}
	if is != nil {
		became[uid] = is.GetUID()
	}
	return err == nil
}

func pauseClusters(s *Server, which func(*runner.Kind, *unstructured.Unstructured) bool, paused any) {
	for _, o := range s.List(runner.Clusters) {
		if which(runner.Clusters, o) {
			_, _ = s.Edit(runner.Clusters, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, false, map[string]any{"spec": map[string]any{"paused": paused}})
		}
	}
}
