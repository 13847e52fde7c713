package incluster

import (
	"maps"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/addresses"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// AnnotationPoolUID on a Global pool is its UID. clusterctl copies such a pool to other clusters and does not delete it, so two clusters would
// allocate the same addresses.
const AnnotationPoolUID = "networking.x-k8s.io/pool-uid"

// AnnotationPoolMoved on a pool is its UID, once clusterctl has begun to move its IPAddressClaims and IPAddresses to another cluster, where machines go on
// using their addresses. clusterctl deletes the pool last, after a restart of this process perhaps.
const AnnotationPoolMoved = "networking.x-k8s.io/pool-moved"

// kindOf is one of the four kinds of pools.
type kindOf struct {
	kind             *runner.Kind
	global, prefixes bool
}

// kinds are the kinds of pools, by their names.
var kinds = map[string]kindOf{
	v1alpha2.KindInClusterIPPool:           {kind: runner.InClusterIPPools},
	v1alpha2.KindGlobalInClusterIPPool:     {kind: runner.GlobalInClusterIPPools, global: true},
	v1alpha2.KindInClusterPrefixPool:       {kind: runner.InClusterPrefixPools, prefixes: true},
	v1alpha2.KindGlobalInClusterPrefixPool: {kind: runner.GlobalInClusterPrefixPools, global: true, prefixes: true},
}

// object is what the four kinds have in common. It is encoded like them, without the spec.
type object struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            v1alpha2.InClusterIPPoolStatus `json:"status"`

	kind kindOf
	spec spec
	// invalid is why nothing is allocated from it; compiled is nil then. Both are set by compile.
	compiled *addresses.Pool
	invalid  error
}

// spec is the spec of a pool of either sort.
type spec struct {
	addresses addresses.Spec
	prefixes  addresses.PrefixSpec
	gateway   string
	grace     time.Duration
}

func (o *object) compile() {
	if o.kind.prefixes {
		o.compiled, o.invalid = addresses.CompilePrefixes(o.spec.prefixes)
	} else {
		o.compiled, o.invalid = addresses.Compile(o.spec.addresses)
	}
}

// copiedFrom returns the UID of the Global pool in another cluster from which o was copied; empty if it was not, or somebody has confirmed it.
func (o *object) copiedFrom() string {
	if said := o.Annotations[AnnotationPoolUID]; o.kind.global && said != string(o.UID) {
		return said
	}
	return ""
}

// moved reports whether o says that what it has given is in another cluster by now. A copy of o does not.
func (o *object) moved() bool {
	return o != nil && o.Annotations[AnnotationPoolMoved] == string(o.UID)
}

// alike reports whether o is for claims what it was before: only its status has changed. Either may be nil.
func (o *object) alike(before *object) bool {
	return o != nil && before != nil && reflect.DeepEqual(o.spec, before.spec) && maps.Equal(o.Annotations, before.Annotations) &&
		slices.Equal(o.Finalizers, before.Finalizers) && (o.DeletionTimestamp == nil) == (before.DeletionTimestamp == nil)
}

func ofAddresses(kind string, meta metav1.ObjectMeta, s *v1alpha2.InClusterIPPoolSpec, status v1alpha2.InClusterIPPoolStatus) *object {
	o := &object{ObjectMeta: meta, Status: status, kind: kinds[kind], spec: spec{gateway: s.Gateway, addresses: addresses.Spec{
		Addresses: s.Addresses, Excluded: s.ExcludedAddresses, Gateway: s.Gateway, Prefix: s.Prefix, AllocateReserved: s.AllocateReservedIPAddresses,
	}}}
	if s.AddressReuseGracePeriodSeconds != nil {
		o.spec.grace = time.Duration(*s.AddressReuseGracePeriodSeconds) * time.Second
	}
	return o
}

func ofPrefixes(kind string, meta metav1.ObjectMeta, s *v1alpha2.InClusterPrefixPoolSpec, status v1alpha2.InClusterIPPoolStatus) *object {
	return &object{ObjectMeta: meta, Status: status, kind: kinds[kind], spec: spec{gateway: s.Gateway, prefixes: addresses.PrefixSpec{
		Prefixes: s.Prefixes, Length: s.AllocationPrefixLength, Excluded: s.ExcludedPrefixes, Gateway: s.Gateway,
	}}}
}
