// Package contract is Cluster API's IPAM contract: an IPAddressClaim names a pool, and gets an IPAddress of its name. It is written once, for
// all providers of addresses.
//
// [Contract.Reconcile] brings one claim from pause to finalizer:
//
//	paused? ─► deleted? ─► Allocate ─► finalizer, annotations ─► IPAddress ─► status
//	              └─► MayRelease ─► IPAddress goes ─► Release ─► finalizer goes
//
// A claim is known by its token, which stands in the owner annotation of the claim and of its IPAddress. So it stays the same when both are moved
// to another cluster. A reservation of the provider is by claim, before the first write that shows it. An unanswered create of an IPAddress is settled by a
// read from etcd, after the time in which it can still be carried out.
package contract

import (
	"context"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// Provider is what a provider of addresses does by itself. Its methods are called concurrently for different claims, never for one. An error that is a
// [Waits] is shown in the claim's condition Ready; other errors are returned for a retry.
type Provider interface {
	// Pool returns the pool that a claim names; nil if it does not exist. ours reports whether the pool is of this provider.
	Pool(claim *v1beta2.IPAddressClaim) (pool metav1.Object, ours bool)
	// Allocate returns what the claim has: the same until Release, whatever answers were lost and whoever leads. What is not written to another system, such
	// as an address or the name of a host record, it reserves, and says it in the annotations, which are written to the claim. To a claim that
	// carries these it gives an address. pool may be nil.
	Allocate(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object) (Allocation, error)
	// Confirm returns nil if the address of an IPAddress, which this process did not create, is reserved for the claim, so that the claim may be told. For a
	// claim that is being deleted it also is nil if the address is not: then Release does not give it back.
	Confirm(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) error
	// MayRelease returns nil if a claim in deletion may lose its IPAddress, which nobody else keeps. Otherwise the error says until when it stays.
	MayRelease(claim *v1beta2.IPAddressClaim) error
	// Release gives back what the claim has. It is called when the IPAddress is gone and no create of it can be carried out any more. The claim may be
	// gone, too: then nothing is written to it.
	Release(ctx context.Context, claim *v1beta2.IPAddressClaim) error
	// Says returns the annotations of the provider that follow from an IPAddress alone.
	Says(address *v1beta2.IPAddress) map[string]string
	// ClaimShown and AddressShown are called for every change of a claim or an IPAddress, of any provider, before its claim is queued.
	// before is nil for a new one, and AddressShown's now for an IPAddress that is gone.
	ClaimShown(before, now *v1beta2.IPAddressClaim)
	AddressShown(before, now *v1beta2.IPAddress)
	// ClaimGone is called when a claim is gone and no create of its IPAddress can be carried out any more.
	ClaimGone(claim *v1beta2.IPAddressClaim)
}

// Allocation is what an IPAddress says.
type Allocation struct {
	Address netip.Addr // not valid if the claim must carry the annotations before
	Prefix  int
	Gateway string
	// Annotations are written to the claim and to the IPAddress.
	Annotations map[string]string
}

// Waits is the error of a claim that waits: its condition Ready says why.
type Waits struct {
	Reason, Message string
	// Again is when to try again by itself; zero if a change will queue the claim.
	Again time.Duration
}

func (w Waits) Error() string { return w.Message }

// Config is the input of New.
type Config struct {
	Term     *runner.Term
	Provider Provider
	// PoolVersion is the API version of the pools.
	PoolVersion string
	// Carries are the annotations of the provider that a claim and its IPAddress carry, besides [AnnotationOwner].
	Carries []string
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter of the claims that are worked on. Empty: all are.
	WatchFilter string
}
