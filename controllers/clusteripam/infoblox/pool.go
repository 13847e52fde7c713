package infoblox

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/text"
)

const (
	// reasonInvalid is on an InfobloxIPPool whose spec nobody can use.
	reasonInvalid = "Invalid"
	// reasonWithoutClaim is of an event about an InfobloxIPPool that has IPAddresses without a claim.
	reasonWithoutClaim = "AddressWithoutClaim"
)

// source is where a pool's addresses come from.
type source struct {
	place
	client           *client
	dnsView, dnsZone string
	subnets          []subnet
	claim            string // the ClusterIPAMClaim that writes the instance and the subnets of the pool; empty if users do
}

// otherInstance says where the InfobloxInstance of a pool is named. What users write into the pool of a ClusterIPAMClaim is taken back.
func otherInstance(p *v1alpha1.InfobloxIPPool) string {
	if claim := v1beta1.ClaimOf(p); claim != "" {
		return "name another one in the annotation " + v1beta1.AnnotationInfobloxInstance + " of the ClusterIPAMClaim " + claim
	}
	return "correct spec.instance.name"
}

// correctSubnets says where the subnets of a pool are written.
func (s *source) correctSubnets() string {
	if s.claim != "" {
		return "correct spec.nodeNetwork.cidr of the ClusterIPAMClaim " + s.claim
	}
	return "correct spec.subnets"
}

func (l *logic) poolChanged(before, now *v1alpha1.InfobloxIPPool) {
	object := now
	if now == nil {
		object = before
	}
	l.term.Queue.Add(runner.KeyOf(runner.InfobloxIPPools, object))
	if before == nil || now == nil || contract.Paused(before) != contract.Paused(now) || contract.GoingAway(before) != contract.GoingAway(now) {
		l.contract.QueuePool(v1alpha1.KindInfobloxIPPool, object.Namespace, object.Name)
	}
}

// syncPool checks whether a pool's networks exist, says so in the status, and keeps the pool while claims use it or IPAddresses of it exist.
func (l *logic) syncPool(ctx context.Context, name types.NamespacedName) error {
	pool, ok := l.pools.Get(name.Namespace, name.Name)
	if !ok {
		l.mu.Lock()
		delete(l.verdicts, name)
		l.mu.Unlock()
		return nil
	}
	if contract.Paused(pool) || contract.GoingAway(pool) {
		return nil
	}
	v, ok := l.checkPool(ctx, pool)
	if !ok {
		return nil
	}
	l.checkLater(runner.KeyOf(runner.InfobloxIPPools, pool), v)
	users := l.contract.ClaimsOf(v1alpha1.KindInfobloxIPPool, name.Namespace, name.Name)
	pool, err := l.protect(ctx, pool, len(users) > 0)
	if err != nil || pool == nil {
		return err
	}
	c, strays := v.condition(pool.Generation), l.strays(pool)
	if strays != "" {
		c.Message = text.Cut(c.Message, text.MaxMessage) + " " + strays
	}
	before := contract.Find(pool.Status.Conditions, c.Type)
	if err := l.say(ctx, runner.InfobloxIPPools, pool, pool.Status.Conditions, c); err != nil {
		return err
	}
	if strays != "" && (before == nil || !strings.HasSuffix(before.Message, strays)) {
		l.term.Event(pool, runner.InfobloxIPPools, false, reasonWithoutClaim, text.Cut(strays, text.MaxMessage))
	}
	return nil
}

// checkPool returns what the last check of a pool has shown, and checks again if it is time; ok is false while its InfobloxInstance is checked for the first time,
// which queues its pools.
func (l *logic) checkPool(ctx context.Context, pool *v1alpha1.InfobloxIPPool) (v verdict, ok bool) {
	l.mu.Lock()
	if _, exists := l.instances.Get("", pool.Spec.InstanceRef.Name); exists && l.servers[pool.Spec.InstanceRef.Name] == nil {
		l.mu.Unlock()
		return v, false
	}
	from, v, inputs := l.sourceOf(pool)
	old := l.verdicts[contract.NameOf(pool)]
	l.mu.Unlock()
	if old != nil && !old.due(inputs, time.Now()) {
		return *old, true
	}
	if from.client != nil {
		v = checkNetworks(ctx, from)
	}
	v.inputs, v.checked = inputs, time.Now()
	l.notePool(contract.NameOf(pool), v)
	return v, true
}

// notePool notes what a check has shown, and lets the claims know if it matters to them.
func (l *logic) notePool(name types.NamespacedName, v verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.verdicts[name]; old == nil || old.ready != v.ready || old.inputs != v.inputs || old.message != v.message {
		delete(l.full, name)
		l.contract.QueuePool(v1alpha1.KindInfobloxIPPool, name.Namespace, name.Name)
	}
	l.verdicts[name] = &v
}

// sourceOf returns where a pool's addresses come from. v says why that is not known. inputs changes whenever the source does. The caller holds the lock.
func (l *logic) sourceOf(p *v1alpha1.InfobloxIPPool) (from source, v verdict, inputs string) {
	inputs = fmt.Sprintf("%s %d", p.UID, p.Generation)
	subnets, problem := subnetsOf(p)
	instance := p.Spec.InstanceRef.Name
	s := l.servers[instance]
	switch {
	case problem != "":
		return from, notReady(reasonInvalid, "%s", problem), inputs
	case s == nil:
		return from, notReady(v1alpha1.ReasonAuthenticationFailed, "The InfobloxInstance %s does not exist. Create it, or %s.", instance, otherInstance(p)), inputs
	}
	inputs = fmt.Sprintf("%s %d", inputs, s.change)
	if !s.ready || s.client == nil {
		// What its condition says is for administrators: it can name a Secret.
		return from, notReady(cmp.Or(s.reason, v1alpha1.ReasonAuthenticationFailed), "The InfobloxInstance %s is not ready. See its condition Ready.", instance), inputs
	}
	from = source{place: l.placeOf(p), client: s.client, dnsView: p.Spec.DNSView, dnsZone: p.Spec.DNSZone, subnets: subnets, claim: v1beta1.ClaimOf(p)}
	if i, ok := l.instances.Get("", instance); ok {
		from.dnsView = cmp.Or(from.dnsView, i.Spec.DefaultDNSView)
	}
	if from.dnsView == "" && from.networkView != "default" {
		from.dnsView = "default." + from.networkView
	}
	from.dnsView = cmp.Or(from.dnsView, "default")
	return from, verdict{}, inputs
}

// subnetsOf returns the subnets of a pool, or what is wrong with them. Most of that our CustomResourceDefinition refuses, others may not.
func subnetsOf(p *v1alpha1.InfobloxIPPool) (subnets []subnet, problem string) {
	for _, given := range p.Spec.Subnets {
		s := subnet{}
		var err error
		switch s.prefix, err = netip.ParsePrefix(given.CIDR); {
		case err != nil:
			return nil, fmt.Sprintf("The subnet %q is not a CIDR. Correct spec.subnets.", text.Cut(given.CIDR, text.MaxValue))
		case s.prefix != s.prefix.Masked():
			return nil, fmt.Sprintf("The subnet %s does not begin with its first address. Write %s.", s.prefix, s.prefix.Masked())
		case given.Gateway == "":
		default:
			if s.gateway, err = netip.ParseAddr(given.Gateway); err != nil || s.gateway.BitLen() != s.prefix.Addr().BitLen() {
				return nil, fmt.Sprintf("The gateway %q of the subnet %s is not an address of its family. "+
					"Correct spec.subnets.", text.Cut(given.Gateway, text.MaxValue), s.prefix)
			}
		}
		subnets = append(subnets, s)
	}
	if len(subnets) == 0 {
		return nil, "The pool has no subnet. Add one to spec.subnets."
	}
	return subnets, ""
}

// checkNetworks asks an Infoblox for the views and the networks of a pool. A DNS view matters only for records in the DNS.
func checkNetworks(ctx context.Context, from source) verdict {
	client := from.client
	switch ok, err := client.NetworkView(ctx, from.networkView); {
	case err != nil:
		return unreachable(err)
	case !ok:
		return notReady(v1alpha1.ReasonNetworkViewNotFound, "Infoblox has no network view %s. Create it there, "+
			"or correct spec.NetworkView.", text.Cut(from.networkView, text.MaxValue))
	}
	switch ok, err := client.DNSView(ctx, from.dnsView); {
	case err != nil:
		return unreachable(err)
	case !ok && from.dnsZone != "":
		return notReady(v1alpha1.ReasonDNSViewNotFound, "Infoblox has no DNS view %s. Create it there, or correct spec.dnsView.", text.Cut(from.dnsView, text.MaxValue))
	}
	for _, s := range from.subnets {
		switch ok, err := client.Network(ctx, s.prefix, from.networkView); {
		case err != nil:
			return unreachable(err)
		case !ok:
			return notReady(v1alpha1.ReasonNetworkNotFound, "Infoblox has no network %s in the network view %s. Create it there, "+
				"or %s.", s.prefix, text.Cut(from.networkView, text.MaxValue), from.correctSubnets())
		}
	}
	return verdict{ready: true, reason: v1alpha1.ReasonReady, message: "All networks exist in Infoblox."}
}

// protect writes the finalizer of a pool, or removes it once the pool is deleted and neither claims nor IPAddresses need it. It returns the pool as it is then; nil if it
// may be gone.
func (l *logic) protect(ctx context.Context, pool *v1alpha1.InfobloxIPPool, used bool) (*v1alpha1.InfobloxIPPool, error) {
	finalizers := slices.DeleteFunc(slices.Clone(pool.Finalizers), func(f string) bool { return f == v1beta2.FinalizerProtectPool })
	missing := len(finalizers) == len(pool.Finalizers)
	leaves := pool.DeletionTimestamp != nil
	switch {
	case !leaves && missing:
		finalizers = append(finalizers, v1beta2.FinalizerProtectPool)
	case leaves && !missing && !used:
	default:
		return pool, nil
	}
	stored := &v1alpha1.InfobloxIPPool{}
	patch := runner.MergePatchOfVersion(pool, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	if err := l.term.API.Patch(ctx, runner.InfobloxIPPools, contract.NameOf(pool), patch, stored); err != nil || leaves {
		return nil, err
	}
	return stored, nil
}
