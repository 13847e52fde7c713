package nodeipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
)

// The simulated API server. It does what the real one does to the requests that the controller and its users make, and
// keeps every revision, so that a cache can lag behind it by any number of changes.

type kind string

const (
	kindNode        kind = "nodes"
	kindClusterCIDR kind = "clustercidrs"
	kindServiceCIDR kind = "servicecidrs"
)

var kinds = []kind{kindNode, kindClusterCIDR, kindServiceCIDR}

func (k kind) resource() schema.GroupResource { return schema.GroupResource{Resource: string(k)} }

// change is one revision. Stored objects are never changed, only replaced.
type change struct {
	kind   kind
	name   string
	object metav1.Object // nil: deleted
}

type simServer struct {
	now func() time.Time
	// changes[i] made revision i+1. One counter serves all kinds, as in etcd.
	changes []change
	objects map[kind]map[string]metav1.Object
	events  map[string]*v1.Event
	lease   simLease
	uids    int
	// applied is what the controller has last applied of each ClusterCIDR's status, by UID: its own fields.
	applied map[types.UID]networkingv1.ClusterCIDRStatus
	// policy: a first podCIDR has to name the holder of the lease (manifests/fencing).
	policy bool
	// onPodCIDRs and onFinalizerRemoved are told of writes that matter, before they are stored.
	onPodCIDRs         func(node *v1.Node)
	onFinalizers       func(old, cc *networkingv1.ClusterCIDR)
	onFinalizerRemoved func(cc *networkingv1.ClusterCIDR)
	onAllocation       func(old, cc *networkingv1.ClusterCIDR)
	// dropsFinalizers: a mutating admission policy leaves out the finalizer that the controller adds, and the answer is 200.
	dropsFinalizers bool
	// keepsFinalizers: one puts back the finalizer that the controller takes away. dropsPodCIDRs: one leaves out first podCIDRs. The answer is 200.
	keepsFinalizers, dropsPodCIDRs bool
	// crdGone: the CustomResourceDefinition of ClusterCIDRs is not there.
	crdGone bool
	// altered says that one of them did.
	altered bool
}

// simLease is the Lease object.
type simLease struct {
	record   resourcelock.LeaderElectionRecord
	revision int // 0: there is none
}

func newSimServer(now func() time.Time) *simServer {
	s := &simServer{now: now, objects: map[kind]map[string]metav1.Object{}, events: map[string]*v1.Event{}, applied: map[types.UID]networkingv1.ClusterCIDRStatus{}}
	for _, k := range kinds {
		s.objects[k] = map[string]metav1.Object{}
	}
	s.changes = []change{{}} // the first revision is 1
	return s
}

func (s *simServer) revision() int { return len(s.changes) }

func (s *simServer) node(name string) *v1.Node {
	n, _ := s.objects[kindNode][name].(*v1.Node)
	return n
}

func (s *simServer) clusterCIDR(name string) *networkingv1.ClusterCIDR {
	cc, _ := s.objects[kindClusterCIDR][name].(*networkingv1.ClusterCIDR)
	return cc
}

func (s *simServer) serviceCIDR(name string) *networkingapiv1.ServiceCIDR {
	sc, _ := s.objects[kindServiceCIDR][name].(*networkingapiv1.ServiceCIDR)
	return sc
}

// create gives an object what the server gives it. The caller has seen that the name is not taken.
func (s *simServer) create(k kind, o metav1.Object) {
	s.uids++
	o.SetUID(types.UID(fmt.Sprintf("%s-%d", o.GetName(), s.uids)))
	o.SetCreationTimestamp(metav1.NewTime(s.now().Truncate(time.Second))) // as it is stored
	o.SetGeneration(1)
	s.store(k, o)
}

// store makes o the next revision. An object under deletion whose last finalizer is gone is gone.
func (s *simServer) store(k kind, o metav1.Object) {
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		delete(s.objects[k], o.GetName())
		s.changes = append(s.changes, change{k, o.GetName(), nil})
		return
	}
	o.SetResourceVersion(strconv.Itoa(s.revision() + 1))
	s.objects[k][o.GetName()] = o
	s.changes = append(s.changes, change{k, o.GetName(), o})
}

func (s *simServer) delete(k kind, name string) {
	o := copyOf(s.objects[k][name])
	if o.GetDeletionTimestamp() != nil {
		return
	}
	now := metav1.NewTime(s.now().Truncate(time.Second)) // as it is stored
	o.SetDeletionTimestamp(&now)
	s.store(k, o)
}

func copyOf(o metav1.Object) metav1.Object {
	switch o := o.(type) {
	case *v1.Node:
		return o.DeepCopy()
	case *networkingv1.ClusterCIDR:
		return o.DeepCopy()
	case *networkingapiv1.ServiceCIDR:
		return o.DeepCopy()
	}
	panic(fmt.Sprintf("no such kind: %T", o))
}

// strategic applies a strategic merge patch to a Node. API servers know none for custom resources.
func strategic(node, patch []byte) ([]byte, error) {
	return strategicpatch.StrategicMergePatch(node, patch, v1.Node{})
}

// patched applies a patch to a stored object. What it returns is not stored yet; nil means that nothing changed.
func patched[T any, O interface {
	*T
	metav1.Object
}](s *simServer, k kind, name string, patch []byte, apply func(object, patch []byte) ([]byte, error)) (O, error) {
	old, ok := s.objects[k][name].(O)
	if !ok {
		return nil, apierrors.NewNotFound(k.resource(), name)
	}
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	after, err := apply(before, patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o := O(new(T))
	if err := json.Unmarshal(after, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	switch {
	case o.GetUID() != old.GetUID():
		return nil, invalid(k, name, "metadata.uid: field is immutable")
	case o.GetResourceVersion() != old.GetResourceVersion():
		return nil, apierrors.NewConflict(k.resource(), name, errors.New("the object has been modified"))
	case old.GetDeletionTimestamp() != nil && slices.ContainsFunc(o.GetFinalizers(), func(f string) bool { return !slices.Contains(old.GetFinalizers(), f) }):
		return nil, invalid(k, name, "metadata.finalizers: no new finalizers can be added if the object is being deleted")
	case equality.Semantic.DeepEqual(o, old):
		return nil, nil
	}
	return o, nil
}

func invalid(k kind, name, why string) error {
	err := apierrors.NewInvalid(schema.GroupKind{Kind: string(k)}, name, nil)
	err.ErrStatus.Message = why
	return err
}

func (s *simServer) PatchNode(name string, patch []byte) error {
	node, err := patched[v1.Node](s, kindNode, name, patch, strategic)
	if err != nil || node == nil {
		return err
	}
	old := s.node(name)
	if err := validPodCIDRs(node); err != nil {
		return err
	}
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs) {
		return invalid(kindNode, name, "spec.podCIDRs: node updates may not change them")
	}
	first := len(old.Spec.PodCIDRs) == 0 && len(node.Spec.PodCIDRs) > 0
	writer := node.Annotations[networkingv1.AnnotationLeaseHolder]
	if s.policy && (first || writer != old.Annotations[networkingv1.AnnotationLeaseHolder]) && writer != s.lease.record.HolderIdentity {
		return apierrors.NewForbidden(kindNode.resource(), name, fmt.Errorf("%s: podCIDRs are assigned by %s", requests.FencingPolicy, s.lease.record.HolderIdentity))
	}
	if first && s.dropsPodCIDRs {
		s.altered = true
		node.Spec.PodCIDR, node.Spec.PodCIDRs = "", nil
		if equality.Semantic.DeepEqual(node, old) {
			return nil
		}
	} else if first {
		s.onPodCIDRs(node)
	}
	s.store(kindNode, node)
	return nil
}

// validPodCIDRs is what core/v1 says of a Node.
func validPodCIDRs(node *v1.Node) error {
	if len(node.Spec.PodCIDRs) == 0 {
		return nil
	}
	var families []ipam.Family
	for _, s := range node.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return invalid(kindNode, node.Name, err.Error())
		}
		families = append(families, ipam.FamilyOf(p))
	}
	if node.Spec.PodCIDR != node.Spec.PodCIDRs[0] || len(families) > 2 || len(families) == 2 && families[0] == families[1] {
		return invalid(kindNode, node.Name, "spec.podCIDRs: one of each family, the first one in podCIDR too")
	}
	return nil
}

func (s *simServer) PatchClusterCIDR(name string, patch []byte) error {
	if s.crdGone {
		return notServed(name)
	}
	cc, err := patched[networkingv1.ClusterCIDR](s, kindClusterCIDR, name, patch, jsonpatch.MergePatch)
	if err != nil || cc == nil {
		return err
	}
	old := s.clusterCIDR(name)
	if cc.Spec.Allocation != old.Spec.Allocation {
		s.onAllocation(old, cc)
		cc.Generation++
	}
	if spec := old.Spec; !equality.Semantic.DeepEqual(cc.Spec, *withAllocation(&spec, cc.Spec.Allocation)) {
		return invalid(kindClusterCIDR, name, "spec: the controller must not change it")
	}
	if s.dropsFinalizers && !slices.Contains(old.Finalizers, networkingv1.Finalizer) && slices.Contains(cc.Finalizers, networkingv1.Finalizer) {
		cc.Finalizers = slices.DeleteFunc(cc.Finalizers, func(f string) bool { return f == networkingv1.Finalizer })
		if equality.Semantic.DeepEqual(cc, old) {
			return nil // and there is no event
		}
	}
	if s.keepsFinalizers && slices.Contains(old.Finalizers, networkingv1.Finalizer) && !slices.Contains(cc.Finalizers, networkingv1.Finalizer) {
		s.altered = true
		return nil // and there is no event
	}
	cc.Status = old.Status // a subresource of its own
	s.onFinalizers(old, cc)
	if slices.Contains(old.Finalizers, networkingv1.Finalizer) && !slices.Contains(cc.Finalizers, networkingv1.Finalizer) {
		s.onFinalizerRemoved(old)
	}
	s.store(kindClusterCIDR, cc)
	return nil
}

func withAllocation(spec *networkingv1.ClusterCIDRSpec, mode networkingv1.AllocationMode) *networkingv1.ClusterCIDRSpec {
	spec.Allocation = mode
	return spec
}

// applyStatus is a server-side apply by force: what is not in it goes only if an earlier one had it.
func (s *simServer) ApplyStatus(name string, uid types.UID, status networkingv1.ClusterCIDRStatus) error {
	if s.crdGone {
		return notServed(name)
	}
	old := s.clusterCIDR(name)
	if old == nil || old.UID != uid {
		return apierrors.NewConflict(kindClusterCIDR.resource(), name, errors.New("uid mismatch"))
	}
	mine := s.applied[uid]
	s.applied[uid] = *status.DeepCopy()
	keep := func(now **networkingv1.RangeStatus, before, mine *networkingv1.RangeStatus) {
		switch {
		case before == nil:
		case *now == nil && mine == nil:
			*now = before
		case *now != nil && (*now).Cursor == "" && (mine == nil || mine.Cursor == ""):
			(*now).Cursor = before.Cursor
		}
	}
	keep(&status.IPv4, old.Status.IPv4, mine.IPv4)
	keep(&status.IPv6, old.Status.IPv6, mine.IPv6)
	if equality.Semantic.DeepEqual(old.Status, status) {
		return nil
	}
	cc := old.DeepCopy()
	cc.Status = status
	s.store(kindClusterCIDR, cc)
	return nil
}

// patchStatus is a merge patch of a status.
func (s *simServer) PatchStatus(name string, patch []byte) error {
	if s.crdGone {
		return notServed(name)
	}
	cc, err := patched[networkingv1.ClusterCIDR](s, kindClusterCIDR, name, patch, jsonpatch.MergePatch)
	if err != nil || cc == nil {
		return err
	}
	now := s.clusterCIDR(name).DeepCopy()
	now.Status = cc.Status
	s.store(kindClusterCIDR, now)
	return nil
}

// notServed is the answer to a request for a resource that the API server does not have.
func notServed(name string) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", kindClusterCIDR.resource(), name, "404 page not found", 0, true)
}

func (s *simServer) CreateEvent(event *v1.Event) error {
	if s.events[event.Name] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, event.Name)
	}
	s.events[event.Name] = event
	return nil
}

func (s *simServer) PatchEvent(name string) error {
	if s.events[name] == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, name)
	}
	return nil
}

// updateLease replaces the Lease of a revision, or makes the first one.
func (s *simServer) updateLease(record resourcelock.LeaderElectionRecord, revision int) error {
	if revision != s.lease.revision {
		return apierrors.NewConflict(leases, "lease", errors.New("the object has been modified"))
	}
	s.lease = simLease{record, revision + 1}
	return nil
}

var leases = schema.GroupResource{Resource: "leases"}
