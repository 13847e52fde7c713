package book

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
)

// The simulated API server. It does to requests what the real one does, and keeps every revision, so that a cache can lag behind it.

const (
	kindClaim   = v1beta2.KindIPAddressClaim
	kindAddress = v1beta2.KindIPAddress
	kindPool    = v1alpha2.KindInClusterIPPool
	kindGlobal  = v1alpha2.KindGlobalInClusterIPPool
	kindCluster = "Cluster"
)

// kinds are the watches, each with a cache of its own.
var kinds = []string{kindClaim, kindAddress, kindPool, kindGlobal, kindCluster}

// simCluster is a Cluster of Cluster API.
type simCluster struct {
	metav1.ObjectMeta
	Paused bool
}

// change is one revision. Stored objects are never changed, only replaced.
type change struct {
	key    Key
	object metav1.Object // nil: deleted
	before metav1.Object
}

type simServer struct {
	w       *world
	changes []change
	objects map[Key]metav1.Object
	uids    int
}

func (s *simServer) revision() int { return len(s.changes) }

// of returns the objects of a kind, by key in order.
func (s *simServer) of(kind string) (all []Key) {
	for key := range s.objects {
		if key.Kind == kind {
			all = append(all, key)
		}
	}
	slices.SortFunc(all, Compare)
	return all
}

func (s *simServer) claim(k Key) *v1beta2.IPAddressClaim {
	o, _ := s.objects[k].(*v1beta2.IPAddressClaim)
	return o
}

func (s *simServer) address(k Key) *v1beta2.IPAddress {
	o, _ := s.objects[k].(*v1beta2.IPAddress)
	return o
}

func (s *simServer) pool(k Key) *Pool {
	o, _ := s.objects[k].(*Pool)
	return o
}

// addressesOf returns the IPAddresses of a pool, in order.
func (s *simServer) addressesOf(pool Key) (all []*v1beta2.IPAddress) {
	for _, k := range s.of(kindAddress) {
		o := s.address(k)
		if of, ok := poolOf(o.Spec.PoolRef, o.Namespace); ok && of == pool {
			all = append(all, o)
		}
	}
	return all
}

func (s *simServer) create(k Key, o metav1.Object) {
	s.uids++
	o.SetName(k.Name)
	o.SetNamespace(k.Namespace)
	o.SetUID(types.UID(fmt.Sprintf("%s-%d", k.Name, s.uids)))
	o.SetCreationTimestamp(metav1.NewTime(s.w.now().Truncate(time.Second)))
	s.store(k, o)
}

// store makes o the next revision. An object under deletion whose last finalizer is gone is gone.
func (s *simServer) store(k Key, o metav1.Object) {
	before := s.objects[k]
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		delete(s.objects, k)
		s.changes = append(s.changes, change{k, nil, before})
		return
	}
	o.SetResourceVersion(strconv.Itoa(s.revision() + 1))
	s.objects[k] = o
	s.changes = append(s.changes, change{k, o, before})
}

func (s *simServer) delete(k Key) {
	if o := s.copy(k); o.GetDeletionTimestamp() == nil {
		now := metav1.NewTime(s.w.now().Truncate(time.Second))
		o.SetDeletionTimestamp(&now)
		s.store(k, o)
	}
}

// copy returns a copy of a stored object.
func (s *simServer) copy(k Key) metav1.Object {
	switch o := s.objects[k].(type) {
	case *v1beta2.IPAddressClaim:
		return o.DeepCopy()
	case *v1beta2.IPAddress:
		return o.DeepCopy()
	case *Pool:
		return &Pool{Kind: o.Kind, ObjectMeta: *o.DeepCopy(), Spec: *o.Spec.DeepCopy(), Status: *o.Status.DeepCopy()}
	case *simCluster:
		return &simCluster{*o.DeepCopy(), o.Paused}
	}
	panic(fmt.Sprint("there is no ", k))
}

// edit changes a stored object as a user does.
func (s *simServer) edit(k Key, f func(metav1.Object)) {
	o := s.copy(k)
	f(o)
	s.store(k, o)
}

// wire has the JSON of an object that patches are about. Pools of both kinds have no TypeMeta here.
type wire struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   json.RawMessage   `json:"status"`
}

// serve carries a request out. The answer has a copy of what is stored.
func (s *simServer) serve(r *Request) Answer {
	old := s.objects[r.Key]
	switch {
	case r.Verb == Create && old != nil:
		return Answer{Result: Exists}
	case r.Verb == Create:
		o := r.Object.DeepCopy()
		s.w.creates(r, o)
		s.create(r.Key, o)
		return Answer{Address: o}
	case old == nil:
		return Answer{Result: NotFound}
	case r.Verb == Read:
		return Answer{Address: s.address(r.Key)}
	case old.GetUID() != r.UID:
		return Answer{Result: Conflicted}
	case r.Verb == Delete:
		s.w.deletes(r.Key)
		s.delete(r.Key)
		return Answer{}
	}
	o := s.copy(r.Key)
	var now wire
	before := map[string]any{"metadata": old}
	if c, ok := old.(*v1beta2.IPAddressClaim); ok {
		before = map[string]any{"metadata": c.ObjectMeta, "status": c.Status}
	} else if a, ok := old.(*v1beta2.IPAddress); ok {
		before = map[string]any{"metadata": a.ObjectMeta}
	} else if p, ok := old.(*Pool); ok {
		before = map[string]any{"metadata": p.ObjectMeta, "status": p.Status}
	}
	after, err := jsonpatch.MergePatch(marshal(before), r.Body)
	if err == nil {
		err = json.Unmarshal(after, &now)
	}
	switch {
	case err != nil:
		panic(err)
	case now.Metadata.ResourceVersion != old.GetResourceVersion():
		return Answer{Result: Conflicted}
	case old.GetDeletionTimestamp() != nil && slices.ContainsFunc(now.Metadata.Finalizers, func(f string) bool { return !slices.Contains(old.GetFinalizers(), f) }):
		return Answer{Result: Rejected, Why: "no new finalizers can be added if the object is being deleted"}
	}
	if r.Verb == Patch {
		s.w.finalizes(r.Key, old.GetFinalizers(), now.Metadata.Finalizers)
		o.SetFinalizers(now.Metadata.Finalizers)
		o.SetOwnerReferences(now.Metadata.OwnerReferences)
		o.SetLabels(now.Metadata.Labels)
	} else {
		switch o := o.(type) {
		case *v1beta2.IPAddressClaim:
			o.Status = v1beta2.IPAddressClaimStatus{}
			err = json.Unmarshal(now.Status, &o.Status)
		case *Pool:
			o.Status = v1alpha2.InClusterIPPoolStatus{}
			if err = json.Unmarshal(now.Status, &o.Status); s.w.prunes {
				o.Status.Conditions = nil
			}
		}
		if err != nil {
			panic(err)
		}
	}
	s.store(r.Key, o)
	switch o := o.(type) {
	case *v1beta2.IPAddressClaim:
		return Answer{Claim: o}
	case *v1beta2.IPAddress:
		return Answer{Address: o}
	default:
		return Answer{Pool: o.(*Pool)}
	}
}

// collectGarbage: what the real garbage collector does.
func (s *simServer) collectGarbage() (did bool) {
	for _, k := range s.of(kindAddress) {
		o := s.address(k)
		if o.DeletionTimestamp != nil || len(o.OwnerReferences) == 0 {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(o.OwnerReferences), func(r metav1.OwnerReference) bool {
			var owner metav1.Object
			for _, key := range []Key{{r.Kind, o.Namespace, r.Name}, {r.Kind, "", r.Name}} {
				if found := s.objects[key]; found != nil {
					owner = found
				}
			}
			if r.Kind != kindClaim && r.Kind != kindPool && r.Kind != kindGlobal {
				return false
			}
			return owner == nil || owner.GetUID() != r.UID
		})
		switch {
		case len(rest) == len(o.OwnerReferences):
		case len(rest) == 0:
			s.delete(k)
			did = true
		default:
			s.edit(k, func(o metav1.Object) { o.SetOwnerReferences(rest) })
			did = true
		}
	}
	return did
}

// slowPool lists what can be allocated from a spec, address by address. It shares no code with package addresses, and knows only what the
// simulation's users write.
func slowPool(spec v1alpha2.InClusterIPPoolSpec) (all []netip.Addr) {
	each := func(entries []string) map[netip.Addr]bool {
		set := map[netip.Addr]bool{}
		for _, e := range entries {
			from, to, ok := strings.Cut(e, "-")
			if p, err := netip.ParsePrefix(e); err == nil {
				for a := p.Masked().Addr(); p.Contains(a); a = a.Next() {
					set[a] = true
				}
				continue
			}
			if !ok {
				to = from
			}
			a, err := netip.ParseAddr(from)
			if err != nil {
				return nil
			}
			for ; a.Compare(netip.MustParseAddr(to)) <= 0; a = a.Next() {
				set[a] = true
			}
		}
		return set
	}
	set, excluded := each(spec.Addresses), each(spec.ExcludedAddresses)
	for _, a := range slices.SortedFunc(maps.Keys(set), netip.Addr.Compare) {
		subnet, _ := a.Prefix(spec.Prefix)
		reserved := a == subnet.Addr() || a.Is4() && !subnet.Contains(a.Next())
		if !excluded[a] && a.String() != spec.Gateway && (!reserved || spec.AllocateReservedIPAddresses) {
			all = append(all, a)
		}
	}
	return all
}
