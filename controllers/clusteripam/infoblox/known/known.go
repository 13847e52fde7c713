// Package known is what is known about the objects behind the addresses of an Infoblox: claims, IPAddresses, pools and where host records are. It answers whose an
// IPAddress is, which of two is the copy, and who else may have an address. It makes no calls and reads no clock of its own.
//
//   - names.go: which host record an object has, and the annotations that say so.
//   - heard.go: what is noted when an object comes, changes or goes, and who has to look again.
//   - owners.go: of which claim an IPAddress is, and which IPAddresses are copies of others.
//   - others.go: who else has an address in a place: what package host asks.
package known

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/cluster"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// World is the state. The Lock of the controller guards it.
type World struct {
	Stores
	queue shell.Queue
	now   func() time.Time
	// defaultView returns the network view of the pools of an InfobloxInstance that name none; empty if it is not known.
	defaultView func(instance string) string

	Names map[types.UID]types.NamespacedName // of claims
	// ClaimsOf and AddressesOf are the claims and the IPAddresses of each pool.
	ClaimsOf, AddressesOf map[types.NamespacedName]map[types.NamespacedName]bool
	// strays are the IPAddresses of each pool that were without a claim when something was last heard of them or of a claim of their name.
	strays map[types.NamespacedName]map[types.NamespacedName]bool

	Holders map[netip.Addr]map[types.NamespacedName]Place // IPAddresses
	told    map[netip.Addr]map[types.NamespacedName]Place // claims that were told an address: they hold it without an IPAddress, too
	expects map[netip.Addr]map[types.NamespacedName]Place // claims that say an address and were not told it here: they were moved, or are being told
	hosts   map[string]string                             // the last address of each InfobloxInstance that was deleted

	// What the controller notes about claims. All of it is forgotten with the claim.
	Chosen   map[types.UID]Chosen     // addresses that are being written into IPAddresses
	Prepared map[types.UID]RecordName // what was last written into claims, even if the answer was lost
	Leaving  map[types.UID]bool       // claims that give up their host records for others
	Creating map[types.UID]time.Time  // until when a create of an IPAddress can be carried out; there may be one that the cache does not show
	Telling  map[types.UID]time.Time  // until when a write without an answer that tells a claim of its IPAddress can be carried out
	Waiting  map[types.UID]string     // reasons

	First   map[types.UID]netip.Addr // addresses of IPAddresses when this process saw them first
	Removed map[types.UID]bool       // claims and IPAddresses that are gone soon: this process has removed their host records
}

// Chosen is an address that Infoblox has chosen for a claim.
type Chosen struct {
	Address netip.Addr
	Place   Place
}

// New returns a World that has heard of nothing. defaultView returns the network view of the pools of an InfobloxInstance that name none; empty if it is not
// known.
func New(secretNamespace string, queue shell.Queue, now func() time.Time, defaultView func(instance string) string) *World {
	return &World{
		Stores:      newStores(secretNamespace),
		queue:       queue,
		now:         now,
		defaultView: defaultView,

		Names:       map[types.UID]types.NamespacedName{},
		ClaimsOf:    map[types.NamespacedName]map[types.NamespacedName]bool{},
		AddressesOf: map[types.NamespacedName]map[types.NamespacedName]bool{},
		strays:      map[types.NamespacedName]map[types.NamespacedName]bool{},
		Holders:     map[netip.Addr]map[types.NamespacedName]Place{},
		told:        map[netip.Addr]map[types.NamespacedName]Place{},
		expects:     map[netip.Addr]map[types.NamespacedName]Place{},
		hosts:       map[string]string{},
		Chosen:      map[types.UID]Chosen{},
		Prepared:    map[types.UID]RecordName{},
		Leaving:     map[types.UID]bool{},
		Creating:    map[types.UID]time.Time{},
		Telling:     map[types.UID]time.Time{},
		Waiting:     map[types.UID]string{},
		First:       map[types.UID]netip.Addr{},
		Removed:     map[types.UID]bool{},
	}
}

// Stores are what the controller reads.
type Stores struct {
	Instances *shell.Store[*v1alpha1.InfobloxInstance]
	Pools     *shell.Store[*v1alpha1.InfobloxIPPool]
	Claims    *shell.Store[*v1beta2.IPAddressClaim]
	Addresses *shell.Store[*v1beta2.IPAddress]
	Clusters  *shell.Store[*cluster.Cluster]
	Secrets   *shell.Store[*corev1.Secret]
}

func newStores(secretNamespace string) Stores {
	return Stores{
		shell.NewStore[v1alpha1.InfobloxInstance](shell.Reads{Kind: shell.InfobloxInstances}),
		shell.NewStore[v1alpha1.InfobloxIPPool](shell.Reads{Kind: shell.InfobloxIPPools}),
		shell.NewStore[v1beta2.IPAddressClaim](shell.Reads{Kind: shell.IPAddressClaims}),
		shell.NewStore[v1beta2.IPAddress](shell.Reads{Kind: shell.IPAddresses}),
		shell.NewStore[cluster.Cluster](shell.Reads{Kind: shell.Clusters, Optional: true}),
		shell.NewStore[corev1.Secret](shell.Reads{Kind: shell.Secrets, Namespace: secretNamespace}),
	}
}
